"""Lists of studies (`ablate list`) and of trials (`ablate show STUDY --trials`), as tables and as JSON.

Imports no statistics: the list of studies is read many times a day.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from textwrap import shorten
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from ablate.analysis.text import counted
from ablate.render.cells import NARROW, joined, named, plain, plain_table

if TYPE_CHECKING:
    from ablate.analysis.ideas import Idea
    from ablate.analysis.trials import TrialLine
    from ablate.render.terminal.outputs import ListedStudyOutput, ListedTrialOutput
    from ablate.store.records import StudySummary

SHORT = 12
_QUESTION = 90
"""Characters of a question in the list of studies; all of them go into the JSON."""
_ROOM = 30
"""Characters of a key that a person is shown; all of them go into the JSON."""


def studies_table(summaries: Sequence[StudySummary], console: Console) -> Table:
    """The studies of a store, one line each; what `ablate list` prints."""
    table = plain_table(1 if console.width < NARROW else 2)
    table.add_column(plain("study"), overflow="fold", min_width=12)
    table.add_column(plain("question"), overflow="fold")
    for title in ("variants", "finished"):
        table.add_column(plain(title), justify="right", no_wrap=True)
    table.add_column(plain("besides"), no_wrap=True)
    table.add_column(plain("updated"), no_wrap=True)
    for summary in summaries:
        besides = [
            *(["judged"] if summary.judged else []),
            *counted((what, getattr(summary, what)) for what in ("running", "diverged", "pruned", "failed")),
        ]
        table.add_row(
            plain(summary.name, "bold"),
            plain(shorten(summary.question, _QUESTION, placeholder=" …")),
            plain(str(summary.variants)),
            plain(f"{summary.finished}/{summary.planned}"),
            joined(map(plain, besides)),
            plain(f"{summary.updated_at:%Y-%m-%d %H:%M}", "dim"),
        )
    return table


def ideas_table(ideas: Sequence[Idea]) -> Table:
    """What studies have tried, the refuted ideas first; what `ablate ideas` prints."""
    table = plain_table(2, ("verdict", "idea", "study"), ["difference"])
    order = ("refuted", "held", "undecided")
    for idea in sorted(ideas, key=lambda idea: order.index(idea.outcome)):
        measured = "" if idea.difference is None else f"{idea.difference:+.3g} {idea.metric}"
        table.add_row(plain(idea.verdict), plain(idea.idea), plain(idea.study, "bold"), plain(measured))
    return table


def studies_json(summaries: Iterable[StudySummary]) -> list[ListedStudyOutput]:
    """The studies of a store as plain JSON data; what `ablate list --json` prints."""
    return [
        {
            "study": summary.name,
            "question": summary.question,
            "variants": summary.variants,
            "planned": summary.planned,
            "finished": summary.finished,
            "diverged": summary.diverged,
            "pruned": summary.pruned,
            "failed": summary.failed,
            "running": summary.running,
            "judged": summary.judged,
            "updated_at": summary.updated_at.isoformat(),
        }
        for summary in summaries
    ]


def trials_json(trials: Iterable[TrialLine]) -> list[ListedTrialOutput]:
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
    table = plain_table()
    table.add_column(plain("trial"), no_wrap=True)
    table.add_column(plain("variant"), overflow="fold")
    table.add_column(plain("seed"), justify="right", no_wrap=True)
    table.add_column(plain("state"), no_wrap=True)
    table.add_column(plain(lines[0].objective if lines else ""), justify="right", no_wrap=True)
    for trial in lines:
        value = trial.metrics.get(trial.objective)
        seed, state = plain(str(trial.seed)), plain(trial.state.value)
        name = named(trial.variant, _ROOM)
        table.add_row(plain(trial.key[:SHORT]), name, seed, state, plain("-" if value is None else f"{value:.4f}"))
    return table
