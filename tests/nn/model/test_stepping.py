"""Decoding token by token agrees with the full forward pass, for every causal mixer, block and position."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ablate.nn.model import build_model
from ablate.nn.model.decoder import Decoder, state_bytes
from ablate.nn.model.encoder import EncoderDecoder
from ablate.nn.pack import Stepping
from ablate.nn.pack.initial import stream
from ablate.spec.layer import LayerContext
from ablate.spec.model import ModelSpec
from ablate.spec.sublayers import MIXERS, MixerSpec

LENGTH = 11
KEEP = {"attention", "extractor", "fastfood", "gated_linear_attention", "generative", "gmm", "linear", "performer"}
KEEP |= {"retention", "latent_attention", "differential_attention", "gated_deltanet", "kimi_delta_attention", "mamba2"}
KEEP |= {"rwkv7", "channel_mixing", "mamba3", "mlstm", "native_sparse_attention", "path_attention"}
"""Kinds with a form of their own for one token after another; all others read their inputs again."""

SMALL: dict[str, Any] = {"family": "decoder", "depth": 2, "width": 12, "heads": 2}
CAUSAL = sorted(name for name, kind in MIXERS.members().items() if issubclass(kind, MixerSpec) and kind.causal_form)


def perturb(model: nn.Module) -> nn.Module:
    """Away from the initial values, where shaped attention ignores its input."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter += 0.2 * torch.randn(parameter.shape, generator=stream(0, name, parameter.shape))
    return model.eval()


def decoder(**more: Any) -> Decoder:
    model = build_model(ModelSpec.model_validate({**SMALL, **more}), vocabulary=17, context=LENGTH, seeds=[0, 1])
    assert isinstance(model, Decoder)
    perturb(model)
    return model


def differences(model: Decoder) -> Tensor:
    """The largest gap at each token between reading one by one and reading the text up to there at once."""
    ids = torch.randint(17, (2, 3, LENGTH), generator=stream(1, "ids"))
    states, gaps = (), []
    with torch.no_grad():
        for place in range(LENGTH):
            logits, states = model.step(ids[..., place : place + 1], place, states)
            gaps.append((logits - model(ids[..., : place + 1])[:, :, -1:]).abs().max())
    return torch.stack(gaps)


@pytest.mark.parametrize(
    "block",
    [
        {"mixer": "attention", "window": 3},
        {"mixer": {"kind": "attention", "kv_heads": 1}, "window": 2, "positions": "alibi"},
        {"mixer": "attention", "window": 3, "positions": {"kind": "rotary", "base": 20}, "head_width": 4},
        {"mixer": "linear", "positions": "rotary"},
    ],
    ids=str,
)
def test_what_belongs_to_a_layer(block: dict[str, Any]) -> None:
    """Windows keep the last keys alone, and positions are those of the whole text."""
    assert differences(decoder(block=block)).max() < 1e-4


def test_the_kinds_that_keep_something() -> None:
    context = LayerContext(1, 12, 2, depth=1, context=LENGTH, causal=True)
    kinds = {kind: MIXERS.member(kind).parse({"kind": kind}) for kind in CAUSAL}
    assert {kind for kind, spec in kinds.items() if isinstance(spec.build(context), Stepping)} == KEEP  # type: ignore[attr-defined]


CACHED: dict[str, float] = {
    "attention": 2 * LENGTH * 12,  # keys and values
    "differential_attention": 2 * LENGTH * 12,
    "linear": 2 * (6 * 6 + 6),  # of each head Σ φ(k)ᵀv and Σ φ(k)
    "gated_linear_attention": 2 * 3 * 6,  # keys are half as wide
    "gated_deltanet": 180,  # 2 heads of 6 x 6, and three inputs of three short convolutions
    "kimi_delta_attention": 180,
    "rwkv7": 2 * 6 * 6 + 12,  # and the last token
}
"""Numbers that a layer keeps of one sequence."""


@pytest.mark.parametrize("kind", CAUSAL)
def test_the_bytes_of_a_cache_are_those_of_its_tensors(kind: str) -> None:
    model = decoder(block={"mixer": kind})
    ids = torch.randint(17, (2, 1, LENGTH), generator=stream(1, "ids"))
    with torch.no_grad():
        whole, shorter = model.states_after(ids), model.states_after(ids[..., :-1])
    assert state_bytes(whole) == sum(tensor.numpy().nbytes for state in whole for tensor in state)
    numbers = state_bytes(whole) / 4 / 2 / 2  # float32, two layers, a pack of two
    # The inputs of the mixer, or what its spec says.
    layer = model.spec.layer_context(LENGTH)
    scalars = sum(tensor.numel() for state in whole for tensor in state) / 2 / 2
    assert scalars == (model.spec.block.mixer.cache(layer, LENGTH) if kind in KEEP else LENGTH * 12)
    assert numbers == CACHED.get(kind, numbers)
    of_keys = {"attention", "differential_attention", "latent_attention", "native_sparse_attention", "path_attention"}
    growing = kind not in KEEP - of_keys - {"extractor"}
    assert (state_bytes(whole) > state_bytes(shorter)) == growing


def test_a_window_bounds_a_cache_and_shared_heads_shrink_it() -> None:
    ids = torch.zeros(2, 1, LENGTH, dtype=torch.long)

    def numbers(**block: Any) -> float:
        return state_bytes(decoder(block=block).states_after(ids)) / 4 / 2 / 2

    with torch.no_grad():
        assert numbers(mixer="attention", window=3) == 2 * 3 * 12
        assert numbers(mixer={"kind": "attention", "kv_heads": 1}) == LENGTH * 12


YARN = {"kind": "yarn", "factor": 2, "original_context": 8, "all_channels": 0.5}


@pytest.mark.parametrize(
    "positions",
    [
        *("none", "learned", "sinusoidal", "rotary", "alibi"),
        {"kind": "rotary", "fraction": 0.7, "scaling": YARN},
        {"kind": "alibi", "slopes": "bloom"},
        {"kind": "t5_buckets", "buckets": 5, "longest_distance": 7},
    ],
    ids=str,
)
def test_positions(positions: Any) -> None:
    assert differences(decoder(block={"mixer": "attention"}, positions=positions)).max() < 1e-4


@pytest.mark.parametrize("block", ["pre_ln", "post_ln", "parallel", "sas", "sas_p", "shaped", "simple_res", "she"])
def test_named_blocks(block: str) -> None:
    assert differences(decoder(block=block)).max() < 1e-4


def test_a_decoder_with_memory() -> None:
    plain = {**SMALL, "family": "encoder_decoder", "positions": "sinusoidal"}
    plain |= {"block": "post_ln", "decoder": {"depth": 2, "mixer": "attention"}}
    model = build_model(ModelSpec.model_validate(plain), vocabulary=17, context=LENGTH, seeds=[0])
    assert isinstance(model, EncoderDecoder)
    perturb(model)
    source, target = (torch.randint(17, (1, 3, size), generator=stream(size, "ids")) for size in (7, LENGTH))
    real = torch.arange(7) < torch.tensor([7, 4, 2])[:, None]
    with torch.no_grad():
        memory = model.mix(model.embed(source), real[None])
        whole = model.decode(memory, target, real[None])
        states: Any = ()
        for place in range(LENGTH):
            logits, states = model.decode_step(memory, target[..., place : place + 1], place, states, real[None])
            torch.testing.assert_close(logits[:, :, 0], whole[:, :, place], rtol=1e-4, atol=1e-4)
