"""The device and the environment of a study: which it is, how it is recorded, and whether it can train the trials."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import psutil
import torch

from ablate.errors import EngineError
from ablate.locations import real_path
from ablate.planning.plan import Trial
from ablate.processes import hide_passwords, without_option
from ablate.spec.trainer import TrainerSpec
from ablate.spec.training import TrainingSpec
from ablate.store.records import Environment, WorkerRecord
from ablate.training.optimizer import check_packages
from ablate.training.program import missing_compiler

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
    """Whether the repository of the working folder has no change; None if git does not say."""
    changed = changed_files()
    return None if changed is None else not changed


def undeclared_code(trainer: TrainerSpec) -> Iterator[str]:
    """Sentences on code that counts for no trial's key: all of it, or changed files of the repository.

    Raises:
        SpaceError: A declared file is missing.
    """
    counted = trainer.with_values(trainer.defaults).counted_files(Path.cwd())
    if not counted:
        yield (
            "`trainer.command` names no file here, so no change of its code is noticed: trials that the store holds "
            "are reused all the same. Name its files in `trainer.sources`, such as [train.py, lib]"
        )
    if files := _undeclared_changes(counted):
        more = f" and {len(files) - 3} more" if len(files) > 3 else ""
        yield (
            f"{', '.join(files[:3])}{more}: changed since the last commit, and not among `trainer.sources`: if they "
            "change the numbers, trials that the store holds are reused all the same"
        )


def _undeclared_changes(declared: Iterable[Path]) -> list[str]:
    """Python files in the repository of the working folder that are changed or new, and not among those declared."""
    top, known = _git("rev-parse", "--show-toplevel"), {real_path(file) for file in declared}
    changed = changed_files() if top else None
    files = [name for name in changed or () if name.endswith(".py") and real_path(Path(str(top)) / name) not in known]
    return sorted(files)


def changed_files() -> list[str] | None:
    """The changed and the new files of the repository of the working folder; None if git does not say.

    A repository's own configuration may name programs: monitors of files, hooks, filters of contents, transports for
    objects that it lacks. None of them is run.
    """
    listed = _git("config", "--includes", "--show-scope", "--name-only", "--null", "--get-regexp", r"^filter\.")
    fields = (listed or "").split("\0")
    own = {name: "" for scope, name in zip(fields[::2], fields[1::2], strict=False) if scope in ("local", "worktree")}
    told = _git("--no-optional-locks", "status", "--porcelain", "-z", "--ignore-submodules=dirty", settings=own)
    if told is None:
        return None
    entries = iter(told.split("\0"))
    files = []
    for entry in filter(None, entries):
        files.append(entry[3:])
        if entry[0] in "RC":
            next(entries, None)  # where it came from
    return files


def _git(*arguments: str, settings: Mapping[str, str] | None = None) -> str | None:
    """What git prints about the working folder; None if it fails."""
    settings = {**_NO_PROGRAMS, **(settings or {})}
    environment = {**os.environ, "GIT_NO_LAZY_FETCH": "1", "GIT_CONFIG_COUNT": str(len(settings))}
    for number, (name, value) in enumerate(settings.items()):
        environment |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
    try:
        done = subprocess.run(
            ["git", *arguments], capture_output=True, text=True, timeout=10, check=False, env=environment
        )
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return None
    return done.stdout.strip("\n") if done.returncode == 0 else None


_AMPERE = (8, 0)
"""The compute capability of the first GPUs with units for TF32."""


def check_abilities(trials: Iterable[Trial], device: str, *, here: bool = True) -> None:
    """Check that a device can train trials as they ask.

    Args:
        device: `cpu` or `cuda`.
        here: Whether this is the machine that trains.

    Raises:
        EngineError: A trial asks for TF32 of a device that has none, or for a compiler that is not there.
        MissingPackageError: The packages of its optimizer are not installed here.
    """
    settings = [trial.variant.spec.training for trial in trials]
    if here:
        for optimizer in {training.optimizer.kind_name(): training.optimizer for training in settings}.values():
            check_packages(optimizer)
    if any(training.precision == "tf32" for training in settings) and not _has_tf32(device, here):
        raise EngineError(
            "this device has no TF32",
            where="training.precision: tf32",
            expected="an NVIDIA GPU from Ampere on",
            got=device,
            remedy="Use `fp32` or `bf16`.",
        )
    if here and any(training.compile == "blocks" for training in settings):
        check_compiler(device)


def check_compiler(device: str) -> None:
    """Check that this machine can compile for a device, `cpu` or `cuda`.

    Raises:
        EngineError: It has no C++ compiler, or no Triton for a GPU.
    """
    if missing := missing_compiler(device):
        raise EngineError(
            "this machine cannot compile the blocks of a model",
            where="training.compile: blocks",
            expected=missing,
            got="none",
            remedy="Install it, or leave `compile` out.",
        )


def check_shares(trials: Iterable[Trial], ranks: int) -> None:
    """Refuse a batch that cannot be divided among the processes of a trial.

    Raises:
        EngineError: It cannot.
    """
    variants = {trial.variant.hash: trial.variant for trial in trials}
    for variant in variants.values():
        training = variant.spec.training
        for size in sorted({phase.batch_size for phase in training.phases(variant.context)}):
            share, rest = divmod(size, ranks)
            if rest or (training.micro_batch is not None and share % min(share, training.micro_batch)):
                raise _cannot_divide(variant.name, training, size, ranks)


def _cannot_divide(variant: str, training: TrainingSpec, size: int, ranks: int) -> EngineError:
    grows = training.batch_growth is not None
    multiple = f", set `training.batch_growth.multiple: {ranks * (training.micro_batch or 1)}`" if grows else ""
    return EngineError(
        "the batch cannot be divided among the GPUs of a trial",
        where=f"variant {variant}",
        expected=f"a `training.batch_size` that is a multiple of {ranks} times `training.micro_batch`"
        f"{' at each step' if grows else ''}",
        got=f"{'a batch of' if grows else 'batch_size'} {size}, micro_batch {training.micro_batch or 'not set'}",
        remedy=f"Change one of them{multiple}, or `resources.gpus`.",
    )


def check_shard(trials: Iterable[Trial], ranks: int) -> None:
    """Refuse what cannot be trained while the processes of a trial divide its model among them.

    Raises:
        EngineError: A trial has one process, or something that needs whole tensors.
    """
    if ranks == 1:
        raise EngineError(
            "a model cannot be divided among the processes of a trial that has one",
            where="resources.shard",
            expected="`resources.gpus` of at least 2",
            got="true, with one process for each trial",
            remedy="Set `resources.gpus` to several GPUs, or leave `shard` out.",
        )
    for variant in {trial.variant.hash: trial.variant for trial in trials}.values():
        training = variant.spec.training
        settings = {
            "training.optimizer": ""
            if training.optimizer.elementwise and not training.optimizer.hyperball
            else training.optimizer.canonical_json(),
            "training.record_blocks": "true" if training.record_blocks else "",
            "training.insides": "" if training.insides == "none" else training.insides,
            "training.rounded_bits": str(list(training.rounded_bits)) if training.rounded_bits else "",
            "training.compile": "" if training.compile == "none" else training.compile,
        }
        for path, value in settings.items():
            if value:
                raise EngineError(
                    "this needs whole tensors, and `resources.shard` divides them among GPUs",
                    where=f"variant {variant.name}, {path}",
                    expected="an optimizer that treats each entry by itself, no recordings, no compiled blocks",
                    got=value,
                    remedy="Change it, or leave `resources.shard` out.",
                )


def _has_tf32(device: str, here: bool) -> bool:
    return device == "cuda" and (not here or torch.cuda.get_device_capability() >= _AMPERE)
