"""Prints whether a trial was reproduced, and how a trained model scores on `lm-eval` and on a text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console

from ablate.analysis.diff import Difference, environment_differences
from ablate.analysis.numbers import MISSING
from ablate.downstream.harness import TaskScore
from ablate.execution.reproduce import TOLERANCE, Reproduction
from ablate.render.cells import plain, plain_table
from ablate.render.terminal.diff import differences_json, differences_table
from ablate.trained.decode import TextScore

if TYPE_CHECKING:
    from ablate.render.terminal.outputs import EvaluatedOutput, ReproducedOutput

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
