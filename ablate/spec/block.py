"""`BlockSpec`: a Transformer block and everything in it that can be switched; `ResidualSpec`: how its parts are joined.

Symbols of "Simplifying Transformer Blocks" (arXiv:2311.01906): alpha are gains of skips, beta gains of branches.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from ablate.spec.annotations import OneOf, ShortFor, default_kind
from ablate.spec.base import Family, Spec, refusal
from ablate.spec.convolution import NO_CONVOLUTIONS, ConvolutionSpec, ConvolutionsSpec
from ablate.spec.cost import Cost
from ablate.spec.layer import Initialiser, InitialiserSpec, PartSpec, Position, Sublayer
from ablate.spec.sublayers import MLP, Mixer, MLPSpec, Norm, NormSpec

if TYPE_CHECKING:
    from torch import nn

    from ablate.spec.layer import LayerContext

RESIDUALS = Family("residual", package="ablate.kinds.residuals", entry_points="ablate.residuals")


class ResidualSpec(PartSpec):
    """How the sub-layers of a layer read and write the residual stream.

    A final subclass adds `kind`, its fields, `build` and `cost`.
    """

    family = RESIDUALS
    default_kind = "plain"
    grows: ClassVar[bool] = False
    """Whether each sub-layer adds to the sizes of the stream; all layers then have the same sub-layers, once each."""

    def stream_sizes(self, context: LayerContext) -> tuple[int, ...]:
        """Sizes of the stream after the token axis: (D,), unless a kind has several streams."""
        return (context.width,)

    def check_block(self, block: BlockSpec) -> None:
        """Refuse a block that this kind does not support, such as one whose skips it replaces.

        Raises:
            ValidationError: From `refusal`, with the path inside the block.
        """

    def separates_inputs(self, context: LayerContext) -> bool:
        """Whether `enter` gives the mixer inputs for queries, keys and values apart, [K, B, T, 3, D]."""
        return False

    def cache(self, context: LayerContext) -> int:
        """Number of scalars that it keeps of earlier tokens in cached decoding."""
        return 0

    @abstractmethod
    def build(self, context: LayerContext) -> nn.Module:
        """Build the module of one layer, an `ablate.nn.pack.Residual`."""

    @abstractmethod
    def cost(self, context: LayerContext, length: int, joins: int) -> Cost:
        """Cost of one layer over one sequence of `length` tokens, with `joins` sums of a skip and a branch."""

    def label(self) -> str:
        """Label at the start of the block in drawings; empty by default."""
        return ""


Residual = Annotated[ResidualSpec, OneOf]


class GainSpec(Spec):
    """A scalar that multiplies a skip or a branch. A bare number is a fixed gain of that value."""

    init: float = 1.0
    """Initial value."""
    trainable: bool = False
    """Whether it is trained (without weight decay)."""
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
        """Whether it is fixed at 0."""
        return self.init == 0 and not self.trainable


Gain = Annotated[GainSpec, ShortFor("init")]
NO_GAIN = GainSpec()
"""The gain that changes nothing."""


class GainsSpec(Spec):
    """The four gains of a block: X̂ = α_SA·X + β_SA·Mixer(X), X_out = α_FF·X̂ + β_FF·MLP(X̂)."""

    mixer_skip: Gain = NO_GAIN
    """α_SA, or α_comb of a parallel block."""
    mixer_branch: Gain = NO_GAIN
    """β_SA."""
    mlp_skip: Gain = NO_GAIN
    """α_FF."""
    mlp_branch: Gain = NO_GAIN
    """β_FF."""


class SkipsSpec(Spec):
    """Number of skip connections around the mixer and around the MLP."""

    mixer: Literal[0, 1, 2] = 1
    """0: none; 1: round the mixer (in a parallel block: round both branches); 2: the block input joins after the MLP
    too (SimpleTRON's extra skip)."""
    mlp: Literal[0, 1] = 1
    """0: none; 1: round the MLP. A parallel block has one skip in all, so this is 0 there."""


class BlockSpec(Spec):
    """One block: a mixer, an MLP, their norms, skips and gains."""

    mixer: Mixer
    """The token-mixing sub-layer."""
    mlp: MLP = default_kind(MLPSpec)
    """The feed-forward sub-layer."""
    norm: Norm = default_kind(NormSpec)
    """Norm of both sub-layers: its kind and place."""
    norm_mixer: Norm | None = None
    """Norm of the mixer (in a parallel block: of both branches), if it differs from `norm`."""
    norm_mlp: Norm | None = None
    """Norm of the MLP, if it differs from `norm`."""
    arrangement: Literal["sequential", "parallel", "mlp_first"] = "sequential"
    """`sequential`: the MLP reads the mixer's output; `mlp_first`: the mixer reads the MLP's output; `parallel`: both
    read the same normalised input (eq. 7)."""
    skips: SkipsSpec = SkipsSpec()
    """Number of skip connections."""
    gains: GainsSpec = GainsSpec()
    """Gains of skips and branches."""
    residual: Residual = default_kind(ResidualSpec)
    """How the sub-layers are joined to the stream."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout on the output of each sub-layer, before its residual sum."""
    positions: Position | None = None
    """Positions that the mixer applies (`rotary`, `alibi`) or `none`, if they differ from the model's."""
    head_width: int | None = Field(default=None, ge=1)
    """Width of a head, if it differs from the model's."""
    initialiser_mixer: Initialiser | None = None
    """Initialiser of the mixer's maps, if it differs from the model's."""
    initialiser_mlp: Initialiser | None = None
    """Initialiser of the MLP's maps, if it differs from the model's."""
    window: int | None = Field(default=None, ge=1)
    """Tokens that the mixer sees to each side, its own counted: |i - j| < window. Unless set, all."""
    convolutions: ConvolutionsSpec = NO_CONVOLUTIONS
    """Short causal convolutions: before, in and after the mixer and the MLP (Canon layers, arXiv:2512.17351)."""

    @model_validator(mode="before")
    @classmethod
    def _has_one_norm_if_parallel(cls, block: Any) -> Any:
        # The norm of the mixer is then that of both branches, so that a switch may set it in either arrangement.
        if not isinstance(block, Mapping) or block.get("arrangement") != "parallel" or block.get("norm_mlp"):
            return block
        own = block.get("norm_mixer")
        if own is None or (isinstance(own, Mapping) and "kind" not in own):
            return block
        return {name: value for name, value in block.items() if name != "norm_mixer"} | {"norm": own}

    @field_validator("norm_mixer", "norm_mlp", mode="before")
    @classmethod
    def _begins_as_norm(cls, norm: Any, info: ValidationInfo) -> Any:
        # A mapping without `kind` changes some settings of `norm`.
        both = info.data.get("norm")
        if isinstance(norm, Mapping) and "kind" not in norm and isinstance(both, NormSpec):
            return {**both.model_dump(mode="json"), **norm}
        return norm

    @field_validator("norm_mixer", "norm_mlp")
    @classmethod
    def _default_is_none(cls, norm: NormSpec | None, info: ValidationInfo) -> NormSpec | None:
        # Written out, the norm of both sub-layers is the same as left out.
        return None if norm == info.data.get("norm") else norm

    @property
    def norms(self) -> tuple[NormSpec, NormSpec]:
        """The norms of the mixer and of the MLP."""
        return self.norm_mixer or self.norm, self.norm_mlp or self.norm

    @property
    def sublayers(self) -> tuple[Sublayer, ...]:
        """Those that join the stream; a parallel block joins as `mixer` alone."""
        return ("mixer", "mlp") if self.mlp.present and self.arrangement != "parallel" else ("mixer",)

    def channels_of_convolutions(self, context: LayerContext) -> tuple[tuple[ConvolutionSpec, int], ...]:
        """Its short convolutions, and the channels of each."""
        places = (
            (self.convolutions.before_mixer, context.width),
            (self.convolutions.on_key, self.mixer.convolved_keys(context)),
            (self.convolutions.on_qkv, self.mixer.convolved_width(context)),
            (self.convolutions.after_mixer, context.width),
            (self.convolutions.before_mlp, context.width),
            (self.convolutions.in_mlp, self.mlp.convolved_width(context)),
            (self.convolutions.after_mlp, context.width),
        )
        return tuple((convolution, channels) for convolution, channels in places if convolution is not None)

    @property
    def parts(self) -> tuple[tuple[str, PartSpec], ...]:
        """The parts that make modules, by the names of their fields."""
        return ("residual", self.residual), ("mixer", self.mixer), ("mlp", self.mlp)

    @property
    def shares(self) -> bool:
        """Whether it reads tensors of other layers or publishes some, so that equal blocks may make unequal layers."""
        return any(part.shares for _, part in self.parts)

    @property
    def differs_by_layer(self) -> bool:
        """Whether equal blocks may make layers of unequal cost."""
        return any(part.shares or part.differs_by_layer for _, part in self.parts)

    @model_validator(mode="after")
    def _is_a_block(self) -> Self:
        self._check_norms()
        if self.positions is not None and self.positions.applied == "embedding":
            raise refusal(
                ("positions",),
                self.positions.kind_name(),
                f"{self.positions.kind_name()} positions are added to the token embedding, which no layer has",
                "Set `model.positions`.",
            )
        if self.arrangement == "parallel":
            self._check_parallel()
        if self.arrangement == "mlp_first" and (self.skips.mixer == 2 or not self.mlp.present):
            second = self.skips.mixer == 2
            raise refusal(
                ("skips", "mixer") if second else ("arrangement",),
                2 if second else "mlp_first",
                "the second skip of the mixer joins after the MLP, but here the MLP is before the mixer"
                if second
                else "a block without MLP has nothing to compute before the mixer",
                "Set `arrangement: sequential`.",
            )
        if self.skips.mixer == 0 and self.gains.mixer_skip != NO_GAIN:
            raise refusal(
                ("gains", "mixer_skip"),
                self.gains.mixer_skip.model_dump(),
                "a gain needs the skip that it multiplies, and `skips.mixer` is 0",
                "Leave the gain out, or set `skips.mixer: 1`.",
            )
        if self.skips.mlp == 0 and self.gains.mlp_skip != NO_GAIN:
            raise refusal(
                ("gains", "mlp_skip"),
                self.gains.mlp_skip.model_dump(),
                "a gain needs the skip that it multiplies, and `skips.mlp` is 0",
                "Leave the gain out, or set `skips.mlp: 1`.",
            )
        if self.initialiser_mlp is not None and not self.mlp.present:
            raise refusal(
                ("initialiser_mlp",),
                self.initialiser_mlp.kind_name(),
                "the block has no MLP whose maps could start",
                "Leave `initialiser_mlp` out.",
            )
        for name in ("initialiser_mixer", "initialiser_mlp"):
            own: InitialiserSpec | None = getattr(self, name)
            if own is not None and own.scales_rates:
                raise refusal(
                    (name,),
                    own.kind_name(),
                    f"{own.kind_name()} scales the rates of a whole model, and this is one part of it",
                    f"Set `model.initialiser: {own.kind_name()}`, or another kind here.",
                )
        if not self.mlp.present:
            self._check_no_mlp()
        self._check_signal()
        self.residual.check_block(self)
        return self

    def _check_norms(self) -> None:
        alone = "the MLP of a parallel block reads what the mixer reads" if self.arrangement == "parallel" else None
        alone = alone if self.mlp.present else "a block without MLP has no norm of it"
        if alone is not None and self.norm_mlp is not None:
            raise refusal(("norm_mlp",), self.norm_mlp.kind_name(), alone, "Leave `norm_mlp` out.")
        if self.norm_mixer is not None and (alone is not None or self.norm_mlp is not None):
            raise refusal(
                ("norm_mixer",),
                self.norm_mixer.kind_name(),
                "`norm` is then the norm of no sub-layer, and one block would have several hashes",
                "Set `norm` to one of them, and leave that one out.",
            )

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
        if self.norms[0].place != "pre":
            raise refusal(
                ("norm", "place"),
                self.norms[0].place,
                "the branches of a parallel block share one norm before them",
                "Set `norm.place: pre`, or `arrangement: sequential`.",
            )
        if not self.mlp.present:
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
        for place in ("before_mlp", "in_mlp", "after_mlp"):
            if getattr(self.convolutions, place) is not None:
                raise refusal(
                    ("convolutions", place),
                    getattr(self.convolutions, place).canonical(),
                    "the convolution is part of the MLP, and the block has none",
                    f"Leave `{place}` out.",
                )
        if self.gains.mlp_branch != NO_GAIN:
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
            silent = "mixer" if mixer_gone else "mlp" if mlp_gone and self.mlp.present else None
        if silent is not None and skips.mixer < 2:
            raise refusal(
                ("gains", f"{silent}_branch"),
                0,
                f"with the branch of the {silent} fixed at 0 and no skip round it, nothing of the input is left",
                f"Set `skips.{silent}: 1`, or a gain other than 0.",
            )
