"""A run of training as plain values, from which it goes on elsewhere as if nothing had happened.

Batches are a function of seed and step, so what a run needs besides its specs is its weights, its optimiser, its
counters, the state of dropout's random numbers and the events that it has told so far.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import torch

from ablate.training.events import Diverged, Point, State

if TYPE_CHECKING:
    from ablate.training.loop import Run

_KINDS = {kind.__name__: kind for kind in (Point, Diverged)}


def save(run: Run) -> State:
    """The state of a run between two steps."""
    return {
        "model": run.model.state_dict(),
        "optimizer": run.optimizer.state_dict(),
        "counters": run.counters(),
        "random": torch.get_rng_state(),
        "random_cuda": torch.cuda.get_rng_state(run.device) if run.device.type == "cuda" else None,
        "told": [[type(event).__name__, asdict(event)] for event in run.told],
    }


def restore(run: Run, state: State) -> list[Point | Diverged]:
    """Put a fresh run where `save` found another one of the same variant and seeds.

    Returns:
        What that run had told so far.
    """
    run.model.load_state_dict(state["model"])
    run.optimizer.load_state_dict(state["optimizer"])
    run.set_counters(state["counters"])
    torch.set_rng_state(state["random"].cpu())
    if state["random_cuda"] is not None and run.device.type == "cuda":
        torch.cuda.set_rng_state(state["random_cuda"].cpu(), run.device)
    run.told = [_KINDS[name](**values) for name, values in state["told"]]
    return list(run.told)
