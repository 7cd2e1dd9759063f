"""Runs Ray Tune in a thread: a searcher submits jobs, a scheduler ends them, a callback receives their messages."""

from __future__ import annotations

import logging
import os
import re
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from queue import Queue
from typing import Any

from ray import tune
from ray.exceptions import OutOfMemoryError, RayActorError, RayError
from ray.tune import Callback, CheckpointConfig, Stopper
from ray.tune.experiment import Trial
from ray.tune.search import Searcher

from ablate.errors import EngineError
from ablate.execution.checkpoint import job_key
from ablate.execution.protocol import Broken, Done, Job, JobRestarted, Message
from ablate.execution.ray.cluster import Placement, give_up_lost_placements
from ablate.execution.ray.files import Storage
from ablate.execution.ray.scheduling import JOB, LEFT, MESSAGES, PLACEMENT, DesignScheduler, first_values, population_of

_IDLE_SECONDS = 30.0
_WATCH_SECONDS = 2.0
_KEPT = 4
"""The checkpoints that are kept of a member of a population; another member may be reading an older one."""
_SETTINGS = {
    "RAY_CHDIR_TO_TRIAL_DIR": "0",  # paths in a space are relative to the working folder of the command
    "RAY_AIR_NEW_OUTPUT": "0",  # the old output can be silenced
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # the store holds all results
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",  # the driver reports them
    "TUNE_MAX_PENDING_TRIALS_PG": "100000",  # the engine limits the number of waiting jobs
    "TUNE_GLOBAL_CHECKPOINT_S": "86400",  # a study is resumed from the store, not from Tune's state
    "TUNE_WARN_THRESHOLD_S": "10",
}


class JobQueue(Searcher):
    """The searcher that passes submitted jobs to Ray Tune, each as one trial of Tune."""

    def __init__(self) -> None:
        super().__init__()
        self._jobs: deque[dict[str, Any]] = deque()
        self._running = 0
        self._closed = False
        self._changed = threading.Condition()

    def put(self, job: Job, placement: Placement, left: Sequence[str] = ()) -> None:
        """Submit a job; `left` holds the checkpoints that it can resume from, the newest first."""
        member = population_of(job)
        with self._changed:
            self._jobs.append(
                {JOB: job, PLACEMENT: placement, LEFT: left} | (first_values(job, member) if member else {})
            )
            self._changed.notify()

    def close(self) -> None:
        """End the queue; waiting jobs are dropped."""
        with self._changed:
            self._closed = True
            self._jobs.clear()
            self._changed.notify()

    def suggest(self, trial_id: str) -> Any:
        """The next job; None if there is none yet; `Searcher.FINISHED` after `close`.

        While no job runs, this waits for one: otherwise Tune would sleep for a second.
        """
        with self._changed:
            if not self._running:
                self._changed.wait_for(lambda: self._jobs or self._closed, _IDLE_SECONDS)
            if self._closed:
                return Searcher.FINISHED
            if not self._jobs:
                return None
            self._running += 1
            return self._jobs.popleft()

    def save_to_dir(self, checkpoint_dir: str, session_str: str = "default") -> None:
        """Save nothing: a study is resumed from the store."""

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """A trial of Tune has ended."""
        with self._changed:
            self._running -= 1


class Messenger(Callback):
    """The callback that converts Ray Tune's events to messages."""

    def __init__(self, messages: Queue[Message], storage: Storage) -> None:
        self._messages = messages
        self._storage = storage
        self._later: list[str] = []
        self._ended: set[str] = set()
        """The trials of Tune for which `Done` or `Broken` was sent."""
        self.closing = False
        """Whether trials end because the engine is closed; the next driver can resume from their checkpoints."""

    def on_trial_result(
        self, iteration: int, trials: list[Trial], trial: Trial, result: dict[str, Any], **info: Any
    ) -> None:
        """Send the messages of a result, and remove them so that Tune does not keep them."""
        for message in result.pop(MESSAGES, ()):
            if isinstance(message, Done | Broken):
                self._ended.add(trial.trial_id)
            self._messages.put(message)

    def on_trial_recover(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """The actor died; the job restarts on another one, from its last checkpoint if there is one."""
        self._messages.put(JobRestarted(trial.config[JOB].number, _why(trial)))

    def on_checkpoint(self, iteration: int, trials: list[Trial], trial: Trial, checkpoint: Any, **info: Any) -> None:
        """Count failures from the last checkpoint on: a long job may lose many workers as long as it advances."""
        trial.run_metadata.num_failures = 0

    def on_trial_error(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """The actor died too often; the job is broken."""
        self._messages.put(Broken(trial.config[JOB].number, _why(trial), "", _error(trial)))
        self._clear(trial)

    def on_trial_complete(self, iteration: int, trials: list[Trial], trial: Trial, **info: Any) -> None:
        """Send `Done` for a job that the scheduler ended, as its actor does not send it."""
        if trial.trial_id not in self._ended:
            if self.closing:
                return
            self._messages.put(Done(trial.config[JOB].number))
        self._ended.discard(trial.trial_id)
        self._clear(trial)

    def clear_populations(self) -> None:
        """Remove the checkpoints of members that have ended."""
        for folder in self._later:
            self._storage.remove(folder)

    def _clear(self, trial: Trial) -> None:
        """Free the data of a job that has ended: a study may have many jobs, and Tune keeps all its trials."""
        if trial.storage is not None and population_of(trial.config[JOB]):
            self._later.append(trial.storage.trial_fs_path)  # another member may still resume from its checkpoint
        elif trial.storage is not None:
            self._storage.remove(trial.storage.trial_fs_path)
        self._storage.forget(trial.config[LEFT])
        trial.config = {}


class _Stopper(Stopper):
    """Stops all trials when the engine is closed."""

    def __init__(self) -> None:
        self.asked = False

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return self.asked

    def stop_all(self) -> bool:
        return self.asked


class TuneRun:
    """A run of Ray Tune that lasts as long as the engine.

    Args:
        trainable: The class of the actors.
        storage: Holds the state of Tune and the checkpoints.
        retries: How often a job is restarted whose actor died.
        populations: Whether there are jobs that resume from each other's checkpoints.
    """

    def __init__(
        self, trainable: type[tune.Trainable], storage: Storage, study: str, retries: int, *, populations: bool
    ) -> None:
        os.environ.update(_SETTINGS)
        logging.getLogger("ray.tune.tune").setLevel(logging.CRITICAL)  # the driver reports failures
        survive_killed_workers()
        self.messages: Queue[Message] = Queue()
        self._jobs = JobQueue()
        self._scheduler = DesignScheduler()
        self._storage = storage
        self._left = storage.left(study)
        self._run_name = storage.new_run(study)
        self._messenger = Messenger(self.messages, storage)
        self._stopper = _Stopper()
        self._failure: BaseException | None = None
        self._options: dict[str, Any] = {
            "name": self._run_name,
            "storage_path": storage.path,
            "storage_filesystem": storage.filesystem,
            "search_alg": self._jobs,
            "scheduler": self._scheduler,
            "num_samples": -1,
            "reuse_actors": True,
            "callbacks": [self._messenger],
            "stop": self._stopper,
            "max_failures": retries,
            "checkpoint_config": CheckpointConfig(num_to_keep=_KEPT if populations else 1),
            "trial_name_creator": _name,
            "trial_dirname_creator": _folder,
            "raise_on_failed_trial": False,
            "verbose": 0,
        }
        self._trainable = trainable
        self._thread = threading.Thread(target=self._run, name="ray-tune", daemon=True)
        self._thread.start()
        # A separate thread removes lost placement groups also while the driver is busy.
        self._closed = threading.Event()
        self._watch = threading.Thread(target=self._give_up_lost_placements, name="ray-places", daemon=True)
        self._watch.start()

    def submit(self, job: Job, placement: Placement) -> None:
        """Run a job in a placement; it resumes from the checkpoints that an earlier driver of the study left."""
        self._scheduler.expect(job.number, len(job.members))
        # A population restarts: the scheduler would not know the hyperparameters of a member at its checkpoint.
        left = () if population_of(job) else self._left.pop(job_key(job), ())
        self._jobs.put(job, placement, left)

    def stop(self, number: int, member: int) -> bool:
        """Remove a member from its job, and end the job if none remains; returns whether the actor must drop it."""
        return self._scheduler.stop(number, member)

    def forget(self, number: int) -> None:
        """Remove a job that has ended."""
        self._scheduler.forget(number)

    def _run(self) -> None:
        try:
            tune.run(self._trainable, **self._options)
        except BaseException as error:
            self._failure = error

    def _give_up_lost_placements(self) -> None:
        while not self._closed.wait(_WATCH_SECONDS):
            with suppress(RayError, RuntimeError, OSError):  # `check` reports a cluster that has gone
                give_up_lost_placements()

    def check(self) -> None:
        """Check that Tune still runs.

        Raises:
            EngineError: It has stopped.
        """
        if not self._thread.is_alive() and not self._stopper.asked:
            said = str(self._failure or "it ended by itself").strip().splitlines()[0]
            raise EngineError(
                "Ray Tune has stopped",
                where="--engine ray",
                got=said,
                remedy="Run the same command again to resume the study.",
            ) from self._failure

    def close(self, patience: float) -> None:
        """End all jobs; wait up to `patience` seconds for each thread."""
        self._messenger.closing = True
        self._stopper.asked = True
        self._jobs.close()
        self._closed.set()
        self._watch.join(patience)
        self._thread.join(patience)
        self._messenger.clear_populations()
        self._storage.tidy(f"{self._storage.path}/{self._run_name}")


def _name(trial: Trial) -> str:
    """The name of a trial in Ray's dashboard."""
    return f"job_{trial.config[JOB].number}_{trial.trial_id}"


def _folder(trial: Trial) -> str:
    """The name of the folder of its checkpoints, see `Storage.left`."""
    return f"{job_key(trial.config[JOB])}_{trial.trial_id}"


def _why(trial: Trial) -> str:
    """The reason why the actor of a trial failed, in one sentence."""
    reason = _error(trial)
    if re.search(r"low on memory|memory monitor|OutOfMemory", reason):
        return "its worker was killed because its node ran out of memory"
    if re.search(r"node .* (died|dead|terminated)|node failure", reason):
        return "its node died"
    lines = [line.strip() for line in reason.splitlines() if line.strip()]
    if "worker process has died" in reason or not lines:
        return "its worker died"
    return f"its worker failed: {lines[-1]}"


def _error(trial: Trial) -> str:
    """The latest error that Tune recorded for a trial."""
    try:
        return Path(trial.error_file).read_text(errors="replace").rpartition("Failure #")[2]
    except (OSError, TypeError):
        return ""


def survive_killed_workers() -> None:
    """Let Ray Tune (2.60) in this process survive workers that die in two ways that it handles wrongly.

    - Ray kills a worker because its node runs out of memory. Tune detects dead actors by `RayActorError`. The
      `OutOfMemoryError` of the memory monitor is not one, and Tune ends the whole run over it. Converted to
      `RayActorError`, it costs one attempt of one job.
    - An idle worker dies, and Tune gives it a job before it knows. Tune then handles the failure twice: it restarts the
      job for the death of the actor, and gives it up for the call that failed with it. It also remembers that the job
      is being reset, and would never start it on another worker. Handled once, it costs one attempt.
    """
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
