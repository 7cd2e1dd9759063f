"""Evaluates a model over batches: metrics over all of them, over parts of them, and of each example."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from ablate.spec.task import Task
from ablate.training.objective import Objective

if TYPE_CHECKING:
    from ablate.spec.task import Batch

PARTS = 8
"""Parts of the validation data over which final metrics are measured separately. Their spread shows how much metrics
depend on the draw of the data."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Metrics by name; each has a value for every position of the model.

    Attributes:
        metrics: Over all batches; empty if there are none.
        parts: Over each of `PARTS` parts of the batches; empty if there are fewer batches, or unless asked for.
        windows: For every position, of each example by itself; empty unless asked for. An example without scored
            tokens has none.
    """

    metrics: dict[str, list[float]]
    parts: dict[str, list[list[float]]] = field(default_factory=dict)
    windows: dict[str, list[list[float]]] = field(default_factory=dict)


@torch.no_grad()
def evaluate(
    model: nn.Module,
    task: Task,
    objective: Objective,
    batches: Iterable[Batch],
    positions: int,
    device: torch.device,
    *,
    parts: bool = False,
    windows: bool = False,
) -> Evaluation:
    """Evaluate a model of several members over batches, which all members share.

    Args:
        model: Of the members.
        task: Of the batches.
        objective: Measures a batch.
        batches: Without the pack axis.
        positions: Number of members of the model.
        device: Of the model.
        parts: Whether to measure parts of the batches too.
        windows: Whether to measure each example by itself too.
    """
    model.eval()
    sums: dict[str, Tensor] = {}
    of_parts: list[dict[str, Tensor]] = []
    apart: dict[str, list[list[float]]] = {}
    for number, batch in enumerate(batches):
        if number < PARTS:
            of_parts.append({})
        packed = {name: values.to(device).expand(positions, *values.shape) for name, values in batch.items()}
        for name, total in objective.measure(model, packed).items():
            for into in (sums, *([of_parts[number % PARTS]] if parts else ())):
                into[name] = into[name] + total.double() if name in into else total.double()
        if windows:
            _measure_apart(model, task, objective, packed, apart)
    model.train()
    by_part: dict[str, list[list[float]]] = {}
    if parts and len(of_parts) == PARTS:
        for of_part in of_parts:
            for name, values in _metrics(task, of_part).items():
                by_part.setdefault(name, []).append(values)
    return Evaluation(_metrics(task, sums) if sums else {}, by_part, apart)


def _metrics(task: Task, totals: dict[str, Tensor]) -> dict[str, list[float]]:
    return task.metrics({name: total.tolist() for name, total in totals.items()})


def _measure_apart(
    model: nn.Module, task: Task, objective: Objective, packed: Batch, windows: dict[str, list[list[float]]]
) -> None:
    """Append the metrics of each example of a batch, [K, B, ...], to those of earlier examples."""
    for index in range(len(packed["inputs"][0])):
        alone = {name: values[:, index : index + 1] for name, values in packed.items()}
        try:
            measured = _metrics(task, objective.measure(model, alone))
        except ZeroDivisionError:
            continue
        for name, values in measured.items():
            kept = windows.setdefault(name, [[] for _ in values])
            for position, value in enumerate(values):
                kept[position].append(value)
