"""`ablate data`: what a space will train on, and what a model that learns nothing reaches."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from ablate.render.table import bare_table
from ablate.spec.task import DataSummary, Task

if TYPE_CHECKING:
    from ablate.render.terminal.outputs import DataOutput

_BINS = 10
_BAR = 40
_LABELS_SHOWN = 12
_SAMPLE = 400


def data_json(space: str, name: str, address: str, task: Task, departs: str) -> DataOutput:
    """The data of a task as plain data."""
    summary = task.describe()
    return {
        "space": space,
        "task": name,
        "data": address,
        "fingerprint": task.fingerprint,
        "vocabulary": task.shape.vocabulary,
        "context": task.shape.context,
        "classes": task.shape.classes,
        "rows": summary.rows,
        "tokens": summary.tokens,
        "lengths": [{"from": low, "to": high, "count": count} for low, high, count in histogram(summary.lengths)],
        "labels": summary.labels,
        "samples": list(summary.samples),
        "notes": list(summary.notes),
        "departs": departs,
        "baselines": {
            name: {metric: value if math.isfinite(value) else None for metric, value in metrics.items()}
            for name, metrics in task.baselines().items()
        },
    }


def print_data(address: str, task: Task, departs: str, console: Console) -> None:
    """Print the same for a person."""
    summary = task.describe()
    console.print(Text(address, style="bold"))
    console.print(Text(f"fingerprint {task.fingerprint}", style="dim"))
    for note in (*summary.notes, *([departs] if departs else [])):
        console.print(Text(note))
    console.print()
    _print_sizes(task, summary, console)
    _print_lengths(summary, console)
    _print_labels(summary, console)
    _print_samples(summary, console)
    _print_baselines(task.baselines(), console)


def histogram(lengths: tuple[int, ...]) -> list[tuple[int, int, int]]:
    """Bins of equal width as (from, to, count), both ends included."""
    if not lengths:
        return []
    low, high = min(lengths), max(lengths)
    width = max(1, -(-(high - low + 1) // _BINS))
    counts = [0] * -(-(high - low + 1) // width)
    for length in lengths:
        counts[(length - low) // width] += 1
    return [(low + i * width, min(high, low + (i + 1) * width - 1), count) for i, count in enumerate(counts)]


def _print_sizes(task: Task, summary: DataSummary, console: Console) -> None:
    table = bare_table("", ("rows", "tokens"))
    for split in summary.rows:
        table.add_row(split, f"{summary.rows[split]:,}", f"{summary.tokens.get(split, 0):,}")
    console.print(table)
    console.print(Text(f"vocabulary {task.shape.vocabulary:,}, context {task.shape.context:,} tokens"))
    console.print()


def _print_lengths(summary: DataSummary, console: Console) -> None:
    bins = histogram(summary.lengths)
    if not bins:
        return
    most = max(count for *_, count in bins)
    table = bare_table("tokens in a row", ["rows"])
    table.add_column()
    for low, high, count in bins:
        bar = "█" * max(round(_BAR * count / most), 1 if count else 0)
        table.add_row(f"{low:,} to {high:,}" if high > low else f"{low:,}", f"{count:,}", Text(bar, style="cyan"))
    console.print(table)
    console.print()


def _print_labels(summary: DataSummary, console: Console) -> None:
    if not summary.labels:
        return
    ranked = sorted(summary.labels.items(), key=lambda pair: -pair[1])
    shown = ", ".join(f"{label} {count:,}" for label, count in ranked[:_LABELS_SHOWN])
    more = len(ranked) - _LABELS_SHOWN
    console.print(Text(f"{len(ranked):,} labels: {shown}" + (f" and {more:,} more" if more > 0 else "")))
    console.print()


def _print_samples(summary: DataSummary, console: Console) -> None:
    for number, sample in enumerate(summary.samples, 1):
        console.print(Text(f"sample {number}", style="dim"))
        console.print(Text(sample if len(sample) <= _SAMPLE else f"{sample[:_SAMPLE]} ..."))
        console.print()


def _print_baselines(baselines: dict[str, dict[str, float]], console: Console) -> None:
    if not baselines:
        return
    names = list(dict.fromkeys(name for metrics in baselines.values() for name in metrics))
    table = bare_table("trivial baseline", names)
    for baseline, metrics in baselines.items():
        table.add_row(baseline, *(f"{metrics[name]:.4f}" if name in metrics else "-" for name in names))
    console.print(table)
