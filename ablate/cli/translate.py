"""`ablate translate`: translations by a trained encoder-decoder."""

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


def translate(
    trial: TrialArgument,
    text: Annotated[list[str] | None, typer.Argument(help="Texts to translate [default: lines of stdin].")] = None,
    beams: Annotated[int, typer.Option(min=1, help="Beams of the search; 1 is greedy.")] = 4,
    length_penalty: Annotated[float, typer.Option(min=0.0, help="Higher values favour longer translations.")] = 0.6,
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
