"""Search: the course of a search: its history, the curves of its trials, and two parameters at a time."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import Any

import streamlit as st

from ablate.analysis.answer import Answer, answer_of
from ablate.analysis.answer_rows import OF_VARIANTS, AnswerRow, GroupKey
from ablate.analysis.changes import setting_names, setting_titles, variant_titles
from ablate.analysis.numbers import counted, fixed
from ablate.analysis.runs import baselines_of
from ablate.analysis.search import best_confirmed, search_words, seed_pairs
from ablate.analysis.slices import is_logarithmic, linear_axes, switch_settings, varied_values
from ablate.analysis.why import why
from ablate.render.figures.axes import near_range
from ablate.render.figures.curves import draw_bands
from ablate.render.figures.style import Look, Palette, Spec, by_look, layers, margin_marks, mark, names, number
from ablate.render.formats.html import group_mark
from ablate.store import StudyRecord, TrialRecord, TrialState
from dashboard.shared.evidence import show_headline, table
from dashboard.shared.exports import chart, dark, export, figure_files, is_narrow
from dashboard.shared.frame import begin_page, link
from dashboard.shared.results import (
    answer,
    any_ended,
    fresh,
    missing,
    plans_ahead,
    which_seeds,
)
from dashboard.shared.running import show_next_steps
from dashboard.shared.store import location, report, settled_curves, stamp, store
from dashboard.shared.store import record as read_record
from dashboard.shared.text import prose
from dashboard.views import Entry

ENTRY = Entry("Search", ":material/travel_explore:", "This study", 50, applies="ablate.analysis.slices:searches")

MOST, MOST_CURVES = 2000, 200
"""Trials that are drawn at most, the latest ones; and curves of trials."""
ADVICE: Mapping[GroupKey, str] = {
    "better": "better than the baseline by more than the margin: take it.",
    "ahead": "better than the baseline, so take it; whether by the margin, more fresh seeds may show.",
    "as good": "not worse than the baseline by the margin, and not shown to be better: it may take its place.",
    "undecided": "keep the baseline until more fresh seeds decide.",
    "worse": "worse than the baseline by more than the margin: keep the baseline.",
}
"""What a verdict on the best point means for its choice."""
PRUNED = TrialState.PRUNED.value
ENDED = (TrialState.FINISHED, TrialState.PRUNED, TrialState.DIVERGED, TrialState.FAILED)


@dataclass(frozen=True, slots=True)
class SearchTrial:
    """An ended trial of a search.

    Attributes:
        place: In the order of the design, from 0.
        words: What its variant changes.
        value: Its objective; None if it has not finished.
        parameters: Settings of switches, and values of what was varied besides, each by its name in words.
        mark: What it is to be found by, `baseline` or `best`; empty for others.
    """

    place: int
    words: str
    record: TrialRecord
    value: float | None
    parameters: dict[str, Any]
    mark: str


def show() -> None:
    """Draw the page."""
    study = begin_page("Search")
    if not any_ended(study):
        return
    if plans_ahead(study):
        missing(
            study, "plans all its points before any result", "A `search`, `simplify` or `population` design does not."
        )
        return
    record, trials = read_record(study), _trials(location(), study, stamp(study))
    show_headline(answer(study))
    _confirmation(study)
    show_next_steps(answer(study))
    picked = _history(record, trials)
    _pair(study, record, trials)
    picked = [*picked, *_curves(study, trials)]
    found = next((trial for trial in trials if any(point.get("key") == trial.record.key for point in picked)), None)
    if found is None:
        st.caption("A click on a point of the history or of a curve gives a link to its trial.")
    else:
        label = f"Trial {found.place}: {found.words}, seed {found.record.seed}"
        link("trial", label, trial=found.record.key)


def _confirmation(study: str) -> None:
    """What fresh seeds say of the points that were selected: their verdicts, and the trials of the best in pairs."""
    best = best_confirmed(report(study), answer(study))
    if best is None:
        return
    said, metric = answer_of(report(study), letters=False), report(study).metric
    confirmed = {row.name for row in report(study).variants if row.confirmed}
    rows = [(group.key, row) for group in said.groups for row in group.rows if row.variant in confirmed]
    st.header("The chosen point on fresh seeds" if len(rows) == 1 else "What was chosen, on fresh seeds", anchor=False)
    first, second = (fresh(study)[name] for name in (baselines_of(read_record(study))[best], best))
    pairs = seed_pairs(first.values(metric), second.values(metric))
    key, row = next((OF_VARIANTS.get(key, key), row) for key, row in rows if row.variant == best)
    compared = bool(pairs) and row.difference is not None
    if len(rows) > 1 or not compared:
        st.html(table(said, rows))
    if not compared:
        return
    if key in ADVICE:
        tone = Palette(dark()).verdict(key).colour
        st.markdown(f':color[{group_mark(key)} **{key}**]{{foreground="{tone}"}}: {prose(ADVICE[key])}')
    each = {f"seed {seed}": difference for seed, difference in why(report(study), best).seeds.items()}
    draw = partial(draw_seed_differences, each, key, row, said)
    told = "; ".join(f"{name} {first:.5g} and {second:.5g}" for name, (first, second) in pairs.items())
    chart(draw, "fresh", f"{metric} of the baseline and of the best point with each fresh seed: {told}")
    st.caption(
        "A point for each seed that took no part in the search; the mean with the 95 % bounds that decide. The verdict "
        "rests on these pairs alone."
    )


def draw_seed_differences(
    differences: Mapping[str, float], key: GroupKey, row: AnswerRow, answer: Answer, palette: Palette
) -> Spec:
    """A row for the difference of the best point from the baseline with each seed; the mean has its interval.

    Args:
        key: The verdict, which says on which side the margin matters.
    """
    decimals, word = max(3, answer.decimals), palette.verdict(row.verdict)
    rows: list[dict[str, Any]] = [
        {"name": name, "difference": difference, "said": fixed(difference, decimals, sign=True)}
        for name, difference in (*differences.items(), ("mean", row.difference or 0.0))
    ]
    ends = [end for end in (row.low, row.high) if end is not None and math.isfinite(end)]
    spans = [{"name": "mean", "low": ends[0], "high": ends[1]}] if len(ends) == 2 else []
    margin = answer.margin * answer.worse * (-1 if key in ("better", "ahead") else 1)
    places = [0.0, margin, *ends, *(one["difference"] for one in rows)]
    room = 0.15 * (max(places) - min(places))
    better = "left" if answer.worse > 0 else "right"
    x = number("difference", f"difference of {answer.metric} from the baseline ({better} is better)",
               domain=(min(places) - room, max(places) + room), axis={"tickCount": 5})  # fmt: skip
    y = names("name", [row["name"] for row in rows])
    tip = [{"field": key, "title": key} for key in ("name", "said")]
    single = rows[:-1]
    return layers(
        [
            *margin_marks(margin, "x"),
            mark("text", [{"name": "baseline"}], {"x": {"datum": 0}, "text": {"field": "name"}}, y=0, dy=-8,
                 baseline="bottom", align="right" if margin > 0 else "left", dx=-3 if margin > 0 else 3),
            mark("rule", spans, {"x": {**x, "field": "low"}, "x2": {"field": "high"}, "y": y}, strokeWidth=3,
                 color=word.colour),
            mark("point", single, {"x": x, "y": y, "tooltip": tip}, size=60, color=palette.grey, shape="circle"),
            mark("point", rows[-1:], {"x": x, "y": y, "tooltip": tip}, size=120, color=word.colour, shape=word.mark),
            *(mark("text", of, {"x": x, "y": y, "text": {"field": "said"}}, align="center", dy=-10, fontWeight=weight,
                   **halo)
              for of, weight in ((single, "normal"), (rows[-1:], "bold"))
              for halo in palette.halos),
        ],
        32 * len(rows),
    )  # fmt: skip


@st.cache_resource(show_spinner="Reading the trials", max_entries=4)
def _trials(location: str, study: str, at: tuple[Any, ...]) -> tuple[SearchTrial, ...]:
    record = read_record(study)
    known = store().trials([planned.key for planned in record.planned])
    variants = {variant.name: variant for variant in record.variants}
    called = setting_names(record)
    parameters = {
        name: {switch: called(switch, setting) for switch, setting in switch_settings(record, one).items()}
        | varied_values(record, one)
        for name, one in variants.items()
    }
    axes = setting_titles(dict.fromkeys(axis for of in parameters.values() for axis in of))
    metric, titles, marks = record.objective["metric"], variant_titles(record), _marks(record, known)
    ended = [
        SearchTrial(
            place, titles[planned.variant], trial,
            trial.metrics.get(metric) if trial.state is TrialState.FINISHED else None,
            {axes[axis]: value for axis, value in parameters[planned.variant].items()}, marks.get(planned.variant, ""),
        )
        for place, planned in enumerate(record.planned)
        if (trial := known.get(planned.key)) is not None and trial.state in ENDED
    ]  # fmt: skip
    return tuple(ended[-MOST:])


def _marks(record: StudyRecord, known: Mapping[str, TrialRecord]) -> dict[str, str]:
    """The variants to be found in a figure: the baseline, and the best on fresh seeds, or else on those that chose."""
    metric, better = record.objective["metric"], min if record.objective["direction"] == "minimize" else max
    confirmed = {name for name in [best_confirmed(report(record.name), answer(record.name))] if name is not None}
    values = {
        planned.variant: known[planned.key].metrics[metric]
        for planned in record.planned
        if planned.variant != record.baseline
        and planned.key in known
        and known[planned.key].state is TrialState.FINISHED
        and metric in known[planned.key].metrics
    }
    best = {better(values, key=values.__getitem__)} if values and not confirmed else set()
    return {
        **dict.fromkeys(confirmed | best, "best point"),
        record.baseline: "baseline",
    }


def _history(record: StudyRecord, trials: tuple[SearchTrial, ...]) -> list[dict[str, Any]]:
    """Draw the value of each trial and the best so far; what was picked."""
    st.header("Optimisation history", anchor=False)
    done = [trial for trial in trials if trial.value is not None and trial.mark != "baseline"]
    draw = partial(draw_history, record, trials)
    metric, better = record.objective["metric"], min if record.objective["direction"] == "minimize" else max
    best = f", the best {better(trial.value for trial in done if trial.value is not None):.5g}" if done else ""
    told = f"{metric} of {len(done)} finished points in the order of the search{best}"
    picked = chart(draw, "history", told, picks=True)
    candidates = [trial.record.state for trial in trials if trial.mark != "baseline"]
    counts = counted((state.value, candidates.count(state)) for state in ENDED)
    seeds = which_seeds(record.name) or "These seeds flatter what they choose, so no verdict rests on them."
    beyond = " A triangle is beyond the axis." * near_range([trial.value for trial in done])[2]
    st.caption(prose(f"Points: {', '.join(counts)}.{beyond} {search_words(record)} {seeds}"))
    return picked


def draw_history(record: StudyRecord, trials: tuple[SearchTrial, ...], palette: Palette) -> Spec:
    """The value of each finished candidate in the order of the search, the best so far, and that of the baseline."""
    metric, better = record.objective["metric"], min if record.objective["direction"] == "minimize" else max
    rows: list[Spec] = []
    for trial in trials:
        if trial.value is not None and trial.mark != "baseline":
            best = better(trial.value, rows[-1]["best"]) if rows else trial.value
            rows.append({"place": trial.place, "value": trial.value, "best": best, "name": "a point",
                         "key": trial.record.key, **_told(trial)})  # fmt: skip
    base = [trial.value for trial in trials if trial.value is not None and trial.mark == "baseline"]
    beside = [{"value": fmean(base), "name": "baseline"}] if base else []
    looks = {
        "a point": palette.look(0),
        "best so far": Look(palette.chosen, (1, 0), "stroke"),
    }
    low, high, _ = near_range([row["value"] for row in (*rows, *beside)])
    room = 0.15 * (high - low) or 1.0  # for labels
    places = [row["place"] for row in rows] or [0]
    x = number("place", "trial, in the order of the search", domain=(min(places) - 1, max(places) + 1))
    y = number("value", metric, domain=(low - room, high + room))
    far = [{**row, "value": low if row["value"] < low else high, "up": row["value"] > high}
           for row in rows if not low <= row["value"] <= high]  # fmt: skip
    tone = by_look("name", looks, "color")
    points = mark("point", rows, {"x": x, "y": y, **tone, "tooltip": TIP}, size=45, clip=True)
    points["params"] = [{"name": "picked", "select": {"type": "point", "fields": ["key"], "nearest": True}}]
    best_rows = [row | {"name": "best so far"} for row in rows]
    return layers(
        [
            mark("rule", beside, {"y": y}, strokeDash=[4, 3], color=palette.ink),
            mark("text", beside, {"y": y, "text": {"field": "name"}}, x=4, align="left", dy=9, color=palette.ink),
            mark("line", best_rows, {"x": x, "y": {**y, "field": "best"}, **tone}, interpolate="step-after", clip=True),
            points,
            *(
                mark("point", [row for row in far if row["up"] == up], {"x": x, "y": y, **tone}, size=60, shape=shape)
                for up, shape in ((True, "triangle-up"), (False, "triangle-down"))
            ),
            *_marked(rows, x, y, palette, below="best point" if better is min else ""),  # off the best so far
        ],
        300,
    )


TIP = [{"field": "variant"}, {"field": "seed"}, {"field": "value"}]


def _told(trial: SearchTrial) -> Spec:
    """What a point of a figure says of its trial."""
    label = f"{trial.mark}: {trial.words}" if trial.mark.startswith("best") else trial.mark
    return {"variant": trial.words, "seed": trial.record.seed, "mark": trial.mark, "label": label}


def _marked(rows: list[Spec], x: Spec, y: Spec, palette: Palette, *, below: str) -> list[Spec]:
    """A ring around each marked point, with its label above it.

    Args:
        below: The mark whose label is below its point.
    """
    marked = [row for row in rows if row["mark"]]
    text = {"x": x, "y": y, "text": {"field": "mark"}}
    first = {row["mark"]: row for row in reversed(marked)}
    return [
        *(
            mark(
                "point",
                [row for row in marked if row["mark"] == name],
                {"x": x, "y": y},
                filled=False,
                size=170,
                strokeWidth=2,
                color=palette.ink if name == "baseline" else palette.chosen,
            )
            for name in first
        ),
        *(
            mark("text", [row], text, fontWeight="bold", baseline="middle", dy=18 if name == below else -18, **halo)
            for name, row in first.items()
            for halo in palette.halos
        ),
    ]


def _curves(study: str, trials: tuple[SearchTrial, ...]) -> list[dict[str, Any]]:
    """Draw the curves of the trials, pruned ones in another colour; what was picked."""
    shown = [trial for trial in trials if trial.record.state in (TrialState.FINISHED, TrialState.PRUNED)][-MOST_CURVES:]
    shown.sort(key=lambda trial: bool(trial.mark))  # drawn above the others
    curves = settled_curves(tuple(trial.record.key for trial in shown))
    points = [
        {"name": _told(trial)["label"] or trial.record.state.value,
         "trial": f"{trial.words}, seed {trial.record.seed}, {trial.record.state}",
         "x": point.step, "mean": point.val_loss, "key": trial.record.key, "wide": bool(trial.mark)}
        for trial in shown for point in curves.get(trial.record.key, ()) if point.val_loss is not None
    ]  # fmt: skip
    if not points:
        return []
    st.header("Curves of the trials", anchor=False)

    def draw(palette: Palette) -> Spec:
        looks = {TrialState.FINISHED.value: Look(palette.grey, (1, 0), "circle"), PRUNED: palette.look(2)}
        for trial in shown:
            if trial.mark:
                colour = palette.baseline().colour if trial.mark == "baseline" else palette.chosen
                looks[_told(trial)["label"]] = Look(colour, (1, 0), "circle")
        return draw_bands({}, looks, palette, ("steps", "validation loss"), height=300, singles=points, picks={})

    lost = sum(trial.record.state is TrialState.PRUNED for trial in shown)
    picked = chart(draw, "intermediate", f"Validation loss along the training of {len(shown)} trials, of which {lost} "
                   "were pruned", picks=True)  # fmt: skip
    if len(trials) > len(shown) == MOST_CURVES:
        st.caption(f"The latest {MOST_CURVES} of {len(trials):,} trials.")
    export(figure_files(f"{study}_curves_of_trials", draw), "intermediate")
    return picked


def _pair(study: str, record: StudyRecord, trials: tuple[SearchTrial, ...]) -> None:
    """Two parameters against one another, coloured by the objective."""
    metric, done = record.objective["metric"], [trial for trial in trials if trial.value is not None]
    values: dict[str, set[str]] = {}
    for trial in done:
        for name, value in trial.parameters.items():
            values.setdefault(name, set()).add(str(value))
    varied = [name for name, seen in values.items() if len(seen) > 1]
    varied.sort(key=lambda name: not all(_is_number(trial.parameters.get(name)) for trial in done))  # numbers first
    if len(varied) < 2:
        st.caption("Fewer than two parameters vary among the finished trials, so there is no plot of two of them.")
        return
    numbers = [name for name in varied if all(_is_number(trial.parameters.get(name)) for trial in done)]
    if len(numbers) > 1:
        varied = numbers  # categories have no distances to draw
    st.header("Two parameters", anchor=False)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        wide = 165 if is_narrow() else 280
        first = st.selectbox("Parameter", varied, key="one", bind="query-params", width=wide)
        second = st.selectbox("With", [name for name in varied if name != first], key="other", bind="query-params",
                              width=wide)  # fmt: skip
    linear = linear_axes(record)
    highest = record.objective["direction"] == "maximize"
    draw = partial(draw_pair, done, (str(first), str(second)), metric, linear=linear, highest=highest)
    chart(draw, "pair", f"{metric} over {first} and {second}")
    st.caption(f"{len(done):,} points, each of one trial.")
    link("effects", "How much each parameter matters", show="Importances")
    export(figure_files(f"{study}_pair", draw), "pair")


def _is_number(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def draw_pair(
    trials: list[SearchTrial],
    names: tuple[str, str],
    metric: str,
    palette: Palette,
    *,
    linear: Collection[str] = (),
    highest: bool = False,
) -> Spec:
    """Finished trials by the values of two parameters, coloured by their objective.

    Args:
        linear: Parameters that were searched on a linear axis.
        highest: Whether the highest objectives stand out instead of the lowest.
    """
    rows = [
        {"x": trial.parameters.get(names[0]), "y": trial.parameters.get(names[1]), "value": trial.value, **_told(trial)}
        for trial in trials
    ]  # fmt: skip
    low, high, cut = near_range([trial.value for trial in trials])
    scale = palette.shades(highest=highest) | {"domain": [low, high], "clamp": True}
    title = f"{metric}{', with all beyond at its ends' * cut}"
    colour = {"field": "value", "type": "quantitative", "scale": scale, "legend": {"title": title, "titleLimit": 400}}
    x, y = (
        _parameter(axis, [row[axis] for row in rows], name, linear=name in linear)
        for axis, name in zip("xy", names, strict=True)
    )
    points = mark("point", rows, {"x": x, "y": y, "color": colour, "tooltip": TIP}, size=90)
    return layers([points, *_marked(rows, x, y, palette, below="baseline")], 380)


def _parameter(field: str, values: list[Any], title: str, *, linear: bool) -> Spec:
    if all(map(_is_number, values)):
        known = tuple(sorted({float(value) for value in values if value is not None}))
        if is_logarithmic(known) and not linear:
            room = (known[-1] / known[0]) ** 0.05
            return number(field, title, log=True, domain=(known[0] / room, known[-1] * room), axis={"tickCount": 4})
        room = 0.05 * (known[-1] - known[0]) or 1.0
        return number(field, title, domain=(known[0] - room, known[-1] + room), axis={"tickCount": 5})
    return {"field": field, "type": "nominal", "title": title, "axis": {"labelAngle": 0}}
