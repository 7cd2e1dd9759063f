"""Handles workers that Ray kills because their node runs out of memory.

Ray Tune detects dead actors by `RayActorError`. The `OutOfMemoryError` of the memory monitor is not one, and Tune
(2.60) ends the whole run over it. Converted to `RayActorError`, it costs one attempt of one job.
"""

from __future__ import annotations

from typing import Any

from ray.exceptions import OutOfMemoryError, RayActorError


def survive_killed_workers() -> None:
    """Make Ray Tune in this process survive workers that are killed for memory."""
    try:
        from ray.air.execution._internal.actor_manager import RayActorManager
        from ray.tune.execution import tune_controller
    except ImportError:  # another version of Ray has moved these classes; it runs without the fix
        return

    class ActorManager(RayActorManager):
        """Ray Tune's class, which also treats an out-of-memory error as the death of an actor."""

        def _actor_task_failed(self, tracked_actor_task: Any, exception: Exception) -> None:
            super()._actor_task_failed(tracked_actor_task, _as_death(exception))

        def _actor_start_failed(self, tracked_actor: Any, exception: Exception) -> None:
            super()._actor_start_failed(tracked_actor, _as_death(exception))

    tune_controller.RayActorManager = ActorManager  # type: ignore[attr-defined]


def _as_death(exception: Exception) -> Exception:
    return RayActorError(error_msg=str(exception)) if isinstance(exception, OutOfMemoryError) else exception
