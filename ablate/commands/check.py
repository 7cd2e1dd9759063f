"""`ablate check`: the contract of mixers, run on one kind."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from ablate.commands.loading import load_plugins
from ablate.commands.options import JsonOption, PluginOption
from ablate.terminal.console import make_console


def check(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="A kind of mixer.")],
    plugin: PluginOption = None,
    json_: JsonOption = False,
) -> int:
    """Try a kind of mixer by every rule that mixers keep; exits with 1 if it breaks one."""
    load_plugins(plugin)
    from ablate.terminal.check import check_json, check_kind, print_check

    checked = check_kind(kind)
    if json_:
        print(json.dumps(check_json(kind, checked), indent=2, ensure_ascii=False))
    else:
        print_check(kind, checked, make_console())
    return 1 if any(one.findings for one in checked) else 0
