"""Tasks of state tracking: the product of all elements of a group so far, at every position.

Sources: word problems of groups (arXiv:2404.08819; `jopetty/word-problem`), parity and modular addition
(arXiv:2207.02098, arXiv:2411.12537). Depth that does not grow with the length suffices for commutative and solvable
groups; S5 and A5 are not solvable.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import cache
from itertools import permutations
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ablate.tasks.probe import SEEN, Context, ContextProbeSpec
from ablate.tasks.sampling import Draws


class PrefixProductSpec(ContextProbeSpec):
    """Uniformly random elements of a group; at each position the product of all up to it is predicted."""

    context: Context = Field(default=64, ge=2)

    @property
    @abstractmethod
    def table(self) -> NDArray[np.int64]:
        """The multiplication table of the group, [N, N]: `table[a, b]` is a·b. Element 0 is the identity."""

    @property
    def vocabulary(self) -> int:
        return len(self.table)

    @property
    def guesses(self) -> int:
        """Any element: the product with a uniformly random one is uniform."""
        return len(self.table)

    def sequences(self, draws: Draws, rows: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        inputs = draws.integers(len(self.table), (rows, self.context))
        targets, product, table = np.empty_like(inputs), np.zeros(rows, dtype=np.int64), self.table
        for place in range(self.context):
            product = table[product, inputs[:, place]]
            targets[:, place] = product
        return inputs, targets

    def shortcuts(self, inputs: NDArray[np.int64], targets: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
        """Seeing the last eight tokens solves the first eight positions, and leaves all others uniform."""
        return {f"last {SEEN} tokens": np.where(np.arange(self.context) < SEEN, targets, -1)}


class ParitySpec(PrefixProductSpec):
    """Whether the number of ones so far is odd, at every position of a sequence of bits."""

    kind: Literal["parity"] = "parity"
    """Say at every position whether the number of ones so far is odd."""

    @property
    def table(self) -> NDArray[np.int64]:
        return _cyclic(2)


class ModularAdditionSpec(PrefixProductSpec):
    """The sum of all numbers so far, modulo a number, at every position."""

    kind: Literal["modular_addition"] = "modular_addition"
    """Say at every position the sum of all numbers so far, modulo a number."""
    modulus: int = Field(default=5, ge=2, le=1000)
    """The numbers are 0 to the modulus minus one."""

    @property
    def table(self) -> NDArray[np.int64]:
        return _cyclic(self.modulus)


class PermutationsSpec(PrefixProductSpec):
    """The composition of all permutations so far, at every position; ids are the permutations in lexical order.

    A product a·b applies b first: (a·b)(i) = a(b(i)).
    """

    kind: Literal["permutations"] = "permutations"
    """Say at every position the composition of all permutations so far."""
    group: Literal["S3", "A5", "S5"] = "S3"
    """S3: the 6 permutations of three things; A5: the 60 even ones of five; S5: all 120 of five."""

    @property
    def table(self) -> NDArray[np.int64]:
        return _composition(self.group)


@cache
def _cyclic(order: int) -> NDArray[np.int64]:
    numbers = np.arange(order)
    table: NDArray[np.int64] = (numbers[:, None] + numbers) % order
    return table


@cache
def _composition(group: str) -> NDArray[np.int64]:
    elements = list(permutations(range(int(group[1]))))
    if group[0] == "A":
        elements = [element for element in elements if _is_even(element)]
    number = {element: index for index, element in enumerate(elements)}
    return np.array([[number[tuple(a[i] for i in b)] for b in elements] for a in elements])


def _is_even(permutation: tuple[int, ...]) -> bool:
    pairs = ((i, j) for j in range(len(permutation)) for i in range(j))
    return sum(permutation[i] > permutation[j] for i, j in pairs) % 2 == 0
