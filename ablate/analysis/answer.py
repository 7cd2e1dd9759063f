"""The answer to a study's question: a headline, rows grouped by verdict, how far to trust it, what to do next.

Every output (terminal, reports, JSON, dashboard, notebook) shows this record, in this order. Numbers keep the sign of
the metric: variant minus baseline.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ablate.analysis.answer_rows import Along, AnswerGroup, AnswerRow, along, answer_groups
from ablate.analysis.changes import meanings_of
from ablate.analysis.columns import shared_decimals
from ablate.analysis.headline import MOST_NAMED, headline, named, reference_of, shows_effects
from ablate.analysis.ladder import ScaleRow, scale_rows
from ablate.analysis.next_steps import NextStep, next_steps
from ablate.analysis.numbers import counted, decimals_for, plural
from ablate.analysis.report import StudyReport
from ablate.analysis.suite import Suite, suite_of
from ablate.analysis.warnings import WHICH, StudyWarning, trust_lines
from ablate.spec.design import BASELINE


@dataclass(frozen=True, slots=True)
class Answer:
    """What a study found, on one screen.

    Attributes:
        study: Name of the study.
        question: Of the study, as its space states it.
        headline: What can go and what must stay, in one to three short sentences.
        groups: The compared variants by verdict, in the order of `TITLES`.
        along: Of a sweep, or a study with budgets, the variants at each place; its groups are by the verdict at the
            last place, or at the study's own length. Else None.
        scale: On a ladder, the variants by rung, and what larger models would show.
        trust: Whether to believe it, at most three lines.
        next: Commands that would settle or extend it.
        claims: The claims with each verdict, `supported`, `refuted` or `undecided`, by name; empty without claims.
        metric: Name of the objective's metric.
        margin: How much worse matters, in its unit.
        worse: 1 where a larger metric is worse, else -1.
        reference: Name of the variant that all others are compared with: `baseline`, or of `add_one_in` the plainest.
        baseline: Mean metric of that variant over its seeds; None if it has none, or another at each place of a
            sweep or for what fresh seeds confirm.
        decimals: With how many decimals values and differences are written, in all rows alike.
        unit: What is paired: `seed`, or `window` where nothing was trained.
        pairing: Whether and by what the variants are paired with the baseline: `paired by seed`.
        suite: Of a study with several tasks, the variants on each of them; its groups are by mean score. Else None.
        parts: Letters of labels to the parts that they stand for, in words; empty where all combinations are short.
        meanings: Names in the words of rows to what they mean, as the space explains them.
        relative: Whether differences and the margin are shares of the baseline's value: 0.05 is 5 % more.
    """

    study: str
    question: str
    headline: tuple[str, ...]
    groups: tuple[AnswerGroup, ...]
    along: Along | None
    scale: tuple[ScaleRow, ...]
    trust: tuple[StudyWarning, ...]
    next: tuple[NextStep, ...]
    claims: dict[str, tuple[str, ...]]
    metric: str
    margin: float
    worse: int
    reference: str
    baseline: float | None
    decimals: int
    unit: str
    pairing: str
    suite: Suite | None
    parts: dict[str, str]
    meanings: dict[str, str]
    relative: bool

    @property
    def quantity(self) -> str:
        """What verdicts are on: the metric of the objective, of a suite the mean score."""
        return self.metric if self.suite is None else f"mean {self.metric}"

    @property
    def parts_note(self) -> str:
        """The letters of labels with what they stand for: `A: the normalisation; B: the value projection`."""
        return "; ".join(f"{letter}: {part}" for letter, part in self.parts.items())

    @property
    def claim_counts(self) -> str:
        """How many claims have each verdict: `3 supported, 1 refuted`."""
        return ", ".join(counted((verdict, len(names)) for verdict, names in self.claims.items()))

    @property
    def claims_note(self) -> str:
        """The same, with the names of those that are not supported: `3 supported; refuted: scaling`."""
        supported = {"supported": f"{len(self.claims.get('supported', ()))} supported"}
        return "; ".join(supported.get(verdict) or f"{verdict}: {', '.join(of)}" for verdict, of in self.claims.items())

    @property
    def row_to_explain(self) -> AnswerRow | None:
        """The row to look into first: an undecided one, else one with a warning; None without rows."""
        return min(self.rows, key=_order_to_explain, default=None)

    @property
    def rows(self) -> tuple[AnswerRow, ...]:
        """All rows, in the order in which they are shown."""
        return tuple(row for group in self.groups for row in group.rows)


def _order_to_explain(row: AnswerRow) -> tuple[bool, bool, bool]:
    return row.verdict != "undecided", not row.warning, row.jointly or row.bound is None


def answer_of(report: StudyReport, *, letters: bool = True) -> Answer:
    """Group the variants of a study by verdict and say what follows from them.

    Args:
        letters: Whether letters may stand for the parts that long combinations change.
    """
    groups, parts = answer_groups(report, letters=letters)
    trust = tuple(_in_words(line, groups, report) for line in trust_lines(report.answer.warnings))
    places = along(report, groups)
    swept = report.scaling is not None and report.scaling.is_swept
    confirmed = any(row.confirmed for row in report.variants)  # beside the baseline with the same fresh seeds
    baseline = None if swept or confirmed else report.baseline.mean(report.metric)
    return Answer(
        study=report.record.name,
        question=report.record.question or report.record.name,
        headline=headline(groups, trust, places, report),
        groups=groups,
        along=places,
        scale=_scale(groups, report),
        trust=trust,
        next=next_steps(report),
        claims={
            word: names
            for word in ("supported", "refuted", "undecided")
            if (names := tuple(claim.id for claim in report.answer.claims if claim.verdict == word))
        },
        metric=report.metric,
        margin=report.margin,
        worse=1 if report.direction == "minimize" else -1,
        reference=reference_of(report),
        baseline=None if baseline is None else baseline.mean,
        decimals=shared_decimals(report),
        unit=report.unit,
        pairing=report.pairing,
        suite=suite_of(report, {row.variant: row.words for group in groups for row in group.rows}),
        parts=parts,
        meanings=meanings_of(report.record),
        relative=report.rule.relative,
    )


def _in_words(line: StudyWarning, groups: Sequence[AnswerGroup], report: StudyReport) -> StudyWarning:
    """A line of TRUST that calls variants by what they change, as the rows do."""
    words = {row.variant: row.label if row.label != row.words else named(row) for of in groups for row in of.rows}
    words[report.record.baseline] = "the baseline"
    which = [words.get(name, name) for name in line.variants]
    said = ", ".join(which) if len(which) <= MOST_NAMED else plural(len(which), "variant")
    return replace(line, text=line.text.replace(WHICH, said))


def verdicts_on_parts(report: StudyReport) -> list[tuple[Mapping[str, Any], str]]:
    """Whether parts of the baseline's block are needed, for a drawing of it.

    Returns:
        `model` of the spec of each variant that removes something with one switch and changes nothing else, with
        `needed`, `dispensable` or `open`. None without models of blocks, if the models have learnt too little,
        or if the answer is about averages, which are no verdicts on single parts.
    """
    models = {variant.name: variant.spec.get("model", {}) for variant in report.record.variants}
    first, found = models[report.record.baseline], []
    for row in report.variants if report.answer.learnt and "block" in first and not shows_effects(report) else ():
        turned = sum(row.settings.get(switch) != kept for switch, kept in report.baseline.settings.items())
        if row.verdict is not None and turned == 1 and row.change.only_removes:
            word = "dispensable" if row.verdict.is_acceptable else "needed" if row.verdict.is_worse else "open"
            found.append((models[row.name], word))
    return found


def _scale(groups: Sequence[AnswerGroup], report: StudyReport) -> tuple[ScaleRow, ...]:
    if report.climbs is None:
        return ()
    largest = report.record.baseline.removeprefix(BASELINE)
    words = {row.variant.removesuffix(largest): row.words for group in groups for row in group.rows}
    rows = {row.words: row for row in scale_rows(report.climbs, max(1, decimals_for(report.margin, ()) - 1), words)}
    return tuple(rows[of] for of in dict.fromkeys((*filter(rows.__contains__, words.values()), *rows)))
