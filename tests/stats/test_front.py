"""The Pareto front against its definition, written out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ablate.stats import dominators

numbers = st.integers(-3, 3).map(float)


@given(st.integers(2, 3).flatmap(lambda n: st.lists(st.tuples(*[numbers] * n), max_size=12)), st.data())
def test_against_the_definition(points: list[tuple[float, ...]], data: st.DataObject) -> None:
    width = len(points[0]) if points else 2
    directions = data.draw(st.lists(st.sampled_from(["minimize", "maximize"]), min_size=width, max_size=width))

    def dominates(left: tuple[float, ...], right: tuple[float, ...]) -> bool:
        pairs = [
            (one, other) if way == "maximize" else (other, one)
            for one, other, way in zip(left, right, directions, strict=True)
        ]
        return all(one >= other for one, other in pairs) and any(one > other for one, other in pairs)

    expected = [[i for i, left in enumerate(points) if dominates(left, right)] for right in points]
    assert dominators(points, directions) == expected
