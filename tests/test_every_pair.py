"""Values of several axes that meet in pairs."""

from __future__ import annotations

from itertools import combinations, product

from every_pair import every_pair


def test_each_two_values_meet_in_fewer_cases_than_all() -> None:
    letters, numbers, signs = "abc", [(1, "x"), (2, "y"), (3, "x")], [True, False]
    names, cases = every_pair({"letter": letters, "number, word": numbers, "sign": signs}).args
    assert names == "letter, number, word, sign"
    axes = [letters, numbers, signs]
    for (one, first), (other, second) in combinations(enumerate(axes), 2):
        met = {
            ((case[0], tuple(case[1:3]), case[3])[one], (case[0], tuple(case[1:3]), case[3])[other]) for case in cases
        }
        assert met == set(product(first, second))
    assert 9 <= len(cases) < 18
