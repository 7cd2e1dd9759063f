"""Path: the components that `simplify` removed one by one, the cost and savings of each step, and the blocks."""

from __future__ import annotations

from functools import partial

import pandas as pd
import streamlit as st

from ablate.analysis.answer_rows import in_answer
from ablate.analysis.numbers import count, interval_words
from ablate.analysis.path import Removal, RemovalPath, VariantSummary
from ablate.render.figures.path import draw_path, outcome
from ablate.render.figures.style import Palette
from ablate.render.formats.html import path_table
from ablate.store import StudyRecord
from dashboard.shared import results
from dashboard.shared.exports import Maker, chart, dark, export, figure_files, image, page_width, picture, table_files
from dashboard.shared.frame import begin_page
from dashboard.shared.pictures import BlockPicture, block_files, block_pictures, judged_svg
from dashboard.shared.running import show_next_steps
from dashboard.shared.store import every
from dashboard.shared.store import record as read_record
from dashboard.shared.store import report as read_report
from dashboard.shared.text import escape, prose
from dashboard.views import Entry

ENTRY = Entry("Path", ":material/stairs:", "This study", 40, applies="ablate.analysis.path:takes_path")

ABREAST = 3
"""Number of drawings in a row."""


def show() -> None:
    """Draw the page."""
    study = begin_page("Path")
    st.fragment(_live, run_every=every(study))(study)
    removal_path = results.path(study)
    if removal_path is not None:
        _pictures(removal_path, read_record(study))


def _live(study: str) -> None:
    if not results.any_ended(study):
        return
    removal_path = results.path(study)
    if removal_path is None:
        results.missing(
            study,
            "takes no path: it does not remove one component after the other",
            "`design: {kind: simplify, seeds: 3}` does, until nothing more can go.",
        )
        return
    first, *rest = outcome(removal_path)
    st.markdown(f"**{prose(first)}** {prose(' '.join(rest))}")
    if removal_path.trying:
        st.caption(
            escape(
                f"Round {len(removal_path.rounds) + 1} is not over: {', '.join(removal_path.trying)} are being tried."
            )
        )
    files = table_files(f"{study}_path", removals(removal_path))
    if removal_path.steps:
        draw = partial(draw_path, removal_path)
        if len(removal_path.steps) > 1:  # the table draws a single one
            chart(partial(draw, width=page_width()), "path", _alt(removal_path))
        files |= figure_files(f"{study}_path", draw)
    st.header("What was tried", anchor=False)
    st.html(path_table(removal_path, Palette(dark()), image))
    show_next_steps(results.answer(study))
    metric, margin = removal_path.metric, f"{removal_path.margin:g}"
    st.caption(
        escape(
            f"Δ: difference of {metric} from the baseline, of all that is removed by then. A part can go if its "
            f"interval ends before the margin {margin}; grey: beyond the margin."
        )
    )
    with st.expander("How to read this"):
        untimed = removal_path.steps and any(one.relative_speed is None for one in _stations(removal_path))
        st.markdown(
            prose(
                "Differences are paired by seed; the bounds are one-sided, at 95 % each, and decide. Of the parts "
                "that can go the one that saves most is chosen, and the next round goes on without it. The verdict on "
                "a part may change from round to round, as it is tried beside other removals in each: for what stays "
                "the last round counts, for what can go the fresh seeds. Confirmed: also on fresh seeds, which took "
                "no part in the choice and whose difference is shown. FLOP: of training."
                + " Speed is left out: no variant was timed. `ablate study FILE --time` does, after the trials."
                * bool(untimed)
            )
        )
    export(files, "path")


def removals(removal_path: RemovalPath) -> pd.DataFrame:
    """A row for the baseline and each removal that was tried, round by round."""
    begin = {"what became of it": "where it begins"}
    start = {"round": 0, "removal": "baseline", **_costs(removal_path.baseline), **begin}
    rows = [start]
    for number, tried in enumerate(removal_path.rounds, 1):
        rows += [_row(number, one, removal_path) for one in tried]
    columns = ["round", "step", "removal", "from", "parameters", "FLOP", "tokens/s", "difference",
               "95 % bounds", "low", "high", "verdict", "what became of it"]  # fmt: skip
    return pd.DataFrame(rows, columns=columns)


def _row(number: int, one: Removal, removal_path: RemovalPath) -> dict[str, object]:
    paired = None if one.verdict.word == "diverged" else one.standing.difference
    return {
        "round": number,
        "step": number if one.on_path else None,
        "removal": one.words,
        "from": removal_path.titles.get(one.parent, one.parent),
        **_costs(one.standing),
        "difference": paired.difference if paired else None,
        "95 % bounds": interval_words(one.bounds.low, one.bounds.high, removal_path.margin, 4) if one.bounds else None,
        "low": one.bounds.low if one.bounds else None,
        "high": one.bounds.high if one.bounds else None,
        "verdict": one.verdict.word,
        "what became of it": in_answer(one.reason),
    }


def _costs(standing: VariantSummary) -> dict[str, object]:
    return {"parameters": standing.parameters, "FLOP": standing.flops, "tokens/s": standing.tokens_per_second.mean}


def _stations(removal_path: RemovalPath) -> list[VariantSummary]:
    return [removal_path.baseline, *(step.standing for step in removal_path.steps)]


def _difference(standing: VariantSummary) -> float | None:
    return 0.0 if standing.difference is None else standing.difference.difference


def _alt(removal_path: RemovalPath) -> str:
    steps = [
        f"{step.words} to {count(step.standing.parameters)} parameters and a difference of "
        f"{_difference(step.standing) or 0.0:+.3g}"
        for step in removal_path.steps
    ]
    return f"The path from {count(removal_path.baseline.parameters)} parameters: {'; '.join(steps)}"[:1000]


def _pictures(removal_path: RemovalPath, record: StudyRecord) -> None:
    """Show the block at each step, compared with the previous step; without a step that with the verdicts."""
    if not removal_path.steps and (svg := judged_svg(read_report(record.name))):
        st.header("The block", anchor=False)
        picture(svg, f"Block of the baseline of {record.name} with the verdicts on its parts")
        export({f"{record.name}_block.svg": lambda: svg}, "blocks")
        return
    st.header("The block at each step", anchor=False)
    models = {variant.name: variant.spec.get("model", {}) for variant in record.variants}
    said = [record.baseline]
    for number, step in enumerate(removal_path.steps):
        open_ = ", not confirmed" if step not in removal_path.confirmed else ""
        said.append(f"{'and ' if number else ''}without {step.words}{open_}")
    models_on_path = [models[standing.variant] for standing in _stations(removal_path)]
    files: dict[str, Maker] = {}
    pictures = []
    for number, (standing, label) in enumerate(zip(_stations(removal_path), said, strict=True)):
        versus = (f"step {number - 1}", models_on_path[number - 1]) if number else None
        caption = f"{number}. {label}, {count(standing.parameters)} parameters"
        name = f"step {number}"
        pictures.append(BlockPicture(name, models_on_path[number], caption, versus, standing.variant))
        files |= block_files(f"block_{number}", name, models_on_path[number], versus)
    block_pictures(pictures, ABREAST)
    export(files, "blocks")
