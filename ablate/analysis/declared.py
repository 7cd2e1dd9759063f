"""Changes of the objective, the claims or the seeds of a study that were made after it had results."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ablate.analysis.text import plural
from ablate.stats import ExtendedSeeds, SeedPlan
from ablate.stats.schedule import ERROR
from ablate.store.records import StudyRecord


def declared_otherwise(record: StudyRecord) -> Iterator[str]:
    """A sentence for every change of the objective or the claims that was made when trials had finished."""
    objectives = [*(one.objective for one in record.declared_before), record.objective]
    claims = [*(one.claims for one in record.declared_before), record.space.get("claims", [])]
    for place, before in enumerate(record.declared_before):
        changes = list(_changes(before.objective, objectives[place + 1]))
        if before.claims != claims[place + 1]:
            changes.append("the claims were different" if before.claims else "there were no claims")
        if not changes:
            continue
        yield (
            f"Until {before.until:%Y-%m-%d %H:%M} UTC, when {plural(before.finished, 'trial')} had finished, "
            f"{' and '.join(changes)}. Results that were visible before a declaration cannot test it."
        )


def seeds_added(schedule: SeedPlan | None) -> Iterator[str]:
    """A sentence if the seeds of a study were changed after results could be seen, with what that costs."""
    if isinstance(schedule, ExtendedSeeds):
        plans = [str(one) if isinstance(one, int) else f"{one.start} to {one.max}" for one in schedule.declared]
        rate = 100 * (ERROR + schedule.added_error)
        yield (
            f"The number of seeds was changed after results were visible: {', then '.join(plans)}. The first number "
            "used the whole error rate of 5 %, so later looks have wider bounds, and the error rate of a verdict over "
            f"all looks is at most {rate:.4g} %."
        )


def _changes(before: dict[str, Any], after: dict[str, Any]) -> Iterator[str]:
    for name, value in before.items():
        if value != after.get(name):
            yield f"the {name} was {value}"
