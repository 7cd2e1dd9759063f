"""`file:PATH`: local data: a file, a glob or a folder with texts or tables, plain or compressed.

All text is UTF-8. `.csv`, `.tsv`, `.jsonl` and `.parquet` files are tables with named columns; others are documents.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal

from ablate.errors import DataError
from ablate.locations import real_path, typed_path
from ablate.spec.task import Say
from ablate.tasks.sources import TEST, VALIDATION_NAMES, BadRows, Row, Source, SourceDocument, pick_columns
from ablate.tasks.tables import LONGEST, TABLES, inner_name, lines, too_long

END_OF_DOCUMENT = "<|endoftext|>"
"""A line that separates documents in a file."""

_DESCRIPTIONS = {"readme", "license", "licence", "copying", "notice"}
"""Names of files that describe the data of a folder."""
_LISTED_NAMES = 4
"""Maximum number of file names in a message."""

_REMEDY = "Convert the file to UTF-8 text, or name the files to read with a glob, such as `file:FOLDER/*.txt`."


class Files(Source):
    """A file, all files that match a glob, or all files below a folder except hidden ones, sorted by path.

    In a folder, README and licence files are left out, and if it contains tables, all other files. Left-out files are
    reported; a glob reads them. Relative paths start at the working folder. Files with the suffix `.gz`, `.xz` or
    `.zst` are decompressed. A text file is one document, or several that are separated by lines `<|endoftext|>`. Its
    columns are `text`, `file` and `folder`. If rows are read and some files are named `train...`, only those and files
    named `val...`, `validation...` or `dev...` are read, as training and validation split, and files named `test...` if
    the task has a test.
    """

    kind: Literal["file"] = "file"
    argument_name = "PATH"

    argument: str
    """A file, a glob or a folder."""

    def documents(self, column: str, bad_rows: BadRows, say: Say) -> Iterator[SourceDocument]:
        """The documents of text files, named by path and number in the file, and the rows of tables."""
        for path, name in self._files(say):
            if inner_name(path).suffix in TABLES:
                for where, (text,) in TABLES[inner_name(path).suffix](path, (column,), bad_rows):
                    yield SourceDocument(where, text)
            else:
                for number, text in enumerate(_documents(path)):
                    yield SourceDocument(f"{name}#{number}", text)

    def only_text(self, say: Say) -> Callable[[], Iterator[str]] | None:
        """The lines of the only file, unless it is a table or contains several documents."""
        files = self._files(lambda line: None)
        if len(files) != 1 or inner_name(files[0][0]).suffix in TABLES or _holds_several(files[0][0]):
            return None
        ((path, _),) = self._files(say)
        return lambda: (text for text in _lines(path) if not _ends_document(text))

    def rows(self, columns: Sequence[str], bad_rows: BadRows, say: Say) -> Iterator[Row]:
        """The rows of tables, and one row for each document of a text file."""
        files = self._files(say)
        splits = {path: _split(name) for path, name in files}
        if "train" in splits.values():
            unread = {"", *(() if self.with_test else (TEST,))}
            if left_out := [name for path, name in files if splits[path] in unread]:
                say(f"Left out because other files are named `train`: {_list_names(left_out)}")
            files = [(path, name) for path, name in files if splits[path] not in unread]
        else:
            splits = dict.fromkeys(splits, "")
        for path, name in files:
            if inner_name(path).suffix in TABLES:
                for where, values in TABLES[inner_name(path).suffix](path, columns, bad_rows):
                    yield Row(where, values, splits[path])
            else:
                for number, text in enumerate(_documents(path)):
                    if text:
                        values_by_column = {"text": text, "file": name, "folder": path.parent.name}
                        yield Row(f"{path}#{number}", pick_columns(columns, values_by_column, str(path)), splits[path])

    def missing(self) -> str | None:
        """Whether no file exists at the address."""
        try:
            self._files(lambda line: None)
        except DataError as error:
            return str(error)
        return None

    def _files(self, say: Say) -> list[tuple[Path, str]]:
        """Every file with its path relative to the given folder."""
        root = typed_path(self.argument, DataError)
        if root.is_dir():
            if real_path(root).parent == real_path(root):
                raise DataError("this is the root of the file system", where=str(root), remedy="Name a folder of data.")
            files = [(path, path.relative_to(root).as_posix()) for path in sorted(_visible(root)) if path.is_file()]
            texts = [(path, name) for path, name in files if inner_name(path).stem.lower() not in _DESCRIPTIONS]
            tables = [(path, name) for path, name in texts if inner_name(path).suffix in TABLES]
            data = tables or texts
            if other := [name for path, name in files if (path, name) not in data]:
                reason = "there are tables" if tables else "they describe the data"
                say(f"Left out of the folder because {reason}: {_list_names(other)} (a glob reads them)")
            return data
        if root.is_file():
            return [(root, root.name)]
        if "**" in root.parts:  # a glob silently skips unreadable folders
            for _ in _visible(Path(*_fixed_parts(root))):
                pass
        paths = sorted(Path(name) for name in glob.glob(str(root), recursive=True) if Path(name).is_file())
        if not paths:
            what = "no file matches this pattern" if glob.has_magic(str(root)) else "there is no such file or folder"
            raise DataError(
                what,
                where=str(root),
                remedy="Check the path after `file:`; `--data file:PATH` says where data is that has moved.",
            )
        fixed = Path(*_fixed_parts(root))
        return [(path, path.relative_to(fixed).as_posix()) for path in paths]


def _visible(root: Path) -> Iterator[Path]:
    """All files below a folder that are not hidden.

    Raises:
        DataError: A folder below it cannot be read; skipping its files would silently change the data.
    """
    for folder, folders, names in os.walk(root, onerror=_unreadable):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (Path(folder, name) for name in names if not name.startswith("."))


def _unreadable(error: OSError) -> None:
    remedy = "Change its permissions, or name the files with a glob."
    raise DataError(f"this folder cannot be read ({error.strerror})", where=str(error.filename), remedy=remedy)


def _fixed_parts(pattern: Path) -> Iterator[str]:
    for part in pattern.parts[:-1]:
        if glob.has_magic(part):
            return
        yield part


def _list_names(names: Sequence[str]) -> str:
    more = len(names) - _LISTED_NAMES
    return ", ".join(names[:_LISTED_NAMES]) + (f" and {more:,} more" if more > 0 else "")


def _split(name: str) -> str:
    words = re.split(r"[^a-z]+", name.rpartition("/")[2].lower())
    if "train" in words:
        return "train"
    if set(words) & set(VALIDATION_NAMES):
        return "validation"
    return TEST if TEST in words else ""


def _documents(path: Path) -> Iterator[str]:
    parts: list[str] = []
    size = 0
    for text in _lines(path):
        if _ends_document(text):
            yield "".join(parts)
            parts, size = [], 0
            continue
        parts.append(text)
        size += len(text.encode())
        if size > LONGEST:
            raise too_long(path, "document")
    yield "".join(parts)


def _holds_several(path: Path) -> bool:
    """Whether a text file contains more than one non-empty document; reads no further than the second."""
    begun = ended = False
    for text in _lines(path):
        if _ends_document(text):
            ended = begun
        elif ended:
            return True
        else:
            begun = True
    return False


def _lines(path: Path) -> Iterator[str]:
    return (_text(path, offset, line) for offset, line in lines(path))


def _ends_document(line: str) -> bool:
    return line.strip() == END_OF_DOCUMENT


def _text(path: Path, offset: int, line: bytes) -> str:
    if b"\0" in line:
        got = f"one at offset {offset + line.index(0)}"
        raise DataError("text must not contain NUL bytes", where=str(path), got=got, remedy=_REMEDY)
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        got = f"byte 0x{line[error.start]:02x} at offset {offset + error.start}"
        raise DataError("this is not UTF-8 text", where=str(path), got=got, remedy=_REMEDY) from None
