"""The gradient of a matrix summed over products: that of autograd, without a second tensor of the matrix's size."""

from __future__ import annotations

import pytest
import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils.checkpoint import checkpoint

from ablate.nn.kernels.product import GradientSums, summed_product


@pytest.mark.parametrize("transposed", [False, True])
def test_gradients_are_those_of_one_product_with_all_rows(transposed: bool) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 12, 5, dtype=torch.float64, requires_grad=True)
    matrix = torch.randn(2, 5, 7, dtype=torch.float64, requires_grad=True)
    asked = torch.randn(2, 12, 7, dtype=torch.float64)
    (x @ matrix * asked).sum().backward()
    expected = x.grad, matrix.grad

    again = x.detach().requires_grad_()
    leaf = (matrix.detach().mT.contiguous() if transposed else matrix.detach()).requires_grad_()
    sums = GradientSums()
    with sums.active():
        parts = [summed_product(rows, leaf, transposed=transposed) for rows in again.split(5, 1)]
    aside = 3 * leaf.sum()  # another use of the matrix, past the sum
    ((torch.cat(parts, 1) * asked).sum() + aside).backward()
    assert leaf.grad is not None
    torch.testing.assert_close(again.grad, expected[0])
    assert expected[1] is not None
    torch.testing.assert_close((leaf.grad.mT if transposed else leaf.grad) - 3, expected[1])


def test_one_gradient_of_the_matrix_is_there_at_a_time() -> None:
    matrix = torch.randn(1, 64, 4096, requires_grad=True)
    x = torch.randn(1, 64, 64)

    def most(sums: GradientSums | None) -> int:
        def part(rows: torch.Tensor) -> torch.Tensor:
            if sums is None:
                return summed_product(rows, matrix).sum()
            with sums.active():
                return summed_product(rows, matrix).sum()

        matrix.grad = None
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as run:
            total = torch.stack([checkpoint(part, rows, use_reentrant=False) for rows in x.split(2, 1)]).sum()
            total.backward()
        changes = [event for event in run.profiler.kineto_results.events() if event.name() == "[memory]"]
        now = highest = 0
        for change in sorted(changes, key=lambda event: event.start_ns()):
            now += change.nbytes()
            highest = max(highest, now)
        return highest

    size = 4 * matrix.numel()
    assert most(None) > 2 * size
    assert most(GradientSums()) < 1.5 * size
