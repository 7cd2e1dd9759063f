"""What the tests of mixers share."""

from __future__ import annotations

import pytest

from ablate.nn.kernels import product, softmax_attention


@pytest.fixture
def countable_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take all products and all attention through torch's operators: its counter knows no others."""
    monkeypatch.setattr(product, "_by_onednn", lambda x, y: False)
    monkeypatch.setattr(softmax_attention, "_LEAST", 1 << 60)
