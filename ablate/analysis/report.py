"""A study as a report shows it: a row for each variant, compared with the baseline seed by seed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ablate.analysis.changes import titles_of
from ablate.analysis.claims import ClaimVerdict
from ablate.analysis.declarations import Redeclaration
from ablate.analysis.effects import StudyEffects
from ablate.analysis.fairness import MatchedBudgets, Tuning
from ablate.analysis.ladder import Climbs
from ablate.analysis.numbers import counted, plural
from ablate.analysis.rows import JudgingRule, VariantRow
from ablate.analysis.runs import Failure, baselines_of
from ablate.analysis.scaling import Scalings
from ablate.analysis.trivial import Scale, Standing, TrivialBaseline, behind, learning_warnings, nothing_learnt
from ablate.analysis.warnings import StudyWarning, assumption
from ablate.metrics import Metric
from ablate.stats import Direction, Interval, Tails
from ablate.store.records import StudyRecord, TrialState, VariantRecord


@dataclass(frozen=True, slots=True)
class OtherLength:
    """A variant at another budget, which is compared with the baseline of that budget (`Scalings`).

    Attributes:
        record: As the store has it; its name ends with the budget.
        states: Planned seed to the state of its trial.
        metrics: Final metric to its mean over the finished seeds, with a 95 % interval.
    """

    record: VariantRecord
    states: dict[int, TrialState]
    metrics: dict[str, Interval]


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the comparison of a study rests on.

    Attributes:
        matching: The budgets of the variants, and the quantity that is equal.
        tuning: What was tuned for each variant; None if nothing was.
        trivials: The trivial baselines of its baseline's task by the objective, the best first.
        standings: How each variant compares with those of its own task.
        windows: Validation windows that are paired where nothing was trained; 0 if seeds are.
        redeclared: What was declared otherwise after results, oldest first.
        draw_sd: Standard deviation of a difference over other draws of the validation data; None if it was not measured
            in parts (`ablate.analysis.warnings.draw_noise`).
        tails: The long tail that the differences from the baseline show, oriented so that positive is worse; None if
            they show none.
    """

    matching: MatchedBudgets
    tuning: Tuning | None
    trivials: tuple[TrivialBaseline, ...]
    standings: tuple[Standing, ...]
    windows: int
    redeclared: tuple[Redeclaration, ...]
    draw_sd: float | None
    tails: Tails | None

    @property
    def trivial(self) -> TrivialBaseline | None:
        """The best trivial baseline of its task; None if there is none."""
        return self.trivials[0] if self.trivials else None

    @property
    def unlearnt(self) -> frozenset[str]:
        """Names of the variants that learnt so little that differences between them are not informative."""
        return frozenset(standing.name for standing in behind(self.standings))

    @property
    def learning(self) -> tuple[StudyWarning, ...]:
        """What limits the answer because models have learnt too little."""
        return tuple(learning_warnings(self.standings))

    @property
    def nothing_learnt(self) -> str:
        """Why there is no answer at all, as a clause: no model has learnt enough. Empty if one has."""
        return nothing_learnt(self.standings)


@dataclass(frozen=True, slots=True)
class StudyAnswer:
    """The answer to a study's question.

    Attributes:
        warnings: What supports it and what limits it: the evidence, then what the sentences begin with.
        sentences: Those of its warnings, then what the verdicts say.
        together: Names of the variants whose verdicts hold together (`ablate.stats.verdict`).
        claims: The verdicts on the claims of its space, in their order.
    """

    warnings: tuple[StudyWarning, ...]
    sentences: tuple[str, ...]
    together: frozenset[str]
    claims: tuple[ClaimVerdict, ...]

    @property
    def warning_sentences(self) -> tuple[str, ...]:
        """The sentences that it begins with: what limits all that follows."""
        return tuple(warning.full for warning in self.warnings if warning.full and warning.key not in _AMONG_VERDICTS)

    @property
    def learnt(self) -> bool:
        """Whether a model has learnt enough for the study to have an answer."""
        return not any(warning.replaces_headline for warning in self.warnings)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a study is.

    Attributes:
        states: How many planned trials are in each state, those at other budgets and those that confirm among them.
        failures: All trials that failed, those among them that only tune or time others.
    """

    states: dict[TrialState, int]
    failures: tuple[Failure, ...]

    @property
    def planned(self) -> int:
        """How many trials the study planned."""
        return sum(self.states.values())

    @property
    def sentence(self) -> str:
        """`3 of 4 trials finished, 1 failed`."""
        finished = f"{self.states[TrialState.FINISHED]} of {plural(self.planned, 'trial')} finished"
        others = counted((state.value, n) for state, n in self.states.items() if state is not TrialState.FINISHED)
        return ", ".join([finished, *others])


@dataclass(frozen=True, slots=True)
class StudyReport:
    """A study, its variants in the order of the design, and its answer.

    Attributes:
        record: The study as the store holds it, without its variants at other budgets.
        rule: By what its variants are judged.
        variants: A row for each variant.
        evidence: What their comparison rests on.
        answer: What it says.
        progress: How far it is.
        scaling: The variants at other budgets, along the path of a sweep, or by rung; None if the study has neither.
        climbs: What the laws of a ladder say; None if the study is none.
        other_lengths: The variants at other budgets, the baseline among them.
        effects: Main effects and interactions; None where switches are not crossed.
        tasks: Of a suite, whose own objective is the mean score, each task as a study; empty of any other study.
        scales: Task of a suite to how its metric becomes a score.
    """

    record: StudyRecord
    rule: JudgingRule
    variants: tuple[VariantRow, ...]
    evidence: Evidence
    answer: StudyAnswer
    progress: Progress
    scaling: Scalings | None
    climbs: Climbs | None
    other_lengths: tuple[OtherLength, ...]
    effects: StudyEffects | None
    tasks: Mapping[str, StudyReport] = field(default_factory=dict)
    scales: Mapping[str, Scale] = field(default_factory=dict)

    @property
    def metric(self) -> str:
        """Name of the objective's metric."""
        return self.rule.metric

    @property
    def direction(self) -> Direction:
        """Whether a smaller or a larger metric is better."""
        return self.rule.direction

    @property
    def margin(self) -> float:
        """How much worse matters, in the unit of the metric."""
        return self.rule.margin

    @property
    def assumption(self) -> str | None:
        """On what condition verdicts hold (`ablate.analysis.warnings.assumption`)."""
        return assumption(self.variants, self.evidence.tails, self.evidence.windows, self.unit)

    @property
    def test_metric(self) -> str | None:
        """The objective's metric on the test, which no verdict reads; None if nothing was tested."""
        metric = Metric.of(self.metric)
        name = str(metric.on("test"))
        return name if metric.split == "val" and any(name in row.metrics for row in self.variants) else None

    @property
    def titles(self) -> dict[str, str]:
        """Name of a variant to what it is in words (`ablate.analysis.changes.titles_of`)."""
        return titles_of({row.name: row.change for row in self.variants})

    @property
    def timed(self) -> bool:
        """Whether variants were timed beside the baseline, so that their speeds are known."""
        return any(row.relative_speed is not None for row in self.variants if row.name != self.record.baseline)

    @property
    def baseline(self) -> VariantRow:
        """The row that all others are compared with."""
        return next(row for row in self.variants if row.name == self.record.baseline)

    def baseline_of(self, variant: str) -> VariantRow:
        """The row that a variant is compared with."""
        name = baselines_of(self.record)[variant]
        return next(row for row in self.variants if row.name == name)

    @property
    def unit(self) -> str:
        """What is paired: `seed`, or `window` where nothing was trained."""
        return self.record.unit if not self.evidence.windows else "window"

    @property
    def pairing(self) -> str:
        """Whether and by what variants are paired with the baseline: `paired by seed`."""
        pairs = [self.record.pairs(row.name) for row in self.variants if row.name != self.record.baseline]
        if all(pairs):
            return f"paired by {self.unit}"
        return f"paired by {self.unit} where enough are shared" if any(pairs) else "not paired"


_AMONG_VERDICTS = ("selected", "draw", "elsewhere")
"""Warnings whose sentences stand among those on the verdicts."""
