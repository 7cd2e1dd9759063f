"""Tasks of reasoning of PhysicsLM4 (arXiv:2512.17351): Mano, arithmetic in the head; Depo, steps along a cycle; Brevo,
sorting what a vertex of a graph depends on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from ablate.spec.base import refusal
from ablate.tasks.probe import UNSCORED, Probe, ProbeSpec, generate
from ablate.tasks.sampling import Draws

if TYPE_CHECKING:
    import torch

    from ablate.spec.task import Batch

OPERATIONS = ("+", "-", "*")
DEGREE = 4
"""Of a graph, the most that a vertex depends on, and the most that depend on it."""
GENERATED = 128
"""Validation sequences for which a model reads its own answers."""


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
        return self._asked(draws, _sizes(draws, self.nodes, rows), lambda shape: 1 + draws.integers(self.hops, shape))

    def shown(self, inputs: NDArray[np.int64]) -> NDArray[np.int64]:
        """The successors in the edges; each answers one question of a step count."""
        place, end = np.arange(inputs.shape[1]), 2 * self.nodes
        edges = (place > 0) & (place <= end) & (place % 2 == 0)
        answers = (place > end) & ((place - end) % 4 == 0)
        return np.broadcast_to(edges.astype(np.int64) - answers, inputs.shape)

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


class BrevoSpec(ProbeSpec):
    """All that a vertex of a directed graph depends on, in an order where each comes after what it depends on itself.

    A sequence is: begin, the edges as pairs of a vertex and one that depends on it, in random order, question mark, a
    vertex, answer mark, the order, end. Graphs are those of the source: every vertex but the first ones depends on one
    to four that have fewer than four dependants, and the last one is asked for. In training a graph has n vertices, 3
    <= n <= N, with probability proportional to 1/(n + sqrt N); it is measured at n = N. The order and the end are
    predicted. An answer is right if it may come next after the answers before it, since several orders are right; a
    sequence if all are. `val_generated_accuracy` is the share of sequences that the model solves when it reads its own
    answers, as in the source. Departs from it: the answer mark is not predicted. Ids: vertices, begin, question mark,
    answer mark, end, padding.
    """

    kind: Literal["brevo"] = "brevo"
    """Sort what a vertex of a graph depends on."""
    nodes: int = Field(default=12, ge=3, le=2000)
    """Maximum number of vertices N; 70 to 110 in the source."""

    @property
    def length(self) -> int:
        return 2 * sum(min(vertex, DEGREE) for vertex in range(self.nodes)) + self.nodes + 4

    @property
    def vocabulary(self) -> int:
        return self.nodes + 5

    @property
    def guesses(self) -> int:
        """Any vertex, or the end."""
        return self.nodes + 1

    @property
    def final_metric_names(self) -> frozenset[str]:
        return frozenset({"val_generated_accuracy"})

    def open(self, cache: Path, fingerprint: str) -> Brevo:
        """Create the task; no files are read."""
        return Brevo(self, fingerprint)

    def sequences(self, draws: Draws, rows: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        return self._sorted(draws, np.full(rows, self.nodes))

    def training_sequences(self, draws: Draws, rows: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        return self._sorted(draws, _sizes(draws, self.nodes, rows))

    def _sorted(self, draws: Draws, sizes: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        begin, rows = self.nodes, len(sizes)
        inputs = np.full((rows, self.length), begin + 4, dtype=np.int64)
        targets = np.full((rows, self.length), UNSCORED, dtype=np.int64)
        named = draws.subsets(self.nodes, self.nodes, rows)
        coins = draws.uniforms((rows, self.nodes, 3 + DEGREE))
        shuffled = draws.uniforms((rows, DEGREE * self.nodes))
        for row, size in enumerate(sizes.tolist()):
            parents = _graph(size, coins[row])
            edges = np.array([(parent, child) for child in range(size) for parent in parents[child]])
            edges = edges[np.argsort(shuffled[row, : len(edges)], kind="stable")]
            order = _any_order(parents, coins[row, :, -1])
            name = named[row]
            question = [begin + 1, name[size - 1], begin + 2]
            line = np.concatenate([[begin], name[edges.reshape(-1)], question, name[order], [begin + 3]])
            inputs[row, : len(line) - 1] = line[:-1]
            targets[row, len(line) - 2 - len(order) : len(line) - 1] = line[-1 - len(order) :]
        return inputs, targets


class Brevo(Probe):
    """The task of a `BrevoSpec`. Validation batches also say when each id may be answered, and which answer is asked.

    Shapes: K pack, B batch, T tokens, V vocabulary.
    """

    spec: BrevoSpec

    def validation_batches(self, batch_size: int) -> Iterator[Batch]:
        """As those of probes, with `first` and `last` [B, V], between which an id may be answered; `last` -1: never."""
        return self._with_spans(super().validation_batches(batch_size))

    def test_batches(self, batch_size: int) -> Iterator[Batch]:
        return self._with_spans(super().test_batches(batch_size))

    def _with_spans(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        import torch

        for batch in batches:
            first, last = self._spans(batch["inputs"].numpy(), batch["targets"].numpy())
            yield {**batch, "first": torch.from_numpy(first), "last": torch.from_numpy(last)}

    def _spans(
        self, inputs: NDArray[np.int64], targets: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """For each id the first answer that it may be, given the answers before, and the last; [B, V] each."""
        first = np.zeros((len(inputs), self.spec.vocabulary), dtype=np.int64)
        last = np.full_like(first, -1)
        for row, (line, asked) in enumerate(zip(inputs.tolist(), targets.tolist(), strict=True)):
            parents, order = _edges_of(line, self.spec.nodes), [token for token in asked if token != UNSCORED]
            place = {token: number for number, token in enumerate(order)}
            for token, number in place.items():
                last[row, token] = number
                first[row, token] = max((place[parent] + 1 for parent in parents.get(token, ())), default=0)
            first[row, order[-1]] = len(order) - 1
        return first, last

    def measure(self, outputs: torch.Tensor, batch: Batch) -> dict[str, torch.Tensor]:
        """As of probes, where every id that may come next is right."""
        totals, targets = super().measure(outputs, batch), batch["targets"]
        scored = targets != UNSCORED
        answer = scored.cumsum(-1) - 1
        said = outputs.argmax(-1)
        right = scored & (batch["first"].gather(2, said) <= answer) & (answer <= batch["last"].gather(2, said))
        solved = (right | ~scored).all(-1)
        return totals | {"right": right.flatten(1).double().sum(1), "solved": solved.double().sum(1)}

    def final_metrics(self, model: torch.nn.Module, device: torch.device) -> dict[str, list[float]]:
        """`val_generated_accuracy`, of the first validation sequences."""
        inputs, targets = (part[:GENERATED] for part in self._validation)
        starts = (targets != UNSCORED).argmax(axis=1) + 1
        lines = generate(model, self, inputs, starts, self.spec.nodes + 1, device)
        shares = [np.mean([self.solves(line, start) for line, start in zip(own, starts, strict=True)]) for own in lines]
        return {"val_generated_accuracy": [float(share) for share in shares]}

    def solves(self, line: NDArray[np.int64], start: int) -> bool:
        """Whether a sequence is an order of all that its vertex depends on, and ends."""
        end, nodes = self.spec.nodes + 3, self.spec.nodes
        parents, needed = _edges_of(line.tolist(), nodes), set[int]()
        open_ = [int(line[start - 2])]
        while open_:
            vertex = open_.pop()
            if vertex not in needed:
                needed.add(vertex)
                open_ += parents.get(vertex, [])
        said = line[start:].tolist()
        said = said[: said.index(end)] if end in said else [end]
        before = [set(said[:place]) for place in range(len(said))]
        ordered = all(before[place].issuperset(parents.get(token, ())) for place, token in enumerate(said))
        return len(said) == len(needed) and set(said) == needed and ordered

    def baselines(self) -> dict[str, dict[str, float]]:
        """`guess`: any vertex, or the end; `not said yet`: any that is none of the answers before."""
        inputs, targets = self._validation
        first, last = self._spans(inputs, targets)
        choices, chances = np.full(targets.shape, self.spec.guesses), np.zeros(targets.shape)
        scored = targets != UNSCORED
        said = scored.cumsum(axis=1) - 1
        for answer in range(int(said.max()) + 1):
            right = ((first <= answer) & (answer <= last)).sum(axis=1, keepdims=True)
            chances = np.where(scored & (said == answer), right, chances)
        return {
            name: {
                "val_loss": float(np.log(of[scored]).mean()),
                "val_accuracy": float((chances / of)[scored].mean()),
                "val_sequence_accuracy": self._solved(chances / of),
            }
            for name, of in (("guess", choices), ("not said yet", np.where(scored, choices - said, choices)))
        }


def _sizes(draws: Draws, most: int, rows: int) -> NDArray[np.int64]:
    """Numbers n from 3 to `most`, with probability proportional to 1/(n + sqrt most)."""
    sizes = np.arange(3, most + 1)
    shares = np.cumsum(1 / (sizes + np.sqrt(most)))
    drawn: NDArray[np.int64] = sizes[np.searchsorted(shares, draws.uniforms(rows) * shares[-1])]
    return drawn


def _graph(size: int, coins: NDArray[np.float64]) -> list[list[int]]:
    """For each vertex those that it depends on; `coins` are uniform, [>= size, >= 2 + DEGREE]."""
    parents: list[list[int]] = [[] for _ in range(size)]
    dependants = [0] * size
    sources = 1 + int(coins[0, 0] * ((size - 1) // 4 + 1))
    for vertex in range(sources, size):
        free = [other for other in range(vertex) if dependants[other] < DEGREE]
        count = 1 + int(coins[vertex, 1] * min(len(free), DEGREE))
        for coin in coins[vertex, 2 : 2 + count]:
            parent = free.pop(int(coin * len(free)))
            parents[vertex].append(parent)
            dependants[parent] += 1
    return parents


def _any_order(parents: list[list[int]], coins: NDArray[np.float64]) -> list[int]:
    """The last vertex and all that it depends on, each after what it depends on itself; drawn as in the source."""
    needed, found = [len(parents) - 1], {len(parents) - 1}
    for vertex in needed:
        fresh = [parent for parent in parents[vertex] if parent not in found]
        found.update(fresh)
        needed += fresh
    waiting = dict.fromkeys(needed, 0)
    for vertex in needed:
        for parent in parents[vertex]:
            waiting[parent] += 1
    free, order = [len(parents) - 1], list[int]()
    for coin in coins[: len(needed)]:
        vertex = free.pop(int(coin * len(free)))
        order.append(vertex)
        for parent in parents[vertex]:
            waiting[parent] -= 1
            if not waiting[parent]:
                free.append(parent)
    return order[::-1]


def _edges_of(line: list[int], nodes: int) -> dict[int, list[int]]:
    """What each vertex of a sequence depends on."""
    parents: dict[int, list[int]] = {}
    for place in range(1, line.index(nodes + 1), 2):
        parents.setdefault(line[place + 1], []).append(line[place])
    return parents
