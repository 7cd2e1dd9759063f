"""`Member`: one trial of a pack; `pack_key`: which trials can share a pack."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from ablate.spec.base import content_hash
from ablate.spec.variant import VariantSpec


@dataclass(frozen=True, slots=True)
class Member:
    """A trial. The members of a pack have equal structure and the same data.

    Attributes:
        variant: What is trained.
        seed: Of its initial values and batches.
        start: Weights from which it starts, by name, with K = 1; all other tensors have initial values.
    """

    variant: VariantSpec
    seed: int
    start: Mapping[str, Tensor] | None = None


def pack_key(variant: VariantSpec, fingerprint: str) -> str | None:
    """Trials with equal keys can share a pack; None if this trial must be trained alone.

    Equal keys mean the same graph, data, batch shapes and evaluation steps. Seeds, learning rates, weight decay,
    clipping, schedules, trainable gains and initialisation may differ.

    Args:
        variant: The variant.
        fingerprint: Fingerprint of its prepared data.
    """
    training = variant.training
    if not variant.model.fusable or not training.optimizer.pack_aware or training.population is not None:
        return None
    structures = variant.model.structure(), training.structure()
    return content_hash([*structures, variant.task.canonical(), fingerprint])
