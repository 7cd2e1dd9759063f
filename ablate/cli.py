"""The command line: parse, call, print. Whatever is heavy is imported where it is used."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ablate.engine.command_line import command
from ablate.engine.interrupt import heed_early_interrupts
from ablate.errors import AblateError
from ablate.terminal.writing import generate, translate

if TYPE_CHECKING:
    from rich.console import Console

    from ablate.engine.study import StudyResult
    from ablate.report import StudyReport
    from ablate.spec.design import SeedsSpec
    from ablate.spec.space import SpaceSpec

app = typer.Typer(
    name="ablate",
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

REFUTED, DIFFERENT, FAILED, INTERRUPTED = 1, 1, 3, 130
DEFAULT_STORE = "studies/ablate.db"

SpaceArgument = Annotated[
    str, typer.Argument(metavar="FILE", help="A space file, or the name of a ready space such as simplify_block.")
]
StudyArgument = Annotated[str, typer.Argument(metavar="STUDY", help="Name of a study; `ablate list` shows them.")]
SideArgument = Annotated[
    str, typer.Argument(help="STUDY/VARIANT, the beginning of a trial's key, or a space file (a path).")
]
StoreOption = Annotated[str, typer.Option("--store", help="Where studies are kept: a file, or an SQLAlchemy URL.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for a program.")]
PluginOption = Annotated[
    list[str] | None,
    typer.Option("--plugin", metavar="FILE.py", help="A file with kinds of your own; may be given several times."),
]
CacheOption = Annotated[
    Path | None,
    typer.Option("--cache", help="Folder of prepared data.", show_default="$ABLATE_CACHE, or the user's cache"),
]
DeviceOption = Annotated[str, typer.Option("--device", help="Where to train: auto, cpu or cuda.")]
WorkersOption = Annotated[
    int | None,
    typer.Option("--workers", min=1, help="Processes that train.", show_default="one for each core, or each GPU"),
]
ThreadsOption = Annotated[int, typer.Option("--threads", min=1, help="Threads of each process.")]
DataOption = Annotated[
    str | None,
    typer.Option("--data", metavar="SOURCE", help="Data in place of the space's: file:PATH, hub:NAME or builtin:NAME."),
]

# typer brings its own copy of click, older versions use click itself; both tell a wrong command line with this.
_UsageError: type[Exception] = typer.BadParameter.__bases__[0]


def main() -> None:
    """Run a command; a user's mistake is one paragraph on stderr and exit code 2."""
    heed_early_interrupts()
    debug = "--debug" in sys.argv
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    group = typer.main.get_command(app)
    try:
        with group.make_context("ablate", arguments) as context:
            code = group.invoke(context)
        sys.stdout.flush()
    except typer.Exit as end:
        code = end.exit_code
    except KeyboardInterrupt:
        print("\nInterrupted. Nothing that was finished is lost; the same command goes on.", file=sys.stderr)
        code = INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # whoever read the output has gone
        code = 1
    except (AblateError, _UsageError) as error:
        if debug:
            raise
        mistake = error if isinstance(error, AblateError) else _usage_mistake(error)
        _console(stderr=True).print(_paragraph(mistake), soft_wrap=True)
        code = mistake.exit_code
    sys.exit(code)


@app.callback(invoke_without_command=True)
def options(
    context: typer.Context,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Find out which parts of a Transformer block are needed.

    Start with `ablate study simplify_block`, or with `ablate new NAME`.
    """
    if context.invoked_subcommand is None:
        print(context.get_help())


@app.command()
def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the new space; NAME.yaml is written here.")],
    json_: JsonOption = False,
) -> None:
    """Write a commented space to start from."""
    from ablate.terminal.next_steps import print_next_steps
    from ablate.terminal.template import write_template

    path = str(write_template(name, Path()))
    if json_:
        print(json.dumps({"space": path}))
        return
    steps = {
        command("plan", path): "what it would train, and how long that takes",
        command("study", path): "train it and see the answer",
    }
    print_next_steps(_console(), f"Wrote {path}. Change it to your question, then:", steps)


@app.command()
def study(
    file: SpaceArgument,
    data: DataOption = None,
    store: StoreOption = DEFAULT_STORE,
    device: DeviceOption = "auto",
    workers: WorkersOption = None,
    threads: ThreadsOption = 1,
    cache: CacheOption = None,
    plugin: PluginOption = None,
    json_: JsonOption = False,
) -> int:
    """Train what a space asks for and answer its question.

    Run it again to go on where it stopped: what is finished is in the store and is not trained again. With --json the
    progress goes to stderr and the last line of stdout is an object. Exit codes: 0 fine, 2 a mistake in what was
    asked, 3 some trials failed, 130 interrupted.
    """
    from ablate.api import run
    from ablate.terminal.live import Display

    space = _load(file, plugin, data)
    console = _console(stderr=json_)
    with Display(console) as display:
        result = run(
            space,
            store=store,
            device=device,
            workers=workers,
            threads=threads,
            cache=cache,
            plugins=tuple(plugin or ()),
            observer=display,
        )
    if json_:
        counts = {key: value for key, value in asdict(result).items() if key != "interrupted"}
        print(json.dumps(counts | {"seconds": round(result.seconds, 3)}), flush=True)
    elif not result.interrupted:
        console.print()
        _print_table(store, result.study, console)
    _print_ending(result, store, console)
    return INTERRUPTED if result.interrupted else FAILED if result.failed else 0


@app.command()
def plan(
    file: SpaceArgument,
    data: DataOption = None,
    store: StoreOption = DEFAULT_STORE,
    cache: CacheOption = None,
    plugin: PluginOption = None,
    json_: JsonOption = False,
) -> None:
    """List every trial of a space with its cost and an estimate of time; trains nothing.

    Points whose settings make no model are counted with their reasons. The data is prepared, once, as `study` does.
    """
    from ablate.engine.forecast import forecast
    from ablate.engine.plan import Planner, make_plan
    from ablate.tasks.cache import default_cache
    from ablate.terminal.plan import plan_json, print_plan

    space = _load(file, plugin, data)
    progress = _console(stderr=True)
    made = make_plan(Planner(space, cache or default_cache(), lambda line: _print(progress, line, style="dim")))
    estimate = forecast(made, store)
    if json_:
        print(json.dumps(plan_json(made, estimate), indent=2, ensure_ascii=False))
    else:
        print_plan(made, estimate, _console())


@app.command()
def show(
    study: StudyArgument,
    store: StoreOption = DEFAULT_STORE,
    svg: Annotated[Path | None, typer.Option("--svg", metavar="FILE", help="Write the table as a picture.")] = None,
    json_: JsonOption = False,
) -> None:
    """Show the table and the answer of a study, finished or not."""
    from ablate.report.as_json import study_json, to_text
    from ablate.report.table import study_svg

    if svg is not None:
        picture = study_svg(_read(store, study))
        try:
            svg.write_text(picture, encoding="utf-8")
        except OSError as error:
            raise AblateError(f"the picture cannot be written ({error.strerror})", where=str(svg)) from None
    if json_:
        print(to_text(study_json(_read(store, study))))
    elif svg is None:
        _print_table(store, study, _console())


@app.command()
def report(
    study: StudyArgument,
    store: StoreOption = DEFAULT_STORE,
    format_: Annotated[
        str, typer.Option("--format", metavar="FORMAT", help="terminal, md, html, latex, csv or json.")
    ] = "terminal",
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Folder for the report and its figures.", show_default="printed"),
    ] = None,
) -> None:
    """Report a study: answer, table, figures, claims, environment, cost, and how to reproduce it."""
    from ablate.report.findings import read_findings
    from ablate.report.formats import find_format
    from ablate.report.writing import render_report, write_report
    from ablate.store import open_store

    find_format(format_)  # a mistake in the command line is told before the store is read
    with open_store(store, create=False) as opened:
        findings = read_findings(opened, study)
    if out is None:
        sys.stdout.write(render_report(findings, format_))
        return
    for path in write_report(findings, format_, out):
        _print(_console(), str(path))


@app.command()
def claims(
    study: StudyArgument,
    store: StoreOption = DEFAULT_STORE,
    check: Annotated[bool, typer.Option("--check", help="Exit with 1 if a claim is refuted.")] = False,
    json_: JsonOption = False,
) -> int:
    """Show what became of the claims of a study: supported, refuted or undecided."""
    from ablate.report.as_json import claims_json, to_text
    from ablate.report.claim_lines import print_claims

    found = _read(store, study).claims
    if json_:
        print(to_text(claims_json(found)))
    elif found:
        print_claims(found, _console())
    else:
        _print(_console(), f"{study} claims nothing. To claim something, write `claims:` in its space file.")
    return REFUTED if check and any(claim.verdict == "refuted" for claim in found) else 0


@app.command()
def calibrate(
    study: StudyArgument,
    store: StoreOption = DEFAULT_STORE,
    json_: JsonOption = False,
) -> None:
    """Say how large a difference how many seeds can tell, at the noise of a study's own trials."""
    from ablate.report.as_json import to_text
    from ablate.report.calibration import calibration_json, print_calibration, read_calibration
    from ablate.store import open_store

    with open_store(store, create=False) as opened:
        found = read_calibration(opened, study)
    if json_:
        print(to_text(calibration_json(found)))
    else:
        print_calibration(found, _console())


@app.command()
def reproduce(
    trial: Annotated[str, typer.Argument(metavar="TRIAL", help="The beginning of a trial's key.")],
    store: StoreOption = DEFAULT_STORE,
    device: DeviceOption = "auto",
    threads: ThreadsOption = 1,
    cache: CacheOption = None,
    plugin: PluginOption = None,
    json_: JsonOption = False,
) -> int:
    """Train a stored trial again, from its record alone, and say whether the curve is the same.

    The store is only read. Exit codes: 0 the same (identical, or equal within a tolerance), 1 different, 2 it cannot
    be done. `ablate diff STUDY/VARIANT STUDY/VARIANT` shows the keys of trials.
    """
    from ablate.engine.environment import choose_device, describe_environment
    from ablate.engine.local import LocalEngine
    from ablate.engine.reproduce import reproduce as train_again
    from ablate.report.as_json import to_text
    from ablate.store import open_store
    from ablate.tasks.cache import default_cache
    from ablate.terminal.reproduce import print_reproduction, reproduction_json

    _load_plugins(plugin)
    chosen, folder, progress = choose_device(device), cache or default_cache(), _console(stderr=True)
    with (
        open_store(store, create=False) as opened,
        LocalEngine(folder, chosen, 1, threads, tuple(plugin or ())) as engine,
        progress.status("Training it again") as status,
    ):
        found = train_again(
            trial,
            opened,
            folder,
            engine,
            describe_environment(chosen),
            say=lambda line: _print(progress, line, style="dim"),
            moved=lambda step, steps: status.update(f"Training it again: step {step} of {steps}"),
        )
    if json_:
        print(to_text(reproduction_json(found)))
    else:
        print_reproduction(found, _console())
    return DIFFERENT if found.verdict == "different" else 0


@app.command()
def diff(
    left: SideArgument,
    right: SideArgument,
    store: StoreOption = DEFAULT_STORE,
    plugin: PluginOption = None,
    json_: JsonOption = False,
) -> None:
    """Say what differs between two variants, trials or space files: in spec, environment and result."""
    from ablate.report.as_json import to_text
    from ablate.report.diff import diff_json, read_diff
    from ablate.terminal.diff import print_diff

    _load_plugins(plugin)
    found = read_diff(left, right, store)
    if json_:
        print(to_text(diff_json(found)))
    else:
        print_diff(found, _console())


@app.command("list")
def list_(store: StoreOption = DEFAULT_STORE, json_: JsonOption = False) -> None:
    """List the studies of the store."""
    from ablate.report.as_json import studies_json, to_text
    from ablate.report.table import studies_table
    from ablate.store import open_store

    with open_store(store, create=False) as opened:
        studies = opened.studies()
    console = _console()
    if json_:
        print(to_text(studies_json(studies)))
    elif studies:
        console.print(studies_table(studies, console))
    else:
        _print(console, f"{store} holds no study yet. Run one: {command('study', 'simplify_block', *_flag(store))}")


@app.command()
def kinds(plugin: PluginOption = None, json_: JsonOption = False) -> None:
    """List what a space can name: mixers with their cost class and source, tasks, designs, blocks."""
    from ablate.terminal.kinds import kinds_json, print_kinds

    _load_plugins(plugin)
    if json_:
        print(json.dumps(kinds_json(), indent=2, ensure_ascii=False))
    else:
        print_kinds(_console())


@app.command()
def schema(plugin: PluginOption = None) -> None:
    """Print the JSON Schema of a space file, with which an editor completes and underlines."""
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
    from ablate.engine.plan import Planner

    space = _load(file, plugin, data)
    points = Planner(space, Path(), lambda line: None).design().points()
    missing = space.task.missing()
    if json_:
        print(json.dumps({"space": space.name, "valid": True, "points": len(points), "missing": missing}))
    else:
        _print(_console(), f"{file} is a valid space: {len(points)} points, {_seeds(space.design.seeds)}.")
        if missing:
            _print(_console(), f"Its data is missing: {missing}")


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


app.command()(generate)
app.command()(translate)


def _load(file: str, plugins: list[str] | None, data: str | None = None) -> SpaceSpec:
    _load_plugins(plugins)
    from ablate.spec.reading import load_space

    return load_space(file, data=data)


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


def _read(store: str, study: str) -> StudyReport:
    from ablate.report import read_study
    from ablate.store import open_store

    with open_store(store, create=False) as opened:
        return read_study(opened, study)


def _print_table(store: str, study: str, console: Console) -> None:
    from ablate.report.table import print_study

    print_study(_read(store, study), console)


def _print_ending(result: StudyResult, store: str, console: Console) -> None:
    """What to type next: the same command while something is left to do, and else what the study leads to."""
    from ablate.terminal.next_steps import print_next_steps

    console.print()
    again = {command(*sys.argv[1:]): ""}
    if result.interrupted:
        done = result.trained + result.reused + result.diverged
        print_next_steps(console, f"Stopped with {done} of {result.trials} trials done; they are stored. Go on:", again)
    elif result.failed:
        print_next_steps(console, f"{result.failed} of {result.trials} trials failed. Try them again:", again)
    else:
        steps = {
            command("show", result.study, *_flag(store)): "this table again; --json for a program",
            command("new", "my_question"): "a space of your own to start from",
        }
        print_next_steps(console, "Next:", steps)


def _seeds(seeds: int | SeedsSpec) -> str:
    return f"each with {seeds} seeds" if isinstance(seeds, int) else f"each with {seeds.start} to {seeds.max} seeds"


def _flag(store: str) -> list[str]:
    return [] if store == DEFAULT_STORE else ["--store", store]


def _console(*, stderr: bool = False) -> Console:
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, soft_wrap=False)


def _print(console: Console, line: str, **style: Any) -> None:
    from rich.text import Text

    console.print(Text(line, **style), soft_wrap=True)


def _paragraph(error: AblateError) -> Any:
    from rich.text import Text

    return Text.assemble(("Error: ", "bold red"), str(error))


def _usage_mistake(error: Any) -> AblateError:
    """A mistake on the command line itself, such as an unknown option."""
    where = error.ctx.command_path if error.ctx else "ablate"
    return AblateError(error.format_message(), where=where, remedy=f"`{where} --help` shows what it takes.")


if __name__ == "__main__":
    main()
