"""Ladders and budgets around a design: rungs, equal FLOPs, order of training, results that a design sees."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from design_contexts import a_context, drive
from pydantic import ValidationError

from ablate.designs.base import Design, DesignContext, Point, PointCost
from ablate.designs.ladder import LadderSpec
from ablate.designs.wrappers import BudgetedDesign
from ablate.errors import SpaceError
from ablate.spec.design import DesignSpec

LR = "training.optimizer.lr"
TOKENS = 256
"""Of a step."""


def cost(point: Point) -> PointCost:
    """Parameters of blocks of 12 width²; `b=off` saves a third of the arithmetic."""
    depth, width = int(str(point.values["model.depth"])), int(str(point.values.get("model.width", 64)))
    steps = int(str(point.values.get("training.steps", 100)))
    parameters = 12 * depth * width**2
    share = 2 / 3 if point.settings["b"] == "off" else 1
    return PointCost(parameters, 6.0 * parameters * TOKENS * steps * share, float(TOKENS * steps), steps)


def ladder(**fields: Any) -> Design:
    switches = {"a": ("on", "off"), "b": ("on", "off")}
    context = DesignContext(switches, {}, "minimize", 0.1, lambda point: None, cost, rates="tuned")
    return LadderSpec.model_validate({"kind": "ladder", "rungs": [2, 3, 4, 6], "seeds": 3, **fields}).build(context)


def test_a_rung_has_the_width_heads_and_tokens_that_its_rules_say() -> None:
    points = {
        point.name: point for point in ladder(width_per_depth=32, head_width=16, tokens_per_parameter=20).points()
    }
    assert len(points) == 12
    for rung, depth in enumerate((2, 3, 4, 6), 1):
        values = points[f"baseline@rung={rung}"].values
        width = 32 * depth
        assert (values["model.depth"], values["model.width"], values["model.heads"]) == (depth, width, width // 16)
        assert values["training.steps"] == round(20 * 12 * depth * width**2 / TOKENS)


def test_every_variant_of_a_rung_trains_with_the_flops_of_its_baseline_to_one_percent() -> None:
    points = {point.name: point for point in ladder(width_per_depth=32, tokens_per_parameter=20).points()}
    for rung in range(1, 5):
        aim = cost(points[f"baseline@rung={rung}"]).flops
        for name in ("a=off", "b=off"):
            assert cost(points[f"{name}@rung={rung}"]).flops == pytest.approx(aim, rel=0.01)


@pytest.mark.parametrize("dial", ["parameters", "flops"])
def test_a_dial_chooses_the_nearest_depth(dial: str) -> None:
    sizes = [1e5, 1e6, 1e7] if dial == "parameters" else [1e10, 1e12, 1e14]
    design = ladder(rungs=sizes, dial=dial, width_per_depth=16, tokens_per_parameter=20)
    for size, point in zip(sizes, design.points()[::3], strict=True):
        depth = int(str(point.values["model.depth"]))

        def distance(other: int, size: float = size) -> float:
            parameters = 12 * other * (16 * other) ** 2
            got = parameters if dial == "parameters" else 6.0 * parameters * 20 * parameters
            return abs(float(np.log(got / size)))

        assert depth == min(range(1, 65), key=distance)


def train(design: Design, gaps: Mapping[str, float], noise: float, draw: int) -> set[str]:
    """The points that a design trains, where variants are worse by a gap."""
    rng, trained = np.random.default_rng(draw), set()
    while proposals := design.ask():
        rungs = {proposal.point.name.rpartition("@")[2] for proposal in proposals}
        assert len(rungs) == 1  # a rung is trained whole before the next
        for proposal in proposals:
            trained.add(proposal.point.name)
            gap = gaps.get(proposal.point.name.partition("@")[0], 0.0)
            design.tell(proposal.point, proposal.seed, 2.0 + gap + float(rng.normal(0, noise)))
    return trained


def test_a_variant_that_is_clearly_worse_is_dropped_and_the_others_are_kept() -> None:
    trained = train(ladder(stop="clearly_worse"), {"a=off": 1.0, "b=off": 0.05}, 0.01, 0)
    assert {name for name in trained if name.startswith("a=off")} == {"a=off@rung=1"}
    assert sum(name.startswith("b=off") for name in trained) == 4
    assert sum(name.startswith("a=off") for name in train(ladder(), {"a=off": 1.0}, 0.01, 0)) == 4


def test_a_variant_at_the_margin_is_dropped_no_more_often_than_promised() -> None:
    studies = 400
    dropped = sum(
        "a=off@rung=4" not in train(ladder(stop="clearly_worse"), {"a=off": 0.1}, 0.05, draw) for draw in range(studies)
    )
    assert dropped <= 0.05 * studies + 3 * (0.05 * 0.95 * studies) ** 0.5


def test_nothing_is_dropped_where_the_baseline_lost_a_seed() -> None:
    """A baseline whose worst seeds diverged looks better than it is, and everything else worse."""
    design, trained = ladder(stop="clearly_worse"), set()
    while proposals := design.ask():
        for proposal in proposals:
            name, worse = proposal.point.name, 1.0 + 0.001 * proposal.seed if "off" in proposal.point.name else 0.0
            trained.add(name)
            design.tell(
                proposal.point, proposal.seed, None if name == "baseline@rung=1" and proposal.seed == 2 else worse
            )
    assert "a=off@rung=2" in trained
    assert "a=off@rung=3" not in trained


def test_seeds_may_differ_by_rung() -> None:
    design, counts = ladder(seeds_per_rung=[5, 4, 3, 2]), []
    while proposals := design.ask():
        counts.append(len({proposal.seed for proposal in proposals}))
        for proposal in proposals:
            design.tell(proposal.point, proposal.seed, 1.0)
    assert counts == [5, 4, 3, 2]


def test_laws_are_not_extrapolated_from_rungs_that_were_not_tuned() -> None:
    context = DesignContext({"a": ("on", "off"), "b": ("on", "off")}, {}, "minimize", 0.1, lambda point: None, cost)
    with pytest.raises(SpaceError, match=r"not tuned.*mup"):
        LadderSpec.model_validate({"kind": "ladder", "rungs": [1, 2]}).build(context)
    LadderSpec.model_validate({"kind": "ladder", "rungs": [1, 2], "target": 1}).build(context)


def test_a_rate_of_a_variant_counts_on_all_its_rungs_and_is_not_tuned_on_each() -> None:
    tuned = {"baseline": {LR: 1e-3}, "a=off": {LR: 2e-3}, "a=off@rung=2": {LR: 4e-3}, "b=off": {LR: 8e-3}}
    context = DesignContext({"a": ("on", "off"), "b": ("on", "off")}, {}, "minimize", 0.1, lambda point: None, cost)
    spec = LadderSpec(rungs=(1, 2))
    design = spec.build(replace(context, tuned=tuned, rates="scaled"))
    rates = {point.name: point.tuned[LR] for point in design.points()}
    assert rates == {
        **{f"{name}@rung={rung}": tuned[name][LR] for name in ("baseline", "a=off", "b=off") for rung in (1, 2)},
        "a=off@rung=2": 4e-3,
    }
    with pytest.raises(SpaceError, match="not tuned"):
        spec.build(replace(context, tuned=tuned, rates="tuned"))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"rungs": [3, 2]}, "ascend"),
        ({"rungs": [1.5, 2]}, "whole number"),
        ({"rungs": [0, 2]}, "above 0"),
        ({"per_rung": {"training.batch_size": [8]}}, "4 rungs, and 1 values"),
        ({"seeds_per_rung": [3, 3]}, "4 rungs, and 2 values"),
        ({"target": 20}, "less than or equal to 10"),
        ({"seeds": {"start": 3, "max": 9}}, "same number of seeds"),
    ],
)
def test_rungs_that_cannot_be_climbed_are_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        LadderSpec.model_validate({"kind": "ladder", "rungs": [1, 2, 3, 4], **fields})


def test_two_rungs_of_one_model_are_refused() -> None:
    with pytest.raises(SpaceError, match="one depth"):
        ladder(rungs=[1e5, 1.01e5, 1e6], dial="parameters", width_per_depth=16)


SWITCHES = {"a": ("on", "off"), "b": ("on", "off")}


def built(spec: dict[str, Any]) -> Design:
    return DesignSpec.parse(spec).build(a_context(SWITCHES))


def loss(point: Point, seed: int) -> float:
    return {"baseline": 1.0, "a=off": 1.05}.get(point.name.partition("@")[0], 1.1) + 0.001 * (seed % 3)


@pytest.mark.parametrize("seeds", [3, {"start": 2, "max": 4}])
def test_every_trial_is_trained_at_every_length(seeds: Any) -> None:
    spec = {"kind": "leave_one_out", "seeds": seeds}
    alone = {(one.point.name, one.seed) for one in drive(built(spec), loss)}
    asked = drive(BudgetedDesign(built(spec), (0.5, 1, 4), 10), loss)
    found = {(one.point.name, one.point.values.get("training.steps"), one.seed) for one in asked}
    expected = {(f"{name}{end}", steps, seed) for name, seed in alone
                for end, steps in (("", None), ("@budget=0.5", 5), ("@budget=4", 40))}  # fmt: skip
    assert found == expected
    assert len(asked) == len(found)


def test_points_come_with_their_lengths_and_results_there_are_not_told() -> None:
    told: list[str] = []

    class Listening(BudgetedDesign):
        def tell(self, point: Point, seed: int, value: float | None) -> None:
            before = len(told)
            super().tell(point, seed, value)
            assert len(told) == before + ("@" not in point.name)

    inner = built({"kind": "leave_one_out", "seeds": 2})
    tell = inner.tell
    inner.tell = lambda point, seed, value: (told.append(point.name), tell(point, seed, value))[1]  # type: ignore[method-assign]
    design = Listening(inner, (1, 2), 10)
    names = [point.name for point in design.points()]
    assert names == ["baseline", "a=off", "b=off", "baseline@budget=2", "a=off@budget=2", "b=off@budget=2"]
    drive(design, loss)
    assert set(told) == {"baseline", "a=off", "b=off"}
    assert "20 steps" in design.warnings()[-1]
