"""Several sources with weights: how often each is read, and that no validation text is trained on."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch.nn import functional

from ablate.contracts import task as contract
from ablate.nn.model import build_model
from ablate.spec.model import ModelSpec
from ablate.tasks.language_mixture import LanguageMixture, LanguageMixtureSpec
from ablate.tasks.language_model import LanguageModelSpec

LETTERS = {"first": "abc", "second": "xyz", "third": "mno"}
WEIGHTS = {"first": 5.0, "second": 2.0, "third": 3.0}


def silent(line: str) -> None:
    """A `Say` that prints nothing."""


@pytest.fixture
def spec(tmp_path: Path) -> LanguageMixtureSpec:
    """Three sources of other letters, and 30 documents that the first two share."""
    generator = np.random.default_rng(0)
    for name, letters in LETTERS.items():
        (tmp_path / name).mkdir()
        for number in range(60):
            text = "".join(generator.choice([*letters], size=60)) + f" {number}"
            (tmp_path / name / f"{number}.txt").write_text(text)
    for number in range(30):
        text = f"shared {number} " + "".join(generator.choice([*"pqrs"], size=40))
        for name in ("first", "second"):
            (tmp_path / name / f"shared{number}.txt").write_text(text)
    return of(tmp_path)


def of(tmp_path: Path, **fields: Any) -> LanguageMixtureSpec:
    sources = {name: {"data": f"file:{tmp_path / name}", "weight": weight} for name, weight in WEIGHTS.items()}
    plain = {"sources": sources, "tokenizer": "bytes", "context": 16, "validation_windows": 24}
    return LanguageMixtureSpec.model_validate(plain | fields)


@pytest.fixture
def task(spec: LanguageMixtureSpec, tmp_path: Path) -> LanguageMixture:
    return spec.open(tmp_path / "cache", spec.prepare(tmp_path / "cache", silent))


def documents(tokens: Any) -> set[str]:
    return {bytes(one[one < 256].astype(np.uint8)).decode() for one in np.split(tokens, np.flatnonzero(tokens == 256))}


def test_no_source_trains_on_what_another_validates(task: LanguageMixture, tmp_path: Path) -> None:
    train = set[str]().union(*(documents(part.tokens["train"]) for part in task.parts.values())) - {""}
    held_out = set[str]().union(*(documents(part.tokens["validation"]) for part in task.parts.values())) - {""}
    assert not train & held_out
    texts = {path.read_text() for name in LETTERS for path in (tmp_path / name).iterdir()}
    assert train | held_out == texts, "nothing else is left out"
    shared = {
        name: {text for text in documents(task.parts[name].tokens["train"]) if "shared" in text} for name in LETTERS
    }
    assert len(shared["first"] & shared["second"]) > 10, "copies in the training text of two sources stay"


@pytest.mark.parametrize("rows", [10, 100, 1000, 100_000])
def test_each_source_has_its_share_but_for_a_few_windows(task: LanguageMixture, rows: int) -> None:
    for seed in range(3):
        counts = np.bincount(task.sources_of(seed, 0, rows), minlength=3)
        # An interval of a Weyl sequence of the golden ratio is hit n times its length but for O(log n) points.
        off = np.abs(counts - rows * np.array([0.5, 0.2, 0.3]))
        assert off.max() <= 1 + math.log2(rows) / 2
    assert not np.array_equal(task.sources_of(0, 0, 50), task.sources_of(1, 0, 50))
    np.testing.assert_array_equal(task.sources_of(0, 0, 50)[20:30], task.sources_of(0, 20, 10))


def test_windows_come_from_the_source_that_is_drawn(task: LanguageMixture) -> None:
    seen: Counter[str] = Counter()
    for step in range(40):
        batch = task.train_batch(4, step, 5)
        names = [[*LETTERS][number] for number in task.sources_of(4, 5 * step, 5)]
        for name, row in zip(names, batch["inputs"].numpy(), strict=True):
            text = bytes(row[row < 256].astype(np.uint8)).decode()
            others = "".join(letters for other, letters in LETTERS.items() if other != name)
            assert not set(text) & (set(others) - set("shared"))
            seen[name] += 1
    assert seen == {"first": 100, "second": 40, "third": 60}


def test_every_source_is_validated_as_alone(task: LanguageMixture) -> None:
    model = build_model(
        ModelSpec.model_validate(
            {"family": "decoder", "depth": 1, "width": 16, "heads": 2, "block": {"mixer": "attention"}}
        ),
        vocabulary=task.shape.vocabulary,
        context=16,
        seeds=[0, 1],
    )
    sums: dict[str, torch.Tensor] = {}
    with torch.no_grad():
        for batch in task.validation_batches(7):
            packed = {name: values.expand(2, *values.shape) for name, values in batch.items()}
            for name, total in task.measure(task.outputs(model, packed), packed).items():
                sums[name] = sums.get(name, torch.zeros(2)) + total
        found = task.metrics({name: total.tolist() for name, total in sums.items()})
        losses = {}
        for name, part in task.parts.items():
            windows = torch.from_numpy(part.windows("validation")).expand(2, -1, -1)
            logits = model(windows[:, :, :-1])
            losses[name] = [
                functional.cross_entropy(logits[member].flatten(0, 1), windows[member, :, 1:].flatten()).item()
                for member in range(2)
            ]
    for name in LETTERS:
        assert found[f"val_loss_{name}"] == pytest.approx(losses[name], rel=1e-5)
    mean = [0.5 * a + 0.2 * b + 0.3 * c for a, b, c in zip(*losses.values(), strict=True)]
    assert found["val_loss"] == pytest.approx(mean, rel=1e-5)
    assert found["val_perplexity"] == pytest.approx([math.exp(loss) for loss in mean], rel=1e-5)


def test_trivial_baselines_are_those_of_the_sources_in_their_shares(task: LanguageMixture) -> None:
    of_sources = [part.baselines() for part in task.parts.values()]
    found = task.baselines()
    assert found.keys() == of_sources[0].keys()
    for name, values in found.items():
        losses, bits = ([source[name][metric] for source in of_sources] for metric in ("val_loss", "val_bits_per_byte"))
        mean = [0.5 * a + 0.2 * b + 0.3 * c for a, b, c in (losses, bits)]
        assert values == pytest.approx(
            {"val_loss": mean[0], "val_perplexity": math.exp(mean[0]), "val_bits_per_byte": mean[1]}
            | {f"val_loss_{letters}": loss for letters, loss in zip(LETTERS, losses, strict=True)}
        )


def test_the_first_validation_windows_are_of_all_sources(task: LanguageMixture) -> None:
    first = next(task.validation_batches(9))
    assert {*first["source"].tolist()} == {0, 1, 2}


def test_weights_share_the_prepared_data(spec: LanguageMixtureSpec, tmp_path: Path) -> None:
    changed = spec.model_dump(mode="json")
    changed["sources"]["first"]["weight"] = 0.25
    cache = tmp_path / "cache"
    assert LanguageMixtureSpec.model_validate(changed).prepare(cache, silent) == spec.prepare(cache, silent)


def test_tokens_are_divided_by_the_shares(spec: LanguageMixtureSpec, tmp_path: Path) -> None:
    some = of(tmp_path, tokens=1000)
    opened = some.open(tmp_path / "cache", some.prepare(tmp_path / "cache", silent))
    assert {name: part.tokens["train"].size for name, part in opened.parts.items()} == {
        "first": 500,
        "second": 200,
        "third": 300,
    }


def test_it_keeps_the_contract_of_tasks(spec: LanguageMixtureSpec) -> None:
    assert contract.CONTRACT.check(spec) == []


@pytest.mark.parametrize(
    "sources",
    [
        {"one": {"data": "builtin:python_stdlib", "weight": 1}},
        {"one": {"data": "builtin:python_stdlib", "weight": 1}, "two": {"data": "file:x", "weight": 0}},
        {"one": {"data": "builtin:python_stdlib", "weight": 1}, "t-w/o": {"data": "file:x", "weight": 1}},
    ],
)
def test_invalid_mixtures(sources: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        LanguageMixtureSpec.model_validate({"sources": sources, "tokenizer": "bytes", "context": 16})


def test_metrics_of_the_sources_may_be_objectives(spec: LanguageMixtureSpec) -> None:
    assert spec.metric_names == LanguageModelSpec.metric_names | {f"val_loss_{name}" for name in LETTERS}
