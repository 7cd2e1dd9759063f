"""What runs where, how fast, and the estimated time left, read from the store on any machine that can open it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Protocol

from ablate.devices import utilisation
from ablate.store.activity import Activity, DriverRecord, RunningTrial


class StatusReader(Protocol):
    """The part of a store's interface that a status uses."""

    def activity(self) -> Activity:
        """Drivers and trials that are running now."""


@dataclass(frozen=True, slots=True)
class StudyStatus:
    """A study that is driven.

    Attributes:
        driver: Its driver, with the counts of the study's trials.
        trials_per_hour: How many end; None if none has ended lately.
        flops_per_second: Arithmetic of those that end.
        seconds_left: None if none has ended lately.
    """

    driver: DriverRecord
    trials_per_hour: float | None
    flops_per_second: float
    seconds_left: float | None

    @property
    def left(self) -> int:
        """Number of trials that have not ended."""
        return self.driver.planned - self.driver.settled - self.driver.failed


@dataclass(frozen=True, slots=True)
class Status:
    """The activity in a store.

    Attributes:
        at: When it was read, by the store's clock.
        studies: Those that are driven, in the order in which they were begun.
        running: Trials that run, the oldest first.
    """

    at: datetime
    studies: tuple[StudyStatus, ...]
    running: tuple[RunningTrial, ...]


def read_status(store: StatusReader) -> Status:
    """Read the activity in a store."""
    activity = store.activity()
    return Status(activity.at, tuple(_study(driver, activity) for driver in activity.drivers), activity.running)


def _study(driver: DriverRecord, activity: Activity) -> StudyStatus:
    """The status of one study. A running trial counts as done by its share of completed steps."""
    seconds = max(1.0, (activity.at - driver.begin).total_seconds())
    rate = driver.ended / seconds
    done = sum((trial.step or 0) / max(1, trial.steps) for trial in activity.running if trial.study == driver.study)
    left = driver.planned - driver.settled - driver.failed - done
    return StudyStatus(
        driver=driver,
        trials_per_hour=3600 * rate if rate else None,
        flops_per_second=driver.flops / seconds,
        seconds_left=max(0.0, left) / rate if rate else None,
    )


def utilisation_of(trial: RunningTrial) -> float | None:
    """The model FLOP utilisation of a running trial up to its last point; None if its device is not known."""
    device = trial.worker.device if trial.worker is not None else ""
    return utilisation(trial.flops, trial.seconds, device, trial.precision)


def status_json(status: Status) -> dict[str, Any]:
    """As plain JSON data; what `ablate status --json` prints."""
    return {
        "at": status.at.isoformat(),
        "studies": [
            {
                **{name: value for name, value in asdict(study.driver).items() if not isinstance(value, datetime)},
                "since": study.driver.since.isoformat(),
                "heartbeat": study.driver.heartbeat.isoformat(),
                "left": study.left,
                "trials_per_hour": study.trials_per_hour,
                "flops_per_second": study.flops_per_second,
                "seconds_left": study.seconds_left,
            }
            for study in status.studies
        ],
        "running": [
            asdict(trial)
            | {
                "started_at": trial.started_at.isoformat() if trial.started_at else None,
                "utilisation": utilisation_of(trial),
            }
            for trial in status.running
        ],
    }
