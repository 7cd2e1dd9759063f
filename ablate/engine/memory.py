"""Whether the trials of a plan fit into memory, told before anything is trained."""

from __future__ import annotations

import psutil

from ablate.engine.plan import Plan, Variant
from ablate.errors import EngineError

_BYTES = 4
_COPIES = 4
"""Of each parameter: itself, its gradient and AdamW's two moments."""


def trial_bytes(variant: Variant) -> int:
    """Predicted peak of one trial: parameters with gradients and moments, and what is kept for the backward pass."""
    batch = variant.spec.training.batch_size
    return _BYTES * (_COPIES * variant.cost.parameters + batch * variant.cost.activations)


def free_bytes(device: str) -> int:
    """Memory that is free: of this machine on `cpu`, of the fullest GPU on `cuda`."""
    if device == "cuda":
        import torch

        return min(torch.cuda.mem_get_info(i)[0] for i in range(torch.cuda.device_count()))
    available: int = psutil.virtual_memory().available
    return available


def check_memory(plan: Plan, workers: int, device: str) -> None:
    """Refuse a plan of which `workers` trials at once cannot fit.

    Args:
        plan: What is to be trained.
        workers: Trials at once on this machine; on `cuda` each has a GPU of its own.
        device: `cpu` or `cuda`.

    Raises:
        EngineError: The largest variant is predicted to need more than there is.
    """
    if not plan.trials:
        return
    largest = max((trial.variant for trial in plan.trials), key=trial_bytes)
    needed = trial_bytes(largest)
    there = free_bytes(device)
    if device != "cuda":
        needed *= workers
    if needed > there:
        raise EngineError(
            "its trials do not fit into memory",
            where=f"variant {largest.name}",
            expected=f"at most {there / 2**30:.1f} GiB",
            got=f"a predicted {needed / 2**30:.1f} GiB for {workers} at once",
            remedy="Lower `training.batch_size`, `task.context` or the model's size, or use fewer --workers.",
        )
