"""`file:PATH`: UTF-8 texts of the user's own, in one file or in a folder, plain or compressed with gzip."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from ablate.errors import DataError
from ablate.tasks.base import Say
from ablate.tasks.sources import Document, Source

END_OF_DOCUMENT = "<|endoftext|>"
"""A line of its own that ends a document within a file."""


class Files(Source):
    """A file, or every file below a folder that is not hidden, sorted by path. A relative path is below the working
    folder. Names that end in `.gz` are decompressed. A file is one document, or several with lines `<|endoftext|>`
    between them."""

    prefix: ClassVar[str] = "file:"
    argument_name: ClassVar[str] = "PATH"

    def documents(self, say: Say) -> Iterator[Document]:
        """The documents, named by their path below the folder and their number in the file."""
        root = Path(self.argument).expanduser()
        if not root.exists():
            raise DataError("there is no such file or folder", where=str(root), remedy="Check the path after `file:`.")
        for path in _paths(root):
            name = path.relative_to(root).as_posix() if root.is_dir() else path.name
            for number, text in enumerate(_documents(_text(path))):
                yield Document(f"{name}#{number}", text)


def _paths(root: Path) -> list[Path]:
    if root.is_file():
        return [root]
    visible = (path for path in root.rglob("*") if not any(p.startswith(".") for p in path.relative_to(root).parts))
    return sorted(path for path in visible if path.is_file())


def _text(path: Path) -> str:
    remedy = "Convert the file to UTF-8 text, or take it out of the folder."
    try:
        data = path.read_bytes()
        if path.suffix == ".gz":
            data = gzip.decompress(data)
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        got = f"byte 0x{data[error.start]:02x} at offset {error.start}"
        raise DataError("this is no UTF-8 text", where=str(path), got=got, remedy=remedy) from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(
            f"this is no whole gzip file ({error})", where=str(path), remedy="Compress the text again."
        ) from None
    except OSError as error:
        raise DataError(
            f"the file cannot be read ({error.strerror})", where=str(path), remedy="Check its permissions."
        ) from None
    if "\0" in text:
        offset = data.index(b"\0")
        raise DataError("a text has no NUL bytes", where=str(path), got=f"one at offset {offset}", remedy=remedy)
    return text


def _documents(text: str) -> Iterator[str]:
    lines: list[str] = []
    for line in text.splitlines(keepends=True):
        if line.strip() == END_OF_DOCUMENT:
            yield "".join(lines)
            lines = []
        else:
            lines.append(line)
    yield "".join(lines)
