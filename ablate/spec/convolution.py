"""Short convolutions at places of a block: Canon layers A to D, and those of Marin's models (SConv).

- Physics of Language Models: Part 4.1, Canon layers (arXiv:2512.17351), section 3; https://arxiv.org/abs/2512.17351
- https://github.com/facebookresearch/PhysicsLM4 (`huggingface/modeling_llama_canon.py`), whose layers were run beside
  models with six sets of places, taps, residuals and activations in double precision: logits and gradients differ by
  8e-15
- `ShortConv` of `marin-community/marin` (experiments/grug/fast_track/model.py): `on_key`, `after_mixer` and `after_mlp`
  with `residual: false` and `start: [1, 0, 0, 0]`
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from ablate.spec.activations import KEPT, LABELS, Activation
from ablate.spec.annotations import ShortFor
from ablate.spec.base import Spec, refusal
from ablate.spec.cost import Cost

ConvolutionPlace = Literal["before_mixer", "on_key", "on_qkv", "after_mixer", "before_mlp", "in_mlp", "after_mlp"]
"""A place of a block that can have a short convolution."""


class ConvolutionSpec(Spec):
    """y_t = x_t + act(Σ_{i<n} w_i ∘ x_{t-i}), one w_i for each channel, 0 before the text. A bare number is n.

    Padding and other documents of a window count as 0.
    """

    value_fields = frozenset({"start"})

    taps: int = Field(default=4, ge=1, le=64)
    """n, the kernel size in tokens."""
    residual: bool = True
    """Whether x_t is added."""
    activation: Activation = "identity"
    """act."""
    trained: bool = True
    """Whether the weights are trained; otherwise they stay at their initial values."""
    start: tuple[float, ...] | None = None
    """w_0, w_1 ... w_{n-1} of all channels before the first step, w_0 for the token itself; unless set, uniform in
    ±1/√n."""

    @model_validator(mode="after")
    def _has_a_value_for_each_tap(self) -> Self:
        if self.start is not None and len(self.start) != self.taps:
            raise refusal(
                ("start",),
                self.start,
                f"there is one initial value for each of the {self.taps} taps, and these are {len(self.start)}",
                f"Write {self.taps} numbers, or set `taps: {len(self.start)}`.",
            )
        return self

    def cost(self, length: int, channels: int) -> Cost:
        """Cost over one sequence. Kept: the padded input, and what the activation needs."""
        elements, active = length * channels, self.activation != "identity"
        kept = (length + self.taps - 1) * channels if self.trained else 0
        return Cost(
            parameters=channels * self.taps * self.trained,
            multiplications=elements * (self.taps + active),
            additions=elements * (self.taps - 1 + self.residual),
            activations=kept + elements * (KEPT.get(self.activation, 1) + self.residual) * active,
        )

    def label(self) -> str:
        """Label in drawings."""
        made = f"conv {self.taps}" + ("" if self.trained else " (fixed)")
        made = made if self.activation == "identity" else f"{LABELS.get(self.activation, self.activation)}({made})"
        return f"x + {made}" if self.residual else made


Convolution = Annotated[ConvolutionSpec, ShortFor("taps")]


class ConvolutionsSpec(Spec):
    """The convolutions of a block, each left out unless set; `4` or `{}` for that of the paper."""

    before_mixer: Convolution | None = None
    """A: on the input of the mixer, after its norm."""
    on_key: Convolution | None = None
    """On keys alone, before their norm."""
    on_qkv: Convolution | None = None
    """B: on queries, keys and values together, after their projections and norms and before positions."""
    after_mixer: Convolution | None = None
    """On the output of the mixer, before its norm, if that is there, and its gain."""
    before_mlp: Convolution | None = None
    """C: on the input of the MLP, after its norm."""
    in_mlp: Convolution | None = None
    """D: on the hidden layer of the MLP, gate and values together, before the activation."""
    after_mlp: Convolution | None = None
    """On the output of the MLP, as `after_mixer`."""


NO_CONVOLUTIONS = ConvolutionsSpec()
"""No convolution at any place."""
