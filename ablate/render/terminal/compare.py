"""What `ablate diff`, `ablate reproduce` and `ablate evaluate` find of trials, as text and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table

from ablate.analysis.diff import Comparison, Difference, Side, environment_differences
from ablate.analysis.numbers import MISSING
from ablate.downstream.harness import TaskScore
from ablate.execution.reproduce import TOLERANCE, Reproduction
from ablate.render.outputs import as_data
from ablate.render.table import plain, plain_table
from ablate.stats import Interval, PairedDifference
from ablate.trained.decode import TextScore

if TYPE_CHECKING:
    from ablate.render.terminal.outputs import (
        ComparedSideOutput,
        EvaluatedOutput,
        MetricDifferenceOutput,
        PathDifferenceOutput,
        ReproducedOutput,
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
        table.add_row(
            plain(difference.path), *(plain(_write_values(difference.values, side), "cyan") for side in (0, 1))
        )
    return table


def _write_values(values: dict[int, Any], side: int) -> str:
    if side not in values:
        return MISSING
    value = values[side]
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


COLOURS = {"identical": "green", "equal": "green", "different": "red"}


def reproduction_json(rerun: Reproduction) -> ReproducedOutput:
    """A rerun as plain JSON data; in its environment, left is the stored one and right is the new one."""
    return {
        "trial": rerun.trial.key,
        "variant": rerun.variant or None,
        "seed": rerun.trial.seed,
        "verdict": rerun.verdict,
        "largest_difference": rerun.largest_difference,
        "tolerance": TOLERANCE,
        "diverged_at": {
            "stored": rerun.trial.stopped_at,
            "again": rerun.diverged.step if rerun.diverged else None,
        },
        "curve": [{"step": step, "stored": old, "again": new} for step, old, new in _pairs(rerun)],
        "environment": differences_json(_environment(rerun)),
    }


def print_reproduction(rerun: Reproduction, console: Console) -> None:
    """Print the verdict, both curves, and what differs between the environments."""
    name = f"{rerun.trial.key[:12]} ({rerun.variant or 'a variant of no study'}, seed {rerun.trial.seed})"
    console.print(plain(f"Trial {name}, trained again", "bold"))
    table = plain_table(numbers=("step", "stored val_loss", "again", "difference"))
    for step, old, new in _pairs(rerun):
        change = MISSING if old is None or new is None else f"{new - old:+.2g}"
        table.add_row(*map(plain, (str(step), _loss(old), _loss(new), change)))
    console.print(table)
    environment = _environment(rerun)
    if environment:
        console.print(plain("The environment differs:", "bold"))
        console.print(differences_table(environment, "stored", "now"))
    else:
        console.print(plain("The environment is the same."))
    verdict = plain(f"{rerun.verdict}: {_reason(rerun)}.")
    verdict.stylize(COLOURS[rerun.verdict], 0, len(rerun.verdict))
    console.print(verdict)


def _reason(rerun: Reproduction) -> str:
    ends = rerun.trial.stopped_at, rerun.diverged.step if rerun.diverged else None
    if ends[0] != ends[1]:
        stored, again = ("finished" if end is None else f"diverged at step {end}" for end in ends)
        return f"the stored run {stored}, this one {again}"
    if rerun.verdict == "identical":
        return "every loss of the curve is the same to the last bit"
    if [point.step for point in rerun.stored] != [point.step for point in rerun.again]:
        return "the curves are measured at different steps"
    if rerun.largest_difference is None:
        return "the curves have no validation loss in common"
    at_most = f"the validation losses differ by up to {rerun.largest_difference:.2g}"
    return f"{at_most}; {TOLERANCE:g} counts as equal"


def _environment(rerun: Reproduction) -> tuple[Difference, ...]:
    stored = rerun.trial.environment
    return environment_differences([stored] if stored is not None else [], [rerun.environment])


def _pairs(rerun: Reproduction) -> list[tuple[int, float | None, float | None]]:
    """Step, stored loss, new loss, for every step of either curve."""
    stored = {point.step: point.val_loss for point in rerun.stored}
    again = {point.step: point.val_loss for point in rerun.again}
    return [(step, stored.get(step), again.get(step)) for step in sorted(stored.keys() | again.keys())]


def _loss(value: float | None) -> str:
    return MISSING if value is None else f"{value:.6f}"


def evaluation_json(
    trial: str, tasks: Sequence[TaskScore], file: str, text: TextScore | None, *, stored: bool
) -> EvaluatedOutput:
    """An evaluation as plain JSON data."""
    record: EvaluatedOutput = {"trial": trial}
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
    table = plain_table(2, ("task", "metric"), ("value", "standard error"))
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
