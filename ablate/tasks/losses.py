"""The loss of tasks that predict token ids. Shapes: K pack, B batch, T tokens, V vocabulary."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def nats(
    outputs: torch.Tensor, targets: torch.Tensor, smoothing: float = 0.0, ignored: int | None = None
) -> torch.Tensor:
    """Cross entropy of every target: [K, B, T, V] and [K, B, T] -> [K, B·T], in float32 at least.

    Args:
        outputs: Logits.
        targets: Ids.
        smoothing: s: the target has the probability 1 - s, and each id s/V.
        ignored: The target whose loss is 0; None for none.
    """
    from ablate.nn.kernels.cross_entropy import cross_entropy

    flat = outputs.reshape(-1, outputs.shape[-1])
    flat = flat.float() if flat.itemsize < 4 else flat
    return cross_entropy(flat, targets.reshape(-1), smoothing, ignored).view(outputs.shape[0], -1)
