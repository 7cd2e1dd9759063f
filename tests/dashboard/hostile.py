"""A store in which every text that users write tries to be something else."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from ablate.store import (
    CurvePoint,
    Environment,
    Mark,
    PlannedTrial,
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


def hostile_store(path: Path) -> None:
    """Write a study whose name, question, variants, settings, errors, commands, tags and notes are hostile."""
    names = ["baseline", f"{SCRIPT}=b", "$x$ **שלום** 😀 " + "n" * 200]
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
