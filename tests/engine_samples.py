"""An engine without processes: it immediately returns the events that a script of the test gives for each job."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from ablate.designs.base import Design, Point, Proposal
from ablate.execution.engine import Engine, Observer
from ablate.execution.protocol import Broken, Done, Happened, Job, Message
from ablate.planning.plan import Plan, Trial
from ablate.planning.planner import Planner
from ablate.spec.space import SpaceSpec
from ablate.spec.variant import VariantSpec
from ablate.store.records import Environment, TrialOutcome
from ablate.training.events import Diverged, Measurement

ENVIRONMENT = Environment({"python": "3.x"}, "cpu: test", "here", None, None, "ablate study test")

SPACE = {
    "name": "sample",
    "question": "Which?",
    "task": {"kind": "language_model", "data": "file:text", "tokenizer": {"kind": "bytes"}, "context": 8},
    "model": {"family": "decoder", "depth": 1, "width": 8, "heads": 2, "block": {"mixer": "attention"}},
    "training": {"steps": 2, "batch_size": 2, "optimizer": {"kind": "adamw", "lr": 1e-3}},
    "switches": {
        "values": {"dense": {}, "identity": {"block.mixer.value": "identity"}},
        "norm": {"usual": {}, "none": {"block.norm": "none"}},
    },
    "design": {"kind": "leave_one_out", "seeds": 2},
    "objective": {"metric": "val_loss", "direction": "minimize", "margin": 0.1},
}


def space(**changes: object) -> SpaceSpec:
    return SpaceSpec.model_validate({**SPACE, **changes})


def planner(folder: Path, **changes: object) -> Planner:
    """A planner for the sample space, with its text in `folder`, which must be the working folder."""
    text = folder / "text"
    if not text.exists():
        text.mkdir()
        for name in "abcd":
            (text / name).write_text(f"This is text {name}, of some length. " * 20)
    return Planner(space(**changes), folder / "cache", lambda line: None)


def measured(step: int, *losses: float) -> Measurement:
    train_loss = [loss + 0.5 for loss in losses]
    return Measurement(step, 0.1 * step, 16 * step, 100.0 * step, train_loss, {"val_loss": list(losses)})


Script = Callable[[Job, int], Sequence[Message]]
"""What becomes of a job, and which attempt it is at the same variant and seed."""


def finish(job: Job, attempt: int) -> Sequence[Message]:
    """Every trial ends with a loss that depends on its seed alone."""
    ends = [0.1 * member.seed for member in job.members]
    steps = json.loads(job.members[0].variant)["training"]["steps"]
    points = [measured(step, *(3.0 - i + end for end in ends)) for i, step in enumerate((0, 1, steps))]
    return [*(Happened(job.number, point) for point in points), Done(job.number)]


def diverge(job: Job, attempt: int) -> Sequence[Message]:
    points = [measured(0, 3.0), measured(1, float("nan")), Diverged(0, 1, float("inf"))]
    return [*(Happened(job.number, point) for point in points), Done(job.number)]


def raise_(job: Job, attempt: int) -> Sequence[Message]:
    return [Broken(job.number, "ValueError: no", "Traceback ...\nValueError: no\n")]


def lose_worker(job: Job, attempt: int) -> Sequence[Message]:
    return [Happened(job.number, measured(0, 3.0)), Broken(job.number, "its worker was killed by SIGKILL", "", "log")]


class ScriptedEngine(Engine):
    """Runs `size` jobs at once by a script and remembers them."""

    def __init__(self, script: Script = finish, size: int = 2) -> None:
        self.script = script
        self.jobs: list[Job] = []
        self.stopped: list[tuple[int, int]] = []
        self.expected: list[Trial] = []
        self.waits: list[float] = []
        self.closed = False
        self._size = size
        self._running: list[Job] = []

    @property
    def size(self) -> int:
        return self._size

    def admit(self, plan: Plan) -> None:
        self.admitted = plan

    def expect(self, trials: Iterable[Trial]) -> None:
        self.expected += trials

    def room(self) -> int:
        return self._size - len(self._running)

    def submit(self, job: Job) -> None:
        assert self.room() > 0
        self.jobs.append(job)
        self._running.append(job)

    def stop(self, number: int, member: int) -> None:
        self.stopped.append((number, member))

    def poll(self, timeout: float) -> list[Message]:
        self.waits.append(timeout)
        jobs, self._running = self._running, []
        return [message for job in jobs for message in self.script(job, self.attempt(job))]

    def attempt(self, job: Job) -> int:
        return sum(earlier.members == job.members for earlier in self.jobs)

    def close(self) -> None:
        self.closed = True

    @property
    def trained(self) -> list[tuple[str, int]]:
        """Content hash of the variant, and seed, of each job in order."""
        return [
            (VariantSpec.model_validate_json(job.members[0].variant).content_hash(), job.members[0].seed)
            for job in self.jobs
        ]


class Log(Observer):
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str, int]] = []
        self.outcomes: list[TrialOutcome] = []

    def started(self, trial: Trial) -> None:
        self.told.append(("started", trial.variant.name, trial.seed))

    def reused(self, trial: Trial) -> None:
        self.told.append(("reused", trial.variant.name, trial.seed))

    def lost(self, trial: Trial, reason: str) -> None:
        self.told.append(("lost", trial.variant.name, trial.seed))

    def split(self, trials: Sequence[Trial], reason: str) -> None:
        self.told.append(("split", reason, len(trials)))

    def ended(self, trial: Trial, outcome: TrialOutcome) -> None:
        self.told.append((outcome.state.value, trial.variant.name, trial.seed))
        self.outcomes.append(outcome)


class Rounds(Design):
    """Proposes the next round when every value of the round before is known; remembers what it is told."""

    def __init__(self, rounds: Sequence[Sequence[Proposal]]) -> None:
        self._rounds = [list(round_) for round_ in rounds]
        self._open: set[tuple[str, int]] = set()
        self.values: list[tuple[str, int, float | None]] = []

    def points(self) -> list[Point]:
        return [self._rounds[0][0].point]

    def ask(self) -> list[Proposal]:
        if self._open or not self._rounds:
            return []
        proposals = self._rounds.pop(0)
        self._open = {(proposal.point.name, proposal.seed) for proposal in proposals}
        return proposals

    def tell(self, point: Point, seed: int, value: float | None) -> None:
        self._open.remove((point.name, seed))  # a KeyError if it is told twice
        self.values.append((point.name, seed, value))
