"""Commands for single trials: train one again, measure it, and let its model write."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Annotated

import typer

from ablate.cli.options import (
    DIFFERENT,
    AcceptCodeOption,
    CacheOption,
    DeviceOption,
    JsonOption,
    MovedDataOption,
    PluginOption,
    StoreOption,
    ThreadsOption,
    TrialArgument,
    data_of_trial,
    load_plugins,
    load_trial,
)
from ablate.errors import AblateError
from ablate.locations import DEFAULT_STORE
from ablate.render.terminal.console import make_console, print_json, say


def reproduce(
    trial: TrialArgument,
    data: MovedDataOption = None,
    store: StoreOption = DEFAULT_STORE,
    device: DeviceOption = "auto",
    threads: ThreadsOption = 1,
    cache: CacheOption = None,
    plugin: PluginOption = None,
    accept_changed_code: AcceptCodeOption = False,
    json_: JsonOption = False,
) -> int:
    """Train a stored trial again, from its record alone, and say whether the curve is the same.

    The store is only read. Exit codes: 0 the same (identical, or equal within a tolerance), 1 different, 2 it cannot
    be done. If the data has moved, --data says where it is; its content must be what the trial saw.
    """
    from ablate.execution.environment import choose_device, describe_environment
    from ablate.execution.local import LocalEngine
    from ablate.execution.options import RunOptions
    from ablate.execution.reproduce import reproduce as train_again
    from ablate.locations import cache_folder
    from ablate.render.terminal.compare import print_reproduction, reproduction_json
    from ablate.store import open_store

    load_plugins(plugin)
    chosen, folder, progress = choose_device(device), cache or cache_folder(), make_console(stderr=True)
    options = RunOptions(device=chosen, workers=1, threads=threads, cache=folder, plugins=plugin or [])
    with (
        open_store(store, create=False) as opened,
        data_of_trial(opened, trial, data),
        LocalEngine(options) as engine,
        progress.status("Training it again") as status,
    ):
        reproduction = train_again(
            trial,
            opened,
            folder,
            engine,
            describe_environment(chosen),
            say=lambda line: say(progress, line, style="dim"),
            moved=lambda step, steps: status.update(f"Training it again: step {step} of {steps}"),
            accept_changed_code=accept_changed_code,
        )
    if json_:
        print_json(reproduction_json(reproduction))
    else:
        print_reproduction(reproduction, make_console())
    return DIFFERENT if reproduction.verdict == "different" else 0


def evaluate(
    trial: TrialArgument,
    tasks: Annotated[
        str, typer.Option("--tasks", metavar="NAME,...", help="Tasks or groups of `lm-eval`, separated by commas.")
    ] = "",
    include: Annotated[
        Path | None, typer.Option("--include", metavar="DIR", help="A folder with YAML files of further tasks.")
    ] = None,
    shots: Annotated[
        int | None,
        typer.Option(
            "--shots", metavar="N", min=0, help="Solved examples before each question.", show_default="as the task says"
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit", metavar="N", min=1, help="Only the first examples of each task; the result is not stored."
        ),
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", metavar="FILE", help="Measure perplexity on this text.")
    ] = None,
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
    from ablate.render.terminal.compare import evaluation_json, print_tasks, sentence
    from ablate.store import open_store
    from ablate.trained.decode import evaluate_file, evaluate_tasks

    if names:
        require("evaluate", "a task of `lm-eval`", where="--tasks")
    import torch

    place, trained = (
        torch.device(choose_device(device)),
        load_trial(trial, store, cache, plugin, accept_changed_code=accept_changed_code),
    )
    warn = lambda line: print(line, file=sys.stderr)  # noqa: E731
    text = None if file is None else evaluate_file(trained, file, place, warn)
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


def generate(
    trial: TrialArgument,
    prompt: Annotated[str, typer.Option("--prompt", metavar="TEXT", help="The text to continue.")] = "",
    tokens: Annotated[int, typer.Option("--tokens", metavar="N", min=1, help="Maximum number of tokens.")] = 200,
    top_p: Annotated[
        float,
        typer.Option(
            "--top-p", metavar="P", min=0.0, max=1.0, help="Draw from the likeliest tokens of this probability."
        ),
    ] = 1.0,
    top_k: Annotated[
        int, typer.Option("--top-k", metavar="N", min=0, help="Draw from this number of likeliest tokens; 0: all.")
    ] = 0,
    temperature: Annotated[
        float,
        typer.Option("--temperature", metavar="T", min=0.0, help="Of sampling; 0 always takes the likeliest token."),
    ] = 1.0,
    greedy: Annotated[bool, typer.Option("--greedy", help="The same as `--temperature 0`.", hidden=True)] = False,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Seed of the draws.")] = 0,
    store: StoreOption = DEFAULT_STORE,
    cache: CacheOption = None,
    plugin: PluginOption = None,
    accept_changed_code: AcceptCodeOption = False,
    json_: JsonOption = False,
) -> None:
    """Write text with the decoder of a trial that was trained with `save_weights: true`."""
    trained = load_trial(trial, store, cache, plugin, accept_changed_code=accept_changed_code)
    from ablate.decoding import Sampling
    from ablate.trained.decode import generate as pieces_of

    sampling = Sampling(0.0 if greedy else temperature, top_k, top_p)
    pieces = pieces_of(trained, prompt, tokens, sampling, seed)
    if json_:
        print_json({"trial": trained.key, "prompt": prompt, "text": "".join(pieces)}, indent=None)
        return
    sys.stdout.write(prompt)
    for piece in pieces:
        sys.stdout.write(piece)
        sys.stdout.flush()
    sys.stdout.write("\n")


def translate(
    trial: TrialArgument,
    text: Annotated[
        list[str] | None, typer.Argument(metavar="TEXT", help="Texts to translate.", show_default="the lines of stdin")
    ] = None,
    beams: Annotated[int, typer.Option("--beams", metavar="N", min=1, help="Beams of the search; 1 is greedy.")] = 4,
    length_penalty: Annotated[
        float,
        typer.Option("--length-penalty", metavar="X", min=0.0, help="Higher values favour longer translations."),
    ] = 0.6,
    store: StoreOption = DEFAULT_STORE,
    cache: CacheOption = None,
    plugin: PluginOption = None,
    accept_changed_code: AcceptCodeOption = False,
    json_: JsonOption = False,
) -> None:
    """Translate with the encoder-decoder of a trial that was trained with `save_weights: true`."""
    trained = load_trial(trial, store, cache, plugin, accept_changed_code=accept_changed_code)
    from ablate.trained.decode import translate as translated

    for line in text or (line.rstrip("\n") for line in sys.stdin):
        (written,) = translated(trained, [line], beams, length_penalty)
        if json_:
            print_json({"text": line, "translation": written}, indent=None)
        else:
            print(written, flush=True)
