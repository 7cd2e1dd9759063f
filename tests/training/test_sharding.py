"""Divided weights in a group of one process: the same numbers as whole ones, and states that fit each other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from random_tokens import CPU, RandomTokens, variant
from torch import distributed

from ablate.execution.checkpoint import JobCheckpoints
from ablate.spec.variant import VariantSpec
from ablate.training.loop import misfit, restore, state_of
from ablate.training.members import Member
from ablate.training.pack import Pack
from ablate.training.sharding import Ranks, is_divided

WHOLE = Ranks()
DIVIDED = Ranks(0, 1, shard=True)


@pytest.fixture(autouse=True, scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    meeting = tmp_path_factory.mktemp("group") / "meeting"
    distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


def pack(spec: VariantSpec, ranks: Ranks) -> Pack:
    return Pack([Member(spec, 0)], RandomTokens(), CPU, ranks=ranks)


def losses(trained: Pack, first: int = 1, last: int = 6) -> list[float]:
    found = []
    for step in range(first, last + 1):
        trained.step(step)
        found += trained.last_loss()
        if step % 3 == 0:
            found += trained.point().metrics["val_loss"]
    return found


@pytest.mark.parametrize(
    ("model", "training"),
    [
        ({"dropout": 0.1}, {}),
        ({"tied_head": True, "loops": [{"first": 0, "last": 1, "times": 2}]}, {"recompute": "blocks"}),
        ({"z_loss": 0.01}, {"loss_chunk": 5, "micro_batch": 2}),
        ({"positions": {"kind": "t5_buckets", "shared": True}}, {"optimizer": {"kind": "sgd", "lr": 0.1}}),
        ({}, {"average": {"kind": "ema"}, "optimizer": {"kind": "lion"}}),
        ({}, {"freeze": ["embedding"], "precision": "bf16"}),
    ],
)
def test_divided_weights_are_trained_like_whole_ones(model: dict[str, Any], training: dict[str, Any]) -> None:
    spec = variant(model=model, steps=6, **training)
    with pack(spec, WHOLE) as whole:
        expected = losses(whole)
    with pack(spec, DIVIDED) as divided:
        assert all(is_divided(parameter) for parameter in divided.model.parameters())
        assert losses(divided) == expected  # one process does the same operations in the same order
        tensors = divided.whole_model().state_dict()
        for name, tensor in whole.model.state_dict().items():
            assert torch.equal(tensors[name], tensor)


@pytest.mark.parametrize(("before", "after"), [(WHOLE, DIVIDED), (DIVIDED, WHOLE), (DIVIDED, DIVIDED)])
def test_a_state_is_written_divided_or_whole_and_resumed_either_way(
    tmp_path: Path, before: Ranks, after: Ranks
) -> None:
    spec = variant(model={"dropout": 0.1}, steps=6, average={"kind": "ema"})
    kept = JobCheckpoints(tmp_path / "job", ("key",))
    with pack(spec, WHOLE) as uninterrupted:
        expected = losses(uninterrupted)
    with pack(spec, before) as first:
        losses(first, last=3)
        kept.write(3, state_of(first))
    state = kept.newest()
    assert state is not None, kept.warnings
    assert (tmp_path / "job" / "checkpoint_0000000003" / "divided").is_dir() == before.shard
    with pack(spec, after) as second:
        assert misfit(second, state) == ""
        restore(second, state)
        assert losses(second, first=4) == expected[len(expected) // 2 :]


def test_a_divided_state_of_another_shape_does_not_fit() -> None:
    with pack(variant(steps=6), DIVIDED) as one, pack(variant(model={"width": 24}, steps=6), DIVIDED) as other:
        assert "instead of" in misfit(other, state_of(one))


def test_a_divided_checkpoint_that_cannot_be_written_costs_a_warning_and_keeps_the_one_before(tmp_path: Path) -> None:
    kept = JobCheckpoints(tmp_path / "job", ("key",))
    with pack(variant(steps=6), DIVIDED) as trained:
        trained.step(1)
        kept.write(1, state_of(trained))
        block = JobCheckpoints(tmp_path / "file" / "job", ("key",))
        (tmp_path / "file").write_text("no folder can be here")
        block.write(2, state_of(trained))
    assert "the checkpoint of step 2 could not be written" in block.take_warnings()[0]
    assert (kept.take_warnings(), kept.newest_step()) == ([], 1)
