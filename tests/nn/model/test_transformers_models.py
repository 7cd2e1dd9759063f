"""Whole models against those of `transformers`, weights copied: BERT's body, GPT-2, LLaMA; logits and gradients."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

import pytest
import torch
from copied import Pair, compare, linear, norm
from torch import Tensor, nn

from ablate.nn.model.build import build_model
from ablate.nn.pack.initial import stream
from ablate.spec.model import ModelSpec

transformers = pytest.importorskip("transformers")

V, D, H, T, DEPTH = 13, 16, 4, 7, 2

BIASED = {"kind": "dense", "bias": True}
BIASED_ATTENTION = {"kind": "attention", "query_key_bias": True, "value": BIASED, "output": BIASED}


def model(fields: dict[str, Any]) -> Any:
    """Ours in float64, every parameter random."""
    spec = ModelSpec.model_validate({"depth": DEPTH, "width": D, "heads": H, **fields})
    ours = build_model(spec, vocabulary=V, context=T, seeds=[0]).double()
    with torch.no_grad():
        for name, parameter in ours.named_parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=stream(5, name), dtype=torch.float64)
    return ours


def inputs(padded: bool) -> tuple[Tensor, Tensor]:
    """Two texts [B, T] and which of their tokens are real."""
    tokens = torch.randint(V, (2, T), generator=stream(1, "tokens"))
    return tokens, torch.arange(T) < torch.tensor([[4], [T]] if padded else [[T], [T]])


def copy_all(pairs: list[Pair], ours: nn.Module) -> None:
    """Copy, and see to it that no parameter of ours was forgotten."""
    assert {id(tensor) for pair in pairs for tensor in pair.ours} == {id(p) for p in ours.parameters()}
    for pair in pairs:
        pair.copy()


def bert(ours: Any, theirs: Any) -> Iterator[Pair]:
    yield Pair((ours.embedding.weight,), theirs.embeddings.word_embeddings.weight)
    yield Pair((ours.positions.weight,), theirs.embeddings.position_embeddings.weight)
    for block, layer in zip(ours.blocks, theirs.encoder.layer, strict=True):
        attention = layer.attention
        for name in ("query", "key", "value"):
            yield from linear(getattr(block.mixer, name), getattr(attention.self, name))
        yield from linear(block.mixer.output, attention.output.dense)
        yield from chain(linear(block.mlp.up, layer.intermediate.dense), linear(block.mlp.down, layer.output.dense))
        yield from chain(
            norm(block.norm_mixer, attention.output.LayerNorm), norm(block.norm_mlp, layer.output.LayerNorm)
        )


@pytest.mark.parametrize("padded", [False, True], ids=["whole", "padded"])
def test_masked_language_model_is_bert(padded: bool) -> None:
    """Its body: no norm of the embeddings, no sort of text, and no map between the last block and the tied logits."""
    ours = model(
        {
            "family": "encoder",
            "block": {
                "mixer": BIASED_ATTENTION,
                "mlp": {"activation": "gelu", "bias": True},
                "norm": {"kind": "layer", "place": "post", "eps": 1e-12},
            },
            "final_norm": "none",
        }
    )
    config = transformers.BertConfig(
        vocab_size=V,
        hidden_size=D,
        num_hidden_layers=DEPTH,
        num_attention_heads=H,
        intermediate_size=4 * D,
        max_position_embeddings=T,
        pad_token_id=None,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    theirs = transformers.BertModel(config, add_pooling_layer=False).double()
    theirs.embeddings.LayerNorm = nn.Identity()
    theirs.embeddings.token_type_embeddings.weight.data.zero_()
    pairs = list(bert(ours, theirs))
    copy_all(pairs, ours)
    tokens, real = inputs(padded)
    hidden = theirs(tokens, attention_mask=real.long()).last_hidden_state
    logits = hidden @ theirs.embeddings.word_embeddings.weight.mT
    compare(pairs, ours(tokens[None], real[None]), logits, real, rtol=1e-8, atol=1e-8)


def gpt2(ours: Any, theirs: Any) -> Iterator[Pair]:
    body = theirs.transformer
    yield Pair((ours.embedding.weight,), body.wte.weight)
    yield Pair((ours.positions.weight,), body.wpe.weight)
    for block, layer in zip(ours.blocks, body.h, strict=True):
        maps = (block.mixer.query, block.mixer.key, block.mixer.value)
        # Its maps are [in, out] as ours are, the three of the attention side by side.
        yield Pair(tuple(m.weight for m in maps), layer.attn.c_attn.weight, lambda *matrices: torch.cat(matrices, 1))
        yield Pair(tuple(m.bias for m in maps), layer.attn.c_attn.bias, lambda *biases: torch.cat(biases))
        for packed, conv in (
            (block.mixer.output, layer.attn.c_proj),
            (block.mlp.up, layer.mlp.c_fc),
            (block.mlp.down, layer.mlp.c_proj),
        ):
            yield from (Pair((packed.weight,), conv.weight), Pair((packed.bias,), conv.bias))
        yield from chain(norm(block.norm_mixer, layer.ln_1), norm(block.norm_mlp, layer.ln_2))
    yield from norm(ours.norm, body.ln_f)


@pytest.mark.parametrize("padded", [False, True], ids=["whole", "padded"])
def test_decoder_is_gpt2(padded: bool) -> None:
    ours = model(
        {
            "family": "decoder",
            "block": {
                "mixer": BIASED_ATTENTION,
                "mlp": {"activation": "gelu_tanh", "bias": True},
                "norm": {"kind": "layer", "eps": 1e-5},
            },
            "final_norm": "layer",
        }
    )
    config = transformers.GPT2Config(
        vocab_size=V,
        n_embd=D,
        n_layer=DEPTH,
        n_head=H,
        n_positions=T,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=None,
        eos_token_id=None,
    )
    theirs = transformers.GPT2LMHeadModel(config).double()
    theirs.transformer.ln_f.eps = 1e-8
    assert theirs.lm_head.weight is theirs.transformer.wte.weight
    pairs = list(gpt2(ours, theirs))
    copy_all(pairs, ours)
    tokens, real = inputs(padded)
    logits = theirs(tokens, attention_mask=real.long()).logits
    compare(pairs, ours(tokens[None], real[None]), logits, real, rtol=1e-8, atol=1e-8)


def llama(ours: Any, theirs: Any) -> Iterator[Pair]:
    yield Pair((ours.embedding.weight,), theirs.model.embed_tokens.weight)
    for block, layer in zip(ours.blocks, theirs.model.layers, strict=True):
        for name, their_name in (("query", "q_proj"), ("key", "k_proj"), ("value", "v_proj"), ("output", "o_proj")):
            yield from linear(getattr(block.mixer, name), getattr(layer.self_attn, their_name))
        for name, their_name in (("up", "up_proj"), ("gate", "gate_proj"), ("down", "down_proj")):
            yield from linear(getattr(block.mlp, name), getattr(layer.mlp, their_name))
        yield from chain(
            norm(block.norm_mixer, layer.input_layernorm), norm(block.norm_mlp, layer.post_attention_layernorm)
        )
    yield from chain(norm(ours.norm, theirs.model.norm), linear(ours.head, theirs.lm_head))


@pytest.mark.parametrize("padded", [False, True], ids=["whole", "padded"])
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_decoder_is_llama(groups: int, padded: bool) -> None:
    """Rotary positions, grouped queries, SwiGLU, RMSNorm. Their angles and norms are in single precision."""
    ours = model(
        {
            "family": "decoder",
            "block": {
                "mixer": {"kind": "attention", "kv_heads": groups},
                "mlp": {"kind": "gated", "activation": "silu", "ratio": 2.5},
                "norm": {"kind": "rms", "eps": 1e-6},
            },
            "positions": "rotary",
            "tied_head": False,
        }
    )
    config = transformers.LlamaConfig(
        vocab_size=V,
        hidden_size=D,
        num_hidden_layers=DEPTH,
        num_attention_heads=H,
        num_key_value_heads=groups,
        intermediate_size=int(2.5 * D),
        max_position_embeddings=T,
        rms_norm_eps=1e-6,
        pad_token_id=None,
        bos_token_id=None,
        eos_token_id=None,
    )
    theirs = transformers.LlamaForCausalLM(config).double()
    theirs.model.norm.variance_epsilon = 1e-8
    pairs = list(llama(ours, theirs))
    assert len(pairs) == len(list(theirs.parameters()))
    copy_all(pairs, ours)
    tokens, real = inputs(padded)
    logits = theirs(tokens, attention_mask=real.long()).logits
    compare(pairs, ours(tokens[None], real[None]), logits, real, rtol=1e-4, atol=1e-4)
