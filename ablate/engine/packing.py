"""Which waiting trials start together, as one pack: those of one structure, as many as pay and fit into memory."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from ablate.engine.memory import free_bytes, trial_bytes
from ablate.engine.plan import Trial, Variant
from ablate.training.members import pack_key

_CPU_FLOPS = 1.5e9
"""Arithmetic of a step of a pack up to which a larger pack gains on a CPU core: below it Python and the dispatch of
operations take a good part of the time, above it arithmetic does, and packs only spoil the caches (benchmarks/packs.py
prints the figures)."""
_MOST = {"cpu": 16, "cuda": 64}
"""The largest pack by itself."""
_MEMORY_SHARE = 0.8
"""Of free memory, for what the prediction leaves out; a pack that does not fit after all is split."""


@dataclass(frozen=True, slots=True)
class Packing:
    """How large packs are to be.

    Attributes:
        most: The most trials of a pack; None: as many as pay on the device.
        device: `cpu` or `cuda`.
    """

    most: int | None = None
    device: str = "cpu"

    def size(self, variant: Variant, memory: float) -> int:
        """How many trials like this one make a pack, in `memory` bytes."""
        size = self.most or _MOST[self.device]
        if self.most is None and self.device == "cpu":
            size = min(size, int(_CPU_FLOPS * variant.spec.training.steps / variant.flops))
        return max(1, min(size, int(memory * _MEMORY_SHARE / trial_bytes(variant))))


@dataclass(frozen=True, slots=True)
class Waiting:
    """A trial that waits, and which attempt at it comes next."""

    trial: Trial
    attempt: int = 1


@dataclass(slots=True)
class Queue:
    """Trials that wait, in the order of the design.

    Attributes:
        packing: How large packs are to be.
        workers: How many packs run at once.
    """

    packing: Packing
    workers: int
    _waiting: deque[Waiting] = field(default_factory=deque)
    _limits: dict[str, int] = field(default_factory=dict)
    """By pack key, after a pack of it broke."""
    _keys: dict[str, str | None] = field(default_factory=dict)
    """Pack key by content hash of the variant."""
    _memory: float | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, trial: Trial) -> None:
        """A trial that the design asks for."""
        self._waiting.append(Waiting(trial))

    def put_back(self, trials: Sequence[Waiting], size: int) -> None:
        """Trials that are to be tried again before all others, after a pack of `size` broke: in packs of half of it."""
        key = self._key(trials[0].trial)
        if size > 1 and key is not None:
            self._limits[key] = size // 2
        self._waiting.extendleft(reversed(trials))

    def take(self, running: int = 0) -> list[Waiting]:
        """The next pack: the trial that has waited longest, and others that it can be trained with.

        No pack is larger than a worker's fair share of all that waits and of the trials that are `running`.
        """
        first = self._waiting.popleft()
        key = self._key(first.trial)
        if key is None or first.attempt > 1:  # it may have been what its worker died of
            return [first]
        size = min(self._size(first.trial.variant, key), math.ceil((len(self._waiting) + 1 + running) / self.workers))
        pack = [first]
        if size > 1:
            others: deque[Waiting] = deque()
            for waiting in self._waiting:
                fits = len(pack) < size and waiting.attempt == 1 and self._key(waiting.trial) == key
                (pack if fits else others).append(waiting)
            self._waiting = others
        return pack

    def _size(self, variant: Variant, key: str) -> int:
        if self._memory is None:
            # Workers share the memory of a machine; on GPUs each has its own.
            self._memory = free_bytes(self.packing.device) / (self.workers if self.packing.device == "cpu" else 1)
        size = self.packing.size(variant, self._memory)
        return min(size, self._limits.get(key, size))

    def _key(self, trial: Trial) -> str | None:
        variant = trial.variant
        if variant.hash not in self._keys:
            self._keys[variant.hash] = pack_key(variant.spec, variant.fingerprint)
        return self._keys[variant.hash]
