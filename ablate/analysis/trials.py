"""The trials of a study one by one, with the keys by which `generate`, `translate`, `reproduce` and `diff` take one."""

from __future__ import annotations

from dataclasses import dataclass

from ablate.analysis.runs import StudyReader
from ablate.store.records import TrialState


@dataclass(frozen=True, slots=True)
class TrialLine:
    """A trial that a study planned.

    Attributes:
        key: Content hash (hex).
        variant: Name of the variant in the study.
        seed: Its seed.
        state: Its state.
        metrics: Final metrics by name; empty unless finished.
        objective: Name of the metric that the study looks at.
    """

    key: str
    variant: str
    seed: int
    state: TrialState
    metrics: dict[str, float]
    objective: str


def list_trials(store: StudyReader, name: str) -> list[TrialLine]:
    """All trials that a study planned, in the order of its design.

    Raises:
        NotFoundError: The store holds no such study.
    """
    record = store.study(name)
    trials = store.trials([planned.key for planned in record.planned])
    lines = []
    for planned in record.planned:
        trial = trials.get(planned.key)
        state, metrics = (trial.state, trial.metrics) if trial else (TrialState.WAITING, {})
        lines.append(TrialLine(planned.key, planned.variant, planned.seed, state, metrics, record.objective["metric"]))
    return lines
