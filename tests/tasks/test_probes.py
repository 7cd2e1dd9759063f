"""The probes: every sequence can be solved by its rule, nothing else can be, and a small decoder learns it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from scipy.stats import chisquare

from ablate.spec.task import TaskSpec
from ablate.spec.variant import VariantSpec
from ablate.tasks.probe import UNSCORED, Probe
from ablate.training.events import Measurement
from ablate.training.loop import train
from ablate.training.members import Member

PROBES: list[dict[str, Any]] = [
    {"kind": "recall", "context": 34, "pairs": 7, "symbols": 26},
    {"kind": "copy", "span": 13, "symbols": 11},
    {"kind": "induction", "context": 29, "symbols": 7},
]


def opened(plain: dict[str, Any]) -> Probe:
    spec = TaskSpec.parse(plain)
    task = spec.open(Path(), spec.prepare(Path(), print))
    assert isinstance(task, Probe)
    return task


def solved(kind: str, inputs: list[int], place: int) -> int:
    """The answer at a place by the rule of the task, written with plain lists."""
    if kind == "copy":
        return inputs[place - inputs.index(max(inputs))]
    # Recall and induction: what follows the first token that equals this one.
    return inputs[inputs.index(inputs[place]) + 1]


@pytest.mark.parametrize("plain", PROBES, ids=lambda plain: plain["kind"])
def test_every_scored_place_is_answered_by_the_rule(plain: dict[str, Any]) -> None:
    batch = opened(plain).train_batch(0, 1, 200)
    scored = {"recall": 7, "copy": 13, "induction": 1}[plain["kind"]]
    for inputs, targets in zip(batch["inputs"].tolist(), batch["targets"].tolist(), strict=True):
        places = [place for place, target in enumerate(targets) if target != UNSCORED]
        assert len(places) == scored
        assert [solved(plain["kind"], inputs, place) for place in places] == [targets[place] for place in places]


@pytest.mark.parametrize("plain", PROBES, ids=lambda plain: plain["kind"])
def test_batches_are_a_function_of_seed_and_step(plain: dict[str, Any]) -> None:
    first, again = opened(plain), opened(plain)
    assert torch.equal(first.train_batch(1, 2, 5)["inputs"], again.train_batch(1, 2, 5)["inputs"])
    for seed, step in ((2, 2), (1, 3)):
        assert not torch.equal(first.train_batch(1, 2, 5)["inputs"], first.train_batch(seed, step, 5)["inputs"])
    one, other = ([b["inputs"] for b in task.validation_batches(100)] for task in (first, again))
    assert [len(inputs) for inputs in one] == [100] * 5 + [12]
    assert all(map(torch.equal, one, other))
    assert max(int(inputs.max()) for inputs in one) < first.shape.vocabulary
    assert one[0].shape[1] == first.shape.context


def test_answers_are_as_likely_as_guessing_says() -> None:
    for plain in PROBES[1:]:
        targets = opened(plain).train_batch(0, 0, 4000)["targets"].numpy()
        assert chisquare(np.bincount(targets[targets != UNSCORED], minlength=plain["symbols"])).pvalue > 1e-3
    for targets in opened(PROBES[0]).train_batch(0, 0, 200)["targets"].numpy():
        assert np.unique(targets[targets != UNSCORED]).size == 7  # every value is asked for once


def test_short_distances_are_likelier_in_recall() -> None:
    plain = {**PROBES[0], "pairs": 1, "context": 40}
    targets = opened(plain).train_batch(0, 0, 20_000)["targets"].numpy()
    counts = (targets != UNSCORED).sum(axis=0)[2::2]
    density = np.arange(1, counts.size + 1) ** -0.99
    assert chisquare(counts, density / density.sum() * counts.sum()).pvalue > 1e-3
    assert targets[:, 1::2].max() == UNSCORED


def test_loss_and_accuracy_count_the_scored_places_alone() -> None:
    task = opened(PROBES[0])
    batch = {name: torch.stack([values, values]) for name, values in task.train_batch(0, 0, 6).items()}
    logits = torch.randn(2, 6, 34, 26)
    targets = batch["targets"][1]
    member = [
        (logits[1, row, place].log_softmax(-1)[target].item(), int(logits[1, row, place].argmax()) == target)
        for row in range(6)
        for place, target in enumerate(targets[row].tolist())
        if target != UNSCORED
    ]
    metrics = task.metrics({name: total.tolist() for name, total in task.measure(logits, batch).items()})
    assert task.loss(logits, batch)[1].item() == pytest.approx(-np.mean([log for log, _ in member]), rel=1e-5)
    assert metrics["val_loss"][1] == pytest.approx(-np.mean([log for log, _ in member]), rel=1e-5)
    assert metrics["val_accuracy"][1] == pytest.approx(np.mean([right for _, right in member]))


@pytest.mark.parametrize("plain", PROBES, ids=lambda plain: plain["kind"])
def test_guessing_is_what_the_baseline_says(plain: dict[str, Any]) -> None:
    task = opened(plain)
    guess = task.baselines()["guess"]
    guesses = {"recall": 7, "copy": 11, "induction": 7}[plain["kind"]]
    assert guess == {"val_loss": pytest.approx(math.log(guesses)), "val_accuracy": pytest.approx(1 / guesses)}


def test_a_context_without_space_for_the_pairs_is_refused() -> None:
    with pytest.raises(ValidationError, match="every pair needs four tokens"):
        TaskSpec.parse({"kind": "recall", "context": 30, "pairs": 8})
    with pytest.raises(ValidationError, match="there are 7 different keys"):
        TaskSpec.parse({"kind": "recall", "context": 64, "pairs": 8, "symbols": 16})


def test_a_decoder_learns_to_find_what_followed() -> None:
    """Two layers of attention make an induction head; a guess is right once in four."""
    plain = {
        "task": {"kind": "induction", "context": 8, "symbols": 4, "validation_rows": 256},
        "model": {
            "family": "decoder",
            "depth": 2,
            "width": 32,
            "heads": 2,
            "init_std": 0.1,
            "block": {"mixer": {"kind": "attention"}, "norm": "rms", "mlp": {"kind": "plain"}},
        },
        "training": {"steps": 400, "batch_size": 32, "optimizer": {"lr": 4e-3}, "evaluations": 1},
    }
    variant = VariantSpec.model_validate(plain)
    task = variant.task.open(Path(), variant.task.prepare(Path(), print))
    *_, last = train([Member(variant, 0)], task, torch.device("cpu"))
    assert isinstance(last, Measurement)
    assert last.metrics["val_accuracy"][0] > 0.9
