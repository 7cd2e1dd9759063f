"""Tuning round any design: equal trials for all, chosen by seeds that are never compared, and the truth comes out."""

from __future__ import annotations

import math
import random
import zlib
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest
from design_contexts import a_context, drive, resume

from ablate.designs.base import BASELINE, Design, Point, Proposal
from ablate.designs.wrappers import TIMING_STEPS, TimedDesign, TunedDesign, tuning_rank
from ablate.roles import TIMING_SEEDS, TUNING_SEEDS, TrialRole
from ablate.spec.design import DesignSpec
from ablate.spec.fairness import TuneSpec
from ablate.stats import judge

LR = "training.optimizer.lr"
GRID = (1e-3, 3e-3, 1e-2, 3e-2)
TUNE = TuneSpec.model_validate({LR: list(GRID), "seeds": 2})
SWITCHES = {"a": ("on", "off"), "b": ("on", "off"), "c": ("on", "off")}
BEST = {BASELINE: 3e-3, "a=off": 3e-2, "b=off": 1e-3}
"""Where the optimum of a variant lies; elsewhere at the baseline's."""

SPECS: list[dict[str, Any]] = [
    {"kind": "leave_one_out", "seeds": 3},
    {"kind": "leave_one_out", "seeds": {"start": 2, "max": 6}},
    {"kind": "add_one_in", "seeds": 2},
    {"kind": "grid", "seeds": 2},
    {"kind": "fractional", "seeds": 2},
    {"kind": "sweep", "seeds": 2, "path": "model.heads", "values": [1, 2]},
    {"kind": "simplify", "seeds": 3, "beam": 2},
    {"kind": "search", "seeds": 2, "points": 7, "sampler": "random", "batch": 3},
]


def noise(*what: object) -> float:
    return random.Random(zlib.crc32(repr(what).encode())).gauss(0, 0.01)


def loss(point: Point, seed: int, written: float = 3e-3) -> float | None:
    """In truth all variants are equally good, each at its own rate; `b=off` diverges at the largest."""
    name = point.name.partition(" (")[0]
    rate = float(point.tuned.get(LR, written))  # type: ignore[arg-type]
    if name == "b=off" and rate > 2e-2:
        return None
    return 2.0 + 0.3 * math.log(rate / BEST.get(name, 3e-3)) ** 2 + 0.05 * (seed % 7) + noise(name, rate, seed)


def tuned(spec: dict[str, Any], tune: TuneSpec = TUNE) -> Design:
    return TunedDesign(DesignSpec.parse(spec).build(a_context(SWITCHES)), tune, "minimize")


def plain(proposals: Iterable[Proposal]) -> list[tuple[object, ...]]:
    return [(p.point.name, *p.point.values.items(), *p.point.tuned.items(), p.seed) for p in proposals]


def verdicts(asked: Iterable[Proposal]) -> dict[str, str]:
    values: dict[str, dict[int, float]] = {}
    for proposal in asked:
        if not proposal.point.role.scouts and (value := loss(proposal.point, proposal.seed)) is not None:
            values.setdefault(proposal.point.name, {})[proposal.seed] = value
    baseline = values.pop(BASELINE)
    return {name: judge(own, baseline, margin=0.1, direction="minimize").word for name, own in values.items()}


def test_untuned_the_verdict_is_wrong_and_tuned_it_is_right() -> None:
    spec = {"kind": "leave_one_out", "seeds": 5}
    untuned = drive(DesignSpec.parse(spec).build(a_context(SWITCHES)), loss)
    assert verdicts(untuned) == {"a=off": "needed", "b=off": "needed", "c=off": "not needed"}
    asked = drive(tuned(spec), loss)
    assert verdicts(asked) == dict.fromkeys(("a=off", "b=off", "c=off"), "not needed")
    chosen = {p.point.name: p.point.tuned[LR] for p in asked if not p.point.role.scouts}
    assert chosen == {BASELINE: 3e-3, "a=off": 3e-2, "b=off": 1e-3, "c=off": 3e-3}


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec["kind"])
def test_every_variant_gets_the_same_trials_and_no_seed_of_the_comparison(spec: dict[str, Any]) -> None:
    asked = drive(tuned(spec), loss)
    scouts = [p for p in asked if p.point.role.scouts]
    compared = [p for p in asked if not p.point.role.scouts]
    assert {p.seed for p in scouts} == {TUNING_SEEDS, TUNING_SEEDS + 1}
    assert max(p.seed for p in compared if p.point.role is TrialRole.COMPARISON) < TUNING_SEEDS
    assert {p.point.role for p in compared if p.seed >= TUNING_SEEDS} <= {TrialRole.CONFIRMATION}
    trials = Counter((*p.point.settings.items(), *p.point.values.items()) for p in scouts)
    assert set(trials.values()) == {len(GRID) * 2}
    assert len(trials) == len({p.point.name for p in compared})
    assert all(p.point.tuned for p in compared)
    first: dict[str, int] = {}
    for number, proposal in enumerate(asked):
        first.setdefault(proposal.point.name, number)
    for proposal in scouts:  # a point is tuned before it is trained
        assert first[proposal.point.name] < first[proposal.point.name.partition(" (")[0]]


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec["kind"])
def test_the_design_within_sees_what_it_would_see_alone(spec: dict[str, Any]) -> None:
    """But for the values: with one and the same loss at every rate, it asks for the same points and seeds."""
    flat = lambda point, seed: loss(Point(point.name.partition(" (")[0], {}), seed)  # noqa: E731
    alone = drive(DesignSpec.parse(spec).build(a_context(SWITCHES)), flat)
    asked = drive(tuned(spec), flat)
    assert [(p.point.name, p.seed) for p in asked if not p.point.role.scouts] == [(p.point.name, p.seed) for p in alone]


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec["kind"])
def test_resumed_by_telling_and_in_any_order(spec: dict[str, Any]) -> None:
    whole = drive(tuned(spec), loss)
    assert plain(drive(tuned(spec), loss, reverse=True)) == plain(whole)
    for done in (1, len(whole) // 3, len(whole) - 1):
        assert plain(resume(tuned(spec), loss, whole[:done])) == plain(whole)


def test_verdicts_keep_their_error_rates() -> None:
    """At the worst truth, a variant worse by exactly the margin, each word is false at most once in twenty.

    All rates are equally good, so that noise alone decides the choice, as in real trials with a small grid.
    """
    draw, studies, margin = random.Random(5), 2000, 0.1
    words: Counter[str] = Counter()
    for _ in range(studies):
        design = TunedDesign(
            DesignSpec.parse({"kind": "leave_one_out", "seeds": 4}).build(a_context({"a": ("on", "off")})),
            TuneSpec.model_validate({LR: [1, 2, 3], "seeds": 2}),
            "minimize",
        )
        values: dict[str, dict[int, float]] = {}
        while proposals := design.ask():
            for proposal in proposals:
                value = draw.gauss(margin if proposal.point.name.startswith("a=off") else 0.0, 0.1)
                design.tell(proposal.point, proposal.seed, value)
                if not proposal.point.role.scouts:
                    values.setdefault(proposal.point.name, {})[proposal.seed] = value
        words[judge(values["a=off"], values[BASELINE], margin=margin, direction="minimize").word] += 1
    for word in ("needed", "not needed"):
        assert words[word] / studies <= 0.05 + 2.58 * math.sqrt(0.05 * 0.95 / studies), words
        assert words[word] / studies >= 0.03, words  # nor is it cautious: the level is used


def test_the_choice_never_depends_on_compared_seeds() -> None:
    """Whatever the compared seeds give, the choice is the same."""
    spec = {"kind": "leave_one_out", "seeds": 2}
    absurd = lambda point, seed: loss(point, seed) if point.role.scouts else -1e9 * noise(point.name, seed)  # noqa: E731
    choices = [
        {p.point.name: p.point.tuned for p in drive(tuned(spec), landscape) if not p.point.role.scouts}
        for landscape in (loss, absurd)
    ]
    assert choices[0] == choices[1]


def test_a_value_that_loses_seeds_loses() -> None:
    ranks = [
        tuning_rank([3.0, 3.2], "minimize"),
        tuning_rank([1.0, None], "minimize"),
        tuning_rank([None] * 2, "minimize"),
    ]
    assert sorted(ranks) == ranks
    assert tuning_rank([0.9, 0.8], "maximize") < tuning_rank([0.7, 0.7], "maximize")
    assert tuning_rank([0.7], "minimize") < tuning_rank([0.8], "minimize")
    asked = drive(tuned({"kind": "leave_one_out", "seeds": 1}), lambda point, seed: None)
    assert {p.point.tuned[LR] for p in asked if not p.point.role.scouts} == {
        GRID[0]
    }  # all lost: the first, and it ends


def test_what_waits_is_known_while_scouts_run() -> None:
    design = tuned({"kind": "leave_one_out", "seeds": 3})
    assert design.waiting() == []
    scouts = design.ask()
    assert len(scouts) == 4 * len(GRID) * 2
    assert [(p.point.name, p.seed) for p in design.waiting()][:2] == [(BASELINE, 0), ("a=off", 0)]
    assert len(design.waiting()) == 12
    assert design.ask() == []


def test_one_timing_serves_all_rates_of_a_point() -> None:
    within = tuned({"kind": "leave_one_out", "seeds": 2})
    baseline = Point(BASELINE, {switch: settings[0] for switch, settings in SWITCHES.items()})
    design = TimedDesign(within, baseline, {LR: 3e-3})
    asked = drive(design, loss)
    timed = [p for p in asked if p.seed in TIMING_SEEDS]
    assert len(timed) == 4 * len(TIMING_SEEDS)
    assert all(p.point.tuned["training.steps"] == TIMING_STEPS and p.point.tuned[LR] == 3e-3 for p in timed)
    rest = [(p.point.name, p.seed) for p in asked if p.seed not in TIMING_SEEDS]
    assert rest == [(p.point.name, p.seed) for p in drive(tuned({"kind": "leave_one_out", "seeds": 2}), loss)]
    # A tuned batch size does change how long a step takes.
    tune = TuneSpec.model_validate({"training.batch_size": [2, 4]})
    inner = tuned({"kind": "leave_one_out", "seeds": 2}, tune)
    asked = drive(TimedDesign(inner, baseline, {}), lambda point, seed: 1.0)
    assert len([p for p in asked if p.seed in TIMING_SEEDS]) == (4 * 2 + 1) * len(TIMING_SEEDS)
