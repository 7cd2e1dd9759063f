"""The module of the kind `attention`; `ablate/kinds/mixers/attention.py` has its equations and its sources.

Shapes: K pack, B batch, T tokens, S tokens of keys and values, D width, H heads, d_h = D/H head width.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ablate.kinds.mixers.attention_parts import Forget, ShiftOfHeads, Sinks, ValueEmbedding, ValueResidual
from ablate.kinds.mixers.attention_settings import AttentionSettings
from ablate.kinds.mixers.gate import Gate, Place
from ablate.kinds.mixers.query_key_norm import QueryKeyNorm
from ablate.nn.kernels import linear_attention
from ablate.nn.kernels.block_attention import attend_to_chosen_blocks
from ablate.nn.kernels.softmax_attention import attend, observed_attention, observes_attention
from ablate.nn.pack import (
    ConvolutionSlot,
    HeadGain,
    Linear,
    State,
    build_positions,
    dropout,
    extend_cache,
    join_heads,
    linear,
    numbers_documents,
    positions_in_documents,
    same_document,
    split_heads,
    zeros,
)
from ablate.spec.layer import LayerContext


class Attention(nn.Module):
    """The module of `AttentionSpec`; it uses fused kernels where its settings allow, and materialises A otherwise."""

    def __init__(self, spec: AttentionSettings, context: LayerContext) -> None:
        super().__init__()
        d, inner, pack = context.width, context.inner_width, context.pack
        self.spec = spec
        self.heads = context.heads
        self.kv_heads = spec.kv_heads or context.heads
        self.causal = context.causal
        self.window = context.window
        self.cross = context.cross
        self.separate_inputs = context.separate_inputs
        self.positions = build_positions(context, "query_key")
        self.bias = build_positions(context, "logits")
        self.factor = 1.0 if context.positions is None else context.positions.factor_of_logits
        d_h, norm = context.head_width, spec.query_key_norm
        d_kv = d_h * self.kv_heads
        self.reads_kv = spec.reads_kv(context)
        self.publishes = bool(spec.publishes(context))
        zero = (spec.query_init or spec.shaping.query_start) == "zero"
        start = zeros if zero else context.initial("hidden", d, inner)
        start_bias = context.initialiser.initial_bias(d)
        self.query = Linear(pack, d, inner, bias=spec.query_key_bias, initial=start, initial_bias=start_bias)
        self.query_norm = QueryKeyNorm(norm, pack, self.heads, d_h)
        if not self.reads_kv:
            self.key = linear(context, d, d_kv, bias=spec.query_key_bias)
            self.value = spec.value.build(context, d, d_kv, "hidden")
            self.key_norm = QueryKeyNorm(norm, pack, self.kv_heads, d_h)
        self.output = spec.output.build(context, inner, d, "output")
        heat = norm.temperature
        self.temperature = None if heat is None else HeadGain(pack, self.heads, heat, trainable=True)
        self.sinks = Sinks(pack, self.heads, context.init_std) if spec.logits.sinks else None
        self.key_convolution = ConvolutionSlot.of(context, "on_key", d_kv)
        self.convolution = ConvolutionSlot.of(context, "on_qkv", inner + 2 * d_kv)
        self.gate = Gate(spec.gate, context, self.kv_heads) if spec.gate.present else None
        self.forget = Forget(spec.forget, context) if spec.forget.present else None
        self.shifts = nn.ModuleDict({name: ShiftOfHeads(context, self.kv_heads) for name in spec.shift})
        self.output_norm = QueryKeyNorm(spec.output_norm, pack, self.heads, d_h) if spec.output_norm.present else None
        residual, embedding = spec.value_residual, spec.value_embedding
        reads_values = residual is not None and context.layer != residual.from_layer
        self.value_residual = ValueResidual(residual, context) if residual is not None and reads_values else None
        self.value_embedding = None if embedding is None else ValueEmbedding(embedding, context, d_kv)
        self.gains = nn.ModuleDict(
            {
                name: HeadGain(pack, self.heads, gain.initial(context.depth), trainable=gain.trainable)
                for name, gain in spec.shaping.gains().items()
            }
        )

    def forward(
        self,
        x: Tensor,
        padding: Tensor | None = None,
        memory: Tensor | None = None,
        memory_padding: Tensor | None = None,
        *,
        shared: tuple[Tensor, ...] = (),
    ) -> Tensor | tuple[Tensor, tuple[Tensor, ...]]:
        """[K, B, T, D], or with separate inputs [K, B, T, 3, D], to [K, B, T, D].
        `padding` [K, B, T] is True where a token is real, or numbers documents.

        With `memory` [K, B, S, D] keys and values are read from it (cross-attention), and `memory_padding` [K, B, S]
        says which of its tokens are real. `shared` are the tensors that `AttentionSpec.reads` lists.
        """
        seen = padding if memory is None else memory_padding
        inputs = x, *_ = self._inputs(x, memory)
        q, k, v, published = self._heads(inputs, shared, padding=padding)
        k, v = self._for_each_query(k), self._for_each_query(v)
        fade = self._fade(x, padding)
        if self._needs_matrix(x.device):
            # Dropout applies to the shaped matrix, which must be materialised.
            y = dropout(self._matrix(q, k, seen, fade), self.spec.dropout, self.training).to(v.dtype) @ v
        else:
            y = self._shape(self._mix(q, k, v, seen, fade), v, seen)
        mixed = self._project_output(y, v, x)
        return (mixed, published) if self.publishes else mixed

    def _needs_matrix(self, device: torch.device) -> bool:
        if self.spec.matmul_order == "kv_first":
            return False
        drops = self.spec.dropout > 0 and self.training
        return not self.spec.logits.plain or (drops and not self._drops_within_the_kernel(device))

    def _drops_within_the_kernel(self, device: torch.device) -> bool:
        """Whether the fused kernel applies dropout: on a GPU, where it keeps no matrix."""
        return device.type == "cuda" and self.spec.fuses_dropout

    def _project_output(self, y: Tensor, v: Tensor, x: Tensor) -> Tensor:
        """`exclusive`, the norm of the output, the gate and the output projection: [K, B, H, T, d_h] to [K, B, T, D].

        Args:
            v: Values of the same tokens and heads.
            x: The block's input.
        """
        if self.spec.exclusive:
            own = F.normalize(v, dim=-1)
            y = y - (y * own).sum(-1, keepdim=True) * own
        if self.output_norm is not None:
            y = self.output_norm(join_heads(y))
        return self._gated("output", self.output(join_heads(self._gated("heads", y, x))), x)

    def _gated(self, place: Place, y: Tensor, x: Tensor) -> Tensor:
        """What the mixer has at a place, gated by its input if the gate is there."""
        if self.gate is None or self.gate.spec.place != place:
            return y
        gated: Tensor = self.gate(y, x)
        return gated

    def step(self, x: Tensor, position: int, state: State, *, shared: tuple[Tensor, ...] = ()) -> Any:
        """The state: keys and values; with `kv_first`, Σ kᵀ·v of each head; what fades, and what the next token mixes.

        That is c of each token, [K, B, H, T, 1], and keys and values of this token before they are shifted.
        """
        shifted = len(self.shifts)
        before, state = state[len(state) - shifted :], state[: len(state) - shifted]
        inputs = x, by_key, by_value = self._inputs(x)
        q, k, v, published = self._heads(inputs, shared, position, before=before)
        shifts = {"key": by_key, "value": by_value}
        scale = self._scale_at(q, position)
        if self.spec.matmul_order == "kv_first":
            values = v = self._for_each_query(v)
            y, kept = linear_attention.recur(q * scale, self._for_each_query(k), v, state[0] if state else None)
            state = (kept,)
        else:
            fade = self._fade(x, None)
            now = (k, v) if fade is None else (k, v, fade.unsqueeze(-1) + (state[2][..., -1:, :] if state else 0.0))
            state = extend_cache(state, now, self.window)
            keys, values = (self._for_each_query(kept) for kept in state[:2])
            y, v = self._read(q, keys, values, scale, position, state[2:]), values[..., -1:, :]
        if self.spec.shaping.kind != "none":
            y = self.gains["alpha"](v) + self.gains["beta"](y)
        if self.spec.shaping.kind == "shaped":
            y = y - self.gains["gamma"](values.mean(-2, keepdim=True))
        mixed = self._project_output(y, v, x)
        state = (*state, *(getattr(self, name)(shifts[name]) for name in self.shifts))
        return (mixed, state, published) if self.publishes else (mixed, state)

    def _read(self, q: Tensor, keys: Tensor, values: Tensor, scale: float, position: int, fades: State) -> Tensor:
        """Row `place` of A·V: q [K, B, H, 1, d_h], the cached keys and values [K, B, H, T, d_h], and c if it fades."""
        if not self.spec.softmax:
            return (q * scale @ keys.mT) @ values
        bias = None
        if self.bias is not None:
            bias = self.bias(q, position + 1, position)[..., -keys.shape[-2] :]
        for fade in fades:
            bias = (fade[..., -1:, :] - fade.mT).to(q.dtype) + (0.0 if bias is None else bias)
        if self.spec.blocks is not None:
            hidden = ~self.spec.blocks.readable(q, keys, position)
            bias = torch.zeros_like(hidden, dtype=q.dtype) if bias is None else bias
            bias = bias.masked_fill(hidden, -math.inf)
        if not self.spec.logits.plain:
            return self._softmax(self._products(q, scale, keys), bias, None).to(values.dtype) @ values
        if bias is not None:
            bias = bias.expand(*q.shape[:2], *bias.shape[-3:]).flatten(0, 1)
        y = F.scaled_dot_product_attention(
            q.flatten(0, 1), keys.flatten(0, 1), values.flatten(0, 1), attn_mask=bias, scale=scale
        )
        return y.view(q.shape)

    def matrix(self, x: Tensor, padding: Tensor | None = None, shared: tuple[Tensor, ...] = ()) -> Tensor:
        """The attention matrix after shaping, [K, B, H, T, T], from the input of `forward`."""
        inputs = x, *_ = self._inputs(x)
        q, k, *_ = self._heads(inputs, shared, padding=padding)
        return self._matrix(q, self._for_each_query(k), padding, self._fade(x, padding))

    def _inputs(self, x: Tensor, memory: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """The inputs of queries [K, B, T, D], of keys and of values [K, B, S, D]."""
        if self.separate_inputs:
            query, key, value = x.unbind(-2)
            return query, key, value
        source = x if memory is None else memory
        return x, source, source

    def _fade(self, x: Tensor, padding: Tensor | None) -> Tensor | None:
        """c of the tokens x [K, B, T, D], [K, B, H, T]; None if nothing is forgotten."""
        return None if self.forget is None else self.forget(x, padding).cumsum(-1)

    def _heads(
        self,
        inputs: tuple[Tensor, Tensor, Tensor],
        shared: tuple[Tensor, ...],
        first: int = 0,
        *,
        padding: Tensor | None = None,
        before: State = (),
    ) -> tuple[Tensor, Tensor, Tensor, tuple[Tensor, ...]]:
        """Queries, keys, values, and the tensors that are published.

        Args:
            inputs: As `_inputs` gives them.
            shared: The tensors that this layer reads.
            first: Position of the first token.
            padding: Which tokens of the input of queries are real.
            before: Keys and values of the token before that are mixed with those of the first, in the order of `shift`.

        Returns:
            Queries [K, B, H, T, d_h], keys and values [K, B, kv_heads, S, d_h], and tensors [K, B, S, kv_heads·d_h].
        """
        x, by_key, by_value = inputs
        q = self.query_norm(self.query(x))
        if self.reads_kv:
            k, v = (split_heads(tensor, self.kv_heads) for tensor in shared)
            return self._finish_queries(q, x, first), k, v, ()
        keys, values = self.key(by_key), self.value(by_value)
        for name, last in itertools.zip_longest(self.shifts, before):
            if name == "key":
                keys = self.shifts[name](keys, by_key, padding, last)
            else:
                values = self.shifts[name](values, by_value, padding, last)
        if self.key_convolution is not None:
            keys = self.key_convolution(keys)
        k = self.key_norm(keys)
        if self.convolution is not None:
            made_q, made_k, values = self.convolution.together(join_heads(q), join_heads(k), values)
            q, k = split_heads(made_q, self.heads), split_heads(made_k, self.kv_heads)
        q, k = self._finish_queries(q, x, first), self._add_positions(self._gated("key", k, by_key), first)
        published: tuple[Tensor, ...] = (values,)
        left = list(shared)
        if self.value_residual is not None:
            values = self.value_residual(values, left.pop(0))
        if self.value_embedding is not None:
            values = self.value_embedding(values, left.pop(0))
        v = self._gated("value", split_heads(values, self.kv_heads), by_value)
        if self.spec.shared_kv is not None:
            published = (join_heads(k), join_heads(v))
        return q, k, v, published

    def _finish_queries(self, q: Tensor, x: Tensor, first: int) -> Tensor:
        """Queries with their gate, the layer's positions and the factor of their norm."""
        q = self._add_positions(self._gated("query", q, x), first)
        return q if self.temperature is None else self.temperature(q)

    def _add_positions(self, x: Tensor, first: int) -> Tensor:
        """Queries or keys [K, B, H, T, d_h] with the layer's positions."""
        return x if self.positions is None else self.positions(x, first)

    def _for_each_query(self, kv: Tensor) -> Tensor:
        """Keys or values with each head repeated for the query heads that share it, [K, B, H, S, d_h]."""
        return kv if self.kv_heads == self.heads else kv.repeat_interleave(self.heads // self.kv_heads, 2)

    def _mix(self, q: Tensor, k: Tensor, v: Tensor, padding: Tensor | None, fade: Tensor | None) -> Tensor:
        """A·V before shaping, without materialising A where possible."""
        if not self.spec.softmax:
            separate = numbers_documents(padding)
            if padding is not None and not separate:
                k = k * padding[:, :, None, :, None]
            q = q * self._scale(q, k, padding)
            if self.spec.matmul_order == "kv_first":
                if self.causal:
                    return linear_attention.causal(q, k, v)
                return q @ dropout(k.mT @ v, self.spec.dropout, self.training)
            return (q @ k.mT * self._visible(q, k, padding) if separate else self._hidden(q @ k.mT)) @ v
        scale = None
        if self.spec.scale != "head_width" or self.factor != 1.0:
            q, scale = q * self._scale(q, k, padding), 1.0
        if (blocks := self.spec.blocks) is not None and blocks.gathers(k.shape[-2]) and self._bare(padding, fade):
            chosen, real = blocks.choose(q, k, 0, padding), None if padding is None else padding.flatten(0, 1)
            queries, keys, values, choice = (x.flatten(0, 1) for x in (q.unsqueeze(3), k, v, chosen))
            factor = q.shape[-1] ** -0.5 if scale is None else scale
            y = attend_to_chosen_blocks(queries, keys, values, choice, blocks.size, blocks.active, factor, real)
            return y.view(*q.shape[:-1], v.shape[-1])
        mask = self._mask(q, k, padding, fade)
        # The fused kernels take four axes, so the pack is folded into the batch.
        y = attend(
            q.flatten(0, 1),
            k.flatten(0, 1),
            v.flatten(0, 1),
            None if mask is None else mask.flatten(0, 1),
            is_causal=self.causal and mask is None,
            scale=scale,
            dropout=self.spec.dropout if self.training else 0.0,
        )
        return y.view(*q.shape[:-1], v.shape[-1])

    def _bare(self, padding: Tensor | None, fade: Tensor | None) -> bool:
        """Whether nothing is added to logits, or drawn for weights, and no matrix is asked for."""
        noisy = self.training and self.spec.dropout > 0
        plain = self.bias is None and fade is None and not noisy and not numbers_documents(padding)
        return plain and not observes_attention()

    def _mask(self, q: Tensor, k: Tensor, padding: Tensor | None, fade: Tensor | None) -> Tensor | None:
        """The mask for SDPA, [K, B, H or 1, T, S]: added to the logits, or True where visible; None if not needed."""
        bias = self._bias(q, k, fade)
        if bias is None:
            whole = padding is None and self.window is None and self.spec.blocks is None
            return None if whole else self._visible(q, k, padding)
        return bias.masked_fill(~self._visible(q, k, padding), -math.inf)

    def _bias(self, q: Tensor, k: Tensor, fade: Tensor | None) -> Tensor | None:
        """What positions and forgetting add to the logits, [K, B, H, T, S] or broadcastable to it."""
        bias: Tensor | None = None if self.bias is None else self.bias(q, k.shape[-2])
        if fade is None:
            return bias
        forgotten = (fade.unsqueeze(-1) - fade.unsqueeze(-2)).to(q.dtype)
        return forgotten if bias is None else forgotten + bias

    def _hidden(self, a: Tensor) -> Tensor:
        """[..., T, S] set to 0, or False, at future positions and outside the window."""
        if self.window is not None:
            a = a.triu(1 - self.window)
        if self.causal:
            return a.tril()
        return a if self.window is None else a.tril(self.window - 1)

    def _shape(self, mixed: Tensor, v: Tensor, padding: Tensor | None) -> Tensor:
        """α·v + β·A·v - γ·C·v."""
        kind = self.spec.shaping.kind
        if kind == "none":
            return mixed
        y: Tensor = self.gains["alpha"](v) + self.gains["beta"](mixed)
        return y if kind == "value_skipinit" else y - self.gains["gamma"](self._centre(v, padding))

    def _centre(self, v: Tensor, padding: Tensor | None) -> Tensor:
        """C·v: the mean over the visible tokens."""
        length = v.shape[-2]
        if padding is None:
            if self.causal:
                return v.cumsum(-2) / torch.arange(1, length + 1, device=v.device, dtype=v.dtype)[:, None]
            return v.mean(-2, keepdim=True).expand_as(v)
        visible = self._visible(v, v, padding).to(v.dtype)
        return (visible / visible.sum(-1, keepdim=True)) @ v

    def _visible(self, q: Tensor, k: Tensor, padding: Tensor | None) -> Tensor:
        """[K, B, 1, T, S], True where a query sees a key. A token always sees itself, so that no row is empty."""
        rows, columns = q.shape[-2], k.shape[-2]
        if padding is not None and numbers_documents(padding):
            visible = same_document(padding)
        elif padding is None:
            visible = torch.ones(*k.shape[:2], 1, rows, columns, dtype=torch.bool, device=k.device)
        else:
            visible = padding[:, :, None, None, :].expand(-1, -1, -1, rows, -1)
            if not self.cross:
                visible = visible | torch.eye(rows, dtype=torch.bool, device=padding.device)
        visible = self._hidden(visible)
        return visible if self.spec.blocks is None else visible & self.spec.blocks.readable(q, k, 0, padding)

    def _scale(self, q: Tensor, k: Tensor, padding: Tensor | None) -> Tensor | float:
        """Factor of the logits, for each row where it depends on the length."""
        if self.spec.scale in ("length", "length_and_head_width"):
            across = 1.0 if self.spec.scale == "length" else 1.0 / math.sqrt(q.shape[-1])
            return self._length_scale(q, k, padding) * (across * self.factor)
        return self._scale_at(q, 0)

    def _scale_at(self, q: Tensor, position: int) -> float:
        """Factor of the logits of the query at position `place`, in a causal mixer."""
        across, along = 1.0 / math.sqrt(q.shape[-1]), 1.0 / math.sqrt(position + 1)
        named = {"none": 1.0, "head_width": across, "length": along, "length_and_head_width": along * across}
        scale = self.spec.scale
        return (named[scale] if isinstance(scale, str) else scale) * self.factor

    def _length_scale(self, q: Tensor, k: Tensor, padding: Tensor | None) -> Tensor | float:
        """1/√L, causal 1/√t."""
        if padding is not None and numbers_documents(padding):
            return (positions_in_documents(padding) + 1).to(q.dtype).rsqrt()[:, :, None, :, None]
        if padding is not None:
            seen = padding.cumsum(-1) if self.causal else padding.sum(-1, keepdim=True)
            return seen.clamp(min=1).to(q.dtype).rsqrt()[:, :, None, :, None]
        if self.causal:
            return torch.arange(1, q.shape[-2] + 1, device=q.device, dtype=q.dtype).rsqrt()[:, None]
        return 1.0 / math.sqrt(k.shape[-2])

    def _matrix(self, q: Tensor, k: Tensor, padding: Tensor | None, fade: Tensor | None) -> Tensor:
        """A after shaping, materialised."""
        visible = self._visible(q, k, padding)
        products = self._products(q, self._scale(q, k, padding), k)
        if self.spec.softmax:
            a = self._softmax(products, self._bias(q, k, fade), visible)
        else:
            real = padding is None or numbers_documents(padding)
            a = products * (visible if real or padding is None else visible & padding[:, :, None, None, :])
        kind = self.spec.shaping.kind
        if kind == "none":
            return a
        eye = torch.eye(q.shape[-2], device=q.device, dtype=q.dtype)
        shaped: Tensor = self.gains["alpha"](eye.expand_as(a)) + self.gains["beta"](a)
        if kind == "shaped":
            centre = visible.to(q.dtype) / visible.sum(-1, keepdim=True)
            shaped = shaped - self.gains["gamma"](centre.expand_as(a))
        return shaped

    def _products(self, q: Tensor, scale: Tensor | float, k: Tensor) -> Tensor:
        """Q·Kᵀ·scale, in the precision that `logits.precision` sets."""
        if self.spec.logits.precision == "inputs":
            return (q * scale) @ k.mT
        exact = torch.promote_types(q.dtype, torch.float32)
        with torch.autocast(q.device.type, enabled=False):
            return (q.to(exact) * scale) @ k.to(exact).mT

    def _softmax(self, logits: Tensor, bias: Tensor | None, visible: Tensor | None) -> Tensor:
        """Attention weights [K, B, H, T, S]; 0 at hidden positions. With sinks the rows sum to less than 1."""
        cap = self.spec.logits.soft_cap
        if cap is not None:
            logits = (logits / cap).tanh() * cap
        if bias is not None:
            logits = logits + bias
        if visible is not None:
            logits = logits.masked_fill(~visible, -math.inf)
        if self.sinks is not None:
            weights: Tensor = self.sinks(logits)
        elif visible is None or not self.cross:
            weights = logits.softmax(-1)
        else:  # a source may be padding only; the fused kernels give 0 too
            empty = ~visible.any(-1, keepdim=True)
            weights = logits.masked_fill(empty, 0.0).softmax(-1).masked_fill(empty, 0.0)
        observed_attention(logits, weights)
        return weights
