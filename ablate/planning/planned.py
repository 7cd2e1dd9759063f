"""What a plan is made of: variants, trials, and points that make no model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ablate.designs.base import Point
from ablate.roles import TrialRole
from ablate.spec.cost import Cost
from ablate.spec.variant import VariantSpec, trial_key
from ablate.trained.transfer import Transfer


@dataclass(frozen=True, slots=True)
class Variant:
    """A variant of the plan.

    Attributes:
        name: The name of the first point that gave it.
        settings: The settings of that point.
        spec: The full spec.
        hash: Its content hash.
        cost: Forward pass over one sequence of the longest, and the trainable parameters.
        flops: Arithmetic of one whole trial.
        fingerprint: Content hash of its prepared data.
        frozen: Parameters that are not trained.
        start: What it takes from its source; None if it starts from random weights.
        stage: The variant that is trained before it and whose weights it starts from; None if there is none.
        vocabulary: Number of token ids of its data.
        context: Number of tokens in one input.
    """

    name: str
    settings: Mapping[str, str]
    spec: VariantSpec
    hash: str
    cost: Cost
    flops: float
    fingerprint: str
    frozen: int = 0
    start: Transfer | None = None
    stage: Variant | None = None
    vocabulary: int = 0
    context: int = 0


@dataclass(frozen=True, slots=True)
class InvalidPoint:
    """A point that makes no model, and why."""

    point: Point
    reason: str


@dataclass(frozen=True, slots=True)
class Trial:
    """A trial of the plan: a variant, a seed and a role."""

    key: str
    variant: Variant
    seed: int
    role: TrialRole = TrialRole.COMPARISON

    @property
    def stage(self) -> Trial | None:
        """The trial of the same seed whose weights it starts from; None if there is none."""
        before = self.variant.stage
        if before is None:
            return None
        key = trial_key(before.hash, before.fingerprint, self.seed)
        return Trial(key, before, self.seed, TrialRole.STAGE)


def stages_of(trial: Trial) -> Iterator[Trial]:
    """The trials that come before one, the last of them first."""
    before = trial.stage
    while before is not None:
        yield before
        before = before.stage
