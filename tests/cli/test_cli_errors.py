"""Bad input: one clear paragraph on stderr, exit code 2, no traceback, and nothing half-written."""

from __future__ import annotations

import importlib.metadata
import os
import re
import resource
import shutil
import signal
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
import torch
from cli_runs import SPACE, Finished, Workplace, wait_for

from ablate.cli import main
from ablate.errors import SpaceError

Call = Callable[..., Finished]

BYTES = 1_000_000
"""The largest size of a file on a disk that fills up while a study runs."""
LONG = "n" * 300
"""A name that no usual file system takes."""


def assert_mistake(finished: Finished, *words: str) -> None:
    """One paragraph, the last thing said, which holds these words."""
    assert finished.code == 2, finished
    assert "Error: " not in finished.out
    assert "Traceback" not in finished.err
    paragraph = finished.err.splitlines()[-1]
    assert paragraph.startswith("Error: ")
    assert sum(line.startswith("Error: ") for line in finished.err.splitlines()) == 1
    for word in words:
        assert word in paragraph


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["study", "nowhere.yaml"], ["nowhere.yaml: there is no such file", "simplify_block"]),
        (["plan", "simplify_blok"], ["Did you mean `simplify_block`?"]),
        (["study"], ["ablate study: Missing argument 'SPACE'", "`ablate study --help`"]),
        (["study", "simplify_block", "--workers", "-1"], ["'--workers'"]),
        (["study", "simplify_block", "--threads", "0"], ["'--threads'"]),
        (["study", "simplify_block", "--device", "tpu"], ["there is no such device", "auto, cpu or cuda"]),
        (
            ["study", "simplify_block", "--checkpoint-dir", "s3://b"],
            ["--checkpoint-dir: ", "needs `--engine ray`", "got s3://b"],
        ),
        (["draw", "pre_ln", "--out", "nowhere/x.svg"], ["--out nowhere/x.svg: there is no such folder"]),
        (["draw", "pre_ln", "--out", "x.png"], ["--out x.png: ", ".svg; got .png"]),
        (["bench", "pre_ln", "--out", "nowhere/x.svg"], ["--out nowhere/x.svg: there is no such folder"]),
        (["show", "x", "--out", "x.png"], ["--out x.png: ", ".svg; got .png. Write `--out x.svg`"]),
        (["show", "x", "--out", "nowhere/x.svg"], ["--out nowhere/x.svg: there is no such folder"]),
        (["new", "ä"], ["ä: this is not a name for a space: a name is letters (a-z, A-Z), digits"]),
        (["show", "x", "--frobnicate"], ["No such option: --frobnicate"]),
        (["stuby"], ["No such command 'stuby'", "'study'"]),
        (["new", "a/b"], ["a/b: this is not a name for a space"]),
        (["show", "x"], ["there is no store here yet", "ablate study"]),
        (["show", "x", "--store", "mysql://host/x"], ["postgresql://"]),
        (["validate", "text"], ["text: this is a folder"]),
        (["kinds", "--plugin", "gone.py"], ["gone.py: there is no such file"]),
        (["kinds", "--plugin", f"{LONG}.py"], [LONG[:100], "cannot be looked up (File name too long)"]),
        (["validate", f"{LONG}.yaml"], [LONG[:100], "cannot be looked up (File name too long)"]),
        (["study", LONG], [LONG[:100], "cannot be looked up (File name too long)"]),
        (["plan", "simplify_block", "--data", f"file:{LONG}"], [LONG[:100], "(File name too long)"]),
        (["plan", "simplify_block", "--data", "file:~nobody_here/x"], ["~nobody_here/x: there is no home folder"]),
        (["plan", "simplify_block", "--data", "file:/"], ["/: this is the root of the file system"]),
        (["list", "--store", "~nobody_here/x"], ["~nobody_here/x: there is no home folder `~nobody_here`"]),
        (["study", "simplify_block", "--store", "~nobody_here/x"], ["there is no home folder `~nobody_here`"]),
        (["study", "simplify_block", "--store", "sqlite://"], ["--store sqlite://: a store in memory is gone when"]),
        (
            ["study", "simplify_block", "--store", "sqlite:///:memory:"],
            ["a store in memory is gone"],
        ),
        (["show", "x", "--store", LONG], [LONG[:100], "(File name too long)"]),
    ],
    ids=lambda value: " ".join(value)[:60] if isinstance(value, list) and not value[0].count(":") else "",
)
def test_wrong_commands(call: Call, place: Workplace, arguments: list[str], words: list[str]) -> None:
    before = sorted(place.folder.iterdir())
    assert_mistake(call(*arguments), *words)
    assert sorted(place.folder.iterdir()) == before


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("  steps: 6", "  stebs: 6", ["bad.yaml:6:3:", "stebs", "Did you mean `steps`?"]),
        ("  steps: 6", "  steps: [6", ["bad.yaml:", "YAML"]),
        ('data: "file:text"', 'data: "file:gone"', ["gone: there is no such file or folder"]),
        ("metric: val_loss", "metric: val_los", ["val_los"]),
        (SPACE.format(name="bad", steps=6, seeds=2, margin=0.05), "", ["bad.yaml", "mapping"]),
    ],
    ids=["key", "yaml", "data", "metric", "empty"],
)
def test_wrong_spaces(call: Call, place: Workplace, old: str, new: str, words: list[str]) -> None:
    file = place.folder / place.space("bad")
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))
    assert_mistake(call("study", "bad.yaml", "--workers", "1"), *words)
    assert place.trials("running") == place.trials("finished") == {}


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_cuda_without_a_gpu(call: Call, place: Workplace) -> None:
    assert_mistake(call("study", place.space(), "--device", "cuda"), "no CUDA device", "`--device cpu`")
    assert not place.store.exists()


def test_a_long_value_is_shortened_in_the_message(call: Call, place: Workplace) -> None:
    value = "a" * 20_000
    for old, new in (("leave_one_out", value), ("steps: 6", f"steps: {value}")):
        file = place.folder / place.space("bad")
        file.write_text(file.read_text().replace(old, new))
        finished = call("validate", "bad.yaml")
        assert_mistake(finished, "bad.yaml", "aaaa")
        assert len(finished.err) < 2_000
    finished = call("show", value, "--store", value)
    assert finished.code == 2
    assert len(finished.err) < 2_000


def test_no_control_character_of_a_value_reaches_the_terminal(call: Call, place: Workplace) -> None:
    place.space("bad")
    for arguments in (
        ["show", "\x1b[31mred\x07"],
        ["validate", "\x1b]0;title\x07.yaml"],
        ["show", "x", "--store", "\x9b2J"],
    ):
        finished = call(*arguments)
        assert finished.code == 2
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", finished.err)


def test_a_study_that_is_not_there(call: Call, done: tuple[Workplace, Finished]) -> None:
    store = str(done[0].store)
    assert_mistake(call("show", "tinny", "--store", store), "there is no study 'tinny'", "tiny", "`ablate list`")


@pytest.mark.parametrize("command", [["study", "tiny.yaml"], ["show", "tiny"], ["list"], ["plan", "tiny.yaml"]])
def test_a_file_that_is_not_a_store(call: Call, place: Workplace, command: list[str]) -> None:
    place.space()
    place.store.parent.mkdir()
    place.store.write_text("no database\n" * 100)
    assert_mistake(call(*command), str(place.store), "not a database", "--store")
    assert place.store.read_text() == "no database\n" * 100


@pytest.mark.parametrize("command", [["study", "tiny.yaml"], ["show", "tiny"]])
def test_a_store_of_a_newer_schema(
    call: Call, place: Workplace, done: tuple[Workplace, Finished], command: list[str]
) -> None:
    place.space()
    copy = place.folder / "newer.db"
    shutil.copy(done[0].store, copy)
    with closing(sqlite3.connect(copy)) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    assert_mistake(call(*command, "--store", str(copy)), "a newer version of ablate wrote this store", "9999")


@pytest.mark.parametrize("location", ["/proc/x/ablate.db", "/dev/null/ablate.db"])
def test_a_folder_that_cannot_be_created(call: Call, place: Workplace, location: str) -> None:
    if not Path(location).parents[1].exists():
        pytest.skip("this system has no such place")
    assert_mistake(call("study", place.space(), "--store", location), location)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_is_read_only(call: Call, place: Workplace) -> None:
    place.store.parent.mkdir(mode=0o555)
    assert_mistake(call("study", place.space()), str(place.store))


def test_a_space_is_not_overwritten(call: Call, place: Workplace) -> None:
    place.folder.joinpath("mine.yaml").write_text("precious")
    assert_mistake(call("new", "mine"), "mine.yaml: this file exists")
    assert place.folder.joinpath("mine.yaml").read_text() == "precious"


PLUGIN = """
from typing import Literal
from ablate.spec.sublayers import MixerSpec

class Mixer(MixerSpec):
    kind: Literal["{kind}"] = "{kind}"
"""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import nothing_of_this_name", ["ModuleNotFoundError", "nothing_of_this_name"]),
        ("x = (", ["SyntaxError"]),
        ("raise SystemExit(0)", ["SystemExit"]),
        ("raise BaseException('no')", ["BaseException: no"]),
    ],
    ids=["import", "syntax", "exit", "base"],
)
def test_a_plugin_that_cannot_be_imported(call: Call, place: Workplace, text: str, words: list[str]) -> None:
    place.folder.joinpath("mine.py").write_text(text)
    assert_mistake(call("kinds", "--plugin", "mine.py"), "mine.py: importing this raised", *words)


def test_links_that_lead_in_a_circle_are_no_files(call: Call, place: Workplace) -> None:
    for name in ("round.py", "round.yaml", "round.db", "round.csv"):
        place.folder.joinpath(name).symlink_to(name)
    place.space("mine")
    space = place.folder / "mine.yaml"
    space.write_text(f"plugins: [round.py]\n{space.read_text()}")
    assert_mistake(call("kinds", "--plugin", "round.py"), "round.py: there is no such file")
    assert_mistake(call("validate", "mine.yaml"), "round.py: there is no such file")
    assert_mistake(call("validate", "round.yaml"), "round.yaml")
    assert_mistake(call("show", "tiny", "--store", "round.db"), "round.db")
    assert_mistake(call("judge", "round.csv", "--metric", "x", "--baseline", "a", "--margin", "1"), "round.csv")


def test_a_plugin_with_an_invalid_kind(place: Workplace) -> None:
    words = {
        "unfinished": ["`unfinished`", "`build`, `complexity`, `cost`, `source`", "class Mixer"],
        "attention": ["attention", "defined in ablate.kinds.mixers.attention and"],
    }
    for kind in words:
        place.folder.joinpath(f"{kind}_plugin.py").write_text(PLUGIN.format(kind=kind))
    for kind in words:  # in processes of their own: a kind that has been defined stays
        finished = wait_for(place.fork("kinds", "--plugin", f"{kind}_plugin.py"))
        assert_mistake(finished, f"{kind}_plugin.py", *words[kind])


def test_debug_shows_the_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["ablate", "validate", "gone.yaml", "--debug"])
    with pytest.raises(SpaceError):
        main()


def test_no_space_left_in_the_middle_of_a_study(place: Workplace) -> None:
    file = place.space(seeds=40)

    def limit() -> None:
        os.setpgid(0, 0)
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (BYTES, BYTES))

    full = wait_for(place.fork("study", file, "--workers", "1", place=limit))
    assert full.code == 2, full
    assert full.err.splitlines()[-1].startswith("Error: ")
    assert "Traceback" not in full.err
    finished = place.trials("finished")
    assert len(finished) == len(re.findall(r"^ *\d+/120  ", full.out, re.MULTILINE)) > 0
    assert all(len(place.curve(key)) == 7 for key in finished)
    assert place.rows("PRAGMA integrity_check") == [("ok",)]


def test_the_version_is_that_of_the_installed_package(call: Call) -> None:
    told = call("--version")
    assert (told.code, told.out) == (0, f"ablate {importlib.metadata.version('ablate-blocks')}\n")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--on", "h10"], ["--on: this device is not known", "Did you mean `h100`?"]),
        (["--efficiency", "0.4"], ["--efficiency: ", "Name one with --on"]),
        (["--on", "h100", "--efficiency", "4"], ["'--efficiency'"]),
    ],
)
def test_an_unknown_machine(call: Call, arguments: list[str], words: list[str]) -> None:
    assert_mistake(call("plan", "simplify_block", *arguments), *words)
