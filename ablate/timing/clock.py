"""Time, memory and arithmetic of one step of training, on a CPU or a GPU."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence

import torch
from torch.profiler import ProfilerActivity, profile

from ablate.nn.kernels.product import product

Call = Callable[[], object]

_LEAST_ROUNDS = 3
_MOST_ROUNDS = 50


def side_by_side(steps: Sequence[Call], device: str, seconds: float = 1.0) -> list[list[float]]:
    """Time calls in turns, so that other load on the machine affects all of them alike.

    Args:
        steps: The calls; each runs once before it is timed.
        device: `cpu` or `cuda`.
        seconds: Approximate time for each call; at least three rounds are timed.

    Returns:
        The seconds of every round, for each call.
    """
    times: list[list[float]] = [[] for _ in steps]
    for step in steps:
        step()
    begin = time.perf_counter()
    while len(times[0]) < _LEAST_ROUNDS or (
        time.perf_counter() - begin < seconds * len(steps) and len(times[0]) < _MOST_ROUNDS
    ):
        for step, taken in zip(steps, times, strict=True):
            taken.append(_timed(step, device))
    return times


def _timed(step: Call, device: str) -> float:
    if device == "cuda":
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        start.record()
        step()
        end.record()
        torch.cuda.synchronize()
        return float(start.elapsed_time(end)) / 1000
    # With one thread, processor time is measured: other processes affect it less than wall time.
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    begin = clock()
    step()
    return clock() - begin


def peak_bytes(step: Call, device: str) -> int:
    """The peak of the memory that a call allocates, without what was allocated before it."""
    if device == "cuda":
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        step()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        step()
    # `profiled.events()` lists only allocations outside operators.
    results = profiled.profiler.kineto_results if profiled.profiler else None
    events = [event for event in results.events() if event.name() == "[memory]"] if results else []
    changes = [event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())]
    return max(itertools.accumulate(changes), default=0)


def machine_flops(device: str) -> float:
    """Floating-point operations a second of a large matrix product in single precision, as the peak of the machine."""
    size = 1024 if device == "cpu" else 8192
    x = torch.randn(1, size, size, device=device)
    (times,) = side_by_side([lambda: product(x, x)], device, 0.5)
    return 2 * size**3 / min(times)
