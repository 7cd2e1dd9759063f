"""The precision of a step: autocast to bfloat16, and float32 products in TF32."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch


def cast_to(precision: str, device: str) -> AbstractContextManager[object]:
    """Autocast for a forward pass in `bf16`; nothing for any other precision.

    Args:
        precision: As `training.precision`.
        device: `cpu` or `cuda`.
    """
    if precision != "bf16":
        return nullcontext()
    # A CUDA graph must repeat the casts at every replay.
    return torch.autocast(device, dtype=torch.bfloat16, cache_enabled=device == "cpu")


@contextmanager
def products_in(precision: str) -> Iterator[None]:
    """Let float32 products on a GPU use TF32 in the body if the precision is `tf32`."""
    if precision != "tf32":
        yield
        return
    settings = torch.backends.cuda.matmul, torch.backends.cudnn.conv  # type: ignore[attr-defined]
    before = [each.fp32_precision for each in settings]
    for each in settings:
        each.fp32_precision = "tf32"
    try:
        yield
    finally:
        for each, earlier in zip(settings, before, strict=True):
            each.fp32_precision = earlier
