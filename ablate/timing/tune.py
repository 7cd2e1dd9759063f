"""Measure which implementation of each kernel is the fastest on this machine, and write it to the table of choices."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from ablate.errors import AblateError, EngineError
from ablate.nn.kernels.choice import asking, remember, table_file, taking
from ablate.spec.lookup import find_block
from ablate.timing.clock import side_by_side
from ablate.timing.measure import Setting, step_of

_CLOSE = 1e-3
"""The largest relative difference allowed between implementations, for outputs and gradients."""
_SECONDS = 0.3
_WON = 0.75
"""The share of rounds in which an implementation must be faster than the default."""


@dataclass(frozen=True, slots=True)
class TunedKernel:
    """The choice for one kernel at one size.

    Attributes:
        key: Its key in the table.
        way: The name of the fastest implementation.
        rule: The implementation that is used where nothing was measured.
        seconds: Median time of a step of the block with each implementation, by name.
    """

    key: str
    way: str
    rule: str
    seconds: dict[str, float]


def tune(blocks: Sequence[str], lengths: Sequence[int], setting: Setting) -> Iterator[TunedKernel]:
    """Time all implementations of each kernel that the blocks use at these lengths, and store the fastest.

    They are timed inside the block.

    Raises:
        SpaceError: There is no such block.
        EngineError: The table cannot be written, or two implementations give different results.
    """
    models = {name: find_block(name).model(width=setting.width, heads=setting.heads, depth=None) for name in blocks}
    choices: dict[str, str] = {}
    for length in lengths:
        for name, model in models.items():
            try:
                step = step_of(name, model, length, setting)
            except AblateError:  # `measure` reports why this block cannot run at this length
                continue
            for tuned in _tried(step, choices.keys(), setting):
                choices[tuned.key] = tuned.way
                yield tuned
    try:
        remember(choices)
    except OSError as error:
        raise EngineError(f"the table cannot be written ({error.strerror})", where=str(table_file())) from error


def _tried(step: Callable[[], Sequence[Tensor]], known: Iterable[str], setting: Setting) -> Iterator[TunedKernel]:
    """Choose each kernel that a step uses and that is not known yet; an implementation may use further kernels."""
    done = set(known)
    with asking() as asked:
        step()
        while open_ := [key for key, (ways, _) in asked.items() if key not in done and len(ways) > 1]:
            key = open_[0]
            done.add(key)
            ways, rule = asked[key]
            yield _fastest(step, key, ways, rule, setting)


def _fastest(
    step: Callable[[], Sequence[Tensor]], key: str, ways: Sequence[str], rule: str, setting: Setting
) -> TunedKernel:
    def taken_by(way: str) -> Callable[[], Sequence[Tensor]]:
        def run() -> Sequence[Tensor]:
            with taking(key, way):
                return step()

        return run

    runs = [taken_by(way) for way in ways]
    reference = [tensor.clone() for tensor in runs[0]()]
    for way, run in zip(ways[1:], runs[1:], strict=True):
        for ours, theirs in zip(run(), reference, strict=True):
            if (ours - theirs).norm() > _CLOSE * theirs.norm():
                raise EngineError(f"`{way}` is not equal to `{ways[0]}`", where=key)
    times = dict(zip(ways, side_by_side(runs, setting.device, _SECONDS), strict=True))
    medians = {way: statistics.median(rounds) for way, rounds in times.items()}
    return TunedKernel(key, fastest(times, rule), rule, medians)


def fastest(taken: Mapping[str, Sequence[float]], rule: str) -> str:
    """The implementation with the smallest median time, if it beats the default in three rounds of four.

    Otherwise the default. So tuning never makes a kernel slower by more than the noise of the machine.

    Args:
        taken: The seconds of each implementation, timed in turns.
        rule: The default implementation; it need not have been timed.
    """
    best = min(taken, key=lambda way: statistics.median(taken[way]))
    if rule not in taken:
        return best
    won = [ours < theirs for ours, theirs in zip(taken[best], taken[rule], strict=True)]
    return best if sum(won) >= _WON * len(won) else rule
