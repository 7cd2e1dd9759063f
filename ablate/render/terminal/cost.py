"""What is known before anything is trained: `ablate data` and `ablate cost`.

What a space will train on, and what a model that learns nothing reaches; what a block, or every variant, needs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError
from rich.console import Console
from rich.text import Text

from ablate.analysis.numbers import plural
from ablate.nn.model.pricing import PARTS, Layers, Price, price
from ablate.planning.planner import Planner, make_plan
from ablate.render.table import bare_table
from ablate.spec.cost import BYTES, Cost
from ablate.spec.lookup import block_error, find_block, find_model
from ablate.spec.space import SpaceSpec
from ablate.spec.task import DataSummary, Say, Task

if TYPE_CHECKING:
    from ablate.render.terminal.outputs import CostOfOutput, CountsOutput, DataOutput

_COUNTS = {
    "parameters": "parameters",
    "multiplications": "multiplications",
    "additions": "additions",
    "divisions": "divisions",
    "exponentiations": "exponentiations",
    "flops": "FLOPs",
}
_TITLES = {"mixer": "mixer", "mlp": "MLP", "rest": "norms, skips, gains"}


@dataclass(frozen=True, slots=True)
class Priced:
    """A model under a name, with its price.

    Attributes:
        name: Of a block or a variant.
        sizes: Width, heads, tokens ... as a person reads them.
        price: What it costs.
        inference: Whether that is one token in inference, and not a pass over a sequence in training.
    """

    name: str
    sizes: dict[str, int]
    price: Price
    inference: bool

    @property
    def usual(self) -> Layers:
        """The layer that most layers are like."""
        return max(self.price.layers, key=lambda run: run.count)


def price_block(
    name: str, *, width: int, heads: int, context: int, depth: int | None, vocabulary: int, inference: bool
) -> Priced:
    """Price a block by its name; with a depth, a model of it.

    Raises:
        SpaceError: There is no such block, or the sizes do not fit it.
    """
    model = find_block(name).model(width=width, heads=heads, depth=depth)
    try:
        cost = price(model, context=context, vocabulary=vocabulary, inference=inference)
    except ValidationError as error:
        raise block_error(name, error) from None
    sizes = {"width": width, "heads": heads, "context": context, "depth": model.depth, "vocabulary": vocabulary}
    return Priced(name, sizes, cost, inference)


def price_model(name: str, *, context: int | None, inference: bool) -> Priced:
    """Price a named model, over its longest input or another one.

    Raises:
        SpaceError: There is no such model, or its mixers refuse this context.
    """
    named = find_model(name)
    spec, length = named.spec, context or named.named.context
    try:
        priced = price(spec, context=length, vocabulary=named.named.vocabulary, inference=inference)
    except ValidationError as error:
        raise block_error(name, error) from None
    sizes = {"width": spec.width, "heads": spec.heads, "context": length, "depth": spec.depth}
    return Priced(named.name, {**sizes, "vocabulary": named.named.vocabulary}, priced, inference)


def price_space(space: SpaceSpec, cache: Path, say: Say, *, inference: bool) -> list[Priced]:
    """Price every variant of a space; prepares its data, which decides the vocabulary.

    Raises:
        AblateError: The baseline is invalid, or the data cannot be prepared.
    """
    planner = Planner(space, cache, say)
    priced = []
    for variant in make_plan(planner).variants:
        model, shape = variant.spec.model, planner.costs.prepare(variant.spec).shape
        cost = price(
            model, context=shape.context, vocabulary=shape.vocabulary, classes=shape.classes, inference=inference
        )
        sizes = {
            "width": model.width,
            "heads": model.heads,
            "context": shape.context,
            "depth": model.depth,
            "vocabulary": shape.vocabulary,
        }
        priced.append(Priced(variant.name, sizes, cost, inference))
    return priced


def cost_json(priced: Priced) -> CostOfOutput:
    """The price as plain data; the sub-layers are those of one layer of the usual sort, the total is all of it."""
    usual, sizes = priced.usual, priced.sizes
    return {
        "name": priced.name,
        "mode": "inference" if priced.inference else "training",
        "width": sizes["width"],
        "heads": sizes["heads"],
        "context": sizes["context"],
        "depth": sizes["depth"],
        "vocabulary": sizes["vocabulary"],
        "complexity": usual.block.mixer.complexity,
        "mixer": {**_counts(usual.parts["mixer"]), "cache_bytes": BYTES * usual.cache},
        "mlp": _counts(usual.parts["mlp"]),
        "rest": _counts(usual.parts["rest"]),
        "around": _counts(priced.price.around),
        "total": {**_counts(priced.price.total), "cache_bytes": BYTES * priced.price.cache},
    }


def _counts(cost: Cost) -> CountsOutput:
    return {
        "parameters": cost.parameters,
        "multiplications": cost.multiplications,
        "additions": cost.additions,
        "divisions": cost.divisions,
        "exponentiations": cost.exponentiations,
        "flops": cost.flops,
        "activation_bytes": cost.activation_bytes,
    }


def print_cost(priced: Priced, console: Console) -> None:
    """Print a table for each sort of layer, and the sum where there is more than one layer."""
    sizes, runs = priced.sizes, priced.price.layers
    what = "one more token in inference, after" if priced.inference else "one sequence in training,"
    console.print(
        Text(priced.name, style="bold"),
        Text(f"  {what} {plural(sizes['context'], 'token')}, width {sizes['width']}, {plural(sizes['heads'], 'head')}"),
        sep="",
        soft_wrap=True,
    )
    for run in runs:
        if len(runs) > 1 or run.count > 1:
            last = run.first + run.count - 1
            console.print(Text(f"layer {run.first}" if run.count == 1 else f"each of layers {run.first} to {last}"))
        columns = {_TITLES[part]: run.parts[part] for part in PARTS} | {"block": run.cost}
        _print_table(columns, {"mixer": run.cache, "block": run.cache}, priced.inference, console)
        mixer = run.block.mixer.complexity
        console.print(Text(f"The mixer is {mixer}; projections and MLP are Ld² (L tokens, d width)."))
        console.print()
    if priced.price.total != runs[0].cost:
        layers = sum((run.cost * run.count for run in runs), Cost())
        columns = {f"{priced.sizes['depth']} layers": layers}
        if priced.price.around != Cost():
            columns["embedding, head"] = priced.price.around
        columns["total"] = priced.price.total
        caches = {name: priced.price.cache for name in columns if name != "embedding, head"}
        _print_table(columns, caches, priced.inference, console)
        console.print()


def _print_table(columns: dict[str, Cost], caches: dict[str, int], inference: bool, console: Console) -> None:
    table = bare_table("", columns)
    for name, title in _COUNTS.items():
        table.add_row(title, *(f"{getattr(cost, name):,}" for cost in columns.values()))
    if inference:
        table.add_row("cache bytes", *(f"{BYTES * caches.get(title, 0):,}" for title in columns))
    else:
        table.add_row("activation bytes", *(f"{cost.activation_bytes:,}" for cost in columns.values()))
    console.print(table)


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
