"""The noise that a single draw of validation data adds to differences, in reports."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from fake_store import FakeStore, fake_store

from ablate.analysis import read_study
from ablate.analysis.columns import columns, legend
from ablate.render.as_json import study_json


def studied(of_part: float) -> FakeStore:
    """Parts of the validation data on which the variants stand otherwise than on the whole."""
    rng = np.random.default_rng(2)
    made = fake_store({"baseline": ({"a": "on"}, 100), **{f"a={n}": ({"a": str(n)}, 90) for n in range(6)}}, seeds=3)
    for name in ("baseline", *(f"a={n}" for n in range(6))):
        effects = rng.normal(0, of_part if name != "baseline" else 0.0, 8)
        for seed in range(3):
            parts = 2.0 + effects + rng.normal(0, 0.001, 8)
            made.add(name, seed, {"val_loss": float(parts.mean())})
            key = f"{name}/{seed}"
            made.trial_records[key] = replace(made.trial_records[key], parts={"val_loss": tuple(parts.tolist())})
    spec = {"task": {"validation_windows": 128}}
    made.record = replace(made.record, variants=tuple(replace(one, spec=spec) for one in made.record.variants))
    return made


def test_a_draw_that_matters_is_reported_with_a_remedy() -> None:
    report = read_study(studied(0.02), "a_study")
    assert report.evidence.draw_sd == pytest.approx(0.02 / np.sqrt(8), rel=0.35)
    (said,) = [one for one in report.answer.sentences if "one draw of validation data" in one]
    assert "task.validation_windows: " in said
    windows = int(said.partition("windows: ")[2].partition("`")[0])
    assert windows == pytest.approx(128 * (report.evidence.draw_sd / 0.002) ** 2, rel=0.1)
    assert study_json(report)["validation_draw"] == report.evidence.draw_sd
    assert "another draw of these windows" in legend(columns(report))[0]


def test_a_draw_that_hardly_matters_is_only_in_the_legend() -> None:
    report = read_study(studied(0.0005), "a_study")
    assert report.evidence.draw_sd is not None
    assert not [one for one in report.answer.sentences if "one draw of validation data" in one]
    assert "another draw of these windows" in legend(columns(report))[0]


def test_nothing_is_reported_for_trials_that_were_not_measured_in_parts() -> None:
    made = studied(0.02)
    made.trial_records = {key: replace(trial, parts={}) for key, trial in made.trial_records.items()}
    report = read_study(made, "a_study")
    assert report.evidence.draw_sd is None
    assert "another draw" not in legend(columns(report))[0]
