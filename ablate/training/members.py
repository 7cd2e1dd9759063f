"""`Member`: one trial of a pack, as training sees it; `pack_key` says which trials can be members of one pack."""

from __future__ import annotations

from dataclasses import dataclass

from ablate.spec.base import content_hash
from ablate.spec.variant import VariantSpec


@dataclass(frozen=True, slots=True)
class Member:
    """A variant trained with a seed. The members of a pack are of one structure and see the same data."""

    variant: VariantSpec
    seed: int


def pack_key(variant: VariantSpec, fingerprint: str) -> str | None:
    """What trials must share to be trained as one program; None if this one is trained alone.

    Equal keys: one graph, batches of one shape from the same data, evaluated at the same steps. Seeds, learning rates,
    weight decay, clipping, schedules, trainable gains and how projections start may differ.

    Args:
        variant: What is trained.
        fingerprint: Of its prepared data.
    """
    if not variant.model.fusable or variant.training.population is not None:
        return None
    structures = variant.model.structure(), variant.training.structure()
    return content_hash([*structures, variant.task.canonical(), fingerprint])
