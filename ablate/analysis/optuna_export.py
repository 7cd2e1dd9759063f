"""A study as a study of Optuna, for `optuna-dashboard` and Optuna's plots. What Optuna holds already stays."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ablate.analysis.runs import StudyReader
from ablate.analysis.slices import switch_settings, varied_values
from ablate.errors import ArgumentError, StoreError
from ablate.extras import require
from ablate.portable_names import NameRule, is_character, portable_name
from ablate.roles import TrialRole
from ablate.store.records import CurvePoint, PlannedTrial, StudyRecord, TrialRecord, TrialState, VariantRecord

if TYPE_CHECKING:
    import optuna
    from optuna.distributions import BaseDistribution
    from optuna.storages import RDBStorage

KEY, STATE = "key", "state"
"""The user attributes by which a trial is known again."""
ROLE = "trial role"
"""The parameter that says what a trial was trained for. No switch has this name: those are single words."""
PARAMETER = NameRule(is_character, 512)
"""The name of a parameter: its column in a database holds so many characters."""
_LONGEST_TEXT = NameRule(is_character, 500)

Distributions = Mapping[str, "BaseDistribution"]


def export_optuna(store: StudyReader, name: str, url: str) -> tuple[int, int]:
    """Write the trials of a study that have ended into Optuna's storage.

    Whatever the study varied is a parameter of every trial: the settings of its switches, the values of paths that were
    swept, searched, tuned, matched or lengthened, and the role (comparison, tuning, timing or confirmation). The
    validation losses along its curve are intermediate values; variant, seed and key are user attributes. A trial that
    had failed or was pruned, and has finished since, is written as a new trial, because Optuna does not change
    completed trials.

    Args:
        store: Where the study is.
        name: Of the study, here and there.
        url: Of Optuna's storage, for instance `sqlite:///file.db`.

    Returns:
        How many trials were written, and how many were there already.

    Raises:
        NotFoundError: There is no such study.
        MissingPackageError: Optuna is not installed.
        ArgumentError: The URL is that of no database.
        StoreError: The study was judged; or Optuna's storage cannot be written, is a store of ablate's, holds another
            study of this name, or holds this study with other choices of a parameter.
    """
    require("search", "an export to Optuna")
    import optuna

    study = store.study(name)
    if study.judged is not None:
        raise StoreError(
            "this study was judged, not trained here: it has no parameters for Optuna",
            where=f"study {name}",
            remedy="Export its data: `ablate report STUDY --format csv`.",
        )
    every = (*study.planned, *study.scout_trials, *study.confirm_trials)
    keys = [planned.key for planned in every]
    records, curves = store.trials(keys), store.curves(keys)
    over = [trial for trial in every if trial.key in records and _has_ended(records[trial.key])]
    with _quiet(), _storage(url) as storage:
        target = optuna.create_study(
            study_name=name, storage=storage, direction=study.objective["direction"], load_if_exists=True
        )
        there = target.get_trials(deepcopy=False)
        known = {(trial.user_attrs.get(KEY), trial.user_attrs.get(STATE)) for trial in there}
        objective = {name: study.objective[name] for name in ("metric", "direction")}
        if any(key is None for key, _ in known) or (there and target.user_attrs.get("objective") != objective):
            raise StoreError(
                f"Optuna's storage holds another study {name!r}",
                where=url,
                expected=f"trials of ablate's whose {objective['metric']} is to be {objective['direction']}d",
                remedy="Name another file with --optuna.",
            )
        new = [trial for trial in over if (trial.key, records[trial.key].state.value) not in known]
        made = _trials(study, new, records, curves, _of_storage(there))
        for trial in made:
            _check_choices(trial, _of_storage(there), url)
        target.set_user_attr("objective", objective)
        target.set_user_attr("question", study.question)
        target.add_trials(made)
    return len(made), len(over) - len(made)


def _has_ended(trial: TrialRecord) -> bool:
    """Whether a trial has a result: it neither waits, as one whose driver died does, nor is unreadable."""
    return not (trial.state.is_open or trial.unreadable)


@contextmanager
def _quiet() -> Iterator[None]:
    """Optuna without its messages."""
    import optuna

    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(verbosity)


@contextmanager
def _storage(url: str) -> Iterator[RDBStorage]:
    """Optuna's storage, open within the context.

    Raises:
        ArgumentError: The URL is that of no database.
        StoreError: It cannot be opened or written, or is a store of ablate's: both have tables `studies` and
            `alembic_version`.
    """
    from optuna.exceptions import OptunaError
    from optuna.storages import RDBStorage
    from sqlalchemy import create_engine, inspect
    from sqlalchemy.exc import ArgumentError as NoUrlError
    from sqlalchemy.exc import SQLAlchemyError
    from sqlalchemy.pool import NullPool

    problem = "Optuna cannot write there"
    try:
        with create_engine(url, poolclass=NullPool).connect() as connection:
            if inspect(connection).has_table("study_trials"):
                raise StoreError(
                    "this is a store of ablate's, not a place for Optuna's",
                    where=url,
                    remedy="Name another file with --optuna.",
                )
        storage = RDBStorage(url, engine_kwargs={"poolclass": NullPool})
        try:
            yield storage
        finally:
            storage.remove_session()
            storage.engine.dispose()
    except NoUrlError as error:  # also of a database that SQLAlchemy does not know
        expected = "the URL of a database, such as sqlite:///optuna.db"
        raise ArgumentError(problem, where=url, expected=expected, got=_first_line(error)) from error
    except ImportError as error:
        remedy = "Install the driver of this database, or name a file: sqlite:///optuna.db."
        raise StoreError(problem, where=url, got=_first_line(error), remedy=remedy) from error
    except (SQLAlchemyError, OptunaError) as error:
        raise StoreError(problem, where=url, got=_first_line(error)) from error
    except (ValueError, RuntimeError) as error:  # what Optuna says of its own tables, or of trials
        remedy = "The store of ablate is unharmed; another file, named with --optuna, takes all trials."
        raise StoreError("Optuna refuses these trials", where=url, got=_first_line(error), remedy=remedy) from error


def _first_line(error: BaseException) -> str:
    """What a library says, shorter."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _of_storage(there: Sequence[optuna.trial.FrozenTrial]) -> dict[str, BaseDistribution]:
    """The distribution with which a storage holds each parameter."""
    return {name: distribution for trial in there for name, distribution in trial.distributions.items()}


def _check_choices(trial: optuna.trial.FrozenTrial, held: Distributions, url: str) -> None:
    """Refuse a trial with a choice that a storage has not had from its first trial on.

    Raises:
        StoreError: Optuna would refuse it.
    """
    from optuna.distributions import CategoricalDistribution, check_distribution_compatibility

    for name, distribution in trial.distributions.items():
        before = held.get(name, distribution)
        try:
            check_distribution_compatibility(before, distribution)
        except ValueError:
            said = ", ".join(map(str, before.choices)) if isinstance(before, CategoricalDistribution) else f"{before!r}"
            raise StoreError(
                f"the choices of `{name}` have changed since the first export, and Optuna cannot change them",
                where=url,
                expected=said,
                got=str(trial.params[name]),
                remedy="Name another file with --optuna, which then takes all trials; this one keeps those it has.",
            ) from None


def _trials(
    study: StudyRecord,
    planned: Sequence[PlannedTrial],
    records: Mapping[str, TrialRecord],
    curves: Mapping[str, tuple[CurvePoint, ...]],
    held: Distributions,
) -> list[optuna.trial.FrozenTrial]:
    """Trials as Optuna holds them; a parameter keeps the distribution that a storage holds if it has the value."""
    variants = {variant.name: variant for variant in (*study.variants, *study.scout_variants)}
    values = {name: _parameters(study, variant) for name, variant in variants.items()}
    distributions = _distributions(study, values)
    trials = []
    for trial in planned:
        params = values[trial.variant] | {ROLE: trial.role.value}
        given = {
            name: held[name] if name in held and _has(held[name], value) else distributions[name]
            for name, value in params.items()
        }
        trials.append(_trial(study, trial, records[trial.key], curves.get(trial.key, ()), params, given))
    return trials


def _has(distribution: BaseDistribution, value: Any) -> bool:
    try:
        return bool(distribution._contains(distribution.to_internal_repr(value)))
    except ValueError:
        return False


def _trial(
    study: StudyRecord,
    planned: PlannedTrial,
    record: TrialRecord,
    curve: tuple[CurvePoint, ...],
    params: Mapping[str, Any],
    distributions: Distributions,
) -> optuna.trial.FrozenTrial:
    import optuna

    states = {
        TrialState.FINISHED: optuna.trial.TrialState.COMPLETE,
        TrialState.PRUNED: optuna.trial.TrialState.PRUNED,
    }
    trial = optuna.trial.create_trial(
        state=states.get(record.state, optuna.trial.TrialState.FAIL),
        value=record.metrics.get(study.objective["metric"]) if record.state is TrialState.FINISHED else None,
        params=dict(params),
        distributions=dict(distributions),
        intermediate_values={point.step: point.val_loss for point in curve if point.val_loss is not None},
        user_attrs={
            **record.metrics,
            KEY: record.key,
            "variant": planned.variant,
            "seed": record.seed,
            STATE: record.state.value,
            "role": planned.role.value,
            "reason": record.reason[:500],
        },
    )
    if record.started_at is not None and record.finished_at is not None:
        trial.datetime_start, trial.datetime_complete = (
            at.astimezone().replace(tzinfo=None) for at in (record.started_at, record.finished_at)
        )
    return trial


def _parameters(study: StudyRecord, variant: VariantRecord) -> dict[str, Any]:
    """Every parameter of a variant by name."""
    switches = {
        portable_name(switch, PARAMETER): portable_name(setting, _LONGEST_TEXT)
        for switch, setting in switch_settings(study, variant).items()
    }
    values = {
        portable_name(f"{path} (path)" if path in switches else path, PARAMETER): _scalar(value)
        for path, value in varied_values(study, variant).items()
    }
    return switches | values


def _scalar(value: Any) -> Any:
    """A value as Optuna takes it: a part of a spec as its JSON."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return portable_name(value, _LONGEST_TEXT) if isinstance(value, str) else value
    return portable_name(json.dumps(value, sort_keys=True), _LONGEST_TEXT)


def _distributions(study: StudyRecord, values: Mapping[str, Mapping[str, Any]]) -> dict[str, BaseDistribution]:
    """A switch is a choice of its settings, a path a range if its values are numbers, else a choice of its values."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    found: dict[str, dict[Any, None]] = {}
    for switch, settings in study.space["switches"].items():
        found[portable_name(switch, PARAMETER)] = {portable_name(setting, _LONGEST_TEXT): None for setting in settings}
    for params in values.values():
        for name, value in params.items():
            found.setdefault(name, {})[value] = None
    ranges = study.space["design"].get("ranges", {})
    distributions: dict[str, BaseDistribution] = {ROLE: CategoricalDistribution([role.value for role in TrialRole])}
    for name, choices in found.items():
        kinds = {type(value) for value in choices}
        if name in ranges:
            distributions[name] = _searched_distribution(ranges[name], choices)
        elif kinds == {int}:
            distributions[name] = IntDistribution(min(choices), max(choices))
        elif kinds <= {int, float}:
            distributions[name] = FloatDistribution(min(choices), max(choices))
        else:
            distributions[name] = CategoricalDistribution([False, True] if kinds == {bool} else list(choices))
    return distributions


def _searched_distribution(range_: Any, values: Iterable[Any]) -> BaseDistribution:
    """The distribution of a path that was searched, wide enough for the baseline's value, which nobody drew.

    A population's range is its least and greatest value.
    """
    from optuna.distributions import FloatDistribution, IntDistribution

    if not isinstance(range_, Mapping):
        range_ = dict(zip(("low", "high"), range_, strict=True)) | {"log": True}
    ends = range_["low"], range_["high"]
    every = [*ends, *(value for value in values if isinstance(value, (int, float)))]
    whole = all(isinstance(end, int) for end in ends) and all(value == int(value) for value in every)
    kind, least = (IntDistribution, 1) if whole else (FloatDistribution, sys.float_info.min)
    return kind(min(every), max(every), log=range_.get("log", False) and min(every) >= least)
