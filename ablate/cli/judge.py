"""`ablate judge`: verdicts on runs that were trained elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, Any

import typer

from ablate.cli.options import JsonOption
from ablate.errors import ArgumentError
from ablate.execution.options import show_parameters
from ablate.locations import typed_path


def _key(kind: Any, metavar: str | None, meaning: str, *names: str, **shown: Any) -> Any:
    return Annotated[kind | None, typer.Option(*names, metavar=metavar, help=meaning, **shown)]


_KEYS = {
    "variant": _key(list[str], "COLUMN", "What is compared; `*`: all but the rest; repeatable."),
    "seed": _key(str, "COLUMN", "The seed of a run."),
    "unit": _key(str, "COLUMN", "What is repeated instead of seeds, such as tasks."),
    "over": _key(list[str], "COLUMN", "Average over it: folds, episodes; repeatable."),
    "step": _key(list[str], "COLUMN", "The step, if runs have a row for each; repeatable."),
    "metric": _key(list[str], "COLUMN", "What is compared; each is a question; repeatable."),
    "baseline": _key(str, "VARIANT", "Compare with it."),
    "margin": _key(float, "NUMBER", "How much worse matters, in the metric's unit."),
    "direction": _key(str, "lower|higher", "Which is better."),
    "at": _key(str, "last|shared|best|first|STEP", "Which evaluation counts."),
    "reach": _key(str, "'METRIC >= X'", "Compare at the first that reaches it."),
    "each": _key(str, "COLUMN", "A question for each value."),
    "aggregate": _key(bool, None, "Also the mean over those, each as a unit.", "--aggregate"),
    "where": _key(list[str], "COLUMN=TEXT", "Only rows with this text; repeatable."),
    "failed": _key(list[str], "COLUMN=TEXT", "Rows with this text are failed runs; repeatable."),
    "input": _key(str, "FORMAT", "Of the files, where the ending does not say it."),
    "header": _key(int, "ROWS", "Header rows of a CSV file, joined with a dot."),
    "decimal": _key(str, ". or ,", "The decimal sign of a CSV file."),
    "path": _key(str, "REGEX", "Columns from the path of a file: `(?P<variant>...)`."),
    "line": _key(str, "REGEX", "Columns from a line of a text log."),
    "columns": _key(str, "REGEX", "A column for each seed: rows from names such as `seed_(?P<seed>...)`."),
    "paired": _key(
        bool, None, "Whether equal seeds share something.", "--paired/--unpaired", show_default="by what is shared"
    ),
    "repeated": _key(str, "first|last", "Which row counts if a step is there twice."),
    "chosen": _key(list[str], "VARIANT", "It was selected by these very results: no verdict; repeatable."),
    "holm": _key(str, "question|all", "Over what verdicts hold jointly."),
    "allow": _key(list[str], "TRAP", "Turn a refusal into a warning; repeatable."),
}
"""Options that give a key of a description."""
_OTHER_NAMES = {"input": "format", "paired": "pair"}
"""Option to its key, where the names differ."""


def _with_keys(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of `_KEYS`, which it takes as `**keys`; they stand before its own."""
    table, *others, _ = signature(command, eval_str=True).parameters.values()
    keys = [Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=kind) for name, kind in _KEYS.items()]
    return show_parameters(command, [table, *keys, *others])


@_with_keys
def judge(
    table: Annotated[
        list[str],
        typer.Argument(metavar="TABLE", help="Files or patterns, addresses as wandb:ENTITY/PROJECT, or descriptions."),
    ],
    *,
    data: Annotated[
        Path | None,
        typer.Option("--data", metavar="DIR", help="The folder of the files.", show_default="that of the description"),
    ] = None,
    why: Annotated[
        str | None, typer.Option("--why", metavar="VARIANT", help="Explain one verdict, run by run.")
    ] = None,
    table_: Annotated[bool, typer.Option("--table", help="Show the table of each question.")] = False,
    checks: Annotated[bool, typer.Option("--checks", help="Show all that supports or limits the verdicts.")] = False,
    all_: Annotated[bool, typer.Option("--all", help="Show every row of a long answer or table.")] = False,
    format_: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="Write one report (md, html, latex, csv, json ...), or slides of each question.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Folder for the report.", show_default="printed")
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(
            "--store",
            metavar="STORE",
            help="Keep the runs as a study, beside others: a file, or an SQLAlchemy URL.",
            show_default="not kept",
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(
            "--name", metavar="NAME", help="Name of the study that `--store` keeps.", show_default="that of the table"
        ),
    ] = None,
    json_: JsonOption = False,
    **keys: Any,
) -> None:
    """Judge runs that exist: the same verdicts as of a study, for any trainer.

    The table is CSV, TSV, JSON, JSON lines, Parquet, a text log, a folder of lm-eval results, a TensorBoard event
    file, or runs of W&B, MLflow, trackio or Aim. What options cannot say stands in a description. Several files make
    one table; several descriptions make one answer, and one report.
    """
    from ablate.tables.judging import judge_named

    keys = {option: value for option, value in keys.items() if value is not None}
    judged = judge_named(table, _description(**keys), data, "ablate judge")
    stem = "_".join(typed_path(file).stem for file in table)
    if store is not None:
        _keep(judged, store, name or stem)
    elif name is not None:
        raise ArgumentError("only a study that is kept has a name", where="--name", remedy="Add `--store STORE`.")
    again = [*table, *(["--data", str(data)] if data else []), *_as_arguments(keys)]
    if format_ is not None:
        _report(judged, format_, out, stem)
        return
    _show(judged, again, why=why, table=table_, checks=checks, all_=all_, json_=json_)


def _description(metric: list[str] | None = None, at: str | None = None, **keys: Any) -> dict[str, Any]:
    """The keys of a description that options give."""
    from ablate.tables.description import RunTableSpec

    for name in ("where", "failed"):
        if name in keys:
            keys[name] = _cells(f"--{name}", keys[name])
    keys = {_OTHER_NAMES.get(name, name): value for name, value in keys.items()}
    if at is not None:
        keys["at"] = int(at) if at.isdigit() else at
    if metric and len(metric) == 1:
        keys["metric"] = metric[0]
    elif metric:
        keys["questions"] = {name: {} for name in metric}
    table = {name: keys.pop(name) for name in keys.keys() & RunTableSpec.model_fields}
    return keys | {"table": table}


def _as_arguments(keys: dict[str, Any]) -> list[str]:
    """The options as they were typed, for a command that shows more."""
    words = []
    for option, value in keys.items():
        if isinstance(value, bool):
            words.append(f"--{option}" if value else "--unpaired")
        else:
            for text in value if isinstance(value, list) else [value]:
                words += [f"--{option}", str(text)]
    return words


def _cells(option: str, texts: list[str]) -> dict[str, list[str]]:
    cells: dict[str, list[str]] = {}
    for text in texts:
        column, equals, value = text.partition("=")
        if not equals:
            raise ArgumentError("this names no text", where=option, expected="COLUMN=TEXT", got=repr(text))
        cells.setdefault(column, []).append(value)
    return cells


def _show(
    judged: Any,
    typed: list[str],
    *,
    why: str | None,
    table: bool,
    checks: bool,
    all_: bool,
    json_: bool,
) -> None:
    from ablate.render.answer import print_answer, print_why
    from ablate.render.as_json import judged_json, why_json
    from ablate.render.table import MOST_ROWS, print_checks, print_table
    from ablate.render.terminal.console import make_console, print_json
    from ablate.tables.answering import answer_of_table, read_reports, why_of_table

    reports, console = read_reports(judged), make_console()
    if why is not None:
        explained = why_of_table(judged, reports, why)
        print_json(why_json(explained)) if json_ else print_why(explained, console)
    elif json_:
        print_json(judged_json(reports, answer_of_table(judged, reports)))
    elif table or checks:
        for report in reports.values():
            if len(reports) > 1:
                console.rule(report.record.name, align="left")
            print_table(report, console, None if all_ else MOST_ROWS) if table else print_checks(report, console)
    else:
        print_answer(answer_of_table(judged, reports), console, everything=all_, shown_by=("judge", *typed))


def _keep(judged: Any, store: str, name: str) -> None:
    from ablate.render.terminal.console import make_console, say
    from ablate.store import open_store
    from ablate.tables.judging import keep

    with open_store(store) as opened:
        for study in keep(judged, opened, name):
            say(make_console(stderr=True), f"Kept as {study} in {opened.where}.")


def _report(judged: Any, format_: str, out: Path | None, stem: str) -> None:
    from ablate.render.formats import find_format, print_report, render_questions, write_questions
    from ablate.render.terminal.console import make_console, say
    from ablate.tables.answering import answer_of_table, read_all_findings, read_reports

    find_format(format_)
    reports = read_reports(judged)
    answer, findings = answer_of_table(judged, reports), read_all_findings(judged, reports)
    if out is None:
        for rendered in render_questions(answer, findings, format_):
            print_report(rendered)
        return
    for path in write_questions(answer, findings, format_, out, stem):
        say(make_console(), str(path))
