"""Masked language models: which tokens are hidden, shown and scored."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from ablate.tasks.masked_language_model import MaskedLanguageModel, MaskedLanguageModelSpec


def ready(cache: Path, **more: Any) -> MaskedLanguageModel:
    plain = {"data": "builtin:python_stdlib", "tokenizer": {"kind": "bpe", "vocab_size": 2048}, "context": 40, **more}
    spec = MaskedLanguageModelSpec.model_validate(plain)
    return spec.open(cache, spec.prepare(cache, lambda line: None))


@pytest.fixture(scope="module")
def masked(cache: Path) -> MaskedLanguageModel:
    return ready(cache)


def restored(batch: dict[str, torch.Tensor]) -> torch.Tensor:
    return batch["inputs"].scatter(1, batch["positions"], batch["targets"])


def test_it_is_prepared_as_for_a_language_model(masked: MaskedLanguageModel, fingerprint: str) -> None:
    assert masked.fingerprint == fingerprint
    assert masked.shape.vocabulary == 2049
    assert masked.mask == 2048


def test_inputs_are_the_text_but_for_what_is_hidden(masked: MaskedLanguageModel) -> None:
    text = masked.tokens["train"].tobytes()
    for step in range(10):
        batch = masked.train_batch(0, step, 8)
        assert batch["positions"].shape == (8, 6)
        assert all(len(set(row)) == 6 for row in batch["positions"].tolist())
        for window in restored(batch).numpy().astype(np.uint16):
            assert window.tobytes() in text
        again = masked.train_batch(0, step, 8)
        assert all(torch.equal(values, again[name]) for name, values in batch.items())


def test_shares_are_those_asked_for(masked: MaskedLanguageModel) -> None:
    batches = [masked.train_batch(1, step, 64) for step in range(40)]
    shown = torch.cat([batch["inputs"].gather(1, batch["positions"]).flatten() for batch in batches])
    targets = torch.cat([batch["targets"].flatten() for batch in batches])
    count = len(targets)
    hidden, kept = (shown == masked.mask).float().mean().item(), (shown == targets).float().mean().item()
    assert hidden == pytest.approx(0.8, abs=4 * math.sqrt(0.16 / count))
    assert kept == pytest.approx(0.1, abs=4 * math.sqrt(0.09 / count) + 1 / 2048)
    places = torch.cat([batch["positions"].flatten() for batch in batches])
    counts = torch.bincount(places, minlength=40).double()
    # Chi square with 39 degrees of freedom exceeds 79.1 once in ten thousand; the seed is fixed.
    assert ((counts - count / 40) ** 2 / (count / 40)).sum() < 79.1


def test_validation_is_the_same_for_every_batch_size(masked: MaskedLanguageModel) -> None:
    whole, parts = (list(masked.validation_batches(size)) for size in (128, 7))
    for name in ("inputs", "positions", "targets"):
        assert torch.equal(whole[0][name], torch.cat([batch[name] for batch in parts]))


def test_loss_is_of_the_hidden_tokens_alone(masked: MaskedLanguageModel) -> None:
    batch = {name: values[None].expand(2, *values.shape) for name, values in masked.train_batch(0, 0, 3).items()}
    outputs = torch.randn(2, 3, 40, 2049, generator=torch.Generator().manual_seed(0))
    expected, right = [], 0
    for row in range(3):
        for place, target in zip(batch["positions"][0, row].tolist(), batch["targets"][0, row].tolist(), strict=True):
            expected.append(-outputs[0, row, place].log_softmax(-1)[target].item())
            right += outputs[0, row, place].argmax().item() == target
    assert masked.loss(outputs, batch)[0].item() == pytest.approx(np.mean(expected), rel=1e-5)
    sums = {name: total.tolist() for name, total in masked.measure(outputs, batch).items()}
    metrics = masked.metrics(sums)
    assert metrics["val_loss"][0] == pytest.approx(np.mean(expected), rel=1e-5)
    assert metrics["val_accuracy"][0] == right / 18


@pytest.mark.parametrize("shares", [(0.8, 0.1), (1.0, 0.0), (0.5, 0.0), (0.0, 0.9), (0.0, 0.0)])
def test_trivial_baselines_know_what_is_shown_beside_and_in_the_place(
    shares: tuple[float, float], tmp_path: Path, cache: Path
) -> None:
    """Bayes' rule over all ids, written out; where tokens are left as they are, copying beats frequencies."""
    text = tmp_path / "texts.jsonl"
    words = ("the cat sat", "a dog ran to the cat", "cats see dogs", "that rat ate")
    lines = [f"{words[number % 4]} {number}" for number in range(120)]
    text.write_text("".join(json.dumps({"text": line}) + "\n" for line in lines), encoding="utf-8")
    plain = {"data": f"file:{text}", "tokenizer": "bytes", "context": 40, "validation_windows": 4}
    spec = MaskedLanguageModelSpec.model_validate({**plain, "mask_share": shares[0], "random_share": shares[1]})
    task = spec.open(cache, spec.prepare(cache, print))
    size, train = 257, task.tokens["train"].astype(int)
    unigram = (np.bincount(train, minlength=size) + 1.0) / (train.size + size)
    pairs = np.zeros((size, size))
    np.add.at(pairs, (train[:-1], train[1:]), 1)
    nats: dict[str, list[float]] = {"unigram": [], "bigram": []}
    right = []
    (batch,) = task.validation_batches(4)
    for row in range(4):
        inputs = batch["inputs"][row].tolist()
        for place, target in zip(batch["positions"][row].tolist(), batch["targets"][row].tolist(), strict=True):
            shown, before = inputs[place], inputs[place - 1] if place else task.mask
            told = np.full(size, shares[0])
            if shown != task.mask:
                told = np.full(size, shares[1] / size)
                told[shown] += 1 - sum(shares)
            after = (pairs[before] + 50 * unigram) / (pairs[before].sum() + 50) if before != task.mask else unigram
            for name, prior in (("unigram", unigram), ("bigram", after)):
                nats[name].append(-math.log(prior[target] * told[target] / (prior * told).sum()))
            right.append((unigram * told).argmax() == target)
    baselines = task.baselines()
    assert baselines["unigram"]["val_accuracy"] == pytest.approx(np.mean(right))
    for name, found in baselines.items():
        assert found["val_loss"] == pytest.approx(np.mean(nats[name]), abs=1e-9), name
        assert found["val_perplexity"] == pytest.approx(math.exp(np.mean(nats[name])))


def test_shares_above_one_are_refused() -> None:
    plain = {"data": "builtin:python_stdlib", "tokenizer": "bytes", "context": 40, "mask_share": 0.95}
    with pytest.raises(ValidationError, match="add up to at most 1"):
        MaskedLanguageModelSpec.model_validate(plain)
