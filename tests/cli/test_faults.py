"""A small part of `python -m benchmarks faults`, and what it would see."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import ExitStack, closing
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
from cli_runs import eventually

from ablate.store import Environment, TrialRecord, TrialState
from benchmarks import faults, watched_study
from benchmarks.faults import WAYS, Bench, campaign, compare, turns
from benchmarks.losing_cluster import SetupError
from benchmarks.watched_study import Study, Watch, preload

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
TRIAL = TrialRecord(
    key="k" * 64,
    variant_hash="v",
    seed=0,
    state=TrialState.FINISHED,
    metrics={"val_loss": 2.0},
    steps=9,
    seconds=1.0,
    tokens=90,
    flops=1e6,
    stopped_at=None,
    reason="",
    data_fingerprint="d",
    started_at=NOON,
    finished_at=NOON,
    environment=Environment({"python": "3.x"}, "cpu: none", "here", None, None, ""),
)


def test_the_campaign_sees_what_was_lost_trained_twice_or_differs() -> None:
    alone = {TRIAL.key: TRIAL}
    last_digit = {TRIAL.key: replace(TRIAL, metrics={"val_loss": 2.0 + 1e-9})}
    other = {TRIAL.key: replace(TRIAL, metrics={"val_loss": 2.01})}
    later = {TRIAL.key: replace(TRIAL, finished_at=NOON.replace(hour=13))}
    assert compare({}, alone, alone) == compare(alone, alone, alone) == compare({}, last_digit, alone) == []
    assert compare({}, {}, alone) == ["kkkkkkkk is missing"]
    assert compare(alone, {}, alone) == ["kkkkkkkk is missing", "kkkkkkkk was trained twice"]
    assert compare(alone, later, alone) == ["kkkkkkkk was trained twice"]
    assert compare({}, other, alone) == ["kkkkkkkk: val_loss is 2.01 and was 2.0"]


def test_a_loop_a_wait_and_a_busy_machine_are_distinguished() -> None:
    loop = [sys.executable, "-c", "while True: pass"]
    with subprocess.Popen(loop) as busy, subprocess.Popen(["sleep", "60"]) as idle:
        try:
            of_cpu, of_time = Watch(patience=1e9, longest=1e9, cpu=0.5), Watch(patience=0.5, longest=1e9, cpu=1e9)
            held_up = Watch(patience=0.0, longest=1e9, cpu=1e9)
            held_up._before = {busy.pid: (0.0, -1e6)}  # as if it had waited for a core all that time
            eventually(of_cpu.is_late)
            eventually(of_time.is_late)
            assert not held_up.is_late()
        finally:
            busy.kill()
            idle.kill()
    assert re.fullmatch(r"no end after [\d.]+ s: 0\.[5-9] s on a core, [\d.]+ s ready .*", of_cpu.told())


def _campaign(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, int], str]:
    code = campaign([*arguments, "--json"])
    printed = capsys.readouterr()
    return code, json.loads(printed.out), printed.err


@pytest.mark.parametrize("word", ["tried", "lost", "hangs", "tracebacks"])
def test_the_exit_code_is_1_if_any_count_but_tried_is_not_0(
    word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = [] if word == "tried" else [f"{word} something", f"{word} something else"]
    found = iter([("driver", [], 0), ("driver", wrong, 0)])
    monkeypatch.setattr(faults, "strike", lambda *_: (tmp_path.joinpath("x").touch(), next(found))[1])
    monkeypatch.setattr(shutil, "rmtree", lambda *_: None)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    code, counts, said = _campaign(capsys, "--kills", "2", "--ways", "single")
    assert counts == {"tried": 2, "lost": 0, "hangs": 0, "tracebacks": 0} | ({} if word == "tried" else {word: 1})
    assert list(counts) == ["tried", "lost", "hangs", "tracebacks"]
    assert code == (word != "tried")
    assert said.count("something") == len(wrong)


def test_a_server_that_does_not_start_is_no_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def fail(*_: object) -> None:
        raise SetupError("a Ray node did not start")

    monkeypatch.setattr(faults, "strike", fail)
    assert campaign(["--kills", "1", "--ways", "single"]) == 2
    assert "a Ray node did not start" in capsys.readouterr().err


def test_ten_studies_have_each_way_in_its_share() -> None:
    order = turns(list(WAYS))
    assert {name: order.count(name) for name in WAYS} == {name: way.share for name, way in WAYS.items()}
    assert order.count("ray") == 1
    assert set(order[: len(WAYS)]) == set(WAYS)


@pytest.mark.skipif(sys.platform != "linux", reason="drivers are forked")
def test_planted_faults_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A trial that is lost, one that is retrained and a traceback, and nothing else; and a run that hangs."""
    preload()
    finish = Study.finish

    def finish_and_spoil(study: Study) -> int:
        code = finish(study)
        with closing(sqlite3.connect(study.store)) as store, store:
            store.execute("DELETE FROM trials WHERE key = (SELECT max(key) FROM trials)")
            store.execute(
                "UPDATE trials SET metrics = json_set(metrics, '$.val_loss', 9.0)"
                " WHERE key = (SELECT min(key) FROM trials)"
            )
        with (study.folder / "output").open("a") as file:
            file.write("Traceback (most recent call last)\n")
        return code

    def stop(bench: Bench, name: str, victim: str, process: BaseProcess, *_: object) -> bool:
        os.kill(process.pid or 0, signal.SIGSTOP)
        return True

    with ExitStack() as stack:
        bench = Bench(tmp_path, stack)

        def strike(name: str) -> list[str]:
            return faults.strike(bench, "single", tmp_path / name, random.Random(0))[1]

        bench.left_alone("single")
        monkeypatch.setattr(Study, "finish", finish_and_spoil)
        spoilt = strike("spoilt")
        for found in ("^lost .* is missing", "^lost .*: val_loss is 9.0 and was", "^tracebacks in the output"):
            assert sum(re.search(found, said) is not None for said in spoilt) == 1, spoilt
        assert len({said.split()[1].rstrip(":") for said in spoilt if said.startswith("lost")}) == 2, "two trials"
        monkeypatch.setattr(Study, "finish", finish)
        monkeypatch.setattr(Bench, "kill", stop)
        monkeypatch.setattr(watched_study, "Watch", partial(Watch, 2.0))
        assert [said.partition(" after")[0] for said in strike("hangs")] == ["hangs no end"]
