"""What a device must be able to do for a trial; an engine refuses a plan that asks for more."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from ablate.errors import EngineError
from ablate.planning.planned import Trial
from ablate.spec.training import TrainingSpec
from ablate.training.compiling import missing_compiler
from ablate.training.optimizer import check_packages

_AMPERE = (8, 0)
"""The compute capability of the first GPUs with units for TF32."""


def check_abilities(trials: Iterable[Trial], device: str, *, here: bool = True) -> None:
    """Check that a device can train trials as they ask.

    Args:
        trials: The trials.
        device: `cpu` or `cuda`.
        here: Whether this is the machine that trains.

    Raises:
        EngineError: A trial asks for TF32 of a device that has none, or for a compiler that is not there.
        MissingPackageError: The packages of its optimizer are not installed here.
    """
    trainings = [trial.variant.spec.training for trial in trials]
    if here:
        for optimizer in {training.optimizer.kind_name(): training.optimizer for training in trainings}.values():
            check_packages(optimizer)
    if any(training.precision == "tf32" for training in trainings) and not _has_tf32(device, here):
        raise EngineError(
            "this device has no TF32",
            where="training.precision: tf32",
            expected="an NVIDIA GPU from Ampere on",
            got=device,
            remedy="Use `fp32` or `bf16`.",
        )
    if here and any(training.compile == "blocks" for training in trainings):
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
    variants = {trial.variant.hash: trial.variant for trial in trials} if ranks > 1 else {}
    for variant in variants.values():
        training = variant.spec.training
        for size in sorted({phase.batch_size for phase in training.phases(variant.context)}):
            share, rest = divmod(size, ranks)
            if rest or (training.micro_batch is not None and share % min(share, training.micro_batch)):
                raise _undivided(variant.name, training, size, ranks)


def _undivided(variant: str, training: TrainingSpec, size: int, ranks: int) -> EngineError:
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
            "training.optimizer.kind": "" if training.optimizer.elementwise else training.optimizer.canonical_json(),
            "training.record_blocks": "true" if training.record_blocks else "",
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
