"""What supports an answer and what limits it, as whole records that are made from the least that they need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from fake_store import FakeStore, fake_store

from ablate.analysis.fairness import MatchedBudgets, Tuned, Tuning
from ablate.analysis.runs import VariantRuns, read_runs
from ablate.analysis.warnings import (
    WHICH,
    StudyWarning,
    draw_noise,
    missing_trials,
    selected_variants,
    support,
    target_limits,
    timed_apart,
    validation_draw,
)
from ablate.roles import TrialRole
from ablate.spec.suite import on_data
from ablate.store.records import PlannedTrial, TrialState

RECORD = fake_store({"baseline": ({}, 10), "a": ({}, 10), "b": ({}, 10)}).record
STEPS = MatchedBudgets("steps", None, {})


def weak(key: Any, text: str, full: str = "", *variants: str) -> StudyWarning:
    return StudyWarning(key, "weak", text, full, variants)


def row(name: str, **facts: Any) -> Any:
    return SimpleNamespace(name=name, **{"finished": (0, 1, 2), "unreached": 0, "chosen": False} | facts)


def counts(finished: int = 0, waiting: int = 0, running: int = 0) -> dict[TrialState, int]:
    known = {TrialState.FINISHED: finished, TrialState.WAITING: waiting, TrialState.RUNNING: running}
    return dict.fromkeys(TrialState, 0) | known


def tuned(**values: Any) -> Tuning:
    return Tuning({"training.optimizer.lr": [1, 2]}, (), {name: Tuned(one, (), ()) for name, one in values.items()})


@pytest.mark.parametrize(
    ("reach", "said"),
    [
        (1.8, ()),
        (2.0, (weak("target", "the target 2 is not below the best trivial baseline (2)",
                    "The target 2 is not below the best trivial baseline (2), so reaching it shows little."),)),
    ],
)  # fmt: skip
def test_a_target_is_weak_where_counting_reaches_it_and_where_runs_do_not(
    reach: float, said: tuple[StudyWarning, ...]
) -> None:
    losses = {"unigram": 3.0, "bigram": 2.0, on_data("trigram", "another"): 1.0}
    trivial = {name: {"val_loss": loss} for name, loss in losses.items()} | {"guess": {"accuracy": 0.5}}
    record = replace(RECORD, space={"objective": {"reach": reach}}, trivial=trivial)
    assert tuple(target_limits(record, [row("baseline")])) == said
    assert tuple(target_limits(replace(record, trivial={"guess": trivial["guess"]}), [row("baseline")])) == ()
    assert tuple(target_limits(replace(record, space={}), [row("a", unreached=1)])) == ()
    end = (
        f"ended above the target {reach:g}. They count with the time at which they ended, and the true one is longer: "
        "such a variant can be shown to be worse, and nothing else. A longer training, or a target that all reach, "
        "gives intervals."
    )
    late = [row("a", unreached=1), row("b", unreached=2), row("baseline")]
    *_, one = target_limits(record, [late[0], late[2]])
    *_, both = target_limits(record, late)
    text = f"runs ended above the target {reach:g}: {WHICH}"
    assert one == weak("target", f"1 of 3 {text}", f"Censored: 1 of 3 runs of a {end}", "a")
    assert both == weak("target", f"3 of 6 {text}", f"Censored: 1 of 3 runs of a, 2 of 3 runs of b {end}", "a", "b")


@pytest.mark.parametrize(
    ("facts", "level", "said"),
    [
        ({}, "ok", "6/6 trials"),
        ({"progress": counts(1234)}, "ok", "1,234/1,234 trials"),
        ({"progress": counts(1), "pairs": (1,)}, "ok", "1/1 trial, 1 paired seed"),
        ({"pairs": (3, None, 3)}, "ok", "6/6 trials, 3 paired seeds"),
        ({"pairs": (3, 1, 4)}, "ok", "6/6 trials, 1 to 4 paired seeds"),
        ({"space": {"tasks": {"x": {}, "y": {}}}}, "ok", "6/6 trials on 2 tasks"),
        ({"pairs": (40,), "unit": "window"}, "ok", "6/6 trials, 40 paired windows, one trained model"),
        ({"tuning": tuned(a={"lr": 1})}, "ok", "6/6 trials, learning rate tuned for every variant"),
        ({"tuning": tuned(a={"lr": 1}, b=None)}, "weak", "6/6 trials, learning rate still being tuned"),
        ({"matching": MatchedBudgets("flops", "training.steps", {})}, "ok", "6/6 trials, equal flops"),
        ({"progress": counts(3, 1000, 2)}, "weak", "3/1,005 trials, 1,002 still missing"),
    ],
)
def test_the_evidence_counts_trials_and_pairs_and_says_what_is_tuned_and_equal(
    facts: Mapping[str, Any], level: str, said: str
) -> None:
    rows = [row("a", difference=None if n is None else SimpleNamespace(n=n)) for n in facts.get("pairs", ())]
    record = replace(RECORD, space=facts.get("space", {}))
    found = support(record, facts.get("progress", counts(6)), rows, facts.get("unit", "seed"), facts.get("tuning"),
                    facts.get("matching", STEPS))  # fmt: skip
    assert (found.key, found.level, found.text, found.full) == ("evidence", level, said, "")


@pytest.mark.parametrize(
    ("progress", "tuning", "said", "names"),
    [
        (counts(9), None, "", ()),
        (counts(9), tuned(a={"lr": 1}), "", ()),
        (counts(9), tuned(a=None, b={"lr": 1}), "a is still being tuned.", ("a",)),
        (counts(9), tuned(a=None, b=None), "a and b are still being tuned.", ("a", "b")),
        (counts(9, 1), tuned(a=None), "1 trial is still missing.", ()),
        (counts(9, 1000, 1), None, "1,001 trials are still missing.", ()),
    ],
)
def test_an_answer_is_provisional_while_trials_or_tuned_values_are_missing(
    progress: dict[TrialState, int], tuning: Tuning | None, said: str, names: tuple[str, ...]
) -> None:
    expected = [weak("missing", "", f"This answer is provisional: {said}", *names)] if said else []
    assert list(missing_trials(progress, tuning)) == expected


def test_steps_that_were_timed_on_several_devices_are_told_with_their_names() -> None:
    def timed(*devices: str | None) -> Any:
        known = [SimpleNamespace(environment=one and SimpleNamespace(device=one)) for one in devices]
        return SimpleNamespace(finished=dict(enumerate(known)))

    roles = {"a": TrialRole.TIMING, "b": TrialRole.TIMING, "c": TrialRole.TUNING, "gone": TrialRole.TIMING}
    record = replace(RECORD, scout_trials=tuple(PlannedTrial(name, name, 0, role) for name, role in roles.items()))
    assert list(timed_apart(record, {"a": timed("cpu", None), "b": timed("cpu"), "c": timed("cuda")})) == []
    assert list(timed_apart(record, {"a": timed(*"eca"), "b": timed(*"cdb")})) == [
        weak("timing", "steps were timed on 5 devices", "Steps were timed on 5 devices (a, b, c, d and e), so that "
             "variants do not train equally long. Run the study into a new store on one of them."),
    ]  # fmt: skip


@pytest.mark.parametrize(("names", "who"), [("", ""), ("a", "1 variant was"), ("ab", "2 variants were")])
def test_variants_that_results_chose_have_no_verdict(names: str, who: str) -> None:
    full = (
        "chosen by results and not confirmed by fresh seeds. Selection biases their estimates, so they have no verdict."
    )
    text = f"{len(names)} without a verdict, because they were not tried on fresh seeds"
    found = list(selected_variants([row("baseline"), *(row(name, chosen=True) for name in names)]))
    assert found == ([weak("selected", text, f"{who} {full}", *names)] if names else [])


def measured(*variants: tuple[str, dict[int, list[float]]]) -> FakeStore:
    """Trials by how their loss differs from a number for each part of the validation data, if there are parts."""
    made = fake_store({name: ({}, 10) for name, _ in variants})
    for name, seeds in variants:
        for seed, parts in seeds.items():
            made.add(name, seed, {"val_loss": 1.0})
            of = {"val_loss": tuple(sum(pair) for pair in zip(parts, (0.5, 0.25, 0.75), strict=False))} if parts else {}
            made.trial_records[f"{name}/{seed}"] = replace(made.trial_records[f"{name}/{seed}"], parts=of)
    return made


ZERO = {seed: [0.0, 0.0] for seed in range(3)}


@pytest.mark.parametrize(
    ("variants", "noise"),
    [
        ([("a", {0: [0.0, 0.2], 1: [0.0, 0.2]})], 0.1),
        ([("a", {0: [0.0, 0.2], 1: [0.0, 0.2], 2: [0.0, float("inf")]})], 0.1),
        ([("a", {0: [0.0, 0.2], 1: [0.0, 0.2], 2: [0.0, 0.2, 0.4]})], 0.1),
        ([("a", {0: [0.0, 0.2], 1: [0.0, 0.2], 2: []})], 0.1),
        ([("a", {0: [0.0, 0.2], 1: [0.2, 0.0]})], 0.0),
        ([("a", {0: [0.0, 0.2]})], None),
        ([("a", {seed: [0.0, size] for seed in (0, 1)}) for size in (0.2, 0.4, 0.6)], 0.2),
    ],
)
def test_the_noise_of_a_draw_is_what_all_seeds_share_between_parts(
    variants: list[tuple[str, dict[int, list[float]]]], noise: float | None
) -> None:
    """Two parts that differ alike at every seed have a mean with half of their difference as its deviation."""
    named = [(f"{name}{number}", of) for number, (name, of) in enumerate(variants)]
    made = measured(("baseline", ZERO), *named)
    runs = read_runs(made, made.record, "val_loss")
    found = draw_noise(made.record, runs)
    assert found == (None if noise is None else pytest.approx(noise))
    for lost in ({"diverged": {0: None}}, {"pruned": {0: None}}):
        without: dict[str, VariantRuns] = {name: replace(run, **lost) for name, run in runs.items()}  # type: ignore[arg-type]
        assert draw_noise(made.record, without) is None


@pytest.mark.parametrize(
    ("windows", "remedy"),
    [(100, "`task.validation_windows: 3600` reduces it to a tenth of the margin"),
     ("many", "More validation data reduces it"), (None, "More validation data reduces it")],
)  # fmt: skip
def test_a_draw_of_validation_data_matters_beyond_a_tenth_of_the_margin(windows: object, remedy: str) -> None:
    spec = {"task": {"validation_windows": windows} if windows else {}}
    record = replace(RECORD, variants=(RECORD.variants[1], replace(RECORD.variants[0], spec=spec)))
    assert list(validation_draw(None, 0.5, record)) == list(validation_draw(0.05, 0.5, record)) == []
    assert list(validation_draw(0.3, 0.5, record)) == [
        weak("draw", "another draw of validation data would move differences by 60% of the margin",
             "All differences are measured on one draw of validation data. Between draws a difference varies by about "
             "0.3 (standard deviation, median over variants), 60 % of the margin 0.5. The intervals do not include "
             f"this variance. {remedy}."),
    ]  # fmt: skip
