"""Saves a pack in training as plain values, from which training resumes on any worker with the same results.

Batches are a function of seed and step. So besides the specs of the members, a checkpoint holds weights, optimizer
state, counters, the state of the random generators of dropout, and the events so far.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING

from torch import Tensor

from ablate.training.events import Diverged, Measurement, State

if TYPE_CHECKING:
    from ablate.training.pack import Pack

_KINDS = {kind.__name__: kind for kind in (Measurement, Diverged)}


def state_of(pack: Pack) -> State:
    """The state of a pack between two steps."""
    return {**pack.state(), "events": [[type(event).__name__, asdict(event)] for event in pack.events]}


def misfit(pack: Pack, state: State) -> str:
    """Why a saved state does not fit a new pack of the same members; empty if it does.

    The tensors of a member must have the same names and shapes. The number of members may differ: the state lacks those
    that had left.
    """
    here = pack.state()
    if missing := sorted(here.keys() - state.keys() - {"random_of_ranks"}):
        return f"it has no {', '.join(missing)}"
    if len(state["positions"]) > len(pack.positions):
        return f"it is of {len(state['positions'])} trials instead of {len(pack.positions)}"
    ours, theirs = _shapes(here["model"]), _shapes(state["model"])
    if differing := sorted(name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name)):
        name = differing[0]
        return f"{name} is {theirs.get(name, 'missing')} instead of {ours.get(name, 'missing')}"
    members = [[_shapes(each) for each in which["optimizer"]["members"]] for which in (here, state)]
    return "" if members[0] == members[1] else "it is of another optimizer"


def _shapes(tensors: Mapping[str, Tensor]) -> dict[str, list[int]]:
    """The shape of each tensor without the pack axis."""
    return {name: list(tensor.shape[1:]) for name, tensor in tensors.items()}


def restore(pack: Pack, state: State) -> list[Measurement | Diverged]:
    """Load a saved state into a new pack of the same members.

    Returns:
        The events of the saved pack.
    """
    pack.restore(state)
    pack.events = [_KINDS[name](**values) for name, values in state["events"]]
    return list(pack.events)
