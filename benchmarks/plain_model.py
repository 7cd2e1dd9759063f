"""A decoder and its training loop as a user of torch alone writes them: the baseline of the benchmark `step`.

It covers what the variants of `spaces/simplify_block.yaml` need. Parameters have the names of ours, so that both start
from the same values. Shapes: B batch, T tokens, D width, H heads, d_h head width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ablate.kinds.mixers.attention import AttentionSpec
from ablate.kinds.mlps.plain import PlainMLPSpec
from ablate.kinds.norms.rms import RMSNormSpec
from ablate.kinds.optimizers.adam import AdamWSpec
from ablate.kinds.positions.rotary import RotarySpec
from ablate.nn.pack.attention import DenseSpec, ProjectionSpec, ReparametrisedSpec
from ablate.spec.block import BlockSpec, GainSpec
from ablate.spec.model import ModelSpec
from ablate.spec.sublayers import NormSpec
from ablate.spec.training import TrainingSpec


class Gain(nn.Module):
    """A trained factor, or one for each head."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.value = nn.Parameter(torch.ones(shape))

    def forward(self, x: Tensor) -> Tensor:
        """[B, ..., T, D] times the factor; [B, H, T, d_h] times that of each head."""
        return x * (self.value if self.value.dim() == 0 else self.value[:, None, None])


class Reparametrised(nn.Module):
    """x·(α·I + β·ΔW)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.delta = nn.Parameter(torch.zeros(width, width))
        self.alpha, self.beta = Gain(), Gain()

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, D] to the same."""
        y: Tensor = self.alpha(x) + self.beta(x @ self.delta)
        return y


class Attention(nn.Module):
    """Causal attention with rotary positions, and shaping where a variant has it (arXiv:2311.01906, eqs 4 and 5)."""

    cos: Tensor
    sin: Tensor
    counts: Tensor

    def __init__(self, spec: AttentionSpec, width: int, heads: int, context: int) -> None:
        super().__init__()
        self.heads, self.kind = heads, spec.shaping.kind
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, width, bias=False)
        self.value = _projection(spec.value, width)
        self.output = _projection(spec.output, width)
        self.gains = nn.ModuleDict({name: Gain(heads) for name in spec.shaping.gains()})
        half = width // heads // 2
        angle = torch.arange(context)[:, None] * 10000.0 ** (-torch.arange(half) / half)
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)
        self.register_buffer("counts", torch.arange(1.0, context + 1)[:, None], persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, D] to the same."""
        q, k, v = (
            y.unflatten(-1, (self.heads, -1)).transpose(1, 2) for y in (self.query(x), self.key(x), self.value(x))
        )
        y = F.scaled_dot_product_attention(self.turned(q), self.turned(k), v, is_causal=True)
        if self.kind != "none":
            y = self.gains["alpha"](v) + self.gains["beta"](y)
        if self.kind == "shaped":
            y = y - self.gains["gamma"](v.cumsum(-2) / self.counts)
        mixed: Tensor = self.output(y.transpose(1, 2).flatten(2))
        return mixed

    def turned(self, x: Tensor) -> Tensor:
        """Queries or keys [B, H, T, d_h] with their positions."""
        left, right = x.chunk(2, -1)
        return torch.cat([left * self.cos - right * self.sin, left * self.sin + right * self.cos], -1)


class MLP(nn.Module):
    """W₂·relu(W₁x)."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, D] to the same."""
        y: Tensor = self.down(F.relu(self.up(x)))
        return y


class Block(nn.Module):
    """Attention and MLP with norms, skips and gains."""

    def __init__(self, spec: BlockSpec, width: int, heads: int, context: int) -> None:
        super().__init__()
        self.parallel, self.skips = spec.arrangement == "parallel", spec.skips
        self.mixer = Attention(cast(AttentionSpec, spec.mixer), width, heads, context)
        self.mlp = MLP(width, cast(PlainMLPSpec, spec.mlp).hidden(width))
        self.norm_mixer, self.norm_mlp = (
            _norm(spec.norms[0], width),
            None if self.parallel else _norm(spec.norms[1], width),
        )
        self.mixer_branch, self.mlp_branch = _gain(spec.gains.mixer_branch), _gain(spec.gains.mlp_branch)

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, D] to the same."""
        normed = self.norm_mixer(x)
        y: Tensor = self.mixer_branch(self.mixer(normed))
        if self.norm_mlp is None:
            y = y + self.mlp_branch(self.mlp(normed))
            return x + y if self.skips.mixer else y
        x = x + y if self.skips.mixer else y
        y = self.mlp_branch(self.mlp(self.norm_mlp(x)))
        return x + y if self.skips.mlp else y


class PlainModel(nn.Module):
    """Embedding, blocks, norm, and a head tied to the embedding."""

    def __init__(self, spec: ModelSpec, vocabulary: int, context: int) -> None:
        super().__init__()
        assert spec.tied_head, "the variants have it in common"
        assert spec.positions == RotarySpec(), "the variants have it in common"
        self.embedding = nn.Embedding(vocabulary, spec.width)
        self.blocks = nn.Sequential(*(Block(block, spec.width, spec.heads, context) for block in spec.blocks))
        self.norm = _norm(spec.final_norm, spec.width)

    def forward(self, tokens: Tensor) -> Tensor:
        """Ids [B, T] to logits [B, T, V]."""
        return F.linear(self.norm(self.blocks(self.embedding(tokens))), self.embedding.weight)

    @torch.no_grad()
    def start_from(self, values: Mapping[str, Tensor]) -> None:
        """Take the parameters of a pack of one, by name: [1, ...], maps transposed."""
        for path, module in self.named_modules():
            for name, parameter in module.named_parameters(recurse=False):
                value = values[f"{path}.{name}"][0]
                parameter.copy_(value.T if isinstance(module, nn.Linear) else value)


class PlainTraining:
    """The usual loop: fused AdamW, clipping, a schedule."""

    def __init__(self, model: PlainModel, spec: TrainingSpec) -> None:
        optimizer = cast(AdamWSpec, spec.optimizer)
        self.model, self.spec, self.clip = model, spec, optimizer.clip
        self.parameters = list(model.parameters())
        groups = [
            {"params": [p for p in self.parameters if p.dim() > 1], "weight_decay": optimizer.weight_decay},
            {"params": [p for p in self.parameters if p.dim() < 2], "weight_decay": 0.0},
        ]
        self.rule = torch.optim.AdamW(groups, lr=optimizer.lr, betas=optimizer.betas, eps=optimizer.eps, fused=True)

    def step(self, step: int, inputs: Tensor, targets: Tensor) -> Tensor:
        """One optimizer step; returns the loss before it."""
        rate = self.spec.optimizer.lr * self.spec.schedule.factor(step, self.spec.steps)
        for group in self.rule.param_groups:
            group["lr"] = rate
        loss = F.cross_entropy(self.model(inputs).flatten(0, 1), targets.flatten())
        self.rule.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.parameters, self.clip)
        self.rule.step()
        return loss.detach()


def _norm(spec: NormSpec, width: int) -> nn.Module:
    return nn.RMSNorm(width, eps=spec.eps) if isinstance(spec, RMSNormSpec) else nn.Identity()


def _gain(spec: GainSpec) -> nn.Module:
    assert spec.trainable or spec == GainSpec(), "what the variants have"
    return Gain() if spec.trainable else nn.Identity()


def _projection(spec: ProjectionSpec, width: int) -> nn.Module:
    if isinstance(spec, DenseSpec):
        return nn.Linear(width, width, bias=False)
    return Reparametrised(width) if isinstance(spec, ReparametrisedSpec) else nn.Identity()
