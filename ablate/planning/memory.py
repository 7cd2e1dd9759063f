"""Checks before training whether the trials of a plan fit into memory."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from operator import itemgetter
from typing import Literal

from ablate.errors import EngineError
from ablate.machine import available_memory
from ablate.nn.model.pricing import (
    evaluation_activations,
    logit_activations,
    price,
    recomputed_activations,
    spared_activations,
)
from ablate.planning.budget import cost_of_a_plugin
from ablate.planning.plan import Plan, Variant
from ablate.planning.planner import Planner
from ablate.spec.base import largest_divisor
from ablate.spec.cost import BYTES, Cost
from ablate.spec.training import TrainingSpec
from ablate.spec.variant import VariantSpec


def trial_bytes(variant: Variant, parts: int = 1, device: str = "cpu") -> int:
    """Predicted peak of one trial: parameters, gradients, the optimizer's state and what the backward pass needs.

    0 where the user's trainer builds the model.

    Args:
        variant: The variant; its batch is that of one process.
        parts: The processes among which weights, gradients and the state of the optimizer are divided.
        device: `cpu` or `cuda`, whose kernels may keep less.
    """
    if not variant.spec.builds_model:
        return 0
    return _training_bytes(variant.cost, variant.spec, variant.vocabulary, variant.context, parts, device)


def part_of_rank(variant: Variant, ranks: int) -> Variant:
    """What one of several processes computes of a variant: its share of each batch."""
    if ranks == 1 or not variant.spec.builds_model:
        return variant
    training = variant.spec.training
    share = max(1, training.batch_size // ranks)
    micro = None if training.micro_batch is None else largest_divisor(share, training.micro_batch)
    smaller = training.model_copy(update={"batch_size": share, "micro_batch": micro})
    spec = variant.spec.model_copy(update={"training": smaller})
    return replace(variant, spec=spec, flops=variant.flops / ranks)


def largest_micro_batch(variant: Variant, there: float, parts: int = 1, device: str = "cpu") -> TrainingSpec | None:
    """The training of a variant with the largest micro-batch that fits; None if none fits.

    Blocks are computed again in the backward pass only if otherwise no micro-batch fits.

    Args:
        there: The bytes that one trial may use.
        parts: As `trial_bytes` has it, and so `device`.
    """
    training = variant.spec.training
    batches = {phase.batch_size for phase in training.phases(variant.context)} | {training.batch_size}
    sizes = [
        size for size in range(training.batch_size, 0, -1) if not any(batch % min(batch, size) for batch in batches)
    ]
    ways: tuple[Literal["none", "blocks"], ...] = ("none", "blocks") if training.recompute == "none" else ("blocks",)
    for recompute, size in itertools.product(ways, sizes):
        smaller = training.model_copy(update={"micro_batch": size, "recompute": recompute})
        changed = replace(variant, spec=variant.spec.model_copy(update={"training": smaller}))
        if trial_bytes(changed, parts, device) <= there:
            return smaller
    return None


def largest_blocks(planner: Planner) -> tuple[str, int]:
    """The variant whose blocks need the most memory, and how much; all that is known before the data is prepared.

    The embedding and the head are left out, because the data decides the vocabulary. So is every variant but the
    baseline where `match` may still change their sizes.

    Raises:
        PluginError: A mixer does not know its own cost.
    """
    needed: dict[str, int] = {}
    for name, spec in planner.specs_before_data():
        length = spec.task.length
        with cost_of_a_plugin(name):
            needed[name] = _training_bytes(price(spec.model, context=length).total, spec, 0, length)
    return max(needed.items(), key=itemgetter(1), default=("", 0))


def _training_bytes(
    cost: Cost, spec: VariantSpec, vocabulary: int, length: int, parts: int = 1, device: str = "cpu"
) -> int:
    """Predicted peak; without a vocabulary that of the blocks alone."""
    training = spec.training
    rows = training.rows_at_once
    logits, of_token = logit_activations(spec.model, vocabulary, length)
    of_matrix = vocabulary * spec.model.width if logits else 0  # the gradient of the head's matrix
    kept = cost.activations - logits - spared_activations(spec.model, length, device)
    head, block = rows * logits + of_matrix, 0
    if training.loss_chunk is not None:
        # Chunks add to one gradient of the matrix; autocast makes another of each chunk (`summed_product`).
        gradients_of_matrix = 2 if training.precision == "bf16" else 1
        head = min(head, of_token * training.loss_chunk + gradients_of_matrix * of_matrix)
    if training.recompute == "blocks":
        freed, largest = recomputed_activations(spec.model, length, device)
        kept, block = kept - freed, rows * largest * 3 // 2  # with the gradients of its widest activations, as measured
    averages = 0 if spec.training.average is None else BYTES * cost.parameters
    held = (BYTES + spec.training.optimizer.state_bytes()) * cost.parameters + averages
    gradients = BYTES * cost.parameters
    if parts > 1:
        held = math.ceil(held / parts) + _gathered_bytes(cost, spec, length)
        gradients = math.ceil(gradients / parts)
    # The backward pass begins at the head, where only gradients of earlier micro-batches are there.
    at_head = BYTES * head + (gradients if rows < training.batch_size else 0)
    trained = BYTES * rows * kept + max(at_head, BYTES * block + gradients)
    # It ends at the embedding, whose gradient has its own memory and, if it is the head's too, is added in a third.
    at_embedding = gradients + (2 * BYTES * of_matrix if spec.model.tied_head else 0)
    # An evaluation of the average keeps the weights aside, beside the gradients of the last step.
    return held + max(
        trained,
        at_embedding,
        _evaluation_bytes(spec, vocabulary, length, device) + averages + gradients * bool(averages),
    )


def _evaluation_bytes(spec: VariantSpec, vocabulary: int, length: int, device: str) -> int:
    """What an evaluation needs, during which there are no gradients; with chunks of the loss about as much as a row."""
    training = spec.training
    scalars = evaluation_activations(spec.model, vocabulary, length, device)
    rows = training.rows_at_once
    if training.loss_chunk is None:
        return BYTES * rows * scalars
    chunk = max(1, training.loss_chunk // length)
    return BYTES * max(rows * evaluation_activations(spec.model, 0, length, device), chunk * scalars)


def _gathered_bytes(cost: Cost, spec: VariantSpec, length: int) -> int:
    """Weights that are whole for a while on each process, with their gradients: all outside the blocks, and two blocks.

    While a block runs, the next one is gathered; the gradients of one are whole until they are divided.
    """
    blocks = [(run.cost.parameters, run.count) for run in price(spec.model, context=length).layers]
    outside = cost.parameters - sum(parameters * count for parameters, count in blocks)
    largest = max((parameters for parameters, _ in blocks), default=0)
    return BYTES * (2 * max(0, outside) + 3 * largest)


def free_bytes(device: str) -> int:
    """Memory that is free: of this machine, or of its container, on `cpu`, of the fullest GPU on `cuda`."""
    if device == "cuda":
        import torch

        return min(torch.cuda.mem_get_info(i)[0] for i in range(torch.cuda.device_count()))
    return available_memory()


def check_memory(plan: Plan, workers: int, device: str, ranks: int = 1, *, shard: bool = False) -> None:
    """Refuse a plan if `workers` of its trials do not fit into memory at once.

    Args:
        workers: Trials at once on this machine; on `cuda` each has GPUs of its own.
        device: `cpu` or `cuda`.
        ranks: The processes of each trial, each with its share of a batch; on `cuda` each has a GPU of its own.
        shard: Whether they divide the model among them.

    Raises:
        EngineError: The largest variant is predicted to need more than there is.
    """
    if plan.built:
        parts, processes = ranks if shard else 1, workers * ranks
        variants = {trial.variant.hash: trial.variant for trial in plan.built}.values()
        needed = [
            (trial_bytes(part, parts, device), part) for part in (part_of_rank(variant, ranks) for variant in variants)
        ]
        most, largest = max(needed, key=itemgetter(0))
        here = free_bytes(device) / (1 if device == "cuda" else processes)
        check_fits(largest.name, most, processes, device, _remedy(largest, here, parts, device))


def _remedy(variant: Variant, there: float, parts: int, device: str) -> str:
    """What makes a variant fit that does not; empty if no micro-batch does."""
    smaller = largest_micro_batch(variant, there, parts, device)
    if smaller is None:
        return ""
    also = " and `training.recompute: blocks`" if smaller.recompute != variant.spec.training.recompute else ""
    return f"Set `training.micro_batch: {smaller.micro_batch}`{also}, the largest that fits, or "


def check_fits(variant: str, needed: int, workers: int, device: str, remedy: str = "") -> None:
    """Refuse a variant if `workers` of its trials do not fit into memory at once.

    Args:
        needed: Predicted bytes of one trial.
        workers: Trials at once on this machine; on `cuda` each has a GPU of its own.
        device: `cpu` or `cuda`.
        remedy: What helps besides smaller sizes: the beginning of a sentence.

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
            remedy=f"{remedy}{'lower' if remedy else 'Lower'} `training.batch_size`, `task.context` or the model's"
            " size, or use fewer --workers.",
        )
