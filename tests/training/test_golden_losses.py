"""A refactor keeps the first 20 training losses and the first gradients of every named block.

After an intended change of the mathematics, raise the `code_revision` of the kinds that it changes, or `REVISION` in
`ablate/spec/code.py` if it is of the training loop or of what kinds share: the keys of trials hold both, and no trial
of the older code is reused then. `python tests/training/test_golden_losses.py` rewrites the numbers, for blocks whose
revisions were raised and for new ones; `golden_revisions.json` holds the revisions and a digest of the numbers.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from families import a_family_for
from random_tokens import CPU, RandomTokens, variant

from ablate.nn.model import build_model
from ablate.spec.base import Kinded
from ablate.spec.code import REVISION, specs_in
from ablate.spec.named import block_names
from ablate.spec.variant import VariantSpec
from ablate.training.members import Member
from ablate.training.pack import Pack

LOSSES, GRADIENTS, REVISIONS = (
    Path(__file__).with_name(f"golden_{name}.json") for name in ("losses", "gradients", "revisions")
)


def spec_of(block: str) -> VariantSpec:
    return variant({"block": block, "family": a_family_for(block)})


def measured(block: str) -> list[float]:
    spec, found = spec_of(block), []
    with Pack([Member(spec, 0)], RandomTokens(), CPU) as pack:
        for step in range(1, spec.training.steps + 1):
            pack.step(step)
            found += pack.last_loss()
    return [round(loss, 7) for loss in found]


def gradients(block: str) -> dict[str, list[float]]:
    """Of each parameter of the first block, and of those outside blocks: norm, and product with a fixed direction."""
    task, spec = RandomTokens(), spec_of(block)
    model = build_model(spec.model, vocabulary=task.shape.vocabulary, context=task.shape.context, seeds=[0])
    model.train()
    torch.manual_seed(0)
    batch = {name: values[None] for name, values in task.train_batch(0, 0, spec.training.batch_size).items()}
    task.loss(task.outputs(model, batch), batch).sum().backward()
    found = {}
    for name, parameter in model.named_parameters():
        later = name.startswith("blocks.") and not name.startswith("blocks.0.")
        if parameter.grad is not None and not later:
            flat = parameter.grad.double().flatten()
            direction = torch.cos(torch.arange(flat.numel(), dtype=torch.float64) + 1)
            found[name] = [float(f"{value:.6g}") for value in (flat.norm().item(), (flat @ direction).item())]
    return found


def revisions_of(spec: VariantSpec) -> dict[str, int]:
    """The revisions of the training loop and of the kinds that a variant uses."""
    kinds = (part for part in specs_in(spec) if isinstance(part, Kinded))
    named = {f"{kind.family.noun} {kind.kind_name()}": kind.code_revision for kind in kinds}
    return {"training": REVISION} | dict(sorted(named.items()))


def digest(numbers: Any) -> str:
    return hashlib.sha256(json.dumps(numbers, sort_keys=True).encode()).hexdigest()[:16]


def problem(known: Mapping[str, Any] | None, numbers: Any, revisions: Mapping[str, int]) -> str:
    """What is wrong with the golden numbers of a block, beside what was recorded of them; empty if nothing is."""
    if known is not None and known["numbers"] != digest(numbers) and known["revisions"] == revisions:
        return "the golden numbers are others: raise `code_revision` of the kinds that changed, or REVISION"
    if known != {"numbers": digest(numbers), "revisions": revisions}:
        return "record the numbers: python tests/training/test_golden_losses.py"
    return ""


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


@pytest.mark.parametrize("block", sorted(block_names()))
def test_losses_are_golden(block: str) -> None:
    golden = read(LOSSES)
    assert set(golden) == set(block_names())
    assert measured(block) == pytest.approx(golden[block], rel=1e-4)


@pytest.mark.parametrize("block", sorted(block_names()))
def test_gradients_are_golden(block: str) -> None:
    golden, found = read(GRADIENTS)[block], gradients(block)
    assert found.keys() == golden.keys()
    for name, (norm, product) in found.items():
        # The product is a sum of terms of either sign, so its rounding is that of the norm.
        assert norm == pytest.approx(golden[name][0], rel=1e-3, abs=1e-7), name
        assert product == pytest.approx(golden[name][1], rel=1e-3, abs=1e-3 * norm + 1e-7), name


@pytest.mark.parametrize("block", sorted(block_names()))
def test_golden_numbers_change_with_a_revision_alone(block: str) -> None:
    numbers = read(LOSSES)[block], read(GRADIENTS)[block]
    assert problem(read(REVISIONS).get(block), numbers, revisions_of(spec_of(block))) == ""


def test_new_numbers_at_an_old_revision_are_refused() -> None:
    block = sorted(block_names())[0]
    numbers, revisions, known = (read(LOSSES)[block], {}), revisions_of(spec_of(block)), {}
    known = {"numbers": digest(numbers), "revisions": revisions}
    assert problem(known, numbers, revisions) == ""
    others = ([loss + 1e-3 for loss in numbers[0]], {})
    assert problem(known, others, revisions).startswith("the golden numbers are others: raise")
    raised = {**revisions, "training": REVISION + 1}
    for changed in (numbers, others):
        assert problem(known, changed, raised).startswith("record the numbers")
    assert problem(None, numbers, revisions).startswith("record the numbers")


def main() -> None:
    """Write the numbers of new blocks, and of blocks whose revisions were raised; refuse to write others."""
    torch.set_num_threads(1)
    known, golden = read(REVISIONS), (read(LOSSES), read(GRADIENTS))
    for block in sorted(block_names()):
        revisions = revisions_of(spec_of(block))
        raised = block in known and known[block]["revisions"] != revisions
        for entries, measure in zip(golden, (measured, gradients), strict=True):
            if raised or block not in entries:
                entries[block] = measure(block)
        numbers = golden[0][block], golden[1][block]
        if (wrong := problem(known.get(block), numbers, revisions)) and not wrong.startswith("record"):
            sys.exit(f"{block}: {wrong}")
        known[block] = {"numbers": digest(numbers), "revisions": revisions}
    for path, entries in ((LOSSES, golden[0]), (GRADIENTS, golden[1]), (REVISIONS, known)):
        lines = [f'  "{block}": {json.dumps(entries[block])}' for block in sorted(block_names())]
        path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
