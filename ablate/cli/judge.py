"""`ablate judge`: verdicts on runs that were trained elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ablate.cli.options import JsonOption
from ablate.errors import ArgumentError
from ablate.locations import typed_path


def judge(
    table: Annotated[
        list[str],
        typer.Argument(
            metavar="TABLE...", help="Files or patterns, addresses as wandb:ENTITY/PROJECT, or descriptions."
        ),
    ],
    variant: Annotated[
        list[str] | None,
        typer.Option("--variant", metavar="COLUMN", help="What is compared; `*`: all but the rest; repeatable."),
    ] = None,
    seed: Annotated[str | None, typer.Option("--seed", metavar="COLUMN", help="The seed of a run.")] = None,
    unit: Annotated[
        str | None, typer.Option("--unit", metavar="COLUMN", help="What is repeated instead of seeds, such as tasks.")
    ] = None,
    over: Annotated[
        list[str] | None, typer.Option("--over", metavar="COLUMN", help="Average over it: folds, episodes; repeatable.")
    ] = None,
    step: Annotated[
        list[str] | None,
        typer.Option("--step", metavar="COLUMN", help="The step, if runs have a row for each; repeatable."),
    ] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option("--metric", metavar="COLUMN", help="What is compared; each is a question; repeatable."),
    ] = None,
    baseline: Annotated[str | None, typer.Option("--baseline", metavar="VARIANT", help="Compare with it.")] = None,
    margin: Annotated[
        float | None, typer.Option("--margin", metavar="NUMBER", help="How much worse matters, in the metric's unit.")
    ] = None,
    direction: Annotated[
        str | None, typer.Option("--direction", metavar="lower|higher", help="Which is better.")
    ] = None,
    at: Annotated[
        str | None, typer.Option("--at", metavar="last|shared|best|first|STEP", help="Which evaluation counts.")
    ] = None,
    reach: Annotated[
        str | None, typer.Option("--reach", metavar="'METRIC >= X'", help="Compare at the first that reaches it.")
    ] = None,
    each: Annotated[str | None, typer.Option("--each", metavar="COLUMN", help="A question for each value.")] = None,
    aggregate: Annotated[bool, typer.Option("--aggregate", help="Also the mean over those, each as a unit.")] = False,
    where: Annotated[
        list[str] | None, typer.Option("--where", metavar="COLUMN=TEXT", help="Only rows with this text; repeatable.")
    ] = None,
    failed: Annotated[
        list[str] | None,
        typer.Option("--failed", metavar="COLUMN=TEXT", help="Rows with this text are failed runs; repeatable."),
    ] = None,
    input_: Annotated[
        str | None, typer.Option("--input", metavar="FORMAT", help="Of the files, where the ending does not say it.")
    ] = None,
    header: Annotated[
        int | None, typer.Option("--header", metavar="ROWS", help="Header rows of a CSV file, joined with a dot.")
    ] = None,
    path: Annotated[
        str | None, typer.Option("--path", metavar="REGEX", help="Columns from the path of a file: `(?P<variant>...)`.")
    ] = None,
    line: Annotated[
        str | None, typer.Option("--line", metavar="REGEX", help="Columns from a line of a text log.")
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            "--columns", metavar="REGEX", help="A column for each seed: rows from names such as `seed_(?P<seed>...)`."
        ),
    ] = None,
    paired: Annotated[
        bool | None,
        typer.Option(
            "--paired/--unpaired", help="Whether equal seeds share something.", show_default="by what is shared"
        ),
    ] = None,
    repeated: Annotated[
        str | None, typer.Option("--repeated", metavar="first|last", help="Which row counts if a step is there twice.")
    ] = None,
    chosen: Annotated[
        list[str] | None,
        typer.Option(
            "--chosen", metavar="VARIANT", help="It was selected by these very results: no verdict; repeatable."
        ),
    ] = None,
    holm: Annotated[
        str | None, typer.Option("--holm", metavar="question|all", help="Over what verdicts hold jointly.")
    ] = None,
    allow: Annotated[
        list[str] | None, typer.Option("--allow", metavar="TRAP", help="Turn a refusal into a warning; repeatable.")
    ] = None,
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
) -> None:
    """Judge runs that exist: the same verdicts as of a study, for any trainer.

    The table is CSV, TSV, JSON, JSON lines, Parquet, a text log, a folder of lm-eval results, a TensorBoard event
    file, or runs of W&B, MLflow, trackio or Aim. What options cannot say stands in a description. Several files make
    one table; several descriptions make one answer, and one report.
    """
    given: dict[str, Any] = {
        "variant": variant,
        "seed": seed,
        "unit": unit,
        "over": over,
        "step": step,
        "failed": _cells("--failed", failed),
        "format": input_,
        "header": header,
        "path": path,
        "line": line,
        "columns": columns,
        "pair": paired,
        "repeated": repeated,
    }
    asked: dict[str, Any] = {
        "baseline": baseline,
        "margin": margin,
        "direction": direction,
        "at": int(at) if at is not None and at.isdigit() else at,
        "reach": reach,
        "each": each,
        "aggregate": aggregate or None,
        "where": _cells("--where", where),
        "chosen": chosen,
        "holm": holm,
        "allow": allow,
    }
    if metric:
        asked["metric"] = metric[0] if len(metric) == 1 else None
        asked["questions"] = {name: {} for name in metric} if len(metric) > 1 else None
    from ablate.tables.judging import judge_named

    judged = judge_named(table, _given(asked) | {"table": _given(given)}, data, "ablate judge")
    stem = "_".join(typed_path(file).stem for file in table)
    if store is not None:
        _keep(judged, store, name or stem)
    elif name is not None:
        raise ArgumentError("only a study that is kept has a name", where="--name", remedy="Add `--store STORE`.")
    again = [*table, *(["--data", str(data)] if data else []), *_typed(given | asked, where, failed, metric)]
    if format_ is not None:
        _report(judged, format_, out, stem)
        return
    _show(judged, again, why=why, table=table_, checks=checks, all_=all_, json_=json_)


def _typed(
    options: dict[str, Any], where: list[str] | None, failed: list[str] | None, metric: list[str] | None
) -> list[str]:
    """The options as they were typed, for a command that shows more."""
    plain = {f"--{name}": value for name, value in options.items() if name not in ("where", "failed", "format", "pair")}
    plain |= {"--input": options["format"], "--where": where, "--failed": failed, "--metric": metric}
    plain |= {"--paired" if options["pair"] else "--unpaired": None if options["pair"] is None else True}
    words = []
    for option, value in plain.items():
        if option != "--questions" and value is not None:
            for text in value if isinstance(value, list) else [value]:
                words += [option] if text is True else [option, str(text)]
    return words


def _given(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _cells(option: str, texts: list[str] | None) -> dict[str, list[str]] | None:
    cells: dict[str, list[str]] = {}
    for text in texts or ():
        column, equals, value = text.partition("=")
        if not equals:
            raise ArgumentError("this names no text", where=option, expected="COLUMN=TEXT", got=repr(text))
        cells.setdefault(column, []).append(value)
    return cells or None


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
