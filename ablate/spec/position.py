"""`PositionSpec`: positional encodings. The kinds are in `ablate/kinds/positions/`, one file each."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from ablate.spec.annotations import OneOf
from ablate.spec.base import Family, Kinded
from ablate.spec.cost import Cost

if TYPE_CHECKING:
    from torch import nn

    from ablate.spec.layer import LayerContext

POSITIONS = Family("position", package="ablate.kinds.positions", entry_points="ablate.positions")

Applied = Literal["embedding", "query_key", "logits", "nowhere"]
"""Where positions are applied: `embedding` (added to the token embedding), `query_key` (transform queries and keys of a
mixer), `logits` (added to the logits of a mixer), `nowhere`."""


class PositionSpec(Kinded):
    """A kind of position. A final subclass adds `kind`, its fields, `build` and `cost`."""

    family = POSITIONS
    default_kind = "learned"
    source: ClassVar[str]
    """Paper and equation."""
    applied: ClassVar[Applied]
    """Where they are applied."""
    factor_path: ClassVar[tuple[str, ...]] = ()
    """Path of the setting that `factor_of_logits` follows."""

    @classmethod
    def facts(cls) -> dict[str, str | bool]:
        """The source."""
        return {"source": cls.source}

    @property
    def in_layers(self) -> bool:
        """Whether layers apply them instead of the embedding."""
        return self.applied in ("query_key", "logits")

    @property
    def one_for_all_layers(self) -> bool:
        """Whether all layers of a stack apply them by one module; its parameters count once."""
        return False

    @property
    def factor_of_logits(self) -> float:
        """The factor by which these positions multiply all logits of softmax attention."""
        return 1.0

    def check(self, context: LayerContext) -> None:
        """Refuse a context that these positions do not support.

        Raises:
            ValidationError: From `refusal`, with the path inside this spec.
        """

    @abstractmethod
    def build(self, context: LayerContext) -> nn.Module:
        """Build the module. Its `forward` depends on `applied`; `first` is the position of the first token.

        `embedding`: `forward(x, first=0)` maps [K, B, T, D] to the same. `query_key`: `forward(x, first=0)` maps
        queries or keys [K, B, H, T, d_h] to the same. `logits`: `forward(q, length, first=0)` returns the bias for the
        logits of queries q [K, B, H, T, d_h] and keys at the positions 0 to `length` - 1, broadcastable to [K, B, H, T,
        length].
        """

    @abstractmethod
    def cost(self, context: LayerContext, length: int, *, key_heads: int = 0, pairs: int = 0) -> Cost:
        """Cost of the forward pass over one sequence.

        Args:
            context: Where they are applied; `embedding` positions have rows for `context.context` tokens.
            length: Number of tokens.
            key_heads: Number of heads of keys, for `query_key`; queries have `context.heads`.
            pairs: Number of logits of each head, for `logits`.
        """


Position = Annotated[PositionSpec, OneOf]
