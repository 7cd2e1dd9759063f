"""Starting points of new spaces: the files of `spaces/starts/`."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from ruamel.yaml import YAML

from ablate.errors import ArgumentError, SpaceError
from ablate.spec.annotations import STUDY_NAME
from ablate.spec.named import shipped_spaces

JUDGE = "judge"
"""The starting point that describes a table of runs, for `ablate judge`; the others are spaces."""
DEFAULT = "needed"
"""The starting point of a space unless another is named."""


def starts() -> dict[str, Path]:
    """The starting points by name, the default first."""
    files = sorted((shipped_spaces() / "starts").glob("*.yaml"), key=lambda file: (file.stem != DEFAULT, file.stem))
    return {file.stem: file for file in files}


def write_space(name: str, folder: Path, like: str = DEFAULT) -> Path:
    """Write `NAME.yaml` into a folder and return its path; an existing file is left alone.

    A starting point with a table beside it (`judge`) gets a copy of that too, as `NAME.csv`.

    Raises:
        ArgumentError: There is no such starting point.
        SpaceError: The name is not a name for a study, the file exists, or the folder cannot be written to.
    """
    stem, known = name.removesuffix(".yaml"), starts()
    if like not in known:
        raise ArgumentError("there is no such starting point", where="--like", expected=", ".join(known), got=like)
    if not STUDY_NAME.fits(stem):
        raise SpaceError(
            f"this is not a name for a space: {STUDY_NAME.rule}",
            where=name,
            remedy="Choose such a name; the file is written into the working folder.",
        )
    path, table = folder / f"{stem}.yaml", known[like].with_suffix(".csv")
    text = re.sub(
        r"^name: .*$", lambda _: f"name: {_in_yaml(stem)}", known[like].read_text(encoding="utf-8"), flags=re.M
    ).replace("NAME.csv", f"{stem}.csv")
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
        if table.exists() and not path.with_suffix(".csv").exists():
            shutil.copyfile(table, path.with_suffix(".csv"))
    except FileExistsError:
        raise SpaceError("this file exists", where=str(path), remedy="Choose another name.") from None
    except OSError as error:
        raise SpaceError(f"this cannot be written ({error.strerror})", where=str(path)) from None
    return path


def _in_yaml(name: str) -> str:
    """A name as YAML reads it back: in quotes where it would be read as something else (`null`, `1e3`)."""
    return name if YAML(typ="safe", pure=True).load(name) == name else f'"{name}"'
