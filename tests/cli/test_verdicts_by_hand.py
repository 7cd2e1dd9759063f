"""The output of `show`, recomputed from the SQLite file with the formulas of a textbook and none of our own code."""

from __future__ import annotations

import json
import math
import shutil
import sqlite3
from contextlib import closing
from typing import Any

import pytest
from cli_runs import Finished, Workplace

MARGIN = 0.05
SEEDS = [0, 1, 2]


def t_quantile_of_two_degrees(probability: float) -> float:
    """Student's t with two degrees of freedom (three seeds) has a closed form."""
    return (2 * probability - 1) / math.sqrt(2 * probability * (1 - probability))


def mean_and_error(values: list[float]) -> tuple[float, float]:
    mean = sum(values) / len(values)
    variance = sum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return mean, math.sqrt(variance / len(values))


def verdict_by_hand(worse: float, error: float) -> str:
    bound = t_quantile_of_two_degrees(0.95) * error
    if worse - bound > MARGIN:
        return "needed"
    if worse + bound < -MARGIN:
        return "better"
    return "not needed" if worse + bound < MARGIN else "undecided"


@pytest.fixture(scope="module")
def shown(done: tuple[Workplace, Finished], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Of a copy of the store without trivial baselines, which models of six steps do not beat."""
    copy = shutil.copy(done[0].store, tmp_path_factory.mktemp("copy") / "copy.db")
    with closing(sqlite3.connect(copy)) as store, store:
        store.execute("UPDATE studies SET trivial = NULL")
    plain: dict[str, Any] = json.loads(done[0].call("show", "tiny", "--json", "--store", str(copy)).out)
    return plain


@pytest.fixture(scope="module")
def final_losses(done: tuple[Workplace, Finished]) -> dict[str, list[float]]:
    """Variant to the last validation loss on its stored curves, seed by seed."""
    query = """
        SELECT planned.variant, planned.seed, point.val_loss
        FROM study_trials AS planned JOIN curves AS point ON point.trial_key = planned.trial_key
        WHERE point.step = (SELECT max(step) FROM curves WHERE trial_key = planned.trial_key)
        ORDER BY planned.variant, planned.seed
    """
    losses: dict[str, list[float]] = {}
    for variant, seed, loss in done[0].rows(query):
        assert seed == len(losses.setdefault(variant, []))
        losses[variant].append(loss)
    return losses


def test_show_has_the_keys_that_programs_rely_on(shown: dict[str, Any]) -> None:
    assert {"study", "baseline", "variants", "claims"} <= shown.keys()
    assert (shown["study"], shown["baseline"]) == ("tiny", "baseline")
    assert [row["name"] for row in shown["variants"]] == ["baseline", "values=identity", "norm=none"]
    for row in shown["variants"]:
        wanted = {"name", "hash", "settings", "parameters", "seeds", "metrics", "versus_baseline"}
        assert wanted <= row.keys()
        assert row["seeds"] == SEEDS
        assert row["metrics"]["val_loss"].keys() == {"mean", "low", "high", "n"}
        if row["name"] == "baseline":
            assert row["versus_baseline"] is None
        else:
            assert {"difference", "low", "high", "n", "verdict"} <= row["versus_baseline"].keys()


def test_means_and_intervals_are_those_of_the_stored_curves(
    shown: dict[str, Any], final_losses: dict[str, list[float]]
) -> None:
    for row in shown["variants"]:
        mean, error = mean_and_error(final_losses[row["name"]])
        half = t_quantile_of_two_degrees(0.975) * error
        loss = row["metrics"]["val_loss"]
        assert loss["n"] == 3
        assert [loss["mean"], loss["low"], loss["high"]] == pytest.approx([mean, mean - half, mean + half], rel=1e-9)


def test_differences_and_verdicts_are_those_of_the_stored_curves(
    shown: dict[str, Any], final_losses: dict[str, list[float]]
) -> None:
    words = set()
    for row in shown["variants"][1:]:
        pairs = zip(final_losses[row["name"]], final_losses["baseline"], strict=True)
        mean, error = mean_and_error([variant - baseline for variant, baseline in pairs])
        half = t_quantile_of_two_degrees(0.975) * error
        versus = row["versus_baseline"]
        assert versus["n"] == 3
        assert [versus["difference"], versus["low"], versus["high"]] == pytest.approx(
            [mean, mean - half, mean + half], rel=1e-9
        )
        assert versus["verdict"] == verdict_by_hand(mean, error)
        words.add(versus["verdict"])
    assert words <= {"needed", "not needed", "better", "undecided"}


def test_parameters_are_those_of_the_built_model(done: tuple[Workplace, Finished], shown: dict[str, Any]) -> None:
    from ablate import build, load_space

    place = done[0]
    space = load_space(place.folder / "tiny.yaml")
    for row in shown["variants"]:
        model = build(space.resolve(row["settings"]).model, vocabulary=257, context=16)
        assert row["parameters"] == sum(parameter.numel() for parameter in model.parameters())
