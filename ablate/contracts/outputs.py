"""The contracts of what results go to: a tracker, tried in a folder without a network, and a format of reports."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ablate.analysis.findings import Findings, read_findings
from ablate.analysis.report_format import FORMATS, Format, Place
from ablate.contracts.contract import Contract, by_name, round_trips_through_json
from ablate.errors import NotFoundError
from ablate.locations import temporary_folder
from ablate.store.records import (
    CurvePoint,
    PlannedTrial,
    Recording,
    SpeedTiming,
    StudyRecord,
    TrialRecord,
    TrialState,
    VariantRecord,
)
from ablate.trackers import TRACKERS, TrackedRun, Tracker, TrackerSession, find_tracker


@dataclass(frozen=True, slots=True)
class TrackerContext:
    """The run that is sent.

    Attributes:
        state: How it ends.
    """

    state: str
    losses: tuple[float, ...]


_SPEC = {"variant": "a=b, c/d", "seed": 0, "model": {"width": 8, "block": {"norm": None, "gains": [1.0, 2.0]}}}
_RUN = TrackedRun("0123456789abcdef-0123", "sample", ("a=b, c/d", "seed 0"), _SPEC, {"role": "comparison"})


def _send(session: TrackerSession, context: TrackerContext) -> None:
    writer = session.begin(_RUN)
    for step, loss in enumerate(context.losses):
        writer.log(step, {"val_loss": loss, "tokens": 16.0 * step})
    writer.end(context.state, {"val_loss": context.losses[-1]}, "**why**")


def round_trips_through_address(spec: Tracker, context: TrackerContext) -> Iterator[str]:
    """Its address finds it again."""
    if find_tracker(spec.address) != type(spec)(argument=spec.argument):
        yield f"`{spec.address}` finds another tracker"


def keeps_completed_runs(spec: Tracker, context: TrackerContext) -> Iterator[str]:
    """It holds a run from its end on, also in a later session, and neither before nor when the run was dropped."""
    with tempfile.TemporaryDirectory(dir=temporary_folder()) as name:
        tracker = spec.offline(Path(name))
        session = tracker.connect()
        if session.holds(_RUN):
            yield "it holds a run that was never sent"
        writer = session.begin(_RUN)
        writer.log(0, {"val_loss": context.losses[0]})
        writer.drop()
        if session.holds(_RUN):
            yield "it holds a run that was dropped"
        _send(session, context)
        session.close()
        later = tracker.connect()
        if not later.holds(_RUN):
            yield "a later session does not find the run that ended"
        later.close()


def accepts_a_run_again(spec: Tracker, context: TrackerContext) -> Iterator[str]:
    """A run that is sent twice is taken twice, and two runs may be open at once."""
    with tempfile.TemporaryDirectory(dir=temporary_folder()) as name:
        session = spec.offline(Path(name)).connect()
        other = session.begin(TrackedRun("other", "sample", ("other",), {}))
        _send(session, context)
        _send(session, context)
        other.end("finished", {}, "")
        if not session.holds(_RUN):
            yield "it lost the run that was sent twice"
        session.close()


TRACKER: Contract[Tracker, TrackerContext] = Contract(
    family=TRACKERS,
    rules=by_name(round_trips_through_address, keeps_completed_runs, accepts_a_run_again, round_trips_through_json),
    contexts=lambda spec: [
        TrackerContext("finished", (3.0, 2.0, 1.5)),
        TrackerContext("diverged", (3.0, float("nan"))),
    ],
    given={"argument": "sample"},
    describe=lambda context: f"a run that is {context.state}",
)


_PICTURES = {"svg", "png", "pdf"}
_NOON = datetime(2024, 5, 17, 12, 0, tzinfo=UTC)
_LOSSES = {"baseline": 3.0, "skip=removed": 3.5, "norm=none": 3.0}
_SEEDS = 3


@dataclass(frozen=True, slots=True)
class FormatContext:
    """The study that is reported.

    Attributes:
        question: Its question, which may hold characters that a format must escape.
    """

    question: str


class _Sample:
    """A study of three variants and three seeds; one trial diverged."""

    def __init__(self, question: str) -> None:
        planned = [PlannedTrial(f"{name}/{seed}", name, seed) for seed in range(_SEEDS) for name in _LOSSES]
        self._record = StudyRecord(
            id=1,
            name="sample",
            question=question,
            source="",
            space={},
            text="name: sample\n",
            objective={"metric": "val_loss", "direction": "minimize", "margin": 0.02},
            baseline="baseline",
            created_at=_NOON,
            updated_at=_NOON,
            variants=tuple(VariantRecord(name, f"hash of {name}", {"part": name}, {}, 1000) for name in _LOSSES),
            planned=tuple(planned),
        )
        self._trials = {trial.key: self._trial(trial) for trial in planned}

    def _trial(self, planned: PlannedTrial) -> TrialRecord:
        diverged = planned.key == "norm=none/2"
        loss = _LOSSES[planned.variant] + planned.seed / 7
        return TrialRecord(
            key=planned.key,
            variant_hash=f"hash of {planned.variant}",
            seed=planned.seed,
            state=TrialState.DIVERGED if diverged else TrialState.FINISHED,
            metrics={} if diverged else {"val_loss": loss},
            steps=100,
            seconds=10.0,
            tokens=1000,
            flops=1e9,
            stopped_at=9 if diverged else None,
            reason="the loss was not finite" if diverged else "",
            data_fingerprint="data",
            started_at=_NOON,
            finished_at=_NOON,
            environment=None,
        )

    def study(self, name: str) -> StudyRecord:
        """The study.

        Raises:
            NotFoundError: It has another name.
        """
        if name != self._record.name:
            raise NotFoundError("there is no such study", where=name)
        return self._record

    def trials(self, keys: Sequence[str]) -> dict[str, TrialRecord]:
        """Its trials."""
        return {key: self._trials[key] for key in keys if key in self._trials}

    def codes(self, identities: Sequence[str]) -> dict[str, dict[str, Any]]:
        """None."""
        return {}

    def curves(self, keys: Sequence[str]) -> dict[str, tuple[CurvePoint, ...]]:
        """A straight curve of each trial that finished."""
        ends = {key: trial.metrics.get("val_loss") for key, trial in self.trials(keys).items()}
        return {
            key: tuple(CurvePoint(step, 0.1 * step, 10 * step, 1e7 * step, None, 8 - (8 - end) * step / 100)
                       for step in (0, 50, 100))
            for key, end in ends.items() if end is not None
        }  # fmt: skip

    def evaluations(self, keys: Sequence[str]) -> dict[str, tuple[CurvePoint, ...]]:
        """Whole curves: every point has a validation loss."""
        return self.curves(keys)

    def recordings(self, key: str) -> tuple[Recording, ...]:
        """None."""
        return ()

    def timings(self, keys: Sequence[str]) -> dict[str, tuple[SpeedTiming, ...]]:
        """None: nothing was timed."""
        return {}


def _findings(context: FormatContext) -> Findings:
    return read_findings(_Sample(context.question), "sample")


def declares_suffix_and_figures(spec: Format, context: FormatContext) -> Iterator[str]:
    """`suffix` has no dot and no slash, and `figures` are kinds of pictures that can be drawn."""
    if not spec.suffix or set("./\\") & set(spec.suffix):
        yield f"`suffix` is {spec.suffix!r}"
    if unknown := sorted(set(spec.figures) - _PICTURES):
        yield f"`figures` names {', '.join(unknown)}; there are {', '.join(sorted(_PICTURES))}"


def writes_a_study(spec: Format, context: FormatContext) -> Iterator[str]:
    """A study becomes text, or bytes, in which its variants are named; the same each time."""
    rendered = spec.render(_findings(context), Place())
    if not isinstance(rendered, (str, bytes)):
        yield f"it gives {type(rendered).__name__}, not text or bytes"
    elif not rendered:
        yield "it gives nothing"
    elif isinstance(rendered, str) and (lost := [name for name in _LOSSES if name.split("=")[0] not in rendered]):
        yield f"the variant {lost[0]} is not named"
    if rendered != spec.render(_findings(context), Place()):
        yield "written twice, the same study differs"


FORMAT: Contract[Format, FormatContext] = Contract(
    family=FORMATS,
    rules=by_name(declares_suffix_and_figures, writes_a_study, round_trips_through_json),
    contexts=lambda spec: [
        FormatContext("Which parts can go?"),
        FormatContext(r"<b>50 %</b> & $x_1$ #1 | `a` *b* ~c^ 'd' \"e\" {f} \g ≤ α 漢"),
    ],
    describe=lambda context: f"the question {context.question!r}",
)
