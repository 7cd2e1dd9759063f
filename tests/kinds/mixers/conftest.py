"""One thread: these tests are small, and sums in a fixed order give the same numbers every time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from ablate.nn.kernels import product, softmax_attention


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def countable_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take all products and all attention through torch's operators: its counter knows no others."""
    monkeypatch.setattr(product, "_by_onednn", lambda x, y: False)
    monkeypatch.setattr(softmax_attention, "_LEAST", 1 << 60)
