"""Curves: loss against steps, tokens, seconds or FLOPs, with bands over seeds, grouped by any switch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from ablate.analysis.curves import Axis, Band, Line, Loss, Spread, band, heights, line, share, versus
from ablate.store import CurvePoint, PlannedTrial, StudyRecord, TrialRecord, TrialState
from shared.bands import AXES, LOSSES, choose_axis_and_loss, draw_band
from shared.charts import chart, figure, grey
from shared.colours import Look, look, on_paper, variant_looks
from shared.exports import Maker, export, table_files
from shared.frame import begin_page, link, warn_of_unknown
from shared.printed import printed_bands
from shared.results import plans_ahead, runs
from shared.store import every, moves, settled_curves, store
from shared.store import record as read_record
from shared.text import escape, for_plotly, in_lines

SPREADS: dict[Spread, str] = {"range": "lowest to highest", "interval": "95 % interval"}
ALIGNMENTS = {"none": "as trained", "baseline": "minus the baseline", "share": "share of training"}
ALL_BUT_SEED, SEED = "variant (all but seed)", "seed"
FIRST = 7
"""Number of variants that are drawn by default."""


@dataclass(frozen=True, slots=True)
class Wish:
    """The values of the controls."""

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


@dataclass(frozen=True, slots=True)
class Group:
    """Trials that are drawn together: their band, and the line of each."""

    look: Look
    band: Band
    lines: dict[tuple[str, int], Line]
    lost: Mapping[tuple[str, int], TrialState]


def show() -> None:
    """Draw the page."""
    study = begin_page("Curves")
    record = read_record(study)
    plot = st.container()  # above its controls, so that a narrow screen shows it first
    wish = _controls(record)
    with plot:
        if not wish.variants:
            st.info("Choose a variant to see its curves.")
            return
        st.fragment(_live, run_every=every(study))(study, wish)


def _controls(record: StudyRecord) -> Wish:
    names = [variant.name for variant in record.variants]
    switches = list(dict.fromkeys(switch for variant in record.variants for switch in variant.settings))
    warn_of_unknown("variants", names)
    variants = st.multiselect("Variants", names, _first(record, names), key="variants", bind="query-params")
    if len(variants) < len(names):
        st.caption(f"{len(variants)} of {len(names)} variants are drawn; choose others above.")
    first = st.container(horizontal=True, vertical_alignment="bottom")
    axis, loss = choose_axis_and_loss(first)
    by = first.selectbox("Group by", [ALL_BUT_SEED, *switches, SEED], key="by", bind="query-params", width=220)
    align = first.selectbox(
        "Align", list(ALIGNMENTS), format_func=ALIGNMENTS.__getitem__, key="align", bind="query-params", width=200
    )
    second = st.container(horizontal=True, vertical_alignment="bottom")
    spread = second.selectbox(
        "Band over trials", list(SPREADS), format_func=SPREADS.__getitem__, key="band", bind="query-params", width=200
    )
    smoothing = second.slider("Smoothing", 0.0, 0.99, 0.0, 0.01, key="smoothing", bind="query-params", width=220)
    log_x = second.toggle("Log x", key="logx", bind="query-params")
    log_y = second.toggle("Log y", key="logy", bind="query-params")
    singles = second.toggle("Single seeds", key="singles", bind="query-params")
    return Wish(tuple(variants), by, axis, loss, spread, align, smoothing, log_x, log_y, singles)


def _first(record: StudyRecord, names: list[str]) -> list[str]:
    """The variants that are drawn before others are chosen; of a search, those that finished before the pruned ones."""
    if plans_ahead(record.name):
        return names[:FIRST]
    known = runs(record.name)
    return sorted(names, key=lambda name: not known[name].finished)[:FIRST]


def _live(study: str, wish: Wish) -> None:
    record = read_record(study)
    wanted = {*wish.variants, record.baseline} if wish.align == "baseline" else {*wish.variants}
    planned = [trial for trial in record.planned if trial.variant in wanted]
    trials = store().trials([trial.key for trial in planned])
    groups = _groups(record, planned, trials, wish)
    if not any(group.lines for group in groups.values()):
        st.info("No trial of these has a curve yet.")
        return
    picked = chart(_figure(groups, wish), "curves", _alt(groups, wish), picks=True)
    _picked(picked)
    _told(groups)
    export(_files(study, groups, wish), "curves")


def _points(planned: list[PlannedTrial], trials: dict[str, TrialRecord]) -> dict[str, tuple[CurvePoint, ...]]:
    """Curves by key; those of ended trials are cached, those of running ones are read each time."""
    live = [trial.key for trial in planned if trial.key in trials and moves(trials[trial.key])]
    over = tuple(trial.key for trial in planned if trial.key in trials and not moves(trials[trial.key]))
    return settled_curves(over) | store().curves(live)


def _groups(
    record: StudyRecord, planned: list[PlannedTrial], trials: dict[str, TrialRecord], wish: Wish
) -> dict[str, Group]:
    points = _points(planned, trials)
    lines = {
        (trial.variant, trial.seed): line(points[trial.key], wish.axis, wish.loss, wish.smoothing)
        for trial in planned
        if points.get(trial.key)
    }
    lines = _aligned(lines, record.baseline, wish)
    states = {(trial.variant, trial.seed): trials[trial.key].state for trial in planned if trial.key in trials}
    settings = {variant.name: variant.settings for variant in record.variants}
    members: dict[str, dict[tuple[str, int], Line]] = {}
    for (variant, seed), one in lines.items():
        if variant in wish.variants and one.steps:
            name = {ALL_BUT_SEED: variant, SEED: f"seed {seed}"}.get(wish.by) or settings[variant].get(wish.by, "-")
            members.setdefault(name, {})[variant, seed] = one
    looks = variant_looks(record) if wish.by == ALL_BUT_SEED else {name: look(n) for n, name in enumerate(members)}
    return {name: _group(looks[name], seeds, states, wish.spread) for name, seeds in members.items()}


def _aligned(lines: dict[tuple[str, int], Line], baseline: str, wish: Wish) -> dict[tuple[str, int], Line]:
    if wish.align == "share":
        return {which: share(one) for which, one in lines.items()}
    if wish.align == "baseline":
        return {
            (variant, seed): versus(one, lines[baseline, seed])
            for (variant, seed), one in lines.items()
            if (baseline, seed) in lines
        }
    return lines


def _group(
    drawn: Look, lines: dict[tuple[str, int], Line], states: dict[tuple[str, int], TrialState], spread: Spread
) -> Group:
    """The band of the finished trials; if none has finished, of the running ones."""
    finished = [one for which, one in lines.items() if states[which] is TrialState.FINISHED]
    running = [one for which, one in lines.items() if states[which] is TrialState.RUNNING]
    lost = {which: state for which, state in states.items() if which in lines and state is not TrialState.FINISHED}
    return Group(drawn, band(finished or running, spread), lines, lost)


def _figure(groups: dict[str, Group], wish: Wish) -> go.Figure:
    made = figure(560, hovermode="closest")
    for name, group in groups.items():
        draw_band(made, name, group.band, group.look, _which(group))
        _draw_lines(made, name, group, wish.singles)
    against = f"share of the training's {AXES[wish.axis]}" if wish.align == "share" else AXES[wish.axis]
    said = f"{LOSSES[wish.loss]} loss" + (", minus the baseline's" if wish.align == "baseline" else "")
    made.update_xaxes(title=against, type="log" if wish.log_x else "linear")
    made.update_yaxes(title=said, type="log" if wish.log_y and wish.align != "baseline" else "linear")
    limits = heights(group.band for group in groups.values())
    if limits and not wish.log_y and not wish.singles:
        made.update_yaxes(range=limits)
    made.update_layout(uirevision=str(wish))  # a zoom stays while the study runs
    return made


def _draw_lines(made: go.Figure, name: str, group: Group, singles: bool) -> None:
    """Draw a line for each trial if that is chosen, otherwise only for those that are not in the band.

    The legend has one entry for a group without a band, and one for all pruned trials together.
    """
    alone = not group.band.mean
    named = {trace.name for trace in made.data if trace.showlegend}
    for (variant, seed), one in group.lines.items():
        state = group.lost.get((variant, seed), TrialState.FINISHED)
        if not (singles or alone or state is not TrialState.FINISHED):
            continue
        pruned = state is TrialState.PRUNED
        said = f"{for_plotly(variant, 160)}, seed {seed}, {state}"
        entry = "pruned" if pruned else in_lines(name) + (f", {state}" if alone else "")
        colour = grey() if pruned else group.look.colour
        ends = ["x" if state in (TrialState.DIVERGED, TrialState.FAILED) else "circle"]
        made.add_scatter(
            x=one.x, y=one.y, mode="lines+markers", name=entry, legendgroup="pruned" if pruned else name,
            showlegend=(alone or pruned) and entry not in named,
            line={"color": colour, "width": 1, "dash": "dot" if state is TrialState.RUNNING else "solid"},
            marker={"color": colour, "symbol": ["circle"] * (len(one.x) - 1) + ends,
                    "size": [2] * (len(one.x) - 1) + [9 if state is not TrialState.FINISHED else 2]},
            opacity=0.75, customdata=[[variant, seed]] * len(one.x),
            hovertemplate=f"{said}<br>%{{x:,.6~g}}<br>%{{y:.4f}}<extra></extra>",
        )  # fmt: skip
        named.add(entry)


def _which(group: Group) -> list[Any]:
    return list(next(iter(group.lines)))


def _alt(groups: dict[str, Group], wish: Wish) -> str:
    ends = "; ".join(f"{name} ends at {group.band.mean[-1]:.4g}" for name, group in groups.items() if group.band.mean)
    return f"{LOSSES[wish.loss]} loss against {AXES[wish.axis]}: {ends}"[:1000]


def _picked(picked: Any) -> None:
    points = picked["selection"]["points"] if picked else []
    found = {tuple(point["customdata"]) for point in points if point.get("customdata")}
    if not found:
        st.caption("Drag to zoom, double-click to see all; pick a point to go to its trial.")
        return
    with st.container(horizontal=True):
        for variant, seed in sorted(found)[:6]:
            link("trial", f"{variant}, seed {seed}", variant=str(variant), seed=str(seed))


def _told(groups: dict[str, Group]) -> None:
    """The number of trials that are not in the bands, in words."""
    for state in (TrialState.PRUNED, TrialState.DIVERGED, TrialState.FAILED, TrialState.RUNNING):
        which = [f"{variant} seed {seed}" for group in groups.values() for (variant, seed), reason in group.lost.items()
                 if reason is state]  # fmt: skip
        if which:
            more = f" and {len(which) - 10} more" if len(which) > 10 else ""
            st.caption(escape(f"{state}, and in no band: {', '.join(which[:10])}{more}"))


def _files(study: str, groups: dict[str, Group], wish: Wish) -> dict[str, Maker]:
    rows = [
        {"group": name, "variant": variant, "seed": seed, "step": step, wish.axis: x, wish.loss: y}
        for name, group in groups.items()
        for (variant, seed), one in group.lines.items()
        for step, x, y in zip(one.steps, one.x, one.y, strict=True)
    ]
    files = table_files(f"{study}_curves", pd.DataFrame(rows))
    bands = {name: group.band for name, group in groups.items()}
    colours = {name: on_paper(group.look.colour) for name, group in groups.items()}
    return files | printed_bands(f"{study}_curves", bands, colours, AXES[wish.axis], f"{LOSSES[wish.loss]} loss")
