"""One verdict alone: the seeds, what supports it, what would change it; and whether it passes a gate, for CI."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

from ablate.analysis.answer import Answer, answer_of
from ablate.analysis.answer_rows import AnswerRow, compared_row, compared_rows
from ablate.analysis.course import course_cell
from ablate.analysis.next_steps import NextStep
from ablate.analysis.numbers import MISSING, decimals_for, fixed, interval_words, listed, percent, plural, with_interval
from ablate.analysis.report import StudyReport
from ablate.analysis.rows import VariantRow
from ablate.errors import ArgumentError
from ablate.metrics import split_length
from ablate.stats import mean_interval
from ablate.stats.bounds import at_least, at_most


@dataclass(frozen=True, slots=True)
class Why:
    """Why a variant has its verdict.

    Attributes:
        row: The variant as the answer shows it.
        group: Heading of its group in the answer.
        sentence: The verdict with its reason.
        unit: As in `StudyReport`.
        seeds: Seed (or window, or unit of a table) to metric of the variant minus that of the baseline, those that both
            finished.
        facts: Label to text, in order: the difference, joint validity, course, cost, tuning, what would change a
            decided verdict.
    """

    row: AnswerRow
    group: str
    sentence: str
    unit: str
    seeds: Mapping[int, float] | Mapping[str, float]
    facts: dict[str, str]

    @property
    def words(self) -> str:
        """The heading of the group, which names the verdict, and the reason, in one or two sentences."""
        reason = re.sub("^(undecided|needed|not needed): ", "", self.sentence)
        heading = self.group.partition(":")[0] if self.group.startswith("Undecided") else self.group
        end = "" if reason.endswith("?") else "."
        return f"{heading}. {reason[:1].upper()}{reason[1:]}{end}"


def why(report: StudyReport, variant: str) -> Why:
    """Why a variant has its verdict.

    Raises:
        NotFoundError: The study compares no such variant.
    """
    row, answer = compared_row(report, variant, "--why"), answer_of(report)
    shown, title = next(
        (shown, group.title) for group in answer.groups for shown in group.rows if shown.variant == variant
    )
    return Why(
        row=shown,
        group=title,
        sentence=row.verdict_cell,
        unit=report.unit,
        seeds=_by_seed(row, report),
        facts=dict(_facts(row, shown, report, answer)),
    )


def _by_seed(row: VariantRow, report: StudyReport) -> dict[int, float] | dict[str, float]:
    judged = report.record.judged
    values = _by_number(row, report)
    return values if judged is None else {judged.units.get(seed, str(seed)): value for seed, value in values.items()}


def _by_number(row: VariantRow, report: StudyReport) -> dict[int, float]:
    values = row.difference.values if row.difference is not None else ()
    if row.confirmed and row.awaits:  # which of the fresh seeds have ended is not known here
        return {}
    seeds = {*row.confirmed} or {*row.finished} & {*report.baseline_of(row.name).finished}
    return dict(zip(sorted(seeds), values, strict=True)) if len(seeds) == len(values) else dict(enumerate(values))


def _facts(row: VariantRow, shown: AnswerRow, report: StudyReport, answer: Answer) -> Iterator[tuple[str, str]]:
    paired = row.shown_difference
    if paired is not None and paired.difference is not None:
        ends = [end for end in (shown.low, shown.high) if end is not None and math.isfinite(end)]
        decimals = decimals_for(report.margin, [(ends[1] - ends[0]) / 2] if len(ends) == 2 else [])
        said = interval_words(shown.low, shown.high, report.margin, decimals)
        interval = "" if said == MISSING else f", 95 % bounds {said}"
        what = f"of the baseline's {report.metric}" if report.rule.relative else report.metric
        yield (
            "difference",
            f"{fixed(paired.difference, decimals, sign=True)} {what}{interval}; margin {report.margin:g}",
        )
    if shown.bound is not None:
        others = sum(other.bound is not None for other in answer.rows) - 1
        holds = "holds" if shown.jointly else "does not hold"
        yield "bound", f"{shown.bound_text}, one-sided, 95 %"
        if others:
            which = f"the other {plural(others, 'verdict')}" if others > 1 else "the other verdict"
            yield "jointly", f"{holds} jointly with {which} (Holm's procedure)"
    if row.course is not None:
        yield "course", f"{course_cell(row.course)} over the last third of training"
    if lengths := dict(_lengths(row, report)):
        yield "lengths", "; ".join(f"{length} {values}" for length, values in lengths.items())
    if row.parameters is not None:
        change = percent(next(one for one in report.variants if one.name == row.name).parameter_change)
        yield "cost", f"{row.parameters:,} parameters ({change.replace('%', ' %')})"
    if report.evidence.tuning is not None and (tuned := report.evidence.tuning.of.get(row.name)) and tuned.values:
        values = (
            f"{path} {value}{' (edge of its grid)' * (path in tuned.edges)}" for path, value in tuned.values.items()
        )
        yield "tuned", listed(values)
    if row.failed or row.diverged:
        yield "lost", f"{plural(len(row.failed), 'trial')} failed, {len(row.diverged)} diverged"
    if shown.warning:
        yield "beware", shown.warning
    if turns := _turns(row, shown, report):
        yield "changes if", turns


def _lengths(row: VariantRow, report: StudyReport) -> Iterator[tuple[str, str]]:
    """The metric of the objective at each length of `training.evaluate_at`, and that of the baseline; mostly none."""
    base, _ = split_length(report.metric)
    split = [(*split_length(name), name) for name in row.metrics]
    for length, name in sorted((length, name) for of, length, name in split if of == base and length is not None):
        cells = []
        for side in (row, report.baseline_of(row.name)):
            shown = side.metrics.get(name) or mean_interval(())
            half = [] if shown.low is None or shown.high is None else [(shown.high - shown.low) / 2]
            write = partial(fixed, decimals=decimals_for(report.margin, half))
            cells.append(" ".join(with_interval(shown.mean, shown.low, shown.high, write)))
        yield f"at {length}", f"{cells[0]} (baseline {cells[1]})"


def _turns(row: VariantRow, shown: AnswerRow, report: StudyReport) -> str:
    """What would change the verdict; empty for an undecided one, whose reason says it."""
    if row.verdict is None:
        return "fresh seeds confirm it" if row.chosen else "" if row.pruned else "more of its trials finish"
    if row.verdict.word == "undecided":
        return ""
    if shown.bound is None:
        return "it trains without divergence"
    size, margin = abs(shown.bound), report.margin
    if row.verdict.is_worse or row.verdict.word == "better":
        return f"the margin were above {at_most(size, margin, 3)}"
    return f"the margin were below {at_least(size, margin, 3)}"


Asked = Literal["better", "not worse"]
Passed = Literal["passes", "fails", "undecided"]


@dataclass(frozen=True, slots=True)
class GateAnswer:
    """The answer to a question about one variant.

    Attributes:
        variant: Its name.
        asked: `better`: better than the baseline by more than the margin; `not worse`: not worse by the margin or more.
        passed: What the bounds of its comparison show of that.
        verdict: Of the variant, in the words of its study; empty if it has none.
        reason: Why, as a sentence.
        next: The commands that would decide it, where it is undecided.
    """

    variant: str
    asked: Asked
    passed: Passed
    verdict: str
    reason: str
    next: tuple[NextStep, ...]


def only_variant(report: StudyReport) -> str:
    """The name of the variant that a study compares with its baseline.

    Raises:
        ArgumentError: It compares several, or none.
    """
    names = [row.name for row in compared_rows(report)]
    if len(names) != 1:
        raise ArgumentError(
            "the study compares several variants" if names else "the study compares no variant",
            where="--variant",
            expected=f"one of {listed(names)}" if names else None,
            remedy="Name one with --variant.",
        )
    return names[0]


def gate(report: StudyReport, variant: str, asked: Asked) -> GateAnswer:
    """Ask whether a variant is better than the baseline, or not worse.

    It fails `better` too if its bound shows that it is not better by the margin. It is undecided while trials are
    missing, if the answer is void for it or for the baseline, and if these very results chose it.

    Raises:
        NotFoundError: The study compares no such variant.
    """
    row, answer = compared_row(report, variant, "--variant"), answer_of(report)
    void = _void(answer, {variant, report.baseline_of(variant).name})
    reason = void or row.verdict_cell
    passed: Passed = "undecided" if void else _passed(row, asked, report.margin)
    word = row.verdict.word if row.verdict is not None else ""
    steps = tuple(step for step in answer.next if step.arguments) if passed == "undecided" else ()
    return GateAnswer(variant, asked, passed, word, reason, steps)


def _void(answer: Answer, compared: set[str]) -> str:
    """Why the answer does not hold for a variant and its baseline; empty if it does."""
    void = (line for line in answer.trust if line.level == "void")
    return next((line.text for line in void if not line.variants or compared & {*line.variants}), "")


def _passed(row: VariantRow, asked: Asked, margin: float) -> Passed:
    verdict = row.verdict
    if row.lost == "diverged" and (verdict is None or not verdict.is_decided):
        return "fails"
    if verdict is None or row.awaits:
        return "undecided"
    if verdict.is_worse:
        return "fails"
    if asked == "not worse":
        return "passes" if verdict.is_acceptable else "undecided"
    if verdict.word == "better":
        return "passes"
    # `bound.low` is the lower bound of how much worse it is: above minus the margin, it is not better by the margin.
    no_gain = not verdict.withheld and verdict.bound is not None and verdict.bound.low > -margin
    return "fails" if no_gain else "undecided"
