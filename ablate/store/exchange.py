"""Studies that come from elsewhere: runs that were judged, and a study that another store has written to a file.

The file is a zip: a member for each table, with a JSON line for each row, and `manifest.json` with their SHA-256. A
study is imported whole or not at all. Nothing of the file is unpacked to disk, and saved weights are not in it.
"""

from __future__ import annotations

import hashlib
import io
import json
import operator
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import JSON, Boolean, Column, Connection, Double, Integer, Select, Table, insert, select
from sqlalchemy.exc import StatementError

from ablate.errors import StoreError
from ablate.locations import check_regular
from ablate.roles import TrialRole
from ablate.store import queries
from ablate.store.database import Database
from ablate.store.records import SETTLED, StudyDraft, StudyRecord, TrialRecord, TrialState
from ablate.store.rows import JUDGED, cost_of, study_trial_row, study_variant_row, with_cost
from ablate.store.tables import (
    FreeText,
    Role,
    State,
    UtcDateTime,
    codes,
    curves,
    environments,
    marks,
    recordings,
    studies,
    study_trials,
    study_variants,
    trials,
    variants,
)

FORMAT = 1
_MANIFEST = "manifest.json"
_TABLES = (studies, variants, study_variants, environments, codes, trials, study_trials, curves, recordings, marks)
"""In an order in which rows refer to earlier ones alone."""
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The time of every member: the same study makes the same file."""
_LARGEST = 2**31
"""Bytes of all members that are read."""
_EXPANDS = 100
"""How many times its size a file may have unpacked, beyond `_SMALL`. Rows of a study have 10 to 30 times."""
_SMALL = 1 << 24
_KEPT = ("state", "variant_hash", "seed", "metrics", "steps", "stopped_at", "data_fingerprint", "code")
"""What must agree between two results of the same trial."""

_UNREADABLE = (
    *(zipfile.BadZipFile, zlib.error, EOFError, RuntimeError),
    *(ValueError, TypeError, LookupError, AttributeError, OverflowError),
)
"""What reading a damaged file raises; RuntimeError of a member that is encrypted or compressed in another way."""

Rows = dict[str, list[dict[str, Any]]]


def write_study(database: Database, name: str, file: Path) -> dict[str, int]:
    """Write a study to a file. Trials that run or wait are written as planned.

    Args:
        database: Of the store.
        name: Of the study.
        file: A new file.

    Returns:
        Table to the number of its rows.

    Raises:
        NotFoundError: There is no such study.
        StoreError: The file exists or cannot be written.
    """
    with database.reading() as connection:
        rows = _rows_of(connection, database.where, name)
    members = {f"{table.name}.jsonl": _encode_rows(table, rows[table.name]) for table in _TABLES}
    manifest = {
        "format": FORMAT,
        "tables": database.schema_version,
        "study": name,
        "sha256": {member: hashlib.sha256(content).hexdigest() for member, content in members.items()},
    }
    content = json.dumps(manifest, indent=2, ensure_ascii=False).encode()
    try:
        with file.open("xb") as written, zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
            for member, text in {_MANIFEST: content, **members}.items():
                archive.writestr(zipfile.ZipInfo(member, _EPOCH), text, zipfile.ZIP_DEFLATED)
    except FileExistsError:
        raise StoreError("this file exists", where=str(file), remedy="Name a new one.") from None
    except OSError as error:
        file.unlink(missing_ok=True)
        raise StoreError(f"this cannot be written ({error.strerror})", where=str(file)) from None
    return {table: len(found) for table, found in rows.items()}


def _rows_of(connection: Connection, where: str, name: str) -> Rows:
    study = queries.study_row(connection, where, name).id
    found: Rows = {
        "studies": _all(connection, select(studies).where(studies.c.id == study)),
        "study_variants": _all(
            connection,
            select(study_variants).where(study_variants.c.study_id == study).order_by(study_variants.c.position),
        ),
        "study_trials": _all(
            connection, select(study_trials).where(study_trials.c.study_id == study).order_by(study_trials.c.position)
        ),
    }
    planned = [row["trial_key"] for row in found["study_trials"]]
    settled = [row for row in _of(connection, trials, trials.c.key, planned) if row["state"] is not TrialState.RUNNING]
    keys = [row["key"] for row in settled]
    states = {row["key"]: row["state"] for row in settled}
    for row in found["study_trials"]:
        row["state"] = states.get(row["trial_key"], TrialState.WAITING)
    found["trials"] = [row | {"driver": "", "worker": None} for row in settled]
    hashes = {row["variant_hash"] for row in (*found["study_variants"], *settled)}
    found["variants"] = _of(connection, variants, variants.c.hash, hashes)
    found["environments"] = _of(connection, environments, environments.c.id, {row["environment_id"] for row in settled})
    code = {row["code"] for row in (*settled, *found["study_trials"])} - {""}
    found["codes"] = _of(connection, codes, codes.c.hash, code)
    found["curves"] = _of(connection, curves, curves.c.trial_key, keys)
    found["recordings"] = _of(connection, recordings, recordings.c.trial_key, keys)
    found["marks"] = [
        row
        for row in _of(connection, marks, marks.c.name, [name, *keys])
        if (row["kind"] == "study") == (row["name"] == name)
    ]
    return found


def _all(connection: Connection, query: Select[Any]) -> list[dict[str, Any]]:
    return [dict(row) for row in connection.execute(query).mappings()]


def _of(connection: Connection, table: Table, column: Column[Any], values: Iterable[Any]) -> list[dict[str, Any]]:
    """The rows with one of these values, in the order of their keys."""
    wanted = [*{*values} - {None}]
    rows = queries.in_chunks(connection, wanted, lambda chunk: select(table).where(column.in_(chunk)))
    found = [dict(row._mapping) for row in rows]
    return sorted(found, key=lambda row: tuple(row[key.name] for key in table.primary_key))


def _encode_rows(table: Table, rows: Iterable[Mapping[str, Any]]) -> bytes:
    # Keys are not sorted: of a switch, the first setting is the baseline's.
    lines = (json.dumps({column.name: _plain(row[column.name]) for column in table.c}) for row in rows)
    return "".join(f"{line}\n" for line in lines).encode("ascii")


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    return value.value if isinstance(value, TrialState | TrialRole) else value


def read_study(database: Database, file: Path) -> tuple[str, int, int]:
    """Import the study of a file, all or nothing.

    Args:
        database: Of the store that receives it.
        file: As `write_study` made it.

    Returns:
        The name of the study, how many trials it brought, and how many the store had already.

    Raises:
        StoreError: The file is not an exported study, is damaged, or contradicts what the store holds.
    """
    name, rows = _read(file, database.schema_version)
    try:
        return _import(database, name, rows)
    except StatementError as error:  # rows that exclude one another, or text that this database cannot hold
        raise _damage_error(file, str(error.orig)) from None


def _import(database: Database, name: str, rows: Rows) -> tuple[str, int, int]:
    with database.writing(alone=study_trials) as connection:
        if connection.execute(select(studies.c.id).where(studies.c.name == name)).first() is not None:
            raise StoreError(
                "the store has a study of this name",
                where=database.where,
                got=name,
                remedy="Give one of them another name with `ablate rename`, or delete the one that is not needed.",
            )
        for table in (variants, codes):
            _insert_content(connection, table, rows[table.name], database.where)
        _keep_costs(connection, rows)
        places = _environment_ids(connection, rows["environments"])
        new, known = _new_trials(connection, rows, database.where)
        for row in rows["trials"]:
            row["environment_id"] = places.get(row["environment_id"])
        study = {key: value for key, value in rows["studies"][0].items() if key != "id"}
        study["space"] = _baseline_first(study["space"], rows["study_variants"])
        number = connection.execute(insert(studies).values(study)).inserted_primary_key
        assert number is not None, "a row that was inserted has a key"
        for row in (*rows["study_variants"], *rows["study_trials"]):
            row["study_id"] = number[0]
        replaced = [key for key in new if known.get(key) is not None]
        for chunk in queries.chunks(replaced):
            connection.execute(trials.delete().where(trials.c.key.in_(chunk)))
        states = {row["key"]: row["state"] for row in rows["trials"]} | {
            key: state for key, state in known.items() if key not in new
        }
        for row in rows["study_trials"]:
            row["state"] = states.get(row["trial_key"], TrialState.WAITING)
        _put(connection, study_variants, rows["study_variants"])
        _put(connection, trials, [row for row in rows["trials"] if row["key"] in new])
        _put(connection, study_trials, rows["study_trials"])
        for key in new:
            other = study_trials.update().where(study_trials.c.trial_key == key)
            connection.execute(other.values(state=states[key]))
        for table in (curves, recordings):
            _put(connection, table, [row for row in rows[table.name] if row["trial_key"] in new])
        _put(connection, marks, _new_marks(connection, rows["marks"]))
    return name, len(new), len(rows["trials"]) - len(new)


def _baseline_first(space: Any, variants_of_study: Iterable[Mapping[str, Any]]) -> Any:
    """A space whose switches begin with the baseline's settings: older versions sorted the keys of exported spaces."""
    switches = space.get("switches") if isinstance(space, dict) else None
    own = next((row["settings"] for row in variants_of_study if row["name"].partition("@")[0] == "baseline"), None)
    if not isinstance(switches, dict) or not isinstance(own, dict):
        return space
    first = {name: {own[name]: of[own[name]]} | of for name, of in switches.items() if own.get(name) in of}
    return space | {"switches": switches | first}


def put_judged(database: Database, judged: Mapping[str, tuple[StudyRecord, Mapping[str, TrialRecord]]]) -> None:
    """Keep judged runs as studies, instead of those of these names that were judged before; all or nothing.

    Args:
        database: Of the store.
        judged: Name of a study there to its record, as `ablate.tables` made it, and its trials by key.

    Raises:
        StoreError: A study of one of these names was trained here.
    """
    with database.writing(alone=study_trials) as connection:
        for name, (record, runs) in judged.items():
            row = connection.execute(select(studies).where(studies.c.name == name)).first()
            if row is not None:
                if JUDGED not in row.space:
                    remedy = "Give the judged one another name with --name."
                    raise StoreError(
                        "a study of this name was trained here", where=database.where, got=name, remedy=remedy
                    )
                queries.delete_study(connection, row.id)
            _insert_judged(database, connection, name, record, runs)


def _insert_judged(
    database: Database, connection: Connection, name: str, record: StudyRecord, runs: Mapping[str, TrialRecord]
) -> None:
    assert record.judged is not None, "the record of a table says how it was read"
    judged = asdict(record.judged) | {"paired": [*record.judged.paired]}
    now = datetime.now(UTC)

    def hashed(*parts: object) -> str:
        return hashlib.sha256(json.dumps(["judged", name, *parts]).encode()).hexdigest()

    values = {field.name: getattr(record, field.name) for field in fields(StudyDraft)}
    values |= {"name": name, "space": {JUDGED: judged}, "traits": asdict(record.traits)}
    number = connection.execute(insert(studies).values(values | {"created_at": now, "updated_at": now}))
    assert number.inserted_primary_key is not None, "a row that was inserted has a key"
    study = number.inserted_primary_key[0]
    rows = [{"hash": hashed(variant.name), "spec": {}, "parameters": 0} for variant in record.variants]
    # A study of this table that was renamed has the same variants and trials: they are shared, as any others.
    connection.execute(database.insert(variants).on_conflict_do_nothing(), rows)
    for place, variant in enumerate(record.variants):
        row_of_variant = study_variant_row(study, place, replace(variant, hash=hashed(variant.name)))
        connection.execute(insert(study_variants).values(row_of_variant))
    for place, planned in enumerate(record.planned):
        run = runs[planned.key]
        values = {column: getattr(run, column) for column in _OF_RUN}
        key = hashed(planned.variant, planned.seed, run.metrics, run.reason)
        values |= {"key": key, "variant_hash": hashed(planned.variant)}
        connection.execute(database.insert(trials).values(values).on_conflict_do_nothing())
        row_of_trial = study_trial_row(study, place, replace(planned, key=key)) | {"state": run.state}
        connection.execute(insert(study_trials).values(row_of_trial))


_OF_RUN = (
    *("seed", "state", "metrics", "steps", "seconds", "tokens", "flops", "stopped_at", "reason"),
    "data_fingerprint",
)
"""What a store keeps of a run that was trained elsewhere; when and where is not known."""


def _put(connection: Connection, table: Table, rows: list[dict[str, Any]]) -> None:
    for chunk in queries.chunks(rows):
        connection.execute(insert(table), list(chunk))


def _agree(left: Any, right: Any) -> bool:
    """Whether two specs of one hash are equal in all fields that both have: later versions have more of them."""
    if isinstance(left, dict) and isinstance(right, dict):
        return all(_agree(left[name], right[name]) for name in left.keys() & right.keys())
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_agree, left, right))
    return bool(left == right)


def _insert_content(connection: Connection, table: Table, rows: list[dict[str, Any]], where: str) -> None:
    """Insert rows that are named by a hash of their content; those that are known must have the same."""
    there = {row["hash"]: row for row in _of(connection, table, table.c.hash, (row["hash"] for row in rows))}
    content, same = ("spec", _agree) if table is variants else ("content", operator.eq)
    for row in rows:
        if row["hash"] in there and not same(there[row["hash"]][content], row[content]):
            raise _conflict(f"another of the {table.name}", row["hash"], where)
    _put(connection, table, [row for row in rows if row["hash"] not in there])


def _keep_costs(connection: Connection, rows: Rows) -> None:
    """Keep, beside the variants of the study, costs that the store's own rows of `variants` do not have."""
    theirs = {row["hash"]: cost_of(row) for row in rows["variants"]}
    ours = {row["hash"]: cost_of(row) for row in _of(connection, variants, variants.c.hash, theirs)}
    for row in rows["study_variants"]:
        if isinstance(row["settings"], dict):  # else the reader of the row refuses it
            digest = row["variant_hash"]
            row["settings"] = with_cost(row["settings"], theirs[digest], ours[digest])


def _environment_ids(connection: Connection, rows: list[dict[str, Any]]) -> dict[int | None, int]:
    """Number of an environment in the file to that in the store."""
    known = {
        row["hash"]: row["id"]
        for row in _of(connection, environments, environments.c.hash, (row["hash"] for row in rows))
    }
    for row in rows:
        if row["hash"] not in known:
            made = connection.execute(insert(environments).values(hash=row["hash"], content=row["content"]))
            assert made.inserted_primary_key is not None, "a row that was inserted has a key"
            known[row["hash"]] = made.inserted_primary_key[0]
    return {row["id"]: known[row["hash"]] for row in rows}


def _new_trials(connection: Connection, rows: Rows, where: str) -> tuple[set[str], dict[str, TrialState]]:
    """The trials that the file brings, and the states of those of its plan that the store has."""
    planned = (row["trial_key"] for row in rows["study_trials"])
    there = {row["key"]: row for row in _of(connection, trials, trials.c.key, planned)}
    new = set()
    for row in rows["trials"]:
        ours = there.get(row["key"])
        if ours is None:
            new.add(row["key"])
        elif ours["state"] is TrialState.RUNNING:
            raise _conflict("a trial that runs", row["key"], where, remedy="Import it when that study has ended.")
        elif row["state"] in SETTLED and ours["state"] not in SETTLED:
            new.add(row["key"])
        elif row["state"] in SETTLED and (differs := [name for name in _KEPT if ours[name] != row[name]]):
            raise _conflict(f"a trial with another `{differs[0]}`", row["key"], where)
    return new, {key: row["state"] for key, row in there.items()}


def _new_marks(connection: Connection, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    there = {(row["kind"], row["name"]) for row in _of(connection, marks, marks.c.name, (row["name"] for row in rows))}
    return [row for row in rows if (row["kind"], row["name"]) not in there]


def _conflict(what: str, name: str, where: str, remedy: str | None = None) -> StoreError:
    return StoreError(
        f"the store has {what} under the same name",
        where=where,
        got=name[:40],
        remedy=remedy or "Import the study into a store of its own: `--store FILE`.",
    )


def _read(file: Path, tables: str) -> tuple[str, Rows]:
    """The rows of a file, after all of it was checked."""
    check_regular(file, StoreError)
    try:
        with zipfile.ZipFile(file) as archive:
            size = sum(member.file_size for member in archive.infolist())
            if size > min(_LARGEST, _SMALL + _EXPANDS * file.stat().st_size):
                raise ValueError(f"it would have {size:,} bytes unpacked")
            manifest = json.loads(_member(archive, _MANIFEST))
            sums = manifest["sha256"]
            if manifest["format"] != FORMAT or manifest["tables"] != tables:
                raise StoreError(
                    "this study was exported by another version of ablate",
                    where=str(file),
                    expected=f"format {FORMAT} of a store {tables}",
                    got=f"format {manifest['format']} of a store {manifest['tables']}",
                    remedy="Export it again with this version.",
                )
            rows: Rows = {}
            for table in _TABLES:
                content = _member(archive, f"{table.name}.jsonl")
                if hashlib.sha256(content).hexdigest() != sums[f"{table.name}.jsonl"]:
                    raise _damage_error(file, f"the hash of {table.name}.jsonl is another")
                rows[table.name] = list(_decode_rows(table, content))
            _check_whole(rows, manifest["study"])
            return str(manifest["study"]), rows
    except OSError as error:
        raise StoreError(f"this cannot be read ({error.strerror})", where=str(file)) from None
    except _UNREADABLE as error:
        raise _damage_error(file, str(error) or type(error).__name__) from None


def _member(archive: zipfile.ZipFile, name: str) -> bytes:
    with archive.open(name) as member:
        return member.read()  # zipfile reads no more than the size that was checked


def _damage_error(file: Path, why: str) -> StoreError:
    remedy = "Copy or export it again with `ablate export-study`."
    return StoreError("this is not a whole exported study", where=str(file), got=why[:200], remedy=remedy)


def _decode_rows(table: Table, content: bytes) -> Iterator[dict[str, Any]]:
    names = {column.name for column in table.c}
    for number, line in enumerate(io.BytesIO(content), 1):
        row = json.loads(line)
        if row.keys() != names:
            raise ValueError(f"line {number} of {table.name}.jsonl has other columns")
        yield {column.name: _read_cell(column, row[column.name]) for column in table.c}


def _read_cell(column: Column[Any], value: Any) -> Any:
    if value is None:
        if not column.nullable:
            raise ValueError(f"`{column.table.name}.{column.name}` is null")
        return None
    for kind, read in _TYPES.items():
        if isinstance(column.type, kind):
            return read(value)
    if not isinstance(value, str):
        raise TypeError(f"`{column.table.name}.{column.name}` is not text")
    if not isinstance(column.type, FreeText) and "\0" in value.encode().decode():
        raise ValueError(f"`{column.table.name}.{column.name}` has a character that no database holds")
    return value


def _time(value: Any) -> datetime:
    time = datetime.fromisoformat(value)
    if time.tzinfo is None:
        raise ValueError(f"{value} has no time zone")
    return time.astimezone(UTC)


def _integer(value: Any) -> int:
    if type(value) is not int or not -(2**63) <= value < 2**63:
        raise TypeError(f"{str(value)[:40]} is not an integer of 64 bits")
    return value


def _double(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{str(value)[:40]} is not a number")
    return float(value)


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{str(value)[:40]} is neither true nor false")
    return value


_TYPES: dict[type, Any] = {
    UtcDateTime: _time,
    State: TrialState,
    Role: TrialRole,
    JSON: lambda value: value,
    Boolean: _truth,
    Integer: _integer,
    Double: _double,
}
"""How a value of each type of column is read; other types are text."""


def _check_whole(rows: Rows, name: str) -> None:
    """That rows refer to one another, so that what follows does not fail halfway."""
    if [row["name"] for row in rows["studies"]] != [name]:
        raise ValueError("it holds another study than it says")
    hashes = {row["hash"] for row in rows["variants"]}
    places = {row["id"] for row in rows["environments"]} | {None}
    keys = {row["key"] for row in rows["trials"]}
    planned = {row["trial_key"] for row in rows["study_trials"]}
    whole = (
        all(row["variant_hash"] in hashes for row in (*rows["study_variants"], *rows["trials"]))
        and all(row["environment_id"] in places for row in rows["trials"])
        and all(row["trial_key"] in keys for row in (*rows["curves"], *rows["recordings"]))
        and all(row["state"] is not TrialState.RUNNING for row in rows["trials"])
        and keys <= planned
    )
    if not whole:
        raise ValueError("rows refer to others that are missing")
