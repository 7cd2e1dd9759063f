"""Weights, gradients and the state of the optimizer divided among the ranks of a trial, by torch's `fully_shard`.

Each rank keeps its part of every tensor. Before a block runs its weights are gathered, and after it they are freed;
its gradients are summed and divided again. Zhao et al., PyTorch FSDP (arXiv:2304.11277), in the form of FSDP2.

A divided parameter is a `DTensor`. The optimizer works on the part of this rank, a plain tensor.

Shapes: K pack, of one member here.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeGuard

import torch
from torch import Tensor, distributed, nn

from ablate.nn.model.block import Block
from ablate.nn.model.encoder_decoder import DecoderBlock
from ablate.nn.pack import Packed

if TYPE_CHECKING:
    from torch.distributed.fsdp import FSDPModule
    from torch.distributed.tensor import DTensor, Shard

# torch's packages for this are imported where they are used: they take a second, and few trials need them.


def shard_model(model: nn.Module, device: torch.device) -> None:
    """Divide the parameters of a model among the ranks, in place.

    Blocks are gathered one by one, unless they share modules: then the whole model is gathered for a step.
    """
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import Shard

    # The warning is about operations in place on outputs that are views; there are none.
    warnings.filterwarnings("ignore", "FSDP2-wrapped module", UserWarning)
    mesh = DeviceMesh.from_group(distributed.group.WORLD, device.type)  # type: ignore[arg-type]
    ranks = mesh.size()

    def placement(parameter: nn.Parameter) -> Shard:
        even = [axis for axis, size in enumerate(parameter.shape) if axis and size % ranks == 0]
        return Shard(even[-1] if even else 0)  # only the first axis can be divided unevenly

    shares = any(module.share_key is not None for module in model.modules() if isinstance(module, Packed))
    blocks = [] if shares else [module for module in model.modules() if isinstance(module, Block | DecoderBlock)]
    for block in blocks:
        fully_shard(block, mesh=mesh, reshard_after_forward=True, shard_placement_fn=placement)
    fully_shard(model, mesh=mesh, reshard_after_forward=False, shard_placement_fn=placement)
    for module in _sharded_modules(model):
        # Losses are weighted by their share in the batch, so gradients are summed and not averaged.
        module.set_gradient_divide_factor(1.0)
        module.set_force_sum_reduction_for_comms(True)


def free_gathered(model: nn.Module) -> None:
    """Free the weights that an evaluation has gathered; the next pass gathers the current ones."""
    for module in _sharded_modules(model):
        module.reshard()


def is_divided(tensor: Tensor) -> TypeGuard[DTensor]:
    """Whether a tensor of a pack is divided; all others are plain ones."""
    return type(tensor) not in (Tensor, nn.Parameter)


def local(tensor: Tensor) -> Tensor:
    """The part of this rank, which shares memory with a divided tensor; a plain tensor itself."""
    return tensor.to_local().detach() if is_divided(tensor) else tensor


def part_of(whole: Tensor, like: Tensor) -> Tensor:
    """The part of a whole tensor that this rank has, where `like` is divided; else the whole tensor."""
    if not is_divided(like) or whole.shape != like.shape:
        return whole
    return local(_divide(whole, like))


def join_parts(part: Tensor, like: Tensor) -> Tensor:
    """The divided tensor whose part on this rank is given, where `like` is divided; else what is given."""
    if not is_divided(like) or not part.dim() or part.shape != local(like).shape:
        return part
    from torch.distributed.tensor import DTensor

    return DTensor.from_local(
        part, like.device_mesh, like.placements, run_check=False, shape=like.shape, stride=like.stride()
    )


def divide_like(whole: Mapping[str, Tensor], like: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Whole tensors, divided as those of equal names are."""
    return {
        name: _divide(tensor, target) if is_divided(target := like[name]) else tensor for name, tensor in whole.items()
    }


def whole_tensors(model: nn.Module) -> dict[str, Tensor]:
    """The tensors of a divided model, gathered one by one onto the CPU. All ranks must call this."""
    return {
        name: (tensor.full_tensor() if is_divided(tensor) else tensor).detach().cpu()
        for name, tensor in model.state_dict().items()
    }


def _divide(whole: Tensor, like: DTensor) -> DTensor:
    from torch.distributed.tensor import distribute_tensor

    # Every rank has read the same tensor, so that nothing is sent.
    moved = whole.to(local(like).device)
    return distribute_tensor(moved, like.device_mesh, like.placements, src_data_rank=None)


def _sharded_modules(model: nn.Module) -> list[FSDPModule]:
    from torch.distributed.fsdp import FSDPModule

    return [module for module in model.modules() if isinstance(module, FSDPModule)]
