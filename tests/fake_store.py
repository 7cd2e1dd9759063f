"""A store in memory, with just the methods that reports use, and short ways to write records by hand."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from ablate.errors import NotFoundError
from ablate.store.records import (
    CurvePoint,
    PlannedTrial,
    Recording,
    SpeedTiming,
    StudyRecord,
    TrialRecord,
    TrialState,
    VariantRecord,
)

NOON = datetime(2024, 5, 17, 12, 0, tzinfo=UTC)


@dataclass
class FakeStore:
    """Trials and curves by key, one study; written through `add`."""

    record: StudyRecord
    trial_records: dict[str, TrialRecord] = field(default_factory=dict)
    curve_points: dict[str, tuple[CurvePoint, ...]] = field(default_factory=dict)
    recorded: dict[str, tuple[Recording, ...]] = field(default_factory=dict)
    timed: dict[str, tuple[SpeedTiming, ...]] = field(default_factory=dict)

    def study(self, name: str) -> StudyRecord:
        if name != self.record.name:
            raise NotFoundError("there is no such study", where=name)
        return self.record

    def codes(self, identities: Sequence[str]) -> dict[str, dict[str, Any]]:
        return {}

    def trials(self, keys: Sequence[str]) -> dict[str, TrialRecord]:
        return {key: self.trial_records[key] for key in keys if key in self.trial_records}

    def curves(self, keys: Sequence[str]) -> dict[str, tuple[CurvePoint, ...]]:
        return {key: self.curve_points[key] for key in keys if key in self.curve_points}

    def evaluations(self, keys: Sequence[str]) -> dict[str, tuple[CurvePoint, ...]]:
        """The points with a finite validation loss; a test of stores compares them."""
        found = {
            key: tuple(p for p in curve if p.val_loss is not None and math.isfinite(p.val_loss))
            for key, curve in self.curves(keys).items()
        }
        return {key: curve for key, curve in found.items() if curve}

    def recordings(self, key: str) -> tuple[Recording, ...]:
        return self.recorded.get(key, ())

    def timings(self, keys: Sequence[str]) -> dict[str, tuple[SpeedTiming, ...]]:
        return {key: self.timed[key] for key in keys if key in self.timed}

    def time(self, variant: str, rates: Sequence[float], baseline_rates: Sequence[float]) -> None:
        """Time a variant beside the baseline, in rounds; its trial of seed 0 must be there."""
        beside = f"hash of {self.record.baseline}"
        self.timed[f"{variant}/0"] = (SpeedTiming(beside, tuple(rates), tuple(baseline_rates), "cpu"),)

    def add(
        self,
        variant: str,
        seed: int,
        metrics: Mapping[str, float] | None = None,
        *,
        state: TrialState = TrialState.FINISHED,
        curve: Sequence[tuple[int, float | None]] = (),
        tokens: int = 1000,
        seconds: float = 10.0,
        stopped_at: int | None = None,
        flops: float = 0.0,
        reason: str = "",
    ) -> None:
        """Store a trial; `curve` holds (step, validation loss)."""
        key = f"{variant}/{seed}"
        self.trial_records[key] = TrialRecord(
            key=key,
            variant_hash=f"hash of {variant}",
            seed=seed,
            state=state,
            metrics=dict(metrics or {}),
            steps=curve[-1][0] if curve else 0,
            seconds=seconds,
            tokens=tokens,
            flops=flops,
            stopped_at=stopped_at,
            reason=reason or ("the loss was not finite" if state is TrialState.DIVERGED else ""),
            data_fingerprint="data",
            started_at=NOON,
            finished_at=NOON,
            environment=None,
        )
        self.curve_points[key] = tuple(CurvePoint(step, 0.0, 0, 0.0, None, loss) for step, loss in curve)


def fake_store(
    variants: Mapping[str, tuple[dict[str, str], int]],
    seeds: int = 3,
    *,
    name: str = "a_study",
    question: str = "Which parts can go?",
    metric: str = "val_loss",
    direction: str = "minimize",
    margin: float = 0.02,
) -> FakeStore:
    """A store with one study and no trial; `variants` is name to (settings, parameters), the first is the baseline."""
    return FakeStore(
        StudyRecord(
            id=1,
            name=name,
            question=question,
            source="",
            space={},
            text="",
            objective={"metric": metric, "direction": direction, "margin": margin},
            baseline=next(iter(variants)),
            created_at=NOON,
            updated_at=NOON,
            variants=tuple(
                VariantRecord(variant, f"hash of {variant}", settings, {}, parameters)
                for variant, (settings, parameters) in variants.items()
            ),
            planned=tuple(
                PlannedTrial(f"{variant}/{seed}", variant, seed) for seed in range(seeds) for variant in variants
            ),
        )
    )
