"""Tokens mixed without attention, by a Fourier transform or by an MLP across the tokens.

`fnet`: a Fourier transform instead of self-attention, with no parameters.

y = Re(F_seq(F_hidden(x))) (arXiv:2105.03824, eq. 3), both transforms unnormalised.

Padded tokens are replaced by zeros, so that real tokens do not see them; the authors' code transforms their embeddings
too. In both, the transform is over the padded length.

- FNet: Mixing Tokens with Fourier Transforms (arXiv:2105.03824); https://arxiv.org/abs/2105.03824

`mlp_mixer`: the token-mixing MLP of MLP-Mixer.

y_{·,c} = W₂·GELU(W₁·x_{·,c}) for each channel c, one MLP across the tokens shared by all channels, with biases
(arXiv:2105.01601, eq. 1; the block adds norm, skip and the channel-mixing MLP). The weights are for a fixed number of
tokens S; shorter inputs are zero-padded, and padded tokens are replaced by zeros.

The causal form is DERIVED, not the paper's: D_S is rounded up to a multiple of S, each token gets D_S/S hidden units,
and W₁ and W₂ are block-triangular, so that the hidden units and the output of a token see no later token. Only the
entries that are not zero are parameters.

- MLP-Mixer: An all-MLP Architecture for Vision (arXiv:2105.01601); https://arxiv.org/abs/2105.01601

Shapes: K pack, B batch, T tokens, D width (C in the paper of MLP-Mixer), S tokens of the weights, D_S hidden units.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from ablate.nn.kernels.convolution import fourier_cost
from ablate.nn.pack import Packed, linear, normal, zeros
from ablate.spec.cost import Cost, linear_cost
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


class MLPMixerSpec(MixerSpec):
    """An MLP across the tokens, shared by all channels; for inputs of a fixed length."""

    source = "arXiv:2105.01601 eq. 1; causal form derived"
    complexity = "L·D_S·d"
    length_field = "length"

    kind: Literal["mlp_mixer"] = "mlp_mixer"
    ratio: float = Field(default=0.5, gt=0)
    """D_S divided by the model's width (1/2 in all models of the paper)."""
    length: int | None = Field(default=None, ge=1)
    """S, the number of tokens that the weights are for; unless set, the longest input."""

    def longest_input(self, context: LayerContext) -> int:
        """S, the number of tokens that the weights are for."""
        return self.length or context.context

    def hidden(self, context: LayerContext) -> int:
        """D_S, the number of hidden units."""
        hidden = max(1, round(self.ratio * context.width))
        return hidden + -hidden % self.longest_input(context) if context.causal else hidden

    def build(self, context: LayerContext) -> MLPMixer:
        return MLPMixer(self, context)

    def cache(self, context: LayerContext, length: int) -> int:
        """The tokens and their hidden units."""
        return length * context.width * (1 + self.hidden(context) // self.longest_input(context))

    def cost(self, context: LayerContext, length: int) -> Cost:
        """The cost of S tokens, whatever the length; GELU counts as one multiplication for each element."""
        d, tokens, hidden = context.width, self.longest_input(context), self.hidden(context)
        activation = Cost(multiplications=d * hidden, activations=d * hidden)
        if not context.causal:
            into = linear_cost(d, tokens, hidden, bias=True)
            return into + activation + linear_cost(d, hidden, tokens, bias=True)
        # Both maps have (S + 1)/2 of the S blocks of each row; each hidden unit and output is a sum with a bias.
        entries = hidden * (tokens + 1) // 2
        maps = Cost(
            parameters=2 * entries + hidden + tokens,
            multiplications=2 * d * entries,
            additions=2 * d * entries,
            activations=d * (tokens + hidden),
        )
        return maps + activation

    def step_cost(self, context: LayerContext, position: int) -> Cost:
        """The token's hidden units read all tokens so far, its output all units so far."""
        units = context.width * (self.hidden(context) // self.longest_input(context))
        return Cost(
            parameters=self.cost(context, position).parameters,
            multiplications=2 * units * position + units,
            additions=2 * units * position,
        )


class MLPMixer(nn.Module):
    """The module of `MLPMixerSpec`."""

    def __init__(self, spec: MLPMixerSpec, context: LayerContext) -> None:
        super().__init__()
        self.tokens = spec.longest_input(context)
        hidden = spec.hidden(context)
        if context.causal:
            each = hidden // self.tokens
            self.up: nn.Module = CausalLinear(context.pack, self.tokens, 1, each, context.init_std)
            self.down: nn.Module = CausalLinear(context.pack, self.tokens, each, 1, context.init_std)
        else:
            self.up = linear(context, self.tokens, hidden, bias=True)
            self.down = linear(context, hidden, self.tokens, bias=True, role="output")

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        """[K, B, T, D] to the same; `padding` [K, B, T] is True where a token is real."""
        length = x.shape[2]
        if padding is not None:
            x = x * padding[..., None]
        columns = F.pad(x.mT, (0, self.tokens - length))  # [K, B, D, S]
        y: Tensor = self.down(F.gelu(self.up(columns)))
        return y[..., :length].mT


class CausalLinear(Packed):
    """y = x·W + b across tokens, each with `inputs` entries of x and `outputs` of y; W is block-triangular."""

    weight: Tensor
    bias: Tensor
    index: Tensor

    def __init__(self, pack: int, tokens: int, inputs: int, outputs: int, std: float) -> None:
        super().__init__(pack)
        self.shape = (tokens * inputs, tokens * outputs)
        token = torch.arange(tokens, device="cpu")  # with values also where the model has none
        allowed = token.repeat_interleave(inputs)[:, None] <= token.repeat_interleave(outputs)
        self.register_buffer("index", allowed.flatten().nonzero()[:, 0], persistent=False)
        self.declare("weight", (int(allowed.sum()),), normal(std), decay=True)
        self.declare("bias", (tokens * outputs,), zeros)

    def forward(self, x: Tensor) -> Tensor:
        """[K, ..., tokens·inputs] to [K, ..., tokens·outputs]."""
        rows, columns = self.shape
        matrix = self.weight.new_zeros(self.pack, rows * columns).index_copy(1, self.index, self.weight)
        y = torch.baddbmm(self.bias.unsqueeze(1), x.flatten(1, -2), matrix.view(-1, rows, columns))
        return y.view(*x.shape[:-1], columns)
