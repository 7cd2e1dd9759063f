"""Compare: two to six variants or trials. What differs in their specs first, then results, pictures, curves, places."""

from __future__ import annotations

import json
from typing import Any

import pandas as pd
import streamlit as st

from ablate.analysis.comparison import Comparison, Field, read_comparison
from ablate.analysis.curves import band, heights, line
from ablate.analysis.numbers import count
from ablate.errors import NotFoundError
from ablate.store import StudyRecord, TrialState
from shared.bands import draw_band
from shared.charts import chart, figure
from shared.colours import Look, look, on_paper, variant_looks
from shared.exports import Maker, export, table_files
from shared.frame import STUDY, begin_page, link
from shared.pictures import BlockPicture, block_files, block_pictures
from shared.printed import printed_bands
from shared.samples import can_write, sample_box
from shared.store import every, location, settled_curves, stamp, store
from shared.store import record as read_record
from shared.text import escape, one_line, prose
from shared.widths import LETTER, fitting, wrapping

LEAST, MOST = 2, 6


def show() -> None:
    """Draw the page."""
    study = begin_page("Compare")
    record = read_record(study)
    names = [variant.name for variant in record.variants]
    first = [record.baseline, *(name for name in names if name != record.baseline)][:LEAST]
    chosen = st.multiselect(
        "Sides", names, first, key="sides", bind="query-params", max_selections=MOST, accept_new_options=True,
        help="Variants of this study; or type STUDY/VARIANT, or the beginning of a trial's key. The first is what the "
        "others are compared with.",
    )  # fmt: skip
    if len(chosen) < LEAST:
        st.info(f"Choose {LEAST} to {MOST} variants or trials.")
        return
    sides = [f"{study}/{name}" if name in names else name for name in chosen]
    st.fragment(_live, run_every=every(study))(study, sides)
    _samples(record, chosen)


def _live(study: str, sides: list[str]) -> None:
    try:
        comparison = _comparison(location(), tuple(sides), stamp(study))
    except NotFoundError as error:
        st.error(prose(str(error)))
        return
    labels = _labels(comparison, study)
    looks = _looks(comparison, read_record(study))
    spec = _fields(comparison.spec, labels)
    st.subheader("What differs in the spec", anchor=False)
    _show_fields(spec, "spec", "Nothing: these are one and the same variant.")
    results = _results(comparison, labels)
    st.subheader("Results", anchor=False)
    number = st.column_config.NumberColumn
    width = fitting(results, "side", 165)
    formats: dict[str, Any] = {
        "side": st.column_config.TextColumn(width=width),
        "trials": st.column_config.TextColumn(width=fitting(results, "trials", 110)),
    }
    for name in comparison.metrics:
        formats |= {
            name: number(format="%.4g", width=round(14 + LETTER * max(7, len(name)))),
            f"{name} ±": number("±", format="%.2g", width=56, help="Half of the 95 % interval over seeds"),
            f"Δ {name}": number("Δ", format="%+.3g", width=78, help=f"{escape(name)}: difference from the first side"),
        }
    st.dataframe(
        results, key="results", hide_index=True, placeholder="-", column_config=formats, alt="Metrics of each side",
        column_order=[name for name in results if name != "parameters" and "seconds" not in name],
        row_height=wrapping(results, {"side": width}),
    )  # fmt: skip
    st.caption("± 95 % interval over seeds. Δ: difference from the first side, paired by seed.")
    _links(comparison, study)
    st.subheader("Curves", anchor=False)
    drawn = _curves(comparison, labels, looks)
    st.subheader("Blocks", anchor=False)
    _pictures(comparison, labels)
    st.subheader("What differs in the environment", anchor=False)
    places = _fields(comparison.environment, labels)
    _show_fields(places, "environment", "Nothing: the trials of all sides ran in the same place.")
    files = table_files("compare_spec", spec) | table_files("compare_results", results)
    files |= table_files("compare_environment", places) | drawn
    first = (labels[0], comparison.sides[0].spec["model"])
    for place, (side, label) in enumerate(zip(comparison.sides, labels, strict=True), 1):
        files |= block_files(f"compare_block_{place}", label, side.spec["model"], first if place > 1 else None)
    export(files, "compare")


def _samples(record: StudyRecord, chosen: list[str]) -> None:
    """What the first trials of the chosen variants write, if their weights were kept."""
    variants = {variant.name: variant for variant in record.variants if variant.name in chosen}
    writing = [name for name, variant in variants.items() if can_write(record, variant)]
    keys = {trial.variant: trial.key for trial in reversed(record.planned) if trial.variant in writing}
    if keys:
        st.subheader("Samples", anchor=False)
        sample_box(keys)


@st.cache_resource(show_spinner=False, max_entries=32)
def _comparison(location: str, sides: tuple[str, ...], at: tuple[Any, ...]) -> Comparison:
    return read_comparison(store(), sides)


def _labels(comparison: Comparison, study: str) -> list[str]:
    """What to call the sides: within one study by their variants alone; no two alike."""
    labels: list[str] = []
    for number, side in enumerate(comparison.sides, 1):
        label = one_line(
            side.name.removeprefix(f"{study}/") if side.kind == "variant" else f"trial {side.name[:8]}", 60
        )
        labels.append(f"{label} ({number})" if label in labels else label)
    return labels


def _looks(comparison: Comparison, record: StudyRecord) -> list[Look]:
    """A variant of the study has its own look; sides from elsewhere have those that are left."""
    own = variant_looks(record)
    looks = [own.get(side.name.removeprefix(f"{record.name}/")) for side in comparison.sides]
    spare = (look(index) for index in range(len(own), len(own) + MOST))
    return [drawn or next(spare) for drawn in looks]


def _fields(fields: tuple[Field, ...], labels: list[str]) -> pd.DataFrame:
    rows = [
        {"path": field.path, **{label: _plain(value) for label, value in zip(labels, field.values, strict=True)}}
        for field in fields
    ]
    return pd.DataFrame(rows, columns=["path", *labels])


def _plain(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


def _show_fields(table: pd.DataFrame, key: str, nothing: str) -> None:
    if table.empty:
        st.caption(nothing)
    else:
        st.dataframe(table, key=key, hide_index=True, placeholder="-", alt=f"Differing fields of the {key}")


def _results(comparison: Comparison, labels: list[str]) -> pd.DataFrame:
    rows = []
    for side, label in zip(comparison.sides, labels, strict=True):
        row: dict[str, object] = {"side": label, "parameters": side.parameters}
        row["trials"] = ", ".join(f"{n} {state}" for state, n in side.states.items())
        for metric in comparison.metrics:
            interval = comparison.interval(side, metric)
            row[metric] = interval.mean
            row[f"{metric} ±"] = _half(interval.low, interval.high)
            row[f"Δ {metric}"] = None if side is comparison.sides[0] else comparison.difference(side, metric).difference
        rows.append(row)
    return pd.DataFrame(rows)


def _half(low: float | None, high: float | None) -> float | None:
    return None if low is None or high is None else (high - low) / 2


def _links(comparison: Comparison, study: str) -> None:
    with st.container(horizontal=True):
        for side in comparison.sides:
            inside, _, variant = side.name.partition("/")
            if side.kind == "trial":
                link("trial", f"trial {side.name[:8]}", trial=side.name)
            elif side.trials:
                seed = next(iter(side.trials))
                link("trial", f"{variant}, seed {seed}", variant=variant, seed=str(seed), **{STUDY: inside})


def _curves(comparison: Comparison, labels: list[str], looks: list[Look]) -> dict[str, Maker]:
    """Draw the curves; what they are as files."""
    made, bands = figure(460), {}
    for side, label, drawn in zip(comparison.sides, labels, looks, strict=True):
        over = [trial.key for trial in side.trials.values() if trial.state is TrialState.FINISHED]
        one = band([line(curve) for curve in settled_curves(tuple(over)).values()])
        if not one.mean:
            continue
        bands[label] = one
        draw_band(made, label, one, drawn)
    if not bands:
        st.caption("No trial of these has finished yet.")
        return {}
    made.update_xaxes(title="steps")
    made.update_yaxes(title="validation loss", range=heights(bands.values()))
    ends = "; ".join(f"{label} ends at {one.mean[-1]:.4g}" for label, one in bands.items())
    chart(made, "compared", f"Validation loss against steps: {ends}"[:1000])
    rows = [
        {"side": label, "step": x, "val_loss": mean, "low": low, "high": high}
        for label, one in bands.items()
        for x, mean, low, high in zip(one.x, one.mean, one.low, one.high, strict=True)
    ]
    colours = {label: on_paper(drawn.colour) for label, drawn in zip(labels, looks, strict=True) if label in bands}
    files = table_files("compare_curves", pd.DataFrame(rows))
    return files | printed_bands("compare_curves", bands, colours, "steps", "validation loss")


def _pictures(comparison: Comparison, labels: list[str]) -> None:
    first = (labels[0], comparison.sides[0].spec["model"])
    pictures = []
    for number, (side, label) in enumerate(zip(comparison.sides, labels, strict=True)):
        size = f", {count(side.parameters)} parameters" if side.parameters is not None else ""
        pictures.append(BlockPicture(label, side.spec["model"], label + size, first if number else None))
    block_pictures(pictures, min(3, len(pictures)))
