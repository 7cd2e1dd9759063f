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


def turning_edges(tuning: Tuning | None, rows: Sequence[VariantRow], baseline: VariantRow) -> list[str]:
    """Names of the variants whose tuned value lies at an edge of its grid where a better value could turn a verdict.

    A better value outside can only help the variant that lies at the edge. So a variant that is not worse anyway stays
    so, and the baseline's edge does not matter to a variant that is worse anyway.
    """
    at_edge = set(tuning.edges) if tuning else set()
    harmed = [row.name for row in rows if row.name in at_edge and row.verdict is not None and not _is_fine(row)]
    helped = [
        row for row in rows if row.verdict is not None and not row.verdict.is_worse and row.verdict.word != "diverged"
    ]
    return [*([baseline.name] if baseline.name in at_edge and helped else []), *harmed]


def edges(tuning: Tuning | None, rows: Sequence[VariantRow], baseline: VariantRow) -> Iterator[str]:
    """A sentence if tuned values lie at an edge of their grid where a better value could turn a verdict."""
    named = turning_edges(tuning, rows, baseline)
    if tuning and named:
        paths = dict.fromkeys(path for name in named for path in tuning.of[name].edges)
        turned = "their verdicts" if len(named) > 1 else "its verdict"
        if named[0] == baseline.name:
            turned = "verdicts"
        yield (
            f"The best {listed(paths)} lies at an edge of the tuning grid for {listed(named)}: a better value may lie "
            f"outside and turn {turned}. Widen the grid."
        )


def _is_fine(row: VariantRow) -> bool:
    """Whether a variant is not worse than the baseline by its verdict."""
    return row.verdict is not None and row.verdict.is_acceptable
