"""The files of a checkpoint: the state of a job, and what it is of, with the checksum of the state."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from ablate.execution.ray.storage import MEMBERS
from ablate.training.events import State

_STATE = "state.pt"
_CHECKSUM = "sha256"


class UnreadableCheckpointError(Exception):
    """A checkpoint that was not written to its end, or has changed since."""


def write_checkpoint(folder: Path, state: State, keys: Sequence[str]) -> None:
    """Write the state of a job into a folder, and then what it is of.

    Args:
        folder: An empty folder.
        state: Its `alive` holds the places of the members that have not left the job.
        keys: The keys of the trials of the job.
    """
    torch.save(state, folder / _STATE)
    told = {"members": [*keys], "alive": [keys[member] for member in state["alive"]]}
    (folder / MEMBERS).write_text(json.dumps(told | {_CHECKSUM: _checksum(folder / _STATE)}))


def read_checkpoint(folder: Path) -> State:
    """The state in a folder. No code runs from it.

    Raises:
        UnreadableCheckpointError: It is not whole, or not what was written.
    """
    written = _written(folder / MEMBERS)
    try:
        if written is not None and _checksum(folder / _STATE) != written:
            raise UnreadableCheckpointError("its checksum is not the one that was written with it")
        state: State = torch.load(folder / _STATE, weights_only=True)
    except UnreadableCheckpointError:
        raise
    except Exception as error:  # the file may hold anything, and what is read fails on that in many ways
        raise UnreadableCheckpointError(f"{type(error).__name__}") from error
    return state


def _written(file: Path) -> Any:
    """The checksum that was written; None where the writer died before, or was an older ablate."""
    try:
        return json.loads(file.read_text()).get(_CHECKSUM)
    except (OSError, ValueError, AttributeError):
        return None


def _checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
