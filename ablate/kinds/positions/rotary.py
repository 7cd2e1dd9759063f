"""Rotary positions: pair (i, i + r/2) of a query or key at position t is rotated by t·θ_i, θ_i = base^(-2i/r).

Products of rotated queries and keys then depend only on the distance of their positions. The first r = ⌊fraction·d_h⌋
channels are rotated, the others are unchanged. For texts longer than those that a base was chosen for, θ_i is scaled:

- `linear`: θ/s (Position Interpolation, arXiv:2306.15595).
- `llama3`: with the wavelength λ = 2π/θ, unchanged for λ < L₀/h, θ/s for λ > L₀/l, and between them
  (1 - w)·θ/s + w·θ with w = (L₀/λ - l)/(h - l) (Llama 3.1, `transformers`, `_compute_llama3_parameters`).
- `yarn`: θ/s·γ + θ·(1 - γ), where γ rises from 0 at the pair that rotates β_fast times in L₀ tokens to 1 at the one
  that rotates β_slow times; cosines and sines are multiplied by m = 0.1·ln s + 1 (YaRN, arXiv:2309.00071, section 3.4).

Sources:

- RoFormer (arXiv:2104.09864), eqs 14 to 16 and 34; https://arxiv.org/abs/2104.09864

Shapes: K pack, B batch, T tokens, H heads, d_h head width, r rotated channels.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from functools import lru_cache
from typing import Annotated, ClassVar, Literal, Self

import torch
from pydantic import Field, ValidationError, model_validator
from torch import Tensor, nn

from ablate.nn.kernels.softmax_attention import rotate
from ablate.spec.annotations import OneOf
from ablate.spec.base import Family, Kinded, below, refusal
from ablate.spec.cost import Cost
from ablate.spec.layer import LayerContext, PositionSpec

SCALINGS = Family("rotary scaling")


class RotaryScalingSpec(Kinded):
    """A scaling of the frequencies of rotary positions for longer texts."""

    family = SCALINGS
    default_kind = "none"
    source: ClassVar[str] = "arXiv:2104.09864"

    @abstractmethod
    def frequencies(self, theta: Tensor, base: float, length: int) -> Tensor:
        """The scaled frequencies of a text of `length` tokens, from θ [r/2] = base^(-2i/r)."""

    def check(self, pairs: int) -> None:
        """Refuse a number r/2 of rotated pairs.

        Raises:
            ValidationError: From `refusal`, with the path inside this spec.
        """

    @property
    def incremental_limit(self) -> int | None:
        """As of `PositionSpec`."""
        return None

    @property
    def factor_of_turned(self) -> float:
        """The factor of the rotated channels of queries and keys."""
        return 1.0

    @property
    def factor_of_logits(self) -> float:
        """The factor of all logits."""
        return 1.0


class NoScalingSpec(RotaryScalingSpec):
    """θ, unchanged."""

    kind: Literal["none"] = "none"

    def frequencies(self, theta: Tensor, base: float, length: int) -> Tensor:
        return theta


class LinearScalingSpec(RotaryScalingSpec):
    """θ/s: positions are interpolated."""

    source = "arXiv:2306.15595"

    kind: Literal["linear"] = "linear"
    factor: float = Field(gt=0)
    """s, the factor by which the texts are longer."""

    def frequencies(self, theta: Tensor, base: float, length: int) -> Tensor:
        return theta / self.factor


class Llama3ScalingSpec(RotaryScalingSpec):
    """Low frequencies are interpolated, high ones are unchanged."""

    source = "Llama 3.1; transformers, _compute_llama3_parameters"

    kind: Literal["llama3"] = "llama3"
    factor: float = Field(default=8.0, ge=1)
    """s, the factor by which the texts are longer."""
    low_frequency: float = Field(default=1.0, gt=0)
    """l: wavelengths above L₀/l are interpolated."""
    high_frequency: float = Field(default=4.0, gt=0)
    """h: wavelengths below L₀/h are unchanged."""
    original_context: int = Field(default=8192, ge=1)
    """L₀, length in tokens of the texts that the base was chosen for."""

    @model_validator(mode="after")
    def _is_a_range(self) -> Self:
        if self.low_frequency >= self.high_frequency:
            raise refusal(
                ("low_frequency",),
                self.low_frequency,
                f"`low_frequency` must be below `high_frequency`, which is {self.high_frequency:g}",
                "Set a lower `low_frequency`.",
            )
        return self

    def frequencies(self, theta: Tensor, base: float, length: int) -> Tensor:
        turns = self.original_context * theta / (2 * math.pi)  # L₀/λ
        share = (turns - self.low_frequency) / (self.high_frequency - self.low_frequency)
        share = share.clamp(0, 1)
        return (1 - share) * theta / self.factor + share * theta


class YarnScalingSpec(RotaryScalingSpec):
    """YaRN: low frequencies are interpolated, high ones are unchanged, and the logits are scaled up."""

    source = "arXiv:2309.00071 sec. 3.4"

    kind: Literal["yarn"] = "yarn"
    factor: float = Field(ge=1)
    """s, the factor by which the texts are longer."""
    original_context: int = Field(ge=1)
    """L₀, length in tokens of the texts that the base was chosen for."""
    fast: float = Field(default=32.0, gt=0)
    """β_fast: pairs that rotate more often in L₀ tokens are unchanged."""
    slow: float = Field(default=1.0, gt=0)
    """β_slow: pairs that rotate less often in L₀ tokens are interpolated."""
    whole_pairs: bool = True
    """Whether the ends of the ramp are rounded to whole pairs, outwards (gpt-oss does not)."""
    temperature: float | None = Field(default=None, gt=0)
    """m, the factor of cosines and sines; unless set, 0.1·ln s + 1."""
    all_channels: float = Field(default=0.0, ge=0)
    """a: unless it is 0, all logits are multiplied by (0.1·a·ln s + 1)² (`mscale_all_dim` of DeepSeek-V2 and V3, which
    set m to 1 beside it)."""

    @model_validator(mode="after")
    def _is_a_ramp(self) -> Self:
        if self.slow > self.fast:
            raise refusal(
                ("slow",),
                self.slow,
                f"`slow` must not be above `fast`, which is {self.fast:g}",
                "Set a lower `slow`, or a higher `fast`.",
            )
        return self

    def frequencies(self, theta: Tensor, base: float, length: int) -> Tensor:
        width = 2 * len(theta)
        low, high = (
            width * math.log(self.original_context / (turns * 2 * math.pi)) / (2 * math.log(base))
            for turns in (self.fast, self.slow)
        )
        if self.whole_pairs:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, width - 1)
        if low == high:
            high += 0.001
        pair = torch.arange(len(theta), device=theta.device, dtype=theta.dtype)
        ramp = ((pair - low) / (high - low)).clamp(0, 1)
        return theta / self.factor * ramp + theta * (1 - ramp)

    @property
    def factor_of_turned(self) -> float:
        """m."""
        return _growth(self.factor, 1.0) if self.temperature is None else self.temperature

    @property
    def factor_of_logits(self) -> float:
        """(0.1·a·ln s + 1)²."""
        return _growth(self.factor, self.all_channels) ** 2


class _ByLengthSpec(RotaryScalingSpec):
    """A scaling that depends on whether a text is longer than L₀ tokens."""

    factor: float = Field(ge=1)
    """s, the factor by which the texts are longer."""
    original_context: int = Field(ge=2)
    """L₀, length in tokens of the texts that the base was chosen for."""

    @property
    def incremental_limit(self) -> int:
        """L₀."""
        return self.original_context


Factors = Annotated[tuple[Annotated[float, Field(gt=0)], ...], Field(min_length=1)]


class LongropeScalingSpec(_ByLengthSpec):
    """LongRoPE: each frequency has factors of its own, for texts of up to L₀ tokens and for longer ones."""

    source = "arXiv:2402.13753; transformers, _compute_longrope_parameters"

    kind: Literal["longrope"] = "longrope"
    short: Factors
    """λ of each of the r/2 pairs in texts of up to L₀ tokens."""
    long: Factors
    """λ of each of the r/2 pairs in longer texts."""
    temperature: float | None = Field(default=None, gt=0)
    """m, the factor of cosines and sines; unless set, √(1 + ln s/ln L₀)."""

    def check(self, pairs: int) -> None:
        for name in ("short", "long"):
            found = len(getattr(self, name))
            if found != pairs:
                raise refusal(
                    (name,), found, f"each of the {pairs} rotated pairs of a head needs a factor", f"Give {pairs}."
                )

    def frequencies(self, theta: Tensor, base: float, length: int) -> Tensor:
        factors = self.long if length > self.original_context else self.short
        return theta / _tensor(factors, theta.device, theta.dtype)

    @property
    def factor_of_turned(self) -> float:
        """m."""
        grown = math.sqrt(1 + math.log(self.factor) / math.log(self.original_context))
        return grown if self.temperature is None else self.temperature


@lru_cache(maxsize=16)
def _tensor(values: tuple[float, ...], device: torch.device, dtype: torch.dtype) -> Tensor:
    """Made once: within a CUDA graph nothing can be moved to the device."""
    with torch.inference_mode(False):
        return torch.tensor(values, device=device, dtype=dtype)


class DynamicScalingSpec(_ByLengthSpec):
    """Dynamic NTK scaling: the base grows with the length of the text beyond L₀ tokens."""

    source = "transformers, _compute_dynamic_ntk_parameters"

    kind: Literal["dynamic"] = "dynamic"

    def check(self, pairs: int) -> None:
        if pairs == 1:
            raise refusal(
                (),
                "dynamic",
                "the exponent r/(r - 2) of dynamic scaling needs more than one rotated pair of channels",
                "Widen the heads or rotate a larger `fraction` of them, or take another `scaling`.",
            )

    def frequencies(self, theta: Tensor, base: float, length: int) -> Tensor:
        longer = max(length, self.original_context) / self.original_context
        pair = torch.arange(len(theta), device=theta.device, dtype=theta.dtype)
        return theta * (self.factor * longer - self.factor + 1) ** (-pair / (len(theta) - 1))


def _growth(factor: float, share: float) -> float:
    return 0.1 * share * math.log(factor) + 1.0


RotaryScaling = Annotated[RotaryScalingSpec, OneOf]


class RotarySpec(PositionSpec):
    """Queries and keys are rotated by angles proportional to the position."""

    source = "arXiv:2104.09864 eqs 14-16, 34"
    applied = "query_key"
    factor_path = ("scaling", "all_channels")

    kind: Literal["rotary"] = "rotary"
    base: float = Field(default=10000.0, gt=1)
    """Pair i of a head is rotated by base^(-2i/r) per position: with a larger base more pairs rotate slowly."""
    fraction: float = Field(default=1.0, gt=0, le=1)
    """Share of a head's channels that is rotated: the first r = ⌊fraction·d_h⌋. The others carry no position."""
    scaling: RotaryScaling = NoScalingSpec()
    """Scaling of the frequencies for texts longer than those that the base was chosen for."""

    @property
    def factor_of_logits(self) -> float:
        return self.scaling.factor_of_logits

    @property
    def incremental_limit(self) -> int | None:
        return self.scaling.incremental_limit

    def turning(self, head_width: int) -> int:
        """r, the number of rotated channels of a head."""
        return int(head_width * self.fraction)

    def check(self, context: LayerContext) -> None:
        turning = self.turning(context.head_width)
        if self.fraction < 1 and (turning % 2 or not turning):
            raise refusal(
                ("fraction",),
                self.fraction,
                f"rotary positions rotate pairs of channels, and this fraction of {context.head_width} is {turning}",
                "Set a `fraction` that gives an even number of channels, at least 2.",
            )
        if turning % 2:
            raise refusal(
                (),
                context.head_width,
                "rotary positions rotate pairs of channels, so the head width must be even",
                "Change `model.width`, `model.heads` or `model.head_width`, or `model.positions`.",
            )
        try:
            self.scaling.check(turning // 2)
        except ValidationError as error:
            raise below(("scaling",), error) from None

    def build(self, context: LayerContext) -> Rotary:
        return Rotary(self)

    def cost(self, context: LayerContext, length: int, *, key_heads: int = 0, pairs: int = 0) -> Cost:
        """Four multiplications and two additions for each pair of channels of queries and keys."""
        elements = length * self.turning(context.head_width) * (context.heads + key_heads)
        return Cost(multiplications=2 * elements, additions=elements)


class Rotary(nn.Module):
    """The module of `RotarySpec`."""

    def __init__(self, spec: RotarySpec) -> None:
        super().__init__()
        self.spec = spec
        self.base = spec.base

    def forward(self, x: Tensor, first: int = 0) -> Tensor:
        """Queries or keys [K, B, H, T, d_h], from position `first` on, to the same."""
        scaling, length = self.spec.scaling, first + x.shape[-2]
        return rotate(
            x,
            first,
            self.base,
            turning=self.spec.turning(x.shape[-1]),
            scaled=None
            if isinstance(scaling, NoScalingSpec)
            else lambda theta: scaling.frequencies(theta, self.base, length),
            factor=scaling.factor_of_turned,
        )
