"""`ablate evaluate`: measure a trained decoder on tasks of `lm-eval`, and on the text of a file."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Annotated

import typer

from ablate.cli.loading import load_trial
from ablate.cli.options import (
    DEFAULT_STORE,
    AcceptCodeOption,
    CacheOption,
    DeviceOption,
    JsonOption,
    PluginOption,
    StoreOption,
    TrialArgument,
)
from ablate.errors import AblateError
from ablate.render.terminal.console import make_console, print_json, say


def evaluate(
    trial: TrialArgument,
    tasks: Annotated[
        str, typer.Option(metavar="NAME,...", help="Tasks or groups of `lm-eval`, separated by commas.")
    ] = "",
    include: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="A folder with YAML files of further tasks.")
    ] = None,
    shots: Annotated[
        int | None, typer.Option(min=0, help="Solved examples before each question [default: as the task says].")
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Only the first examples of each task; the result is not stored.")
    ] = None,
    file: Annotated[Path | None, typer.Option(metavar="PATH", help="Measure perplexity on this text.")] = None,
    store: StoreOption = DEFAULT_STORE,
    cache: CacheOption = None,
    device: DeviceOption = "auto",
    plugin: PluginOption = None,
    accept_changed_code: AcceptCodeOption = False,
    json_: JsonOption = False,
) -> None:
    """Measure the decoder of a trial that was trained with `save_weights: true`.

    Metrics of tasks are stored with the trial as `test_TASK_METRIC`. To decide by such a metric, name the task in a
    space: `task.downstream`.
    """
    names = tuple(name for name in (part.strip() for part in tasks.split(",")) if name)
    if not names and file is None:
        raise AblateError(
            "there is nothing to measure",
            where="ablate evaluate",
            expected="`--tasks NAME,...`, `--file PATH`, or both",
            remedy="`ablate evaluate --help` shows the options.",
        )
    from ablate.downstream.harness import Request
    from ablate.execution.environment import choose_device
    from ablate.extras import require
    from ablate.render.terminal.evaluated import evaluation_json, print_tasks, sentence
    from ablate.store import open_store
    from ablate.trained.evaluate import evaluate_file, evaluate_tasks

    if names:
        require("evaluate", "a task of `lm-eval`", where="--tasks")
    import torch

    place, trained = (
        torch.device(choose_device(device)),
        load_trial(trial, store, cache, plugin, accept_changed_code=accept_changed_code),
    )
    remark = lambda line: print(line, file=sys.stderr)  # noqa: E731
    text = None if file is None else evaluate_file(trained, file, place, remark)
    scores = evaluate_tasks(trained, Request(names, include, shots, limit), place) if names else ()
    stored = bool(scores) and limit is None
    if stored:
        finite = {f"test_{score.name}": score.value for score in scores if math.isfinite(score.value)}
        with open_store(store, create=False) as opened:
            opened.add_test_metrics(trained.key, finite)
    if json_:
        print_json(evaluation_json(trained.key, scores, str(file), text, stored=stored))
        return
    console = make_console()
    if scores:
        print_tasks(scores, console)
        say(console, "Stored with the trial." if stored else "Not stored, because --limit leaves examples out.")
    if text is not None:
        say(console, sentence(str(file), text))
