"""What `ablate diff` prints: the two sides, then spec, environment and result."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table

from ablate.analysis.diff import Comparison, Difference, Side
from ablate.analysis.numbers import MISSING
from ablate.render.cells import plain, plain_table
from ablate.render.outputs import as_data
from ablate.stats import Interval, PairedDifference

if TYPE_CHECKING:
    from ablate.render.terminal.outputs import (
        ComparedSideOutput,
        MetricDifferenceOutput,
        PathDifferenceOutput,
        SideBySideOutput,
    )


def diff_json(diff: Comparison) -> SideBySideOutput:
    """A comparison of two sides as plain JSON data; what `ablate diff A B --json` prints."""
    left, right = diff.sides
    result: dict[str, MetricDifferenceOutput] = {}
    for metric in diff.shared_metrics if diff.ran else ():
        found = diff.difference(right, metric)
        result[metric] = {
            "left": as_data(diff.interval(left, metric)),
            "right": as_data(diff.interval(right, metric)),
            "difference": {"difference": found.difference, "low": found.low, "high": found.high, "n": found.n},
        }
    return {
        "left": _side_json(left),
        "right": _side_json(right),
        "spec": differences_json(diff.spec),
        "environment": differences_json(diff.environment) if diff.ran else None,
        "seeds": list(diff.seeds),
        "result": result,
    }


def differences_json(changed: Iterable[Difference]) -> list[PathDifferenceOutput]:
    """Differences of two sides as plain JSON data: `path`, and `left` and `right` where there is one."""
    plain_data: list[PathDifferenceOutput] = []
    for difference in changed:
        found: PathDifferenceOutput = {"path": difference.path}
        if 0 in difference.values:
            found["left"] = difference.values[0]
        if 1 in difference.values:
            found["right"] = difference.values[1]
        plain_data.append(found)
    return plain_data


def _side_json(side: Side) -> ComparedSideOutput:
    return {
        "name": side.name,
        "kind": side.kind,
        "variant": side.variant or None,
        "parameters": side.parameters,
        "trials": [{"key": trial.key, "seed": seed, "state": trial.state.value} for seed, trial in side.trials.items()],
    }


def print_diff(diff: Comparison, console: Console) -> None:
    """Print what differs; what is equal is said in a line."""
    for word, side in zip(("left", "right"), diff.sides, strict=True):
        console.print(plain(f"{word}: {_sentence(side)}", "bold"))
        if side.trials:
            keys = ", ".join(f"{trial.key[:12]} (seed {seed})" for seed, trial in side.trials.items())
            console.print(Padding(plain(keys, "dim"), (0, 0, 0, 2), expand=False))
    if not all(side.spec for side in diff.sides):
        console.print()
        console.print(plain("Spec and environment: not recorded of runs that were judged.", "bold"))
        _print_result(diff, console)
        return
    _print_part("Spec", diff.spec, console)
    if not diff.ran:
        console.print()
        console.print(plain("Environment and result: not both have run.", "bold"))
        return
    _print_part("Environment", diff.environment, console)
    _print_result(diff, console)


def _print_part(title: str, differences: tuple[Difference, ...], console: Console) -> None:
    console.print()
    if differences:
        console.print(plain(title, "bold"))
        console.print(differences_table(differences, "left", "right"))
    else:
        console.print(plain(f"{title}: the same.", "bold"))


def _print_result(diff: Comparison, console: Console) -> None:
    console.print()
    if not diff.shared_metrics:
        console.print(plain("Result: no trial has finished on both sides.", "bold"))
        return
    seeds = ", ".join(map(str, diff.seeds))
    paired = f"paired over the seeds {seeds}" if seeds else "no seed in common, so nothing is paired"
    paired = paired if diff.is_paired else "not paired"
    console.print(plain(f"Result: right minus left, {paired}.", "bold"))
    console.print(_result_table(diff))
    console.print(plain("In brackets 95 % intervals over seeds.", "dim"))


def _result_table(diff: Comparison) -> Table:
    table = plain_table(2, ["metric"])
    for title in ("left", "right", "difference"):
        table.add_column(plain(title), overflow="fold", justify="right")
    left, right = diff.sides
    for name in diff.shared_metrics:
        means = (_mean(diff.interval(side, name)) for side in diff.sides)
        cells = (name, *means, _difference(diff.difference(right, name)))
        table.add_row(*map(plain, cells))
    ours, theirs = left.parameters, right.parameters
    if ours is not None and theirs is not None:
        table.add_row(*map(plain, ("parameters", f"{ours:,}", f"{theirs:,}", f"{theirs - ours:+,}")))
    return table


def _sentence(side: Side) -> str:
    facts = [side.kind, *([f"of {side.variant}"] if side.kind == "trial" and side.variant else [])]
    states = [f"{number} {state}" for state, number in side.states.items()]
    return f"{side.name} ({', '.join([' '.join(facts), *states])})"


def _mean(interval: Interval) -> str:
    return MISSING if interval.mean is None else f"{interval.mean:.5g}"


def _difference(difference: PairedDifference) -> str:
    if difference.difference is None:
        return MISSING
    bounds = (
        f" [{difference.low:+.3g}, {difference.high:+.3g}]"
        if difference.low is not None and difference.high is not None
        else ""
    )
    return f"{difference.difference:+.3g}{bounds}"


def differences_table(differences: Sequence[Difference], left: str, right: str) -> Table:
    """A row for each path; `left` and `right` are the headings of its values."""
    table = plain_table(2, ("path", left, right))
    for difference in differences:
        table.add_row(plain(difference.path), *(plain(_written(difference.values, side), "cyan") for side in (0, 1)))
    return table


def _written(values: dict[int, Any], side: int) -> str:
    if side not in values:
        return MISSING
    value = values[side]
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
