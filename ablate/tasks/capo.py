"""`capo`: facts about people that only training shows, after bioS (arXiv:2512.17351, Capo; arXiv:2404.05405).

How much a model keeps is counted in bits: over its parameters, the capacity of its architecture.
"""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from ablate.spec.base import refusal
from ablate.tasks.probe import UNSCORED, Probe, ProbeSpec
from ablate.tasks.sampling import Draws

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
