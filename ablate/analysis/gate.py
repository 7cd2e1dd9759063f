"""Whether a variant passes a gate: one question about its verdict, with an exit code, for CI and for loops."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ablate.analysis.answer import Answer, answer_of
from ablate.analysis.answer_rows import compared_row, compared_rows
from ablate.analysis.continuing import NextStep, next_steps
from ablate.analysis.numbers import listed
from ablate.analysis.report import StudyReport
from ablate.analysis.rows import VariantRow
from ablate.errors import ArgumentError
from ablate.store.records import TrialState

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
    reason = void or row.verdict_sentence or row.verdict_cell or "it has no verdict"
    passed: Passed = "undecided" if void else _passed(row, asked, report.margin)
    left = report.progress.states
    further = next_steps(report) if left[TrialState.WAITING] + left[TrialState.RUNNING] else answer.next
    word = row.verdict.word if row.verdict is not None else ""
    steps = tuple(step for step in further if step.arguments) if passed == "undecided" else ()
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
