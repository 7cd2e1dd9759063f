"""What a written report says, section by section, whatever the format, and how to reproduce the study."""

from __future__ import annotations

import io
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

from ablate.analysis.answer import Answer, answer_of
from ablate.analysis.answer_rows import Along, AlongCell, AnswerRow, in_answer, outcome_words, verdict_word
from ablate.analysis.columns import columns, groups, legend, shared_decimals
from ablate.analysis.effects import StudyEffects
from ablate.analysis.fairness import fairness_lines
from ablate.analysis.findings import Findings, TrainingCost
from ablate.analysis.headline import shows_effects
from ablate.analysis.ladder import ScaleRow
from ablate.analysis.numbers import MISSING, count, duration, fixed, interval_words, listed, percent, plural, scaled
from ablate.analysis.report import StudyReport
from ablate.analysis.runs import MOST_SHOWN
from ablate.render.blocks import (
    AnswerGrid,
    Block,
    Cautions,
    ClaimsGrid,
    Grid,
    Items,
    Listing,
    Paragraph,
    Picture,
    ReportDocument,
    Section,
)
from ablate.render.figures import SECTIONS
from ablate.render.interval import Axis
from ablate.render.table import CAUTION
from ablate.spec.design import BASELINE
from ablate.store.records import Environment, StudyRecord

MOST_SEEDS, HASH = 8, 12
"""Seeds that are named, and characters of a hash."""
SIDES = {"difference": " (two-sided)", "verdict": " (one-sided)"}
"""Columns of the ablation table, to the kind of their 95 % intervals."""
_FOLDER = re.compile(r"(?<![\w.~:/-])/(?:[^\s/]+/)*(?=[^\s/])")
TRUST = {"ok": "", "except": "Except: ", "weak": "Caution: ", "void": "Void: "}
"""Levels of trust in an answer, to the prefix of a sentence on it."""
LIMITS = ("weak", "void")
"""The levels that stand directly below the headline."""
SOURCE = "Source"
"""Title of the section on runs that were trained elsewhere."""


def document(findings: Findings, pictures: Sequence[Picture] = ()) -> ReportDocument:
    """The report of a study: what answers its question first, what is looked up last; each picture in its section."""
    report = findings.report
    shown = {picture.name: picture for picture in pictures}
    tasks, *others = (of(findings, shown) for of in SECTIONS)
    designed = [section for section in others if section is not None]
    placed = {block for section in (tasks, *designed) if section for block in section.blocks} | {
        shown.get("forest"),
        shown.get("course"),
    }
    parts = [
        Section("Answer", tuple(_answer(answer_of(report, letters=not shows_effects(report))))),
        *([tasks] if tasks is not None else []),
        Section("Checks", tuple(_checks(report))),
        Section("Ablation table", (ablation_table(report), Items(legend(columns(report))))),
        *_failed(report),
        *_fairness(report),
    ]
    if "forest" in shown:
        parts.append(Section("Differences from the baseline", (shown["forest"],)))
    if "course" in shown:
        parts.append(Section("Course of the differences", (shown["course"],)))
    parts += designed
    if curves := tuple(picture for picture in pictures if picture not in placed):
        parts.append(Section("Learning curves", curves))
    if report.answer.claims:
        parts.append(Section("Claims", (claims_table(report),)))
    if report.record.judged is not None:
        parts.append(Section(SOURCE, tuple(_source(report.record))))
    else:
        parts.append(Section("Environment", (Items(tuple(_environments(findings))),)))
        parts.append(Section("Cost", tuple(_cost(findings))))
        parts.append(Section("How to reproduce", tuple(reproduction(findings))))
    title = report.record.question or report.record.name
    return ReportDocument(title, tuple(replace(part, of=findings) for part in parts))


def setup(findings: Findings) -> list[str]:
    """What was trained, on what, how, with which seeds and when, in two lines, as far as the space says it."""
    report, record = findings.report, findings.report.record
    model, training, task = (record.space.get(part) or {} for part in ("model", "training", "task"))
    size, optimizer, seeds = report.baseline.parameters, training.get("optimizer") or {}, report.baseline.planned
    tuned = report.evidence.tuning is not None and "training.optimizer.lr" in report.evidence.tuning.grid
    what = (
        f"{model['family']} of {plural(model['depth'], 'block')}, width {model['width']}" if "depth" in model else "",
        f"{size:,} parameters" if size else "",
        f"data {task['data']}" if isinstance(task.get("data"), str) else "",
        f"tasks {listed([*report.tasks])}" if report.tasks else "",
        f"context {task['context']}" if "context" in task else "",
    )
    how = (
        f"{training['steps']:,} steps of {training['batch_size']} inputs" if "batch_size" in training else "",
        optimizer.get("kind", ""),
        "learning rate tuned for each variant" if tuned else f"learning rate {optimizer['lr']}" if optimizer else "",
        f"{report.unit}s {listed([*map(str, seeds)])}" if len(seeds) <= MOST_SEEDS else plural(len(seeds), report.unit),
        f"{last_end(findings):%Y-%m-%d}",
    )
    named, trained = (", ".join(filter(None, of)) for of in (what, how))
    return [f"Study `{record.name}`: {named}" if named else f"Study `{record.name}`", trained]


def last_end(findings: Findings) -> datetime:
    """When its last trial finished; of a study without any, when it was last written."""
    ended = [trial.finished_at for runs in findings.runs.values() for trial in runs.finished.values()]
    return max(filter(None, ended), default=findings.report.record.updated_at)


def document_of_questions(
    answer: Answer, findings: Sequence[Findings], pictures: Sequence[Sequence[Picture]]
) -> ReportDocument:
    """One report on several questions: their one answer, then each question with its parts, then the sources.

    Args:
        answer: To all of them.
    """
    parts, sources = [Section("Answer", tuple(_answer(answer)))], dict[Block, None]()
    for found, drawn in zip(findings, pictures, strict=True):
        made = document(found, drawn)
        parts.append(Section(found.report.record.name, (Paragraph(made.title),)))
        parts += [replace(section, level=3) for section in made.sections if section.title != SOURCE]
        sources |= {block: None for section in made.sections if section.title == SOURCE for block in section.blocks}
    return ReportDocument(answer.question, (*parts, Section(SOURCE, tuple(sources))))


def _answer(answer: Answer) -> Iterator[Block]:
    """Headline, one row a variant by verdict, trust, claims, what to do next."""
    yield Paragraph(" ".join(answer.headline))
    trust = {line: f"{TRUST[line.word]}{line.text}" for line in answer.trust}
    if limits := tuple(text for line, text in trust.items() if line.word in LIMITS):
        yield Cautions(limits)
    if answer.groups:
        yield answer_table(answer) if answer.along is None else along_table(answer, answer.along)
        yield Paragraph(answer_note(answer))
        if names := names_note(answer):
            yield Paragraph(names)
    if answer.scale:
        yield scale_table(answer.scale)
    claims = (f"Claims: {answer.claim_counts}",) if answer.claims else ()
    if items := tuple(text for line, text in trust.items() if line.word not in LIMITS) + claims:
        yield Items(items)
    yield from (Paragraph(f"Next: {step.told}.") for step in answer.next if not step.arguments)
    if commands := [step for step in answer.next if step.arguments]:
        yield Paragraph("Next:")
        yield from (Listing(f"{shlex.join(['ablate', *step.arguments])}   # {step.purpose}") for step in commands)


def answer_table(answer: Answer) -> AnswerGrid:
    """The rows of an answer, grouped by verdict; without the parameters where none are known."""
    known = any(row.parameter_change is not None for row in answer.rows)
    titles = (
        "verdict",
        "change",
        "difference",
        "95 % bounds",
        "bound",
        *(("parameters",) if known else ()),
        "variant",
    )
    write = partial(fixed, decimals=answer.decimals, sign=True)
    groups = tuple(
        tuple(
            (
                verdict_word(group.key, row),
                row.label,
                write(row.difference),
                interval_words(row.low, row.high, answer.margin, answer.decimals),
                f"{row.bound_text or MISSING}{'*' if row.bound is not None and not row.jointly else ''}",
                *((percent(row.parameter_change),) if known else ()),
                row.variant + (f" ({row.warning})" if row.warning else ""),
            )
            for row in group.rows
        )
        for group in answer.groups
    )
    return AnswerGrid(titles, groups, frozenset({0, 1, len(titles) - 1}), answer=answer)


def along_table(answer: Answer, along: Along) -> Grid:
    """The variants of a sweep, or of a study with budgets, at each place: difference, interval and verdict."""
    write = partial(fixed, decimals=answer.decimals, sign=True)

    def cell(one: AlongCell) -> str:
        ends = "" if one.low is None else f" ({interval_words(one.low, one.high, answer.margin, answer.decimals)})"
        return MISSING if not one.verdict else f"{write(one.difference)}{ends}, {in_answer(one.verdict)}"

    titles = ("variant", *(f"{along.axis} {place}" for place in along.places))
    rows = tuple((words, *map(cell, cells)) for words, cells in along.rows.items())
    return Grid(titles, (rows,), frozenset(range(len(titles))))


def scale_table(rows: Sequence[ScaleRow]) -> Grid:
    """The variants of a ladder: what becomes of the difference at larger models, and the difference at each rung."""
    rungs = tuple(f"at {share}" for share in rows[0].compute)
    titles = ("outcome", "change", f"at {rows[0].times:g}x", "speedup there", *rungs)
    shown = tuple(
        (
            outcome_words(row),
            row.words,
            row.there or MISSING,
            row.speedup if row.there else MISSING,
            *row.by_rung,
        )
        for row in rows
    )
    return Grid(titles, (shown,), frozenset({0, 1}))


def answer_note(answer: Answer, rows: Sequence[AnswerRow] | None = None) -> str:
    """How to read rows of an answer, all unless some are given, in one or two sentences."""
    rows = answer.rows if rows is None else rows
    better = "lower" if answer.worse > 0 else "higher"
    baseline = "" if answer.baseline is None else f" ({fixed(answer.baseline, answer.decimals)})"
    tasks = 0 if answer.suite is None else len(answer.suite.tasks)
    judged = f"Verdicts are on the {answer.quantity} over {plural(tasks, 'task')}" if tasks else answer.quantity
    note = (
        f"{judged}: variant {'over' if answer.relative else 'minus'} {answer.reference}{baseline}"
        f"{', minus 1' * answer.relative}, {answer.pairing}; {better} is better. Margin: "
        f"{answer.margin:g}. Intervals end at one-sided 95 % bounds; a verdict rests on the one beside it."
    )
    alone = any(row.bound is not None and not row.jointly for row in rows)
    note += " *: true alone, not jointly with the other verdicts (Holm's procedure)." * alone
    axis = Axis.of_picture(answer)
    spans = filter(None, map(axis.span, rows))
    note += " An arrow: further than the axis reaches." * any(first < 0 or last > 1 for first, _, last in spans)
    more = next((row.bound_text for row in rows if row.bound_text.startswith("+") and row.verdict == "undecided"), "")
    note += f" {more}: about so many more would decide." * bool(more)
    return f"{note} {answer.parts_note}." if answer.parts else note


def effects_note(effects: StudyEffects) -> str:
    """How to read rows of effects, in a few sentences."""
    said = f"Δ: {effects.metric} with the change minus without it. " if effects.main else ""
    if effects.interactions:
        said += f"Of two together: {effects.metric} with both minus what their single Δ add up to. "
        if effects.removes(*effects.interactions):
            said += "Worse than that sum: each does the work of the other. Better: each needs the other. "
    if effects.withheld:
        said += f"All are undecided, whatever their intervals: {effects.withheld}."
    else:
        said += (
            f"Worse, better: the whole interval lies beyond the margin of {effects.margin:g} (grey). As good: it ends "
            "before the margin for the worse."
        )
        said += " Within: it lies within the margin on both sides." * bool(effects.interactions)
    said += " An arrow: further than the axis reaches."
    aliased = any(row.aliases for row in (*effects.main, *effects.interactions))
    return said + ' "+": the design cannot tell the two apart; the number is of their sum.' * aliased


def names_note(answer: Answer, text: str | None = None) -> str:
    """What names in a text, else in the words of the rows, mean as the space explains them; empty if none has any."""
    text = " ".join((BASELINE, *(row.words for row in answer.rows))) if text is None else text
    found = ((re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text), name) for name in answer.meanings)
    known = sorted((match.start(), name) for match, name in found if match)
    return " ".join(f"`{name}`: {answer.meanings[name]}." for _, name in known)


def _checks(report: StudyReport) -> Iterator[Block]:
    """Everything that supports or limits the verdicts; what limits them has its own paragraph, before the rest."""
    if report.answer.warning_sentences:
        yield Paragraph(f"{CAUTION} {' '.join(report.answer.warning_sentences)}")
    yield Paragraph(" ".join(report.answer.sentences[len(report.answer.warning_sentences) :]))


def ablation_table(report: StudyReport) -> Grid:
    """The table of a study, a row for each variant: baseline, then switch by switch, then the rest."""
    shown = columns(report)
    rows = tuple(tuple(tuple(column.text(row).text for column in shown) for row in group) for group in groups(report))
    if report.evidence.trivial:
        rows += ((tuple(column.of_trivial(shared_decimals(report)) for column in shown),),)
    texts = frozenset(number for number, column in enumerate(shown) if column.is_text)
    titles = (f"{column.title}{SIDES.get(column.key, '')}" for column in shown)
    return Grid(tuple(titles), rows, texts)


def _failed(report: StudyReport) -> Iterator[Section]:
    if failures := report.progress.failures:
        rows = tuple((failure.variant, str(failure.seed), failure.line) for failure in failures[:MOST_SHOWN])
        more = f"and {len(failures) - MOST_SHOWN} more." if len(failures) > MOST_SHOWN else ""
        table = Grid(("variant", "seed", "why"), (rows,), frozenset({0, 2}))
        yield Section("Failed trials", (table, *([Paragraph(more)] if more else [])))


def _fairness(report: StudyReport) -> Iterator[Section]:
    if lines := fairness_lines(report.evidence.tuning, report.evidence.matching, report.metric):
        yield Section("Fair comparison", (Items(lines),))


def claims_table(report: StudyReport) -> ClaimsGrid:
    """What became of the claims of a study, with their evidence."""
    rows = tuple(
        (
            claim.id,
            claim.says + (f" ({claim.source})" if claim.source else ""),
            claim.sentence,
            "; ".join(evidence_lines(claim.evidence)),
        )
        for claim in report.answer.claims
    )
    return ClaimsGrid(("claim", "says", "verdict", "evidence"), (rows,), frozenset(range(4)), fold="Evidence")


def evidence_lines(evidence: Any, name: str = "") -> Iterator[str]:
    """The numbers behind a claim as `name: number`, nested ones as `outer.inner: number`."""
    if isinstance(evidence, dict) and {*evidence} == {"p", "floor"}:
        least = ", the least that these pairs can give" if evidence["p"] == evidence["floor"] else ""
        yield f"{name}.p: {_short(evidence['p'])}{least}"
    elif isinstance(evidence, dict):
        for key, value in evidence.items():
            yield from evidence_lines(value, f"{name}.{key}" if name else str(key))
    elif isinstance(evidence, list) and any(isinstance(value, dict) for value in evidence):
        for number, value in enumerate(evidence, 1):
            yield from evidence_lines(value, f"{name}.{number}")
    elif isinstance(evidence, list):
        yield f"{name}: {', '.join(map(_short, evidence))}"
    elif evidence is not None and evidence != "":
        yield f"{name}: {_short(evidence)}"


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _source(record: StudyRecord) -> Iterator[Block]:
    """Of runs that were trained elsewhere: where they stand."""
    yield Paragraph(
        f"Judged, not trained here. The runs are those of {record.source}; how they were trained is not recorded."
    )


def _environments(findings: Findings) -> Iterator[str]:
    places: dict[str, None] = {}  # those that differ in the command alone are one
    for environment in findings.environments:
        versions = ", ".join(f"{package} {version}" for package, version in environment.versions.items())
        places[f"{environment.device}; host {environment.host}; {versions}{_commit(environment)}"] = None
    yield from places
    yield f"data: {', '.join((fingerprint or 'unknown')[:HASH] for fingerprint in findings.data)} (content hash)"


def _commit(environment: Environment) -> str:
    if environment.git_commit is None:
        return ""
    return f"; git {environment.git_commit[:HASH]}" + ("" if environment.git_clean else " with uncommitted changes")


def _cost(findings: Findings) -> Iterator[Block]:
    cost, scouting, report = findings.cost, findings.scouting, findings.report
    yield Paragraph(
        f"{report.progress.sentence}. {plural(cost.trials, 'trial')} that ended took {duration(cost.seconds)} of "
        f"training{_spent(cost)}, without evaluation. This includes trials that other studies of the store had trained "
        "before."
    )
    if cost.seconds > 0 and cost.flops is not None:
        share = findings.utilisation
        peak = "" if share is None else f", a model FLOP utilisation of {share:.1%}"
        yield Paragraph(f"That is {scaled(cost.flops / cost.seconds)}FLOP/s a trial{peak}.")
    if grid := findings.full_grid:
        yield Paragraph(
            f"The full grid of these switches has {grid.combinations:,} combinations, including invalid ones. With as "
            f"many seeds each it would need {plural(grid.trials, 'trial')}; at the mean cost of a trial of this study, "
            f"about {duration(grid.seconds)}{'' if grid.flops is None else f' and {scaled(grid.flops)}FLOP'}, "
            f"{grid.times:.1f} times this study."
        )
    if scouting.trials:
        yield Paragraph(
            f"In addition, {plural(scouting.trials, 'trial')} for tuning, timing or stages took "
            f"{duration(scouting.seconds)} of training{_spent(scouting)}."
        )
    rows = [(name, str(of.trials), *_counted(of).values()) for name, of in findings.cost_of.items()]
    yield Grid(("variant", "trials", *_counted(cost)), (tuple(rows),), frozenset({0}), fold="For each variant")


def _counted(cost: TrainingCost) -> dict[str, str]:
    """What is known of tokens and FLOP."""
    tokens = {} if cost.tokens is None else {"tokens": count(round(cost.tokens))}
    return tokens if cost.flops is None else {**tokens, "FLOP": scaled(cost.flops).strip()}


def _spent(cost: TrainingCost) -> str:
    known = [] if cost.tokens is None else [f"{count(round(cost.tokens))} tokens"]
    known += [] if cost.flops is None else [f"{scaled(cost.flops)}FLOP"]
    return f", {' and '.join(known)}" if known else ""


_KEPT = ("--plugin", "--engine")
"""Options of `ablate study` without which a space cannot be read or run. What else was given names where trials run
and are stored; the space contains `--data`."""


def reproduction(findings: Findings) -> Iterator[Block]:
    """The section of a report that says how to run the study again."""
    record = findings.report.record
    commands = sorted({environment.command for environment in findings.environments} - {""})
    yield Paragraph(
        "Install the versions named above, save the space below as a file and run the command. Trials that the store "
        "already holds are not trained again; give another store to train all of them. Paths in the space and in the "
        "command are those of the folder where the study was run."
    )
    kept = dict.fromkeys(option for command in commands for option in kept_options(command))
    words = [word for option in kept for word in option]
    again = shlex.join(["ablate", "study", f"{record.name}.yaml", *words, "--store", "again.db"])
    yield Listing(f"{again}\nablate report {record.name} --store again.db")
    unknown = _unknown(commands)
    yield Paragraph(unknown or f"These trials were run by: {_without_folders(commands)}")
    yield Paragraph(
        f"The space, {record.name}.yaml, as it was understood: with what it extends, its blocks, the data that it was "
        "given and every default written out, so that it needs no other file of spaces."
    )
    yield Listing(space_yaml(record.space))


def kept_options(command: str) -> Iterator[tuple[str, str]]:
    """The options, with their values, of a command line that ran a study, without which it cannot be run again."""
    words = iter(_study_words(command))
    for word in words:
        option, equals, value = word.partition("=")
        if option in _KEPT:
            yield option, value if equals else next(words, "")


def _without_folders(commands: Sequence[str]) -> str:
    """Commands without the folders of one machine, which JSON has."""
    return _FOLDER.sub("", "; ".join(commands))


def _study_words(command: str) -> list[str]:
    """The words of a command `ablate study`; none of any other program's."""
    try:
        words = shlex.split(command)
    except ValueError:  # not what a shell could have read
        return []
    return words[2:] if words[1:2] == ["study"] else []


def _unknown(commands: Sequence[str]) -> str:
    """What of a study's runs is not known, as a sentence; empty if all is."""
    others = [command for command in commands if not _study_words(command)]
    if commands and not others:
        return ""
    who = f"by a program of its own ({_without_folders(others)})" if others else "by a version that noted no command"
    return (
        f"Some of it was run {who}: whether that loaded plugins, and which, is not recorded. If a kind in the space is "
        "unknown when you run it, name its file with --plugin."
    )


def space_yaml(space: dict[str, Any]) -> str:
    """A stored space as a file that `ablate study` reads, without the top-level keys that are empty."""
    from ruamel.yaml import YAML

    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style, yaml.allow_unicode = False, True
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]  # annotated as None
    written = io.StringIO()
    yaml.dump({key: value for key, value in space.items() if value not in ("", [], {}, None)}, written)
    return written.getvalue().rstrip()
