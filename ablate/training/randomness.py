"""The random numbers of dropout, the only randomness during training."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ablate.nn.pack.initial import stream
from ablate.training.events import State
from ablate.training.ranks import Ranks


class DropoutRandomness:
    """The random generators of dropout: one for each member on a CPU, else torch's default generator.

    Args:
        seeds: Of the member at each position of the model.
        device: Of the model.
        ranks: The processes that train together; each has random numbers of its own.

    Attributes:
        streams: The generator of each position; None if dropout uses torch's default generator.
    """

    def __init__(self, seeds: Sequence[int], device: torch.device, ranks: Ranks) -> None:
        self._device = device
        self._ranks = ranks
        name = f"dropout/{ranks.index}" if ranks.index else "dropout"
        initial = [stream(seed, name).initial_seed() for seed in seeds]
        torch.manual_seed(initial[0])
        separate = len(seeds) > 1 and device.type == "cpu"
        self.streams = [torch.Generator().manual_seed(seed) for seed in initial] if separate else None

    def generators(self) -> list[torch.Generator]:
        """All generators in use."""
        if self.streams is not None:
            return self.streams
        if self._device.type == "cuda":
            index = torch.cuda.current_device() if self._device.index is None else self._device.index
            return [torch.cuda.default_generators[index]]
        return [torch.default_generator]

    def keep(self, kept: Sequence[int]) -> None:
        """Keep only the members at these positions."""
        if self.streams is not None:
            self.streams = [self.streams[position] for position in kept]

    def states(self) -> list[Tensor]:
        """The state of each generator, for `rewind`."""
        return [generator.get_state() for generator in self.generators()]

    def rewind(self, states: Sequence[Tensor]) -> None:
        """Set the generators to earlier states."""
        for generator, state in zip(self.generators(), states, strict=True):
            generator.set_state(state)

    def state(self) -> State:
        """The part of a checkpoint: the states of this rank, and those of all ranks if there are several."""
        own = self.states()
        return {"random": own} | ({} if self._ranks.count == 1 else {"random_of_ranks": list(self._ranks.of_each(own))})

    def restore(self, state: State) -> None:
        """Load the part of a checkpoint.

        After a change of the number of ranks, each rank but the first continues with a fresh random state.
        """
        of_ranks = state.get("random_of_ranks", [])
        own = state["random"] if self._ranks.index == 0 else []
        if len(of_ranks) == self._ranks.count:
            own = of_ranks[self._ranks.index]
        for generator, saved in zip(self.generators(), own, strict=False):
            if saved.shape == generator.get_state().shape:  # another shape: it was saved on another type of device
                generator.set_state(saved.cpu())
