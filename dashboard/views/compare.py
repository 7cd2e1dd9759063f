"""Compare two to six variants or trials: verdicts and differences, results, then specs, curves, drawings, places."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pandas as pd
import streamlit as st

from ablate.analysis.answer import answer_of
from ablate.analysis.answer_rows import AnswerRow, GroupKey, answer_sentence, tuned_paths
from ablate.analysis.changes import variant_titles
from ablate.analysis.curves import band, line
from ablate.analysis.diff import Comparison, Difference, read_comparison
from ablate.analysis.numbers import MISSING, count, decimals_for, fixed, interval_words, plural
from ablate.errors import NotFoundError
from ablate.render.blocks import Grid
from ablate.render.document import answer_note, names_note
from ablate.render.figures.curves import draw_bands, what_is_cut
from ablate.render.figures.style import Look, Palette, Spec
from ablate.render.formats.html import rows_of
from ablate.spec.suite import at_task, split_task
from ablate.store import StudyRecord, TrialState
from dashboard.shared.evidence import table
from dashboard.shared.exports import (
    Maker,
    chart,
    export,
    figure_files,
    grid_of_texts,
    plain_table,
    table_files,
)
from dashboard.shared.frame import STUDY, begin_page, choose_in_words, link
from dashboard.shared.pictures import BlockPicture, block_files, block_pictures
from dashboard.shared.results import can_write, choose_task, compared, on_task, report_on, sample_box
from dashboard.shared.store import every, location, settled_curves, stamp, store
from dashboard.shared.text import aligned, escape, one_line, prose
from dashboard.views import Entry

ENTRY = Entry("Compare", ":material/compare_arrows:", "This study", 70, variants=2)

LEAST, MOST = 2, 6


def show() -> None:
    """Draw the page."""
    study = begin_page("Compare")
    task = choose_task(study)
    record = on_task(study, task)
    names = [variant.name for variant in record.variants]
    first = [record.baseline, *(name for name in names if name != record.baseline)][:LEAST]
    box = partial(
        st.multiselect, max_selections=MOST, accept_new_options=True,
        help="Variants of this study; or type STUDY/VARIANT, or the beginning of a trial's key. The first is what the "
        "others are compared with.",
    )  # fmt: skip
    known = dict.fromkeys((*names, *st.query_params.get_all("sides"), *st.session_state.get("sides", ())))
    chosen = choose_in_words(box, "Sides", "sides", [*known], first,
                             variant_titles(record))  # fmt: skip
    if len(chosen) < LEAST:
        st.info(f"Choose {LEAST} to {MOST} variants or trials.")
        return
    sides = [f"{study}/{at_task(name, task)}" if name in names else name for name in chosen]
    st.fragment(_live, run_every=every(study))(study, sides, task)
    _samples(record, chosen)


def _live(study: str, sides: list[str], task: str) -> None:
    try:
        comparison = _comparison(location(), tuple(sides), stamp(study))
    except NotFoundError as error:
        st.error(prose(str(error)))
        return
    labels, metrics = _labels(comparison, study, task), _metrics(comparison, study)
    _lead(comparison, labels, study, task)
    results = _results(comparison, labels, metrics)
    st.header("Results", anchor=False)
    plain_table(_shown(results, metrics), "Metrics of each side")
    paired = "paired by seed" if comparison.is_paired else "not paired"
    st.caption(f"± 95 % interval over seeds. Δ: difference from the first side, {paired}.")
    _links(comparison, labels)
    spec = _fields(comparison.spec, labels)
    st.header("What differs in the settings", anchor=False)
    whole = spec.dropna()  # what a part has that another side has no part for follows from its kind
    _show_fields(whole, "spec", "" if len(spec) else "Nothing: these are one and the same variant.")
    if tuned := [one.path for one in comparison.spec if one.path in tuned_paths(compared(study)[0])]:
        st.caption(
            escape(f"Tuned for each variant, so that each is compared at its best: {', '.join(map(_steps, tuned))}.")
        )
    if len(whole) < len(spec):
        rest = st.expander(f"{plural(len(spec) - len(whole), 'field')} that not all sides have", key="fields",
                           on_change="rerun", bind="query-params")  # fmt: skip
        if rest.open:
            with rest:
                _show_fields(spec.drop(whole.index), "spec that not all have", "")
    st.header("Curves", anchor=False)
    drawn = _curves(comparison, labels, study)
    st.header("Blocks", anchor=False)
    _pictures(comparison, labels)
    st.header("What differs in the environment", anchor=False)
    places = _fields(comparison.environment, labels)
    _show_fields(places, "environment", "Nothing: the trials of all sides ran in the same place.")
    files = table_files("compare_spec", spec) | table_files("compare_results", results)
    files |= table_files("compare_environment", places) | drawn
    first = (labels[0], comparison.sides[0].spec.get("model", {}))
    for place, (side, label) in enumerate(zip(comparison.sides, labels, strict=True), 1):
        files |= block_files(f"compare_block_{place}", label, side.spec.get("model", {}), first if place > 1 else None)
    export(files, "compare")


def _lead(comparison: Comparison, labels: list[str], study: str, task: str) -> None:
    """The verdicts on the sides if the first is the baseline; the difference of each other side with its interval."""
    study_report = report_on(study, task)
    metric, first = study_report.metric, comparison.sides[0]
    judged: dict[str, tuple[GroupKey, AnswerRow]] = {}
    if first.name == f"{study}/{at_task(study_report.record.baseline, task)}":
        answer = answer_of(study_report, letters=False)
        sides = {side.name for side in comparison.sides}
        rows = {f"{study}/{at_task(row.variant, task)}": (key, row) for key, row in rows_of(answer)}
        judged = {name: row for name, row in rows.items() if name in sides}
    if judged:
        told = {row.name: answer_sentence(row) for row in study_report.variants}
        st.markdown("  \n".join(_found(row.words, told[row.variant]) for _, row in judged.values()))
        st.html(f'<div class="judged">{table(answer, [*judged.values()], task)}</div>')
        st.caption(prose(answer_note(answer, [row for _, row in judged.values()])))
        if names := names_note(answer, " ".join(row.words for _, row in judged.values())):
            st.caption(prose(names))
    for side, label in zip(comparison.sides[1:], labels[1:], strict=True):
        apart = comparison.difference(side, metric)
        if side.name not in judged and apart.difference is not None:
            half = [] if apart.low is None or apart.high is None else [(apart.high - apart.low) / 2]
            decimals = decimals_for(study_report.margin, half)
            around = interval_words(apart.low, apart.high, study_report.margin, decimals)
            value = fixed(apart.difference, decimals, sign=True)
            said = f"**{escape(label)}**: {escape(metric)} {value} against {escape(labels[0])}"
            st.markdown(said + ("" if around == MISSING else f" (95 % interval {around})"))


def _found(words: str, sentence: str) -> str:
    """What was found of a change, in a line for Markdown, in the words of the answer."""
    return f"**{escape(words)}{': ' * bool(sentence)}{prose(sentence.replace(': ', ', ', 1))}**"


def _samples(record: StudyRecord, chosen: list[str]) -> None:
    """Text generated by the first trials of the chosen variants, if their weights were kept."""
    variants = {variant.name: variant for variant in record.variants if variant.name in chosen}
    writing = [name for name, variant in variants.items() if can_write(record, variant)]
    keys = {trial.variant: trial.key for trial in reversed(record.planned) if trial.variant in writing}
    if keys:
        st.header("Samples", anchor=False)
        sample_box(keys)


@st.cache_resource(show_spinner=False, max_entries=32)
def _comparison(location: str, sides: tuple[str, ...], at: tuple[Any, ...]) -> Comparison:
    return read_comparison(store(), sides)


def _labels(comparison: Comparison, study: str, task: str) -> list[str]:
    """Unique labels of the sides; within one study what their variants are in words."""
    labels: list[str] = []
    titles = variant_titles(on_task(study, task))
    for number, side in enumerate(comparison.sides, 1):
        own = side.name.removeprefix(f"{study}/").removesuffix(at_task("", task))
        label = one_line(titles.get(own, own) if side.kind == "variant" else f"trial {side.name[:8]}", 60)
        labels.append(f"{label} ({number})" if label in labels else label)
    return labels


def _looks(comparison: Comparison, study: str, palette: Palette) -> list[Look]:
    """Variants of the chosen study keep their look; other sides get the unused looks."""
    own = palette.variants(compared(study)[0])
    looks = [own.get(split_task(side.name.removeprefix(f"{study}/"))[0]) for side in comparison.sides]
    spare = (palette.look(index) for index in range(len(own), len(own) + MOST))
    return [drawn or next(spare) for drawn in looks]


def _fields(fields: tuple[Difference, ...], labels: list[str]) -> pd.DataFrame:
    rows = [
        {"setting": _steps(field.path), **{label: _plain(field.values.get(side)) for side, label in enumerate(labels)}}
        for field in fields
    ]
    return pd.DataFrame(rows, columns=["setting", *labels])


def _steps(path: str) -> str:
    """A path in the words that lead to its value: `model › block › skips`."""
    return path.replace(".", " › ").replace("_", " ")


def _plain(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


def _show_fields(table: pd.DataFrame, of: str, nothing: str) -> None:
    if not table.empty:
        plain_table(grid_of_texts(table), f"Differing fields of the {of}")
    elif nothing:
        st.caption(nothing)


def _metrics(comparison: Comparison, study: str) -> list[str]:
    """The metrics, the objective of the study first."""
    return sorted(comparison.metrics, key=lambda name: name != compared(study)[0].objective["metric"])


def _results(comparison: Comparison, labels: list[str], metrics: list[str]) -> pd.DataFrame:
    rows = []
    for side, label in zip(comparison.sides, labels, strict=True):
        row: dict[str, object] = {"side": label, "parameters": side.parameters}
        row["trials"] = ", ".join(f"{n} {state}" for state, n in side.states.items())
        for metric in metrics:
            interval = comparison.interval(side, metric)
            row[metric] = interval.mean
            row[f"{metric} ±"] = _half(interval.low, interval.high)
            row[f"Δ {metric}"] = None if side is comparison.sides[0] else comparison.difference(side, metric).difference
        rows.append(row)
    return pd.DataFrame(rows)


def _shown(results: pd.DataFrame, metrics: list[str]) -> Grid:
    """A column for each side, a row for each metric, with its interval and its difference from the first side."""

    def cell(row: pd.Series, name: str) -> str:
        if pd.isna(row[name]):
            return MISSING
        half = "" if pd.isna(row[f"{name} ±"]) else f" ± {row[f'{name} ±']:.2g}"
        apart = "" if pd.isna(row[f"Δ {name}"]) else f", Δ {row[f'Δ {name}']:+.3g}"
        return f"{aligned(results[name]) % row[name]}{half}{apart}"

    sides = [row for _, row in results.iterrows()]
    rows = [("trials", *results["trials"]), ("parameters", *map(count, results["parameters"]))]
    rows += [(name, *(cell(row, name) for row in sides)) for name in metrics]
    return Grid(("metric", *results["side"]), (tuple(rows),), frozenset(range(len(sides) + 1)))


def _half(low: float | None, high: float | None) -> float | None:
    return None if low is None or high is None else (high - low) / 2


def _links(comparison: Comparison, labels: list[str]) -> None:
    with st.container(horizontal=True):
        for side, label in zip(comparison.sides, labels, strict=True):
            inside, _, variant = side.name.partition("/")
            if side.kind == "trial":
                link("trial", label, trial=side.name)
            elif side.trials:
                seed = next(iter(side.trials))
                link("trial", f"{label}, seed {seed}", variant=variant, seed=str(seed), **{STUDY: inside})


def _curves(comparison: Comparison, labels: list[str], study: str) -> dict[str, Maker]:
    """Draw the curves, and return them as files."""
    bands = {}
    for side, label in zip(comparison.sides, labels, strict=True):
        over = [trial.key for trial in side.trials.values() if trial.state is TrialState.FINISHED]
        one = band([line(curve) for curve in settled_curves(tuple(over)).values()])
        if one.mean:
            bands[label] = one
    if not bands:
        st.caption("No trial of these has finished yet.")
        return {}

    def draw(palette: Palette) -> Spec:
        looks = dict(zip(labels, _looks(comparison, study, palette), strict=True))
        return draw_bands(bands, looks, palette, ("steps", "validation loss"))

    ends = "; ".join(f"{label} ends at {one.mean[-1]:.4g}" for label, one in bands.items())
    chart(draw, "compared", f"Validation loss against steps: {ends}"[:1000])
    cut = what_is_cut(bands.values())
    st.caption(f"A line is the mean over seeds, its band goes from the lowest to the highest. {cut}")
    rows = [
        {"side": label, "step": x, "val_loss": mean, "low": low, "high": high}
        for label, one in bands.items()
        for x, mean, low, high in zip(one.x, one.mean, one.low, one.high, strict=True)
    ]
    return table_files("compare_curves", pd.DataFrame(rows)) | figure_files("compare_curves", draw)


def _pictures(comparison: Comparison, labels: list[str]) -> None:
    first = (labels[0], comparison.sides[0].spec.get("model", {}))
    pictures = []
    for number, (side, label) in enumerate(zip(comparison.sides, labels, strict=True)):
        size = f", {count(side.parameters)} parameters" if side.parameters is not None else ""
        pictures.append(BlockPicture(label, side.spec.get("model", {}), label + size, first if number else None))
    block_pictures(pictures, min(3, len(pictures)))
