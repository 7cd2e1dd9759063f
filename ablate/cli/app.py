"""The command line: parse, call, print.

The commands are functions in the modules of `PANELS`, whose keys are the headings of `ablate --help`. The function of
`check-store` is `check_store`; one whose name Python uses itself ends with an underscore (`list_`). Heavy packages are
imported inside functions.
"""

from __future__ import annotations

import sys
from contextlib import nullcontext
from typing import Annotated, Any

import typer

from ablate.cli import answers, spaces_and_blocks, studies, trials
from ablate.cli.options import INTERRUPTED
from ablate.errors import AblateError
from ablate.processes import handle_early_interrupts, keep_printing
from ablate.render.terminal.console import lost_printing, make_console, stdout_for_json_alone

PANELS = {
    "Studies": (studies, ("new", "plan", "study", "status", "list", "check-store")),
    "Answers": (answers, ("show", "judge", "report", "claims", "calibrate", "diff", "export", "dashboard")),
    "Trials": (trials, ("reproduce", "evaluate", "generate", "translate")),
    "Spaces and blocks": (
        spaces_and_blocks,
        ("validate", "schema", "data", "kinds", "cost", "bench", "doctor", "draw", "check", "import"),
    ),
}
"""Heading to a module and its commands, in the order in which the help shows them."""
COMMAND_NAMES = [name for _, names in PANELS.values() for name in names]

app = typer.Typer(
    name="ablate",
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for panel, (module, names) in PANELS.items():
    for name in names:
        own = name.replace("-", "_")
        app.command(name, rich_help_panel=panel)(getattr(module, own, None) or getattr(module, f"{own}_"))

# typer brings its own copy of click, older versions use click itself; both tell a wrong command line with this.
_UsageError: type[Exception] = typer.BadParameter.__bases__[0]


def main() -> None:
    """Run a command; a user's mistake is one paragraph on stderr and exit code 2."""
    keep_printing()
    handle_early_interrupts()
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
