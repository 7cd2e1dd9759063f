"""The environment that a trial records, also in a repository that would like to run programs, and what it permits."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Callable
from contextlib import nullcontext
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ablate.errors import EngineError
from ablate.execution import environment
from ablate.execution.environment import (
    _undeclared_changes,
    changed_files,
    check_abilities,
    check_shard,
    check_shares,
    choose_device,
    describe_environment,
    this_worker,
    undeclared_code,
)
from ablate.planning.plan import Trial
from ablate.spec.training import TrainingSpec

Repository = Callable[..., str]


@pytest.fixture
def git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """Runs git in a new repository with one committed file, which is the working folder."""
    folder = tmp_path / "repository"
    folder.mkdir()
    monkeypatch.chdir(folder)
    for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"):
        monkeypatch.setenv(name, "/dev/null")

    def run(*arguments: str) -> str:
        named = ("-c", "user.name=a", "-c", "user.email=a@b.c")
        return subprocess.run(["git", *named, *arguments], check=True, capture_output=True, text=True).stdout.strip()

    run("init", "-q")
    Path("file.txt").write_text("one")
    run("add", ".")
    run("commit", "-q", "-m", "first")
    return run


def test_commit_and_changes_are_recorded(git: Repository) -> None:
    found = describe_environment("cpu")
    assert (found.git_commit, found.git_clean) == (git("rev-parse", "HEAD"), True)
    Path("file.txt").write_text("two")
    assert describe_environment("cpu").git_clean is False


@pytest.mark.parametrize(
    ("setting", "attributes"),
    [
        ("core.fsmonitor", ""),
        ("filter.mine.clean", "*.txt filter=mine"),
        ("filter.mine.process", "*.txt filter=mine"),
        ("filter.in=valid.clean", "*.txt filter=in=valid"),
        ("hook", ""),
    ],
)
def test_no_program_that_a_repository_names_is_run(
    git: Repository, tmp_path: Path, setting: str, attributes: str
) -> None:
    mark, program = tmp_path / "ran", tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {mark}\n")
    program.chmod(0o755)
    Path(".git/info").mkdir(exist_ok=True)
    Path(".git/info/attributes").write_text(attributes)
    if setting == "hook":
        Path(".git/hooks").mkdir(exist_ok=True)
        program.rename(Path(".git/hooks/post-index-change"))
    else:
        git("config", "filter.before.clean", "false")
        git("config", "include.path", "mine")
        git("config", "filter.later.clean", "false")
        git("config", "--file", ".git/mine", setting, str(program))
    Path("file.txt").write_text("two")
    subprocess.run(["git", "status", "--porcelain"], check=False, capture_output=True)
    assert mark.exists(), "plain git runs it"
    mark.unlink()
    assert describe_environment("cpu").git_clean is False
    assert not mark.exists()


def test_new_changed_and_renamed_files_are_changes_and_old_names_are_not(git: Repository) -> None:
    for name in ("kept.py", "renamed.py", "edited.py", "removed.py"):
        Path(name).write_text(f"# {name}\n" * 9)
    git("add", ".")
    git("commit", "-q", "-m", "second")
    assert changed_files() == []
    git("mv", "renamed.py", "to.py")
    Path("edited.py").write_text("edited")
    Path("a new one.py").write_text("new")
    git("rm", "-q", "removed.py")
    assert sorted(changed_files() or ()) == ["a new one.py", "edited.py", "removed.py", "to.py"]
    assert _undeclared_changes([Path("edited.py"), Path("kept.py")]) == ["a new one.py", "removed.py", "to.py"]


def test_outside_a_repository_nothing_is_said_of_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert changed_files() is None
    assert _undeclared_changes([]) == []
    found = describe_environment("cpu")
    assert (found.git_commit, found.git_clean) == (None, None)


@pytest.mark.parametrize("counted", [True, False])
@pytest.mark.parametrize("changed", range(6))
def test_code_that_counts_for_no_key_is_named(changed: int, counted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three changed files by name, of more the others by their number."""
    names = list("abcdef")[:changed]
    monkeypatch.setattr(environment, "_undeclared_changes", lambda declared: names)
    valued = SimpleNamespace(counted_files=lambda folder: [Path("train.py")] if counted else [])
    said = list(undeclared_code(cast(Any, SimpleNamespace(defaults={}, with_values=lambda values: valued))))
    assert [one.startswith("`trainer.command` names no file here") for one in said[:1]] == [not counted] * bool(said)
    assert len(said) == (not counted) + (changed > 0)
    if changed:
        more = f" and {changed - 3} more" if changed > 3 else ""
        assert said[-1].startswith(f"{', '.join(names[:3])}{more}: changed since the last commit")


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (["/bin/ablate", "study", "--store", "a.db", "a b.yaml"], "ablate study 'a b.yaml'"),
        (["/lib/ablate/__main__.py", "study", "--store=postgresql://me:pw@host/x"], "ablate study"),
        (["mine.py", "--data", "http://me:pw@host/x"], "mine.py --data http://me:***@host/x"),
    ],
)
def test_versions_machine_and_command_are_recorded(
    words: list[str], command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", words)
    found = describe_environment("cpu")
    assert found.command == command
    assert (found.host, found.device) == (platform.node(), this_worker("cpu").device)
    assert found.versions["python"] == platform.python_version()
    assert {name: version(name) for name in found.versions if name != "python"}.items() <= found.versions.items()
    assert {"torch", "numpy", "ablate-blocks"} <= found.versions.keys()
    assert re.fullmatch(r"cpu: \S.*, [1-9]\d* cores", found.device)
    for counted, told in ((4, 4), (None, 8)):  # on some systems only threads are known
        monkeypatch.setattr("psutil.cpu_count", lambda logical=True, counted=counted: 8 if logical else counted)
        assert this_worker("cpu").device.endswith(f", {told} cores")
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file() and (model := re.search(r"^model name\s*: (.*\S)", cpuinfo.read_text(), re.MULTILINE)):
        assert model[1] in found.device
    monkeypatch.setattr(Path, "is_file", lambda self: False)
    for named in ("a processor", ""):
        monkeypatch.setattr(platform, "processor", lambda named=named: named)
        assert this_worker("cpu").device.startswith(f"cpu: {named or platform.machine()}, ")


def gpus(monkeypatch: pytest.MonkeyPatch, *names: str, capability: tuple[int, int] = (9, 0)) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: bool(names))
    monkeypatch.setattr("torch.cuda.device_count", lambda: len(names))
    monkeypatch.setattr("torch.cuda.get_device_name", names.__getitem__)
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda: capability)


def test_a_worker_names_its_gpus_and_how_many_train_a_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus(monkeypatch, "T4", "A100", "T4")
    assert this_worker("cuda:1").device == "cuda: 3 x A100, T4"
    assert this_worker("cuda", 2).device == "cuda: 3 x A100, T4, 2 for each trial"
    assert (this_worker("cpu").host, this_worker("cpu").pid) == (platform.node(), os.getpid())


@pytest.mark.parametrize("there", [(), ("T4",)])
@pytest.mark.parametrize("name", ["auto", "cpu", "cuda", "gpu"])
def test_a_device_is_chosen_by_what_torch_sees(
    name: str, there: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus(monkeypatch, *there)
    if name == "gpu" or (name == "cuda" and not there):
        with pytest.raises(EngineError, match="no such device" if name == "gpu" else "sees no CUDA device"):
            choose_device(name)
    else:
        assert choose_device(name) == ("cuda" if there and name != "cpu" else "cpu")


def trial_of(**training: Any) -> Trial:
    plain = {"steps": 8, "batch_size": 8, "optimizer": {"lr": 1e-3}, **training}
    spec = SimpleNamespace(training=TrainingSpec.model_validate(plain))
    return cast(Any, SimpleNamespace(variant=SimpleNamespace(hash=str(plain), name="v", context=8, spec=spec)))


@pytest.mark.parametrize("here", [True, False])
@pytest.mark.parametrize(("device", "capability"), [("cpu", (9, 0)), ("cuda", (7, 5)), ("cuda", (8, 0))])
@pytest.mark.parametrize("precision", ["fp32", "bf16", "tf32"])
def test_tf32_needs_a_gpu_that_has_it(
    precision: str, device: str, capability: tuple[int, int], here: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of another machine it is only known whether it has a GPU."""
    gpus(monkeypatch, "one", capability=capability)
    fits = precision != "tf32" or (device == "cuda" and (not here or capability >= (8, 0)))
    with nullcontext() if fits else pytest.raises(EngineError, match="this device has no TF32"):
        check_abilities([trial_of(), trial_of(precision=precision)], device, here=here)


@pytest.mark.parametrize("here", [True, False])
def test_a_compiler_is_needed_where_blocks_are_compiled(here: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ablate.execution.environment.missing_compiler", lambda device: f"one for {device}")
    check_abilities([trial_of()], "cpu", here=here)
    with pytest.raises(EngineError, match="one for cpu") if here else nullcontext():
        check_abilities([trial_of(), trial_of(compile="blocks")], "cpu", here=here)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("optimizer", {"kind": "muon", "lr": 1e-3}),
        ("optimizer", {"kind": "adamw", "lr": 1e-3, "weight_decay": 0.0, "hyperball": True}),
        ("record_blocks", True),
        ("insides", "ends"),
        ("rounded_bits", [4]),
        ("compile", "blocks"),
    ],
)
def test_a_model_is_divided_only_where_nothing_needs_whole_tensors(setting: str, value: Any) -> None:
    check_shard([trial_of(), trial_of(optimizer={"kind": "sgd", "lr": 0.1})], 2)
    with pytest.raises(EngineError, match=rf"variant v, training\.{setting}: this needs whole tensors"):
        check_shard([trial_of(), trial_of(**{setting: value})], 2)
    with pytest.raises(EngineError, match=r"expected `resources\.gpus` of at least 2"):
        check_shard([trial_of()], 1)


@pytest.mark.parametrize(
    ("training", "ranks", "fits"),
    [
        ({}, 1, True),
        ({}, 8, True),
        ({}, 3, False),
        ({"batch_size": 24, "micro_batch": 6}, 4, True),  # the share of a process, 6
        ({"batch_size": 24, "micro_batch": 12}, 4, True),  # more at once than the share
        ({"batch_size": 24, "micro_batch": 4}, 4, False),
        ({"batch_growth": {"kind": "stages", "shares": [0.25], "until": [0.5]}}, 2, True),
        ({"batch_growth": {"kind": "stages", "shares": [0.25], "until": [0.5]}}, 4, False),
    ],
)
def test_a_batch_of_any_step_is_divided_evenly_among_processes(
    training: dict[str, Any], ranks: int, fits: bool
) -> None:
    got = "a batch of 2" if "batch_growth" in training else "batch_size"
    micro = rf"\d*( \d+)?, micro_batch {training.get('micro_batch', 'not set')}"
    said = f"a multiple of {ranks} times .*; got {got}{micro}"
    said += rf".*training\.batch_growth\.multiple: {ranks}`" if "batch_growth" in training else ""
    with nullcontext() if fits else pytest.raises(EngineError, match=said):
        check_shares([trial_of(), trial_of(**training)] if training else [trial_of()], ranks)
