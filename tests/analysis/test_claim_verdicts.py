"""Verdicts on claims: worked out by hand, and compared with statsmodels and with a simulated truth."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from fake_store import FakeStore, fake_store
from rich.console import Console
from scipy import stats
from statsmodels.stats.power import TTestPower
from statsmodels.stats.weightstats import ttost_paired

from ablate.analysis import read_study
from ablate.analysis.claims import ClaimVerdict, judge_claims
from ablate.analysis.judging import Allowances
from ablate.analysis.runs import read_runs
from ablate.render.as_json import study_json, to_text
from ablate.render.table import print_study
from ablate.stats.further import in_percent
from ablate.store.records import TrialState

MARGIN = 0.05


def claim(expect: Any, **others: Any) -> dict[str, Any]:
    sides = {} if {"order", "subject"} & others.keys() else {"left": "he", "right": "attention"}
    needs = {} if "subject" in others else {"margin": MARGIN}
    return {"id": f"c-{expect}", "says": "So it is.", "source": "a paper", "expect": expect} | sides | needs | others


def store_with(
    claims: Sequence[Mapping[str, Any]],
    losses: Mapping[str, Sequence[float]],
    settings: Mapping[str, dict[str, str]] | None = None,
    seeds: object = None,
    **options: Any,
) -> FakeStore:
    """A store with a study of these claims; `losses` are by variant, one for each of the seeds that it declares."""
    planned = max(map(len, losses.values()))
    variants = {name: ((settings or {}).get(name, {}), 20_947_008) for name in losses}
    store = fake_store(variants, seeds=planned, margin=MARGIN, **options)
    space = {"claims": [dict(claim) for claim in claims], "design": {"kind": "grid", "seeds": seeds or planned}}
    store.record = dataclasses.replace(store.record, space=space)
    for name, values in losses.items():
        for seed, value in enumerate(values):
            store.add(name, seed, {store.record.objective["metric"]: value})
    return store


def verdicts(store: FakeStore) -> dict[str, ClaimVerdict]:
    return {claim.id: claim for claim in read_study(store, "a_study").answer.claims}


def only(store: FakeStore) -> ClaimVerdict:
    (verdict,) = read_study(store, "a_study").answer.claims
    return verdict


@pytest.mark.parametrize(
    ("advantage", "words"),
    [
        # How much better the left variant is, exactly; what becomes of better, not_worse, equal and worse.
        (0.20, ("supported", "supported", "refuted", "refuted")),
        (0.02, ("refuted", "supported", "supported", "refuted")),
        (-0.02, ("refuted", "supported", "supported", "refuted")),
        (-0.20, ("refuted", "refuted", "refuted", "supported")),
    ],
)
@pytest.mark.parametrize("direction", ["minimize", "maximize"])
def test_a_certain_difference_settles_every_word(advantage: float, words: tuple[str, ...], direction: str) -> None:
    claims = [claim(expect) for expect in ("better", "not_worse", "equal", "worse")]
    shift = -advantage if direction == "minimize" else advantage
    rng = np.random.default_rng(0)
    attention = 3.0 + rng.normal(0, 0.1, 4)
    he = attention + shift + rng.normal(0, 0.001, 4)
    found = verdicts(store_with(claims, {"attention": attention, "he": he}, direction=direction))
    assert tuple(verdict.verdict for verdict in found.values()) == words
    for verdict in found.values():
        assert verdict.sentence.startswith(f"{verdict.verdict}: ")
        assert verdict.evidence["difference"] == pytest.approx(shift, abs=0.002)


def test_words_agree_with_statsmodels() -> None:
    rng = np.random.default_rng(1)
    seen = set()
    for truth in np.linspace(-0.15, 0.15, 25):
        attention = 3.0 + rng.normal(0, 0.1, 4)
        he = attention - truth + rng.normal(0, 0.03, 4)
        found = verdicts(
            store_with([claim(e) for e in ("better", "not_worse", "equal")], {"attention": attention, "he": he})
        )

        def p(edge: float, side: str, gain: Any = attention - he) -> float:
            return float(stats.ttest_1samp(gain, edge, alternative=side).pvalue)

        better = "supported" if p(MARGIN, "greater") < 0.05 else "refuted" if p(MARGIN, "less") < 0.05 else "undecided"
        not_worse = (
            "supported" if p(-MARGIN, "greater") < 0.05 else "refuted" if p(-MARGIN, "less") < 0.05 else "undecided"
        )
        apart = min(p(MARGIN, "greater"), p(-MARGIN, "less")) < 0.025
        equal = ttost_paired(attention, he, -MARGIN, MARGIN)[0] < 0.05
        expected = [better, not_worse, "supported" if equal else "refuted" if apart else "undecided"]
        assert [verdict.verdict for verdict in found.values()] == expected
        seen.update(zip(found, expected, strict=True))
    assert len(seen) == 9


def test_sentences_and_evidence() -> None:
    # Advantages of 0.2501: hardly any spread, so the bounds are the difference itself.
    store = store_with(
        [claim("better"), claim("not_worse"), claim("equal"), claim("worse")],
        {"attention": [3.2501, 3.5001001], "he": [3.0, 3.25]},
    )
    found = verdicts(store)
    begins = "he is at least 0.25 better than attention in val_loss"
    in_words = f"{begins} (one-sided 95 % bound, 2 paired seeds, margin 0.05)"
    assert found["c-better"].sentence == f"supported: {in_words}"
    assert found["c-not_worse"].sentence == f"supported: {in_words}"
    assert found["c-equal"].sentence == f"refuted: {in_words.replace('95 %', '97.5 %')}", (
        "two contraries share the error"
    )
    assert found["c-worse"].sentence == f"refuted: {in_words}"
    evidence = found["c-better"].evidence
    assert (evidence["n"], evidence["seeds"]) == (2, [0, 1])
    assert [evidence[name] for name in ("difference", "low", "high")] == pytest.approx([-0.2501] * 3, abs=1e-6)
    assert evidence["confidence"] == 0.95
    assert evidence["sign_flip_at_zero"] == {"p": 0.5, "floor": 0.5}
    same = verdicts(
        store_with([claim("equal"), claim("better")], {"attention": [3.0, 3.0], "he": [3.03125, 3.0312501]})
    )
    assert same["c-equal"].sentence == (
        "supported: he is at most 0.032 better or worse than attention in val_loss "
        "(one-sided 95 % bound, 2 paired seeds, margin 0.05)"
    )
    assert "refuted: he is at least 0.031 worse than attention" in same["c-better"].sentence


NUMBERS = {"difference", "low", "high", "confidence", "n", "seeds", "effect_size", "sign_flip_at_zero", "further_seeds"}
"""What the evidence of a measured claim has besides what is claimed."""
SUBJECT = {"variant": "he", "quantity": "val_loss"}


@pytest.mark.parametrize(
    ("made", "claimed", "others"),
    [
        (claim("better"), {"left": "he", "right": "attention"}, {"difference_of": "val_loss of he minus attention"}),
        (claim("ordered", order=["he", "attention"]), {}, {"pairs": None}),
        (
            claim("grows", along="context"),
            {"left": "he", "right": "attention", "along": "context"},
            {
                "positions": [64.0, 128.0, 256.0],
                "difference_of": "val_loss of he minus attention, its change for each doubling",
            },
        ),
        (claim(9.0, subject=SUBJECT, tolerance=0.2), {**SUBJECT, "expected": 9.0, "tolerance": 0.2}, {}),
        (
            claim(1.0, subject={**SUBJECT, "over": "attention"}, tolerance=0.2),
            {**SUBJECT, "over": "attention", "expected": 1.0, "tolerance": 0.2},
            {},
        ),
    ],
    ids=["better", "ordered", "grows", "number", "ratio"],
)
def test_the_evidence_holds_what_was_claimed(
    made: dict[str, Any], claimed: dict[str, Any], others: dict[str, Any]
) -> None:
    """Besides the numbers of a measured claim, and nothing else."""
    store = store_with([made], {"attention": [3.0, 3.1, 3.2], "he": [2.5, 2.61, 2.69]})
    if "along" in made:
        store = trend_store(0.1, 0.002)
        store.record = dataclasses.replace(store.record, space={**store.record.space, "claims": [made]})
    if "subject" not in made:
        claimed = claimed | {"metric": "val_loss", "margin": made["margin"]}
    found, numbers = only(store).evidence, set() if "order" in made else NUMBERS
    assert only(store).verdict != "undecided"
    assert found.keys() == {*claimed, *others, *numbers}
    assert claimed.items() <= found.items()
    assert all(found[name] == value for name, value in others.items() if value is not None)


def test_too_few_or_too_noisy_seeds_leave_it_undecided_and_say_how_many_would_decide() -> None:
    few = only(store_with([claim("better")], {"attention": [3.0], "he": [2.0]}))
    assert few.sentence == "undecided: at least 2 paired seeds are required, 1 finished"
    assert few.evidence["further_seeds"] == 1
    edges = {"better": [0.05], "not_worse": [-0.05], "worse": [-0.05], "equal": [-0.05, 0.05]}
    for sign in (1, -1):  # which of both edges is the nearer one
        losses = [3.0 + sign * off for off in (-0.04, 0.01, 0.05)]
        found = verdicts(store_with([claim(word) for word in edges], {"attention": [3.0, 3.0, 3.0], "he": losses}))
        for noisy, limits in zip(found.values(), edges.values(), strict=True):
            assert noisy.verdict == "undecided"
            more = f"undecided: about {noisy.evidence['further_seeds']} more seeds would decide with a chance of "
            assert noisy.sentence == more + in_percent(noisy.evidence["chance_of_decision"])
            # The difference is 1/150 and its standard deviation 0.0451.
            apart = min(abs(-sign * 0.02 / 3 - limit) for limit in limits) / 0.0450925
            required = TTestPower().solve_power(apart, alpha=0.005, power=0.8, alternative="larger")
            assert noisy.evidence["further_seeds"] == int(np.ceil(required)) - 3


@pytest.mark.parametrize(
    ("losses", "said"),
    [
        ([2.0], "at least 2 paired seeds are required, 1 finished"),
        ([2.0, 2.0], "all 2 differences are -1, and without any spread no test is possible: "),
    ],
)
def test_missing_seeds_and_missing_spread_are_said_before_a_failed_trial(losses: list[float], said: str) -> None:
    store = store_with([claim("better")], {"attention": [3.0] * (len(losses) + 1), "he": losses})
    store.add("he", len(losses), state=TrialState.FAILED, reason="out of memory")
    assert only(store).sentence.startswith(f"undecided: {said}")


def test_divergence_counts_against_a_variant() -> None:
    claims = [claim(expect) for expect in ("better", "not_worse", "equal", "worse")]
    store = store_with(claims, {"attention": [3.0, 3.0, 3.0], "he": [2.0, 2.0, 2.0]})
    store.add("he", 1, state=TrialState.DIVERGED, stopped_at=5)
    words = [verdict.verdict for verdict in verdicts(store).values()]
    assert words == ["refuted", "refuted", "refuted", "supported"]
    assert verdicts(store)["c-better"].sentence == "refuted: he diverged at seed 1, which attention finished"
    assert verdicts(store)["c-better"].evidence["diverged"] == {"he": [1], "attention": []}

    store.add("attention", 2, state=TrialState.DIVERGED, stopped_at=5)
    assert {verdict.sentence for verdict in verdicts(store).values()} == {"undecided: he and attention both diverged"}

    store = store_with(claims, {"attention": [3.0, 3.0, 3.0], "he": [2.0, 2.0, 2.0]})
    store.add("attention", 0, state=TrialState.DIVERGED, stopped_at=5)
    assert [v.verdict for v in verdicts(store).values()] == ["supported", "supported", "refuted", "refuted"]
    store.add("he", 0, state=TrialState.FAILED)
    assert only_sentence(store) == "undecided: attention diverged at seed 0, which he has not finished"


def only_sentence(store: FakeStore) -> str:
    (sentence,) = {verdict.sentence for verdict in verdicts(store).values()}
    return sentence


def test_another_metric_with_its_own_direction() -> None:
    claims = [claim("better", metric="val_accuracy", direction="maximize"), claim("equal", metric="typo")]
    store = store_with(claims, {"attention": [3.0] * 3, "he": [3.0] * 3})  # one seed has no accuracy
    for seed, (ours, theirs) in enumerate([(0.7501, 0.5), (0.8751001, 0.625)]):
        store.add("he", seed, {"val_loss": 3.0, "val_accuracy": ours})
        store.add("attention", seed, {"val_loss": 3.0, "val_accuracy": theirs})
    found = verdicts(store)
    assert found["c-better"].sentence.startswith("supported: he is at least 0.25 better")
    assert found["c-equal"].sentence == "undecided: no trial has a metric `typo`; there are: val_accuracy, val_loss"


def test_a_side_metric_that_overflows_is_a_divergence() -> None:
    store = store_with(
        [claim("not_worse", metric="val_perplexity", direction="minimize")], {"attention": [3.0, 3.0], "he": [3.0, 3.0]}
    )
    store.add("he", 0, {"val_loss": 3.0, "val_perplexity": float("inf")})
    for name, seed in (("attention", 0), ("attention", 1), ("he", 1)):
        store.add(name, seed, {"val_loss": 3.0, "val_perplexity": 20.0})
    report = read_study(store, "a_study")
    assert report.answer.claims[0].sentence == "refuted: he diverged at seed 0, which attention finished"
    assert [row.metrics["val_perplexity"].mean for row in report.variants] == [20.0, None]


@pytest.mark.parametrize(
    ("expect", "tolerance", "sentence"),
    [
        (20_947_008, 0, "supported: he has 20,947,008 parameters"),
        (20_947_007, 1, "supported: he has 20,947,008 parameters, 1 more than 20,947,007"),
        (20_947_000, 8, "supported: he has 20,947,008 parameters, 8 more than 20,947,000"),
        (20_947_016, 7, "refuted: he has 20,947,008 parameters, 8 fewer than 20,947,016"),
        (20_947_008.5, 1, "supported: he has 20,947,008 parameters, 0.5 fewer than 20,947,008.5"),
    ],
)
def test_a_number_that_is_counted(expect: int, tolerance: float, sentence: str) -> None:
    subject = {"variant": "he", "quantity": "parameters"}
    verdict = only(store_with([claim(expect, subject=subject, tolerance=tolerance)], {"attention": [], "he": []}))
    assert verdict.sentence == sentence
    assert verdict.evidence["found"] == 20_947_008


def test_a_number_that_is_measured_must_be_shown_to_lie_within_its_tolerance() -> None:
    rng = np.random.default_rng(3)
    for spread, centre, word in (
        (0.01, 3.4, "supported"),
        (0.01, 3.6, "refuted"),
        (0.5, 3.4, "undecided"),
    ):
        losses = {"attention": [1.0] * 4, "he": centre + rng.normal(0, spread, 4)}
        subject = {"variant": "he", "quantity": "val_loss"}
        verdict = only(store_with([claim(3.4, subject=subject, tolerance=0.1)], losses))
        assert verdict.verdict == word
        level = {"supported": "(90 % interval)", "refuted": "(95 % interval)", "undecided": ""}[word]
        assert level in verdict.sentence
    store = store_with([claim(3.4, subject=subject, tolerance=0.1)], {"attention": [1.0], "he": [3.4]})
    store.add("he", 0, state=TrialState.DIVERGED)
    assert only(store).sentence == "refuted: he diverged at seed 0"
    flops = store_with(
        [
            claim(7, subject={"variant": "he", "quantity": "flops"}),
            claim(0, subject={"variant": "he", "quantity": "flops"}),
        ],
        {"attention": [1.0], "he": [3.4]},
    )
    assert [v.verdict for v in verdicts(flops).values()] == ["refuted", "supported"]
    del flops.trial_records["he/0"]
    assert [v.verdict for v in verdicts(flops).values()] == ["undecided", "undecided"]


@pytest.mark.parametrize(
    ("low", "high", "word"),
    [
        (3.300004, 3.4, "supported"),
        (3.4, 3.499996, "supported"),
        (3.500004, 3.7, "refuted"),
        (3.1, 3.299996, "refuted"),
    ],
)
def test_each_end_of_an_interval_is_told_from_the_claimed_range(low: float, high: float, word: str) -> None:
    level = 90 if word == "supported" else 95
    off = (high - low) / 2 / stats.t.ppf(0.5 + level / 200, 1)
    losses = {"attention": [1.0] * 2, "he": [(low + high) / 2 - off, (low + high) / 2 + off]}
    found = only(store_with([claim(3.4, subject=SUBJECT, tolerance=0.1)], losses))
    ends = f"val_loss of he lies between {low:.7g} and {high:.7g}"
    assert found.sentence == f"{word}: {ends} ({level} % interval), the claim is 3.4 ± 0.1"


def test_an_order_needs_every_pair_and_one_contrary_pair_refutes_it() -> None:
    def ordered(*gaps: float, noise: float = 0.002) -> ClaimVerdict:
        rng = np.random.default_rng(5)
        ends = 3.0 + np.cumsum([0.0, *gaps])
        losses = {name: end + rng.normal(0, noise, 4) for name, end in zip("abc", ends, strict=True)}
        return only(store_with([claim("ordered", order=["a", "b", "c"])], losses))

    assert ordered(0.2, 0.1).verdict == "supported"
    assert ordered(0.2, 0.1).variants == ("a", "b", "c"), "the evidence has a list of pairs"
    assert ordered(0.2, 0.01).verdict == "refuted"
    assert ordered(0.2, 0.1, noise=0.2).verdict == "undecided"
    refuted = ordered(0.2, -0.3)
    assert refuted.sentence.startswith("refuted: b is at least 0.2")
    assert [pair["left"] for pair in refuted.evidence["pairs"]] == ["a", "b"]


@pytest.mark.parametrize("direction", ["minimize", "maximize"])
@pytest.mark.parametrize("expect", ["better", "worse", "equal"])
def test_differences_without_spread_have_the_sign_of_the_evidence(direction: str, expect: str) -> None:
    store = store_with([claim(expect)], {"attention": [2.5] * 3, "he": [2.75] * 3}, direction=direction)
    told = only(store)
    assert told.evidence["difference"] == 0.25
    assert told.sentence.startswith("undecided: all 3 differences are 0.25, and")


def trend_store(
    slope: float, noise: float, expect: str = "grows", stream: int = 6, contexts: Sequence[int] = (64, 128, 256)
) -> FakeStore:
    """Gaps of 0.1 + slope for each doubling of the context from 64; the baseline of both sides varies by seed."""
    rng = np.random.default_rng(stream)
    losses, settings = {}, {}
    for doublings, context in enumerate(contexts):
        attention = 3.0 - 0.1 * doublings + rng.normal(0, 0.2, 4)
        he = attention - 0.1 - slope * doublings + rng.normal(0, noise, 4)
        for mixer, values in (("attention", attention), ("he", he)):
            name = mixer if context == 64 else f"{mixer},context={context}"
            losses[name], settings[name] = values, {"mixer": mixer, "context": str(context)}
    return store_with([claim(expect, along="context", margin=0.01)], losses, settings)


def test_a_gap_that_grows() -> None:
    grows = only(trend_store(0.1, 0.002))
    assert grows.verdict == "supported"
    words = grows.sentence.split()
    assert words[:7] == ["supported:", "the", "gap", "grows", "by", "at", "least"]
    assert 0.09 < float(words[7]) <= -grows.evidence["difference"]
    assert grows.evidence["positions"] == [64.0, 128.0, 256.0]
    assert grows.evidence["difference"] == pytest.approx(-0.1, abs=0.005)
    assert only(trend_store(0.0, 0.002)).verdict == "refuted"
    assert only(trend_store(-0.1, 0.002, expect="shrinks")).verdict == "supported"
    assert only(trend_store(0.1, 0.002, expect="shrinks")).verdict == "refuted"
    assert only(trend_store(0.1, 0.002, contexts=(64, 128))).verdict == "supported"


@pytest.mark.parametrize("doublings", [1, 2])
@pytest.mark.parametrize(
    ("last", "regret", "word"),
    [(0.015, 0.0, "supported"), (0.007, 0.0, "undecided"), (0.04, 0.02, "supported"), (0.025, 0.02, "undecided")],
)
def test_where_a_gap_bends_each_step_must_show_the_trend_for_each_doubling(
    doublings: int, last: float, regret: float, word: str
) -> None:
    """By more than what attention may gain from a better value of what was tuned, for each doubling."""
    rng, losses, settings = np.random.default_rng(4), {}, {}
    for place, change in enumerate((0.0, 0.1, 0.1 + last)):
        context = str(64 * 2 ** (place * doublings))
        attention = 3.0 + rng.normal(0, 0.2, 4)
        for mixer, gap in (("attention", 0.0), ("he", 0.1 + doublings * change)):
            name = f"{mixer},context={context}" if place else mixer
            losses[name] = attention - gap + rng.normal(0, 0.0005, 4)
            settings[name] = {"mixer": mixer, "context": context}
    store = store_with([claim("grows", along="context", margin=0.01)], losses, settings)
    allowances = Allowances("attention", regret={name: doublings * regret for name in losses if name.startswith("att")})
    (found,) = judge_claims(store.record, read_runs(store, store.record, "val_loss"), allowances)
    assert found.verdict == word
    assert ("the gap bends, and from" in found.sentence) == (word == "undecided")


def test_slopes_are_judged_as_scipy_judges_them() -> None:
    seen = set()
    for stream in range(40):
        store = trend_store(0.02 * (stream % 3 - 1), 0.02, stream=stream)

        def loss(name: str, seed: int, store: FakeStore = store) -> float:
            return store.trial_records[f"{name}/{seed}"].metrics["val_loss"]

        # With three equally spaced positions the slope is half the difference of the outer gaps.
        ends = [loss("attention,context=256", s) - loss("he,context=256", s) for s in range(4)]
        rises = [(end - loss("attention", s) + loss("he", s)) / 2 for s, end in enumerate(ends)]
        above = stats.ttest_1samp(rises, 0.01, alternative="greater").pvalue
        expected = "supported" if above < 0.05 else "refuted" if above > 0.95 else "undecided"
        assert only(store).verdict == expected
        seen.add(expected)
    assert len(seen) == 3


def test_a_gap_with_a_hole() -> None:
    store = trend_store(0.1, 0.002)
    store.add("he,context=128", 0, state=TrialState.DIVERGED)
    assert only(store).sentence == "undecided: he,context=128 diverged, so the gap has no trend"
    short = store_with(
        [claim("grows", along="context")],
        {"attention": [3.0], "he": [2.0]},
        {"attention": {"mixer": "attention", "context": "64"}, "he": {"mixer": "he", "context": "64"}},
    )
    assert only(short).sentence == "undecided: the study trained both variants at 1 of the positions"


@pytest.mark.parametrize("schedule", [4, {"start": 3, "max": 8}], ids=["fixed", "sequential"])
def test_claims_are_wrong_at_most_five_times_in_a_hundred(schedule: object) -> None:
    """At an edge both verdicts on a word are wrong in one way.

    A margin much smaller than the noise is the hard case for `equal`, which can then be refuted from both sides.
    """
    rng, studies, seeds = np.random.default_rng(7), 600, 8 if isinstance(schedule, dict) else 4
    advantages = {"attention": 0.0, "he": 0.05, "mlp": -0.05, "twin": 0.0}
    claims = [
        claim("better"),
        claim("not_worse", left="mlp"),
        claim("worse", left="mlp"),
        claim("equal"),
        claim("equal", id="no_difference", left="twin", margin=0.0005),
        claim("ordered", order=["he", "attention", "mlp"]),
    ]
    store = store_with(claims, {name: [3.0] * seeds for name in advantages}, seeds=schedule)
    words: dict[str, list[str]] = {plain["id"]: [] for plain in claims}
    for _ in range(studies):
        for seed in range(seeds):
            base = rng.normal(3.0, 0.1)
            for name, advantage in advantages.items():
                noise = 0.0 if name == "attention" else rng.normal(0, 0.02)
                store.add(name, seed, {"val_loss": base - advantage + noise})
        for identity, judged in verdicts(store).items():
            words[identity].append(judged.verdict)
    for identity, found in words.items():
        for word in ("refuted",) if identity == "no_difference" else ("supported", "refuted"):
            assert stats.binomtest(found.count(word), studies, 0.05, alternative="greater").pvalue > 0.001


def test_a_sequential_claim_stays_with_its_first_decision() -> None:
    schedule = {"start": 3, "max": 8}
    attention, he = [3.0] * 5, [2.5, 2.501, 2.499, 3.5, 3.6]
    verdict = only(store_with([claim("better")], {"attention": attention, "he": he}, seeds=schedule))
    assert verdict.verdict == "supported"
    assert "(one-sided 95 % bound, 3 paired seeds, margin 0.05)" in verdict.sentence
    assert only(store_with([claim("better")], {"attention": attention, "he": he})).verdict == "undecided"


def test_a_claim_on_a_variant_that_the_study_never_had() -> None:
    verdict = only(store_with([claim("better", left="mlp")], {"attention": [3.0], "he": [3.0]}))
    assert verdict.sentence == "undecided: the study has no variant mlp"


def test_claims_stand_in_the_report_and_in_its_json() -> None:
    store = store_with(
        [claim("better", source="[red]Fig. 8"), claim("equal")], {"attention": [3.2501, 3.5001001], "he": [3.0, 3.25]}
    )
    report = read_study(store, "a_study")
    plain = json.loads(to_text(study_json(report)))["claims"]
    assert [set(claim) for claim in plain] == [{"id", "says", "source", "verdict", "sentence", "evidence"}] * 2
    assert plain[0]["verdict"] == "supported"
    console = Console(width=100)
    with console.capture() as capture:
        print_study(report, console)
    text = " ".join(capture.get().split())
    assert "Claims: 1 supported, 1 refuted" in text
    assert "c-better So it is. ([red]Fig. 8)" in text
    assert report.answer.claims[0].sentence in text


@pytest.mark.parametrize("direction", ["minimize", "maximize"])
@pytest.mark.parametrize(("left", "right"), [("he", "attention"), ("attention", "he")])
def test_the_evidence_has_the_sign_of_the_table_whichever_side_the_claim_names_first(
    left: str, right: str, direction: str
) -> None:
    claims = [{**claim("better"), "left": left, "right": right}]
    rng = np.random.default_rng(2)
    attention = 3.0 + rng.normal(0, 0.1, 4)
    store = store_with(
        claims, {"attention": attention, "he": attention + rng.normal(0.2, 0.01, 4)}, direction=direction
    )
    store.record = dataclasses.replace(store.record, baseline="attention")
    report = read_study(store, "a_study")
    row = next(row for row in report.variants if row.name == "he")
    assert row.difference is not None
    (verdict,) = report.answer.claims
    for name in ("difference", "low", "high"):
        assert verdict.evidence[name] == pytest.approx(getattr(row.difference, name))
    assert verdict.evidence["difference_of"] == "val_loss of he minus attention"


def test_a_ratio_over_a_value_of_zero_is_not_decided_by_the_other_seeds() -> None:
    subject = {"variant": "he", "quantity": "val_loss", "over": "attention"}
    ratio = claim(1.0, subject=subject, tolerance=0.2)
    assert only(store_with([ratio], {"he": [1.0, 1.01, 1.02], "attention": [1.0, 1.0, 1.01]})).verdict == "supported"
    lost = store_with([ratio], {"he": [1.0, 1.01, 1.02, 9.0], "attention": [1.0, 1.0, 1.01, 1.0]})
    lost.add("attention", 3, state=TrialState.FAILED, reason="out of memory")
    assert only(lost).evidence["seeds"] == [0, 1, 2], "those that both have"
    found = only(store_with([ratio], {"he": [0.5, 1.01, 1.0, 1.02], "attention": [0.0, 1.0, 1.0, 1.01]}))
    assert found.sentence == "undecided: val_loss of attention is 0 at seed 0: no ratio is known"


@pytest.mark.parametrize("skewed", [False, True])
def test_a_tail_of_another_metric_widens_the_claims_on_it(skewed: bool) -> None:
    """The objective shows none; one of five seeds ends far worse in the accuracy of every variant."""
    names = ["attention", "he", "me", "we", "she", "it"]
    made = store_with(
        [claim("not_worse", left="he", right="attention", metric="accuracy", direction="maximize", margin=0.1)],
        {name: [3.0 + 0.01 * place * (-1) ** seed for seed in range(5)] for place, name in enumerate(names)},
    )
    for place, name in enumerate(names):
        for seed in range(5):
            far = (0.4 if name not in ("attention", "he") else 0.08) * (skewed and seed == place % 5)
            trial = made.trial_records[f"{name}/{seed}"]
            accuracy = 0.5 - (far + 0.004 * (-1) ** seed if place else 0.0)
            made.trial_records[trial.key] = dataclasses.replace(trial, metrics={**trial.metrics, "accuracy": accuracy})
    found = only(made)
    assert found.verdict == ("undecided" if skewed else "supported")
    assert ("a few seeds end far worse than the others" in found.sentence) == skewed


@pytest.mark.parametrize("metric", ["val_loss", "accuracy"])
@pytest.mark.parametrize("skewed", ["", "@budget=2"])
def test_a_tail_at_one_place_widens_the_claims_there_alone(skewed: str, metric: str) -> None:
    names, ends = ["attention", "he", "me", "we", "she", "it"], ["", "@budget=2"]

    def loss(place: int, seed: int, end: str) -> float:
        far = (0.4 if place > 1 else 0.08) * (end == skewed and seed == place % 5)
        return 3.0 + (far + 0.004 * (-1) ** seed if place else 0.0)

    fields = {"margin": 0.1, "metric": metric, "direction": "minimize"}
    claims = [claim("not_worse", id=f"at{end[8:]}", left=f"he{end}", right=f"attention{end}", **fields) for end in ends]
    made = store_with(claims, {name + end: [3.0] * 5 for end in ends for name in names})
    made.record = dataclasses.replace(made.record, space={**made.record.space, "budgets": [1, 2]})
    for end in ends:
        for place, name in enumerate(names):
            for seed in range(5):
                even = {"val_loss": 3.0 + 0.01 * place * (-1) ** seed}
                made.add(name + end, seed, even | {metric: loss(place, seed, end)})
    found = {claim.id: claim.verdict for claim in read_study(made, "a_study").answer.claims}
    assert found == {f"at{end[8:]}": "undecided" if end == skewed else "supported" for end in ends}


def test_an_undecided_claim_says_what_is_known_so_far_and_calls_variants_by_their_titles() -> None:
    losses = {"attention": [2.0, 2.1, 2.3], "he": [2.1, 2.1, 2.4]}
    found = only(store_with([claim("worse")], losses))
    assert found.verdict == "undecided"
    assert found.so_far == "so far +0.067, margin 0.05"
    assert found.variants == ("he", "attention")
    sure = only(store_with([claim("worse")], {"attention": [2.0, 2.1, 2.3], "he": [3.0, 3.11, 3.32]}))
    assert (sure.verdict, sure.so_far) == ("supported", "")
    assert sure.reason({"he": "attention → HE"}).startswith("attention → HE is at least ")


def test_a_claim_says_that_its_margin_is_its_own_and_leaves_the_chance_to_the_evidence() -> None:
    said = "undecided: about 12 more seeds would decide with a chance of 70 %"
    claim = ClaimVerdict("sas", "", "", "undecided", said, {"margin": 0.02, "chance_of_decision": 0.7})
    assert claim.reason({}) == "about 12 more seeds would decide with a chance of 70 %"
    assert claim.own_margin(0.05) == "this margin is the claim's own, the study's is 0.05"
    assert claim.own_margin(0.02) == ""
