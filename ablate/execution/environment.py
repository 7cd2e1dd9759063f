"""Describe the environment of a study: versions, device, commit, command."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import psutil
import torch

from ablate.command_line import hide_passwords, without_option
from ablate.errors import EngineError
from ablate.store.records import Environment, WorkerRecord

_PACKAGES = ("ablate-blocks", "torch", "numpy", "pydantic", "tokenizers", "optuna", "sqlalchemy", "scipy")


def choose_device(name: str) -> str:
    """Resolve `auto`, `cpu` or `cuda` to `cpu` or `cuda`.

    Raises:
        EngineError: The name is unknown, or torch sees no CUDA device.
    """
    if name not in {"auto", "cpu", "cuda"}:
        raise EngineError("there is no such device", where="--device", expected="auto, cpu or cuda", got=repr(name))
    if name == "cuda" and not torch.cuda.is_available():
        raise EngineError(
            "this torch sees no CUDA device",
            where="--device cuda",
            got=f"torch {torch.__version__}",
            remedy="Use `--device cpu`, or install a CUDA build of torch.",
        )
    return name if name != "auto" else "cuda" if torch.cuda.is_available() else "cpu"


def describe_environment(device: str) -> Environment:
    """The environment of this process. The recorded command has no `--store`: the record is in that store."""
    versions = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    commit = _git("rev-parse", "HEAD")
    called = Path(sys.argv[0])
    name = called.parent.name if called.name == "__main__.py" else called.name  # of `python -m ablate`, the package
    return Environment(
        versions=versions,
        device=_describe_device(device),
        host=platform.node(),
        git_commit=commit,
        git_clean=None if commit is None else _is_clean(),
        command=hide_passwords(shlex.join([name, *without_option(sys.argv[1:], "--store")])),
    )


def this_worker(device: str, ranks: int = 1) -> WorkerRecord:
    """The record of this process as a worker, which trains each trial together with others if there are `ranks`."""
    described = _describe_device(device.partition(":")[0])
    several = f", {ranks} for each trial" if ranks > 1 else ""
    return WorkerRecord(platform.node(), described + several, os.getpid())


def _describe_device(device: str) -> str:
    if device == "cuda":
        names = sorted({torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())})
        return f"cuda: {torch.cuda.device_count()} x {', '.join(names)}"
    return f"cpu: {_processor()}, {psutil.cpu_count(logical=False) or psutil.cpu_count()} cores"


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


_NO_PROGRAMS = {
    "core.fsmonitor": "false",
    "core.hooksPath": os.devnull,
    "protocol.allow": "never",
}
"""Settings of git without which a repository names programs that `git status` runs."""


def _is_clean() -> bool | None:
    """Whether the repository of the working folder has no change; None if git does not say.

    A repository's own configuration may name programs: monitors of files, hooks, filters of contents, transports for
    objects that it lacks. None of them is run.
    """
    listed = _git("config", "--includes", "--show-scope", "--name-only", "--null", "--get-regexp", r"^filter\.")
    fields = (listed or "").split("\0")
    own = {name: "" for scope, name in zip(fields[::2], fields[1::2], strict=False) if scope in ("local", "worktree")}
    told = _git("--no-optional-locks", "status", "--porcelain", "--ignore-submodules=dirty", settings=own)
    return None if told is None else told == ""


def _git(*arguments: str, settings: Mapping[str, str] | None = None) -> str | None:
    """What git prints about the working folder; None if it fails."""
    settings = _NO_PROGRAMS | (settings or {})
    environment = {**os.environ, "GIT_NO_LAZY_FETCH": "1", "GIT_CONFIG_COUNT": str(len(settings))}
    for number, (name, value) in enumerate(settings.items()):
        environment |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
    try:
        done = subprocess.run(
            ["git", *arguments], capture_output=True, text=True, timeout=10, check=False, env=environment
        )
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
