"""The scheduler of Ray Tune's trials: it ends those that the design of the study wants no more of."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from ray.tune.experiment import Trial
from ray.tune.schedulers import FIFOScheduler, TrialScheduler

from ablate.engine.ray.trainable import JOB

if TYPE_CHECKING:
    from ray.tune.execution.tune_controller import TuneController


class DesignScheduler(FIFOScheduler):
    """Runs jobs in the order of their submission, and ends a job when nobody wants any of its members.

    Which trial is poor is the design's to say (ASHA, Hyperband, the median or the Wilcoxon rule of `search`), on every
    engine by the same rule, because what Tune can end is a job, and what is pruned is a member of one.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._wanted: dict[int, set[int]] = {}
        self._lock = threading.Lock()

    def expect(self, number: int, members: int) -> None:
        """A job of so many members was submitted."""
        with self._lock:
            self._wanted[number] = set(range(members))

    def stop(self, number: int, member: int) -> bool:
        """The design wants no more of a member of a job; whether other members are left."""
        with self._lock:
            wanted = self._wanted.get(number, set())
            wanted.discard(member)
            return bool(wanted)

    def on_trial_result(self, tune_controller: TuneController, trial: Trial, result: dict[str, Any]) -> str:
        """Go on, or stop."""
        with self._lock:
            wanted = self._wanted.get(trial.config[JOB].number)
        return TrialScheduler.CONTINUE if wanted else TrialScheduler.STOP

    def forget(self, number: int) -> None:
        """A job has ended."""
        with self._lock:
            self._wanted.pop(number, None)
