"""Curves: loss against steps, tokens, seconds or FLOPs, with bands over seeds, grouped by any switch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import pandas as pd
import streamlit as st

from ablate.analysis.changes import variant_titles
from ablate.analysis.curves import Axis, Band, Line, Loss, Spread, band, line, share, versus
from ablate.analysis.numbers import fixed
from ablate.analysis.runs import baselines_of
from ablate.render.figures.curves import band_panels, draw_bands, where_panels_begin
from ablate.render.figures.front import keys_of
from ablate.render.figures.style import Look, Palette, Spec
from ablate.spec.suite import at_task
from ablate.store import CurvePoint, PlannedTrial, StudyRecord, TrialRecord, TrialState
from dashboard.shared.evidence import evidence_link, show_headline
from dashboard.shared.exports import (
    AXES,
    LOSSES,
    Maker,
    chart,
    choose_axis_and_loss,
    export,
    figure_files,
    is_narrow,
    page_width,
    table_files,
)
from dashboard.shared.frame import begin_page, choose_in_words, link
from dashboard.shared.results import answer, choose_task, on_task, report_on, runs
from dashboard.shared.store import every, moves, settled_curves, store
from dashboard.shared.text import escape
from dashboard.views import Entry

ENTRY = Entry("Curves", ":material/show_chart:", "This study", 20)

SPREADS: dict[Spread, str] = {"range": "lowest to highest", "interval": "95 % interval"}
ALIGNMENTS = {"none": "as trained", "baseline": "minus the baseline", "share": "share of training"}
PRUNED = "pruned"
ALL_BUT_SEED, SEED = "variant (all but seed)", "seed"
FIRST = 24
"""Number of variants that are drawn by default."""
PANELS = ("each", "together")
MORE = "Variants, groups, smoothing and scales"
"""What is above the curves, a click away."""


@dataclass(frozen=True, slots=True)
class Wish:
    """The values of the controls."""

    task: str
    variants: tuple[str, ...]
    by: str
    axis: Axis
    loss: Loss
    spread: Spread
    align: str
    smoothing: float
    log_x: bool
    log_y: bool
    singles: bool
    apart: bool


@dataclass(frozen=True, slots=True)
class Group:
    """Trials that are drawn together: their band, and the line of each."""

    band: Band
    lines: dict[tuple[str, int], Line]
    lost: Mapping[tuple[str, int], TrialState]


def show() -> None:
    """Draw the page."""
    study = begin_page("Curves")
    task = choose_task(study)
    wish = _controls(on_task(study, task), task)
    if not wish.variants:
        st.info("Choose a variant to see its curves.")
        return
    st.fragment(_live, run_every=every(study))(study, wish)


def _controls(record: StudyRecord, task: str) -> Wish:
    names, first = _offered(record, task)
    switches = list(dict.fromkeys(switch for variant in record.variants for switch in variant.settings))
    row = st.container(horizontal=True, vertical_alignment="bottom")
    more = st.expander(MORE, key="settings")
    axis, loss = choose_axis_and_loss(more if is_narrow() else row)
    with more:
        variants = choose_in_words(st.multiselect, "Variants", "variants", names, first, variant_titles(record))
        if len(variants) < len(names):
            st.caption(f"{len(variants)} of {len(names)} variants are drawn; choose others above.")
        second = st.container(horizontal=True, vertical_alignment="bottom")
        third = st.container(horizontal=True, vertical_alignment="bottom")
    by = second.selectbox("Group by", [ALL_BUT_SEED, *switches, SEED], key="by", bind="query-params", width=220)
    align = second.selectbox(
        "Align", list(ALIGNMENTS), format_func=ALIGNMENTS.__getitem__, key="align", bind="query-params", width=200
    )
    spread = second.selectbox(
        "Band over trials", list(SPREADS), format_func=SPREADS.__getitem__, key="band", bind="query-params", width=200
    )
    smoothing = third.slider("Smoothing", 0.0, 0.99, 0.0, 0.01, key="smoothing", bind="query-params", width=220)
    log_x = third.toggle("Log x", key="logx", bind="query-params")
    log_y = third.toggle("Log y", key="logy", bind="query-params")
    singles = third.toggle("Single seeds", key="singles", bind="query-params")
    apart = third.segmented_control(
        "Panels", PANELS, default=PANELS[0], key="view", bind="query-params", required=True, disabled=singles,
        help="Each beside the baseline with the same axes, or all in one plot, in which single points can be picked",
    )  # fmt: skip
    return Wish(task, tuple(variants), by, axis, loss, spread, align, smoothing, log_x, log_y, singles,
                apart == PANELS[0] and not (singles or log_x or log_y))  # fmt: skip


def _offered(record: StudyRecord, task: str) -> tuple[list[str], list[str]]:
    """All variants as the answer sorts them, and those of them that are drawn before others are chosen.

    These are the ones that the answer compares, of a ladder on the largest rung, and those that finished before others.
    """
    own, known = baselines_of(record), runs(record.name)
    judged = [row.variant for row in answer(record.name, task).rows] or [*own]
    names = [*dict.fromkeys((*(own[name] for name in judged), *judged))]
    first = sorted(names, key=lambda name: not known[at_task(name, task)].finished)[:FIRST]
    return [*dict.fromkeys((*names, *own))], first


def _live(study: str, wish: Wish) -> None:
    record = on_task(study, wish.task)
    baselines = baselines_of(record)
    wanted = {*wish.variants, *(baselines[name] for name in wish.variants if wish.align == "baseline")}
    planned = [trial for trial in record.planned if trial.variant in wanted]
    trials = store().trials([trial.key for trial in planned])
    titles = variant_titles(record)
    groups = _groups(record, planned, trials, wish, titles)
    if not any(group.lines for group in groups.values()):
        st.info("No trial of these has a curve yet.")
        return
    bands = {name: group.band for name, group in groups.items() if group.band.mean}
    if wish.apart and bands:
        by_variant = wish.by == ALL_BUT_SEED
        beside = {titles[name]: titles[other] for name, other in baselines.items() if by_variant and name != other}
        study_report, told = report_on(study, wish.task), answer(study, wish.task)
        keys = keys_of(told) if by_variant else {}
        verdicts = {titles[name]: key for name, key in keys.items() if name in wish.variants}
        rows = told.rows if by_variant else ()
        bounds = {
            titles[row.variant]: row.bound_text
            if row.bound is not None
            else fixed(row.difference, told.decimals, sign=True)
            for row in rows
            if row.difference is not None
        }
        margin = None
        if by_variant and (wish.loss, wish.align) == (study_report.metric, "none") and not told.relative:
            margin = told.margin * told.worse
        draw = partial(
            band_panels, bands, beside, titles=_titles(wish), verdicts=verdicts, bounds=bounds, margin=margin
        )
        if by_variant:
            show_headline(told)
        said = "Long dashes: the baseline. " * bool(beside)
        said += f"Fine dashes: worse by the margin {told.margin:g}. " * bool(margin)
        said = f"Line: mean over seeds, ending at the number; band: {SPREADS[wish.spread]}. {said}"
        if bounds:
            said += f"Δ: difference of {study_report.metric} from the baseline, with ≤ or ≥ its 95 % bound. "
        st.caption(escape(said + where_panels_begin(bands)))
        with st.container(key="panels"):
            chart(partial(draw, width=page_width()), "apart", _alt(groups, wish))
        shown = [name for name in wish.variants if titles[name] in verdicts]
        if links := ", ".join(evidence_link(titles[name], at_task(name, wish.task)) for name in shown):
            st.markdown(f"What each verdict rests on: {links}")
    else:
        draw = partial(_figure, record, groups, wish, titles)
        _picked(chart(draw, "curves", _alt(groups, wish), picks=True), wish.task, titles)
    _told(groups, titles)
    export(_files(study, groups, wish) | figure_files(f"{study}_curves", draw), "curves")


def _titles(wish: Wish) -> tuple[str, str]:
    """What the two axes show."""
    against = f"share of the training's {AXES[wish.axis]}" if wish.align == "share" else AXES[wish.axis]
    return against, f"{LOSSES[wish.loss]} loss" + (", minus the baseline's" if wish.align == "baseline" else "")


def _points(planned: list[PlannedTrial], trials: dict[str, TrialRecord]) -> dict[str, tuple[CurvePoint, ...]]:
    """Curves by key; those of ended trials are cached, those of running ones are read each time."""
    live = [trial.key for trial in planned if trial.key in trials and moves(trials[trial.key])]
    over = tuple(trial.key for trial in planned if trial.key in trials and not moves(trials[trial.key]))
    return settled_curves(over) | store().curves(live)


def _groups(
    record: StudyRecord,
    planned: list[PlannedTrial],
    trials: dict[str, TrialRecord],
    wish: Wish,
    titles: Mapping[str, str],
) -> dict[str, Group]:
    points = _points(planned, trials)
    lines = {
        (trial.variant, trial.seed): line(points[trial.key], wish.axis, wish.loss, wish.smoothing)
        for trial in planned
        if points.get(trial.key)
    }
    lines = _aligned(lines, baselines_of(record), wish)
    states = {(trial.variant, trial.seed): trials[trial.key].state for trial in planned if trial.key in trials}
    settings = {variant.name: variant.settings for variant in record.variants}
    members: dict[str, dict[tuple[str, int], Line]] = {}
    order = {name: place for place, name in enumerate(wish.variants)}
    kept = [(which, one) for which, one in lines.items() if which[0] in order and one.steps]
    for (variant, seed), one in sorted(kept, key=lambda line: order[line[0][0]]):
        named = {ALL_BUT_SEED: titles[variant], SEED: f"seed {seed}"}
        name = named.get(wish.by) or settings[variant].get(wish.by, "-")
        members.setdefault(name, {})[variant, seed] = one
    return {name: _group(seeds, states, wish.spread) for name, seeds in members.items()}


def _aligned(
    lines: dict[tuple[str, int], Line], baselines: Mapping[str, str], wish: Wish
) -> dict[tuple[str, int], Line]:
    if wish.align == "share":
        return {which: share(one) for which, one in lines.items()}
    if wish.align == "baseline":
        return {
            (variant, seed): versus(one, lines[baselines[variant], seed])
            for (variant, seed), one in lines.items()
            if (baselines[variant], seed) in lines
        }
    return lines


def _group(lines: dict[tuple[str, int], Line], states: dict[tuple[str, int], TrialState], spread: Spread) -> Group:
    """The band of the finished trials; if none has finished, of the running ones."""
    finished = [one for which, one in lines.items() if states[which] is TrialState.FINISHED]
    running = [one for which, one in lines.items() if states[which] is TrialState.RUNNING]
    lost = {which: state for which, state in states.items() if which in lines and state is not TrialState.FINISHED}
    return Group(band(finished or running, spread), lines, lost)


def _figure(
    record: StudyRecord, groups: dict[str, Group], wish: Wish, titles: Mapping[str, str], palette: Palette
) -> Spec:
    return draw_bands(
        {name: group.band for name, group in groups.items() if group.band.mean},
        _looks(record, groups, wish, titles, palette), palette, _titles(wish), height=420,
        logs=(wish.log_x, wish.log_y and wish.align != "baseline"),
        singles=_singles(groups, wish.singles, titles),
        picks={name: _trial_of(*next(iter(group.lines))) for name, group in groups.items()},
    )  # fmt: skip


def _looks(
    record: StudyRecord, groups: dict[str, Group], wish: Wish, titles: Mapping[str, str], palette: Palette
) -> dict[str, Look]:
    looks = {name: palette.look(number) for number, name in enumerate(groups)}
    if wish.by == ALL_BUT_SEED:
        looks = {titles[name]: look for name, look in palette.variants(record).items()}
    return looks | {PRUNED: Look(palette.grey, (1, 0), "circle")}


def _trial_of(variant: str, seed: int) -> dict[str, Any]:
    return {"variant": variant, "seed": seed}


def _singles(groups: dict[str, Group], every_line: bool, titles: Mapping[str, str]) -> list[dict[str, Any]]:
    """Points of a line for each trial if that is chosen, otherwise only for those that are not in the band.

    All pruned trials together have one entry in the legend.
    """
    points = []
    for name, group in groups.items():
        for (variant, seed), one in group.lines.items():
            state = group.lost.get((variant, seed), TrialState.FINISHED)
            if not (every_line or not group.band.mean or state is not TrialState.FINISHED):
                continue
            ends = state in (TrialState.DIVERGED, TrialState.FAILED)
            points += [
                {"name": PRUNED if state is TrialState.PRUNED else name,
                 "trial": f"{titles.get(variant, variant)}, seed {seed}, {state}", "x": x, "mean": y,
                 "end": ends and number == len(one.x), **_trial_of(variant, seed)}
                for number, (x, y) in enumerate(zip(one.x, one.y, strict=True), 1)
            ]  # fmt: skip
    return points


def _alt(groups: dict[str, Group], wish: Wish) -> str:
    ends = "; ".join(f"{name} ends at {group.band.mean[-1]:.4g}" for name, group in groups.items() if group.band.mean)
    return f"{LOSSES[wish.loss]} loss against {AXES[wish.axis]}: {ends}"[:1000]


def _picked(picked: list[dict[str, Any]], task: str, titles: Mapping[str, str]) -> None:
    found = {(str(point["variant"]), int(point["seed"])) for point in picked if "variant" in point}
    if not found:
        st.caption("Shift and the wheel zoom, double-click shows all; pick a point to go to its trial.")
        return
    with st.container(horizontal=True):
        for variant, seed in sorted(found)[:6]:
            link("trial", f"{titles[variant]}, seed {seed}", variant=at_task(variant, task), seed=str(seed))


def _told(groups: dict[str, Group], titles: Mapping[str, str]) -> None:
    """The number of trials that are not in the bands, in words."""
    for state in (TrialState.PRUNED, TrialState.DIVERGED, TrialState.FAILED, TrialState.RUNNING):
        lost = (which for group in groups.values() for which, reason in group.lost.items() if reason is state)
        which = [f"{titles[variant]}, seed {seed}" for variant, seed in lost]
        if which:
            more = f" and {len(which) - 10} more" if len(which) > 10 else ""
            st.caption(escape(f"{state}, and in no band: {'; '.join(which[:10])}{more}"))


def _files(study: str, groups: dict[str, Group], wish: Wish) -> dict[str, Maker]:
    rows = [
        {"group": name, "variant": variant, "seed": seed, "step": step, wish.axis: x, wish.loss: y}
        for name, group in groups.items()
        for (variant, seed), one in group.lines.items()
        for step, x, y in zip(one.steps, one.x, one.y, strict=True)
    ]
    return dict(table_files(f"{study}_curves", pd.DataFrame(rows)))
