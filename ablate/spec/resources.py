"""`ResourcesSpec`: resources of a trial and its checkpoints. Not part of the variant."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from ablate.spec.base import EXACT, Spec, refusal

_MINUTES = re.compile(r"(\d+(?:\.\d+)?) ?min(?:utes?)?")


@dataclass(frozen=True, slots=True)
class CheckpointInterval:
    """When a trial writes a checkpoint; never if both are 0.

    Attributes:
        seconds: Seconds of wall time between checkpoints.
    """

    steps: int = 0
    seconds: float = 0.0

    def is_due(self, step: int, seconds: float) -> bool:
        """Whether to write a checkpoint after a step, `seconds` after the last checkpoint."""
        return bool((self.steps and step % self.steps == 0) or (self.seconds and seconds >= self.seconds))


def _interval(value: Any) -> Any:
    text = value.strip() if isinstance(value, str) else value
    if isinstance(text, str):
        if text.isdecimal():
            return int(text)
        if (match := _MINUTES.fullmatch(text)) and float(match[1]) > 0:
            return text
    elif isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= EXACT:
        return value
    remedy = "Write steps, such as 500, or minutes, such as `10 min`; 0 for no checkpoints."
    rule = "an interval is a number of steps, or of minutes"
    raise PydanticCustomError("interval", "{rule}", {"rule": rule, "remedy": remedy})


class ResourcesSpec(Spec):
    """Resources of each job, and its checkpoints.

    They do not affect results, so they are not part of the trial key. An engine refuses what it cannot give: the local
    engine has no `custom` resources, `labels` or URLs.
    """

    cpus: float = Field(default=1.0, gt=0)
    """Processor cores for each process of a job, which is also its number of threads (at least one)."""
    gpus: float | None = Field(default=None, ge=0)
    """GPUs for each job, or a fraction of one. Several GPUs must be in one machine; the job has one process on each,
    which trains on its share of every batch. Default where there are GPUs: one on the local engine; on a cluster the
    share that the predicted memory of the largest trial needs, so that jobs can share a GPU."""
    shard: bool = False
    """Whether the GPUs of a job divide weights, gradients and the state of the optimizer among them (FSDP), for models
    that do not fit on one. Otherwise each has all of them."""
    memory: float | None = Field(default=None, gt=0)
    """Memory for each job in GiB. Default: the predicted memory of the largest trial plus 0.5 GiB."""
    custom: dict[str, Annotated[float, Field(gt=0)]] = Field(default_factory=dict)
    """Custom resources, by the names given when the nodes were started."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Labels that the node of a job must have, such as `ray.io/accelerator-type: H100`."""
    checkpoint_every: Annotated[int | str, BeforeValidator(_interval)] = Field(
        default=0,
        json_schema_extra={
            "anyOf": [
                {"type": "integer", "minimum": 0, "maximum": EXACT},
                {"type": "string", "pattern": _MINUTES.pattern},
            ]
        },
    )
    """Steps between checkpoints, such as 500, or minutes, such as `10 min`; 0: none. A trial whose process or machine
    died resumes from its last checkpoint, with the same curve."""
    checkpoint_dir: str = ""
    """Location of checkpoints: a folder, which all nodes of a cluster share, or on a cluster a URL that fsspec or Arrow
    supports (`s3://...`). Default of the local engine: a folder beside the store."""

    @property
    def checkpoint_interval(self) -> CheckpointInterval:
        """`checkpoint_every` as numbers."""
        if isinstance(self.checkpoint_every, int):
            return CheckpointInterval(steps=self.checkpoint_every)
        match = _MINUTES.fullmatch(self.checkpoint_every)
        assert match is not None, "validated"
        return CheckpointInterval(seconds=60 * float(match[1]))

    @model_validator(mode="before")
    @classmethod
    def _read_the_old_name(cls, value: Any) -> Any:
        if isinstance(value, Mapping) and "storage" in value and "checkpoint_dir" not in value:
            return {"checkpoint_dir" if name == "storage" else name: given for name, given in value.items()}
        return value

    @model_validator(mode="after")
    def _can_be(self) -> Self:
        if self.gpus is not None and self.gpus > 1 and self.gpus != int(self.gpus):
            rule = "a job gets whole GPUs, or a fraction of one"
            raise refusal(("gpus",), self.gpus, rule, f"Write {int(self.gpus)}, or less than 1.")
        return self
