"""Workers that Ray kills because their node runs out of memory.

Ray Tune knows actors that died by `RayActorError`; that of the memory monitor, `OutOfMemoryError`, is none, and Tune
(2.60) ends the whole run over it. Told as the death of an actor, it costs one attempt of one job.
"""

from __future__ import annotations

from typing import Any

from ray.exceptions import OutOfMemoryError, RayActorError


def survive_killed_workers() -> None:
    """Let Ray Tune, in this process, go on when a worker was killed for memory."""
    try:
        from ray.air.execution._internal.actor_manager import RayActorManager
        from ray.tune.execution import tune_controller
    except ImportError:  # a version of Ray that has these elsewhere: it trains, and may know better
        return

    class ActorManager(RayActorManager):
        """Ray Tune's, with the deaths that it does not know."""

        def _actor_task_failed(self, tracked_actor_task: Any, exception: Exception) -> None:
            super()._actor_task_failed(tracked_actor_task, _as_death(exception))

        def _actor_start_failed(self, tracked_actor: Any, exception: Exception) -> None:
            super()._actor_start_failed(tracked_actor, _as_death(exception))

    tune_controller.RayActorManager = ActorManager  # type: ignore[attr-defined]


def _as_death(exception: Exception) -> Exception:
    return RayActorError(error_msg=str(exception)) if isinstance(exception, OutOfMemoryError) else exception
