"""The command line: parse, call, print.

A file NAME.py beside this one holds the function of `ablate NAME` under that name: `check_store` for `check-store`.
A function whose name would hide a builtin of Python ends with an underscore (`list_`), and so does a file whose name
would be a keyword (`import_.py`). `PANELS` assigns commands to headings of `ablate --help`. Heavy packages are imported
inside functions.
"""

from __future__ import annotations

import gc
import keyword
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from ablate.cli.options import INTERRUPTED
from ablate.errors import AblateError
from ablate.execution.interrupt import handle_early_interrupts
from ablate.render.terminal.console import lost_printing, make_console, stdout_for_json_alone
from ablate.streams import keep_printing

GARBAGE = 50_000
"""Allocations between two runs of the garbage collector: imports and reading leave no garbage, and each run is slow."""

PANELS = {
    "Studies": ("new", "plan", "study", "status", "list", "check-store"),
    "Answers": ("show", "report", "claims", "calibrate", "diff", "export", "dashboard"),
    "Trials": ("reproduce", "evaluate", "generate", "translate"),
    "Spaces and blocks": ("validate", "schema", "data", "kinds", "cost", "bench", "doctor", "draw", "check", "import"),
}
PANEL_OF = {name: panel for panel, names in PANELS.items() for name in names}
"""Every command, in the order in which the help shows them."""

_HABITS: dict[str, Any] = {
    "add_completion": False,
    "rich_markup_mode": "markdown",
    "pretty_exceptions_enable": False,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}


def function_of(name: str) -> Callable[..., Any]:
    """The function of a command."""
    own = name.replace("-", "_") + "_" * keyword.iskeyword(name)
    module = import_module(f"ablate.cli.{own}")
    function: Callable[..., Any] = getattr(module, own, None) or getattr(module, f"{own}_")
    return function


def _is_ready(parameter: Any, value: Any) -> bool:
    """Whether a value needs no conversion. typer asks pydantic for each, whose import takes longer than `ablate list`.

    ASCII is always a valid text; other texts may hold halves of characters.
    """
    if value is None:
        return not parameter.required
    expected = getattr(getattr(parameter, "type_descriptor", None), "annotation", None)  # typer 0.15 has none
    return expected is str and isinstance(value, str) and value.isascii()


class _Argument(TyperArgument):
    def process_value(self, ctx: Any, value: Any) -> Any:
        return value if _is_ready(self, value) else super().process_value(ctx, value)


class _Option(TyperOption):
    def process_value(self, ctx: Any, value: Any) -> Any:
        if not _is_ready(self, value):
            return super().process_value(ctx, value)
        return value if self.callback is None else self.callback(ctx, self, value)


_OURS: dict[type, type] = {TyperArgument: _Argument, TyperOption: _Option}


def _ours(parameters: list[Any]) -> list[Any]:
    """The parameters of a command, of our classes."""
    for parameter in parameters:
        parameter.__class__ = _OURS.get(type(parameter), type(parameter))
    return parameters


class _Command(TyperCommand):
    def get_params(self, ctx: Any) -> list[Any]:
        return _ours(super().get_params(ctx))


class _Commands(Mapping[str, Any]):
    """Every command by name, imported and parsed into parameters only when it is first looked up."""

    def __init__(self) -> None:
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            alone = typer.Typer(**_HABITS)
            alone.command(name, cls=_Command, rich_help_panel=PANEL_OF[name])(function_of(name))
            self._made[name] = typer.main.get_command(alone)
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(PANEL_OF)

    def __len__(self) -> int:
        return len(PANEL_OF)


class _Group(TyperGroup):
    """The group of all commands; a call imports only its own."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = _Commands()  # type: ignore[assignment]  # only ever read

    def get_params(self, ctx: Any) -> list[Any]:
        return _ours(super().get_params(ctx))


app = typer.Typer(name="ablate", cls=_Group, **_HABITS)

# typer brings its own copy of click, older versions use click itself; both tell a wrong command line with this.
_UsageError: type[Exception] = typer.BadParameter.__bases__[0]


def main() -> None:
    """Run a command; a user's mistake is one paragraph on stderr and exit code 2."""
    keep_printing()
    handle_early_interrupts()
    gc.set_threshold(GARBAGE)
    debug = "--debug" in sys.argv
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    group = typer.main.get_command(app)
    try:
        with (
            stdout_for_json_alone() if "--json" in arguments else nullcontext(),
            group.make_context("ablate", arguments) as context,
        ):
            code = group.invoke(context)
        sys.stdout.flush()
        if (lost := lost_printing()) is not None:
            raise lost
    except typer.Exit as end:
        code = end.exit_code
    except KeyboardInterrupt:
        print("\nInterrupted. Finished trials are stored; run the same command to continue.", file=sys.stderr)
        code = INTERRUPTED
    except (AblateError, _UsageError, OSError) as error:
        if debug:
            raise
        mistake = _mistake(error)
        make_console(stderr=True).print(_paragraph(mistake), soft_wrap=True)
        code = mistake.exit_code
    sys.exit(code)


def _print_version(asked: bool) -> None:
    if asked:
        import importlib.metadata

        print(f"ablate {importlib.metadata.version('ablate-blocks')}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def options(
    context: typer.Context,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Find out which parts of a Transformer block are needed.

    Start with `ablate study simplify_block`, or with `ablate new NAME`.
    """
    if context.invoked_subcommand is None:
        print(context.get_help())


def _paragraph(error: AblateError) -> Any:
    from rich.text import Text

    return Text.assemble(("Error: ", "bold red"), str(error))


def _mistake(error: Any) -> AblateError:
    """The error to show for one that ended a command."""
    if isinstance(error, AblateError):
        return error
    if isinstance(error, OSError):  # a name that no file can have, a folder that may not be read, a full disk
        where = None if error.filename is None else str(error.filename)
        return AblateError(f"the system refuses this: {error.strerror or error}", where=where)
    where = error.ctx.command_path if error.ctx else "ablate"
    return AblateError(error.format_message(), where=where, remedy=f"`{where} --help` shows what it takes.")
