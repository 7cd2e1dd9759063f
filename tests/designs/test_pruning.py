"""Rules that end trials early, on curves whose order is known: the best survives, most of the rest do not."""

from __future__ import annotations

from typing import Any

import pytest
from design_contexts import a_context
from pydantic import ValidationError

from ablate.designs.base import BASELINE, Point, PointCost, Proposal
from ablate.designs.search import SearchDesign, SearchSpec

RATE = "training.lr"
RULES: list[Any] = [
    "asha",
    {"kind": "asha", "first": 0.2, "keep": 2},
    "hyperband",
    {"kind": "median", "finished": 3},
    "wilcoxon",
]
EVALUATIONS = 10


def search(pruning: Any = None, **settings: Any) -> SearchDesign:
    plain = {"sampler": "random", "points": 40, "batch": 8, "seeds": 1, "ranges": {RATE: {"low": 0.0, "high": 1.0}}}
    spec = SearchSpec.model_validate({**plain, "pruning": pruning, **settings})
    return spec.searching(a_context({"part": ("on", "off")}))


def loss(proposal: Proposal, reached: float) -> float:
    """Curves that never cross: the nearer the rate is to 0.3, the faster one falls. The baseline is among the worst."""
    rate = proposal.point.values.get(RATE, 1.0)
    assert isinstance(rate, float)
    return 3.0 - reached * (1.0 - abs(rate - 0.3)) + 0.001 * proposal.seed


def train(design: SearchDesign) -> tuple[dict[str, float], dict[str, float]]:
    """Trials of a batch side by side: point to final loss of what finished, point to share done of what was pruned."""
    finished: dict[str, float] = {}
    pruned: dict[str, float] = {}
    while running := list(design.ask()):
        for i in range(EVALUATIONS + 1):
            reached = i / EVALUATIONS
            for proposal in list(running):
                value = loss(proposal, reached)
                if design.watch(proposal.point, proposal.seed, reached, value) and reached < 1:
                    running.remove(proposal)
                    pruned[proposal.point.name] = reached
                    design.tell(proposal.point, proposal.seed, None)
        for proposal in running:
            finished[proposal.point.name] = loss(proposal, 1.0)
            design.tell(proposal.point, proposal.seed, loss(proposal, 1.0))
    return finished, pruned


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_the_best_survives_and_compute_is_saved(rule: Any) -> None:
    everything, nothing = train(search())
    finished, pruned = train(search(rule))
    assert nothing == {}
    assert finished.keys() | pruned.keys() == everything.keys(), "chance draws the same points"
    assert min(finished.values()) == min(everything.values())
    used = len(finished) + sum(pruned.values())
    assert used < 0.8 * len(everything)
    ends = [everything[name] for name in pruned]
    assert sum(finished.values()) / len(finished) < sum(ends) / len(ends)


def test_the_baseline_is_always_trained_to_the_end() -> None:
    design = search("asha", ranges={RATE: {"low": 0.0, "high": 0.5}})
    finished, _ = train(design)
    assert BASELINE in finished
    assert finished[BASELINE] > max(loss for name, loss in finished.items() if name != BASELINE)


def test_the_seeds_of_a_point_are_pruned_together() -> None:
    """A point that lost one seed is never compared, so its other seeds are not trained."""
    design = search("asha", seeds=2, points=8)
    proposals = design.ask()
    gone: set[str] = set()
    for seed in (0, 1):
        for proposal in (each for each in proposals if each.seed == seed):
            ends = design.watch(proposal.point, seed, 0.1, loss(proposal, 0.1))
            if seed == 1 and proposal.point.name in gone:
                assert ends
            if ends:
                gone.add(proposal.point.name)
    assert len(gone) >= 4


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_replayed_curves_give_the_same_decisions(rule: Any) -> None:
    """A resumed study replays stored curves; what was pruned then is pruned again."""
    first, second = search(rule), search(rule)
    _, pruned = train(first)
    _, again = train(second)
    assert again == pruned


def test_diverging_curves_are_not_compared_with() -> None:
    design = search("wilcoxon")
    first, second, *_ = (each for each in design.ask() if each.point.name != BASELINE)
    assert not design.watch(first.point, 0, 0.1, 3.0)
    assert not design.watch(first.point, 0, 0.2, float("nan"))
    design.tell(first.point, 0, None)
    assert not design.watch(second.point, 0, 0.1, 9.0)


def test_without_a_rule_nothing_is_pruned() -> None:
    design = search()
    assert not design.prunes
    assert search("median").prunes
    assert not any(design.watch(proposal.point, proposal.seed, 0.5, 99.0) for proposal in design.ask())


@pytest.mark.parametrize(
    "pruning",
    [
        "halving",
        {"kind": "asha", "first": 0},
        {"kind": "asha", "keep": 1},
        {"kind": "median", "p": 0.1},
        {"first": 0.1},
    ],
    ids=str,
)
def test_wrong_rules_are_refused(pruning: Any) -> None:
    with pytest.raises(ValidationError):
        SearchSpec.model_validate({"pruning": pruning})


def test_speed_is_an_objective() -> None:
    """Of two points as good, the search prefers the faster one; the measured speed is averaged over seeds."""
    spec = SearchSpec(
        sampler="random", points=2, seeds=2, batch=2, objectives=("objective", "parameters", "tokens_per_second")
    )
    design = spec.searching(a_context({"part": ("on", "off")}, cost=lambda point: PointCost(7, 1.0)))
    speeds = {"on": (100.0, 300.0), "off": (1000.0, 3000.0)}
    for proposal in design.ask():
        design.timed(proposal.point, proposal.seed, speeds[proposal.point.settings["part"]][proposal.seed])
        design.tell(proposal.point, proposal.seed, 1.0)
    design.ask()
    assert sorted(trial.values for trial in design.study.trials if trial.values) == [[1, 7, 200], [1, 7, 2000]]
    (best,) = design.study.best_trials
    assert best.params["part"] == "off"
    assert any("noisy" in warning for warning in design.warnings())
    assert search().warnings() == []


def test_a_point_is_a_point() -> None:
    """A watch of a trial that nobody asked for is a mistake of ours, and is not passed over."""
    with pytest.raises(KeyError):
        search("asha").watch(Point("unknown", {"part": "on"}), 0, 0.5, 1.0)
