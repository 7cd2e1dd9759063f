"""What a study declared otherwise after it had results, and what its answer says about that.

A verdict holds its error rate if margin, seeds, variants and training were fixed before results. Whoever changes them
afterwards has looked once more, and may have kept the look that pleased. Trials that another version of a user's kind
trained, and that the user accepted all the same, are such a change too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any

from ablate.analysis.numbers import listed, plural
from ablate.analysis.runs import StudyReader
from ablate.analysis.warnings import StudyWarning
from ablate.spec.code import code_changes
from ablate.stats import ExtendedSeeds, SeedPlan
from ablate.stats.schedule import ERROR
from ablate.store.records import Declaration, StudyRecord

MOST_CHANGES = 6
"""Changes that a sentence names; of more only the number is given."""
NAMED_BY_USERS = frozenset(
    {"evaluate_at", "exceptions", "parameters", "ranges", "rename", "sources", "stage", "tasks", "trivial", "when"}
)
"""Fields of specs that map names of the user's own to values, so that any key may be absent."""
LEFT_OUT = frozenset(
    {
        "batch_growth",
        "compile",
        "context_growth",
        "evaluate_at",
        "freeze",
        "from_zero",
        "init_from",
        "insides",
        "population",
        "rounded_bits",
        "task",
        "warmup_steps",
    }
)
"""Fields that a space is written without while they are at their default."""


@dataclass(frozen=True, slots=True)
class DeclaredChange:
    """One thing that was declared otherwise.

    Attributes:
        path: `objective.margin`, `design.first_seed`, `training.steps`, `claims`, `variants`.
        before: What it was; None if there was none.
        after: What replaced it; None if nothing did.
        words: What it was, as a clause.
    """

    path: str
    before: Any
    after: Any
    words: str


@dataclass(frozen=True, slots=True)
class Redeclaration:
    """Changes of a study that were made together, when results were visible.

    Attributes:
        until: When they were made.
        finished: How many trials had finished by then.
        changes: What was changed.
        dropped: Variants that have been left out since, to how many of their trials had finished.
    """

    until: datetime
    finished: int
    changes: tuple[DeclaredChange, ...]
    dropped: dict[str, int]


def redeclarations(record: StudyRecord) -> tuple[Redeclaration, ...]:
    """What was changed after results, oldest first."""
    now = Declaration(
        record.objective,
        record.space.get("claims", []),
        record.updated_at,
        0,
        space=record.space,
        variants=Counter(variant.name for variant in record.variants if not variant.chosen),
        confirm=len({planned.seed for planned in record.confirm_trials}),
    )
    made = (_redeclaration(before, after) for before, after in pairwise([*record.declared_before, now]))
    return tuple(one for one in made if one.changes)


def dropped_variants(record: StudyRecord) -> tuple[str, ...]:
    """Variants that were compared, had results, and are not in the study any more."""
    names = {variant.name for variant in record.variants}
    before = [name for earlier in record.declared_before for name, finished in earlier.variants.items() if finished > 1]
    return tuple(name for name in dict.fromkeys(before) if name not in names)


def declared_otherwise(made: Sequence[Redeclaration]) -> Iterator[str]:
    """A sentence for every redeclaration; one of seeds alone has a sentence of its own (`seeds_added`)."""
    for redeclared in made:
        clauses = [change.words for change in redeclared.changes if change.words]
        if not clauses:
            continue
        if more := len(clauses[MOST_CHANGES:]):
            clauses[MOST_CHANGES:] = [f"{more} more {'setting was' if more == 1 else 'settings were'} different"]
        yield (
            f"Until {redeclared.until:%Y-%m-%d %H:%M} UTC, when {plural(redeclared.finished, 'trial')} had finished, "
            f"{' and '.join(clauses)}. Results that were visible before a declaration cannot test it."
        )


def seeds_added(schedule: SeedPlan | None, what: str = "seeds") -> Iterator[str]:
    """A sentence if the seeds of a study were changed after results could be seen, with what that costs."""
    if isinstance(schedule, ExtendedSeeds):
        plans = [
            str(seeds) if isinstance(seeds, int) else f"{seeds.start} to {seeds.max}" for seeds in schedule.declared
        ]
        rate = 100 * (ERROR + schedule.added_error)
        yield (
            f"The number of {what} was changed after results were visible: {', then '.join(plans)}. The first number "
            "used the whole error rate of 5 %, so later looks have wider bounds, and the error rate of a verdict over "
            f"all looks is at most {rate:.4g} %."
        )


def seed_sets_read(record: StudyRecord) -> Iterator[str]:
    """A sentence if several sets of seeds were read one after the other, each with the whole error rate."""
    before = [
        _first_seed(earlier.space)
        for earlier in record.declared_before
        if earlier.pairs is not None and earlier.pairs > 1
    ]
    sets = list(dict.fromkeys([*before, _first_seed(record.space)]))
    if len(sets) > 1:
        yield (
            f"{len(sets)} sets of seeds were read one after the other (from seed {listed(map(str, sets))} on). Each "
            f"has the whole error rate of 5 %: a verdict that came out of any of them is wrong in up to "
            f"{_percent(len(sets))} of cases."
        )


def read_elsewhere(record: StudyRecord, decided: bool) -> Iterator[StudyWarning]:
    """Warnings on other studies of the store, if this one has a verdict.

    Args:
        decided: Whether any of its verdicts is decided.
    """
    if not decided:
        return
    if record.shared:
        names = tuple(dict.fromkeys(name for sharing in record.shared for name in sharing.variants))
        studies = [f"`{sharing.study}`" for sharing in record.shared]
        full = (
            f"The trials of {listed(names)} and of the baseline were compared before in the "
            f"{'study' if len(studies) == 1 else 'studies'} {listed(studies)}. A verdict that came out of any of these "
            f"{len(studies) + 1} readings is wrong in up to {_percent(len(studies) + 1)} of cases."
        )
        yield StudyWarning("elsewhere", "weak", "", full, names)
    if record.studies > 1:
        chance = 100 * (1 - (1 - ERROR) ** record.studies)
        full = (
            f"This store holds {record.studies} studies with results. Each verdict is wrong in at most 5 % of cases; "
            f"if each study has one, some verdict among them is wrong with a chance of up to {chance:.0f} %."
        )
        yield StudyWarning("elsewhere", "weak", "", full)


def _percent(looks: int) -> str:
    return f"{min(100.0, 100 * ERROR * looks):.3g} %"


def _first_seed(space: Mapping[str, Any]) -> int:
    return int(space.get("design", {}).get("first_seed", 0))


def _redeclaration(before: Declaration, after: Declaration) -> Redeclaration:
    changes = list(_objective_changes(before.objective, after.objective))
    if _without_texts(before.claims) != _without_texts(after.claims):
        words = "the claims were different" if before.claims else "there were no claims"
        changes.append(DeclaredChange("claims", before.claims, after.claims, words))
    dropped: dict[str, int] = {}
    if before.space and after.space:
        changes += _design_changes(before.space.get("design", {}), after.space.get("design", {}))
        changes += _tuning_changes(before.space.get("tune"), after.space.get("tune"))
        if (was := before.space.get("tuned") or {}) != (now := after.space.get("tuned") or {}):
            changes.append(DeclaredChange("tuned", was, now, f"`tuned` was {_short(was)}"))
        for root in ("task", "tasks", "aggregate", "model", "training", "trainer", "match", "budgets"):
            changes += _leaf_changes(root, before.space.get(root), after.space.get(root))
        changes += _switch_changes(before.space, after.space)
        dropped = {name: finished for name, finished in before.variants.items() if name not in after.variants}
        changes += _variant_changes(before.variants, after.variants, dropped)
    for name, trials in (("code", before.other_code), ("data", before.other_data)):
        if trials:
            words = f"{plural(trials, 'trial')} had been trained with other {name}"
            changes.append(DeclaredChange(name, trials, None, words))
    if before.confirmed > 1 and after.confirm != before.confirm:
        changes.append(DeclaredChange("design.confirm", before.confirm, after.confirm, ""))
    return Redeclaration(before.until, before.finished, tuple(changes), dropped)


def _objective_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[DeclaredChange]:
    for name, value in before.items():
        if value != after.get(name):
            yield DeclaredChange(f"objective.{name}", value, after.get(name), f"the {name} was {value}")


def _design_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[DeclaredChange]:
    """Seeds have no words: `seeds_added` says what they cost. So does `confirm`."""
    if before.get("kind") != after.get("kind"):
        yield DeclaredChange(
            "design.kind", before.get("kind"), after.get("kind"), f"the design was {before.get('kind')}"
        )
        return
    for name in (name for name in before if name in after):
        if before[name] == after[name] or name == "confirm":
            continue
        words = "" if name == "seeds" else f"`design.{name}` was {_short(before[name])}"
        yield DeclaredChange(f"design.{name}", before[name], after[name], words)


def _tuning_changes(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> Iterator[DeclaredChange]:
    if before is None:
        if after is not None:
            yield DeclaredChange("tune", None, after, "nothing was tuned")
        return
    grid, later = before["grid"], {} if after is None else after["grid"]
    for path in dict.fromkeys([*grid, *later]):
        was, now = grid.get(path), later.get(path)
        if was != now:
            words = "not tuned" if was is None else f"tuned over {', '.join(map(str, was))}"
            yield DeclaredChange(f"tune.grid.{path}", was, now, f"`{path}` was {words}")
    if after is not None and before["seeds"] != after["seeds"]:
        words = f"each value was tuned with {plural(before['seeds'], 'seed')}"
        yield DeclaredChange("tune.seeds", before["seeds"], after["seeds"], words)


def _switch_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[DeclaredChange]:
    """Settings and variants of one name that set other values; those that were added or left out change the variants
    that are compared.
    """
    ours, theirs = _without_texts(before), _without_texts(after)
    for switch, settings in ours.get("switches", {}).items():
        now = theirs.get("switches", {}).get(switch, {})
        for setting in (setting for setting in settings if setting in now and settings[setting] != now[setting]):
            words = f"`{switch}={setting}` set other values"
            yield DeclaredChange(f"switches.{switch}.{setting}", settings[setting], now[setting], words)
    named = theirs.get("variants", {})
    for name, was in ours.get("variants", {}).items():
        if name in named and named[name] != was:
            yield DeclaredChange(f"variants.{name}", was, named[name], f"`{name}` set other values")


_TEXTS = ("removes", "replaces", "says", "source")


def _without_texts(declared: Any) -> Any:
    """What is declared, without the keys that only describe it."""
    if isinstance(declared, dict):
        return {key: _without_texts(value) for key, value in declared.items() if key not in _TEXTS}
    return [_without_texts(value) for value in declared] if isinstance(declared, list | tuple) else declared


def _variant_changes(
    before: Mapping[str, int], named: Iterable[str], dropped: Mapping[str, int]
) -> Iterator[DeclaredChange]:
    if seen := {name: finished for name, finished in dropped.items() if finished}:
        words = [f"{name} ({plural(finished, 'trial')} finished)" for name, finished in seen.items()]
        was = "was" if len(seen) == 1 else "were"
        yield DeclaredChange("variants", list(seen), None, f"{listed(words)} {was} compared too")
    if before and (added := [name for name in named if name not in before]):
        was = "was" if len(added) == 1 else "were"
        yield DeclaredChange("variants", None, added, f"{listed(added)} {was} not compared yet")


def _leaf_changes(path: str, before: Any, after: Any) -> Iterator[DeclaredChange]:
    """Values of spec paths that differ. A key that one of two versions of ablate does not know is not a change."""
    if isinstance(before, dict) and isinstance(after, dict):
        if before.get("kind") == after.get("kind"):
            named_by_user = path.rpartition(".")[2] in NAMED_BY_USERS
            for key in dict.fromkeys([*before, *after]):
                if (key in before and key in after) or named_by_user or key in LEFT_OUT:
                    yield from _leaf_changes(f"{path}.{key}", before.get(key), after.get(key))
            return
        yield DeclaredChange(path, before, after, f"`{path}` was {before.get('kind')}")
    elif before != after and not (before in (None, [], {}) and after in (None, [], {})):
        yield DeclaredChange(path, before, after, f"`{path}` was {_short(before)}")


def _short(value: Any) -> str:
    if value in (None, [], {}):
        return "not set"
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return "different" if isinstance(value, dict) or len(text) > 40 else text


def changed_code(store: StudyReader, record: StudyRecord) -> Iterator[str]:
    """A sentence for every kind whose code has changed between trials of a study and their plan."""
    planned = {
        trial.key: trial.code for trial in (*record.planned, *record.confirm_trials, *record.scout_trials) if trial.code
    }
    if not planned:
        return
    trained = {key: trial.code for key, trial in store.trials([*planned]).items() if trial.code != planned[key]}
    contents = store.codes([*trained.values(), *(planned[key] for key in trained)])
    counts: Counter[tuple[str, str]] = Counter()
    for key, code in trained.items():
        for change in code_changes(contents.get(code, {}), contents.get(planned[key], {})):
            counts[change.kind, change.what] += 1
    for (kind, what), trials in counts.items():
        yield (
            f"{plural(trials, 'trial')} {'was' if trials == 1 else 'were'} trained with another version of {kind} "
            f"({what}) and reused, because --accept-changed-code was given: the code as it is may give other numbers."
        )
