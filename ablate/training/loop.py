"""The training loop of one pack."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import nn

from ablate.tasks.base import Task
from ablate.training.checkpoint import restore, save
from ablate.training.events import Checkpoint, Event, Remark, State, Tick
from ablate.training.members import Member
from ablate.training.pack import Pack

_TICK_SECONDS = 0.25
_CUDA_CHECK_STEPS = 16

Keep = Callable[[nn.Module, int, int], None]
"""Is given the trained model and, for each member that came to the end, its place in the model and its number."""


def train(
    members: Sequence[Member],
    task: Task,
    device: torch.device,
    keep: Keep | None = None,
    stopped: Callable[[], Sequence[int]] | None = None,
    *,
    start: State | None = None,
    save_every: int = 0,
) -> Iterator[Event]:
    """Train the members of a pack as one program.

    Seed s sees the batches and, for parameters of equal name and shape, the initial values that every other variant
    sees with s. A member that leaves, because its loss is not finite or because it is stopped, changes nothing for the
    others, and its place in the model is soon given up.

    Args:
        members: What to train, of one structure (see `pack_key`); their number is K.
        task: The opened task.
        device: Where to train.
        keep: Is given what was trained, at the end.
        stopped: Asked after every step: the numbers of members that are to leave.
        start: Of a `Checkpoint`: goes on from there, after telling again what was told before it.
        save_every: Steps between checkpoints; 0: none.

    Yields:
        `Tick` now and then, `Diverged` once for each member whose loss is not finite, and `Point` at every evaluation.
        The `Point` after the last step holds the final metrics. If every member leaves, training ends early.
        `Checkpoint` at the interval asked for, but not at the end.
    """
    with Pack(members, task, device) as pack:
        yield from [pack.point()] if start is None else restore(pack, start)
        steps = members[0].variant.training.steps
        due = set(members[0].variant.training.evaluation_steps())
        last_tick, remark = time.monotonic(), ""
        for step in range(pack.steps + 1, steps + 1):
            pack.step(step)
            if device.type == "cpu" or step in due or step % _CUDA_CHECK_STEPS == 0:
                yield from pack.diverged()
            for member in stopped() if stopped is not None else ():
                pack.leave(member)
            if not pack.alive:
                return
            if pack.remark != remark:
                remark = pack.remark
                yield Remark(remark)
            if step in due:
                yield pack.point()
                yield from pack.diverged()  # a step can leave weights whose validation loss is not finite
                if not pack.alive:
                    return
            elif time.monotonic() - last_tick >= _TICK_SECONDS:
                last_tick = time.monotonic()
                yield Tick(step, pack.last_loss())
            if step < steps:
                pack.compact()
                if save_every and step % save_every == 0:
                    yield Checkpoint(step, save(pack))
        if keep is not None:
            with pack.evaluated_weights():
                for member in sorted(pack.alive):
                    keep(pack.model, pack.places.index(member), member)
