"""`BlockSpec`: a Transformer block and everything in it that can be switched.

Symbols of "Simplifying Transformer Blocks" (arXiv:2311.01906): alpha are gains of skips, beta gains of branches.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from ablate.spec.annotations import ShortFor
from ablate.spec.base import Spec, refusal
from ablate.spec.mixer import Mixer


class GainSpec(Spec):
    """A scalar that multiplies a skip or a branch. A bare number is a fixed gain of that value."""

    init: float = 1.0
    """Initial value."""
    trainable: bool = False
    """Whether the optimiser moves it (without weight decay)."""
    depth_scaling: Literal["none", "inverse_sqrt"] = "none"
    """`inverse_sqrt`: the initial value is divided by √depth, the rule of arXiv:2311.01906 for β_FF."""

    def structure(self) -> Any:
        """As any spec; where a trainable gain starts is a value, a fixed one is part of the graph."""
        return {"trainable": True} if self.trainable else super().structure()

    def initial(self, depth: int) -> float:
        """The value at the start of training, in a model of `depth` blocks."""
        return self.init / math.sqrt(depth) if self.depth_scaling == "inverse_sqrt" else self.init

    @property
    def fixed_at_zero(self) -> bool:
        """Whether it takes away what it multiplies, for good."""
        return self.init == 0 and not self.trainable


Gain = Annotated[GainSpec, ShortFor("init")]


class GainsSpec(Spec):
    """The four gains of a block: X̂ = α_SA·X + β_SA·Mixer(X), X_out = α_FF·X̂ + β_FF·MLP(X̂)."""

    mixer_skip: Gain = GainSpec()
    """α_SA, or α_comb of a parallel block."""
    mixer_branch: Gain = GainSpec()
    """β_SA."""
    mlp_skip: Gain = GainSpec()
    """α_FF."""
    mlp_branch: Gain = GainSpec()
    """β_FF."""


class SkipsSpec(Spec):
    """How many skip connections go round the mixer and round the MLP."""

    mixer: Literal[0, 1, 2] = 1
    """0: none; 1: round the mixer (in a parallel block: round both branches); 2: the block input joins after the MLP
    too (SimpleTRON's extra skip)."""
    mlp: Literal[0, 1] = 1
    """0: none; 1: round the MLP. A parallel block has one skip in all, so this is 0 there."""


def _refuse_settings_of_none(spec: NormSpec | MLPSpec, name: str) -> None:
    """Refuse settings of a part that is not there: one block would have several hashes.

    Raises:
        ValidationError: `kind` is `none`, and a field is not at its default.
    """
    for field, info in type(spec).model_fields.items():
        value = getattr(spec, field)
        if spec.kind == "none" and field != "kind" and value != info.default:
            raise refusal(
                (field,), value, f"kind `none` has no `{field}`", f"Write `{name}: none` and nothing else of it."
            )


class NormSpec(Spec):
    """Normalisation of a block, with a trainable gain (LayerNorm: and bias)."""

    kind: Literal["rms", "layer", "none"] = "rms"
    """`rms`: RMSNorm, x·g/√(mean x² + ε); `layer`: LayerNorm; `none`: no normalisation in the block."""
    place: Literal["pre", "post"] = "pre"
    """`pre`: before each sub-layer; `post`: after each residual sum (Transformer of 2017)."""
    eps: float = Field(default=1e-8, gt=0)
    """ε, added under the root."""

    @model_validator(mode="after")
    def _none_has_no_settings(self) -> Self:
        _refuse_settings_of_none(self, "norm")
        return self


Norm = Annotated[NormSpec, ShortFor("kind")]


class MLPSpec(Spec):
    """The feed-forward sub-layer."""

    kind: Literal["plain", "gated", "none"] = "plain"
    """`plain`: W₂·act(W₁x); `gated`: W₂·(act(W_g x) ∘ W₁x); `none`: the block has no MLP."""
    ratio: float = Field(default=4.0, gt=0)
    """Hidden width divided by the model's width."""
    activation: Literal["relu", "gelu", "silu", "gelu_tanh"] = "relu"
    """Nonlinearity of the hidden layer; `gelu_tanh` is GPT-2's approximation of `gelu`."""
    bias: bool = False
    """Whether the maps have biases."""

    @model_validator(mode="after")
    def _none_has_no_settings(self) -> Self:
        _refuse_settings_of_none(self, "mlp")
        return self


MLP = Annotated[MLPSpec, ShortFor("kind")]


class BlockSpec(Spec):
    """One block: a mixer, an MLP, their norms, skips and gains."""

    mixer: Mixer
    """The token-mixing sub-layer."""
    mlp: MLP = MLPSpec()
    """The feed-forward sub-layer."""
    norm: Norm = NormSpec()
    """Normalisation kind and place."""
    arrangement: Literal["sequential", "parallel"] = "sequential"
    """`sequential`: the MLP reads what the mixer gave; `parallel`: both read the same normalised input (eq. 7)."""
    skips: SkipsSpec = SkipsSpec()
    """Number of skip connections."""
    gains: GainsSpec = GainsSpec()
    """Gains of skips and branches."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout on the output of each sub-layer, before its residual sum."""

    @model_validator(mode="after")
    def _is_a_block(self) -> Self:
        if self.arrangement == "parallel":
            self._check_parallel()
        if self.skips.mixer == 0 and self.gains.mixer_skip != GainSpec():
            raise refusal(
                ("gains", "mixer_skip"),
                self.gains.mixer_skip.model_dump(),
                "a gain needs the skip that it multiplies, and `skips.mixer` is 0",
                "Leave the gain out, or set `skips.mixer: 1`.",
            )
        if self.skips.mlp == 0 and self.gains.mlp_skip != GainSpec():
            raise refusal(
                ("gains", "mlp_skip"),
                self.gains.mlp_skip.model_dump(),
                "a gain needs the skip that it multiplies, and `skips.mlp` is 0",
                "Leave the gain out, or set `skips.mlp: 1`.",
            )
        if self.mlp.kind == "none":
            self._check_no_mlp()
        self._check_signal()
        return self

    def _check_parallel(self) -> None:
        if self.skips.mlp != 0:
            raise refusal(
                ("skips", "mlp"),
                self.skips.mlp,
                "a parallel block has one skip, round both branches, and `skips.mixer` counts it",
                "Set `skips.mlp: 0` beside `arrangement: parallel`.",
            )
        if self.skips.mixer == 2:
            raise refusal(
                ("skips", "mixer"),
                2,
                "the second skip of the mixer joins after the MLP, and in a parallel block that is the same place",
                "Set `skips.mixer` to 0 or 1, or `arrangement: sequential`.",
            )
        if self.norm.place == "post":
            raise refusal(
                ("norm", "place"),
                "post",
                "the branches of a parallel block share one norm before them",
                "Set `norm.place: pre`, or `arrangement: sequential`.",
            )
        if self.mlp.kind == "none":
            raise refusal(
                ("arrangement",),
                "parallel",
                "a block without MLP has nothing that could run beside the mixer",
                "Set `arrangement: sequential`.",
            )

    def _check_no_mlp(self) -> None:
        if self.skips.mlp != 0:
            raise refusal(
                ("skips", "mlp"),
                self.skips.mlp,
                "a block without MLP has no skip round it",
                "Set `skips.mlp: 0` beside `mlp: none`.",
            )
        if self.skips.mixer == 2:
            raise refusal(
                ("skips", "mixer"),
                2,
                "the second skip of the mixer joins after the MLP, and there is none",
                "Set `skips.mixer` to 0 or 1.",
            )
        if self.gains.mlp_branch != GainSpec():
            raise refusal(
                ("gains", "mlp_branch"),
                self.gains.mlp_branch.model_dump(),
                "a gain needs the branch that it multiplies, and the block has no MLP",
                "Leave the gain out.",
            )

    def _check_signal(self) -> None:
        """A branch that is fixed at 0 needs a skip round it, or the block gives the same for every input."""
        gains, skips = self.gains, self.skips
        mixer_gone = gains.mixer_branch.fixed_at_zero and (skips.mixer == 0 or gains.mixer_skip.fixed_at_zero)
        mlp_gone = gains.mlp_branch.fixed_at_zero and (skips.mlp == 0 or gains.mlp_skip.fixed_at_zero)
        if self.arrangement == "parallel":
            silent = "mixer" if mixer_gone and gains.mlp_branch.fixed_at_zero else None
        else:
            silent = "mixer" if mixer_gone else "mlp" if mlp_gone and self.mlp.kind != "none" else None
        if silent is not None and skips.mixer < 2:
            raise refusal(
                ("gains", f"{silent}_branch"),
                0,
                f"with the branch of the {silent} fixed at 0 and no skip round it, nothing of the input is left",
                f"Set `skips.{silent}: 1`, or a gain other than 0.",
            )
