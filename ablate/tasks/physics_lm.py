"""Tasks of language and knowledge of PhysicsLM4 (arXiv:2512.17351).

- `lano`: sentences of a context-free grammar; grammars are after cfg3 of arXiv:2305.13673.
- `capo`: facts about people that only training shows, after bioS (arXiv:2404.05405). How much a model keeps is counted
  in bits: over its parameters, the capacity of its architecture.
"""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from ablate.spec.base import refusal
from ablate.tasks.probe import UNSCORED, Context, ContextProbeSpec, Probe, ProbeSpec, WithMark, generate
from ablate.tasks.sampling import Draws

if TYPE_CHECKING:
    import torch

RULES, LENGTHS = (3, 4), (2, 3)
"""Least and greatest number of rules of a symbol, and of symbols on the right side of a rule."""
GENERATED = 128
"""Sentences that a model writes."""
SEEN = 3
"""Tokens that the trivial baseline sees."""

Grammar = tuple[tuple[tuple[tuple[int, ...], ...], ...], ...]
"""For each level but the last, the rules of each of its symbols; a rule is symbols of the next level."""


class LanoSpec(WithMark, ContextProbeSpec):
    """Sentences of a random grammar of several levels, one after another; every token is predicted.

    Level 0 has one symbol, and all others `symbols`, those of the last being the tokens. A symbol has 3 or 4 rules,
    each of 2 or 3 uniformly random symbols of the next level; all rules of a level differ. A sentence follows a
    uniformly random rule at each symbol. `val_generated_accuracy` is the share of sentences of the grammar among those
    that the model writes at temperature 1, as in the source. Departs from it: grammars are drawn by its rules instead
    of being its own (cfg3f has 6 levels below the first), and every window begins with a sentence. Ids: tokens, then
    the one between sentences.
    """

    kind: Literal["lano"] = "lano"
    """Write sentences of a context-free grammar."""
    context: Context = Field(default=64, ge=4)
    levels: int = Field(default=3, ge=1, le=8)
    """Levels below the first; 6 in the source. A sentence has up to 3 to this power tokens."""
    symbols: int = Field(default=3, ge=2, le=20)
    """Symbols of a level; 3 in the source."""
    grammar: int = Field(default=0, ge=0)
    """Number of the grammar among those of these sizes."""

    @model_validator(mode="after")
    def _has_room(self) -> Self:
        longest = LENGTHS[1] ** self.levels
        if longest >= self.context:
            rule = f"a sentence of {self.levels} levels has up to {longest} tokens, besides one between sentences"
            raise refusal(("context",), self.context, rule, f"Set `context: {longest + 1}`, or fewer `levels`.")
        return self

    @property
    def guesses(self) -> int:
        """Any token."""
        return self.symbols + 1

    @property
    def final_metric_names(self) -> frozenset[str]:
        return frozenset({"val_generated_accuracy"})

    @property
    def rules(self) -> Grammar:
        """The grammar."""
        return _grammar(self.levels, self.symbols, self.grammar)

    def open(self, cache: Path, fingerprint: str) -> Lano:
        """Create the task; no files are read."""
        return Lano(self, fingerprint)

    def sequences(self, draws: Draws, rows: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        whole = np.empty((rows, self.context + 1), dtype=np.int64)
        for row in range(rows):
            line = list[int]()
            while len(line) <= self.context:
                line += [self.symbols, *self.sentence(draws)]
            whole[row] = line[: self.context + 1]
        return whole[:, :-1].copy(), whole[:, 1:].copy()

    def sentence(self, draws: Draws) -> list[int]:
        """A random sentence."""
        line = [0]
        for level in self.rules:
            coins = draws.uniforms(len(line))
            chosen = (level[symbol][int(coin * len(level[symbol]))] for symbol, coin in zip(line, coins, strict=True))
            line = [symbol for rule in chosen for symbol in rule]
        return line

    def shortcuts(self, inputs: NDArray[np.int64], targets: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
        """The most frequent token after the last three, in as many other sequences."""
        return {f"last {SEEN} tokens": self.following(inputs).argmax(axis=-1)}

    def following(self, inputs: NDArray[np.int64]) -> NDArray[np.float64]:
        """How often each token follows the last three, in as many other sequences, [rows, T, V]."""
        others, following = self.sequences(Draws("lano/counted"), len(inputs))
        counts = np.zeros((self.vocabulary**SEEN, self.vocabulary))
        np.add.at(counts, (_windows(others, self.vocabulary), following), 1)
        return np.asarray(counts[_windows(inputs, self.vocabulary)])

    def derives(self, line: list[int]) -> bool:
        """Whether tokens are a sentence: by the ends of all spans of a symbol, level by level from the last."""
        size = len(line)
        ends = [[1 << place + 1 if token == symbol else 0 for place, token in enumerate(line)] + [0]
                for symbol in range(self.symbols)]  # fmt: skip
        for level in reversed(self.rules):
            ends = [[_ends(rules, ends, place, size) for place in range(size)] + [0] for rules in level]
        return bool(size) and bool(ends[0][0] >> size & 1)


class Lano(Probe):
    """The task of a `LanoSpec`."""

    spec: LanoSpec

    def final_metrics(self, model: torch.nn.Module, device: torch.device) -> dict[str, list[float]]:
        """`val_generated_accuracy`, of sentences that begin a window; one that does not end is none."""
        spec, between = self.spec, self.spec.symbols
        longest = LENGTHS[1] ** spec.levels
        inputs = np.full((GENERATED, spec.context), between, dtype=np.int64)
        coins = Draws(f"{self.fingerprint}/generated").uniforms((GENERATED, longest + 1))
        lines = generate(model, self, inputs, np.ones(GENERATED, dtype=np.int64), longest + 1, device, coins)
        written = [[line[1 : longest + 2].tolist() for line in member] for member in lines]
        shares = [
            np.mean([between in line and spec.derives(line[: line.index(between)]) for line in member])
            for member in written
        ]
        return {"val_generated_accuracy": [float(share) for share in shares]}

    def baselines(self) -> dict[str, dict[str, float]]:
        """As of probes; the loss of the last three tokens is that of their counts, with add-one smoothing."""
        (name, *_), (inputs, targets) = self.spec.shortcuts(*self._validation), self._validation
        counts, baselines = self.spec.following(inputs) + 1, super().baselines()
        shares = np.take_along_axis(counts, targets[..., None], 2)[..., 0] / counts.sum(axis=2)
        baselines[name]["val_loss"] = float(-np.log(shares).mean())
        return baselines


def _ends(rules: tuple[tuple[int, ...], ...], below: list[list[int]], place: int, size: int) -> int:
    """Where spans of a symbol that begin at a place end, as the bits of a number."""
    found = 0
    for rule in rules:
        reached = 1 << place
        for symbol in rule:
            starts, reached = reached, 0
            for start in range(place, size):
                if starts >> start & 1:
                    reached |= below[symbol][start]
        found |= reached
    return found


def _windows(tokens: NDArray[np.int64], vocabulary: int) -> NDArray[np.int64]:
    """For each token the number of the last three up to it, in base V, [rows, T]; before the first there are zeros."""
    padded = np.pad(tokens, ((0, 0), (SEEN - 1, 0)))
    found = np.zeros_like(tokens)
    for place in range(SEEN):
        found = found * vocabulary + padded[:, place : place + tokens.shape[1]]
    return found


@cache
def _grammar(levels: int, symbols: int, number: int) -> Grammar:
    draws = Draws(f"lano/{levels}/{symbols}/{number}")

    def between(bounds: tuple[int, int]) -> int:
        return bounds[0] + int(draws.integers(bounds[1] - bounds[0] + 1, 1)[0])

    made = []
    for level in range(levels):
        known, of_level = set[tuple[int, ...]](), []
        for _ in range(1 if level == 0 else symbols):
            rules = list[tuple[int, ...]]()
            for _ in range(between(RULES)):
                while (rule := tuple(draws.integers(symbols, between(LENGTHS)).tolist())) in known:
                    pass
                known.add(rule)
                rules.append(rule)
            of_level.append(tuple(rules))
        made.append(tuple(of_level))
    return tuple(made)


NAMES = 3
"""Tokens of a name: first, middle and last."""


class CapoSpec(ProbeSpec):
    """Biographies of people drawn at random: a name of three tokens, then a value of each attribute, in one order.

    Names are distinct, and values uniformly random, the same in all sequences; they are never shown but in training,
    where every token is predicted. It is measured at the values. `val_bits` is what the model knows of all people: the
    bits of their values minus those that it still lacks (equation 4.1 of arXiv:2404.05405 without the names). Departs
    from bioS: a name and a value are tokens instead of words, without sentences around them; the city of an employer,
    which follows from it, is left out. Ids: first, middle and last names, then the values of each attribute.
    """

    metric_names: ClassVar[frozenset[str]] = ProbeSpec.metric_names | {"val_bits"}
    length_field: ClassVar[str] = "biographies"

    kind: Literal["capo"] = "capo"
    """Say what is known of people; the bits that fit into a model."""
    people: int = Field(default=512, ge=2, le=1_000_000)
    """Number of people; 50,000 to 2,000,000 in the source, each shown a hundred times."""
    names: int = Field(default=20, ge=2, le=100)
    """Number of first names, of middle names and of last names."""
    attributes: tuple[Annotated[int, Field(ge=2, le=100_000)], ...] = Field(
        default=(12, 28, 200, 200, 300, 100, 263), min_length=1
    )
    """Number of values of each attribute: month, day and year of birth, city, university, field and employer."""
    biographies: int = Field(default=4, ge=1, le=10_000)
    """Biographies in a sequence."""

    @model_validator(mode="after")
    def _has_a_name_for_each(self) -> Self:
        if self.people > self.names**NAMES:
            least = math.ceil(self.people ** (1 / NAMES) - 1e-9)
            rule = f"names are distinct, and {self.names} first, middle and last names give {self.names**NAMES}"
            raise refusal(("people",), self.people, rule, f"Set `names: {least}`, or fewer people.")
        return self

    @property
    def length(self) -> int:
        return self.biographies * (NAMES + len(self.attributes)) - 1

    @property
    def vocabulary(self) -> int:
        return NAMES * self.names + sum(self.attributes)

    @property
    def guesses(self) -> int:
        """The geometric mean of the numbers of values."""
        return round(math.exp(self.nats / len(self.attributes)))

    @property
    def nats(self) -> float:
        """Information in the values of a person."""
        return math.fsum(map(math.log, self.attributes))

    def open(self, cache: Path, fingerprint: str) -> Capo:
        """Create the task; no files are read."""
        return Capo(self, fingerprint)

    def sequences(self, draws: Draws, rows: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        inputs, following = self.training_sequences(draws, rows)
        places = np.arange(1, self.length + 1) % (NAMES + len(self.attributes))
        return inputs, np.where(places < NAMES, UNSCORED, following)

    def training_sequences(self, draws: Draws, rows: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        known = _people(self.people, self.names, self.attributes)
        whole = known[draws.integers(self.people, (rows, self.biographies))].reshape(rows, -1)
        return whole[:, :-1].copy(), whole[:, 1:].copy()


class Capo(Probe):
    """The task of a `CapoSpec`."""

    spec: CapoSpec

    def metrics(self, sums: dict[str, list[Any]]) -> dict[str, list[float]]:
        """As of probes, and `val_bits`, at least 0, of all people together."""
        metrics, spec = super().metrics(sums), self.spec
        lacking = (loss * len(spec.attributes) for loss in metrics["val_loss"])
        bits = [spec.people * max(0.0, spec.nats - nats) / math.log(2) for nats in lacking]
        return metrics | {"val_bits": bits}

    def baselines(self) -> dict[str, dict[str, float]]:
        """`guess`: any value of the attribute."""
        sizes = np.array(self.spec.attributes)
        loss = self.spec.nats / len(sizes)
        solved = float((1 / sizes).prod()) ** self.spec.biographies
        chances = {"val_accuracy": float((1 / sizes).mean()), "val_sequence_accuracy": solved}
        return {"guess": {"val_loss": loss, **chances, "val_bits": 0.0}}


@cache
def _people(people: int, names: int, attributes: tuple[int, ...]) -> NDArray[np.int64]:
    """The tokens of every biography, [people, names and attributes]."""
    draws = Draws(f"capo/{people}/{names}/{attributes}")
    number = draws.subsets(names**NAMES, people, 1)[0]
    named = [number // names**place % names + place * names for place in range(NAMES)]
    starts = NAMES * names + np.cumsum([0, *attributes])
    values = [start + draws.integers(size, people) for start, size in zip(starts[:-1], attributes, strict=True)]
    return np.stack([*named, *values], axis=1)
