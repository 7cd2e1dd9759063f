"""MLPs against torch and `transformers`, outputs and gradients; mixtures of experts against their published code.

The routers of `transformers` make their softmax in float32, so that float64 agrees to about 1e-7 there. Its modules are
imported where they are used: every process of a test run collects this file, and one runs it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import pytest
import torch
import torch.nn.functional as F
from pydantic import ValidationError
from torch import Tensor, nn

from ablate.kinds.mlps.mixture import ExpertMixture, MixtureSpec
from ablate.nn.pack import ACTIVATIONS, auxiliary_losses, counting, initialise
from ablate.nn.pack.initial import stream
from ablate.spec.activations import Activation
from ablate.spec.layer import LayerContext
from ablate.spec.sublayers import MLPSpec

D, B, T, E, W = 14, 2, 5, 8, 7
"""Width, batch, tokens, experts, width of an expert."""
CONTEXT = LayerContext(1, D, 2, depth=3, context=T, causal=True, init_std=0.4)
ROUTED = {"rtol": 1e-5, "atol": 1e-6}
"""Float32 routers."""


def module_of(plain: dict[str, Any], pack: int = 1) -> nn.Module:
    context = LayerContext(pack, D, 2, depth=3, context=T, causal=True, init_std=0.4)
    module = MLPSpec.parse(plain).build(context)
    initialise(module, list(range(pack)))
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if "bias" in name:
                parameter += 0.3 * torch.randn(parameter.shape, generator=stream(0, name))
    return module.double()


def noise(name: str, *shape: int) -> Tensor:
    return torch.randn(shape, generator=stream(0, name), dtype=torch.float64)


@pytest.mark.independent_check("mlps", "plain", against="torch's activations")
@pytest.mark.parametrize("name", get_args(Activation))
def test_activations_are_torchs(name: Activation) -> None:
    ours = {
        "relu_squared": lambda x: torch.where(x > 0, x**2, 0.0),
        "gelu_tanh": nn.GELU(approximate="tanh"),
        "quick_gelu": lambda x: x / (1 + torch.exp(-1.702 * x)),
        "identity": lambda x: 1 * x,
    }
    theirs: Callable[[Tensor], Tensor] = ours[name] if name in ours else getattr(F, name, getattr(torch, name, None))
    x = noise("x", 50).requires_grad_()
    results = [function(x) for function in (ACTIVATIONS[name], theirs)]
    torch.testing.assert_close(*results)
    torch.testing.assert_close(*(torch.autograd.grad(y.sin().sum(), x)[0] for y in results))


@pytest.mark.independent_check("mlps", "gated", against="arXiv:2002.05202 eqs 5 and 6, with torch's activations")
@pytest.mark.parametrize(
    ("activation", "theirs"),
    [("silu", F.silu), ("gelu", F.gelu), ("relu", F.relu), ("sigmoid", torch.sigmoid), ("identity", lambda g: g)],
)
def test_gated_forms(activation: str, theirs: Callable[[Tensor], Tensor]) -> None:
    """SwiGLU, GEGLU, ReGLU, GLU and the bilinear form of arXiv:2002.05202."""
    module, x = module_of({"kind": "gated", "activation": activation, "ratio": 2}), noise("x", 1, B, T, D)
    w = {name: parameter[0] for name, parameter in module.named_parameters()}
    expected = (theirs(x @ w["gate.weight"]) * (x @ w["up.weight"])) @ w["down.weight"]
    torch.testing.assert_close(module(x), expected)


def both(module: ExpertMixture, theirs: nn.Module, copied: list[tuple[Tensor, Tensor]]) -> None:
    """Outputs, gradients of the input and of weights that were copied, (ours, theirs)."""
    x = noise("x", B, T, D)
    inputs = [x.clone().requires_grad_(), x.clone().requires_grad_()]
    ours = module(inputs[0].unsqueeze(0)).squeeze(0)
    made = theirs(inputs[1])
    other = made[0] if isinstance(made, tuple) else made
    torch.testing.assert_close(ours, other, **ROUTED)
    for y in (ours, other):
        (y * noise("direction", B, T, D)).sum().backward()
    torch.testing.assert_close(inputs[0].grad, inputs[1].grad, **ROUTED)
    for one, two in copied:
        assert one.grad is not None
        assert two.grad is not None
        gradient = one.grad.squeeze(0)
        torch.testing.assert_close(gradient if gradient.shape == two.shape else gradient.mT, two.grad, **ROUTED)


@torch.no_grad()
def put_experts(module: ExpertMixture, theirs: Any) -> None:
    """[E, 2W, D] and [E, D, W] of Qwen and DeepSeek."""
    experts = module.experts
    theirs.gate_up_proj.copy_(torch.cat([experts.gate[0], experts.up[0]], -1).mT)
    theirs.down_proj.copy_(experts.down[0].mT)


@pytest.mark.independent_check("mlps", "mixture", against="experts of Qwen3-MoE in `transformers`")
@pytest.mark.parametrize("normalise", [True, False])
def test_a_mixture_is_that_of_qwen3(normalise: bool) -> None:
    from transformers.models.qwen3_moe.configuration_qwen3_moe import Qwen3MoeConfig
    from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeSparseMoeBlock

    module = module_of({"kind": "mixture", "experts": E, "active": 3, "ratio": W / D, "normalise": normalise})
    config = Qwen3MoeConfig(hidden_size=D, moe_intermediate_size=W, num_experts=E, num_experts_per_tok=3,
                            norm_topk_prob=normalise)  # fmt: skip
    theirs = Qwen3MoeSparseMoeBlock(config).double()
    assert isinstance(module, ExpertMixture)
    put_experts(module, theirs.experts)
    with torch.no_grad():
        theirs.gate.weight.copy_(module.router.weight[0].T)
    both(module, theirs, [(module.router.weight, theirs.gate.weight), (module.experts.down, theirs.experts.down_proj)])


def test_the_balance_loss_is_that_of_transformers_member_by_member() -> None:
    from transformers.models.qwen3_moe.modeling_qwen3_moe import load_balancing_loss_func

    module = module_of({"kind": "mixture", "experts": E, "active": 3, "balance_loss": 0.7}, pack=2).train()
    assert isinstance(module, ExpertMixture)
    x = noise("x", 2, B, T, D)
    with auxiliary_losses() as losses:
        module(x)
    (ours,) = losses
    for member in (0, 1):
        logits = (x[member] @ module.router.weight[member]).flatten(0, 1)
        theirs = load_balancing_loss_func((logits,), num_experts=E, top_k=3)
        torch.testing.assert_close(ours[member], 0.7 * theirs.double(), **ROUTED)
    ours.sum().backward()
    assert module.router.weight.grad is not None
    assert module.router.weight.grad.abs().sum() > 0


@pytest.mark.parametrize("skew", [0.0, 100.0])
@pytest.mark.parametrize("gated", [True, False])
def test_what_experts_keep_for_the_backward_pass_does_not_depend_on_their_loads(skew: float, gated: bool) -> None:
    width, tokens = 128, 64
    context = LayerContext(1, width, 2, depth=1, context=tokens, causal=True)
    spec = MixtureSpec(experts=E, gated=gated, router_bias=True)
    module = spec.build(context)
    initialise(module, [0])
    parameters = {one.untyped_storage().data_ptr() for one in module.parameters()}
    with torch.no_grad():
        module.router.bias[..., :2] += skew  # all tokens choose the first two
    kept: dict[int, int] = {}

    def keep(saved: Tensor) -> Tensor:
        storage = saved.untyped_storage()
        if storage.data_ptr() not in parameters:
            kept[storage.data_ptr()] = storage.nbytes()
        return saved

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda saved: saved):
        made = module(noise("x", B, tokens, width).float().unsqueeze(0).requires_grad_())
    assert made.requires_grad
    assert sum(kept.values()) == pytest.approx(B * spec.cost(context, tokens).activation_bytes, rel=0.1)


def test_the_loss_of_the_routers_logits() -> None:
    module = module_of({"kind": "mixture", "experts": E, "active": 3, "z_loss": 0.1}).train()
    assert isinstance(module, ExpertMixture)
    x = noise("x", 1, B, T, D)
    with auxiliary_losses() as losses:
        module(x)
    logits = x @ module.router.weight[0]
    torch.testing.assert_close(losses[0], 0.1 * logits.exp().sum(-1).log().square().mean().view(1))


def test_the_bias_moves_against_the_load_only_in_training() -> None:
    module = module_of({"kind": "mixture", "experts": E, "active": 2, "balance_rate": 0.01}, pack=2).train()
    assert isinstance(module, ExpertMixture)
    assert module.choice is not None
    x = noise("x", 2, B, T, D)
    scores = (x.flatten(1, 2) @ module.router.weight).softmax(-1)
    load = torch.stack([one.topk(2, -1).indices.flatten().bincount(minlength=E) for one in scores]).double()
    module(x)
    module.end_step()
    torch.testing.assert_close(module.choice.value, 0.01 * (B * T * 2 / E - load).sign())
    before = module.choice.value.clone()
    module.eval()(x)
    module.end_step()
    assert torch.equal(module.choice.value, before)


@pytest.mark.parametrize("norm", ["none", "input", "output"])
@pytest.mark.parametrize("shared", [0, 2])
def test_latent_experts_token_by_token(norm: str, shared: int) -> None:
    """arXiv:2601.18089 with the norm of Marin or of Kimi K3: y = W↑ Σ p_e E_e(W↓x) + Shared(x), one token at a time."""
    plain = {"kind": "mixture", "experts": E, "active": 3, "ratio": W / D, "latent": 0.5, "latent_norm": norm}
    module = module_of({**plain, "shared": shared, "scores": "sigmoid", "scale": 2.5}, pack=2)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=stream(1, name), dtype=torch.float64)
    x = noise("x", 2, B, T, D).requires_grad_()
    w = {name: parameter[1] for name, parameter in module.named_parameters()}

    def swiglu(y: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
        return (F.silu(y @ gate) * (y @ up)) @ down

    def normed(y: Tensor, place: str) -> Tensor:
        return F.rms_norm(y, y.shape[-1:], w["latent.norm.weight"], 1e-5) if norm == place else y

    rows = []
    for token in x[1].reshape(-1, D):
        scores = (token @ w["router.weight"]).sigmoid()
        best = sorted(range(E), key=lambda e: -scores[e].item())[:3]
        inner = normed(token @ w["latent.down.weight"], "input")
        made = [swiglu(inner, *(w[f"experts.{name}"][e] for name in ("gate", "up", "down"))) for e in best]
        mixed = sum(2.5 * scores[e] / scores[best].sum() * y for e, y in zip(best, made, strict=True))
        assert isinstance(mixed, Tensor)
        y = normed(mixed, "output") @ w["latent.up.weight"]
        rows.append(y + (swiglu(token, *(w[f"shared.{n}.weight"] for n in ("gate", "up", "down"))) if shared else 0.0))
    expected = torch.stack(rows).view(B, T, D)
    ours = module(x)[1]
    torch.testing.assert_close(ours, expected, rtol=1e-12, atol=1e-12)
    direction = noise("direction", B, T, D)
    leaves = [x, *module.parameters()]
    gradients = [torch.autograd.grad((y * direction).sum(), leaves) for y in (ours, expected)]
    for mine, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-10)
    spec = MixtureSpec.model_validate({**plain, "shared": shared})
    assert spec.cost(CONTEXT, T).parameters == sum(p[0].numel() for p in module.parameters())


@pytest.mark.parametrize("passes", [1, 3])
def test_the_quantile_of_the_margins_balances_at_once(passes: int) -> None:
    """arXiv:2607.24653, eqs 13 and 14, expert by expert, over the forward passes of a step."""
    module = module_of({"kind": "mixture", "experts": E, "active": 2, "balance_quantile": True, "scores": "sigmoid"}, 2)
    assert isinstance(module, ExpertMixture)
    assert module.train().choice is not None
    x = noise("x", 2, passes, 300, D) + 1.0
    mask = noise("mask", 2, passes, 300) > -1
    scores = (x.flatten(1, 2) @ module.router.weight).sigmoid()

    def spread() -> float:
        chosen = module.choose_experts(scores)[0, mask[0].flatten()].flatten()
        return chosen.bincount(minlength=E).double().std().item()

    start = spread()
    for step in range(8):
        before = module.choice.value.clone()
        for part, real in zip(x.unbind(1), mask.unbind(1), strict=True):
            with counting(real.unsqueeze(1)):
                module(part.unsqueeze(1))
        module.end_step()
        for member in (0, 1) if step < 2 else ():
            margins = [
                (s - sorted((s + before[member]).tolist(), reverse=True)[2]).tolist()
                for s, real in zip(scores[member], mask[member].flatten(), strict=True)
                if real
            ]
            place = len(margins) * 2 // E
            bars = torch.tensor([sorted(column, reverse=True)[place] for column in zip(*margins, strict=True)])
            torch.testing.assert_close(module.choice.value[member].float(), bars.mean() - bars)
    assert spread() < start / 5
    before = module.choice.value.clone()
    for others, expected in ((0, before), (1, torch.ones_like(before))):
        with counting(torch.zeros(2, 1, 4, dtype=torch.bool)):
            module(x[:, :1, :4])
        # Another rank with tokens, whose bias is 1.
        module.end_step(lambda value, others=others: value + others)
        torch.testing.assert_close(module.choice.value, expected, msg="a batch, or the part of a rank, may be padding")


@pytest.mark.parametrize(
    ("plain", "path", "rule"),
    [
        ({"latent_norm": "input"}, "latent_norm", "`latent` is not set"),
        ({"balance_quantile": True, "balance_rate": 0.1}, "balance_rate", "computes the whole bias"),
        ({"balance_quantile": True, "groups": 2}, "groups", "computes the whole bias"),
        ({"balance_quantile": True, "experts": 4, "active": 4}, "active", "leaves some out"),
        ({"experts": 8, "groups": 8}, "groups", "at least 2"),
        ({"gated": False, "shift": 1}, "shift", "belong to the product of a gated expert"),
    ],
)
def test_an_impossible_mixture_is_refused(plain: dict[str, Any], path: str, rule: str) -> None:
    with pytest.raises(ValidationError, match=rule) as refused:
        MixtureSpec.model_validate(plain)
    (error,) = refused.value.errors()
    assert error["loc"] == (path,)
    assert error["ctx"]["remedy"]


@pytest.mark.parametrize("gated", [False, True])
def test_dropout_applies_to_the_hidden_layer(gated: bool) -> None:
    """Linear, GELU, Dropout, Linear of torch from the same random state; in evaluation there is none."""
    module = module_of({"kind": "gated" if gated else "plain", "activation": "gelu", "dropout": 0.4, "ratio": 2})
    x = noise("x", 1, B, T, D)
    hidden = F.gelu(x @ (module.gate if gated else module.up).weight[0])
    hidden = hidden * (x @ module.up.weight[0]) if gated else hidden
    torch.manual_seed(3)
    expected = F.dropout(hidden, 0.4) @ module.down.weight[0]
    torch.manual_seed(3)
    torch.testing.assert_close(module(x), expected)
    torch.testing.assert_close(module.eval()(x), hidden @ module.down.weight[0])
