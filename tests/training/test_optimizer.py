"""Optimizer and clipping against plain torch."""

from __future__ import annotations

import math

import pytest
import torch
from families import without_dropout
from random_tokens import RandomTokens, T, V, losses, run, variant
from torch import Tensor, nn

from ablate.kinds.mixers.attention_module import Attention
from ablate.kinds.optimizers.adam import AdamWSpec
from ablate.nn.model import build_model
from ablate.spec.named import block_names
from ablate.spec.training import TrainingSpec
from ablate.training.optimizer import PackOptimizer, clip_gradients

STEPS = 20


class Plain(nn.Module):
    """The Pre-LN decoder in stock torch modules, with the weights of ours copied in."""

    def __init__(self, ours: nn.Module, width: int, heads: int, depth: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(V, width)
        self.positions = nn.Embedding(T, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, batch_first=True, norm_first=True)
            for _ in range(depth)
        )
        self.norm = nn.LayerNorm(width, eps=1e-8)
        with torch.no_grad():
            self.embedding.weight.copy_(ours.embedding.weight[0])
            self.positions.weight.copy_(ours.positions.weight[0])
            for layer, block in zip(self.layers, ours.blocks, strict=True):
                maps = [block.mixer.query, block.mixer.key, block.mixer.value]
                layer.self_attn.in_proj_weight.copy_(torch.cat([m.weight[0].mT for m in maps]))
                layer.self_attn.in_proj_bias.copy_(torch.cat([m.bias[0] for m in maps]))
                pairs = (
                    (layer.self_attn.out_proj, block.mixer.output),
                    (layer.linear1, block.mlp.up),
                    (layer.linear2, block.mlp.down),
                )
                for linear, packed in pairs:
                    linear.weight.copy_(packed.weight[0].mT)
                    linear.bias.copy_(packed.bias[0])

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens) + self.positions.weight
        mask = torch.ones(T, T, dtype=torch.bool).triu(1)
        for layer in self.layers:
            x = layer(x, src_mask=mask)
        return self.norm(x) @ self.embedding.weight.mT


@pytest.mark.parametrize("clip", [0.05, 100.0], ids=["clipped", "free"])
def test_training_is_plain_torch_with_adamw_clipping_and_schedule(clip: float) -> None:
    dense = {"kind": "dense", "bias": True}
    model = {
        "block": {
            "mixer": {"kind": "attention", "query_key_bias": True, "value": dense, "output": dense},
            "mlp": {"bias": True},
            "norm": {"kind": "layer", "eps": 1e-5},
        },
        "final_norm": "layer",
    }
    spec = variant(
        model,
        steps=STEPS,
        schedule={"kind": "cosine", "warmup": 0.25, "floor": 0.1},
        optimizer={"lr": 1e-2, "weight_decay": 0.3, "betas": [0.8, 0.95], "eps": 1e-6, "clip": clip},
    )
    plain = Plain(build_model(spec.model, vocabulary=V, context=T, seeds=[6]), 12, 3, 3)
    matrices = [p for p in plain.parameters() if p.dim() > 1]
    vectors = [p for p in plain.parameters() if p.dim() <= 1]
    groups = [{"params": matrices, "weight_decay": 0.3}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-2, betas=(0.8, 0.95), eps=1e-6)
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        # Steps counted from 0: 5 steps of warm-up, then half a cosine from 1 to 0.1 over the 15 that follow.
        lambda i: (i + 1) / 5 if i < 5 else 0.1 + 0.9 * (1 + math.cos(math.pi * (i - 4) / 16)) / 2,
    )
    task = RandomTokens()
    expected = []
    for step in range(1, STEPS + 1):
        batch = task.train_batch(6, step, 4)
        loss = nn.functional.cross_entropy(plain(batch["inputs"]).flatten(0, 1), batch["targets"].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(plain.parameters(), clip)
        optimizer.step()
        scheduler.step()
        expected.append(loss.item())
    ours = losses(run(spec, [6]))[0, :, 0]
    torch.testing.assert_close(ours, torch.tensor(expected, dtype=torch.float64), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("block", sorted(block_names()))
def test_weight_decay_applies_to_matrices_and_embeddings_only(block: str) -> None:
    """What a mixer other than attention has beside matrices, norms and biases, it declares as its paper has it."""
    model = build_model(variant(without_dropout(block)).model, vocabulary=V, context=T, seeds=[0, 1])
    settings = TrainingSpec(steps=1, batch_size=1, optimizer=AdamWSpec(lr=1e-3, weight_decay=0.1))
    optimizer = PackOptimizer(model, [settings, settings]).rule
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    decayed = {group["weight_decay"]: {names[id(p)] for p in group["params"]} for group in optimizer.param_groups}
    assert decayed[0.1] | decayed[0.0] == set(names.values())
    assert not decayed[0.1] & decayed[0.0]
    attends = isinstance(model.blocks[0].mixer, Attention)
    plain = {name for name in names.values() if attends or ".mixer." not in name}
    assert not any("norm" in name or "gains" in name or name.endswith(".bias") for name in decayed[0.1])
    assert all(name.endswith((".weight", ".delta")) for name in decayed[0.1] & plain)
    assert all("norm" in name or "gains" in name or name.endswith((".value", ".bias")) for name in decayed[0.0] & plain)
    has_mlp = model.blocks[0].mlp is not None
    matrices = {"embedding.weight", "positions.weight"} | ({"blocks.0.mlp.up.weight"} if has_mlp else set())
    assert matrices | ({"blocks.0.mixer.query.weight"} if attends else set()) <= decayed[0.1]


@pytest.mark.parametrize("pack", [1, 3])
def test_clipping_is_that_of_torch_member_by_member(pack: int) -> None:
    generator = torch.Generator().manual_seed(0)
    size = torch.tensor([0.01, 1.0, 30.0])[:pack]  # one member below the limit
    shapes = [(5, 4), (), (7,)]
    parameters = [nn.Parameter(torch.zeros(pack, *shape)) for shape in shapes]
    for parameter in parameters:
        noise = torch.randn(parameter.shape, generator=generator)
        parameter.grad = noise * size.view(-1, *[1] * (parameter.dim() - 1))
    untouched = nn.Parameter(torch.zeros(pack, 2))
    singles = []
    for k in range(pack):
        singles.append([nn.Parameter(torch.zeros(shape)) for shape in shapes])
        for single, parameter in zip(singles[k], parameters, strict=True):
            assert parameter.grad is not None
            single.grad = parameter.grad[k].clone()
        nn.utils.clip_grad_norm_(singles[k], 0.7)
    clip_gradients([*parameters, untouched], pack, 0.7)
    for k in range(pack):
        for single, parameter in zip(singles[k], parameters, strict=True):
            assert parameter.grad is not None
            torch.testing.assert_close(parameter.grad[k], single.grad)


def test_clipping_keeps_what_is_not_finite_to_its_member() -> None:
    parameter = nn.Parameter(torch.zeros(3, 2))
    parameter.grad = torch.tensor([[3.0, 4.0], [math.nan, 1.0], [math.inf, 1.0]])
    clip_gradients([parameter], 3, 1.0)
    torch.testing.assert_close(parameter.grad[0], torch.tensor([0.6, 0.8]), rtol=1e-5, atol=1e-6)
