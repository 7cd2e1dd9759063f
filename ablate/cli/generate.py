"""`ablate generate`: text from a trained decoder, printed as it comes."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from ablate.cli.loading import load_trial
from ablate.cli.options import (
    DEFAULT_STORE,
    AcceptCodeOption,
    CacheOption,
    JsonOption,
    PluginOption,
    StoreOption,
    TrialArgument,
)
from ablate.render.terminal.console import print_json


def generate(
    trial: TrialArgument,
    prompt: Annotated[str, typer.Option(help="The text to continue.")] = "",
    tokens: Annotated[int, typer.Option(min=1, help="Maximum number of tokens.")] = 200,
    top_p: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Draw from the likeliest tokens of this probability.")
    ] = 1.0,
    top_k: Annotated[int, typer.Option(min=0, help="Draw from this number of likeliest tokens; 0: all.")] = 0,
    temperature: Annotated[float, typer.Option(min=0.0, help="Temperature of sampling; 0 is greedy.")] = 1.0,
    greedy: Annotated[bool, typer.Option("--greedy", help="Always take the likeliest token.")] = False,
    seed: Annotated[int, typer.Option(help="Seed of the draws.")] = 0,
    store: StoreOption = DEFAULT_STORE,
    cache: CacheOption = None,
    plugin: PluginOption = None,
    accept_changed_code: AcceptCodeOption = False,
    json_: JsonOption = False,
) -> None:
    """Write text with the decoder of a trial that was trained with `save_weights: true`."""
    trained = load_trial(trial, store, cache, plugin, accept_changed_code=accept_changed_code)
    from ablate.decoding.search import Sampling
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
