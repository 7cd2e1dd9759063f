"""What a study would train: the points of its design, those that are invalid or the same one twice, and its trials.

Trials of the store that other code trained: which of a plan they are, what changed, and whether they count.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from ablate.designs.base import Design, Point
from ablate.planning.starting import Starting
from ablate.roles import TrialRole
from ablate.spec.code import Code, CodeChange, code_changes
from ablate.spec.cost import Cost
from ablate.spec.space import SpaceSpec
from ablate.spec.variant import VariantSpec
from ablate.store.records import SettledTrial
from ablate.trained.transfer import Transfer
from ablate.trained.weights import weights_file

if TYPE_CHECKING:
    from ablate.store import Store

MOST_LOOKED_AT = 2_000
"""Points that are made into variants; to look at all of a large grid takes as long as its plan."""


@dataclass(frozen=True, slots=True)
class CheckedPoints:
    """The points of a design, checked one by one.

    Attributes:
        points: How many are known before results.
        further: Those that follow, in words; empty if none do.
        reasons: Name of an invalid point to the reason.
        same_as: Name of a point to that of the point before it whose variant it is too.
        because: Name of such a point to the reason.
        variants: How many different variants the points that were looked at make.
        missing: What its data lacks; None if nothing is known to be missing.
        warnings: Settings that are probably unintended.
        starts: Name of a point that starts from a source of weights to what it takes from it.
    """

    points: int
    further: str
    missing: str | None
    warnings: tuple[str, ...]
    reasons: Mapping[str, str] = field(default_factory=dict)
    same_as: Mapping[str, str] = field(default_factory=dict)
    variants: int = 0
    starts: Mapping[str, Transfer] = field(default_factory=dict)
    because: Mapping[str, str] = field(default_factory=dict)

    @property
    def without_effect(self) -> tuple[str, ...]:
        """The sentences of `without_effect` about these points; only a limited number of points is checked."""
        variants = self.variants if self.points <= MOST_LOOKED_AT else None
        return tuple(without_effect(self.same_as, variants, self.because))


def check_points(space: SpaceSpec, design: Design, starting: Starting | None = None) -> CheckedPoints:
    """Check the points of a space's design, the first `MOST_LOOKED_AT` of them one by one.

    Args:
        starting: Reads the weights that variants start from; None: they are not looked at.

    Raises:
        AblateError: Weights from which a variant starts are missing or cannot be read.
    """
    points = design.points()
    reasons, names, same_as = dict[str, str](), dict[str, str](), dict[str, str]()
    begun: dict[str, Transfer] = {}
    for point in points[:MOST_LOOKED_AT]:
        spec = _spec_or_reason(space, point, reasons)
        if spec is None:
            continue
        if starting is not None and (made := starting.transfer_without_data(spec)) is not None:
            begun[point.name] = made
        digest = spec.content_hash()
        if names.setdefault(digest, point.name) != point.name:
            same_as[point.name] = names[digest]
    because = reasons_for(space, points, same_as)
    missing = next((lacks for task in space.task_specs.values() if (lacks := task.missing())), None)
    warnings = tuple(space.warnings())
    return CheckedPoints(len(points), design.further(), missing, warnings, reasons, same_as, len(names), begun, because)


def reasons_for(space: SpaceSpec, points: Iterable[Point], same_as: Mapping[str, str]) -> dict[str, str]:
    """Why points are the same variant as others, by name, where both are points of the design."""
    settings = {point.name: point.settings for point in points}
    return {
        name: space.composer.why_same(settings[name], settings[same])
        for name, same in same_as.items()
        if name in settings and same in settings
    }


def without_effect(same_as: Mapping[str, str], variants: int | None, because: Mapping[str, str] = {}) -> Iterable[str]:
    """The points that change nothing, because they are the same variant as another. All commands and pages say it so.

    Args:
        same_as: Name of a point to that of the point before it whose variant it is too.
        variants: How many different variants all points make; None if that is not known.
        because: Name of such a point to the reason, as `reasons_for` gives it.
    """
    if same_as and variants == 1:
        yield (
            "Warning: there is nothing to compare. Every point that makes a model is the same variant as "
            f"{next(iter(same_as.values()))}: no switch changes anything. Let the settings after the first set "
            "other values than `model`, `task` and `training` do."
        )
    for name, same in same_as.items():
        reason = f": {because[name]}" if name in because else ""
        yield f"{name} is the same variant as {same} and is trained once{reason}."


def _spec_or_reason(space: SpaceSpec, point: Point, reasons: dict[str, str]) -> VariantSpec | None:
    """The spec of a point's variant; None, and a line in `reasons`, if it is invalid."""
    try:
        return space.composer.compose(point.settings, {**point.values, **point.tuned})
    except ValidationError as error:
        reasons[point.name] = space.composer.reason(point.settings, error)
        return None


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
    further: int | None = 0
    """The most trials that results can add to these; None: no bound is known."""

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


_CONTENT = slice(32, None)
"""The half of a data fingerprint that says what the prepared files hold; the other half says how they were made."""


@dataclass(frozen=True, slots=True)
class ChangedKind:
    """A kind whose code has changed since it trained trials of the store.

    Attributes:
        trials: How many trials of the plan that concerns.
        accepted: Whether they are reused all the same.
    """

    change: CodeChange
    trials: int
    accepted: bool

    @property
    def sentence(self) -> str:
        """What is done with the trials, for people."""
        one = self.trials == 1
        trained = f"{self.trials:,} trial{' was' if one else 's were'} trained with another version of"
        then = (
            f"{'it is' if one else 'they are'} reused, as --accept-changed-code says"
            if self.accepted
            else f"{'it is' if one else 'they are'} trained again; --accept-changed-code would reuse"
            f" {'it' if one else 'them'}"
        )
        return f"{trained} {self.change.kind} ({self.change.what}): {then}"


class EarlierTrials:
    """Finds trials of the same variant, seed and data that other code has trained.

    Args:
        store: Where trials may be; None if there is no store.
        accept: Whether such a trial takes the place of the one that would be trained.
    """

    def __init__(self, store: Store | None = None, *, accept: bool = False) -> None:
        self._store = store
        self._accept = accept
        self._settled: dict[tuple[str, int], list[SettledTrial]] | None = None
        self._told: set[str] = set()

    def accepted(self, trial: Trial) -> Trial:
        """The trial, in whose place one that other code trained is taken if that is accepted."""
        if not self._accept or not trial.code.identity:
            return trial
        before = self._before(trial)
        if before is None or not _same_data(before.data_fingerprint, trial.variant.fingerprint):
            return trial
        if trial.role is TrialRole.STAGE and not self._has_weights(before.key):
            return trial
        return replace(trial, key=before.key, accepted=self._code(before))

    def changed(self, trials: Iterable[Trial]) -> tuple[ChangedKind, ...]:
        """The kinds whose code has changed since they trained trials of a plan; each trial counts once."""
        counts: Counter[tuple[CodeChange, bool]] = Counter()
        for trial in trials:
            if not trial.code.identity or trial.key in self._told:
                continue
            self._told.add(trial.key)
            before = trial.accepted
            if before is None and (found := self._before(trial)) is not None:
                before = self._code(found)
            if before is not None:
                counts.update(
                    (change, trial.accepted is not None) for change in code_changes(before.content, trial.code.content)
                )
        return tuple(ChangedKind(change, trials, accepted) for (change, accepted), trials in counts.items())

    def _before(self, trial: Trial) -> SettledTrial | None:
        """The last trial that other code trained; None if there is none, or one of this code too."""
        same = self._of(trial)
        if any(before.key == trial.key for before in same):
            return None
        return next((before for before in reversed(same) if before.code != trial.code.identity), None)

    def _of(self, trial: Trial) -> Sequence[SettledTrial]:
        if self._store is None:
            return ()
        if self._settled is None:
            self._settled = defaultdict(list)
            for settled in self._store.settled_trials():
                self._settled[settled.variant_hash, settled.seed].append(settled)
        return self._settled.get((trial.variant.hash, trial.seed), ())

    def _code(self, trial: SettledTrial) -> Code:
        assert self._store is not None, "a trial was found in it"
        return stored_code(self._store.codes([trial.code]), trial.code)

    def _has_weights(self, key: str) -> bool:
        return self._store is not None and Path(weights_file(key, self._store.where)).exists()


def stored_code(codes: Mapping[str, Mapping[str, Any]], identity: str) -> Code:
    """The code of a trial as its store holds it; unknown if an older version of ablate trained it."""
    return Code(codes[identity]) if identity in codes else Code.unknown


def _same_data(before: str, now: str) -> bool:
    """Whether two fingerprints are of the same data; prepared by other code, it may be equal all the same."""
    return before == now or (bool(now[_CONTENT]) and before[_CONTENT] == now[_CONTENT])
