"""One thread, so that sums in a fixed order give the same numbers every time; and segments that short texts leave."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from ablate.kernels import chunked


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True, scope="module")
def _short_segments() -> Iterator[None]:
    """Texts of a few chunks go from one segment to the next."""
    before = chunked._SEGMENT
    chunked._SEGMENT = 1
    yield
    chunked._SEGMENT = before
