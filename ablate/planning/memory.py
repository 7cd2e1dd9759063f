"""Whether the trials of a plan fit into memory, told before anything is trained."""

from __future__ import annotations

from operator import itemgetter

import psutil

from ablate.errors import EngineError
from ablate.nn.model.pricing import price
from ablate.planning.plan import Plan, Planner, Variant, cost_of_a_plugin
from ablate.spec.cost import Cost
from ablate.spec.variant import VariantSpec

_BYTES = 4
_COPIES = 2
"""Of each parameter: itself and its gradient."""


def trial_bytes(variant: Variant) -> int:
    """Predicted peak of one trial: parameters, gradients, the optimizer's state and what the backward pass needs."""
    return _training_bytes(variant.cost, variant.spec)


def largest_blocks(planner: Planner) -> tuple[str, int]:
    """The variant whose blocks need the most memory, and how much; all that is known before the data is prepared.

    The embedding and the head are left out, because the data decides the vocabulary. So is every variant but the
    baseline where `match` may still change their sizes.

    Raises:
        PluginError: A mixer does not know its own cost.
    """
    needed: dict[str, int] = {}
    for name, spec in planner.specs_before_data():
        with cost_of_a_plugin(name):
            needed[name] = _training_bytes(price(spec.model, context=spec.task.length).total, spec)
    return max(needed.items(), key=itemgetter(1), default=("", 0))


def _training_bytes(cost: Cost, spec: VariantSpec) -> int:
    averages = 0 if spec.training.average is None else 2 * _BYTES  # the average, and the weights while it is evaluated
    each = _COPIES * _BYTES + spec.training.optimizer.state_bytes() + averages
    return each * cost.parameters + spec.training.batch_size * cost.activation_bytes


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
    if plan.trials:
        largest = max((trial.variant for trial in plan.trials), key=trial_bytes)
        check_fits(largest.name, trial_bytes(largest), workers, device)


def check_fits(variant: str, needed: int, workers: int, device: str) -> None:
    """Refuse a variant of which `workers` trials at once cannot fit.

    Args:
        variant: Its name.
        needed: Predicted bytes of one trial.
        workers: Trials at once on this machine; on `cuda` each has a GPU of its own.
        device: `cpu` or `cuda`.

    Raises:
        EngineError: It is predicted to need more than there is.
    """
    there = free_bytes(device)
    if device != "cuda":
        needed *= workers
    if needed > there:
        raise EngineError(
            "its trials do not fit into memory",
            where=f"variant {variant}",
            expected=f"at most {there / 2**30:.1f} GiB",
            got=f"a predicted {needed / 2**30:.1f} GiB for {workers} at once",
            remedy="Lower `training.batch_size`, `task.context` or the model's size, or use fewer --workers.",
        )
