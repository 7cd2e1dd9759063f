"""What a store holds and what runs, as text and as JSON: studies, trials, `ablate status`, `doctor` and `calibrate`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from textwrap import shorten
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from ablate.analysis.calibration import StudyCalibration
from ablate.analysis.numbers import counted, decimals_for, duration, fixed, plural, scaled
from ablate.analysis.runs import first_line
from ablate.analysis.status import Status, StudyStatus, utilisation_of
from ablate.render.outputs import DrivenStudy, TrialInFlight, as_data, extended
from ablate.render.table import NARROW, joined, named, plain, plain_table
from ablate.stats.calibrate import SIMULATED, Power, Rate
from ablate.store.records import RunningTrial

if TYPE_CHECKING:
    from ablate.analysis.ideas import Idea
    from ablate.analysis.status import TrialLine
    from ablate.execution.doctor import DoctorFinding
    from ablate.render.terminal.outputs import ActivityOutput, CalibrationOutput, ListedStudyOutput, ListedTrialOutput
    from ablate.store.records import StudySummary

SHORT = 12
_QUESTION = 90
"""Characters of a question in the list of studies; all of them go into the JSON."""
_ROOM = 30
"""Characters of a key that a person is shown; all of them go into the JSON."""


def studies_table(summaries: Sequence[StudySummary], console: Console) -> Table:
    """The studies of a store, one line each; what `ablate list` prints."""
    table = plain_table(1 if console.width < NARROW else 2)
    table.add_column(plain("study"), overflow="fold", min_width=12)
    table.add_column(plain("question"), overflow="fold")
    for title in ("variants", "finished"):
        table.add_column(plain(title), justify="right", no_wrap=True)
    table.add_column(plain("besides"), no_wrap=True)
    table.add_column(plain("updated"), no_wrap=True)
    for summary in summaries:
        besides = [
            *(["judged"] if summary.judged else []),
            *counted((what, getattr(summary, what)) for what in ("running", "diverged", "pruned", "failed")),
        ]
        table.add_row(
            plain(summary.name, "bold"),
            plain(shorten(summary.question, _QUESTION, placeholder=" …")),
            plain(str(summary.variants)),
            plain(f"{summary.finished}/{summary.planned}"),
            joined(map(plain, besides)),
            plain(f"{summary.updated_at:%Y-%m-%d %H:%M}", "dim"),
        )
    return table


def ideas_table(ideas: Sequence[Idea]) -> Table:
    """What studies have tried, the refuted ideas first; what `ablate ideas` prints."""
    table = plain_table(2, ("verdict", "idea", "study"), ["difference"])
    order = ("refuted", "held", "undecided")
    for idea in sorted(ideas, key=lambda idea: order.index(idea.outcome)):
        measured = "" if idea.difference is None else f"{idea.difference:+.3g} {idea.metric}"
        table.add_row(plain(idea.verdict), plain(idea.idea), plain(idea.study, "bold"), plain(measured))
    return table


def studies_json(summaries: Iterable[StudySummary]) -> list[ListedStudyOutput]:
    """The studies of a store as plain JSON data; what `ablate list --json` prints."""
    return [
        {
            "study": summary.name,
            "question": summary.question,
            "variants": summary.variants,
            "planned": summary.planned,
            "finished": summary.finished,
            "diverged": summary.diverged,
            "pruned": summary.pruned,
            "failed": summary.failed,
            "running": summary.running,
            "judged": summary.judged,
            "updated_at": summary.updated_at.isoformat(),
        }
        for summary in summaries
    ]


def trials_json(trials: Iterable[TrialLine]) -> list[ListedTrialOutput]:
    """The trials as plain JSON data; what `ablate show STUDY --trials --json` prints."""
    return [
        {
            "key": trial.key,
            "variant": trial.variant,
            "seed": trial.seed,
            "state": trial.state.value,
            "metrics": trial.metrics,
        }
        for trial in trials
    ]


def trials_table(trials: Iterable[TrialLine]) -> Table:
    """The trials for a terminal, one line each."""
    lines = list(trials)
    table = plain_table()
    table.add_column(plain("trial"), no_wrap=True)
    table.add_column(plain("variant"), overflow="fold")
    table.add_column(plain("seed"), justify="right", no_wrap=True)
    table.add_column(plain("state"), no_wrap=True)
    table.add_column(plain(lines[0].objective if lines else ""), justify="right", no_wrap=True)
    for trial in lines:
        value = trial.metrics.get(trial.objective)
        seed, state = plain(str(trial.seed)), plain(trial.state.value)
        name = named(trial.variant, _ROOM)
        table.add_row(plain(trial.key[:SHORT]), name, seed, state, plain("-" if value is None else f"{value:.4f}"))
    return table


def status_json(status: Status) -> ActivityOutput:
    """As plain JSON data; what `ablate status --json` prints."""
    return {
        "at": status.at.isoformat(),
        "studies": [
            as_data(
                extended(
                    DrivenStudy,
                    study.driver,
                    interrupted=study.interrupted,
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
    if lost := status.interrupted - sum(study.interrupted for study in status.studies):
        console.print(plain(f"{plural(lost, 'trial')} interrupted: their driver is gone. Run its command again."))
    for study in status.studies:
        console.print(plain(study.driver.study, "bold"))
        for line in _lines(study, status):
            console.print(plain(f"  {line}"))
        console.print()
    if status.running:
        console.print(_table(status))


def _lines(study: StudyStatus, status: Status) -> list[str]:
    driver = study.driver
    states = {"running": driver.running, "interrupted": study.interrupted, "failed": driver.failed}
    besides = counted((states | {"retried": driver.retries}).items())
    since = duration((status.at - driver.since).total_seconds())
    process = f"process {driver.pid} on {driver.host}"
    driven = f"driven by {process} for {since}"
    if not driver.alive:
        silent = duration((status.at - driver.heartbeat).total_seconds())
        driven = f"interrupted: {process} has been silent for {silent}"
        speed = "run its command again to continue where it stopped"
    elif study.trials_per_hour is None or study.seconds_left is None:
        speed = "no trial has ended in the last minutes"
    else:
        arithmetic = "" if study.flops_per_second is None else f"{scaled(study.flops_per_second)}FLOP/s, "
        speed = f"{study.trials_per_hour:,.0f} trials an hour, {arithmetic}{duration(study.seconds_left)} left"
    progress = f"{driver.settled:,} of {plural(driver.planned, 'trial')} done"
    failures = [
        f"failed: {failure.variant}, seed {failure.seed}: {first_line(failure.reason)}" for failure in driver.failures
    ]
    return [
        driven,
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
            plain(f"{'-' if trial.step is None else trial.step}{f'/{trial.steps}' if trial.steps else ''}"),
            plain("-" if trial.val_loss is None else f"{trial.val_loss:.3f}"),
            plain(_use_in_words(trial)),
            plain(duration(since)),
            plain(_where(trial)),
        )
    return table


def _use_in_words(trial: RunningTrial) -> str:
    """The share of its device's peak; where that is not known, the arithmetic a second."""
    share = utilisation_of(trial)
    if share is not None:
        return f"{share:.1%}"
    return f"{scaled(trial.flops / trial.seconds)}FLOP/s" if trial.seconds > 0 and trial.flops else "-"


def _where(trial: RunningTrial) -> str:
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


def calibration_json(calibration: StudyCalibration) -> CalibrationOutput:
    """A calibration as plain JSON data; what `ablate calibrate STUDY --json` prints."""
    noise = calibration.noise
    return {
        "study": calibration.study,
        "metric": calibration.metric,
        "margin": calibration.margin,
        "noise": {
            "sd": noise.sd,
            "least": noise.least,
            "most": noise.most,
            "comparisons": noise.comparisons,
            "freedom": noise.freedom,
            "most_freedom": noise.most_freedom,
            "residuals": len(noise.residuals),
        },
        "fixed": [as_data(power) for power in calibration.fixed],
        "adaptive": as_data(calibration.adaptive) if calibration.adaptive else None,
    }


def print_calibration(calibration: StudyCalibration, console: Console) -> None:
    """Print the noise, the table of minimum detectable differences, and its legend."""
    noise, decimals = calibration.noise, decimals_for(calibration.margin, [calibration.noise.sd])
    spread = ", ".join(f"{fixed(value, decimals + 1)} {which}" for value, which in (
        (noise.sd, "pooled"), (noise.least, "the least"), (noise.most, "the most"),
    ))  # fmt: skip
    comparisons = plural(noise.comparisons, "comparison")
    console.print(
        plain(f"Noise of {calibration.metric}, paired by {calibration.unit}, over {comparisons}: {spread}.", "bold")
    )
    console.print()
    console.print(_detectable_table(calibration, decimals))
    console.print()
    console.print(
        plain(
            f"detectable: the minimum detectable difference, as its distance from the margin ({calibration.margin:g}), "
            "with 80 % power at the pooled noise; noisiest: the same at the noise of the noisiest variant. power at 0: "
            "how often a part that changes nothing is judged `not needed`. false: the worst-case rate of wrong "
            f"verdicts. The last three are from {SIMULATED:,} comparisons simulated at this noise, in brackets the 95 "
            "% Monte Carlo interval. The verdicts allow 5 %.",
            "dim",
        )
    )


def _detectable_table(calibration: StudyCalibration, decimals: int) -> Table:
    titles = (f"{calibration.unit}s", "detectable", "noisiest", "power at 0", "false needed", "false not needed")
    table = plain_table(numbers=titles)
    for power in calibration.fixed:
        table.add_row(*map(plain, (str(power.seeds), *_cells(power, decimals))))
    if calibration.adaptive and calibration.schedule:
        seeds = (
            f"{calibration.schedule.start} to {calibration.schedule.max}, mean {calibration.adaptive.mean_seeds:.1f}"
        )
        table.add_section()
        table.add_row(*map(plain, (seeds, *_cells(calibration.adaptive, decimals))))
    return table


def _cells(power: Power, decimals: int) -> tuple[str, ...]:
    return (
        fixed(power.detectable_difference, decimals),
        fixed(power.detectable_noisiest, decimals),
        f"{100 * power.power_at_zero.share:.0f}%",
        _rate(power.false_needed),
        _rate(power.false_not_needed),
    )


def _rate(rate: Rate) -> str:
    return f"{100 * rate.share:.1f}% ({100 * rate.low:.1f}-{100 * rate.high:.1f})"
