"""The answer on a page: headline, counts that filter, rows that are a forest plot; and the evidence of a verdict."""

from __future__ import annotations

import html
import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import streamlit as st

from ablate.analysis.answer import Answer, answer_of
from ablate.analysis.answer_rows import AnswerRow, GroupKey, answer_sentence, in_answer, tuned_paths
from ablate.analysis.changes import variant_titles
from ablate.analysis.claims import ClaimVerdict
from ablate.analysis.columns import shared_decimals
from ablate.analysis.curves import band, line
from ablate.analysis.diff import differences
from ablate.analysis.effects import StudyEffects
from ablate.analysis.headline import EXTRAPOLATED, MEAN_SCORE, shows_effects
from ablate.analysis.ladder import Climbs
from ablate.analysis.numbers import MISSING, fixed, new_part, plural
from ablate.analysis.report import StudyReport
from ablate.analysis.runs import VariantRuns, baselines_of
from ablate.analysis.scaling import main_part
from ablate.analysis.search import what_best_has
from ablate.analysis.trivial import RULES
from ablate.analysis.why import why
from ablate.errors import NotFoundError
from ablate.render.blocks import Grid
from ablate.render.document import along_table, answer_note, effects_note, names_note
from ablate.render.figures.curves import draw_bands
from ablate.render.figures.style import Palette
from ablate.render.formats.html import (
    effects_table,
    group_mark,
    holds_alone,
    scale_forest,
    verdict_table,
    without_brackets,
)
from ablate.render.formats.html import prose as html_prose
from ablate.spec.paths import short_path
from ablate.spec.suite import at_task, split_task
from ablate.store import StudyRecord, TrialState, VariantRecord
from dashboard.shared.exports import chart, dark, image, show_grid
from dashboard.shared.frame import STUDY, address, link
from dashboard.shared.pictures import BlockPicture, block_pictures
from dashboard.shared.results import compared, fresh, report_on, runs
from dashboard.shared.store import settled_curves, store, summary
from dashboard.shared.text import escape, prose

WHY = "why"
"""The parameter of the address that names the variant whose evidence is shown, of a suite also `VARIANT@task=TASK`."""
UNPROVEN = "Unproven: not tried on fresh seeds, so without a verdict."
"""What a group of an answer means."""
SIGNS = {"supported": ":green-badge[supported]", "refuted": ":orange-badge[refuted]"}
MOST_FIELDS = 12
"""Differing fields of the spec that are shown; the page Compare has all."""


def evidence_link(label: str, variant: str) -> str:
    """A link to the evidence about a variant, for Markdown."""
    return f"[{escape(label)}]({address(**{WHY: variant})})"


def show_headline(answer: Answer) -> None:
    """The answer in words, above what supports it."""
    st.markdown(f"**{prose(' '.join(answer.headline))}**")


def show_evidence() -> None:
    """Open the drawer if the address names a variant that the chosen study compares."""
    asked, study = st.query_params.get(WHY), st.session_state.get(STUDY)
    if not asked or study is None or summary(study) is None:
        return
    variant, task = split_task(asked)
    study_report = report_on(study, task)
    try:
        row = why(study_report, variant).row
    except NotFoundError as error:
        st.error(prose(str(error)))
        return
    word, _, _ = _verdict_on(study_report, variant).partition(":")
    title = f"{escape(row.words, 90)}{f' on {escape(task)}' if task else ''}: {escape(word)}"
    drawer = st.dialog(title, width=720, position="right", on_dismiss=_close)
    drawer(_draw)(study_report, variant, task)


def _verdict_on(study_report: StudyReport, variant: str) -> str:
    """The verdict on a variant with its reason, or why it has none."""
    row = next(row for row in study_report.variants if row.name == variant)
    return answer_sentence(row) or in_answer(row.verdict_cell)


def _close() -> None:
    st.query_params.pop(WHY, None)


def _draw(study_report: StudyReport, variant: str, task: str) -> None:
    explained, record = why(study_report, variant), study_report.record
    variants = {other.name: other for other in record.variants}
    st.markdown(f"{prose(_verdict_on(study_report, variant))}  \n`{variant}`")
    _tasks(study_report, variant)
    _seeds(study_report, variant, task, explained.seeds)
    st.markdown("\n".join(f"- **{escape(label)}** {prose(text)}" for label, text in explained.facts.items()))
    _curves(record, variant)
    for claim in study_report.answer.claims:
        if variant in claim.variants:
            st.markdown(claim_text(claim, study_report.titles))
    baseline = baseline_of(record, variants[variant])
    first, model = baseline.spec.get("model", {}), variants[variant].spec.get("model", {})
    if first != model:
        block_pictures(
            [BlockPicture(baseline.name, first), BlockPicture(variant, model, versus=(baseline.name, first))]
        )
    show_differences(record, variants[variant])
    with st.container(horizontal=True):
        on = {"task": task} if task else {}
        link("compare", "Compare", sides=[baseline.name, variant], **on)
        link("curves", "Curves", variants=[baseline.name, variant], **on)


def _tasks(study_report: StudyReport, variant: str) -> None:
    """The verdict on each task of a suite, with a link to its evidence."""
    for task, on_task in study_report.tasks.items():
        row = next((row for row in on_task.variants if row.name == variant), None)
        if row is not None and row.verdict_sentence:
            st.markdown(f"- {evidence_link(task, at_task(variant, task))}: {prose(answer_sentence(row))}")


def _seeds(study_report: StudyReport, variant: str, task: str, differences_by_seed: Mapping[Any, float]) -> None:
    """Both values of each pair, and their difference; values of single trials are links to them."""
    record = study_report.record
    confirmed = next(row.confirmed for row in study_report.variants if row.name == variant)
    known = fresh(record.name) if confirmed else runs(record.name) if task else compared(record.name)[1]
    names = (at_task(variant, task), at_task(baselines_of(record)[variant], task))
    known = {name: known[name] for name in names}
    variant = names[0]
    decimals = max(3, shared_decimals(study_report))
    lines = [f"| {study_report.unit} | this variant | baseline | difference |", "|---:|---:|---:|---:|"]
    for seed in dict.fromkeys([*differences_by_seed, *known[variant].states]):
        cells = [
            _trial(known[name], seed, "" if study_report.tasks else name, study_report.metric, decimals)
            for name in names
        ]
        lines.append(f"| {seed} | {' | '.join(cells)} | {fixed(differences_by_seed.get(seed), decimals, sign=True)} |")
    st.markdown("\n".join(lines))


def _trial(run: VariantRuns, seed: Any, variant: str, metric: str, decimals: int) -> str:
    """The value of a trial, or its state, for Markdown, as a link if `variant` is named; a hyphen without a trial."""
    if seed not in run.states:
        return MISSING
    value = run.finished[seed].metrics.get(metric) if seed in run.finished else None
    shown = run.states[seed].value if value is None else fixed(value, decimals)
    return f"[{escape(shown)}]({address('trial', variant=variant, seed=str(seed))})" if variant else escape(shown)


def _curves(record: StudyRecord, variant: str) -> None:
    names = (variant, baselines_of(record)[variant])
    keys = {trial.key: trial.variant for trial in record.planned if trial.variant in names}
    over = [trial for trial in store().trials(list(keys)).values() if trial.state is TrialState.FINISHED]
    points = settled_curves(tuple(trial.key for trial in over))
    titles = variant_titles(record)
    lines = {
        name: [line(points[trial.key]) for trial in over if keys[trial.key] == name and points[trial.key]]
        for name in names
    }
    bands = {titles[name]: band(of) for name, of in lines.items() if of}

    def draw(palette: Palette) -> Any:
        looks = {titles[name]: look for name, look in palette.variants(record).items()}
        return draw_bands(bands, looks, palette, ("steps", "validation loss"), height=220)

    if len(bands) > 1:
        chart(draw, "evidence", f"Validation loss of {titles[variant]} and of the baseline against steps")


def baseline_of(record: StudyRecord, variant: VariantRecord) -> VariantRecord:
    """The baseline that a variant is compared with: of a ladder that on its rung."""
    name = baselines_of(record).get(variant.name, record.baseline)
    return next(known for known in record.variants if known.name == name)


def show_differences(record: StudyRecord, variant: VariantRecord) -> None:
    """The fields of a variant's spec that differ from those of its baseline, as a table."""
    baseline = baseline_of(record, variant)
    changed = sorted(
        differences(baseline.spec, variant.spec),
        key=lambda one: not one.path.startswith("training."),  # a tuned rate comes first
    )
    rows = tuple(
        (change.path, *(said_value(change.values.get(side)) for side in (0, 1))) for change in changed[:MOST_FIELDS]
    )
    if rows:
        grid = Grid(("field", "baseline", "this variant"), (rows,), frozenset(range(3)))
        show_grid(grid, "Fields that differ from the baseline")
    if tuned := [short_path(one.path) for one in changed if one.path in tuned_paths(record)]:
        st.caption(escape(f"Tuned for each variant, so that each is compared at its best: {', '.join(tuned)}."))
    if len(changed) > MOST_FIELDS:
        st.caption(f"and {len(changed) - MOST_FIELDS} more fields")


def said_value(value: object) -> str:
    """A value of a spec in a table."""
    return MISSING if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def claim_text(claim: ClaimVerdict, titles: Mapping[str, str]) -> str:
    """A claim with its verdict, for Markdown.

    Args:
        titles: Names of variants to what they are in words.
    """
    sign, source = SIGNS.get(claim.verdict, ":yellow-badge[undecided]"), f" ({claim.source})" if claim.source else ""
    reason = "; ".join(filter(None, (claim.reason(titles), claim.so_far)))
    return f"{sign} **{escape(claim.id)}** {prose(claim.says + source)}  \n{prose(reason)}"


def claim_rows(study_report: StudyReport) -> str:
    """The claims as rows of a verdict and what is claimed; a click on one shows why, by whom, and leads to evidence."""
    titles, baseline, suite = study_report.titles, study_report.record.baseline, answer_of(study_report).suite
    named = {} if suite is None else {row.variant: new_part(row.words) for row in suite.rows}

    def row(claim: ClaimVerdict) -> str:
        task = str(claim.evidence.get("task", ""))
        links = ", ".join(
            f'<a href="{html.escape(address(**{WHY: at_task(name, task)}))}">{html.escape(titles.get(name, name))}</a>'
            for name in claim.variants
            if name != baseline
        )
        known = claim.reason(titles), claim.so_far, claim.own_margin(study_report.margin)
        reason = "; ".join(filter(None, known))
        source = " · ".join(filter(None, (claim.id if claim.says else "", claim.source)))
        about = " · ".join(filter(None, (f"Evidence: {links}" if links else "", html.escape(source))))
        below = "".join(f"<span>{part}</span>" for part in (html_prose(reason), about) if part)
        return (
            f"<li><details><summary><b class='{claim.verdict}'>{claim.verdict}</b> "
            f"{html_prose(claim.says or claim.id)}{_on_task(claim, named)}</summary>{below}</details></li>"
        )

    return f'<ul class="claims" aria-label="Claims">{"".join(map(row, study_report.answer.claims))}</ul>'


def _on_task(claim: ClaimVerdict, titles: Mapping[str, str]) -> str:
    """Which variants a claim about one task of a suite compares there, as HTML."""
    task, names = claim.evidence.get("task"), claim.variants
    if not task or not names:
        return ""
    words = {name: titles.get(name, name).removesuffix(" (baseline)") for name in names}
    told = f"{task}: {' against '.join(words.values())}"
    if claim.verdict != "undecided":
        told = f"tested: {without_brackets(claim.reason(words))}"
    return f" <small>{html.escape(told)}</small>"


MOST = 60
"""Rows at a time."""
MOST_PAIRS = 6
"""Interactions that an answer shows; the page Effects has all."""
OF_PARTS = {"must stay": "worse", "can go": "as good"}
"""Verdicts on single parts as they are called beside those on effects."""
MOST_LIMITS = 2
"""What limits an answer that is shown above it; its checks have all."""


_NUMBERS = re.compile(r" \([+-]\d[^()]*\)")


def show_sentence(study_report: StudyReport) -> None:
    """The answer of a study in words, and what limits it."""
    answer = answer_of(study_report, letters=False)
    told = [said for said in answer.headline if not said.startswith(EXTRAPOLATED)] or [*answer.headline]
    best = study_report.record.traits.finds_best
    several = told[0].startswith(MEAN_SCORE) or shows_effects(study_report) or best or study_report.climbs is not None
    title = " ".join(told[:1] if several else told)
    if shows_effects(study_report):  # the rows below have the numbers
        title = _NUMBERS.sub("", title)
    st.title(prose(title), anchor=False)
    more_said = [*told[1:] * several, what_best_has(study_report, answer) * best]
    if said := " ".join(filter(None, more_said)):
        st.markdown(prose(said))
    searched = best and any(row.confirmed for row in study_report.variants)
    limits = [
        line.text + _without_what(study_report, line.variants)
        for line in answer.trust
        if line.level != "ok" and not (searched and line.key == "selected")
    ]
    if limits:
        more = f"; {len(limits) - MOST_LIMITS} more in the checks" if len(limits) > MOST_LIMITS else ""
        said = "; ".join(limits[:MOST_LIMITS])
        rules = " ".join(f"{name.capitalize()}: {rule}." for name, rule in RULES.items() if name in said)
        st.markdown(f":orange[:material/warning:] {prose(said)}{more}", help=rules or None)


def _without_what(study_report: StudyReport, names: Collection[str]) -> str:
    """The setting of an effect that exactly these variants have, in words; empty if there is none."""
    effects, variants = study_report.effects, main_part(study_report.record).variants
    if effects is None or not shows_effects(study_report):
        return ""
    for row in effects.main:
        having = {variant.name for variant in variants if set(variant.settings.items()) >= set(row.settings)}
        if names and having == {*names}:
            return f", all those with {effects.titles[row.name]}"
    return ""


def show_answer(study_report: StudyReport, picture: Callable[[], None] = lambda: None) -> None:
    """Draw the verdicts of a study; a click on a change shows the evidence.

    Args:
        picture: Draws what belongs below the rows of a search or of effects.
    """
    answer, effects = answer_of(study_report, letters=False), study_report.effects
    counts = ", ".join(f"{len(group.rows)} {group.key}" for group in answer.groups)
    if effects is not None and shows_effects(study_report):
        no_pair = not effects.asked and all(effects.finding(row) == "undecided" for row in effects.interactions)
        show_effects(effects, 0 if no_pair else MOST_PAIRS)
        picture()
        if no_pair and effects.interactions:
            pairs = st.expander("Two parts together, beyond the sum of both: all undecided", key="pairs",
                                on_change="rerun", bind="query-params")  # fmt: skip
            if pairs.open:
                with pairs:
                    show_effects(replace(effects, main=()), MOST_PAIRS)
        sides = Counter(OF_PARTS.get(group.key, group.key) for group in answer.groups for _ in group.rows)
        counts = ", ".join(f"{many} {side}" for side, many in sides.items())
        _folded(answer, f"{plural(len(answer.rows), 'combination')}, each by itself against the baseline: {counts}")
    elif answer.suite is not None:
        _folded(answer, f"Mean score over the {plural(len(answer.suite.tasks), 'task')}: {counts}")
    elif answer.groups:
        if answer.scale:
            st.subheader("On the largest models", anchor=False)
        _judged_rows(answer, picture)
    if study_report.climbs is not None:
        _scale(answer, study_report.climbs)


def _folded(answer: Answer, title: str) -> None:
    """The verdicts on single variants where the answer is about something else, a click away."""
    each = st.expander(title, key="combinations", on_change="rerun", bind="query-params")
    if each.open:
        with each:
            _rows(answer)


def _judged_rows(answer: Answer, picture: Callable[[], None]) -> None:
    """The compared variants; those that fresh seeds have not tried are a click away where others were tried."""
    judged = tuple(group for group in answer.groups if group.key != "unproven")
    others = [row for group in answer.groups if group.key == "unproven" for row in group.rows]
    if not judged or not others:
        _rows(answer)
        picture()
        return
    _rows(replace(answer, groups=judged))
    picture()
    title = f"{plural(len(others), 'further combination')}, not tried on fresh seeds"
    each = st.expander(title, key="unproven", on_change="rerun", bind="query-params")
    if each.open:
        with each:
            st.html(table(answer, _page([("unproven", row) for row in others])))
            st.caption("Without an interval: the seeds that they were trained on also chose among them.")


def _rows(answer: Answer) -> None:
    """The compared variants, with counts that filter them, and how to read them."""
    shown = _chosen_groups(answer)
    rows = [(group.key, row) for group in answer.groups if group.key in shown for row in group.rows]
    if answer.along is not None:
        show_grid(along_table(answer, answer.along), f"Verdicts along {answer.along.axis}")
    st.html(table(answer, _page(rows), baseline=True))
    if any(holds_alone(row) for _, row in rows):
        st.caption(prose("*: true alone, not jointly with the other verdicts."))
    key = "; ".join(f"{group_mark(group.key)} {group.title}" for group in answer.groups)
    explain(f"{key}. {answer_note(answer)}", names_note(answer))


def explain(*notes: str) -> None:
    """How to read what stands above, a click away."""
    with st.expander("How to read this", type="compact"):
        for note in filter(None, notes):
            st.caption(prose(note))


def _scale(answer: Answer, climbs: Climbs) -> None:
    """What becomes of the differences of a ladder beyond its largest rung, a click away."""
    times = f"{climbs.times:g}"
    beyond = [said for said in answer.headline if said.startswith(EXTRAPOLATED)]
    title = prose(beyond[0]) if beyond else f"{EXTRAPOLATED} {times} times the compute"
    further = st.expander(title, key="extrapolated", on_change="rerun", bind="query-params")
    if not further.open:
        return
    with further:
        st.html(scale_forest(answer, climbs, Palette(dark()), image))
        st.caption(
            f"Δ {answer.metric} at multiples of the compute of the largest rung (1x); at {times}x as the law of each "
            "variant predicts, with its 95 % interval. What is undecided at 1x stays undecided, whatever the law "
            "predicts. Speedup: the compute that the baseline would need there, over that of the variant."
        )


def show_effects(
    effects: StudyEffects, most: int, means: Mapping[str, str] = MappingProxyType({}), *notes: str
) -> None:
    """Show main effects and the `most` largest interactions as rows that are a forest plot, and how to read them.

    Args:
        means: Name of an effect to the means that it is the difference of.
        notes: What else there is to read.
    """
    st.html(effects_table(effects, most, Palette(dark()), image, means))
    explain(effects_note(effects), *notes)


def _page(rows: list[tuple[GroupKey, AnswerRow]]) -> list[tuple[GroupKey, AnswerRow]]:
    """The rows of the chosen page: all, unless they are many."""
    pages = -(-len(rows) // MOST)
    if pages < 2:
        return rows
    first = MOST * (int(st.number_input("Page", 1, pages, key="part", bind="query-params", width=140)) - 1)
    st.caption(f"{first + 1:,} to {min(first + MOST, len(rows)):,} of {len(rows):,} variants, by verdict")
    return rows[first : first + MOST]


def _chosen_groups(answer: Answer) -> set[GroupKey]:
    """The groups to show: those whose counts are selected; all if none is, or if there is one alone."""
    counts = {group.key: len(group.rows) for group in answer.groups}
    if len(counts) < 2:
        return set(counts)
    palette = Palette(dark())
    marks = (
        f".st-key-verdicts button:nth-of-type({at}) p::first-letter {{ color: {palette.verdict(key).colour} }}"
        for at, key in enumerate(counts, 1)
    )
    st.html(f"<style>{''.join(marks)}</style>")
    chosen = st.pills(
        "Verdicts", list(counts), selection_mode="multi", key="verdicts", bind="query-params",
        format_func=lambda key: f"{group_mark(key)} {counts[key]} {key}", label_visibility="collapsed",
    )  # fmt: skip
    return {key for key in counts if key in (chosen or counts)}


def table(answer: Answer, rows: list[tuple[GroupKey, AnswerRow]], task: str = "", *, baseline: bool = False) -> str:
    """The rows as an HTML table in which each change is a link to its evidence.

    Args:
        task: Of a suite, on which the verdicts are; empty: on the study.
        baseline: Whether a row above them has its value.
    """
    palette = Palette(dark())
    return verdict_table(
        answer, rows, palette.verdict, palette.ink, link=lambda row: address(**{WHY: at_task(row.variant, task)}),
        embed=image, baseline=baseline,
    )  # fmt: skip
