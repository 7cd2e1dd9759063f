"""A plan that cannot fit into memory is refused before anything trains."""

from __future__ import annotations

import tempfile
from pathlib import Path

import psutil
import pytest
from engine_samples import planner

from ablate.errors import EngineError
from ablate.execution.driver import run_study
from ablate.execution.environment import describe_environment
from ablate.execution.local import LocalEngine
from ablate.execution.observer import Observer
from ablate.execution.options import RunOptions
from ablate.nn.model import model_cost
from ablate.planning.memory import check_memory, largest_blocks, part_of_rank, trial_bytes
from ablate.planning.plan import Variant
from ablate.planning.planner import make_plan
from ablate.spec.variant import VariantSpec
from ablate.store import open_store

GIB = 2**30


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_plan_is_refused_when_its_workers_need_more_than_there_is(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make_plan(planner(folder))
    largest = max(trial_bytes(variant) for variant in plan.variants)

    def available(size: int) -> None:
        memory = psutil.virtual_memory()._replace(available=size)
        monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)

    available(2 * largest)
    check_memory(plan, 2, "cpu")
    available(2 * largest - 1)
    check_memory(plan, 1, "cpu")
    with pytest.raises(EngineError, match="do not fit into memory") as caught:
        check_memory(plan, 2, "cpu")
    assert "variant baseline" in str(caught.value)
    assert "--workers" in str(caught.value)


def test_a_model_far_too_large_is_refused_before_its_data_is_prepared(folder: Path, tmp_path: Path) -> None:
    model = {"family": "decoder", "depth": 96, "width": 12288, "heads": 96, "block": {"mixer": "attention"}}
    too_large = planner(folder, model=model)
    too_large.say = lambda line: pytest.fail(f"prepared data: {line}")
    with (
        open_store(tmp_path / "s.db") as store,
        LocalEngine(RunOptions(cache=folder / "cache", device="cpu", workers=1)) as local,
        pytest.raises(EngineError, match="variant baseline: its trials do not fit into memory"),
    ):
        run_study(too_large, store, local, describe_environment("cpu"), Observer())
    assert not (folder / "cache").exists()


def test_blocks_need_less_than_the_model_that_they_are_in(folder: Path) -> None:
    variants = {variant.name: trial_bytes(variant) for variant in make_plan(planner(folder)).variants}
    name, needed = largest_blocks(planner(folder))
    assert 0 < needed < variants[name]


def test_what_match_may_shrink_is_not_refused(folder: Path) -> None:
    deep = {"depth": {"1": {}, "100": {"model.depth": 100}}}
    free = planner(folder, switches=deep)
    matched = planner(folder, switches=deep, match="parameters")
    assert largest_blocks(free)[1] == pytest.approx(100 * largest_blocks(matched)[1], rel=0.05)
    assert largest_blocks(matched)[0] == "baseline"


def test_a_model_far_too_large_is_refused(folder: Path) -> None:
    model = {"family": "decoder", "depth": 96, "width": 12288, "heads": 96, "block": {"mixer": "attention"}}
    plan = make_plan(planner(folder, model=model))
    parameters = 96 * 12 * 12288**2
    # Weights, gradients and two moments in four bytes each; what is kept for the backward pass is small beside them.
    assert trial_bytes(plan.variants[0]) / (16 * parameters) == pytest.approx(1, abs=0.05)
    with pytest.raises(EngineError):
        check_memory(plan, 1, "cpu")


@pytest.mark.parametrize(("ranks", "parts", "measured"), [(1, 1, 49.0), (2, 1, 34.5), (2, 2, 26.8), (4, 4, 15.1)])
def test_the_memory_of_one_of_several_processes_is_what_was_measured(ranks: int, parts: int, measured: float) -> None:
    """Measured in MiB with torch's profiler on a CPU: the peak of the second step, with two moments of AdamW."""
    spec = VariantSpec.model_validate(
        {
            "model": {"family": "decoder", "depth": 8, "width": 128, "heads": 4, "block": "pre_ln"},
            "task": {"kind": "recall", "symbols": 1024},
            "training": {"steps": 10, "batch_size": 8, "optimizer": {"lr": 1e-3}, "evaluations": 1},
        }
    )
    with tempfile.TemporaryDirectory() as folder:
        shape = spec.task.open(Path(folder), spec.task.prepare(Path(folder), lambda line: None)).shape
    cost = model_cost(spec.model, vocabulary=shape.vocabulary, context=shape.context)
    variant = Variant("", {}, spec, "", cost, 0.0, "", vocabulary=shape.vocabulary, context=shape.context)
    predicted = trial_bytes(part_of_rank(variant, ranks), parts) / 2**20
    assert 0.99 * measured <= predicted <= 1.12 * measured
