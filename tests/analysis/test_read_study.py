"""Reports of studies written by hand; every expected number is worked out in the test."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from fake_store import FakeStore, fake_store

from ablate.analysis import StudyReport, VariantRow, read_study
from ablate.analysis.columns import columns
from ablate.analysis.runs import pairs_windows
from ablate.analysis.times import first_at
from ablate.errors import NotFoundError
from ablate.render.as_json import study_json
from ablate.spec.code import timed_identity
from ablate.stats.further import in_percent
from ablate.store.records import CurvePoint, TrialState

VARIANTS = {"baseline": ({"norm": "rms"}, 1000), "norm=none": ({"norm": "none"}, 900)}
T_95_TWO_SIDED_DF_1, T_95_ONE_SIDED_DF_1 = 12.7062, 6.3138  # from printed tables


def row(report: StudyReport, name: str) -> VariantRow:
    return next(row for row in report.variants if row.name == name)


def two_seeds() -> FakeStore:
    store = fake_store(VARIANTS, seeds=2, margin=0.5)
    store.add("baseline", 0, {"val_loss": 3.0, "val_acc": 0.5}, curve=[(0, 7.0), (100, 4.0), (200, 3.0)], seconds=10.0)
    store.add("baseline", 1, {"val_loss": 3.2, "val_acc": 0.7}, curve=[(0, 7.0), (100, 4.0), (200, 3.2)], seconds=10.0)
    store.add("norm=none", 0, {"val_loss": 2.8, "val_acc": 0.6}, curve=[(0, 7.0), (100, 3.8), (200, 2.8)], seconds=8.0)
    store.add("norm=none", 1, {"val_loss": 3.04}, curve=[(0, 7.0), (100, None), (200, 3.04)], seconds=5.0)
    return store


def test_every_number_of_a_small_study() -> None:
    report = read_study(two_seeds(), "a_study")
    assert (report.metric, report.direction, report.margin, report.progress.planned) == ("val_loss", "minimize", 0.5, 4)
    assert report.progress.states[TrialState.FINISHED] == 4
    baseline, variant = report.baseline, row(report, "norm=none")

    # Baseline: mean of 3.0 and 3.2; each lies 0.1 off, so sd = 0.1 sqrt(2) and the standard error is 0.1.
    loss = baseline.metrics["val_loss"]
    assert loss.mean == pytest.approx(3.1)
    assert loss.low == pytest.approx(3.1 - 0.1 * T_95_TWO_SIDED_DF_1, abs=1e-4)
    assert loss.high == pytest.approx(3.1 + 0.1 * T_95_TWO_SIDED_DF_1, abs=1e-4)
    assert baseline.metrics["val_acc"].mean == pytest.approx(0.6)
    assert baseline.difference is None
    assert baseline.verdict is None
    assert baseline.parameter_change == 0.0
    assert baseline.steps_to_baseline.median == 200.0

    # Variant: differences -0.20 and -0.16, mean -0.18, each 0.02 off, standard error 0.02.
    assert variant.parameter_change == pytest.approx(-0.1)
    assert variant.finished == (0, 1)
    assert variant.metrics["val_acc"].n == 1
    assert variant.metrics["val_acc"].low is None
    difference = variant.difference
    assert difference is not None
    assert difference.difference == pytest.approx(-0.18)
    assert difference.high == pytest.approx(-0.18 + 0.02 * T_95_TWO_SIDED_DF_1, abs=1e-4)
    # Upper one-sided bound: -0.18 + 6.3138 * 0.02 = -0.0537, rounded towards zero.
    assert variant.verdict is not None
    assert variant.verdict.sentence == "not needed: better by at least 0.053"
    # Seed 0 falls from 3.8 to 2.8 between steps 100 and 200 and meets 3.0 at 180. Seed 1 falls from 7.0 to 3.04 over
    # 200 steps and meets 3.2 at 200 * 3.8 / 3.96 = 191.919.
    assert variant.steps_to_baseline.median == pytest.approx((180 + 191.919) / 2, abs=1e-3)
    assert (variant.steps_to_baseline.reached, variant.steps_to_baseline.of) == (2, 2)
    assert variant.relative_speed is None, "the clocks of trials tell no speed"
    assert report.answer.sentences == (
        "Not worse than the baseline by 0.5 or more: norm=none (val_loss at least 0.053 lower).",
    )


def test_verdicts_agree_with_the_curves_recomputed_by_hand() -> None:
    # A slow way from the curves alone: last point of each curve, textbook t bounds, crossings on a dense grid.
    one_sided = {2: 2.91999, 3: 2.35336}  # t at 95 % for 2 and 3 degrees of freedom, from printed tables
    rng = np.random.default_rng(3)
    seen = set()
    for effect in (-0.1, 0.0, 0.004, 0.05, 0.3):
        for seeds in (3, 4):
            store = fake_store(VARIANTS, seeds=seeds, margin=0.05)
            for seed in range(seeds):
                end = 3.4 + rng.normal(0, 0.1)
                for name, final in (("baseline", end), ("norm=none", end + effect + rng.normal(0, 0.015))):
                    curve = [(step, final + 4.0 * 0.97**step - 4.0 * 0.97**200) for step in range(0, 201, 25)]
                    store.add(name, seed, {"val_loss": curve[-1][1]}, curve=curve)
            variant = row(read_study(store, "a_study"), "norm=none")

            pairs = [(store.curve_points[f"norm=none/{s}"], store.curve_points[f"baseline/{s}"]) for s in range(seeds)]
            lost = [ours[-1].val_loss - theirs[-1].val_loss for ours, theirs in pairs]
            mean = sum(lost) / seeds
            half = one_sided[seeds - 1] * math.sqrt(sum((x - mean) ** 2 for x in lost) / (seeds - 1) / seeds)
            word = "needed" if mean - half > 0.05 else "not needed" if mean + half < 0.05 else "undecided"
            word = "better" if mean + half < -0.05 else word
            assert variant.verdict is not None
            assert variant.verdict.word == word
            seen.add(word)

            grid = np.linspace(0, 200, 200_001)
            steps = []
            for ours, theirs in pairs:
                losses = np.interp(grid, [p.step for p in ours], [p.val_loss for p in ours])
                below = np.flatnonzero(losses <= theirs[-1].val_loss)
                steps += [grid[below[0]]] if below.size else []
            assert variant.steps_to_baseline.reached == len(steps)
            late = float(np.median([*steps, *[1e9] * (seeds - len(steps))]))
            if late < 1e8:
                assert variant.steps_to_baseline.median == pytest.approx(late, abs=2e-3)
            else:
                assert variant.steps_to_baseline.median is None
    assert seen == {"needed", "not needed", "better", "undecided"}


def points(*curve: tuple[int, float | None]) -> list[CurvePoint]:
    return [CurvePoint(step, 0.0, 0, 0.0, None, loss) for step, loss in curve]


@pytest.mark.parametrize(
    ("ours", "theirs", "change"),
    [(110, 100, 0.1), (0, 100, -1.0), (110, 0, None), (None, 100, None), (110, None, None)],
)
def test_the_change_of_parameters_is_a_share_of_those_of_the_baseline(
    ours: int | None, theirs: int | None, change: float | None
) -> None:
    made, counts = two_seeds(), {"baseline": theirs, "norm=none": ours}
    variants = tuple(replace(one, parameters=counts.get(one.name, 1)) for one in made.record.variants)
    made.record = replace(made.record, variants=variants)
    assert row(read_study(made, "a_study"), "norm=none").parameter_change == change


def test_first_at() -> None:
    curve = points((0, 8.0), (10, 4.0), (15, None), (20, 2.0), (30, 6.0), (40, 1.0))
    assert first_at(curve, 9.0) == 0.0
    assert first_at(curve, 6.0) == 5.0
    assert first_at(curve[:4], 3.0) == 15.0  # the point without a loss is passed over
    assert first_at(curve, 1.5) == pytest.approx(30 + 10 * 2.5 / 3)  # 2 and 6 are pooled to 4, at 30
    assert first_at(curve, 0.5) is None
    assert first_at(points((0, 8.0), (10, math.nan), (20, 4.0)), 5.0) == 15.0
    assert first_at([], 1.0) is None


def test_steps_have_no_median_unless_half_of_the_seeds_got_there() -> None:
    store = two_seeds()
    store.add("norm=none", 1, {"val_loss": 3.3}, curve=[(0, 7.0), (200, 3.3)])
    steps = row(read_study(store, "a_study"), "norm=none").steps_to_baseline
    assert (steps.median, steps.reached, steps.of) == (None, 1, 2)


def test_a_diverged_trial_is_never_averaged_away() -> None:
    store = two_seeds()
    store.add("norm=none", 1, {}, state=TrialState.DIVERGED, stopped_at=57, curve=[(0, 7.0), (50, 3.0)])
    report = read_study(store, "a_study")
    variant = row(report, "norm=none")
    assert variant.verdict is not None
    assert variant.verdict.sentence == "diverged: 1 of 2 seeds, first at step 57"
    assert [(trial.seed, trial.step, trial.reason) for trial in variant.diverged] == [
        (1, 57, "the loss was not finite")
    ]
    assert variant.metrics == {}
    assert variant.difference is not None
    assert (variant.difference.difference, variant.difference.low, variant.difference.n) == (None, None, 1)
    (plain,) = (one for one in study_json(report)["variants"] if one["name"] == "norm=none")
    assert [plain["table"][name] for name in ("mean", "low", "difference", "effect_size")] == [None] * 4
    assert (variant.steps_to_baseline.reached, variant.steps_to_baseline.of) == (1, 2)
    assert report.answer.sentences == (
        "Training diverged: norm=none at 1 of 2 seeds. These variants have no mean, because the seeds that "
        "finished are a biased selection.",
        "No variant can be compared with the baseline.",
    )
    assert report.answer.warning_sentences == report.answer.sentences[:1]


def test_a_trial_that_finished_without_a_number_counts_as_diverged() -> None:
    store = two_seeds()
    store.add("norm=none", 0, {"val_loss": math.nan}, curve=[(0, 7.0), (200, math.nan)])
    variant = row(read_study(store, "a_study"), "norm=none")
    assert variant.states[0] is TrialState.DIVERGED
    assert variant.verdict is not None
    assert variant.verdict.word == "diverged"


def test_a_diverged_baseline_is_reported() -> None:
    store = two_seeds()
    store.add("baseline", 1, {}, state=TrialState.DIVERGED, stopped_at=9)
    variant = row(read_study(store, "a_study"), "norm=none")
    assert variant.verdict is not None
    assert variant.verdict.sentence == (
        "undecided: at least 2 paired seeds are required, 1 finished; the baseline diverged at seed 1"
    )


def test_an_unfinished_study_says_so() -> None:
    store = two_seeds()
    del store.trial_records["norm=none/1"]
    store.add("norm=none", 0, state=TrialState.RUNNING)
    report = read_study(store, "a_study")
    variant = row(report, "norm=none")
    assert variant.states == {0: TrialState.RUNNING, 1: TrialState.WAITING}
    assert variant.finished == ()
    assert variant.metrics == {}
    assert (variant.relative_speed, variant.steps_to_baseline.of) == (None, 0)
    assert report.progress.states == {
        TrialState.WAITING: 1,
        TrialState.RUNNING: 1,
        TrialState.FINISHED: 2,
        TrialState.DIVERGED: 0,
        TrialState.PRUNED: 0,
        TrialState.FAILED: 0,
    }
    assert report.answer.sentences == (
        "This answer is provisional: 2 trials are still missing.",
        "No verdict yet on norm=none: 0 of 2 seeds have ended, and a fixed number of seeds is judged once, at its end.",
    )


def test_one_seed_decides_nothing() -> None:
    store = fake_store(VARIANTS, seeds=1)
    store.add("baseline", 0, {"val_loss": 3.0})
    store.add("norm=none", 0, {"val_loss": 9.0})
    report = read_study(store, "a_study")
    variant = row(report, "norm=none")
    assert variant.difference is not None
    assert (variant.difference.difference, variant.difference.low, variant.difference.n) == (6.0, None, 1)
    assert variant.verdict is not None
    assert (variant.verdict.word, variant.verdict.further_seeds) == ("undecided", 1)
    assert report.answer.sentences == ("Too few results to judge norm=none: at least 2 paired seeds are required.",)


def test_without_results_of_the_baseline_nothing_is_compared() -> None:
    store = two_seeds()
    for seed in (0, 1):
        store.add("baseline", seed, state=TrialState.FAILED)
    variant = row(read_study(store, "a_study"), "norm=none")
    assert variant.metrics["val_loss"].mean == pytest.approx(2.92)
    assert variant.difference is not None
    assert (variant.difference.difference, variant.difference.n) == (None, 0)
    assert variant.verdict is not None
    assert variant.verdict.sentence == "undecided: at least 2 paired seeds are required, 0 finished"
    assert variant.relative_speed is None


def test_a_metric_to_maximise() -> None:
    # Accuracy falls by 0.2 and 0.22: mean 0.21 worse, standard error 0.01, lower bound 0.21 - 0.063138 = 0.1468.
    store = fake_store(VARIANTS, seeds=2, metric="val_acc", direction="maximize", margin=0.05)
    for seed, (base, ours) in enumerate([(0.8, 0.6), (0.7, 0.48)]):
        store.add("baseline", seed, {"val_acc": base})
        store.add("norm=none", seed, {"val_acc": ours})
    report = read_study(store, "a_study")
    variant = row(report, "norm=none")
    assert variant.verdict is not None
    assert variant.difference is not None
    assert variant.difference.difference == pytest.approx(-0.21)
    assert variant.verdict.sentence == "needed: worse by at least 0.14"
    assert report.answer.sentences == (
        "Worse than the baseline by more than 0.05: norm=none (val_acc at least 0.14 lower).",
    )


def test_the_answer_names_what_is_undecided_and_how_many_seeds_would_settle_it() -> None:
    names = ["baseline", "a=x", "b=x", "c=x", "d=x"]
    store = fake_store({name: ({}, 10) for name in names}, seeds=2, margin=0.02)
    losses = {
        "baseline": (3.0, 3.0),
        "a=x": (3.0, 3.0 + 1e-9),
        "b=x": (3.5, 3.5 + 1e-9),
        "c=x": (3.03, 3.07),
        "d=x": (2.9, 3.14),
    }
    for name, values in losses.items():
        for seed, value in enumerate(values):
            store.add(name, seed, {"val_loss": value})
    report = read_study(store, "a_study")
    undecided = row(report, "c=x").verdict
    assert undecided is not None
    (verdicts,) = (column for column in columns(report) if column.key == "verdict")
    reasons = [verdicts.text(row(report, name)).lines[1] for name in ("c=x", "d=x")]
    assert reasons == [f"{undecided.further_seeds} more: {in_percent(undecided.chance or 0.0)}", "many more seeds"]
    assert report.answer.sentences == (
        "Not worse than the baseline by 0.02 or more: a=x (val_loss at most 3.7e-09 higher).",
        "Worse than the baseline by more than 0.02: b=x (val_loss at least 0.49 higher).",
        'These 2 verdicts also hold jointly: with 95 % confidence no "needed" among them is wrong, '
        'and with 95 % confidence no "not needed" is (Holm\'s procedure).',
        f"Undecided: c=x; d=x. About {undecided.further_seeds} more seeds would settle 1 of them with a chance of "
        f"{in_percent(undecided.chance or 0.0)}, the others would require more than 100. To continue, set "
        "`seeds: {start: 2, max: 19}`: this adds seeds to undecided comparisons, with wider bounds because results "
        "have been seen.",
    )


def test_an_unknown_study_is_not_found() -> None:
    with pytest.raises(NotFoundError):
        read_study(two_seeds(), "another")


def test_a_timing_beside_a_baseline_of_other_code_is_not_shown() -> None:
    store = fake_store({"baseline": ({}, 100), "x": ({}, 100)}, seeds=2)
    for name in ("baseline", "x"):
        for seed in range(2):
            store.add(name, seed, {"val_loss": 2.0 + seed / 100})
    store.time("x", [2.0, 2.1], [1.0, 1.0])
    assert read_study(store, "a_study").timed
    edited = tuple(replace(one, code="e" if one.variant == "baseline" else "") for one in store.record.planned)
    store.record = replace(store.record, planned=edited)
    assert not read_study(store, "a_study").timed
    beside = timed_identity("hash of baseline", "e")
    store.timed["x/0"] = tuple(replace(one, baseline=beside) for one in store.timed["x/0"])
    assert read_study(store, "a_study").timed


@pytest.mark.parametrize(
    "trivial", [{}, {"bigram": {"val_loss": 2.0}}], ids=["trials are missing", "nothing is learnt"]
)
def test_the_points_of_a_course_have_no_verdict_where_its_end_has_none(trivial: dict[str, dict[str, float]]) -> None:
    made = fake_store({"baseline": ({}, 10), "norm=none": ({}, 10)}, seeds=3 if trivial else 4)
    made.record = replace(made.record, trivial=trivial)
    for seed, (name, worse) in itertools.product(range(3), {"baseline": 0.0, "norm=none": 1.0}.items()):
        curve = [(step, 3.0 + worse + 0.01 * seed * worse) for step in range(1, 10)]
        made.add(name, seed, {"val_loss": curve[-1][1]}, curve=curve)
    for withheld in (True, False):
        course = read_study(made, "a_study").variants[1].course
        assert course is not None
        assert {point.word for point in course.points} == {"undecided" if withheld else "needed"}
        made.record = replace(made.record, trivial={}, planned=tuple(p for p in made.record.planned if p.seed < 3))


@pytest.mark.parametrize("key", ["tuned", "tune"])
def test_values_that_are_lists_or_mappings_are_tuned_values(key: str) -> None:
    made = fake_store({"baseline": ({}, 10), "norm=none": ({}, 10)}, seeds=2)
    optimizer = {"kind": "adamw", "betas": [0.9, 0.95]}
    spec = {"training": {"optimizer": optimizer}}
    grid = {"training.optimizer": [optimizer, {"kind": "lion"}], "training.optimizer.betas": [[0.9, 0.95], [0.9, 0.9]]}
    tuned = {path: dict(zip(("baseline", "norm=none"), values, strict=True)) for path, values in grid.items()}
    space = {"tuned": tuned} if key == "tuned" else {"tune": {"grid": grid, "seeds": 2}}
    made.record = replace(
        made.record, space=space, variants=tuple(replace(one, spec=spec) for one in made.record.variants)
    )
    for seed, name in itertools.product(range(2), ("baseline", "norm=none")):
        made.add(name, seed, {"val_loss": 3.0 + 0.1 * seed})
    report = read_study(made, "a_study")
    cells = [column.text(report.baseline).text for column in columns(report) if column.key.startswith("tuned")]
    assert cells == [str(optimizer), "[0.9, 0.95]"]


@pytest.mark.parametrize(("steps", "seeds", "pairs"), [(0, 1, True), (0, 2, False), (3, 1, False), (None, 1, False)])
def test_windows_are_paired_of_one_model_that_is_not_trained(steps: int | None, seeds: int, pairs: bool) -> None:
    made = fake_store(VARIANTS, seeds=seeds).record
    spec = {"training": {} if steps is None else {"steps": steps}}
    record = replace(made, variants=tuple(replace(one, spec=spec) for one in made.variants))
    assert pairs_windows(record) == pairs
    assert not pairs_windows(replace(record, baseline="another"))
