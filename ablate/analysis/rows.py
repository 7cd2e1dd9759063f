"""`VariantRow`: one variant of a study with all that its trials say."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from ablate.analysis.changes import Change
from ablate.analysis.runs import Failure
from ablate.spec.design import BASELINE
from ablate.stats import (
    Allowance,
    Direction,
    Interval,
    PairedDifference,
    SeedPlan,
    Verdict,
    Word,
    bounds,
    over_looks,
    summarise,
)
from ablate.stats.trend import CourseWord
from ablate.stats.verdict import decision, replacement_word
from ablate.store.records import TrialState

SELECTED = "selected, not confirmed"
"""Shown instead of a verdict for a variant that was selected by results and not confirmed on fresh seeds."""


@dataclass(frozen=True, slots=True)
class Divergence:
    """A trial whose loss stopped being finite: its seed, the step (None if unknown) and what was recorded about it."""

    seed: int
    step: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class CoursePoint:
    """A comparison at one evaluation.

    Attributes:
        step: Optimizer steps of the variant.
        tokens: That it had seen, mean over the seeds; None if nobody has counted them.
        flops: Of its training so far, likewise.
        difference: Validation loss of the variant minus that of the baseline, paired by seed.
        low: Lower bound of its 95 % interval; None below two seeds.
        high: Upper bound.
        n: How many seeds.
        word: The verdict that it would have had there.
    """

    step: int
    tokens: float | None
    flops: float | None
    difference: float
    low: float | None
    high: float | None
    n: int
    word: Word


@dataclass(frozen=True, slots=True)
class StepsToBaseline:
    """Steps (or tokens, seconds, FLOP) until a validation loss reached the final one of the baseline, seed by seed.

    Attributes:
        median: Median over the seeds, those counted as later than all others that did not get there; None if it is one
            of these.
        reached: Seeds that reached it.
        of: Seeds that were compared: the baseline finished, and the variant finished or diverged. A trial that
            diverged counts as not having reached it.
    """

    median: float | None
    reached: int
    of: int


@dataclass(frozen=True, slots=True)
class JudgingRule:
    """The rule by which the variants of a study, and their courses, are judged.

    Attributes:
        metric: Name of the objective's metric; where it is another than `val_loss`, curves do not hold it.
        direction: Whether a smaller or a larger one is better.
        margin: How much worse matters, in the unit of the metric.
        schedule: How the study adds seeds, which then limits their number; None if it is fixed.
        unit: What is paired: `seed`, or `window` where nothing was trained.
        axis: What is equal between variants before their end: `steps`, `tokens`, `seconds` or `flops`.
        adds_seeds: Whether the design of the study could have a schedule of seeds.
        relative: Whether differences are shares of the baseline's value, and the margin too, as of times to a target.
    """

    metric: str
    direction: Direction
    margin: float
    schedule: SeedPlan | None
    unit: str
    axis: str
    adds_seeds: bool
    relative: bool

    @property
    def sign(self) -> float:
        """1 where a smaller objective is better, else -1."""
        return 1.0 if self.direction == "minimize" else -1.0


@dataclass(frozen=True, slots=True)
class MeasuredCourse:
    """What a course is judged from.

    Attributes:
        steps: Optimizer steps of the evaluations that all seeds share, ascending.
        differences: At each of them, the difference of each seed.
        spent: For each seed, step to the tokens and FLOP until then.
        rule: By what it is judged.
        allowance: By how much bounds are widened.
        replaces: Whether the variant replaces a part or adds one, rather than removing it.
        withheld: Whether the comparison has no verdict yet, or none at all, so that no point has one either.
    """

    steps: Sequence[int]
    differences: Sequence[Sequence[float]]
    spent: Sequence[Mapping[int, tuple[float, float]]]
    rule: JudgingRule
    allowance: Allowance
    replaces: bool
    withheld: bool = False

    def points(self) -> tuple[CoursePoint, ...]:
        """The comparison at each step."""
        return tuple(self._point(step, values) for step, values in zip(self.steps, self.differences, strict=True))

    def _spent(self, step: int, which: int) -> float | None:
        """The mean over the seeds; the user's own trainer may have counted nothing, and then there is 0."""
        total = math.fsum(at[step][which] for at in self.spent)
        return total / len(self.spent) if total or not step else None

    def _point(self, step: int, values: Sequence[float]) -> CoursePoint:
        word: Word = "undecided" if self.withheld else self._word(values)
        allowance = self.allowance.of_change(self.rule.direction)
        summary = over_looks(summarise(values), self.rule.schedule, allowance=allowance)
        return CoursePoint(
            step=step,
            tokens=self._spent(step, 0),
            flops=self._spent(step, 1),
            difference=math.fsum(values) / len(values),
            low=summary.low,
            high=summary.high,
            n=summary.n,
            word=replacement_word(word) if self.replaces else word,
        )

    def _word(self, differences: Sequence[float]) -> Word:
        """The verdict on differences, as that on the final ones: by the first look that decides."""
        worse = [self.rule.sign * value for value in differences]
        return decision(bounds(worse, self.rule.schedule, allowance=self.allowance), self.rule.margin)[0]


@dataclass(frozen=True)
class Course:
    """A comparison from its first evaluation to its last.

    Attributes:
        measured: The paired differences at every evaluation, from which `points` are judged when they are first read,
            because a table of a thousand variants shows none of them.
        end: The difference at the last evaluation of both.
        movement: By how much the difference moved over the last third of training, with a 95 % interval over seeds.
        word: Whether it still moves (`ablate.stats.trend.course_word`).
        comparable: Whether earlier points show where shorter training runs would end; None if that is not known.
        own_schedule: Whether the variant's learning rate follows another schedule than the baseline's, which moves the
            difference too.
    """

    measured: MeasuredCourse
    end: float
    movement: PairedDifference
    word: CourseWord
    comparable: bool | None
    own_schedule: bool

    def without_verdicts(self) -> Course:
        """The same with no verdict at any of its points."""
        return replace(self, measured=replace(self.measured, withheld=True))

    @cached_property
    def points(self) -> tuple[CoursePoint, ...]:
        """The comparison at the evaluations that all seeds share, ascending."""
        return self.measured.points()


def reference_words(baseline: VariantRow, rows: Iterable[VariantRow]) -> str:
    """What a sentence calls the variant that others are compared with; its name if another is called `baseline`."""
    return baseline.name if any(row.name == BASELINE != baseline.name for row in rows) else f"the {BASELINE}"


@dataclass(frozen=True, slots=True)
class VariantRow:
    """One variant of a study with all that its trials say.

    Attributes:
        name: Unique in the study.
        hash: Content hash of the full spec (hex).
        settings: Switch name to setting name.
        change: What it changes in the baseline, in words.
        parameters: Trainable parameters; None if ablate has not built the model.
        parameter_change: (parameters - those of the baseline) / those of the baseline; None if the baseline has none.
        planned: Seeds that the study planned.
        finished: Seeds whose trial finished with a finite objective.
        states: Planned seed to the state of its trial.
        metrics: Final metric to its mean over the seeds, with a 95 % interval; costs alone where a seed diverged.
        diverged: The trials that diverged.
        failed: The trials that failed.
        difference: Objective of the variant minus that of the baseline, paired by seed; None for the baseline, or if a
            trial was pruned.
        verdict: In the words for what the variant does ("needed" is said of removed parts only); None for the
            baseline, or if a trial was pruned.
        steps_to_baseline: Steps until the validation loss reached the final one of the baseline.
        spent_to_baseline: The same on the axis of what the study matches (`Matching.axis`), rather than in steps.
        chosen: Whether results led to it and no fresh seeds have confirmed it: then it has no verdict.
        confirmed: Fresh seeds on which its difference and its verdict rest, where these confirm what results chose.
        beside: The mean objective of the baseline over these seeds, as far as both have ended; None without them.
        relative_speed: Tokens a second over those of the baseline, geometric mean over the rounds of a timing with its
            95 % interval; None if it was not timed (`ablate.analysis.runs`).
        course: Its difference from the baseline at each evaluation; None where there is none (`course_of`).
        seconds: Training time of its finished trials together.
        longer: By how much longer than the baseline it was trained, stages included, as a clause; empty if no stage is
            involved, or if they are equal. Of a variant that a ladder dropped, its last rung; of the user's trainer,
            the seeds that were measured before their last step.
        awaits: Which seeds have ended, while trials of its comparison are missing and it has no verdict yet; else
            empty.
        unreached: Seeds that ended above the target of the study; then it has no mean and no interval.
    """

    name: str
    hash: str
    settings: dict[str, str]
    change: Change
    parameters: int | None
    parameter_change: float | None
    planned: tuple[int, ...]
    finished: tuple[int, ...]
    states: dict[int, TrialState]
    metrics: dict[str, Interval]
    diverged: tuple[Divergence, ...]
    failed: tuple[Failure, ...]
    difference: PairedDifference | None
    verdict: Verdict | None
    steps_to_baseline: StepsToBaseline
    spent_to_baseline: StepsToBaseline
    relative_speed: Interval | None
    chosen: bool
    confirmed: tuple[int, ...]
    beside: float | None
    course: Course | None
    seconds: float
    longer: str
    awaits: str
    unreached: int

    def provisional(self, margin: float) -> bool:
        """Whether its verdict is provisional for longer training: the difference still moves by more than the margin.

        Args:
            margin: How much worse matters.
        """
        decided = self.verdict is not None and self.verdict.is_decided
        return decided and self.course is not None and abs(self.course.movement.difference or 0.0) > margin

    @property
    def running(self) -> bool:
        """Whether a trial of its comparison waits or runs, or is not planned yet."""
        return bool(self.awaits) or any(state.is_open for state in self.states.values())

    def progress(self, unit: str) -> str:
        """How far its comparison is while it runs: `2/3 seeds`."""
        counts, ended, _ = self.awaits.partition(" ended")
        if ended:
            return counts.removesuffix(" have").removesuffix(" has").replace(" of ", "/")
        return self.awaits or f"{len(self.finished)}/{len(self.planned)} {unit}s"

    @property
    def pruned(self) -> bool:
        """Whether a trial of it was ended early; then it has no mean, no difference and no verdict.

        The other seeds were kept because they did better, so their mean would be biased.
        """
        return TrialState.PRUNED in self.states.values()

    @property
    def lost(self) -> str:
        """Why the table has no mean: `diverged`, `pruned`, `2 of 3 reached it`, or empty if it has one.

        A mean over the remaining seeds would be biased.
        """
        if self.unreached and not self.diverged:
            return f"{len(self.finished) - self.unreached} of {len(self.finished)} reached it"
        gone = self.diverged or (self.verdict is not None and self.verdict.word == "diverged")  # on fresh seeds too
        return "diverged" if gone else "pruned" if self.pruned else ""

    def mean(self, metric: str) -> Interval | None:
        """The mean of a final metric that the table shows; None if there is none, or if seeds were lost."""
        return None if self.lost else self.metrics.get(metric)

    @property
    def shown_difference(self) -> PairedDifference | None:
        """The difference that the table shows; None if there is none, or if seeds were lost."""
        return None if self.lost else self.difference

    @property
    def verdict_cell(self) -> str:
        """The verdict as the table says it: its sentence, or a replacement."""
        if self.verdict_sentence is not None:
            return self.verdict_sentence
        if self.pruned:
            return "pruned"
        return f"{len(self.diverged)} diverged" if self.diverged else "baseline"

    @property
    def verdict_sentence(self) -> str | None:
        """The verdict with its reason, or `SELECTED`; None if there is neither."""
        if self.verdict is None:
            return SELECTED if self.chosen else None
        return f"{self.verdict.sentence}; {self.longer}" if self.longer else self.verdict.sentence

    @property
    def verdict_word(self) -> str:
        """The word of that sentence, or `SELECTED`; empty if there is neither."""
        if self.verdict is None:
            return SELECTED if self.chosen else ""
        return self.verdict.word
