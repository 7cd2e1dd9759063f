"""The local engine with real worker processes: in the first test they are programs, then they are forked."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any

import psutil
import pytest
from cli_runs import quick_workers
from engine_samples import planner
from trial_processes import is_worker

from ablate.errors import EngineError
from ablate.execution.environment import this_worker
from ablate.execution.local import LocalEngine, _killed_for_memory
from ablate.execution.options import RunOptions
from ablate.execution.protocol import Began, Broken, Done, Happened, Job, JobMember, Message, Stop
from ablate.execution.worker import work
from ablate.planning.plan import Trial
from ablate.planning.planner import make_plan
from ablate.spec.space_fields import ResourcesSpec
from ablate.training.events import Measurement

pytestmark = pytest.mark.usefixtures("folder")


def job(number: int, trial: Trial) -> Job:
    variant = trial.variant
    return Job(number, (JobMember(variant.spec.model_dump_json(), trial.seed),), variant.fingerprint)


def listen(engine: LocalEngine, until: Callable[[list[Message]], bool], timeout: float = 600.0) -> list[Message]:
    heard: list[Message] = []
    deadline = time.monotonic() + timeout
    while not until(heard):
        assert time.monotonic() < deadline, heard
        heard += engine.poll(0.1)
    return heard


def ended(*numbers: int) -> Callable[[list[Message]], bool]:
    return lambda heard: {m.number for m in heard if isinstance(m, Done | Broken)} >= set(numbers)


def workers() -> list[psutil.Process]:
    return [child for child in psutil.Process().children() if is_worker(child)]


@pytest.mark.parametrize(("gpus", "asked"), [(None, "auto"), (0, "cpu"), (1, "auto")])
def test_trials_without_gpus_train_on_cores(
    gpus: float | None, asked: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = list[str]()
    monkeypatch.setattr("ablate.execution.local.choose_device", lambda name: (chosen.append(name), "cpu")[1])
    with suppress(EngineError):  # this machine may have none
        LocalEngine(RunOptions(cache=folder, device="auto", resources=ResourcesSpec(gpus=gpus)))
    assert chosen == [asked]


def test_windows_is_refused_before_anything_is_started(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sys, "platform", "win32")
        with pytest.raises(
            EngineError, match=r"--engine local: .* does not run on Windows, .*Use Linux or macOS"
        ) as no:
            LocalEngine(RunOptions(cache=folder / "cache", device="cpu", workers=1))
    assert "WSL" in str(no.value)
    assert workers() == []
    assert list(folder.iterdir()) == []


def test_a_worker_stays_warm_survives_what_a_trial_raises_and_is_replaced_when_it_dies(folder: Path) -> None:
    trial = make_plan(planner(folder)).trials[0]
    with LocalEngine(RunOptions(cache=folder / "cache", device="cpu", workers=1)) as engine:
        assert (engine.size, engine.room(), workers()) == (1, 1, [])
        engine.submit(job(1, trial))
        assert engine.room() == 0
        heard = listen(engine, ended(1))
        assert engine.room() == 1
        points = [m.event for m in heard if isinstance(m, Happened) and isinstance(m.event, Measurement)]
        assert [point.step for point in points] == [0, 1, 2]
        assert heard[-1] == Done(1)
        (first,) = workers()

        engine.submit(Job(2, (JobMember('{"no": "variant"}', 0),), "f"))
        began, broken = listen(engine, ended(2))
        assert isinstance(began, Began)
        assert (began.number, began.worker) == (2, replace(this_worker("cpu"), pid=first.pid))
        assert isinstance(broken, Broken)
        assert broken.reason.startswith("ValidationError: ")
        assert "Traceback" in broken.trace

        engine.submit(job(3, trial))
        again = listen(engine, ended(3))
        assert [m.event.metrics for m in again if isinstance(m, Happened) and isinstance(m.event, Measurement)] == [
            point.metrics for point in points
        ]
        assert workers() == [first]

        first.kill()
        while first.status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.01)
        engine.submit(job(4, trial))  # it died while idle
        (lost,) = listen(engine, ended(4))
        assert lost == Broken(4, "its worker was killed by SIGKILL", "", "")
        engine.submit(job(5, trial))
        assert listen(engine, ended(5))[-1] == Done(5)
        (second,) = workers()
        assert second.pid != first.pid
        engine.submit(job(6, trial))
    assert not second.is_running()


@pytest.fixture
def little_memory() -> Iterator[Path]:
    """A control group of 16 MB of memory; its file `cgroup.procs` takes the numbers of processes."""
    root = Path("/sys/fs/cgroup")
    old = root / "memory"  # where version 1 has it, or version 2 if systemd has mounted both
    made, limit = (
        (old / f"ablate-{os.getpid()}", "memory.limit_in_bytes")
        if old.is_dir()
        else (root / f"ablate-{os.getpid()}", "memory.max")
    )
    try:
        made.mkdir()
        (made / limit).write_text(str(16 << 20))
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    yield made
    made.rmdir()


def test_a_worker_that_the_kernel_kills_for_its_memory_is_reported(folder: Path, little_memory: Path) -> None:
    trial = make_plan(planner(folder)).trials[0]
    model = {"family": "decoder", "depth": 4, "width": 1024, "heads": 2, "block": {"mixer": "attention"}}
    large = make_plan(planner(folder, model=model)).trials[0]
    with quick_workers(), LocalEngine(RunOptions(cache=folder / "cache", device="cpu", workers=1)) as engine:
        engine.submit(job(1, trial))
        listen(engine, ended(1))
        (worker,) = workers()
        (little_memory / "cgroup.procs").write_text(str(worker.pid))
        engine.submit(job(2, large))
        broken = listen(engine, ended(2))[-1]
        assert isinstance(broken, Broken)
        assert broken.reason == "its worker was killed by SIGKILL, as the system was out of memory"
        engine.submit(job(3, trial))
        assert listen(engine, ended(3))[-1] == Done(3)


def test_without_the_counts_of_the_kernel_no_process_was_killed_for_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in (("absent", None), ("other", "pgfault 3\n"), ("known", "pgfault 3\noom_kill 7\n")):
        if text is not None:
            (tmp_path / name).write_text(text)
        monkeypatch.setattr("ablate.execution.local._KERNEL_COUNTS", tmp_path / name)
        assert _killed_for_memory() == (7 if name == "known" else 0)


def test_a_worker_that_cannot_start_stops_everything(folder: Path) -> None:
    trial = make_plan(planner(folder)).trials[0]
    (folder / "mine.py").write_text("raise RuntimeError('not here')")
    with (
        quick_workers(),
        LocalEngine(RunOptions(cache=folder / "cache", device="cpu", workers=2, plugins=["mine.py"])) as engine,
    ):
        engine.submit(job(1, trial))
        with pytest.raises(EngineError, match=r"before it could train.*not here") as caught:
            listen(engine, ended(1))
        assert "Traceback" not in str(caught.value)
        assert "Traceback" in caught.value.__notes__[0]
    assert workers() == []


def test_a_worker_that_ends_in_a_trial_costs_that_trial_alone(folder: Path) -> None:
    (folder / "mine.py").write_text(
        "import os\n"
        "from ablate.execution.job_runner import JobRunner\n"
        "JobRunner.run_job = lambda *_, **__: os._exit(7)\n"
    )
    trial = make_plan(planner(folder)).trials[0]
    options = RunOptions(cache=folder / "cache", device="cpu", workers=1, plugins=["mine.py"])
    with quick_workers(), LocalEngine(options) as engine:
        for number in (1, 2):
            engine.submit(job(number, trial))
            broken = listen(engine, ended(number))[-1]
            assert isinstance(broken, Broken)
            assert broken.reason == "its worker ended with exit code 7"


def test_a_worker_that_hangs_is_killed_when_the_engine_closes(folder: Path) -> None:
    trial = make_plan(planner(folder)).trials[0]
    with quick_workers(), LocalEngine(RunOptions(cache=folder / "cache", device="cpu", workers=1)) as engine:
        engine.submit(job(1, trial))
        listen(engine, ended(1))
        (worker,) = workers()
        worker.suspend()
    assert not worker.is_running()


def test_as_many_workers_as_cores_and_threads_allow(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ablate.execution.local.available_cores", lambda: 7)
    assert LocalEngine(RunOptions(cache=folder, device="cpu")).size == 7
    assert LocalEngine(RunOptions(cache=folder, device="cpu", threads=2)).size == 3
    assert LocalEngine(RunOptions(cache=folder, device="cpu", threads=9)).size == 1
    assert LocalEngine(RunOptions(cache=folder, device="cpu", workers=4, threads=9)).size == 4


@pytest.mark.parametrize(
    ("there", "given", "devices"),
    [
        (3, {}, ["0", "1", "2"]),
        (3, {"gpus": 2}, ["0 1"]),
        (4, {"gpus": 2}, ["0 1", "2 3"]),
        (2, {"gpus": 0.5}, ["0", "1", "0", "1"]),
        (3, {"gpus": 2, "workers": 3}, ["0 1", "2 0", "1 2"]),
        (2, {"memory": 30}, ["0"]),
        (1, {"memory": 90}, ["0"]),
    ],
)
def test_gpus_are_divided_among_the_workers(
    folder: Path, monkeypatch: pytest.MonkeyPatch, there: int, given: dict[str, Any], devices: list[str]
) -> None:
    """Each has those that it asks for, and none is idle while another has two."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: there)
    monkeypatch.setattr("ablate.execution.local.free_bytes", lambda device: 40 * 2**30)
    engine = LocalEngine(RunOptions(cache=folder, device="cuda", **given))
    assert engine._devices == [tuple(f"cuda:{number}" for number in each.split()) for each in devices]
    assert (engine.device, engine.size, engine.room()) == ("cuda", len(devices), len(devices))


class StillWorker:
    """A process that is started and does nothing; `code` is how it ended."""

    def __init__(self, command: list[str], **more: Any) -> None:
        self.code, self.stopped, self.more = 0, list[str](), more
        self.pipe = os.dup(more["pass_fds"][0])

    def end(self, code: int, said: bytes, worker: Any) -> None:
        self.code = code
        worker.log.write(said)
        os.close(self.pipe)

    def wait(self, timeout: float = 0.0) -> int:
        return self.code

    def terminate(self) -> None:
        self.stopped.append("terminate")


@pytest.mark.parametrize(
    ("code", "ready", "idle", "reason"),
    [
        (-9, True, False, "its worker was killed by SIGKILL"),
        (-15, False, False, "its worker was killed by SIGTERM"),
        (3, True, False, "its worker ended with exit code 3"),
        (0, False, False, "its worker ended with exit code 0"),
        (3, True, True, ""),
        (3, False, False, None),
    ],
)
def test_a_worker_that_dies_gives_its_place_and_devices_to_the_next(
    folder: Path, monkeypatch: pytest.MonkeyPatch, code: int, ready: bool, idle: bool, reason: str | None
) -> None:
    """Whatever its end, it costs its job alone; one that could not begin ends the study, with what it said."""
    monkeypatch.setattr("ablate.execution.local.subprocess.Popen", StillWorker)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setattr("ablate.execution.local._killed_for_memory", lambda: 5)
    engine = LocalEngine(RunOptions(cache=folder / "cache", device="cuda", gpus=0.5, workers=3))
    for number in range(3):
        engine.submit(Job(number, (JobMember("{}", 0),), "f"))
    assert [(worker.slot, worker.devices) for worker in engine._workers] == [
        (number, (f"cuda:{number % 2}",)) for number in range(3)
    ]
    assert (engine.room(), engine.poll(0.0)) == (0, [])
    lost = engine._workers[1]
    lost.ready, lost.job = ready, None if idle else lost.job
    lost.process.end(code, b"a" * 5000 + b"\xff\nthe end\n", lost)  # type: ignore[attr-defined]
    if reason is None:
        with pytest.raises(
            EngineError, match=r"a worker ended with exit code 3 before it could train.*got the end\. Fix the error"
        ):
            engine.poll(0.0)
    elif idle:
        assert engine.poll(0.0) == []
    else:
        (broken,) = engine.poll(0.0)
        assert isinstance(broken, Broken)
        assert (broken.number, broken.reason, broken.trace, broken.saved) == (1, reason, "", 0)
        assert len(broken.log) == 4000 - 1
        assert broken.log.endswith("a\N{REPLACEMENT CHARACTER}\nthe end")
    assert engine.room() == 1
    engine.submit(Job(9, (JobMember("{}", 0),), "f"))
    assert (engine._workers[-1].slot, engine._workers[-1].devices) == (1, ("cuda:1",))
    left: list[Any] = [worker.process for worker in engine._workers]
    engine.close()
    assert [process.stopped for process in left] == [["terminate"]] * 3


def test_a_worker_whose_driver_is_gone_before_it_sent_settings_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("adopt_modules", "signal.signal"):
        monkeypatch.setattr(f"ablate.execution.worker.{name}", lambda *given: None)
    monkeypatch.setattr("os._exit", sys.exit)
    ours, theirs = Pipe()
    theirs.close()
    with pytest.raises(SystemExit) as ended:
        work(ours)
    assert ended.value.code == 0


@pytest.mark.parametrize("given", [{}, {"pinned": False}])
def test_a_worker_reads_its_options_first(
    folder: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, bool]
) -> None:
    """The threads that the job's cores ask for, its device, the cores of its place, and where checkpoints are."""
    monkeypatch.setattr("ablate.execution.local.subprocess.Popen", StillWorker)
    monkeypatch.setattr("ablate.execution.local.cores_for", lambda slot, size, threads: [slot, size, threads])
    options = RunOptions(device="cpu", workers=2, cpus=3.0, cache=folder / "cache")
    engine = LocalEngine(options, checkpoints=Path("kept"), ranks=2, **given)
    jobs = [Job(number, (JobMember("{}", 0),), "f") for number in range(2)]
    for slot, job in enumerate(jobs):
        engine.submit(job)
        sent = Connection(engine._workers[slot].process.pipe)  # type: ignore[attr-defined]
        settings = sent.recv()
        assert (settings.options.threads, settings.options.folder) == (3, folder / "cache")
        started = engine._workers[slot].process.more  # type: ignore[attr-defined]
        threads = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "TOKENIZERS_PARALLELISM")
        assert [started["env"][name] for name in threads] == ["3", "3", "false"]
        assert started["stdout"] == started["stderr"] == engine._workers[slot].log
        assert started["stdin"] == subprocess.DEVNULL
        assert settings.devices == ("cpu", "cpu")
        assert settings.cores == (() if given else (slot, 2, 3))
        assert settings.checkpoints == folder / "kept"
        assert sent.recv() == job
    engine.stop(1, 5)
    assert sent.recv() == Stop(1, 5)
    engine.close()


def test_a_member_that_is_stopped_leaves_its_job(folder: Path) -> None:
    training = {"steps": 4000, "batch_size": 2, "optimizer": {"lr": 1e-3}, "evaluations": 4000}
    trials = make_plan(planner(folder, training=training)).trials[:1] * 2
    members = tuple(JobMember(trial.variant.spec.model_dump_json(), seed) for seed, trial in enumerate(trials))
    with quick_workers(), LocalEngine(RunOptions(cache=folder / "cache", device="cpu", workers=1)) as engine:
        engine.submit(Job(1, members, trials[0].variant.fingerprint))
        listen(engine, lambda heard: len(heard) > 3)
        engine.stop(7, 0)  # no such job
        engine.stop(1, 0)

        def alone(heard: list[Message]) -> bool:
            points = [m.event for m in heard if isinstance(m, Happened) and isinstance(m.event, Measurement)]
            return bool(points) and math.isnan(points[-1].train_loss[0])

        heard = listen(engine, alone)
        last = [m.event for m in heard if isinstance(m, Happened) and isinstance(m.event, Measurement)][-1]
        assert math.isfinite(last.metrics["val_loss"][1])
        engine.stop(1, 1)
        assert listen(engine, ended(1))[-1] == Done(1)
        assert engine.room() == 1
