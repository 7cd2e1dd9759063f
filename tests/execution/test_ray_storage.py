"""Where checkpoints are kept, and which ones of an earlier driver are found."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem
from pyarrow.fs import FileType

from ablate.errors import EngineError
from ablate.execution.checkpoint import MEMBERS, job_key
from ablate.execution.protocol import Job, JobMember
from ablate.execution.ray.files import Storage, open_storage


class Shelf(LocalFileSystem):  # type: ignore[misc]
    """A file system that a package of somebody's might add to fsspec."""

    protocol = "shelf"

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(path.removeprefix("shelf://")))


def checkpoint(folder: Path, run: str, job: str, number: int) -> str:
    made = folder / run / job / f"checkpoint_{number:06}"
    made.mkdir(parents=True)
    (made / "state.pt").write_bytes(b"weights")
    return str(made)


@pytest.mark.parametrize("form", ["{}/a folder", "file://{}/there", "local://{}/there", "shelf://{}/there"])
def test_a_folder_and_every_url_of_arrow_and_fsspec_is_written_to(form: str, tmp_path: Path) -> None:
    fsspec.register_implementation("shelf", Shelf, clobber=True)
    storage = open_storage(form.format(tmp_path))
    storage.filesystem.create_dir(f"{storage.path}/x")
    (folder,) = tmp_path.iterdir()
    assert [path.name for path in folder.iterdir()] == ["x"]
    assert storage.filesystem.get_file_info(f"{storage.path}/x").type == FileType.Directory


def test_a_relative_folder_is_one_of_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert open_storage("here").path == str(tmp_path / "here")


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("nope://bucket/x", "--checkpoint-dir nope://bucket/x: checkpoints cannot be written there.* got .*nope"),
        ("{}/file/below", "cannot be written there; expected a folder .*; got .*ot a directory"),
        ("file://elsewhere/x", "cannot be written there"),
    ],
)
def test_an_invalid_location_is_reported(where: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EngineError, match=said):
        open_storage(where.format(tmp_path))


@pytest.mark.skipif(importlib.util.find_spec("dropbox") is not None, reason="its package is installed")
def test_a_missing_package_is_reported() -> None:
    with pytest.raises(EngineError, match=r"needs a package that is missing: .*dropbox.* Install it on every machine"):
        open_storage("dropbox://x/y")


def test_checkpoints_of_an_earlier_driver_are_found_by_what_is_trained(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path))
    old = checkpoint(tmp_path, "mine-20260101-000000-7", "k1_abc", 9)
    new = checkpoint(tmp_path, "mine-20260102-000000-3", "k1_def", 1)
    newer = checkpoint(tmp_path, "mine-20260102-000000-3", "k1_def", 2)
    other = checkpoint(tmp_path, "mine-20260102-000000-3", "k2_ghi", 1)
    checkpoint(tmp_path, "mine-too-20260102-000000-3", "k1_abc", 1)
    assert storage.left("mine") == {"k1": [newer, new, old], "k2": [other]}
    for text, alive in (('{"members": ["a", "b"], "alive": ["b"]}', {"b"}), ('{"members": [', None), ("{}", None)):
        Path(new, MEMBERS).write_text(text)
        pack = storage.members(new)
        assert (pack and pack.alive) == alive, "an incomplete checkpoint has no members"
    storage.forget([newer, new, old])
    assert storage.left("mine") == {"k2": [other]}
    assert not Path(old).parents[1].exists(), "nothing is left in it"
    assert storage.left("mine-too").keys() == {"k1"}, "another study's"
    storage.tidy(str(tmp_path / "mine-20260102-000000-3"))
    assert Path(other).exists()
    assert storage.new_run("mine") not in {path.name for path in tmp_path.iterdir()}
    assert Storage(storage.filesystem, str(tmp_path / "nowhere")).left("mine") == {}


def test_the_key_of_a_job_is_what_it_trains() -> None:
    def job(number: int = 1, variant: str = "{}", seed: int = 0, fingerprint: str = "f", weights: str = "") -> Job:
        return Job(number, (JobMember(variant, seed, weights), JobMember(variant, 5)), fingerprint)

    assert job_key(job()) == job_key(job(number=2, weights="there"))
    assert len({job_key(each) for each in (job(), job(variant="[]"), job(seed=1), job(fingerprint="g"))}) == 4
