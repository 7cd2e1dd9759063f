"""FNet: a Fourier transform instead of self-attention, with no parameters.

y = Re(F_seq(F_hidden(x))) (arXiv:2105.03824, eq. 3), both transforms unnormalised.

Padded tokens are replaced by zeros, so that real tokens do not see them; the authors' code transforms their embeddings
too. In both, the transform is over the padded length.

- FNet: Mixing Tokens with Fourier Transforms (arXiv:2105.03824); https://arxiv.org/abs/2105.03824

Shapes: K pack, B batch, T tokens, D width.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from ablate.nn.kernels.convolution import fourier_cost
from ablate.spec.cost import Cost
from ablate.spec.layer import LayerContext
from ablate.spec.sublayers import MixerSpec


class FNetSpec(MixerSpec):
    """The real part of a Fourier transform over tokens and channels; no parameters."""

    source = "arXiv:2105.03824 eq. 3"
    complexity = "Ld·log(Ld)"
    causal_form = False

    kind: Literal["fnet"] = "fnet"

    def build(self, context: LayerContext) -> FNet:
        return FNet()

    def cost(self, context: LayerContext, length: int) -> Cost:
        """A linear map without weights keeps nothing for the backward pass."""
        channels = fourier_cost(context.width, transforms=length, real=True)
        return channels + fourier_cost(length, transforms=context.width, real=False)


class FNet(nn.Module):
    """The module of `FNetSpec`."""

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        """[K, B, T, D] to the same; `padding` [K, B, T] is True where a token is real."""
        if padding is not None:
            x = x * padding[..., None]
        # Half precision is not supported by the transform.
        exact = x.to(torch.promote_types(x.dtype, torch.float32))
        y: Tensor = torch.fft.fft2(exact).real
        return y.to(x.dtype)
