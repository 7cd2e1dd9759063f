"""Losses that parts of a model add while it is trained."""

from __future__ import annotations

from typing import Any

from random_tokens import CPU, RandomTokens, variant

from ablate.training.members import Member
from ablate.training.pack import Pack


def test_auxiliary_losses_train_the_weights_and_are_not_reported_as_the_tasks() -> None:
    def mlp(**parts: float) -> dict[str, Any]:
        return {"block": {"mixer": "attention", "mlp": {"kind": "mixture", "experts": 4, **parts}}}

    packs = [[Member(variant(mlp(**parts), steps=2), 3)] for parts in ({}, {"balance_loss": 5.0})]
    with Pack(packs[0], RandomTokens(), CPU) as plain, Pack(packs[1], RandomTokens(), CPU) as balanced:
        for pack in (plain, balanced):
            pack.step(1)
        assert plain.last_loss() == balanced.last_loss()
        ours, theirs = (dict(pack.model.named_parameters()) for pack in (plain, balanced))
        assert (ours["blocks.0.mlp.router.weight"] - theirs["blocks.0.mlp.router.weight"]).abs().max() > 1e-6
