"""A study as a study of Optuna, for `optuna-dashboard` and Optuna's plots. What Optuna holds already stays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ablate.analysis.runs import StudyReader
from ablate.errors import StoreError
from ablate.extras import require
from ablate.store.records import CurvePoint, PlannedTrial, StudyRecord, TrialRecord, TrialState, VariantRecord

if TYPE_CHECKING:
    import optuna
    from optuna.distributions import BaseDistribution

KEY, STATE = "key", "state"
"""The user attributes by which a trial is known again."""


def export_optuna(store: StudyReader, name: str, url: str) -> tuple[int, int]:
    """Write the trials of a study that have ended into Optuna's storage.

    Every trial has the settings of its switches and the values of its paths as parameters, the validation losses along
    its curve as intermediate values, and variant, seed and key as user attributes; `role` says what it was
    trained for (comparison, tuning, timing or confirmation). A trial that had failed or was pruned, and has
    finished since, is written as a new trial, because Optuna does not change completed trials.

    Args:
        store: Where the study is.
        name: Of the study, here and there.
        url: Of Optuna's storage, for instance `sqlite:///file.db`.

    Returns:
        How many trials were written, and how many were there already.

    Raises:
        NotFoundError: There is no such study.
        MissingPackageError: Optuna is not installed.
        StoreError: Optuna's storage cannot be written, is a store of ablate's, or holds another study of this name.
    """
    require("search", "an export to Optuna")
    import optuna
    from sqlalchemy.exc import SQLAlchemyError

    study = store.study(name)
    every = (*study.planned, *study.scout_trials, *study.confirm_trials)
    keys = [planned.key for planned in every]
    records, curves = store.trials(keys), store.curves(keys)
    variants = {variant.name: variant for variant in (*study.variants, *study.scout_variants)}
    over = [each for each in every if each.key in records and records[each.key].state is not TrialState.RUNNING]
    distributions = _distributions(study)
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        _check_place(url)
        target = optuna.create_study(
            study_name=name, storage=url, direction=study.objective["direction"], load_if_exists=True
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
        target.set_user_attr("objective", objective)
        made = [
            _trial(study, variants[each.variant], each, records[each.key], curves.get(each.key, ()), distributions)
            for each in over
            if (each.key, records[each.key].state.value) not in known
        ]
        target.set_user_attr("question", study.question)
        target.add_trials(made)
    except (SQLAlchemyError, ImportError, ValueError, RuntimeError) as error:
        raise StoreError(
            "Optuna cannot write there",
            where=url,
            expected="the URL of a database, such as sqlite:///optuna.db",
            got=str(error).strip().splitlines()[0],
        ) from error
    finally:
        optuna.logging.set_verbosity(verbosity)
    return len(made), len(over) - len(made)


def optuna_study(store: StudyReader, name: str, most: int, spell: Callable[[str], str] = str) -> optuna.Study:
    """A study as a study of Optuna in memory, for Optuna's own plots.

    Args:
        store: Where the study is.
        name: Of the study.
        most: Trials that are taken at most, the latest in the order of the design.
        spell: Applied to names of switches and settings, which plots may read as something else.

    Raises:
        NotFoundError: There is no such study.
        MissingPackageError: Optuna is not installed.
    """
    require("search", "a look at a study through Optuna")
    import optuna

    study = store.study(name)
    every = (*study.planned, *study.confirm_trials)
    records = store.trials([planned.key for planned in every])
    over = [each for each in every if each.key in records and records[each.key].state is not TrialState.RUNNING][-most:]
    curves = store.evaluations([each.key for each in over])
    variants, distributions = {variant.name: variant for variant in study.variants}, _distributions(study)
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        target = optuna.create_study(study_name=name, direction=study.objective["direction"])
        for each in over:
            curve = curves.get(each.key, ())
            trial = _trial(study, variants[each.variant], each, records[each.key], curve, distributions)
            target.add_trial(_spelled(trial, spell))
    finally:
        optuna.logging.set_verbosity(verbosity)
    return target


def _spelled(trial: optuna.trial.FrozenTrial, spell: Callable[[str], str]) -> optuna.trial.FrozenTrial:
    """The trial with its texts spelled otherwise."""
    from optuna.distributions import CategoricalDistribution

    def said(value: Any) -> Any:
        return spell(value) if isinstance(value, str) else value

    distributions = {
        spell(name): CategoricalDistribution([said(choice) for choice in one.choices])
        if isinstance(one, CategoricalDistribution)
        else one
        for name, one in trial.distributions.items()
    }
    params = {spell(name): said(value) for name, value in trial.params.items()}
    trial.params, trial.distributions = {}, distributions  # each is checked against the other
    trial.params = params
    trial.set_user_attr("variant", spell(str(trial.user_attrs["variant"])))
    return trial


def _check_place(url: str) -> None:
    """See that no store is taken for Optuna's storage: both have tables `studies` and `alembic_version`."""
    from sqlalchemy import create_engine, inspect
    from sqlalchemy.pool import NullPool

    with create_engine(url, poolclass=NullPool).connect() as connection:
        if inspect(connection).has_table("study_trials"):
            raise StoreError(
                "this is a store of ablate's, not a place for Optuna's",
                where=url,
                remedy="Name another file with --optuna.",
            )


def _trial(
    study: StudyRecord,
    variant: VariantRecord,
    planned: PlannedTrial,
    record: TrialRecord,
    curve: tuple[CurvePoint, ...],
    distributions: dict[str, BaseDistribution],
) -> optuna.trial.FrozenTrial:
    import optuna

    states = {
        TrialState.FINISHED: optuna.trial.TrialState.COMPLETE,
        TrialState.PRUNED: optuna.trial.TrialState.PRUNED,
    }
    params = {
        name: _value(text) if name not in study.space["switches"] else text for name, text in variant.settings.items()
    }
    trial = optuna.trial.create_trial(
        state=states.get(record.state, optuna.trial.TrialState.FAIL),
        value=record.metrics.get(study.objective["metric"]) if record.state is TrialState.FINISHED else None,
        params=params,
        distributions={name: distributions[name] for name in params},
        intermediate_values={point.step: point.val_loss for point in curve if point.val_loss is not None},
        user_attrs={
            KEY: record.key,
            "variant": variant.name,
            "seed": record.seed,
            STATE: record.state.value,
            "role": planned.role.value,
            "reason": record.reason[:500],
            **record.metrics,
        },
    )
    trial.datetime_start, trial.datetime_complete = (
        None if at is None else at.astimezone().replace(tzinfo=None) for at in (record.started_at, record.finished_at)
    )
    return trial


def _distributions(study: StudyRecord) -> dict[str, BaseDistribution]:
    """A switch is a choice of its settings, a path that was searched a range, any other path a choice of its values."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    distributions: dict[str, Any] = {
        switch: CategoricalDistribution(list(settings)) for switch, settings in study.space["switches"].items()
    }
    for path, range_ in study.space["design"].get("ranges", {}).items():
        if not isinstance(range_, Mapping):  # a population's: its least and greatest value
            range_ = dict(zip(("low", "high"), range_, strict=True)) | {"log": True}
        kind = IntDistribution if all(isinstance(range_[end], int) for end in ("low", "high")) else FloatDistribution
        distributions[path] = kind(range_["low"], range_["high"], log=range_.get("log", False))
    values: dict[str, dict[Any, None]] = {}
    for variant in (*study.variants, *study.scout_variants):
        for path, text in variant.settings.items():
            if path not in distributions:
                values.setdefault(path, {})[_value(text)] = None
    return distributions | {path: CategoricalDistribution(list(choices)) for path, choices in values.items()}


def _value(text: str) -> Any:
    """The value of a path; a study stores it as text."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
