"""Search: better than chance on landscapes with a known optimum, limits kept, wrong input refused."""

from __future__ import annotations

import math
import statistics
import sys

import pytest
from design_contexts import a_context, drive, on_off
from pydantic import ValidationError

from ablate.designs.base import Point, PointCost
from ablate.designs.search import RangeSpec, SearchSpec
from ablate.errors import MissingPackageError, SpaceError

TEN = on_off(*"abcdefghij")
WANTED = dict(zip(TEN, ("on", "off", "off", "on", "off", "on", "on", "off", "on", "off"), strict=True))


def distance(point: Point, seed: int) -> float:
    """Number of switches at a wrong setting."""
    return float(sum(setting != WANTED[switch] for switch, setting in point.settings.items()))


def best_of(spec: SearchSpec, context, landscape=distance) -> float:  # type: ignore[no-untyped-def]
    return min(landscape(proposal.point, proposal.seed) for proposal in drive(spec.searching(context), landscape))


def test_samplers_learn() -> None:
    """Among 1,024 corners, 60 points of chance leave about two switches wrong; samplers that learn do better."""
    context = a_context(TEN)
    means = {
        sampler: statistics.fmean(
            best_of(SearchSpec(sampler=sampler, points=60, seeds=1, batch=2, draws=draw), context) for draw in range(6)
        )
        for sampler in ("random", "tpe", "nsga2", "nsga3")
    }
    assert all(means[sampler] < means["random"] for sampler in ("tpe", "nsga2", "nsga3")), means


def test_gp_finds_the_optimum_of_few_switches() -> None:
    switches = {switch: TEN[switch] for switch in "abcde"}
    context = a_context(switches)
    assert best_of(SearchSpec(sampler="gp", points=18, seeds=1, batch=2), context) == 0


def bowl(point: Point, seed: int) -> float:
    rate, width = point.values.get("training.lr", 1.0), point.values.get("model.width", 1)
    assert isinstance(rate, float)
    assert isinstance(width, int)
    return math.log10(rate / 3e-3) ** 2 + (width / 64 - 1) ** 2


RANGES = {"training.lr": RangeSpec(low=1e-5, high=1.0, log=True), "model.width": RangeSpec(low=8, high=128)}


@pytest.mark.parametrize("sampler", ["tpe", "cmaes"])
def test_numeric_ranges(sampler: str) -> None:
    if sampler == "cmaes":
        pytest.importorskip("cmaes")
    spec = SearchSpec(sampler=sampler, points=60, seeds=1, ranges=RANGES)  # type: ignore[arg-type]
    proposals = drive(spec.searching(a_context(on_off("a"))), bowl)
    searched = [proposal.point for proposal in proposals if proposal.point.values]
    assert all(1e-5 <= point.values["training.lr"] <= 1.0 for point in searched)  # type: ignore[operator]
    assert all(point.values["model.width"] in range(8, 129) for point in searched)
    assert min(bowl(point, 0) for point in searched) < 0.15
    assert len({point.name for point in searched}) == len(searched) == 59
    if sampler == "cmaes":
        assert {point.settings["a"] for point in searched} == {"on"}


def test_trains_as_many_points_as_it_was_given() -> None:
    proposals = drive(SearchSpec(points=23, seeds=2).searching(a_context(TEN, variants={"wanted": WANTED})), distance)
    names = list(dict.fromkeys(proposal.point.name for proposal in proposals))
    assert names[:2] == ["baseline", "wanted"]
    assert len(names) == 23


def test_ends_when_every_point_was_trained() -> None:
    context = a_context(on_off(*"abc"), refusal=lambda point: "no" if point.settings["a"] == "off" else None)
    proposals = drive(SearchSpec(points=50, seeds=1).searching(context), lambda point, seed: 0.0)
    assert len(proposals) == 4


def cost_of_kept(point: Point) -> PointCost:
    kept = sum(setting == "on" for setting in point.settings.values())
    return PointCost(kept, 10.0 * kept)


def test_limits_are_kept() -> None:
    spec = SearchSpec(points=20, seeds=1, at_most={"parameters": 6})
    context = a_context(TEN, cost=cost_of_kept)
    drawn = [p.point for p in drive(spec.searching(context), distance) if p.point.name != "baseline"]
    assert len(drawn) > 10
    assert all(cost_of_kept(point).parameters <= 6 for point in drawn)


def test_several_objectives_give_a_front() -> None:
    """More kept switches, less loss: every count of kept switches is on the true front."""
    spec = SearchSpec(sampler="nsga2", points=80, seeds=1, objectives=("objective", "parameters"), batch=4)
    design = spec.searching(a_context(TEN, cost=cost_of_kept))
    drive(design, lambda point, seed: -float(cost_of_kept(point).parameters))
    front = {tuple(trial.values) for trial in design.study.best_trials}
    assert all(loss == -parameters for loss, parameters in front)
    assert len(front) >= 6


def test_values_are_means_over_seeds_and_divergence_counts_as_the_worst() -> None:
    design = SearchSpec(sampler="random", points=12, seeds=2).searching(a_context(TEN))
    drive(design, lambda point, seed: None if point.settings["a"] == "off" and seed else distance(point, seed) + seed)
    for trial in design.study.trials:
        wrong = distance(Point("", {switch: str(trial.params[switch]) for switch in TEN}), 0)
        if trial.params["a"] == "on":
            assert trial.value == wrong + 0.5
        else:
            assert trial.value is not None
            assert trial.value >= max(one.value or 0 for one in design.study.trials[: trial.number])


def test_refuses() -> None:
    with pytest.raises(ValidationError, match="at least two numeric ranges"):
        SearchSpec(sampler="cmaes")
    with pytest.raises(ValidationError, match="include `objective`"):
        SearchSpec(objectives=("flops",))
    with pytest.raises(ValidationError, match="`high` must be above `low`"):
        RangeSpec(low=3, high=3)
    with pytest.raises(ValidationError, match="must start above 0"):
        RangeSpec(low=0, high=3, log=True)
    context = a_context(TEN, refusal=lambda point: "there is no key `hedz` here" if point.values else None)
    with pytest.raises(SpaceError, match=r"design.ranges.model.hedz.*no key `hedz`"):
        SearchSpec(ranges={"model.hedz": RangeSpec(low=1, high=4)}).searching(context)


@pytest.mark.parametrize("package", ["optuna", "cmaes"])
def test_a_search_without_its_packages(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingPackageError, match=rf"needs {package}, .*'ablate-blocks\[search\]'"):
        SearchSpec(ranges=RANGES).searching(a_context(TEN))
