"""N-gram memory: a layer starts from x + y, where y is looked up by the last tokens and gated by x (Engram).

For each order n and head j: row_t = (⊕_{k<n} (id_{t-k} + 1)·m_k) mod p_{n,j}, 0 for the id before the text; e_t joins
the rows of all orders and heads. v = W_v·e, g = σ(N(x)·N(W_k·e)/√D), y = g·v + SiLU(conv(N(g·v))), where N are RMSNorms
with gains, and conv is a causal depthwise convolution whose taps are `dilation` tokens apart. m_k are odd numbers that
depend on the layer, and p_{n,j} the next primes above `rows`, another one for each order, head and layer.

- Conditional Memory via Scalable Lookup, Engram (arXiv:2601.07372), section 2; https://arxiv.org/abs/2601.07372

The taps start at 0 (section 4.1). The gate is that of the paper; the authors' demo puts sign(s)·√|s| before σ. Left out
are the compression of ids by normalised text, as a block does not know the tokenizer, and the form for several streams,
where each has a W_K (eq. 6). In float64 models of five layers give the outputs of the demo (engram_demo_v1.py of
`deepseek-ai/Engram`, one stream, ids + 1, 0 for padding, the paper's gate) to 6e-15 and its gradients to 5e-14, with
orders 2 and 3 as with 2 to 4. Not in the paper: initial tables, and ε.

Shapes: K pack, B batch, T tokens, D width, E channels of all rows of a token.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import math
from typing import Annotated, Literal

import torch
from pydantic import Field, field_validator
from torch import Tensor

from ablate.nn.pack import ConvolutionSlot, Embedding, Residual, RMSNorm, earlier, linear, zeros
from ablate.spec.base import refusal
from ablate.spec.block import ResidualSpec
from ablate.spec.cost import Cost, linear_cost
from ablate.spec.layer import LayerContext, SharedTensor

_EPS = 1e-5


class NgramMemorySpec(ResidualSpec):
    """A layer starts from the stream and what a table holds of the last tokens."""

    source = "arXiv:2601.07372 section 2"
    differs_by_layer = True

    kind: Literal["ngram_memory"] = "ngram_memory"
    orders: tuple[Annotated[int, Field(ge=1, le=8)], ...] = (2, 3)
    """The n, numbers of tokens by which rows are looked up."""
    heads: int = Field(default=8, ge=1, le=64)
    """Rows that are looked up for each order, by different tables."""
    rows: int = Field(default=4096, ge=2, le=10_000_000)
    """Rows of a table; the next larger primes are taken."""
    width: int | None = Field(default=None, ge=1)
    """Channels of each order; unless set, the model's width. The heads share them."""
    gate: bool = True
    """Whether v is multiplied by g."""
    taps: int = Field(default=4, ge=0, le=64)
    """Kernel size of the convolution; 0: none."""
    dilation: int | None = Field(default=None, ge=1, le=64)
    """Distance of its taps in tokens; unless set, the largest order."""

    @field_validator("orders")
    @classmethod
    def _are_in_order(cls, orders: tuple[int, ...]) -> tuple[int, ...]:
        if not orders or len(set(orders)) < len(orders):
            raise refusal((), orders, "the orders are different numbers, at least one", "Write [2, 3].")
        return tuple(sorted(orders))

    def sizes(self, context: LayerContext) -> tuple[int, int]:
        """E, and the width of a row."""
        width = self.width or context.width
        return len(self.orders) * width, width // self.heads

    def reach(self) -> int:
        """Tokens before the current one that the convolution reads."""
        return (self.taps - 1) * (self.dilation or self.orders[-1]) if self.taps else 0

    def tables(self, context: LayerContext) -> tuple[int, ...]:
        """Rows of the tables of this layer, by order and head."""
        count = len(self.orders) * self.heads
        return primes_above(self.rows, (context.layer + 1) * count)[-count:]

    def check(self, context: LayerContext) -> None:
        """Refuse heads that do not divide the width."""
        if (self.width or context.width) % self.heads:
            raise refusal(
                ("heads",),
                self.heads,
                f"the heads share the {self.width or context.width} channels of an order",
                "Set a `heads` or a `width` such that one divides the other.",
            )

    def reads(self, context: LayerContext) -> tuple[SharedTensor, ...]:
        return (context.tokens,)

    def cache(self, context: LayerContext) -> int:
        """The last ids, and the last inputs of the convolution."""
        return self.orders[-1] - 1 + self.reach() * context.width

    def build(self, context: LayerContext) -> NgramMemory:
        return NgramMemory(self, context)

    def cost(self, context: LayerContext, length: int, joins: int) -> Cost:
        wide, row = self.sizes(context)
        width, elements = context.width, length * context.width
        total = linear_cost(length, wide, width) * (1 + self.gate) + Cost(
            parameters=sum(self.tables(context)) * row, additions=(1 + joins) * elements
        )
        norm = Cost(
            parameters=width,
            multiplications=2 * elements,
            additions=elements,
            divisions=elements,
            activations=elements + length,
        )
        if self.gate:
            total += norm * 2 + Cost(
                multiplications=2 * elements,
                additions=elements,
                divisions=2 * length,
                exponentiations=length,
                activations=3 * elements + length,
            )
        if self.taps:
            total += norm + Cost(
                parameters=self.taps * width,
                multiplications=(self.taps + 1) * elements,
                additions=(self.taps + 1) * elements,
                divisions=elements,
                exponentiations=elements,
                activations=2 * elements + self.reach() * width,
            )
        return total

    def label(self) -> str:
        return f"x + memory of {', '.join(map(str, self.orders))} tokens"


class NgramMemory(Residual):
    """The module of `NgramMemorySpec`."""

    def __init__(self, spec: NgramMemorySpec, context: LayerContext) -> None:
        super().__init__()
        self.spec = spec
        self.carries = 1 + (spec.taps > 0)
        wide, row = spec.sizes(context)
        sizes = spec.tables(context)
        self.sizes, self.factors = sizes, multipliers(context.layer, spec.orders[-1], context.vocabulary)
        self.first_rows = [0, *itertools.accumulate(sizes)][:-1]
        rows = sum(sizes)
        self.table = Embedding(context.pack, rows, row, initial=context.initial("embedding", rows, row))
        self.value = linear(context, wide, context.width)
        if spec.gate:
            self.key = linear(context, wide, context.width)
            self.key_norm = RMSNorm(context.pack, context.width, _EPS)
            self.query_norm = RMSNorm(context.pack, context.width, _EPS)
        if spec.taps:
            self.convolution_norm = RMSNorm(context.pack, context.width, _EPS)
            dilation = spec.dilation or spec.orders[-1]
            self.convolution = ConvolutionSlot(context.pack, context.width, spec.taps, dilation=dilation, start=zeros)

    def start(self, stream: Tensor, shared: tuple[Tensor, ...] = ()) -> Tensor:
        """[K, B, T, D] to the same, with the ids [K, B, T]."""
        (tokens,) = shared
        looked_up = self.table(self.rows(tokens)).flatten(-2)
        y: Tensor = self.value(looked_up)
        if self.spec.gate:
            keys = self.key_norm(self.key(looked_up))
            alike = (self.query_norm(stream) * keys).sum(-1, keepdim=True) / math.sqrt(stream.shape[-1])
            y = alike.sigmoid() * y
        if self.spec.taps:
            y = y + self.convolution(self.convolution_norm(y))
        return stream + y

    def rows(self, tokens: Tensor) -> Tensor:
        """Ids [K, B, T] to rows of the table, [K, B, T, orders·heads]."""
        ids = earlier(tokens + 1, self.spec.orders[-1] - 1)
        found, places = [], iter(zip(self.sizes, self.first_rows, strict=True))
        mixed = torch.zeros_like(tokens)
        for n, (one, factor) in enumerate(zip(ids, self.factors, strict=True), 1):
            mixed = mixed ^ (one * factor)
            if n in self.spec.orders:
                found += [mixed % size + first for size, first in itertools.islice(places, self.spec.heads)]
        return torch.stack(found, -1)


def multipliers(layer: int, count: int, vocabulary: int) -> tuple[int, ...]:
    """Odd factors of the ids of the current token and those before it; no product leaves 63 bits."""
    bound = (2**63 - 1) // (vocabulary + 1)
    digests = (hashlib.sha256(f"{layer}/{place}".encode()).digest() for place in range(count))
    return tuple(int.from_bytes(digest[:8], "big") % bound // 2 * 2 + 1 for digest in digests)


@functools.cache
def primes_above(least: int, count: int) -> tuple[int, ...]:
    """The first primes above a number."""
    found = (n for n in itertools.count(least + 1) if all(n % d for d in range(2, math.isqrt(n) + 1)))
    return tuple(itertools.islice(found, count))
