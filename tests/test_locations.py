"""Places and files that a person names: found, of a stated size, or refused with the variable that helps."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from ablate import locations
from ablate.errors import AblateError
from ablate.locations import (
    cache_folder,
    check_regular,
    files_matching,
    read_file,
    temporary_folder,
    typed_path,
    write_file,
)
from ablate.planning.other_machine import read_doctor_report
from ablate.processes import child_environment, python_command
from ablate.render.drawing.svg import write_svg
from ablate.spec.reading import load_space
from ablate.tables.formats import file_text
from ablate.tables.reading import find_files
from ablate.tasks.tables import lines
from ablate.trained.hugging_face.checkpoint import _json
from ablate.trained.source import read_source
from ablate.trained.weights import read_weights

SPACE = Path(__file__).parent.parent / "spaces" / "simplify_block.yaml"
HOMELESS = """
import json, pwd, sys
def unknown(uid): raise KeyError(uid)
pwd.getpwuid = unknown
from ablate.cli import main
for arguments in json.loads(sys.argv[1]):
    sys.argv = ["ablate", *arguments]
    try:
        main()
    except SystemExit as end:
        print(arguments, end.code)
"""
"""A user without an entry in the list of users, as in many containers."""


@pytest.fixture
def homeless(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(uid: int) -> None:
        raise KeyError(uid)

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    for name in ("HOME", "USER", "LOGNAME", "XDG_CACHE_HOME", "ABLATE_CACHE"):
        monkeypatch.delenv(name, raising=False)


def test_without_a_home_the_cache_is_where_a_variable_says(
    homeless: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(AblateError, match=r"HOME: this user has no home folder.*ABLATE_CACHE"):
        cache_folder()
    monkeypatch.setenv("ABLATE_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path


@pytest.mark.skipif(sys.platform != "linux", reason="the cache of other systems is elsewhere")
def test_a_home_or_a_cache_folder_of_the_system_is_enough(
    homeless: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "ablate"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
    assert cache_folder() == tmp_path / "other" / "ablate"


def test_without_a_folder_for_temporary_files_the_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere() -> str:
        raise FileNotFoundError("No usable temporary directory found")

    assert temporary_folder() == tempfile.gettempdir()
    monkeypatch.setattr(tempfile, "gettempdir", nowhere)
    with pytest.raises(AblateError, match=r"TMPDIR: no folder for temporary files can be written to"):
        temporary_folder()


def test_commands_of_a_user_without_a_home_end_with_one_sentence(tmp_path: Path) -> None:
    kept = {name: os.environ[name] for name in ("PATH", "OMP_NUM_THREADS") if name in os.environ}
    kept["PYTHONPATH"] = child_environment().get("PYTHONPATH", "")
    on_ray = ["study", str(SPACE), "--engine", "ray"]
    commands = [["plan", str(SPACE)], ["data", str(SPACE)], on_ray, [*on_ray, "--cache", "prepared"], ["dashboard"]]
    done = subprocess.run(
        python_command("-c", HOMELESS, json.dumps(commands)), cwd=tmp_path, env=kept, capture_output=True, text=True
    )
    assert done.stdout.splitlines() == [f"{arguments} 2" for arguments in commands], done.stderr
    assert done.stderr.count("ABLATE_CACHE") >= 3
    assert "Ray needs a home folder, and this user has none. Set HOME" in done.stderr
    assert "Streamlit needs a home folder" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_path_that_the_locale_cannot_hold_is_told_from_one_with_a_nul(tmp_path: Path) -> None:
    code = "from ablate.locations import typed_path; typed_path('gr\\u00f6\\u00dfe')"
    kept = child_environment({"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"})
    done = subprocess.run(python_command("-c", code), cwd=tmp_path, env=kept, capture_output=True, text=True)
    assert "file names of this locale are ascii" in done.stderr
    assert "PYTHONUTF8=1" in done.stderr
    with pytest.raises(AblateError, match="NUL"):
        typed_path("a\0b")


def test_a_long_path_for_sockets_is_told_from_a_cluster_that_is_not_there() -> None:
    from ablate.execution.ray.cluster import _cannot_start

    long = _cannot_start("validate_socket_filename failed: AF_UNIX path length cannot exceed 107 bytes: /a/ray/plasma")
    assert "set TMPDIR" in str(long)
    assert "--address" not in str(long)
    assert "set TMPDIR" not in str(_cannot_start("the object store has no memory"))


not_on_windows = pytest.mark.skipif(sys.platform == "win32", reason="Windows has other pipes")

READERS: list[tuple[str, Callable[[Path], object]]] = [
    ("x.yaml", load_space),
    ("x.csv", file_text),
    ("x.jsonl", lambda path: list(lines(path))),
    ("config.json", lambda path: _json(path, "a model")),
    ("x.safetensors", read_weights),
    ("x.safetensors", lambda path: read_source(str(path), path.parent)),
    ("x.pt", lambda path: read_source(str(path), path.parent)),
    ("doctor.json", read_doctor_report),
]


@not_on_windows
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("name", "read"), READERS)
def test_a_pipe_is_refused(name: str, read: Callable[[Path], object], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / name)
    with pytest.raises(AblateError, match=r"this is not a regular file|there is no such file or folder"):
        read(tmp_path / name)


@not_on_windows
@pytest.mark.timeout(60)
@pytest.mark.parametrize("write", [write_file, lambda path, content: write_svg(path, content.decode())])
def test_a_pipe_is_written_if_something_reads_it_and_refused_otherwise(
    write: Callable[[Path, bytes], None], tmp_path: Path
) -> None:
    pipe, content = tmp_path / "picture.svg", b"x" * 300_000  # more than a pipe holds
    os.mkfifo(pipe)
    with pytest.raises((OSError, AblateError), match="nothing reads this pipe"):
        write(pipe, content)
    with ThreadPoolExecutor(1) as others:
        read, written = others.submit(pipe.read_bytes), False
        while not written:
            with suppress(OSError, AblateError):  # the reader has not opened it yet
                write(pipe, content)
                written = True
        assert read.result() == content


@not_on_windows
@pytest.mark.parametrize(("name", "read"), [READERS[0], READERS[1], READERS[3], READERS[7]])
def test_a_file_that_is_too_large_is_refused_before_it_is_read(
    name: str, read: Callable[[Path], object], tmp_path: Path
) -> None:
    (tmp_path / name).touch()
    os.truncate(tmp_path / name, 8 << 30)
    with pytest.raises(AblateError, match=r"this file is too large; expected .* bytes; got 8,589,934,592"):
        read(tmp_path / name)


@not_on_windows
@pytest.mark.parametrize("promised", [8 << 30, 2**63, 100])
def test_a_header_of_safetensors_that_promises_too_much(promised: int, tmp_path: Path) -> None:
    header = json.dumps({"w": {"dtype": "F32", "shape": [1 << 31], "data_offsets": [0, 8 << 30]}}).encode()
    for name, content in (
        ("a", promised.to_bytes(8, "little") + header),
        ("b", len(header).to_bytes(8, "little") + header),
    ):
        path = tmp_path / f"{name}.safetensors"
        path.write_bytes(content)
        for read in (read_weights, lambda path: read_source(str(path), path.parent)):
            with pytest.raises(AblateError, match="cannot be read"):
                read(path)


@not_on_windows
@pytest.mark.parametrize(
    "content",
    [b'{"a":' * 5000 + b"1" + b"}" * 5000, b"[" * 100_000, b'{"v":' + b"9" * 5000 + b"}", b"\xff\xfe", b"null", b""],
)
def test_json_that_is_none_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(AblateError, match=r"this cannot be read|this is not a mapping"):
        _json(tmp_path / "config.json", "a model")


@not_on_windows
def test_a_link_is_followed_and_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    (tmp_path / "link").symlink_to("file")
    assert read_file(tmp_path / "link", 5) == b"12345"
    with pytest.raises(AblateError, match="too large"):
        read_file(tmp_path / "link", 4)
    for path in (tmp_path, Path("/dev/zero")):
        with pytest.raises(AblateError, match="this is not a regular file"):
            check_regular(path)


def test_a_folder_with_too_much_in_it_is_not_searched_at_any_depth(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locations, "MOST_ENTRIES", 20)
    for name in map(str, range(4)):
        (tmp_path / name).mkdir()
        for file in map(str, range(5)):
            (tmp_path / name / f"{file}.csv").touch()
    assert len(list(files_matching(tmp_path, "*/*.csv"))) == len(list(files_matching(tmp_path / "3", "**/*.csv"))) * 4
    for pattern in (".", "**/*.csv"):
        with pytest.raises(AblateError, match="expected at most 20 files and folders"):
            find_files(tmp_path, [pattern])
