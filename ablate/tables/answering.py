"""The answers to several questions on one table as one answer: a row for each question and variant.

Questions of one metric and margin share the axis of their differences. Others are put on one in units of their margins,
oriented so that positive is worse.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from ablate.analysis.answer import Answer, answer_of
from ablate.analysis.answer_rows import TITLES, AnswerGroup, AnswerRow
from ablate.analysis.findings import Findings, read_findings
from ablate.analysis.numbers import bound_text, counted, listed, plural
from ablate.analysis.report import StudyReport
from ablate.analysis.runs import read_runs
from ablate.analysis.sentences import joint_sentence
from ablate.analysis.study import read_study
from ablate.analysis.warnings import LEVELS, StudyWarning
from ablate.analysis.why import Why, why
from ablate.errors import NotFoundError
from ablate.stats import hold_together, paired_difference, special, unpaired_difference
from ablate.stats.further import POWER
from ablate.stats.schedule import ERROR, SHOWN
from ablate.tables.judging import JudgedTable


def read_reports(table: JudgedTable) -> dict[str, StudyReport]:
    """Each question to its report; with `holm: all` verdicts hold jointly over all questions."""
    reports = {name: read_study(table, name) for name in table.records}
    if table.holm != "all":
        return reports
    together = _together(reports)
    return {name: _jointly(report, together[name]) for name, report in reports.items()}


def read_all_findings(table: JudgedTable, reports: Mapping[str, StudyReport]) -> list[Findings]:
    """What written reports say of each question.

    Raises:
        NotFoundError: No run of a question has a value.
    """
    return [replace(read_findings(table, name), report=report) for name, report in reports.items()]


def _together(reports: Mapping[str, StudyReport]) -> dict[str, frozenset[str]]:
    """Question to the variants whose verdicts hold jointly over all questions."""
    rows = {(name, row.name): row.verdict for name, report in reports.items() for row in report.variants}
    together = hold_together({"\0".join(pair): verdict for pair, verdict in rows.items() if verdict is not None})
    return {name: frozenset(row for of, row in rows if of == name and f"{name}\0{row}" in together) for name in reports}


def _jointly(report: StudyReport, together: frozenset[str]) -> StudyReport:
    """The report with other verdicts that hold jointly, also in its sentences."""
    before, after = (joint_sentence(report.variants, held) for held in (report.answer.together, together))
    said = tuple(
        f"Over all questions, {after[:1].lower()}{after[1:]}" if sentence == before else sentence
        for sentence in report.answer.sentences
    )
    return replace(report, answer=replace(report.answer, together=together, sentences=said))


def answer_of_table(table: JudgedTable, reports: Mapping[str, StudyReport]) -> Answer:
    """One answer to all questions of a table."""
    answers = {name: answer_of(report) for name, report in reports.items()}
    first, *others = answers.values()
    if not others:
        return first
    alike = all(
        (other.metric, other.margin, other.worse) == (first.metric, first.margin, first.worse) for other in others
    )
    pairings = {answer.pairing for answer in answers.values()}
    by_group: dict[str, list[AnswerRow]] = {key: [] for key in TITLES}
    titles: dict[str, str] = {}
    for name, answer in answers.items():
        for group in answer.groups:
            titles.setdefault(group.key, group.title)
            by_group[group.key] += [_row(row, name, answer, alike=alike) for row in group.rows]
    worse = first.worse if alike else 1
    groups = tuple(
        AnswerGroup(key, titles[key], tuple(sorted(by_group[key], key=lambda row: _badness(row, worse))))
        for key in TITLES
        if by_group[key]
    )
    return replace(
        first,
        study=table.source,
        question=f"{plural(len(answers), 'question')} on {table.source}: {_evidence(answers)}",
        headline=(_headline(groups, len(answers)), *_joint_headline(table, reports)),
        groups=groups,
        trust=_trust(answers),
        next=(),
        metric=first.metric if alike else "how much worse, in margins",
        margin=first.margin if alike else 1.0,
        worse=worse,
        reference="baseline",
        baseline=None,
        pairing=first.pairing if len(pairings) == 1 else "paired where a question says so",
        decimals=max(answer.decimals for answer in answers.values()) if alike else 2,
    )


def _row(row: AnswerRow, question: str, answer: Answer, *, alike: bool) -> AnswerRow:
    variant, words, label = (f"{question}: {name}" for name in (row.variant, row.words, row.label))
    named = replace(row, variant=variant, words=words, label=label)
    if alike:
        return named
    scale = answer.worse / answer.margin
    difference, bound = (None if value is None else scale * value for value in (row.difference, row.bound))
    ends = sorted(scale * end for end in (row.low, row.high) if end is not None)
    low, high = ends if len(ends) == 2 else (None, None)
    text = row.bound_text
    if bound is not None:
        text = bound_text(bound, upper=row.verdict in ("better", "not worse", "not needed"), margin=1.0)
    return replace(named, difference=difference, low=low, high=high, bound=bound, bound_text=text)


def _badness(row: AnswerRow, worse: int) -> float:
    value = row.bound if row.bound is not None else row.difference
    return worse * value if value is not None else float("inf")


def _headline(groups: tuple[AnswerGroup, ...], questions: int) -> str:
    total = sum(len(group.rows) for group in groups)
    words = {"better": "better", "as good": "as good within the margin", "worse": "worse"}
    said = counted((words.get(group.key, group.key), len(group.rows)) for group in groups)
    return f"{plural(total, 'comparison')} over {plural(questions, 'question')}: {listed(said)}."


def _joint_headline(table: JudgedTable, reports: Mapping[str, StudyReport]) -> Iterator[str]:
    """How many verdicts hold jointly over all questions, whether or not the table marks those that do not."""
    decided = {
        name: {row.name for row in report.variants if row.verdict is not None and row.verdict.is_decided}
        for name, report in reports.items()
    }
    total = sum(map(len, decided.values()))
    holding = sum(len(decided[name] & held) for name, held in _together(reports).items())
    if total > 1:
        count = f"all {total}" if holding == total else f"{holding} of {total}"
        marks = "* marks" if table.holm == "all" else "`--holm all` marks"
        marked = "" if holding == total else f"; {marks} the others"
        yield f"Jointly over all questions {count} verdicts hold (Holm's procedure{marked})."


def _evidence(answers: Mapping[str, Answer]) -> str:
    evidence = dict.fromkeys(answer.trust[0].text.partition(";")[0] for answer in answers.values())
    return "; ".join(list(evidence)[:2]) + (f"; and {len(evidence) - 2} others" if len(evidence) > 2 else "")


def _trust(answers: Mapping[str, Answer]) -> tuple[StudyWarning, ...]:
    """Every line once, with the questions that it is on unless it is on all."""
    on: dict[StudyWarning, list[str]] = {}
    for name, answer in answers.items():
        for line in answer.trust:
            on.setdefault(replace(line, full="", variants=()), []).append(name)
    lines = [
        line if len(names) == len(answers) else replace(line, text=f"{listed(names)}: {line.text}")
        for line, names in on.items()
    ]
    evidence = [line for line in lines if line.level == "ok"]
    limits = sorted((line for line in lines if line.level != "ok"), key=lambda line: LEVELS.index(line.level))
    return (*evidence[:1], *limits, *evidence[1:])


def why_of_table(table: JudgedTable, reports: Mapping[str, StudyReport], variant: str) -> Why:
    """Why a variant has its verdict, with the units by their names.

    Args:
        variant: The name of a variant; with several questions `QUESTION: VARIANT`.

    Raises:
        NotFoundError: No question compares such a variant.
    """
    if len(reports) == 1:
        (name,), alone = reports, variant
    else:
        pairs = {f"{name}: {row.name}": (name, row.name) for name, report in reports.items() for row in report.variants}
        if variant not in pairs:
            raise NotFoundError(
                "no question compares this", where="--why", expected=f"one of {listed(pairs)}", got=repr(variant)
            )
        name, alone = pairs[variant]
    found = why(reports[name], alone)
    facts = dict(_facts(table, reports[name], alone)) | found.facts
    if table.holm == "all" and found.row.bound is not None:
        holds = "holds" if found.row.jointly else "does not hold"
        facts["jointly"] = f"{holds} jointly with the verdicts of all questions (Holm's procedure)"
    return replace(found, facts=facts)


def _facts(table: JudgedTable, report: StudyReport, variant: str) -> Iterator[tuple[str, str]]:
    """The runs of both sides, what the other design would have given, and what difference these runs could show."""
    runs = read_runs(table, report.record, report.metric)
    ours, theirs = (runs[name].values(report.metric) for name in (variant, report.record.baseline))
    labels = report.record.judged.units if report.record.judged is not None else {}
    paired = report.record.pairs(variant)
    if not paired:
        for name, values in ((variant, ours), (report.record.baseline, theirs)):
            yield name, "  ".join(f"{labels[seed]}: {value:.6g}" for seed, value in values.items())
    row = next(row for row in report.variants if row.name == variant)
    other = unpaired_difference([*ours.values()], [*theirs.values()], SHOWN)
    if not paired:
        named = report.record.judged is not None and report.record.judged.named
        other = paired_difference(ours, theirs, SHOWN) if named else paired_difference({}, {})
    kind = "not paired" if paired else f"paired by the {other.n} {report.unit}s that are in both"
    if other.low is not None and other.high is not None:
        yield "otherwise", f"{kind}, the 95 % bounds would be {other.low:+.4g} to {other.high:+.4g}"
    elif not paired:
        yield "otherwise", "pairing needs runs of the same seeds on both sides that share their batches"
    difference = row.difference
    if difference is not None and difference.standard_error:
        # The critical value of the one-sided test and that of its power, as in a plan of a t-test.
        power = sum(float(special.stdtrit(difference.degrees, 1 - error)) for error in (ERROR, 1 - POWER))
        least = power * difference.standard_error
        yield "could tell", f"a difference that lies {least:.3g} from the margin, with a chance of {POWER:.0%}"
