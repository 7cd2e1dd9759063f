"""A pack in training as plain values, from which it goes on elsewhere as if nothing had happened.

Batches are a function of seed and step, so what is needed besides the members' specs are weights, optimizer, counters,
the state of dropout's random numbers and the events that have been told so far.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from ablate.training.events import Diverged, Point, State

if TYPE_CHECKING:
    from ablate.training.pack import Pack

_KINDS = {kind.__name__: kind for kind in (Point, Diverged)}


def save(pack: Pack) -> State:
    """The state of a pack between two steps."""
    return {**pack.state(), "told": [[type(event).__name__, asdict(event)] for event in pack.told]}


def restore(pack: Pack, state: State) -> list[Point | Diverged]:
    """Put a fresh pack where `save` found another one of the same members.

    Returns:
        What that pack had told so far.
    """
    pack.restore(state)
    pack.told = [_KINDS[name](**values) for name, values in state["told"]]
    return list(pack.told)
