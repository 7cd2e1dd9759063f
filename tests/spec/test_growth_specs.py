"""Growths of batch size and context: their printed equations, and every impossible growth."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from pydantic import ValidationError

from ablate.spec.growth import LinearGrowthSpec, StagesGrowthSpec
from ablate.spec.sentences import describe
from ablate.spec.training import TrainingSpec
from ablate.spec.variant import VariantSpec

TRAINING = {"steps": 100, "batch_size": 24, "optimizer": {"lr": 1e-3}}
MODEL = {"family": "decoder", "depth": 1, "width": 12, "heads": 3, "block": "pre_ln"}
TEXT = {"kind": "language_model", "data": "builtin:python_stdlib", "tokenizer": "bytes", "context": 48}


def test_gpt3_grows_its_batch_linearly() -> None:
    """GPT-3 (arXiv:2005.14165, appendix B): from 32k tokens to the whole over the first share of the training."""
    spec = LinearGrowthSpec(start=0.25, until=0.4)
    for step in range(1, 101):
        share = min(Fraction(1), Fraction(1, 4) + Fraction(3, 4) * Fraction(step, 40))
        assert spec.share(step, 100) == pytest.approx(float(share))


def test_bert_trains_on_short_inputs_for_nine_tenths() -> None:
    """BERT (arXiv:1810.04805, appendix A.2): 128 tokens for 90 % of the steps, 512 for the rest."""
    spec = StagesGrowthSpec(shares=(0.25,), until=(0.9,))
    assert [spec.size(512, step, 1000) for step in (1, 900, 901, 1000)] == [128, 128, 512, 512]


def test_sizes_are_multiples_and_never_more_than_the_whole() -> None:
    spec = LinearGrowthSpec(start=0.01, until=1.0, multiple=8)
    sizes = [spec.size(64, step, 300) for step in range(1, 301)]
    assert set(sizes) == set(range(8, 65, 8))
    assert sizes == sorted(sizes)


def refusal(plain: dict[str, Any], whole: type[Any]) -> tuple[str, str]:
    with pytest.raises(ValidationError) as caught:
        whole.model_validate(plain)
    ((loc, sentence),) = describe(caught.value)
    return ".".join(map(str, loc)), sentence


@pytest.mark.parametrize(
    ("training", "where", "got", "remedy"),
    [
        ({"batch_growth": {"kind": "linear", "multiple": 5}}, "batch_growth.multiple", "5", "Set `multiple: 4`"),
        (
            {"batch_growth": "linear", "micro_batch": 8},
            "batch_growth.multiple",
            "a micro-batch, of 8 sequences",
            "Set `multiple: 8`",
        ),
        (
            {"batch_growth": {"kind": "stages", "shares": [0.5, 0.25]}},
            "batch_growth.shares",
            "must be ascending",
            "in ascending order",
        ),
        (
            {"batch_growth": {"kind": "stages", "shares": [0.5], "until": [0.1, 0.2]}},
            "batch_growth.until",
            "`shares` has 1",
            "as many numbers",
        ),
        (
            {"batch_growth": {"kind": "stages", "shares": [], "until": []}},
            "batch_growth.shares",
            "a stage",
            "one number",
        ),
    ],
    ids=["multiple", "micro_batch", "falls", "ends", "empty"],
)
def test_a_batch_that_cannot_grow_so_is_refused(training: dict[str, Any], where: str, got: str, remedy: str) -> None:
    path, sentence = refusal({**TRAINING, **training}, TrainingSpec)
    assert path == where
    assert got in sentence
    assert remedy in sentence


@pytest.mark.parametrize(
    ("task", "growth", "where", "remedy"),
    [
        (TEXT, {"kind": "linear", "multiple": 7}, "training.context_growth.multiple", "Set `multiple: 6`"),
        ({"kind": "copy"}, "linear", "training.context_growth", "choose the task `language_model`"),
    ],
    ids=["multiple", "task"],
)
def test_a_context_that_cannot_grow_so_is_refused(task: dict[str, Any], growth: Any, where: str, remedy: str) -> None:
    plain = {"model": MODEL, "task": task, "training": {**TRAINING, "context_growth": growth}}
    path, sentence = refusal(plain, VariantSpec)
    assert path == where
    assert remedy in sentence


def test_a_training_that_does_not_grow_keeps_its_name() -> None:
    """No hash of an earlier trial changes."""
    assert not {"batch_growth", "context_growth"} & set(TrainingSpec.model_validate(TRAINING).canonical())
