"""What commands start from: a space, plugins, a study's record, a trained model."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ablate.analysis import StudyReport
    from ablate.errors import AblateError
    from ablate.spec.space import SpaceSpec
    from ablate.store import Store
    from ablate.trained.decode import Trained


def load_plugins(plugins: list[str] | None) -> None:
    """Make the kinds in these files known."""
    from ablate.plugins import load_plugin

    for plugin in plugins or ():
        load_plugin(plugin)


def load_space(file: str, plugins: list[str] | None, data: str | None = None) -> SpaceSpec:
    """Read a space, with the plugins it needs, and with other data where `data` names some."""
    load_plugins(plugins)
    from ablate.spec.reading import load_space as read_space
    from ablate.spec.reading import plugins_of

    load_plugins(plugins_of(file))
    return read_space(file, data=data)


def load_stored(study: str, store: str, plugins: list[str] | None) -> SpaceSpec:
    """The space that a store keeps of a study, with the plugins it needs."""
    load_plugins(plugins)
    from ablate.spec.reading import stored_space
    from ablate.store import open_store

    with open_store(store, create=False) as opened:
        return stored_space(opened.study(study).space, study)


def changed_by(
    space: SpaceSpec, seeds: str | None, design: str | None, rung: float | None, longer: int | None
) -> SpaceSpec:
    """The space with what `--seeds`, `--design`, `--rung` and `--longer` ask for.

    Raises:
        SpaceError: It does not take them.
    """
    from ablate.spec.reading import with_design, with_longer, with_rung, with_seeds

    space = space if design is None else with_design(space, design)
    space = space if longer is None else with_longer(space, longer)
    space = space if rung is None else with_rung(space, rung)
    return space if seeds is None else with_seeds(space, seeds)


def data_of_trial(store: Store, trial: str, data: str | None) -> AbstractContextManager[None]:
    """Within it the data of a stored trial is read from another place; whether it is the same, who reads it checks."""
    from ablate.tasks.sources import moved

    if data is None:
        return nullcontext()
    address = store.variant(store.trial(trial).variant_hash).spec["task"].get("data")
    if not isinstance(address, str):
        raise _several_sources()
    return moved(address, data)


def _several_sources() -> AblateError:
    from ablate.errors import SpaceError

    remedy = "Restore its sources where they were, or give a space file that names the new places."
    return SpaceError("this does not read its data from one source", where="--data", remedy=remedy)


@contextmanager
def data_of_study(study: str, space: SpaceSpec, data: str | None, store: str, cache: Path | None) -> Iterator[None]:
    """Within it the data of a stored study is read from another place, where its content is found to be the same.

    Args:
        space: As the store keeps it.
        data: Where its data is now; None: where it was.
        cache: Folder of prepared data; None: the user's.

    Raises:
        DataError: The data there is not that of the stored trials.
        SpaceError: The space reads several sources, so that one place does not say which.
    """
    from ablate.errors import DataError
    from ablate.locations import cache_folder
    from ablate.store import open_store
    from ablate.tasks.sources import moved

    if data is None:
        yield
        return
    address = getattr(space.task, "data", None)
    if space.tasks or not isinstance(address, str):
        raise _several_sources()
    with open_store(store, create=False) as opened:
        record = opened.study(study)
        keys = [planned.key for planned in record.planned if planned.variant == record.baseline]
        stored = {trial.data_fingerprint for trial in opened.trials(keys).values()}
    with moved(address, data):
        prepared = space.task.prepare(cache or cache_folder(), lambda line: None)
        if stored and prepared not in stored:
            raise DataError(
                "this is not the data of the stored trials",
                where=f"--data {data}",
                expected=f"the data fingerprint {', '.join(sorted(known[:12] for known in stored))}",
                got=prepared[:12],
                remedy="Name the data that the study was trained on. For other data, give a space of another name.",
            )
        yield


def is_space(name: str) -> bool:
    """Whether a space of this name, or in this file, can be found."""
    from ablate.errors import SpaceError
    from ablate.spec.reading import find_space

    try:
        find_space(name)
    except SpaceError:
        return False
    return True


def read(store: str, study: str) -> StudyReport:
    """Read what is known of a study; the store must exist."""
    from ablate.analysis import read_study
    from ablate.store import open_store

    with open_store(store, create=False) as opened:
        return read_study(opened, study)


@contextmanager
def existing_store(location: str) -> Iterator[Store | None]:
    """The store, open for reading; None if there is none yet."""
    from ablate.errors import NotFoundError
    from ablate.store import open_store

    try:
        opened = open_store(location, create=False)
    except NotFoundError:
        yield None
        return
    with opened:
        yield opened


def load_trial(
    trial: str, store: str, cache: Path | None, plugins: list[str] | None, *, accept_changed_code: bool | None
) -> Trained:
    """Load the weights that a trial ended with."""
    load_plugins(plugins)
    from ablate.locations import cache_folder
    from ablate.trained.decode import load_trained
    from ablate.trained.weights import weights_folder

    say = lambda line: print(line, file=sys.stderr)  # noqa: E731
    folder = weights_folder(store)
    return load_trained(folder, trial, cache or cache_folder(), say, accept_changed_code=accept_changed_code)
