"""Primitives with a pack axis against torch's own, member by member, outputs and gradients."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from pydantic import ValidationError
from torch import Tensor, nn

from ablate.nn.pack import (
    DenseSpec,
    Embedding,
    Gain,
    HeadGain,
    IdentitySpec,
    LayerNorm,
    Linear,
    Packed,
    ReparametrisedSpec,
    RMSNorm,
    initialise,
    normal,
)
from ablate.nn.pack.initial import stream
from ablate.spec.layer import LayerContext

K, B, T, D = 3, 2, 5, 7


def scattered(module: Packed | nn.Module, seeds: list[int] | None = None) -> nn.Module:
    """In float64, with every parameter random."""
    module = module.double()
    initialise(module, seeds or list(range(K)))
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter += torch.randn(parameter.shape, generator=stream(7, name), dtype=torch.float64)
    return module


def rows(*shape: int) -> Tensor:
    return torch.randn(shape, generator=stream(1, "rows", shape), dtype=torch.float64)


@pytest.mark.parametrize("bias", [True, False])
def test_linear(bias: bool) -> None:
    linear = scattered(Linear(K, D, 4, bias=bias, initial=normal(1.0)))
    x = rows(K, B, T, D)
    for k in range(K):
        expected = F.linear(x[k], linear.weight[k].mT, linear.bias[k] if bias else None)
        torch.testing.assert_close(linear(x)[k], expected)


@pytest.mark.parametrize("pack", [1, K])
def test_embedding_and_its_tied_head(pack: int) -> None:
    embedding = scattered(Embedding(pack, 11, D, initial=normal(1.0)), list(range(pack)))
    tokens = torch.randint(11, (pack, B, T), generator=stream(2, "tokens"))
    x = rows(pack, B, T, D)
    for k in range(pack):
        torch.testing.assert_close(embedding(tokens)[k], F.embedding(tokens[k], embedding.weight[k]))
        torch.testing.assert_close(embedding.logits(x)[k], x[k] @ embedding.weight[k].mT)


@pytest.mark.independent_check("norms", "layer", against="torch `F.layer_norm`, member by member")
@pytest.mark.independent_check("norms", "rms", against="arXiv:1910.07467 eq. 4, member by member")
@pytest.mark.parametrize("pack", [1, K])
@pytest.mark.parametrize("eps", [1e-8, 0.1])
def test_norms(pack: int, eps: float) -> None:
    rms, layer = (scattered(norm(pack, D, eps), list(range(pack))) for norm in (RMSNorm, LayerNorm))
    x = rows(pack, B, T, D).requires_grad_()
    for k in range(pack):
        expected = x[k] / (x[k].square().mean(-1, keepdim=True) + eps).sqrt() * rms.weight[k]
        torch.testing.assert_close(rms(x)[k], expected)
        torch.testing.assert_close(layer(x)[k], F.layer_norm(x[k], (D,), layer.weight[k], layer.bias[k], eps))
    expected = torch.stack(
        [x[k] / (x[k].square().mean(-1, keepdim=True) + eps).sqrt() * rms.weight[k] for k in range(pack)]
    )
    direction = rows(pack, B, T, D)
    ours, theirs = (
        torch.autograd.grad((y * direction).sum(), [x, rms.weight], retain_graph=True) for y in (rms(x), expected)
    )
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other)


def test_gains() -> None:
    x = rows(K, B, T, D)
    gain = scattered(Gain(K, 0.5, trainable=True))
    torch.testing.assert_close(gain(x), torch.stack([gain.value[k] * x[k] for k in range(K)]))
    fixed = Gain(K, 0.5, trainable=False)
    initialise(fixed, range(K))
    assert not list(fixed.parameters())
    torch.testing.assert_close(fixed(x), 0.5 * x)
    heads = scattered(HeadGain(K, 2, 1.0, trainable=True))
    y = rows(K, B, 2, T, 3)
    torch.testing.assert_close(heads(y)[1, :, 0], heads.value[1, 0] * y[1, :, 0])


def around(pack: int) -> LayerContext:
    """A layer of a model whose maps start from N(0, 0.02²)."""
    return LayerContext(pack, D, 1, depth=4, context=T, causal=True, init_std=0.02)


def test_projections_start_as_they_say() -> None:
    dense = DenseSpec().build(around(K), 50, 50, "hidden")
    orthogonal = DenseSpec(init="orthogonal").build(around(K), D, D, "hidden")
    reparametrised = ReparametrisedSpec(init="identity").build(around(K), D, D, "hidden")
    for module in (dense, orthogonal, reparametrised):
        initialise(module, range(K))
    assert dense.weight.std().item() == pytest.approx(0.02, rel=0.05)
    torch.testing.assert_close(orthogonal.weight @ orthogonal.weight.mT, torch.eye(D).expand(K, D, D))
    x = rows(K, B, T, D).float()
    torch.testing.assert_close(reparametrised(x), x)
    assert {name for name, _ in reparametrised.named_parameters()} == {"delta"}


def test_identity_refuses_to_change_the_width() -> None:
    with pytest.raises(ValidationError, match="keeps the width"):
        IdentitySpec().build(around(1), 4, 5, "hidden")


def model() -> nn.Module:
    """A little of everything that draws."""
    return nn.ModuleDict(
        {
            "table": Embedding(K, 11, D, initial=normal(0.1)),
            "map": Linear(K, D, D, initial=normal(0.1)),
            "twin": Linear(K, D, D, initial=normal(0.1)),
            "square": ReparametrisedSpec().build(around(K), D, D, "hidden"),
        }
    )


def test_a_member_starts_by_its_own_seed_alone() -> None:
    one, other = model(), model()
    initialise(one, [4, 8, 15])
    initialise(other, [8, 16, 4])
    for name, values in one.state_dict().items():
        theirs = other.state_dict()[name]
        assert torch.equal(values[0], theirs[2])
        assert torch.equal(values[1], theirs[0])
    assert not torch.equal(one["map"].weight[0], one["map"].weight[1])
    assert not torch.equal(one["map"].weight[0], one["twin"].weight[0]), "equal names, not equal shapes alone"


def test_initial_values_do_not_depend_on_torch_s_global_state() -> None:
    one, other = model(), model()
    torch.manual_seed(1)
    initialise(one, range(K))
    torch.manual_seed(2)
    torch.rand(3)
    initialise(other, range(K))
    for name, values in one.state_dict().items():
        assert torch.equal(values, other.state_dict()[name])


def test_initialise_refuses_the_wrong_number_of_seeds() -> None:
    with pytest.raises(ValueError, match="3 members, and 2 seeds"):
        initialise(model(), [1, 2])
