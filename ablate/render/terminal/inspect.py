"""`ablate inspect`: signal, gradients and attention by depth before any training, as a table and as JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ablate.analysis.text import plural
from ablate.errors import EngineError, SpaceError
from ablate.machine import available_memory
from ablate.metrics import GROWTHS, inside_name
from ablate.nn.model import build_model
from ablate.nn.model.pricing import price
from ablate.planning.planner import Planner, make_plan
from ablate.spec.lookup import find_model
from ablate.spec.space import SpaceSpec
from ablate.spec.task import Say
from ablate.training.activations import Insides, loss_on_random_tokens, loss_on_validation, measure_insides
from ablate.training.members import Member, assemble

if TYPE_CHECKING:
    from ablate.render.terminal.outputs import InspectOutput

_CPU = torch.device("cpu")
_USUAL_CONTEXT = 128
_MOST_COLUMNS = 8
_BYTES = 4
_COPIES = 3
"""Of the weights at most at once: while they are drawn, and for the passes."""


@dataclass(frozen=True, slots=True)
class Inspected:
    """What was measured.

    Attributes:
        name: Of the model, or of the space and its variant.
        on: On what.
        seeds: Of the members.
        insides: Of the members.
    """

    name: str
    on: str
    seeds: tuple[int, ...]
    insides: Insides


def inspect_model(name: str, context: int | None, seeds: int) -> Inspected:
    """Measure a named model on random tokens.

    Raises:
        SpaceError: There is no such model, or it reads more than one sequence.
        EngineError: The memory does not suffice.
    """
    found = find_model(name)
    spec, vocabulary = found.spec, found.named.vocabulary
    if spec.family not in ("decoder", "encoder") or spec.head is not None:
        raise SpaceError(
            "only a model that predicts a token at each position can be inspected without a task",
            where=name,
            got=f"a model of family {spec.family}",
            remedy="Name a space that trains it.",
        )
    length = context or min(_USUAL_CONTEXT, found.named.context)
    _check_memory(name, price(spec, context=length, vocabulary=vocabulary).total.parameters, seeds)
    numbers = tuple(range(seeds))
    model = build_model(spec, vocabulary=vocabulary, context=length, seeds=numbers)
    insides = measure_insides(model, loss_on_random_tokens(vocabulary, length, _CPU, seeds))
    return Inspected(found.name, f"random sequences of {length:,} tokens", numbers, insides)


def inspect_space(space: SpaceSpec, variant: str | None, seeds: int, cache: Path, say: Say) -> Inspected:
    """Measure a variant of a space on its first validation windows, with random weights.

    Raises:
        SpaceError: The design trains no such variant.
        AblateError: The baseline is invalid, or the data cannot be prepared.
        EngineError: The memory does not suffice.
    """
    planner = Planner(space, cache, say)
    planned = {found.name: found for found in make_plan(planner).variants}
    name = variant or "baseline"
    if name not in planned:
        raise SpaceError("the design trains no such variant", where="--variant", expected=", ".join(planned), got=name)
    spec = planned[name].spec
    _check_memory(name, planned[name].cost.parameters, seeds)
    task = planner.costs.prepare(spec)
    numbers = tuple(range(seeds))
    model = assemble([Member(spec, seed) for seed in numbers], task.shape)
    return Inspected(
        f"{space.name}/{name}",
        f"validation windows of {task.shape.context:,} tokens",
        numbers,
        measure_insides(model, loss_on_validation(task, _CPU, seeds)),
    )


def _check_memory(name: str, parameters: int, seeds: int) -> None:
    needed, free = _COPIES * _BYTES * parameters * seeds, available_memory()
    if needed > free:
        raise EngineError(
            f"the weights need {needed / 2**30:.1f} GiB, and {free / 2**30:.1f} GiB are free",
            where=name,
            remedy="Name fewer --seeds, or a smaller model.",
        )


def inspect_json(found: Inspected) -> InspectOutput:
    """Everything that was measured, for each seed; null where a number is not finite."""

    def plain(values: Sequence[float]) -> list[float | None]:
        return [value if math.isfinite(value) else None for value in values]

    insides = found.insides
    return {
        "name": found.name,
        "on": found.on,
        "seeds": list(found.seeds),
        "by_block": {
            measure: {block: plain(values) for block, values in blocks.items()}
            for measure, blocks in insides.by_block.items()
        },
        "absent": insides.absent,
        "metrics": {name: plain(values) for name, values in insides.metrics(initial=True).items()},
    }


def print_inspected(found: Inspected, console: Console) -> None:
    """Print a row for each measure and a column for each block, means over the seeds."""
    insides = found.insides
    metrics = insides.metrics(initial=True)
    console.print(Text(f"{found.name} before training: {found.on}, {plural(len(found.seeds), 'seed')}"))
    blocks = list(insides.by_block["stream_rms"])
    count = min(len(blocks), _MOST_COLUMNS)
    chosen = [blocks[round(place * (len(blocks) - 1) / max(1, count - 1))] for place in range(count)]
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="dim")
    table.add_column("block")
    for block in chosen:
        table.add_column(block.removeprefix("block ").replace("decoder block", "dec."), justify="right", no_wrap=True)
    for measure, of_blocks in insides.by_block.items():
        table.add_row(measure, *(_cell(of_blocks.get(block)) for block in chosen))
    console.print(table)
    if len(chosen) < len(blocks):
        console.print(Text(f"{len(chosen)} of {len(blocks)}; --json has all", style="dim"))
    for growth, meaning in GROWTHS.items():
        console.print(Text(f"{growth} {_cell(metrics[inside_name(growth, initial=True)])}: {meaning}"))
    for why in dict.fromkeys(insides.absent.values()):
        absent = [measure for measure, reason in insides.absent.items() if reason == why]
        console.print(Text(f"no {', no '.join(absent)}: {why}", style="dim"))
    console.print(Text("0: the input of the first block", style="dim"))


def _cell(values: Sequence[float] | None) -> str:
    return "-" if values is None else f"{math.fsum(values) / len(values):.3g}"
