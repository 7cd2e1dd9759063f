"""How fast variants train beside the baseline: steps of both in turns, in this process, after the trials.

The clocks of trials cannot show it: each ran next to other work, at another time. Here rounds of a few steps alternate
between a variant and the baseline, so that whatever else the machine does meets both, and each round gives one ratio.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

import torch

from ablate.execution.study_run import StudyRun
from ablate.planning.forecast import timed_spec, torch_threads, wait_for
from ablate.planning.plan import Trial, Variant
from ablate.roles import TrialRole
from ablate.spec.task import Task
from ablate.spec.variant import VariantSpec
from ablate.store.records import SpeedTiming, TrialState
from ablate.training.members import Member
from ablate.training.pack import Pack

SECONDS = 3.0
"""Of training for each side of a comparison, at least."""
LEAST_ROUNDS = 10
_ROUND_SECONDS = 0.1
"""Of each side in a round: long beside the resolution of the clock and the switch of the caches."""
_WARM_UP_STEPS = 5
_STEPS = 1_000_000
"""Of the schedule, so that no timed step is the last."""


@dataclass(frozen=True, slots=True)
class Bench:
    """Where variants are timed.

    Attributes:
        device: Of the trials: `cpu` or `cuda`.
        description: Of the device, as the environment of trials names it.
        again: Whether to time variants that were timed before.
        seconds: Of training for each side of a comparison, at least.
    """

    device: torch.device
    threads: int
    description: str
    again: bool = False
    seconds: float = SECONDS


def time_side_by_side(
    variant: Variant,
    baseline: Variant,
    open_task: Callable[[VariantSpec], Task],
    bench: Bench,
    continues: Callable[[], bool] = lambda: True,
    least: int = LEAST_ROUNDS,
) -> SpeedTiming | None:
    """The training rates of a variant and of the baseline, from rounds of steps that alternate between them.

    Args:
        bench: Where to time them.
        continues: Asked before each round; where it says no, nothing comes out.
        least: Rounds, at least.
    """
    with ExitStack() as stack:
        stack.enter_context(torch_threads(bench.threads))
        sides = [_Side.opened(stack, side.spec, open_task(side.spec), bench.device) for side in (variant, baseline)]
        rates: tuple[list[float], list[float]] = ([], [])
        spent, rounds = 0.0, 0
        while rounds < least or spent < 2 * bench.seconds:
            if not continues():
                return None
            order = (0, 1) if rounds % 2 else (1, 0)  # neither always runs on what the other left in the caches
            for place in order:
                took = sides[place].run()
                rates[place].append(sides[place].tokens / took)
                spent += took
            rounds += 1
    return SpeedTiming(baseline.hash, tuple(rates[0]), tuple(rates[1]), bench.description)


def time_study(run: StudyRun, baseline: Variant, bench: Bench, continues: Callable[[], bool]) -> None:
    """Time every variant of a study with a finished trial beside the baseline, and store what was measured.

    Args:
        run: The run of the study, whose trials have ended.
        baseline: That of the study.
        bench: Where to time them.
        continues: Whether no stop was requested.
    """

    def alive() -> bool:
        run.renew()
        run.observer.beat()
        return continues()

    first: dict[str, Trial] = {}
    finished = run.ledger.settled(run.trials.values())
    for key, trial in run.trials.items():
        ended = key in finished and finished[key].state is TrialState.FINISHED
        compared = trial.role in (TrialRole.COMPARISON, TrialRole.CONFIRMATION) and trial.variant.hash != baseline.hash
        if ended and compared and trial.variant.spec.training.steps:
            first.setdefault(trial.variant.hash, trial)
    seeds = Counter(trial.variant.hash for trial in run.trials.values())
    known = set() if bench.again else run.ledger.timed(list(first.values()), baseline)
    left = [trial for trial in first.values() if trial.key not in known]
    if left:
        seconds = 2 * bench.seconds * len(left)
        run.observer.say(
            f"timing {len(left)} variants: steps of each in turns with the baseline, {seconds:.0f} s or more"
        )
    for trial in left:
        try:
            least = max(LEAST_ROUNDS, seeds[trial.variant.hash])  # `ablate.analysis.times.rates_by_seed` needs as many
            timing = time_side_by_side(trial.variant, baseline, run.planner.costs.prepare, bench, alive, least)
        except Exception as error:  # memory may be short beside the workers, and kinds of users may raise anything
            run.observer.say(f"{trial.variant.name} could not be timed: {type(error).__name__}: {error}")
            continue
        if timing is None:
            return
        run.ledger.record_timing(trial, timing)


class _Side:
    """One of the two models, warmed up.

    Attributes:
        tokens: Of the steps of a round.
    """

    def __init__(self, pack: Pack, tokens_of_a_step: int) -> None:
        self._pack = pack
        self._step = 0
        for _ in range(_WARM_UP_STEPS):
            self._next()
        wait_for(self._pack.device)
        begin = time.perf_counter()
        self._next()
        wait_for(self._pack.device)
        self._steps = max(1, math.ceil(_ROUND_SECONDS / (time.perf_counter() - begin)))
        self.tokens = self._steps * tokens_of_a_step

    @classmethod
    def opened(cls, stack: ExitStack, spec: VariantSpec, task: Task, device: torch.device) -> _Side:
        """A variant as one trial trains it, at its largest batch and context, from random weights."""
        timed = timed_spec(spec, _STEPS, population=None)
        pack = stack.enter_context(Pack([Member(timed, 0)], task, device))
        return cls(pack, pack.totals.phases[-1].tokens)

    def run(self) -> float:
        """The seconds of one round."""
        wait_for(self._pack.device)
        begin = time.perf_counter()
        for _ in range(self._steps):
            self._next()
        wait_for(self._pack.device)
        return time.perf_counter() - begin

    def _next(self) -> None:
        self._step += 1
        self._pack.step(self._step)
