"""Arguments, options and exit codes that several commands share; what they name, such as a space or a trained model."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from ablate.errors import AblateError
from ablate.execution.options import RunOptions, show_in_signature, shown_options
from ablate.locations import DEFAULT_STORE

if TYPE_CHECKING:
    from ablate.analysis import StudyReport
    from ablate.errors import AblateError
    from ablate.spec.space import SpaceSpec
    from ablate.store import Store
    from ablate.trained.decode import Trained

STORE_VARIABLE = "ABLATE_STORE"
"""The environment variable that names the store of commands without `--store`."""

# Exit codes besides 0 (fine) and 2 (a mistake of the user).
REFUTED = 1
DIFFERENT = 1
FAILED = 3
INTERRUPTED = 130


def _option_of_a_run(name: str) -> Any:
    """What the command line shows of a field of `RunOptions`, for other commands that take it too."""
    (names, shown), *_ = ((names, shown) for field, names, shown in shown_options() if field == name)
    return typer.Option(*(names or (f"--{name.replace('_', '-')}",)), **shown)


def stored_studies(context: typer.Context, incomplete: str) -> list[str]:
    """The studies of the store, for the completion of a shell."""
    from ablate.store import open_store

    try:
        with open_store(context.params.get("store") or DEFAULT_STORE, create=False) as opened:
            return [study.name for study in opened.studies()]
    except AblateError:
        return []


def _ready_spaces(incomplete: str) -> list[str]:
    """The space files here and the ready spaces, for the completion of a shell."""
    from ablate.spec.named import shipped_spaces

    shipped = [file.stem for file in sorted(shipped_spaces().glob("*.yaml"))]
    return [*map(str, sorted(Path().glob("*.yaml"))), *shipped]


SpaceArgument = Annotated[
    str,
    typer.Argument(
        metavar="SPACE",
        help="A space file, or the name of a ready space such as simplify_block.",
        autocompletion=_ready_spaces,
    ),
]
StudyArgument = Annotated[
    str,
    typer.Argument(metavar="STUDY", help="A study; `ablate list` shows them.", autocompletion=stored_studies),
]
TrialArgument = Annotated[
    str,
    typer.Argument(
        metavar="TRIAL", help="The key of a trial, or its first characters; `ablate show STUDY --trials` lists them."
    ),
]
SideArgument = Annotated[
    str, typer.Argument(metavar="SIDE", help="STUDY/VARIANT, the key of a trial, or a space file (a path).")
]
StoreOption = Annotated[
    str,
    typer.Option(
        "--store",
        metavar="STORE",
        help="Where studies are kept: a file, or an SQLAlchemy URL.",
        envvar=STORE_VARIABLE,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
YesOption = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
PluginOption = Annotated[list[str] | None, _option_of_a_run("plugins")]
CacheOption = Annotated[Path | None, _option_of_a_run("cache")]
DeviceOption = Annotated[str, _option_of_a_run("device")]
ThreadsOption = Annotated[int, _option_of_a_run("threads")]
DataOption = Annotated[
    str | None,
    typer.Option("--data", metavar="SOURCE", help="Data instead of the space's: file:PATH, hub:NAME or builtin:NAME."),
]
MovedDataOption = Annotated[
    str | None,
    typer.Option(
        "--data",
        metavar="SOURCE",
        help="Where its data is now, such as file:PATH; it must have the stored fingerprint.",
    ),
]
StoredOption = Annotated[
    bool, typer.Option("--stored", help="SPACE is the name of a stored study: what `ablate resume` would train.")
]
SeedsOption = Annotated[
    str | None,
    typer.Option(
        "--seeds",
        metavar="N|START:MAX",
        help="Seeds instead of the design's; START:MAX adds seeds to undecided comparisons.",
    ),
]
DesignOption = Annotated[
    str | None,
    typer.Option(
        "--design",
        metavar="KIND",
        help="Use another design, as a study NAME_KIND that shares trials with the first.",
    ),
]
RungOption = Annotated[
    float | None,
    typer.Option("--rung", metavar="VALUE", help="One more rung of a ladder, above those that it has."),
]
LongerOption = Annotated[
    int | None,
    typer.Option("--longer", metavar="TIMES", min=2, help="Train TIMES as long, as a study NAME_xTIMES of its own."),
]
AcceptCodeOption = Annotated[bool, _option_of_a_run("accept_changed_code")]


def with_run_options(command: Callable[..., int]) -> Callable[..., int]:
    """Give a command an option for each option of a run, which it takes as `**options`."""
    hints = get_type_hints(RunOptions, localns={"ResourcesSpec": object})  # its class is slow to make, no option's type
    return show_in_signature(
        command, {name: Annotated[hints[name], typer.Option(*names, **shown)] for name, names, shown in shown_options()}
    )


def store_flag(store: str) -> list[str]:
    """What to add to a suggested command so that it reads the same store."""
    usual = os.environ.get(STORE_VARIABLE) or DEFAULT_STORE
    return [] if store == usual else ["--store", store]


def picture_file(option: str, file: Path, endings: tuple[str, ...] = (".svg",)) -> Path:
    """The file, if a picture can be written there; asked before anything is measured or drawn.

    Args:
        option: The option that names it, for messages.
        endings: Of the kinds of picture that can be drawn.

    Raises:
        AblateError: It is of another kind, or its folder is not there.
    """
    where = f"{option} {file}"
    if file.suffix.lower() not in endings:
        raise AblateError(
            "pictures of this kind cannot be drawn",
            where=where,
            expected=", ".join(endings),
            got=file.suffix or "no ending",
            remedy=f"Write `{option} {file.with_suffix(endings[0])}`.",
        )
    if not file.parent.is_dir():
        raise AblateError("there is no such folder", where=where, remedy=f"Make {file.parent} first.")
    return file


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
    from ablate.tasks.sources import read_from

    if data is None:
        return nullcontext()
    address = store.variant(store.trial(trial).variant_hash).spec["task"].get("data")
    if not isinstance(address, str):
        raise _several_sources()
    return read_from(address, data)


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
    from ablate.tasks.sources import read_from

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
    with read_from(address, data):
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
