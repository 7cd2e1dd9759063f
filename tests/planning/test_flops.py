"""The arithmetic that plans tell, on which equal budgets rest, against torch's own count over batches of training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from engine_samples import SPACE, planner
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from ablate.nn.kernels import product, softmax_attention
from ablate.nn.model import build_model
from ablate.planning.plan import Variant
from ablate.planning.planner import make_plan
from ablate.spec.task import Task
from ablate.training.members import freeze

WORDS = {
    "kind": "translation",
    "data": "builtin:number_words",
    "source": "english",
    "target": "german",
    "context": 48,
    "tokenizer": {"kind": "bpe", "vocab_size": 300},
    "validation_pairs": 30,
}
TASKS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "language_model": (SPACE["task"], {"family": "decoder"}),  # type: ignore[dict-item]
    "listops": (
        {"kind": "listops", "shortest": 0, "longest": 60, "train_rows": 400, "validation_rows": 50},
        {"family": "encoder", "head": {"pooling": "mean"}},
    ),
    "translation by tokens": (
        {**WORDS, "batches_by": "tokens"},
        {"family": "encoder_decoder", "decoder": {"depth": 1, "mixer": "attention"}},
    ),
}
"""Tasks whose inputs have one length, lengths by bucket, and numbers of rows by bucket too."""
ROWS, STEPS, SAMPLE = 6, 2, 1_500


def counted(variant: Variant, task: Task) -> float:
    """Arithmetic of a training step as torch counts it: products of matrices, forward and backward, over batches."""
    shape = task.shape
    sizes = {"vocabulary": shape.vocabulary, "context": shape.context, "classes": shape.classes}
    model = build_model(variant.spec.model, **sizes, seeds=[0])
    freeze(model, variant.spec.training.freeze)
    known, counts = dict[tuple[int, ...], int](), []
    for step in range(SAMPLE):
        batch = {name: tensor[None] for name, tensor in task.train_batch(0, step, ROWS).items()}
        size = tuple(length for name in sorted(batch) for length in batch[name].shape)
        if size not in known:
            with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
                task.loss(task.outputs(model, batch), batch).sum().backward()
            known[size] = counter.get_total_flops()
        counts.append(known[size])
    return float(np.mean(counts))


@pytest.mark.parametrize("kind", TASKS)
def test_plans_tell_the_arithmetic_of_real_batches_and_what_frozen_parts_save(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(product, "_by_onednn", lambda x, y: False)  # torch counts no other products than its own
    monkeypatch.setattr(softmax_attention, "_LEAST", 1 << 60)
    task, family = TASKS[kind]
    block = {"mixer": "attention", "mlp": {"kind": "plain"}, "norm": "rms"}
    made = planner(
        tmp_path,
        task=task,
        model={"depth": 1, "width": 64, "heads": 2, "block": block, **family},
        training={"steps": STEPS, "batch_size": ROWS, "optimizer": {"kind": "sgd", "lr": 0.1}},
        switches={"frozen": {"nothing": {}, "mlps": {"training.freeze": ["mlp"]}}},
    )
    usual, frozen = make_plan(made).variants
    told, counts = [], []
    for variant in (usual, frozen):
        told.append(variant.flops / STEPS - variant.spec.training.optimizer.step_flops(variant.cost.parameters, 64))
        counts.append(counted(variant, made.costs.prepare(variant.spec)))
    assert told == pytest.approx(counts, rel=0.1)
    assert told[0] - told[1] == pytest.approx(counts[0] - counts[1], rel=0.1)
    assert usual.cost.parameters - frozen.cost.parameters == frozen.frozen > 0
