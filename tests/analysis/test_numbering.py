"""A study says the same with other numbers of seeds, and with its trials stored in another order.

A set of 6 to 9 iterates as 8, 9, 6, 7, and one of 28 to 35 begins with 32: seeds from 0 on hide a missing `sorted`.
"""

from __future__ import annotations

import random
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from fake_store import NOON, FakeStore, fake_store

from ablate.analysis import read_study
from ablate.analysis.pareto import read_front
from ablate.render.as_json import study_json
from ablate.store.records import Declaration, PlannedTrial, TrialState

STEPS = [100 * n for n in range(1, 13)]
CLAIMS: list[dict[str, Any]] = [
    {"id": "c1", "left": "baseline", "right": "a=x", "expect": "better", "margin": 0.05},
    {
        "id": "c2",
        "subject": {"variant": "a=x", "quantity": "val_loss", "over": "baseline"},
        "expect": 1,
        "tolerance": 1,
    },
    {"id": "c4", "left": "a=x", "right": "baseline", "expect": "not_worse", "margin": 0.05},
    {"id": "c3", "order": ["baseline", "b=x", "c=x"], "expect": "ordered", "margin": 0.01},
]


def studied(first: int, count: int, draw: int, space: dict[str, Any], budgets: tuple[int, ...] = (1,)) -> FakeStore:
    """Seeds of skewed noise, curves, losses on parts of the data, a trial that failed and one that runs, by rank."""
    rng = np.random.default_rng(draw)
    ends = {at: "" if at == 1 else f"@budget={at}" for at in budgets}
    names = [f"{name}{end}" for end in ends.values() for name in ("baseline", "a=x", "b=x", "c=x", "d=x", "e=x")]
    made = fake_store({name: ({"a": name}, 10) for name in names}, seeds=0, margin=0.05)
    seeds = range(first, first + count)
    made.record = replace(
        made.record,
        space={
            "claims": CLAIMS,
            "design": {"kind": "leave_one_out", "first_seed": first, **space},
            "budgets": [*budgets],
        },
        planned=tuple(PlannedTrial(f"{name}/{seed}", name, seed) for seed in seeds for name in names),
        trivial={"uniform": {"val_loss": 4.0}},
        declared_before=(Declaration(made.record.objective, [], NOON, 6, 3),) if space["seeds"] == 8 else (),
    )
    bases = rng.normal(3.0, 0.1, count)
    for name in names:
        worse = 0.0 if name.startswith("baseline") else rng.uniform(-0.1, 0.15) + rng.gamma(0.3, 0.05, count)
        slope = rng.normal(0, 1e-4, count)
        for seed, loss, slant in zip(seeds, bases + worse, slope, strict=True):
            if name == "d=x" and seed == first + 1:
                made.add(name, seed, state=TrialState.FAILED, reason="out of memory")
                continue
            if name == "e=x" and seed == seeds[-2]:
                made.add(name, seed, state=TrialState.RUNNING)
                continue
            curve = [(step, float(loss + 300 / step + slant * (1200 - step))) for step in STEPS]
            made.add(name, seed, {"val_loss": curve[-1][1]}, curve=curve)
            parts = {"val_loss": tuple((loss + rng.normal(0, 0.05, 8)).tolist())}
            made.trial_records[f"{name}/{seed}"] = replace(made.trial_records[f"{name}/{seed}"], parts=parts)
    return made


def shuffled(made: FakeStore, draw: int) -> FakeStore:
    """The same trials, planned and stored in another order."""
    order = list(made.record.planned)
    random.Random(draw).shuffle(order)
    return replace(made, record=replace(made.record, planned=tuple(order)))


def ranked(found: Any, first: int, key: str = "") -> Any:
    """What a report says, with the ranks of seeds for their numbers."""
    if key in ("seed", "seeds"):
        return [one - first for one in found] if isinstance(found, list) else found - first
    if isinstance(found, dict):
        names = {name: str(int(name) - first) if name.isdigit() else name for name in found}
        return {names[name]: ranked(value, first, name) for name, value in found.items()}
    return [ranked(one, first) for one in found] if isinstance(found, list | tuple) else found


@pytest.mark.parametrize(
    ("space", "budgets"),
    [({"seeds": {"start": 3, "max": 20}}, (1,)), ({"seeds": 4}, (1,)), ({"seeds": 8}, (1, 2, 4))],
    ids=["at looks", "fixed", "at budgets"],
)
@pytest.mark.parametrize(("first", "count"), [(6, 4), (28, 8)])
def test_renumbered_seeds_and_another_order_of_trials_give_the_same_report(
    first: int, count: int, space: dict[str, Any], budgets: tuple[int, ...]
) -> None:
    for draw in range(3):
        plain = studied(0, count, draw, space, budgets)
        made = shuffled(studied(first, count, draw, space, budgets), draw)
        assert ranked(study_json(read_study(made, "a_study")), first) == ranked(
            study_json(read_study(plain, "a_study")), 0
        )
        ours, theirs = (read_front(one, "a_study", ("val_loss", "parameters")) for one in (made, plain))
        assert ours is not None
        assert ours == theirs


@pytest.mark.parametrize("draw", range(6))
def test_a_comparison_has_one_interval_whichever_side_a_claim_names_first(draw: int) -> None:
    """Also where a few seeds end far worse, so that the two bounds are not alike."""
    made = studied(6, 6, draw, {"seeds": 6})
    sides = [("baseline", name) for name in ("a=x", "b=x", "c=x", "d=x")]
    claims = [
        {"id": f"{left}-{right}".replace("=", ""), "left": left, "right": right, "expect": expect, "margin": 0.05}
        for one, other in sides
        for left, right, expect in ((one, other, "better"), (other, one, "worse"))
    ]
    made.record = replace(made.record, space={**made.record.space, "claims": claims})
    report = read_study(made, "a_study")
    found = {claim.id: claim for claim in report.answer.claims}
    for one, other in sides:
        ours, theirs = (found["-".join(pair).replace("=", "")] for pair in ((one, other), (other, one)))
        assert ours.verdict == theirs.verdict
        assert re.findall(r"[\d.]+", ours.sentence) == re.findall(r"[\d.]+", theirs.sentence), "the bound"
        assert [ours.evidence[end] for end in ("low", "high")] == [theirs.evidence[end] for end in ("low", "high")]
