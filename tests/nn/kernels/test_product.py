"""The product of packs against float64, outputs and gradients, by every implementation."""

from __future__ import annotations

import pytest
import torch
from every_pair import every_pair
from torch import Tensor

from ablate.nn.kernels import product as kernel
from ablate.nn.kernels.product import add_product, multiply, product

SHAPES = [(1, 1, 1), (3, 5, 7), (61, 67, 71), (128, 64, 16), (2048, 64, 3)]


def drawn(pack: int, rows: int, inputs: int, outputs: int, *, turned: bool) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(pack, rows, inputs, generator=generator)
    weight = torch.randn(pack, outputs, inputs, generator=generator).mT  # as of a head tied to the embedding
    return x, (weight if turned else weight.contiguous())


@every_pair({"least": [0, 1 << 60], "shape": SHAPES, "pack": [1, 3], "turned": [False, True]})
def test_product(
    least: int, shape: tuple[int, int, int], pack: int, turned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel, "_LEAST", least)
    x, weight = (values.requires_grad_() for values in drawn(pack, *shape, turned=turned))
    y = product(x, weight)
    exact_x, exact_weight = (values.detach().double().requires_grad_() for values in (x, weight))
    exact = torch.einsum("kni,kio->kno", exact_x, exact_weight)
    torch.testing.assert_close(y.double(), exact, rtol=1e-5, atol=1e-4)
    direction = torch.randn(y.shape, generator=torch.Generator().manual_seed(1))
    ours = torch.autograd.grad((y * direction).sum(), [x, weight])
    theirs = torch.autograd.grad((exact * direction.double()).sum(), [exact_x, exact_weight])
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-5, atol=5e-4)


@pytest.fixture(autouse=True)
def faster(monkeypatch: pytest.MonkeyPatch) -> None:
    """oneDNN is used on every processor where it is exact, so that both implementations are tested."""
    monkeypatch.setattr(kernel, "onednn_is_faster", kernel.onednn_is_exact)


def test_onednn_takes_large_products_where_it_does_not_round() -> None:
    """Elsewhere `torch.bmm` does the same more slowly."""
    x, weight = drawn(1, 512, 64, 64, turned=False)
    by_onednn = type(product(x, weight.requires_grad_()).grad_fn).__name__ == "_ProductBackward"
    assert by_onednn == kernel.onednn_is_exact()
    assert type(product(x[:, :2], weight).grad_fn).__name__ == "BmmBackward0"
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert product(x, weight).dtype == torch.bfloat16


def test_the_permission_to_round_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "_LEAST", 0)
    settings = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    before = settings.fp32_precision
    x, weight = drawn(2, 9, 5, 4, turned=False)
    product(x, weight)
    with pytest.raises(RuntimeError):
        multiply(x, weight[:, :3])
    assert settings.fp32_precision == before


def test_what_is_inherited_is_inherited_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "_LEAST", 0)
    settings = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    root = torch.backends.fp32_precision
    try:
        torch.backends.fp32_precision = "tf32"
        product(*drawn(2, 9, 5, 4, turned=False))
        assert settings.fp32_precision == "tf32"
        torch.backends.fp32_precision = "ieee"
        assert settings.fp32_precision == "ieee"
    finally:
        torch.backends.fp32_precision = root


def test_it_does_not_matter_in_what_the_first_product_is_made() -> None:
    known = kernel.onednn_is_exact()
    kernel.onednn_is_exact.cache_clear()
    x, weight = drawn(1, 512, 64, 64, turned=False)
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.device("meta"):
        product(x, weight)
        assert kernel.onednn_is_exact() == known


def test_onednn_is_not_asked_where_the_processor_would_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: True)
    assert not kernel.onednn_is_exact.__wrapped__()
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    monkeypatch.setattr(kernel, "_fast", lambda x, y: (x.bfloat16() @ y.bfloat16()).float())
    assert not kernel.onednn_is_exact.__wrapped__()


@pytest.mark.parametrize("least", [0, 1 << 60], ids=["onednn", "bmm"])
@pytest.mark.parametrize("shape", SHAPES)
def test_products_inside_of_kernels(least: int, shape: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "_LEAST", least)
    x, y = drawn(3, *shape, turned=True)
    exact = torch.einsum("kni,kio->kno", x.double(), y.double())
    torch.testing.assert_close(multiply(x, y).double(), exact, rtol=1e-5, atol=1e-4)
    z = torch.ones(exact.shape)
    assert add_product(z, x, y) is z
    torch.testing.assert_close(z.double(), exact + 1, rtol=1e-5, atol=1e-4)


def test_gradients_that_are_spread_from_one_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """`sum().backward()` hands over a gradient whose every stride is 0."""
    monkeypatch.setattr(kernel, "_LEAST", 0)
    x, weight = (values.requires_grad_() for values in drawn(2, 9, 5, 4, turned=False))
    product(x, weight).sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, weight.detach().sum(2)[:, None].expand_as(x))


def test_inputs_with_gaps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "_LEAST", 0)
    x, weight = drawn(2, 9, 6, 4, turned=False)
    torch.testing.assert_close(product(x[..., ::2], weight[:, ::2]), x[..., ::2] @ weight[:, ::2])


def test_only_one_side_may_need_a_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "_LEAST", 0)
    x, weight = drawn(1, 9, 6, 4, turned=False)
    product(x, weight.requires_grad_()).sum().backward()
    assert weight.grad is not None
    torch.testing.assert_close(weight.grad, x.sum(1)[..., None].expand_as(weight))
