"""Trade-offs: the Pareto front over two or three of loss, parameters, FLOPs, memory, time and speed."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import pandas as pd
import streamlit as st

from ablate.analysis.numbers import MISSING, count, new_part
from ablate.analysis.pareto import Front, FrontPoint
from ablate.analysis.runs import words_for
from ablate.metrics import COSTS
from ablate.render.blocks import Grid
from ablate.render.document import names_note
from ablate.render.figures.front import (
    LETTER,
    Keys,
    cheapest,
    draw_front,
    draw_front_panel,
    draw_front_rows,
    finding,
    half_width,
    is_crowded,
    keys_of,
    not_drawn,
    stand,
    what_it_says,
)
from ablate.render.figures.style import Palette, Spec
from ablate.render.formats.html import group_mark
from ablate.stats import Interval
from ablate.store import StudyRecord
from dashboard.shared import results
from dashboard.shared.evidence import UNPROVEN
from dashboard.shared.exports import (
    Maker,
    cell_words,
    chart,
    dark,
    export,
    figure_files,
    is_narrow,
    page_width,
    plain_table,
    show_table,
    table_files,
)
from dashboard.shared.frame import begin_page, choose_in_words, link
from dashboard.shared.pictures import BlockPicture, block_files, block_pictures
from dashboard.shared.store import every
from dashboard.shared.text import fitting, prose, wrapping
from dashboard.views import Entry

ENTRY = Entry("Trade-offs", ":material/balance:", "This study", 60, variants=3)

LEAST, MOST = 2, 3
HOW_TO_READ = "Colour and mark: the verdict. Filled: on the front; hollow: not. Bars: 95 % intervals of each mean."
BASELINE_MARK = "○"
MOST_NAMED = 25
"""Points whose numbers are drawn beside them, those on the front first."""
MOST_WHOLE = 30
"""Rows up to which the whole table is shown; longer tables scroll."""


def show() -> None:
    """Draw the page."""
    study = begin_page("Trade-offs")
    record, _ = results.compared(study)
    metric = record.objective["metric"]
    usual = results.front(study)
    quantities = st.multiselect(
        "Quantities", [metric, *COSTS], list(usual.quantities) if usual else [metric, "parameters"], key="seen",
        bind="query-params", max_selections=MOST, format_func=words_for,
        help="Two or three. The first one is the vertical axis.",
    )  # fmt: skip
    if len(quantities) < LEAST:
        st.info(f"Choose {LEAST} or {MOST} quantities.")
        return
    st.fragment(_live, run_every=every(study))(study, tuple(quantities))


def _live(study: str, quantities: tuple[str, ...]) -> None:
    (record, _), front = results.compared(study), results.front(study, quantities)
    if not results.any_ended(study):
        return
    if front is None:
        st.info(
            "A front needs three variants or more with all of these quantities, and no diverged seed. More variants "
            "come with more switches, or with `design: {kind: search, objectives: [objective, parameters]}`. Seconds "
            "and tokens a second are known only if variants were timed: `ablate study FILE --time`."
        )
        return
    keys = keys_of(results.answer(study))
    table = front_table(front, keys)
    found, seen = finding(front, keys), ", ".join(words_for(one) for one in front.quantities)
    st.markdown(f"**{prose(found)}**")
    _picked(_figures(record, front, keys, list(table["variant"]), f"Pareto front by {seen}: {found}"[:1000]))
    st.caption(prose(" ".join(filter(None, (HOW_TO_READ, not_drawn(front), results.which_seeds(study))))))
    _table(table, front, keys, f"Variants by {seen}, with 95 % intervals; {len(table)} rows")
    with st.expander("How to read this"):
        unproven = f" {UNPROVEN}" * ("unproven" in keys.values())
        names = names_note(results.answer(study), " ".join(front.titles.values()))
        st.caption(prose(f"{what_it_says(front)}{unproven} {names}"))
    draw = partial(draw_front, front, keys)
    files = table_files(f"{study}_front", table) | figure_files(f"{study}_front", draw)
    export(files | _block(record, front, keys), "front")


def _figures(record: StudyRecord, front: Front, keys: Keys, named: list[str], alt: str) -> list[dict[str, Any]]:
    """Rows where points would stand one above the other or names be cut, else a panel for each cost; what was picked.

    Args:
        named: The names of the points in their order.
    """
    names = dict(zip((point.variant for point in ordered(front)), named, strict=True))
    labels = dict([*names.items()][:MOST_NAMED])
    if is_narrow():
        labels = {name: new_part(front.titles[name]) for name in labels}
    cut = any(LETTER * len(label) > page_width() / 2 for label in labels.values())
    if len(names) <= MOST_WHOLE and (cut or any(is_crowded(front, quantity) for quantity in front.quantities[1:])):
        return chart(
            lambda palette: draw_front_rows(front, keys, palette, names, page_width()),
            "front-rows", alt, picks=True,
        )  # fmt: skip
    picked = []
    for number, quantity in enumerate(front.quantities[1:]):

        def draw(palette: Palette, quantity: str = quantity) -> Spec:
            return draw_front_panel(front, quantity, keys, palette, labels, page_width())

        picked += chart(draw, f"front-{number}", alt, picks=True)
    return picked


def _table(table: pd.DataFrame, front: Front, keys: Keys, told: str) -> None:
    """The rows of `front_table`, in a narrow window below two headings and with the verdict as a mark."""
    most = {"variant": 300, "verdict": 100, "stands": 400}
    words = {name: fitting(table, name, width) for name, width in most.items()}
    formats = _formats(front, words)
    if not is_narrow():
        palette = Palette(dark())
        tones = {key: f"color: {palette.verdict(key).colour}; font-weight: 600" for key in keys.values()}
        shown = table.fillna({"verdict": MISSING}).style.map(lambda word: tones.get(word, ""), subset=["verdict"])
        show_table(
            shown, key="front-table", column_config=formats, row_height=wrapping(table, words),
            height="content" if len(table) <= MOST_WHOLE else "auto", alt=told,
        )  # fmt: skip
        return
    for heading, on_front in (("On the front", True), ("Dominated", False)):
        rows = [
            (f"{group_mark(keys[point.variant]) if point.variant in keys else BASELINE_MARK} {name}",
             *(_cell(point.values[of], formats[of]["type_config"]["format"]) for of in front.quantities))
            for name, point in zip(table["variant"], ordered(front), strict=True) if point.on_front == on_front
        ]  # fmt: skip
        if rows:
            st.html(f"<b>{heading}</b>")
            plain_table(Grid(("", *map(words_for, front.quantities)), (tuple(rows),), frozenset({0})), told)


def _cell(interval: Interval, form: str) -> str:
    half = half_width(interval)
    return cell_words(interval.mean, form) + (f" ± {cell_words(half, form)}" if half else "")


def ordered(front: Front) -> list[FrontPoint]:
    """The points on the front before the others, the best in the first quantity first."""
    return sorted(front.points, key=lambda point: not point.on_front)


def front_table(front: Front, keys: Keys) -> pd.DataFrame:
    """A row for each variant, with the number of its point and the verdict on it."""
    rows = []
    for place, point in enumerate(ordered(front), 1):
        row: dict[str, object] = {"variant": f"{place}. {front.titles[point.variant]}"}
        row["verdict"] = keys.get(point.variant)
        for quantity in front.quantities:
            interval = point.values[quantity]
            row[quantity] = interval.mean
            if half_width(interval):
                row[f"{quantity} ±"] = half_width(interval)
        rows.append(row | {"stands": _stands(front, point)})
    return pd.DataFrame(rows)


def _stands(front: Front, point: FrontPoint) -> str:
    by = front.titles.get(point.dominated_by or "")
    return stand(point).replace(" ", f" by {by} ", 1) if by else stand(point)


def _formats(front: Front, words: Mapping[str, int]) -> dict[str, Any]:
    number, text = st.column_config.NumberColumn, st.column_config.TextColumn
    formats = {quantity: "compact" if quantity in COSTS else "%.4f" for quantity in front.quantities}
    formats |= {quantity: "localized" for quantity in front.quantities if quantity == "parameters"}
    formats |= {f"{quantity} ±": form for quantity, form in formats.items()}
    columns = {name: number(format=form) for name, form in formats.items()}
    return columns | {name: text(width=width) for name, width in words.items()}


def _picked(picked: list[dict[str, Any]]) -> None:
    """Show the point selected in the figure in the select box below it."""
    found = next((str(point["variant"]) for point in picked if "variant" in point), None)
    if found is not None and found != st.session_state.get("picked in the front"):
        st.session_state["variant"] = found
    st.session_state["picked in the front"] = found


def _first(front: Front, baseline: str, keys: Keys) -> str:
    """The variant that the sentence above names first, else the best on the front but the baseline."""
    found = next(filter(None, (cheapest(front, cost, keys) for cost in front.quantities if cost in COSTS)), None)
    others = (point for point in front.points if point.on_front and point.variant != baseline)
    return (found or next(others, front.points[0])).variant


def _block(record: StudyRecord, front: Front, keys: Keys) -> dict[str, Maker]:
    """The block of a variant to be chosen, beside that of the baseline; its file."""
    names = [point.variant for point in front.points]
    st.header("The block of a point", anchor=False)
    name = choose_in_words(st.selectbox, "Variant (or pick a point above)", "variant", names,
                           _first(front, record.baseline, keys), front.titles)  # fmt: skip
    variants = {variant.name: variant for variant in record.variants}
    beside = None if name == record.baseline else (record.baseline, variants[record.baseline].spec.get("model", {}))
    with st.container(horizontal=True):
        sides = [record.baseline, name] if beside else [name]
        if beside:
            link("compare", "Compare with the baseline", sides=sides)
        link("curves", "Curves", variants=sides)
        link("trial", "Trial", variant=name)
    size = f"{front.titles[name]}, {count(variants[name].parameters)} parameters"
    pictures = [BlockPicture(name, variants[name].spec.get("model", {}), size, beside)]
    if beside:
        before = f"{record.baseline}, {count(variants[record.baseline].parameters)} parameters"
        pictures.insert(0, BlockPicture(*beside, before))
    block_pictures(pictures)
    return dict(block_files("block", name, variants[name].spec.get("model", {}), beside))
