"""Minimum detectable differences by number of seeds, at the noise of a study's own trials."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ablate.analysis.numbers import plural
from ablate.analysis.report import StudyReport
from ablate.analysis.runs import StudyReader, seed_schedule
from ablate.analysis.study import read_study
from ablate.errors import NotFoundError
from ablate.stats import SeedPlan
from ablate.stats.bounds import LEAST_PAIRS
from ablate.stats.calibrate import Noise, Power, calibrate, pooled_noise

SEEDS = (2, 3, 4, 5, 7, 10, 15, 20)


@dataclass(frozen=True, slots=True)
class StudyCalibration:
    """A study's noise, and the power of numbers of seeds at that noise.

    Attributes:
        study: Name of the study.
        unit: What is paired.
        metric: Of its objective.
        margin: Of its objective, in the unit of the metric.
        noise: Of its paired differences.
        fixed: A row for each number of seeds.
        adaptive: The same for its schedule of seeds; None if its seeds are fixed.
        schedule: That schedule.
    """

    study: str
    unit: str
    metric: str
    margin: float
    noise: Noise
    fixed: tuple[Power, ...]
    adaptive: Power | None
    schedule: SeedPlan | None


def read_calibration(store: StudyReader, name: str) -> StudyCalibration:
    """Measure a study's noise, and compute the power of numbers of seeds at that noise.

    Raises:
        NotFoundError: There is no such study, or it has no two paired seeds that differ.
    """
    report = read_study(store, name)
    compared = [(row, row.difference) for row in report.variants if row.difference is not None]
    paired = [(row, difference) for row, difference in compared if report.record.pairs(row.name)]
    noise = pooled_noise(difference for row, difference in paired if not row.diverged)
    if noise is None:
        raise _no_noise(report, bool(compared), [difference.n for _, difference in paired])
    if report.direction == "maximize":  # what is simulated is how much worse a variant is
        noise = replace(noise, residuals=tuple(-residual for residual in noise.residuals))
    schedule = seed_schedule(report.record)
    powers = calibrate(noise, report.margin, SEEDS, schedule)
    rows, adaptive = (powers[:-1], powers[-1]) if schedule else (powers, None)
    return StudyCalibration(name, report.unit, report.metric, report.margin, noise, rows, adaptive, schedule)


def _no_noise(report: StudyReport, compared: bool, pairs: Sequence[int]) -> NotFoundError:
    """The error if the noise cannot be estimated: no pairs, too few, or differences that are all the same.

    Args:
        compared: Whether there are differences, paired or not.
        pairs: Of each paired comparison.
    """
    where = f"study {report.record.name!r}"
    if compared and not pairs:
        return NotFoundError(
            "it was judged from runs that are not paired",
            where=where,
            expected=f"{report.unit}s that a variant shares with the baseline: the noise is that of their differences",
        )
    most = max(pairs, default=0)
    if most < LEAST_PAIRS:
        return NotFoundError(
            "it shows no noise yet",
            where=where,
            expected="a variant and the baseline with two finished seeds",
            got=f"at most {plural(most, 'paired seed')}",
            remedy="Run it with at least 2 seeds.",
        )
    return NotFoundError(
        "it shows no noise: the differences of each variant are the same at every seed",
        where=where,
        expected="some spread between seeds",
        got=f"none over up to {plural(most, 'paired seed')}",
        remedy=f"See whether {report.metric} is too coarse: more rows of validation tell smaller differences.",
    )
