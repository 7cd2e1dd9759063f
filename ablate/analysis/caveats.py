"""Caveats: sentences on what limits a comparison. Every answer begins with them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ablate.analysis.failures import Failure
from ablate.analysis.fairness import Tuning
from ablate.analysis.rows import VariantRow
from ablate.analysis.text import listed, plural


def missing(trials: int, tuning: Tuning | None) -> Iterator[str]:
    """A sentence if trials have not ended, or if variants are still being tuned."""
    untuned = [name for name, tuned in tuning.of.items() if tuned.values is None] if tuning else []
    if trials:
        are = "trial is" if trials == 1 else "trials are"
        yield f"This answer is provisional: {trials:,} {are} still missing."
    elif untuned:
        yield f"This answer is provisional: {listed(untuned)} {'is' if len(untuned) == 1 else 'are'} still being tuned."


def failed(failures: Sequence[Failure]) -> Iterator[str]:
    """A sentence if trials failed."""
    if failures:
        names = listed(dict.fromkeys(failure.variant for failure in failures))
        yield f"{plural(len(failures), 'trial')} failed ({names}): the comparisons with these variants lack seeds."


def diverged(rows: Sequence[VariantRow], baseline: VariantRow) -> Iterator[str]:
    """Sentences if training diverged: of variants that are then not compared, or of the baseline."""
    lost = [row for row in rows if row.diverged]
    if others := [row for row in lost if row.name != baseline.name]:
        counts = [f"{row.name} at {len(row.diverged)} of {plural(len(row.planned), 'seed')}" for row in others]
        yield (
            f"Training diverged: {listed(counts)}. These variants have no mean, because the seeds that finished are a "
            "biased selection."
        )
    if baseline in lost:
        yield (
            f"Training of the baseline diverged at {len(baseline.diverged)} of "
            f"{plural(len(baseline.planned), 'seed')}. No variant is compared with it at these seeds."
        )


def edges(tuning: Tuning | None) -> Iterator[str]:
    """A sentence if tuned values lie at an edge of their grid."""
    if tuning and tuning.edges:
        paths = dict.fromkeys(path for tuned in tuning.of.values() for path in tuned.edges)
        yield (
            f"The best {listed(paths)} lies at an edge of the tuning grid for {listed(tuning.edges)}: a better value "
            "may lie outside, and the differences may be artefacts of the grid. Widen it."
        )
