"""Sentences of an answer, made from rows that hold only what each needs."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from ablate.analysis.changes import Change
from ablate.analysis.rows import JudgingRule
from ablate.analysis.sentences import (
    _bound_in_words,
    _Naming,
    _why_few,
    advised_seeds,
    best_sentence,
    confirmed_sentences,
    joint_sentence,
    window_sentences,
)
from ablate.stats import Direction, Interval, SeedSchedule, Verdict
from ablate.stats.bounds import Bounds
from ablate.stats.further import advised_schedule

RULE = JudgingRule("val_loss", "minimize", 0.1, None, "seed", "steps", adds_seeds=False, relative=False)
SHARE, LARGER = replace(RULE, relative=True), replace(RULE, direction="maximize")


def row(word: Any = "not needed", name: str = "a", **facts: Any) -> Any:
    defaults: dict[str, Any] = {"confirmed": (), "awaits": "", "longer": "", "change": Change()}
    verdict = Verdict(word, word, facts.pop("further", None), bound=facts.pop("bound", None))
    return SimpleNamespace(name=name, verdict=verdict, **defaults | facts)


@pytest.mark.parametrize(
    ("low", "high", "rule", "said"),
    [
        (0.1004, 0.5, RULE, "val_loss at least 0.1004 higher"),
        (0.1004, 0.5, LARGER, "val_loss at least 0.1004 lower"),
        (0.1004, 0.5, SHARE, "val_loss at least 10.04 % higher"),
        (-0.5, -0.1004, RULE, "val_loss at least 0.1004 lower"),
        (-0.5, -0.1004, LARGER, "val_loss at least 0.1004 higher"),
        (-0.5, -0.1004, SHARE, "val_loss at least 10.04 % lower"),
        (-0.5, 0.0, RULE, "val_loss at most 0 higher"),
        (-0.5, 0.0996, RULE, "val_loss at most 0.0996 higher"),
        (-0.5, 0.0996, LARGER, "val_loss at most 0.0996 lower"),
        (-0.5, 0.0996, SHARE, "val_loss at most 9.96 % higher"),
    ],
)
def test_a_bound_in_words_shows_on_which_side_of_the_margin_it_lies(
    low: float, high: float, rule: JudgingRule, said: str
) -> None:
    bound = Bounds((low + high) / 2, low, high, 3)
    assert _bound_in_words(row(bound=bound), rule) == said
    assert _bound_in_words(row(bound=bound, longer="trained longer"), rule) == f"{said}, trained longer"


ALONE = "verdicts holds individually with 95 % confidence. Jointly, at a family-wise error rate of 5 %,"


@pytest.mark.parametrize(
    ("words", "together", "said"),
    [
        (["needed"], "a", ""),
        (["needed", "undecided", "diverged"], "a", ""),
        (["needed", "needed"], "ab", "These 2 verdicts also hold jointly: with 95 % confidence none of them is wrong"),
        (["worse", "not worse", "needed", "better", "not needed", "undecided"], "abcde",
         'These 5 verdicts also hold jointly: with 95 % confidence no "needed" or "worse" among them is wrong, and '
         'with 95 % confidence no "not needed" or "not worse" is, and with 95 % confidence no "better" is'),
        (["needed"] * 2, "", f"Each of these 2 {ALONE} none holds"),
        (["needed"] * 2, "b", f"Each of these 2 {ALONE} only that on b holds"),
        (["needed"] * 4, "bd", f"Each of these 4 {ALONE} only those on b and d hold"),
        (["needed"] * 3, "bc", f"Each of these 3 {ALONE} all hold except that on a"),
        (["needed"] * 5, "bde", f"Each of these 5 {ALONE} all hold except those on a and c"),
    ],
)  # fmt: skip
def test_verdicts_that_hold_jointly_are_told_by_their_words_and_else_by_their_names(
    words: list[str], together: str, said: str
) -> None:
    rows = [row(word, name) for word, name in zip(words, "abcdef", strict=False)]
    assert joint_sentence(rows, {*together}) == (said and f"{said} (Holm's procedure).")


@pytest.mark.parametrize("count", [3, 4])
def test_four_variants_that_change_several_things_are_called_by_their_names(count: int) -> None:
    both = Change(("the norm", "the skip"), (), combines=True)
    rows = [
        row(name=str(number), change=replace(both, removed=(*both.removed, str(number)))) for number in range(count)
    ]
    one, naming = row(change=Change(("the norm",))), _Naming.of(rows)
    assert (naming.whole(rows[0]), naming.removed(rows[0]), naming.label(rows[0])) == (
        ("removing the norm, the skip and 0 together", "the norm, the skip and 0", "0: ")
        if count == 3
        else ("0", "what 0 leaves out", "")
    )
    assert (naming.whole(one), naming.removed(one), naming.label(one)) == ("removing the norm", "the norm", "")


@pytest.mark.parametrize(
    ("windows", "healed", "said"),
    [(0, ["a"], []), (1, [], ["1 validation window of"]), (40, ["a"], ["40 validation windows of", "a was trained"]),
     (2, ["a", "b"], ["2 validation windows of", "a and b were trained further with one seed: "])],
)  # fmt: skip
def test_what_is_compared_without_training_says_how_many_windows_and_what_was_trained_further(
    windows: int, healed: list[str], said: list[str]
) -> None:
    found = list(window_sentences(windows, healed))
    assert len(found) == len(said)
    assert all(part in sentence for part, sentence in zip(said, found, strict=True))


def test_verdicts_that_rest_on_fresh_seeds_are_told_in_their_number() -> None:
    rows = [row(name=name, confirmed=(7, 8)) for name in "ab"]
    others = [
        row(confirmed=()),
        row(confirmed=(7,), awaits="0 of 1 seeds"),
        SimpleNamespace(confirmed=(7,), verdict=None),
    ]
    end = "on 2 fresh seeds that took no part in the choice."
    assert list(confirmed_sentences(others)) == []
    assert list(confirmed_sentences([*others, rows[0]])) == [f"a was chosen by results; its verdict rests {end}"]
    assert list(confirmed_sentences([*others, *rows])) == [f"a and b were chosen by results; their verdicts rest {end}"]


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
        ([(4, 2, 4), (None, None, 4), (4, 9, 4)], (4, 9, 0)),
        ([(4, 2, 4), (4, 10_000, 4)], (4, 2, 0)),  # no schedule is that long
    ],
)
def test_the_schedule_that_is_advised_is_the_longest_that_some_comparison_needs(
    of_rows: list[tuple[int | None, int | None, int]], expected: tuple[int, int, int] | None
) -> None:
    rows = [
        row("undecided", further=further, planned=(*range(planned),), difference=pairs and SimpleNamespace(n=pairs))
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
    baseline, other = (
        row(**{how: [SimpleNamespace(seed=seed, reason=f"at {seed}\nTraceback") for seed in lost.get(how, ())]
               for how in ("diverged", "failed")}) for lost in (of_baseline, own)
    )  # fmt: skip
    assert _why_few(other, baseline, 2, unit) == said
