"""Tasks of reasoning of PhysicsLM4 (arXiv:2512.17351): Mano, arithmetic in the head, and Depo, steps along a cycle."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from ablate.spec.base import refusal
from ablate.tasks.probe import UNSCORED, ProbeSpec
from ablate.tasks.sampling import Draws

OPERATIONS = ("+", "-", "*")


class ManoSpec(ProbeSpec):
    """The value of a prefix expression of +, - and * modulo a number, without intermediate steps.

    A sequence is: begin, the number of operations l, the expression, answer, padding. l is uniform from 1 to L in
    training, where all tokens are predicted, and L where it is measured, at the answer alone. The source also has
    synonyms of tokens, which are left out. Ids: numbers, + - *, begin, answer, padding, lengths.
    """

    kind: Literal["mano"] = "mano"
    """Say the value of an arithmetic expression modulo a number."""
    operations: int = Field(default=4, ge=1, le=1000)
    """Maximum number of operations L; 10 to 16 in the source."""
    modulus: int = Field(default=23, ge=2, le=10_000)
    """Numbers are 0 to the modulus minus one."""

    @property
    def length(self) -> int:
        return 2 * self.operations + 4

    @property
    def vocabulary(self) -> int:
        return self.modulus + len(OPERATIONS) + 3 + self.operations

    @property
    def guesses(self) -> int:
        """Any number."""
        return self.modulus

    def sequences(self, draws: Draws, rows: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        whole = self._whole(draws, np.full(rows, self.operations))
        targets = np.full((rows, self.length), UNSCORED, dtype=np.int64)
        targets[:, -1] = whole[:, -1]
        return whole[:, :-1], targets

    def training_sequences(self, draws: Draws, rows: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        whole = self._whole(draws, 1 + draws.integers(self.operations, rows))
        padding = self.modulus + len(OPERATIONS) + 2
        return whole[:, :-1], np.where(whole[:, 1:] == padding, UNSCORED, whole[:, 1:])

    def shortcuts(self, inputs: NDArray[np.int64], targets: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
        """Zero, the most frequent value, since a product with it is zero."""
        return {"zero": np.zeros_like(targets)}

    def _whole(self, draws: Draws, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Rows with their answer as the last token that is not padding."""
        begin = self.modulus + len(OPERATIONS)
        whole = np.full((len(counts), self.length + 1), begin + 2, dtype=np.int64)
        numbers = draws.integers(self.modulus, (len(counts), self.operations + 1))
        kinds = draws.integers(len(OPERATIONS), (len(counts), self.operations))
        splits = draws.uniforms((len(counts), self.operations))
        for row, count in enumerate(counts.tolist()):
            drawn = zip(kinds[row].tolist(), splits[row].tolist(), strict=True)
            tokens = list[int]()
            value = self._expression(count, iter(numbers[row].tolist()), drawn, tokens)
            line = [begin, begin + 2 + count, *tokens, begin + 1, value]
            whole[row, : len(line)] = line
        return whole

    def _expression(
        self, count: int, numbers: Iterator[int], drawn: Iterator[tuple[int, float]], tokens: list[int]
    ) -> int:
        """Append a random expression with `count` operations; returns its value."""
        if count == 0:
            tokens.append(number := next(numbers))
            return number
        kind, split = next(drawn)
        tokens.append(self.modulus + kind)
        before = int(split * count)
        left = self._expression(before, numbers, drawn, tokens)
        right = self._expression(count - 1 - before, numbers, drawn, tokens)
        return (left + right, left - right, left * right)[kind] % self.modulus


class DepoSpec(ProbeSpec):
    """The k-th successor of a node on a cycle whose edges are shown in random order.

    A sequence is: begin, the edges as pairs of nodes, then up to ten questions of a step count k, a node, and an answer
    mark, each with its answer, which is predicted. In training the cycle has n nodes, 3 <= n <= N, with probability
    proportional to 1/(n + sqrt N), and k is uniform from 1 to K; it is measured at n = N and k = K. Departs from the
    source: nodes are single tokens, and the answer mark is not predicted. Ids: nodes, step counts, begin, answer mark,
    padding.
    """

    kind: Literal["depo"] = "depo"
    """Say the k-th successor of a node on a cycle."""
    nodes: int = Field(default=16, ge=3, le=100_000)
    """Maximum number of nodes N; 75 to 375 in the source."""
    hops: int = Field(default=4, ge=1, le=1000)
    """Maximum number of steps K; 4 to 16 in the source."""

    @model_validator(mode="after")
    def _leaves_the_node(self) -> Self:
        if self.hops >= self.nodes:
            rule = f"the steps must be fewer than the nodes, {self.nodes}: otherwise a walk passes where it began"
            raise refusal(("hops",), self.hops, rule, f"Set `hops: {self.nodes - 1}` or fewer, or raise `nodes`.")
        return self

    @property
    def length(self) -> int:
        return 1 + 2 * self.nodes + 4 * min(10, self.nodes)

    @property
    def vocabulary(self) -> int:
        return self.nodes + self.hops + 3

    @property
    def guesses(self) -> int:
        """Any other node."""
        return self.nodes - 1

    def sequences(self, draws: Draws, rows: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        return self._asked(draws, np.full(rows, self.nodes), lambda shape: np.full(shape, self.hops))

    def training_sequences(self, draws: Draws, rows: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        sizes = np.arange(3, self.nodes + 1)
        shares = np.cumsum(1 / (sizes + np.sqrt(self.nodes)))
        drawn = sizes[np.searchsorted(shares, draws.uniforms(rows) * shares[-1])]
        return self._asked(draws, drawn, lambda shape: 1 + draws.integers(self.hops, shape))

    def _asked(
        self, draws: Draws, sizes: NDArray[np.int64], steps: Callable[[tuple[int, int]], NDArray[np.int64]]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        begin, rows, most = self.nodes + self.hops, len(sizes), min(10, self.nodes)
        inputs = np.full((rows, self.length), begin + 2, dtype=np.int64)
        targets = np.full((rows, self.length), UNSCORED, dtype=np.int64)
        cycles = draws.subsets(self.nodes, self.nodes, rows)
        orders, asked = draws.uniforms((rows, self.nodes)), draws.uniforms((rows, self.nodes))
        hops = steps((rows, most))
        for row, size in enumerate(sizes.tolist()):
            cycle = cycles[row, :size]
            edges = np.stack([cycle, np.roll(cycle, -1)], axis=1)[np.argsort(orders[row, :size], kind="stable")]
            places = np.argsort(asked[row, :size], kind="stable")[:most]
            hop = hops[row, : len(places)]
            answers = cycle[(places + hop) % size]
            marks = np.full(len(places), begin + 1)
            questions = np.stack([self.nodes + hop - 1, cycle[places], marks, answers], axis=1)
            line = np.concatenate([[begin], edges.reshape(-1), questions.reshape(-1)])
            inputs[row, : len(line)] = line
            targets[row, 1 + 2 * size + 2 : len(line) : 4] = answers
        return inputs, targets
