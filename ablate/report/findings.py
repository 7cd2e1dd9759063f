"""All that a written report rests on: the report of a study, its trials, where they ran and what they cost."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

from ablate.errors import NotFoundError
from ablate.report.fairness import scouts_of
from ablate.report.runs import StudyReader, VariantRuns, read_runs
from ablate.report.study import StudyReport, read_study
from ablate.store.records import Environment, TrialRecord


@dataclass(frozen=True, slots=True)
class TrainingCost:
    """What trials needed that ended, diverged ones among them.

    Attributes:
        trials: How many.
        seconds: Of training, evaluation left out.
        tokens: Seen in training.
        flops: Arithmetic of training, forward and backward.
    """

    trials: int
    seconds: float
    tokens: int
    flops: float

    @classmethod
    def of(cls, trials: Iterable[TrialRecord]) -> Self:
        """The sum over trials."""
        ended = list(trials)
        return cls(
            trials=len(ended),
            seconds=math.fsum(trial.seconds for trial in ended),
            tokens=sum(trial.tokens for trial in ended),
            flops=math.fsum(trial.flops for trial in ended),
        )


@dataclass(frozen=True, slots=True)
class Findings:
    """A study with its trials.

    Attributes:
        report: The study, compared and judged.
        runs: Variant name to its trials by seed.
        cost: Of all trials that ended, those apart that only tuned or timed others.
        scouting: Of those.
        cost_of: Variant name to the cost of its own.
        environments: Where the trials ran, each once, in the order of the design.
        data: Fingerprints of the data that the trials saw.
    """

    report: StudyReport
    runs: Mapping[str, VariantRuns]
    cost: TrainingCost
    scouting: TrainingCost
    cost_of: Mapping[str, TrainingCost]
    environments: tuple[Environment, ...]
    data: tuple[str, ...]


def read_findings(store: StudyReader, name: str) -> Findings:
    """Read a study that has results.

    Raises:
        NotFoundError: The store holds no such study, or none of its trials has ended.
    """
    report = read_study(store, name)
    runs = read_runs(store, report.record, report.metric)
    ended = {variant: _ended({variant: run}) for variant, run in runs.items()}
    trials = _ended(runs)
    if not trials:
        raise NotFoundError(
            f"study {name!r} has no results to report yet",
            expected="a trial that has ended",
            got=f"{report.planned} planned",
            remedy="Run it with `ablate study` and report it afterwards.",
        )
    environments: list[Environment] = []
    for trial in trials:
        if trial.environment is not None and trial.environment not in environments:
            environments.append(trial.environment)
    return Findings(
        report=report,
        runs=runs,
        cost=TrainingCost.of(trials),
        scouting=TrainingCost.of(_ended(read_runs(store, scouts_of(report.record), report.metric))),
        cost_of={variant: TrainingCost.of(found) for variant, found in ended.items()},
        environments=tuple(environments),
        data=tuple(sorted({trial.data_fingerprint for trial in trials})),
    )


def _ended(runs: Mapping[str, VariantRuns]) -> list[TrialRecord]:
    return [trial for run in runs.values() for trial in (*run.finished.values(), *run.diverged.values())]
