"""Hostile input: shipped spaces, blocks, claims, stores, data and command lines, changed at random.

`python -m benchmarks hostile [--quick] [--json] [--cases N] [--seed N]`. Each case is one call of the command line in a
process of its own, which may take 10 s and 2 GB. It must end with exit code 0 or 2 (or one that the command documents),
without a traceback, and leave the store that it only reads as it was. The exit code is 1 if a case does not.
"""

from __future__ import annotations

import argparse
import copy
import io
import json
import math
import os
import random
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import psutil
import torch
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from ablate.cli import main as ablate_main
from ablate.cli.app import PANEL_OF
from ablate.execution.driver import run_study
from ablate.execution.observer import Observer
from ablate.planning.planner import Planner
from ablate.spec.named import shipped_spaces
from ablate.spec.reading import load_space
from ablate.store import Environment, open_store
from benchmarks.driver import InstantEngine
from benchmarks.scheduling import scheduled, told

SECONDS = 10.0
BYTES = 2 << 30
CASES = 10_000
QUICK_SECONDS = 110.0
_TOGETHER = 250
"""Cases that are drawn from one seed; the next are drawn from the next seed."""
_ALLOWED = {0, 2}
_VERDICTS = {"claims": {1}, "diff": {1}}
"""Commands whose exit code 1 is an answer: a claim is refuted, two things differ."""


@dataclass(frozen=True, slots=True)
class Case:
    """One call of the command line.

    Attributes:
        kind: What was changed: `space`, `block`, `claim`, `text`, `store`, `data` or `line`.
        arguments: Of the command line.
        files: Name below the working folder to content.
    """

    kind: str
    arguments: tuple[str, ...]
    files: dict[str, bytes] = field(default_factory=dict)


@dataclass(slots=True)
class Tally:
    """What a campaign has counted."""

    tried: int = 0
    lost: int = 0
    hangs: int = 0
    tracebacks: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    worst: list[str] = field(default_factory=list)

    def add(self, kind: str, verdict: str) -> None:
        """Count a case, and what went wrong with it: `lost`, `hangs` or `tracebacks`."""
        self.tried += 1
        self.kinds[kind] += 1
        if verdict != "tried":
            setattr(self, verdict, getattr(self, verdict) + 1)

    def __iadd__(self, other: Tally) -> Tally:
        """Add what another part of the campaign has counted."""
        for name, count in other.counts().items():
            setattr(self, name, getattr(self, name) + count)
        self.kinds += other.kinds
        self.worst += other.worst
        return self

    def counts(self) -> dict[str, int]:
        """The four numbers that are printed."""
        return {"tried": self.tried, "lost": self.lost, "hangs": self.hangs, "tracebacks": self.tracebacks}

    def table(self) -> str:
        """How many cases of each kind were tried, and the four numbers."""
        kinds = ", ".join(f"{kind} {count:,}" for kind, count in sorted(self.kinds.items()))
        return f"{kinds}\n{', '.join(f'{name} {count:,}' for name, count in self.counts().items())}"


# Values that are put in place of others.

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

_TINY = """\
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

_LINES = [
    ("list",), ("list", "--json"), ("status",), ("status", "--json"), ("check-store",), ("check-store", "--json"),
    ("check-store", "--export", "saved.db"), ("show", "tiny"), ("show", "tiny", "--trials"), ("show", "tiny", "--json"),
    ("show", "tiny", "--svg", "table.svg"), ("report", "tiny"), ("report", "tiny", "--format", "md"),
    ("report", "tiny", "--format", "latex"), ("report", "tiny", "--format", "csv"),
    ("report", "tiny", "--format", "json"),
    ("claims", "tiny"), ("claims", "tiny", "--check"), ("calibrate", "tiny", "--json"),
    ("diff", "tiny/baseline", "tiny/norm=none"), ("diff", "tiny.yaml", "tiny/baseline", "--json"),
    ("validate", "tiny.yaml"), ("validate", "tiny.yaml", "--json"), ("plan", "tiny.yaml", "--json"),
    ("validate", "tiny.yaml", "--data", "file:text"), ("data", "tiny.yaml"), ("kinds",), ("kinds", "--json"),
    ("draw", "pre_ln"), ("draw", "pre_ln", "--versus", "sas"), ("draw", "pre_ln", "--out", "block.svg"),
    ("cost", "pre_ln", "--width", "64", "--heads", "4", "--depth", "2", "--context", "32"), ("schema",),
    ("new", "mine"),
]  # fmt: skip
"""Lines that train nothing, time nothing and serve nothing: each ends within a second or two if nothing is wrong."""

_READ = [line for line in _LINES if line[0] in ("list", "status", "show", "report", "claims", "calibrate", "diff")]
_ODD_ARGUMENTS = [
    *_ODD_TEXTS, "--store", "nowhere.db", "~nobody/x", "sqlite:///", "sqlite://", "postgresql://x:y@127.0.0.1:1/z",
    "mysql://a/b", "--json", "--out", "--format", "--plugin", "plugin.py", "--data", "--width", "0", "-1", "2147483648",
    "9" * 5000, "1e9", "n" * 5000, "/", ".", "text", "tiny.yaml", "tiny", "/dev/null", "/proc/self/mem", "--help",
]  # fmt: skip
_DATA = {
    "csv": b"text,label\nfirst text,a\nsecond text,b\n" * 9,
    "jsonl": b'{"text": "first text", "label": 1}\n{"text": "second text", "label": 2}\n' * 9,
    "txt": b"Some words.\n<|endoftext|>\nSome other words.\n" * 9,
}


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
    files["named.yaml"] = _TINY.replace("block: pre_ln", "block: changed").encode()
    line = draw(st.sampled_from([("validate", "named.yaml"), ("draw", "blocks/changed.yaml"), ("cost", "named.yaml")]))
    return Case("block", line, files)


@st.composite
def _claim_case(draw: st.DrawFn) -> Case:
    space = YAML(typ="safe").load(_TINY)
    space["claims"] = draw(_changed({"claims": space["claims"]})).get("claims")
    return Case("claim", ("validate", "changed.yaml"), {"changed.yaml": _written(space)})


@st.composite
def _data_case(draw: st.DrawFn) -> Case:
    ending = draw(st.sampled_from(sorted(_DATA)))
    files = {f"changed.{ending}": draw(_damaged(_DATA[ending]))}
    labels = '{kind: classification, data: "file:changed", tokenizer: {kind: bytes}, context: 16}'
    task = labels.replace("changed", f"changed.{ending}")
    model = "{family: encoder, head: {pooling: mean}, depth: 1, width: 16, heads: 2, block: pre_ln}"
    lines = _TINY.splitlines()
    lines[2:4] = [f"task: {task}", f"model: {model}"]
    if ending == "txt":
        lines = _TINY.replace("file:text", "file:changed.txt").splitlines()
    files["read.yaml"] = "\n".join(lines[:10]).encode()
    return Case("data", ("data", "read.yaml"), files)


@st.composite
def _store_case(draw: st.DrawFn, store: bytes) -> Case:
    damaged = draw(st.one_of(_flipped(store), _flipped(store), _damaged(store)))
    line = draw(st.sampled_from([*_READ, *(line for line in _LINES if line[0] == "check-store")]))
    return Case("store", line, {"studies/ablate.db": damaged})


def _around(store: bytes) -> dict[str, bytes]:
    """The files that the lines read."""
    texts = {"text/a.txt": b"some words, " * 60, "text/b.txt": b"some other words, " * 60}
    return {"studies/ablate.db": store, "tiny.yaml": _TINY.encode(), **texts}


@st.composite
def _line_case(draw: st.DrawFn, store: bytes) -> Case:
    line = [*draw(st.sampled_from(_LINES))]
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
    if arguments[0] in PANEL_OF and arguments[0] not in {one[0] for one in _LINES}:
        arguments = ("list", *arguments[1:])
    files = _around(store)
    files["plugin.py"] = draw(st.sampled_from([b"raise BaseException('no')", b"x = (", b"import nothing", b"\xff\xfe"]))
    return Case("line", arguments, files)


def cases(store: bytes) -> st.SearchStrategy[Case]:
    """All that is tried, over a working folder with this store."""
    return st.one_of(
        _space_case(), _text_case(), _block_case(), _claim_case(), _data_case(), _store_case(store), _line_case(store)
    )


# Running them.


def tiny_store(folder: Path) -> bytes:
    """A store with the study of `_TINY`, whose trials have all finished."""
    (folder / "text").mkdir(parents=True)
    for name in "ab":
        (folder / "text" / f"{name}.txt").write_text(f"This is text {name}, of some length. " * 40)
    file = folder / "tiny.yaml"
    file.write_text(_TINY.replace("file:text", f"file:{folder}/text"))
    path = folder / "studies.db"
    with open_store(path) as store, InstantEngine() as engine:
        planner = Planner(load_space(file), folder / "cache", lambda line: None)
        run_study(
            planner, store, engine, Environment({"python": "3.x"}, "cpu: none", "here", None, None, ""), Observer()
        )
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.execute("PRAGMA journal_mode = DELETE")
    return path.read_bytes()


def preload(folder: Path, store: bytes) -> None:
    """Call every line once, so that what they import is there for all processes that are forked from this one."""
    torch.set_num_threads(1)
    place = folder / "work"
    for name, content in _around(store).items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(content)
    before = os.getcwd(), sys.argv
    os.chdir(place)
    for line in _LINES:
        sys.argv = ["ablate", *line]
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()), suppress(SystemExit):
            ablate_main()
    os.chdir(before[0])
    sys.argv = before[1]


@dataclass(frozen=True, slots=True)
class Ending:
    """How a case ended.

    Attributes:
        code: Exit code; None if it was killed for its time or its memory, and `left` says for which.
        error: What it wrote to stderr.
        left: What was changed that should not be; empty if nothing was.
    """

    code: int | None
    error: str
    left: str = ""

    def verdict(self, case: Case) -> str:
        """`tried` if all is well, else the count that it belongs to."""
        allowed = _ALLOWED | _VERDICTS.get(case.arguments[0] if case.arguments else "", set())
        if self.code is None:
            return "hangs"
        if self.code not in allowed or "Traceback (most recent call last)" in self.error:
            return "tracebacks"
        return "lost" if self.left else "tried"


def run_case(case: Case, folder: Path, seconds: float = SECONDS) -> Ending:
    """Call the command line in a process of its own, in a folder that is empty but for the files of the case."""
    work = folder / "work"
    work.mkdir(parents=True)
    for name, content in case.files.items():
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_bytes(content)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # other threads hold nothing that a case needs
        pid = os.fork()
    if pid == 0:
        _call(case, work, folder)
    code, why = _awaited(pid, seconds)
    error = (folder / "stderr").read_text(errors="replace")
    store = work / "studies" / "ablate.db"
    before = case.files.get("studies/ablate.db")
    if not why and before is not None and (not store.is_file() or store.read_bytes() != before):
        why = "the store was changed"
    outside = {path.name for path in folder.iterdir()} - {"work", "stdout", "stderr", "cache"}
    return Ending(code, error, f"written outside: {outside}" if outside and not why else why)


def _call(case: Case, work: Path, folder: Path) -> NoReturn:
    """The forked process: becomes the command line, and never returns."""
    code = 99
    try:
        os.setsid()
        os.chdir(work)
        for number, name in ((1, "stdout"), (2, "stderr")):
            os.dup2(os.open(folder / name, os.O_WRONLY | os.O_CREAT), number)
        os.environ["ABLATE_CACHE"] = str(folder / "cache")
        sys.stdout, sys.stderr = (open(number, "w", closefd=False, errors="replace") for number in (1, 2))  # noqa: SIM115
        sys.argv = ["ablate", *case.arguments]
        signal.signal(signal.SIGINT, signal.default_int_handler)
        ablate_main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _awaited(pid: int, seconds: float) -> tuple[int | None, str]:
    """The exit code of a process; None, and the reason, if it had to be killed.

    The time that it was ready to run and other processes had the cores does not count.
    """
    begun, pause = time.monotonic(), 0.002
    process = psutil.Process(pid)
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status), ""
        why, now = "", time.monotonic() - begun
        if now > seconds:
            ran, waited = scheduled(pid)
            why = told(now, ran, waited) if now - waited > seconds else ""
        if (size := process.memory_info().rss) > BYTES:
            why = f"it uses {size / 2**30:.1f} GiB"
        if why:
            os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return None, why
        time.sleep(pause)
        pause = min(pause * 1.5, 0.05)


class _EnoughError(Exception):
    """The time limit of a quick campaign was reached."""


def sample(
    strategy: st.SearchStrategy[Case],
    number: int,
    seed_: int,
    folder: Path,
    seconds: float = math.inf,
    patience: float = SECONDS,
) -> Tally:
    """Try so many cases.

    Args:
        strategy: What is tried.
        number: How many.
        seed_: Of what is drawn; the same seed gives the same cases.
        folder: Where they run; those that ended badly stay there.
        seconds: When to end before all were tried.
        patience: Seconds that a case may take.
    """
    tally, end = Tally(), time.monotonic() + seconds

    @seed(seed_)
    @settings(
        max_examples=number,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def attempt(case: Case) -> None:
        if time.monotonic() > end:
            raise _EnoughError
        place = folder / str(tally.tried)
        ending = run_case(case, place, patience)
        verdict = ending.verdict(case)
        tally.add(case.kind, verdict)
        if verdict == "tried":
            shutil.rmtree(place)
        else:
            last = (ending.error.strip().splitlines() or ["nothing on stderr"])[-1][:200]
            line = " ".join(map(repr, case.arguments))[:200]
            tally.worst.append(f"{verdict}: {place}: ablate {line}: exit code {ending.code}: {ending.left or last}")

    with suppress(_EnoughError):
        attempt()
    return tally


def campaign(arguments: Sequence[str]) -> int:
    """Run a campaign and print its counts; the exit code is 1 if anything was lost, hung or ended in a traceback."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks hostile", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two minutes at most")
    parser.add_argument("--json", action="store_true", help="print the four counts as JSON")
    parser.add_argument("--cases", type=int, default=CASES)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log", type=Path, help="a file to which the counts are written as they come")
    asked = parser.parse_args(arguments)
    end = time.monotonic() + (QUICK_SECONDS if asked.quick else math.inf)
    folder = Path(tempfile.mkdtemp(prefix="ablate-hostile-"))
    store = tiny_store(folder / "prepared")
    preload(folder / "preload", store)
    tally = Tally()
    for part in range(-(-asked.cases // _TOGETHER)):
        number = min(_TOGETHER, asked.cases - part * _TOGETHER)
        place = folder / "cases" / str(part)
        tally += sample(cases(store), number, asked.seed + part, place, end - time.monotonic(), SECONDS)
        if asked.log is not None:
            asked.log.write_text("\n".join([*tally.worst, tally.table()]) + "\n")
        if time.monotonic() > end:
            break
    for line in tally.worst:
        print(line, file=sys.stderr)
    print(json.dumps(tally.counts()) if asked.json else f"seed {asked.seed}\n{tally.table()}")
    if not tally.worst:
        shutil.rmtree(folder)
    return 1 if tally.worst else 0
