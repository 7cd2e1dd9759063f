"""Stores written by hand: one in which every text that users write is hostile, and a plain one."""

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


def simple_store(location: str) -> None:
    """Write the studies `done`, `half` (half of its trials wait) and `broken` (one failed), each of two variants."""
    where = Environment({"python": "3"}, "cpu", "here", None, None, "ablate study")
    objective = {"metric": "val_loss", "direction": "minimize", "margin": 0.5}
    sizes = {"baseline": 10, "small": 5}
    states = {
        "done": [TrialState.FINISHED] * 4,
        "half": [TrialState.FINISHED] * 2,
        "broken": [TrialState.FINISHED] * 3 + [TrialState.FAILED],
    }
    with open_store(location) as store:
        for number, (study, ended) in enumerate(states.items()):
            hashes = {name: f"{2 * number + n:064x}" for n, name in enumerate(sizes)}
            variants = [VariantRecord(name, hashes[name], {}, {"model": {}}, size) for name, size in sizes.items()]
            planned = [PlannedTrial(f"{study}{seed}{name}", name, seed) for seed in (0, 1) for name in sizes]
            store.begin_study(StudyDraft(study, f"Why {study}?", "", {}, "", objective, "baseline"), variants, planned)
            for trial, state in zip(planned, ended, strict=False):
                loss = {"val_loss": sizes[trial.variant] / 100 + trial.seed} if state is TrialState.FINISHED else {}
                store.record_outcome(
                    TrialOutcome(
                        trial.key,
                        hashes[trial.variant],
                        trial.seed,
                        state,
                        loss,
                        1,
                        1.0,
                        1,
                        1.0,
                        None,
                        "",
                        "d",
                        NOW,
                        NOW,
                    ),
                    where,
                )
