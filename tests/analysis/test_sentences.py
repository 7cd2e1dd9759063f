"""Sentences of an answer, and what rows say, made from rows that hold only what each needs."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from ablate.analysis.changes import Change
from ablate.analysis.rows import JudgingRule, MeasuredCourse, VariantRow, reference_words
from ablate.analysis.sentences import (
    _bound_in_words,
    _Naming,
    _why_few,
    advised_seeds,
    answer_sentences,
    best_sentence,
    confirmed_sentences,
)
from ablate.stats import Allowance, Direction, Interval, SeedSchedule, Tails, Verdict
from ablate.stats.bounds import Bounds
from ablate.stats.further import advised_schedule

RULE = JudgingRule("val_loss", "minimize", 0.1, None, "seed", "steps", adds_seeds=False, relative=False)
SHARE, LARGER = replace(RULE, relative=True), replace(RULE, direction="maximize")


def row(further: int | None = None, bound: Bounds | None = None, **facts: Any) -> Any:
    return SimpleNamespace(verdict=Verdict("undecided", "", further, bound=bound), **facts)


@pytest.mark.parametrize(
    ("low", "high", "rule", "said"),
    [
        (0.1004, 0.5, RULE, "val_loss at least 0.1004 higher"),
        (0.1004, 0.5, SHARE, "val_loss at least 10.04 % higher"),
        (-0.5, -0.1004, LARGER, "val_loss at least 0.1004 higher"),
        (-0.5, -0.1004, SHARE, "val_loss at least 10.04 % lower"),
        (-0.5, 0.0, RULE, "val_loss at most 0 higher"),
        (-0.5, 0.0996, RULE, "val_loss at most 0.0996 higher"),
        (-0.5, 0.0996, SHARE, "val_loss at most 9.96 % higher"),
    ],
)
def test_a_bound_in_words_shows_on_which_side_of_the_margin_it_lies(
    low: float, high: float, rule: JudgingRule, said: str
) -> None:
    bound = Bounds((low + high) / 2, low, high, 3)
    for longer in ("", "trained longer"):
        assert _bound_in_words(row(bound=bound, longer=longer), rule) == said + (longer and f", {longer}")


def point(name: str, mean: float | None, **facts: Any) -> Any:
    defaults = {"verdict": None, "chosen": False, "confirmed": (), "beside": None, "awaits": "", "diverged": ()}
    metrics = {"val_loss": Interval(mean, None, None, 3)}
    return SimpleNamespace(name=name, **{"metrics": metrics} | defaults | facts)


@pytest.mark.parametrize(
    ("direction", "means", "best"),
    [("minimize", [1.25, 1.5], "2 points is that of a: 1.25"), ("maximize", [1.25, 1.5], "2 points is that of b: 1.50"),
     ("minimize", [1.5, 1.25, -0.5], "3 points is that of c: -0.50"), ("minimize", [1.25], ""),
     ("minimize", [1.25, None], ""), ("maximize", [], "")],
)  # fmt: skip
def test_the_best_of_the_points_that_did_not_diverge_is_named(
    direction: Direction, means: list[float | None], best: str
) -> None:
    points = [point(name, mean) for name, mean in zip("abc", means, strict=False)]
    points += [point("low", -9.0, diverged=(3,)), point("high", 9.0, diverged=(3,)), point("new", 0.0, metrics={})]
    advice = "Selection makes this estimate optimistic; train it with fresh seeds before you rely on the number."
    found = best_sentence(points, "val_loss", direction, 0.1)
    assert found == ((f"The best mean val_loss of {best}. {advice}",) if best else ())


@pytest.mark.parametrize(
    ("of_best", "said"),
    [
        ({}, "over fresh seeds it is 3.00"),
        ({"chosen": True}, "train it with fresh seeds before you rely on the number"),
        ({"verdict": "any"}, "train it with fresh seeds before you rely on the number"),
        ({"confirmed": (7, 8)}, "its difference from the baseline and its verdict rest on 2 fresh seeds"),
        ({"confirmed": (7,)}, "its difference from the baseline and its verdict rest on 1 fresh seed"),
        ({"confirmed": (7,), "awaits": "0 of 1 seed have ended"}, "0 of 1 fresh seed have ended"),
        ({"awaits": "0 of 1 seed have ended"}, "over fresh seeds it is 3.00"),
    ],
)
def test_what_makes_the_best_number_reliable_depends_on_how_its_point_came_to_be(
    of_best: dict[str, Any], said: str
) -> None:
    """A point without a verdict that results did not choose is the baseline, beside which others were confirmed."""
    points = [point("a", 2.0, **of_best), point("b", 2.5, beside=3.0, confirmed=(7,)), point("c", 2.5)]
    (found,) = best_sentence(points, "val_loss", "minimize", 0.1)
    assert found.endswith(f"optimistic; {said}.")


@pytest.mark.parametrize(
    ("of_rows", "expected"),
    [
        ([], None),
        ([(4, None, 4)], None),
        ([(4, 6, 4)], (4, 6, 0)),
        ([(4, 6, 7)], (4, 6, 3)),  # three seeds have no pair
        ([(4, 6, 1)], (4, 6, 0)),  # fresh seeds, more than were planned to choose by
        ([(6, 1, 6), (None, None, 4), (4, 9, 4)], (4, 9, 0)),
        ([(4, 2, 4), (4, 10_000, 4)], (4, 2, 0)),  # no schedule is that long
    ],
)
def test_the_schedule_that_is_advised_is_the_longest_that_some_comparison_needs(
    of_rows: list[tuple[int | None, int | None, int]], expected: tuple[int, int, int] | None
) -> None:
    rows = [
        row(further, planned=(*range(planned),), difference=pairs and SimpleNamespace(n=pairs))
        for pairs, further, planned in of_rows
    ]
    assert advised_seeds(rows, None) == (None if expected is None else advised_schedule(*expected))
    assert advised_seeds(rows, SeedSchedule(3, 9)) is None


@pytest.mark.parametrize(
    ("of_baseline", "own", "unit", "said"),
    [
        ({}, {}, "seed", "at least 2 paired seeds are required"),
        ({"diverged": (3,)}, {}, "seed", "the baseline diverged at seed 3 (at 3)"),
        ({"diverged": (3, 5), "failed": (7,)}, {"failed": (2, 4, 9)}, "seed",
         "the baseline diverged at seeds 3 and 5 (at 3); the baseline failed at seed 7 (at 7); its trials failed at "
         "seeds 2, 4 and 9 (at 2)"),
        ({"failed": (3,)}, {"diverged": (3, 5)}, "task",
         "the baseline failed at 1 task (at 3); its trials diverged at 2 tasks (at 3)"),
    ],
)  # fmt: skip
def test_too_few_pairs_are_explained_by_the_trials_that_were_lost(
    of_baseline: dict[str, tuple[int, ...]], own: dict[str, tuple[int, ...]], unit: str, said: str
) -> None:
    def trials(seeds: tuple[int, ...]) -> list[Any]:
        return [SimpleNamespace(seed=seed, reason=f"at {seed}\nTraceback") for seed in seeds]

    known: dict[str, tuple[int, ...]] = {"diverged": (), "failed": ()}
    baseline, other = (
        row(None, None, **{how: trials(seeds) for how, seeds in (known | lost).items()}) for lost in (of_baseline, own)
    )
    assert _why_few(other, baseline, 2, unit) == said


@pytest.mark.parametrize("count", [3, 4])
def test_four_variants_that_change_several_things_are_called_by_their_names(count: int) -> None:
    both = Change(("the norm", "the skip"), (), combines=True)
    rows = [row(name=of, change=replace(both, removed=(*both.removed, of))) for of in "0123"[:count]]
    naming = _Naming.of(rows)
    assert naming.whole(rows[0]) == ("removing the norm, the skip and 0 together" if count == 3 else "0")
    assert naming.removed(rows[0]) == ("the norm, the skip and 0" if count == 3 else "what 0 leaves out")


def test_verdicts_that_rest_on_fresh_seeds_are_told_in_their_number() -> None:
    rows = [row(name=name, confirmed=(7, 8), awaits="") for name in "ab"]
    others = [row(confirmed=(), awaits=""), row(confirmed=(7,), awaits="0 of 1 seeds"),
              SimpleNamespace(confirmed=(7,), verdict=None)]  # fmt: skip
    end = "on 2 fresh seeds that took no part in the choice."
    assert list(confirmed_sentences(others)) == []
    assert list(confirmed_sentences([*others, rows[0]])) == [f"a was chosen by results; its verdict rests {end}"]
    assert list(confirmed_sentences([*others, *rows])) == [f"a and b were chosen by results; their verdicts rest {end}"]


@pytest.mark.parametrize(
    ("others", "said"),
    [
        ((), "The study has no variant besides its baseline, so there is nothing to compare."),
        (("chosen",), ""), (("chosen", "pruned"), ""),
        (("pruned",), "No variant can be compared with the baseline: the others were pruned, and have no final value."),
        (("diverged",), "No variant can be compared with the baseline."),
        (("diverged", "chosen"), "No variant can be compared with the baseline."),
        (("diverged", "pruned"), "No variant can be compared with the baseline."),
    ],
)  # fmt: skip
def test_an_answer_without_a_comparison_says_why(others: tuple[str, ...], said: str) -> None:
    rows: list[Any] = [
        SimpleNamespace(name=how, change=Change(), chosen=how == "chosen", pruned=how == "pruned",
                        verdict=Verdict("diverged", "", None) if how == "diverged" else None)
        for how in ("baseline", *others)
    ]  # fmt: skip
    assert answer_sentences(rows, rows[0], set(), RULE) == ((said,) if said else ())


@pytest.mark.parametrize(
    ("moved", "word", "provisional"),
    [(0.5, "needed", False), (0.51, "needed", True), (-0.51, "not needed", True), (None, "needed", False),
     (0.51, "undecided", False)],
)  # fmt: skip
def test_a_verdict_is_provisional_where_its_difference_still_moves_by_more_than_the_margin(
    moved: float | None, word: Any, provisional: bool
) -> None:
    course = SimpleNamespace(movement=SimpleNamespace(difference=moved))
    of: Any = SimpleNamespace(verdict=Verdict(word, "", None), course=course)
    assert VariantRow.provisional(of, 0.5) == provisional


@pytest.mark.parametrize(
    ("baseline", "others", "said"),
    [("baseline", ("a", "baseline"), "the baseline"), ("plainest", ("a",), "the baseline"),
     ("plainest", ("a", "baseline"), "plainest")],
)  # fmt: skip
def test_the_reference_is_named_where_another_variant_is_called_baseline(
    baseline: str, others: tuple[str, ...], said: str
) -> None:
    rows: list[Any] = [SimpleNamespace(name=name) for name in (baseline, *others)]
    assert reference_words(rows[0], rows) == said


@pytest.mark.parametrize(("rule", "side"), [(RULE, 1.0), (LARGER, -1.0)])
def test_a_point_of_a_course_allows_for_what_the_final_comparison_does(rule: JudgingRule, side: float) -> None:
    """What was spent is not known after the first step if nobody counted it."""
    spent = ({0: (0.0, 0.0), 9: (0.0, 4.0)}, {0: (0.0, 0.0), 9: (0.0, 8.0)})
    gaps = [[side * gap for gap in (0.06, 0.061, 0.062)]] * 2
    plain = MeasuredCourse((0, 9), gaps, spent, rule, Allowance(), replaces=False)
    first, last = plain.points()
    assert (first.tokens, first.flops, last.tokens, last.flops) == (0.0, 0.0, None, 6.0)
    tails = Tails(2.0, 1.0, 3, low=False, high=True)  # of how much worse it is
    wider = replace(plain, allowance=Allowance(tails=tails)).points()[0]
    assert (first.word, wider.word) == ("not needed", "undecided")
    ends = [(one.high if side > 0 else one.low) or 0.0 for one in (first, wider)]
    assert side * (ends[1] - ends[0]) > 1


@pytest.mark.parametrize(("diverged", "word"), [((3,), "needed"), ((), "diverged")])
def test_a_variant_is_lost_that_diverged_on_its_seeds_or_on_fresh_ones(diverged: tuple[int, ...], word: Any) -> None:
    of: Any = SimpleNamespace(unreached=1, finished=(0, 1), diverged=(3,), pruned=True, verdict=None)
    assert VariantRow.lost.fget(of) == "diverged"  # type: ignore[attr-defined]
    of = SimpleNamespace(unreached=0, diverged=diverged, pruned=True, verdict=Verdict(word, "", None))
    assert VariantRow.lost.fget(of) == "diverged"  # type: ignore[attr-defined]
