"""The command line: parse, call, print. Whatever is heavy is imported where it is used."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ablate.errors import AblateError
from ablate.terminal.writing import generate, translate

if TYPE_CHECKING:
    from rich.console import Console

    from ablate.spec.space import SpaceSpec

app = typer.Typer(
    name="ablate",
    help="Find out which parts of a Transformer block are needed.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

FAILED, INTERRUPTED = 3, 130

SpaceArgument = Annotated[str, typer.Argument(metavar="FILE", help="A space file, or the name of a ready space.")]
StoreOption = Annotated[str, typer.Option("--store", help="The store: a path, or an SQLAlchemy URL.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for a program.")]
PluginOption = Annotated[
    list[str] | None, typer.Option("--plugin", metavar="PY", help="A Python file with mixers or tasks of your own.")
]
CacheOption = Annotated[
    Path | None, typer.Option("--cache", help="Folder of prepared data [default: $ABLATE_CACHE or the user's cache].")
]
DataOption = Annotated[
    str | None,
    typer.Option("--data", metavar="SOURCE", help="Data in place of the space's: file:PATH, hub:NAME or builtin:NAME."),
]
DEFAULT_STORE = "studies/ablate.db"


def main() -> None:
    """Run a command; a user's mistake is one paragraph on stderr and exit code 2."""
    debug = "--debug" in sys.argv
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    try:
        code = app(args=arguments, standalone_mode=False)
    except AblateError as error:
        if debug:
            raise
        _console(stderr=True).print(_paragraph(error), soft_wrap=True)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print("\nInterrupted. Nothing that was finished is lost; the same command goes on.", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        sys.stderr.close()  # whoever read the output has gone, which is no mistake
        sys.exit(0)
    except Exception as error:
        if debug or not hasattr(error, "exit_code"):
            raise
        _show_usage_error(error)
    sys.exit(code or 0)


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Find out which parts of a Transformer block are needed."""


@app.command()
def new(
    name: Annotated[str, typer.Argument(help="Name of the new space; NAME.yaml is written.")],
    json_: JsonOption = False,
) -> None:
    """Write a commented space to start from."""
    from ablate.terminal.template import write_template

    path = write_template(name, Path())
    if json_:
        print(json.dumps({"space": str(path)}))
        return
    console = _console()
    _print(console, f"Wrote {path}. Next:")
    _print(console, f"  ablate plan {path}")
    _print(console, f"  ablate study {path}")


@app.command()
def study(
    file: SpaceArgument,
    data: DataOption = None,
    store: StoreOption = DEFAULT_STORE,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    workers: Annotated[int | None, typer.Option(min=1, help="Worker processes [default: one a core, or a GPU].")] = None,
    threads: Annotated[int, typer.Option(min=1, help="Threads of each worker.")] = 1,
    cache: CacheOption = None,
    plugin: PluginOption = None,
    json_: JsonOption = False,
) -> int:
    """Train what a space asks for and answer its question. Run it again to go on where it stopped."""
    from ablate.api import run
    from ablate.terminal.live import Display
    from ablate.report.table import print_study
    from ablate.store import open_store

    space = _load(file, plugin, data)
    console = _console(stderr=json_)
    with open_store(store) as opened:
        with Display(console) as display:
            display.say(f"store: {store}")
            result = run(
                space,
                store=opened,
                device=device,
                workers=workers,
                threads=threads,
                cache=cache,
                plugins=tuple(plugin or ()),
                observer=display,
            )
        again = f"ablate study {file}" + _data_flag(data) + _store_flag(store) + "".join(f" --plugin {name}" for name in plugin or ())
        if json_:
            counts = {key: getattr(result, key) for key in ("study", "trials", "trained", "reused", "failed", "diverged")}
            print(json.dumps({**counts, "seconds": round(result.seconds, 3)}))
        elif not result.interrupted:
            from ablate.report import read_study

            console.print()
            print_study(read_study(opened, result.study), console)
            console.print()
    if result.interrupted:
        done = result.trained + result.reused + result.diverged
        _print(console, f"Stopped with {done} of {result.trials} trials done; all of them are stored. To go on:")
        _print(console, f"  {again}")
        return INTERRUPTED
    if not json_:
        if result.failed:
            _print(console, f"{result.failed} of {result.trials} trials failed; they are tried again by:")
            _print(console, f"  {again}")
        else:
            _print(console, "Next:")
            _print(console, f"  ablate show {result.study}{_store_flag(store)}" + " " * 8 + "# this table again; --json for a program")
            _print(console, f"  ablate new my_question" + " " * 14 + "# a space of your own to start from")
    return FAILED if result.failed else 0


@app.command()
def plan(
    file: SpaceArgument,
    data: DataOption = None,
    store: StoreOption = DEFAULT_STORE,
    cache: CacheOption = None,
    plugin: PluginOption = None,
    json_: JsonOption = False,
) -> None:
    """List every trial of a space with its cost and an estimate of time; trains nothing."""
    from ablate.engine.forecast import forecast
    from ablate.engine.plan import Planner, make_plan
    from ablate.terminal.plan import plan_json, print_plan
    from ablate.tasks.cache import default_cache

    space = _load(file, plugin, data)
    console = _console()
    say = _console(stderr=True)
    made = make_plan(Planner(space, cache or default_cache(), lambda line: _print(say, line, style="dim")))
    estimate = forecast(made, store)
    if json_:
        print(json.dumps(plan_json(made, estimate), indent=2, ensure_ascii=False))
    else:
        print_plan(made, estimate, console)


@app.command()
def show(
    study: Annotated[str, typer.Argument(help="Name of a study.")],
    store: StoreOption = DEFAULT_STORE,
    json_: JsonOption = False,
) -> None:
    """Show the table and the answer of a study."""
    from ablate.report import read_study
    from ablate.report.as_json import study_json, to_text
    from ablate.report.table import print_study
    from ablate.store import open_store

    with open_store(store, create=False) as opened:
        report = read_study(opened, study)
    if json_:
        print(to_text(study_json(report)))
    else:
        print_study(report, _console())


@app.command("list")
def list_(store: StoreOption = DEFAULT_STORE, json_: JsonOption = False) -> None:
    """List the studies of the store."""
    from ablate.report.as_json import studies_json, to_text
    from ablate.report.table import studies_table
    from ablate.store import open_store

    with open_store(store, create=False) as opened:
        studies = opened.studies()
    if json_:
        print(to_text(studies_json(studies)))
    elif studies:
        console = _console()
        console.print(studies_table(studies, console))
    else:
        _print(_console(), f"{store} holds no study yet. To make one: ablate study simplify_block{_store_flag(store)}")


@app.command()
def kinds(plugin: PluginOption = None, json_: JsonOption = False) -> None:
    """List the kinds of mixer, task and design, with cost class, causality and source."""
    from ablate.terminal.kinds import kinds_json, print_kinds

    _load_plugins(plugin)
    if json_:
        print(json.dumps(kinds_json(), indent=2, ensure_ascii=False))
    else:
        print_kinds(_console())


@app.command()
def schema(plugin: PluginOption = None) -> None:
    """Print the JSON Schema of a space file, for editors."""
    _load_plugins(plugin)
    from ablate.spec.schema import space_schema

    print(json.dumps(space_schema(), indent=2, ensure_ascii=False))


@app.command("data")
def data_(
    file: SpaceArgument,
    data: DataOption = None,
    cache: CacheOption = None,
    plugin: PluginOption = None,
    json_: JsonOption = False,
) -> None:
    """Show what a space will train on: rows, tokens, lengths, labels, samples, fingerprint, trivial baselines."""
    from ablate.tasks.cache import default_cache
    from ablate.terminal.data import data_json, print_data

    space = _load(file, plugin, data)
    folder, say = cache or default_cache(), _console(stderr=True)
    fingerprint = space.task.prepare(folder, lambda line: _print(say, line, style="dim"))
    task = space.task.open(folder, fingerprint)
    address = str(getattr(space.task, "data", space.task.kind_name()))
    if json_:
        print(json.dumps(data_json(space.name, address, task), indent=2, ensure_ascii=False))
    else:
        print_data(address, task, _console())


@app.command()
def validate(
    file: SpaceArgument, data: DataOption = None, plugin: PluginOption = None, json_: JsonOption = False
) -> None:
    """Check a space file without touching its data; says what is wrong with file, line and column."""
    space = _load(file, plugin, data)
    switches = {switch: list(settings) for switch, settings in space.switches.items()}
    points = space.design.build(switches, space.variants).points()
    missing = space.task.missing()
    if json_:
        print(json.dumps({"space": space.name, "valid": True, "points": len(points), "missing": missing}))
    else:
        _print(_console(), f"{file}: a valid space, {len(points)} points, {space.design.seeds} seeds.")
        if missing:
            _print(_console(), f"Its data is missing: {missing}")


app.command()(generate)
app.command()(translate)


def _load(file: str, plugins: list[str] | None, data: str | None = None) -> SpaceSpec:
    _load_plugins(plugins)
    from ablate.spec.reading import load_space

    return load_space(file, data=data)


def _load_plugins(plugins: list[str] | None) -> None:
    from ablate.plugins import load_plugin

    for plugin in plugins or ():
        load_plugin(plugin)


def _data_flag(data: str | None) -> str:
    return "" if data is None else f" --data {shlex.quote(data)}"


def _store_flag(store: str) -> str:
    return "" if store == DEFAULT_STORE else f" --store {store}"


def _console(*, stderr: bool = False) -> Console:
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, soft_wrap=False)


def _print(console: Console, line: str, **style: Any) -> None:
    from rich.text import Text

    console.print(Text(line, **style), soft_wrap=True)


def _paragraph(error: AblateError) -> Any:
    from rich.text import Text

    return Text.assemble(("Error ", "bold red"), str(error))


def _show_usage_error(error: Any) -> None:
    """A mistake on the command line itself, such as an unknown option."""
    error.show()
    sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
