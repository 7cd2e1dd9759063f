"""The command line: parse, call, print.

The commands are functions of the modules in `_MODULES`; `PANELS` orders them under the headings of `ablate --help`. The
function of `check-store` is `check_store`; one whose name Python uses itself ends with an underscore (`list_`). Heavy
packages are imported inside functions.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from ablate.cli import answers, checks, spaces_and_blocks, studies, trials
from ablate.cli.options import INTERRUPTED
from ablate.errors import AblateError, UnreadableWarning, printable
from ablate.processes import handle_early_interrupts, keep_printing
from ablate.render.terminal.console import lost_printing, make_console, stdout_for_json_alone

_MODULES = (studies, answers, trials, spaces_and_blocks, checks)
PANELS = {
    "Workflow": ("new", "validate", "plan", "study", "resume", "status", "show", "report"),
    "Studies": (
        "list", "judge", "claims", "gate", "ideas", "calibrate", "diff", "dashboard", "site", "mcp", "rename", "delete",
        "export-study", "import-study", "check-store",
    ),
    "Trained models": ("evaluate", "generate", "translate", "reproduce", "import", "export"),
    "Building blocks": ("kinds", "draw", "cost", "bench", "inspect", "check-kind", "check-transfer", "data", "schema"),
    "Machine": ("doctor",),
}  # fmt: skip
"""Heading to its commands, in the order in which the help shows them."""
COMMAND_NAMES = [name for names in PANELS.values() for name in names]

EXAMPLES = {
    "new": ("new my_question", "new my_tricks --like tricks"),
    "validate": ("validate my_question.yaml", "validate my_question.yaml --json"),
    "plan": ("plan simplify_block --seeds 3:9", "plan my_question.yaml --on h100"),
    "study": ("study simplify_block", "study my_question.yaml --seeds 3:9 --workers 2"),
    "resume": ("resume simplify_block", "resume simplify_block --seeds 4:12"),
    "status": ("status", "status --store runs/ablate.db"),
    "show": ("show simplify_block", "show simplify_block --why norm=none"),
    "report": ("report simplify_block --format html --out report", "report simplify_block --format latex --out paper"),
    "list": ("list", "list --store runs/ablate.db --json"),
    "judge": (
        "judge runs.csv --metric loss --direction lower --baseline base --margin 0.02",
        "judge runs.yaml --why wide",
    ),
    "claims": ("claims simplify_block", "claims simplify_block --fail-if-refuted"),
    "gate": ("gate simplify_block --variant sas", "gate speedrun --variant activation=gelu --better"),
    "ideas": ("ideas", "ideas normalisation --json"),
    "calibrate": ("calibrate simplify_block", "calibrate simplify_block --json"),
    "diff": ("diff simplify_block/baseline simplify_block/norm=none", "diff my_question.yaml other.yaml"),
    "dashboard": ("dashboard", "dashboard runs/ablate.db --port 8600"),
    "site": ("site public", "site public simplify_block speedrun --title 'What can go'"),
    "mcp": ("mcp --folder questions --max-seconds 3600", "mcp --skill > SKILL.md"),
    "rename": ("rename my_question first_try", "rename my_question first_try --store runs/ablate.db"),
    "delete": ("delete first_try", "delete first_try --yes"),
    "export-study": ("export-study my_question", "export-study my_question --out mine.zip"),
    "import-study": ("import-study my_question.study.zip", "import-study mine.zip --store other.db"),
    "check-store": ("check-store", "check-store --store runs/ablate.db --out saved.db"),
    "evaluate": ("evaluate 3f2a --file book.txt", "evaluate 3f2a --tasks hellaswag --limit 100"),
    "generate": ("generate 3f2a --prompt 'def '", "generate 3f2a --temperature 0 --tokens 50"),
    "translate": ("translate 3f2a 'twenty one'", "translate 3f2a --beams 1 < sentences.txt"),
    "reproduce": ("reproduce 3f2a", "reproduce 3f2a --data file:moved/text"),
    "import": ("import folder/of/model --out model.yaml", "import folder/of/model --config-only"),
    "export": ("export 3f2a --hf folder", "export simplify_block --optuna sqlite:///optuna.db"),
    "kinds": ("kinds", "kinds mixers"),
    "draw": ("draw sas --versus pre_ln", "draw my_question.yaml --out block.svg"),
    "cost": ("cost sas --width 768 --heads 12 --context 1024", "cost simplify_block"),
    "bench": ("bench pre_ln sas", "bench attention he --context 512,2048 --out time.svg"),
    "inspect": ("inspect gpt2 --context 64", "inspect simplify_block --variant norm=none"),
    "check-kind": ("check-kind my_mixer --plugin my_mixer.py", "check-kind --all --family norms"),
    "check-transfer": (
        "check-transfer transfer --out check.svg",
        "check-transfer my_question.yaml --widths 64,128",
    ),
    "data": ("data simplify_block", "data my_question.yaml --data file:texts"),
    "schema": ("schema > space.schema.json", "schema --output show"),
    "doctor": ("doctor", "doctor --device cpu --out laptop.json"),
}
"""Two lines for the help of each command."""

OLD_SPELLINGS: dict[str, dict[str, str]] = {
    "study": {"--storage": "--checkpoint-dir"},
    "show": {"--svg": "--out"},
    "claims": {"--check": "--fail-if-refuted"},
    "check-store": {"--export": "--out"},
    "import": {"--check": "--verify", "--no-check": "--no-verify"},
    "bench": {"--lengths": "--context"},
    "cost": {"--vocabulary": "--vocab-size"},
}
"""Options of a command that had another name; they work, with a warning."""
OLD_COMMANDS = {"check": "check-kind", "run": "study"}
"""Commands that had another name, or that people try first."""


class _Help:
    """Help in which flags have no type, and arguments stand as they are typed."""

    params: list[Any]
    options_metavar: str | None

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.params.sort(key=_rank_of)  # stable: what has no place of its own stays before the rest, as it is defined

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters; the help of a flag shows no type."""
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for parameter in params:
            if getattr(parameter, "is_flag", False):
                parameter.metavar = ""
            elif parameter.param_type_name == "argument":
                parameter.display_type_rich = lambda ctx: None
        return params

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """The usage line: required arguments bare, optional ones in brackets."""
        arguments = [parameter for parameter in self.params if parameter.param_type_name == "argument"]
        return [self.options_metavar or "", *map(usage, arguments)]


class _Command(_Help, TyperCommand):
    """A command, with a help that is read without a manual of typer's notation."""


class _Group(_Help, TyperGroup):
    """All commands."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """The usage line."""
        return [*super().collect_usage_pieces(ctx), "COMMAND"]


_LAST = (
    *("--store", "--device", "--workers", "--threads", "--pack", "--cache", "--plugin", "--accept-changed-code"),
    *("--log-to", "--format", "--out", "--json"),
)
"""The options that many commands share, in their order: store, compute, output."""


def _rank_of(parameter: Any) -> int:
    if parameter.param_type_name == "argument":
        return -1
    return max((_LAST.index(name) + 1 for name in parameter.opts if name in _LAST), default=0)


def usage(argument: Any) -> str:
    """An argument as a usage line shows it."""
    shown = (argument.metavar or argument.name.upper()) + ("..." if argument.nargs == -1 else "")
    return shown if argument.required else f"[{shown}]"


app = typer.Typer(
    name="ablate",
    cls=_Group,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for panel, names in PANELS.items():
    for name in names:
        own = name.replace("-", "_")
        function = next(
            getattr(module, called) for module in _MODULES for called in (own, f"{own}_") if hasattr(module, called)
        )
        examples = "\n".join(f"- `ablate {line}`" for line in EXAMPLES[name])
        app.command(name, cls=_Command, rich_help_panel=panel, epilog=f"Examples:\n\n{examples}")(function)

# typer brings its own copy of click; this is its error for a wrong command line.
_UsageError: type[Exception] = typer.BadParameter.__bases__[0]


def main() -> None:
    """Run a command; a user's mistake is one paragraph on stderr (with --json an object) and exit code 2."""
    if "_ABLATE_COMPLETE" in os.environ:  # a shell asks what may follow
        app(prog_name="ablate")
    keep_printing()
    handle_early_interrupts()
    debug = "--debug" in sys.argv
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    sys.argv[1:] = arguments = new_spelling(arguments)  # what to run again is said in this spelling
    as_json = "--json" in arguments
    group = typer.main.get_command(app)
    try:
        with (
            _unreadable_rows_on_stderr(),
            stdout_for_json_alone() if as_json else nullcontext(),
            group.make_context("ablate", arguments) as context,
        ):
            code = group.invoke(context)
        sys.stdout.flush()
        if (lost := lost_printing()) is not None:
            raise AblateError(
                f"what was printed cannot be written ({lost.strerror or lost})",
                where="standard output",
                remedy="All else is done. Make room, and run the command again to see it.",
            )
    except typer.Exit as end:
        code = end.exit_code
    except KeyboardInterrupt:
        print("\nInterrupted. Finished trials are stored; run the same command to continue.", file=sys.stderr)
        code = INTERRUPTED
    except (AblateError, _UsageError, OSError) as error:
        if debug:
            raise
        mistake = _mistake(error)
        if as_json:
            print(json.dumps({"error": mistake.plain()}, ensure_ascii=False), file=sys.stderr)
        else:
            make_console(stderr=True).print(_paragraph(mistake), soft_wrap=True)
        code = mistake.exit_code
    sys.exit(code)


@contextmanager
def _unreadable_rows_on_stderr() -> Iterator[None]:
    """Within it, what cannot be read of a store is said on stderr in a line."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", UnreadableWarning)
        others = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
            if issubclass(category, UnreadableWarning):
                print(f"Warning: {printable(str(message))}", file=sys.stderr)
            else:
                others(message, category, *place, **more)

        warnings.showwarning = show
        yield


def new_spelling(arguments: Sequence[str]) -> list[str]:
    """A command line with old names replaced by the present ones; each is warned of on stderr."""
    words = list(arguments)
    place = next((index for index, word in enumerate(words) if not word.startswith("-")), None)
    if place is None:
        return words
    replaced = {}
    if words[place] in OLD_COMMANDS:
        replaced[f"ablate {words[place]}"] = f"ablate {OLD_COMMANDS[words[place]]}"
        words[place] = OLD_COMMANDS[words[place]]
    if words[place] == "study" and "--stored" in words:
        replaced["ablate study --stored"] = "ablate resume"
        words[place] = "resume"
        words.remove("--stored")
    known = OLD_SPELLINGS.get("study" if words[place] == "resume" else words[place], {})
    for index, word in enumerate(words[place + 1 :], place + 1):
        option, equals, value = word.partition("=")
        if option in known:
            replaced[option] = known[option]
            words[index] = f"{known[option]}{equals}{value}"
    for old, new in replaced.items():
        print(f"`{old}` is now `{new}`; the old name works in this version.", file=sys.stderr)
    return words


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
        where = "ablate" if error.filename is None else str(error.filename)
        return AblateError(f"the system refuses this: {error.strerror or error}", where=where)
    where = error.ctx.command_path if error.ctx else "ablate"
    return AblateError(error.format_message(), where=where, remedy=f"`{where} --help` shows what it takes.")
