"""`ablate check`: the contract of a family, run on a kind or on all kinds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from ablate.cli.loading import load_plugins
from ablate.cli.options import JsonOption, PluginOption
from ablate.errors import AblateError
from ablate.render.terminal.console import make_console, print_json


def check(
    kind: Annotated[
        str | None,
        typer.Argument(metavar="[KIND]", help="A kind of any family; `ablate kinds` lists them.", show_default=False),
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="Every kind of every family, or of --family.")] = False,
    plugin: PluginOption = None,
    family: Annotated[
        str | None,
        typer.Option(
            "--family",
            metavar="NAME",
            help="Family of the kind, if several have a kind of this name.",
            show_default="found by the kind",
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="The value of a field; may be given several times."),
    ] = None,
    json_: JsonOption = False,
) -> int:
    """Check a kind, or all kinds, by every rule of its family; exits with 1 if a rule is broken."""
    if (kind is None) != all_:
        raise AblateError(
            "one kind is checked, or all of them",
            where="ablate check",
            expected="KIND or --all",
            got="neither" if kind is None else "both",
            remedy="Write `ablate check KIND` or `ablate check --all`.",
        )
    load_plugins(plugin)
    from ablate.contracts.checking import UntriedKind, check_all, check_kind
    from ablate.render.terminal.kinds import check_json, print_check

    values = parsed_values(set_ or ())
    console, kept, reports = make_console(), True, []
    for checked in check_all(family, values) if kind is None else [check_kind(kind, family, values)]:
        kept = kept and (isinstance(checked, UntriedKind) or checked.keeps_the_contract)
        if json_:
            reports.append(check_json(checked))
        else:
            print_check(checked, console)
    if json_:
        print_json(reports if kind is None else reports[0])
    return 0 if kept else 1


def parsed_values(texts: Sequence[str]) -> dict[str, Any]:
    """The values of `--set NAME=VALUE`; a value is JSON, or else text.

    Raises:
        AblateError: One has no equals sign.
    """
    values: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise AblateError("this sets nothing", where="--set", expected="NAME=VALUE", got=repr(text))
        try:
            values[name] = json.loads(value)
        except ValueError:
            values[name] = value
    return values
