"""What a plan is made of: variants, trials, and points that make no model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ablate.designs.base import Point
from ablate.roles import TrialRole
from ablate.spec.code import Code
from ablate.spec.cost import Cost
from ablate.spec.variant import VariantSpec
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
        code: The code of its kinds, without that of its stage.
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
    code: Code = Code.unknown


@dataclass(frozen=True, slots=True)
class InvalidPoint:
    """A point that makes no model, and why."""

    point: Point
    reason: str


@dataclass(frozen=True, slots=True)
class Trial:
    """A trial of the plan.

    Attributes:
        key: Identifies it in the store.
        variant: What is trained.
        seed: Of its initial values and batches.
        role: What it is for.
        stage: The trial of the same seed whose weights it starts from; None if there is none.
        code: The code that would train it now, with that of its stage.
        accepted: The other code that trained it, if the store holds it and the user accepts that; None if not.
    """

    key: str
    variant: Variant
    seed: int
    role: TrialRole = TrialRole.COMPARISON
    stage: Trial | None = None
    code: Code = Code.unknown
    accepted: Code | None = None

    @property
    def trained_by(self) -> Code:
        """The code that trained it, or will."""
        return self.code if self.accepted is None else self.accepted


def stages_of(trial: Trial) -> Iterator[Trial]:
    """The trials that come before one, the last of them first."""
    before = trial.stage
    while before is not None:
        yield before
        before = before.stage
