"""The verdict on two variants of a study from their trials, which waits until all trials that it rests on have ended.

A fixed number of seeds has one look, with the whole error rate. To read a verdict while trials are missing is to look
early, and whoever looks often is wrong often. So a comparison has estimates, but no verdict, until its last seed has
ended. With a schedule each look has its own level: it takes the seeds up to the first that is missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ablate.analysis.runs import VariantRuns
from ablate.analysis.text import plural
from ablate.stats import Allowance, Direction, ExtendedSeeds, SeedPlan, SeedSchedule, Verdict, judge
from ablate.store.records import TrialState

MISSING = (TrialState.WAITING, TrialState.RUNNING)


def judge_trials(
    runs: VariantRuns,
    baseline: VariantRuns,
    *,
    metric: str,
    margin: float,
    direction: Direction,
    schedule: SeedPlan | None,
    allowance: Allowance,
    worst: Sequence[float] = (),
    unit: str = "seed",
) -> Verdict:
    """The verdict on a variant against the baseline; arguments as those of `ablate.stats.judge`.

    Raises:
        ValueError: The margin is not above 0.
    """
    values, theirs = runs.values(metric), baseline.values(metric)
    if unit == "seed" and missing_seeds(runs, baseline):
        seeds = _seeds_of_looks(schedule, runs, baseline, sorted(values.keys() & theirs.keys()))
        values, theirs = ({seed: of[seed] for seed in seeds} for of in (values, theirs))
    verdict = judge(
        values,
        theirs,
        margin=margin,
        direction=direction,
        schedule=schedule,
        diverged={seed: trial.stopped_at for seed, trial in runs.diverged.items()},
        baseline_diverged={seed: trial.stopped_at for seed, trial in baseline.diverged.items()},
        allowance=allowance,
        worst=worst,
        unit=unit,
    )
    missing = awaited_seeds(schedule, runs, baseline) if unit == "seed" else ""
    if verdict.word == "undecided" and missing:
        return replace(verdict, sentence=f"undecided: {missing}", further_seeds=None, withheld="", chance=None)
    return verdict


def missing_seeds(*sides: VariantRuns) -> list[int]:
    """The seeds at which a trial of a comparison waits or runs, of those that all sides have planned."""
    return [seed for seed in _planned(sides) if any(side.states[seed] in MISSING for side in sides)]


def awaited_seeds(schedule: SeedPlan | None, *sides: VariantRuns) -> str:
    """What a comparison waits for, as a clause: `3 of 10 seeds have ended`; empty if it waits for nothing.

    A schedule waits for nothing: it looks after every seed.
    """
    missing = missing_seeds(*sides)
    if not missing or isinstance(schedule, SeedSchedule) or _ends_with_schedule(schedule):
        return ""
    planned = len(_planned(sides))
    ended = planned - len(missing)
    return f"{ended} of {plural(planned, 'seed')} {'has' if ended == 1 else 'have'} ended"


def _planned(sides: Sequence[VariantRuns]) -> list[int]:
    return sorted(set.intersection(*(set(side.states) for side in sides)))


def _ends_with_schedule(schedule: SeedPlan | None) -> bool:
    return isinstance(schedule, ExtendedSeeds) and isinstance(schedule.declared[-1], SeedSchedule)


def _seeds_of_looks(
    schedule: SeedPlan | None, runs: VariantRuns, baseline: VariantRuns, paired: Sequence[int]
) -> Sequence[int]:
    """The paired seeds that looks may use while others are missing; none of a fixed number."""
    if schedule is None:
        return ()
    first = missing_seeds(runs, baseline)[0]
    before = [seed for seed in paired if seed < first]
    if isinstance(schedule, SeedSchedule):
        return before
    return before[: max(filter(schedule.declares, schedule.looks(len(before))), default=0)]
