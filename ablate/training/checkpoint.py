"""Saves a pack in training as plain values, from which training resumes on any worker with the same results.

Batches are a function of seed and step. So besides the specs of the members, a checkpoint holds weights, optimizer
state, counters, the state of the random generators of dropout, and the events so far.
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
    return {**pack.state(), "events": [[type(event).__name__, asdict(event)] for event in pack.events]}


def restore(pack: Pack, state: State) -> list[Point | Diverged]:
    """Load a saved state into a new pack of the same members.

    Returns:
        The events of the saved pack.
    """
    pack.restore(state)
    pack.events = [_KINDS[name](**values) for name, values in state["events"]]
    return list(pack.events)
