"""What runs where, how fast, and the time left; which trials of a study failed; and a study in one line."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from ablate.analysis.answer import Answer, answer_of
from ablate.analysis.answer_rows import GroupKey
from ablate.analysis.effects import Side
from ablate.analysis.headline import past_the_confirmed, shows_effects
from ablate.analysis.report import StudyReport
from ablate.analysis.runs import StudyReader
from ablate.analysis.study import read_study
from ablate.devices import utilisation
from ablate.store.records import ENDED, Activity, DriverRecord, PlannedTrial, RunningTrial, TrialRecord, TrialState


@dataclass(frozen=True, slots=True)
class StudyStatus:
    """A study that is driven.

    Attributes:
        driver: Its driver, with the counts of the study's trials.
        interrupted: Trials that the driver had begun when it died: nothing trains them until the study is run again.
        trials_per_hour: How many end; None if none has ended lately.
        flops_per_second: Arithmetic of those that end; None if it is not known.
        seconds_left: None if none has ended lately.
    """

    driver: DriverRecord
    interrupted: int
    trials_per_hour: float | None
    flops_per_second: float | None
    seconds_left: float | None

    @property
    def left(self) -> int:
        """Number of trials that have not ended."""
        return self.driver.planned - self.driver.settled - self.driver.failed


@dataclass(frozen=True, slots=True)
class Status:
    """The activity in a store.

    Attributes:
        at: When it was read, by the store's clock.
        studies: Those that are driven, in the order in which they were begun.
        running: Trials that run, the oldest first.
        interrupted: Trials whose driver has died.
    """

    at: datetime
    studies: tuple[StudyStatus, ...]
    running: tuple[RunningTrial, ...]
    interrupted: int


def status_of(activity: Activity) -> Status:
    """What the activity in a store means: rates, and the time left."""
    alive = {driver.study for driver in activity.drivers if driver.alive}
    running = tuple(trial for trial in activity.running if trial.study in alive)
    interrupted = Counter(trial.study for trial in activity.running if trial.study not in alive)
    studies = tuple(_study(driver, activity.at, running, interrupted[driver.study]) for driver in activity.drivers)
    return Status(activity.at, studies, running, interrupted.total())


def _study(driver: DriverRecord, at: datetime, running: Sequence[RunningTrial], interrupted: int) -> StudyStatus:
    """The status of one study. A running trial counts as done by its share of completed steps."""
    seconds = max(1.0, (at - driver.begin).total_seconds())
    rate = driver.ended / seconds if driver.alive else 0.0
    done = sum((trial.step or 0) / max(1, trial.steps) for trial in running if trial.study == driver.study)
    left = driver.planned - driver.settled - driver.failed - done
    return StudyStatus(
        driver=replace(driver, running=driver.running - interrupted),
        interrupted=interrupted,
        trials_per_hour=3600 * rate if rate else None,
        flops_per_second=driver.flops / seconds or None,
        seconds_left=max(0.0, left) / rate if rate else None,
    )


def utilisation_of(trial: RunningTrial) -> float | None:
    """The model FLOP utilisation of a running trial up to its last point; None if its device is not known."""
    device = trial.worker.device if trial.worker is not None else ""
    return utilisation(trial.flops, trial.seconds, device, trial.precision)


_TROUBLED = (TrialState.FAILED, TrialState.DIVERGED)


@dataclass(frozen=True, slots=True)
class WorkerLoad:
    """What ended on one device of one machine.

    Attributes:
        host: Name of the machine; empty where that was not recorded.
        device: Of the machine.
        trials: How many ended there.
        failed: How many of them failed.
        diverged: How many of them diverged.
        seconds: Seconds of training without evaluation, summed over trials.
        tokens: Seen in training.
        flops: Arithmetic of training.
        ended_at: When they ended, in ascending order, without unknown times.
        began_at: When the first of them started; None if that is not known of any.
    """

    host: str
    device: str
    trials: int
    failed: int
    diverged: int
    seconds: float
    tokens: int
    flops: float
    ended_at: tuple[datetime, ...] = ()
    began_at: datetime | None = None

    @property
    def tokens_per_second(self) -> float | None:
        """Of one trial, on average; None if nothing was trained there, or nobody has counted them."""
        return self.tokens / self.seconds if self.seconds > 0 and self.tokens else None


@dataclass(frozen=True, slots=True)
class WorkerFailure:
    """A trial that failed, diverged, or was begun more than once.

    Attributes:
        variant: Its name in the study.
        seed: Of the trial.
        state: Its current state.
        attempts: How often its driver began it.
        host: Where it was last; empty where that was not recorded.
        reason: Its first line, for a person.
    """

    variant: str
    seed: int
    state: TrialState
    attempts: int
    host: str
    reason: str


def read_workers(store: StudyReader, name: str) -> tuple[tuple[WorkerLoad, ...], tuple[WorkerFailure, ...]]:
    """The trials that ended by device, the busiest first; those that failed, in the order of the design.

    Raises:
        NotFoundError: The store holds no such study.
    """
    record = store.study(name)
    planned = (*record.planned, *record.scout_trials, *record.confirm_trials)
    trials = store.trials([trial.key for trial in planned])
    places: dict[tuple[str, str], list[TrialRecord]] = {}
    for trial in trials.values():
        if trial.state in (*ENDED, TrialState.FAILED):
            places.setdefault(device_of(trial), []).append(trial)
    loads = [_load(*place, ended) for place, ended in places.items()]
    return tuple(sorted(loads, key=lambda one: -one.trials)), _failures(planned, trials)


def device_of(trial: TrialRecord) -> tuple[str, str]:
    """Host and device on which a trial was trained; empty where that was not recorded."""
    if trial.worker is not None:
        return trial.worker.host, trial.worker.device
    return (trial.environment.host, trial.environment.device) if trial.environment is not None else ("", "")


def _load(host: str, device: str, ended: Sequence[TrialRecord]) -> WorkerLoad:
    return WorkerLoad(
        host=host,
        device=device,
        trials=len(ended),
        failed=sum(trial.state is TrialState.FAILED for trial in ended),
        diverged=sum(trial.state is TrialState.DIVERGED for trial in ended),
        seconds=sum(trial.seconds for trial in ended),
        tokens=sum(trial.tokens for trial in ended),
        flops=sum(trial.flops for trial in ended),
        ended_at=tuple(sorted(trial.finished_at for trial in ended if trial.finished_at is not None)),
        began_at=min((trial.started_at for trial in ended if trial.started_at is not None), default=None),
    )


def _failures(planned: Sequence[PlannedTrial], trials: Mapping[str, TrialRecord]) -> tuple[WorkerFailure, ...]:
    failures = []
    for slot in planned:
        trial = trials.get(slot.key)
        if trial is not None and (trial.state in _TROUBLED or trial.attempts > 1):
            reason = trial.reason.partition("\n")[0]
            failures.append(
                WorkerFailure(slot.variant, slot.seed, trial.state, trial.attempts, device_of(trial)[0], reason)
            )
    return tuple(failures)


PACE = 20
"""Number of most recent trials from which the pace is estimated."""


@dataclass(frozen=True, slots=True)
class Overview:
    """The key figures of a study.

    Attributes:
        metric: Of its objective.
        margin: The difference of it that counts; None where nothing is known of it.
        best: The variant with the best mean of the metric over its finished seeds, of those that diverged at none;
            None before any has finished.
        best_value: That mean.
        simplest: The variant with fewest parameters among the baseline and those that a verdict accepts.
        simplest_parameters: How many it has; None if ablate has not built the models.
        seconds: Of training so far, evaluation left out.
        flops: Arithmetic of training so far, forward and backward; None if it is not known.
        seconds_left: An estimate of the time until the last trial ends, from the pace of those that have; None when
            nothing is left or no trial has ended.
        verdicts: The groups of what its answer counts: of its judged variants, or of its average effects.
        headline: Sentences of its answer.
    """

    metric: str
    margin: float | None
    best: str | None
    best_value: float | None
    simplest: str
    simplest_parameters: int | None
    seconds: float
    flops: float | None
    seconds_left: float | None
    verdicts: tuple[GroupKey, ...]
    headline: tuple[str, ...]


def read_overview(store: StudyReader, name: str) -> Overview:
    """Read the key figures of a study, as its report has them.

    Raises:
        NotFoundError: There is no such study.
    """
    record, report = store.study(name), read_study(store, name)
    trials = store.trials([planned.key for planned in (*record.planned, *record.confirm_trials)])
    known = {row.name: mean.mean for row in report.variants if (mean := row.mean(report.metric)) is not None}
    means = {name: mean for name, mean in known.items() if mean is not None}
    best = (min if report.direction == "minimize" else max)(means, key=means.__getitem__) if means else None
    past, answer = past_the_confirmed(report), answer_of(report)
    fine = [row for row in report.variants if row.verdict and row.verdict.is_acceptable and row.name not in past]
    simplest = min([report.baseline, *fine], key=lambda row: row.parameters or math.inf)
    return Overview(
        metric=report.metric,
        margin=report.margin,
        best=best,
        best_value=means[best] if best is not None else None,
        simplest=simplest.name,
        simplest_parameters=simplest.parameters,
        seconds=math.fsum(trial.seconds for trial in trials.values()),
        flops=math.fsum(trial.flops for trial in trials.values()) if record.knows_models else None,
        seconds_left=_seconds_left(trials.values(), len(record.planned) + len(record.confirm_trials)),
        verdicts=_counted(report, answer),
        headline=answer.headline,
    )


def _counted(report: StudyReport, answer: Answer) -> tuple[GroupKey, ...]:
    """The group of everything that the headline of an answer counts or names."""
    if report.effects is not None and shows_effects(report):
        return tuple(_EFFECTS.get(report.effects.side(row), "undecided") for row in report.effects.main)
    return tuple(group.key for group in answer.groups if group.key != "unproven" for _ in group.rows)


_EFFECTS: dict[Side, GroupKey] = {"worse": "worse", "better": "better", "as good": "as good"}
"""Where an average effect lies, to the group of an answer that says the same."""


def _seconds_left(trials: Iterable[TrialRecord], planned: int) -> float | None:
    """Seconds that the remaining trials will take, at the pace of the latest ones."""
    ended = [trial for trial in trials if trial.finished_at is not None and trial.started_at is not None]
    left = planned - len(ended)
    if not left or len(ended) < 2:
        return None
    ends = sorted(trial.finished_at for trial in ended if trial.finished_at is not None)
    recent = ends[-PACE:]
    return left * (recent[-1] - recent[0]).total_seconds() / (len(recent) - 1)


@dataclass(frozen=True, slots=True)
class TrialLine:
    """A trial that a study planned.

    Attributes:
        key: Content hash (hex).
        variant: Name of the variant in the study.
        seed: Its seed.
        state: Its state.
        metrics: Final metrics by name; empty unless finished.
        objective: Name of the metric that the study looks at.
    """

    key: str
    variant: str
    seed: int
    state: TrialState
    metrics: dict[str, float]
    objective: str


def list_trials(store: StudyReader, name: str) -> list[TrialLine]:
    """All trials that a study planned, in the order of its design.

    Raises:
        NotFoundError: The store holds no such study.
    """
    record = store.study(name)
    trials = store.trials([planned.key for planned in record.planned])
    lines = []
    for planned in record.planned:
        trial = trials.get(planned.key)
        state, metrics = (trial.state, trial.metrics) if trial else (TrialState.WAITING, {})
        lines.append(TrialLine(planned.key, planned.variant, planned.seed, state, metrics, record.objective["metric"]))
    return lines
