"""The noise of a draw of validation data, against simulated draws."""

from __future__ import annotations

import numpy as np
import pytest

from ablate.stats.hidden_noise import draw_variance


@pytest.mark.parametrize(("of_draw", "of_seeds", "within"), [(0.02, 0.05, 0.01), (0.02, 0.0, 0.05), (0.0, 0.05, 0.05)])
def test_it_is_the_variance_that_other_draws_show(of_draw: float, of_seeds: float, within: float) -> None:
    """Each draw has 8 parts with an effect of their own; seeds shift all parts alike, and noise is within parts."""
    rng = np.random.default_rng(3)
    seeds, parts, studies = 4, 8, 3000
    effects = rng.normal(0, of_draw, (studies, 1, parts))
    tables = effects + rng.normal(0, of_seeds, (studies, seeds, 1)) + rng.normal(0, within, (studies, seeds, parts))
    found = [draw_variance(table.tolist()) for table in tables]
    truth = np.var(effects.mean(axis=(1, 2))) if of_draw else 0.0
    assert np.mean([one for one in found if one is not None]) == pytest.approx(truth, rel=0.06, abs=3e-6)


def test_too_few_windows_for_an_estimate() -> None:
    assert draw_variance([]) is None
    assert draw_variance([[1.0, 2.0]]) is None
    assert draw_variance([[1.0], [2.0]]) is None
    assert draw_variance([[1.0, 2.0], [1.0]]) is None
