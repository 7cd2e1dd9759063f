"""The encoder-decoder against torch.nn.Transformer, weights copied: logits and gradients, with its three masks."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import chain
from typing import Any

import pytest
import torch
from copied import Pair, compare, linear, multi_head, norm
from torch import Tensor, nn

from ablate.nn.model import build_model
from ablate.nn.pack.initial import stream
from ablate.spec.model import ModelSpec

V, D, H, S, T, ENCODERS, DECODERS = 13, 12, 2, 7, 5, 2, 3

BIASED = {"kind": "dense", "bias": True}
CROSS = {"kind": "attention", "query_key_bias": True, "value": BIASED, "output": BIASED}


def model(final_norm: str) -> Any:
    """The Transformer of 2017 in float64, every parameter random."""
    spec = ModelSpec.model_validate(
        {
            "family": "encoder_decoder",
            "depth": ENCODERS,
            "width": D,
            "heads": H,
            "block": "post_ln",
            "decoder": {"depth": DECODERS, "mixer": CROSS},
            "positions": "sinusoidal",
            "embedding_scale": "sqrt_width",
            "final_norm": final_norm,
            "dropout": 0.1,
        }
    )
    ours = build_model(spec, vocabulary=V, context=S, seeds=[0]).double().eval()
    with torch.no_grad():
        for name, parameter in ours.named_parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=stream(5, name), dtype=torch.float64)
    return ours


def shared(ours: Any, theirs: nn.Transformer) -> Iterator[Pair]:
    for block, layer in zip(ours.blocks, theirs.encoder.layers, strict=True):
        yield from multi_head(block.mixer, layer.self_attn)
        yield from chain(linear(block.mlp.up, layer.linear1), linear(block.mlp.down, layer.linear2))
        yield from chain(norm(block.norm_mixer, layer.norm1), norm(block.norm_mlp, layer.norm2))
    for block, layer in zip(ours.decoder_blocks, theirs.decoder.layers, strict=True):
        yield from chain(multi_head(block.mixer, layer.self_attn), multi_head(block.cross, layer.multihead_attn))
        yield from chain(linear(block.mlp.up, layer.linear1), linear(block.mlp.down, layer.linear2))
        for packed, theirs_norm in zip(
            (block.norm_mixer, block.norm_cross, block.norm_mlp), (layer.norm1, layer.norm2, layer.norm3), strict=True
        ):
            yield from norm(packed, theirs_norm)
    if theirs.encoder.norm is not None:
        yield from chain(norm(ours.norm, theirs.encoder.norm), norm(ours.decoder_norm, theirs.decoder.norm))


def embedded(table: Tensor, tokens: Tensor) -> Tensor:
    """√d·E[token] + PE(pos), PE(pos, 2i) = sin(pos / 10000^(2i/d)) and PE(pos, 2i+1) = cos of the same."""
    x = math.sqrt(D) * table[tokens]
    angle = torch.arange(tokens.shape[-1])[:, None] / 10000 ** (torch.arange(0, D, 2, dtype=torch.float64) / D)
    return x + torch.stack([angle.sin(), angle.cos()], -1).flatten(1)


@pytest.mark.parametrize("padded", [False, True], ids=["whole", "padded"])
@pytest.mark.parametrize("final_norm", ["none", "layer"], ids=["paper", "torch"])
def test_it_is_torch_s_transformer(final_norm: str, padded: bool) -> None:
    """The paper has no norm after its stacks; torch adds one to each. Our sinusoids are in single precision."""
    ours = model(final_norm)
    theirs = nn.Transformer(D, H, ENCODERS, DECODERS, 4 * D, 0.0, batch_first=True, dtype=torch.float64)
    for stack in (theirs.encoder, theirs.decoder):
        stack.norm = None if final_norm == "none" else nn.LayerNorm(D, eps=1e-8, dtype=torch.float64)
    pairs = list(shared(ours, theirs))
    assert len(pairs) == len(list(theirs.parameters()))
    table = nn.Parameter(torch.empty(V, D, dtype=torch.float64))
    pairs.append(Pair((ours.embedding.weight,), table))
    assert len({id(tensor) for pair in pairs for tensor in pair.ours}) == len(list(ours.parameters()))
    for pair in pairs:
        pair.copy()
    source = torch.randint(V, (2, S), generator=stream(1, "source"))
    target = torch.randint(V, (2, T), generator=stream(1, "target"))
    source_real = torch.arange(S) < torch.tensor([[4], [S]]) if padded else None
    target_real = torch.arange(T) < torch.tensor([[T], [3]]) if padded else None
    logits = ours(
        source[None],
        target[None],
        None if source_real is None else source_real[None],
        None if target_real is None else target_real[None],
    )
    out = theirs(
        embedded(table, source),
        embedded(table, target),
        tgt_mask=torch.ones(T, T, dtype=torch.bool).triu(1),
        src_key_padding_mask=None if source_real is None else ~source_real,
        tgt_key_padding_mask=None if target_real is None else ~target_real,
        memory_key_padding_mask=None if source_real is None else ~source_real,
    )
    compare(pairs, logits, out @ table.mT, target_real, rtol=1e-5, atol=1e-6)
