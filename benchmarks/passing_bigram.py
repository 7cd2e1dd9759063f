"""After how many tokens small language models pass a bigram, next to what the bigram has to know.

A bigram has a number for each distinct pair of neighbours in its text. `ablate plan` takes the least tokens of a trial
from the last column (`ablate.tasks.language_model.TOKENS_OF_A_PAIR`).
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch

from ablate.spec.variant import VariantSpec
from ablate.tasks.language_model import LanguageModel
from ablate.training.events import Measurement
from ablate.training.loop import train
from ablate.training.members import Member

VOCABULARIES = (0, 512, 2048)
"""Sizes; 0 stands for bytes."""
WIDTHS = (48, 96)
RATES = (2e-3, 4e-3, 8e-3)
STEPS = 3000
EVALUATIONS = 60
BATCH, CONTEXT = 16, 64


def passed(spec: dict[str, Any], rates: tuple[float, ...], folder: Path) -> tuple[int, list[float]]:
    """Distinct pairs of neighbours in the training text, and the tokens after which each rate passed the bigram."""
    members = []
    for rate in rates:
        training = {**spec["training"], "optimizer": {"kind": "adamw", "lr": rate}}
        members.append(Member(VariantSpec.model_validate({**spec, "training": training}), 0))
    text = members[0].variant.task
    task = text.open(folder, text.prepare(folder, lambda line: None))
    assert isinstance(task, LanguageModel)
    bar = task.baselines()["bigram"]["val_loss"]
    after: dict[int, float] = {}
    for event in train(members, task, torch.device("cpu")):
        if isinstance(event, Measurement):
            for member, loss in enumerate(event.metrics["val_loss"]):
                if loss < bar:
                    after.setdefault(member, event.tokens)
            if len(after) == len(members):
                break
    return task.distinct_pairs(), list(after.values())


def main(smoke: bool = False) -> None:
    """Print the first tokens at which the validation loss of the fastest and the slowest rate is below the bigram's."""
    vocabularies, widths, rates, steps = (
        (VOCABULARIES, WIDTHS, RATES, STEPS) if not smoke else ((0,), (12,), (4e-3,), 2)
    )
    torch.set_num_threads(1)
    print(f"{'vocabulary':>10} {'width':>6} {'pairs':>9} {'fastest':>11} {'slowest':>11} {'fastest / pairs':>16}")
    with tempfile.TemporaryDirectory() as folder:
        small = Path(folder, "text")
        small.write_text("A small text of pairs. " * 2_000, encoding="utf-8")
        data = f"file:{small}" if smoke else "builtin:python_stdlib"
        for size in vocabularies:
            for width in widths:
                tokenizer: Any = {"kind": "bpe", "vocab_size": size} if size else "bytes"
                spec = {
                    "model": {"family": "decoder", "depth": 4, "width": width, "heads": 3, "block": "pre_ln",
                              "positions": "rotary"},
                    "task": {"kind": "language_model", "data": data, "tokenizer": tokenizer,
                             "context": CONTEXT},
                    "training": {"steps": steps, "batch_size": BATCH, "evaluations": min(EVALUATIONS, steps),
                                 "schedule": {"kind": "constant", "warmup": 0.01}},
                }  # fmt: skip
                pairs, after = passed(spec, rates, Path(folder))
                fastest, slowest = (f"{min(after):,}", f"{max(after):,}") if after else ("never", "never")
                share = f"{min(after) / pairs:16.1f}" if after else f"{'':16}"
                print(f"{size or 'bytes':>10} {width:6} {pairs:9,} {fastest:>11} {slowest:>11} {share}", flush=True)
