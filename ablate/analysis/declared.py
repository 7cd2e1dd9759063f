"""What a study declared otherwise when it had results already: margins and claims count for what was declared first."""

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
            changes.append("the claims were others" if before.claims else "there were no claims")
        if not changes:
            continue
        yield (
            f"Until {before.until:%Y-%m-%d %H:%M} UTC, when {plural(before.finished, 'trial')} had finished, "
            f"{' and '.join(changes)}: what was declared after results could be seen is no test of them."
        )


def seeds_added(schedule: SeedPlan | None) -> Iterator[str]:
    """A sentence if the seeds of a study were changed after results could be seen, with what that costs."""
    if isinstance(schedule, ExtendedSeeds):
        plans = [str(one) if isinstance(one, int) else f"{one.start} to {one.max}" for one in schedule.declared]
        rate = 100 * (ERROR + schedule.added_error)
        yield (
            f"Seeds were changed after results could be seen: {', then '.join(plans)}. The first number of seeds had "
            "the whole error rate, so what was added is held to wider bounds, and over all looks together each word is "
            f"wrong at most {rate:.4g} times in 100 rather than 5."
        )


def _changes(before: dict[str, Any], after: dict[str, Any]) -> Iterator[str]:
    for name, value in before.items():
        if value != after.get(name):
            yield f"the {name} was {value}"
