"""Stores written by hand: one in which every text that users write is hostile, and a plain one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from ablate.roles import TrialRole
from ablate.store import (
    CurvePoint,
    Environment,
    Mark,
    PlannedTrial,
    Recording,
    StudyDraft,
    TrialOutcome,
    TrialState,
    VariantRecord,
    open_store,
)

SCRIPT = "<img src=x onerror=window.caught=1><script>window.caught=1</script>"
MARKDOWN = "**bold** [a](javascript:window.caught=1) $x$ :smile: :red[r] `c`"
HOSTILE = f"{SCRIPT} {MARKDOWN} \u202eright 😀 שלום " + "long " * 300
NOW = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
WHERE = Environment({"python": "3"}, "cpu", "here", None, None, "ablate study")


def hostile_store(path: Path) -> None:
    """Write a study whose name, question, variants, settings, errors, commands, tags and notes are hostile."""
    names = ["baseline", f"{SCRIPT}=b", f"`{SCRIPT} $x$` **שלום** 😀 " + "n" * 200]
    spec = {"model": {"block": {"mixer": {"kind": SCRIPT}}}, "task": {"data": HOSTILE}, "training": {}}
    variants = [
        VariantRecord(name, f"{number:064x}", {SCRIPT: name}, spec | {"training": {SCRIPT: number}}, 1000 + number)
        for number, name in enumerate(names)
    ]
    planned = [PlannedTrial(f"{10 * seed + n:064x}", name, seed) for seed in (0, 1) for n, name in enumerate(names)]
    states = [TrialState.FINISHED, TrialState.FINISHED, TrialState.FAILED, TrialState.FINISHED, TrialState.DIVERGED]
    where = Environment({SCRIPT: SCRIPT}, HOSTILE, SCRIPT, SCRIPT, False, f"ablate study {HOSTILE}")
    objective = {"metric": "val_loss", "direction": "minimize", "margin": 0.02}
    with open_store(path) as store:
        store.begin_study(
            StudyDraft(f"s {SCRIPT}", HOSTILE, HOSTILE, {}, HOSTILE, objective, "baseline"), variants, planned
        )
        for trial, state in zip(planned, states, strict=False):
            curve = tuple(CurvePoint(step, step, step, step, 3.0, 3.0 - step / 9) for step in range(4))
            store.record_outcome(
                TrialOutcome(
                    trial.key, f"{names.index(trial.variant):064x}", trial.seed, state,
                    {"val_loss": 2.5, SCRIPT: 1.0} if state is TrialState.FINISHED else {}, 3, 3.0, 3, 3.0, 3,
                    "" if state is TrialState.FINISHED else f"{HOSTILE}\nTraceback {HOSTILE}", SCRIPT, NOW, NOW, curve,
                ),
                where,
            )  # fmt: skip
        store.marks.put("study", f"s {SCRIPT}", Mark(True, (SCRIPT, "**t**"), HOSTILE))
        store.marks.put("trial", planned[0].key, Mark(True, (SCRIPT,), HOSTILE))


class Ended(NamedTuple):
    """A trial that ended; it finished if it has a loss."""

    variant: str
    seed: int
    loss: float | None
    state: TrialState = TrialState.FINISHED
    curve: tuple[CurvePoint, ...] = ()
    recordings: tuple[Recording, ...] = ()
    role: TrialRole = TrialRole.COMPARISON
    took: float = 0.0


def variants_of(sizes: Mapping[str, int], first: int = 0) -> list[VariantRecord]:
    """Variants by name to their number of parameters, with hashes that count from `first`."""
    return [
        VariantRecord(name, f"{n:064x}", {}, {"model": {}}, size) for n, (name, size) in enumerate(sizes.items(), first)
    ]


def line(*losses: tuple[int, float]) -> tuple[CurvePoint, ...]:
    """A curve of (step, validation loss), with eight tokens a step."""
    return tuple(CurvePoint(step, step, 8 * step, step, None, loss) for step, loss in losses)


def write_study(
    location: str | Path,
    name: str,
    variants: Sequence[VariantRecord],
    ended: Sequence[Ended],
    *,
    waiting: Sequence[tuple[str, int]] = (),
    margin: float = 0.1,
    data: str = "d",
    **draft: Any,
) -> None:
    """Add a study to a store, with trials that ended and others that wait; the first variant is the baseline."""
    objective = {"metric": "val_loss", "direction": "minimize", "margin": margin}
    named = [(trial.variant, trial.seed, trial.role) for trial in ended]
    named += [(variant, seed, TrialRole.COMPARISON) for variant, seed in waiting]
    planned = [PlannedTrial(f"{name}/{variant}/{seed}", variant, seed, role) for variant, seed, role in named]
    hashes = {variant.name: variant.hash for variant in variants}
    written = StudyDraft(name, f"Why {name}?", "", {}, "", objective, variants[0].name)
    with open_store(location) as store:
        store.begin_study(replace(written, **draft), variants, planned)
        for key, trial in zip(planned, ended, strict=False):
            metrics = {} if trial.loss is None else {"val_loss": trial.loss}
            steps = trial.curve[-1].step if trial.curve else 9
            store.record_outcome(
                TrialOutcome(
                    key.key, hashes[trial.variant], trial.seed, trial.state, metrics, steps, 9.0, 72, 9.0,
                    None if metrics else steps, "", data, NOW - timedelta(seconds=trial.took), NOW, trial.curve,
                    trial.recordings,
                ),
                WHERE,
            )  # fmt: skip


def simple_store(location: str) -> None:
    """Write the studies `done`, `half` (half of its trials wait) and `broken` (one failed), each of two variants."""
    sizes = {"baseline": 10, "small": 5}
    for number, (study, count, last) in enumerate(
        (("done", 4, TrialState.FINISHED), ("half", 2, TrialState.FINISHED), ("broken", 4, TrialState.FAILED))
    ):
        trials = [Ended(name, seed, sizes[name] / 100 + seed) for seed in (0, 1) for name in sizes]
        if last is TrialState.FAILED:
            trials[-1] = Ended("small", 1, None, last)
        waiting = [(trial.variant, trial.seed) for trial in trials[count:]]
        write_study(location, study, variants_of(sizes, 2 * number), trials[:count], waiting=waiting, margin=0.5)
