"""`ablate check`: the contract of a family, run on one kind."""

from __future__ import annotations

from typing import Annotated

import typer

from ablate.cli.loading import load_plugins
from ablate.cli.options import JsonOption, PluginOption
from ablate.render.terminal.console import make_console, print_json


def check(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="A kind of any family; `ablate kinds` lists them.")],
    plugin: PluginOption = None,
    family: Annotated[
        str | None,
        typer.Option(
            "--family",
            metavar="NAME",
            help="Its family, where two have a kind of this name.",
            show_default="found by the kind",
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="The value of a field; may be given several times."),
    ] = None,
    json_: JsonOption = False,
) -> int:
    """Try a kind by every rule that its family keeps; exits with 1 if it breaks one."""
    load_plugins(plugin)
    from ablate.render.terminal.check import check_json, check_kind, parsed_values, print_check

    checked = check_kind(kind, family, parsed_values(set_ or ()))
    if json_:
        print_json(check_json(checked))
    else:
        print_check(checked, make_console())
    return 0 if checked.keeps_the_contract else 1
