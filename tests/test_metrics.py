"""Names of metrics include the split on which they are measured."""

from __future__ import annotations

import pytest

from ablate.metrics import Metric


@pytest.mark.parametrize(
    ("written", "metric", "tested"),
    [
        ("val_loss", Metric("loss", "val"), "test_loss"),
        ("val_interval_loss", Metric("interval_loss", "val"), "test_interval_loss"),
        ("test_macro_f1", Metric("macro_f1", "test"), "test_macro_f1"),
        ("seconds", Metric("seconds", None), "test_seconds"),
        ("interval_val_loss", Metric("interval_val_loss", None), "test_interval_val_loss"),
    ],
)
def test_a_name_is_a_split_and_what_is_measured(written: str, metric: Metric, tested: str) -> None:
    assert Metric.of(written) == metric
    assert str(metric) == written
    assert str(metric.on("test")) == tested
