"""What `ablate calibrate` prints: the noise of a study, and what each number of seeds can detect at it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from ablate.analysis.calibration import StudyCalibration
from ablate.analysis.numbers import decimals_for, fixed, plural
from ablate.render.outputs import as_data
from ablate.render.table import plain, plain_table
from ablate.stats.calibrate import SIMULATED, Power, Rate

if TYPE_CHECKING:
    from ablate.render.terminal.outputs import CalibrationOutput


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
