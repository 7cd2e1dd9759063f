"""Which variants a design chose by results, and the fresh seeds that confirm them.

A variant that was declared before results is judged by the study's seeds. One that was chosen by them looks better than
it is on those very seeds: it has a verdict only from seeds that took no part in the choice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ablate.analysis.runs import StudyReader, VariantRuns, read_runs
from ablate.store.records import StudyRecord


def confirming(record: StudyRecord) -> StudyRecord:
    """A study with its confirming trials and seeds instead of those that choose.

    So fresh seeds that are added when some have been seen spend error as others do (`ablate.analysis.runs`).
    """
    seeds = len({planned.seed for planned in record.confirm_trials})
    before = tuple(
        replace(one, seeds=one.confirm or None, pairs=one.confirmed)
        for one in record.declared_before
        if one.pairs is not None
    )
    space = {**record.space, "design": {**record.space.get("design", {}), "seeds": seeds or None}}
    return replace(record, planned=record.confirm_trials, space=space, declared_before=before)


def read_confirming(store: StudyReader, record: StudyRecord) -> Mapping[str, VariantRuns]:
    """Variant name to the trials that confirm it; empty if none are planned."""
    if not record.confirm_trials:
        return {}
    runs = read_runs(store, confirming(record), record.objective["metric"])
    return {name: run for name, run in runs.items() if run.states}
