"""`ResourcesSpec`: resources of a trial on a cluster. Not part of the variant."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from ablate.spec.base import Spec, refusal


class ResourcesSpec(Spec):
    """Resources that a cluster engine (`--engine ray`) reserves for each job, and its checkpoints.

    They do not affect results, so they are not part of the trial key.
    """

    cpus: float = Field(default=1.0, gt=0)
    """Processor cores for each job, which is also its number of threads (at least one)."""
    gpus: float | None = Field(default=None, ge=0)
    """GPUs for each job, or a fraction of one. Default: if there are GPUs, the share that the predicted memory of the
    largest trial needs, so that jobs can share a GPU."""
    memory: float | None = Field(default=None, gt=0)
    """Memory for each job in GiB. Default: the predicted memory of the largest trial plus 0.5 GiB."""
    custom: dict[str, Annotated[float, Field(gt=0)]] = Field(default_factory=dict)
    """Custom resources, by the names given when the nodes were started."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Labels that the node of a job must have, such as `ray.io/accelerator-type: H100`."""
    checkpoint_every: int = Field(default=0, ge=0)
    """Steps between checkpoints; 0: none. A trial whose node died resumes from its last checkpoint."""
    storage: str = ""
    """Location of checkpoints: a folder that all nodes share, or a URL that fsspec or Arrow supports (`s3://...`)."""

    @model_validator(mode="after")
    def _can_be(self) -> Self:
        if self.gpus is not None and self.gpus > 1 and self.gpus != int(self.gpus):
            rule = "a job gets whole GPUs, or a fraction of one"
            raise refusal(("gpus",), self.gpus, rule, f"Write {int(self.gpus)}, or less than 1.")
        if self.checkpoint_every and not self.storage:
            rule = "checkpoints need storage that outlives the node that wrote them"
            raise refusal(("storage",), self.storage, rule, "Name a folder that all nodes share, or a URL.")
        return self
