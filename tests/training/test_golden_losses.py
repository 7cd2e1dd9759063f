"""A refactor keeps the first 20 training losses of every named block.

After an intended change of the mathematics, `python tests/training/test_golden_losses.py` rewrites the losses.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from families import a_family_for
from random_tokens import RandomTokens, losses, run, variant

from ablate.spec.named import block_names

if TYPE_CHECKING:
    from ablate.tasks.base import Batch

GOLDEN = Path(__file__).with_name("golden_losses.json")


class Training(RandomTokens):
    """Nearly without a validation: the training losses alone are golden."""

    def validation_batches(self, batch_size: int) -> Iterator[Batch]:
        yield {name: values[:1] for name, values in next(super().validation_batches(batch_size)).items()}


def measured(block: str) -> list[float]:
    curve = losses(run(variant({"block": block, "family": a_family_for(block)}), [0], Training()))[0, :, 0]
    return [round(loss, 7) for loss in curve.tolist()]


@pytest.mark.parametrize("block", sorted(block_names()))
def test_losses_are_golden(block: str) -> None:
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))
    assert set(golden) == set(block_names())
    assert measured(block) == pytest.approx(golden[block], rel=1e-4)


if __name__ == "__main__":
    torch.set_num_threads(1)
    lines = [f'  "{block}": {json.dumps(measured(block))}' for block in sorted(block_names())]
    GOLDEN.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
