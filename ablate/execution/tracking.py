"""Copies the curves of a running study to trackers. The store stays the source of truth.

Each tracker has a thread, so that one that is slow does not hold the driver up. A run that a tracker fails to take is
closed, and the others go on; a tracker that fails for three runs is left alone. At the end of a study, and whenever it
is run again, a tracker gets from the store what it lacks.
"""

from __future__ import annotations

import hashlib
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from ablate.execution.attempt import curve_point
from ablate.execution.engine import Observer
from ablate.planning.plan import Trial
from ablate.processes import hide_passwords
from ablate.roles import TrialRole
from ablate.store import Store
from ablate.store.records import ENDED, CurvePoint, TrialOutcome
from ablate.trackers import RunWriter, TrackedRun, Tracker, TrackerSession
from ablate.training.events import Measurement

_MOST_WAITING = 10_000
"""The messages that wait for a tracker before it counts as too slow."""
_CLOSE_SECONDS = 120.0
"""The seconds that a tracker has, after the last trial, to take what waits for it."""
_MOST_LOST = 3
"""The runs that a tracker may fail to take before it is left alone."""


class _Action(NamedTuple):
    """A call of a tracker, in its thread.

    Attributes:
        key: Of the run that it is about.
        call: Takes the session and the writers of open runs, by key.
        begins: Whether it begins the run, also one that was lost.
    """

    key: str
    call: Callable[[TrackerSession, dict[str, RunWriter]], None]
    begins: bool = False


@dataclass(frozen=True, slots=True)
class _Result:
    """How a run ended: the arguments of `RunWriter.end`."""

    state: str
    values: Mapping[str, float]
    text: str


class TrackingObserver(Observer):
    """Copies the events of a study to trackers.

    Args:
        trackers: Where to copy.
        say: Prints a warning; called from the thread of the driver only.
    """

    def __init__(self, study: str, trackers: Sequence[Tracker], say: Callable[[str], None]) -> None:
        self._study = study
        self._say = say
        self._threads = [_TrackerThread(tracker) for tracker in trackers]
        self._last: dict[str, int] = {}

    def started(self, trial: Trial) -> None:
        """Begin its run; one that an earlier start of the trial left is replaced."""
        self._begin(trial)

    def measured(self, trial: Trial, point: Measurement, member: int) -> None:
        """Send a point of the curve. A trial that was resumed sends its whole curve again; so its run begins again."""
        if trial.key not in self._last or point.step <= self._last[trial.key]:
            self._begin(trial)
        self._last[trial.key] = point.step
        values = {name: metric[member] for name, metric in point.metrics.items()}
        values |= _of_training(curve_point(point, member))
        self._send(_Action(trial.key, partial(_log, key=trial.key, step=point.step, values=values)))

    def lost(self, trial: Trial, reason: str) -> None:
        """Close the run of a trial that is trained again."""
        self._drop(trial.key)

    def split(self, trials: Sequence[Trial], reason: str) -> None:
        """Close the runs of the trials of a pack, which are trained again."""
        for trial in trials:
            self._drop(trial.key)

    def ended(self, trial: Trial, outcome: TrialOutcome) -> None:
        """Send the result."""
        if trial.key not in self._last:
            self._begin(trial)
        del self._last[trial.key]
        result = _Result(outcome.state.value, dict(outcome.metrics), outcome.reason)
        self._send(_Action(trial.key, partial(_end, key=trial.key, result=result)))

    def beat(self) -> None:
        """Report trackers that have failed."""
        for thread in self._threads:
            if warning := thread.new_warning():
                self._say(warning)

    def catch_up(self, store: Store) -> None:
        """Send from the store every trial of the study that has ended and that a tracker does not hold."""
        study = store.study(self._study)
        variants = {variant.name: variant for variant in (*study.variants, *study.scout_variants)}
        for planned in (*study.planned, *study.scout_trials, *study.confirm_trials):
            record = store.trials([planned.key]).get(planned.key)
            if record is None or record.state not in ENDED:
                continue
            variant = variants[planned.variant]
            run = _trial_run(
                self._study, planned.key, variant.name, variant.settings, planned.seed, planned.role,
                variant.parameters, variant.spec,
            )  # fmt: skip
            curve = store.curves([planned.key]).get(planned.key, ())
            result = _Result(record.state.value, dict(record.metrics), record.reason)
            whole = partial(_write_whole, key=planned.key, run=run, curve=curve, result=result, replaces=False)
            for thread in self._threads:
                thread.wait_and_put(_Action(planned.key, whole, begins=True))

    def conclude(self, text: str, numbers: Mapping[str, float]) -> None:
        """Send the answer of the study as a run of its own.

        Args:
            text: The answer as Markdown.
            numbers: Differences from the baseline with their intervals, by `VARIANT/NAME`.
        """
        identity = f"answer-{_digest(self._study)}"
        run = TrackedRun(identity, self._study, ("answer",), {"study": self._study}, {"role": "answer"})
        result = _Result("finished", numbers, text)
        whole = partial(_write_whole, key=identity, run=run, curve=(), result=result, replaces=True)
        for thread in self._threads:
            thread.wait_and_put(_Action(identity, whole, begins=True))

    def close(self) -> None:
        """Wait until the trackers have taken what was sent, for two minutes at most; report those that failed."""
        for key in list(self._last):
            self._drop(key)
        for thread in self._threads:
            thread.close()
        self.beat()

    def _begin(self, trial: Trial) -> None:
        self._last[trial.key] = -1
        begin = partial(_begin, key=trial.key, run=_run_of(self._study, trial))
        self._send(_Action(trial.key, begin, begins=True))

    def _drop(self, key: str) -> None:
        if self._last.pop(key, None) is not None:
            self._send(_Action(key, partial(_drop, key=key)))

    def _send(self, action: _Action) -> None:
        for thread in self._threads:
            thread.put(action)


class _TrackerThread:
    """Calls a tracker in a thread of its own."""

    def __init__(self, tracker: Tracker) -> None:
        self._tracker = tracker
        self._waiting: queue.Queue[_Action | None] = queue.Queue(_MOST_WAITING)
        self._failure = ""
        self._lost: set[str] = set()
        self._is_left_alone = False
        self._reported = False
        self._thread = threading.Thread(target=self._work, name=f"tracker {tracker.kind_name()}", daemon=True)
        self._thread.start()

    def put(self, action: _Action) -> None:
        """Queue a call; a tracker that does not keep up has failed."""
        if self._is_left_alone:
            return
        try:
            self._waiting.put_nowait(action)
        except queue.Full:
            self._leave_alone(f"{_MOST_WAITING} messages wait for it")

    def wait_and_put(self, action: _Action) -> None:
        """Queue a call after the study; waits while the queue is full."""
        if not self._is_left_alone:
            try:
                self._waiting.put(action, timeout=_CLOSE_SECONDS)
            except queue.Full:
                self._leave_alone(f"it took nothing for {_CLOSE_SECONDS:.0f} s")

    def new_warning(self) -> str:
        """Why the tracker failed, once; empty if it works or the failure was reported."""
        if not self._failure or self._reported:
            return ""
        self._reported = True
        address = hide_passwords(self._tracker.address)
        return (
            f"the tracker {address} failed: {self._failure}. The study continues; run it again with the same --log-to "
            "to send what is missing"
        )

    def close(self) -> None:
        """Wait for the thread to take what is queued."""
        with suppress(queue.Full):
            self._waiting.put(None, timeout=_CLOSE_SECONDS)
        self._thread.join(_CLOSE_SECONDS)
        if self._thread.is_alive() and not self._failure:
            self._failure = f"it was still busy {_CLOSE_SECONDS:.0f} s after the last trial"

    def _work(self) -> None:
        """Never raises: whatever a tracker raises becomes a warning."""
        try:
            session = self._tracker.connect()
            self._send_all(session)
            session.close()
        except BaseException as error:  # a package may raise SystemExit; the study must not notice
            self._leave_alone(_sentence(error))
            with suppress(queue.Empty):
                while True:
                    self._waiting.get_nowait()

    def _send_all(self, session: TrackerSession) -> None:
        """Make the calls that come, and close at the end every run that is open: none may look as if it still ran.

        Raises:
            BaseException: Of the last call, if the tracker has failed for too many runs.
        """
        runs: dict[str, RunWriter] = {}
        try:
            while (action := self._waiting.get()) is not None:
                if action.key in self._lost and not action.begins:
                    continue
                try:
                    action.call(session, runs)
                except BaseException as error:
                    self._failure = self._failure or _sentence(error)
                    self._lost.add(action.key)
                    _close_lost(runs, action.key)
                    if len(self._lost) == _MOST_LOST:
                        raise
                else:
                    self._lost.discard(action.key)
        finally:
            for key in list(runs):
                _close_lost(runs, key)

    def _leave_alone(self, why: str) -> None:
        self._failure, self._is_left_alone = self._failure or why, True


def _sentence(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


def _close_lost(runs: dict[str, RunWriter], key: str) -> None:
    """Close a run whose tracker has failed, if it can be reached for that."""
    with suppress(BaseException):
        if (writer := runs.pop(key, None)) is not None:
            writer.drop()


def _begin(session: TrackerSession, runs: dict[str, RunWriter], key: str, run: TrackedRun) -> None:
    if (before := runs.pop(key, None)) is not None:
        before.drop()
    runs[key] = session.begin(run)


def _log(session: TrackerSession, runs: dict[str, RunWriter], key: str, step: int, values: Mapping[str, float]) -> None:
    runs[key].log(step, values)


def _drop(session: TrackerSession, runs: dict[str, RunWriter], key: str) -> None:
    runs[key].drop()
    del runs[key]


def _end(session: TrackerSession, runs: dict[str, RunWriter], key: str, result: _Result) -> None:
    runs[key].end(result.state, result.values, result.text)
    del runs[key]


def _write_whole(
    session: TrackerSession,
    runs: dict[str, RunWriter],
    key: str,
    run: TrackedRun,
    curve: Sequence[CurvePoint],
    result: _Result,
    replaces: bool,
) -> None:
    """Write a run from begin to end; unless it `replaces` what the tracker holds, only if the tracker lacks it."""
    if not replaces and session.holds(run):
        return
    _begin(session, runs, key, run)
    for point in curve:
        values = {} if point.val_loss is None else {"val_loss": point.val_loss}
        runs[key].log(point.step, values | _of_training(point))
    _end(session, runs, key, result)


def _of_training(point: CurvePoint) -> dict[str, float]:
    """What is measured in training up to a point; there is no training loss at step 0."""
    cost = {"tokens": float(point.tokens), "flops": point.flops, "seconds": point.seconds}
    return cost if point.train_loss is None else {"train_loss": point.train_loss, **cost}


def _run_of(study: str, trial: Trial) -> TrackedRun:
    variant, spec = trial.variant, trial.variant.spec
    parameters = variant.cost.parameters if spec.builds_model else None
    return _trial_run(
        study, trial.key, variant.name, variant.settings, trial.seed, trial.role, parameters,
        spec.model_dump(mode="json"),
    )  # fmt: skip


def _trial_run(
    study: str,
    key: str,
    variant: str,
    settings: Mapping[str, str],
    seed: int,
    role: TrialRole,
    parameters: int | None,
    spec: Mapping[str, Any],
) -> TrackedRun:
    """The run of a trial. A parameter of the user's trainer may be named as what is said about a trial: `variant`."""
    about = {
        "variant": variant,
        "settings": dict(settings),
        "seed": seed,
        "role": role.value,
        "key": key,
        "parameters": parameters,
    }
    config = {**about, **{f"{path} (parameter)" if path in about else path: value for path, value in spec.items()}}
    return TrackedRun(f"{key[:24]}-{_digest(study)}", study, (variant, f"seed {seed}"), config, {"role": role.value})


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
