"""Carrying out a job where it runs, whichever engine brought it there: a job in, messages out."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch

from ablate.engine.weights import keeper
from ablate.engine.worker import Broken, Done, Happened, Job, Message
from ablate.spec.variant import VariantSpec
from ablate.tasks.base import Task
from ablate.training.events import State
from ablate.training.loop import train
from ablate.training.members import Member


class Carrier:
    """Trains job after job on one device, and keeps open the data that they share.

    Args:
        cache: Folder of prepared data.
        device: Where to train.
    """

    def __init__(self, cache: Path, device: torch.device) -> None:
        self._cache = cache
        self._device = device
        self._tasks: dict[tuple[str, str], Task] = {}

    def carry_out(
        self, job: Job, stopped: Callable[[], Sequence[int]], start: State | None = None, save_every: int = 0
    ) -> Iterator[Message]:
        """Train a job. Whatever its trials raise becomes a `Broken` message.

        Args:
            job: The pack.
            stopped: Asked after every step: members, counted from 0, that are to leave; each is told once.
            start: Of a `Checkpoint` of this job, to go on from.
            save_every: Steps between checkpoints; 0: none.

        Yields:
            `Happened` for each event of training, then `Done` or `Broken`.
        """
        try:
            members = [Member(VariantSpec.model_validate_json(member.variant), member.seed) for member in job.members]
            task = self._task(members[0].variant, job.fingerprint)
            keep = keeper(job, members)
            for event in train(members, task, self._device, keep, stopped, start=start, save_every=save_every):
                yield Happened(job.number, event)
        except Exception as error:  # whatever a trial raises is that trial's failure, not that of who carries it out
            sentence = str(error).strip().splitlines() or [""]
            broken = Broken(job.number, f"{type(error).__name__}: {sentence[0]}", traceback.format_exc())
        else:
            yield Done(job.number)
            return
        if self._device.type == "cuda":
            torch.cuda.empty_cache()  # it may have been out of memory, and the next job is to find all that is free
        yield broken

    def _task(self, variant: VariantSpec, fingerprint: str) -> Task:
        key = (variant.task.canonical_json(), fingerprint)
        if key not in self._tasks:
            self._tasks[key] = variant.task.open(self._cache, fingerprint)
        return self._tasks[key]
