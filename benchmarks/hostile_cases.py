"""The cases of `hostile`: spaces, blocks, claims, data, stores and command lines, changed at random."""

from __future__ import annotations

import copy
import hashlib
import io
import json
import os
import random
import sqlite3
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Container, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from ruamel.yaml import YAML

from ablate.cli.app import COMMAND_NAMES
from ablate.spec.named import shipped_spaces
from ablate.store import open_store


@dataclass(frozen=True, slots=True)
class Streams:
    """The standard streams of a call.

    Attributes:
        encoding: Of standard output and error, as PYTHONIOENCODING sets it; what it cannot hold is an error.
        closed: Descriptors that are closed before the program starts.
        is_read: Whether somebody reads standard output; else it is a pipe whose reader has gone.
    """

    encoding: str = "utf-8"
    closed: frozenset[int] = frozenset()
    is_read: bool = True

    def apply(self) -> None:
        """In the process of the call: make them of the descriptors that it has."""
        if not self.is_read:
            reading, writing = os.pipe()
            os.close(reading)
            os.dup2(writing, 1)
            os.close(writing)
        for number, name in enumerate(("stdin", "stdout", "stderr")):
            stream = None
            if number in self.closed:
                with suppress(OSError):
                    os.close(number)
            elif number:
                stream = open(number, "w", encoding=self.encoding, closefd=False)  # noqa: SIM115 - to its end
            else:
                continue
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a call finds besides its files.

    Attributes:
        variables: Environment variables, None to unset one. Without HOME the user has no entry in the list of users.
        in_new_process: Whether to run `python -m ablate` anew, without the modules that this process has imported.
    """

    variables: tuple[tuple[str, str | None], ...] = ()
    in_new_process: bool = False

    def apply(self, arguments: tuple[str, ...]) -> None:
        """In the process of the call: make them so; does not return if that becomes a new one."""
        for name, value in self.variables:
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        if self.variables and "HOME" not in os.environ and sys.platform != "win32":
            import pwd

            pwd.getpwuid = _unknown
        if self.variables:
            tempfile.tempdir = None  # looked up again
        if self.in_new_process:
            os.execv(sys.executable, [sys.executable, "-m", "ablate", *arguments])


def _unknown(uid: int) -> Any:
    raise KeyError(uid)


class Special(Enum):
    """What stands where a file should."""

    PIPE = "a pipe that nobody writes"
    SPARSE = "8 GB of zeros"
    ENDLESS = "a link to a device that never ends"
    LOOP = "a link to itself"
    FOLDER = "a folder"
    SECRET = "a file that cannot be read"

    def make(self, path: Path) -> None:
        """Make it at a path."""
        match self:
            case Special.PIPE:
                os.mkfifo(path)
            case Special.SPARSE:
                path.touch()
                os.truncate(path, 8 << 30)
            case Special.ENDLESS:
                path.symlink_to("/dev/zero")
            case Special.LOOP:
                path.symlink_to(path.name)
            case Special.FOLDER:
                path.mkdir()
            case Special.SECRET:
                path.touch(0)


@dataclass(frozen=True, slots=True)
class Case:
    """One call of the command line.

    Attributes:
        kind: What was changed: `space`, `block`, `claim`, `text`, `store`, `value`, `schema`, `file`, `data`, `table`,
            `moved`, `special`, `line`, `name`, `stream`, `shadow`, `home` or `path`.
        arguments: Of the command line.
        files: Name below the working folder to content.
        streams: Its standard streams.
        surroundings: What else it finds.
    """

    kind: str
    arguments: tuple[str, ...]
    files: Mapping[str, bytes | Special] = field(default_factory=dict)
    streams: Streams = Streams()
    surroundings: Surroundings = Surroundings()


_ODD_TEXTS = [
    "", " ", "~", "\0", "\x1b[31mred", "\ud800", "ä" * 300, "a" * 20_000, "../../evil", "@SUM(A1)", "=1+1", "-", "--",
    "%s%n", "{0}", "${HOME}", "null", "nan", "pre_ln", "attention", "file:/", "file:~nobody/x", "hub:../..",
    "\n\n", "*a",
]  # fmt: skip
_ODD_NUMBERS = [
    0, -1, 1, 2, 3, 7, 1000, 65_537, 10**6, 2**31 - 1, 2**31, 2**53, 2**63, 10**30, -(2**63), 0.0, -0.0, 0.5, 1e-300,
    1e300, float("inf"), float("-inf"), float("nan"), True, False, None,
]  # fmt: skip
_ODD_VALUES = st.one_of(
    st.sampled_from(_ODD_NUMBERS),
    st.sampled_from(_ODD_TEXTS),
    st.text(max_size=20),
    st.integers(),
    st.floats(),
    st.sampled_from([[], {}, [[]], {"": {}}, [1] * 1000, [{}] * 50, {"kind": "attention"}, {"kind": 3}, [None]]),
)


def _places(tree: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value of plain data."""
    children = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, child in children:
        yield (*place, key)
        yield from _places(child, (*place, key))


@st.composite
def _changed(draw: st.DrawFn, whole: dict[str, Any]) -> dict[str, Any]:
    """Plain data with one to three values replaced, taken away, moved or doubled."""
    tree: Any = json.loads(json.dumps(whole))
    for _ in range(draw(st.integers(1, 3))):
        places = list(_places(tree))
        if not places:
            break
        *home, key = draw(st.sampled_from(places))
        parent = tree
        for step in home:
            parent = parent[step]
        match draw(st.sampled_from(["replace", "replace", "replace", "remove", "rename", "copy"])):
            case "replace":
                parent[key] = copy.deepcopy(draw(_ODD_VALUES))  # it may be changed in turn
            case "remove":
                del parent[key]
            case "rename" if isinstance(parent, dict):
                parent[draw(st.one_of(st.sampled_from(_ODD_TEXTS), st.text(max_size=8)))] = parent.pop(key)
            case _:
                other = tree
                for step in draw(st.sampled_from(places)):
                    if not isinstance(other, (dict, list)):
                        break
                    with_step = isinstance(other, dict) and step in other
                    with_step |= isinstance(other, list) and isinstance(step, int) and step < len(other)
                    other = other[step] if with_step else other
                parent[key] = json.loads(json.dumps(other))
    changed: dict[str, Any] = tree
    return changed


@st.composite
def _damaged(draw: st.DrawFn, content: bytes) -> bytes:
    """The bytes with some changed, removed, doubled or inserted."""
    numbers = random.Random(draw(st.integers(0, 2**32 - 1)))
    data = bytearray(content)
    for _ in range(draw(st.sampled_from([1, 3, 60]))):
        if not data:
            break
        at, size = numbers.randrange(len(data)), numbers.choice([1, 1, 4, 40])
        match draw(st.sampled_from(["flip", "cut", "double", "insert"])):
            case "flip":
                data[at] = numbers.randrange(256)
            case "cut":
                del data[at : at + size]
            case "double":
                data[at:at] = data[at : at + size]
            case _:
                data[at:at] = numbers.choice(
                    [b"[", b"{", b"&a ", b"*a", b"\t", b": ", b"- ", b"\xff", b"\0", b"!!int "]
                )
    return bytes(data)


@st.composite
def _flipped(draw: st.DrawFn, content: bytes) -> bytes:
    """The bytes with sixty of them changed in place."""
    numbers = random.Random(draw(st.integers(0, 2**32 - 1)))
    data = bytearray(content)
    for _ in range(draw(st.sampled_from([1, 8, 60, 60]))):
        data[numbers.randrange(len(data))] = numbers.randrange(256)
    return bytes(data)


# What is changed: the files and command lines of a working folder.

TINY = """\
name: tiny
question: Does a tiny model need its maps?
task: {kind: language_model, data: "file:text", tokenizer: {kind: bytes}, context: 16, validation_windows: 8}
model: {family: decoder, depth: 1, width: 16, heads: 2, block: pre_ln}
training: {steps: 9, batch_size: 2, optimizer: {kind: adamw, lr: 1.0e-2}}
switches:
  values: {dense: {}, identity: {block.mixer.value: identity}}
  norm: {rms: {}, none: {block.norm: none}}
design: {kind: leave_one_out, seeds: 3}
objective: {metric: val_loss, direction: minimize, margin: 0.05}
claims:
  - {id: norm, says: The norm is needed., expect: worse, left: norm=none, right: baseline, margin: 0.05}
  - {id: order, expect: ordered, order: [baseline, norm=none, values=identity], margin: 0.001}
  - {id: size, expect: 7168, subject: {variant: baseline, quantity: parameters}, tolerance: 100}
"""

LINES = [
    ("list",), ("list", "--json"), ("status",), ("status", "--json"), ("check-store",), ("check-store", "--json"),
    ("check-store", "--out", "saved.db"), ("show", "tiny"), ("show", "tiny", "--trials"), ("show", "tiny", "--json"),
    ("show", "tiny", "--out", "table.svg"), ("report", "tiny"), ("report", "tiny", "--format", "md"),
    ("report", "tiny", "--format", "latex"), ("report", "tiny", "--format", "csv"),
    ("report", "tiny", "--format", "json"),
    ("claims", "tiny"), ("claims", "tiny", "--fail-if-refuted"), ("calibrate", "tiny", "--json"),
    ("diff", "tiny/baseline", "tiny/norm=none"), ("diff", "tiny.yaml", "tiny/baseline", "--json"),
    ("validate", "tiny.yaml"), ("validate", "tiny.yaml", "--json"), ("plan", "tiny.yaml", "--json"),
    ("validate", "tiny.yaml", "--data", "file:text"), ("data", "tiny.yaml"), ("kinds",), ("kinds", "--json"),
    ("draw", "pre_ln"), ("draw", "pre_ln", "--versus", "sas"), ("draw", "pre_ln", "--out", "block.svg"),
    ("cost", "pre_ln", "--width", "64", "--heads", "4", "--depth", "2", "--context", "32"), ("schema",),
    ("new", "mine"), ("judge", "runs.csv", "--metric", "loss", "--baseline", "a", "--margin", "0.1"),
]  # fmt: skip
"""Lines that train nothing, time nothing and serve nothing: each ends within a second or two if nothing is wrong."""

_READ = [line for line in LINES if line[0] in ("list", "status", "show", "report", "claims", "calibrate", "diff")]
_ODD_ARGUMENTS = [
    *_ODD_TEXTS, "--store", "nowhere.db", "~nobody/x", "sqlite:///", "sqlite://", "postgresql://x:y@127.0.0.1:1/z",
    "mysql://a/b", "--json", "--out", "--format", "--plugin", "plugin.py", "--data", "--width", "0", "-1", "2147483648",
    "9" * 5000, "1e9", "n" * 5000, "/", ".", "a**", "text", "tiny.yaml", "tiny", "/dev/null", "/proc/self/mem",
    "--help",
]  # fmt: skip
_DATA = {
    "csv": b"text,label\nfirst text,a\nsecond text,b\n" * 9,
    "jsonl": b'{"text": "first text", "label": 1}\n{"text": "second text", "label": 2}\n' * 9,
    "txt": b"Some words.\n<|endoftext|>\nSome other words.\n" * 9,
}


_RUNS = b"variant,seed,loss,step\n" + b"".join(
    f"{name},{seed},{1 + seed / 9 + (name == 'b') / 5},{step}\n".encode()
    for name in "ab"
    for seed in range(3)
    for step in (1, 2)
)
IMPORT = ("import-study", "moved.zip", "--store", "other.db")
_PLACES = [
    (("validate", "tiny.yaml"), "tiny.yaml"), (("plan", "tiny.yaml"), "tiny.yaml"),
    (("data", "tiny.yaml"), "text/a.txt"),
    (("validate", "tiny.yaml", "--plugin", "plugin.py"), "plugin.py"), (("draw", "blocks/own.yaml"), "blocks/own.yaml"),
    (("import", "m", "--config-only"), "m/config.json"), (("import", "m"), "m/model.safetensors"),
    (("import", "m"), "m/model.safetensors.index.json"), (("show", "tiny"), "studies/ablate.db"),
    (("check-store",), "studies/ablate.db"), (IMPORT, "moved.zip"),
    (("judge", "asked.yaml"), "asked.yaml"), (("diff", "tiny.yaml", "other.yaml"), "other.yaml"),
    (("report", "tiny", "--out", "out.md"), "out.md"), (("show", "tiny", "--out", "t.svg"), "t.svg"),
    *(
        (("judge", f"runs.{ending}", "--metric", "loss", "--baseline", "a", "--margin", "0.1"), f"runs.{ending}")
        for ending in ("csv", "tsv", "json", "jsonl", "parquet", "log", "db", "tfevents")
    ),
]  # fmt: skip
"""Command lines, and a file that each of them reads or writes."""


@cache
def _spaces() -> dict[str, dict[str, Any]]:
    """Every shipped space as plain data, those that they extend laid under them."""
    found = {}
    for file in sorted(shipped_spaces().glob("*.yaml")):
        found[file.stem] = json.loads(json.dumps(YAML(typ="safe").load(file), default=str))
    return found


@cache
def _blocks() -> dict[str, dict[str, Any]]:
    folder = shipped_spaces() / "blocks"
    return {file.stem: YAML(typ="safe").load(file) for file in sorted(folder.glob("*.yaml"))}


def _written(tree: Any) -> bytes:
    """Plain data as YAML: JSON is."""
    return json.dumps(tree).encode(errors="replace")


@st.composite
def _space_case(draw: st.DrawFn) -> Case:
    spaces = _spaces()
    space = draw(_changed(spaces[draw(st.sampled_from(sorted(spaces)))]))
    return Case("space", ("validate", "changed.yaml"), {"changed.yaml": _written(space)})


@st.composite
def _text_case(draw: st.DrawFn) -> Case:
    files = sorted(shipped_spaces().glob("*.yaml"))
    content = draw(_damaged(draw(st.sampled_from(files)).read_bytes()))
    return Case("text", ("validate", "changed.yaml"), {"changed.yaml": content})


@st.composite
def _block_case(draw: st.DrawFn) -> Case:
    blocks = _blocks()
    files = {"blocks/changed.yaml": _written(draw(_changed(blocks[draw(st.sampled_from(sorted(blocks)))])))}
    files["named.yaml"] = TINY.replace("block: pre_ln", "block: changed").encode()
    line = draw(st.sampled_from([("validate", "named.yaml"), ("draw", "blocks/changed.yaml"), ("cost", "named.yaml")]))
    return Case("block", line, files)


@st.composite
def _claim_case(draw: st.DrawFn) -> Case:
    space = YAML(typ="safe").load(TINY)
    space["claims"] = draw(_changed({"claims": space["claims"]})).get("claims")
    return Case("claim", ("validate", "changed.yaml"), {"changed.yaml": _written(space)})


@st.composite
def _data_case(draw: st.DrawFn) -> Case:
    ending = draw(st.sampled_from(sorted(_DATA)))
    files = {f"changed.{ending}": draw(_damaged(_DATA[ending]))}
    labels = '{kind: classification, data: "file:changed", tokenizer: {kind: bytes}, context: 16}'
    task = labels.replace("changed", f"changed.{ending}")
    model = "{family: encoder, head: {pooling: mean}, depth: 1, width: 16, heads: 2, block: pre_ln}"
    lines = TINY.splitlines()
    lines[2:4] = [f"task: {task}", f"model: {model}"]
    if ending == "txt":
        lines = TINY.replace("file:text", "file:changed.txt").splitlines()
    files["read.yaml"] = "\n".join(lines[:10]).encode()
    return Case("data", ("data", "read.yaml"), files)


@st.composite
def _store_case(draw: st.DrawFn, store: bytes) -> Case:
    damaged = draw(st.one_of(_flipped(store), _flipped(store), _damaged(store)))
    line = draw(st.sampled_from([*_READ, *(line for line in LINES if line[0] == "check-store")]))
    return Case("store", line, {"studies/ablate.db": damaged})


_STORED_VALUES = [
    "text", "", "1.5", "\\ud800", b"\xff\x41", 0, -1, 1, 5e-324, -0.0, 1e308, 1e300, float("inf"), 2**63 - 1, -(2**63),
    "[]", "{}", "[[]]", "null", "3", "[" * 5000 + "]" * 5000, '{"a":' * 300 + "1" + "}" * 300, "9" * 400, '"text"',
    '{"val_loss": "2.5"}', '{"val_loss": [1]}', '{"val_loss": null}', '{"val_loss": 1e308}', '{"val_loss": NaN}',
    '{"val_loss": -1e307}', '{"val_loss": 5e-324}', '{"val_loss": true}', f'{{"val_loss": {"9" * 400}}}',
    "9999-12-31 23:59:59", "0001-01-01 00:00:00", "2025-99-30", "finished", "running", "waiting", "stage", "baseline",
    None, b"", "a" * 300_000, "\x1b[31mred\0",
]  # fmt: skip
"""What a cell of a store may be changed to."""
_LEASE = (
    "INSERT INTO leases VALUES ('tiny', 'token', 'host', -3, 1e308, '2026-01-01 00:00:00', '2026-01-01 00:00:00', 'x')"
)
_FOREIGN = [
    "ALTER TABLE {0} RENAME TO other;"
    " CREATE VIEW {0} AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT other.* FROM other, n",
    "CREATE TRIGGER t AFTER UPDATE ON {0} BEGIN DELETE FROM {0}; END",
    "CREATE VIEW v AS SELECT * FROM {0}",
    "ALTER TABLE {0} ADD COLUMN large AS (zeroblob(900000000))",
    "ALTER TABLE {0} RENAME TO other; CREATE VIRTUAL TABLE {0} USING fts5(key)",
]
"""Statements after which the schema of a store is not ours, for the name of a table."""


@st.composite
def _tampered_case(draw: st.DrawFn, store: bytes) -> Case:
    """A store of which some values are others, or whose schema is not ours."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.deserialize(store)
        connection.execute("PRAGMA foreign_keys = OFF")
        query = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'alembic%'"
        tables = [name for (name,) in connection.execute(f"{query} ORDER BY name")]
        if draw(st.booleans()):
            connection.execute(_LEASE)
        if draw(st.integers(0, 9)) == 0:
            connection.executescript(draw(st.sampled_from(_FOREIGN)).format(draw(st.sampled_from(tables))))
            return Case("schema", draw(st.sampled_from(_READ)), around(connection.serialize()))
        for _ in range(draw(st.integers(1, 3))):
            table = draw(st.sampled_from([*tables, "trials", "studies", "variants"]))
            columns = [row[1:3] for row in connection.execute(f"PRAGMA table_info({table})")]
            column, kind = draw(st.sampled_from(columns))
            last = {"curves": " WHERE step > 3", "study_trials": " WHERE position > 3", "recordings": ""}
            place = draw(st.sampled_from(["", last.get(table, f" WHERE rowid = (SELECT max(rowid) FROM {table})")]))
            value = draw(st.sampled_from(_STORED_VALUES))
            held = connection.execute(f"SELECT {column} FROM {table}{place} LIMIT 1").fetchone()
            if kind == "JSON" and held and draw(st.booleans()):
                with suppress(ValueError, TypeError, RecursionError):  # changed before
                    value = json.dumps(draw(_changed({"held": json.loads(held[0])})).get("held"))
            with suppress(sqlite3.IntegrityError):
                connection.execute(f"UPDATE {table} SET {column} = ?{place}", (value,))
        connection.commit()
        return Case("value", draw(st.sampled_from([*_READ, ("check-store",)])), around(connection.serialize()))


def around(store: bytes) -> dict[str, bytes]:
    """The files that the lines read."""
    texts = {"text/a.txt": b"some words, " * 60, "text/b.txt": b"some other words, " * 60, "runs.csv": _RUNS}
    model = _written(_CONFIGURATIONS[0])
    return {"studies/ablate.db": store, "tiny.yaml": TINY.encode(), "m/config.json": model, **texts}


_CONFIGURATIONS = [
    {"model_type": "gpt2", "vocab_size": 99, "n_positions": 64, "n_embd": 32, "n_layer": 2, "n_head": 2, "n_inner": 64,
     "layer_norm_epsilon": 1e-5},
    {"model_type": "llama", "vocab_size": 99, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
     "num_attention_heads": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "rope_parameters": {"rope_type":
     "default", "rope_theta": 1e4}},
]  # fmt: skip
_NO_JSON = [
    b"", b"null", b"\xff\xfe", b"[" * 100_000, b'{"a":' * 5000, b'{"vocab_size":' + b"9" * 5000 + b"}", b"\0" * 5000,
]  # fmt: skip


@st.composite
def _file_case(draw: st.DrawFn) -> Case:
    """A folder of a model whose configuration, or whose weights, are not those of one; or a space of odd numbers."""
    configuration = _written(draw(_changed(draw(st.sampled_from(_CONFIGURATIONS)))))
    content = draw(st.one_of(st.just(configuration), st.just(configuration), st.sampled_from(_NO_JSON)))
    promised = draw(st.sampled_from([0, 2, 100, 8 << 30, 2**63])).to_bytes(8, "little")
    files = {
        "m/config.json": content,
        "m/model.safetensors": promised + draw(st.sampled_from([b"", b"{}", b"[[", content])),
    }
    line = draw(st.sampled_from([("import", "m", "--config-only"), ("import", "m"), ("validate", "odd.yaml")]))
    digits = draw(st.sampled_from(["9" * 5000, "0x" + "f" * 5000, "0b" + "1" * 20_000, "1.7e+308", "5.0e-324", ".inf"]))
    old = draw(st.sampled_from(["steps: 9", "margin: 0.05", "lr: 1.0e-2", "width: 16", "tolerance: 100"]))
    files["odd.yaml"] = TINY.replace(old, f"{old.partition(':')[0]}: {digits}").encode()
    return Case("file", line, files)


@st.composite
def _special_case(draw: st.DrawFn, store: bytes) -> Case:
    """Something that is not a regular file, or is far too large, where a command reads or writes one."""
    line, place = draw(st.sampled_from(_PLACES))
    files: dict[str, bytes | Special] = {**around(store), place: draw(st.sampled_from(Special))}
    return Case("special", line, files)


@st.composite
def _table_case(draw: st.DrawFn) -> Case:
    """A table of runs with damaged bytes, or with odd cells, in some format."""
    header, *lines = _RUNS.decode().split()
    rows = [dict(zip(header.split(","), line.split(","), strict=True)) for line in lines]
    changed = draw(_changed({"rows": rows})).get("rows")
    odd = [row for row in changed if isinstance(row, dict)] if isinstance(changed, list) else []
    content = {
        "csv": draw(_damaged(_RUNS)),
        "json": draw(st.one_of(st.just(_written(changed)), st.sampled_from(_NO_JSON))),
        "jsonl": b"\n".join(_written(row) for row in odd),
        "log": draw(_damaged(b"seed=1 loss=2.5\nseed=2 loss=2.25\n" * 9)),
    }
    ending = draw(st.sampled_from(sorted(content)))
    line = ["judge", f"runs.{ending}", "--metric", "loss", "--baseline", draw(st.sampled_from(["a", "\x1b[31m", "*"]))]
    line += ["--margin", draw(st.sampled_from(["0.1", "5e-324", "1e308", "nan", "-1", "9" * 400]))]
    line += draw(
        st.sampled_from([[], ["--step", "step"], ["--line", "(?P<seed>.*)(a+)+$"], ["--json"], ["--each", "*"]])
    )
    return Case("table", tuple(line), {f"runs.{ending}": content[ending]})


@cache
def _exported(store: bytes) -> dict[str, bytes]:
    """The members of the exported study of a store."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "a.db").write_bytes(store)
        with open_store(Path(folder) / "a.db") as opened:
            opened.export_study("tiny", Path(folder) / "a.zip")
        with zipfile.ZipFile(Path(folder) / "a.zip") as archive:
            return {name: archive.read(name) for name in archive.namelist()}


@st.composite
def _moved_case(draw: st.DrawFn, store: bytes) -> Case:
    """An exported study with other values and their hashes; with members that expand far or have odd names."""
    members = dict(_exported(store))
    name = draw(st.sampled_from(sorted(members.keys() - {"manifest.json"})))
    lines = [json.loads(line) for line in members[name].splitlines()]
    rows = draw(_changed({"rows": lines})).get("rows")
    members[name] = b"".join(_written(row) + b"\n" for row in (rows if isinstance(rows, list) else [rows]))
    match draw(st.sampled_from(["values", "values", "values", "deep", "bomb", "manifest"])):
        case "deep":
            members[name] += b"[" * 100_000 + b"\n"
        case "bomb":
            members[name] += b"\n" * (100 << 20)
        case "manifest":
            members["manifest.json"] = _written(draw(_changed(json.loads(members["manifest.json"]))))
    with suppress(ValueError, TypeError, LookupError):
        manifest = json.loads(members["manifest.json"])
        manifest["sha256"][name] = hashlib.sha256(members[name]).hexdigest()
        members["manifest.json"] = _written(manifest)
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a name that occurs twice
        for member, content in members.items():
            archive.writestr(member, content)
        archive.writestr(draw(st.sampled_from(["../../evil", "/evil", name, "a" * 60_000, "manifest.json/"])), b"evil")
    content = made.getvalue()
    return Case("moved", IMPORT, {"moved.zip": content})


@st.composite
def _line_case(draw: st.DrawFn, store: bytes) -> Case:
    line = [*draw(st.sampled_from(LINES))]
    odd = st.one_of(st.sampled_from(_ODD_ARGUMENTS), st.text(max_size=20))
    for _ in range(draw(st.integers(1, 2))):
        at = draw(st.integers(0, len(line) - 1))
        match draw(st.sampled_from(["replace", "insert", "remove", "append", "swap"])):
            case "replace":
                line[at] = draw(odd)
            case "insert":
                line.insert(at + 1, draw(odd))
            case "remove" if len(line) > 1:
                del line[at]
            case "swap":
                line[at], line[-1] = line[-1], line[at]
            case _:
                line[at] += draw(odd)
    # A process is given bytes without NUL; and what trains or serves is not called.
    arguments = tuple(part.replace("\0", "").encode(errors="replace").decode() for part in line)
    if arguments[0] in COMMAND_NAMES and arguments[0] not in {one[0] for one in LINES}:
        arguments = ("list", *arguments[1:])
    files = around(store)
    files["plugin.py"] = draw(st.sampled_from([b"raise BaseException('no')", b"x = (", b"import nothing", b"\xff\xfe"]))
    return Case("line", arguments, files)


def cases(store: bytes, kinds: Container[str] | None = None) -> st.SearchStrategy[Case]:
    """All that is tried, over a working folder with this store; of these kinds alone if they are given."""
    tried = {
        "space": _space_case(), "text": _text_case(), "block": _block_case(), "claim": _claim_case(),
        "data": _data_case(), "store": _store_case(store), "line": _line_case(store), "value": _tampered_case(store),
        "file": _file_case(), "special": _special_case(store), "table": _table_case(), "moved": _moved_case(store),
    }  # fmt: skip
    return st.one_of(*(case for kind, case in tried.items() if kinds is None or kind in kinds))
