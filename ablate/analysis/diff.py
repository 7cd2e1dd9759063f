"""Two variants, trials or space files side by side: what differs in spec, environment and result."""

from __future__ import annotations

import difflib
import math
import re
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ablate.analysis.differences import Difference, differences, environment_differences
from ablate.errors import NotFoundError
from ablate.spec.reading import load_space
from ablate.stats import Interval, PairedDifference, mean_interval, paired_difference
from ablate.store import Store, TrialRecord, TrialState, open_store

_SPACE_SUFFIXES = (".yaml", ".yml")


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two things that are compared.

    Attributes:
        name: As the user named it.
        kind: `variant`, `trial` or `space`.
        spec: The full spec as plain JSON; of a space, that of its baseline.
        space: The whole space as plain JSON; None for variants and trials.
        variant: Name of the variant; empty if no study has it any more.
        parameters: Trainable parameters; None for a space, of which no model is built.
        trials: Seed to trial.
    """

    name: str
    kind: str
    spec: dict[str, Any]
    space: dict[str, Any] | None = None
    variant: str = ""
    parameters: int | None = None
    trials: dict[int, TrialRecord] = field(default_factory=dict)

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
class Measure:
    """A metric on both sides.

    Attributes:
        left: Mean over all seeds of the left side.
        right: The same of the right side.
        difference: Right minus left, paired over the seeds that both have.
    """

    left: Interval
    right: Interval
    difference: PairedDifference


@dataclass(frozen=True, slots=True)
class Diff:
    """Two sides and what differs."""

    left: Side
    right: Side

    @property
    def spec(self) -> tuple[Difference, ...]:
        """Two spaces are compared whole, anything else by the specs of its variant."""
        if self.left.space is not None and self.right.space is not None:
            return differences(self.left.space, self.right.space)
        return differences(self.left.spec, self.right.spec)

    @property
    def ran(self) -> bool:
        """Whether both sides have trials, so that there is an environment and a result to compare."""
        return bool(self.left.trials and self.right.trials)

    @property
    def environment(self) -> tuple[Difference, ...]:
        """What differs between the places where the trials ran; nothing unless both sides ran."""
        if not self.ran:
            return ()
        places = [
            [trial.environment for trial in side.trials.values() if trial.environment is not None]
            for side in (self.left, self.right)
        ]
        return environment_differences(*places)

    @property
    def seeds(self) -> tuple[int, ...]:
        """Seeds whose trials finished on both sides."""
        finished = [
            {seed for seed, trial in side.trials.items() if trial.state is TrialState.FINISHED}
            for side in (self.left, self.right)
        ]
        return tuple(sorted(finished[0] & finished[1]))

    @property
    def result(self) -> dict[str, Measure]:
        """The metrics that both sides have."""
        left, right = self.left.measures(), self.right.measures()
        return {
            name: Measure(
                mean_interval(left[name].values()),
                mean_interval(right[name].values()),
                paired_difference(right[name], left[name]),
            )
            for name in left
            if name in right
        }


def read_diff(left: str, right: str, location: str | Path) -> Diff:
    """Read two sides, each `STUDY/VARIANT`, the beginning of a trial's key, or a space file.

    Args:
        left: The one.
        right: The other.
        location: The store; opened only if one of them is no file.

    Raises:
        NotFoundError: The store holds nothing of that name, or more than one; the message names the nearest.
        SpaceError: A space file is missing or broken.
    """
    if _is_file(left) and _is_file(right):
        return Diff(_space(left), _space(right))
    with open_store(location, create=False) as store:
        return Diff(_side(left, store), _side(right, store))


def diff_json(diff: Diff) -> dict[str, Any]:
    """A diff as plain JSON data; what `ablate diff A B --json` prints."""
    return {
        "left": _side_json(diff.left),
        "right": _side_json(diff.right),
        "spec": differences_json(diff.spec),
        "environment": differences_json(diff.environment) if diff.ran else None,
        "seeds": list(diff.seeds),
        "result": {
            name: {
                "left": asdict(measure.left),
                "right": asdict(measure.right),
                "difference": {
                    "difference": measure.difference.difference,
                    "low": measure.difference.low,
                    "high": measure.difference.high,
                    "n": measure.difference.n,
                },
            }
            for name, measure in diff.result.items()
        },
    }


def differences_json(changed: tuple[Difference, ...]) -> list[dict[str, Any]]:
    """Differences as plain JSON data: `path`, and `left` and `right` where there is one."""
    return [{"path": difference.path, **difference.values} for difference in changed]


def _side_json(side: Side) -> dict[str, Any]:
    return {
        "name": side.name,
        "kind": side.kind,
        "variant": side.variant or None,
        "parameters": side.parameters,
        "trials": [{"key": trial.key, "seed": seed, "state": trial.state.value} for seed, trial in side.trials.items()],
    }


def _is_file(name: str) -> bool:
    return name.endswith(_SPACE_SUFFIXES) or Path(name).is_file()


def stored_side(name: str, store: Store) -> Side:
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
    raise _unknown(name, studies, store)


def _side(name: str, store: Store) -> Side:
    return _space(name) if _is_file(name) else stored_side(name, store)


def _space(name: str) -> Side:
    space = load_space(name)
    spec = space.resolve({}).model_dump(mode="json")
    return Side(name, "space", spec, space=space.model_dump(mode="json"))


def _variant(name: str, study: str, variant: str, store: Store) -> Side:
    record = store.study(study)
    known = {candidate.name: candidate for candidate in record.variants}
    if variant not in known:
        near = difflib.get_close_matches(variant, known, n=3, cutoff=0.4) or list(known)[:10]
        raise NotFoundError(
            f"study {study!r} has no variant {variant!r}",
            where=store.where,
            expected=f"one of {', '.join(f'{study}/{candidate}' for candidate in near)}",
            remedy=f"`ablate show {study}` shows all its variants.",
        )
    planned = [trial for trial in record.planned if trial.variant == variant]
    trials = store.trials([trial.key for trial in planned])
    variant_record = known[variant]
    by_seed = {trial.seed: trials[trial.key] for trial in planned if trial.key in trials}
    return Side(
        name, "variant", variant_record.spec, variant=variant, parameters=variant_record.parameters, trials=by_seed
    )


def _trial(name: str, store: Store) -> Side:
    trial = store.trial(name)
    variant = store.variant(trial.variant_hash)
    by_seed = {trial.seed: trial}
    return Side(name, "trial", variant.spec, variant=variant.name, parameters=variant.parameters, trials=by_seed)


def _unknown(name: str, studies: list[str], store: Store) -> NotFoundError:
    near = difflib.get_close_matches(name, studies, n=1)
    example = f"{near[0]}/{store.study(near[0]).baseline}" if near else ""
    return NotFoundError(
        "a study is not compared as a whole" if name in studies else f"nothing here is called {name!r}",
        where=store.where,
        expected="STUDY/VARIANT, the beginning of a trial's key, or a space file",
        got=repr(name),
        remedy=f"Did you mean `{example}`?" if example else "`ablate list` shows all studies.",
    )
