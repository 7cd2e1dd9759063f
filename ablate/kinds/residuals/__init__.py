"""The kinds of residual: its Spec, its Module, its cost, its equation and its paper; and a base.

Shapes: K pack, B batch, T tokens, D width.
"""

from __future__ import annotations

from abc import ABC

from ablate.spec.base import refusal
from ablate.spec.block import BlockSpec, GainSpec, ResidualSpec
from ablate.spec.layer import LayerContext


class ConnectedStreamsSpec(ResidualSpec, ABC):
    """A residual of several streams; the maps between them and each sub-layer can be switched off one by one."""

    differs_by_layer = True

    streams: int
    pre_map: bool = True
    """Whether a trained map (H_pre) gives what a sub-layer reads of the streams; otherwise it reads their mean."""
    post_map: bool = True
    """Whether a trained map (H_post) gives what each stream gets of an output; otherwise each gets all of it."""
    res_map: bool = True
    """Whether a trained map (H_res) mixes the streams; otherwise they are not mixed."""

    def stream_sizes(self, context: LayerContext) -> tuple[int, ...]:
        return (self.streams, context.width)

    def check_block(self, block: BlockSpec) -> None:
        check_every_join(self, block, gains=False, post=False)


def check_every_join(spec: ResidualSpec, block: BlockSpec, *, gains: bool = True, post: bool = True) -> None:
    """Refuse a block unless each sub-layer has exactly one skip, which this residual replaces.

    Args:
        gains: Whether skips may have gains.
        post: Whether a norm after the sum is allowed.

    Raises:
        ValidationError: With the path inside the block.
    """
    name = spec.kind_name()
    for part in block.sublayers:
        if (count := getattr(block.skips, part)) != 1:
            raise refusal(
                ("skips", part),
                count,
                f"the residual {name} joins each sub-layer to the stream once",
                f"Set `skips.{part}: 1`, or `residual: plain`.",
            )
        if not gains and getattr(block.gains, f"{part}_skip") != GainSpec():
            raise refusal(
                ("gains", f"{part}_skip"),
                getattr(block.gains, f"{part}_skip").model_dump(),
                f"the residual {name} has trained weights instead of this gain",
                "Leave the gain out.",
            )
    for norm in block.norms[: len(block.sublayers)]:
        if not post and norm.present and norm.place == "post":
            raise refusal(
                ("norm", "place"),
                "post",
                f"the residual {name} has no single sum that a norm could follow",
                "Set `norm.place` to pre, output or sandwich.",
            )
