"""The content of a written report: the report of a study, its trials, where they ran and what they cost."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Self

from ablate.analysis.effects import StudyImportances, importances_of
from ablate.analysis.fairness import scouts_of
from ablate.analysis.pareto import Front, front_of
from ablate.analysis.path import RemovalPath, path_of
from ablate.analysis.report import StudyReport
from ablate.analysis.runs import Curve, StudyReader, VariantRuns, read_confirming, read_runs
from ablate.analysis.slices import Slice, depths_of, slices_of
from ablate.analysis.status import device_of
from ablate.analysis.study import read_study
from ablate.analysis.suite import reader_of
from ablate.devices import devices_of_a_trial, known_device
from ablate.errors import MissingPackageError, NotFoundError
from ablate.store.records import Environment, TrialRecord


@dataclass(frozen=True, slots=True)
class TrainingCost:
    """What trials needed that ended, diverged ones among them.

    Attributes:
        trials: How many.
        seconds: Of training, evaluation left out.
        tokens: Seen in training; None if the user's own trainer has not counted them.
        flops: Arithmetic of training, forward and backward; None of the user's own trainer.
    """

    trials: int
    seconds: float
    tokens: int | None
    flops: float | None

    @classmethod
    def of(cls, trials: Iterable[TrialRecord], *, counted: bool) -> Self:
        """The sum over trials.

        Args:
            counted: Whether ablate has counted what they took, as it does of the models that it builds.
        """
        ended = list(trials)
        return cls(
            trials=len(ended),
            seconds=math.fsum(trial.seconds for trial in ended),
            tokens=sum(trial.tokens for trial in ended) or (0 if counted else None),
            flops=math.fsum(trial.flops for trial in ended) if counted else None,
        )


@dataclass(frozen=True, slots=True)
class FullGrid:
    """What training every combination of a study's switches would have taken.

    Attributes:
        combinations: Of settings, those that are invalid among them.
        trials: At as many seeds for each as the study's variants have on average.
        seconds: At the mean cost of a trial that ended.
        flops: Likewise; None of the user's own trainer.
        times: Trials of the grid over trials of the study.
    """

    combinations: int
    trials: int
    seconds: float
    flops: float | None
    times: float


@dataclass(frozen=True)
class Findings:
    """A study with its trials; results that only some designs give are computed at first use.

    Attributes:
        report: The study, compared and judged.
        runs: Variant name to its trials by seed.
        fresh: The same of those that confirm what was chosen.
        curves: Key of a trial to its curve.
        cost: Of all trials that ended, those apart that only tuned or timed others.
        scouting: Of those.
        cost_of: Variant name to the cost of its own, and of the stages that they start from.
        environments: Where the trials ran, each once, in the order of the design.
        data: Fingerprints of the data that the trials saw.
    """

    report: StudyReport
    runs: Mapping[str, VariantRuns]
    curves: Mapping[str, Curve]
    cost: TrainingCost
    scouting: TrainingCost
    cost_of: Mapping[str, TrainingCost]
    environments: tuple[Environment, ...]
    data: tuple[str, ...]
    fresh: Mapping[str, VariantRuns]

    @property
    def importances(self) -> StudyImportances | None:
        """How much each switch and axis explains, where they are crossed and fANOVA is installed. Takes seconds."""
        return self._importances if isinstance(self._importances, StudyImportances) else None

    @property
    def no_importances(self) -> str | None:
        """What to install for the importances that this study would have; None if nothing is missing."""
        return str(self._importances) if isinstance(self._importances, MissingPackageError) else None

    @cached_property
    def _importances(self) -> StudyImportances | MissingPackageError | None:
        try:
            return importances_of(self.report.record, self.runs)
        except MissingPackageError as missing:
            return missing

    @cached_property
    def path(self) -> RemovalPath | None:
        """The path of `simplify`."""
        report = self.report
        return path_of(report.record, self.runs, self.fresh, report.evidence.tuning) if report.answer.learnt else None

    @cached_property
    def front(self) -> Front | None:
        """The objective against what it costs, where variants differ in cost."""
        return front_of(self.report.record, self.runs, tuning=self.report.evidence.tuning)

    @cached_property
    def slices(self) -> tuple[Slice, ...]:
        """The objective along each numeric axis."""
        return slices_of(self.report.record, self.runs)

    @cached_property
    def depths(self) -> tuple[Slice, ...]:
        """Each measure of the models' insides over their blocks."""
        return depths_of(self.report.record, self.runs)

    @cached_property
    def utilisation(self) -> float | None:
        """Model FLOP utilisation of the trials that ended on a device whose peak is known; None if there are none."""
        precision = {
            variant.hash: variant.spec.get("training", {}).get("precision", "fp32")
            for variant in self.report.record.variants
        }
        flops = possible = 0.0
        for trial in _ended_trials(self.runs):
            description = device_of(trial)[1]
            device = known_device(description)
            if device is not None:
                flops += trial.flops
                peak = device.peak(precision.get(trial.variant_hash, "fp32")) * devices_of_a_trial(description)
                possible += trial.seconds * peak
        return flops / possible if flops and possible else None

    @property
    def full_grid(self) -> FullGrid | None:
        """What the full grid would have taken; None if the study is that, or turns a single switch."""
        switches = self.report.record.space.get("switches", {})
        combinations = math.prod(len(settings) for settings in switches.values())
        if len(switches) < 2 or combinations <= len(self.report.variants):
            return None
        trials = round(combinations * self.report.progress.planned / len(self.report.variants))
        return FullGrid(
            combinations=combinations,
            trials=trials,
            seconds=trials * self.cost.seconds / self.cost.trials,
            flops=None if self.cost.flops is None else trials * self.cost.flops / self.cost.trials,
            times=trials / self.report.progress.planned,
        )


def read_findings(store: StudyReader, name: str) -> Findings:
    """Read a study that has results.

    Raises:
        NotFoundError: The store holds no such study, or none of its trials has ended.
    """
    report = read_study(store, name)
    runs = read_runs(reader_of(store, name), report.record, report.metric)
    fresh = read_confirming(store, report.record)
    whole = store.study(name)
    at_all = runs if len(whole.variants) == len(runs) else read_runs(store, whole, report.metric)
    ended = {variant: _ended_trials({variant: run}) for variant, run in at_all.items()}
    trials = _ended_trials(at_all)
    counted = report.record.knows_models
    if not trials:
        raise NotFoundError(
            "it has no results to report yet",
            where=f"study {name!r}",
            expected="a trial that has ended",
            got=f"{report.progress.planned} planned",
            remedy="Run it with `ablate study` and report it afterwards.",
        )
    environments: list[Environment] = []
    for trial in trials:
        if trial.environment is not None and trial.environment not in environments:
            environments.append(trial.environment)
    return Findings(
        report=report,
        runs=runs,
        curves=store.curves([planned.key for planned in report.record.planned]),
        cost=TrainingCost.of([*trials, *_ended_trials(fresh)], counted=counted),
        scouting=TrainingCost.of(
            _ended_trials(read_runs(store, scouts_of(report.record), report.metric)), counted=counted
        ),
        cost_of={
            variant: TrainingCost.of([*runs, *_before(at_all[variant])], counted=counted)
            for variant, runs in ended.items()
        },
        environments=tuple(environments),
        data=tuple(sorted({trial.data_fingerprint for trial in trials})),
        fresh=fresh,
    )


def _before(runs: VariantRuns) -> list[TrialRecord]:
    """The stages that a variant's trials start from, each once."""
    return list({stage.key: stage for stages in runs.stages.values() for stage in stages}.values())


def _ended_trials(runs: Mapping[str, VariantRuns]) -> list[TrialRecord]:
    return [
        trial
        for run in runs.values()
        for trial in (*run.finished.values(), *run.diverged.values(), *run.pruned.values())
    ]
