"""Across studies: curves of variants of several studies in one plot, with a warning if their data differ."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pandas as pd
import streamlit as st

from ablate.analysis.answer_rows import answer_sentence
from ablate.analysis.changes import part_value, part_words, variant_titles
from ablate.analysis.curves import Axis, Band, Loss, band, band_at, line
from ablate.analysis.diff import differences
from ablate.analysis.numbers import MISSING, listed
from ablate.errors import NotFoundError
from ablate.render.figures.curves import draw_bands, outliers, what_is_cut
from ablate.render.figures.style import Palette, Spec, with_equal_decimals
from ablate.spec.fairness import STEPS
from ablate.spec.paths import short_path
from ablate.spec.suite import split_task
from ablate.store import TrialState
from dashboard.shared.evidence import WHY, said_value
from dashboard.shared.exports import (
    AXES,
    LOSSES,
    chart,
    choose_axis_and_loss,
    export,
    figure_files,
    grid_of_texts,
    is_narrow,
    show_grid,
    table_files,
)
from dashboard.shared.frame import STUDY, address, choose_in_words, no_study_yet
from dashboard.shared.store import (
    STORE,
    location,
    looking_at,
    record,
    report,
    settled_curves,
    store,
    stores,
    studies,
)
from dashboard.shared.text import escape, prose
from dashboard.views import Entry

ENTRY = Entry("Across studies", ":material/stacked_line_chart:", "All studies", 130)

BETWEEN = " / "
"""Separator between a study and its variant, in the address."""
FIRST, FEW = 3, 6
"""Variants that are drawn by default, and up to how many a wide table stands above."""
MOST, MOST_COLUMNS = 24, 4
"""Variants that are drawn, and settings that differ which stand beside them."""


@dataclass(frozen=True, slots=True)
class DrawnVariant:
    """The finished trials of a variant of a study.

    Attributes:
        title: The variant in words.
        study: The label of its study; empty where it goes without saying.
        band: Their curves together.
        data: Fingerprints of the data that they were trained on.
        task: The kind of the task, and the length of its inputs if it has one.
        corpus: What the data are called; empty for a task that makes its own.
        steps: The numbers of steps that they were trained for.
        tokens: The numbers of tokens that they were trained on.
        spec: What was trained, as plain JSON.
        parameters: How many it has; None where that is not known.
        verdict: The verdict on it in its own study, in words; empty without one.
        is_baseline: Whether it is the baseline of its study.
    """

    title: str
    study: str
    band: Band
    data: frozenset[str]
    task: str
    corpus: str
    steps: frozenset[int]
    tokens: frozenset[int]
    spec: Mapping[str, Any] = field(default_factory=dict)
    parameters: int | None = None
    verdict: str = ""
    is_baseline: bool = False

    @property
    def name(self) -> str:
        """The variant in words, with its study in brackets where there are several."""
        return f"{self.title} ({self.study})" if self.study else self.title


def show() -> None:
    """Draw the page."""
    above = st.container()
    st.title("Curves across studies", anchor=False)
    known = _everywhere()
    if not known:
        no_study_yet()
        return
    current = (location(), st.session_state.get(STUDY))
    first = next((label for label, (at, study) in known.items() if (stores()[at], study) == current), next(iter(known)))
    row = st.container(horizontal=True, vertical_alignment="bottom")
    with row.popover("Choose studies and variants", icon=":material/tune:"):
        chosen = st.multiselect("Studies", list(known), [first], key="studies", bind="query-params")
        places = {label: place for label, place in known.items() if label in chosen}
        ranks = {
            f"{label}{BETWEEN}{name}": rank
            for label, place in places.items()
            for rank, name in enumerate(_variants(*place))
        }
        options = list(ranks)
        if not options:
            st.info("Choose a study to see its variants.")
            return
        first_task = split_task(options[0])[1]  # losses of different tasks are not comparable
        comparable = [option for option in options if split_task(option)[1] == first_task]
        of_each = sorted(comparable, key=ranks.__getitem__)[:FIRST]  # of every study that was chosen
        box = partial(st.multiselect, max_selections=MOST)
        sides = choose_in_words(box, "Variants", "sides", options, of_each, _titles(places))
        row = st.container(horizontal=True, vertical_alignment="bottom") if is_narrow() else row
    axis, loss = choose_axis_and_loss(row)
    log_x = row.toggle("Log x", key="logx", bind="query-params")
    drawn, evidence = [], []
    for side in sides:
        label, _, variant = side.partition(BETWEEN)
        at, study = places[label]
        with looking_at(at):
            drawn.append(read_side(study, variant, axis, loss, label if len(places) > 1 else ""))
        if drawn[-1].verdict:
            where = {STUDY: study, WHY: variant} | ({STORE: at} if len(stores()) > 1 else {})
            evidence.append(f"[{escape(drawn[-1].name)}]({address('answer', **where)})")
    if several := len(places) > 1:
        with above:
            st.caption(f"{listed(f'**{escape(label)}**' for label in places)}: how do their variants compare?")
    if found := finding(drawn, axis, loss):
        st.markdown(f"**{prose(found)}**")
    _draw(drawn, axis, loss, evidence, several=several, log_x=log_x)


def _everywhere() -> dict[str, tuple[str, str]]:
    """The studies of all stores, the latest of each store first: label to store and name."""
    found: dict[str, tuple[str, str]] = {}
    several = len(stores()) > 1
    for at in stores():
        with looking_at(at), suppress(NotFoundError):
            found |= {f"{at}: {study.name}" if several else study.name: (at, study.name) for study in studies()}
    return found


def _titles(places: Mapping[str, tuple[str, str]]) -> dict[str, str]:
    """The variants of these studies to what they are in words."""
    found: dict[str, str] = {}
    for label, (at, study) in places.items():
        with looking_at(at):
            titles = variant_titles(record(study))
            found |= {f"{label}{BETWEEN}{name}": f"{title} ({label})" for name, title in titles.items()}
    return found


def _variants(at: str, study: str) -> list[str]:
    with looking_at(at):
        return [variant.name for variant in record(study).variants]


def read_side(study: str, variant: str, axis: Axis, loss: Loss, label: str = "") -> DrawnVariant:
    """The finished comparison trials of a variant, without those for tuning and timing.

    Args:
        study: A study in the current store.
        variant: Its name in the study.
        label: The label of the study; empty where it goes without saying.
    """
    study_record = record(study)
    keys = [trial.key for trial in study_record.planned if trial.variant == variant]
    done = {key: trial for key, trial in store().trials(keys).items() if trial.state is TrialState.FINISHED}
    curves = settled_curves(tuple(done)) if done else {}
    known = next(one for one in study_record.variants if one.name == variant)
    row = next((row for row in report(study).variants if row.name == variant), None)
    spec, task = known.spec, known.spec.get("task", {})
    length = task.get("context", task.get("length"))
    said = str(task.get("kind", "unknown")).replace("_", " ") + (f" of {length} tokens" if length is not None else "")
    lines = [line(curve, axis, loss) for curve in curves.values()]
    title = variant_titles(study_record)[variant]
    return DrawnVariant(
        title, label, band([one for one in lines if one.x], "range"),
        frozenset(trial.data_fingerprint for trial in done.values()), said, str(task.get("data", "")),
        frozenset(trial.steps for trial in done.values()), frozenset(trial.tokens for trial in done.values()), spec,
        known.parameters, "" if row is None else answer_sentence(row), variant == study_record.baseline,
    )  # fmt: skip


def differing(sides: list[DrawnVariant]) -> str:
    """Why the losses of these variants cannot be compared, as a sentence; empty if they can."""
    data = {side.data for side in sides if side.data}
    tasks = sorted({side.task for side in sides if side.data})
    if len(tasks) > 1:
        return f"The variants have different tasks ({'; '.join(tasks)}): their losses are not comparable."
    if len(data) > 1:
        return "The variants were trained on different data: their losses are not comparable."
    return ""


def shared_end(sides: list[DrawnVariant]) -> float | None:
    """The last place that all curves reach; None without one."""
    known = [side.band for side in sides if side.band.mean]
    end = min((band.x[-1] for band in known), default=None)
    return None if end is None or any(band.x[0] > end for band in known) else end


def finding(sides: list[DrawnVariant], axis: Axis, loss: Loss) -> str:
    """The verdicts on few variants; without any, which has the lowest loss at the last place that all reach."""
    known, at = [side for side in sides if side.band.mean], shared_end(sides)
    if len(known) < 2 or differing(known) or at is None:
        return ""
    there = [(*found, side.name) for side in known if (found := band_at(side.band, at)) is not None]
    (first, _, high, best), (second, low, _, next_) = sorted(there)[:2]
    values = with_equal_decimals([first, second])
    last = ", the last that all reach" * any(side.band.x[-1] > at for side in known)
    judged = [side for side in known if side.verdict] if len(known) <= FIRST else []
    said = [f"{side.name}, in its study: {of_variant(side.verdict)}." for side in judged]
    verdictless = {side.name for side in known if not side.verdict}
    beside = sorted(one for one in there if one[-1] in verdictless)
    if judged and len(beside) > 1:
        ends = with_equal_decimals([mean for mean, *_ in beside])
        reached = listed(f"{name} {end}" for (*_, name), end in zip(beside, ends, strict=True))
        lowest_high, highest_low = min(one[2] for one in beside), max(one[1] for one in beside)
        said.append(f"{reached}: their seeds {'overlap' if highest_low <= lowest_high else 'do not overlap'}.")
    return " ".join(one[0].upper() + one[1:] for one in said) or (
        f"Lowest {LOSSES[loss]} loss at {at:,.4g} {AXES[axis]}{last}: {best}, {values[0]}; next {next_}, {values[1]}"
        f"{', but their seeds overlap' * (low <= high)}."
    )


def common(sides: list[DrawnVariant]) -> str:
    """What comparable variants have in common, and whether one was trained for longer than another, in a sentence."""
    same = f"Same task ({sides[0].task}) and same data: losses are comparable."
    steps, tokens = {one for side in sides for one in side.steps}, {one for side in sides for one in side.tokens}
    if len(steps) == len(tokens) == 1:
        return f"{same} Same budget: {_counts(steps)} steps, {_counts(tokens)} tokens."
    return (
        f"{same} Budgets differ ({_counts(steps)} steps; {_counts(tokens)} tokens): compare curves where both have "
        "points, not at their ends."
    )


def _counts(numbers: Iterable[int]) -> str:
    return listed(f"{number:,}" for number in sorted(numbers))


def conditions(sides: list[DrawnVariant], axis: Axis, loss: Loss) -> pd.DataFrame:
    """The loss of each variant where all have one, its verdict, and what differs of that with which it was trained."""
    at = shared_end(sides)

    def loss_of(side: DrawnVariant) -> float:
        there = None if at is None else band_at(side.band, at)
        return side.band.mean[-1] if there is None else there[0]

    sides = sorted(sides, key=loss_of)
    ends = [*map(loss_of, sides)]
    best = None if at is None or differing(sides) else band_at(sides[0].band, at)

    def beside_lowest(side: DrawnVariant) -> str:
        there = None if best is None or at is None or side is sides[0] else band_at(side.band, at)
        if best is None or there is None:
            return "lowest" if best is not None and side is sides[0] else MISSING
        return f"{there[0] - best[0]:+.3f}{', seeds overlap' * (there[1] <= best[2])}"

    reached = f"{LOSSES[loss]} loss" + (f" at {at:,.4g} {AXES[axis]}" if at is not None else "")
    found = pd.DataFrame(
        {
            "variant": [side.title for side in sides],
            "study": [side.study for side in sides],
            reached: with_equal_decimals(ends),
            "distance to the lowest": [*map(beside_lowest, sides)],
            "verdict in its study": [of_variant(side.verdict) or MISSING for side in sides],
            "seeds": [f"{side.band.n}" for side in sides],
            "task": [side.task for side in sides],
            "data": [f"{side.corpus} (hash {', '.join(sorted(mark[:8] for mark in side.data))})" for side in sides],
            "steps": [_counts(side.steps) for side in sides],
            "tokens": [_counts(side.tokens) for side in sides],
            "parameters": [MISSING if side.parameters is None else f"{side.parameters:,}" for side in sides],
        }
    )
    differ = settings(sides)
    if len(differ) <= MOST_COLUMNS:
        found = found.assign(
            **{row["setting"]: [row[side.name] for side in sides] for row in differ.to_dict("records")}
        )
    kept = [name for name in found if name in ("variant", reached) or found[name].nunique() > 1]
    return found[kept]


def of_variant(verdict: str) -> str:
    """A verdict on the parts that a variant is without as one on the variant."""
    return re.sub("^(must stay|can go): ", "", verdict)


def settings(sides: list[DrawnVariant]) -> pd.DataFrame:
    """The settings that all of these variants have and that differ, a row for each, without task and steps."""
    found = [
        {
            "setting": part_words(short_path(one.path), *(side.spec for side in sides)),
            **{sides[at].name: said_value(part_value(short_path(one.path), value)) for at, value in one.values.items()},
        }
        for one in differences(*(side.spec for side in sides))
        if len(one.values) == len(sides) and not one.path.startswith(("task.", STEPS))
    ]
    return pd.DataFrame(found)


def far_from_others(bands: Mapping[str, Band]) -> list[str]:
    """The few bands that end far from the others, beside which these would be flat."""
    found = outliers(bands)
    return found if len(found) < len(bands) - 1 else []


def _draw(
    sides: list[DrawnVariant], axis: Axis, loss: Loss, evidence: list[str], *, several: bool, log_x: bool
) -> None:
    known = [side for side in sides if side.band.mean]
    if not known:
        st.info("None of these has a finished trial with a curve yet.")
        return
    if why := differing(known):
        st.warning(prose(why), icon=":material/warning:")
    at = shared_end(known) if any(side.band.x[-1] != known[0].band.x[-1] for side in known) else None
    far = far_from_others({side.name: side.band for side in known})
    places = [st.container(), st.container()]  # of the table, and of the figure
    below = is_narrow() or len(known) > FEW
    with places[below]:
        show_grid(grid_of_texts(conditions(known, axis, loss)), "What each variant reaches and what differs")
        next_ = f"Next: a verdict across studies needs one with both, paired by seed: [design it]({address('design')})."
        found = f"Evidence: {', '.join(evidence)}. " if evidence else ""
        st.markdown(f"{found}{next_ * (several and not why)}")

    def draw(palette: Palette) -> Spec:
        numbers = {kind: itertools.count() for kind in (False, True)}
        looks = {side.name: (palette.baseline if side.is_baseline else palette.look)(next(numbers[side.is_baseline]))
                 for side in sides}  # fmt: skip
        titles = (AXES[axis], f"{LOSSES[loss]} loss")
        bands = {side.name: side.band for side in known}
        height, named = 300 if is_narrow() else 420, not is_narrow()
        return draw_bands(
            bands, looks, palette, titles, height=height, logs=(log_x, False), named=named, at=at, far=far
        )

    ends = "; ".join(f"{side.name} ends at {side.band.mean[-1]:.4g}" for side in known)
    said = "" if why or len(known) < 2 else f"{common(known)} "
    where = "" if at is None else " Numbers are those at the dashed line, the last place that all reach."
    where += f" {what_is_cut(side.band for side in known)}".rstrip()
    where += " The vertical axis is broken at the dotted lines; its parts have one scale." * bool(far)
    with places[not below]:
        chart(draw, "across", f"{LOSSES[loss]} loss against {AXES[axis]}: {ends}"[:1000])
        st.caption(prose(f"{said}Lines: means over seeds; bands: lowest to highest.{where}"))
    if len(differ := settings(known)) > MOST_COLUMNS:
        with st.expander(f"{len(differ)} settings differ"):
            show_grid(grid_of_texts(differ), "Settings that differ between the variants")
    if without := [side.name for side in sides if not side.band.mean]:
        st.caption(escape(f"Without a finished trial: {', '.join(without)}"))
    rows = [
        {"variant": side.name, AXES[axis]: x, "mean": mean, "low": low, "high": high, "trials": side.band.n}
        for side in known
        for x, mean, low, high in zip(side.band.x, side.band.mean, side.band.low, side.band.high, strict=True)
    ]
    files = table_files("curves_across_studies", pd.DataFrame(rows)) | figure_files("curves_across_studies", draw)
    export(files, "across")
