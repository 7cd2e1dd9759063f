"""On which machines the trials of a study ended, how fast, and which of them failed or were restarted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from ablate.store.records import ENDED, PlannedTrial, StudyRecord, TrialRecord, TrialState

_TROUBLED = (TrialState.FAILED, TrialState.DIVERGED)


class TrialReader(Protocol):
    """The part of a store's interface that this module uses."""

    def study(self, name: str) -> StudyRecord:
        """The study of this name.

        Raises:
            NotFoundError: There is none.
        """

    def trials(self, keys: Sequence[str]) -> dict[str, TrialRecord]:
        """The trials that exist, by key."""


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

    @property
    def tokens_per_second(self) -> float | None:
        """Of one trial, on average; None if nothing was trained there."""
        return self.tokens / self.seconds if self.seconds > 0 else None


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


def read_workers(store: TrialReader, name: str) -> tuple[tuple[WorkerLoad, ...], tuple[WorkerFailure, ...]]:
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
            places.setdefault(place_of(trial), []).append(trial)
    loads = [_load(*place, ended) for place, ended in places.items()]
    return tuple(sorted(loads, key=lambda one: -one.trials)), _failures(planned, trials)


def place_of(trial: TrialRecord) -> tuple[str, str]:
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
    )


def _failures(planned: Sequence[PlannedTrial], trials: Mapping[str, TrialRecord]) -> tuple[WorkerFailure, ...]:
    failures = []
    for one in planned:
        trial = trials.get(one.key)
        if trial is not None and (trial.state in _TROUBLED or trial.attempts > 1):
            reason = trial.reason.partition("\n")[0]
            failures.append(
                WorkerFailure(one.variant, one.seed, trial.state, trial.attempts, place_of(trial)[0], reason)
            )
    return tuple(failures)
