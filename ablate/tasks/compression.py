"""Files read line by line, plain or compressed (gz, xz, zst): memory does not grow with the file."""

from __future__ import annotations

import gzip
import io
import lzma
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from ablate.errors import DataError

COMPRESSED = {".gz": "gzip", ".xz": "xz", ".zst": "zstandard"}
"""Suffix to the name of the format."""

LONGEST = 1 << 26
"""Bytes in the longest line or document that is read: more is no text to split or to show to a model."""


def inner_name(path: Path) -> Path:
    """The name without the suffix of a compression."""
    return path.with_suffix("") if path.suffix in COMPRESSED else path


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """The bytes of a file, decompressed as its suffix says.

    Raises:
        DataError: The file cannot be read, or is no whole file of its format.
    """
    name = COMPRESSED.get(path.suffix, "")
    try:
        with _open(path) as file:
            yield file
    except (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError) as error:
        raise _broken(path, name, error) from None
    except OSError as error:
        raise DataError(
            f"the file cannot be read ({error.strerror or error})", where=str(path), remedy="Check its permissions."
        ) from None
    except Exception as error:
        if type(error).__name__ != "ZstdError":
            raise
        raise _broken(path, name, error) from None


def lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Every line with the offset of its first byte; a byte order mark is left out.

    Raises:
        DataError: As `opened`, and for a line that is too long to be one.
    """
    with opened(path) as file:
        offset = 0
        while line := file.readline(LONGEST):
            if len(line) == LONGEST:
                raise too_long(path, "line")
            start, offset = offset, offset + len(line)
            yield (start, line) if start else (0, line.removeprefix(b"\xef\xbb\xbf"))


def too_long(path: Path, what: str) -> DataError:
    """The refusal of a line or document that would not fit into memory."""
    return DataError(
        f"a {what} is too long to be read at once",
        where=str(path),
        expected=f"at most {LONGEST // (1 << 20)} MiB",
        remedy="Divide the text into documents by lines that hold only `<|endoftext|>`, or into several files.",
    )


def _open(path: Path) -> BinaryIO:
    if path.suffix == ".gz":
        return cast(BinaryIO, gzip.open(path, "rb"))
    if path.suffix == ".xz":
        return cast(BinaryIO, lzma.open(path, "rb"))
    if path.suffix == ".zst":
        return io.BufferedReader(_zstandard(path), 1 << 20)
    return path.open("rb", buffering=1 << 20)


def _zstandard(path: Path) -> io.RawIOBase:
    try:
        import zstandard
    except ImportError:
        raise DataError(
            "reading zstandard files needs the package `zstandard`",
            where=str(path),
            remedy='Install it with `pip install "ablate-blocks[data]"`.',
        ) from None
    return cast(io.RawIOBase, _WholeZstandard(path, zstandard))


class _WholeZstandard(io.RawIOBase):
    """A zstandard file of frames that must be complete: the library's own reader takes a cut file for a whole one."""

    def __init__(self, path: Path, library: object) -> None:
        self._file = path.open("rb")
        self._library = library
        self._frame = self._new()
        self._begun = False
        self._ready = b""

    def _new(self) -> object:
        return self._library.ZstdDecompressor().decompressobj()  # type: ignore[attr-defined]

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: object) -> int:
        """Fill a buffer with decompressed bytes."""
        view = memoryview(buffer)  # type: ignore[arg-type]
        while not self._ready and (chunk := self._file.read(1 << 16)):
            self._take(chunk)
        if not self._ready and self._begun:
            raise EOFError("it ends in the middle of a frame")
        given = self._ready[: len(view)]
        view[: len(given)] = given
        self._ready = self._ready[len(given) :]
        return len(given)

    def _take(self, chunk: bytes) -> None:
        while chunk:
            self._begun = True
            self._ready += self._frame.decompress(chunk)  # type: ignore[attr-defined]
            if not self._frame.eof:  # type: ignore[attr-defined]
                return
            chunk = self._frame.unused_data  # type: ignore[attr-defined]
            self._frame, self._begun = self._new(), False

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        super().close()


def _broken(path: Path, name: str, error: Exception) -> DataError:
    return DataError(f"this is no whole {name} file ({error})", where=str(path), remedy="Compress the text again.")
