"""The variance of a difference over draws of validation data; all variants and seeds of a study share one draw.

An interval over seeds does not show it: another draw would move every seed's difference alike. Each trial measures its
final metrics over parts of the validation data too. What the differences of these parts vary by, beyond what they vary
by from seed to seed, is the noise of the draw.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence

from ablate.analysis.runs import VariantRuns
from ablate.spec.paths import value_at
from ablate.stats.windows import draw_variance
from ablate.store.records import StudyRecord, TrialRecord

SHARE = 0.1
"""Of the margin, beyond which the draw is remarked upon."""
WINDOWS = "task.validation_windows"


def window_noise(record: StudyRecord, runs: Mapping[str, VariantRuns]) -> float | None:
    """Standard deviation of a variant's mean difference over draws of validation data as large as this one.

    The median over the variants, as those that differ much differ on each part by another amount, and are decided
    anyway; None without a variant of two seeds that were measured in parts.

    Args:
        record: The study.
        runs: Variant name to its trials.
    """
    metric, baseline = record.objective["metric"], runs[record.baseline].finished
    variances = [
        variance
        for name, run in runs.items()
        if name != record.baseline and not run.diverged and not run.pruned
        if (variance := draw_variance(list(_gaps(run.finished, baseline, metric)))) is not None
    ]
    return math.sqrt(max(0.0, statistics.median(variances))) if variances else None


def _gaps(
    finished: Mapping[int, TrialRecord], baseline: Mapping[int, TrialRecord], metric: str
) -> Iterator[Sequence[float]]:
    """Differences over the parts of the validation data, seed by seed."""
    for seed in sorted(finished.keys() & baseline.keys()):
        ours, theirs = finished[seed].parts.get(metric, ()), baseline[seed].parts.get(metric, ())
        gaps = [one - other for one, other in zip(ours, theirs, strict=False)]
        if gaps and len(ours) == len(theirs) and all(map(math.isfinite, gaps)):
            yield gaps


def window_sentence(noise: float | None, margin: float, record: StudyRecord) -> Iterator[str]:
    """A sentence if the draw of validation data matters, with the number of windows that would suffice."""
    if noise is None or noise <= SHARE * margin:
        return
    baseline = next(variant for variant in record.variants if variant.name == record.baseline)
    try:
        windows = int(value_at(baseline.spec, WINDOWS))
    except (KeyError, TypeError, ValueError):
        remedy = "More validation data reduces it"
    else:
        remedy = f"`{WINDOWS}: {_round(windows * (noise / (SHARE * margin)) ** 2)}` reduces it to a tenth of the margin"
    yield (
        f"All differences are measured on one draw of validation data. Between draws a difference varies by about "
        f"{noise:.1g} (standard deviation, median over variants), {100 * noise / margin:.0f} % of the margin "
        f"{margin:g}. The intervals do not include this variance. {remedy}."
    )


def _round(windows: float) -> int:
    """Two significant digits, rounded up."""
    unit = int(10 ** max(0, math.floor(math.log10(windows)) - 1))
    return math.ceil(windows / unit) * unit
