"""Reads spaces: files with `extends` and named blocks, with file, line and column in errors; and those of stores."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ablate.errors import SpaceError, check_argument
from ablate.locations import real_path, typed_path
from ablate.spec.document import Document, read_document, read_text
from ablate.spec.named import block_document, block_names, is_model_file, shipped_spaces
from ablate.spec.paths import lay_over, longer
from ablate.spec.sentences import describe
from ablate.spec.space import SpaceSpec


def find_space(location: str | Path) -> Path:
    """The file of a space, given by path or by the name of a shipped space.

    Raises:
        SpaceError: There is no such file and no such space.
    """
    path = typed_path(location, SpaceError)
    file = path if path.is_file() else _shipped_file(path)
    if file is None:
        raise _no_space(path)
    return file


def load_space(location: str | Path, *, data: str | None = None) -> SpaceSpec:
    """Read a space by path or by the name of a shipped space.

    Args:
        location: The path or the name.
        data: Address of data that replaces the one in the space.

    Raises:
        ArgumentError: The location is not a path, or `data` is not an address.
        SpaceError: The file is missing or invalid; with file, line and column.
    """
    check_argument("load_space: location", location, (str, Path), "the path or the name of a space")
    if data is not None:
        check_argument("load_space: data", data, str, "the address of data, such as `file:PATH`")
    path = find_space(location)
    document, folders = _read(path, ())
    if "plugins" in document.plain:
        document.plain["plugins"] = _plugin_files(document)
    _graft_block(document, folders)
    if data is not None and document.plain.get("tasks"):
        raise SpaceError(
            "`--data` replaces the data of one task, and this space has several",
            where=str(document.position(("tasks",))),
            got=data,
            remedy="Write the address as `data` of the task that reads it.",
        )
    if data is not None and isinstance(document.plain.get("task"), dict):
        document.plain["task"]["data"] = data
    try:
        space = SpaceSpec.model_validate(document.plain, context={"folders": folders, "document": document})
    except ValidationError as error:
        raise document.space_error(error) from None
    space._text = read_text(path, "a space")
    return space


def plugins_of(location: str | Path) -> list[str]:
    """The files that a space names under `plugins`, which must be loaded before `load_space` knows their kinds.

    Raises:
        SpaceError: The space is missing or not YAML, or `plugins` is not a list of files.
    """
    document, _ = _read(find_space(location), ())
    return _plugin_files(document)


def plain_space(location: str | Path) -> dict[str, Any]:
    """What a space file says, merged over those that it extends, before anything is looked up; runs no code.

    Raises:
        SpaceError: The space is missing or not YAML.
    """
    return _read(find_space(location), ())[0].plain


def _plugin_files(document: Document) -> list[str]:
    """The plugins of a space as absolute paths; each is relative to the file that names it."""
    given = document.plain.get("plugins") or []
    if not isinstance(given, list) or not all(isinstance(file, str) for file in given):
        raise SpaceError(
            "`plugins` is a list of Python files",
            where=str(document.position(("plugins",))),
            got=repr(given),
            remedy="Write `plugins: [my_mixer.py]`; a path is relative to the space file.",
        )
    folders = [document.position(("plugins", index)).file.parent for index in range(len(given))]
    return [str(real_path(folder / Path(file).expanduser())) for folder, file in zip(folders, given, strict=True)]


def _shipped_names() -> dict[str, Path]:
    return {file.stem: file for file in sorted(shipped_spaces().glob("*.yaml"))}


def _shipped_file(path: Path) -> Path | None:
    # Without a folder `spaces` (installed package), `spaces/NAME.yaml` is the shipped space.
    is_name = path.parent in (Path("."), Path("spaces")) and not path.is_dir()
    return _shipped_names().get(path.stem) if is_name else None


def _no_space(path: Path) -> SpaceError:
    if path.is_dir():
        inside = [file.name for file in sorted(path.glob("*.yaml"))]
        remedy = f"Name a file in it, such as `{path / inside[0]}`." if inside else "Name a file."
        return SpaceError("this is a folder", where=str(path), expected="a space file", remedy=remedy)
    if path.exists():
        remedy = "Write it to a file: a space is read more than once."
        return SpaceError("this is not a regular file", where=str(path), expected="a space file", remedy=remedy)
    if path.is_symlink():
        remedy = "Correct the link, or name another file."
        return SpaceError(
            f"this is a link to `{path.readlink()}`, which does not exist", where=str(path), remedy=remedy
        )
    # Compare names instead of paths, because folder and suffix are equal anyway.
    ready, beside = _shipped_names(), {file.stem: file for file in sorted(path.parent.glob("*.yaml"))}
    near = [*difflib.get_close_matches(path.stem, ready, n=1), *_nearest(path.stem, beside)]
    hint = f"Did you mean `{near[0]}`?" if near else f"Ready spaces: {', '.join(ready)}; `ablate new` writes one."
    return SpaceError("there is no such file", where=str(path), expected="a space file", remedy=hint)


def _nearest(stem: str, files: Mapping[str, Path]) -> list[str]:
    return [str(files[near]) for near in difflib.get_close_matches(stem, files, n=1)]


def _read(path: Path, seen: tuple[Path, ...]) -> tuple[Document, list[Path]]:
    """A space file merged over those that it extends, and their folders, nearest first."""
    document = read_document(path, "a space")
    if is_model_file(path):
        if not seen:
            raise SpaceError(
                "this is a model, not a space",
                where=str(path),
                remedy=f"A space that starts from it says `extends: {path.name}`; `ablate cost` takes the file itself.",
            )
        document = _as_section(document)
    parent = document.plain.pop("extends", None)
    base, folders = Document(path, {}), list[Path]()
    if parent is not None:
        seen = (*seen, real_path(path))
        base, folders = _read(_parent(document, parent, seen), seen)
    lay_over(base.plain, document.plain, null_removes=True)
    return Document(path, base.plain, {**base.positions, **document.positions}), [path.parent, *folders]


def _as_section(document: Document) -> Document:
    """What a space inherits from a model file: the model, and the weights that it starts from."""
    weights = document.plain.get("init_from")
    training = {} if weights is None else {"training": {"init_from": weights}}
    return Document(document.file, {"model": document.plain["model"], **training}, document.positions)


def _parent(document: Document, parent: object, seen: tuple[Path, ...]) -> Path:
    """The file that `extends` names: next to the extending file, or a shipped space."""
    where = str(document.position(("extends",)))
    if not isinstance(parent, str):
        raise SpaceError("`extends` must name one space", where=where, expected="a file or a name", got=repr(parent))
    beside = typed_path(document.file.parent / parent, SpaceError)
    file = beside if beside.is_file() else _shipped_file(Path(parent))
    if file is None:
        error = _no_space(beside)
        raise SpaceError(f"`extends`: {error.problem}", where=where, got=f"`{parent}`", remedy=error.remedy)
    if real_path(file) in seen:
        raise SpaceError("`extends`: a space cannot extend itself", where=where, remedy="Remove the cycle.")
    return file


def _graft_block(document: Document, folders: list[Path]) -> None:
    """Add the positions of the user's named block, so that its errors have positions in its own file.

    Shipped blocks are valid, so errors with them are attributed to the space.
    """
    model = document.plain.get("model")
    name = model.get("block") if isinstance(model, dict) else None
    file = block_names(folders).get(name) if isinstance(name, str) else None
    if file is not None and not real_path(file).is_relative_to(shipped_spaces()):
        grafted = block_document(str(name), folders).positions
        for loc, position in grafted.items():
            document.positions.setdefault(("model", *loc), position)
        document.positions["model", "block"] = grafted.get(("block",), document.position(("model", "block")))


_SEEDS = re.compile(r"([0-9]{1,6})(?::([0-9]{1,6}))?")


def stored_space(plain: Mapping[str, Any], study: str) -> SpaceSpec:
    """The space that a store keeps of a study.

    Args:
        plain: `space` of the study's record.
        study: Name of the study, for messages.

    Raises:
        SpaceError: This version, or a plugin that is not loaded, does not make a space of it.
    """
    if "judged" in plain:
        raise SpaceError(
            "this study was judged, not trained here, so that it cannot be trained",
            where=study,
            remedy="Judge a table with more runs: `ablate judge TABLE --store STORE --name NAME`.",
        )
    return _validate(plain, f"the stored space of {study}", "Load the plugins of the study with --plugin.")


def with_seeds(space: SpaceSpec, seeds: str) -> SpaceSpec:
    """The space with other seeds in its design.

    Args:
        seeds: `N` for N seeds of each variant, or `START:MAX` for a schedule.

    Raises:
        SpaceError: The text is neither, or the design does not take such seeds.
    """
    parsed = _SEEDS.fullmatch(seeds)
    if parsed is None:
        raise SpaceError(
            "invalid seeds",
            where="--seeds",
            expected="a number of seeds, or START:MAX such as 3:12",
            got=repr(seeds),
        )
    number, most = parsed.groups()
    given = int(number) if most is None else {"start": int(number), "max": int(most)}
    plain = space.model_dump(mode="json")
    changed = _validate(
        plain | {"design": plain["design"] | {"seeds": given}, "plugins": space.plugins}, f"--seeds {seeds}", ""
    )
    changed._text = space.text
    return changed


def with_rung(space: SpaceSpec, value: float) -> SpaceSpec:
    """A ladder with one more rung, above those that it has, whose trials stay what they are.

    Args:
        value: Of the dial.

    Raises:
        SpaceError: The design is not a ladder, or does not take such a rung.
    """
    plain, where = space.model_dump(mode="json"), f"--rung {value:g}"
    if "rungs" not in plain["design"]:
        got = f"a {space.design.kind_name()} design"
        raise SpaceError("only a ladder has rungs", where=where, got=got, remedy="Leave --rung out.")
    design = plain["design"] | {"rungs": [*plain["design"]["rungs"], value]}
    changed = _validate(plain | {"design": design, "plugins": space.plugins}, where, "")
    changed._text = space.text
    return changed


def with_design(space: SpaceSpec, kind: str) -> SpaceSpec:
    """The space with another design, as a study of its own that shares the trials which both need.

    Args:
        kind: Of the design; its fields but for the seeds have their defaults.

    Raises:
        SpaceError: There is no such design, or it does not fit the space.
    """
    plain = space.model_dump(mode="json")
    seeds = plain["design"].get("seeds", {})
    given = {"seeds": seeds} if isinstance(seeds, int) else {}
    changed = {"name": f"{space.name}_{kind}", "design": {"kind": kind} | given, "claims": []}
    changed["plugins"] = space.plugins
    made = _validate(plain | changed, f"--design {kind}", "")
    made._text = space.text
    return made


def with_longer(space: SpaceSpec, times: int) -> SpaceSpec:
    """The space with training runs that are longer, as a study of its own.

    Args:
        times: How many times as long.

    Raises:
        SpaceError: The space does not say how long it trains, or does not take such lengths.
    """
    plain, where = space.model_dump(mode="json"), f"--longer {times}"
    changed = longer(plain, times)
    if changed == plain:
        raise SpaceError(
            "nothing in this space says how long it trains",
            where=where,
            expected="`training.steps` above 0",
            remedy="Change what your trainer takes, or start from a model that was trained longer.",
        )
    made = _validate(changed | {"name": f"{space.name}_x{times}", "plugins": space.plugins}, where, "")
    made._text = space.text
    return made


def _validate(plain: Mapping[str, Any], where: str, remedy: str) -> SpaceSpec:
    try:
        return SpaceSpec.model_validate(plain)
    except ValidationError as error:
        loc, said = describe(error)[0]
        raise SpaceError(f"{'.'.join(map(str, loc))}: {said}", where=where, remedy=remedy) from None
