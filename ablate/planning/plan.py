"""What a study would train: variants, trials, invalid points, and the `Plan` that holds them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ablate.designs.base import Point
from ablate.roles import TrialRole
from ablate.spec.code import Code
from ablate.spec.cost import Cost
from ablate.spec.space import SpaceSpec
from ablate.spec.variant import VariantSpec
from ablate.trained.transfer import Transfer


@dataclass(frozen=True, slots=True)
class Variant:
    """A variant of the plan.

    Attributes:
        name: The name of the first point that gave it.
        cost: Forward pass over one sequence of the longest, and the trainable parameters.
        flops: Arithmetic of one whole trial.
        fingerprint: Content hash of its prepared data.
        frozen: Parameters that are not trained.
        transfer: What it takes from its source; None if it starts from random weights.
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
    transfer: Transfer | None = None
    stage: Variant | None = None
    vocabulary: int = 0
    context: int = 0
    code: Code = Code.unknown


@dataclass(frozen=True, slots=True)
class InvalidPoint:
    """An invalid point, and why."""

    point: Point
    reason: str


@dataclass(frozen=True, slots=True)
class Trial:
    """A trial of the plan.

    Attributes:
        key: Identifies it in the store.
        seed: Of its initial values and batches.
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


@dataclass(frozen=True, slots=True)
class Plan:
    """What a study would train, as far as its design knows before results."""

    space: SpaceSpec
    variants: tuple[Variant, ...]
    trials: tuple[Trial, ...]
    invalid: tuple[InvalidPoint, ...]
    aliases: Mapping[str, str]
    """Point to the name of the variant that it is the same as."""
    same_because: Mapping[str, str]
    """Such a point to the reason."""
    warnings: tuple[str, ...]
    """Warnings of the design and the budget, one line each."""
    scouts: tuple[Variant, ...] = ()
    """Variants that are trained only to tune or time others."""
    declared: frozenset[str] = frozenset()
    """Names of the variants that the design names before any result."""
    later: tuple[Trial, ...] = ()
    """Trials whose settings depend on the results of earlier ones, such as tuning. Their cost is an estimate, and their
    keys are not final."""

    @property
    def built(self) -> tuple[Trial, ...]:
        """The trials whose models ablate builds: none if the user's trainer does."""
        return tuple(trial for trial in self.trials if trial.variant.spec.builds_model)

    @property
    def flops(self) -> float:
        """Arithmetic of all trials."""
        return sum(trial.variant.flops for trial in (*self.trials, *self.later))


def stages_of(trial: Trial) -> Iterator[Trial]:
    """The trials that come before one, the last of them first."""
    before = trial.stage
    while before is not None:
        yield before
        before = before.stage
