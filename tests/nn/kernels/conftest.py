"""One thread, so that sums in a fixed order give the same numbers every time; and segments of two sizes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from ablate.nn.kernels import chunked


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module", params=[1, chunked._SEGMENT], ids=["many segments", "one segment"])
def segment(request: pytest.FixtureRequest) -> Iterator[int]:
    """Numbers in a segment: with few, texts of a few chunks go from one to the next; with many, texts share one."""
    before = chunked._SEGMENT
    chunked._SEGMENT = request.param
    yield request.param
    chunked._SEGMENT = before
