"""AdamW over a pack: elementwise, so members do not mix; clipping is by the norm of each member's whole gradient."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ablate.pack import Packed
from ablate.spec.training import OptimizerSpec


def build_optimizer(model: nn.Module, spec: OptimizerSpec) -> torch.optim.AdamW:
    """AdamW with weight decay on matrices and embeddings only."""
    decayed: list[Tensor] = []
    others: list[Tensor] = []
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            # Modules that know nothing of the pack axis follow the usual rule: what has two axes decays.
            decays = name in module.decayed if isinstance(module, Packed) else parameter.dim() > 1
            (decayed if decays else others).append(parameter)
    groups = [{"params": decayed, "weight_decay": spec.weight_decay}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(
        [group for group in groups if group["params"]], lr=spec.lr, betas=spec.betas, eps=spec.eps, fused=True
    )


@torch.no_grad()
def clip_gradients(parameters: list[nn.Parameter], pack: int, limit: float) -> None:
    """Scale down, in place, the gradient of each member whose 2-norm is longer than `limit`."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if pack == 1:
        norm = torch.stack(torch._foreach_norm(gradients)).norm()
        torch._foreach_mul_(gradients, (limit / (norm + 1e-6)).clamp(max=1.0))
        return
    squares = torch.stack([gradient.reshape(pack, -1).square().sum(1) for gradient in gradients]).sum(0)
    factor = (limit / (squares.sqrt() + 1e-6)).clamp(max=1.0)
    for gradient in gradients:
        gradient.mul_(factor.view(-1, *[1] * (gradient.dim() - 1)))
