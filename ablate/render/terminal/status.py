"""The status of a store (`ablate status`), and of a machine (`ablate doctor`), on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from ablate.analysis.numbers import duration, scaled
from ablate.analysis.runs import first_line
from ablate.analysis.status import Status, StudyStatus, utilisation_of
from ablate.analysis.text import counted, plural
from ablate.render.cells import plain, plain_table
from ablate.render.outputs import DrivenStudy, TrialInFlight, as_data, extended
from ablate.store.activity import RunningTrial

if TYPE_CHECKING:
    from ablate.execution.doctor import DoctorFinding
    from ablate.render.terminal.outputs import ActivityOutput


def status_json(status: Status) -> ActivityOutput:
    """As plain JSON data; what `ablate status --json` prints."""
    return {
        "at": status.at.isoformat(),
        "studies": [
            as_data(
                extended(
                    DrivenStudy,
                    study.driver,
                    left=study.left,
                    trials_per_hour=study.trials_per_hour,
                    flops_per_second=study.flops_per_second,
                    seconds_left=study.seconds_left,
                )
            )
            for study in status.studies
        ],
        "running": [
            as_data(extended(TrialInFlight, trial, utilisation=utilisation_of(trial))) for trial in status.running
        ],
    }


def print_status(status: Status, console: Console) -> None:
    """A paragraph for each study that is driven, and a table of what runs."""
    if not status.studies and not status.running:
        console.print(plain("Nothing runs."))
    for study in status.studies:
        console.print(plain(study.driver.study, "bold"))
        for line in _lines(study, status):
            console.print(plain(f"  {line}"))
        console.print()
    if status.running:
        console.print(_table(status))


def _lines(study: StudyStatus, status: Status) -> list[str]:
    driver = study.driver
    silent = (status.at - driver.heartbeat).total_seconds()
    lives = "" if driver.alive else f", silent for {duration(silent)}: taken for dead"
    besides = counted({"running": driver.running, "failed": driver.failed, "retried": driver.retries}.items())
    if study.trials_per_hour is None or study.seconds_left is None:
        speed = "no trial has ended in the last minutes"
    else:
        speed = (
            f"{study.trials_per_hour:,.0f} trials an hour, {scaled(study.flops_per_second)}FLOP/s, "
            f"{duration(study.seconds_left)} left"
        )
    progress = f"{driver.settled:,} of {plural(driver.planned, 'trial')} done"
    since = duration((status.at - driver.since).total_seconds())
    failures = [
        f"failed: {failure.variant}, seed {failure.seed}: {first_line(failure.reason)}" for failure in driver.failures
    ]
    return [
        f"driven by process {driver.pid} on {driver.host} for {since}{lives}",
        ", ".join([progress, *besides]),
        speed,
        *failures,
    ]


def _table(status: Status) -> Table:
    table = plain_table(2, ("study", "variant"), ("seed", "step", "val_loss", "MFU"))
    for title in ("since", "where"):
        table.add_column(plain(title), overflow="fold")
    for trial in status.running:
        since = (status.at - trial.started_at).total_seconds() if trial.started_at else 0.0
        table.add_row(
            plain(trial.study or "-"),
            plain(trial.variant or trial.key[:12]),
            plain(str(trial.seed)),
            plain(f"{'-' if trial.step is None else trial.step}/{trial.steps}"),
            plain("-" if trial.val_loss is None else f"{trial.val_loss:.3f}"),
            plain(_used(trial)),
            plain(duration(since)),
            plain(_where(trial)),
        )
    return table


def _used(trial: RunningTrial) -> str:
    """The share of its device's peak; where that is not known, the arithmetic a second."""
    share = utilisation_of(trial)
    if share is not None:
        return f"{share:.1%}"
    return f"{scaled(trial.flops / trial.seconds)}FLOP/s" if trial.seconds > 0 else "-"


def _where(trial: RunningTrial) -> str:
    if not trial.study:
        return "nowhere: its driver is gone"
    again = f", attempt {trial.attempts}" if trial.attempts > 1 else ""
    if trial.worker is None:
        return f"waits for a worker{again}"
    return f"{trial.worker.host}, process {trial.worker.pid}, {trial.worker.device}{again}"


def print_findings(findings: Sequence[DoctorFinding], console: Console) -> None:
    """A row for each check."""
    table = plain_table(2)
    table.add_column(plain("check"), no_wrap=True)
    table.add_column(plain("state"), no_wrap=True)
    table.add_column(plain("found"), overflow="fold")
    for finding in findings:
        table.add_row(plain(finding.name), plain(finding.state), plain(finding.says))
    console.print(table)
