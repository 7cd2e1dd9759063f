"""The token-mixing MLP against its equation, and its causal form against dense triangular matrices."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from every_pair import every_pair
from slow_forms import assert_equal_forms, perturbed
from torch import Tensor

from ablate.kinds.mixers.token_mixing import CausalLinear, MLPMixer, MLPMixerSpec
from ablate.spec.layer import LayerContext

K, B, D, S = 2, 2, 6, 13
CONTEXT = LayerContext(K, D, heads=1, depth=3, context=S, causal=False, init_std=0.5)


def mlp_mixer(causal: bool, ratio: float = 1.5) -> MLPMixer:
    mixer: MLPMixer = perturbed(MLPMixerSpec(ratio=ratio), replace(CONTEXT, causal=causal))
    return mixer


def dense(linear: torch.nn.Module, k: int) -> Tensor:
    """The whole matrix [in, out] of member k, entry by entry."""
    if not isinstance(linear, CausalLinear):
        return linear.weight[k]
    rows, columns = linear.shape
    matrix = torch.zeros(rows, columns, dtype=torch.float64)
    entries = iter(linear.weight[k])
    for i in range(rows):
        for j in range(columns):
            if i // (rows // S) <= j // (columns // S):
                matrix[i, j] = next(entries)
    assert next(entries, None) is None
    return matrix


def equation(mixer: MLPMixer, k: int, x: Tensor, real: list[bool]) -> Tensor:
    """Channel by channel; what is not there is 0."""
    whole = torch.zeros(S, D, dtype=x.dtype)
    whole[: len(x)] = x * torch.tensor(real)[:, None]
    W_1, W_2 = dense(mixer.up, k), dense(mixer.down, k)
    columns = [F.gelu(whole[:, c] @ W_1 + mixer.up.bias[k]) @ W_2 + mixer.down.bias[k] for c in range(D)]
    return torch.stack(columns, 1)[: len(x)]


@pytest.mark.independent_check("mixers", "mlp_mixer", against="arXiv:2105.01601 eq. 1, with dense triangular matrices")
@every_pair({"causal": [False, True], "padded": [False, True], "length": [1, 7, 13]})
def test_mlp_mixer_is_its_equation(causal: bool, padded: bool, length: int) -> None:
    mixer = mlp_mixer(causal)
    assert_equal_forms(mixer, equation, length, D, padded)


def test_hidden_width_is_half_the_models_as_in_the_paper() -> None:
    context = replace(CONTEXT, width=512, context=196)  # Mixer-S/16: C 512, D_S 256
    assert MLPMixerSpec().hidden(context) == 256
    assert MLPMixerSpec().cost(context, 196).parameters == 2 * 196 * 256 + 196 + 256


def test_causal_form_gives_every_token_as_many_hidden_units() -> None:
    context = replace(CONTEXT, causal=True)
    for ratio, hidden in ((0.1, 13), (13 / D, 13), (14 / D, 26)):
        assert MLPMixerSpec(ratio=ratio).hidden(context) == hidden
