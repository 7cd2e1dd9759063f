"""Variants, trials or space files side by side: what differs in spec, environment and result."""

from __future__ import annotations

import difflib
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from ablate.errors import NotFoundError
from ablate.spec.paths import leaves
from ablate.spec.reading import load_space
from ablate.stats import Interval, PairedDifference, mean_interval, paired_difference, unpaired_difference
from ablate.store import Store, TrialRecord, TrialState, open_store
from ablate.store.records import Environment

_SPACE_SUFFIXES = (".yaml", ".yml")
_TWO_SIDES = ("left", "right")


@dataclass(frozen=True, slots=True)
class Difference:
    """A dotted path whose value is not the same on all sides.

    Attributes:
        path: Where.
        values: Number of a side, from 0 on, to its value; a side that has no such path is left out.
    """

    path: str
    values: dict[int, Any]


def differences(*sides: Mapping[str, Any]) -> tuple[Difference, ...]:
    """Where nested mappings differ, in the order of the first, then of the second, and so on.

    A path that is missing equals one that is null.
    """
    flat = [leaves(side) for side in sides]
    differing = []
    for path in dict.fromkeys(path for side in flat for path in side):
        if any(one.get(path) != other.get(path) for one, other in pairwise(flat)):
            differing.append(Difference(path, {number: side[path] for number, side in enumerate(flat) if path in side}))
    return tuple(differing)


def environment_differences(*sides: Iterable[Environment]) -> tuple[Difference, ...]:
    """What differs between the places where the trials of each side ran, whatever command ran them.

    A side whose own places differ has all its values in a list.
    """
    return differences(*map(_merge, sides))


def _merge(environments: Iterable[Environment]) -> dict[str, Any]:
    """Path to value of some places, the command left out; to a list of values where they differ."""
    values: dict[str, list[Any]] = {}
    for environment in environments:
        for path, value in leaves(asdict(environment)).items():
            if path != "command" and value not in values.setdefault(path, []):
                values[path].append(value)
    return {path: found[0] if len(found) == 1 else sorted(found, key=str) for path, found in values.items()}


@dataclass(frozen=True, slots=True)
class Side:
    """One of the things that are compared.

    Attributes:
        name: As the user named it.
        kind: `variant`, `trial` or `space`.
        spec: The full spec as plain JSON; of a space, that of its baseline.
        space: The whole space as plain JSON; None for variants and trials.
        variant: Name of the variant; empty if no study has it any more.
        parameters: Trainable parameters; None for a space, of which no model is built.
        trials: Seed to trial.
        is_paired: Whether its seeds are those of the other side; not so for judged runs that share nothing.
        units: Of judged runs, seed to the name of the seed, task ... that it stands for.
    """

    name: str
    kind: str
    spec: dict[str, Any]
    space: dict[str, Any] | None = None
    variant: str = ""
    parameters: int | None = None
    trials: dict[int, TrialRecord] = field(default_factory=dict)
    is_paired: bool = True
    units: Mapping[int, str] = field(default_factory=dict)

    @property
    def states(self) -> dict[str, int]:
        """State to how many of the trials are in it."""
        return dict(Counter(trial.state.value for trial in self.trials.values()))

    def measures(self) -> dict[str, dict[int, float]]:
        """Metric to its value by seed; of finished trials, where it is a number."""
        by_name: dict[str, dict[int, float]] = {}
        for seed, trial in self.trials.items():
            if trial.state is TrialState.FINISHED:
                for name, value in trial.metrics.items():
                    if math.isfinite(value):
                        by_name.setdefault(name, {})[seed] = value
        return by_name


@dataclass(frozen=True, slots=True)
class Comparison:
    """Sides, in the order in which they were named."""

    sides: tuple[Side, ...]

    @property
    def spec(self) -> tuple[Difference, ...]:
        """Spaces are compared whole, anything else by the specs of its variant."""
        spaces = [side.space for side in self.sides if side.space is not None]
        return differences(*(spaces if len(spaces) == len(self.sides) else [side.spec for side in self.sides]))

    @property
    def ran(self) -> bool:
        """Whether all sides have trials, so that there is an environment and a result to compare."""
        return all(side.trials for side in self.sides)

    @property
    def is_paired(self) -> bool:
        """Whether differences are paired by seed; otherwise they are those of two means.

        Pairs need equal seeds, and in judged tables seeds that stand for the same task or window on all sides.
        """
        units = {tuple(side.units.get(seed, str(seed)) for seed in self.seeds) for side in self.sides}
        return len(units) == 1 and all(side.is_paired for side in self.sides)

    @property
    def environment(self) -> tuple[Difference, ...]:
        """What differs between the places where the trials ran."""
        return environment_differences(
            *([trial.environment for trial in side.trials.values() if trial.environment] for side in self.sides)
        )

    @property
    def seeds(self) -> tuple[int, ...]:
        """Seeds whose trials finished on all sides."""
        finished = [
            {seed for seed, trial in side.trials.items() if trial.state is TrialState.FINISHED} for side in self.sides
        ]
        return tuple(sorted(set.intersection(*finished)))

    @property
    def metrics(self) -> tuple[str, ...]:
        """What has been measured on any side."""
        return tuple(dict.fromkeys(metric for side in self.sides for metric in side.measures()))

    @property
    def shared_metrics(self) -> tuple[str, ...]:
        """What has been measured on all sides."""
        measures = [side.measures() for side in self.sides]
        return tuple(metric for metric in self.metrics if all(metric in by_name for by_name in measures))

    def interval(self, side: Side, metric: str) -> Interval:
        """Mean of a metric over the finished trials of a side."""
        return mean_interval(side.measures().get(metric, {}).values())

    def difference(self, side: Side, metric: str) -> PairedDifference:
        """A side minus the first one, over the seeds that both have if they are paired."""
        ours, theirs = side.measures().get(metric, {}), self.sides[0].measures().get(metric, {})
        if self.is_paired:
            return paired_difference(ours, theirs)
        return unpaired_difference([*ours.values()], [*theirs.values()])


def read_comparison(store: Store, names: Sequence[str]) -> Comparison:
    """Read sides, each `STUDY/VARIANT` or the beginning of a trial's key.

    Raises:
        NotFoundError: The store holds nothing of that name, or more than one; the message names the nearest.
    """
    return Comparison(tuple(_stored_side(name, store) for name in names))


def read_diff(left: str, right: str, location: str | Path) -> Comparison:
    """Read two sides, each `STUDY/VARIANT`, the beginning of a trial's key, or a space file.

    Args:
        location: The store; opened only if one of them is not a file.

    Raises:
        NotFoundError: The store holds nothing of that name, or more than one; the message names the nearest.
        SpaceError: A space file is missing or broken.
    """
    names = (left, right)
    if all(map(_is_file, names)):
        return Comparison(tuple(map(_space, names)))
    with open_store(location, create=False) as store:
        return Comparison(tuple(_space(name) if _is_file(name) else _stored_side(name, store) for name in names))


def _is_file(name: str) -> bool:
    return name.endswith(_SPACE_SUFFIXES) or Path(name).is_file()


def _stored_side(name: str, store: Store) -> Side:
    """The variant or trial of a store named by `STUDY/VARIANT`, or by the beginning of a trial's key.

    Raises:
        NotFoundError: Nothing, or more than one thing; the message names the nearest.
    """
    study, slash, variant = name.partition("/")
    if slash:
        return _variant(name, study, variant, store)
    studies = [known.name for known in store.studies()]
    if name not in studies and re.fullmatch(r"[0-9a-f]+", name):
        return _trial(name, store)
    raise _not_found(name, studies, store)


def _space(name: str) -> Side:
    space = load_space(name)
    spec = space.resolve({}).model_dump(mode="json")
    return Side(name, "space", spec, space=space.model_dump(mode="json"))


def _variant(name: str, study: str, variant: str, store: Store) -> Side:
    record = store.study(study)
    known = {candidate.name: candidate for candidate in record.variants}
    if variant not in known:
        near = difflib.get_close_matches(variant, known) or list(known)[:10]
        raise NotFoundError(
            f"study {study!r} has no variant {variant!r}",
            where=store.where,
            expected=f"one of {', '.join(f'{study}/{candidate}' for candidate in near)}",
            remedy=f"`ablate show {study}` shows all its variants.",
        )
    planned = [trial for trial in record.planned if trial.variant == variant]
    trials = store.trials([trial.key for trial in planned])
    variant_record, judged = known[variant], record.judged
    by_seed = {trial.seed: trials[trial.key] for trial in planned if trial.key in trials}
    return Side(
        name,
        "variant",
        variant_record.spec,
        variant=variant,
        parameters=variant_record.parameters,
        trials=by_seed,
        is_paired=record.pairs(variant) or (judged is not None and variant == record.baseline and bool(judged.paired)),
        units={} if judged is None else judged.units,
    )


def _trial(name: str, store: Store) -> Side:
    trial = store.trial(name)
    variant = store.variant(trial.variant_hash)
    by_seed = {trial.seed: trial}
    return Side(name, "trial", variant.spec, variant=variant.name, parameters=variant.parameters, trials=by_seed)


def _not_found(name: str, studies: list[str], store: Store) -> NotFoundError:
    near = difflib.get_close_matches(name, studies)
    example = next((f"{study}/{store.study(study).baseline}" for study in near), "")
    return NotFoundError(
        "a study is not compared as a whole" if name in studies else f"nothing here is called {name!r}",
        where=store.where,
        expected="STUDY/VARIANT, the beginning of a trial's key, or a space file",
        got=repr(name),
        remedy=f"Did you mean `{example}`?" if example else "`ablate list` shows all studies.",
    )
