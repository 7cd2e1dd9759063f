"""The contract of a tracker, tried in a folder of this machine without a network."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ablate.contracts.contract import Contract, by_name, round_trips_through_json
from ablate.locations import temporary_folder
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


CONTRACT: Contract[Tracker, TrackerContext] = Contract(
    family=TRACKERS,
    rules=by_name(round_trips_through_address, keeps_completed_runs, accepts_a_run_again, round_trips_through_json),
    contexts=lambda spec: [
        TrackerContext("finished", (3.0, 2.0, 1.5)),
        TrackerContext("diverged", (3.0, float("nan"))),
    ],
    given={"argument": "sample"},
    describe=lambda context: f"a run that is {context.state}",
)
