"""The command line: parse, call, print. Whatever is heavy is imported where it is used."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ablate.errors import AblateError

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

    space = _load(file, plugin)
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
        again = f"ablate study {file}" + _store_flag(store) + "".join(f" --plugin {name}" for name in plugin or ())
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

    space = _load(file, plugin)
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


@app.command()
def validate(file: SpaceArgument, plugin: PluginOption = None, json_: JsonOption = False) -> None:
    """Check a space file without touching its data; says what is wrong with file, line and column."""
    space = _load(file, plugin)
    switches = {switch: list(settings) for switch, settings in space.switches.items()}
    points = space.design.build(switches, space.variants).points()
    if json_:
        print(json.dumps({"space": space.name, "valid": True, "points": len(points)}))
    else:
        _print(_console(), f"{file}: a valid space, {len(points)} points, {space.design.seeds} seeds.")


class Mode(StrEnum):
    """What `ablate cost` prices."""

    training = "training"
    inference = "inference"


@app.command()
def cost(
    block: Annotated[str, typer.Argument(metavar="BLOCK|FILE", help="A named block, a mixer kind, or a space file.")],
    width: Annotated[int | None, typer.Option(min=1, help="Width d [default: 128].")] = None,
    heads: Annotated[int | None, typer.Option(min=1, help="Heads H [default: 4].")] = None,
    context: Annotated[int | None, typer.Option(min=1, help="Tokens L [default: 128].")] = None,
    depth: Annotated[int | None, typer.Option(min=1, help="Blocks, exceptions of layers included.")] = None,
    vocabulary: Annotated[int | None, typer.Option(min=1, help="Token ids; adds embedding and head.")] = None,
    mode: Annotated[Mode, typer.Option(help="A pass over a sequence, or one more token.")] = Mode.training,
    cache: CacheOption = None,
    plugin: PluginOption = None,
    json_: JsonOption = False,
) -> None:
    """Count what a block needs, or every variant of a space: parameters, arithmetic, memory; trains nothing."""
    _load_plugins(plugin)
    from ablate.spec.lookup import find_block, is_block
    from ablate.terminal.cost import cost_json, price_block, price_space, print_cost

    inference = mode is Mode.inference
    sizes = {"width": width, "heads": heads, "context": context, "depth": depth, "vocabulary": vocabulary}
    if is_block(block):
        priced = price_block(
            block,
            width=width or 128,
            heads=heads or 4,
            context=context or 128,
            depth=depth,
            vocabulary=vocabulary or 0,
            inference=inference,
        )
        print(json.dumps(cost_json(priced), indent=2, ensure_ascii=False)) if json_ else print_cost(priced, _console())
        return
    if not block.endswith((".yaml", ".yml")) and not _is_space(block):
        find_block(block)  # says which blocks there are
    given = [name for name, value in sizes.items() if value is not None]
    if given:
        from ablate.errors import SpaceError

        raise SpaceError(
            f"a space has its own `{given[0]}`", where=block, remedy=f"Leave `--{given[0]}` out, or name a block."
        )
    from ablate.spec.reading import load_space
    from ablate.tasks.cache import default_cache

    say = _console(stderr=True)
    variants = price_space(
        load_space(block), cache or default_cache(), lambda line: _print(say, line, style="dim"), inference=inference
    )
    if json_:
        print(json.dumps({"variants": [cost_json(one) for one in variants]}, indent=2, ensure_ascii=False))
    for one in variants if not json_ else ():
        print_cost(one, _console())


@app.command()
def draw(
    block: Annotated[str, typer.Argument(metavar="BLOCK", help="A named block, or a mixer kind.")],
    versus: Annotated[str | None, typer.Option(metavar="OTHER", help="The block to compare it with.")] = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE.svg", help="Write a picture instead.")] = None,
    plugin: PluginOption = None,
    json_: JsonOption = False,
) -> None:
    """Draw a block: its sub-layers, norms, skips and gains; with --versus, what was removed and what was added."""
    _load_plugins(plugin)
    from ablate.drawing import compare, layout, to_svg, to_text
    from ablate.spec.lookup import find_block

    found = find_block(block)
    if versus is None:
        picture = layout(found.name, found.block, bool(found.exceptions))
    else:
        other = find_block(versus)
        picture = compare(other.name, other.block, found.name, found.block)
    if out is not None:
        from ablate.drawing.write import write_svg

        write_svg(out, to_svg(picture))
        print(json.dumps({"picture": str(out)})) if json_ else _print(_console(), f"Wrote {out}.")
        return
    console = _console()
    if json_:
        print(json.dumps(picture.plain(), indent=2, ensure_ascii=False))
    else:
        console.print(to_text(picture), soft_wrap=True)


@app.command()
def check(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="A kind of mixer.")],
    plugin: PluginOption = None,
    json_: JsonOption = False,
) -> int:
    """Try a kind of mixer by every rule that mixers keep; exits with 1 if it breaks one."""
    _load_plugins(plugin)
    from ablate.terminal.check import check_json, check_kind, print_check

    checked = check_kind(kind)
    if json_:
        print(json.dumps(check_json(kind, checked), indent=2, ensure_ascii=False))
    else:
        print_check(kind, checked, _console())
    return 1 if any(one.findings for one in checked) else 0


def _load(file: str, plugins: list[str] | None) -> SpaceSpec:
    _load_plugins(plugins)
    from ablate.spec.reading import load_space

    return load_space(file)


def _is_space(name: str) -> bool:
    from ablate.errors import SpaceError
    from ablate.spec.reading import find_space

    try:
        find_space(name)
    except SpaceError:
        return False
    return True


def _load_plugins(plugins: list[str] | None) -> None:
    from ablate.plugins import load_plugin

    for plugin in plugins or ():
        load_plugin(plugin)


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
