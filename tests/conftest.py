"""What all tests share."""

from __future__ import annotations

import gc
import os
import shutil
import sys
import sysconfig
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import postgres
import pytest
from figures_apart import stand_in
from filelock import FileLock
from forking_python import forked_by
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling

from ablate.errors import AblateError
from ablate.machine import available_cores

# More processes run tests than there are cores, and sums in a fixed order give the same numbers every time. Torch reads
# this when it is imported, and the processes that tests start inherit it. The environment may ask for another number.
os.environ.setdefault("OMP_NUM_THREADS", "1")
_RAY_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    # Ray starts a Python process for each core of a node in advance. No test uses one: an actor of ours has an
    # environment of its own, and so a process of its own.
    "RAY_prestart_worker_first_driver": "0",
    # A node is dead after five failed checks. One that was killed refuses them at once; one that is only slow has the
    # usual ten seconds for each.
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "500",
    # The agents of a node notice by a pipe that it has died, also where they are forked and it is not their parent.
    "RAY_enable_pipe_based_agent_to_parent_health_check": "1",
}
for _name, _value in _RAY_SETTINGS.items():
    os.environ.setdefault(_name, _value)
# Commands are printed with their path unless a shell finds them by name; tests expect the path wherever they run.
_SCRIPTS = sysconfig.get_path("scripts")
os.environ["PATH"] = os.pathsep.join(one for one in os.environ["PATH"].split(os.pathsep) if one != _SCRIPTS)
# Where this is set, as in many containers, each process of the tests would compile all modules of ablate again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

_SURROUNDINGS = ("ABLATE_", "HOME", "OMP_", "PATH", "PYTHONPATH", "TMPDIR", "XDG_")

LONGEST = (
    "execution/test_ray_faults.py",
    "execution/test_ray_partition.py",
    "dashboard/test_browser.py",
    "kinds/mixers/test_contract.py",
    "dashboard/test_browser_findings.py",
    "cli/test_study_interrupted.py",
    "test_benchmarks.py",
    "execution/test_ray_cluster.py",
    "documentation/test_pages.py",
    "test_notebooks.py",
    "execution/test_sharded_trials.py",
    "execution/test_ranks.py",
    "dashboard/test_designer.py",
)
"""The test files that take more than 20 seconds. Those that wait for other processes take turns with the others."""
IN_A_BROWSER = ("test_browser.py", "test_browser_findings.py", "test_browser_running.py", "test_stores_and_views.py")
"""Files in `dashboard` that one process runs, so that they share a browser and its cache."""


# How long an example takes depends on what else the machine does.
settings.register_profile("any_machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any_machine")


def pytest_configure(config: pytest.Config) -> None:
    """Figures are converted in a process that no test forks."""
    config.add_cleanup(stand_in())


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Leave modules and tests out of garbage collection, which Hypothesis and Streamlit call once an example or run."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def pytest_xdist_auto_num_workers() -> int:
    """One process more than cores, because some always wait for a browser, for Ray or for a command to end."""
    return available_cores() + 1


class FileScheduling(LoadFileScheduling):
    """Gives each file to one process, and all files that need a browser to the same one."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        folder, _, name = file.rpartition("/")
        return f"{folder}/test_browser.py" if folder.endswith("dashboard") and name in IN_A_BROWSER else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> FileScheduling | None:
    """The scheduler of `--dist loadfile`."""
    return FileScheduling(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start with the files that take longest, so that no process of the test run is left with one at the end."""
    order = {Path(__file__).parent / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(item.path, len(order)))


@pytest.fixture(autouse=True, scope="module")
def own_kinds(request: pytest.FixtureRequest) -> Iterator[None]:
    """Kinds that a test module or its plugins define are known in that module alone, whatever else is collected."""
    base = sys.modules.get("ablate.spec.base")
    ours = [module for name, module in list(sys.modules.items()) if base is not None and name.startswith("ablate.")]
    families = {id(one): one for module in ours for one in vars(module).values() if isinstance(one, base.Family)}
    before = {key: dict(family._members) for key, family in families.items()}
    for family in families.values():
        for kind, member in list(family._members.items()):
            if member.__module__.startswith("test_") and member.__module__ != request.module.__name__:
                del family._members[kind]
    yield
    for key, family in families.items():
        now = {kind: one for kind, one in family._members.items() if one.__module__.startswith("ablate.")}
        family._members = before[key] | now
    if plugins := sys.modules.get("ablate.plugins"):
        plugins._loaded.clear()


@pytest.fixture(autouse=True)
def own_surroundings() -> Iterator[None]:
    """A test leaves the current folder and the variables that ablate and its processes read as it found them.

    So is the main module, which a page of Streamlit replaces and which new processes import.
    """
    main = sys.modules["__main__"]
    folder, kept = Path.cwd(), {name: value for name, value in os.environ.items() if name.startswith(_SURROUNDINGS)}
    yield
    os.chdir(folder)
    for name in [name for name in os.environ if name.startswith(_SURROUNDINGS) and name not in kept]:
        del os.environ[name]
    os.environ.update(kept)
    sys.modules["__main__"] = main


WORDS_OF_OTHERS = {
    *("Document.space_error", "SpaceSpec.resolve", "TrainerTask.prepare", "TrainerSpec.code", "_validate"),
    *("block_error", "_parse", "write_space", "RunOptions.resources_of_job", "_train"),
    *("check_store", "_write", "write_study", "_read"),
}
"""Where an error has the sentence of a validation, of the system or of another error, which says what to do or why."""


@pytest.fixture(autouse=True)
def own_errors(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Errors of specs, stores and runs say how to correct them, or what was expected."""
    made, silent = AblateError.__init__, list[tuple[str, str]]()

    def make(self: AblateError, *problem: str, **parts: str | None) -> None:
        made(self, *problem, **parts)
        frame = sys._getframe(1)
        while frame.f_code.co_name == "__init__" and frame.f_back is not None:
            frame = frame.f_back
        package = frame.f_globals.get("__name__", "").rpartition(".")[0]
        if package in ("ablate.execution", "ablate.spec", "ablate.store") and not (self.expected or self.remedy):
            silent.append((frame.f_code.co_qualname, str(self)))

    monkeypatch.setattr(AblateError, "__init__", make)
    yield
    assert [(name, said) for name, said in silent if name not in WORDS_OF_OTHERS] == []


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all processes of this test run share."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@pytest.fixture(scope="session")
def cache(shared_folder: Path) -> Path:
    """A cache folder for prepared data, shared by the whole test run so that each corpus is prepared once."""
    return shared_folder / "cache"


@pytest.fixture(scope="session")
def new_mlflow(shared_folder: Path) -> Callable[[Path], Path]:
    """Puts an MLflow database without runs into a folder; MLflow takes seconds to make one, once in a test run."""

    def put(folder: Path) -> Path:
        made = shared_folder / "mlflow.db"
        with FileLock(shared_folder / "mlflow.lock"):
            if not made.exists():
                from mlflow import MlflowClient

                MlflowClient(f"sqlite:///{made}.part").search_experiments()
                Path(f"{made}.part").rename(made)
        return Path(shutil.copy(made, folder))

    return put


@pytest.fixture(scope="module")
def quick() -> Iterator[None]:
    """The workers of a module's studies are forked from this process."""
    from cli_runs import quick_workers  # imports torch, which reads OMP_NUM_THREADS

    with quick_workers():
        yield


@pytest.fixture(scope="session")
def forking_interpreter() -> Iterator[str]:
    """The path of an interpreter that forks the workers of Ray's nodes, or of Python's where it cannot."""
    if not hasattr(os, "pidfd_open"):
        yield sys.executable
        return
    with forked_by() as interpreter:
        yield str(interpreter)


@pytest.fixture(scope="module")
def forked(forking_interpreter: str) -> Iterator[None]:
    """Nodes of Ray that a module adds fork their workers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "executable", forking_interpreter)
        yield


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The URL of a database on a server that runs as long as the session."""
    with postgres.server() as url:
        yield url
