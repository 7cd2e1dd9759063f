"""What commands start from: a space, plugins, a study's record, a trained model."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ablate.analysis import StudyReport
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

    return read_space(file, data=data)


def load_stored(study: str, store: str, plugins: list[str] | None) -> SpaceSpec:
    """The space that a store keeps of a study, with the plugins it needs."""
    load_plugins(plugins)
    from ablate.spec.reading import stored_space
    from ablate.store import open_store

    with open_store(store, create=False) as opened:
        return stored_space(opened.study(study).space, study)


def load_asked(
    file: str,
    store: str,
    plugins: list[str] | None,
    data: str | None,
    seeds: str | None,
    design: str | None,
    *,
    stored: bool,
) -> SpaceSpec:
    """The space that options of `study` and `plan` ask for.

    Raises:
        SpaceError: The space is not valid, or a stored study is asked for with other data.
    """
    from ablate.errors import SpaceError
    from ablate.spec.reading import with_design, with_seeds

    if stored and data is not None:
        raise SpaceError(
            "a stored study continues with its own data",
            where="--data",
            remedy="Leave out --data, or give a space file.",
        )
    space = load_stored(file, store, plugins) if stored else load_space(file, plugins, data)
    space = space if design is None else with_design(space, design)
    return space if seeds is None else with_seeds(space, seeds)


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
