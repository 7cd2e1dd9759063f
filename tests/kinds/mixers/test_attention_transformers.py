"""Attention of Gemma 2, gpt-oss, Qwen3-Next and OLMo 2: weights copied, outputs and gradients in float64."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from copied import Pair, compare, linear
from double_precision import compute_in_double
from torch import Tensor

from ablate.kinds.mixers.attention import AttentionSpec
from ablate.kinds.positions.rotary import RotarySpec
from ablate.nn.pack import initialise
from ablate.nn.pack.initial import stream
from ablate.spec.layer import LayerContext

transformers = pytest.importorskip("transformers")

D, H, G, d, T = 24, 6, 2, 8, 13
BIASED = {"kind": "dense", "bias": True}
SIZES = {
    "hidden_size": D,
    "num_attention_heads": H,
    "num_key_value_heads": G,
    "head_dim": d,
    "num_hidden_layers": 2,
    "max_position_embeddings": 64,
    "vocab_size": 11,
    "intermediate_size": 16,
    "pad_token_id": None,
}


@dataclass(frozen=True)
class Model:
    """An attention of theirs, and the settings of ours that are said to be the same.

    Attributes:
        module: Their module's name.
        name: What their classes start with.
        ours: Settings of our mixer.
        positions: Settings of our rotary positions.
        config: Settings of theirs.
        window: Of layer 0.
        centred: Whether their norms add 1 to their weights.
    """

    module: str
    name: str
    ours: dict[str, Any]
    positions: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    window: int | None = None
    centred: bool = False


YARN = {"rope_type": "yarn", "rope_theta": 150000.0, "factor": 32.0, "original_max_position_embeddings": 64,
        "truncate": False}  # fmt: skip
YARN_OURS = {"kind": "yarn", "factor": 32, "original_context": 64, "whole_pairs": False}
MODELS = {
    "gemma2": Model(
        "gemma2",
        "Gemma2",
        {"logits": {"soft_cap": 3, "precision": "float32"}, "scale": 5**-0.5},
        config={"query_pre_attn_scalar": 5, "attn_logit_softcapping": 3.0, "sliding_window": 4},
        window=4,
    ),
    "gpt_oss": Model(
        "gpt_oss",
        "GptOss",
        {"logits": {"sinks": True}, "query_key_bias": True, "value": BIASED, "output": BIASED},
        {"base": 150000, "scaling": YARN_OURS},
        {"rope_parameters": YARN, "sliding_window": 5},
        window=5,
    ),
    "qwen3_next": Model(
        "qwen3_next",
        "Qwen3Next",
        {"gate": "elementwise", "query_key_norm": "rms"},
        {"base": 1e7, "fraction": 0.25},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25}},
        centred=True,
    ),
    "olmo2": Model(
        "olmo2",
        "Olmo2",
        {"query_key_norm": {"kind": "rms", "over": "width"}},
        {"base": 5e5},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}, "rms_norm_eps": 1e-6},
    ),
}


def pairs_of(model: Model, ours: Any, theirs: Any) -> list[Pair]:
    """All parameters of theirs."""
    found = [pair for name, map_ in (("key", theirs.k_proj), ("value", theirs.v_proj), ("output", theirs.o_proj))
             for pair in linear(getattr(ours, name), map_)]  # fmt: skip
    if ours.gate is not None:  # for each head its queries, then its gates

        def interleaved(*maps: Tensor) -> Tensor:
            return torch.cat([one.unflatten(-1, (H, d)) for one in maps], -1).flatten(-2).mT

        found.append(Pair((ours.query.weight, ours.gate.map.weight), theirs.q_proj.weight, interleaved))
    else:
        found += linear(ours.query, theirs.q_proj)
    if hasattr(theirs, "q_norm"):
        for name, norm in ((ours.query_norm, theirs.q_norm), (ours.key_norm, theirs.k_norm)):
            found.append(Pair((name.weight,), norm.weight))
    if ours.sinks is not None:
        found.append(Pair((ours.sinks.logit,), theirs.sinks))
    return found


@pytest.mark.independent_check(
    "mixers", "attention", against="attention of Gemma 2, gpt-oss, Qwen3-Next and OLMo 2 in `transformers`"
)
@pytest.mark.parametrize("padded", [False, True], ids=["whole", "padded"])
@pytest.mark.parametrize("name", MODELS)
def test_attention_is_that_of_transformers(name: str, padded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    model = MODELS[name]
    module = importlib.import_module(f"transformers.models.{model.module}.modeling_{model.module}")
    compute_in_double(monkeypatch, module, importlib.import_module("transformers.modeling_rope_utils"))
    config = getattr(transformers, f"{model.name}Config")(**SIZES, **model.config)
    config._attn_implementation = "eager"
    positions = RotarySpec.model_validate(model.positions)
    told = LayerContext(1, D, H, 3, T, True, d, 0.5, positions, window=model.window)
    spec = AttentionSpec.model_validate({"kv_heads": G, **model.ours})
    spec.check(told)
    ours = spec.build(told).double()
    initialise(ours, [0])
    theirs = getattr(module, f"{model.name}Attention")(config, 0).double().eval()
    with torch.no_grad():
        for parameter_name, parameter in ours.named_parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=stream(9, parameter_name), dtype=torch.float64)
    pairs = pairs_of(model, ours, theirs)
    assert len(pairs) == len(list(theirs.parameters()))
    for pair in pairs:
        pair.copy()
    if model.centred:
        for norm in (theirs.q_norm, theirs.k_norm):
            norm.weight.data -= 1
    x = torch.randn(2, T, D, generator=stream(1, "x"), dtype=torch.float64)
    real = torch.arange(T) < torch.tensor([[T - 4], [T]]) if padded else torch.ones(2, T, dtype=torch.bool)
    visible = torch.ones(T, T, dtype=torch.bool).tril()
    if model.window is not None:
        visible = visible.triu(1 - model.window)
    mask = torch.where(visible & real[:, None, None, :], 0.0, -1e30).double()
    rotary = getattr(module, f"{model.name}RotaryEmbedding")(config).double()
    turned = rotary(x, torch.arange(T)[None])
    reference, _ = theirs(hidden_states=x, position_embeddings=turned, attention_mask=mask)
    compare(pairs, ours(x[None], real[None] if padded else None), reference, real, rtol=1e-9, atol=1e-9)
