"""Torch's optimizers without their guard: the same numbers."""

from __future__ import annotations

import torch

from ablate.kinds.optimizers.adam import AdamW


def test_its_steps_are_torchs() -> None:
    ours, theirs = ([torch.nn.Parameter(torch.linspace(-1, 1, 7))] for _ in range(2))
    settings = {"lr": 0.1, "weight_decay": 0.2, "betas": (0.8, 0.9), "fused": True}
    made = AdamW(ours, **settings), torch.optim.AdamW(theirs, **settings)
    for _ in range(3):
        for (parameter,), optimizer in zip((ours, theirs), made, strict=True):
            optimizer.zero_grad()
            (parameter**3).sum().backward()
            optimizer.step()
    assert torch.equal(ours[0], theirs[0])
    assert ours[0].requires_grad
    assert torch.is_grad_enabled()
