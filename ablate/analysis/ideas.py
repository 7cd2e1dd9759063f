"""The ideas that the studies of a store have tried, with their verdicts, so that none is tried twice unknowingly."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from ablate.analysis.answer import answer_of
from ablate.analysis.answer_rows import compared_rows
from ablate.analysis.numbers import plural
from ablate.analysis.study import read_study
from ablate.stats.schedule import ERROR
from ablate.store.reader import StoreReader

Outcome = Literal["held", "refuted", "undecided"]
_OF_CLAIMS: dict[str, Outcome] = {"supported": "held", "refuted": "refuted"}


@dataclass(frozen=True, slots=True)
class Idea:
    """A change that a study compared, or a claim that it tested.

    Attributes:
        study: Name of the study.
        idea: The change in words, or what the claim says.
        variant: Name of the variant; empty for a claim.
        outcome: `held`: better, not worse, or supported; `refuted`: needed, worse, diverged, or refuted.
        verdict: In the words of the study.
        difference: From the baseline, in the metric; None if there is none.
        metric: Name of the metric.
        margin: How much worse mattered.
        updated: When the study last changed.
    """

    study: str
    idea: str
    variant: str
    outcome: Outcome
    verdict: str
    difference: float | None
    metric: str
    margin: float
    updated: datetime


def read_ideas(store: StoreReader, text: str = "") -> list[Idea]:
    """The ideas of all studies of a store, the latest study first; with a text, those that mention it."""
    found = []
    for summary in store.studies():
        report = read_study(store, summary.name)
        in_words = {row.variant: row.words for row in answer_of(report).rows}
        about = (report.metric, report.margin, summary.updated_at)
        for row in compared_rows(report):
            verdict = row.verdict
            outcome: Outcome = "undecided"
            if verdict is not None and verdict.is_decided:
                outcome = "refuted" if verdict.is_worse else "held"
            elif row.lost == "diverged":
                outcome = "refuted"
            difference = None if row.shown_difference is None else row.shown_difference.difference
            words = in_words.get(row.name, row.name)
            name = row.verdict_word or row.verdict_cell
            found.append(Idea(summary.name, words, row.name, outcome, name, difference, *about))
        for claim in report.answer.claims:
            tested = _OF_CLAIMS.get(claim.verdict, "undecided")
            found.append(Idea(summary.name, claim.says or claim.id, "", tested, claim.verdict, None, *about))
    wanted = text.casefold()
    return [idea for idea in found if wanted in f"{idea.study} {idea.idea} {idea.variant}".casefold()]


def chance_warning(ideas: list[Idea]) -> str:
    """What to expect by chance of so many verdicts; empty if there is only one."""
    decided = sum(idea.outcome != "undecided" for idea in ideas)
    if decided < 2:
        return ""
    studies = len({idea.study for idea in ideas})
    where = "one study" if studies == 1 else f"{studies} studies"
    return (
        f"{plural(decided, 'verdict')} in {where}, each wrong with a probability of at most 5 %: expect up "
        f"to {decided * ERROR:.4g} wrong ones. Holm's procedure holds within a study, not over all of them: confirm "
        "with fresh seeds what was selected here."
    )
