"""How fast variants train, read and write beside the baseline: both in turns, in this process, after the trials.

The clocks of trials cannot show it: each ran next to other work, at another time. Here rounds of a few steps alternate
between a variant and the baseline, so that whatever else the machine does meets both, and each round gives one ratio.
"""

from __future__ import annotations

import itertools
import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor

from ablate.designs.ladder import baseline_of_rung
from ablate.execution.study_run import StudyRun
from ablate.metrics import CACHE, DECODE, PREFILL
from ablate.nn.model import build_model
from ablate.nn.model.decoder import Decoder, state_bytes
from ablate.planning.forecast import timed_spec, torch_threads, wait_for
from ablate.planning.plan import Trial, Variant
from ablate.roles import TrialRole
from ablate.spec.code import timed_identity
from ablate.spec.task import Task
from ablate.spec.variant import VariantSpec
from ablate.store.records import InferenceCost, SpeedTiming, TrialState
from ablate.training.members import Member
from ablate.training.pack import Pack

SECONDS = 3.0
"""For each side of a comparison, at least."""
LEAST_ROUNDS = 10
_ROUND_SECONDS = 0.1
"""Of each side in a round: long beside the resolution of the clock and the switch of the caches."""
_WARM_UP_STEPS = 5
_WARM_UP_PASSES = 1
_STEPS = 1_000_000
"""Of the schedule, so that no timed step is the last."""


@dataclass(frozen=True, slots=True)
class Bench:
    """Where variants are timed.

    Attributes:
        device: Of the trials: `cpu` or `cuda`.
        description: Of the device, as the environment of trials names it.
        again: Whether to time variants that were timed before.
        inference: Whether to time decoders as they read and write text too.
        seconds: For each side of a comparison, at least.
    """

    device: torch.device
    threads: int
    description: str
    again: bool = False
    inference: bool = False
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
        open_task: Gives the task of a spec.
        bench: Where to time them.
        continues: Asked before each round; where it says no, nothing comes out.
        least: Rounds, at least.
    """
    specs = (variant.spec, baseline.spec)
    with torch_threads(bench.threads):
        with ExitStack() as stack:
            training = [_training_side(stack, spec, open_task(spec), bench.device) for spec in specs]
            rates = _in_turns(training, bench, continues, least)
        if rates is None:
            return None
        timing = SpeedTiming(baseline.hash, *rates, bench.description)
        if not bench.inference:
            return timing
        decoders = [_Reader.of(spec, open_task(spec), bench.device) for spec in specs]
        prefill = _in_turns([reader.prefill() for reader in decoders], bench, continues, least)
        decode = _in_turns([reader.decode() for reader in decoders], bench, continues, least)
        if prefill is None or decode is None:
            return None
        kept = [(reader.bytes_per_token(),) for reader in decoders]
    measured = {PREFILL: prefill, DECODE: decode, CACHE: kept}
    return replace(timing, inference=tuple(InferenceCost(name, *values) for name, values in measured.items()))


def _in_turns(
    sides: Sequence[_Side], bench: Bench, continues: Callable[[], bool], least: int
) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    """Tokens a second of both sides in each round."""
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
    return tuple(rates[0]), tuple(rates[1])


def time_study(run: StudyRun, baseline: Variant, bench: Bench, continues: Callable[[], bool]) -> None:
    """Time every variant of a study with a finished trial beside the baseline, on a ladder that of its rung.

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
        compared = trial.role in (TrialRole.COMPARISON, TrialRole.CONFIRMATION)
        if ended and compared and trial.variant.spec.training.steps:
            first.setdefault(trial.variant.hash, trial)
    seeds = Counter(trial.variant.hash for trial in run.trials.values())
    named = {trial.variant.name: trial.variant for trial in run.trials.values()}
    beside = {key: named.get(baseline_of_rung(trial.variant.name), baseline) for key, trial in first.items()}
    codes = {trial.variant.hash: trial.code.identity for trial in run.trials.values()}
    known = {key: timed_identity(one.hash, codes.get(one.hash, "")) for key, one in beside.items()}
    left = [
        trial
        for key, trial in first.items()
        if beside[key].hash != key
        and (bench.again or not run.ledger.timed([trial], known[key], inference=bench.inference))
    ]
    if left:
        seconds = 2 * bench.seconds * len(left) * (3 if bench.inference else 1)
        run.observer.say(
            f"timing {len(left)} variants: steps of each in turns with the baseline, {seconds:.0f} s or more"
        )
    for trial in left:
        try:
            least = max(LEAST_ROUNDS, seeds[trial.variant.hash])  # `ablate.analysis.times.rates_by_seed` needs as many
            timing = time_side_by_side(
                trial.variant, beside[trial.variant.hash], run.planner.costs.prepare, bench, alive, least
            )
        except Exception as error:  # memory may be short beside the workers, and kinds of users may raise anything
            run.observer.say(f"{trial.variant.name} could not be timed: {type(error).__name__}: {error}")
            continue
        if timing is None:
            return
        run.ledger.record_timing(trial, replace(timing, baseline=known[trial.variant.hash]))


class _Side:
    """What one of the two models does again and again, warmed up.

    Attributes:
        tokens: Of a round.
    """

    def __init__(self, call: Callable[[], object], tokens: int, device: torch.device, warm_up: int) -> None:
        self._call = call
        self._device = device
        for _ in range(warm_up):
            call()
        self._calls = 1
        self._calls = max(1, math.ceil(_ROUND_SECONDS / self.run()))
        self.tokens = self._calls * tokens

    def run(self) -> float:
        """The seconds of one round."""
        wait_for(self._device)
        begin = time.perf_counter()
        for _ in range(self._calls):
            self._call()
        wait_for(self._device)
        return time.perf_counter() - begin


def _training_side(stack: ExitStack, spec: VariantSpec, task: Task, device: torch.device) -> _Side:
    """A variant as one trial trains it, at its largest batch and context, from random weights."""
    timed = timed_spec(spec, _STEPS, population=None)
    pack = stack.enter_context(Pack([Member(timed, 0)], task, device))
    numbers = itertools.count(1)
    return _Side(lambda: pack.step(next(numbers)), pack.totals.phases[-1].tokens, device, _WARM_UP_STEPS)


@dataclass(frozen=True, slots=True)
class _Reader:
    """A decoder with random weights, and one sequence of its whole context, ids [1, 1, T]."""

    model: Decoder
    tokens: Tensor

    @classmethod
    def of(cls, spec: VariantSpec, task: Task, device: torch.device) -> _Reader:
        shape = task.shape
        model = build_model(
            spec.model, vocabulary=shape.vocabulary, context=shape.context, classes=shape.classes, seeds=[0]
        )
        ids = torch.arange(shape.context, device=device) % shape.vocabulary
        return cls(cast(Decoder, model.to(device).eval()), ids.view(1, 1, -1))

    def prefill(self) -> _Side:
        return self._side(lambda: self.model(self.tokens))

    def decode(self) -> _Side:
        return self._side(lambda: self.model.states_after(self.tokens))

    def _side(self, call: Callable[[], object]) -> _Side:
        return _Side(torch.no_grad()(call), self.tokens.numel(), self.tokens.device, _WARM_UP_PASSES)

    @torch.no_grad()
    def bytes_per_token(self) -> float:
        return state_bytes(self.model.states_after(self.tokens)) / self.tokens.numel()
