"""The trials of a study one by one, with the keys by which `generate`, `translate`, `reproduce` and `diff` take one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from ablate.analysis.numbers import MISSING
from ablate.analysis.runs import StudyReader
from ablate.render.cells import plain, plain_table
from ablate.render.names import named
from ablate.store.records import TrialState

SHORT = 12
_ROOM = 30
"""Characters of a key that a person is shown; all of them go into the JSON."""


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
    found = store.trials([planned.key for planned in record.planned])
    lines = []
    for planned in record.planned:
        trial = found.get(planned.key)
        state, metrics = (trial.state, trial.metrics) if trial else (TrialState.WAITING, {})
        lines.append(TrialLine(planned.key, planned.variant, planned.seed, state, metrics, record.objective["metric"]))
    return lines


def trials_json(trials: Iterable[TrialLine]) -> list[dict[str, Any]]:
    """The trials as plain JSON data; what `ablate show STUDY --trials --json` prints."""
    return [
        {
            "key": trial.key,
            "variant": trial.variant,
            "seed": trial.seed,
            "state": trial.state.value,
            "metrics": trial.metrics,
        }
        for trial in trials
    ]


def trials_table(trials: Iterable[TrialLine]) -> Table:
    """The trials for a terminal, one line each."""
    lines = list(trials)
    table = plain_table(gap=2)
    table.add_column(plain("trial"), no_wrap=True)
    table.add_column(plain("variant"), overflow="fold")
    table.add_column(plain("seed"), justify="right", no_wrap=True)
    table.add_column(plain("state"), no_wrap=True)
    table.add_column(plain(lines[0].objective if lines else ""), justify="right", no_wrap=True)
    for trial in lines:
        value = trial.metrics.get(trial.objective)
        seed, state = plain(str(trial.seed)), plain(trial.state.value)
        name = named(trial.variant, _ROOM)
        table.add_row(plain(trial.key[:SHORT]), name, seed, state, plain(MISSING if value is None else f"{value:.4f}"))
    return table
