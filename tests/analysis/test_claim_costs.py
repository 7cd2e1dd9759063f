"""Claims on figures of cost: exact where they are counted, by paired seeds where they are measured."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from fake_store import FakeStore, fake_store
from scipy import stats

from ablate.analysis import read_study
from ablate.analysis.claims import ClaimVerdict
from ablate.analysis.times import costs_by_round, rates_by_seed, relative_speed, seconds_at
from ablate.metrics import CACHE
from ablate.stats import Interval
from ablate.store.records import InferenceCost, SpeedTiming, TrialState


def store_with(*claims: dict[str, Any], seeds: int = 3) -> FakeStore:
    store = fake_store({"baseline": ({}, 1000), "small": ({}, 800)}, seeds=seeds)
    plain = [{"id": f"c{number}", "says": "", "source": ""} | claim for number, claim in enumerate(claims)]
    variants = [
        dataclasses.replace(variant, activation_bytes=bytes_)
        for variant, bytes_ in zip(store.record.variants, (4096, 4096), strict=True)
    ]
    store.record = dataclasses.replace(store.record, space={"claims": plain}, variants=tuple(variants))
    return store


def compared(expect: str, metric: str, margin: float, **others: Any) -> dict[str, Any]:
    return {"expect": expect, "left": "small", "right": "baseline", "metric": metric, "margin": margin} | others


def verdicts(store: FakeStore) -> list[ClaimVerdict]:
    return list(read_study(store, "a_study").answer.claims)


def test_what_follows_from_the_spec_is_settled_before_a_trial() -> None:
    store = store_with(
        compared("better", "parameters", 150),
        compared("better", "parameters", 250),
        compared("worse", "parameters", 1),
        compared("equal", "activation_bytes", 1),
        compared("better", "flops", 1),
    )
    found = verdicts(store)
    words = [claim.verdict for claim in found]
    assert words == ["supported", "refuted", "refuted", "supported", "undecided"]
    assert found[0].sentence == "supported: small has 800 parameters, baseline 1,000 (margin 150)"
    assert found[4].sentence == "undecided: no trial of small and baseline has reported its flops yet"
    for name, flops in (("baseline", 3e12), ("small", 2e12)):
        store.add(name, 0, {"val_loss": 3.0}, flops=flops)
    assert verdicts(store)[4].verdict == "supported"


def test_divergence_does_not_change_what_is_counted() -> None:
    store = store_with(compared("better", "parameters", 1))
    store.add("small", 0, state=TrialState.DIVERGED)
    store.add("baseline", 0, {"val_loss": 3.0})
    assert verdicts(store)[0].verdict == "supported"


def test_speed_is_better_when_larger_and_judged_by_paired_seeds() -> None:
    store = store_with(
        compared("better", "tokens_per_second", 10.0),
        compared("better", "tokens_per_second", 60.0),
        compared("better", "seconds", 1.0),
        compared("better", "tokens_per_second", 10.0, direction="minimize"),
        seeds=4,
    )
    for seed in range(4):
        store.add("small", seed, {"val_loss": 3.0}, tokens=1000, seconds=1.0)
        store.add("baseline", seed, {"val_loss": 3.0}, tokens=1000, seconds=9.0)
    untimed = verdicts(store)[0]
    advice = "no variant was timed; `ablate resume a_study --time` does"
    assert untimed.sentence == f"undecided: tokens_per_second is not known: {advice}"
    rates, beside = [150.0, 148.0, 152.0, 147.0], [100.0, 99.0, 101.0, 98.0]
    store.time("small", rates, beside)
    mean = stats.gmean(beside)
    gains = [mean * (ours / theirs - 1) for ours, theirs in zip(rates, beside, strict=True)]
    found = verdicts(store)
    assert [claim.verdict for claim in found] == ["supported", "refuted", "supported", "refuted"]
    low, high = stats.ttest_1samp(gains, 0).confidence_interval(0.95)
    assert (found[0].evidence["low"], found[0].evidence["high"]) == (pytest.approx(low), pytest.approx(high))


def test_costs_of_a_timing_are_those_of_each_side_in_each_round() -> None:
    """What is counted needs no correction for the load of the machine."""
    small = SpeedTiming("baseline", (2.0, 6.0), (1.0, 4.0), "cpu", (InferenceCost(CACHE, (7.0,), (9.0,)),))
    large = SpeedTiming("baseline", (1.0, 2.0, 3.0), (2.0, 4.0, 0.5), "cpu")
    found = costs_by_round({"small": small, "large": large}, "baseline")
    assert found.keys() == {CACHE, "tokens_per_second"}
    assert found[CACHE] == {"small": {0: 7.0}, "baseline": {0: 9.0}}
    rates, mean = found["tokens_per_second"], 16 ** (1 / 5)  # the geometric mean of 1, 4, 2, 4 and 0.5
    assert rates["small"] == pytest.approx({0: 2.0 * mean, 1: 1.5 * mean})
    assert rates["large"] == pytest.approx({0: 0.5 * mean, 1: 0.5 * mean, 2: 6.0 * mean})
    assert rates["baseline"] == pytest.approx(dict.fromkeys(range(3), mean))
    assert relative_speed(rates["baseline"], rates["baseline"]) == Interval(1.0, 1.0, 1.0, 3)
    assert relative_speed({}, {0: 1.0}) is None
    assert relative_speed({0: 2.0}, {0: 1.0}) == Interval(pytest.approx(2.0), None, None, 1)
    assert seconds_at((0.0, 10.0), {0: 4.0, 1: 1.0}) == pytest.approx((0.0, 5.0))
    assert rates_by_seed({2: 4.0, 0: 1.0, 1: 3.0}, [9, 7]) == pytest.approx({9: 2.0, 7: 3.0})


def test_a_loss_that_diverged_says_nothing_of_speed() -> None:
    store = store_with(
        compared("better", "tokens_per_second", 10.0),
        compared("better", "val_loss", 0.1),
        {"expect": 150, "subject": {"variant": "small", "quantity": "tokens_per_second"}, "tolerance": 10.0},
        seeds=4,
    )
    for seed in range(4):
        store.add("small", seed, {"val_loss": 3.0}, tokens=1000)
        store.add("baseline", seed, {"val_loss": 3.0}, tokens=1000)
    store.add("small", 3, state=TrialState.DIVERGED, stopped_at=5)
    store.time("small", [150.0, 149.0, 151.0], [100.0, 100.0, 100.0])
    speed, loss, number = verdicts(store)
    assert (speed.verdict, speed.evidence["n"]) == ("supported", 3)
    assert "3 paired rounds" in speed.sentence
    assert loss.sentence == "refuted: small diverged at seed 3, which baseline finished"
    assert number.verdict == "supported"


def test_a_number_may_be_a_figure_of_cost() -> None:
    def number(expect: float, quantity: str, tolerance: float = 0.0) -> dict[str, Any]:
        return {"expect": expect, "subject": {"variant": "small", "quantity": quantity}, "tolerance": tolerance}

    store = store_with(
        number(4096, "activation_bytes"), number(4000, "activation_bytes"), number(100, "tokens_per_second", 5)
    )
    for seed in range(3):
        store.add("small", seed, {"val_loss": 3.0}, tokens=1000)
    store.time("small", [100.0, 99.0, 98.0], [80.0, 80.0, 80.0])
    assert [claim.verdict for claim in verdicts(store)] == ["supported", "refuted", "supported"]
    old = store_with(number(4096, "activation_bytes"))
    old.record = dataclasses.replace(
        old.record, variants=tuple(dataclasses.replace(one, activation_bytes=None) for one in old.record.variants)
    )
    assert verdicts(old)[0].sentence == "undecided: an older version of ablate stored small, without activation_bytes"


@pytest.mark.parametrize("flops", [0.0, 2e12])
def test_a_ratio_to_nothing_is_undecided(flops: float) -> None:
    subject = {"variant": "small", "quantity": "flops", "over": "baseline"}
    store = store_with({"expect": 1.0, "subject": subject, "tolerance": 0.1})
    store.add("small", 0, {"val_loss": 3.0}, flops=2e12)
    store.add("baseline", 0, {"val_loss": 3.0}, flops=flops)
    assert verdicts(store)[0].verdict == ("supported" if flops else "undecided")


@pytest.mark.parametrize(
    ("size", "verdict", "ratio"),
    [(200_000, "supported", "0.8"), (200_001, "refuted", "0.800004"), (262_500, "supported", "1.05")],
)
def test_a_ratio_is_written_with_the_digits_that_show_its_verdict(size: int, verdict: str, ratio: str) -> None:
    expect = 0.8 if size < 250_000 else 1.0
    subject = {"variant": "small", "quantity": "parameters", "over": "baseline"}
    store = store_with({"expect": expect, "subject": subject, "tolerance": 0.0 if expect < 1 else 0.05})
    sizes = {"small": size, "baseline": 250_000}
    variants = tuple(dataclasses.replace(one, parameters=sizes[one.name]) for one in store.record.variants)
    store.record = dataclasses.replace(store.record, variants=variants)
    (found,) = verdicts(store)
    assert found.sentence.startswith(f"{verdict}: small has {ratio} times the parameters of baseline")


def test_a_number_may_be_a_ratio() -> None:
    """Counted exactly; measured seed by seed, so that what both share at a seed cancels."""

    def ratio(expect: float, quantity: str, tolerance: float, over: str = "baseline") -> dict[str, Any]:
        subject = {"variant": "small", "quantity": quantity, "over": over}
        return {"expect": expect, "subject": subject, "tolerance": tolerance}

    store = store_with(
        ratio(0.7, "parameters", 0.11),
        ratio(0.7, "parameters", 0.09),
        ratio(1.5, "tokens_per_second", 0.1),
        ratio(1.9, "tokens_per_second", 0.1),
        ratio(0.5, "val_loss", 0.05),
        ratio(1.0, "parameters", 0.0, over="large"),
        ratio(0.7, "parameters", 0.1),  # at the end of the range, but for rounding
        seeds=4,
    )
    for seed in range(4):
        store.add("small", seed, {"val_loss": 1.5 + 1.01 * seed}, tokens=1000)
        store.add("baseline", seed, {"val_loss": 3.0 + 2 * seed}, tokens=1000)
    rates, beside = [151.0, 15.3, 1500.0, 150.0], [100.0, 10.1, 990.0, 100.0]
    store.time("small", rates, beside)
    ratios = [ours / theirs for ours, theirs in zip(rates, beside, strict=True)]
    found = verdicts(store)
    assert [claim.verdict for claim in found] == [
        *("supported", "refuted", "supported", "refuted", "supported", "undecided", "supported")
    ]
    assert found[1].sentence == "refuted: small has 0.8 times the parameters of baseline, the claim is 0.7 ± 0.09"
    low, high = stats.ttest_1samp(ratios, 0).confidence_interval(0.95)
    assert found[2].evidence["low"] + 1.5 == pytest.approx(low)
    assert found[2].evidence["high"] + 1.5 == pytest.approx(high)
    assert "tokens_per_second of small over that of baseline lies between" in found[2].sentence
    assert found[5].sentence == "undecided: the study has no variant large"
