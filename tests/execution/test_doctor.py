"""`ablate doctor`: every way of running a step is compared, and differences are reported."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import torch

from ablate.cli.spaces_and_blocks import doctor
from ablate.devices import known_device
from ablate.errors import EngineError
from ablate.execution import doctor as checks
from ablate.execution.doctor import DoctorFinding, examine
from ablate.planning.plan import Variant
from ablate.spec.training import TrainingSpec
from ablate.spec.variant import VariantSpec
from ablate.training.pack import Pack

pytestmark = pytest.mark.usefixtures("folder")


def test_all_ways_of_this_machine_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "_STEPS": 2,
        "_TIMED": 1,
        "_exchange": lambda: DoctorFinding("two processes", "skipped", ""),
        "check_compiler": _no_compiler,  # tests/training/test_compiling.py compares compiled blocks
    }.items():
        monkeypatch.setattr(checks, name, value)
    findings = {finding.name: finding for finding in examine("cpu")}
    assert {name for name, finding in findings.items() if finding.state == "differs"} == set()
    ways = {"micro-batches", "recomputed blocks", "chunked logits", "a pack of 4", "bf16"}
    assert all("difference" in findings[name].values for name in ways)
    assert findings["CUDA graph"].state == findings["compiled blocks"].state == "skipped"
    assert 0 < findings["machine"].values["free_gib"] < psutil.virtual_memory().total / 1024**3


def test_each_way_differs_from_the_plain_one_in_what_its_name_says(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[tuple[TrainingSpec, int]] = []
    eager: list[bool] = []

    def run(device: object, spec: VariantSpec, seeds: Sequence[int] = (0,), program: object = None) -> checks._Run:
        ran.append((spec.training, len(seeds)))
        eager.append(program is checks._eager)
        return checks._Run([[2.0] * len(seeds)], 1.0, 1.0)

    monkeypatch.setattr(checks, "_run", run)
    monkeypatch.setattr(checks, "check_compiler", lambda device: None)
    for name in ("_memory", "_exchange"):
        monkeypatch.setattr(checks, name, lambda *_, name=name: DoctorFinding(name, "skipped", ""))
    names = [finding.name for finding in examine("cpu") if "difference" in finding.values]
    (plain, _), *others = ran
    fields = TrainingSpec.model_fields
    changed = [{name for name in fields if getattr(training, name) != getattr(plain, name)} for training, _ in others]
    assert dict(zip(names, changed, strict=True)) == {
        "micro-batches": {"micro_batch"},
        "recomputed blocks": {"recompute"},
        "chunked logits": {"loss_chunk"},
        "compiled blocks": {"compile"},
        "a pack of 4": set(),
        "bf16": {"precision"},
    }
    assert [seeds for _, seeds in others] == [4 if name == "a pack of 4" else 1 for name in names]
    assert eager == [True, *(name not in ("a pack of 4", "bf16") for name in names)], "one thing differs at a time"


def test_the_last_steps_alone_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock runs as each step does: those before them take long."""
    passed, step = [0.0], Pack.step

    def run(pack: Pack, number: int) -> None:
        passed[0] += 100.0 if number <= 2 else 1.0
        step(pack, number)

    monkeypatch.setattr(Pack, "step", run)
    monkeypatch.setattr(checks, "time", SimpleNamespace(perf_counter=lambda: passed[0]))
    monkeypatch.setattr(checks, "_STEPS", 5)
    monkeypatch.setattr(checks, "_TIMED", 3)
    found = checks._run(torch.device("cpu"), checks._spec(), program=checks._eager)
    assert (found.seconds, len(found.losses)) == (1.0, 5)


def _no_compiler(device: str) -> None:
    raise EngineError("there is none", where="compiler")


@pytest.mark.parametrize(("loss", "state"), [(2.0, "ok"), (2.01, "differs"), (float("nan"), "differs")])
def test_a_difference_is_reported(loss: float, state: str) -> None:
    plain, other = (checks._Run([[3.0], [last]], 1.0, 1.0) for last in (2.0, loss))
    assert checks._compare("way", plain, other, 1e-4).state == state


@pytest.mark.parametrize("step", [7, 8])
def test_the_losses_of_the_first_eight_steps_are_compared(step: int) -> None:
    plain, other = ([[3.0] for _ in range(12)] for _ in range(2))
    other[step] = [3.5]
    found = checks._compare("way", checks._Run(plain, 1.0, 1.0), checks._Run(other, 4.0, 1.0), 0.1)
    assert (found.state, found.values) == (
        "differs" if step < 8 else "ok", {"difference": 0.5 * (step < 8), "speed": 0.25},
    )  # fmt: skip


def test_blocks_that_could_not_be_compiled_are_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "check_compiler", lambda device: None)
    plain = checks._Run([[3.0]], 1.0, 1.0)
    for warning, state in (("", "ok"), ("ran as they are", "differs")):
        monkeypatch.setattr(checks, "_run", lambda *_, said=warning, **__: checks._Run([[3.0]], 1.0, 1.0, said))
        found = checks._check_compiled(torch.device("cpu"), plain)
        assert (found.name, found.state) == ("compiled blocks", state)
        assert found.says == warning or not warning


@pytest.mark.skipif(sys.platform != "linux", reason="a process of torch may be forked there")
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_two_processes_sum_a_tensor_or_the_reason_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forked from this one, which uses one thread meanwhile, and of a small tensor."""
    monkeypatch.setattr(
        checks.multiprocessing, "get_context", lambda kind, get=multiprocessing.get_context: get("fork")
    )
    monkeypatch.setattr(checks, "_MEGABYTES", 1)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        found = checks._exchange()
        rate = found.values["megabytes_per_second"]
        assert (found.name, found.state) == ("two processes", "ok")
        assert found.says == f"1 MB summed in {1000 / rate:.0f} ms, {rate:,.0f} MB/s over gloo"
        monkeypatch.setattr(torch, "full", lambda *_: torch.ones(3))
        assert checks._exchange().state == "differs"
        monkeypatch.setattr(checks, "_sum_together", lambda index, *_: os._exit(index))
        found = checks._exchange()
        assert (found.state, found.values) == ("differs", {})
        monkeypatch.setattr(checks, "_sum_together", lambda index, *_: time.sleep(60 * index))
        monkeypatch.setattr(checks, "_PATIENCE_SECONDS", 0.1)
        assert checks._exchange().says == "two processes could not sum a tensor over gloo"
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize(("description", "efficiency"), [("cpu: some", None), ("cuda: 1 x NVIDIA H100 80GB HBM3", 0.5)])
def test_the_speed_is_arithmetic_by_time_and_by_the_peak_of_a_known_device(
    description: str, efficiency: float | None
) -> None:
    device = known_device(description)
    flops = 0.25 * device.peak("fp32") if device else 1e9
    finding = checks._measure_speed(checks._Run([], 0.5, flops), description, "fp32")
    assert (finding.state, finding.values["seconds"], finding.values["flops_per_second"]) == ("ok", 0.5, 2 * flops)
    assert finding.values.get("efficiency") == efficiency
    assert finding.says.startswith("500.0 ms a step, ")


@pytest.mark.parametrize(
    ("factor", "state"), [(0.6, "differs"), (0.7, "ok"), (1.0, "ok"), (1.4, "ok"), (1.6, "differs")]
)
def test_predicted_memory_is_within_half_of_what_is_measured(
    factor: float, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights and two moments of Adam, and the peak of a step."""
    held: list[int] = []
    monkeypatch.setattr(checks, "peak_bytes", lambda step, device: held.append(1) or 5000)

    def predicted(variant: Variant, device: str) -> float:
        assert device == "cpu"
        assert (variant.vocabulary, variant.context) == (1024, 64)
        return factor * (4 * 3 * variant.cost.parameters + 5000)

    monkeypatch.setattr(checks, "trial_bytes", predicted)
    finding = checks._memory(torch.device("cpu"))
    assert (finding.state, len(held)) == (state, 1)
    assert finding.values["predicted"] / finding.values["measured"] == pytest.approx(factor)
    told = [finding.values[name] / (1024 * 1024) for name in ("predicted", "measured")]
    assert finding.says == f"predicted {told[0]:.1f} MiB, measured {told[1]:.1f} MiB"


@pytest.mark.parametrize(("state", "code"), [("ok", 0), ("differs", 1)])
def test_the_file_holds_what_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], folder: Path, state: str, code: int
) -> None:
    def found(device: str) -> Iterator[DoctorFinding]:
        yield DoctorFinding("way", state, "it was seen", {"difference": 0.5})

    monkeypatch.setattr(checks, "examine", found)
    assert doctor(device="cpu", out=folder / "told.json") == code
    told = json.loads((folder / "told.json").read_text())
    assert told["findings"] == [{"name": "way", "state": state, "says": "it was seen", "values": {"difference": 0.5}}]
    assert "it was seen" in capsys.readouterr().out


def test_a_machine_without_loopback_is_not_one_that_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert checks._has_loopback()

    def refused(self: socket.socket, address: object) -> None:
        raise OSError(errno.ENETUNREACH, "Network is unreachable")

    monkeypatch.setattr(socket.socket, "connect", refused)
    finding = checks._exchange()
    assert (finding.state, finding.values) == ("skipped", {})
    assert "no loopback" in finding.says


def test_a_missing_folder(folder: Path) -> None:
    with pytest.raises(EngineError, match="there is no such folder"):
        doctor(out=folder / "nowhere" / "told.json")


def test_a_folder_in_place_of_the_file_is_refused_before_anything_is_tried(folder: Path) -> None:
    with pytest.raises(EngineError, match="this is a folder"):
        doctor(out=folder)
