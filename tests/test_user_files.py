"""Files that a person names: regular files of a stated size, and nothing that never ends."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ablate.errors import AblateError
from ablate.locations import check_regular, read_file
from ablate.planning.other_machine import read_doctor_report
from ablate.spec.reading import load_space
from ablate.tables.formats import file_text
from ablate.tasks.tables import lines
from ablate.trained.hugging_face.checkpoint import _json
from ablate.trained.source import read_source
from ablate.trained.weights import read_weights

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has other pipes")

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


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("name", "read"), READERS)
def test_a_pipe_is_refused(name: str, read: Callable[[Path], object], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / name)
    with pytest.raises(AblateError, match=r"this is not a regular file|there is no such file or folder"):
        read(tmp_path / name)


@pytest.mark.parametrize(("name", "read"), [READERS[0], READERS[1], READERS[3], READERS[7]])
def test_a_file_that_is_too_large_is_refused_before_it_is_read(
    name: str, read: Callable[[Path], object], tmp_path: Path
) -> None:
    (tmp_path / name).touch()
    os.truncate(tmp_path / name, 8 << 30)
    with pytest.raises(AblateError, match=r"this file is too large; expected .* bytes; got 8,589,934,592"):
        read(tmp_path / name)


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


@pytest.mark.parametrize(
    "content",
    [b'{"a":' * 5000 + b"1" + b"}" * 5000, b"[" * 100_000, b'{"v":' + b"9" * 5000 + b"}", b"\xff\xfe", b"null", b""],
)
def test_json_that_is_none_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(AblateError, match=r"this cannot be read|this is not a mapping"):
        _json(tmp_path / "config.json", "a model")


def test_a_link_is_followed_and_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    (tmp_path / "link").symlink_to("file")
    assert read_file(tmp_path / "link", 5) == b"12345"
    with pytest.raises(AblateError, match="too large"):
        read_file(tmp_path / "link", 4)
    for path in (tmp_path, Path("/dev/zero")):
        with pytest.raises(AblateError, match="this is not a regular file"):
            check_regular(path)
