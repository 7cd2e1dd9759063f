"""What every kind of design must do, whatever it proposes."""

from __future__ import annotations

import hashlib

import pytest

from ablate.designs.base import BASELINE, Design, Proposal
from ablate.spec.design import DESIGNS, DesignSpec

SWITCHES = {"skip": ["kept", "removed", "shaped"], "norm": ["rms", "none"], "values": ["dense", "identity"]}
VARIANTS = {"bare": {"skip": "removed", "values": "identity"}}
MOST = 10_000
"""A design that proposes more trials than this for so few switches never ends."""

Told = dict[tuple[str, int], float | None]


def value_of(proposal: Proposal) -> float | None:
    """A made-up result that depends on point and seed alone; now and then a trial diverges."""
    number = hashlib.sha256(f"{sorted(proposal.point.settings.items())}/{proposal.seed}".encode()).digest()[0]
    return None if number < 16 else number / 256


def run(design: Design, told: Told | None = None) -> tuple[list[Proposal], Told]:
    """Ask until nothing more comes, telling each result at once; what is `told` already is not proposed as new."""
    told = {} if told is None else told
    new = []
    while proposals := design.ask():
        for proposal in proposals:
            key = proposal.point.name, proposal.seed
            if key not in told:
                new.append(proposal)
                told[key] = value_of(proposal)
            design.tell(proposal.point, proposal.seed, told[key])
        assert len(told) < MOST
    return new, told


@pytest.fixture(params=DESIGNS.members().values(), ids=DESIGNS.members())
def spec(request: pytest.FixtureRequest) -> DesignSpec:
    made: DesignSpec = request.param(seeds=2)
    return made


def build(spec: DesignSpec) -> Design:
    return spec.build(SWITCHES, VARIANTS)


def test_points_begin_with_the_baseline_and_set_every_switch(spec: DesignSpec) -> None:
    points = build(spec).points()
    assert points[0].name == BASELINE
    assert dict(points[0].settings) == {switch: settings[0] for switch, settings in SWITCHES.items()}
    assert len({point.name for point in points}) == len(points)
    for point in points:
        assert list(point.settings) == list(SWITCHES)
        assert all(point.settings[switch] in settings for switch, settings in SWITCHES.items())


def test_every_trial_is_proposed_once_and_every_point_is_paired_with_the_baseline(spec: DesignSpec) -> None:
    proposals, _ = run(build(spec))
    trials = [(proposal.point.name, proposal.seed) for proposal in proposals]
    assert len(set(trials)) == len(trials)
    assert {name for name, _ in trials} >= {BASELINE, *VARIANTS}
    for name, seed in trials:
        assert (BASELINE, seed) in trials, f"{name} has no partner for seed {seed}"


def test_the_same_calls_give_the_same_proposals(spec: DesignSpec) -> None:
    assert run(build(spec)) == run(build(spec))


def test_a_design_that_is_done_asks_for_nothing(spec: DesignSpec) -> None:
    design = build(spec)
    run(design)
    assert design.ask() == []
    assert design.ask() == []


@pytest.mark.parametrize("share", [0.0, 0.3, 0.7, 1.0])
def test_a_design_is_resumed_by_telling_a_new_one_what_is_known(spec: DesignSpec, share: float) -> None:
    whole, results = run(build(spec))
    known = {(p.point.name, p.seed): results[p.point.name, p.seed] for p in whole[: round(share * len(whole))]}
    count = len(known)
    rest, told = run(build(spec), known)
    assert told == results
    assert [(p.point.name, p.seed) for p in rest] == [(p.point.name, p.seed) for p in whole[count:]]


def test_results_that_are_all_missing_end_the_design_too(spec: DesignSpec) -> None:
    design = build(spec)
    told = 0
    while proposals := design.ask():
        for proposal in proposals:
            design.tell(proposal.point, proposal.seed, None)
            told += 1
        assert told < MOST
    assert told > 0


def test_settings_are_those_of_the_names_that_the_space_gives(spec: DesignSpec) -> None:
    named = {point.name: dict(point.settings) for point in build(spec).points()}
    baseline = {switch: settings[0] for switch, settings in SWITCHES.items()}
    for name, settings in VARIANTS.items():
        assert named[name] == {**baseline, **settings}
