"""Trials that failed, and why, to be corrected before the study runs again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ablate.analysis.runs import VariantRuns

MOST_SHOWN = 10
"""Failed trials that are listed with their reasons; the rest are counted."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A trial that failed.

    Attributes:
        variant: Its variant's name.
        seed: Its seed.
        reason: What was recorded: a sentence, and often a traceback below it.
    """

    variant: str
    seed: int
    reason: str

    @property
    def line(self) -> str:
        """The first line of the reason."""
        return first_line(self.reason)


def failures_of(runs: Mapping[str, VariantRuns]) -> tuple[Failure, ...]:
    """The failed trials, variant by variant and seed by seed."""
    return tuple(
        Failure(variant, seed, run.failed[seed].reason) for variant, run in runs.items() for seed in sorted(run.failed)
    )


def first_line(reason: str) -> str:
    """The first line of a reason; says so if none was recorded."""
    lines = reason.strip().splitlines()
    return lines[0].strip() if lines else "no reason was recorded"
