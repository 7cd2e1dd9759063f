"""`ResourcesSpec`: what a trial needs where several machines share the work. It is no part of what a trial is."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from ablate.spec.base import Spec, refusal


class ResourcesSpec(Spec):
    """What an engine that places trials on machines (`--engine ray`) reserves for each, and how it keeps them safe.

    It changes no result, so it is no part of what a trial is known by.
    """

    cpus: float = Field(default=1.0, gt=0)
    """Processor cores for each job; a job trains with as many threads, at least one."""
    gpus: float | None = Field(default=None, ge=0)
    """GPUs for each job, or a fraction of one. Left out: where there are GPUs, the share that the predicted memory of
    the largest trial needs, so that several share one."""
    memory: float | None = Field(default=None, gt=0)
    """Memory for each job in GiB. Left out: what the largest trial is predicted to need, and half a GiB."""
    custom: dict[str, Annotated[float, Field(gt=0)]] = Field(default_factory=dict)
    """Further resources by the names that the nodes were started with."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Labels that a node must have to be given a job, such as `ray.io/accelerator-type: H100`."""
    checkpoint_every: int = Field(default=0, ge=0)
    """Steps between checkpoints; 0: none. A trial whose node died goes on from its last one."""
    storage: str = ""
    """Where checkpoints are kept: a folder that all nodes see, or a URL that fsspec or Arrow knows (`s3://...`)."""

    @model_validator(mode="after")
    def _can_be(self) -> Self:
        if self.gpus is not None and self.gpus > 1 and self.gpus != int(self.gpus):
            rule = "a job gets whole GPUs, or a fraction of one"
            raise refusal(("gpus",), self.gpus, rule, f"Write {int(self.gpus)}, or less than 1.")
        if self.checkpoint_every and not self.storage:
            rule = "checkpoints need a place that outlives the node that wrote them"
            raise refusal(("storage",), self.storage, rule, "Name a folder that all nodes see, or a URL.")
        return self
