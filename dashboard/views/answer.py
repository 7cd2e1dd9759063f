"""Answer, the page to show a supervisor: question, answer, table, forest plot, claims, the block before and after."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import pandas as pd
import streamlit as st

from ablate.analysis.answer import answer_of
from ablate.analysis.columns import Column, columns, groups, legend
from ablate.analysis.course import course_cell
from ablate.analysis.fairness import fairness_lines
from ablate.analysis.numbers import MISSING, count
from ablate.analysis.report import StudyReport
from ablate.analysis.rows import VariantRow
from ablate.analysis.text import plural
from ablate.render.blocks import lead
from ablate.render.document import evidence_lines
from ablate.render.figures.axes import scaling_table, scaling_title
from ablate.render.figures.curves import coursed, draw_course
from ablate.render.figures.forest import MOST, compared, forest, telling
from ablate.render.formats import find_format, format_names, render_report
from ablate.render.formats.slides import shown_variant
from ablate.store import TrialState
from dashboard.shared.exports import AXES, Maker, chart, export, report_figure, table_files
from dashboard.shared.frame import begin_page, warn_of_unknown
from dashboard.shared.pictures import BlockPicture, block_files, block_pictures
from dashboard.shared.running import show_next_steps
from dashboard.shared.store import every, findings, report
from dashboard.shared.text import LETTER, PADDING, escape, fitting, prose, wrapping
from dashboard.shared.verdicts import show_answer

FIRST, MOST_COURSES = 7, 24
"""Variants whose courses are drawn before others are chosen, and at most."""
MOST_TOLD = 8
"""Number of variants that diverged or failed that are listed; others are only counted."""
MOST_WHOLE = 30
"""Number of rows up to which the whole table is shown; longer tables scroll."""
ROOM = 960
"""Width of the table, in pixels, in a window of 1,280."""
LEAST = {"variant": 130, "verdict": 160}
"""Minimum widths of the columns of text."""
HALF = "Half of the 95 % interval, which is over seeds"
SIGNS = {"supported": ":green-badge[supported]", "refuted": ":red-badge[refuted]"}


def show() -> None:
    """Draw the page."""
    study = begin_page("Answer")
    st.fragment(_live, run_every=every(study))(study)
    st.fragment(_before_and_after)(report(study))
    st.fragment(_details, run_every=every(study))(study)


def _live(study: str) -> None:
    """The answer alone: what a reader looks for first."""
    study_report = report(study)
    if study_report.record.source:
        st.caption(escape(study_report.record.source))
    _progress(study_report)
    answer = answer_of(study_report)
    show_answer(study_report, answer)
    show_next_steps(answer)


def _details(study: str) -> None:
    """What supports the answer: checks, table, figures, claims."""
    study_report = report(study)
    with st.expander("Checks: everything that supports or limits the verdicts", key="checks"):
        _lost(study_report)
        if study_report.answer.caveats:
            caveats = "\n".join(f"- {prose(sentence)}" for sentence in study_report.answer.caveats)
            st.warning(caveats, icon=":material/warning:")
        for sentence in study_report.answer.sentences[len(study_report.answer.caveats) :]:
            st.markdown(_led(sentence))
    st.subheader("Ablation table", anchor=False)
    table = ablation(study_report)
    _show_table(study_report, table)
    _fairness(study_report)
    with st.expander("How to read the table"):
        st.caption("\n".join(f"- {prose(line)}" for line in legend(columns(study_report))))
    if rows := compared(study_report):
        st.subheader("Differences from the baseline", anchor=False)
        shown = _forest_page(rows)
        words = {row.name: row.verdict_word for row in shown}
        changes = ", ".join(f"{name} {word}" for name, word in list(words.items())[:20])
        chart(
            partial(forest, study_report, shown),
            "forest",
            f"Forest plot of paired differences with the margin {study_report.margin:g}: {changes}",
        )
    _course(study_report)
    _scaling(study_report)
    _claims(study_report)
    export(_files(study, study_report, table), "answer")


def _progress(study_report: StudyReport) -> None:
    st.caption(", ".join([study_report.progress.sentence, *filter(None, [_seeds(study_report)])]))


def _lost(study_report: StudyReport) -> None:
    """The variants that lost trials, and why."""
    diverged = [f"- {prose(_divergence(row))}" for row in study_report.variants if row.diverged]
    if diverged:
        st.warning("\n".join([*diverged[:MOST_TOLD], *_rest(diverged)]), icon=":material/trending_up:")
    failed = [f"- {escape(_failure(row))}" for row in study_report.variants if TrialState.FAILED in row.states.values()]
    if failed:
        st.error("\n".join([*failed[:MOST_TOLD], *_rest(failed)]), icon=":material/error:")


def _divergence(row: VariantRow) -> str:
    first = row.diverged[0]
    said = f": {first.reason.splitlines()[0]}" if first.reason else ""
    seeds = ", ".join(str(trial.seed) for trial in row.diverged)
    return f"{row.name} diverged with seed {seeds}{said}"


def _failure(row: VariantRow) -> str:
    seeds = ", ".join(str(seed) for seed, state in row.states.items() if state is TrialState.FAILED)
    return f"{row.name} failed with seed {seeds}; the page of the trial shows the error"


def _rest(lines: list[str]) -> list[str]:
    return [f"- and {len(lines) - MOST_TOLD} more variants"] if len(lines) > MOST_TOLD else []


def _led(sentence: str) -> str:
    """A sentence of an answer for Markdown; the text before the first colon is bold."""
    said, rest = lead(sentence)
    return f"**{prose(said)}:** {prose(rest)}" if said else prose(rest)


def _fairness(study_report: StudyReport) -> None:
    """What was tuned for each variant, and which budget was matched; with a warning icon if that is in doubt."""
    for line in fairness_lines(study_report.evidence.tuning, study_report.evidence.matching, study_report.metric):
        doubt = ":material/warning: " if line.startswith("*") else ""
        st.caption(f"{doubt}{prose(line)}")


def ablation(study_report: StudyReport) -> pd.DataFrame:
    """The table as it is shown: numbers apart from their intervals, so that a click on a heading sorts by them."""
    shown = columns(study_report)
    rows = [_row(shown, row) for group in groups(study_report) for row in group]
    if study_report.evidence.trivial is not None:
        rows.append({column.title: column.trivial for column in shown if column.trivial is not None})
    return pd.DataFrame(rows)


def _row(shown: Sequence[Column], row: VariantRow) -> dict[str, object]:
    cells: dict[str, object] = {}
    for column in shown:
        cell = column.text(row)
        cells[column.title] = cell.number if column.number else cell.text
        if column.number and cell.half is not None:
            cells[f"{column.title} ±"] = cell.half
    return cells


def _show_table(study_report: StudyReport, table: pd.DataFrame) -> None:
    number, text = st.column_config.NumberColumn, st.column_config.TextColumn
    configured: dict[str, Any] = {}
    shown = [column for column in columns(study_report) if column.informative and column.title in table]
    for column in shown:
        tip = "\n\n".join(prose(line) for line in column.help) or None
        if column.number:
            width = max(58, round(12 + LETTER * max(len(column.title), 8)))
            configured[column.title] = number(format=column.number, width=width, help=tip)
            if f"{column.title} ±" in table:
                half = column.number.replace("+", "")
                configured[f"{column.title} ±"] = number("±", format=half, width=56, help=HALF)
        elif not column.is_text:
            configured[column.title] = text(width=fitting(table, column.title, 110), help=tip)
    words = _word_widths(table, ROOM - sum(config["width"] for config in configured.values()))
    whole = len(table) <= MOST_WHOLE
    st.dataframe(
        table,
        key="ablation",
        hide_index=True,
        height="content" if whole else "auto",
        row_height=wrapping(table, words) if whole else None,
        column_config=configured | {name: text(width=width) for name, width in words.items()},
        column_order=[*words, *configured],
        placeholder=MISSING,
        alt=f"Ablation table of {len(table)} rows with 95 % intervals and verdicts",
    )


def _word_widths(table: pd.DataFrame, room: int) -> dict[str, int]:
    """Widths of the two columns of text, together `room` pixels if that is enough for their minimum widths.

    A name, which has no spaces to break at, is given one line if there is room; the words of a verdict take two.
    """
    lines = {"variant": 1, "verdict": 2}
    wanted = {name: [PADDING + LETTER * len(words) / n for words in table[name]] for name, n in lines.items()}
    free = max(room, sum(LEAST.values()))

    def cut(variant: int) -> float:
        """A penalty for truncated text; many texts that lose a little are better than a few that lose much."""
        widths = {"variant": variant, "verdict": free - variant}
        return sum(max(0.0, one - widths[name]) ** 2 for name in wanted for one in wanted[name])

    variant = min(range(LEAST["variant"], free - LEAST["verdict"] + 1, 10), key=cut)
    return {"variant": variant, "verdict": free - variant}


def _seeds(study_report: StudyReport) -> str:
    """The number of seeds of each variant, in words; empty if it differs, or if not all have finished."""
    counts = {(len(row.finished), len(row.planned)) for row in study_report.variants if not row.lost}
    (finished, planned), *others = counts or {(0, 1)}
    return f"{plural(planned, 'seed')} for each variant" if finished == planned and not others else ""


def _forest_page(rows: list[VariantRow]) -> list[VariantRow]:
    """The rows of the plot: all, or if they are many, those of the chosen page."""
    pages = -(-len(rows) // MOST)
    if pages < 2:
        return rows
    page = int(st.number_input("Page", 1, pages, key="part", bind="query-params", width=140))
    first = (page - 1) * MOST
    st.caption(
        f"{first + 1:,} to {min(first + MOST, len(rows)):,} of {len(rows):,} variants: first those that are decided, "
        "the best at the top, then those that the fewest seeds would decide."
    )
    return rows[first : first + MOST]


def _chosen_courses(study_report: StudyReport, rows: list[VariantRow]) -> list[VariantRow]:
    """The rows whose course is drawn: if they are many, the chosen ones, by default the first of the forest plot."""
    first = [row.name for row in telling(rows, study_report.direction)[:FIRST]]
    chosen = st.multiselect("Variants", [row.name for row in rows], first, key="courses", bind="query-params",
                            max_selections=MOST_COURSES)  # fmt: skip
    return [row for row in rows if row.name in chosen]


def _course(study_report: StudyReport) -> None:
    """The course of the differences, if there are evaluations before the end."""
    rows = coursed(study_report)
    if not rows:
        return
    st.subheader("Course of the differences", anchor=False)
    if len(rows) > FIRST:
        rows = _chosen_courses(study_report, rows)
        if not rows:
            st.info("Choose a variant to see its course.")
            return
    axis = st.segmented_control(
        "Against", list(AXES), default="steps", format_func=AXES.__getitem__, key="along",
        bind="query-params", required=True,
    )  # fmt: skip
    along = "step" if axis == "steps" else axis
    ends = "; ".join(f"{row.name} {course_cell(row.course)}" for row in rows[:20])
    alt = f"Differences from the baseline along training with the margin {study_report.margin:g}: {ends}"
    chart(partial(draw_course, study_report, rows, along, AXES[axis]), "course", alt)


def _scaling(study_report: StudyReport) -> None:
    """Whether verdicts hold at other budgets, or along the path of a sweep."""
    if study_report.scaling is None:
        return
    table = scaling_table(study_report.scaling, study_report.margin)
    st.subheader(escape(scaling_title(study_report.scaling)), anchor=False)
    rows = pd.DataFrame([row for group in table.groups for row in group], columns=list(table.titles))
    alt = f"Differences from the baseline along {study_report.scaling.axis}, {len(rows)} variants"
    st.dataframe(rows, key="scaling", hide_index=True, alt=alt)


def _claims(study_report: StudyReport) -> None:
    if not study_report.answer.claims:
        return
    st.subheader("Claims", anchor=False)
    for claim in study_report.answer.claims:
        with st.container(border=True):
            sign = SIGNS.get(claim.verdict, ":orange-badge[undecided]")
            st.markdown(f"{sign} **{escape(claim.id)}** {prose(claim.says)}")
            st.markdown(prose(claim.sentence))
            if claim.source:
                st.caption(escape(claim.source))
            with st.expander("Evidence"):
                st.text("\n".join(evidence_lines(claim.evidence)))


def _files(study: str, study_report: StudyReport, table: pd.DataFrame) -> dict[str, Maker]:
    files: dict[str, Maker] = dict(table_files(f"{study}_table", table))
    if not any(row.finished or row.diverged for row in study_report.variants):
        return files
    for name in format_names():
        written = find_format(name)
        if name != "terminal" and not written.draws_blocks:  # the dashboard has no torch; slides are on their page
            files[f"{study}.{written.suffix}"] = partial(_render, study, name)
    return files | report_figure(study, "forest") | report_figure(study, "course")


def _render(study: str, name: str) -> str | bytes:
    return render_report(findings(study), name)


def _before_and_after(study_report: StudyReport) -> None:
    record = study_report.record
    others = [variant.name for variant in record.variants if variant.name != record.baseline]
    if not others:
        return
    st.subheader("The block, before and after", anchor=False)
    warn_of_unknown("after", others)
    shown = shown_variant(study_report)
    name = st.selectbox(
        "Variant", others, others.index(shown) if shown in others else 0, key="after", bind="query-params"
    )
    models = {variant.name: variant.spec.get("model", {}) for variant in record.variants}
    sizes = {variant.name: count(variant.parameters) for variant in record.variants}
    first = (record.baseline, models[record.baseline])
    block_pictures(
        [
            BlockPicture(*first, f"{record.baseline}, {sizes[record.baseline]} parameters"),
            BlockPicture(name, models[name], f"{name}, {sizes[name]} parameters", first),
        ]
    )
    export(block_files("block_before", *first) | block_files("block_after", name, models[name], first), "blocks")
