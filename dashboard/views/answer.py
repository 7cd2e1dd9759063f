"""Answer, the page to show a supervisor: headline, verdicts, claims, the block, and below what they rest on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pandas as pd
import streamlit as st

from ablate.analysis.answer import answer_of, verdicts_on_parts
from ablate.analysis.columns import Column, columns, groups, legend
from ablate.analysis.course import course_cell
from ablate.analysis.effects import setting_means, trials_by_effect
from ablate.analysis.fairness import fairness_lines
from ablate.analysis.numbers import MISSING, fixed, listed
from ablate.analysis.report import StudyReport
from ablate.analysis.rows import VariantRow
from ablate.analysis.scaling import Scalings
from ablate.analysis.search import fresh_values, kinds_of, seed_pairs
from ablate.analysis.slices import Slice, depths_of
from ablate.render.blocks import lead
from ablate.render.document import names_note
from ablate.render.figures.axes import (
    beyond_scale,
    draw_scaling,
    draw_search,
    draw_slice,
    scaling_table,
    scaling_title,
    slice_panels,
)
from ablate.render.figures.curves import MOST_PANELS, course_panels, rows_with_course
from ablate.render.figures.effects import changes_by_first, draw_means, draw_sides, how_to_read_means, how_to_read_sides
from ablate.render.figures.laws import draw_laws, has_laws
from ablate.render.figures.profile import SCORE, Form, how_to_read, matrix, matrix_key, matrix_note, profile
from ablate.render.figures.style import Palette
from ablate.render.formats import find_format, format_names, render_report
from ablate.render.formats.latex import paper_table
from ablate.render.formats.slides import SlidesFormat
from ablate.store import TrialState
from dashboard.shared import results
from dashboard.shared.evidence import claim_rows, explain, show_answer, show_sentence
from dashboard.shared.exports import (
    Maker,
    chart,
    export,
    is_narrow,
    page_width,
    picture,
    plain_table,
    report_figure,
    table_files,
)
from dashboard.shared.frame import begin_page
from dashboard.shared.pictures import ask, judged_svg
from dashboard.shared.running import refresh, show_next_steps, show_progress
from dashboard.shared.store import findings, location, record, report, stamp
from dashboard.shared.text import LETTER, PADDING, escape, fitting, prose, wrapping
from dashboard.views import Entry

ENTRY = Entry("Answer", ":material/gavel:", "This study", 10)

MOST_TOLD = 8
"""Number of variants that diverged or failed that are listed; others are only counted."""
MOST_CLAIMS = 6
"""Claims that a phone shows without a click."""
MOST_AXES = 4
"""Numbers of a search along which its points are drawn."""
MOST_WHOLE = 30
"""Number of rows up to which the whole table is shown; longer tables scroll."""
ROOM = 920
"""Width of the table, in pixels, in a window of 1,280."""
LEAST = {"variant": 130, "verdict": 130}
"""Minimum widths of the columns of text."""
HALF = "Half of the 95 % interval, which is over seeds"


def show() -> None:
    """Draw the page."""
    study = begin_page("")
    live = refresh(study)
    st.fragment(_live, run_every=live)(study)
    with_block = bool(verdicts_on_parts(report(study)))
    text, block = st.columns([3, 2], gap="large") if with_block else (st.container(), None)
    with text:
        st.fragment(_claims, run_every=live)(study)
    if block is not None:
        with block:
            st.fragment(_block, run_every=live, parallel=True)(study)
    st.fragment(_details, run_every=live)(study)


def _live(study: str) -> None:
    """The answer alone: what a reader looks for first."""
    study_report = report(study)
    source = study_report.record.source
    show_progress(study, study_report.progress.sentence + (f"; {source}" if source else ""))
    show_sentence(study_report)
    if study_report.tasks:
        _suite(study_report)
    if study_report.climbs is not None:
        _ladder(study_report)
    searched = study_report.record.traits.finds_best
    show_answer(study_report, partial(_search if searched else _trials_of_effects, study))


def _suite(study_report: StudyReport) -> None:
    """The tasks of a suite: the profile, and the matrix of variants and tasks."""
    answer = answer_of(study_report)
    form: Form = "marks" if is_narrow() else "words"
    rows = [row for group in matrix(answer).groups for row in group]
    told = "; ".join(f"{row[0]} {', '.join(row[1:])}" for row in rows[:20])
    on = ", ".join(study_report.tasks)
    with st.container(key="panels-profile"):
        draw = partial(profile, study_report, width=page_width())
        chart(draw, "profile", f"Mean score of the variants and their results on {on}: {told}")
    plain_table(matrix(answer, form), f"{len(rows)} rows of variants, a column for each task")
    st.caption(prose(f"Lines: 95 % intervals over seeds. Dashed: the trivial baseline. {matrix_key(answer, form)}"))
    explain(how_to_read(answer), matrix_note(answer, form), SCORE, names_note(answer))


def _ladder(study_report: StudyReport) -> None:
    """The differences of a ladder as compute grows."""
    said = "; ".join(f"{row.words} {', '.join(row.by_rung)}" for row in answer_of(study_report).scale)
    with st.container(key="panels-rungs"):
        chart(partial(draw_scaling, study_report, width=page_width()), "rungs", f"Difference on each rung: {said}")
    note = "A point is all models of one size, a rung. Bars end at the one-sided 95 % bounds that decide"
    far = beyond_scale(study_report)
    st.caption(prose(f"{note}.{f' Off the scale, at the largest: {far}.' if far else ''}"))


def _search(study: str) -> None:
    """The points of a search along each number that it varies, and the best and the baseline on fresh seeds."""
    found = [one for one in results.slices(study) if one.trained is None][:MOST_AXES]
    if not found:
        return
    study_report = report(study)
    fresh = fresh_values(study_report, results.answer(study), results.fresh(study))
    kinds = kinds_of(study_report.record)
    told = f"{found[0].metric} of the points of the search along {', '.join(one.axis for one in found)}"
    with st.container(key="panels-search"):
        chart(partial(draw_search, found, kinds, fresh, width=page_width()), "search", told)
    planned = [*map(str, study_report.baseline.planned)]
    said = f"Small: each point on seed{'s' * (len(planned) > 1)} {listed(planned)}, by which one was chosen."
    if fresh:
        chose = [results.runs(study)[name].values(study_report.metric) for name in fresh]
        first, own = (fixed(value, 4) for value in seed_pairs(*chose)["mean"])
        said = f"{said[:-1]} (ringed: {own}, baseline {first}). Large: both on fresh seeds (dashes), with means and "
        said += "95 % intervals."
    st.caption(prose(said))


def _trials_of_effects(study: str) -> None:
    """The trials behind the effects: of two switches the four means, of more each trial with and without each part."""
    effects = results.effects(study)
    if effects is None:
        return
    record, runs = results.compared(study)
    if len(effects.main) == 2 and len(effects.interactions) == 1:
        (pair,) = effects.interactions
        if means := setting_means(record, runs, pair):
            told = "; ".join(f"{of.mean:.3f}" for of in means.values() if of.mean is not None)
            alt = f"Mean {effects.metric} with and without {effects.titles[pair.name]}: {told}"
            chart(partial(draw_means, effects, {pair.name: means}, width=min(page_width(), 480)), "means", alt)
            st.caption(prose(how_to_read_means(effects, means)))
    elif all(setting_means(record, runs, row) for row in effects.main):
        alt = "; ".join(f"{effects.titles[row.name]} {row.estimate:+.3f}" for row in effects.ranked(effects.main))
        trials = trials_by_effect(record, runs, effects)
        st.markdown(prose(changes_by_first(effects, trials)))
        with st.container(key="panels-sides"):
            draw = partial(draw_sides, effects, trials, width=page_width())
            chart(draw, "sides", f"{effects.metric} of each trial with and without each change: {alt}")
        st.caption(prose(how_to_read_sides(effects)))


def _claims(study: str) -> None:
    """What would settle what is open, and the claims with their verdicts."""
    study_report = report(study)
    answer = answer_of(study_report)
    show_next_steps(answer)
    if answer.claims:
        said = f"Claims: {answer.claim_counts}"
        folded = is_narrow() and len(study_report.answer.claims) > MOST_CLAIMS
        if not folded:
            st.header(said, anchor=False)
        with st.expander(said) if folded else st.container():
            st.html(claim_rows(study_report))


def _block(study: str) -> None:
    """The block with the verdicts on its parts."""
    svg = judged_svg(report(study))
    if svg:
        st.header("The block", anchor=False)
        picture(svg, f"Block of the baseline of {study} with the verdicts on its parts")


def _details(study: str) -> None:
    """What supports the answer; each part is drawn once it is opened, which the address says."""
    study_report = report(study)
    table = ablation(study_report)
    parts: dict[str, tuple[str, Callable[[], None]]] = {
        "checks": ("Checks: everything that supports or limits the verdicts", partial(_checks, study_report)),
        "table": ("Ablation table", partial(_table, study_report, table)),
    }
    if rows_with_course(study_report):
        parts["course"] = "Course of the differences", partial(_course, study_report)
    if study_report.scaling is not None:
        parts["scaling"] = scaling_title(study_report.scaling), partial(_scaling, study_report, study_report.scaling)
    for beyond in (one for one in results.slices(study) if one.trained is not None):
        parts[f"along-{beyond.axis}"] = f"Along {beyond.axis}", partial(_lengths, study, beyond)
    if inside := depths_of(*results.compared(study)):
        parts["insides"] = "Insides over depth", partial(_insides, study, inside)
    for key, (title, draw) in parts.items():
        part = st.expander(escape(title), key=key, on_change="rerun", bind="query-params")
        if part.open:
            with part:
                draw()
    export(_files(study, study_report, table), "answer")


def _checks(study_report: StudyReport) -> None:
    _lost(study_report)
    if study_report.answer.warning_sentences:
        warnings = "\n".join(f"- {prose(sentence)}" for sentence in study_report.answer.warning_sentences)
        st.warning(warnings, icon=":material/warning:")
    for sentence in study_report.answer.sentences[len(study_report.answer.warning_sentences) :]:
        st.markdown(_led(sentence))


def _table(study_report: StudyReport, table: pd.DataFrame) -> None:
    _show_table(study_report, table)
    _fairness(study_report)
    st.caption("\n".join(f"- {prose(line)}" for line in legend(columns(study_report))))


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
    lines = {"variant": 1, "verdict": 3}
    wanted = {name: [PADDING + LETTER * len(words) / n for words in table[name]] for name, n in lines.items()}
    free = max(room, sum(LEAST.values()))

    def cut(variant: int) -> float:
        """A penalty for truncated text; many texts that lose a little are better than a few that lose much."""
        widths = {"variant": variant, "verdict": free - variant}
        return sum(max(0.0, one - widths[name]) ** 2 for name in wanted for one in wanted[name])

    variant = min(range(LEAST["variant"], free - LEAST["verdict"] + 1, 10), key=cut)
    return {"variant": variant, "verdict": free - variant}


def _course(study_report: StudyReport) -> None:
    rows = rows_with_course(study_report)
    ends = "; ".join(f"{row.name} {course_cell(row.course)}" for row in rows[:20])
    alt = f"Differences from the baseline along training with the margin {study_report.margin:g}: {ends}"
    with st.container(key="panels"):
        chart(partial(course_panels, study_report, width=page_width()), "course-figure", alt)
    if len(rows) > MOST_PANELS:
        st.caption(f"The first {MOST_PANELS} of {len(rows):,} variants.")


def _lengths(study: str, beyond: Slice) -> None:
    """The metric at lengths beyond training."""

    def draw(palette: Palette) -> dict[str, Any]:
        return draw_slice(beyond, palette.variants(record(study)), palette)

    said = f"{beyond.metric} of models trained at {beyond.axis} {beyond.trained:g}, with 95 % intervals over seeds"
    chart(draw, f"figure-{beyond.axis}", said)


def _insides(study: str, found: tuple[Slice, ...]) -> None:
    """The measures of the models' insides over their blocks."""

    def draw(palette: Palette) -> dict[str, Any]:
        return slice_panels(found, palette.variants(results.compared(study)[0]), palette)

    with st.container(key="panels-insides"):
        said = f"By block, with 95 % intervals over seeds: {', '.join(one.metric for one in found)}"
        chart(draw, "insides-figure", said)
    export(report_figure(study, "insides"), "insides")


def _scaling(study_report: StudyReport, scalings: Scalings) -> None:
    """Whether verdicts hold at other budgets, or along the path of a sweep."""
    table = scaling_table(scalings, study_report.margin)
    plain_table(table, f"Differences from the baseline along {scalings.axis}, {sum(map(len, table.groups))} variants")
    if has_laws(study_report):
        with st.container(key="panels-laws"):
            said = f"Scaling laws of {study_report.metric} for the baseline and each variant"
            chart(partial(draw_laws, study_report, width=page_width()), "laws", said)


def _files(study: str, study_report: StudyReport, table: pd.DataFrame) -> dict[str, Maker]:
    files: dict[str, Maker] = dict(table_files(f"{study}_table", table))
    files[f"{study}_table.tex"] = partial(paper_table, study_report)
    if verdicts_on_parts(study_report):
        files[f"{study}_block.svg"] = lambda: judged_svg(study_report) or ""
    if study_report.tasks:
        tasks = matrix(answer_of(study_report))
        frame = pd.DataFrame([row for group in tasks.groups for row in group], columns=list(tasks.titles))
        files |= table_files(f"{study}_tasks", frame) | report_figure(study, "profile")
    if not any(row.finished or row.diverged for row in study_report.variants):
        return files
    for name in format_names():
        written = find_format(name)
        if name != "terminal" and written.ending != SlidesFormat.ending:  # slides are on their page
            files[f"{study}.{written.suffix}"] = partial(_render, study, name, draws=written.draws_blocks)
    return files | report_figure(study, "forest") | report_figure(study, "course")


def _render(study: str, name: str, *, draws: bool) -> str | bytes:
    """A report; one with pictures of blocks comes from a process with torch, which the dashboard does not import."""
    return str(ask("written", study, location(), name, stamp(study))) if draws else render_report(findings(study), name)
