"""The files of a checkpoint: reading them runs no code, and training does not resume from changed files."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("ray")
pytest.importorskip("pyarrow")

from ablate.execution.checkpoint import UnreadableCheckpointError, read_checkpoint, write_checkpoint
from ablate.execution.ray.storage import open_storage

STATE: dict[str, Any] = {"step": 7, "alive": [0, 2], "model": {"w": torch.arange(6.0)}}


class Runs:
    """What a pickle makes when it is read: a file."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.mark),)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, STATE, ["a", "b", "c"])
    read = read_checkpoint(tmp_path)
    assert torch.equal(read.pop("model")["w"], STATE["model"]["w"])
    assert read == {"step": 7, "alive": [0, 2]}
    pack = open_storage(str(tmp_path)).members(str(tmp_path))
    assert pack is not None
    assert (pack.members, pack.alive) == (("a", "b", "c"), {"a", "c"})


def test_one_changed_bit_is_detected(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, STATE, ["a", "b", "c"])
    file = tmp_path / "state.pt"
    content = bytearray(file.read_bytes())
    at = content.index(torch.tensor([5.0]).numpy().tobytes())
    content[at] ^= 1
    file.write_bytes(content)
    with pytest.raises(UnreadableCheckpointError, match="checksum is not the one"):
        read_checkpoint(tmp_path)


@pytest.mark.parametrize("told", ["none", "of the file", "{", "[]"])
def test_no_code_runs_from_a_checkpoint(tmp_path: Path, told: str) -> None:
    """Neither with a correct checksum nor without one."""
    folder, mark = tmp_path / "checkpoint", tmp_path / "ran"
    folder.mkdir()
    write_checkpoint(folder, STATE, ["a", "b", "c"])
    if told == "of the file":
        write_checkpoint(folder, STATE | {"model": Runs(mark)}, ["a", "b", "c"])
        assert "sha256" in json.loads((folder / "members.json").read_text())
    else:
        torch.save(Runs(mark), folder / "state.pt")
        (folder / "members.json").write_text(told)
    with pytest.raises(UnreadableCheckpointError, match="UnpicklingError"):
        read_checkpoint(folder)
    assert not mark.exists()


@pytest.mark.parametrize("name", [".metadata", "__0_0.distcp", "shard-00001-model-00001-of-00001.safetensors"])
def test_no_code_runs_from_divided_tensors(tmp_path: Path, name: str) -> None:
    """Whatever file of them is a pickle, in the format of today or in one that torch would unpickle."""
    folder, mark = tmp_path / "checkpoint", tmp_path / "ran"
    folder.mkdir()
    write_checkpoint(folder, STATE | {"model": {"w": {"divided": "/model/w"}}}, ["a", "b", "c"])
    (folder / "divided").mkdir()
    (folder / "divided" / name).write_bytes(pickle.dumps(Runs(mark)))
    (folder / "members.json").write_text("{}")  # without a checksum, as a driver that died leaves it
    with pytest.raises(UnreadableCheckpointError):
        read_checkpoint(folder)
    assert not mark.exists()


def test_an_incomplete_checkpoint_is_not_used(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, STATE, ["a", "b", "c"])
    (tmp_path / "members.json").unlink()
    content = (tmp_path / "state.pt").read_bytes()
    (tmp_path / "state.pt").write_bytes(content[: len(content) // 2])
    with pytest.raises(UnreadableCheckpointError):
        read_checkpoint(tmp_path)
    (tmp_path / "state.pt").unlink()
    with pytest.raises(UnreadableCheckpointError):
        read_checkpoint(tmp_path)
