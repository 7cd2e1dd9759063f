"""Which waiting trials start together, as one pack: those of one structure, as many as pay and fit into memory."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ablate.engine.base import Left, Place
from ablate.engine.memory import free_bytes, trial_bytes
from ablate.engine.plan import Trial, Variant
from ablate.spec.seeds import TIMING_SEEDS
from ablate.training.members import pack_key

_CPU_FLOPS = 1.5e9
"""Arithmetic of a step of a pack up to which a larger pack gains on a CPU core: below it Python and the dispatch of
operations take a good part of the time, above it arithmetic does, and packs only spoil the caches (benchmarks/packs.py
prints the figures)."""
MOST = {"cpu": 16, "cuda": 64}
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

    def size(self, variant: Variant, place: Place) -> int:
        """How many trials like this one make a pack at a place."""
        size = self.most or MOST[place.device]
        if self.most is None and place.device == "cpu":
            size = min(size, int(_CPU_FLOPS * variant.spec.training.steps / variant.flops))
        return max(1, min(size, int(place.memory * _MEMORY_SHARE / trial_bytes(variant))))


@dataclass(frozen=True, slots=True)
class Waiting:
    """A trial that waits, and which attempt at it comes next."""

    trial: Trial
    attempt: int = 1


@dataclass(frozen=True, slots=True)
class Pack:
    """What starts together.

    Attributes:
        waiting: The trials.
        whole: All members, in order, of an earlier pack that goes on with these; the others are to leave it. Empty for
            a new pack.
    """

    waiting: Sequence[Waiting]
    whole: tuple[Trial, ...] = ()


@dataclass(slots=True)
class Queue:
    """Trials that wait, in the order of the design.

    Attributes:
        packing: How large packs are to be.
        workers: How many packs run at once, now: a cluster grows and shrinks.
    """

    packing: Packing
    workers: Callable[[], int]
    _waiting: deque[Waiting] = field(default_factory=deque)
    _limits: dict[str, int] = field(default_factory=dict)
    """By pack key, after a pack of it broke."""
    _keys: dict[str, str | None] = field(default_factory=dict)
    """Pack key by content hash of the variant."""
    _place: Place | None = None
    _left: list[tuple[Left, tuple[Trial, ...]]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, trial: Trial) -> None:
        """A trial that the design asks for."""
        self._waiting.append(Waiting(trial))

    def extend(self, trials: Iterable[Waiting]) -> None:
        """Trials that could not begin yet."""
        self._waiting.extend(trials)

    def go_on(self, packs: Iterable[Left], trials: Mapping[str, Trial]) -> None:
        """Have earlier packs go on as they were, those whose members are all among `trials` (by key)."""
        known = [left for left in packs if trials.keys() >= set(left.members)]
        self._left = [(left, tuple(trials[key] for key in left.members)) for left in known]

    def put_back(self, trials: Sequence[Waiting], size: int) -> None:
        """Trials that are to be tried again before all others, after a pack of `size` broke: in packs of half of it."""
        key = self._key(trials[0].trial)
        if size > 1 and key is not None:
            self._limits[key] = size // 2
        self._waiting.extendleft(reversed(trials))

    def take(self, running: int = 0, place: Place | None = None) -> Pack:
        """The next pack: the trial that has waited longest, and others that it can be trained with.

        No new pack is larger than a worker's fair share of all that waits and of the trials that are running.

        Args:
            running: How many trials run.
            place: Where the pack is to run; None: on the device of `packing`, here.
        """
        first = self._waiting.popleft()
        key = self._key(first.trial)
        if key is None or first.attempt > 1:  # it may have been what its worker died of
            return Pack([first])
        if earlier := next((each for each in self._left if first.trial.key in each[0].alive), None):
            self._left.remove(earlier)
            left, whole = earlier
            return Pack([first, *self._pick(lambda waiting: waiting.trial.key in left.alive)], whole)
        size = min(
            self._size(first.trial.variant, key, place or self._here()),
            math.ceil((len(self._waiting) + 1 + running) / self.workers()),
        )
        promised = {member for left, _ in self._left for member in left.alive}

        def fits(waiting: Waiting) -> bool:
            return waiting.trial.key not in promised and self._key(waiting.trial) == key

        return Pack([first, *self._pick(fits, size - 1)])

    def _pick(self, fits: Callable[[Waiting], bool], most: int | None = None) -> list[Waiting]:
        """Take out those that fit, but for those that lost a worker alone."""
        picked: list[Waiting] = []
        if most == 0:
            return picked
        others: deque[Waiting] = deque()
        for waiting in self._waiting:
            wanted = len(picked) != most and waiting.attempt == 1 and fits(waiting)
            (picked if wanted else others).append(waiting)
        self._waiting = others
        return picked

    def _size(self, variant: Variant, key: str, place: Place) -> int:
        size = self.packing.size(variant, place)
        return min(size, self._limits.get(key, size))

    def _here(self) -> Place:
        """A worker of this machine: workers share its memory; on GPUs each has its own."""
        if self._place is None:
            device = self.packing.device
            self._place = Place(device, free_bytes(device) / (self.workers() if device == "cpu" else 1))
        return self._place

    def _key(self, trial: Trial) -> str | None:
        variant = trial.variant
        if trial.seed in TIMING_SEEDS:
            return None  # alone: its share of a pack's seconds would depend on its company
        if variant.hash not in self._keys:
            self._keys[variant.hash] = pack_key(variant.spec, variant.fingerprint)
        return self._keys[variant.hash]
