"""Linear attention with elu + 1 against its equations (arXiv:2006.16236), quadratic and recurrent."""

from __future__ import annotations

import pytest
import torch
from phi_attention import LENGTHS, assert_same, attend, trained
from torch import Tensor

from ablate.kinds.mixers.linear import LinearSpec


def phi(x: Tensor, head: int) -> Tensor:
    return torch.where(x > 0, x + 1, torch.exp(torch.clamp(x, max=0)))


@pytest.mark.independent_check("mixers", "linear", against="the whole matrix")
@pytest.mark.parametrize("padded", [False, True], ids=["whole", "padded"])
@pytest.mark.parametrize("causal", [True, False], ids=["causal", "bidirectional"])
@pytest.mark.parametrize("length", LENGTHS)
def test_linear_is_its_equation(length: int, causal: bool, padded: bool) -> None:
    mixer = trained(LinearSpec(), causal, length)
    assert_same(mixer, lambda m, k, x, real: attend(m, k, phi, causal, x, real), length, padded)
