"""Every benchmark runs at its smallest size, and the truth table can be trained again. Nothing here is timed."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from cli_runs import Workplace, quick_workers, wait_for
from forked_command import ForkedCommand

from ablate.plugins import FAMILIES
from ablate.spec.reading import load_space
from ablate.spec.space import SpaceSpec
from ablate.training.events import Measurement
from ablate.training.loop import train
from ablate.training.members import Member
from benchmarks import gpu_kinds
from benchmarks.__main__ import discovered, main
from benchmarks.browser import find_browser
from benchmarks.train_truth_table import FOLDER, SEEDS, write_table

ROOT = Path(__file__).parent.parent
APART = {"dashboard", "ray_engine"}
"""Benchmarks that start a browser or Ray; with CI set they run too."""

in_ci = pytest.mark.skipif(not os.environ.get("CI"), reason="starts a browser or Ray; set CI to run it")


RUN = """
import sys
from benchmarks.__main__ import main
sys.executable = sys.argv[1]
sys.exit(main(sys.argv[2:]))
"""
"""A program that runs benchmarks. Its first argument is the interpreter that it starts programs with."""


def environment_in(folder: Path) -> dict[str, str]:
    """The variables with which benchmarks run in a folder."""
    return {**os.environ, "TMPDIR": str(folder), "ABLATE_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1"}


def smoke(folder: Path, *names: str) -> str:
    """What these benchmarks print, run at their smallest sizes in one process."""
    command = ["benchmarks", "--smoke", *names]
    variables = environment_in(folder)
    forked = ForkedCommand(command, ROOT, variables, quick_workers, run=lambda: sys.exit(main(command[1:])))
    done = wait_for(forked, timeout=600)
    assert done.code == 0, done.out + done.err
    return done.out


def test_every_benchmark_runs(tmp_path: Path) -> None:
    names = sorted(set(discovered()) - APART)
    assert len(names) >= 11
    told = smoke(tmp_path, *names)
    parts = told.split("\n== ")[1:]
    assert [part.partition("\n")[0] for part in parts] == names
    assert all(part.partition("\n")[2].strip() for part in parts), "each prints something"


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder with a short path: the path of a Unix socket has at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="short") as folder:
        yield Path(folder)


@in_ci
def test_the_benchmark_of_the_dashboard_runs(short: Path) -> None:
    if find_browser() is None:
        pytest.skip("no browser")
    assert "answer" in smoke(short, "dashboard")


@in_ci
@pytest.mark.ray
def test_the_benchmark_of_the_ray_engine_runs(short: Path, forking_interpreter: str) -> None:
    """In a program of its own: a fork of this process would wait for threads that Ray has left here, and hang."""
    pytest.importorskip("ray")
    command = [sys.executable, "-c", RUN, forking_interpreter, "--smoke", "ray_engine"]
    environment = environment_in(short)
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "The Ray engine takes" in done.stdout


def test_the_truth_table_is_trained_and_continues(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.train_truth_table.SEEDS", (0, 1))
    monkeypatch.setattr("benchmarks.train_truth_table.cache_folder", lambda: cache)
    monkeypatch.chdir(Workplace(tmp_path, cache).folder)
    written = load_space(FOLDER / "language_model.yaml", data="file:text").model_dump()
    switches = {"mlp": written["switches"]["mlp"], "norm": written["switches"]["norm"]}
    small = {"steps": 4} | {key: written["training"][key] for key in ("batch_size", "optimizer", "evaluations")}
    task = written["task"] | {"tokenizer": "bytes", "validation_windows": 8}
    space = SpaceSpec.model_validate(written | {"switches": switches, "training": small, "task": task})
    table = tmp_path / "table.csv"
    write_table(space, table)
    lines = table.read_text().splitlines()
    names = [row["variant"] for row in csv.DictReader(lines)]
    assert names == ["baseline", "norm=none", "mlp=narrow", "mlp=narrow,norm=none"]
    table.write_text("\n".join(lines[:3]) + "\n")  # as after an interruption
    write_table(space, table)
    assert table.read_text().splitlines() == lines
    # Each seed trained alone, instead of both as one pack, ends with the same loss.
    variant = space.resolve({"mlp": "narrow"})
    opened = space.task.open(cache, space.task.prepare(cache, lambda line: None))
    (row,) = [row for row in csv.DictReader(lines) if row["variant"] == "mlp=narrow"]
    for seed in (0, 1):
        *_, last = train([Member(variant, seed)], opened, torch.device("cpu"))
        assert isinstance(last, Measurement)
        assert last.metrics["val_loss"][0] == pytest.approx(float(row[f"seed_{seed}"]), abs=1e-5)


@pytest.mark.parametrize("space", sorted(FOLDER.glob("*.yaml")), ids=lambda space: space.stem)
def test_the_stored_truth_tables_are_of_the_seeds_and_switches_that_are_trained(space: Path) -> None:
    with space.with_suffix(".csv").open() as file:
        names = csv.DictReader(file).fieldnames
    assert names == ["variant", *load_space(space).switches, "parameters", "flops", *(f"seed_{seed}" for seed in SEEDS)]


def test_a_gpu_is_tried_with_every_kind_and_setting() -> None:
    """A setting that the benchmark cannot try would be a sentence that says why: there is none."""
    tried = gpu_kinds.cases()
    assert [name for name, case in tried.items() if isinstance(case, str)] == []
    kinds = {
        f"{family.removesuffix('s')} {kind}" for family in ("mixers", "tasks") for kind in FAMILIES[family].members()
    }
    assert kinds <= tried.keys()
