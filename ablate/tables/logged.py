"""Runs that a tracker holds, to rows: W&B, MLflow, trackio and Aim, each by its own library.

A run becomes a row with its name, status, parameters and last metrics; or a row for each step. Files are read from a
copy, because the libraries may change what they open.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import sqlite3
import stat
import struct
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ablate.errors import AblateError, DataError, first_cause
from ablate.extras import require
from ablate.locations import read_file, real_path
from ablate.processes import adopt_modules, child_environment, keep_printing, python_command
from ablate.tables.formats import LOGGED, MOST_BYTES, ORIGIN, Row, flatten, rows_of_points

ADDRESS = re.compile(r"\A(?P<format>wandb|mlflow|trackio):(?P<argument>.+)\Z", re.DOTALL)
"""A place of runs that is not a file, as `--log-to` writes it: `wandb:ENTITY/PROJECT`, `mlflow:URI`,
`trackio:PROJECT`."""
_PARENT = "mlflow.parentRunId"
_NOT_FINITE = ("nan", "inf", "infinity")
_Points = Iterable[tuple[int, Mapping[str, Any]]]


@dataclass(frozen=True)
class LoggedRun:
    """A run as its tracker holds it.

    Attributes:
        facts: What the tracker itself says of it: `run` (its name), `id`, `status`, `experiment`, `group`; of nested
            runs the id of the `parent`, and how many `children` each has.
        parameters: What the user gave: the configuration, tags; nested.
        last: The last value of each metric.
        points: The steps with the metrics of each; read if they are asked for.
    """

    facts: Mapping[str, Any]
    parameters: Mapping[str, Any]
    last: Mapping[str, Any]
    points: Callable[[], _Points]


def read_logged(format_: str, source: str | Sequence[Path], *, steps: bool) -> Iterator[Row]:
    """The rows of all runs of a tracker.

    A parameter with the name of a fact or of a metric is the column `param.NAME`.

    Args:
        format_: `wandb`, `mlflow`, `trackio` or `aim`.
        source: A file of the tracker (the database of MLflow or trackio, the files of an offline run of W&B, which has
            another each time that it went on, the folder of Aim), or as text the argument of an address.
        steps: Whether to give a row for each step of a run, with a column `step`; else one with its last metrics.

    Raises:
        DataError: The library cannot read it, or there are no runs.
        MissingPackageError: It is not installed.
    """
    what, reader = _READERS[format_]
    where = source if isinstance(source, str) else str(source[0])
    require(format_, what, where=where)
    try:
        for run in reader(source):
            yield from _rows(run, where, steps=steps)
    except AblateError:
        raise
    except Exception as error:  # the libraries raise their own errors, those of a network and of a database
        problem = f"{what} cannot be read ({first_cause(error, where)})"
        raise DataError(problem, where=where, remedy=_REMEDIES.get(format_)) from None


def _rows(run: LoggedRun, source: str, *, steps: bool) -> Iterator[Row]:
    origin = {ORIGIN: f"{source} run {run.facts['run']}"}
    by_step = list(rows_of_points((step, _metrics(values)) for step, values in (run.points() if steps else ())))
    metrics = _metrics(run.last)
    taken = {*run.facts, *metrics, *(("step",) if steps else ()), *(name for row in by_step for name in row)}
    parameters = {
        f"param.{name}" if name in taken else name: json.dumps(value) if isinstance(value, list | tuple) else value
        for name, value in flatten(run.parameters, source)
    }
    facts = {**run.facts, **parameters, **origin, LOGGED: tuple(taken)}
    if not steps:
        yield facts | metrics
    elif not by_step:
        yield facts | {"step": 0}
    for row in by_step:
        yield facts | row


def _metrics(values: Mapping[str, Any]) -> dict[str, float]:
    """The numbers among some values; W&B and trackio write those that are not finite as texts."""
    found = {}
    for name, value in flatten(values, "metrics"):
        if isinstance(value, int | float) or (isinstance(value, str) and value.lower().lstrip("-") in _NOT_FINITE):
            found[name] = float(value)
    return found


def _wandb(source: str | Sequence[Path]) -> Iterator[LoggedRun]:
    if not isinstance(source, str):
        yield _wandb_offline(source)
        return
    import wandb

    for run in wandb.Api().runs(source, lazy=False):
        yield LoggedRun(
            {"run": run.name, "id": run.id, "status": run.state, "group": run.group or ""},
            {name: value for name, value in run.config.items() if not name.startswith("_")},
            {name: run.summary[name] for name in run.summary.keys() if not name.startswith("_")},  # noqa: SIM118
            lambda run=run: ((int(row["_step"]), _public(row)) for row in run.scan_history()),  # type: ignore[misc]
        )


def _public(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if not name.startswith("_")}


def _wandb_offline(files: Sequence[Path]) -> LoggedRun:
    """The run of offline files: records of W&B's own protocol in LevelDB's log format."""
    name = files[0].stem.removeprefix("run-")
    facts, parameters = {"run": name, "id": name, "status": "running", "group": ""}, dict[str, Any]()
    summary, points = dict[str, Any](), list[tuple[int, dict[str, Any]]]()
    for record in itertools.chain.from_iterable(map(wandb_records, files)):
        kind = record.WhichOneof("record_type")
        if kind == "run":
            parameters |= _items(record.run.config.update)
            facts |= {"run": record.run.display_name or record.run.run_id, "group": record.run.run_group}
            facts["status"] = "running"
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


def _mlflow(source: str | Sequence[Path]) -> Iterator[LoggedRun]:
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    from mlflow import MlflowClient

    if not isinstance(source, str):
        with _copied_database(source[0], "MLflow", "runs") as copy:
            yield from _mlflow(f"sqlite:///{copy}")
        return
    client = MlflowClient(tracking_uri=source)
    runs = [
        (experiment.name, run) for experiment in client.search_experiments() for run in _mlflow_runs(client, experiment)
    ]
    children = Counter(run.data.tags.get(_PARENT) for _, run in runs)
    for experiment, run in runs:
        facts = {"experiment": experiment, "run": run.info.run_name, "id": run.info.run_id, "status": run.info.status}
        nested = {"parent": run.data.tags.get(_PARENT, ""), "children": children[run.info.run_id]}
        tags = {name: text for name, text in run.data.tags.items() if not name.startswith("mlflow.")}
        points = partial(_mlflow_points, client, run)
        yield LoggedRun(facts | nested, tags | run.data.params, run.data.metrics, points)


def _mlflow_runs(client: Any, experiment: Any) -> Iterator[Any]:
    token: str | None = None
    while token != "":
        page = client.search_runs([experiment.experiment_id], max_results=1000, page_token=token)
        token = page.token or ""
        yield from page


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
                closing(sqlite3.connect(f"{real_path(file).as_uri()}?mode=ro", uri=True)) as source,
                closing(sqlite3.connect(copy)) as target,
            ):
                source.execute(f"SELECT * FROM {table} LIMIT 1")
                source.backup(target)
        except sqlite3.Error as error:
            raise DataError(f"this is not a database of {of} ({error})", where=str(file)) from None
        yield copy


def _trackio(source: str | Sequence[Path]) -> Iterator[LoggedRun]:
    if isinstance(source, str):
        from trackio.sqlite_storage import SQLiteStorage

        file = SQLiteStorage.get_project_db_path(source)
        if not file.is_file():
            raise DataError("trackio has no such project", where=source, expected=f"a database {file}")
    else:
        file = source[0]
    with _copied_database(file, "trackio", "metrics") as copy:
        command = python_command("-m", "ablate.tables.logged", copy.stem)
        surroundings = child_environment({"TRACKIO_DIR": str(copy.parent)})
        done = subprocess.run(command, env=surroundings, capture_output=True, text=True, check=False)
    if done.returncode:
        said = done.stderr.strip() or f"exit code {done.returncode}"
        raise DataError(f"trackio cannot read it ({said.splitlines()[-1][:200]})", where=str(file))
    for run in map(json.loads, done.stdout.splitlines()):
        points = [
            (int(row["step"]), {name: value for name, value in row.items() if name not in ("step", "timestamp")})
            for row in run["rows"]
        ]
        last = {name: value for _, values in points for name, value in values.items()}
        facts = {"run": run["run"], "id": run["id"], "group": run["config"].get("_Group") or ""}
        yield LoggedRun(facts, _public(run["config"]), last, partial(list, points))


def _aim(source: str | Sequence[Path]) -> Iterator[LoggedRun]:
    """The runs of a folder of Aim; without its index, which may lack runs that Aim has not put there yet."""
    from aim.sdk.repo import Repo
    from aim.sdk.run import Run

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        own = Path(source[0])
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
    facts = {"run": run.name, "id": run.hash, "experiment": run.experiment or "", "status": status}
    return LoggedRun(facts, run.get(..., {}), last, lambda: points)


_READERS: dict[str, tuple[str, Callable[[str | Sequence[Path]], Iterator[LoggedRun]]]] = {
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


def _print_trackio(project: str) -> None:
    """Print the runs of a project of trackio, each as a line of JSON.

    trackio reads its folder from the environment once for each process, so `_trackio` starts one for this.
    """
    from trackio import Api
    from trackio.sqlite_storage import SQLiteStorage

    for run in Api().runs(project):
        rows = SQLiteStorage.get_logs(project, run.name, run_id=run.id)
        print(json.dumps({"run": run.name, "id": run.id, "config": run.config or {}, "rows": rows}, default=str))


if __name__ == "__main__":
    adopt_modules()
    keep_printing()
    _print_trackio(sys.argv[1])
