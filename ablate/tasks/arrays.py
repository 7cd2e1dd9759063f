"""Arrays of tokens in `.npy` files, written in chunks and read by memory mapping, so that memory use stays constant."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray


class GrowingArray:
    """A one-dimensional `.npy` file that grows by appending; valid only after the `with` block has ended.

    Args:
        path: The file to write.
        dtype: Data type of its elements.
        size: Number of elements to keep of a file that was not completed; what was written after them is removed.
    """

    def __init__(self, path: Path, dtype: Any, size: int = 0) -> None:
        self._file = path.open("r+b" if size else "wb")
        self._dtype = np.dtype(dtype)
        self.size = size
        self._write_header()
        self._header = self._file.tell()
        self._file.truncate(self._header + size * self._dtype.itemsize)
        self._file.seek(0, os.SEEK_END)

    def append(self, values: NDArray[Any]) -> None:
        """Append elements."""
        self._file.write(values.astype(self._dtype, copy=False).tobytes())
        self.size += values.size

    def sync(self) -> None:
        """Write everything to the disk, so that `size` elements survive a crash of the machine."""
        self._file.flush()
        os.fsync(self._file.fileno())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._file:
            if kind is None:
                self._file.seek(0)
                self._write_header()
                assert self._file.tell() == self._header, "numpy pads the header for a growing first axis"

    def _write_header(self) -> None:
        descr = npy.dtype_to_descr(self._dtype)
        npy.write_array_header_1_0(self._file, {"descr": descr, "fortran_order": False, "shape": (self.size,)})


def mapped(path: Path) -> NDArray[Any]:
    """The array in a file, memory-mapped."""
    tokens: NDArray[Any] = np.load(path, mmap_mode="r").view(np.ndarray)
    return tokens


def spread(count: int, most: int) -> NDArray[np.int64]:
    """At most `most` evenly spaced indices from 0 to count - 1."""
    chosen = min(count, most)
    return np.arange(chosen, dtype=np.int64) * count // max(1, chosen)


def token_dtype(vocabulary: int) -> type[np.unsignedinteger[Any]]:
    """The smallest integer type that holds the ids of a vocabulary."""
    return np.uint16 if vocabulary <= 1 << 16 else np.uint32
