"""Rates transfer under mup and complete_p for every optimizer: outputs of layers change as much at any size."""

from __future__ import annotations

import math
from typing import Any

import pytest
from engine_samples import space
from random_tokens import RandomTokens, variant

from ablate.training.transfer import (
    Coordinate,
    Dimension,
    RateCurve,
    check_coordinates,
    grid_steps_apart,
    resize,
    sizes_of,
    with_rates,
)

OPTIMIZERS: dict[str, dict[str, Any]] = {
    "adamw": {"lr": 0.004},
    "lion": {"kind": "lion", "lr": 0.002},
    "sgd": {"kind": "sgd", "lr": 0.1, "clip": 1e9},
    "muon": {"kind": "muon", "lr": 0.02, "adamw": {"lr": 0.004}},
    "muon like AdamW": {"kind": "muon", "lr": 0.01, "adjust": "match_rms_adamw", "adamw": {"lr": 0.004}},
}


def exponents(dimension: Dimension, sizes: tuple[int, ...], optimizer: str, initialiser: Any) -> dict[str, float]:
    """Of the change of each part; heads are 8 wide."""
    variants = {}
    for size in sizes:
        model: dict[str, Any] = {"depth": 2, "width": 32, "positions": "none", "tied_head": False, "init_std": 0.1}
        model[dimension] = size
        model |= {"heads": model["width"] // 8, "initialiser": initialiser}
        variants[dimension, size] = variant(model, steps=10, batch_size=16, optimizer=OPTIMIZERS[optimizer])
    return {part.part: part.exponent for part in check_coordinates(variants, RandomTokens(), "cpu", (3,))}


@pytest.mark.independent_check("initialisers", "mup", against="changes of outputs at other widths")
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_outputs_change_as_much_at_any_width(optimizer: str) -> None:
    """With unscaled initial values and rates they change by more at four times the width."""
    scaled = exponents("width", (32, 128), optimizer, {"kind": "mup", "base_width": 32})
    assert set(scaled) == {"mixer", "mlp", "stream", "logits"}
    assert all(abs(exponent) <= 0.3 for exponent in scaled.values()), scaled
    plain = exponents("width", (32, 128), optimizer, "normal")
    assert plain["stream"] > 0.5, plain


@pytest.mark.independent_check("initialisers", "complete_p", against="changes of outputs at other depths")
@pytest.mark.parametrize("optimizer", ["adamw", "sgd", "muon"])
def test_outputs_change_as_much_at_any_depth(optimizer: str) -> None:
    complete = {"kind": "complete_p", "base_width": 32, "base_depth": 4}
    scaled = exponents("depth", (4, 16), optimizer, complete)
    assert set(scaled) == {"stream", "logits"}
    assert all(abs(exponent) <= 0.5 for exponent in scaled.values()), scaled
    plain = exponents("depth", (4, 16), optimizer, {"kind": "mup", "base_width": 32})
    assert plain["stream"] > scaled["stream"] + 0.6, plain


def test_exponents_are_slopes_and_nothing_is_hidden() -> None:
    def part(*changes: float) -> Coordinate:
        sizes = (16, 32, 64)[: len(changes)]
        return Coordinate("width", "mlp", sizes, ((0.0, 1.0),) * len(changes), tuple((0.0, x) for x in changes))

    assert part(1, 2, 4).exponent == pytest.approx(1)
    assert not part(1, 2, 4).passes
    assert part(1, 1.1, 1.0).passes
    assert math.isnan(part(1, 0, 1).exponent)
    assert not part(1, math.inf, 1).passes


def test_the_best_rate_of_each_size_is_compared_on_the_grid() -> None:
    def curve(size: int, *losses: float) -> RateCurve:
        return RateCurve("width", size, dict(zip((0.5, 1.0, 2.0, 4.0), losses, strict=True)))

    curves = [curve(16, 3, 2, 1, 2), curve(32, 3, 1, 2, math.inf), curve(64, 1, 2, 3, math.inf)]
    assert [one.best for one in curves] == [2, 1, 0.5]
    assert [one.at_edge for one in curves] == [False, False, True]
    assert grid_steps_apart(curves[:2]) == 1
    assert grid_steps_apart(curves) == 2


def test_a_wider_baseline_has_more_heads_and_a_deeper_one_the_same() -> None:
    wider = {size: resize(space(), "width", size).model for size in (4, 16, 32)}
    assert {size: (model.width, model.heads, model.depth) for size, model in wider.items()} == {
        4: (4, 1, 1),
        16: (16, 4, 1),
        32: (32, 8, 1),
    }
    deeper = resize(space(), "depth", 3).model
    assert (deeper.width, deeper.heads, deeper.depth) == (8, 2, 3)


@pytest.mark.parametrize("kind", ["normal", "mup", "complete_p"])
def test_a_model_is_changed_at_its_size_and_at_twice_and_four_times_that_unless_others_are_named(kind: str) -> None:
    made = space()
    initialiser = {"kind": kind} | ({"base_width": 4} if kind != "normal" else {})
    initialiser |= {"base_depth": 1} if kind == "complete_p" else {}
    made = space(model={**made.model.model_dump(), "initialiser": initialiser})
    wide, deep = [("width", 8), ("width", 16), ("width", 32)], [("depth", 1), ("depth", 2), ("depth", 4)]
    assert list(sizes_of(made, [], [])) == [*wide, *(deep if kind == "complete_p" else [])]
    assert list(sizes_of(made, [24], [3])) == [("width", 24), ("depth", 3)]


def test_all_rates_of_an_optimizer_are_multiplied() -> None:
    made = with_rates(variant(optimizer=OPTIMIZERS["muon"]), 2.0, steps=7).training
    assert (made.optimizer.lr, made.optimizer.adamw.lr, made.steps) == (0.04, 0.008, 7)  # type: ignore[attr-defined]
