"""`ablate cost`: what a block needs, before anything is trained."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from ablate.cli.loading import is_space, load_plugins, load_space
from ablate.cli.options import CacheOption, DataOption, JsonOption, PluginOption
from ablate.errors import SpaceError
from ablate.render.terminal.console import make_console, print_json, say


class Mode(StrEnum):
    """What `ablate cost` prices."""

    training = "training"
    inference = "inference"


def cost(
    block: Annotated[
        str, typer.Argument(metavar="BLOCK|MODEL|FILE", help="A named block or model, a mixer kind, or a space file.")
    ],
    width: Annotated[int | None, typer.Option(min=1, help="Width d [default: 128].")] = None,
    heads: Annotated[int | None, typer.Option(min=1, help="Heads H [default: 4].")] = None,
    context: Annotated[
        int | None, typer.Option(min=1, help="Tokens L [default: 128; of a model, its longest input].")
    ] = None,
    depth: Annotated[int | None, typer.Option(min=1, help="Blocks, exceptions of layers included.")] = None,
    vocabulary: Annotated[int | None, typer.Option(min=1, help="Token ids; adds embedding and head.")] = None,
    mode: Annotated[Mode, typer.Option(help="A pass over a sequence, or one more token.")] = Mode.training,
    data: DataOption = None,
    cache: CacheOption = None,
    plugin: PluginOption = None,
    json_: JsonOption = False,
) -> None:
    """Count what a block, a model or every variant of a space needs: parameters, arithmetic, memory; trains nothing."""
    load_plugins(plugin)
    from ablate.render.terminal.cost import cost_json, price_block, price_model, price_space, print_cost
    from ablate.spec.lookup import find_block, is_block, is_model

    inference = mode is Mode.inference
    sizes = {"width": width, "heads": heads, "context": context, "depth": depth, "vocabulary": vocabulary}
    given = [name for name, value in sizes.items() if value is not None]
    if is_model(block):
        if others := [name for name in given if name != "context"] or (["data"] if data is not None else []):
            raise SpaceError(f"a model has its own `{others[0]}`", where=block, remedy=f"Leave `--{others[0]}` out.")
        of_model = price_model(block, context=context, inference=inference)
        print_json(cost_json(of_model)) if json_ else print_cost(of_model, make_console())
        return
    if is_block(block):
        if data is not None:
            raise SpaceError(
                "a block is priced without data", where=block, remedy="Leave `--data` out, or name a space."
            )
        priced = price_block(
            block,
            width=width or 128,
            heads=heads or 4,
            context=context or 128,
            depth=depth,
            vocabulary=vocabulary or 0,
            inference=inference,
        )
        if json_:
            print_json(cost_json(priced))
        else:
            print_cost(priced, make_console())
        return
    if not block.endswith((".yaml", ".yml")) and not is_space(block):
        find_block(block)  # says which blocks there are
    if given:
        raise SpaceError(
            f"a space has its own `{given[0]}`", where=block, remedy=f"Leave `--{given[0]}` out, or name a block."
        )
    from ablate.locations import cache_folder

    progress = make_console(stderr=True)
    variants = price_space(
        load_space(block, None, data),
        cache or cache_folder(),
        lambda line: say(progress, line, style="dim"),
        inference=inference,
    )
    if json_:
        print_json({"variants": [cost_json(one) for one in variants]})
    for one in variants if not json_ else ():
        print_cost(one, make_console())
