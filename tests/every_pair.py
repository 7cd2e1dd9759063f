"""Pairwise test parameters: every pair of values of two axes occurs in some case, instead of every combination."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import combinations, product
from typing import Any

import pytest


def every_pair(axes: Mapping[str, Iterable[Any]]) -> pytest.MarkDecorator:
    """Cases in which each value of an axis meets each value of any other.

    Args:
        axes: Values by the name of a parameter, or by several names with commas between, whose values are tuples.
    """
    values = [list(axis) for axis in axes.values()]
    pairs = {case: set(combinations(enumerate(case), 2)) for case in product(*(range(len(axis)) for axis in values))}
    missing, cases = set().union(*pairs.values()), []
    while missing:
        case = max(pairs, key=lambda case: len(pairs[case] & missing))
        missing -= pairs[case]
        cases.append([axis[place] for axis, place in zip(values, case, strict=True)])
    names = [name.split(",") for name in axes]
    flat = [
        [one for of, value in zip(names, case, strict=True) for one in (value if len(of) > 1 else [value])]
        for case in cases
    ]
    return pytest.mark.parametrize(", ".join(axes), flat)
