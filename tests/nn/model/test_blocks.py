"""Every named block against the equations of its paper, written by hand, in float64."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from equations import Attention, layer_norm, mlp, rms_norm, rms_norm_outside
from families import a_family_for, without_dropout
from pydantic import ValidationError
from torch import Tensor, nn

from ablate.nn.model import build_model
from ablate.nn.pack.initial import stream
from ablate.spec.model import ModelSpec
from ablate.spec.named import block_names
from ablate.spec.reading import load_space

V, D, H, DEPTH, T, EPS = 13, 12, 3, 3, 6, 1e-8

Weights = Callable[[str], Tensor]


def spec_of(block: Any, **fields: Any) -> ModelSpec:
    return ModelSpec.model_validate(
        {"family": "decoder", "depth": DEPTH, "width": D, "heads": H, "block": block, **fields}
    )


def scattered(spec: ModelSpec, seeds: list[int]) -> nn.Module:
    """A model in float64 whose every parameter is random."""
    model = build_model(spec, vocabulary=V, context=T, seeds=seeds).double()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=stream(5, name), dtype=torch.float64)
    return model


def dense_attention(w: Weights, **gains: Tensor) -> Attention:
    maps = [w(f"mixer.{name}.weight") for name in ("query", "key", "value", "output")]
    return Attention(H, True, *maps, **gains)


def gains_of(w: Weights, *names: str) -> dict[str, Tensor]:
    return {name: w(f"mixer.gains.{name}.value") for name in names}


def sas_attention(w: Weights, layer: int) -> Attention:
    """Eqs 12 and 13; the first layer's values are W = α_V·I + β_V·ΔW (App. C)."""
    eye = torch.eye(D, dtype=torch.float64)
    value = eye
    if layer == 0:
        value = w("mixer.value.alpha.value") * eye + w("mixer.value.beta.value") * w("mixer.value.delta")
    return Attention(
        H, True, w("mixer.query.weight"), w("mixer.key.weight"), value, eye, **gains_of(w, "alpha", "beta", "gamma")
    )


def feed_forward(w: Weights, x: Tensor) -> Tensor:
    return mlp(x, w("mlp.up.weight"), w("mlp.down.weight"))


def norm(w: Weights, which: str, x: Tensor) -> Tensor:
    return rms_norm(x, w(f"norm_{which}.weight"), EPS)


def pre_ln(w: Weights, layer: int, x: Tensor) -> Tensor:
    """Eq. 1 with unit gains."""
    x = x + dense_attention(w)(norm(w, "mixer", x))
    return x + feed_forward(w, norm(w, "mlp", x))


def parallel(w: Weights, layer: int, x: Tensor) -> Tensor:
    """Eq. 7 with unit gains."""
    shared = norm(w, "mixer", x)
    return x + feed_forward(w, shared) + dense_attention(w)(shared)


def value_skipinit(w: Weights, layer: int, x: Tensor) -> Tensor:
    """Eq. 4, no attention skip."""
    x = dense_attention(w, **gains_of(w, "alpha", "beta"))(norm(w, "mixer", x))
    return x + w("mlp_branch.value") * feed_forward(w, norm(w, "mlp", x))


def shaped(w: Weights, layer: int, x: Tensor) -> Tensor:
    """Eq. 5, no attention skip."""
    y = dense_attention(w, **gains_of(w, "alpha", "beta", "gamma"))(norm(w, "mixer", x))
    x = w("mixer_branch.value") * y
    return x + w("mlp_branch.value") * feed_forward(w, norm(w, "mlp", x))


def sas(w: Weights, layer: int, x: Tensor) -> Tensor:
    """X̂ = β_SA·Y; X_out = X̂ + β_FF·MLP(Norm(X̂))."""
    x = w("mixer_branch.value") * sas_attention(w, layer)(norm(w, "mixer", x))
    return x + w("mlp_branch.value") * feed_forward(w, norm(w, "mlp", x))


def sas_p(w: Weights, layer: int, x: Tensor) -> Tensor:
    """X_out = β_SA·Y + β_FF·MLP(Norm(X))."""
    shared = norm(w, "mixer", x)
    y = w("mixer_branch.value") * sas_attention(w, layer)(shared)
    return y + w("mlp_branch.value") * feed_forward(w, shared)


def sas_p_no_norm(w: Weights, layer: int, x: Tensor) -> Tensor:
    """As SAS-P; only the first block has a norm."""
    shared = norm(w, "mixer", x) if layer == 0 else x
    y = w("mixer_branch.value") * sas_attention(w, layer)(shared)
    return y + w("mlp_branch.value") * feed_forward(w, shared)


def biased(w: Weights, names: str, **settings: Any) -> Attention:
    """Attention with biases in the maps of these names; output is the identity where it is not among them."""
    maps = {name: w(f"mixer.{name}.weight") for name in names.split()}
    maps.setdefault("output", torch.eye(D, dtype=torch.float64))
    biases = {name[0].replace("o", "p"): w(f"mixer.{name}.bias") for name in names.split()}
    return Attention(H, True, *(maps[name] for name in ("query", "key", "value", "output")), **biases, **settings)


def biased_mlp(w: Weights, x: Tensor, act: Callable[[Tensor], Tensor]) -> Tensor:
    return act(x @ w("mlp.up.weight") + w("mlp.up.bias")) @ w("mlp.down.weight") + w("mlp.down.bias")


def layer(w: Weights, which: str, x: Tensor, eps: float) -> Tensor:
    return layer_norm(x, w(f"norm_{which}.weight"), w(f"norm_{which}.bias"), eps)


def post_ln(w: Weights, layer_index: int, x: Tensor) -> Tensor:
    """x ← LN(x + Sublayer(x)), arXiv:1706.03762."""
    x = layer(w, "mixer", x + biased(w, "query key value output")(x), 1e-5)
    return layer(w, "mlp", x + biased_mlp(w, x, torch.relu), 1e-5)


def extractor_attention(w: Weights, layer_index: int, x: Tensor) -> Tensor:
    """Pre-LN, no biases in the attention, arXiv:2308.07661."""
    x = x + dense_attention(w)(layer(w, "mixer", x, 1e-5))
    return x + biased_mlp(w, layer(w, "mlp", x, 1e-5), torch.relu)


def simple_of(maps: str, second_skip: bool) -> Callable[[Weights, int, Tensor], Tensor]:
    """Pre-LN SimpleTRON, arXiv:2111.15588: Y_h = (1/√t)·Q_h·Σ K_hᵀ·V_h, with the block's input added again or not."""

    def block(w: Weights, layer_index: int, x: Tensor) -> Tensor:
        attention = biased(w, maps, softmax=False, scale="length")
        middle = x + attention(layer(w, "mixer", x, 1e-6))
        y = middle + biased_mlp(w, layer(w, "mlp", middle, 1e-6), F.gelu)
        return y + x if second_skip else y

    return block


def simple_post_ln(w: Weights, layer_index: int, x: Tensor) -> Tensor:
    """x₁ = LN(x + Attn(x)); X_out = LN(x₁ + FFN(x₁) + x)."""
    attention = biased(w, "query key value output", softmax=False, scale="length")
    middle = layer(w, "mixer", x + attention(x), 1e-12)
    return layer(w, "mlp", middle + biased_mlp(w, middle, F.gelu) + x, 1e-12)


def simple_post_ln_released(w: Weights, layer_index: int, x: Tensor) -> Tensor:
    """Class SBlock: as `simple_post_ln` with the scale 1/√(n·d_h), without output map, ε = 1e-6."""
    attention = biased(w, "query key value", softmax=False, scale="length_and_head_width")
    middle = layer(w, "mixer", x + attention(x), 1e-6)
    return layer(w, "mlp", middle + biased_mlp(w, middle, F.gelu) + x, 1e-6)


def op(w: Weights, layer_index: int, x: Tensor) -> Tensor:
    """x ← x + β·Attn(x) and x ← x + β·MLP(x) without norms; queries and keys are normed in each head."""

    def normed(rows: Tensor, which: str) -> Tensor:
        gain = w(f"mixer.{which}_norm.weight")
        heads = [rms_norm(rows[:, h * D // H : (h + 1) * D // H], gain, 1e-5) for h in range(H)]
        return torch.cat(heads, 1)

    q, k = (normed(x @ w(f"mixer.{name}.weight"), name) for name in ("query", "key"))
    eye = torch.eye(D, dtype=torch.float64)
    heads = Attention(H, True, eye, eye, w("mixer.value.weight"), w("mixer.output.weight"))
    x = x + w("mixer_branch.value") * heads.of(q, k, x @ heads.W_V)
    return x + w("mlp_branch.value") * feed_forward(w, x)


def released_attention(w: Weights, layer_index: int, *, skipless: bool, identity: bool, last: bool) -> Attention:
    """Queries and keys have biases; where the values are the identity, the first layer has α_V·I + β_V·ΔW."""
    eye = torch.eye(D, dtype=torch.float64)
    value = eye if identity else w("mixer.value.weight")
    if identity and layer_index == 0:
        value = w("mixer.value.alpha.value") * eye + w("mixer.value.beta.value") * w("mixer.value.delta")
    maps = w("mixer.query.weight"), w("mixer.key.weight"), value, eye if last else w("mixer.output.weight")
    gains = gains_of(w, "alpha", "beta", "gamma") if skipless else {}
    return Attention(H, True, *maps, q=w("mixer.query.bias"), k=w("mixer.key.bias"), **gains)


def released_norm(w: Weights, which: str, x: Tensor) -> Tensor:
    return rms_norm_outside(x, w(f"norm_{which}.weight"), 1e-5)


def released_baseline(w: Weights, layer_index: int, x: Tensor) -> Tensor:
    """Pre-LN."""
    attention = released_attention(w, layer_index, skipless=False, identity=False, last=False)
    x = x + attention(released_norm(w, "mixer", x))
    return x + feed_forward(w, released_norm(w, "mlp", x))


def released_sequential(identity: bool) -> Callable[[Weights, int, Tensor], Tensor]:
    """X̂ = β_SA·Attn(Norm(X)); X_out = α_FF·X̂ + β_FF·MLP(Norm(X̂)): V-SkipInit's script, and SAS."""

    def block(w: Weights, layer_index: int, x: Tensor) -> Tensor:
        attention = released_attention(w, layer_index, skipless=True, identity=identity, last=identity)
        x = w("mixer_branch.value") * attention(released_norm(w, "mixer", x))
        return w("mlp_skip.value") * x + w("mlp_branch.value") * feed_forward(w, released_norm(w, "mlp", x))

    return block


def released_parallel(normed: bool) -> Callable[[Weights, int, Tensor], Tensor]:
    """X_out = β_SA·Y + β_FF·MLP(Norm(X)); without norms a LayerNorm with bias stays in block 0."""

    def block(w: Weights, layer_index: int, x: Tensor) -> Tensor:
        shared = released_norm(w, "mixer", x) if normed else x if layer_index else layer(w, "mixer", x, 1e-5)
        attention = released_attention(w, layer_index, skipless=True, identity=True, last=True)
        return w("mixer_branch.value") * attention(shared) + w("mlp_branch.value") * feed_forward(w, shared)

    return block


def released_no_norm(w: Weights, layer_index: int, x: Tensor) -> Tensor:
    """The baseline without norms: only the norm before the attention of block 0 stays, none before its MLP."""
    attention = released_attention(w, layer_index, skipless=False, identity=False, last=False)
    x = x + attention(x if layer_index else layer(w, "mixer", x, 1e-5))
    return x + feed_forward(w, x)


BLOCKS: dict[str, Callable[[Weights, int, Tensor], Tensor]] = {
    block.__name__: block
    for block in (
        *(pre_ln, parallel, value_skipinit, shaped, sas, sas_p, sas_p_no_norm),
        *(post_ln, extractor_attention, simple_post_ln, simple_post_ln_released, op),
    )
}
BLOCKS |= {
    "simple": simple_of("query key value", second_skip=False),
    "simple_res": simple_of("query key value", second_skip=True),
    "simple_resl": simple_of("query key value output", second_skip=True),
    "sas_p_no_norm_released": released_parallel(normed=False),
}
RELEASED: dict[str, Callable[[Weights, int, Tensor], Tensor]] = {
    "baseline": released_baseline,
    "attention_skip=value_skipinit": released_sequential(identity=False),
    "norm=none": released_no_norm,
    "sas": released_sequential(identity=True),
    "sas_p": released_parallel(normed=True),
    "sas_p_no_norm": released_parallel(normed=False),
}
OF_RECENT_PAPERS = {
    *("differential_attention", "gated_deltanet", "kimi_delta_attention", "latent_attention"),
    *("forgetting", "mamba2", "mamba3", "mlstm", "rwkv7"),
}
"""With norms and MLPs of their own; tests/kinds/mixers holds their mixers against published code."""
OF_OTHER_MIXERS = sorted(set(block_names()) - set(BLOCKS) - OF_RECENT_PAPERS)


@pytest.mark.parametrize("name", OF_OTHER_MIXERS)
def test_the_other_named_blocks_put_their_mixer_into_a_pre_ln_block(name: str) -> None:
    """The Extractors' block is that of their paper, all others are as in Long Range Arena."""
    extractor = name in ("she", "he", "we", "me")
    eps, act = (1e-5, torch.relu) if extractor else (1e-6, F.gelu)
    model = scattered(spec_of(**without_dropout(name)), [0]).eval()
    state = dict(model.named_parameters())
    x = torch.randn(1, 2, T, D, generator=stream(3, "x"), dtype=torch.float64)
    for index, block in enumerate(model.blocks):

        def w(path: str, index: int = index) -> Tensor:
            return state[f"blocks.{index}.{path}"][0]

        middle = x + block.mixer(layer(w, "mixer", x, eps))
        y = middle + biased_mlp(w, layer(w, "mlp", middle, eps), act)
        torch.testing.assert_close(block(x), y)
        x = y
    assert spec_of(name, family=a_family_for(name)).block.dropout == (0.1 if extractor else 0)


def equations(
    block: Callable[[Weights, int, Tensor], Tensor], model: nn.Module, k: int, tokens: Tensor, depth: int = DEPTH
) -> Tensor:
    """Logits [T, V] of member k for one sequence [T]."""
    state = dict(model.named_parameters()) | dict(model.named_buffers())
    table = state["embedding.weight"][k]
    x = table[tokens] + state["positions.weight"][k, : len(tokens)]
    for index in range(depth):

        def w(path: str, index: int = index) -> Tensor:
            return state[f"blocks.{index}.{path}"][k]

        x = block(w, index, x)
    if "norm.bias" in state:
        return layer_norm(x, state["norm.weight"][k], state["norm.bias"][k], 1e-5) @ table.mT
    return rms_norm(x, state["norm.weight"][k], EPS) @ table.mT


@pytest.mark.parametrize("name", BLOCKS)
def test_block_is_its_equations(name: str) -> None:
    assert_equations(scattered(spec_of(name), [0, 1]).eval(), BLOCKS[name], DEPTH)


@pytest.mark.parametrize("name", RELEASED)
def test_simplify_released_is_the_released_code(name: str) -> None:
    """Every variant of the space against the equations of the code at 8d4ea79, in the shape of the space."""
    space = load_space("simplify_released")
    settings = {"norm": "none"} if name == "norm=none" else {}
    settings |= {"attention_skip": "value_skipinit"} if name.startswith("attention_skip") else {}
    spec = space.resolve(dict(space.variants.get(name, settings))).model
    small = {**spec.model_dump(mode="json"), "width": D, "heads": H, "depth": 2}
    assert_equations(scattered(ModelSpec.model_validate(small), [0, 1]).eval(), RELEASED[name], 2)


def assert_equations(model: nn.Module, block: Callable[[Weights, int, Tensor], Tensor], depth: int) -> None:
    tokens = torch.randint(V, (2, 2, T), generator=stream(1, "tokens"))
    logits = model(tokens)
    slow = torch.stack([torch.stack([equations(block, model, k, row, depth) for row in tokens[k]]) for k in range(2)])
    torch.testing.assert_close(logits, slow, rtol=1e-9, atol=1e-9)
    direction = torch.randn(logits.shape, generator=stream(2, "direction"), dtype=torch.float64)
    parameters = dict(model.named_parameters())
    ours, theirs = (torch.autograd.grad((y * direction).sum(), list(parameters.values())) for y in (logits, slow))
    for path, one, other in zip(parameters, ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-8, msg=lambda text, path=path: f"{path}: {text}")


@pytest.mark.parametrize("name", ["value_skipinit", "shaped", "sas", "sas_p", "sas_p_no_norm"])
def test_branch_of_the_mlp_starts_at_a_tenth_in_18_layers(name: str) -> None:
    model = build_model(spec_of(name, depth=18), vocabulary=V, context=T, seeds=[0])
    for block in model.blocks:
        assert isinstance(block.mlp_branch.value, nn.Parameter)
        assert block.mlp_branch.value.item() == pytest.approx(0.1, rel=1e-3)
        assert block.mlp_skip.value.item() == 1.0
        if name != "value_skipinit":
            assert isinstance(block.mixer_branch.value, nn.Parameter)
            assert block.mixer_branch.value.item() == 1.0


@pytest.mark.parametrize("name", ["shaped", "value_skipinit"])
def test_skipless_maps_start_orthogonal(name: str) -> None:
    model = build_model(spec_of(name), vocabulary=V, context=T, seeds=[0])
    for block in model.blocks:
        for weight in (block.mixer.value.weight[0], block.mixer.output.weight[0]):
            torch.testing.assert_close(weight @ weight.mT, torch.eye(D))
        assert bool(block.mixer.query.weight.any()) == (name == "value_skipinit")


@pytest.mark.parametrize("arrangement", ["sequential", "mlp_first", "parallel"])
def test_gains_fixed_at_0_are_refused_exactly_where_the_output_does_not_depend_on_the_input(arrangement: str) -> None:
    tokens = torch.stack([torch.arange(T), torch.arange(T) + 1])
    settings = [{"mlp": mlp, "mixer": mixer} for mlp in (0, 1) for mixer in (0, 1, 2)]
    names = ("mixer_skip", "mixer_branch", "mlp_skip", "mlp_branch")
    refused = []
    for skips, zero in itertools.product(settings, itertools.product((False, True), repeat=4)):
        chosen = [name for name, is_zero in zip(names, zero, strict=True) if is_zero]
        block = {"mixer": "attention", "arrangement": arrangement, "skips": skips}
        try:
            trained = spec_of({**block, "gains": {name: {"init": 0, "trainable": True} for name in chosen}}, depth=1)
        except ValidationError:
            continue  # no such skip
        one, other = build_model(trained, vocabulary=V, context=T, seeds=[0])(tokens[None])[0]
        try:
            spec_of({**block, "gains": dict.fromkeys(chosen, 0)}, depth=1)
            refused.append(False)
        except ValidationError:
            refused.append(True)
        assert refused[-1] == torch.equal(one, other), (skips, chosen)
    assert {*refused} == {True, False}
