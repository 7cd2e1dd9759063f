"""Commands for spaces and blocks: check, price, time and draw them, and check this machine."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ablate.cli.options import (
    DIFFERENT,
    CacheOption,
    DataOption,
    DeviceOption,
    JsonOption,
    PluginOption,
    SpaceArgument,
    is_space,
    load_plugins,
    load_space,
    picture_file,
)
from ablate.errors import AblateError, EngineError, SpaceError
from ablate.extras import require
from ablate.locations import write_file
from ablate.nn.kernels.processor import keep_freed_memory
from ablate.render.terminal.console import make_console, print_json, say

if TYPE_CHECKING:
    from ablate.spec.lookup import FoundBlock


def validate(
    file: SpaceArgument, data: DataOption = None, plugin: PluginOption = None, json_: JsonOption = False
) -> None:
    """Check a space file, or a named model, without touching data; says what is wrong with file, line and column."""
    load_plugins(plugin)
    from ablate.spec.lookup import find_model, is_model
    from ablate.spec.named import is_model_file

    if is_model_file(file) or (is_model(file) and not is_space(file)):
        from ablate.render.terminal.kinds import model_json, model_line

        model = find_model(file)
        if json_:
            print_json(model_json(model), indent=None)
        else:
            say(make_console(), model_line(model))
        return
    from ablate.planning.plan import check_points
    from ablate.planning.planner import Planner
    from ablate.render.terminal.plan import lines, validate_json

    space = load_space(file, None, data)
    planner = Planner(space, Path(), lambda line: None)
    seen = check_points(space, planner.design(), planner.costs.starting)
    if json_:
        print_json(validate_json(space, seen), indent=None)
    for line in lines(file, space, seen) if not json_ else ():
        say(make_console(), line)


def _with_json(incomplete: str) -> list[str]:
    """What prints JSON, for the completion of a shell."""
    from ablate.render.terminal.outputs import OUTPUTS

    return list(OUTPUTS)


def schema(
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            metavar="COMMAND",
            help="Schema of what this command prints with --json; `error`: of what any command prints of a mistake.",
            show_default="of a space file",
            autocompletion=_with_json,
        ),
    ] = None,
    plugin: PluginOption = None,
) -> None:
    """Print the JSON Schema of a space file, with which an editor completes and underlines, or of an output.

    Outputs have a version: it is raised when a key is removed or means something else, but not when one is added.
    """
    if output is not None:
        from ablate.render.terminal.outputs import output_schema

        print_json(output_schema(output), indent=None)
        return
    load_plugins(plugin)
    from ablate.spec.schema import space_schema

    print_json(space_schema(), indent=None)


def data_(
    file: SpaceArgument,
    data: DataOption = None,
    cache: CacheOption = None,
    plugin: PluginOption = None,
    json_: JsonOption = False,
) -> None:
    """Show what a space will train on: rows, tokens, lengths, labels, samples, fingerprint, trivial baselines."""
    from ablate.locations import cache_folder
    from ablate.render.terminal.cost import data_json, print_data

    space = load_space(file, plugin, data)
    folder, progress = cache or cache_folder(), make_console(stderr=True)
    described = []
    for name, spec in space.task_specs.items():
        task = spec.open(folder, spec.prepare(folder, lambda line: say(progress, line, style="dim")))
        address = str(getattr(spec, "data", spec.kind_name()))
        if json_:
            described.append(data_json(space.name, name, address, task, space.departs))
        else:
            print_data(f"{name}: {address}" if name else address, task, space.departs, make_console())
    if json_:
        print_json(described if space.tasks else described[0])


def _families(incomplete: str) -> list[str]:
    """The families, for the completion of a shell."""
    from ablate.plugins import FAMILIES

    return [*FAMILIES, "blocks", "models"]


def kinds(
    family: Annotated[
        str | None,
        typer.Argument(
            metavar="FAMILY",
            help="A family such as mixers, or blocks or models.",
            show_default="the names of all",
            autocompletion=_families,
        ),
    ] = None,
    plugin: PluginOption = None,
    json_: JsonOption = False,
) -> None:
    """List what a space can name: the kinds of a family with their facts (of a mixer its cost class and source)."""
    from ablate.render.terminal.kinds import kinds_json, print_kinds

    load_plugins(plugin)
    if json_:
        print_json(kinds_json(family))
    else:
        print_kinds(make_console(), family)


def _size(option: str, meaning: str, default: str) -> Any:
    return typer.Option(option, metavar="N", min=1, help=meaning, show_default=default)


class Mode(StrEnum):
    """What `ablate cost` prices."""

    training = "training"
    inference = "inference"


def cost(
    block: Annotated[
        str, typer.Argument(metavar="BLOCK|MODEL|SPACE", help="A named block or model, a mixer kind, or a space.")
    ],
    width: Annotated[int | None, _size("--width", "Width d.", "128")] = None,
    heads: Annotated[int | None, _size("--heads", "Heads H.", "4")] = None,
    context: Annotated[int | None, _size("--context", "Tokens L.", "128; of a model, its longest input")] = None,
    depth: Annotated[int | None, _size("--depth", "Blocks, exceptions of layers included.", "one block")] = None,
    vocab_size: Annotated[int | None, _size("--vocab-size", "Token ids; adds embedding and head.", "neither")] = None,
    mode: Annotated[Mode, typer.Option("--mode", help="A pass over a sequence, or one more token.")] = Mode.training,
    data: DataOption = None,
    cache: CacheOption = None,
    plugin: PluginOption = None,
    json_: JsonOption = False,
) -> None:
    """Count what a block, a model or every variant of a space needs: parameters, FLOPs, memory; trains nothing."""
    load_plugins(plugin)
    from ablate.render.terminal.cost import cost_json, price_block, price_model, price_space, print_cost
    from ablate.spec.lookup import find_block, is_block, is_model

    inference = mode is Mode.inference
    sizes = {"width": width, "heads": heads, "context": context, "depth": depth, "vocab-size": vocab_size}
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
            vocabulary=vocab_size or 0,
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
        print_json({"variants": [cost_json(variant) for variant in variants]})
    for variant in variants if not json_ else ():
        print_cost(variant, make_console())


def bench(
    blocks: Annotated[list[str], typer.Argument(metavar="BLOCK", help="Named blocks, or mixer kinds.")],
    width: Annotated[int, typer.Option("--width", metavar="N", min=1, help="Width d.")] = 128,
    heads: Annotated[int, typer.Option("--heads", metavar="N", min=1, help="Heads H.")] = 4,
    context: Annotated[str, typer.Option("--context", metavar="N,...", help="Tokens L.")] = "128,512,2048",
    batch: Annotated[int, typer.Option("--batch", metavar="N", min=1, help="Sequences at once.")] = 4,
    whole: Annotated[bool, typer.Option("--whole", help="The whole block, not its mixer alone.")] = False,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Draw time against L: a file .svg, .png or .pdf.")
    ] = None,
    device: DeviceOption = "auto",
    plugin: PluginOption = None,
    json_: JsonOption = False,
) -> None:
    """Time blocks side by side, forward and backward: tokens a second, peak memory, FLOPs, growth with L."""
    # The profiler that measures memory would say when it starts and stops; torch reads these when it is loaded.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    keep_freed_memory()  # as workers do, so that what is timed is what training takes
    load_plugins(plugin)
    from ablate.render.terminal.measures import FIGURES, bench_json, draw_bench, parse_lengths, print_bench
    from ablate.timing import Setting, device_of, measure

    tokens = parse_lengths(context)
    figure = None if out is None else picture_file("--out", out, FIGURES)
    if figure is not None:
        require("figures", "a picture of the measurements", where=f"--out {out}")  # before minutes of measuring
    setting = Setting(width, heads, batch, device_of(device), whole)
    progress = make_console(stderr=True)
    names = list(dict.fromkeys(blocks))
    measured = measure(names, tokens, setting)
    rows = []
    for row in measured:
        say(progress, f"{row.block} at {row.length:,} tokens", style="dim")
        rows.append(row)
    if json_:
        print_json(bench_json(rows, setting))
    else:
        print_bench(rows, setting, make_console())
    if figure:
        draw_bench(rows, figure)
        say(progress, f"Wrote {figure}")


def inspect(
    model: Annotated[
        str, typer.Argument(metavar="MODEL|SPACE", help="A named model or its file; or a space: its baseline.")
    ],
    variant: Annotated[
        str | None, typer.Option("--variant", metavar="NAME", help="A variant of the space instead of its baseline.")
    ] = None,
    seeds: Annotated[int, typer.Option("--seeds", metavar="N", min=1, max=100, help="Draws of the weights.")] = 3,
    context: Annotated[int | None, _size("--context", "Tokens of a model's input.", "128, or its longest")] = None,
    data: DataOption = None,
    cache: CacheOption = None,
    plugin: PluginOption = None,
    json_: JsonOption = False,
) -> None:
    """Show how signal and gradients grow with depth before any training: their size, rank, outliers, attention.

    A space is measured on its first validation windows, a model on uniformly random tokens. Numbers are means over the
    seeds.
    """
    load_plugins(plugin)
    from ablate.execution.inspecting import inspect_model, inspect_space
    from ablate.render.terminal.measures import inspect_json, print_inspected
    from ablate.spec.lookup import is_model
    from ablate.spec.named import is_model_file

    if is_model_file(model) or (is_model(model) and not is_space(model)):
        for option, given in {"--variant": variant, "--data": data}.items():
            if given is not None:
                raise SpaceError("only a space has this", where=option, remedy="Leave it out, or name a space.")
        found = inspect_model(model, context, seeds)
    else:
        if context is not None:
            raise SpaceError("a space has its own context", where="--context", remedy="Leave it out, or name a model.")
        from ablate.locations import cache_folder

        progress = make_console(stderr=True)
        space = load_space(model, None, data)
        found = inspect_space(
            space, variant, seeds, cache or cache_folder(), lambda line: say(progress, line, style="dim")
        )
    print_json(inspect_json(found)) if json_ else print_inspected(found, make_console())


def doctor(
    device: DeviceOption = "auto",
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The file to attach to a report.")] = Path(
        "ablate-doctor.json"
    ),
    json_: JsonOption = False,
) -> int:
    """Check this machine: versions, memory, and whether every fast path gives the same results as the plain one.

    It trains a small model for seconds in each way, prints a table and writes the same as JSON. Exit codes: 0 fine, 1
    something differs.
    """
    # The profiler that measures memory would say when it starts and stops; torch reads these when it is loaded.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    if not out.absolute().parent.is_dir():
        raise EngineError("there is no such folder", where=f"--out {out}", remedy="Create it, or name another file.")
    if out.is_dir():
        raise EngineError("this is a folder", where=f"--out {out}", expected="a file", remedy="Name a file in it.")
    from ablate.execution.doctor import examine
    from ablate.execution.environment import choose_device
    from ablate.render.terminal.studies import print_findings

    chosen, progress = choose_device(device), make_console(stderr=True)
    findings = []
    for finding in examine(chosen):
        say(progress, f"{finding.name}: {finding.state}", style="dim")
        findings.append(finding)
    results = {"device": chosen, "findings": [asdict(finding) for finding in findings]}
    write_file(out, (json.dumps(results, indent=2) + "\n").encode())
    if json_:
        print_json(results)
    else:
        print_findings(findings, make_console())
        say(progress, f"Wrote {out}")
    return DIFFERENT if any(finding.state == "differs" for finding in findings) else 0


def draw(
    block: Annotated[
        str,
        typer.Argument(
            metavar="BLOCK|MODEL|SPACE", help="A named block or model, a mixer kind, or a space: its baseline."
        ),
    ],
    versus: Annotated[
        str | None, typer.Option("--versus", metavar="OTHER", help="The block, model or space to compare it with.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE.svg", help="Write a picture instead.")] = None,
    plugin: PluginOption = None,
    json_: JsonOption = False,
) -> None:
    """Draw a block, or the main one of a model: sub-layers, norms, skips, gains; with --versus, what was changed."""
    picture = None if out is None else picture_file("--out", out)
    load_plugins(plugin)
    from ablate.render.drawing import compare, layout, to_svg, to_text

    named = _block_to_draw(block)
    if versus is None:
        drawn = layout(named.name, named.block, bool(named.exceptions))
    else:
        other = _block_to_draw(versus)
        drawn = compare(other.name, other.block, named.name, named.block)
    if picture is not None:
        from ablate.render.drawing.svg import write_svg

        write_svg(picture, to_svg(drawn))
        print_json({"picture": str(picture)}, indent=None) if json_ else say(make_console(), f"Wrote {picture}.")
        return
    console = make_console()
    if json_:
        print_json(drawn.plain())
    else:
        console.print(to_text(drawn), soft_wrap=True)


def _block_to_draw(name: str) -> FoundBlock:
    """The block of a name: of a block, a model or a mixer kind, or of the baseline of a space."""
    from ablate.spec.lookup import block_of_model, find_block, is_block, is_model

    if is_model(name) or is_block(name) or not (name.endswith((".yaml", ".yml")) or is_space(name)):
        return find_block(name)
    space = load_space(name, None)
    return block_of_model(space.name, space.question, space.resolve({}).model)


def check_kind(
    kind: Annotated[
        str | None,
        typer.Argument(metavar="KIND", help="A kind of any family; `ablate kinds` lists them.", show_default=False),
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
        typer.Option("--set", metavar="NAME=VALUE", help="The value of a field; repeatable."),
    ] = None,
    json_: JsonOption = False,
) -> int:
    """Check a kind, or all kinds, by every rule of its family; exits with 1 if a rule is broken."""
    if (kind is None) != all_:
        raise AblateError(
            "one kind is checked, or all of them",
            where="ablate check-kind",
            expected="KIND or --all",
            got="neither" if kind is None else "both",
            remedy="Write `ablate check-kind KIND` or `ablate check-kind --all`.",
        )
    load_plugins(plugin)
    from ablate.contracts.checking import UntriedKind, check_all
    from ablate.contracts.checking import check_kind as check_one
    from ablate.render.terminal.kinds import check_json, print_check

    values = parsed_values(set_ or ())
    console, kept, reports = make_console(), True, []
    for checked in check_all(family, values) if kind is None else [check_one(kind, family, values)]:
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
            raise AblateError("this gives no field a value", where="--set", expected="NAME=VALUE", got=repr(text))
        try:
            values[name] = json.loads(value)
        except ValueError:
            values[name] = value
    return values


def import_(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder with config.json and safetensors files.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Write a model file (YAML) here.", show_default="printed"),
    ] = None,
    verify: Annotated[
        bool,
        typer.Option("--verify/--no-verify", help="Compare logits with those of transformers on random inputs."),
    ] = True,
    config_only: Annotated[
        bool, typer.Option("--config-only", help="Read the settings alone: the model starts from random weights.")
    ] = False,
    plugin: PluginOption = None,
    json_: JsonOption = False,
) -> None:
    """Read a Hugging Face model: its settings as a model of a space, its weights under ablate's names.

    The logits are compared with those of transformers; the exit code is 1 if they differ by more than rounding.
    """
    if out is not None and out.exists():
        raise AblateError("this file already exists", where=f"--out {out}", remedy="Name another one.")
    if out is not None and not out.parent.is_dir():
        raise AblateError("its folder does not exist", where=f"--out {out}", remedy="Create the folder first.")
    from ablate.render.terminal.kinds import compared_line, imported_json, model_file, summary
    from ablate.trained.hugging_face.check import compare
    from ablate.trained.hugging_face.checkpoint import read_config, read_tensors

    load_plugins(plugin)
    imported = read_config(folder)
    compared = None
    if verify and not config_only and not imported.architecture.own:
        compared = compare(folder, imported)
    elif not config_only:
        read_tensors(folder, imported)
    text = model_file(imported, folder.absolute(), weights=not config_only)
    if out is not None:
        write_file(out, text.encode())
    if json_:
        said: dict[str, Any] = {"compared": compared is not None, "same": None, "max_difference": None}
        if compared is not None:
            finite = compared.difference if math.isfinite(compared.difference) else None
            said |= {"same": compared.same, "max_difference": finite, "bound": compared.bound}
        print_json({**imported_json(imported), "space": None if out is None else str(out), **said})
    else:
        console = make_console(stderr=out is None)
        if out is None:
            print(text, end="")
        else:
            say(console, f"{summary(imported)}. Wrote {out}.")
        say(console, compared_line(imported, compared, weights=not config_only))
    if compared is not None and not compared.same:
        raise typer.Exit(DIFFERENT)
