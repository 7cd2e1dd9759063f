"""Effects: the average effect of each switch, of pairs of switches, importances, slices, parallel coordinates."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import pandas as pd
import streamlit as st

from ablate.analysis.changes import setting_names, setting_titles, variant_titles
from ablate.analysis.effects import EffectRow, StudyEffects, setting_means
from ablate.analysis.headline import average_sentence, number_of_pairs, pair_sentences, shows_effects
from ablate.analysis.numbers import MISSING, decimals_for, fixed
from ablate.analysis.runs import VariantRuns
from ablate.analysis.slices import axis_value, linear_axes, varies
from ablate.render.figures.axes import MOST_LINES, Column, draw_parallel, draw_slice, positions
from ablate.render.figures.effects import (
    MOST_CELLS,
    MOST_MEANS,
    MOST_ROWS,
    TOGETHER,
    draw_effects,
    draw_importances,
    draw_means,
    draw_pairs,
    draws_pairs,
    how_to_read,
    how_to_read_importances,
    how_to_read_means,
    how_to_read_pairs,
    importance_finding,
    importance_table,
    what_is_left,
)
from ablate.render.figures.style import WIDTH, Palette, Spec
from ablate.store import StudyRecord
from dashboard.shared import results
from dashboard.shared.evidence import show_effects, show_headline
from dashboard.shared.exports import (
    Maker,
    chart,
    dark,
    export,
    figure_files,
    is_narrow,
    page_width,
    show_table,
    table_files,
)
from dashboard.shared.frame import begin_page
from dashboard.shared.results import MEMBERSHIP, any_ended, missing
from dashboard.shared.running import show_next_steps
from dashboard.shared.store import every, record, report
from dashboard.shared.text import aligned, fitting, prose
from dashboard.views import Entry

ENTRY = Entry("Effects", ":material/tune:", "This study", 30, applies="ablate.analysis.slices:varies")

MOST_WHOLE = 30
"""Rows up to which the whole table is shown; longer tables scroll."""
MOST_ACROSS = 4
"""Parallel axes that a narrow page has room for side by side."""
HALF = 0.5
"""Share of an axis on which the best points lie that tells them from others."""
_OF_ROWS = ("variant", "diverged", "name")
VIEWS = ("Effects", "Interactions", "Importances", "Slices", "Parallel")


def show() -> None:
    """Draw the page."""
    study = begin_page("Effects")
    first = _first(study)
    if is_narrow():  # which has no room for all of them in a row
        view = st.selectbox("Show", VIEWS, index=VIEWS.index(first), key="show", bind="query-params")
    else:
        view = st.segmented_control("Show", VIEWS, default=first, key="show", bind="query-params", required=True)
    st.fragment(_live, run_every=every(study))(study, view)


def _first(study: str) -> str:
    """The default view: effects, or for a study that estimates none, slices along its axes if it has any."""
    if results.effects(study) is None and results.slices(study):
        return "Slices"
    return VIEWS[0]


def _live(study: str, view: str) -> None:
    if not any_ended(study):
        return
    {
        "Effects": _effects,
        "Interactions": _interactions,
        "Importances": _importances,
        "Slices": _slices,
        "Parallel": _parallel,
    }[view](study)


def _effects(study: str) -> None:
    effects = results.effects(study)
    if effects is None:
        missing(
            study,
            "estimates no effects: it does not cross its switches",
            "`design: {kind: fractional}` does, with few variants; `kind: grid` and `kind: search` do too.",
            crossed=True,
        )
        return
    _headline(study, average_sentence(effects))
    means = {row.name: setting_means(*results.compared(study), row) for row in effects.main}
    write = partial(fixed, decimals=decimals_for(effects.margin, ()))
    written = {name: " → ".join(write(of[active].mean) for active in sorted(of)) for name, of in means.items() if of}
    if left := what_is_left(effects, len(effects.interactions)):
        st.caption(prose(left))
    show_effects(replace(effects, interactions=()), MOST_ROWS, written, how_to_read(effects))
    if shows_effects(report(study)):
        show_next_steps(results.answer(study))
    table = effects_table([*effects.ranked(effects.main), *effects.ranked(effects.interactions)], effects)
    draw = partial(draw_effects, effects)
    export(table_files(f"{study}_effects", table) | figure_files(f"{study}_effects", draw), "effects")


def _headline(study: str, said: str) -> None:
    """Sentences on effects where they are the answer of the study, else its answer."""
    if shows_effects(report(study)):
        st.markdown(f"**{prose(said)}**")
    else:
        show_headline(results.answer(study))


def effects_table(rows: Sequence[EffectRow], effects: StudyEffects) -> pd.DataFrame:
    """A row for each of these effects."""
    cells = [
        {
            "effect": effects.titles[row.name],
            "change": row.estimate,
            "low": row.low,
            "high": row.high,
            "side": effects.side(row),
            "aliased with": ", ".join(effects.titles[name] for name in row.aliases) or None,
        }
        for row in rows
    ]
    return pd.DataFrame(cells).dropna(axis="columns", how="all")


def _interactions(study: str) -> None:
    effects = results.effects(study)
    if effects is None or not effects.interactions:
        missing(
            study,
            "tells no interactions of two switches apart",
            "`design: {kind: fractional, resolution: V}` does, and so does `kind: grid`.",
        )
        return
    if len(effects.main) > MOST_CELLS:
        st.info(f"{len(effects.main)} settings are too many for a heat map; the table of effects has all pairs.")
        return
    rows = effects.ranked(effects.interactions)
    _headline(study, " ".join(pair_sentences(effects)))
    files: dict[str, Maker] = dict(table_files(f"{study}_interactions", effects_table(rows, effects)))
    if any(row.aliases for row in rows):
        st.markdown(
            "A row is such a mix. Only the combinations left out separate its pairs; more seeds narrow its interval."
        )
    show_effects(replace(effects, main=()), MOST_ROWS)
    if shows_effects(report(study)):
        show_next_steps(results.answer(study))
    pairs = rows[:MOST_MEANS]
    found = {row.name: setting_means(*results.compared(study), row) for row in pairs}
    means = {name: of for name, of in found.items() if of}
    if draws_pairs(effects) and len(rows) > len(means):
        draw = partial(draw_pairs, effects)
        chart(
            partial(draw, width=page_width()), "pairs",
            f"Heat map of main effects (diagonal) and interactions (below it) on {effects.metric}; the largest "
            f"interaction is {effects.titles[rows[0].name]} with {rows[0].estimate:+.3g}",
        )  # fmt: skip
        st.caption(prose(how_to_read_pairs(effects)))
        files |= figure_files(f"{study}_interactions", draw)
    if means:
        draw = partial(draw_means, replace(effects, interactions=tuple(pairs)), means)
        said = "; ".join(f"{effects.titles[row.name]} {row.estimate:+.3g}" for row in pairs if row.name in means)
        number = number_of_pairs(effects)
        shown = "each pair" if len(means) == number else f"{len(means)} of {number} pairs"
        st.header(f"The means of {shown}", anchor=False)
        st.caption(prose(how_to_read_means(effects, next(iter(means.values())))))
        chart(partial(draw, width=page_width()), "means", f"Means of pairs of settings, beyond their sum: {said}")
        files |= figure_files(f"{study}_means", draw)
    export(files, "interactions")


def _importances(study: str) -> None:
    show_importances(study)


def show_importances(study: str) -> None:
    """The share of the variance that each switch or axis explains; takes seconds."""
    with st.spinner("Growing a random forest"):
        importances = results.importances(study)
    if importances is None:
        missing(
            study,
            "crosses too little to say what matters most",
            "`design: {kind: fractional}`, `kind: grid` and `kind: search` do, with four variants or more.",
            crossed=True,
        )
        return
    metric, grid = record(study).objective["metric"], importance_table(importances)
    rows = [row for group in grid.groups for row in group]
    told = [f"{factor} explains {share}" + ("" if ends == MISSING else f" ({ends})") for factor, share, ends in rows]
    draw = partial(draw_importances, importances, metric)
    st.markdown(f"**{prose(importance_finding(importances, metric))}**")
    chart(draw, "importances", f"Shares of the variance explained: {', '.join(told[:20])}")
    st.caption(prose(how_to_read_importances(importances, metric)))
    table = pd.DataFrame(
        [{"factor": one.factor, "share": one.share, "low": one.low, "high": one.high} for one in importances.factors]
        + [{"factor": TOGETHER, "share": importances.rest}]
    ).dropna(axis=1, how="all")  # without intervals, if seeds are too few for them
    export(table_files(f"{study}_importances", table) | figure_files(f"{study}_importances", draw), "importances")


def _slices(study: str) -> None:
    axis_slices = results.slices(study)
    if not axis_slices:
        missing(
            study,
            "varies nothing that is a number",
            "`design: {kind: sweep, path: model.heads, values: [1, 2, 4]}` does, and so does a `search` with `ranges`.",
        )
        return
    axes = {axis_slice.axis: axis_slice for axis_slice in axis_slices}
    axis = st.selectbox("Axis", list(axes), key="axis", bind="query-params", width=320)
    chosen, titles = axes[axis], variant_titles(record(study))
    rows = [
        {
            "line": line.name,
            chosen.axis: point.at,
            "variant": titles.get(point.variant, point.variant),
            chosen.metric: point.objective.mean,
            "low": point.objective.low,
            "high": point.objective.high,
            "gap": point.gap.difference if point.gap else None,
            "gap low": point.gap.low if point.gap else None,
            "gap high": point.gap.high if point.gap else None,
            "seeds": point.objective.n,
            "diverged": point.diverged,
        }
        for line in chosen.lines
        for point in line.points
    ]
    table = pd.DataFrame(rows).dropna(axis="columns", how="all")
    ends = "; ".join(f"{row['variant']} {row[chosen.metric]:.4g}" for row in rows[:20])

    def draw(palette: Palette) -> Spec:
        return draw_slice(chosen, palette.variants(record(study)), palette)

    chart(draw, "slice", f"{chosen.metric} along {chosen.axis}: {ends}")
    if len(chosen.lines) > MOST_LINES and not chosen.scattered:
        st.caption(f"The first {MOST_LINES} of {len(chosen.lines)} lines; the table has all.")
    lost = sum(point.diverged for line in chosen.lines for point in line.points)
    said = "Bars are 95 % intervals over seeds; the gap is that from the first line, paired by seed."
    st.caption(said + (f" {lost} diverged seeds are not in the means; their points are crossed." if lost else ""))
    if any(MEMBERSHIP in variant.settings for variant in record(study).variants):
        st.caption("Members of the population change these values during training; each stands at its initial value.")
    show_table(
        table, key="slice-table",
        column_order=[name for name in table if name != "line" or not chosen.scattered],
        column_config={name: st.column_config.TextColumn(width=fitting(table, name, 180))
                       for name in ("line", "variant")},
        alt=f"{chosen.metric} along {chosen.axis}",
    )  # fmt: skip
    export(table_files(f"{study}_slice", table) | figure_files(f"{study}_slice", draw), "slice")


def _parallel(study: str) -> None:
    study_record = record(study)
    metric, lower = study_record.objective["metric"], study_record.objective["direction"] == "minimize"
    table = variant_table(study_record, results.runs(study)).sort_values(metric, ascending=lower)
    table = table.sort_values(
        "name", key=lambda names: names != study_record.baseline, kind="stable", ignore_index=True
    )
    same = [name for name in table if name not in _OF_ROWS and name != metric and table[name].nunique(dropna=False) < 2]
    table = table.drop(columns=same)
    best = best_row(table, study_record)
    across = table.shape[1] - len(_OF_ROWS) <= MOST_ACROSS
    named = "best"
    if results.fresh(study) and best is not None:
        seeds = sorted(results.runs(study)[table["name"][best]].values(metric))
        named = f"{'' if is_narrow() else 'best '}on {f'seed {seeds[0]}' if len(seeds) == 1 else 'these seeds'}"
    draw, caption = partial(parallel, table, study_record, best, best_as=named), _parallel_caption(table)
    show_headline(results.answer(study))
    found = in_common(table, study_record) if varies(study_record) else ""
    if said := " ".join(filter(None, (found, results.which_seeds(study)))):
        st.markdown(prose(said))
    chart(
        partial(draw, down=is_narrow() and not across, width=page_width()),
        "parallel-figure", f"Parallel coordinates: {caption}",
    )  # fmt: skip
    st.caption(prose(caption))
    show_next_steps(results.answer(study))
    shown = table
    settings = [name for name in shown if name not in (*_OF_ROWS, metric, "parameters")]
    numeric = [name for name in settings
               if all(pd.isna(value) or _number(value) is not None for value in shown[name])]  # fmt: skip
    shown = shown.assign(**{name: pd.to_numeric(shown[name]) for name in numeric})
    told = bool(numeric) and not shown.duplicated(subset=settings).any()  # the settings say all that a name says
    label = "rank" if told or (is_narrow() and across) else "variant"
    if label == "rank":
        places = (f"{place}" for place in range(1, len(shown) + 1))
        shown["variant"] = ["baseline" if name == study_record.baseline else next(places) for name in shown["name"]]
    shown = shown.rename(columns={"variant": label})
    first = [label, metric, *(["diverged"] if table["diverged"].any() else [])]
    show_table(
        shown, key="parallel-table", alt="Variants with their settings",
        column_order=[*first, *(name for name in shown if name not in (*first, "name", "diverged"))],
        column_config={
            label: st.column_config.TextColumn(width=fitting(shown, label, 480)),
            metric: st.column_config.NumberColumn(format=aligned(table[metric])),
            "parameters": st.column_config.NumberColumn(format="localized"),
            **{name: st.column_config.NumberColumn(format="%.3g") for name in numeric},
        },
        height="content" if len(shown) <= MOST_WHOLE else "auto",
    )  # fmt: skip
    st.caption("The baseline, then the others by the mean of the drawn seeds, which is not a verdict.")
    export(table_files(f"{study}_variants", table) | figure_files(f"{study}_parallel", draw), "parallel")


def in_common(table: pd.DataFrame, study_record: StudyRecord) -> str:
    """What the best quarter of the variants have in common that not all have, in a sentence; empty if it is nothing."""
    metric, lower = study_record.objective["metric"], study_record.objective["direction"] == "minimize"
    known = table.dropna(subset=[metric])
    best = known.sort_values(metric, ascending=lower, kind="stable").head(len(known) // 4)
    if len(best) < 2:
        return ""
    said = []
    for axis in known.columns.drop([*_OF_ROWS, metric, "parameters"], errors="ignore"):
        column = [_number(value) for value in known[axis]]
        if None in column:
            if known[axis].nunique() > 1 and len(set(best[axis])) == 1 and not pd.isna(best[axis].iloc[0]):
                said.append(f"{axis} {best[axis].iloc[0]}")
            continue
        values = [float(value) for value in best[axis]]
        chosen = [place for place, value in zip(positions(column), column, strict=True) if value in values]
        if max(chosen) - min(chosen) < HALF:  # type: ignore[operator,type-var]
            said.append(f"{axis} {min(values):.3g} to {max(values):.3g}")
    if not said:
        return ""
    return f"The {len(best)} best of {len(known)} have: {', '.join(said)}."


def best_row(table: pd.DataFrame, study_record: StudyRecord) -> int | None:
    """The row of `variant_table` with the best mean besides the baseline; None if none has one."""
    means = table[study_record.objective["metric"]].astype(float).mask(table["name"] == study_record.baseline)
    if means.isna().all():
        return None
    return int(means.argmin() if study_record.objective["direction"] == "minimize" else means.argmax())


def parallel(
    table: pd.DataFrame,
    study_record: StudyRecord,
    best: int | None,
    palette: Palette,
    *,
    best_as: str = "best",
    down: bool = False,
    width: float = WIDTH,
) -> Spec:
    """Parallel coordinates through the columns of `variant_table`: numbers where all settings are numbers.

    Args:
        best: The place of the variant that stands out beside the baseline.
        best_as: What its line ends in.
    """
    shown = table.drop(columns=[*_OF_ROWS])
    metric, direction = study_record.objective["metric"], study_record.objective["direction"]
    last = f"{metric} ({'lower' if direction == 'minimize' else 'higher'} is better)"
    columns: dict[str, Column] = {}
    for name in shown:
        values = [None if pd.isna(value) else value for value in shown[name]]
        numbers = [_number(value) for value in values]
        are_numbers = all((value is None) == (number is None) for value, number in zip(values, numbers, strict=True))
        columns[last if name == metric else str(name)] = (
            numbers if are_numbers else [None if value is None else str(value) for value in values]
        )
    marked = [place for place, name in enumerate(table["name"]) if name == study_record.baseline]
    linear = linear_axes(study_record)
    return draw_parallel(
        columns, last, palette, list(table["variant"]), wide=marked, best=best, best_as=best_as, down=down, width=width,
        linear=linear, highest=direction == "maximize",
    )  # fmt: skip


def _number(value: object) -> float | None:
    try:
        number = float(str(value))
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def variant_table(study_record: StudyRecord, runs: Mapping[str, VariantRuns]) -> pd.DataFrame:
    """A row for each variant with an ended trial: settings, parameters, and mean objective unless a seed diverged."""
    metric = study_record.objective["metric"]
    names = dict.fromkeys(name for variant in study_record.variants for name in variant.settings)
    switches = [name for name in names if name != MEMBERSHIP]  # a place in a population is not an axis
    titles, axes, called = variant_titles(study_record), setting_titles(switches), setting_names(study_record)
    rows = [
        {
            "variant": titles[variant.name],
            **dict.fromkeys(axes.values()),
            **{axes[axis]: axis_value(variant, axis) for axis in switches if axis not in variant.settings},
            **{axes[name]: called(name, setting) for name, setting in variant.settings.items() if name != MEMBERSHIP},
            "parameters": variant.parameters,
            metric: None if runs[variant.name].diverged else _mean(runs[variant.name].values(metric)),
            "diverged": len(runs[variant.name].diverged),
            "name": variant.name,
        }
        for variant in study_record.variants
        if runs[variant.name].finished or runs[variant.name].diverged
    ]
    return pd.DataFrame(rows)


def _mean(values: Mapping[int, float]) -> float | None:
    return math.fsum(values.values()) / len(values) if values else None


def _parallel_caption(table: pd.DataFrame) -> str:
    """What the parallel axes show, in words."""
    lost = int((table["diverged"] > 0).sum())
    shade, ink = ("brighter", "white") if dark() else ("darker", "black")
    said = f"A line for each of {len(table)} variants, {shade} where it is better; {ink}: the "
    said += f"baseline, pink: the best of the others with the seeds drawn{f', dashed: {lost} diverged' * bool(lost)}."
    return said
