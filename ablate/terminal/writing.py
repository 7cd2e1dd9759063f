"""`ablate generate` and `ablate translate`: text from a trained model, printed as it comes."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ablate.engine.trained import Trained

TrialArgument = Annotated[str, typer.Argument(help="The key of a trial, or its first characters.")]
StoreOption = Annotated[str, typer.Option("--store", help="The store: a path, or an SQLAlchemy URL.")]
CacheOption = Annotated[
    Path | None, typer.Option("--cache", help="Folder of prepared data [default: $ABLATE_CACHE or the user's cache].")
]
PluginOption = Annotated[
    list[str] | None, typer.Option("--plugin", metavar="PY", help="A Python file with mixers or tasks of your own.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for a program.")]
DEFAULT_STORE = "studies/ablate.db"


def generate(
    trial: TrialArgument,
    prompt: Annotated[str, typer.Option(help="The text to go on from.")] = "",
    tokens: Annotated[int, typer.Option(min=1, help="Tokens at most.")] = 200,
    top_p: Annotated[float, typer.Option(min=0.0, max=1.0, help="Draw from the likeliest tokens of this share.")] = 1.0,
    top_k: Annotated[int, typer.Option(min=0, help="Draw from so many of the likeliest tokens; 0 for all.")] = 0,
    temperature: Annotated[float, typer.Option(min=0.0, help="Below 1 likely tokens get likelier; 0 is greedy.")] = 1.0,
    greedy: Annotated[bool, typer.Option("--greedy", help="Always take the likeliest token.")] = False,
    seed: Annotated[int, typer.Option(help="Of the draws.")] = 0,
    store: StoreOption = DEFAULT_STORE,
    cache: CacheOption = None,
    plugin: PluginOption = None,
    json_: JsonOption = False,
) -> None:
    """Write text with the decoder of a trial that was trained with `save_weights: true`."""
    trained = _trained(trial, store, cache, plugin)
    from ablate.decoding.sampling import Sampling
    from ablate.engine.trained import generate as pieces_of

    sampling = Sampling(0.0 if greedy else temperature, top_k, top_p)
    pieces = pieces_of(trained, prompt, tokens, sampling, seed)
    if json_:
        print(json.dumps({"trial": trained.key, "prompt": prompt, "text": "".join(pieces)}, ensure_ascii=False))
        return
    sys.stdout.write(prompt)
    for piece in pieces:
        sys.stdout.write(piece)
        sys.stdout.flush()
    sys.stdout.write("\n")


def translate(
    trial: TrialArgument,
    text: Annotated[list[str] | None, typer.Argument(help="Texts to translate [default: lines of stdin].")] = None,
    beams: Annotated[int, typer.Option(min=1, help="Beams of the search; 1 is greedy.")] = 4,
    length_penalty: Annotated[float, typer.Option(min=0.0, help="More favours longer translations.")] = 0.6,
    store: StoreOption = DEFAULT_STORE,
    cache: CacheOption = None,
    plugin: PluginOption = None,
    json_: JsonOption = False,
) -> None:
    """Translate with the encoder-decoder of a trial that was trained with `save_weights: true`."""
    trained = _trained(trial, store, cache, plugin)
    from ablate.engine.trained import translate as translated

    for line in text or (line.rstrip("\n") for line in sys.stdin):
        (written,) = translated(trained, [line], beams, length_penalty)
        print(json.dumps({"text": line, "translation": written}, ensure_ascii=False) if json_ else written, flush=True)


def _trained(trial: str, store: str, cache: Path | None, plugins: list[str] | None) -> Trained:
    from ablate.engine.trained import load_trained
    from ablate.engine.weights import weights_folder
    from ablate.plugins import load_plugin
    from ablate.tasks.cache import default_cache

    for plugin in plugins or ():
        load_plugin(plugin)
    say = lambda line: print(line, file=sys.stderr)  # noqa: E731
    return load_trained(weights_folder(store), trial, cache or default_cache(), say)
