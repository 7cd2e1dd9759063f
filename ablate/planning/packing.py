"""Choose which waiting trials start together as one pack: trials of one structure that fit into memory together."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ablate.planning.memory import free_bytes, trial_bytes
from ablate.planning.plan import Trial, Variant
from ablate.roles import TrialRole
from ablate.training.members import pack_key

_CPU_FLOPS = 2.4e9
"""The arithmetic of a step of a pack up to which a larger pack is faster on a CPU core. Below it, Python and dispatch
take much of the time; above it, arithmetic does, and a larger pack only causes cache misses (benchmarks/packs.py)."""
MOST = {"cpu": 16, "cuda": 64}
"""The largest pack unless the user sets a size."""
_MEMORY_SHARE = 0.8
"""The share of free memory that a pack may use, as the prediction is incomplete. A pack that does not fit is split."""


@dataclass(frozen=True, slots=True)
class JobDevice:
    """The device on which a job will run.

    Attributes:
        device: `cpu` or `cuda`.
        memory: The bytes that the job may use there.
    """

    device: str
    memory: float


@dataclass(frozen=True, slots=True)
class ResumablePack:
    """A pack of an earlier driver that can be resumed from a checkpoint.

    Attributes:
        members: The keys of its trials, in order.
        alive: The keys of those that had not left the pack at the checkpoint.
    """

    members: tuple[str, ...]
    alive: frozenset[str]


@dataclass(frozen=True, slots=True)
class Packing:
    """The size of packs.

    Attributes:
        most: The most trials of a pack; None: as many as are faster together on the device.
        device: `cpu` or `cuda`.
    """

    most: int | None = None
    device: str = "cpu"

    def size(self, variant: Variant, target: JobDevice) -> int:
        """The number of trials of this variant that make a pack at a place."""
        size = self.most or MOST[target.device]
        if self.most is None and target.device == "cpu" and variant.flops:
            size = min(size, int(_CPU_FLOPS * variant.spec.training.steps / variant.flops))
        return max(1, min(size, int(target.memory * _MEMORY_SHARE / trial_bytes(variant, device=target.device))))


@dataclass(frozen=True, slots=True)
class WaitingTrial:
    """A trial in the queue.

    Attributes:
        parted: Why it is no longer trained in the pack in which it started; empty if it is.
    """

    trial: Trial
    attempt: int = 1
    parted: str = ""


@dataclass(frozen=True, slots=True)
class NextPack:
    """The trials that start together.

    Attributes:
        whole: All members, in order, of an earlier pack that is resumed; those not in `waiting` leave it at once.
            Empty for a new pack.
    """

    waiting: Sequence[WaitingTrial]
    whole: tuple[Trial, ...] = ()


@dataclass(slots=True)
class Queue:
    """The waiting trials, in the order of the design.

    Attributes:
        workers: Gives the number of packs that can run at once, which changes as a cluster grows and shrinks.
    """

    packing: Packing
    workers: Callable[[], int]
    _waiting: deque[WaitingTrial] = field(default_factory=deque)
    _limits: dict[str, int] = field(default_factory=dict)
    """The largest pack by pack key, after a pack with this key broke."""
    _keys: dict[str, str | None] = field(default_factory=dict)
    """Pack key by content hash of the variant."""
    _target: JobDevice | None = None
    _left: list[tuple[ResumablePack, tuple[Trial, ...]]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, trial: Trial) -> None:
        """Add a trial that the design proposes."""
        self._waiting.append(WaitingTrial(trial))

    def extend(self, trials: Iterable[WaitingTrial]) -> None:
        """Add trials that could not start earlier."""
        self._waiting.extend(trials)

    def resume(self, packs: Iterable[ResumablePack], trials: Mapping[str, Trial]) -> None:
        """Resume the earlier packs whose members are all in `trials` (by key)."""
        known = [left for left in packs if trials.keys() >= set(left.members)]
        self._left = [(left, tuple(trials[key] for key in left.members)) for left in known]

    def put_back(self, trials: Sequence[WaitingTrial], whole: tuple[Trial, ...] = ()) -> None:
        """Retry trials before all others.

        Args:
            trials: The trials that lost their worker.
            whole: All members of their pack, in order: they resume as this pack. None for a trial that was alone.
        """
        if whole:
            alive = frozenset(waiting.trial.key for waiting in trials)
            self._left.insert(0, (ResumablePack(tuple(trial.key for trial in whole), alive), whole))
        self._waiting.extendleft(reversed(trials))

    def split(self, trials: Sequence[WaitingTrial], size: int) -> None:
        """Retry trials before all others, in packs of half the `size` of the pack that broke."""
        key = self._key(trials[0].trial)
        if key is not None:
            self._limits[key] = size // 2
        self._waiting.extendleft(reversed(trials))

    def take(self, running: float = 0, target: JobDevice | None = None) -> NextPack:
        """The next pack: the trial that has waited longest, and others that can be trained with it.

        A new pack holds at most an equal share, among the workers, of the trials that are left, so that all workers
        have something to train until the end.

        Args:
            running: The running trials, each counted by the share of its steps that is left.
            place: The place of the pack; None: this machine, on the device of `packing`.
        """
        first = self._waiting.popleft()
        key = self._key(first.trial)
        if earlier := next((left for left in self._left if first.trial.key in left[0].alive), None):
            self._left.remove(earlier)
            left, whole = earlier
            return NextPack([first, *self._pick(lambda waiting: waiting.trial.key in left.alive)], whole)
        if key is None or first.attempt > 1:  # this trial may have killed its worker
            return NextPack([first])
        size = min(
            self._size(first.trial.variant, key, target or self._here()),
            math.ceil((len(self._waiting) + 1 + int(running)) / self.workers()),
        )
        promised = {member for left, _ in self._left for member in left.alive}

        def fits(waiting: WaitingTrial) -> bool:
            is_new = waiting.attempt == 1 and waiting.trial.key not in promised
            return is_new and self._key(waiting.trial) == key

        return NextPack([first, *self._pick(fits, size - 1)])

    def _pick(self, fits: Callable[[WaitingTrial], bool], most: int | None = None) -> list[WaitingTrial]:
        """Take out those that fit."""
        picked: list[WaitingTrial] = []
        if most == 0:
            return picked
        others: deque[WaitingTrial] = deque()
        for waiting in self._waiting:
            wanted = len(picked) != most and fits(waiting)
            (picked if wanted else others).append(waiting)
        self._waiting = others
        return picked

    def _size(self, variant: Variant, key: str, target: JobDevice) -> int:
        size = self.packing.size(variant, target)
        return min(size, self._limits.get(key, size))

    def _here(self) -> JobDevice:
        """A worker on this machine. Workers on the CPU share its memory; each GPU worker has its own."""
        if self._target is None:
            device = self.packing.device
            self._target = JobDevice(device, free_bytes(device) / (self.workers() if device == "cpu" else 1))
        return self._target

    def _key(self, trial: Trial) -> str | None:
        variant = trial.variant
        if trial.role is TrialRole.TIMING:
            return None  # train it alone: in a pack its time would depend on the other members
        if variant.hash not in self._keys:
            self._keys[variant.hash] = pack_key(variant.spec, variant.fingerprint)
        return self._keys[variant.hash]
