"""The time to a target as the objective: the crossing of known curves, ratios by scipy, censoring, seconds, claims."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest
from fake_store import FakeStore, fake_store
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from scipy import stats
from statsmodels.stats.power import TTestPower

from ablate.analysis.answer import answer_of
from ablate.analysis.columns import columns
from ablate.analysis.findings import read_findings
from ablate.analysis.next_steps import next_steps
from ablate.analysis.pareto import read_front
from ablate.analysis.rows import VariantRow
from ablate.analysis.study import read_study
from ablate.analysis.times import Target, first_at
from ablate.analysis.why import why
from ablate.metrics import Measure
from ablate.render.answer import answer_text, print_why
from ablate.render.as_json import study_json
from ablate.render.formats import Place, find_format
from ablate.stats.bounds import at_least, at_most
from ablate.store.records import CurvePoint, SpeedTiming, TrialState

REACH, MARGIN, END = 1.9, 0.05, 1200


def studied(
    times: Mapping[str, Sequence[float]],
    *,
    measure: str = "steps",
    claims: Sequence[Mapping[str, Any]] = (),
    end: int = END,
) -> FakeStore:
    """Runs whose loss falls on a straight line to the target at these steps, and on beyond it."""
    seeds = len(next(iter(times.values())))
    name = f"{measure}_to_{REACH:g}"
    made = fake_store({one: ({"a": one}, 100 + n) for n, one in enumerate(times)}, seeds, metric=name, margin=MARGIN)
    objective = {"metric": "val_loss", "reach": REACH, "measure": measure, "margin": MARGIN}
    switches = {"a": {one: {"replaces": f"a by {one}"} if n else {} for n, one in enumerate(times)}}
    made.record = replace(made.record, space={"objective": objective, "claims": [*claims], "switches": switches})
    for variant, of in times.items():
        for seed, steps in enumerate(of):
            curve = [(step, 4.9 - 3.0 * step / steps) for step in range(0, end + 1, 100)]
            made.add(variant, seed, {"val_loss": curve[-1][1]}, curve=curve)
            points = made.curve_points[f"{variant}/{seed}"]
            made.curve_points[f"{variant}/{seed}"] = tuple(one._replace(tokens=7 * one.step) for one in points)
    return made


def rows(made: FakeStore) -> dict[str, VariantRow]:
    return {row.name: row for row in read_study(made, "a_study").variants}


def drawn(medians: Mapping[str, float], seeds: int = 5, noise: float = 0.02) -> dict[str, list[float]]:
    rng = np.random.default_rng(3)
    shared = rng.normal(0, 0.1, seeds)  # a seed is slow for all variants alike
    return {name: (median * np.exp(shared + rng.normal(0, noise, seeds))).tolist() for name, median in medians.items()}


def point(step: int, loss: float) -> CurvePoint:
    return CurvePoint(step, 0.0, 7 * step, 3.0 * step, None, loss)


@given(
    falls=st.lists(st.floats(0.01, 1.0), min_size=1, max_size=12),
    gaps=st.lists(st.integers(1, 50), min_size=12, max_size=12),
    share=st.floats(0.0, 1.0),
)
def test_the_crossing_of_a_falling_curve_is_that_of_its_straight_lines(
    falls: list[float], gaps: list[int], share: float
) -> None:
    losses = [5.0 - sum(falls[:n]) for n in range(len(falls) + 1)]
    steps = [sum(gaps[:n]) for n in range(len(losses))]
    curve = [point(step, loss) for step, loss in zip(steps, losses, strict=True)]
    target = losses[0] + share * (losses[-1] - losses[0])
    found = first_at(curve, target)
    assert found is not None
    assert np.interp(found, steps, losses) == pytest.approx(target, abs=1e-6)
    assert first_at(curve, target, "tokens") == pytest.approx(7 * found)
    assert first_at(curve, losses[-1] - 0.01) is None
    earlier = first_at(curve, target + 0.1)
    assert earlier is None or earlier <= found  # a nearer target is reached no later


def test_a_time_has_the_unit_of_its_measure() -> None:
    curve = [point(step, 5.0 - step / 100) for step in range(0, 401, 100)]
    units: dict[Measure, float] = {"steps": 1.0, "tokens": 7.0, "flops": 3.0, "seconds": 7.0 / 50.0}
    assert units.keys() == set(get_args(Measure))
    for measure, unit in units.items():
        rate = 50.0 if measure == "seconds" else 1.0
        assert Target(2.5, measure).time(curve, rate) == (pytest.approx(250 * unit), True)
        assert Target(0.5, measure).time(curve, rate) == (pytest.approx(400 * unit), False)
        at_once = [point(0, 5.0), point(1, 1.0)]
        assert Target(4.0, measure).time(at_once, rate) == (pytest.approx(0.25 * unit), True)
        assert Target(5.0, measure).time(at_once, rate) == (None, True)


@given(st.lists(st.floats(1.0, 5.0), min_size=2, max_size=15), st.floats(1.0, 5.0))
def test_no_noise_gets_there_before_the_raw_curve_does_and_a_lower_curve_never_later(
    losses: list[float], target: float
) -> None:
    curve = [point(100 * n, loss) for n, loss in enumerate(losses)]
    found = first_at(curve, target)
    raw = next((100.0 * n for n, loss in enumerate(losses) if loss <= target), None)
    assert found is None or (raw is not None and found >= raw - 100)
    lower = first_at([one._replace(val_loss=(one.val_loss or 0.0) - 0.5) for one in curve], target)
    assert found is None or (lower is not None and lower <= found + 1e-6)


def test_verdicts_are_t_tests_of_the_ratio_at_each_seed() -> None:
    times = drawn({"baseline": 600, "same": 600, "slow": 690, "fast": 480})
    found = rows(studied(times))
    assert found["baseline"].metrics["steps_to_1.9"].mean == pytest.approx(np.mean(times["baseline"]))
    for name in ("same", "slow", "fast"):
        logs = np.log(times[name]) - np.log(times["baseline"])
        half = stats.t.ppf([0.95, 0.975], 4) * logs.std(ddof=1) / math.sqrt(5)
        row = found[name]
        assert row.difference is not None
        assert row.verdict is not None
        assert row.verdict.bound is not None
        assert row.difference.difference == pytest.approx(np.exp(logs.mean()) - 1)
        assert row.difference.low == pytest.approx(np.exp(logs.mean() - half[1]) - 1)
        assert row.verdict.bound.high == pytest.approx(np.exp(logs.mean() + half[0]) - 1)
        assert row.verdict.p_needed == pytest.approx(
            stats.ttest_1samp(logs, math.log(1 + MARGIN), alternative="greater").pvalue
        )
        assert row.verdict.p_better == pytest.approx(
            stats.ttest_1samp(logs, math.log(1 - MARGIN), alternative="less").pvalue
        )
    assert [found[name].verdict_word for name in ("same", "slow", "fast")] == ["not worse", "worse", "better"]
    same, slow, fast = (found[name].verdict.bound for name in ("same", "slow", "fast"))  # type: ignore[union-attr]
    said = " ".join(read_study(studied(times), "a_study").answer.sentences)
    assert f"slow (steps_to_1.9 at least {at_least(100 * slow.low, 100 * MARGIN)} % higher)" in said
    edge = [1.16 * (1 + (-1) ** seed / 1e5) * steps for seed, steps in enumerate(times["baseline"])]
    alone = read_study(studied({"baseline": times["baseline"], "edge": edge}), "a_study").answer.sentences[0]
    assert "edge (steps_to_1.9 at least 15 % higher" in alone, "hardly less than 16"
    wide = [(1.1 + 0.1 * (-1) ** seed) * steps for seed, steps in enumerate(times["baseline"])]
    report = read_study(studied({"baseline": times["baseline"], "wide": wide}), "a_study")
    (further,) = (row.verdict.further_seeds for row in report.variants if row.verdict is not None)
    assert further is not None
    assert next_steps(report)[0].arguments == ("resume", "a_study", "--seeds", str(5 + further))
    assert f"fast (steps_to_1.9 at least {at_least(-100 * fast.high, 100 * MARGIN)} % lower)" in said
    assert f"same (steps_to_1.9 at most {at_most(100 * same.high, 100 * MARGIN)} % higher)" in said


CENSORED = {
    "the variant": ({"baseline": [600, 610, 590], "other": [1500, 1300, 1400]}, "worse"),
    "one run of a variant that is as good": (
        {"baseline": [1150, 1160, 1140], "other": [1150, 1165, 1300]},
        "undecided",
    ),
    "the baseline": ({"baseline": [1500, 1300, 1400], "other": [600, 610, 590]}, "better"),
    "the baseline, a little": ({"baseline": [1210, 1190, 1180], "other": [1190, 1170, 1160]}, "not worse"),
    "both": ({"baseline": [1500, 1300, 1190], "other": [1500, 1600, 1195]}, "undecided"),
}


@pytest.mark.parametrize(("times", "word"), CENSORED.values(), ids=CENSORED)
def test_runs_above_the_target_bound_one_side_alone_and_enter_no_mean(
    times: Mapping[str, Sequence[float]], word: str
) -> None:
    made = studied(times)
    found = rows(made)["other"]
    assert found.verdict_word == word
    assert found.difference is not None
    assert found.difference.difference is None
    if word == "undecided":
        assert "never reached the target" in found.verdict_cell
    for name, row in rows(made).items():
        reached = sum(steps <= END for steps in times[name])
        assert (row.mean("steps_to_1.9") is None) == (reached < 3)
        assert row.lost == ("" if reached == 3 else f"{reached} of 3 reached it")
    report = read_study(made, "a_study")
    json.dumps(study_json(report)["variants"], allow_nan=False)
    assert any(line.key == "target" and "ended above" in line.text for line in answer_of(report).trust)
    assert read_front(made, "a_study") is None


def test_every_output_says_that_differences_are_shares() -> None:
    made = studied(drawn({"baseline": 600, "slow": 690, "slower": 2000}))
    report = read_study(made, "a_study")
    shown = answer_text(answer_of(report), 100)
    assert "steps_to_1.9 / 594.3 − 1" in shown
    assert "5 of 5 runs ended above the target 1.9: a → slower" in shown
    console = Console(file=io.StringIO(), width=100)
    print_why(why(report, "slow"), console)
    assert "of the baseline's steps_to_1.9" in console.file.getvalue()  # type: ignore[attr-defined]
    findings = read_findings(made, "a_study")
    for name, said in {
        "md": "variant over baseline",
        "html": "minus 1",
        "latex": "minus 1",
        "slides": "minus 1",
        "csv": "steps_to_1.9",
    }.items():
        assert said in str(find_format(name).render(findings, Place())), name
    data = study_json(report)
    assert data["answer"]["relative"] is True
    assert "steps_to_baseline" not in [column.key for column in columns(report)]


def test_a_target_that_needs_no_training_and_one_that_needs_no_model_are_no_targets() -> None:
    made = studied({"baseline": [600, 610, 590], "other": [600, 610, 590]})
    known = made.curve_points
    made.curve_points = known | {"other/1": (), "baseline/2": ()}
    assert rows(made)["other"].verdict_cell == "undecided: seed 1 of other has no evaluations"
    made.curve_points = known | {"baseline/2": ()}
    assert rows(made)["other"].verdict_cell == "undecided: seed 2 of baseline has no evaluations"
    made.curve_points = known
    at_start = {key: tuple(one._replace(val_loss=1.0) for one in curve) for key, curve in made.curve_points.items()}
    made.curve_points = at_start
    assert rows(made)["other"].verdict_cell == "undecided: seed 0 of other was at the target before its first step"
    made.record = replace(made.record, trivial={"trigram": {"val_loss": 1.8}})
    trust = [line.text for line in answer_of(read_study(made, "a_study")).trust]
    assert "the target 1.9 is not below the best trivial baseline (1.8)" in trust


def test_seconds_are_tokens_over_the_rates_of_rounds_dealt_to_the_seeds() -> None:
    times = drawn({"baseline": 600, "other": 600})
    made, rng = studied(times, measure="seconds"), np.random.default_rng(6)
    said = rows(made)["other"].verdict_cell
    assert said == "undecided: no variant was timed; `ablate resume a_study --time` does"
    made.add("other", 4, {}, state=TrialState.DIVERGED)
    assert rows(made)["other"].verdict_cell == "diverged: 1 of 5 seeds", "whatever its time would be"
    made = studied(times, measure="seconds")
    ours, theirs = (rate * np.exp(rng.normal(0, 0.03, 11)) for rate in (500.0, 1000.0))
    made.time("other", ours.tolist(), theirs.tolist())
    found = rows(made)
    ratios = np.log(ours / theirs)
    logs = [math.log(times["other"][seed] / times["baseline"][seed]) - ratios[seed::5].mean() for seed in range(5)]
    difference = found["other"].difference
    assert difference is not None
    assert difference.difference == pytest.approx(np.exp(np.mean(logs)) - 1)
    half = stats.t.ppf(0.975, 4) * np.std(logs, ddof=1) / math.sqrt(5)
    assert difference.high == pytest.approx(np.exp(np.mean(logs) + half) - 1)
    assert found["other"].verdict_word == "worse"
    seconds = np.mean(times["baseline"]) * 7 / np.exp(np.log(theirs).mean())
    assert found["baseline"].metrics["seconds_to_1.9"].mean == pytest.approx(seconds)
    made.time("other", ours[:3].tolist(), theirs[:3].tolist())
    assert "the timing of other has 3 rounds, fewer than its 5 seeds" in rows(made)["other"].verdict_cell


def test_seconds_of_several_devices_are_not_compared() -> None:
    made = studied(drawn({"baseline": 600, "other": 600, "third": 600}), measure="seconds")
    for variant, device in (("other", "cpu"), ("third", "cuda: H100")):
        made.timed[f"{variant}/0"] = (SpeedTiming("hash of baseline", (500.0,) * 10, (1000.0,) * 10, device),)
    for name in ("other", "third"):
        assert "timed on cpu and cuda: H100, and seconds are compared on one device" in rows(made)[name].verdict_cell


def test_claims_on_times_are_about_shares() -> None:
    claims = [
        {"id": f"c{n}", "says": "x", "source": "", "left": left, "right": right, "expect": expect, "margin": margin}
        for n, (left, right, expect, margin) in enumerate(
            [("fast", "slow", "better", 0.2), ("fast", "slow", "better", 0.5), ("slow", "baseline", "worse", 0.05)]
        )
    ]
    made = studied(drawn({"baseline": 600, "slow": 690, "fast": 480}), claims=claims)
    judged = read_study(made, "a_study").answer.claims
    assert [claim.verdict for claim in judged] == ["supported", "refuted", "supported"]
    assert "fast is at least 0.2" in judged[0].sentence
    assert judged[2].evidence["difference"] == pytest.approx(0.15, abs=0.04)
    assert judged[2].evidence["difference_of"] == "steps_to_1.9 of slow over baseline, minus 1"


def test_that_a_run_ended_above_the_target_limits_no_claim_on_another_metric() -> None:
    plain = {"id": "c", "says": "x", "source": "", "left": "slow", "right": "baseline", "expect": "equal"}
    metrics: tuple[dict[str, Any], ...] = ({}, {"metric": "val_accuracy", "direction": "maximize"})
    claims = [plain | {"margin": 0.5} | of for of in metrics]
    made = studied({"baseline": [900, 950, 920], "slow": [1250, 1180, 1230]}, claims=claims)
    for key, trial in made.trial_records.items():
        made.trial_records[key] = replace(trial, metrics=trial.metrics | {"val_accuracy": len(key) * trial.seed / 999})
    time, accuracy = read_study(made, "a_study").answer.claims
    assert time.sentence == "undecided: 2 runs of slow never reached the target, and the true values are worse"
    assert accuracy.verdict == "supported"


@pytest.mark.parametrize(("expect", "ratio"), [("better", 0.95), ("worse", 1.05)])
def test_an_undecided_claim_on_times_asks_for_the_seeds_that_decide_about_its_ratio(expect: str, ratio: float) -> None:
    plain = {"id": "c", "left": "other", "right": "baseline", "expect": expect, "margin": MARGIN}
    logs = np.array([0.1, -0.09, 0.07, -0.08, 0.0])
    times = {"baseline": [600] * 5, "other": (600 * np.exp(logs)).tolist()}
    (found,) = read_study(studied(times, claims=[plain]), "a_study").answer.claims
    apart = abs(logs.mean() - math.log(ratio)) / logs.std(ddof=1)
    required = TTestPower().solve_power(apart, alpha=0.005, power=0.8, alternative="larger")
    assert found.evidence["further_seeds"] == math.ceil(required) - 5
    once = studied({name: of[:1] for name, of in times.items()}, claims=[{**plain, "margin": 1.5}])
    (single,) = read_study(once, "a_study").answer.claims
    assert single.sentence == "undecided: at least 2 paired seeds are required, 1 finished"
