"""The contract of a design, driven over small spaces with invented results."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from ablate.contracts.contract import Contract, by_name, round_trips_through_json
from ablate.errors import AblateError
from ablate.spec.design import (
    BASELINE,
    DESIGNS,
    Design,
    DesignContext,
    DesignSpec,
    Point,
    PointCost,
    Proposal,
    SeedsSpec,
)

_MOST = 2000
"""Largest number of proposals of a design over these small spaces; a design that makes more does not terminate."""
_TWO = ("on", "off")
_MIXED = {"a": _TWO, "b": _TWO, "c": ("on", "half", "off"), "d": _TWO}

Landscape = Callable[[Point, int], float | None]


@dataclass(frozen=True, slots=True)
class SpaceContext:
    """A space to work on.

    Attributes:
        switches: Switch to settings, the baseline's first.
        refuses: Whether some combinations are invalid.
    """

    switches: Mapping[str, tuple[str, ...]]
    refuses: bool

    def refusal(self, point: Point) -> str | None:
        """Why a point is invalid."""
        missing = (point.settings["b"], point.settings["d"]) == ("on", "off")
        return "b needs d" if self.refuses and missing else None

    def context(self) -> DesignContext:
        """The context that a design gets."""
        variants = {"bare": {"a": "off", "b": "off"}}
        return DesignContext(self.switches, variants, "minimize", 0.1, self.refusal, _cost, rates="tuned")


def _cost(point: Point) -> PointCost:
    kept = sum(setting == "on" for setting in point.settings.values())
    return PointCost(100 + kept, 1000.0 + 10 * kept)


def _rough(point: Point, seed: int) -> float | None:
    """A result that depends on nothing but the trial; a twentieth diverges."""
    corner = repr((sorted(point.settings.items()), sorted(point.values.items()), seed))
    draw = random.Random(zlib.crc32(corner.encode()))
    return None if draw.random() < 0.05 else draw.gauss(0, 0.05) + 0.04 * seed


def _drive(design: Design, landscape: Landscape = _rough, *, reverse: bool = False) -> list[Proposal]:
    asked: list[Proposal] = []
    while (proposals := design.ask()) and len(asked) < _MOST:
        asked += proposals
        for proposal in reversed(proposals) if reverse else proposals:
            design.tell(proposal.point, proposal.seed, landscape(proposal.point, proposal.seed))
    return asked


def _plain(proposals: list[Proposal]) -> list[tuple[object, ...]]:
    return [(p.point.name, *p.point.settings.items(), *p.point.values.items(), p.seed) for p in proposals]


def proposes_each_trial_once(spec: DesignSpec, context: SpaceContext) -> Iterator[str]:
    """It ends after as many trials as it says at most, and proposes none twice; one name is one point."""
    design = spec.build(context.context())
    first = design.ask()
    planned, further = len(first) + len(design.waiting()), design.further_trials()
    for proposal in first:
        design.tell(proposal.point, proposal.seed, _rough(proposal.point, proposal.seed))
    proposals = [*first, *_drive(design)]
    if not proposals:
        yield "it proposes nothing"
    if further is not None and len(proposals) > planned + further:
        yield f"it proposes {len(proposals)} trials, at first {planned}, and says that at most {further} follow"
    if len(proposals) >= _MOST:
        yield f"it has not ended after {_MOST} proposals"
    corners: dict[str, object] = {}
    for proposal in proposals:
        corner = (dict(proposal.point.settings), dict(proposal.point.values))
        if corners.setdefault(proposal.point.name, corner) != corner:
            yield f"the name {proposal.point.name} is given to two points"
            return
    keys = [(proposal.point.name, proposal.seed) for proposal in proposals]
    if twice := next((key for key in keys if keys.count(key) > 1), None):
        yield f"{twice[0]} is proposed twice with seed {twice[1]}"


def proposes_valid_points(spec: DesignSpec, context: SpaceContext) -> Iterator[str]:
    """A point has one of its settings for every switch, and makes a model."""
    for trial in _drive(spec.build(context.context())):
        point = trial.point
        known = point.settings.keys() == context.switches.keys()
        if not known or any(setting not in context.switches[switch] for switch, setting in point.settings.items()):
            yield f"{point.name} has the settings {dict(point.settings)}"
            return
        if reason := context.refusal(point):
            yield f"{point.name} is invalid ({reason}), and is proposed"
            return


def starts_with_the_baseline(spec: DesignSpec, context: SpaceContext) -> Iterator[str]:
    """What it compares with is its first point, the baseline is among its trials; points have names of their own."""
    names = [point.name for point in spec.build(context.context()).points()]
    if not names or names[0].split("@")[0] != spec.reference:
        yield f"its first point is {names[0] if names else 'missing'}"
    if len(set(names)) != len(names):
        yield "two of its points share a name"
    proposed = {trial.point.name.split("@")[0] for trial in _drive(spec.build(context.context()))}
    if BASELINE not in proposed:
        yield "the baseline is never trained"


def is_deterministic(spec: DesignSpec, context: SpaceContext) -> Iterator[str]:
    """The same results give the same proposals, in whatever order the results of one round come in."""
    once, again, backwards = (
        _plain(_drive(spec.build(context.context()), reverse=reverse)) for reverse in (False, False, True)
    )
    if once != again:
        yield "a second design, told the same results, proposes other trials"
    if once != backwards:
        yield "the next proposals depend on the order in which the results of a round arrive"


def waits_for_results(spec: DesignSpec, context: SpaceContext) -> Iterator[str]:
    """A second call before any result proposes nothing."""
    design = spec.build(context.context())
    design.ask()
    if again := design.ask():
        yield f"it proposes {again[0].point.name} without a result of what it had proposed"


def handles_all_trials_diverging(spec: DesignSpec, context: SpaceContext) -> Iterator[str]:
    """It ends, also when no trial has a result."""
    if len(_drive(spec.build(context.context()), lambda point, seed: None)) >= _MOST:
        yield f"it has not ended after {_MOST} trials that all diverged"


def declares_that_it_chooses(spec: DesignSpec, context: SpaceContext) -> Iterator[str]:
    """Unless it sets `chooses`, results change none of its trials, and `points` names all their points.

    With a schedule of seeds they change how many of the declared seeds a point gets, and nothing else.
    """
    if spec.chooses:
        return
    scheduled = spec.adds_seeds and isinstance(spec.seeds, SeedsSpec)
    remedy = "set `chooses = True`, so that no variant has a verdict from the seeds that chose it"
    driven = [_drive(spec.build(context.context()), landscape) for landscape in (_rough, _rougher, _fewer, _more)]
    asked = [{repr(trial[:-1] if scheduled else trial) for trial in _plain(trials)} for trials in driven]
    if any(trials != asked[0] for trials in asked):
        yield f"results change which {'points' if scheduled else 'trials'} it proposes: {remedy}"
    if scheduled and (other := {trial.seed for trials in driven for trial in trials if not spec.declares(trial.seed)}):
        yield f"it proposes seed {min(other)}, beyond `seeds.max`: {remedy}"
    named = {point.name for point in spec.build(context.context()).points()}
    if later := sorted({trial.point.name for trials in driven for trial in trials} - named):
        yield f"`points` does not name {later[0]}, which it proposes: {remedy}"


def _rougher(point: Point, seed: int) -> float | None:
    """Other results than those of `_rough`."""
    return _rough(point, seed + 1000)


def _fewer(point: Point, seed: int) -> float:
    """The fewer parts are on, the better."""
    return 0.01 * seed + sum(setting == "on" for setting in point.settings.values())


def _more(point: Point, seed: int) -> float:
    """The more parts are on, the better."""
    return 0.01 * seed - sum(setting == "on" for setting in point.settings.values())


def _contexts(spec: DesignSpec) -> list[SpaceContext]:
    spaces = [SpaceContext(_MIXED, refuses=True), SpaceContext(_MIXED, refuses=False)]
    return [
        space for space in (*spaces, SpaceContext(dict.fromkeys("abcd", _TWO), refuses=False)) if _takes(spec, space)
    ]


def _takes(spec: DesignSpec, space: SpaceContext) -> bool:
    try:
        spec.build(space.context())
    except AblateError:
        return False
    return True


def _describe(context: SpaceContext) -> str:
    sizes = " x ".join(str(len(settings)) for settings in context.switches.values())
    return f"switches of {sizes} settings{', some combinations refused' if context.refuses else ''}"


CONTRACT: Contract[DesignSpec, SpaceContext] = Contract(
    family=DESIGNS,
    rules=by_name(
        proposes_each_trial_once,
        proposes_valid_points,
        starts_with_the_baseline,
        is_deterministic,
        waits_for_results,
        handles_all_trials_diverging,
        declares_that_it_chooses,
        round_trips_through_json,
    ),
    contexts=_contexts,
    describe=_describe,
)
