"""Read plain or compressed files (gz, xz, zst) line by line, with memory use independent of the file size."""

from __future__ import annotations

import gzip
import io
import lzma
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Protocol, cast

from ablate.errors import DataError
from ablate.extras import require

COMPRESSED = {".gz": "gzip", ".xz": "xz", ".zst": "zstandard"}
"""Name of the format of each suffix."""

LONGEST = 1 << 26
"""Maximum number of bytes in a line or document."""


def inner_name(path: Path) -> Path:
    """The path without a compression suffix."""
    return path.with_suffix("") if path.suffix in COMPRESSED else path


@contextmanager
def open_decompressed(path: Path) -> Iterator[BinaryIO]:
    """Open a file for reading and decompress it according to its suffix.

    Raises:
        DataError: The file cannot be read, or is not a complete file of its format.
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
    """Every line with the offset of its first byte; a byte order mark is removed.

    Raises:
        DataError: As `open_decompressed`, or a line is longer than `LONGEST`.
    """
    with open_decompressed(path) as file:
        offset = 0
        while line := file.readline(LONGEST):
            if len(line) == LONGEST:
                raise too_long(path, "line")
            start, offset = offset, offset + len(line)
            yield (start, line) if start else (0, line.removeprefix(b"\xef\xbb\xbf"))


def too_long(path: Path, what: str) -> DataError:
    """The error for a line or document that is longer than `LONGEST`."""
    return DataError(
        f"a {what} is too long",
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
    if sys.version_info >= (3, 14):
        from compression.zstd import ZstdDecompressor

        return _WholeZstandard(path, ZstdDecompressor)
    require("data", "a zstandard file", where=str(path), packages=("zstandard",))
    import zstandard

    return _WholeZstandard(path, lambda: zstandard.ZstdDecompressor().decompressobj())


class _Frame(Protocol):
    """Decompresses one frame: what `compression.zstd` and the package `zstandard` have in common."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, /) -> bytes: ...


class _WholeZstandard(io.RawIOBase):
    """A reader of zstandard files that rejects truncated files, which the libraries' own readers accept."""

    def __init__(self, path: Path, new_frame: Callable[[], _Frame]) -> None:
        self._file = path.open("rb")
        self._new = new_frame
        self._frame = new_frame()
        self._in_frame = False
        self._ready = b""

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: object) -> int:
        """Fill a buffer with decompressed bytes."""
        view = memoryview(buffer)  # type: ignore[arg-type]
        while not self._ready and (chunk := self._file.read(1 << 16)):
            self._decompress(chunk)
        if not self._ready and self._in_frame:
            raise EOFError("it ends within a frame")
        chunk = self._ready[: len(view)]
        view[: len(chunk)] = chunk
        self._ready = self._ready[len(chunk) :]
        return len(chunk)

    def _decompress(self, chunk: bytes) -> None:
        while chunk:
            self._in_frame = True
            self._ready += self._frame.decompress(chunk)
            if not self._frame.eof:
                return
            chunk = self._frame.unused_data
            self._frame, self._in_frame = self._new(), False

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        super().close()


def _broken(path: Path, name: str, error: Exception) -> DataError:
    return DataError(
        f"this is not a complete {name} file ({error})", where=str(path), remedy="Compress the text again."
    )
