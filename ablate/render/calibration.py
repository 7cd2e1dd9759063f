"""Minimum detectable differences by number of seeds, at the noise of a study's own trials."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from ablate.analysis.numbers import decimals_for, fixed
from ablate.analysis.runs import StudyReader, seed_schedule
from ablate.analysis.study import StudyReport, read_study
from ablate.analysis.text import plural
from ablate.errors import NotFoundError
from ablate.render.cells import plain, plain_table
from ablate.stats import SeedPlan
from ablate.stats.bounds import LEAST_PAIRS
from ablate.stats.calibrate import SIMULATED, Noise, Power, calibrate, pooled_noise
from ablate.stats.simulate import Rate

SEEDS = (2, 3, 4, 5, 7, 10, 15, 20)


@dataclass(frozen=True, slots=True)
class StudyCalibration:
    """A study's noise, and the power of numbers of seeds at that noise.

    Attributes:
        study: Name of the study.
        metric: Of its objective.
        margin: Of its objective, in the unit of the metric.
        noise: Of its paired differences.
        fixed: A row for each number of seeds.
        adaptive: The same for its schedule of seeds; None if its seeds are fixed.
        schedule: That schedule.
    """

    study: str
    metric: str
    margin: float
    noise: Noise
    fixed: tuple[Power, ...]
    adaptive: Power | None
    schedule: SeedPlan | None


def read_calibration(store: StudyReader, name: str, seeds: Sequence[int] = SEEDS) -> StudyCalibration:
    """Measure a study's noise, and compute the power of numbers of seeds at that noise.

    Raises:
        NotFoundError: There is no such study, or it has no two paired seeds that differ.
    """
    report = read_study(store, name)
    noise = pooled_noise(row.difference for row in report.variants if row.difference is not None and not row.diverged)
    if noise is None:
        raise _no_noise(report)
    schedule = seed_schedule(report.record)
    powers = calibrate(noise, report.margin, seeds, schedule)
    rows, adaptive = (powers[:-1], powers[-1]) if schedule else (powers, None)
    return StudyCalibration(name, report.metric, report.margin, noise, rows, adaptive, schedule)


def _no_noise(report: StudyReport) -> NotFoundError:
    """The error if the noise cannot be estimated: too few pairs, or differences that are all the same."""
    most = max((row.difference.n for row in report.variants if row.difference is not None), default=0)
    if most < LEAST_PAIRS:
        return NotFoundError(
            f"study {report.record.name!r} shows no noise yet",
            expected="a variant and the baseline with two finished seeds",
            got=f"at most {plural(most, 'paired seed')}",
            remedy="Run it with at least 2 seeds.",
        )
    return NotFoundError(
        f"study {report.record.name!r} shows no noise: the differences of each variant are the same at every seed",
        expected="some spread between seeds",
        got=f"none over up to {plural(most, 'paired seed')}",
        remedy=f"See whether {report.metric} is too coarse: more rows of validation tell smaller differences.",
    )


def calibration_json(calibration: StudyCalibration) -> dict[str, Any]:
    """A calibration as plain JSON data; what `ablate calibrate STUDY --json` prints."""
    noise = asdict(calibration.noise)
    noise["residuals"] = len(calibration.noise.residuals)
    return {
        "study": calibration.study,
        "metric": calibration.metric,
        "margin": calibration.margin,
        "noise": noise,
        "fixed": [asdict(power) for power in calibration.fixed],
        "adaptive": asdict(calibration.adaptive) if calibration.adaptive else None,
    }


def print_calibration(calibration: StudyCalibration, console: Console) -> None:
    """Print the noise, the table of minimum detectable differences, and its legend."""
    noise, decimals = calibration.noise, decimals_for(calibration.margin, [calibration.noise.sd])
    spread = ", ".join(f"{fixed(value, decimals + 1)} {which}" for value, which in (
        (noise.sd, "pooled"), (noise.least, "the least"), (noise.most, "the most"),
    ))  # fmt: skip
    comparisons = plural(noise.comparisons, "comparison")
    console.print(plain(f"Noise of {calibration.metric}, paired by seed, over {comparisons}: {spread}.", "bold"))
    console.print()
    console.print(_table(calibration, decimals))
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


def _table(calibration: StudyCalibration, decimals: int) -> Table:
    table = plain_table(gap=2)
    for title in ("seeds", "detectable", "noisiest", "power at 0", "false needed", "false not needed"):
        table.add_column(plain(title), justify="right", no_wrap=True)
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
