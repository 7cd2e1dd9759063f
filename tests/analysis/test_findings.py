"""What a report says of the trials of a study: their cost, where they ran, and on which data."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from fake_store import FakeStore, fake_store

from ablate.analysis.findings import TrainingCost, read_findings
from ablate.errors import NotFoundError
from ablate.roles import TrialRole
from ablate.store.records import Environment, PlannedTrial, TrialState

PLACES = {
    device: Environment({"python": "3.12"}, device, "far", None, None, "ablate study a.yaml")
    for device in ("cpu", "cuda: 1 x NVIDIA H100 80GB HBM3", "cuda: 4 x NVIDIA H100 80GB HBM3, 2 for each trial")
}
TRIALS = {
    "baseline/0": (1, TrialState.FINISHED, "cpu"),
    "baseline/1": (2, TrialState.DIVERGED, "cuda: 1 x NVIDIA H100 80GB HBM3"),
    "baseline/2": (4, TrialState.FAILED, "cuda: 1 x NVIDIA H100 80GB HBM3"),
    "a=off/0": (8, TrialState.PRUNED, "cuda: 4 x NVIDIA H100 80GB HBM3, 2 for each trial"),
    "a=off/1": (16, TrialState.FINISHED, "cuda: 1 x NVIDIA H100 80GB HBM3"),
    "a=off/9": (32, TrialState.FINISHED, "cuda: 1 x NVIDIA H100 80GB HBM3"),
    "tried/5": (64, TrialState.FINISHED, "cpu"),
}
"""Seconds of each trial, which has seen ten times as many tokens; `a=off/9` confirms and `tried/5` tunes."""


def studied() -> FakeStore:
    made = fake_store({"baseline": ({}, 10), "a=off": ({}, 9), "tried": ({}, 9)}, 3)
    for key, (seconds, state, device) in TRIALS.items():
        name, seed = key.split("/")
        spent: Any = {"seconds": seconds, "tokens": 10 * seconds, "flops": 1e14 * seconds}
        made.add(name, int(seed), {"val_loss": 3.0}, state=state, **spent)
        made.trial_records[key] = replace(
            made.trial_records[key], environment=PLACES[device], data_fingerprint=f"data {10 - seconds}"
        )
    baseline, off, tried = made.record.variants
    made.record = replace(
        made.record,
        variants=(replace(baseline, spec={"training": {"precision": "bf16"}}), off),
        planned=tuple(one for one in made.record.planned if one.variant != "tried"),
        scout_variants=(tried,),
        scout_trials=(PlannedTrial("tried/5", "tried", 5, TrialRole.TUNING),),
        confirm_trials=tuple(
            PlannedTrial(f"{name}/9", name, 9, TrialRole.CONFIRMATION) for name in ("baseline", "a=off")
        ),
    )
    return made


def cost(trials: int, seconds: int) -> TrainingCost:
    return TrainingCost(trials, seconds, 10 * seconds, pytest.approx(1e14 * seconds))  # type: ignore[arg-type]


def test_the_cost_of_a_study_is_that_of_the_trials_that_ended() -> None:
    found = read_findings(studied(), "a_study")
    assert (found.cost, found.scouting) == (cost(5, 1 + 2 + 8 + 16 + 32), cost(1, 64))
    assert found.cost_of == {"baseline": cost(2, 1 + 2), "a=off": cost(2, 8 + 16)}
    cpu, one, two = PLACES.values()
    assert found.environments == (cpu, one, two), "each once"
    assert found.data == ("data -6", "data 2", "data 8", "data 9")
    # The peak of an H100 is 989 TFLOP/s in bf16, in which the baseline is trained, and 67 in fp32.
    assert found.utilisation == pytest.approx(1e2 * (2 + 8 + 16) / (2 * 989 + 8 * 2 * 67 + 16 * 67))


def test_a_trainer_of_the_users_own_has_counted_no_flops_and_may_have_counted_no_tokens() -> None:
    made = studied()
    made.trial_records = {key: replace(one, tokens=0) for key, one in made.trial_records.items()}
    assert read_findings(made, "a_study").scouting.tokens == 0
    made.record = replace(made.record, space={"trainer": {"command": "python train.py"}})
    found = read_findings(made, "a_study")
    assert [found.cost, found.scouting, *found.cost_of.values()] == [
        TrainingCost(trials, seconds, None, None) for trials, seconds in ((5, 59), (1, 64), (2, 3), (2, 24))
    ]


def test_without_a_known_device_or_a_trial_that_ended_there_is_nothing_to_say() -> None:
    made = studied()
    made.trial_records = {key: replace(one, environment=None) for key, one in made.trial_records.items()}
    found = read_findings(made, "a_study")
    assert (found.utilisation, found.environments) == (None, ())
    made.trial_records.clear()
    with pytest.raises(NotFoundError) as refused:
        read_findings(made, "a_study")
    assert str(refused.value).startswith("study 'a_study': it has no results to report yet")
    assert (refused.value.expected, refused.value.got) == ("a trial that has ended", "8 planned")
