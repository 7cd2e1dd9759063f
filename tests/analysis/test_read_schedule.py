"""Reports of studies that add seeds by a schedule, and of verdicts read together."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from fake_store import NOON, FakeStore, fake_store
from rich.console import Console
from scipy import stats

from ablate.analysis import read_study
from ablate.render.as_json import study_json
from ablate.render.table import print_study
from ablate.stats import SeedSchedule, Verdict
from ablate.store.records import Declaration, StudyRecord, TrialState

MARGIN = 0.05


def store_of(losses: dict[str, list[float]], schedule: dict[str, int] | None = None) -> FakeStore:
    store = fake_store({name: ({}, 10) for name in losses}, seeds=max(map(len, losses.values())), margin=MARGIN)
    space = {"design": {"kind": "leave_one_out", "seeds": schedule or 3}}
    record: StudyRecord = dataclasses.replace(store.record, space=space)
    # A schedule plans each variant only as far as it was asked for.
    store.record = dataclasses.replace(
        record, planned=tuple(trial for trial in record.planned if trial.seed < len(losses[trial.variant]))
    )
    for name, values in losses.items():
        for seed, value in enumerate(values):
            store.add(name, seed, {"val_loss": value})
    return store


SCHEDULED = {
    "baseline": [3.0, 3.1, 2.9, 3.0, 3.05],
    "far=x": [3.5, 3.61, 3.39],
    "near=x": [3.06, 3.13, 2.96, 3.03, 3.12],
}


def test_verdicts_of_a_schedule_use_the_levels_of_its_looks() -> None:
    report = read_study(store_of(SCHEDULED, {"start": 3, "max": 8}), "a_study")
    assert report.rule.schedule == SeedSchedule(3, 8)
    _, far, near = report.variants
    level = SeedSchedule(3, 8).level(3)
    low = stats.ttest_1samp([0.5, 0.51, 0.49], 0).confidence_interval(1 - 2 * level).low
    assert far.verdict is not None
    assert far.verdict.word == "needed"
    assert float(far.verdict.sentence.split()[-1]) == pytest.approx(low, abs=0.005)
    assert near.verdict is not None
    assert near.verdict.word == "undecided"
    assert any(sentence.startswith("Undecided: near=x. ") for sentence in report.answer.sentences)


def test_a_schedule_that_is_used_up_says_so() -> None:
    losses = {name: values[:4] if name == "near=x" else values for name, values in SCHEDULED.items()}
    report = read_study(store_of(losses, {"start": 3, "max": 4}), "a_study")
    near = report.variants[2].verdict
    assert near is not None
    assert near.sentence == "undecided: 4 seeds, the maximum of this study, do not decide"
    assert "Undecided: near=x. More seeds than the schedule has would be required." in report.answer.sentences
    console = Console(width=100)
    with console.capture() as capture:
        print_study(report, console)
    assert "one-sided 95 % bounds at every look from 3 to 4 seeds" in " ".join(capture.get().split())


def test_before_its_first_look_a_schedule_decides_nothing() -> None:
    losses = {"baseline": [3.0, 3.1], "far=x": [9.0, 9.1]}
    report = read_study(store_of(losses, {"start": 3, "max": 8}), "a_study")
    verdict = report.variants[1].verdict
    assert verdict is not None
    assert verdict.sentence == "undecided: at least 3 paired seeds are required, 2 finished"
    assert report.answer.sentences == ("Too few results to judge far=x: at least 3 paired seeds are required.",)


def test_the_answer_says_which_verdicts_hold_together() -> None:
    baseline = np.array([3.0, 3.1, 2.9])

    def sentences(*p_values: float) -> tuple[str, ...]:
        """A study whose verdicts have exactly these p-values: three differences with a chosen t."""
        losses = {"baseline": baseline.tolist()}
        for number, p in enumerate(p_values):
            spread = np.array([-0.01, 0.01, 0.0])  # without a tail on either side
            error = spread.std(ddof=1) / np.sqrt(3)
            losses[f"{'abcde'[number]}=x"] = (baseline + MARGIN + stats.t.isf(p, 2) * error + spread).tolist()
        report = read_study(store_of(losses), "a_study")
        together = {row["name"]: row["versus_baseline"] for row in study_json(report)["variants"][1:]}
        assert {name for name, versus in together.items() if versus["holds_together"]} == report.answer.together
        return report.answer.sentences

    jointly = "These 3 verdicts also hold jointly: with 95 % confidence none of them is wrong"
    assert f"{jointly} (Holm's procedure)." in sentences(0.01, 0.02, 0.04)
    for p_values, which in (
        ((0.01, 0.03, 0.04), "only that on a=x holds"),
        ((0.03, 0.03, 0.04), "none holds"),
        ((0.001, 0.001, 0.03, 0.03, 0.04), "only those on a=x and b=x hold"),
        ((0.001, 0.001, 0.001, 0.03, 0.04), "all hold except those on d=x and e=x"),
        ((0.001, 0.001, 0.001, 0.97), "all hold except that on d=x"),
    ):
        by_itself = f"Each of these {len(p_values)} verdicts holds individually with 95 % confidence. Jointly, at a "
        assert f"{by_itself}family-wise error rate of 5 %, {which} (Holm's procedure)." in sentences(*p_values)
    assert not any("Holm" in sentence for sentence in sentences(0.03, 0.5))


def test_a_decision_stands_when_another_variant_runs_on_into_a_tail() -> None:
    """The look that decided saw five seeds of each; what one variant shows at its eighteenth does not reopen it."""
    rng = np.random.default_rng(1)
    shared = rng.normal(3.0, 0.1, 18)
    fine, long = rng.normal(0.0, 0.005, 5), np.where(np.arange(18) % 6 == 5, 0.6, 0.02) + rng.normal(0, 0.01, 18)
    losses = {"baseline": shared.tolist(), "fine=x": (shared[:5] + fine).tolist()}
    schedule = {"start": 5, "max": 20}
    losses["long=x"] = (shared[:5] + long[:5]).tolist()
    early = read_study(store_of(losses | {"baseline": shared[:5].tolist()}, schedule), "a_study").variants[1]
    losses["long=x"] = (shared + long).tolist()
    late = read_study(store_of(losses, schedule), "a_study").variants[1]
    assert early.verdict is not None
    assert late.verdict is not None
    assert (early.verdict.word, late.verdict.word) == ("not needed", "not needed")
    assert (late.verdict.bound, late.verdict.p_not_needed) == (early.verdict.bound, early.verdict.p_not_needed)


def without(store: FakeStore, *keys: str, states: TrialState | None = None) -> FakeStore:
    for key in keys:
        variant, seed = key.split("/")
        store.trial_records.pop(key, None)
        if states is not None:
            store.add(variant, int(seed), state=states)
    return store


@pytest.mark.parametrize("missing", [("far=x/4",), ("baseline/3",), ("far=x/1", "baseline/4")])
@pytest.mark.parametrize("state", [None, TrialState.RUNNING])
def test_a_fixed_study_has_no_verdict_until_its_last_seed_has_ended(
    missing: tuple[str, ...], state: TrialState | None
) -> None:
    losses = {"baseline": [3.0, 3.1, 2.9, 3.0, 3.05], "far=x": [3.5, 3.61, 3.39, 3.5, 3.54]}
    claims = [{"id": "far", "left": "baseline", "right": "far=x", "expect": "better", "margin": 0.05}]
    store = store_of(losses)
    store.record = dataclasses.replace(store.record, space={**store.record.space, "claims": claims})
    whole = read_study(store, "a_study")
    assert whole.variants[1].verdict is not None
    assert whole.variants[1].verdict.is_worse
    assert whole.answer.claims[0].verdict == "supported"
    assert not whole.variants[1].awaits
    report = read_study(without(store, *missing, states=state), "a_study")
    row = report.variants[1]
    ended = f"{5 - len(missing)} of 5 seeds have ended"
    assert row.verdict is not None
    assert (row.verdict.word, row.verdict.sentence, row.verdict.p_needed) == ("undecided", f"undecided: {ended}", 1.0)
    assert row.difference is not None
    assert row.difference.n == 5 - len(missing), "the estimate is shown"
    assert any(f"No verdict yet on far=x: {ended}" in sentence for sentence in report.answer.sentences)
    assert (report.answer.claims[0].verdict, ended in report.answer.claims[0].sentence) == ("undecided", True)
    assert not report.answer.together


@pytest.mark.parametrize(("seeds", "others"), [(2, 3), (3, 2), (2, 2)])
def test_a_fixed_study_whose_design_asked_for_fewer_seeds_has_no_verdict(seeds: int, others: int) -> None:
    losses = {"baseline": [3.0, 3.1, 2.9][:seeds], "far=x": [3.5, 3.61, 3.39][:others]}
    verdict = read_study(store_of(losses), "a_study").variants[1].verdict
    assert verdict is not None
    assert verdict.sentence == "undecided: 2 of 3 seeds have ended, and its design asked for no others"


def test_a_schedule_decides_at_its_looks_while_later_seeds_run_and_never_over_a_gap() -> None:
    losses = {"baseline": [3.0, 3.1, 2.9, 3.0, 3.05], "far=x": [3.5, 3.61, 3.39, 3.5, 3.54]}
    schedule = {"start": 3, "max": 8}
    late = read_study(without(store_of(losses, schedule), "far=x/4"), "a_study").variants[1].verdict
    assert late is not None
    assert late.is_worse
    early = read_study(without(store_of(losses, schedule), "far=x/2"), "a_study").variants[1].verdict
    assert early is not None
    assert early.sentence == "undecided: at least 3 paired seeds are required, 2 finished"


def test_seeds_that_were_added_are_judged_at_their_end_and_what_was_decided_stays() -> None:
    def extended(far: list[float], *missing: str) -> Verdict:
        store = store_of({"baseline": [3.0, 3.1, 2.9, 3.0, 3.05], "far=x": far})
        before = Declaration(store.record.objective, [], NOON, 6, 3)
        space = {"design": {"kind": "leave_one_out", "seeds": 5}}
        store.record = dataclasses.replace(store.record, space=space, declared_before=(before,))
        verdict = read_study(without(store, *missing), "a_study").variants[1].verdict
        assert verdict is not None
        return verdict

    decided = [3.5, 3.61, 3.39, 3.5, 3.54]
    running, ended = extended(decided, "far=x/4"), extended(decided)
    assert running.is_worse
    assert (running.word, running.bound) == (ended.word, ended.bound)
    open_at_three = [3.3, 4.0, 2.95, 4.0, 4.05]
    waiting = extended(open_at_three, "far=x/4")
    assert waiting.sentence == "undecided: 4 of 5 seeds have ended"
