"""Seeds that are added only where a comparison is still undecided."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import pytest
from design_contexts import a_context, drive
from pydantic import ValidationError

from ablate.designs.base import BASELINE, Design, Point
from ablate.spec.design import DesignSpec
from ablate.stats import Allowance, SeedSchedule, judge, need_more_seeds, tails_at_looks

SWITCHES = {"plain": ("kept", "worse"), "same": ("kept", "gone"), "noisy": ("kept", "gone")}
EFFECTS = {"plain=worse": (1.0, 0.02), "same=gone": (0.0, 0.02), "noisy=gone": (0.1, 0.5), BASELINE: (0.0, 0.0)}
"""Mean and spread of the difference to the baseline; the margin is 0.1."""


def design(**changes: object) -> Design:
    spec = {"kind": "leave_one_out", "seeds": {"start": 3, "max": 12}, **changes}
    return DesignSpec.parse(spec).build(a_context(SWITCHES))


def value(point: Point, seed: int) -> float:
    mean, spread = EFFECTS[point.name]
    return random.Random(seed).gauss(3, 0.3) + random.Random(f"{point.name}{seed}").gauss(mean, spread)


def test_only_the_undecided_get_more_seeds_and_the_baseline_gets_each() -> None:
    asked = drive(design(), value)
    seeds = Counter(proposal.point.name for proposal in asked)
    assert seeds["plain=worse"] == seeds["same=gone"] == 3
    assert seeds["noisy=gone"] == seeds[BASELINE] > 3


def test_it_stops_where_the_verdict_of_the_schedule_stops() -> None:
    asked = drive(design(), value)
    results: dict[str, dict[int, float]] = {}
    for proposal in asked:
        results.setdefault(proposal.point.name, {})[proposal.seed] = value(proposal.point, proposal.seed)
    baseline = results.pop(BASELINE)
    for values in results.values():
        verdict = judge(values, baseline, margin=0.1, direction="minimize", schedule=SeedSchedule(3, 12))
        assert verdict.word != "undecided" or len(values) == 12


@pytest.mark.parametrize("variants", [("baseline", "off"), ("off", "baseline"), ()])
def test_a_sweep_adds_seeds_where_a_value_is_undecided_beside_its_own_baseline(variants: tuple[str, ...]) -> None:
    """The baselines of two values differ by ten margins, and what is undecided at one is decided at the other."""
    spec = {"kind": "sweep", "path": "model.heads", "values": [1, 2], "seeds": {"start": 3, "max": 12},
            "variants": variants}  # fmt: skip
    context = a_context({"a": ("on", "off")}, variants={"off": {"a": "off"}})

    def result(point: Point, seed: int) -> float:
        shared = random.Random(seed).gauss(3, 0.3) + point.values["model.heads"]  # type: ignore[operator]
        noise = 0.5 if point.name == "off@model.heads=2" else 0.001
        return shared + random.Random(f"{point.name}{seed}").gauss(0.0 if "baseline" in point.name else 0.05, noise)

    seeds = Counter(proposal.point.name for proposal in drive(DesignSpec.parse(spec).build(context), result))
    assert seeds["baseline@model.heads=1"] == seeds["off@model.heads=1"] == 3
    assert seeds["baseline@model.heads=2"] == seeds["off@model.heads=2"] > 3


def test_seeds_start_where_the_space_says() -> None:
    asked = drive(design(first_seed=40), value)
    assert {proposal.seed for proposal in asked if proposal.point.name == "plain=worse"} == {40, 41, 42}
    seeds = {proposal.seed for proposal in asked if proposal.point.name == "noisy=gone"}
    assert seeds == set(range(40, 40 + len(seeds)))
    assert 3 < len(seeds) <= 12
    fixed = drive(design(seeds=2, first_seed=4), value)
    assert {proposal.seed for proposal in fixed} == {4, 5}


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"kind": "leave_one_out", "seeds": 3, "first_seed": 998}, r"first_seed\n.* would reach 1000"),
        (
            {"kind": "leave_one_out", "seeds": {"start": 3, "max": 12}, "first_seed": 989},
            r"first_seed\n.* would reach 1000",
        ),
        ({"kind": "grid", "seeds": 1001}, r"Spec\nseeds\n  seeds from 1000 on tune and time"),
        ({"kind": "simplify", "seeds": 3, "first_seed": 1}, "starts with seed 0"),
    ],
)
def test_seeds_that_are_not_free_are_refused(spec: dict[str, object], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        DesignSpec.parse(spec).build(a_context(SWITCHES))


def test_nothing_is_proposed_while_a_trial_of_the_look_is_missing() -> None:
    sequential = design()
    *reported, missing = sequential.ask()
    for proposal in reported:
        sequential.tell(proposal.point, proposal.seed, value(proposal.point, proposal.seed))
    assert sequential.ask() == []
    sequential.tell(missing.point, missing.seed, value(missing.point, missing.seed))
    assert {proposal.point.name for proposal in sequential.ask()} == {BASELINE, "noisy=gone"}


def test_a_diverged_variant_gets_no_more_seeds() -> None:
    asked = drive(
        design(), lambda point, seed: None if point.name == "noisy=gone" and seed == 1 else value(point, seed)
    )
    assert max(proposal.seed for proposal in asked) == 2


def test_a_baseline_that_always_diverges_ends_at_the_last_look() -> None:
    asked = drive(design(), lambda point, seed: None if point.name == BASELINE else value(point, seed))
    assert max(proposal.seed for proposal in asked) == 11


@pytest.mark.parametrize("kind", ["simplify", "fractional", "search"])
def test_designs_that_need_one_number_of_seeds_say_so(kind: str) -> None:
    spec = {"kind": kind, "seeds": {"start": 3, "max": 12}}
    extra = {"fractional": {"resolution": "III"}, "search": {"points": 4}}.get(kind, {})
    with pytest.raises(ValidationError, match="the same number of seeds"):
        DesignSpec.parse({**spec, **extra}).build(a_context(SWITCHES)).ask()


@pytest.mark.parametrize(
    "seeds", [{"start": 3, "max": 3}, {"start": 1, "max": 5}, {"start": 3, "max": 99}, {"start": 3}]
)
def test_impossible_schedules_are_refused(seeds: dict[str, int]) -> None:
    with pytest.raises(ValidationError):
        design(seeds=seeds)


def test_what_gets_no_more_seeds_is_decided_whatever_the_others_show_later() -> None:
    """Long tails: the answer, which sees all seeds, takes each decision that the design took at its look."""
    rng, plan, zeros = np.random.default_rng(0), SeedSchedule(5, 12), dict.fromkeys(range(12), 0.0)
    stopped = 0
    for _ in range(12):
        drawn = np.array([0.0, 0.02, 0.03, 0.05])[:, None] + 0.01 * rng.lognormal(0.0, 1.0, (4, 12)) - 0.015
        asked = {str(number): 5 for number in range(4)}

        def seen(asked: dict[str, int] = asked, drawn: Any = drawn) -> dict[str, dict[int, float]]:
            return {name: dict(enumerate(drawn[int(name), :n].tolist())) for name, n in asked.items()}

        while more := need_more_seeds(seen(), zeros, margin=0.05, direction="minimize", schedule=plan):
            asked |= {name: asked[name] + 1 for name in more}
        allowance = Allowance(tails_at=tails_at_looks(((values, ()) for values in seen().values()), plan))
        for values in seen().values():
            rule = {"margin": 0.05, "schedule": plan, "allowance": allowance}
            verdict = judge(values, zeros, direction="minimize", **rule)  # type: ignore[arg-type]
            assert len(values) == 12 or verdict.word != "undecided"
            stopped += len(values) < 12
    assert stopped > 10
