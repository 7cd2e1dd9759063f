"""Tasks of formal languages and of state tracking: brackets, stacks, and the product of a group so far.

Sources: Dyck languages of bounded depth (arXiv:2010.07515), stacks as in Kimi Linear (arXiv:2510.26692, section 5.1),
whose generator is not published; word problems of groups (arXiv:2404.08819; `jopetty/word-problem`), parity and modular
addition (arXiv:2207.02098, arXiv:2411.12537). Depth that does not grow with the length suffices for commutative and
solvable groups; S5 and A5 are not solvable.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import cache
from itertools import permutations
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ablate.tasks.probe import SEEN, UNSCORED, Context, ContextProbeSpec, ProbeSpec
from ablate.tasks.sampling import Draws


class DyckSpec(ContextProbeSpec):
    """Balanced brackets of several types; wherever one is open, the bracket that may close next is predicted.

    A bracket opens with probability 1/2 where both are possible. Ids: types 0 to N - 1 open, N to 2N - 1 close.
    """

    kind: Literal["dyck"] = "dyck"
    """Say which bracket may close next, in balanced brackets of several types."""
    context: Context = Field(default=64, ge=2, multiple_of=2)
    types: int = Field(default=8, ge=2, le=10_000)
    """Number of bracket types N."""
    depth: int = Field(default=8, ge=1, le=10_000)
    """Maximum number of open brackets."""

    @property
    def vocabulary(self) -> int:
        return 2 * self.types

    @property
    def guesses(self) -> int:
        """Any closing bracket."""
        return self.types

    def sequences(self, draws: Draws, rows: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        types, coins = draws.integers(self.types, (rows, self.context)), draws.uniforms((rows, self.context))
        inputs, targets = np.empty_like(types), np.full_like(types, UNSCORED)
        opened, depth, row = (
            np.zeros((rows, self.depth + 1), dtype=np.int64),
            np.zeros(rows, dtype=np.int64),
            np.arange(rows),
        )
        for place in range(self.context):
            may_open = (depth < self.depth) & (depth < self.context - place)
            opens = may_open & ((depth == 0) | (coins[:, place] < 0.5))
            inputs[:, place] = np.where(opens, types[:, place], self.types + opened[row, depth])
            opened[row[opens], depth[opens] + 1] = types[opens, place]
            depth += np.where(opens, 1, -1)
            targets[:, place] = np.where(depth > 0, self.types + opened[row, depth], UNSCORED)
        return inputs, targets

    def shortcuts(self, inputs: NDArray[np.int64], targets: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
        """The last eight tokens answer where they hold the bracket that was opened last."""
        answers, row = np.full_like(targets, -1), np.arange(len(inputs))
        opened, depth = np.zeros((len(inputs), self.depth + 1), dtype=np.int64), np.zeros(len(inputs), dtype=np.int64)
        for place in range(inputs.shape[1]):
            opens = inputs[:, place] < self.types
            depth += np.where(opens, 1, -1)
            opened[row[opens], depth[opens]] = place
            near = (depth > 0) & (place - opened[row, depth] < SEEN)
            answers[near, place] = targets[near, place]
        return {f"last {SEEN} tokens": answers}


class StackSpec(ProbeSpec):
    """Several stacks; the symbol that a pop returns is predicted. An operation has three tokens: what, where, which.

    A pop follows with probability 1/2 where its stack is not empty. Ids: push 0, pop 1, then stacks, then symbols.
    """

    length_field: ClassVar[str] = "operations"

    kind: Literal["stack"] = "stack"
    """Say what a pop returns, after pushes to several stacks."""
    operations: int = Field(default=32, ge=2, le=300_000)
    """Pushes and pops in a sequence, of three tokens each."""
    stacks: int = Field(default=4, ge=1, le=10_000)
    """Number of stacks."""
    symbols: int = Field(default=16, ge=2, le=100_000)
    """Number of distinct symbols."""

    @property
    def length(self) -> int:
        return 3 * self.operations

    @property
    def vocabulary(self) -> int:
        return 2 + self.stacks + self.symbols

    @property
    def guesses(self) -> int:
        """Any symbol."""
        return self.symbols

    def sequences(self, draws: Draws, rows: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        shape, row = (rows, self.operations), np.arange(rows)
        chosen, symbols, coins = (
            draws.integers(self.stacks, shape),
            draws.integers(self.symbols, shape),
            draws.uniforms(shape),
        )
        held = np.zeros((rows, self.stacks, self.operations + 1), dtype=np.int64)
        depth = np.zeros((rows, self.stacks), dtype=np.int64)
        inputs = np.empty((rows, self.operations, 3), dtype=np.int64)
        targets = np.full_like(inputs, UNSCORED)
        for number in range(self.operations):
            stack = chosen[:, number]
            level = depth[row, stack]
            pops = (level > 0) & (coins[:, number] < 0.5)
            symbol = 2 + self.stacks + np.where(pops, held[row, stack, level], symbols[:, number])
            inputs[:, number] = np.stack([pops, 2 + stack, symbol], axis=1)
            targets[:, number, 1] = np.where(pops, symbol, UNSCORED)
            depth[row, stack] = np.where(pops, level - 1, level + 1)
            held[row, stack, depth[row, stack]] = np.where(pops, held[row, stack, level - 1], symbols[:, number])
        return inputs.reshape(rows, -1), targets.reshape(rows, -1)

    def shortcuts(self, inputs: NDArray[np.int64], targets: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
        """The last symbol that was pushed to the stack, whatever was popped since."""
        answers, row = np.full_like(targets, -1), np.arange(len(inputs))
        last = np.zeros((len(inputs), self.stacks), dtype=np.int64)
        for first in range(0, inputs.shape[1], 3):
            pops, stack = inputs[:, first] == 1, inputs[:, first + 1] - 2
            answers[:, first + 1] = last[row, stack]
            last[row, stack] = np.where(pops, last[row, stack], inputs[:, first + 2])
        return {"last push": answers}


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
