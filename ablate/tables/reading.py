"""Files of runs to one table of texts and numbers, and text logs to rows by a regular expression."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ablate.analysis.numbers import listed
from ablate.errors import DataError
from ablate.extras import require
from ablate.locations import check_regular, files_matching, real_path, typed_path
from ablate.spec.log_lines import CutNumberError, groups_of_line
from ablate.tables.cells import cell_text
from ablate.tables.description import RunTableSpec
from ablate.tables.formats import FRAMES, ORIGIN, READERS, SEPARATORS, Row, file_text, read_events, read_separated
from ablate.tables.logged import ADDRESS, read_logged

if TYPE_CHECKING:
    import pandas as pd

MOST_BYTES = 128 * 1024**2
"""Of all files together; more is read in minutes and does not fit beside its copies."""
MOST_FILES = 20_000
_SUFFIXES = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".json": "json",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".log": "log",
    ".txt": "log",
    ".out": "log",
    ".wandb": "wandb",
}
_EVENTS = "tfevents"
"""In the names of TensorBoard's event files, which have no ending."""
_OF_FOLDER = {
    "lm-eval": ("results*.json", "samples_*.jsonl"),
    "tensorboard": (f"*{_EVENTS}*",),
    "wandb": ("*.wandb", "*.csv"),
    "mlflow": ("mlflow.db",),
    "trackio": ("*.db",),
    "aim": ("run_metadata.sqlite",),
}
"""The files of a folder that a format reads; the first of them of which there are any."""
_OR_FORMAT = ", or give `format`, or `--input`"
_SHOWN = 8
"""Names of a folder that a message lists."""
_SURROGATE = re.compile("[\ud800-\udfff]")
_PROGRAM = re.compile(r"\bprint\w*\(|\bf[\"']|\{[A-Za-z_][\w.()\[\]]*(:[^}\"']*)?\}")
"""What stands in a line of program text, and in no line that a program has printed."""


def read_tables(folder: Path, patterns: Sequence[str], spec: RunTableSpec, *, program: bool = False) -> pd.DataFrame:
    """All rows of some files.

    Args:
        folder: That the patterns are relative to.
        patterns: Paths or patterns, or addresses (`wandb:ENTITY/PROJECT`).
        program: Whether lines of program text may count as results.

    Raises:
        DataError: A file is missing, too large, or not of its format.
    """
    require("judge", "a table of runs", packages=("pandas",))
    import pandas as pd

    steps = bool(spec.step)
    addresses = [match for pattern in patterns if (match := ADDRESS.match(pattern))]
    frames = [_as_frame(read_logged(match["format"], match["argument"], steps=steps), match[0]) for match in addresses]
    rest = [pattern for pattern in patterns if not ADDRESS.match(pattern)]
    files = find_files(folder, rest, spec.format) if rest or not addresses else []
    for groups, parts in _runs_of_files(files, folder, spec):
        frame = _read_files(parts, spec, program=program)
        for name, text in groups.items():
            if name in frame.columns:
                raise DataError(
                    f"the path and the file both have a column {name!r}",
                    where=str(parts[0]),
                    remedy="Give the group of `path` another name.",
                )
            frame[name] = text
        frames.append(frame if spec.columns is None else _rows_of_columns(frame, spec.columns, parts[0]))
    return pd.concat(frames, ignore_index=True) if len(frames) > 1 else frames[0]


def _rows_of_columns(frame: pd.DataFrame, pattern: str, file: Path) -> pd.DataFrame:
    """A row for each cell of the columns whose name matches, one for all metrics of the same groups."""
    import pandas as pd

    matches = {name: match for name in frame.columns if name != ORIGIN and (match := re.search(pattern, str(name)))}
    if not matches:
        raise DataError(
            "`columns` matches the name of no column",
            where=str(file),
            expected=f"one of {listed(str(name) for name in frame.columns if name != ORIGIN)}",
            got=pattern,
        )
    parts: dict[tuple[tuple[str, str], ...], pd.DataFrame] = {}
    for name, match in matches.items():
        groups = {group: text for group, text in match.groupdict().items() if text is not None}
        metric = groups.pop("metric", "value")
        for group, text in groups.items():
            if group in frame.columns and group not in matches and set(frame[group].map(cell_text)) != {text}:
                raise DataError(
                    f"`columns` and the file both have a column {group!r}",
                    where=str(file),
                    got=f"{text!r} and {cell_text(frame[group].iloc[0])!r}",
                    remedy="Give the group of `columns` another name.",
                )
        part = parts.setdefault(tuple(groups.items()), frame.drop(columns=list(matches)).assign(**groups))
        if metric in part.columns:
            raise DataError(
                f"two columns would both become {metric!r}",
                where=str(file),
                got=repr(name),
                remedy="Give `columns` a group for what tells them apart: `seed`, or `metric`.",
            )
        part[metric] = frame[name]
    return pd.concat(parts.values(), ignore_index=True)


def find_files(folder: Path, patterns: Sequence[str], format_: str | None = None) -> list[Path]:
    """The files of some paths or patterns, each once, in the order of their names.

    Args:
        folder: That the patterns are relative to.
        patterns: Paths or patterns; of a folder the files of the format, at any depth.
        format_: Of the files; None: what their names say.

    Raises:
        DataError: There is none, or they are too large together.
    """
    if not patterns:
        raise DataError("the description names no files", where="table.files", remedy='Write `files: "*.csv"`.')
    found: dict[Path, Path] = {}
    for pattern in patterns:
        exact = folder / typed_path(pattern, DataError)
        if exact.is_file():
            matches = [exact]
        elif exact.is_dir():
            matches = _of_folder(exact, pattern, format_)
        else:
            base = Path(exact.anchor) if Path(pattern).is_absolute() else folder
            matches = _in_order(files_matching(base, pattern.removeprefix(exact.anchor)))
        if not matches:
            if exact.exists():
                check_regular(exact, DataError)
            raise DataError(
                "there is no such file",
                where=pattern,
                expected="a file or a pattern",
                got=f"a folder with {_content(folder)}" if folder.is_dir() else f"no folder {folder}",
            )
        for match in matches:  # once, by its own name, though a link to its folder such as `latest` leads there too
            real = real_path(match.parent) / match.name
            if real not in found or match.absolute() == real:
                found[real] = match
    total = sum(file.stat().st_size for file in found.values())
    if total > MOST_BYTES or len(found) > MOST_FILES:
        raise DataError(
            "these files are too large to be judged",
            where=", ".join(patterns),
            expected=f"at most {MOST_BYTES // 1024**2} MB in {MOST_FILES:,} files",
            got=f"{total / 1024**2:,.0f} MB in {len(found):,}",
            remedy="Keep the columns and the steps that are compared, or store them as Parquet.",
        )
    return list(found.values())


def _in_order(files: Iterable[Path]) -> list[Path]:
    """Files in the order of their names, with numbers in them by their size: the second before the tenth."""

    def sort_key(file: Path) -> list[tuple[int, str]]:
        parts = re.split(r"(\d+)", str(file))
        return [(int(part) if number % 2 else 0, part) for number, part in enumerate(parts)]

    return sorted(files, key=sort_key)


def _of_folder(folder: Path, typed: str, format_: str | None) -> list[Path]:
    endings = tuple(f"*{ending}" for ending, of in _SUFFIXES.items() if of == format_)
    names = _OF_FOLDER.get(format_ or "tensorboard", endings)
    for name in names:
        if found := _in_order(files_matching(folder, f"**/{name}")):
            return found
    raise DataError(
        "this is a folder" if format_ is None else f"this folder holds no file of the format {format_}",
        where=typed,
        expected="a file, a pattern, or a folder with a format" if format_ is None else " or ".join(names) or "a file",
        got=_content(folder),
        remedy=f"Write a pattern, such as '{typed.rstrip('/')}/**/*.csv'{_OR_FORMAT if format_ is None else ''}.",
    )


def _content(folder: Path) -> str:
    """What a folder holds, for a message."""
    names = sorted(one.name for one in folder.iterdir())
    return ", ".join([*names[:_SHOWN], *(["..."] if len(names) > _SHOWN else [])]) or "nothing"


def _groups_of_path(file: Path, folder: Path, pattern: str | None) -> Mapping[str, str]:
    if pattern is None:
        return {}
    path = file.relative_to(folder).as_posix() if file.is_relative_to(folder) else file.as_posix()
    match = re.search(pattern, path)
    if match is None:
        raise DataError(
            "`path` does not match the path of this file",
            where=str(file),
            expected=pattern,
            got=path,
            remedy="Correct `path`, or let `files` leave this file out.",
        )
    return {name: text for name, text in match.groupdict().items() if text is not None}


def _runs_of_files(
    files: Sequence[Path], folder: Path, spec: RunTableSpec
) -> Iterator[tuple[Mapping[str, str], list[Path]]]:
    """The files that are read together, with what their path says: those of one run that went on in another process.

    TensorBoard has a folder for each run, and W&B a file with its id in each folder of a process; other files are read
    one by one.
    """
    found: dict[tuple[Path, tuple[tuple[str, str], ...]], list[Path]] = {}
    for file in files:
        named = _format_of(file, spec)
        run = file.parent if named == "tensorboard" else file
        if file.suffix == ".wandb":
            run = file.parents[1] / file.name
        found.setdefault((run, tuple(_groups_of_path(file, folder, spec.path).items())), []).append(file)
    yield from ((dict(groups), parts) for (_, groups), parts in found.items())


def _format_of(file: Path, spec: RunTableSpec) -> str | None:
    return spec.format or ("tensorboard" if _EVENTS in file.name else _SUFFIXES.get(file.suffix.lower()))


def _read_files(files: Sequence[Path], spec: RunTableSpec, *, program: bool) -> pd.DataFrame:
    file, named = files[0], _format_of(files[0], spec)
    if named is None:
        raise DataError(
            "the ending of this file says no format",
            where=str(file),
            expected=", ".join(sorted(_SUFFIXES)),
            remedy="Give `format`, or `--input`, or save the table as CSV.",
        )
    if named == "log":
        rows: Iterable[Row] = _log(file, spec.line, program=program)
    elif named == "tensorboard":
        rows = read_events(files)
    elif named in ("mlflow", "trackio", "aim") or file.suffix == ".wandb":
        rows = read_logged(named, [file.parent] if named == "aim" else files, steps=bool(spec.step))
    elif named in SEPARATORS:
        return read_separated(file, SEPARATORS[named], spec.header, spec.decimal)
    elif named in READERS:
        rows = READERS[named](file)
    else:
        return FRAMES[named](file)
    return _as_frame(rows, str(file))


def _as_frame(rows: Iterable[Row], where: str) -> pd.DataFrame:
    import pandas as pd

    frame = pd.DataFrame.from_records([{_kept(name): _kept(cell) for name, cell in row.items()} for row in rows])
    if frame.empty:
        raise DataError("this holds no row", where=where, remedy="Correct `files`, or the format.")
    return frame


def _kept(cell: Any) -> Any:
    """The cell as `pandas` can hold it."""
    if isinstance(cell, float) and math.isnan(cell):
        return "nan"  # as text, so that it remains apart from a missing one: `pandas` has one sign for both
    return _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", cell) if isinstance(cell, str) else cell


def _log(file: Path, pattern: str | None, *, program: bool) -> Iterator[Row]:
    """A row for each line of a text log that the pattern matches."""
    if pattern is None:
        raise DataError(
            "a text log is read by a regular expression",
            where=str(file),
            remedy="Give `line`, such as '^step:(?P<step>\\d+) loss:(?P<loss>\\S+)'.",
        )
    compiled, matched = re.compile(pattern), False
    for number, line in enumerate(file_text(file).splitlines(), 1):
        try:
            found = groups_of_line(compiled, line)
        except CutNumberError as error:
            raise _cut(str(error), f"{file}:{number}", line) from None
        if found is None:
            continue
        if _PROGRAM.search(line) and not program:
            raise DataError(
                "`line` matches program text that looks like a result",
                where=f"{file}:{number}",
                expected="a line that the program has printed",
                got=repr(line.strip()[:80]),
                remedy="Let `line` begin with `^` and what precedes the numbers.",
            )
        matched = True
        match = compiled.search(line)
        for name, text in found.items():
            if match is None:  # it matches `nan` as a number only
                break
            after = line[match.end(name) : match.end(name) + 1] if match.end(name) == match.end() else ""
            if text and (text[-1].isdigit() or text[-1] == ".") and (after.isalnum() or after in (".", "_")) and after:
                raise _cut(f"the group {name!r} cuts {text!r} out of a longer word", f"{file}:{number}", line)
        yield {ORIGIN: f"{file}:{number}"} | {name: found.get(name, "") for name in compiled.groupindex}
    if not matched:
        raise DataError("`line` matches no line of this file", where=str(file), expected=pattern)


def _cut(problem: str, where: str, line: str) -> DataError:
    return DataError(
        problem,
        where=where,
        got=repr(line.strip()[:80]),
        remedy="Let the group take the whole word, such as `\\S+`, or match what stands before and after it.",
    )


def later_mentions(file: Path, pattern: str, metric: str) -> list[str]:
    """Lines after the last one that a pattern matches which also give a value of a metric."""
    compiled, named = re.compile(pattern), re.compile(rf"(?<!\w){re.escape(metric)}\s*[:=]\s*-?\.?\d")
    lines = file_text(file).splitlines()
    last = max((number for number, line in enumerate(lines) if compiled.search(line)), default=len(lines))
    return [line.strip() for line in lines[last + 1 :] if named.search(line)]
