"""`ablate report` on a study that was trained."""

from __future__ import annotations

import csv
import io
import json

import pyarrow.parquet
import pytest
from cli_runs import ABLATE, Finished, Workplace


@pytest.mark.parametrize("format_name", ["terminal", "md", "html", "latex", "csv", "json"])
def test_each_format_is_printed(done: tuple[Workplace, Finished], format_name: str) -> None:
    called = done[0].call("report", "tiny", "--format", format_name)
    assert (called.code, called.err) == (0, "")
    assert "values=identity" in called.out.replace(r"\allowbreak{}", "")


def test_numbers_agree_with_show(done: tuple[Workplace, Finished]) -> None:
    shown = json.loads(done[0].call("show", "tiny", "--json").out)
    reported = json.loads(done[0].call("report", "tiny", "--format", "json").out)
    assert {key: reported[key] for key in shown} == shown
    rows = list(csv.DictReader(io.StringIO(done[0].call("report", "tiny", "--format", "csv").out)))
    means = [float(row["mean"]) for row in rows]
    assert means == [variant["metrics"]["val_loss"]["mean"] for variant in shown["variants"]]
    stored = done[0].rows("SELECT SUM(flops), SUM(seconds), COUNT(*) FROM trials")[0]
    cost = reported["cost"]
    assert (cost["flops"], cost["seconds"], cost["trials"]) == pytest.approx(stored)


def test_the_files_are_named(done: tuple[Workplace, Finished]) -> None:
    place = done[0]
    called = place.call("report", "tiny", "--format", "html", "--out", "paper")
    assert (called.code, called.err) == (0, "")
    written = called.out.split()
    assert written[0] == "paper/tiny.html"
    assert {"paper/tiny_forest.svg", "paper/tiny_loss_flops.png"} <= set(written)
    assert all((place.folder / path).stat().st_size for path in written)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tiny", "--format", "pdf"], "--format: there is no such format of a report"),
        (["tniy"], "tniy"),
        (["tiny", "--out", "tiny.yaml"], "the report cannot be written"),
    ],
)
def test_mistakes_are_one_paragraph(done: tuple[Workplace, Finished], arguments: list[str], message: str) -> None:
    called = done[0].call("report", *arguments)
    assert (called.code, called.out) == (2, "")
    assert message in called.err
    assert "Traceback" not in called.err


def test_parquet_goes_into_a_file_or_a_pipe(done: tuple[Workplace, Finished]) -> None:
    place = done[0]
    piped = place.shell(f"{ABLATE} report tiny --format parquet > piped.parquet")
    assert (piped.code, piped.err) == (0, "")
    assert place.call("report", "tiny", "--format", "parquet", "--out", "table").out.split() == ["table/tiny.parquet"]
    tables = [pyarrow.parquet.read_table(place.folder / name) for name in ("piped.parquet", "table/tiny.parquet")]
    assert tables[0].equals(tables[1])
    assert tables[0].column("variant").to_pylist()[0] == "baseline"
