"""Designs over real specs: through the plan, the driver and the store, and resumed from the store."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from engine_samples import ENVIRONMENT, ScriptedEngine, measured, planner

from ablate.errors import SpaceError
from ablate.execution.driver import run_study
from ablate.execution.observer import Observer
from ablate.execution.protocol import Done, Happened, Job, Message
from ablate.planning.plan import make_plan
from ablate.spec.variant import VariantSpec
from ablate.store import open_store


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


ADAPTIVE: list[dict[str, Any]] = [
    {"kind": "simplify", "seeds": 2, "beam": 2},
    {"kind": "search", "seeds": 2, "points": 6, "ranges": {"training.optimizer.lr": {"low": 1e-4, "high": 1e-2}}},
]
SWITCHES = {
    "values": {"dense": {}, "identity": {"block.mixer.value": "identity"}},
    "norm": {"usual": {}, "none": {"block.norm": "none"}},
    "nothing": {"so": {}, "or_so": {}},
    "order": {"usual": {}, "kv": {"block.mixer.matmul_order": "kv_first"}},  # which softmax forbids
}


def by_spec(job: Job, attempt: int) -> Sequence[Message]:
    """A block without norm is much worse; without values as good, but for a little noise."""
    spec = VariantSpec.model_validate_json(job.members[0].variant)
    bare, own = spec.model.block.norm.kind == "none", 1e-6 * (spec.model.block.mixer.value.kind == "identity")
    loss = 3.0 + bare + (0.1 + 1e-6 * bare + own) * job.members[0].seed
    return [*(Happened(job.number, measured(step, loss - step)) for step in (0, 1, 2)), Done(job.number)]


@pytest.mark.parametrize("design", ADAPTIVE, ids=lambda design: design["kind"])
def test_adaptive_designs_end_and_train_nothing_twice(folder: Path, design: dict[str, Any]) -> None:
    with open_store(folder / "s.db") as store:
        made = planner(folder, switches=SWITCHES, design=design)
        engine = ScriptedEngine(by_spec)
        result = run_study(made, store, engine, ENVIRONMENT, Observer())
        assert result.trained == result.trials == len(engine.jobs) > 4
        assert len(set(engine.trained)) == len(engine.trained)
        again = ScriptedEngine(by_spec)
        resumed = run_study(planner(folder, switches=SWITCHES, design=design), store, again, ENVIRONMENT, Observer())
        assert again.jobs == []
        assert resumed.reused == result.trained


def test_simplify_takes_away_what_can_go(folder: Path) -> None:
    """`nothing` changes no spec, so a removal can be the same variant as the baseline: it is told of, not trained."""
    made = planner(folder, switches=SWITCHES, design=ADAPTIVE[0])
    with open_store(folder / "s.db") as store:
        run_study(made, store, ScriptedEngine(by_spec), ENVIRONMENT, Observer())
        tried = {variant.name for variant in store.study("sample").variants}
    assert tried == {"baseline", "values=identity", "norm=none", "values=identity,norm=none"}


def test_a_sweep_sets_its_path_and_leaves_out_what_cannot_be(folder: Path) -> None:
    design = {"kind": "sweep", "path": "model.heads", "values": [1, 2, 3, 8], "seeds": 1}
    plan = make_plan(planner(folder, design=design))
    assert {v.name: v.spec.model.heads for v in plan.variants} == {f"baseline@model.heads={n}": n for n in (1, 2, 8)}
    assert [invalid.point.name for invalid in plan.invalid] == ["baseline@model.heads=3"]
    assert "divide the width" in plan.invalid[0].reason
    assert plan.variants[0].settings["model.heads"] == "1"
    short = make_plan(planner(folder, design={**design, "path": "block.mlp.ratio", "values": [2]}))
    assert short.variants[0].spec.model.block.mlp.ratio == 2


@pytest.mark.parametrize(
    ("design", "problem"),
    [
        (
            {"kind": "sweep", "path": "model.headds", "values": [1]},
            r"design.path: .*`model.headds`.*`heads`\?",
        ),
        ({"kind": "sweep", "path": "model.heads.one", "values": [1]}, "`model.heads` is 2 and has no fields"),
        ({"kind": "fractional", "resolution": "V", "runs": 3}, "design.runs: .*needs 4 runs"),
        ({"kind": "search", "ranges": {"model.headds": {"low": 1, "high": 2}}}, "design.ranges.model.headds: .*no key"),
        ({"kind": "add_one_in", "plainest": "bare"}, "design.plainest: there is no such variant"),
    ],
    ids=lambda value: value["kind"] if isinstance(value, dict) else "",
)
def test_wrong_designs_are_refused_before_anything_trains(folder: Path, design: dict[str, Any], problem: str) -> None:
    with pytest.raises(SpaceError, match=problem):
        make_plan(planner(folder, design=design))


def test_remarks_reach_the_plan(folder: Path) -> None:
    (remark,) = make_plan(planner(folder, design={"kind": "fractional", "resolution": "III"})).remarks
    assert remark == "4 of 4 combinations, the full factorial; no effects of one or two switches are aliased."


def test_numeric_values_are_in_the_stored_settings(folder: Path) -> None:
    design = {"kind": "sweep", "path": "training.optimizer.lr", "values": [0.01, 0.001], "seeds": 1}
    with open_store(folder / "s.db") as store:
        run_study(planner(folder, design=design), store, ScriptedEngine(), ENVIRONMENT, Observer())
        stored = [variant.settings["training.optimizer.lr"] for variant in store.study("sample").variants]
    assert stored == ["0.01", "0.001"]
