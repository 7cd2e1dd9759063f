"""Dotted paths into plain data."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ablate.spec.paths import assign, leaves

NAMES = st.text("abc_", min_size=1, max_size=3)
VALUES = st.none() | st.integers() | st.text(max_size=3) | st.lists(st.integers(), max_size=2)
TREES = st.dictionaries(NAMES, st.recursive(VALUES, lambda below: st.dictionaries(NAMES, below, max_size=3)))


@given(TREES)
def test_the_leaves_of_nested_mappings_put_back_make_the_same_mappings(plain: dict[str, object]) -> None:
    again: dict[str, object] = {}
    for path, value in leaves(plain).items():
        assign(again, path, value)
    assert again == plain
