"""`Member`: one trial of a pack, as training sees it."""

from __future__ import annotations

from dataclasses import dataclass

from ablate.spec.variant import VariantSpec


@dataclass(frozen=True, slots=True)
class Member:
    """A variant trained with a seed. The members of a pack are of one structure and see the same data."""

    variant: VariantSpec
    seed: int
