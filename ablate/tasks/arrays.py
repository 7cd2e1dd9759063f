"""Arrays of tokens on disk, written as `numpy.save` writes them: memory stays flat however many tokens there are."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray


class GrowingArray:
    """A one-dimensional `.npy` file that is appended to; whole after the `with` block.

    Args:
        path: The file to write.
        dtype: Of its elements.
    """

    def __init__(self, path: Path, dtype: Any) -> None:
        self._file = path.open("wb")
        self._dtype = np.dtype(dtype)
        self.size = 0
        self._write_header()
        self._header = self._file.tell()

    def append(self, values: NDArray[Any]) -> None:
        """Write further elements."""
        self._file.write(values.astype(self._dtype, copy=False).tobytes())
        self.size += values.size

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._file:
            if kind is None:
                self._file.seek(0)
                self._write_header()
                assert self._file.tell() == self._header, "numpy leaves room in the header for a first axis that grows"

    def _write_header(self) -> None:
        descr = npy.dtype_to_descr(self._dtype)
        npy.write_array_header_1_0(self._file, {"descr": descr, "fortran_order": False, "shape": (self.size,)})


def mapped(path: Path) -> NDArray[Any]:
    """The array of a file, mapped into memory."""
    tokens: NDArray[Any] = np.load(path, mmap_mode="r").view(np.ndarray)
    return tokens


def spread(count: int, most: int) -> NDArray[np.int64]:
    """At most `most` of the places 0 ... count - 1, spread evenly over them."""
    chosen = min(count, most)
    return np.arange(chosen, dtype=np.int64) * count // max(1, chosen)


def token_dtype(vocabulary: int) -> type[np.unsignedinteger[Any]]:
    """The narrowest type that holds the ids of a vocabulary."""
    return np.uint16 if vocabulary <= 1 << 16 else np.uint32
