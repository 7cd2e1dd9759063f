"""Segments of two sizes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ablate.nn.kernels import chunked


@pytest.fixture(scope="module", params=[1, chunked._SEGMENT], ids=["many segments", "one segment"])
def segment(request: pytest.FixtureRequest) -> Iterator[int]:
    """Numbers in a segment: with few, texts of a few chunks go from one to the next; with many, texts share one."""
    before = chunked._SEGMENT
    chunked._SEGMENT = request.param
    yield request.param
    chunked._SEGMENT = before
