"""`ablate report`: a study's report in any format."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from ablate.cli.loading import load_plugins
from ablate.cli.options import DEFAULT_STORE, PluginOption, StoreOption, StudyArgument
from ablate.errors import AblateError
from ablate.extras import missing_packages
from ablate.render.terminal.console import make_console, say


def report(
    study: StudyArgument,
    store: StoreOption = DEFAULT_STORE,
    format_: Annotated[
        str,
        typer.Option(
            "--format", metavar="FORMAT", help="terminal, md, html, slides, latex, csv, parquet, json, or your own."
        ),
    ] = "terminal",
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Folder for the report and its figures.", show_default="printed"),
    ] = None,
    plugin: PluginOption = None,
) -> None:
    """Report a study: answer, table, figures, claims, environment, cost, and how to reproduce it."""
    from ablate.analysis.findings import read_findings
    from ablate.render.formats import find_format
    from ablate.render.writing import render_report, write_report
    from ablate.store import open_store

    load_plugins(plugin)
    find_format(format_)  # report a mistake in the command line before the store is read
    with open_store(store, create=False) as opened:
        findings = read_findings(opened, study)
    if out is None:
        _print(render_report(findings, format_))
        return
    for path in write_report(findings, format_, out):
        say(make_console(), str(path))
    if find_format(format_).figures and missing_packages("figures"):
        say(make_console(stderr=True), "Without figures: run `pip install 'ablate-blocks[figures]'`.")


def _print(rendered: str | bytes) -> None:
    if isinstance(rendered, str):
        sys.stdout.write(rendered)
        return
    if sys.stdout.isatty():
        raise AblateError(
            "this format is binary and cannot be shown on a terminal",
            where="--format",
            remedy="Give `--out DIR`, or send the output into a file.",
        )
    sys.stdout.buffer.write(rendered)
