"""Answers of studies that replace no part, and of many variants."""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
import statistics

import pytest
from designed_study import on_off, run
from fake_store import FakeStore, fake_store

from ablate.analysis.answer import answer_of, verdicts_on_parts
from ablate.analysis.answer_rows import _with_letters, lost_its_pairs, withheld_in_words
from ablate.analysis.calibration import read_calibration
from ablate.analysis.effects import StudyImportances
from ablate.analysis.fairness import Tuned, Tuning
from ablate.analysis.findings import read_findings
from ablate.analysis.next_steps import next_steps
from ablate.analysis.search import fresh_values, kinds_of, seed_pairs, what_best_has, which_seeds
from ablate.analysis.study import read_study
from ablate.analysis.warnings import tuning_edges
from ablate.errors import NotFoundError
from ablate.render.figures.effects import how_to_read_importances
from ablate.spec.design import DesignSpec
from ablate.stats import Importance, Verdict
from ablate.store.records import DesignTraits, TrialState


def study(losses: dict[str, float], space: dict[str, object] | None = None) -> FakeStore:
    made = fake_store({name: ({}, 10) for name in losses}, seeds=3, margin=0.1)
    made.record = dataclasses.replace(made.record, space=space or {})
    for name, loss in losses.items():
        for seed in range(3):
            made.add(name, seed, {"val_loss": loss + seed / 7 + (len(name) * seed % 3) / 1e4})
    return made


def test_values_of_a_sweep_replace_nothing() -> None:
    losses = {"baseline@model.width=8": 3.0, "baseline@model.width=16": 2.5, "a=x@model.width=8": 4.0}
    answer = read_study(study(losses), "a_study").answer.sentences
    assert answer[0].startswith(
        "Better than the baseline by more than 0.1: baseline@model.width=16 (val_loss at least 0."
    )
    assert answer[1].startswith("Worse than the baseline by more than 0.1: a=x@model.width=8 (val_loss at least 0.")


def test_a_search_says_which_point_was_best() -> None:
    made = study({"baseline": 3.0, "a=x": 2.5, "a=x,b=x": 4.0})
    assert "best mean" not in " ".join(read_study(made, "a_study").answer.sentences)
    made.record = dataclasses.replace(made.record, traits=DesignTraits(finds_best=True))
    best = [one for one in read_study(made, "a_study").answer.sentences if one.startswith("The best mean")]
    assert len(best) == 1
    assert best[0].startswith("The best mean val_loss of 3 points is that of a=x: 2.64. Selection makes this")
    assert best[0].endswith("estimate optimistic; train it with fresh seeds before you rely on the number.")


@pytest.mark.parametrize(("seeds", "confirm"), [(1, 3), (2, 2), (2, 0)])
def test_what_the_confirmed_best_point_has_is_said_beside_the_baseline(seeds: int, confirm: int) -> None:
    design = {"kind": "search", "sampler": "random", "points": 6, "seeds": seeds, "confirm": confirm}
    landscape = {"a": -0.5, "b": 0.2}
    made = run(design, on_off(*landscape), lambda settings, _: 3.0 + sum(
        landscape[name] for name, setting in settings.items() if setting == "off"), noise=0.001)  # fmt: skip
    found = read_findings(made, "a_study")
    report, answer = found.report, answer_of(found.report)
    assert kinds_of(report.record)["a=off"] == "a off, b on"
    said, drawn = what_best_has(report, answer), which_seeds(report, answer, found.runs, found.fresh)
    fresh = fresh_values(report, answer, found.fresh)
    if not confirm:
        assert (said, drawn, fresh) == ("", "", {})
        return
    assert said == "The chosen one has a off, b on, the baseline a on, b on."
    values = {key: trial.metrics["val_loss"] for key, trial in made.trial_records.items()}
    assert fresh == {
        name: (f"{called}, {confirm} fresh seeds", [values[f"{name}/{3000 + seed}"] for seed in range(confirm)])
        for name, called in (("baseline", "baseline"), ("a=off", "chosen"))
    }
    names = ("baseline", "a=off")
    plain, best = (statistics.fmean(values[f"{name}/{seed}"] for seed in range(seeds)) for name in names)
    which, flatters = ("seed 0", "flatters") if seeds == 1 else ("seeds 0 and 1", "flatter")
    assert drawn == (
        f"Drawn: {which}, which chose the best point and so {flatters} it ({best:.3f}, the baseline {plain:.3f}). "
        f"The answer rests on {confirm} fresh seeds alone."
    )


def test_two_sides_are_shown_at_the_seeds_that_both_have_and_by_their_means() -> None:
    pairs = seed_pairs({9: 1.0, 2: 2.0, 8: 9.0}, {2: 3.0, 9: 4.0, 1: 5.0})
    assert [*pairs.items()] == [("seed 2", (2.0, 3.0)), ("seed 9", (1.0, 4.0)), ("mean", (1.5, 3.5))]
    assert seed_pairs({0: 1.0}, {1: 1.0}) == {}


def test_a_search_by_several_objectives_names_no_best_point() -> None:
    search = {"kind": "search", "points": 3}
    assert DesignSpec.parse(search).finds_best
    assert not DesignSpec.parse({**search, "objectives": ["objective", "parameters"]}).finds_best


def test_a_calibration_without_noise_says_which_is_missing_the_seeds_or_their_spread() -> None:
    made = fake_store({"baseline": ({}, 10), "a=x": ({}, 10), "b=y": ({}, 10)}, seeds=2)
    for key in ("baseline/0", "baseline/1", "a=x/0", "a=x/1", "b=y/0"):
        made.add(key[:-2], int(key[-1]), {"val_loss": 3.0 + (key[0] == "a")})

    def refusal(made: FakeStore) -> str:
        with pytest.raises(NotFoundError) as caught:
            read_calibration(made, "a_study")
        return str(caught.value)

    assert refusal(made) == (
        "study 'a_study': it shows no noise: the differences of each variant are the same at every seed; expected some "
        "spread between seeds; got none over up to 2 paired seeds. See whether val_loss is too coarse: more rows of "
        "validation tell smaller differences."
    )
    del made.trial_records["a=x/1"]
    for seeds, store in (("1 paired seed", made), ("0 paired seeds", fake_store({"baseline": ({}, 10)}))):
        assert refusal(store) == (
            "study 'a_study': it shows no noise yet; expected a variant and the baseline with two finished seeds; "
            f"got at most {seeds}. Run it with at least 2 seeds."
        )


def test_a_calibration_is_of_comparisons_without_divergence_and_of_the_seeds_of_a_schedule_too() -> None:
    made = fake_store({"baseline": ({}, 10), "a=x": ({}, 10), "b=y": ({}, 10)}, seeds=4)
    made.record = dataclasses.replace(made.record, space={"design": {"seeds": {"start": 3, "max": 6}}})
    for seed, off in enumerate((0.1, 0.2, 0.4, 0.3)):
        for name, change in (("baseline", 0.0), ("a=x", off), ("b=y", -5 * off)):
            made.add(name, seed, {"val_loss": 3.0 + change})
    made.add("b=y", 3, state=TrialState.DIVERGED)
    found = read_calibration(made, "a_study")
    assert (found.noise.comparisons, found.noise.freedom) == (1, 3)
    assert found.noise.sd == pytest.approx(statistics.stdev((0.1, 0.2, 0.4, 0.3)))
    assert [power.seeds for power in found.fixed] == [2, 3, 4, 5, 7, 10, 15, 20]
    assert found.adaptive is not None
    assert found.adaptive.mean_seeds < found.adaptive.seeds == 6


def test_importances_mention_intervals_only_if_there_are_any() -> None:
    def said(low: float | None, seeds: int) -> str:
        shares = (Importance("a", 0.5, low, low), Importance("b", 0.1, low, low))
        return how_to_read_importances(StudyImportances(shares, 0.4, 8, seeds, 1, 1), "val_loss")

    assert "no intervals" in said(None, 1)
    assert "1 seeds" not in said(None, 1)
    assert "these 2 seeds" in said(0.05, 2)
    assert "1 diverged trial counts" in said(0.05, 2)


@pytest.mark.parametrize(
    ("at_edge", "named"),
    [
        (["better"], None),  # a better value outside could only make it better still
        (["fine"], None),
        (["worse"], "worse"),
        (["undecided"], "undecided"),
        (["baseline"], "baseline"),
        (["baseline", "worse"], "baseline and worse"),
        (["better", "worse", "fine"], "worse"),
        (["worse", "undecided"], "worse and undecided"),
    ],
)
def test_only_edges_that_could_turn_a_verdict_are_a_warning(at_edge: list[str], named: str | None) -> None:
    losses = {"baseline": 2.0, "better": 1.5, "fine": 2.0, "worse": 2.5, "undecided": 2.1}
    made = fake_store({name: ({}, 10) for name in losses}, seeds=3, margin=0.1)
    for name, loss in losses.items():
        for seed in range(3):
            made.add(name, seed, {"val_loss": loss + seed / 7 + 0.01 * (seed - 1) * (name != "baseline")})
    report = read_study(made, "a_study")
    assert [row.verdict_word for row in report.variants[1:]] == ["better", "not needed", "needed", "undecided"]
    of = {name: Tuned({"lr": 1}, ("lr",) if name in at_edge else (), ()) for name in losses}
    said = list(tuning_edges(Tuning({"lr": [1, 2, 3]}, (1000,), of), report.variants, report.baseline))
    if named is None:
        assert said == []
    else:
        (warning,) = said
        assert f"for {named}: a better value may lie outside" in warning.full
        turned = "verdicts" if named.startswith("baseline") else "their verdicts" if " and " in named else "its verdict"
        assert f"outside and turn {turned}. Widen" in warning.full
        assert " and ".join(warning.variants) == named


def test_the_edge_of_a_baseline_cannot_turn_what_is_worse_anyway() -> None:
    losses = {"baseline": 2.0, "far_worse": 2.5}
    report = read_study(study(losses), "a_study")
    of = {"baseline": Tuned({"lr": 1}, ("lr",), ()), "far_worse": Tuned({"lr": 2}, (), ())}
    assert list(tuning_edges(Tuning({"lr": [1, 2, 3]}, (1000,), of), report.variants, report.baseline)) == []


@pytest.mark.parametrize(
    ("lengths", "lettered"),
    [
        ([33, 33], False),
        ([33] * 3, True),
        ([32] * 3, False),
        ([48], False),
        ([49], True),
        ([33] * 13, True),
        ([33] * 14, False),
        ([33] * 2 + [49], True),
    ],
)
def test_letters_stand_for_parts_if_combinations_are_long_and_the_letters_suffice(
    lengths: list[int], lettered: bool
) -> None:
    report = read_study(study({"baseline": 3.0, "a": 3.0}), "a_study")
    (group,) = answer_of(report).groups
    rows = [dataclasses.replace(group.rows[0], variant=f"{n}", words="w" * length) for n, length in enumerate(lengths)]
    rows.append(dataclasses.replace(group.rows[0], variant="alone", words="w" * 60))
    parts = {f"{n}": (f"p{n}", f"q{n}") for n in range(len(lengths))} | {"alone": ("p",)}
    _, letters = _with_letters((dataclasses.replace(group, rows=tuple(rows)),), parts, report)
    assert len(letters) == 2 * len(lengths) * lettered


def test_letters_begin_with_parts_that_have_a_row_of_their_own() -> None:
    report = read_study(study({"baseline": 3.0, "a": 3.0}), "a_study")
    (group,) = answer_of(report).groups
    words = {"both": "w" * 49, "again": "w" * 49 + " (again)", "one": "the q", "other": "the r"}
    rows = tuple(dataclasses.replace(group.rows[0], variant=name, words=said) for name, said in words.items())
    parts = {"both": ("p", "q"), "again": ("p", "q"), "one": ("q",), "other": ("r",)}
    (made,), letters = _with_letters((dataclasses.replace(group, rows=rows),), parts, report)
    assert letters == {"A": "q", "B": "p"}
    assert [row.label for row in made.rows] == ["A + B", "A + B (again)", "A: the q", "the r"]


@pytest.mark.parametrize(
    ("seeds", "who", "state", "lost"),
    [
        (3, "a", TrialState.FAILED, False),
        (2, "a", TrialState.FAILED, True),
        (2, "baseline", TrialState.FAILED, True),
        (2, "baseline", TrialState.DIVERGED, True),
        (1, "b", TrialState.FAILED, False),
    ],
)
def test_trials_of_either_side_that_were_lost_leave_too_few_pairs(
    seeds: int, who: str, state: TrialState, lost: bool
) -> None:
    made = fake_store({name: ({}, 10) for name in ("baseline", "a", "b")}, seeds=seeds)
    for seed, name in itertools.product(range(seeds), ("baseline", "a", "b")):
        made.add(name, seed, {"val_loss": 3.0 + seed / 7})
    made.add(who, 0, state=state)
    report = read_study(made, "a_study")
    assert lost_its_pairs(report.variants[1], report) == lost


@pytest.mark.parametrize(
    ("why", "word"),
    [
        ("no model beats a bigram (3.1)", "no verdict"),
        ("2 of 3 runs of a never reached the target", "censored"),
        ("a was not timed; `ablate resume s --time` does", "not timed"),
        ("a trial failed", "failures"),
        ("a trial diverged", "failures"),
        ("its tuning seeds do not bound how much better it may be", "tuning"),
        ("the tail of the noise is too long", "rare seeds"),
        ("its seeds scatter too much", "rare seeds"),
        ("of something else", "see --why"),
    ],
)
def test_why_no_seeds_decide_a_comparison_is_said_in_two_words(why: str, word: str) -> None:
    assert withheld_in_words(Verdict("undecided", "", None, withheld=why)) == word


def scattered(seeds: int, **spreads: float) -> FakeStore:
    """Variants that differ from the baseline by a number for each seed and by as much scatter as is said."""
    made = fake_store({name: ({}, 10) for name in ("baseline", *spreads)}, seeds=seeds, margin=0.1)
    for name in ("baseline", *spreads):
        for seed in range(seeds):
            made.add(name, seed, {"val_loss": 3.0 + seed / 7 + spreads.get(name, 0.0) * (-1) ** seed * (1 + seed / 20)})
    return made


@pytest.mark.parametrize("seeds", [3, 30])
def test_a_verdict_is_said_to_assume_noise_that_its_seeds_cannot_show(seeds: int) -> None:
    """Thirty seeds miss one that ends badly once in a hundred as three do, for all that the interval says."""
    report = read_study(scattered(seeds, a=0.01), "a_study")
    assert report.variants[1].verdict is not None
    assert report.variants[1].verdict.is_decided
    (said,) = [warning.text for warning in report.answer.warnings if warning.key == "assumption"]
    assert f"{seeds} seeds" in said
    assert report.assumption == said


def test_of_several_undecided_comparisons_the_least_chance_is_said() -> None:
    report = read_study(scattered(4, a=0.25, b=0.12), "a_study")
    verdicts = [row.verdict for row in report.variants[1:]]
    known = [verdict.chance for verdict in verdicts if verdict is not None and verdict.chance is not None]
    least, most = (f"{5 * round(20 * of)} %" for of in (min(known), max(known)))
    assert (len(known), least != most) == (2, True)
    (said,) = [one for one in report.answer.sentences if "would settle" in one]
    assert f"each of them with a chance of at least {least}" in said
    for spreads, settles in (({"a": 0.11, "b": 0.07}, "them"), ({"a": 0.13, "b": 0.16}, "1 of them")):
        report = read_study(scattered(4, **spreads), "a_study")
        (step,) = [step for step in next_steps(report) if "--seeds" in step.arguments]
        most = int(step.arguments[-1].partition(":")[2]) - 4
        verdicts = [row.verdict for row in report.variants[1:] if row.verdict is not None]
        settled = [verdict for verdict in verdicts if (verdict.further_seeds or math.inf) <= most]
        further = max(verdict.further_seeds or 0 for verdict in settled)
        assert f"about {further} more seeds of them and of the baseline would settle {settles} " in step.purpose
        chances = sorted(f"{5 * round(20 * (verdict.chance or 0.0))} %" for verdict in settled)
        assert re.search(rf" with a chance of {chances[0]}( each)?$", step.purpose)
        assert chances == sorted({*chances})


def test_a_block_is_drawn_with_the_verdicts_on_single_removals_alone() -> None:
    switches = on_off("a", "b", "c")
    made = run(
        {"kind": "leave_one_out", "seeds": 3},
        switches,
        lambda settings, _: 3.0 + {"a": 0.5, "b": 0.1}.get("".join(n for n in "abc" if settings[n] == "off"), 0.0),
        noise=0.001,
        variants={"both": {"a": "off", "b": "off"}},
    )
    told = {name: {"on": {}, "off": {"removes": f"the {name}"}} for name in "ab"}
    told["c"] = {"on": {}, "off": {"replaces": "one c by another"}}
    made.record = dataclasses.replace(
        made.record,
        space=dict(made.record.space) | {"switches": told},
        variants=tuple(dataclasses.replace(one, spec={"model": {"block": one.name}}) for one in made.record.variants),
    )
    judged = [("a=off", "needed"), ("b=off", "open")]
    report = read_study(made, "a_study")
    assert verdicts_on_parts(report) == [({"block": name}, word) for name, word in judged]
