"""The cost of a part of a model, known before training: parameters, arithmetic, activation memory."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from dataclasses import dataclass, fields

BYTES = 4
"""Bytes of a number in single precision."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Counts for the forward pass over one sequence of one pack member.

    Attributes:
        parameters: Trainable parameters.
        multiplications: Scalar multiplications.
        additions: Scalar additions and subtractions.
        divisions: Scalar divisions.
        exponentiations: Scalar exponentials.
        activations: Scalars kept for the backward pass.
    """

    parameters: int = 0
    multiplications: int = 0
    additions: int = 0
    divisions: int = 0
    exponentiations: int = 0
    activations: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(*map(operator.add, _counts(self), _counts(other)))

    def __mul__(self, times: int) -> Cost:
        return self if times == 1 else Cost(*(count * times for count in _counts(self)))

    @property
    def flops(self) -> int:
        """Number of arithmetic operations of the forward pass."""
        return self.multiplications + self.additions + self.divisions + self.exponentiations

    @property
    def activation_bytes(self) -> int:
        """Bytes kept for the backward pass, in single precision."""
        return BYTES * self.activations


_counts = operator.attrgetter(*(field.name for field in fields(Cost)))


def total_cost(costs: Iterable[Cost]) -> Cost:
    """The sum, made at once: a large plan adds up many costs."""
    return Cost(*map(sum, zip(*map(_counts, costs), strict=True)))


def linear_cost(tokens: int, inputs: int, outputs: int, *, bias: bool = False) -> Cost:
    """Cost of a dense layer on `tokens` rows, inputs·outputs products and (inputs - 1)·outputs sums each plus bias."""
    return Cost(
        parameters=inputs * outputs + (outputs if bias else 0),
        multiplications=tokens * inputs * outputs,
        additions=tokens * ((inputs - 1) * outputs + (outputs if bias else 0)),
        activations=tokens * inputs,
    )
