"""Translation: parts that share no text, shifted targets, smoothed loss, and what a model writes."""

from __future__ import annotations

import itertools
import math
import os
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from sacrebleu import corpus_bleu, corpus_chrf
from torch import nn

from ablate.errors import DataError
from ablate.nn.model import build_model
from ablate.spec.model import ModelSpec
from ablate.spec.variant import VariantSpec
from ablate.tasks.translation import UNSCORED, Translation, TranslationSpec
from ablate.training.events import Measurement
from ablate.training.loop import train
from ablate.training.members import Member


def silent(line: str) -> None:
    """A `Say` that prints nothing."""


PLAIN: dict[str, Any] = {
    "kind": "translation",
    "data": "builtin:number_words",
    "tokenizer": {"kind": "bpe", "vocab_size": 300},
    "context": 48,
    "source": "english",
    "target": "german",
    "validation_pairs": 30,
}
MODEL = ModelSpec.model_validate(
    {
        "family": "encoder_decoder",
        "depth": 1,
        "width": 16,
        "heads": 2,
        "block": {"mixer": "attention", "mlp": {"kind": "plain"}, "norm": "rms"},
        "decoder": {"depth": 1, "mixer": "attention"},
        "init_std": 0.3,
    }
)


def opened(plain: dict[str, Any], cache: Path) -> Translation:
    spec = TranslationSpec.model_validate(plain)
    return spec.open(cache, spec.prepare(cache, silent))


@pytest.fixture(scope="module")
def task(cache: Path) -> Translation:
    return opened(PLAIN, cache)


def model_of(task: Translation, seeds: list[int]) -> nn.Module:
    shape = task.shape
    return build_model(MODEL, vocabulary=shape.vocabulary, context=shape.context, seeds=seeds).eval()


def test_the_target_goes_in_shifted_right(task: Translation) -> None:
    end = task.tokenizer.end_of_document
    for step in range(20):
        batch = task.train_batch(0, step, 16)
        assert batch["inputs"].shape == batch["padding"].shape
        assert batch["before"].shape == batch["before_padding"].shape == batch["targets"].shape
        rows = zip(*(batch[name] for name in ("inputs", "padding", "before", "before_padding", "targets")), strict=True)
        for source, source_real, before, before_real, targets in rows:
            real = targets[before_real]
            assert (targets[~before_real] == UNSCORED).all()
            assert before[0] == end
            assert torch.equal(before[before_real][1:], real[:-1])
            assert real[-1] == source[source_real][-1] == end
            assert end not in real[:-1]


def test_batches_hold_pairs_of_the_source(task: Translation) -> None:
    from ablate.tasks.sources.builtin import english, german

    pairs = {english(number): german(number) for number in range(1, 740_000, 37)}
    held_out = {source for source, _ in task.texts("validation")}
    batch = task.train_batch(1, 2, 32)
    for source, real, targets in zip(batch["inputs"], batch["padding"], batch["targets"], strict=True):
        text = task.tokenizer.decode(source[real][:-1].tolist())
        assert task.tokenizer.decode(targets[targets != UNSCORED][:-1].tolist()) == pairs[text]
        assert text not in held_out
    assert sum(len(batch["inputs"]) for batch in task.validation_batches(64)) == 30


def test_batches_by_tokens_are_full_and_accounted_for(cache: Path) -> None:
    """Each batch is as full as its longest text lets it be; rows and tokens are the expected ones."""
    by_tokens = opened({**PLAIN, "batches_by": "tokens"}, cache)
    assert opened(PLAIN, cache).fingerprint == by_tokens.fingerprint, "the same prepared data"
    rows, tokens = [], []
    for step in range(400):
        batch = by_tokens.train_batch(0, step, 10)
        count, width = batch["inputs"].shape[0], max(batch["inputs"].shape[1], batch["targets"].shape[1])
        assert count * width <= 10 * PLAIN["context"] < (count + 1) * width
        rows.append(count)
        tokens.append(int(batch["padding"].sum() + batch["before_padding"].sum()))
    for found, told in ((rows, by_tokens.mean_rows(10)), (tokens, by_tokens.tokens_per_batch(10))):
        error = np.std(found) / len(found) ** 0.5
        assert abs(np.mean(found) - told) < 4 * error + 0.5, "tokens are told as an integer"
    assert min(rows) < np.mean(rows) < max(rows)


def test_a_pack_trains_on_batches_by_tokens(cache: Path) -> None:
    """With its arithmetic that of the mean batch; a micro-batch is refused."""
    plain: dict[str, Any] = {
        "model": MODEL.model_dump(),
        "task": {**PLAIN, "batches_by": "tokens"},
        "training": {"steps": 3, "batch_size": 10, "optimizer": {"lr": 1e-3}, "evaluations": 1},
    }
    variant = VariantSpec.model_validate(plain)
    task = opened(plain["task"], cache)
    (*_, last) = train([Member(variant, 0), Member(variant, 1)], task, torch.device("cpu"))
    assert isinstance(last, Measurement)
    assert last.tokens == 3 * task.tokens_per_batch(10)
    even = VariantSpec.model_validate({**plain, "task": PLAIN})
    (*_, other) = train([Member(even, 0)], opened(PLAIN, cache), torch.device("cpu"))
    assert isinstance(other, Measurement)
    share = task.mean_rows(10) / 10
    assert last.flops / other.flops == pytest.approx(share, rel=0.1), "but for the optimizer's steps"
    with pytest.raises(ValidationError, match="`micro_batch` cannot divide"):
        VariantSpec.model_validate({**plain, "training": {**plain["training"], "micro_batch": 5}})


def test_padding_changes_no_loss(task: Translation) -> None:
    model = model_of(task, [0])
    batch = {name: values[None] for name, values in task.train_batch(0, 3, 9).items()}
    together = task.measure(task.outputs(model, batch), batch)
    alone = torch.zeros(1, dtype=torch.float64)
    for row in range(9):
        width, length = (int(batch[name][0, row].sum()) for name in ("padding", "before_padding"))
        one = {
            name: values[:, row : row + 1, : width if name in ("inputs", "padding") else length]
            for name, values in batch.items()
        }
        alone += task.measure(task.outputs(model, one), one)["nats"]
    assert together["nats"].item() == pytest.approx(alone.item(), rel=1e-5)


def test_label_smoothing_spreads_a_share_over_all_tokens(task: Translation) -> None:
    batch = {name: torch.stack([values, values]) for name, values in task.train_batch(0, 1, 5).items()}
    logits = torch.randn(*batch["targets"].shape, task.shape.vocabulary)
    logs, targets = logits[1].log_softmax(-1), batch["targets"][1]
    real = targets != UNSCORED
    hit = logs[real].gather(1, targets[real][:, None]).mean().item()
    expected = 0.9 * -hit + 0.1 * -logs[real].mean().item()
    assert task.loss(logits, batch)[1].item() == pytest.approx(expected, rel=1e-5)
    metrics = task.metrics({name: total.tolist() for name, total in task.measure(logits, batch).items()})
    assert metrics["val_loss"][1] == pytest.approx(-hit, rel=1e-5)


def test_greedy_writes_what_the_full_forward_finds_likeliest(
    task: Translation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ablate.tasks.scores._AT_ONCE", 2)
    model = model_of(task, [3, 4])
    texts = ["seven", "one hundred and two thousand", "ninety-nine"]
    end = task.tokenizer.end_of_document
    written = task.translate(model, texts)
    assert len(written) == 2
    for member in range(2):
        for text, translation in zip(texts, written[member], strict=True):
            source = torch.tensor([*task.tokenizer.encode(text).tolist(), end])
            ids: list[int] = []
            while len(ids) < min(len(source) + 50, task.shape.context):
                before = torch.tensor([end, *ids])
                with torch.no_grad():
                    logits = model(source.expand(2, 1, -1), before.expand(2, 1, -1))
                token = int(logits[member, 0, -1].argmax())
                if token == end:
                    break
                ids.append(token)
            assert task.tokenizer.decode(ids) == translation


def test_final_metrics_are_those_of_sacrebleu(task: Translation) -> None:
    model = model_of(task, [3, 4])
    metrics = task.final_metrics(model, torch.device("cpu"))
    sources, targets = zip(*task.texts("validation"), strict=True)
    for member, texts in enumerate(task.translate(model, sources)):
        assert metrics["val_bleu"][member] == corpus_bleu(texts, [list(targets)]).score
        assert metrics["val_chrf"][member] == corpus_chrf(texts, [list(targets)]).score


def test_a_text_that_is_too_long_is_reported(task: Translation) -> None:
    with pytest.raises(DataError, match="too long for this model"):
        task.translate(model_of(task, [0]), ["seven " * 60])
    text = "seven"
    while task.tokenizer.encode(text).size < 47:
        text += "."
    assert len(task.translate(model_of(task, [0]), [text])) == 1, "the end of the text is the last token of the context"
    with pytest.raises(DataError, match="expected at most 48 tokens, including the end of the text; got 49"):
        task.translate(model_of(task, [0]), [text + "."])


def test_the_trivial_baselines(task: Translation) -> None:
    baselines = task.baselines()
    sources, targets = (list(side) for side in zip(*task.texts("validation"), strict=True))
    assert baselines["source"] == {
        "val_bleu": corpus_bleu(sources, [targets]).score,
        "val_chrf": corpus_chrf(sources, [targets]).score,
    }
    assert 0 < baselines["unigram"]["val_token_accuracy"] < 0.5
    end = task.tokenizer.end_of_document
    pairs, singles, tokens = Counter[tuple[int, int]](), Counter[int](), Counter[int]()
    for batch in task._batches("train", 64):
        for line in batch["targets"].tolist():
            ids = [end, *(token for token in line if token >= 0)]
            pairs.update(itertools.pairwise(ids))
            singles.update(ids[:-1])
            tokens.update(ids[1:])
    size, total = task.shape.vocabulary, sum(tokens.values())
    shares = {token: (tokens[token] + 1) / (total + size) for token in range(size)}
    nats, right = [], []
    for batch in task.validation_batches(64):
        for line in batch["targets"].tolist():
            for before, token in itertools.pairwise([end, *(token for token in line if token >= 0)]):
                after = {one: pairs[before, one] + 50 * share for one, share in shares.items()}
                nats.append(-math.log(after[token] / (singles[before] + 50)))
                right.append(max(after, key=lambda one: after[one]) == token)
    assert baselines["bigram"] == {
        "val_loss": pytest.approx(np.mean(nats)),
        "val_token_accuracy": pytest.approx(np.mean(right)),
    }
    assert baselines["bigram"]["val_loss"] < baselines["unigram"]["val_loss"]


ROWS = ["a cat\teine Katze", "a cat\tdie Katze", "a dog\tein Hund", "some dog\tein Hund", "a cow\teine Kuh"]


def test_no_text_is_in_both_parts(tmp_path: Path, cache: Path) -> None:
    many = [f"word {i} here\tWort {i // 2} hier" for i in range(200)] + [f"word {i} here\tnoch {i}" for i in range(50)]
    path = tmp_path / "pairs.tsv"
    path.write_text("\n".join([*ROWS, *many, ROWS[0]]) + "\n", encoding="utf-8")
    plain = {**PLAIN, "data": f"file:{path}", "source": 1, "target": 2, "tokenizer": "bytes", "validation_pairs": 60}
    task = opened(plain, cache)
    validation = task.texts("validation")
    assert len(validation) == 60
    rows = [tuple(row.split("\t")) for row in (*ROWS, *many)]
    sides = [{pair[side] for pair in validation} for side in (0, 1)]
    rest = [pair for pair in rows if pair[0] not in sides[0] and pair[1] not in sides[1]]
    summary = task.describe()
    assert summary.rows == {"train": len(rest), "validation": 60}
    left_out = len(rows) - len(rest) - 60
    assert summary.notes == (f"left out: 1 duplicates, {left_out} pairs with a text of another split",)


def test_pairs_longer_than_the_context_are_left_out(tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"{'x' * i}\t{'y' * i}\n" for i in range(1, 41)), encoding="utf-8")
    plain = {**PLAIN, "data": f"file:{path}", "source": 1, "target": 2, "tokenizer": "bytes", "context": 20}
    task = opened(plain, cache)
    assert sum(task.describe().rows.values()) == 19  # a text of 19 bytes and its end fill the context
    assert "21 too long" in task.describe().notes[0]
    assert all(len(source) < 20 for source, _ in task.texts("validation"))
    with pytest.raises(DataError, match="pair fits the context"):
        opened({**plain, "context": 2, "validation_pairs": 1, "data": f"file:{path}"}, cache)


@pytest.mark.shared_data
def test_pairs_of_tatoeba(cache: Path) -> None:
    root = os.environ.get("ABLATE_SHARED_DATA")
    if root is None:
        pytest.skip("ABLATE_SHARED_DATA names no folder")
    address = f"file:{root}/tatoeba/eng-fra.tsv.xz"
    task = opened({**PLAIN, "data": address, "source": 1, "target": 2, "tokenizer": "bytes", "context": 96}, cache)
    assert sum(task.describe().rows.values()) > 140_000
