"""The training loop of one pack, and its checkpoints: plain values from which any worker resumes with the same results.

Batches are a function of seed and step. So besides the specs of the members, a checkpoint holds weights, optimizer
state, counters, the state of the random generators of dropout, and the events so far.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict

import torch
from torch import Tensor, nn

from ablate.spec.resources import CheckpointInterval
from ablate.spec.task import Task
from ablate.training.events import Checkpoint, Diverged, Event, Measurement, State, Tick, TrialWarning
from ablate.training.members import Member
from ablate.training.pack import Pack
from ablate.training.sharding import Ranks

_TICK_SECONDS = 0.25
_CUDA_CHECK_STEPS = 16

Keep = Callable[[nn.Module, int, int], None]
"""Called with the trained model, and position and number of each member that finished."""


def train(
    members: Sequence[Member],
    task: Task,
    device: torch.device,
    keep: Keep | None = None,
    stopped: Callable[[], Sequence[int]] | None = None,
    *,
    start: State | None = None,
    save: CheckpointInterval = CheckpointInterval(),  # noqa: B008 - frozen
    ranks: Ranks = Ranks(),  # noqa: B008 - frozen
) -> Iterator[Event]:
    """Train the members of a pack together.

    All variants with the same seed have the same batches and, for parameters of equal name and shape, the same initial
    values. A member leaves if its loss is not finite or if it is stopped. That does not affect the other members, and
    its slice of the model is removed soon after.

    Args:
        members: The K members, of equal structure (see `pack_key`).
        task: The opened task.
        device: Device to train on.
        keep: Called at the end with the trained model.
        stopped: Called after every step; returns the numbers of members to stop.
        start: State of a `Checkpoint` to resume from. Its events are yielded first. A state of another structure, which
            an older version wrote, is not used.
        save: When to yield a checkpoint.
        ranks: The processes that train the pack together. Each calls this with equal arguments; all follow the first
            rank's result of `stopped` and its clock.

    Yields:
        `Tick` several times a second, `Diverged` once for each member whose loss is not finite, `Measurement` at every
        evaluation, and `Checkpoint` as `save` says, except after the last step. The last `Measurement` has the final
        metrics. Training ends early if all members have left.
    """
    with Pack(members, task, device, ranks=ranks) as pack:
        yield from [pack.point()] if start is None else _resume(pack, start)
        steps = members[0].variant.training.steps
        due = set(members[0].variant.training.evaluation_steps())
        last_tick = saved = time.monotonic()
        warning = ""
        for step in range(pack.steps + 1, steps + 1):
            pack.step(step)
            if device.type == "cpu" or step in due or step % _CUDA_CHECK_STEPS == 0:
                yield from pack.remove_diverged()
            leaving = list(stopped()) if stopped is not None else []
            leaving, is_due = ranks.of_first((leaving, save.is_due(step, time.monotonic() - saved)))
            for member in leaving:
                pack.leave(member)
            if not pack.alive:
                return
            if pack.warning != warning:
                warning = pack.warning
                yield TrialWarning(warning)
            if step in due:
                yield pack.point()
                yield from pack.remove_diverged()  # the validation loss may not be finite even if the training loss was
                if not pack.alive:
                    return
            elif time.monotonic() - last_tick >= _TICK_SECONDS:
                last_tick = time.monotonic()
                yield Tick(step, pack.last_loss())
            if step < steps:
                pack.compact()
                if is_due:
                    yield Checkpoint(step, state_of(pack))
                    saved = time.monotonic()
        if keep is not None or ranks.shard:
            _keep(pack, keep)


def _keep(pack: Pack, keep: Keep | None) -> None:
    """Pass the model to `keep`; all ranks take part, because divided weights are gathered for this."""
    with pack.evaluated_weights():
        model = pack.whole_model()
        if keep is None:
            return
        for member in sorted(pack.alive):
            keep(model, pack.positions.index(member), member)


def _resume(pack: Pack, start: State) -> Iterator[Event]:
    """Load a state and yield its events; if it has another structure, start from the beginning with a warning."""
    if reason := misfit(pack, start):
        yield TrialWarning(f"a checkpoint does not fit its trial ({reason}); training starts from the beginning")
        yield pack.point()
    else:
        yield from restore(pack, start)


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
    members = [[_shapes(member) for member in whole["optimizer"]["members"]] for whole in (here, state)]
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
