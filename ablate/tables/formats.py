"""Files of runs to rows, by format: no reader knows whose files they are.

Every reader returns rows with the columns of its file; texts stay texts, so that a variant `02222222` keeps its zero.
The column `ORIGIN` says where a row stands, for messages.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ablate.errors import DataError, first_cause
from ablate.extras import require
from ablate.locations import read_file
from ablate.tables.cells import with_decimal_points

if TYPE_CHECKING:
    import pandas as pd

ORIGIN = "\N{SECTION SIGN}origin"
"""The column with the file, and where it has lines the line, of a row."""
LOGGED = "\N{SECTION SIGN}logged"
"""The column with the names of what a tracker or its user measured of a run: they are none of its parameters."""
MOST_LEVELS = 20
"""Nesting of mappings and lists in JSON."""
_NTH = "\N{SECTION SIGN}nth"
"""The column that counts the values of a metric of a run at one step."""
SUMMARY = ("__MIN", "__MAX")
"""Endings of the columns that W&B puts beside that of each run."""
Row = dict[str, Any]


MOST_BYTES = 1 << 30
"""Of one file."""


def file_text(file: Path) -> str:
    """The text of a file in UTF-8.

    Raises:
        DataError: With the line that is not.
    """
    try:
        return read_file(file, MOST_BYTES, DataError, noun="a table").decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if error.object.startswith(b"\x1f\x8b"):
            raise DataError("this file is compressed", where=str(file), remedy="Unpack it with `gunzip`.") from None
        line = error.object[: error.start].count(b"\n") + 1
        raise DataError("this is not UTF-8 text", where=f"{file}:{line}", remedy="Save the file as UTF-8.") from None


SEPARATORS = {"csv": ",", "tsv": "\t", "csv2": ";"}
"""What divides cells, by the format."""


def read_separated(
    file: Path, separator: str, header: int = 1, decimal: str | None = None, *, summaries: bool = False
) -> pd.DataFrame:
    """A table of cells divided by a separator.

    Args:
        header: Rows above the values; where pandas names the index below several, that row is one more.
        decimal: The decimal sign; by default a point or, where a semicolon divides, the one that its numbers show.
        summaries: Whether W&B's columns of minima are expected.

    Raises:
        DataError: A column is there twice, a row is longer or shorter than the header, or a number has two readings.
    """
    import pandas as pd

    reader = csv.reader(io.StringIO(file_text(file), newline=""), delimiter=separator, skipinitialspace=True)
    rows, lines, above, comments = list[list[str]](), list[str](), list[list[str]](), list[list[str]]()
    try:
        for row in reader:
            if not row:
                continue
            if not above and row[0].startswith("#"):
                comments.append(row)
                continue
            if not above and any(len(comment) == len(row) for comment in comments):
                raise DataError("the first line is a comment", where=f"{file}:1", expected="the names of the columns")
            if above and len(row) != len(above[0]):
                raise DataError(
                    "this row is not as long as the header",
                    where=f"{file}:{reader.line_num}",
                    expected=f"{len(above[0])} cells",
                    got=str(len(row)),
                    remedy="Correct the row; a text that holds the separator stands in quotes.",
                )
            if len(above) < header or (not rows and _names_index(row, above)):
                above.append([name.strip() for name in row])
                if header == 1:
                    _check_header(file, above[0], separator, summaries=summaries)
                continue
            rows.append(row)
            lines.append(f"{file}:{reader.line_num}")
    except csv.Error as error:
        raise DataError(f"this is not a table ({error})", where=f"{file}:{reader.line_num}") from None
    names = _join_headers(above)
    if header > 1:
        _check_header(file, names, separator, summaries=summaries)
    if not rows:
        raise DataError("this file holds no row", where=str(file), remedy="Correct `files`, or the format.")
    columns = dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
    if decimal != "." and (decimal or separator == ";"):
        columns = with_decimal_points(columns, lines, decimal)
    return pd.DataFrame({**columns, ORIGIN: lines}, dtype=object)


def _names_index(row: Sequence[str], above: Sequence[Sequence[str]]) -> bool:
    """Whether a row below several of a header names the columns that the first of them leaves empty, and no others."""
    return len(above) > 1 and all(bool(cell) != bool(upper) for cell, upper in zip(row, above[0], strict=True))


def _join_headers(above: Sequence[Sequence[str]]) -> list[str]:
    """The names of columns with several header rows; an empty cell of all but the last has the name to its left."""
    if len(above) < 2:
        return list(above[0]) if above else []
    named = above[-1] if _names_index(above[-1], above[:2]) else [""] * len(above[0])
    levels = above[:-1] if any(named) else above
    filled = []
    for level in levels[:-1]:
        left, row = "", []
        for cell in level:
            left = cell or left
            row.append(left)
        filled.append(row)
    parts = zip(*filled, levels[-1], strict=True)
    return [own or ".".join(filter(None, cells)) for own, cells in zip(named, parts, strict=True)]


def _check_header(file: Path, header: Sequence[str], separator: str, *, summaries: bool) -> None:
    if twice := sorted({name for name in header if header.count(name) > 1}):
        remedy = "Rename one of them in the file. If there are several header rows, say how many: `header: 2`."
        raise DataError(f"the column {twice[0]!r} is there twice", where=f"{file}:1", remedy=remedy)
    if not summaries and any(" - " in name and name.endswith(SUMMARY) for name in header):
        raise DataError(
            "this is a wide export of W&B, whose `__MIN` and `__MAX` columns are not runs",
            where=f"{file}:1",
            remedy="Give `format: wandb`.",
        )
    others = {character: name for name, character in SEPARATORS.items() if character != separator}
    found = next((character for character in others if character in header[0]), None) if len(header) == 1 else None
    if found is not None or (len(header) == 1 and len(header[0].split()) > 1):
        remedy = "Divide the cells by commas."
        if found is not None:
            remedy = f"Give `format: {others[found]}`."
        raise DataError(
            f"this table has one column only, {header[0]!r}",
            where=f"{file}:1",
            expected=f"cells divided by {separator!r}",
            remedy=remedy,
        )


def _wandb(file: Path) -> pd.DataFrame:
    """W&B's wide export: a step, then `RUN - METRIC` with `__MIN` and `__MAX` beside it; to a row a run and step."""
    import pandas as pd

    wide = read_separated(file, ",", summaries=True)
    step, *columns = [str(name) for name in wide.columns if name != ORIGIN]
    kept = [name for name in columns if not name.endswith(SUMMARY)]
    if not kept or not all(" - " in name for name in kept):
        wrong = next((name for name in kept if " - " not in name), step)
        raise DataError(
            "this is not a wide export of W&B",
            where=f"{file}:1",
            expected="columns called `RUN - METRIC` after the first",
            got=repr(wrong),
            remedy="Give `format: csv` for an ordinary table.",
        )
    parts = []
    for name in kept:
        run, _, metric = name.rpartition(" - ")
        part = wide[[step, name, ORIGIN]].rename(columns={name: metric}).assign(run=run)
        filled = part[part[metric].str.strip() != ""]
        filled = filled if len(filled) else part.tail(1)  # a run without any value has failed
        parts.append(filled.assign(**{_NTH: filled.groupby(step).cumcount()}))
    frame = pd.concat(parts, ignore_index=True)
    nth = frame.pop(_NTH)
    metrics = [name for name in frame.columns if name not in (step, "run", ORIGIN)]
    if len(metrics) == 1:
        return frame
    texts = frame.groupby([step, "run", nth], sort=False)[[*metrics, ORIGIN]].first()
    return texts.reset_index(level=[step, "run"]).reset_index(drop=True).fillna("")


def _parquet(file: Path) -> pd.DataFrame:
    require("judge", "a Parquet file", where=str(file), packages=("pyarrow",))
    import pandas as pd

    try:
        frame = pd.read_parquet(file)
    except Exception as error:  # pyarrow raises errors of its own and of Python
        raise DataError(f"this is not a Parquet file ({first_cause(error, str(file))})", where=str(file)) from None
    return with_origin(frame, str(file))


def with_origin(frame: pd.DataFrame, where: str) -> pd.DataFrame:
    """The same rows, each with its origin: `WHERE row N`; an index that has names becomes columns.

    Raises:
        DataError: There is no row, or a column is there twice.
    """
    named = all(name is not None and name not in frame.columns for name in frame.index.names)
    frame = frame.reset_index(drop=not named).rename(columns=str)
    if len(twice := frame.columns[frame.columns.duplicated()]):
        raise DataError(f"the column {twice[0]!r} is there twice", where=where, remedy="Rename one of them.")
    if frame.empty:
        raise DataError("this holds no row", where=where)
    return frame.assign(**{ORIGIN: [f"{where} row {number}" for number in range(1, len(frame) + 1)]})


def _parse_json(text: str, where: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=partial(_once, where=where))
    except RecursionError:
        raise DataError("this JSON is nested too deeply", where=where, expected=f"{MOST_LEVELS} levels") from None
    except ValueError as error:
        raise DataError(f"this is not JSON ({error})", where=where, remedy="Correct the file.") from None


def _once(pairs: Sequence[tuple[str, Any]], where: str) -> dict[str, Any]:
    """The mapping of some pairs.

    Raises:
        DataError: A name is there twice.
    """
    found = dict(pairs)
    if len(found) < len(pairs):
        (name, _), *_ = Counter(name for name, _ in pairs).most_common(1)
        raise DataError(f"the key {name!r} is there twice", where=where, remedy="Rename one of them.")
    return found


def _json_lines(file: Path) -> Iterator[Row]:
    for number, line in enumerate(file_text(file).split("\n"), 1):  # a text in JSON may hold other ends of lines
        if line.strip():
            where = f"{file}:{number}"
            record = _parse_json(line, where)
            if not isinstance(record, dict):
                raise DataError("a line is not an object", where=where, expected="{...}", got=line.strip()[:60])
            yield from _explode(record, where)


def _json(file: Path) -> Iterator[Row]:
    """Rows of a JSON file: a list of objects, an object of columns, or an object whose keys name its rows (`key`)."""
    whole = _parse_json(file_text(file), str(file))
    if isinstance(whole, dict) and {"results", "versions"} <= whole.keys():
        raise DataError("this is a result file of lm-eval", where=str(file), remedy="Give `format: lm-eval`.")
    if isinstance(whole, list):
        records: list[Row] = []
        for number, record in enumerate(whole):
            if not isinstance(record, dict):
                raise DataError(
                    "an entry is not an object", where=f"{file} entry {number}", expected="{...}", got=repr(record)[:60]
                )
            records.append(record)
        for number, record in enumerate(records):
            yield from _explode(record, f"{file} entry {number}")
    elif isinstance(whole, dict) and whole and all(isinstance(value, dict) for value in whole.values()):
        for key, record in whole.items():
            yield from _explode({"key": key, **record}, f"{file} key {key!r}")
    elif isinstance(whole, dict) and whole and _are_rows_of_keys(whole):
        for key, values in whole.items():
            for index, value in enumerate(values):
                yield {"key": key, "index": str(index), "value": value, ORIGIN: f"{file} key {key!r}[{index}]"}
    elif isinstance(whole, dict) and whole:
        yield from _explode(whole, str(file))
    else:
        raise DataError("this JSON holds no rows", where=str(file), expected="a list of objects, or an object")


def _are_rows_of_keys(whole: Mapping[str, Any]) -> bool:
    """Whether each key has numbers of its own, as in `{"base": [1, 2, 3], "b": [2, 3]}`: columns are equally long."""
    lists = [of for of in whole.values() if isinstance(of, list) and all(isinstance(one, int | float) for one in of)]
    return len(lists) == len(whole) and len({len(of) for of in lists}) > 1


def _explode(record: Row, where: str) -> Iterator[Row]:
    """A record as rows: nested objects become columns `a.b`, lists of values a row for each with its `index`."""
    flat = _once(list(flatten(record, where)), where)
    lists = {name: value for name, value in flat.items() if isinstance(value, list)}
    lengths = {len(value) for value in lists.values()}
    if not lists:
        yield flat | {ORIGIN: where}
        return
    if len(lengths) > 1:
        sizes = ", ".join(f"{name} has {len(value)}" for name, value in lists.items())
        raise DataError("the lists of one record are not equally long", where=where, got=sizes)
    for index in range(lengths.pop()):
        row = {name: value[index] if isinstance(value, list) else value for name, value in flat.items()}
        if any(isinstance(value, dict | list) for value in row.values()):
            inner = {name: value for name, value in row.items() if not isinstance(value, dict)}
            nested: Row = {}
            for name, value in row.items():
                for key, one in value.items() if isinstance(value, dict) else ():
                    if key in nested:
                        raise DataError(
                            f"two lists of one record both have {key!r}",
                            where=where,
                            got=name,
                            remedy="Write a file for each list, or give the keys other names.",
                        )
                    nested[key] = one
            yield from _explode(inner | nested, f"{where}[{index}]")
        else:
            yield {"index": str(index)} | row | {ORIGIN: f"{where}[{index}]"}


def flatten(record: Mapping[str, Any], where: str, above: str = "", level: int = 0) -> Iterator[tuple[str, Any]]:
    """Nested objects as pairs of a dotted name and a value.

    Raises:
        DataError: They are nested too deeply.
    """
    if level > MOST_LEVELS:
        raise DataError("this JSON is nested too deeply", where=where, expected=f"at most {MOST_LEVELS} levels")
    for key, value in record.items():
        if isinstance(value, dict):
            yield from flatten(value, where, f"{above}{key}.", level + 1)
        else:
            yield f"{above}{key}", value


def _lm_eval(file: Path) -> Iterator[Row]:
    """A result file of `lm-eval`, a row for each task, with the `group` that holds it already, if there is one.

    A metric `acc,none` is the column `acc`; one of another filter keeps it: `acc,strict-match`. Standard errors are
    over test items, in `acc_stderr`. Of a file of samples (`samples_TASK_DATE.jsonl`) a row for each question.
    """
    if named := _SAMPLES.search(file.name):
        yield from _lm_eval_samples(file, named["task"])
        return
    whole = _parse_json(file_text(file), str(file))
    results = whole.get("results") if isinstance(whole, dict) else None
    if not isinstance(results, dict) or not results:
        raise DataError("this is not a result file of lm-eval", where=str(file), expected="a key `results`")
    members = _members(whole, results)
    for task, metrics in results.items():
        if isinstance(metrics, dict):
            values = {name.removesuffix(",none"): value for name, value in metrics.items() if name != "alias"}
            group = next((name for name, of in members.items() if task in of and task != name), "")
            yield values | {"task": task, "group": group, ORIGIN: f"{file} task {task!r}"}


_SAMPLES = re.compile(r"^samples_(?P<task>.+?)(_\d{4}-\d\d-\d\dT[^_]*)?\.jsonl\Z")


def _lm_eval_samples(file: Path, task: str) -> Iterator[Row]:
    """What `lm-eval --log_samples` writes of a task: its metrics of each question, by the names of `_lm_eval`."""
    rows: dict[str, Row] = {}
    for number, line in enumerate(file_text(file).split("\n"), 1):
        where = f"{file}:{number}"
        sample = _parse_json(line, where) if line.strip() else None
        if sample is None:
            continue
        if not isinstance(sample, dict) or "doc_id" not in sample or not isinstance(sample.get("metrics"), list):
            expected = "an object with `doc_id` and `metrics`"
            raise DataError("this is not a sample of lm-eval", where=where, expected=expected)
        kept = sample.get("filter", "none")
        values = {name if kept == "none" else f"{name},{kept}": sample.get(name) for name in sample["metrics"]}
        question = f"{task} {sample['doc_id']}"
        row = rows.setdefault(question, {"task": task, "group": "", "question": question, ORIGIN: where})
        if twice := sorted(values.keys() & row.keys()):
            raise DataError(f"question {sample['doc_id']} has {twice[0]!r} twice", where=where)
        row.update(values)
    yield from rows.values()


def _members(whole: Mapping[str, Any], results: Mapping[str, Any]) -> dict[str, list[str]]:
    """Each group of a result file to the tasks in it, at any depth."""
    named = {name: list(of) for name, of in (whole.get("group_subtasks") or {}).items() if name in results and of}
    if not named:
        for name in whole.get("groups") or {}:
            aliases = {task: str(metrics.get("alias", "")) for task, metrics in results.items()}
            named[name] = [task for task, alias in aliases.items() if alias.startswith(" - ") and task != name]
    return named


def rows_of_points(points: Iterable[tuple[int, Mapping[str, Any]]]) -> Iterator[Row]:
    """The values of a run in the order of steps: one row for a step, or more where a metric has several values there.

    A run that went on from a checkpoint writes a step twice, and which of them counts is not for a reader to say.
    """
    steps: dict[int, list[Row]] = {}
    for step, values in points:
        rows = steps.setdefault(step, [])
        for name, value in values.items():
            row = next((row for row in rows if name not in row or row[name] == value), None)
            if row is None:
                rows.append(row := {})
            row[name] = value
    for step in sorted(steps):
        yield from ({"step": step} | row for row in steps[step])


def read_events(files: Sequence[Path]) -> Iterator[Row]:
    """The scalars of a run of TensorBoard, a row for each step.

    Args:
        files: Its event files, all in one folder: a run that went on has begun another.
    """
    require("tensorboard", "a TensorBoard event file", where=str(files[0]))
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    points = list[tuple[int, dict[str, float]]]()
    for file in files:
        guidance = {"scalars": 0, "tensors": 0}
        events = EventAccumulator(str(file), size_guidance=guidance, purge_orphaned_data=False)
        events.Reload()
        tags = events.Tags()
        points += [(event.step, {tag: event.value}) for tag in tags["scalars"] for event in events.Scalars(tag)]
        for tag in tags["tensors"]:
            values = ((event.step, _scalar(event.tensor_proto)) for event in events.Tensors(tag))
            points += [(step, {tag: value}) for step, value in values if value is not None]
    for row in rows_of_points(points):
        yield row | {ORIGIN: f"{files[0].parent} step {row['step']}"}


def _scalar(proto: Any) -> float | None:
    from tensorboard.util import tensor_util

    array = tensor_util.make_ndarray(proto)
    return float(array) if array.size == 1 and array.dtype.kind in "fiu" else None


READERS: dict[str, Callable[[Path], Iterable[Row]]] = {
    "json": _json,
    "jsonl": _json_lines,
    "lm-eval": _lm_eval,
}
"""Formats that are read row by row."""
FRAMES: dict[str, Callable[[Path], pd.DataFrame]] = {
    "wandb": _wandb,
    "parquet": _parquet,
}
"""Formats that are read as tables."""
