"""Trade-offs: the Pareto front over two or three of loss, parameters, FLOPs, memory, time and speed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from ablate.analysis.numbers import count
from ablate.analysis.pareto import Front, FrontPoint
from ablate.analysis.quantities import UNITS, words_for
from ablate.render.sections.front import what_it_says
from ablate.spec.quantities import COSTS
from ablate.stats import Interval
from ablate.store import StudyRecord
from shared import results
from shared.charts import chart, figure, grey, ink
from shared.colours import pale, variant_looks
from shared.exports import export, table_files
from shared.frame import begin_page, link, warn_of_unknown
from shared.pictures import BlockPicture, block_files, block_pictures
from shared.printed import printed_front
from shared.store import every
from shared.store import record as read_record
from shared.text import for_plotly, in_lines, prose
from shared.widths import fitting, wrapping

LEAST, MOST = 2, 3
MANY, MOST_NAMED = 60, 12
"""Number of variants from which dominated ones are small and grey, and maximum number of points in the legend."""
STANDS = {"front": ("on the front", "square", 12), "beaten": ("dominated in the means", "circle-open", 9),
          "shown": ("dominated (95 % confidence)", "x-thin", 9)}  # fmt: skip
FAR = 0.6
"""How far intervals are shown beyond the means, as a share of the range of the means."""


def show() -> None:
    """Draw the page."""
    study = begin_page("Trade-offs")
    record = read_record(study)
    metric = record.objective["metric"]
    usual = results.front(study)
    quantities = st.multiselect(
        "Seen by", [metric, *COSTS], list(usual.quantities) if usual else [metric, "parameters"], key="seen",
        bind="query-params", max_selections=MOST, format_func=words_for,
        help="Two or three. The first one is the vertical axis.",
    )  # fmt: skip
    if len(quantities) < LEAST:
        st.info(f"Choose {LEAST} or {MOST} quantities.")
        return
    st.fragment(_live, run_every=every(study))(study, tuple(quantities))


def _live(study: str, quantities: tuple[str, ...]) -> None:
    record, front = read_record(study), results.front(study, quantities)
    if not results.any_ended(study):
        return
    if front is None:
        st.info(
            "A front needs three variants or more with all of these quantities, and no diverged seed. More variants "
            "come with more switches, or with `design: {kind: search, objectives: [objective, parameters]}`. Seconds "
            "and tokens a second are known only if variants were timed: `ablate study FILE --time`."
        )
        return
    table = front_table(front)
    on_front = [point.variant for point in front.points if point.on_front]
    seen = ", ".join(words_for(one) for one in front.quantities)
    picked = chart(_figure(front, record), "front", f"Pareto front by {seen}: {', '.join(on_front)}"[:1000], picks=True)
    st.markdown(prose(what_it_says(front)))
    st.caption(
        "Numbers are those of the table. Double-click to see intervals to their ends; pick a point to see its block."
    )
    _picked(picked)
    words = {name: fitting(table, name, 220) for name in ("variant", "dominated by")}
    st.dataframe(
        table, key="front-table", hide_index=True, placeholder="-", column_config=_formats(front, words),
        row_height=wrapping(table, words),
        alt=f"Variants by {seen}, with 95 % intervals; {len(table)} rows",
    )  # fmt: skip
    export(table_files(f"{study}_front", table) | printed_front(study, front), "front")
    _block(study, record, front)


def front_table(front: Front) -> pd.DataFrame:
    """A row for each variant, the best in the first quantity first."""
    rows, numbers = [], numbered(front)
    for point in front.points:
        row: dict[str, object] = {
            "number": numbers.get(point.variant),
            "variant": point.variant,
            "stands": STANDS[_stand(point)][0],
        }
        for quantity in front.quantities:
            interval = point.values[quantity]
            row[quantity] = interval.mean
            if _half(interval):
                row[f"{quantity} ±"] = _half(interval)
        rows.append(row | {"dominated by": point.dominated_by})
    return pd.DataFrame(rows)


def _stand(point: FrontPoint) -> str:
    return "front" if point.on_front else "shown" if point.significant else "beaten"


def _half(interval: Interval) -> float | None:
    if interval.low is None or interval.high is None or interval.low == interval.high:
        return None
    return (interval.high - interval.low) / 2


def _formats(front: Front, words: Mapping[str, int]) -> dict[str, Any]:
    number, text = st.column_config.NumberColumn, st.column_config.TextColumn
    formats = {quantity: "compact" if quantity in COSTS else "%.4f" for quantity in front.quantities}
    formats |= {quantity: "localized" for quantity in front.quantities if quantity == "parameters"}
    formats |= {f"{quantity} ±": form for quantity, form in formats.items()}
    columns = {name: number(format=form) for name, form in formats.items()}
    return columns | {name: text(width=width) for name, width in words.items()}


def _figure(front: Front, record: StudyRecord) -> go.Figure:
    """A panel for each quantity but the first; the marker's shape shows whether a variant is dominated."""
    first, across, looks = front.quantities[0], front.quantities[1:], variant_looks(record)
    made = figure(540)
    made.set_subplots(cols=len(across), shared_yaxes=True, horizontal_spacing=0.04)
    numbers = numbered(front)
    for column, quantity in enumerate(across, 1):
        if len(across) == 1:
            _staircase(made, front, quantity)
        many, named = len(front.points) > MANY, len(numbers) <= MOST_NAMED
        alike: dict[tuple[str, str, str], list[FrontPoint]] = {}
        for point in sorted(front.points, key=lambda point: point.on_front):
            colour = grey() if many and not point.on_front else looks[point.variant].colour
            one = point.variant if named and point.on_front else ""
            alike.setdefault((_stand(point), colour, one), []).append(point)
        for (stand, colour, one), points in alike.items():  # a trace for each point would be slow for a thousand
            _, mark, size = STANDS[stand]
            behind = many and stand != "front"
            xs, ys = [point.values[quantity] for point in points], [point.values[first] for point in points]
            made.add_scatter(
                x=[one.mean for one in xs], y=[one.mean for one in ys], error_x=None if behind else _bars(xs, colour),
                error_y=None if behind else _bars(ys, colour), mode="markers+text",
                name=in_lines(f"{numbers[one]} {one}") if one else "",
                showlegend=bool(one) and column == 1, legendgroup=one or None, opacity=0.45 if behind else 1.0,
                customdata=[[point.variant, _hover(point, quantity, first)] for point in points],
                text=[numbers.get(point.variant, "") for point in points], textposition="top right",
                textfont={"color": ink(), "size": 13}, hovertemplate="%{customdata[1]}<extra></extra>",
                marker={"color": colour, "symbol": mark, "size": 5 if behind else size,
                        "line": {"color": colour, "width": 1 if behind else 2}},
                row=1, col=column,
            )  # fmt: skip
        unit = f" ({UNITS[quantity]})" if quantity in UNITS else ""
        made.update_xaxes(
            title=for_plotly(words_for(quantity) + unit),
            tickformat="~s",
            range=_reach(front, quantity),
            row=1,
            col=column,
        )
    better = "lower" if front.directions[0] == "minimize" else "higher"
    made.update_yaxes(title=for_plotly(f"{words_for(first)} ({better} is better)"), row=1, col=1)
    made.update_yaxes(range=_reach(front, first))
    for said, mark, size in STANDS.values():
        marker = {"symbol": mark, "size": size, "color": ink(), "line": {"color": ink(), "width": 2}}
        made.add_scatter(x=[None], y=[None], mode="markers", name=said, marker=marker)
    made.update_layout(clickmode="event+select", uirevision=str(front.quantities))
    return made


def numbered(front: Front) -> dict[str, str]:
    """Variants on the front to their numbers, the best in the first quantity first."""
    return {name: str(number) for number, name in enumerate([one.variant for one in front.points if one.on_front], 1)}


def _reach(front: Front, quantity: str) -> list[float]:
    """The range of an axis: all means, and the intervals unless they are very long."""
    intervals = [point.values[quantity] for point in front.points]
    means = [interval.mean or 0.0 for interval in intervals]
    low, high = min(means), max(means)
    room = FAR * (high - low) or math.inf
    ends = [end for interval in intervals for end in (interval.low, interval.high) if end is not None]
    least, most = min([low, *ends]), max([high, *ends])
    edge = 0.1 * (high - low) or 0.1 * abs(high)
    return [max(low - room, least) - edge, min(high + room, most) + edge]


def _staircase(made: go.Figure, front: Front, quantity: str) -> None:
    """The dominated region: beyond the line some variant is at least as good in both quantities."""
    first = front.quantities[0]
    corners = sorted(
        (point.values[quantity].mean or 0.0, point.values[first].mean or 0.0)
        for point in front.points
        if point.on_front
    )
    small = front.directions[1] == "minimize"
    where, heights = zip(*corners, strict=True)
    made.add_scatter(
        x=where, y=heights, mode="lines", hoverinfo="skip", showlegend=False,
        line={"shape": "hv" if small else "vh", "color": ink(), "width": 1, "dash": "dot"},
    )  # fmt: skip


def _hover(point: FrontPoint, quantity: str, first: str) -> str:
    lines = [f"{for_plotly(point.variant)}, {STANDS[_stand(point)][0]}"]
    lines += [f"{for_plotly(words_for(one))} {_said(point.values[one], one)}" for one in (quantity, first)]
    return "<br>".join(lines)


def _bars(intervals: list[Interval], colour: str) -> dict[str, object]:
    halves = [_half(interval) or 0.0 for interval in intervals]
    return {"type": "data", "array": halves, "thickness": 1.2, "width": 3, "color": pale(colour, 0.6)}


def _said(interval: Interval, quantity: str) -> str:
    half = _half(interval)
    return _number(interval.mean or 0.0, quantity) + (f" ± {_number(half, quantity)}" if half else "")


def _number(value: float, quantity: str) -> str:
    return count(round(value)) if quantity in COSTS else f"{value:.4g}"


def _picked(picked: object) -> None:
    """Show the point selected in the figure in the select box below it."""
    points = picked["selection"]["points"] if picked else []  # type: ignore[index]
    found = next((point["customdata"][0] for point in points if point.get("customdata")), None)
    if found is not None and found != st.session_state.get("picked in the front"):
        st.session_state["variant"] = found
    st.session_state["picked in the front"] = found


def _block(study: str, record: StudyRecord, front: Front) -> None:
    names = [point.variant for point in front.points]
    st.subheader("The block of a point", anchor=False)
    warn_of_unknown("variant", names)
    name = st.selectbox("Variant (or pick a point above)", names, key="variant", bind="query-params")
    variants = {variant.name: variant for variant in record.variants}
    beside = None if name == record.baseline else (record.baseline, variants[record.baseline].spec["model"])
    with st.container(horizontal=True):
        sides = [record.baseline, name] if beside else [name]
        if beside:
            link("compare", "Compare with the baseline", sides=sides)
        link("curves", "Curves", variants=sides)
        link("trial", "Trial", variant=name)
    size = f"{name}, {count(variants[name].parameters)} parameters"
    pictures = [BlockPicture(name, variants[name].spec["model"], size, beside)]
    if beside:
        before = f"{record.baseline}, {count(variants[record.baseline].parameters)} parameters"
        pictures.insert(0, BlockPicture(*beside, before))
    block_pictures(pictures)
    export(block_files("block", name, variants[name].spec["model"], beside), "block")
