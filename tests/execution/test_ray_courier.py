"""Data and plugins that a node lacks are copied to it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import ray
from engine_samples import planner

from ablate.errors import PluginError
from ablate.execution.ray import files
from ablate.execution.ray.files import Courier, local_cache, pack, read_plugin, unpack, write_plugin
from ablate.planning.planner import make_plan
from ablate.tasks.cache import folder_of


class Handle:
    """A courier as its handle is used, with an object store that is a list."""

    def __init__(self, cache: Path) -> None:
        self.real, self.fetched = Courier(str(cache)), 0
        self.fetch = self

    def remote(self, fingerprint: str) -> Any:
        self.fetched += 1
        return self.real.fetch(fingerprint)


@pytest.fixture(autouse=True)
def _no_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ray, "get", lambda value: value)
    monkeypatch.setattr(ray, "put", lambda value: value)
    monkeypatch.setattr(files.tempfile, "gettempdir", lambda: str(tmp_path / "node"))
    (tmp_path / "node").mkdir()


def test_prepared_data_is_copied_once_to_a_node_that_does_not_see_it(tmp_path: Path) -> None:
    trial = make_plan(planner(tmp_path)).trials[0]
    fingerprint, spec = trial.variant.fingerprint, trial.variant.spec.task
    handle = Handle(tmp_path / "cache")
    assert local_cache(tmp_path / "cache", fingerprint, handle) == tmp_path / "cache"
    assert handle.fetched == 0, "what is seen is not copied"
    unseen = tmp_path / "not here"
    copies = local_cache(unseen, fingerprint, handle)
    assert local_cache(unseen, fingerprint, handle) == copies
    assert handle.fetched == 1
    ours, theirs = spec.open(tmp_path / "cache", fingerprint), spec.open(copies, fingerprint)
    for name, values in ours.train_batch(0, 1, 4).items():
        assert values.equal(theirs.train_batch(0, 1, 4)[name])


def test_a_task_without_files_is_left_alone(tmp_path: Path) -> None:
    assert local_cache(tmp_path / "cache", "ab" * 32, Handle(tmp_path / "cache")) == tmp_path / "cache"


def test_workers_of_one_node_may_unpack_at_once(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "tokens").write_bytes(b"x" * 100_000)
    packed = pack(source)
    target = folder_of(tmp_path / "node", "ab" * 32)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: unpack(packed, target), range(32)))
    assert (target / "tokens").read_bytes() == b"x" * 100_000
    assert [path.name for path in (tmp_path / "node").iterdir()] == [target.name]


def test_a_plugin_is_read_from_its_path_or_from_the_copy(tmp_path: Path) -> None:
    here = tmp_path / "mine.py"
    here.write_text("import helper, parts.norm")
    (tmp_path / "parts").mkdir()
    for name in ("helper.py", "parts/norm.py", "other.py"):
        (tmp_path / name).write_text(f"x = {name!r}")
    path, files = read_plugin("mine.py")
    assert path == str(here)
    assert files == {name: (tmp_path / name).read_bytes() for name in ("mine.py", "helper.py", "parts/norm.py")}
    assert write_plugin(path, files) == path
    (tmp_path / "helper.py").unlink()
    came = Path(write_plugin(path, files))
    assert came.name == "mine.py"
    assert {name: (came.parent / name).read_bytes() for name in files} == files
    (tmp_path / "helper.py").write_text("x = 2")  # this machine has another of the same name
    assert write_plugin(path, files) == str(came)
    assert {each.relative_to(came.parent).as_posix() for each in came.parent.rglob("*.py")} == set(files)


def test_a_missing_plugin_is_reported() -> None:
    with pytest.raises(PluginError, match=r"none\.py: this file cannot be read"):
        read_plugin("none.py")


def test_each_stop_is_reported_once(tmp_path: Path) -> None:
    real = Courier(str(tmp_path))
    real.stop(3, 1)
    real.stop(3, 0)
    assert (real.stops(3), real.stops(3), real.stops(4)) == ([1, 0], [], [])
