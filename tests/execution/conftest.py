"""The cluster and the engine that the tests of the Ray engine share, each file for itself.

To start a worker costs seconds of a processor, so most tests of a file share an engine and its two warm workers. Ray is
imported where it is used: files without it are collected and run without it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from ablate.store import Store, open_store

if TYPE_CHECKING:
    from ray.cluster_utils import Cluster
    from ray_engines import Listening


@pytest.fixture(scope="module")
def cluster(forked: None) -> Iterator[Cluster]:
    """A head that trains nothing, and a node, whose resources say which engine may have a place on it."""
    from ray_samples import node, small_cluster

    with small_cluster() as made:
        made.add_node(**node(4, resources=dict.fromkeys(("slice", "pair", "late", "packs"), 1)))
        yield made


@pytest.fixture(scope="module")
def ray_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The working folder of the tests of a file."""
    made = tmp_path_factory.mktemp("ray")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(made)
        yield made


@pytest.fixture(scope="module")
def trainer(cluster: Cluster, ray_folder: Path) -> Iterator[Listening]:
    """Two halves of a slice, with checkpoints."""
    from ray_engines import two_placements

    with two_placements(cluster, ray_folder) as made:
        yield made


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """An empty store."""
    with open_store(tmp_path / "store.db") as opened:
        yield opened


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty working folder, and one thread."""
    monkeypatch.chdir(tmp_path)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield tmp_path
    torch.set_num_threads(before)
