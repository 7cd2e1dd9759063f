"""What `ablate evaluate` prints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console

from ablate.analysis.numbers import MISSING
from ablate.downstream.harness import TaskScore
from ablate.render.cells import plain, plain_table
from ablate.trained.evaluate import TextScore


def evaluation_json(trial: str, tasks: Sequence[TaskScore], file: str, text: TextScore | None, *, stored: bool) -> Any:
    """An evaluation as plain JSON data."""
    record: dict[str, Any] = {"trial": trial}
    if tasks:
        record["tasks"] = [
            {"task": score.task, "metric": score.metric, "value": score.value, "standard_error": score.error}
            for score in tasks
        ]
        record["stored_as"] = [f"test_{score.name}" for score in tasks] if stored else []
    if text is not None:
        record["file"] = {
            "path": file,
            "tokens": text.tokens,
            "bytes": text.bytes,
            "loss": text.nats,
            "perplexity": text.perplexity,
            "bits_per_byte": text.bits_per_byte,
        }
    return record


def print_tasks(tasks: Sequence[TaskScore], console: Console) -> None:
    """Print a table of the metrics of tasks."""
    table = plain_table(gap=2)
    for title in ("task", "metric"):
        table.add_column(plain(title))
    for title in ("value", "standard error"):
        table.add_column(plain(title), justify="right")
    for score in tasks:
        error = MISSING if score.error is None else f"{score.error:.4f}"
        table.add_row(*map(plain, (score.task, score.metric, f"{score.value:.4f}", error)))
    console.print(table)


def sentence(file: str, text: TextScore) -> str:
    """A line on the text of a file."""
    return (
        f"{file}: perplexity {text.perplexity:.4g} per token, loss {text.nats:.4f} nats per token, "
        f"{text.bits_per_byte:.4f} bits per byte, over {text.tokens:,} tokens."
    )
