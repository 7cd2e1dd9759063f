"""Whatever a study varied is in every export, for every design: equal parameters are equal specs of the store."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

import optuna
import pyarrow.parquet
import pytest
from engine_samples import ENVIRONMENT, SPACE, Log, ScriptedEngine, planner
from sqlalchemy.pool import NullPool

from ablate.analysis.findings import read_findings
from ablate.analysis.optuna_export import ROLE, export_optuna
from ablate.execution.driver import run_study
from ablate.execution.engine import ObserverGroup
from ablate.execution.tracking import TrackingObserver
from ablate.render.formats import Place, find_format
from ablate.spec.base import Family
from ablate.spec.design import DESIGNS
from ablate.spec.paths import full_path
from ablate.store import Store, open_store
from ablate.store.records import VariantRecord
from ablate.trackers import RunWriter, TrackedRun, Tracker, TrackerSession, flat

LR = "training.optimizer.lr"
RANGES = {"ranges": {LR: {"low": 1e-4, "high": 1e-2, "log": True}}}
STUDIES: dict[str, dict[str, Any]] = {
    "leave_one_out": {},
    "add_one_in": {"variants": {"bare": {"values": "identity", "norm": "none"}}, "design": {"plainest": "bare"}},
    "grid": {},
    "fractional": {"design": {"seeds": 2, "resolution": "III"}},
    "sweep": {"design": {"path": "model.width", "values": [8, 16]}},
    "sweep of a rate": {"design": {"kind": "sweep", "path": "block.mlp.ratio", "values": [0.5, 2]}},
    "ladder": {"design": {"rungs": [1, 2], "width_per_depth": 8, "target": 1}},
    "search": {"design": {"points": 4, "confirm": 2, **RANGES}},
    "simplify": {"design": {"seeds": 2, "confirm": 2}},
    "tune": {"tune": {LR: [1e-3, 3e-3], "block.mlp": ["gated", "plain"], "seeds": 1}},
    "tuned": {"tuned": {LR: {"baseline": 1e-3, "values=identity": 2e-3, "norm=none": 3e-3}}},
    "budgets": {"budgets": [1, 2, 3]},
    "tokens": {"match": "tokens"},
    "flops": {"match": "flops", "training": {**SPACE["training"], "steps": 50}},  # type: ignore[dict-item]
    "seconds": {"match": "seconds", "tune": {LR: [1e-3, 3e-3], "seeds": 1}},
    "parameters": {"match": {"equal": "parameters", "within": 0.5}},
    "stage": {"switches": {"start": {"new": {}, "staged": {"training.init_from": {"stage": {"training.steps": 3}}}}}},
}
"""A study of each design, by its kind, and of everything else that makes variants."""


class Kept(TrackerSession):
    """Keeps what a tracker receives."""

    runs: ClassVar[list[TrackedRun]] = []

    def holds(self, run: TrackedRun) -> bool:
        return run.identity in {one.identity for one in self.runs}

    def begin(self, run: TrackedRun) -> RunWriter:
        self.runs.append(run)
        return Silent()


class Silent(RunWriter):
    def log(self, step: int, values: Mapping[str, float]) -> None: ...

    def end(self, state: str, results: Mapping[str, float], text: str) -> None: ...

    def drop(self) -> None: ...


class KeepingTracker(Tracker):
    family = Family("tracker of this test")
    kind: Literal["keeping"] = "keeping"
    argument_name = "X"

    def connect(self) -> TrackerSession:
        return Kept()

    @classmethod
    def offline(cls, folder: Path) -> KeepingTracker:
        return cls(argument="x")


@pytest.fixture(params=STUDIES)
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.chdir(tmp_path)
    Kept.runs.clear()
    changes = STUDIES[request.param]
    kind = request.param if request.param in DESIGNS.members() else "leave_one_out"
    design = {"kind": kind, "seeds": 1, **changes.get("design", {})}
    watching = TrackingObserver("sample", [KeepingTracker(argument="x")], print)
    with open_store(tmp_path / "store.db") as opened:
        made = planner(tmp_path, **{**changes, "design": design})
        run_study(made, opened, ScriptedEngine(), ENVIRONMENT, ObserverGroup(Log(), watching))
        watching.catch_up(opened)
        watching.close()
        yield opened


def test_every_design_is_tried() -> None:
    assert DESIGNS.members().keys() - STUDIES.keys() == {"population"}, "whose members differ in what they draw"


def in_spec(spec: Mapping[str, Any], path: str) -> Any:
    """The value at a path of the stored JSON."""
    here: Any = spec
    for name in full_path(path).split("."):
        here = here[name]
    return here if isinstance(here, (int, float, str)) else json.dumps(here, sort_keys=True)


def agree(found: Mapping[str, Any], variant: VariantRecord, switches: Mapping[str, Any]) -> None:
    """The parameters of an export are those of the stored variant."""
    assert {name: found[name] for name in switches} == {name: variant.settings[name] for name in switches}
    for path in found.keys() - switches.keys():
        assert found[path] == pytest.approx(in_spec(variant.spec, path)), path


def distinct(found: list[tuple[dict[str, Any], str]]) -> None:
    """Equal parameters are equal variants."""
    hashes: dict[str, set[str]] = {}
    for params, digest in found:
        hashes.setdefault(json.dumps(params, sort_keys=True), set()).add(digest)
    assert {params: specs for params, specs in hashes.items() if len(specs) > 1} == {}


def test_exports_carry_whatever_varied(store: Store, tmp_path: Path) -> None:
    record = store.study("sample")
    switches = record.space["switches"]
    variants = {variant.name: variant for variant in (*record.variants, *record.scout_variants)}
    every = (*record.planned, *record.scout_trials, *record.confirm_trials)
    planned = {(one.key, one.role.value): one for one in every}

    url = f"sqlite:///{tmp_path / 'optuna.db'}"
    assert export_optuna(store, "sample", url) == (len(planned), 0)
    found = []
    storage = optuna.storages.RDBStorage(url, engine_kwargs={"poolclass": NullPool})  # keeps no connection open
    for trial in optuna.load_study(study_name="sample", storage=storage).trials:
        variant = variants[trial.user_attrs["variant"]]
        assert (trial.user_attrs["key"], trial.params[ROLE]) in planned
        agree({name: value for name, value in trial.params.items() if name != ROLE}, variant, switches)
        found.append((trial.params, variant.hash))
    distinct(found)

    findings = read_findings(store, "sample")
    report = json.loads(str(find_format("json").render(findings, Place())))
    rows = [*report["variants"], *report["other_budgets"]]
    assert sorted(row["name"] for row in rows) == sorted(variant.name for variant in record.variants)
    for row in rows:
        settings = {switch: row["settings"][switch] for switch in switches}
        varied = {path: value if isinstance(value, (int, float, str)) else json.dumps(value, sort_keys=True)
                  for path, value in row["varied"].items()}  # fmt: skip
        agree(settings | varied, variants[row["name"]], switches)
    distinct([({**row["settings"], **row["varied"], "role": row["role"]}, row["hash"]) for row in rows])

    table = pyarrow.parquet.read_table(io.BytesIO(find_format("parquet").render(findings, Place())))  # type: ignore[arg-type]
    lines = [*csv.DictReader(io.StringIO(str(find_format("csv").render(findings, Place()))))]
    for line, typed, row in zip(lines, table.to_pylist(), rows, strict=True):
        columns = [name for name in typed if name.startswith(("switch.", "value.", "tuned."))]
        params = {name.partition(".")[2]: typed[name] for name in columns if typed[name] is not None}
        assert params.keys() == {*switches, *row["varied"]}
        agree(params, variants[row["name"]], switches)
        assert {name: line[name] for name in columns} == {
            name: "" if typed[name] is None else str(typed[name]) for name in columns
        }

    runs = [run for run in Kept.runs if run.tags["role"] != "answer"]
    assert {(run.config["key"], run.tags["role"]) for run in runs} == planned.keys()
    for run in runs:
        config, variant = dict(flat(run.config)), variants[run.config["variant"]]
        assert {name: config[f"settings.{name}"] for name in switches} == {
            name: variant.settings[name] for name in switches
        }
        assert {name: run.config[name] for name in ("model", "task", "training")} == variant.spec
