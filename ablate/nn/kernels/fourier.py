"""Efficient lengths of fast Fourier transforms, and their cost."""

from __future__ import annotations

import math

from ablate.spec.cost import Cost


def fast_length(least: int) -> int:
    """The smallest even number of at least `least` with no prime factor above 5."""
    length = least + least % 2
    while not _is_smooth(length):
        length += 2
    return length


def fourier_cost(length: int, transforms: int, *, real: bool) -> Cost:
    """Cost of discrete Fourier transforms by radix 2; log₂ is not rounded if `length` is no power of 2.

    A butterfly (one complex product, two complex sums) is 4 products and 6 sums, and there are N/2·log₂N of them; a
    transform from or to real numbers needs half.
    """
    butterflies = transforms * length * math.log2(length) / (4 if real else 2)
    return Cost(multiplications=round(4 * butterflies), additions=round(6 * butterflies))


def _is_smooth(number: int) -> bool:
    for prime in (2, 3, 5):
        while number % prime == 0:
            number //= prime
    return number == 1
