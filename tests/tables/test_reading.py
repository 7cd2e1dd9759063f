"""Tables in every format to the same runs, and every malformed one to a sentence of its own."""

# ruff: noqa: E501 - a table of cases, a line each

from __future__ import annotations

import csv
import io
import json
import math
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ablate import judge
from ablate.errors import AblateError
from ablate.notebook import JudgedStudy
from ablate.tables import formats, logged, reading
from ablate.tables.cells import number_of
from ablate.tables.description import RunTableSpec

RUNS = [
    {"variant": variant, "seed": seed, "loss": loss + seed / 100}
    for variant, loss in (("base", 1.0), ("007", 1.02), ("b|<i>`x`*", 2.0))
    for seed in range(3)
]
ASKED = {"metric": "loss", "direction": "lower", "margin": 0.1, "baseline": "base"}


EXPECTED = {"007": [0.02] * 3, "b|<i>`x`*": [1.0] * 3}
"""Differences from the baseline."""


def written(kind: str, folder: Path) -> tuple[Path, dict[str, Any]]:
    """The runs as a file of a format, and what has to be said of it."""
    file = folder / f"runs.{kind}"
    if kind in ("csv", "tsv"):
        pd.DataFrame(RUNS).to_csv(file, index=False, sep="," if kind == "csv" else "\t")
    elif kind == "parquet":
        pd.DataFrame(RUNS).to_parquet(file)
    elif kind == "json":
        file.write_text(json.dumps(RUNS))
    elif kind == "jsonl":
        file.write_text("\n".join(json.dumps(run) for run in RUNS))
    elif kind == "log":
        file.write_text("\n".join(f"{run['variant']} / {run['seed']}: loss={run['loss']!r} nats" for run in RUNS))
        return file, {"line": r"^(?P<variant>\S+) / (?P<seed>\d+): loss=(?P<loss>\S+) nats"}
    return file, {}


def values(study: JudgedStudy) -> dict[str, list[float]]:
    return {row.name: list(row.difference.values) for row in study.report.variants if row.difference is not None}


def rounded(study: JudgedStudy) -> dict[str, list[float]]:
    return {name: [round(value, 9) for value in own] for name, own in values(study).items()}


@pytest.mark.parametrize("kind", ["csv", "tsv", "parquet", "json", "jsonl", "log"])
def test_formats_hold_the_same_runs(kind: str, tmp_path: Path) -> None:
    file, more = written(kind, tmp_path)
    study = judge(file, **ASKED, **more)
    assert [row.name for row in study.report.variants] == ["base", "007", "b|<i>`x`*"]
    assert values(study)["007"] == pytest.approx([0.02] * 3)
    assert values(study) == values(judge(pd.DataFrame(RUNS), **ASKED))


def test_an_index_is_columns_or_nothing(tmp_path: Path) -> None:
    frame, expected = pd.DataFrame(RUNS), values(judge(pd.DataFrame(RUNS), **ASKED))
    indexed = frame.set_index(["variant", "seed"])
    indexed.to_parquet(tmp_path / "runs.parquet")
    assert values(judge(indexed, **ASKED)) == values(judge(tmp_path / "runs.parquet", **ASKED)) == expected
    doubled = pd.concat([part.reset_index(drop=True) for _, part in frame.groupby("seed")])
    stepped = pd.concat([doubled.assign(step=1), doubled.assign(step=2)])
    assert rounded(judge(stepped, step="step", at="shared", **ASKED)) == rounded(judge(frame, **ASKED))
    each = judge(stepped.assign(seed=stepped["seed"] + 1, step="s" + stepped["step"].astype(str)), each="step", **ASKED)
    assert list(each.studies) == ["s1", "s2"]


def test_seeds_that_another_cell_made_fractions_are_the_same_seeds(tmp_path: Path) -> None:
    frame = pd.DataFrame(RUNS)
    frame[frame["variant"] == "base"].to_csv(tmp_path / "a.csv", index=False)
    frame[frame["variant"] != "base"].astype({"seed": float}).to_csv(tmp_path / "b.csv", index=False)
    assert values(judge("*.csv", data=tmp_path, **ASKED)) == values(judge(frame, **ASKED))
    frame[frame["variant"] == "base"].astype({"seed": float}).to_csv(tmp_path / "c.csv", index=False)
    with pytest.raises(AblateError, match="2 rows are one run"):
        judge("*.csv", data=tmp_path, **ASKED)


def test_columns_of_json(tmp_path: Path) -> None:
    """Objects by name, objects of columns, nested objects, lists."""
    by_name = {
        variant: {"out": {"loss": [run["loss"] for run in RUNS if run["variant"] == variant]}}
        for variant in ("base", "007")
    }
    (tmp_path / "a.json").write_text(json.dumps(by_name))
    study = judge(tmp_path / "a.json", variant="key", **(ASKED | {"metric": "out.loss"}))
    assert "3 runs each, not paired: no seed is recorded" in study.report.record.question
    columns = {name: [run[name] for run in RUNS] for name in RUNS[0]}
    (tmp_path / "b.json").write_text(json.dumps(columns))
    assert values(judge(tmp_path / "b.json", **ASKED))["007"] == pytest.approx([0.02] * 3)
    (tmp_path / "c.json").write_text(json.dumps({"runs": RUNS}))
    assert values(judge(tmp_path / "c.json", **ASKED))["007"] == pytest.approx([0.02] * 3)


WIDE = """\
"Step","a_s1 - val/loss","a_s1 - val/loss__MIN","a_s1 - val/loss__MAX","b - x_s1 - val/loss","b - x_s1 - val/loss__MIN","b - x_s1 - val/loss__MAX","a_s2 - val/loss","b - x_s2 - val/loss"
"0","3","3","3","3.1","3.1","3.1","3.2","3.3"
"1","2","1","4","","","","2.2","2.3"
"""


def test_a_wide_export_of_wandb(tmp_path: Path) -> None:
    file = tmp_path / "wide.csv"
    file.write_text(WIDE)
    asked = ASKED | {"metric": "val/loss", "baseline": "a", "name": r"^(?P<variant>.+)_s(?P<seed>\d)$", "run": "run"}
    study = judge(file, format="wandb", step="Step", pair=True, **asked)
    assert values(study) == {"b - x": pytest.approx([1.1, 0.1])}  # the run without a value at step 1 counts at step 0
    with pytest.raises(AblateError, match="`__MIN` and `__MAX` columns are not runs"):
        judge(file, **asked)


def lm_eval(folder: Path, model: str, tasks: dict[str, Any], **more: Any) -> None:
    (folder / model).mkdir(exist_ok=True)
    (folder / model / "results.json").write_text(json.dumps({"results": tasks, **more}))


def test_results_of_lm_eval(tmp_path: Path) -> None:
    """A group and its members, a stderr that is a text, an old name of a metric, a task that one model lacks."""
    for model, gain in (("base", 0.0), ("new", 0.1)):
        tasks: dict[str, Any] = {
            f"t{place}": {"acc,none": 0.3 + place / 100 + gain + place**2 / 1000 * gain, "acc_stderr,none": "N/A"}
            for place in range(4)
        }
        tasks["old"] = {"acc": 0.5 + gain}
        tasks |= {
            "group": {"acc,none": 0.4 + gain, "alias": "group"},
            "group_a": {"acc,none": 0.4, "alias": " - group_a"},
            "f": {"f1,none": 0.2},
        }
        if model == "base":
            tasks["alone"] = {"acc": 0.9}
        lm_eval(tmp_path, model, tasks, groups={"group": {}})
    study = judge(
        "*/results.json",
        data=tmp_path,
        format="lm-eval",
        path="^(?P<variant>[^/]+)/",
        unit="task",
        **(ASKED | {"metric": "acc", "direction": "higher", "margin": 0.01}),
    )
    row = next(row for row in study.report.variants if row.name == "new")
    assert row.difference is not None
    assert row.difference.n == 6
    assert row.verdict_word == "better"
    said = " ".join(study.report.answer.sentences)
    assert "group is a group: its 1 members are left out" in said
    assert "acc is not measured for any variant at f: not part of the question" in said
    assert "base alone has alone: left out" in said
    assert "standard errors of lm-eval are over test items" in said


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")  # of the library
@pytest.mark.parametrize("last", [7.0, 9.0])
def test_a_step_that_a_tracker_holds_twice_is_refused_unless_it_is_the_same(
    last: float, tmp_path: Path, new_mlflow: Callable[[Path], Path]
) -> None:
    """As a run has that went on from a checkpoint; the metric of another name at the same step is none."""
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{new_mlflow(tmp_path)}")
    experiment = client.create_experiment("mine")
    for variant, shift in (("base", 0.0), ("wide", 1.0)):
        for seed in range(3):
            run = client.create_run(experiment).info.run_id
            client.log_param(run, "variant", variant)
            client.log_param(run, "seed", seed)
            for time, (step, loss) in enumerate(((1, 9.0), (2, 8.0 + seed), (1, last), (2, 8.0 + seed))):
                client.log_metric(run, "loss", loss + shift, step=step, timestamp=time)
                client.log_metric(run, "accuracy", time / 10, step=step, timestamp=time)
    asked: dict[str, Any] = {**ASKED, "format": "mlflow", "step": "step"}
    if last == 9.0:
        assert values(judge(tmp_path / "mlflow.db", **asked)) == {"wide": [1.0] * 3}
        return
    with pytest.raises(AblateError, match=r"one run has step 1 2 times"):
        judge(tmp_path / "mlflow.db", **asked)
    kept = judge(tmp_path / "mlflow.db", **asked, repeated="last", at="first").report
    assert kept.baseline.metrics["loss"].mean == 7.0


def write_events(folder: Path, losses: dict[int, float]) -> None:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer = EventFileWriter(str(folder), filename_suffix=f".{len([*folder.glob('*')]) if folder.exists() else 0}")
    for step, loss in losses.items():
        summary = Summary(value=[Summary.Value(tag="loss", simple_value=loss)])
        writer.add_event(Event(step=step, wall_time=0.0, summary=summary))
    writer.close()


def test_an_event_file_of_tensorboard(tmp_path: Path) -> None:
    for run in RUNS[:6]:
        write_events(tmp_path / str(run["variant"]) / str(run["seed"]), {1: 9.0, 2: float(str(run["loss"]))})
    path = "^(?P<variant>[^/]+)/(?P<seed>[^/]+)/"
    study = judge("*/*/events*", data=tmp_path, format="tensorboard", path=path, step="step", **ASKED)
    assert values(study)["007"] == pytest.approx([0.02] * 3, abs=1e-6)


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("variant,seed,acc_1,acc_2\nbase,7,1,2\nother,9,1,3\n", {"columns": r"^(?P<metric>acc)_(?P<seed>\d)$"}),
        ("run,seed,acc\nbase_1,7,1\nother_1,7,2\n", {"run": "run", "name": r"(?P<variant>\w+)_(?P<seed>\d)$"}),
        ("run,seed,acc\nbase_1,1,1\nother_1,1,2\n", {"run": "run", "name": r"(?P<variant>\w+)_(?P<seed>\d)$"}),
    ],
)
def test_a_group_never_takes_the_place_of_a_column_that_says_otherwise(
    text: str, asked: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "runs.csv").write_text(text)
    asked |= {"metric": "acc", "direction": "higher", "margin": 0.1, "baseline": "base", "data": tmp_path}
    if ",7," not in text:
        assert [list(row.finished) for row in judge("runs.csv", **asked).report.variants] == [[1], [1]]
        return
    with pytest.raises(AblateError, match="the file both have a column 'seed'"):
        judge("runs.csv", **asked)


def test_the_event_files_of_a_folder_are_one_run(tmp_path: Path) -> None:
    """As TensorBoard shows them: a run that went on has begun another file, and one that ended at once an empty one."""
    for variant, shift in (("base", 0.0), ("wide", 1.0)):
        for run in range(3):
            folder = tmp_path / variant / str(run)
            write_events(folder, {1: 9.0, 2: 8.0})
            write_events(folder, {})
            write_events(folder, {2: 8.0, 3: 2.0 + shift + run / 8})
    asked: dict[str, Any] = {**ASKED, "format": "tensorboard", "path": "^(?P<variant>[^/]+)/", "step": "step"}
    report = judge("*/*/*", data=tmp_path, **asked).report
    assert report.record.judged is not None
    assert report.record.judged.evidence == "3 runs each, not paired: no seed is recorded"
    assert report.baseline.metrics["loss"].mean == 2.125
    write_events(tmp_path / "base" / "0", {2: 7.0})
    with pytest.raises(AblateError, match="one run has step 2 2 times"):
        judge("*/*/*", data=tmp_path, **asked)


def test_a_column_for_each_seed_and_metric_with_decimal_commas(tmp_path: Path) -> None:
    """The same runs as spreadsheets of other countries show them."""
    frame = pd.DataFrame(RUNS).assign(wrong=1.5)
    wide = frame.pivot(index="variant", columns="seed", values=["loss", "wrong"]).loc[["base", "007", "b|<i>`x`*"]]
    wide.columns = [f"{metric} ({seed})" for metric, seed in wide.columns]
    wide.to_csv(tmp_path / "wide.csv", sep=";", decimal=",")
    described = {"format": "csv2", "columns": r"^(?P<metric>\w+) \((?P<seed>\d+)\)$"}
    assert values(judge(tmp_path / "wide.csv", **ASKED, **described)) == values(judge(pd.DataFrame(RUNS), **ASKED))


@pytest.mark.parametrize(
    ("cells", "decimal", "expected"),
    [
        (("0,953", "1,000"), None, (0.953, 1.0)),
        (("0.953", "1.000"), None, (0.953, 1.0)),
        (("1,000", "1,250"), None, "can be read in two ways"),
        (("1.000", "1.250"), None, "can be read in two ways"),
        (("1,000", "1,250"), ",", (1.0, 1.25)),
        (("1.000", "1.250"), ".", (1.0, 1.25)),
        (("1,000", "1,250"), ".", "not a number"),
        (("1.000", "1.250"), ",", "a point where decimals have a comma"),
        (("0,953", "1.000"), None, "a point where decimals have a comma"),
        (("0,953", "0.953"), None, "decimal commas and points"),
        (("0.953", "1,000"), None, "not a number"),
        (("1.000,5", "2,5"), None, "not a number"),
        (("1,000,000", "2,000"), None, "not a number"),
        (("1,5e-3", "2e5"), None, (0.0015, 2e5)),
    ],
)
def test_a_comma_that_could_divide_thousands_is_never_guessed(
    cells: tuple[str, str], decimal: str | None, expected: Any, tmp_path: Path
) -> None:
    """Of a table of semicolons, which spreadsheets write with decimal commas and programs with points."""
    rows = "".join(f"base;{seed};{cell}\nnew;{seed};{cell}\n" for seed, cell in enumerate(cells))
    (tmp_path / "runs.csv").write_text(f"variant;seed;loss\n{rows}")
    asked = ASKED | {"format": "csv2"} | ({} if decimal is None else {"decimal": decimal})
    if isinstance(expected, str):
        with pytest.raises(AblateError, match=expected):
            judge(tmp_path / "runs.csv", **asked)
    else:
        mean = judge(tmp_path / "runs.csv", **asked).report.baseline.metrics["loss"].mean
        assert mean == pytest.approx(sum(expected) / 2)


def test_another_column_shows_the_decimal_sign_of_a_table(tmp_path: Path) -> None:
    (tmp_path / "runs.csv").write_text("variant;seed;loss;rate\nbase;1;1,000;0,5\nnew;1;2,000;0,5\n")
    assert judge(tmp_path / "runs.csv", format="csv2", **ASKED).report.baseline.metrics["loss"].mean == 1.0
    (tmp_path / "runs.csv").write_text("variant;seed;loss;rate\nbase;1;1,000;0.5\nnew;1;2,000;0.5\n")
    with pytest.raises(AblateError, match="not a number; got '1,000'"):
        judge(tmp_path / "runs.csv", format="csv2", **ASKED)


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ("1e5", 1e5), ("\N{MINUS SIGN}0.5", -0.5), ("-.5", -0.5), (True, 1.0), ("false", 0.0), ("n/a", None), ("inf", math.inf),
        (10**400, math.inf), (-(10**400), -math.inf),
        ("1_000", "separators of thousands"), ("1,000", "separators of thousands"), ("1 000", "separators of thousands"),
        ("1\u202f000", "separators of thousands"), ("1'000", "separators of thousands"), ("91 %", "without a unit"),
        ("12ms", "without a unit"), ("0x1A", "without a unit"), ("2024-01-02", "without a unit"), ("1:30", "without a unit"),
        ("3.2 (0.1)", "a mean with its spread"), ("crash", "Mark failed rows"), ("1+2j", "without a unit"),
    ],
)  # fmt: skip
def test_a_cell_is_a_number_of_one_reading_or_refused(cell: Any, expected: Any) -> None:
    if not isinstance(expected, str):
        assert number_of(cell, "a cell") == expected
        return
    with pytest.raises(AblateError, match=expected):
        number_of(cell, "a cell")


def test_pivot_tables_of_pandas(tmp_path: Path) -> None:
    """Several header rows, the names of levels and of the index in the first columns, and merged cells of one level."""
    frame = pd.DataFrame(RUNS).assign(acc=1.5, task="a")
    by_seed = frame.pivot_table(index="variant", columns=["task", "seed"], values=["loss", "acc"], aggfunc="first")
    by_seed.to_csv(tmp_path / "seeds.csv")
    columns = r"^(?P<metric>\w+)\.a\.(?P<seed>\w+)$"
    assert rounded(judge(tmp_path / "seeds.csv", header=3, columns=columns, **ASKED)) == EXPECTED
    by_task = frame.pivot_table(index=["variant", "seed"], columns="task", values=["loss", "acc"], aggfunc="first")
    by_task.to_csv(tmp_path / "tasks.csv")
    asked = ASKED | {"metric": "loss.a"}
    assert rounded(judge(tmp_path / "tasks.csv", header=2, **asked)) == EXPECTED
    lines = (tmp_path / "tasks.csv").read_text().splitlines()
    lines[:3] = ["variant,seed,acc,loss", ",,a,a"]
    (tmp_path / "plain.csv").write_text("\n".join(lines))
    assert rounded(judge(tmp_path / "plain.csv", header=2, **asked)) == EXPECTED
    (tmp_path / "merged.csv").write_text(
        "variant,seed,loss,,acc,\n,,a,b,a,b\n"
        + "".join(f"{run['variant']},{run['seed']},{run['loss']},0,0,0\n" for run in RUNS)
    )
    assert rounded(judge(tmp_path / "merged.csv", header=2, **asked)) == EXPECTED
    with pytest.raises(AblateError, match="`header: 2`"):
        judge(tmp_path / "seeds.csv", **ASKED)


def test_what_trainers_write_beside_the_metric(tmp_path: Path) -> None:
    """Rows of other metrics at the same step, a comment above the header, and lists of unequal length."""
    for run in RUNS:
        name = f"{RUNS.index(run)}.json"
        log = [
            {"step": 10, "train": 1.0},
            {"step": 10, "loss": 9.0},
            {"step": 20, "train": 1.0},
            {"step": 20, "loss": run["loss"]},
        ]
        record = {"variant": run["variant"], "seed": run["seed"], "log_history": [*log, {"step": 20, "flops": 1.0}]}
        (tmp_path / name).write_text(json.dumps(record))
    assert rounded(judge("*.json", data=tmp_path, step="step", **ASKED)) == EXPECTED
    lines = ['#{"start": 1.5, "task": "x"}', "variant,seed,step,train,loss"]
    for run in RUNS:
        lines += [f'"{run["variant"]}",{run["seed"]},10,1.5,', f'"{run["variant"]}",{run["seed"]},10,,{run["loss"]}']
    (tmp_path / "metrics.csv").write_text("\n".join(lines))
    assert rounded(judge(tmp_path / "metrics.csv", step="step", **ASKED)) == EXPECTED
    (tmp_path / "lists.json").write_text(json.dumps({"base": [1.0, 1.1, 1.2], "b": [1.0, 1.1]}))
    study = judge(tmp_path / "lists.json", variant="key", **(ASKED | {"metric": "value"}))
    assert study.report.record.judged is not None
    assert study.report.record.judged.evidence == "3 runs each (2 of b), not paired: no seed is recorded"


def test_what_is_missing_is_named_with_what_to_give(tmp_path: Path) -> None:
    frame = pd.DataFrame(RUNS)
    frame.pivot(index="variant", columns="seed", values="loss").add_prefix("loss_seed").to_csv(tmp_path / "wide.csv")
    with pytest.raises(AblateError) as raised:
        judge(tmp_path / "wide.csv", **ASKED)
    pattern = re.search(r"`columns: '(.*)'`", str(raised.value))
    assert pattern is not None
    assert rounded(judge(tmp_path / "wide.csv", columns=pattern[1], **ASKED)) == EXPECTED
    frame.rename(columns={"variant": "model"}).to_csv(tmp_path / "model.csv")
    with pytest.raises(AblateError, match="Name the column of what is compared"):
        judge(tmp_path / "model.csv", **ASKED)
    frame.assign(epoch=range(len(frame)), seed="1").to_csv(tmp_path / "epochs.csv")
    with pytest.raises(AblateError, match="`step: epoch`"):
        judge(tmp_path / "epochs.csv", **ASKED)
    (tmp_path / "lm.json").write_text(json.dumps({"results": {"t": {"acc,none": 0.5}}, "versions": {"t": 1}}))
    with pytest.raises(AblateError, match="`format: lm-eval`"):
        judge(tmp_path / "lm.json", **ASKED)
    with pytest.raises(AblateError, match="this is a folder"):
        judge(tmp_path, **ASKED)


def test_questions_of_lm_eval_are_paired_where_samples_are_kept(tmp_path: Path) -> None:
    """As `--log_samples` writes them: lists of unequal lengths beside the metrics, a line for each filter."""
    right = {"base": [1, 0, 0, 1, 1, 0, 0, 1], "other": [1, 1, 0, 1, 1, 1, 0, 0]}
    for model, correct in right.items():
        (tmp_path / model).mkdir()
        for task in ("arc_easy", "gsm8k_cot"):
            lines = [
                {
                    "doc_id": number,
                    "doc": {"choices": ["a", "b"]},
                    "resps": [[["x"]]],
                    "metrics": ["acc"],
                    "acc": float(one),
                }
                | {"filter": kept}
                for number, one in enumerate(correct)
                for kept in ("none", "strict-match")
            ]
            text = "\n".join(json.dumps(line) for line in lines)
            (tmp_path / model / f"samples_{task}_2026-01-02T03-04-05.678.jsonl").write_text(text)
    read: dict[str, Any] = {"path": "^(?P<variant>[^/]+)/", "unit": "question", "format": "lm-eval", "data": tmp_path}
    asked = {"direction": "higher", "margin": 0.1, "baseline": "base"}
    for metric in ("acc", "acc,strict-match"):
        study = judge("*/*.jsonl", metric=metric, **read, **asked)
        assert sorted(values(study)["other"]) == sorted(2 * [b - a for a, b in zip(*right.values(), strict=True)])
        said = " ".join(warning.text for warning in study.report.answer.warnings)
        assert "questions are the units: a statement about such questions, not about another training run" in said
    tasks = judge("*/*.jsonl", metric="acc", each="task", **read, **asked)
    assert "arc_easy" in str(tasks.answer)


BROKEN: dict[str, tuple[str, bytes, dict[str, Any], str]] = {
    "no header": ("a.csv", b"", {}, "holds no row"),
    "no row": ("a.csv", b"variant,seed,loss\n", {}, "holds no row"),
    "long row": ("a.csv", b"variant,seed,loss\nbase,1,2,3\n", {}, r"a.csv:2: this row is not as long as the header; expected 3 cells; got 4"),
    "short row": ("a.csv", b"variant,seed,loss\nbase,1\n", {}, r"a.csv:2: this row is not as long"),
    "column twice": ("a.csv", b"variant,loss,loss\nbase,1,2\n", {}, "the column 'loss' is there twice"),
    "tabs": ("a.csv", b"variant\tseed\tloss\nbase\t1\t2\n", {}, "`format: tsv`"),
    "semicolons": ("a.csv", b"variant;seed;loss\nbase;1;2\n", {}, "Give `format: csv2`"),
    "a comment": ("a.csv", b"# variant,seed,loss\nbase,1,2\n", {}, r"a.csv:1: the first line is a comment"),
    "two headers": ("a.csv", b",,train,val,val\nvariant,seed,loss,loss,acc\nbase,1,2,3,4\n", {}, "say how many: `header: 2`"),
    "a mean and its spread": ("a.csv", "variant,seed,loss\nbase,1,3.2 ± 0.1\n".encode(), {}, "Give the runs, a row for each"),
    "thousands": ("a.csv", b"variant;seed;loss\nbase;1;1.234,5\n", {"format": "csv2"}, "without separators of thousands"),
    "no such columns": ("a.csv", b"variant,s1,s2\nbase,1,2\n", {"columns": "run(?P<seed>.)"}, "`columns` matches the name of no column; expected one of variant, s1 and s2"),
    "columns that become one": ("a.csv", b"variant,a1,b1\nbase,1,2\n", {"columns": "(?P<seed>.)$"}, "two columns would both become 'value'"),
    "latin 1": ("a.csv", "variant,seed,loss\né,1,2\n".encode("latin-1"), {}, r"a.csv:2: this is not UTF-8 text"),
    "text for a number": ("a.csv", b"variant,seed,loss\nbase,1,oops\n", {}, r"a.csv:2, column 'loss': this is not a number; got 'oops'. Mark failed rows"),
    "decimal comma": ("a.csv", b'variant,seed,loss\nbase,1,"1,5"\n', {}, "with a decimal point"),
    "percent": ("a.csv", b"variant,seed,loss\nbase,1,83.5%\n", {}, "without a unit"),
    "no variant": ("a.csv", b"variant,seed,loss\nbase,1,2\n,2,2\n", {}, r"a.csv:3: this row names no variant.*Write the name into every row"),
    "no seed": ("a.csv", b"variant,seed,loss\nbase,1,2\nbase,,2\n", {}, r"a.csv:3: this row has no seed"),
    "no column": ("a.csv", b"variant,seed,los\nbase,1,2\n", {}, "the table has no column 'loss'; expected one of variant, seed and los"),
    "no baseline": ("a.csv", b"variant,seed,loss\nBase,1,2\n", {}, "this is not a variant of the table; expected one of 'Base'; got 'base'"),
    "a run twice": ("a.csv", b"variant,seed,lr,loss\nbase,1,0.1,2\nbase,1,0.2,3\n", {}, r"a.csv:2 and .*a.csv:3: 2 rows are one run.*lr and loss differ"),
    "no ending": ("table", b"variant,seed,loss\nbase,1,2\n", {}, "says no format"),
    "not JSON": ("a.json", b"{", {}, "this is not JSON"),
    "a key twice": ("a.jsonl", b'{"variant": "base", "loss": 1, "loss": 2}\n', {}, r"a.jsonl:1: the key 'loss' is there twice"),
    "a nested key twice": ("a.json", b'[{"variant": "base", "a.b": 1, "a": {"b": 2}}]', {}, r"entry 0: the key 'a.b' is there twice"),
    "gzip": ("a.csv", b"\x1f\x8b\x08\x00\xff", {}, "this file is compressed. Unpack it"),
    "deep JSON": ("a.json", b"[" * 100_000, {}, "nested too deeply"),
    "deep object": ("a.json", b'{"a":' * 50 + b"1" + b"}" * 50, {}, "nested too deeply"),
    "a list of numbers": ("a.json", b"[1, 2]", {}, "an entry is not an object"),
    "lists of other lengths": ("a.json", b'{"variant": ["a"], "loss": [1, 2]}', {}, "the lists of one record are not equally long"),
    "a line that is not an object": ("a.jsonl", b'{"variant": "a"}\n3\n', {}, r"a.jsonl:2: a line is not an object"),
    "not Parquet": ("a.parquet", b"PAR1", {}, "this is not a Parquet file"),
    "a log without a pattern": ("a.log", b"loss 3\n", {}, "a text log is read by a regular expression"),
    "not lm-eval": ("a.json", b"{}", {"format": "lm-eval"}, "not a result file of lm-eval"),
    "not a sample": ("samples_a.jsonl", b'{"doc_id": 1}\n', {"format": "lm-eval"}, "not a sample of lm-eval"),
    "not W&B": ("a.csv", b"variant,seed,loss\nbase,1,2\n", {"format": "wandb"}, "not a wide export of W&B"),
    "path that does not match": ("a.csv", b"seed,loss\n1,2\n", {"path": "(?P<variant>zzz)"}, "`path` does not match"),
    "column of path and file": ("a.csv", b"variant,loss\nbase,2\n", {"path": "(?P<variant>a)"}, "both have a column 'variant'"),
    "not a pattern": ("a.csv", b"variant,loss\nbase,2\n", {"path": "("}, "not a regular expression"),
    "pattern without groups": ("a.csv", b"variant,loss\nbase,2\n", {"path": "a"}, "no named group"),
    "seed and unit": ("a.csv", b"variant,loss\nbase,2\n", {"seed": "a", "unit": "b"}, "either `seed` or `unit`"),
    "at without step": ("a.csv", b"variant,seed,loss\nbase,1,2\n", {"at": "best"}, "`at` needs the column of the step"),
    "no step": ("a.csv", b"variant,seed,step,loss\nbase,1,,2\n", {"step": "step"}, "this row has no step"),
    "unknown format": ("a.csv", b"variant,loss\nbase,2\n", {"format": "xls"}, "`table.format`|`format`"),
    "no metric": ("a.csv", b"variant,seed,loss\nbase,1,2\n", {"metric": None}, "the metric is not given"),
    "no margin": ("a.csv", b"variant,seed,loss\nbase,1,2\n", {"margin": None}, "the margin is not given"),
    "negative margin": ("a.csv", b"variant,seed,loss\nbase,1,2\n", {"margin": -1.0}, "`margin`"),
    "unknown key": ("a.csv", b"variant,seed,loss\nbase,1,2\n", {"marign": 1.0}, "marign"),
    "chosen": ("a.csv", b"variant,seed,loss\nbase,1,2\n", {"chosen": ["zzz"]}, "a chosen variant is not in the table"),
    "where": ("a.csv", b"variant,seed,loss\nbase,1,2\n", {"where": {"seed": "9"}}, "no row has seed '9'"),
    "no target": ("a.csv", b"variant,seed,loss\nbase,1,2\n", {"reach": "loss below 3"}, "not a target"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_table_has_a_sentence_of_its_own(name: str, tmp_path: Path) -> None:
    file, content, more, said = BROKEN[name]
    (tmp_path / file).write_bytes(content)
    with pytest.raises(AblateError) as caught:
        judge(tmp_path / file, **(ASKED | more), **({} if "path" not in more else {"data": tmp_path}))
    assert re.search(said, str(caught.value)), str(caught.value)


def test_files_that_are_not_there_or_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        AblateError, match=r"^\*\.csv: there is no such file; expected a file or a pattern; got a folder w"
    ):
        judge("*.csv", data=tmp_path, **ASKED)
    (tmp_path / "a.csv").write_text("variant,seed,loss\nbase,1,2\n")
    for pattern in ("a**", "**a/x", "[", "*/..", "~nobody/nope/x", "\\", f"{tmp_path}/nope/*.csv"):
        with pytest.raises(AblateError, match=r"there is no (such file|home folder)"):
            judge(pattern, data=tmp_path, **ASKED)
    for pattern in ("", ".", "./.", str(tmp_path)):
        with pytest.raises(AblateError, match="this is a folder"):
            judge(pattern, data=tmp_path, **ASKED)
    monkeypatch.setattr(reading, "MOST_BYTES", 10)
    with pytest.raises(AblateError, match="too large to be judged"):
        judge(tmp_path / "a.csv", **ASKED)


def test_a_file_is_read_once_however_many_links_lead_to_its_folder(tmp_path: Path) -> None:
    for variant, loss in (("base", 1.0), ("other", 1.02)):
        for run in range(3):
            (tmp_path / f"{variant}-{run}").mkdir()
            (tmp_path / f"{variant}-{run}" / "log.txt").write_text(f"loss {loss + run / 100} nats")
    (tmp_path / "base-latest").symlink_to(tmp_path / "base-2")
    asked = {"line": r"loss (?P<loss>\S+) nats", "path": r"(?P<variant>\w+)-[^/]+/log", "data": tmp_path, **ASKED}
    study = judge(["*/log.txt", "base-0/../base-0/log.txt"], **asked)
    assert study.answer.startswith("loss (lower is better) against base: 3 runs each, not paired")


NAMES = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zs", "Zl", "Zp", "Cf"]), min_size=1, max_size=8)
PLACES = ["a", "a@2", "b", "a@rung=1", "b@rung=1", "a@rung=x", "a@budget=2", "b@budget=2", "b@task=a"]
"""Names as those that the studies of a store give to variants at places of an axis: in a table they are only names."""
CELLS = st.one_of(st.floats(allow_nan=True, allow_infinity=True), st.just(""), st.sampled_from(["N/A", "nan", "inf"]))


@settings(max_examples=25, deadline=None)
@given(
    st.lists(NAMES | st.sampled_from(PLACES), min_size=2, max_size=4, unique=True),
    st.lists(
        NAMES.filter(lambda name: name not in ("seed", "run", "index") and name[0] != "#"),
        min_size=3,
        max_size=3,
        unique=True,
    ),
    st.data(),
)
def test_any_names_and_cells_are_read_as_they_are(variants: list[str], columns: list[str], data: st.DataObject) -> None:
    """Any names of columns and variants, any order of rows, any numbers: every run is counted, none is invented, and
    all variants are compared with the one that is the baseline."""
    variant, seed, metric = columns
    table = [{variant: name, seed: str(number), metric: data.draw(CELLS)} for name in variants for number in range(3)]
    table = data.draw(st.permutations(table))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns)
    writer.writeheader()
    writer.writerows(table)
    asked = {
        "variant": variant,
        "seed": seed,
        "metric": metric,
        "direction": "higher",
        "margin": 0.5,
        "allow": ["mixed", "percent", "zero"],
    }
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(formats, "file_text", lambda file: text.getvalue())
        frame = formats.read_separated(Path("table.csv"), ",")
    study = judge(frame.drop(columns=[formats.ORIGIN]), baseline=variants[0], **asked)
    values: dict[str, dict[int, float]] = {name: {} for name in variants}
    for one in table:
        if one[metric] not in ("", "N/A") and abs(float(one[metric])) <= 1e100:
            values[one[variant]][int(one[seed])] = float(one[metric])
    for row in study.report.variants:
        finite, theirs = values[row.name], values[variants[0]]
        assert set(row.finished) == set(finite)
        assert (row.difference is None) == (row.name == variants[0])
        if row.difference is not None:
            assert row.difference.values == tuple(
                finite[number] - theirs[number] for number in sorted(finite.keys() & theirs.keys())
            )
        assert {failure.seed for failure in row.failed} == set(range(3)) - set(finite)
        if row.failed and row.verdict is not None:
            assert row.verdict.word in ("worse", "undecided")


def log_mlflow(folder: Path, runs: Logged) -> Path:
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{folder / 'mlflow.db'}")
    experiment = client.create_experiment("mine")
    for (variant, seed), curve in runs.items():
        run = client.create_run(experiment, run_name=f"{variant}/{seed}").info.run_id
        client.log_param(run, "variant", variant)
        client.log_param(run, "seed", seed)
        for step, loss in curve.items():
            client.log_metric(run, "loss", loss, step=step)
        client.set_terminated(run, "FINISHED" if (variant, seed) != CRASHED else "FAILED")
    return folder / "mlflow.db"


def log_wandb(folder: Path, runs: Logged) -> Path:
    """Offline runs, one of which ends with exit code 1 and one of which is cut as by a kill."""
    wandb = pytest.importorskip("wandb")
    for (variant, seed), curve in runs.items():
        run = wandb.init(
            project="mine", mode="offline", dir=folder, name=f"{variant}-{seed}", settings=wandb.Settings(silent=True),
            config={"variant": variant, "seed": seed, "optimizer": {"lr": 0.1}},
        )  # fmt: skip
        for step, loss in curve.items():
            run.log({"loss": loss, "note": "x" * 40_000}, step=step)  # a record of several blocks
        run.finish(exit_code=int((variant, seed) == CRASHED))
    wandb.teardown()  # until then its own process may still write
    return folder / "wandb"


def log_trackio(folder: Path, runs: Logged) -> Path:
    """By a process of its own, which takes its folder from the environment."""
    pytest.importorskip("trackio")
    lines = ["import trackio"]
    for (variant, seed), curve in runs.items():
        config = {"variant": variant, "seed": seed, "done": (variant, seed) != CRASHED}
        lines.append(f"trackio.init(project='mine', name='{variant}-{seed}', config={config})")
        lines += [f"trackio.log({{'loss': {loss}}}, step={step})" for step, loss in curve.items()]
        lines.append("trackio.finish()")
    subprocess.run([sys.executable, "-c", "\n".join(lines)], check=True, env=os.environ | {"TRACKIO_DIR": str(folder)})
    return folder / "mine.db"


def log_aim(folder: Path, runs: Logged) -> Path:
    aim = pytest.importorskip("aim")
    repo = aim.Repo(str(folder), init=True)
    for (variant, seed), curve in runs.items():
        run = aim.Run(repo=repo, system_tracking_interval=None, capture_terminal_logs=False)
        run["variant"], run["seed"], run["done"] = variant, seed, (variant, seed) != CRASHED
        for step, loss in curve.items():
            run.track(loss, name="loss", step=step, context={"subset": "val"})
            run.track(0.0, name="loss", step=step, context={"subset": "train"})
        run.close()
    return folder / ".aim"


Logged = dict[tuple[str, int], dict[int, float]]
"""Variant and seed to step and loss."""
LOGGED: Logged = {
    (variant, seed): {10 * step: 3 - step + shift * (1 + seed / 50) + seed / 100 for step in range(3)}
    for variant, shift in (("base", 0.0), ("wide", 0.3))
    for seed in range(3)
}
CRASHED = ("wide", 2)
LOGGERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "mlflow": (log_mlflow, {"failed": {"status": ["FAILED"]}}),
    "wandb": (log_wandb, {"failed": {"status": ["failed"]}}),
    "trackio": (log_trackio, {"failed": {"done": ["False"]}}),
    "aim": (log_aim, {"failed": {"done": ["False"]}, "metric": "loss subset=val"}),
}
"""A tracker to what writes its runs, and what has to be said of them."""


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")  # of the library
def test_a_run_and_the_runs_within_it_do_not_count_together(tmp_path: Path, new_mlflow: Callable[[Path], Path]) -> None:
    """As a search logs its trials, with the best value in the run around them; `*` is the parameters alone."""
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{new_mlflow(tmp_path)}")
    experiment = client.create_experiment("mine")
    outer = client.create_run(experiment, run_name="search").info.run_id
    client.log_metric(outer, "loss", 0.5)
    client.log_param(outer, "variant", "base")
    for variant, shift in (("base", 0.0), ("wide", 1.0)):
        for seed in range(3):
            run = client.create_run(experiment, tags={"mlflow.parentRunId": outer}).info.run_id
            client.log_param(run, "variant", variant)
            client.log_param(run, "seed", seed)
            for name in ("loss", "accuracy"):
                client.log_metric(run, name, 1.0 + shift + seed / 10)
    asked: dict[str, Any] = {**ASKED, "format": "mlflow"}
    with pytest.raises(AblateError, match="the run 'search' is there beside the 6 runs within it"):
        judge(tmp_path / "mlflow.db", **asked)
    assert rounded(judge(tmp_path / "mlflow.db", where={"children": ["0"]}, **asked)) == {"wide": [1.0] * 3}
    named = judge(tmp_path / "mlflow.db", where={"children": ["0"]}, **(asked | {"variant": "*"}))
    assert [row.name for row in named.report.variants] == ["base", "wide"]


def test_a_run_of_wandb_that_went_on_in_another_process_is_one(tmp_path: Path) -> None:
    wandb = pytest.importorskip("wandb")
    for variant in ("base", "wide"):
        for seed in range(3):
            for part, steps in enumerate(((0, 10), (20,))):
                folder = tmp_path / str(part)
                folder.mkdir(exist_ok=True)
                run = wandb.init(
                    project="mine", mode="offline", dir=folder, id=f"{variant}{seed}", name="same",
                    config={"variant": variant, "seed": seed}, settings=wandb.Settings(silent=True),
                )  # fmt: skip
                for step in steps:
                    run.log({"loss": 30.0 - step + (variant == "wide") + seed / 8}, step=step)
                run.finish()
    wandb.teardown()
    together = tmp_path / "wandb"
    together.mkdir()
    for part in range(2):
        for folder in (tmp_path / str(part) / "wandb").glob("offline-run-*"):
            shutil.copytree(folder, together / f"{folder.name[:12]}{part}{folder.name[12:]}")
    for more in ({}, {"step": "step"}):
        study = judge(together, format="wandb", **more, **ASKED)
        assert study.report.baseline.metrics["loss"].mean == 10.125
        assert rounded(study) == {"wide": [1.0] * 3}


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")  # of the libraries
@pytest.mark.parametrize("kind", LOGGERS)
def test_runs_that_the_library_of_a_tracker_wrote(kind: str, tmp_path: Path) -> None:
    """Last metrics, curves, status and parameters; what is read is not changed."""
    write, said = LOGGERS[kind]
    place = write(tmp_path, LOGGED)
    every = place.rglob("*") if place.is_dir() else [place]
    files = [file for file in every if file.is_file() and file.suffix != ".log"]  # W&B still writes those
    before = {file: file.read_bytes() for file in files}
    asked: dict[str, Any] = {**ASKED, "format": kind, **said}
    last = judge(place, **asked).report
    (row,) = (row for row in last.variants if row.name == "wide")
    assert row.difference is not None
    assert row.difference.values == pytest.approx([0.3, 0.306])
    assert [trial.seed for trial in row.failed] == [2]
    assert judge(place, **asked, step="step", at=0).report.baseline.metrics[asked["metric"]].mean == pytest.approx(3.01)
    assert {file: file.read_bytes() for file in files} == before
    unmarked = judge(place, **{key: value for key, value in asked.items() if key != "failed"})
    told = any("1 run with status" in limit for _, limit in unmarked.report.record.judged.limits)
    assert told == ("status" in said["failed"])


@pytest.mark.parametrize("kind", LOGGERS)
def test_what_is_not_a_tracker_s_says_so(kind: str, tmp_path: Path) -> None:
    name = {"aim": ".aim/run_metadata.sqlite", "wandb": "other.wandb"}.get(kind, "other.db")
    pytest.importorskip(kind)
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(AblateError, match=r"not a database of|not the file of a run|holds no row|cannot be read"):
        judge(tmp_path / name, **ASKED, format=kind)
    assert (tmp_path / name).read_bytes() == b""


class WandbServer(BaseHTTPRequestHandler):
    """What W&B's own library asks of its server to read runs, which are those of `LOGGED`."""

    def do_POST(self) -> None:
        body, told = self.rfile.read(int(self.headers["Content-Length"])), "{}"
        if self.path == "/graphql":  # the library also sends records of its use
            asked = json.loads(body)
            told = json.dumps({"data": self.answer(asked["query"], asked.get("variables") or {})})
        self.send_response(200)
        self.send_header("Content-Length", str(len(told)))
        self.end_headers()
        self.wfile.write(told.encode())

    def log_message(self, *_: object) -> None: ...

    def answer(self, query: str, given: dict[str, Any]) -> dict[str, Any]:
        name = given.get("run") or given.get("runName") or given.get("name") or "base-0"
        if "viewer" in query:
            return {"viewer": {"id": "1", "entity": "me", "username": "me", "flags": "{}", "teams": {"edges": []}}}
        if "query Runs(" in query:
            edges = [{"node": self.node(*key), "cursor": ""} for key in LOGGED]
            page = {"endCursor": None, "hasNextPage": False}
            return {"project": {"internalId": "1", "runCount": len(edges), "runs": {"edges": edges, "pageInfo": page}}}
        variant, _, seed = name.partition("-")
        curve = LOGGED[variant, int(seed)]
        rows = [json.dumps({"_step": step, "loss": loss}) for step, loss in curve.items()]
        run = {"historyKeys": {"lastStep": max(curve), "keys": {"loss": {}}}, "history": rows}
        return {"project": {"run": run | {"parquetHistory": {"parquetUrls": [], "liveData": [{"_step": 0}]}}}}

    def node(self, variant: str, seed: int) -> dict[str, Any]:
        config = {name: {"value": value} for name, value in {"variant": variant, "seed": seed}.items()}
        last = {"loss": list(LOGGED[variant, seed].values())[-1]}
        same = dict.fromkeys(("sweepName", "group", "jobType", "commit", "description", "notes", "createdAt"))
        return same | {
            "id": f"{variant}-{seed}", "name": f"{variant}-{seed}", "displayName": f"{variant} {seed}", "tags": [],
            "projectId": "1", "state": "failed" if (variant, seed) == CRASHED else "finished", "readOnly": True,
            "config": json.dumps(config), "summaryMetrics": json.dumps(last), "systemMetrics": "{}",
            "historyLineCount": 3, "historyKeys": {"lastStep": 20, "keys": {}}, "heartbeatAt": None,
            "user": {"name": "me", "username": "me"},
        }  # fmt: skip


def test_the_api_of_wandb(tmp_path: Path) -> None:
    """By W&B's own library, from a server of its protocol on this machine."""
    pytest.importorskip("wandb")
    with ThreadingHTTPServer(("127.0.0.1", 0), WandbServer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = {"WANDB_BASE_URL": f"http://127.0.0.1:{server.server_port}", "WANDB_API_KEY": "0" * 40}
        own = {"WANDB_CACHE_DIR": str(tmp_path), "WANDB_CONFIG_DIR": str(tmp_path), "WANDB_DIR": str(tmp_path)}
        command = "judge wandb:me/mine --metric loss --direction lower --baseline base --margin 0.1 --json"
        for more, expected in (("--failed status=failed", 0.303), ("--step step --at 10", 0.306)):
            done = subprocess.run(
                [sys.executable, "-m", "ablate", *command.split(), *more.split()],
                env=os.environ | url | own, capture_output=True, text=True, check=False, cwd=tmp_path,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
            (row,) = (row for row in json.loads(done.stdout)["questions"]["loss"]["variants"] if row["name"] == "wide")
            assert row["table"]["difference"] == pytest.approx(expected)
        server.shutdown()


def test_half_a_character_in_a_json_table_is_shown_as_missing_and_is_no_number(tmp_path: Path) -> None:
    lines = [json.dumps({**run, "note\ud800": "\ud800"}) for run in RUNS]
    (tmp_path / "runs.jsonl").write_text("\n".join(lines))
    frame = reading.read_tables(tmp_path, ["runs.jsonl"], RunTableSpec())
    assert set(frame["note\N{REPLACEMENT CHARACTER}"]) == {"\N{REPLACEMENT CHARACTER}"}
    (tmp_path / "runs.jsonl").write_text("\n".join([*lines[1:], json.dumps(RUNS[0] | {"loss": "\ud800"})]))
    with pytest.raises(AblateError, match="\N{REPLACEMENT CHARACTER}"):
        judge(tmp_path / "runs.jsonl", **ASKED)


def test_what_is_no_file_and_a_step_that_no_run_has_are_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(AblateError, match="not a regular file"):
        judge(tmp_path / "pipe.csv", **ASKED)
    frame = pd.DataFrame([{**run, "step": 10} for run in RUNS])
    with pytest.raises(AblateError, match=r"no run has loss at this step; expected 10; got 77"):
        judge(frame, **ASKED, step="step", at=77)


def test_a_copy_of_a_folder_of_aim_follows_no_link_and_opens_no_pipe(tmp_path: Path) -> None:
    own = tmp_path / ".aim"
    (own / "meta").mkdir(parents=True)
    (own / "index").mkdir()
    (own / "meta" / "chunk").write_text("data")
    (own / "endless").symlink_to("/dev/zero")
    (own / "above").symlink_to(tmp_path)
    os.mkfifo(own / "meta" / "pipe")
    shutil.copytree(own, tmp_path / "copy", ignore=logged.left_out)
    assert sorted(path.name for path in (tmp_path / "copy").rglob("*")) == ["chunk", "meta"]


def test_a_group_of_lm_eval_without_the_metric_counts_nothing(tmp_path: Path) -> None:
    """A group that is a list of tasks only, one within another, and one that aggregates another metric."""
    for model, gain in (("base", 0.0), ("new", 0.1)):
        tasks: dict[str, Any] = {name: {"acc,none": 0.3 + gain + place / 100} for place, name in enumerate("abcdef")}
        tasks |= {"inner": {"acc,none": 0.5 + gain}, "outer": {"alias": "outer"}, "other": {"f1,none": 0.5}}
        within = {"inner": ["a", "b"], "outer": ["inner", "c"], "other": ["d", "e"]}
        lm_eval(tmp_path, model, tasks, group_subtasks=within)
    asked = ASKED | {"metric": "acc", "direction": "higher", "margin": 0.01}
    study = judge(
        "*/results.json", data=tmp_path, format="lm-eval", path="^(?P<variant>[^/]+)/", unit="task", pair=True, **asked
    )
    judged = study.report.record.judged
    assert judged is not None
    assert sorted(judged.units.values()) == ["c", "d", "e", "f", "inner"]
    assert "inner is a group: its 2 members are left out" in " ".join(study.report.answer.sentences)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda frame: frame.assign(seed=pd.array([*frame["seed"][:-1], None], dtype="Int64")), "row 9: this row has no seed"),
        (lambda frame: frame.assign(variant=pd.array([None, *frame["variant"][1:]], dtype="string")), "row 1: this row names no variant"),
        (lambda frame: frame.iloc[:0], "holds no row"),
        (lambda frame: pd.concat([frame, frame[["loss"]]], axis=1), "the column 'loss' is there twice"),
    ],
)  # fmt: skip
def test_a_frame_with_what_pandas_alone_has_is_refused_by_name(change: Any, said: str, tmp_path: Path) -> None:
    frame, file = change(pd.DataFrame(RUNS)), tmp_path / "runs.parquet"
    with pytest.raises(AblateError, match=said):
        judge(frame, **ASKED)
    if frame.columns.is_unique:  # pandas refuses to write others
        frame.to_parquet(file)
        with pytest.raises(AblateError, match=said):
            judge(file, **ASKED)


def test_numbers_in_the_names_of_files_are_ordered_by_size(tmp_path: Path) -> None:
    """So that the last part of a run that was cut several times is the last."""
    for part in range(8, 12):
        rows = [{**run, "step": 1, "loss": part + float(str(run["loss"]))} for run in RUNS]
        pd.DataFrame(rows).to_csv(tmp_path / f"part_{part}.csv", index=False)
    study = judge("part_*.csv", data=tmp_path, step="step", repeated="last", **ASKED)
    assert study.report.baseline.metrics["loss"].mean == pytest.approx(12.01)


def test_texts_of_json_lines_hold_other_ends_of_lines(tmp_path: Path) -> None:
    lines = [json.dumps({**run, "text": "a\u2028b\x85c"}, ensure_ascii=False) for run in RUNS]
    (tmp_path / "runs.jsonl").write_text("\n".join(lines), encoding="utf-8")
    assert values(judge(tmp_path / "runs.jsonl", **ASKED))["007"] == pytest.approx([0.02] * 3)


def test_two_lists_of_one_record_with_equal_keys_are_refused(tmp_path: Path) -> None:
    both = [{"variant": "base", "train": [{"loss": 1.0}], "val": [{"loss": 2.0}]}]
    (tmp_path / "runs.json").write_text(json.dumps(both))
    with pytest.raises(AblateError, match="two lists of one record both have 'loss'"):
        judge(tmp_path / "runs.json", **ASKED)


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_a_run_that_diverges_at_a_step_of_its_own_has_failed_in_every_format(kind: str, tmp_path: Path) -> None:
    rows = [{**run, "step": step} for run in RUNS for step in (1, 2)]
    rows += [{"variant": "007", "seed": 1, "step": 3, "loss": math.nan}]
    rows += [{"variant": "007", "seed": 2, "step": 3, "train": 1.0}] if kind == "jsonl" else []
    file = tmp_path / f"runs.{kind}"
    if kind == "csv":
        pd.DataFrame(rows).to_csv(file, index=False, na_rep="nan")
    else:
        file.write_text("\n".join(map(json.dumps, rows)))
    failed = {row.name: [one.seed for one in row.failed] for row in judge(file, step="step", **ASKED).report.variants}
    assert failed == {"base": [], "007": [1], "b|<i>`x`*": []}


def test_numbers_of_a_log_are_whole_or_not_finite(tmp_path: Path) -> None:
    for variant, last in (("base", "0.5"), ("other", "nan")):
        for seed in range(3):
            lines = f"step 1 loss 0.{seed + 5} .\nstep 2 loss {last} .\n"
            (tmp_path / f"{variant}-{seed}.log").write_text(lines)
    asked = {"path": r"^(?P<variant>\w+)-(?P<seed>\d)", "step": "step", **ASKED}
    study = judge("*.log", data=tmp_path, line=r"^step (?P<step>\d+) loss (?P<loss>[\d.]+)", **asked)
    assert [len(row.failed) for row in study.report.variants] == [0, 3]
    (tmp_path / "base-0.log").write_text("step 1 loss 9.1e-05 .\n")
    with pytest.raises(AblateError, match=r"cuts '9.1' out of a longer number"):
        judge("*.log", data=tmp_path, line=r"^step (?P<step>\d+) loss (?P<loss>[\d.]+).* \.", **asked)
