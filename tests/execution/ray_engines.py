"""The engine that the tests of the Ray engine share, and what they do with it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cli_runs import eventually
from engine_samples import ENVIRONMENT, Log, planner
from ray.cluster_utils import Cluster
from ray_samples import (
    HOLD,
    POPULATION,
)

from ablate.execution.driver import StudyResult, run_study
from ablate.execution.local import LocalEngine
from ablate.execution.options import RunOptions
from ablate.execution.protocol import Began, Message
from ablate.execution.ray.engine import RayEngine
from ablate.planning.planner import make_plan
from ablate.spec.space_fields import ResourcesSpec
from ablate.store import Store

RAY_MARKS = [
    pytest.mark.ray,
    pytest.mark.timeout(900),
    # Ray's own: it forks helpers, closes sockets late and reads its own deprecated settings.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:ray.*"),
    pytest.mark.filterwarnings("ignore::FutureWarning:ray.*"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

PLUGIN = "from pathlib import Path\nPath({mark!r}).write_text(__file__)\n"
HOLDING = "hold"
"""While this file is in the working folder, jobs of a `trainer` stay where they are at step 60."""


def plugin(folder: Path, name: str, more: str = "") -> str:
    """A plugin that notes where it was imported from."""
    file = folder / f"{name}.py"
    file.write_text(PLUGIN.format(mark=str(folder / name)) + more)
    return str(file)


class Listening(RayEngine):
    """Remembers what it said."""

    heard: list[Message]

    def poll(self, timeout: float) -> list[Message]:
        said = super().poll(timeout)
        self.heard += said
        return said

    def is_idle(self) -> bool:
        self.poll(0.1)
        return not self._placed


@contextmanager
def two_placements(cluster: Cluster, folder: Path) -> Iterator[Listening]:
    """Two halves of a core, and checkpoints on a file system that only fsspec knows by this name."""
    storage = f"local://{folder}/storage"
    resources = ResourcesSpec(cpus=0.5, memory=0.1, custom={"slice": 0.5}, checkpoint_every=20, checkpoint_dir=storage)
    files = [plugin(folder, "travels", HOLD.format(file=str(folder / HOLDING), but=0, step=60))]
    with Listening(
        RunOptions(cache=folder / "cache", device="cpu", resources=resources, address=cluster.address, plugins=files)
    ) as made:
        made.heard = []
        made.admit(make_plan(planner(folder, **POPULATION)))  # one of the studies to come
        Path(files[0]).unlink()  # as on a machine that does not see the driver's files
        yield made


def drive(
    trainer: RayEngine | LocalEngine, store: Store, folder: Path, log: Log | None = None, **space: object
) -> StudyResult:
    result = run_study(planner(folder, **space), store, trainer, ENVIRONMENT, log or Log())
    if isinstance(trainer, Listening):
        eventually(trainer.is_idle)  # workers may not have received their stop yet, and the next study counts from 0
    return result


def begun(heard: list[Message]) -> list[Began]:
    return [message for message in heard if isinstance(message, Began)]
