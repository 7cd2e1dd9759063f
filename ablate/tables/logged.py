"""Runs that a tracker holds, to rows: W&B, MLflow, trackio and Aim, each by its own library.

A run becomes a row with its name, status, parameters and last metrics; or a row for each step. Files are read from a
copy, because the libraries may change what they open.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
import stat
import struct
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from ablate.errors import AblateError, DataError, first_cause
from ablate.extras import require
from ablate.locations import read_file
from ablate.tables.formats import MOST_BYTES, ORIGIN, Row, flattened, rows_of_points

ADDRESS = re.compile(r"\A(?P<format>wandb|mlflow|trackio):(?P<argument>.+)\Z", re.DOTALL)
"""A place of runs that is not a file, as `--log-to` writes it: `wandb:ENTITY/PROJECT`, `mlflow:URI`,
`trackio:PROJECT`."""
_NOT_FINITE = ("nan", "inf", "infinity")
_Points = Iterable[tuple[int, Mapping[str, Any]]]


@dataclass(frozen=True)
class LoggedRun:
    """A run as its tracker holds it.

    Attributes:
        facts: What the tracker itself says of it: `run` (its name), `status`, `experiment`.
        parameters: What the user gave: the configuration, tags; nested.
        last: The last value of each metric.
        points: The steps with the metrics of each; read if they are asked for.
    """

    facts: Mapping[str, Any]
    parameters: Mapping[str, Any]
    last: Mapping[str, Any]
    points: Callable[[], _Points]


def read_logged(format_: str, source: str | Path, *, steps: bool) -> Iterator[Row]:
    """The rows of all runs of a tracker.

    A parameter with the name of a fact or of a metric is the column `param.NAME`.

    Args:
        format_: `wandb`, `mlflow`, `trackio` or `aim`.
        source: A file of the tracker (the database of MLflow or trackio, the file of an offline run of W&B, the folder
            of Aim), or as text the argument of an address.
        steps: Whether to give a row for each step of a run, with a column `step`; else one with its last metrics.

    Raises:
        DataError: The library cannot read it, or there are no runs.
        MissingPackageError: It is not installed.
    """
    what, reader = _READERS[format_]
    require(format_, what, where=str(source))
    try:
        for run in reader(source):
            yield from _rows(run, source, steps=steps)
    except AblateError:
        raise
    except Exception as error:  # the libraries raise their own errors, those of a network and of a database
        problem = f"{what} cannot be read ({first_cause(error, str(source))})"
        raise DataError(problem, where=str(source), remedy=_REMEDIES.get(format_)) from None


def _rows(run: LoggedRun, source: str | Path, *, steps: bool) -> Iterator[Row]:
    origin = {ORIGIN: f"{source} run {run.facts['run']}"}
    by_step = list(rows_of_points((step, _metrics(values)) for step, values in (run.points() if steps else ())))
    metrics = _metrics(run.last)
    taken = {*run.facts, *metrics, *(("step",) if steps else ()), *(name for row in by_step for name in row)}
    parameters = {
        f"param.{name}" if name in taken else name: json.dumps(value) if isinstance(value, list | tuple) else value
        for name, value in flattened(run.parameters, str(source))
    }
    facts = {**run.facts, **parameters, **origin}
    if not steps:
        yield facts | metrics
    elif not by_step:
        yield facts | {"step": 0}
    for row in by_step:
        yield facts | row


def _metrics(values: Mapping[str, Any]) -> dict[str, float]:
    """The numbers among some values; W&B and trackio write those that are not finite as texts."""
    found = {}
    for name, value in flattened(values, "metrics"):
        if isinstance(value, int | float) or (isinstance(value, str) and value.lower().lstrip("-") in _NOT_FINITE):
            found[name] = float(value)
    return found


def _wandb(source: str | Path) -> Iterator[LoggedRun]:
    if isinstance(source, Path):
        yield _wandb_offline(source)
        return
    import wandb

    for run in wandb.Api().runs(source, lazy=False):
        yield LoggedRun(
            {"run": run.name, "status": run.state, "group": run.group or ""},
            {name: value for name, value in run.config.items() if not name.startswith("_")},
            {name: run.summary[name] for name in run.summary.keys() if not name.startswith("_")},  # noqa: SIM118
            lambda run=run: ((int(row["_step"]), _public(row)) for row in run.scan_history()),  # type: ignore[misc]
        )


def _public(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if not name.startswith("_")}


def _wandb_offline(file: Path) -> LoggedRun:
    """The run of an offline file: records of W&B's own protocol in LevelDB's log format."""
    facts, parameters = {"run": file.stem.removeprefix("run-"), "status": "running", "group": ""}, dict[str, Any]()
    summary, points = dict[str, Any](), list[tuple[int, dict[str, Any]]]()
    for record in wandb_records(file):
        kind = record.WhichOneof("record_type")
        if kind == "run":
            parameters |= _items(record.run.config.update)
            facts |= {"run": record.run.display_name or record.run.run_id, "group": record.run.run_group}
        elif kind == "config":
            parameters |= _items(record.config.update)
        elif kind == "history":
            points.append((record.history.step.num, _public(_items(record.history.item))))
        elif kind == "summary":
            summary |= _items(record.summary.update)
        elif kind == "exit":
            facts["status"] = "failed" if record.exit.exit_code else "finished"
    return LoggedRun(facts, _public(parameters), _public(summary), lambda: points)


def _items(items: Iterable[Any]) -> dict[str, Any]:
    return {item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in items}


def wandb_records(file: Path) -> Iterator[Any]:
    """The records of an offline run of W&B, which `wandb sync` would send.

    The format is that of LevelDB's log, blocks of 32 KiB, after a header of seven bytes; a run that was killed ends
    within a record, which is left out.
    """
    from wandb.proto import wandb_internal_pb2

    protocol: Any = wandb_internal_pb2
    data, at, held = read_file(file, MOST_BYTES, DataError, noun="a run of W&B"), 7, b""
    if not data.startswith(b":W&B"):
        raise DataError("this is not the file of a run of W&B", where=str(file), expected="a file `run-*.wandb`")
    while at + 7 <= len(data):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        _, length, part = struct.unpack("<IHB", data[at : at + 7])
        if at + 7 + length > len(data):
            return
        held = data[at + 7 : at + 7 + length] if part in (1, 2) else held + data[at + 7 : at + 7 + length]
        at += 7 + length
        if part in (1, 4):  # a whole record, or the last part of one
            record = protocol.Record()
            record.ParseFromString(held)
            yield record


def _mlflow(source: str | Path) -> Iterator[LoggedRun]:
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    from mlflow import MlflowClient

    if isinstance(source, Path):
        with _copied_database(source, "MLflow", "runs") as copy:
            yield from _mlflow(f"sqlite:///{copy}")
        return
    client = MlflowClient(tracking_uri=source)
    for experiment in client.search_experiments():
        token: str | None = None
        while token != "":
            page = client.search_runs([experiment.experiment_id], max_results=1000, page_token=token)
            token = page.token or ""
            for run in page:
                tags = {name: text for name, text in run.data.tags.items() if not name.startswith("mlflow.")}
                yield LoggedRun(
                    {"experiment": experiment.name, "run": run.info.run_name, "status": run.info.status},
                    tags | run.data.params,
                    run.data.metrics,
                    lambda run=run: _mlflow_points(client, run),  # type: ignore[misc]
                )


def _mlflow_points(client: Any, run: Any) -> _Points:
    for name in run.data.metrics:
        for point in sorted(client.get_metric_history(run.info.run_id, name), key=lambda point: point.timestamp):
            yield point.step, {name: point.value}


@contextmanager
def _copied_database(file: Path, of: str, table: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        copy = Path(folder) / "copy.db"
        try:
            with (
                closing(sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True)) as source,
                closing(sqlite3.connect(copy)) as target,
            ):
                source.execute(f"SELECT * FROM {table} LIMIT 1")
                source.backup(target)
        except sqlite3.Error as error:
            raise DataError(f"this is not a database of {of} ({error})", where=str(file)) from None
        yield copy


def _trackio(source: str | Path) -> Iterator[LoggedRun]:
    from trackio import Api, sqlite_storage

    storage = sqlite_storage.SQLiteStorage
    file = source if isinstance(source, Path) else storage.get_project_db_path(source)
    if not file.is_file():
        raise DataError("trackio has no such project", where=str(source), expected=f"a database {file}")
    with _copied_database(file, "trackio", "metrics") as copy, patch.object(sqlite_storage, "TRACKIO_DIR", copy.parent):
        for run in Api().runs(copy.stem):
            rows = [(int(row["step"]), row) for row in storage.get_logs(copy.stem, run.name, run_id=run.id)]
            points = [
                (step, {name: value for name, value in row.items() if name not in ("step", "timestamp")})
                for step, row in rows
            ]
            last = {name: value for _, values in points for name, value in values.items()}
            yield LoggedRun({"run": run.name}, _public(run.config or {}), last, lambda points=points: points)  # type: ignore[misc]


def _aim(source: str | Path) -> Iterator[LoggedRun]:
    """The runs of a folder of Aim; without its index, which may lack runs that Aim has not put there yet."""
    from aim.sdk.repo import Repo
    from aim.sdk.run import Run

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        own = Path(source)
        size = sum(file.stat().st_size for file in own.rglob("*") if file.is_file())
        if size > MOST_BYTES:
            raise DataError("this folder of Aim is too large to be judged", where=str(own), got=f"{size:,} bytes")
        shutil.copytree(own, Path(folder) / own.name, ignore=left_out)
        repo: Any = Repo(folder)
        try:
            for name in sorted(repo.list_all_runs()):
                yield _aim_run(Run(name, repo=repo, read_only=True))
        finally:
            repo.close()


def left_out(folder: str, names: Sequence[str]) -> set[str]:
    """What a copy of a folder of Aim lacks: its index and locks, and all that is neither a file nor a folder, as links
    and devices.
    """
    kept = (stat.S_IFREG, stat.S_IFDIR)
    modes = {name: stat.S_IFMT(Path(folder, name).lstat().st_mode) for name in names}
    return {name for name, mode in modes.items() if name in ("index", "locks") or mode not in kept}


def _aim_run(run: Any) -> LoggedRun:
    last, points = dict[str, Any](), list[tuple[int, dict[str, Any]]]()
    for metric in run.metrics():
        context = "".join(f" {key}={value}" for key, value in sorted(metric.context.to_dict().items()))
        frame = metric.dataframe()
        points += [
            (int(step), {f"{metric.name}{context}": value})
            for step, value in zip(frame["step"], frame["value"], strict=True)
        ]
    for _, values in sorted(points, key=lambda point: point[0]):
        last |= values
    status = "running" if run.end_time is None else "finished"
    facts = {"run": run.name, "experiment": run.experiment or "", "status": status}
    return LoggedRun(facts, run.get(..., {}), last, lambda: points)


_READERS: dict[str, tuple[str, Callable[[str | Path], Iterator[LoggedRun]]]] = {
    "wandb": ("W&B", _wandb),
    "mlflow": ("MLflow", _mlflow),
    "trackio": ("trackio", _trackio),
    "aim": ("Aim", _aim),
}
"""Format to the name of the tracker, and its reader."""
_REMEDIES = {
    "wandb": "Write `wandb:ENTITY/PROJECT`, and log in with `wandb login`.",
    "mlflow": "Name MLflow's database, such as `mlflow.db`, or the address of its server, as `mlflow:http://HOST:5000`.",
}
