"""Checks of this machine: equal results by every way of running a step, predicted against measured memory, exchange.

The model is small, and its task needs no data. A check that this machine cannot do is skipped with the reason.
"""

from __future__ import annotations

import multiprocessing
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import distributed

from ablate.devices import known_device
from ablate.errors import EngineError
from ablate.execution.environment import check_compiler, describe_environment
from ablate.locations import temporary_folder
from ablate.nn.model import model_cost
from ablate.planning.forecast import wait_for
from ablate.planning.memory import free_bytes, trial_bytes
from ablate.planning.plan import Variant
from ablate.spec.variant import VariantSpec
from ablate.timing import peak_bytes
from ablate.training.members import Member
from ablate.training.pack import Pack
from ablate.training.program import BuildProgram, EagerProgram, build_program

_STEPS = 12
_TIMED = 5
"""The last steps, which are timed. On a GPU the steps before them include the capture of a CUDA graph."""
_COMPARED = 8
"""The first steps, whose losses are compared: rounding grows with every update of the weights."""
_SEEDS = (0, 1, 2, 3)
_EQUAL = 1e-4
"""The largest difference of losses, in nats, of ways that compute the same in another order."""
_ROUNDED = 0.05
"""The same for bfloat16, which has 8 bits of precision."""
_MEGABYTES = 32
_PATIENCE_SECONDS = 120.0
_LOOPBACK_SECONDS = 5.0
_WAYS: dict[str, dict[str, Any]] = {
    "micro-batches": {"micro_batch": 4},
    "recomputed blocks": {"recompute": "blocks"},
    "chunked logits": {"loss_chunk": 256},
}


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """What a check found.

    Attributes:
        name: Of the check.
        state: `ok`, `differs` or `skipped`.
        says: For a person.
        values: What was measured, by name.
    """

    name: str
    state: str
    says: str
    values: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Run:
    """Losses of each step by member, seconds of a step, its arithmetic, and how steps were run if not as asked."""

    losses: list[list[float]]
    seconds: float
    flops: float
    warning: str = ""


def examine(device: str) -> Iterator[DoctorFinding]:
    """Run all checks on `cpu` or `cuda`, one after another."""
    environment = describe_environment(device)
    versions = ", ".join(f"{name} {version}" for name, version in environment.versions.items())
    free = free_bytes(device) / 2**30
    yield DoctorFinding("machine", "ok", f"{environment.device}; {free:.1f} GiB free; {versions}", {"free_gib": free})
    torch_device = torch.device(device)
    plain = _run(torch_device, _spec(), program=_eager)
    yield _measure_speed(plain, environment.device, "fp32")
    yield from _graph(torch_device, plain)
    for name, way in _WAYS.items():
        yield _compare(name, plain, _run(torch_device, _spec(**way), program=_eager), _EQUAL)
    yield _check_compiled(torch_device, plain)
    pack = _run(torch_device, _spec(), _SEEDS)
    first = _Run([row[:1] for row in pack.losses], pack.seconds / len(_SEEDS), pack.flops)
    yield _compare(f"a pack of {len(_SEEDS)}", plain, first, _EQUAL)
    yield _compare("bf16", plain, _run(torch_device, _spec(precision="bf16")), _ROUNDED)
    yield _memory(torch_device)
    yield _exchange()


def _spec(**training: Any) -> VariantSpec:
    return VariantSpec.model_validate(
        {
            "model": {"family": "decoder", "depth": 2, "width": 128, "heads": 4, "block": "pre_ln"},
            "task": {"kind": "recall", "symbols": 1024},
            "training": {"steps": _STEPS, "batch_size": 16, "optimizer": {"lr": 1e-3}, "evaluations": 1, **training},
        }
    )


def _eager(compute: Callable[..., Any], device: torch.device) -> EagerProgram:
    return EagerProgram(compute)


def _run(
    device: torch.device, spec: VariantSpec, seeds: Sequence[int] = (0,), program: BuildProgram = build_program
) -> _Run:
    with tempfile.TemporaryDirectory(dir=temporary_folder()) as folder:
        task = spec.task.open(Path(folder), spec.task.prepare(Path(folder), lambda line: None))
        with Pack([Member(spec, seed) for seed in seeds], task, device, program) as pack:
            losses = []
            for step in range(1, _STEPS + 1):
                if step == _STEPS - _TIMED + 1:
                    wait_for(device)
                    begin = time.perf_counter()
                pack.step(step)
                losses.append(pack.last_loss())
            wait_for(device)
            flops = pack.totals.phases[-1].flops
            return _Run(losses, (time.perf_counter() - begin) / _TIMED, flops, pack.eager_warning)


def _measure_speed(run: _Run, description: str, precision: str) -> DoctorFinding:
    rate = run.flops / run.seconds
    values = {"seconds": run.seconds, "flops_per_second": rate}
    says = f"{1000 * run.seconds:.1f} ms a step, {rate / 1e9:.3g} GFLOP/s"
    if device := known_device(description):
        values["efficiency"] = rate / device.peak(precision)
        says += f", {values['efficiency']:.2%} of the peak of {device.name}"
    return DoctorFinding("a small trial", "ok", says, values)


def _graph(device: torch.device, plain: _Run) -> Iterator[DoctorFinding]:
    if device.type == "cuda":
        yield _compare("CUDA graph", plain, _run(device, _spec()), _EQUAL)
    else:
        yield DoctorFinding("CUDA graph", "skipped", "only GPUs have it")


def _check_compiled(device: torch.device, plain: _Run) -> DoctorFinding:
    try:
        check_compiler(device.type)
    except EngineError as error:
        return DoctorFinding("compiled blocks", "skipped", str(error).splitlines()[0])
    run = _run(device, _spec(compile="blocks"), program=_eager)
    if run.warning:
        return DoctorFinding("compiled blocks", "differs", run.warning)
    return _compare("compiled blocks", plain, run, _EQUAL)


def _compare(name: str, plain: _Run, other: _Run, most: float) -> DoctorFinding:
    """Whether another way of running a step gives the losses of the eager one."""
    losses = zip(plain.losses[:_COMPARED], other.losses[:_COMPARED], strict=True)
    differences = [abs(ours[0] - theirs[0]) for ours, theirs in losses]
    agree = all(difference <= most for difference in differences)  # not so where one is NaN
    difference = max(differences)
    speed = plain.seconds / other.seconds
    says = f"losses differ by {difference:.1g} nats (at most {most:g}); {speed:.2f} times as fast a trial as eager"
    state = "ok" if agree else "differs"
    return DoctorFinding(name, state, says, {"difference": difference, "speed": speed})


def _memory(device: torch.device) -> DoctorFinding:
    """Predicted against measured memory of a step."""
    spec = _spec()
    with tempfile.TemporaryDirectory(dir=temporary_folder()) as folder:
        task = spec.task.open(Path(folder), spec.task.prepare(Path(folder), lambda line: None))
        shape = task.shape
        cost = model_cost(spec.model, vocabulary=shape.vocabulary, context=shape.context)
        variant = Variant("", {}, spec, "", cost, 0.0, "", vocabulary=shape.vocabulary, context=shape.context)
        with Pack([Member(spec, 0)], task, device, _eager) as pack:
            pack.step(1)
            kept = 3 * sum(parameter.nbytes for parameter in pack.model.parameters())  # weights and two moments
            measured = float(kept + peak_bytes(lambda: pack.step(2), device.type))
    predicted = trial_bytes(variant, device=device.type)
    says = f"predicted {predicted / 2**20:.1f} MiB, measured {measured / 2**20:.1f} MiB"
    state = "ok" if measured / 1.5 <= predicted <= 1.5 * measured else "differs"
    return DoctorFinding("memory", state, says, {"predicted": predicted, "measured": measured})


def _exchange() -> DoctorFinding:
    """The speed at which two processes of this machine sum a tensor, over gloo."""
    if not _has_loopback():
        says = "there is no loopback interface, by which processes reach each other"
        return DoctorFinding("two processes", "skipped", says)
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(dir=temporary_folder()) as folder:
        answers = context.SimpleQueue()
        arguments = f"file://{folder}/meeting", answers
        processes = [context.Process(target=_sum_together, args=(index, *arguments)) for index in (0, 1)]
        for process in processes:
            process.start()
        for process in processes:
            process.join(_PATIENCE_SECONDS)
            if process.is_alive():
                process.kill()
                process.join()
        if any(process.exitcode for process in processes) or answers.empty():
            return DoctorFinding("two processes", "differs", "two processes could not sum a tensor over gloo")
        seconds, right = answers.get()
    rate = _MEGABYTES / seconds
    says = f"{_MEGABYTES} MB summed in {1000 * seconds:.0f} ms, {rate:,.0f} MB/s over gloo"
    return DoctorFinding("two processes", "ok" if right else "differs", says, {"megabytes_per_second": rate})


def _has_loopback() -> bool:
    """Whether a process can reach another over 127.0.0.1; a network namespace of its own may have no loopback."""
    with socket.socket() as server, socket.socket() as client:
        client.settimeout(_LOOPBACK_SECONDS)
        try:
            server.bind(("127.0.0.1", 0))
            server.listen(1)
            client.connect(server.getsockname())
        except OSError:
            return False
    return True


def _sum_together(index: int, meeting: str, answers: Any) -> None:
    distributed.init_process_group(
        "gloo", init_method=meeting, rank=index, world_size=2, timeout=timedelta(seconds=_PATIENCE_SECONDS)
    )
    tensor = torch.full((_MEGABYTES * 250_000,), float(index + 1))
    distributed.all_reduce(tensor.clone())
    begin = time.perf_counter()
    distributed.all_reduce(tensor)
    if index == 0:
        answers.put((time.perf_counter() - begin, bool((tensor == 3).all())))
    distributed.barrier()
    distributed.destroy_process_group()
