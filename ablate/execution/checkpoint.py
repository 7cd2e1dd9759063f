"""The checkpoints of jobs on a file system: a folder with the state of a job and a description of it.

A checkpoint is the folder `checkpoint_STEP` in the folder of its job, whose name is the key of the job. It is written
under another name and renamed when it is complete, so that a writer that dies leaves no partial checkpoint.

Tensors that are divided among the ranks of a job are in a folder of their own, in the format of torch's distributed
checkpoint: each rank writes its parts. They are read whole, so that any number of ranks can resume.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from pydantic_core import from_json
from torch import Tensor, distributed

from ablate.execution.own_trainer import TrainerFolders
from ablate.execution.protocol import Job
from ablate.planning.packing import ResumablePack
from ablate.spec.base import content_hash
from ablate.spec.space_fields import CheckpointInterval
from ablate.training.events import State
from ablate.training.sharding import Ranks, is_divided

MEMBERS = "members.json"
"""The file in a checkpoint with the keys of the trials of its job, and of those that had not left it."""
PREFIX = "checkpoint_"
"""The start of the name of the folder of a checkpoint."""
_STATE = "state.pt"
_DIVIDED = "divided"
"""The folder in a checkpoint with the tensors that are divided among ranks; in the state, the key of a name of one."""
_CHECKSUM = "sha256"
_KEY_CHARACTERS = 16
_KEPT = 2
"""The number of checkpoints of a job that are kept: if the newest cannot be read, the one before it is used."""


class UnreadableCheckpointError(Exception):
    """A checkpoint that was not written to its end, or has changed since."""


_FULL = 2**20
"""A disk with fewer free bytes, while the part of a file is on it that could be written, is full."""


def job_key(job: Job) -> str:
    """A key that is equal for jobs of the same trials in the same order, trained by the same code."""
    members = [[member.variant, member.seed, *([member.code] if member.code else [])] for member in job.members]
    return content_hash([job.fingerprint, members])[:_KEY_CHARACTERS]


def write_checkpoint(folder: Path, state: State, keys: Sequence[str]) -> None:
    """Write the state of a job into a folder, and then the file that names its job and step.

    Args:
        folder: An empty folder, or one that does not exist.
        state: Its `alive` holds the places of the members that have not left the job.
        keys: The keys of the trials of the job.

    Raises:
        OSError: Or `RuntimeError` from torch: it could not be written, by any rank.
    """
    plain, divided = _take_divided(state)
    if divided:
        _write_divided(divided, folder / _DIVIDED)
    folder.mkdir(parents=True, exist_ok=True)
    torch.save(plain, folder / _STATE)
    pack = {"members": [*keys], "alive": [keys[member] for member in state["alive"]]}
    (folder / MEMBERS).write_text(json.dumps(pack | {_CHECKSUM: _checksum(folder)}))


def help_to_write(state: State) -> None:
    """Write the parts that a rank other than the first has, while the first one runs `write_checkpoint`."""
    _, divided = _take_divided(state)
    if divided:
        with suppress(OSError):  # the first rank reports it
            _write_divided(divided)


def read_checkpoint(folder: Path, keys: Sequence[str] | None = None) -> State:
    """The state in a folder, with whole tensors.

    No code runs from it: `torch.load` reads tensors and plain values alone, and divided tensors are safetensors.

    Args:
        folder: What `write_checkpoint` wrote.
        keys: The keys of the trials whose state it must be; None for a member of a population, which takes over that
            of others.

    Raises:
        UnreadableCheckpointError: It is not whole, not what was written, or of other trials.
    """
    written = _written_checksum(folder / MEMBERS)
    try:
        if keys is not None and read_pack((folder / MEMBERS).read_bytes()).members != tuple(keys):
            raise UnreadableCheckpointError("it is of other trials")
        if written is not None and _checksum(folder) != written:
            raise UnreadableCheckpointError("its checksum is not the one that was written with it")
        state: State = torch.load(folder / _STATE, weights_only=True)
        if (folder / _DIVIDED).is_dir():
            state = _put_back(state, _read_divided(folder / _DIVIDED))
    except UnreadableCheckpointError:
        raise
    except Exception as error:  # a damaged file raises many types of exception
        raise UnreadableCheckpointError(f"{type(error).__name__}") from error
    return state


def read_pack(description: str | bytes) -> ResumablePack:
    """The pack that the text of a `members.json` describes.

    Raises:
        ValueError: The text is incomplete.
    """
    try:
        pack = from_json(description)
        return ResumablePack(tuple(pack["members"]), frozenset(pack["alive"]))
    except (KeyError, TypeError) as error:
        raise ValueError("this does not describe a pack") from error


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """The checkpoints of the jobs of a study in a folder of this machine.

    Attributes:
        interval: When a job writes a checkpoint.
    """

    folder: Path
    interval: CheckpointInterval

    def of(self, job: Job) -> JobCheckpoints:
        """The checkpoints of a job."""
        keys = tuple(member.key for member in job.members)
        return JobCheckpoints(self.folder / job_key(job), keys)

    def resumable_packs(self) -> list[ResumablePack]:
        """The packs of more than one trial with a checkpoint, as their newest checkpoint describes them."""
        packs = []
        for job in sorted(self.folder.iterdir()) if self.folder.is_dir() else ():
            for checkpoint in _newest_first(job):
                with suppress(OSError, ValueError):
                    pack = read_pack((checkpoint / MEMBERS).read_text())
                    if len(pack.members) > 1:
                        packs.append(pack)
                    break
        return packs

    def clear(self) -> None:
        """Remove all checkpoints of the study, and the folder above if it is then empty."""
        shutil.rmtree(self.folder, ignore_errors=True)
        with suppress(OSError):  # it holds those of other studies
            self.folder.parent.rmdir()


@dataclass(slots=True)
class JobCheckpoints:
    """The checkpoints of one job.

    Attributes:
        folder: The folder of the job; it need not exist.
        warnings: What went wrong since the last look, for the user.
        newest_file: The checkpoint that `newest` has read; empty before, or if there is none.
    """

    folder: Path
    keys: tuple[str, ...]
    warnings: list[str] = field(default_factory=list)
    newest_file: str = ""

    def newest_step(self) -> int:
        """The step of the newest checkpoint, readable or not; 0 if there is none."""
        return max((_step(checkpoint) for checkpoint in _newest_first(self.folder)), default=0)

    def newest(self) -> State | None:
        """The newest checkpoint that can be read; None if there is none."""
        for checkpoint in _newest_first(self.folder):
            try:
                state = read_checkpoint(checkpoint, self.keys)
                self.newest_file = str(checkpoint)
                return state
            except UnreadableCheckpointError as error:
                self.warnings.append(
                    f"the checkpoint {checkpoint} cannot be read ({error}); an older one is used, or training restarts"
                )
        return None

    def write(self, step: int, state: State) -> None:
        """Write a checkpoint and remove all older ones but one; if writing fails, there is only a warning."""
        partial = self.folder / f".partial-{os.getpid()}"
        try:
            shutil.rmtree(partial, ignore_errors=True)
            write_checkpoint(partial, state, self.keys)
            for file in partial.iterdir():
                _flush(file)
            final = self.folder / f"{PREFIX}{step:010d}"
            shutil.rmtree(final, ignore_errors=True)
            partial.rename(final)
            _flush(self.folder)
        except (OSError, RuntimeError) as error:
            said = _reason(error, self.folder)
            shutil.rmtree(partial, ignore_errors=True)
            self.warnings.append(
                f"the checkpoint of step {step} could not be written to {self.folder} ({said}); training continues,"
                " and earlier checkpoints are kept"
            )
            return
        for old in _newest_first(self.folder)[_KEPT:]:
            shutil.rmtree(old, ignore_errors=True)
        for abandoned in self.folder.glob(".partial-*"):  # of a writer that was killed
            shutil.rmtree(abandoned, ignore_errors=True)

    def remove(self) -> None:
        """Remove the checkpoints of the job."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def take_warnings(self) -> list[str]:
        """The warnings since the last call."""
        taken, self.warnings = self.warnings, []
        return taken


def _reason(error: Exception, folder: Path) -> str:
    """Why a file could not be written. PyTorch reports a full disk as a RuntimeError about positions in its file."""
    if isinstance(error, RuntimeError):
        with suppress(OSError):
            if shutil.disk_usage(folder).free < _FULL:
                return "the disk is full"
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def checkpoints_folder(store: str, suffix: str = ".checkpoints") -> Path:
    """The default folder of checkpoints: beside the store, named after it; `studies/store.checkpoints` for a server."""
    return (Path("studies/store.db") if "://" in store else Path(store)).absolute().with_suffix(suffix)


def trainer_folders(store: str, key: str) -> TrainerFolders:
    """Where a trial of the user's trainer runs: in this folder, with files in `NAME.runs` beside the store."""
    return TrainerFolders(str(Path.cwd()), str(checkpoints_folder(store, ".runs") / key[:_KEY_CHARACTERS]))


def _newest_first(job: Path) -> list[Path]:
    folders = [folder for folder in job.glob(f"{PREFIX}*") if folder.name.removeprefix(PREFIX).isdecimal()]
    return sorted(folders, key=_step, reverse=True)


def _step(checkpoint: Path) -> int:
    return int(checkpoint.name.removeprefix(PREFIX))


def _flush(path: Path) -> None:
    """Ask the system to write a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _written_checksum(file: Path) -> Any:
    """The checksum that was written; None where the writer died before, or was an older ablate."""
    try:
        return json.loads(file.read_text()).get(_CHECKSUM)
    except (OSError, ValueError, AttributeError):
        return None


def _checksum(folder: Path) -> str:
    """The checksum of the tensors in a folder."""
    digest = hashlib.sha256()
    divided = folder / _DIVIDED
    for path in [folder / _STATE, *(sorted(divided.iterdir()) if divided.is_dir() else ())]:
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


def _take_divided(state: State) -> tuple[Any, dict[str, Tensor]]:
    """A state without the tensors that are divided among ranks, and these by name."""
    divided: dict[str, Tensor] = {}

    def taken(value: Any, path: str) -> Any:
        if isinstance(value, Tensor) and is_divided(value):
            divided[path] = value
            return {_DIVIDED: path}
        if isinstance(value, Mapping):
            return {key: taken(entry, f"{path}/{key}") for key, entry in value.items()}
        return [taken(entry, f"{path}/{index}") for index, entry in enumerate(value)] if type(value) is list else value

    return taken(state, ""), divided


def _put_back(value: Any, divided: Mapping[str, Tensor]) -> Any:
    if isinstance(value, Mapping):
        if value.keys() == {_DIVIDED}:
            return divided[value[_DIVIDED]]
        return {key: _put_back(entry, divided) for key, entry in value.items()}
    return [_put_back(entry, divided) for entry in value] if type(value) is list else value


def _write_divided(tensors: dict[str, Tensor], folder: Path | None = None) -> None:
    """Write the parts of this rank into the folder that the first rank names. All ranks call this at once.

    Raises:
        OSError: A rank could not write.
    """
    from torch.distributed.checkpoint.api import CheckpointException
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter  # these imports take a second
    from torch.distributed.checkpoint.state_dict_saver import save

    ranks = Ranks(distributed.get_rank(), distributed.get_world_size())
    named = ranks.of_first("" if folder is None else str(folder))
    try:
        save(tensors, storage_writer=HuggingFaceStorageWriter(named, save_distributed=True))
    except CheckpointException as error:
        raise OSError(str(next(iter(error.failures.values()))[0])) from error


def _read_divided(folder: Path) -> dict[str, Tensor]:
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
    from torch.distributed.checkpoint.metadata import TensorStorageMetadata
    from torch.distributed.checkpoint.state_dict_loader import load

    reader = HuggingFaceStorageReader(str(folder))
    described = reader.read_metadata().state_dict_metadata
    tensors = {
        name: torch.empty(tensor.size, dtype=tensor.properties.dtype)
        for name, tensor in described.items()
        if isinstance(tensor, TensorStorageMetadata)
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that one process reads alone, which is what is wanted
        load(tensors, storage_reader=reader, no_dist=True)
    return tensors
