"""The files of a checkpoint: reading them runs no code, and training does not resume from changed files."""

from __future__ import annotations

import json
import os
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("ray")
pytest.importorskip("pyarrow")

from ablate.execution.checkpoint import (
    UnreadableCheckpointError,
    _write_divided,
    checkpoints_folder,
    job_key,
    read_checkpoint,
    trainer_folders,
    write_checkpoint,
)
from ablate.execution.protocol import Job, JobMember
from ablate.execution.ray.files import open_storage

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


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled:UserWarning")
def test_a_rank_that_cannot_write_its_part_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, number in (("get_rank", 0), ("get_world_size", 1)):
        monkeypatch.setattr(torch.distributed, name, lambda number=number: number)
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=r"^\[Errno \d+\] Not a directory: "):
        _write_divided({"weight": torch.ones(2)}, tmp_path / "file" / "divided")


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


def test_checkpoints_and_runs_are_beside_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert checkpoints_folder("some/a.db") == tmp_path / "some/a.checkpoints"
    assert checkpoints_folder("postgresql://me@host/a") == tmp_path / "studies/store.checkpoints"
    places = trainer_folders("some/a.db", "0123456789abcdef0123")
    assert (places.root, places.folder) == (str(tmp_path), str(tmp_path / "some/a.runs/0123456789abcdef"))


def test_a_job_has_the_checkpoints_of_the_same_trials_by_the_same_code() -> None:
    one, other = JobMember("{}", 0, code="c"), JobMember("{}", 1)
    jobs = [
        Job(1, (one, other), "f"),
        Job(1, (other, one), "f"),
        Job(1, (one,), "f"),
        Job(1, (one, other), "g"),
        Job(1, (replace(one, code="d"), other), "f"),
        Job(1, (replace(one, seed=2), other), "f"),
        Job(1, (replace(one, variant="{ }"), other), "f"),
    ]
    assert len({job_key(job) for job in jobs}) == len(jobs)
    assert job_key(Job(7, (replace(one, weights="w", key="k"), other), "f")) == job_key(jobs[0])
