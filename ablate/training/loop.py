"""The training loop of one pack, and its checkpoints: plain values from which any worker resumes with the same results.

Batches are a function of seed and step. So besides the specs of the members, a checkpoint holds weights, optimizer
state, counters, the state of the random generators of dropout, and the events so far.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor, nn

from ablate.spec.space_fields import CheckpointInterval
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

    Whatever the pack would save must be there, of the same type, and tensors of the same shape. The number of members
    may differ: the state lacks those that had left. The weights of those that had not must be finite.
    """
    return next(_misfits(pack, state), "")


def _misfits(pack: Pack, state: State) -> Iterator[str]:
    """Whatever does not fit, in an order in which the next check may rely on the ones before."""
    here = pack.state()
    if missing := sorted({"events", *here} - state.keys() - {"random_of_ranks"}):
        yield f"it has no {', '.join(missing)}"
    positions, alive = _parts(state["positions"]).values(), _parts(state["alive"]).values()
    if len(positions) > len(pack.positions):
        yield f"it is of {len(positions)} trials instead of {len(pack.positions)}"
    if len({*positions}) < len(positions) or not {*alive} <= {*positions} <= {*pack.positions}:
        yield "its members are others"
    for name in sorted(here.keys() - {"positions", "alive", "random", "random_of_ranks"}):
        if unlike := _unlike(here[name], state[name], name):
            yield unlike
    if not 0 <= (step := state["counters"]["steps"]) <= pack.training.steps:
        yield f"it is of step {step}, and the trial has {pack.training.steps}"
    living = torch.tensor([place for place, member in enumerate(positions) if member in alive], dtype=torch.long)
    for name, tensor in state["model"].items():
        if not tensor[living.to(tensor.device)].isfinite().all():
            yield f"{name} is not finite"
    try:
        _events(state)
    except (KeyError, TypeError, ValueError):
        yield "its events are not those of a trial"


def _unlike(ours: Any, theirs: Any, place: str) -> str:
    """How a part of a saved state differs in type or shape from that of a new pack; empty if it does not."""
    if isinstance(ours, Tensor):
        if not isinstance(theirs, Tensor) or theirs.ndim != ours.ndim or theirs.shape[1:] != ours.shape[1:]:
            got = list(theirs.shape[1:]) if isinstance(theirs, Tensor) else "missing"
            return f"{place} is {got} instead of {list(ours.shape[1:])}"
        return "" if theirs.dtype == ours.dtype else f"{place} is {theirs.dtype} instead of {ours.dtype}"
    if isinstance(ours, (Mapping, list)):
        our_parts, their_parts = _parts(ours), _parts(theirs)
        if differing := sorted(map(str, our_parts.keys() ^ their_parts.keys())):
            return f"{place} has other parts, such as {differing[0]}"
        found = (_unlike(part, their_parts[name], f"{place}.{name}") for name, part in our_parts.items())
        return next(filter(None, found), "")
    if isinstance(ours, (int, float)):
        fits = isinstance(theirs, (int, float)) and math.isfinite(theirs)
        return "" if fits else f"{place} is not a number"
    return ""


def _parts(value: Any) -> Mapping[Any, Any]:
    return value if isinstance(value, Mapping) else dict(enumerate(value)) if isinstance(value, (list, tuple)) else {}


def _events(state: State) -> list[Measurement | Diverged]:
    return [_KINDS[name](**values) for name, values in state["events"]]


def restore(pack: Pack, state: State) -> list[Measurement | Diverged]:
    """Load a saved state into a new pack of the same members.

    Returns:
        The events of the saved pack.
    """
    pack.restore(state)
    pack.events = _events(state)
    return list(pack.events)
