"""Trials of a study that another version of a user's kind trained, and that the user accepted all the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ablate.analysis.runs import StudyReader
from ablate.analysis.text import plural
from ablate.spec.code import code_changes
from ablate.store.records import StudyRecord


def changed_code(store: StudyReader, record: StudyRecord) -> Iterator[str]:
    """A sentence for every kind whose code has changed between trials of a study and their plan."""
    planned = {one.key: one.code for one in (*record.planned, *record.confirm_trials, *record.scout_trials) if one.code}
    if not planned:
        return
    trained = {key: trial.code for key, trial in store.trials([*planned]).items() if trial.code != planned[key]}
    contents = store.codes([*trained.values(), *(planned[key] for key in trained)])
    counts: Counter[tuple[str, str]] = Counter()
    for key, code in trained.items():
        for change in code_changes(contents.get(code, {}), contents.get(planned[key], {})):
            counts[change.kind, change.what] += 1
    for (kind, what), trials in counts.items():
        yield (
            f"{plural(trials, 'trial')} {'was' if trials == 1 else 'were'} trained with another version of {kind} "
            f"({what}) and reused, because --accept-changed-code was given: the code as it is may give other numbers."
        )
