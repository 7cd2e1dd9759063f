"""`NormSpec`: the normalisation of a sub-layer. The kinds are in `ablate/kinds/norms/`, one file each."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from ablate.spec.annotations import OneOf
from ablate.spec.base import Family, Kinded
from ablate.spec.cost import Cost

if TYPE_CHECKING:
    from torch import nn

NORMS = Family("norm", package="ablate.kinds.norms", entry_points="ablate.norms")


class NormSpec(Kinded):
    """A norm over the last axis. A final subclass adds `kind`, its fields, `build`, `cost` and `label`."""

    family = NORMS
    default_kind = "rms"
    source: ClassVar[str]
    """Paper and equation."""
    present: ClassVar[bool] = True
    """Whether the part exists; False for `none`."""

    @classmethod
    def facts(cls) -> dict[str, str | bool]:
        """The source."""
        return {"source": cls.source}

    place: Literal["pre", "post", "sandwich", "output"] = "pre"
    """`pre`: before each sub-layer; `post`: after each residual sum (Transformer of 2017); `output`: on what each
    sub-layer gives, before the sum (OLMo 2, arXiv:2501.00656); `sandwich`: before each sub-layer and on what it gives
    (Peri-LN, arXiv:2502.02732; Gemma 2), by two norms."""

    @property
    def before(self) -> bool:
        """Whether there is a norm before the sub-layer."""
        return self.place in ("pre", "sandwich")

    @property
    def on_output(self) -> bool:
        """Whether there is a norm on what the sub-layer gives."""
        return self.place in ("output", "sandwich")

    @abstractmethod
    def build(self, pack: int, width: int) -> nn.Module:
        """Build the module; `forward(x)` maps x [K, ..., width] to the same shape, each vector separately."""

    @abstractmethod
    def cost(self, width: int, length: int) -> Cost:
        """Cost of the forward pass over `length` vectors."""

    @abstractmethod
    def label(self) -> str:
        """Label in drawings."""


Norm = Annotated[NormSpec, OneOf]
