"""Generates a large store in seconds, for benchmarks of reading.

Studies are created through `Store`; trials and curves are inserted directly, in bulk. One study is `wide` (1,000
variants x 10 seeds), one `usual` (20 x 5); the others are `study 0`, `study 1` ... with 50 x 10 each.

    python -m benchmarks.big_store big.db
"""

from __future__ import annotations

import json
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from ablate.spec.base import content_hash
from ablate.spec.reading import load_space
from ablate.spec.variant import trial_key
from ablate.store import Environment, PlannedTrial, StudyDraft, TrialState, VariantRecord, open_store
from ablate.store.migrations import SCHEMA_VERSION
from ablate.store.records import DeclaredObjective

_HERE = Environment({"python": "3.12.1", "torch": "2.13.0"}, "cpu: AMD EPYC, 2 cores", "lab", "0f" * 20, True, "ablate")
_BEGUN = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
_DATA = content_hash("data")
_TRIAL = (
    "INSERT INTO trials (key, variant_hash, seed, state, metrics, steps, seconds, tokens, flops, stopped_at, reason,"
    " data_fingerprint, started_at, finished_at, environment_id) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_POINT = (
    "INSERT INTO curves (trial_key, step, seconds, tokens, flops, train_loss, val_loss) VALUES (?, ?, ?, ?, ?, ?, ?)"
)
_STATE = "UPDATE study_trials SET state = ? WHERE trial_key = ?"


@dataclass(frozen=True, slots=True)
class _Plan:
    """A study to create: numbers of variants and seeds."""

    name: str
    variants: int
    seeds: int


def big_store(trials: int = 100_000) -> Path:
    """The file of a large store, which is generated once and kept in the folder for temporary files."""
    path = Path(tempfile.gettempdir()) / f"ablate_big_store_{SCHEMA_VERSION}_{trials}.db"
    if not path.exists():
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            new = Path(folder) / path.name
            make_big_store(new, trials)
            new.rename(path)
    return path


def make_big_store(path: Path, trials: int = 100_000, points: int = 20) -> None:
    """Generate a store.

    One in a hundred trials diverged, except in `usual`; the last tenth of the trials of `study 0` is waiting.

    Args:
        path: A file that does not exist yet.
        trials: Number of trials in all studies; `wide` and `usual` have the first 10,100.
        points: Number of points of each curve, including step 0.
    """
    space = load_space("simplify_block")
    spec = space.resolve({}).model_dump(mode="json")
    plain = space.model_dump(mode="json") | {"claims": []}
    with open_store(path) as store:
        for plan in _plans(trials):
            variants = [_variant(plan.name, number, spec) for number in range(plan.variants)]
            planned = [
                PlannedTrial(trial_key(variant.hash, _DATA, seed), variant.name, seed)
                for seed in range(plan.seeds)
                for variant in variants
            ]
            draft = StudyDraft(plan.name, f"What is needed in {plan.name}?", "", plain, "", _OBJECTIVE, "baseline")
            store.begin_study(draft, variants, planned)
            if plan.name == "usual":  # through `Store`, so that the environment gets its row
                store.record_started(planned[0].key, variants[0].hash, 0, _DATA, _HERE)
                store.forget_unfinished([planned[0].key])
            _fill(path, plan, variants, planned, points)


_OBJECTIVE: DeclaredObjective = {"metric": "val_loss", "direction": "minimize", "margin": 0.02}


def _plans(trials: int) -> Iterator[_Plan]:
    yield _Plan("usual", 20, 5)
    left = trials - 100
    if left >= 10_000:
        yield _Plan("wide", 1_000, 10)
        left -= 10_000
    for number in range(-(-left // 500)):
        size = min(500, left - 500 * number)
        yield _Plan(f"study {number}", max(1, size // 10), min(10, size))


def _variant(study: str, number: int, spec: dict[str, Any]) -> VariantRecord:
    setting = f"setting {number}"
    own = spec | {"training": spec["training"] | {"steps": 1_000}, "of": [study, number]}
    name = f"switch={setting}" if number else "baseline"
    return VariantRecord(name, content_hash(own), {"switch": setting}, own, 400_000 + 64 * number)


def _fill(path: Path, plan: _Plan, variants: list[VariantRecord], planned: list[PlannedTrial], points: int) -> None:
    """Insert trials with simulated curves: a power law with an offset for each variant and noise for each seed."""
    chance = np.random.default_rng(len(planned))
    hashes = {variant.name: variant.hash for variant in variants}
    ended = planned[: len(planned) * 9 // 10] if plan.name == "study 0" else planned
    steps = np.linspace(0, 1_000, points).round().astype(int)
    floor = dict(zip(hashes, 3.0 + 0.02 * chance.integers(0, 4, len(hashes)), strict=True))
    noise = chance.normal(0.0, 0.01, plan.seeds)
    trials: list[tuple[Any, ...]] = []
    curves: list[tuple[Any, ...]] = []
    for number, trial in enumerate(ended):
        loss = floor[trial.variant] + noise[trial.seed] + 4.6 / np.sqrt(1 + 0.05 * steps)
        loss += chance.normal(0.0, 0.002, points)
        diverged = plan.name != "usual" and number % 100 == 99
        if diverged:
            loss[points // 2 :] = np.nan
        seconds, tokens, flops = 0.012 * steps, 1_024 * steps, 2.5e9 * steps
        begun = _BEGUN + timedelta(seconds=15 * number)
        trials.append(
            (
                trial.key,
                hashes[trial.variant],
                trial.seed,
                (TrialState.DIVERGED if diverged else TrialState.FINISHED).value,
                "{}" if diverged else json.dumps({"val_loss": loss[-1], "val_accuracy": 1.0 / loss[-1]}),
                *(1_000, 12.0, 1_024_000, 2.5e12, 500 if diverged else None, "not finite" if diverged else "", _DATA),
                _timestamp(begun),
                _timestamp(begun + timedelta(seconds=15)),
                1,
            )
        )
        held_out = [None if np.isnan(value) else value for value in loss.tolist()]
        trained = [None, *held_out[1:]]
        rows = zip(steps.tolist(), seconds.tolist(), tokens.tolist(), flops.tolist(), trained, held_out, strict=True)
        curves += [(trial.key, *row) for row in rows]
    curves.sort(key=lambda row: row[:2])
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("BEGIN")
        connection.executemany(_TRIAL, trials)
        connection.executemany(_POINT, curves)
        connection.executemany(_STATE, [(trial[3], trial[0]) for trial in trials])
        connection.execute("COMMIT")


def _timestamp(moment: datetime) -> str:
    """A time in the format that the store uses in SQLite."""
    return f"{moment:%Y-%m-%d %H:%M:%S.%f}"


if __name__ == "__main__":
    make_big_store(Path(sys.argv[1]))
