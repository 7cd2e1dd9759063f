"""A step as a CUDA graph, on a simulated device: what is captured, replayed, and run one operation at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
import torch
from random_tokens import CPU, RandomTokens, variant

from ablate.training.members import Member
from ablate.training.pack import Pack
from ablate.training.program import BuildProgram, Compute, EagerProgram, GraphProgram, build_program

CUDA = torch.device("cuda")


class PlayedGraph:
    """Replaces `torch.cuda.CUDAGraph`: a replay runs the captured step again, on the tensors of its capture."""

    def __init__(self) -> None:
        self.step: Callable[[], None] = lambda: None

    def replay(self) -> None:
        self.step()


class Stream:
    def __init__(self, *_: object) -> None:
        pass

    def wait_stream(self, stream: object) -> None:
        pass


@pytest.fixture(autouse=True)
def played(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def graph(graph: PlayedGraph, capture_error_mode: str) -> Iterator[None]:
        assert capture_error_mode == "thread_local", "another thread prepares batches"
        Recorder.recording = graph
        try:
            yield
        finally:
            Recorder.recording = None

    for name, value in {
        "CUDAGraph": PlayedGraph,
        "graph": graph,
        "Stream": Stream,
        "current_stream": Stream,
        "stream": nullcontext,
        "device": nullcontext,
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)


class Recorder:
    """A step that adds up what it is given; while it is captured it only remembers what to do."""

    recording: PlayedGraph | None = None

    def __init__(self, refuses: Exception | None = None) -> None:
        self.total = 0.0
        self.runs = 0
        self.loss = torch.zeros(1)
        self.refuses = refuses

    def __call__(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        def step() -> None:
            self.loss.fill_(self.total)
            self.total += batch["x"].sum().item()
            self.runs += 1

        if Recorder.recording is None:
            step()
        elif self.refuses is not None:
            raise self.refuses
        else:
            Recorder.recording.step = step
        return self.loss


def batches(count: int) -> list[dict[str, torch.Tensor]]:
    return [{"x": torch.full((2, 3), float(i))} for i in range(1, count + 1)]


def test_every_batch_is_learnt_from_once() -> None:
    step = Recorder()
    program = GraphProgram(step, CUDA)
    losses = [program.run(batch).item() for batch in batches(8)]
    assert losses == [6.0 * sum(range(i)) for i in range(1, 9)]
    assert (step.total, step.runs, program.warning) == (6.0 * 36, 8, "")


def test_a_batch_of_another_shape_is_run_without_the_graph() -> None:
    step = Recorder()
    program = GraphProgram(step, CUDA)
    for batch in [*batches(5), {"x": torch.ones(2, 7)}, *batches(1)]:
        program.run(batch)
    assert (step.total, step.runs) == (6.0 * 15 + 14 + 6, 7)


def test_what_cannot_be_captured_runs_one_operation_at_a_time_and_says_why() -> None:
    step = Recorder(RuntimeError("operation not permitted when stream is capturing\nand more"))
    program = GraphProgram(step, CUDA)
    for batch in batches(8):
        program.run(batch)
    assert (step.total, step.runs) == (6.0 * 36, 8)
    assert program.warning.endswith("run eagerly: operation not permitted when stream is capturing")


def test_all_trials_of_a_process_warm_up_on_one_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """cuBLAS keeps a workspace for each stream that it has seen, 64 MiB on an H200."""
    seen: list[Stream] = []

    def stream(one: Stream) -> nullcontext[None]:
        seen.append(one)
        return nullcontext()

    monkeypatch.setattr(torch.cuda, "stream", stream)
    for _ in range(3):
        program = GraphProgram(Recorder(), CUDA)
        for batch in batches(5):
            program.run(batch)
    assert len(seen) == 9
    assert len({id(one) for one in seen}) == 1


def test_after_a_capture_that_failed_random_numbers_can_be_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    class Generator:
        """As torch's for a GPU: a state in which a capture has failed refuses to be used outside of one."""

        def __init__(self) -> None:
            self.offset, self.captured = 7, True

        def clone_state(self) -> Generator:
            other = Generator()
            other.captured = False
            return other

        def graphsafe_set_state(self, state: Generator) -> None:
            self.offset, self.captured = state.offset, state.captured

    generator = Generator()
    monkeypatch.setattr(torch.cuda, "default_generators", (generator,))
    program = GraphProgram(Recorder(RuntimeError("CUDA error: a previous error during capture")), CUDA)
    for batch in batches(5):
        program.run(batch)
    assert (generator.offset, generator.captured) == (7, False)


def test_without_memory_for_a_capture_steps_run_eagerly() -> None:
    step = Recorder(torch.OutOfMemoryError("CUDA out of memory."))
    program = GraphProgram(step, CUDA)
    for batch in batches(8):
        program.run(batch)
    assert (step.total, step.runs) == (6.0 * 36, 8)
    assert "no memory for a CUDA graph" in program.warning


class Captured:
    """A step of a pack that, captured, is remembered; `fault` says what is wrong with its replays."""

    def __init__(self, compute: Compute, fault: str) -> None:
        self._compute = compute
        self._fault = fault
        self.kept: list[torch.Tensor] = []

    def __call__(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        if Recorder.recording is None:
            loss = self._compute(batch)
            if self._fault == "no memory" and self.kept:
                self._fault, self.kept = "", []
                raise torch.OutOfMemoryError("CUDA out of memory.")  # after the step has changed the weights
            return loss
        given = {name: values.clone() for name, values in batch.items()} if self._fault == "old batch" else batch
        loss = torch.zeros(1)

        def step() -> None:
            if self._fault == "other noise":
                torch.rand(1)
            with torch.enable_grad():
                loss.copy_(self._compute(given))
            if self._fault == "no update":
                for tensor, kept in zip(self.weights, self.kept, strict=True):
                    tensor.data.copy_(kept)

        self.kept = [tensor.detach().clone() for tensor in self.weights]
        Recorder.recording.step = step
        return loss

    weights: list[torch.Tensor]


@pytest.mark.parametrize("fault", ["", "old batch", "other noise", "no update", "no memory"])
def test_a_graph_whose_first_steps_differ_from_eager_ones_gives_way_to_them(fault: str) -> None:
    def run(program: BuildProgram) -> tuple[list[list[float]], str]:
        spec = variant(model={"dropout": 0.2}, steps=10)
        with Pack([Member(spec, 0)], RandomTokens(), CPU, program) as pack:
            losses = []
            for number in range(1, 11):
                for made in captured:
                    made.weights = list(pack.model.parameters())
                pack.step(number)
                losses.append(pack.last_loss())
            return losses, pack.warning

    def graph(compute: Compute, device: torch.device) -> GraphProgram:
        captured.append(Captured(compute, fault))
        return GraphProgram(captured[-1], device)

    captured: list[Captured] = []
    found, warning = run(graph)
    eager, _ = run(lambda compute, device: EagerProgram(compute))
    assert found == eager  # the same operations on the same numbers
    said = {"": "", "no memory": "no memory for a CUDA graph"}.get(fault, "a CUDA graph gave another result")
    assert said in warning
    assert bool(warning) == bool(fault)


def test_the_device_chooses() -> None:
    assert isinstance(build_program(Recorder(), CUDA), GraphProgram)
    assert isinstance(build_program(Recorder(), CPU), EagerProgram)


def test_the_program_of_a_pack_runs_its_steps() -> None:
    ran: list[Any] = []

    class Counted(EagerProgram):
        def run(self, batch: Any) -> torch.Tensor:
            ran.append(batch)
            return super().run(batch)

    pack = Pack([Member(variant(), 0)], RandomTokens(), CPU, lambda compute, device: Counted(compute))
    pack.step(1)
    assert len(ran) == 1
