"""Lets Ray Tune (2.60) survive workers that die in two ways that it handles wrongly.

- Ray kills a worker because its node runs out of memory. Tune detects dead actors by `RayActorError`. The
  `OutOfMemoryError` of the memory monitor is not one, and Tune ends the whole run over it. Converted to
  `RayActorError`, it costs one attempt of one job.
- An idle worker dies, and Tune gives it a job before it knows. Tune then handles the failure twice: it restarts the job
  for the death of the actor, and gives it up for the call that failed with it. It also remembers that the job is being
  reset, and would never start it on another worker. Handled once, it costs one attempt.
"""

from __future__ import annotations

from typing import Any

from ray.exceptions import OutOfMemoryError, RayActorError


def survive_killed_workers() -> None:
    """Make Ray Tune in this process survive these deaths of workers."""
    try:
        from ray.air.execution._internal.actor_manager import RayActorManager
        from ray.tune import tune
        from ray.tune.execution import tune_controller
    except ImportError:  # another version of Ray has moved these classes; it runs without the fixes
        return

    class ActorManager(RayActorManager):
        """Ray Tune's class, which also treats an out-of-memory error as the death of an actor."""

        def _actor_task_failed(self, tracked_actor_task: Any, exception: Exception) -> None:
            super()._actor_task_failed(tracked_actor_task, _as_death(exception))

        def _actor_start_failed(self, tracked_actor: Any, exception: Exception) -> None:
            super()._actor_start_failed(tracked_actor, _as_death(exception))

    class TuneController(tune_controller.TuneController):
        """Ray Tune's class, which handles the death of an actor once if the actor has not started its trial yet."""

        def _actor_failed(self, tracked_actor: Any, exception: Exception) -> None:
            self._resetting_trials.discard(self._actor_to_trial[tracked_actor])
            super()._actor_failed(tracked_actor, exception)

        def _trial_task_failure(self, trial: Any, exception: Exception) -> None:
            restarted = trial.status == trial.PENDING and trial not in self._trial_to_actor
            if not restarted:
                super()._trial_task_failure(trial, exception)

    tune_controller.RayActorManager = ActorManager  # type: ignore[attr-defined]
    tune.TuneController = TuneController  # type: ignore[attr-defined]


def _as_death(exception: Exception) -> Exception:
    return RayActorError(error_msg=str(exception)) if isinstance(exception, OutOfMemoryError) else exception
