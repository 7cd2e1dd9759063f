"""Designs over real specs: through the plan, the driver and the store, and resumed from the store."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from engine_samples import ENVIRONMENT, Log, ScriptedEngine, measured, planner

from ablate.analysis.study import read_study
from ablate.designs.base import BASELINE, DesignContext, FixedDesign, Point, Proposal
from ablate.designs.fixed import LeaveOneOutSpec
from ablate.errors import SpaceError
from ablate.execution.driver import run_study
from ablate.execution.engine import Observer
from ablate.execution.protocol import Done, Happened, Job, Message
from ablate.planning.planner import make_plan
from ablate.roles import TrialRole
from ablate.spec.variant import VariantSpec
from ablate.store import open_store

pytestmark = pytest.mark.usefixtures("folder")


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
        log = Log()
        resumed = run_study(planner(folder, switches=SWITCHES, design=design), store, again, ENVIRONMENT, log)
        assert again.jobs == log.told == [], "a result that is there when a trial is proposed waits for no worker"
        assert resumed.reused == result.trained


def test_simplify_takes_away_what_can_go(folder: Path) -> None:
    """`nothing` changes no spec, so a removal can be the same variant as the baseline: it is told of, not trained."""
    made = planner(folder, switches=SWITCHES, design=ADAPTIVE[0])
    with open_store(folder / "s.db") as store:
        run_study(made, store, ScriptedEngine(by_spec), ENVIRONMENT, Observer())
        tried = {variant.name for variant in store.study("sample").variants}
    assert tried == {"baseline", "values=identity", "norm=none", "values=identity,norm=none"}


class Adaptive(FixedDesign):
    """Of a plugin: it trains single changes with two seeds, then the better one with more, and a combination of both.

    `confirms`: whether it trains the combination again in the role of a confirmation.
    """

    def __init__(self, context: DesignContext, confirms: bool) -> None:
        points = [Point(BASELINE, context.baseline)]
        points += [
            Point(name, {**context.baseline, switch: setting})
            for name, switch, setting in (("value", "values", "identity"), ("norm", "norm", "none"))
        ]
        super().__init__(points, range(2), context.refusal)
        both = {**context.baseline, "values": "identity", "norm": "none"}
        self.later = [Proposal(point, seed) for point in (points[0], points[1]) for seed in (2, 3)]
        self.later += [Proposal(Point("both", both), seed) for seed in (0, 1, 2)]
        self.fresh = [
            Proposal(Point(name, settings, role=TrialRole.CONFIRMATION), seed)
            for name, settings in ((BASELINE, context.baseline), ("both", both))
            for seed in ((3000, 3001, 3002) if confirms else ())
        ]
        self.open = 0

    def ask(self) -> list[Proposal]:
        if self.open:
            return []
        proposals = super().ask()
        if not proposals:
            proposals, self.later, self.fresh = (self.later, [], self.fresh) if self.later else (self.fresh, [], [])
        self.open = len(proposals)
        return proposals

    def tell(self, point: Point, seed: int, value: float | None) -> None:
        self.open -= 1


@pytest.mark.parametrize(("says", "confirms"), [(True, False), (True, True), (False, False)])
def test_what_an_adaptive_design_of_a_plugin_chose_has_a_verdict_from_fresh_seeds_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch, says: bool, confirms: bool
) -> None:
    """One that does not say that it chooses is found out by points and seeds that it had not declared."""
    monkeypatch.setattr(LeaveOneOutSpec, "build", lambda self, context: Adaptive(context, confirms))
    monkeypatch.setattr(LeaveOneOutSpec, "chooses", says)
    with open_store(folder / "s.db") as store:
        for _ in range(2):  # and when it is resumed
            run_study(planner(folder, switches=SWITCHES), store, ScriptedEngine(by_spec), ENVIRONMENT, Observer())
            report = read_study(store, "sample")
            rows = {row.name: row for row in report.variants}
            assert {name for name, row in rows.items() if row.chosen} == (
                {"value"} | ({"both"} - ({"both"} if confirms else set()))
            )
            assert (rows["both"].verdict is not None) == confirms
            assert rows["both"].confirmed == ((3000, 3001, 3002) if confirms else ())
            assert rows["value"].verdict is None, "its later seeds were asked for when results were known"
            assert rows["norm"].verdict is not None, "declared, and trained with nothing but what was declared"
            assert report.record.traits.chooses == says


def test_a_design_of_a_plugin_that_stops_giving_seeds_has_no_verdict_where_it_stopped(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It declares four seeds, and leaves a variant with two once they suit it: a look that nobody declared."""
    monkeypatch.setattr(LeaveOneOutSpec, "build", lambda self, context: Adaptive(context, confirms=False))
    design = {"kind": "leave_one_out", "seeds": 4}
    with open_store(folder / "s.db") as store:
        made = planner(folder, switches=SWITCHES, design=design)
        run_study(made, store, ScriptedEngine(by_spec), ENVIRONMENT, Observer())
        rows = {row.name: row for row in read_study(store, "sample").variants}
        assert rows["norm"].awaits == "2 of 4 seeds have ended, and its design asked for no others"
        assert rows["norm"].verdict is not None
        assert rows["norm"].verdict.word == "undecided"
        assert rows["value"].verdict is not None
        assert rows["value"].verdict.is_decided, "it has the seeds that were declared"


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


def test_warnings_reach_the_plan(folder: Path) -> None:
    warnings = make_plan(planner(folder, design={"kind": "fractional", "resolution": "III"})).warnings
    (warning,) = [one for one in warnings if "tokens" not in one]  # these trials are too short for an answer as well
    assert warning == "4 of 4 combinations, the full factorial; no effects of one or two switches are aliased."


def test_numeric_values_are_in_the_stored_settings(folder: Path) -> None:
    design = {"kind": "sweep", "path": "training.optimizer.lr", "values": [0.01, 0.001], "seeds": 1}
    with open_store(folder / "s.db") as store:
        run_study(planner(folder, design=design), store, ScriptedEngine(), ENVIRONMENT, Observer())
        stored = [variant.settings["training.optimizer.lr"] for variant in store.study("sample").variants]
    assert stored == ["0.01", "0.001"]
