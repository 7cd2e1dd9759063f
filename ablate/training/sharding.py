"""Several processes (ranks) that train one trial together, each on its own device, and weights divided among them.

Every rank has the whole model, or its part of every tensor. It prepares the same batch, processes its own rows, and the
gradients are summed over the ranks, so that all ranks take the same step. Li et al., PyTorch Distributed
(arXiv:2006.15704).

Weights, gradients and the state of the optimizer are divided by torch's `fully_shard`: each rank keeps its part of
every tensor. Before a block runs its weights are gathered, and after it they are freed; its gradients are summed and
divided again. Zhao et al., PyTorch FSDP (arXiv:2304.11277), in the form of FSDP2. A divided parameter is a `DTensor`.
The optimizer works on the part of this rank, a plain tensor.

Shapes: K pack (of one member where weights are divided), B batch.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeGuard, TypeVar

import torch
from torch import Tensor, distributed, nn

from ablate.nn.model.block import Block
from ablate.nn.model.encoder import DecoderBlock
from ablate.nn.pack import Packed

if TYPE_CHECKING:
    from torch.distributed.fsdp import FSDPModule
    from torch.distributed.tensor import DTensor, Shard

    from ablate.spec.task import Batch


ValueT = TypeVar("ValueT")

_BUCKET = 1 << 23
"""The elements of gradients that are summed over the ranks in one message."""


class RankLostError(Exception):
    """Another rank has died or does not answer, so that the trial cannot continue in these processes."""


@dataclass(frozen=True, slots=True)
class Ranks:
    """This process among those that train a trial; `torch.distributed` must be ready if there are several.

    Attributes:
        shard: Whether weights, gradients and the state of the optimizer are divided among them.
    """

    index: int = 0
    count: int = 1
    shard: bool = False

    def rows(self, batch: Batch) -> Batch:
        """The rows of a batch [K, B, ...] that this rank processes; no other rank has them."""
        if self.count == 1:
            return batch
        first, last = (batch["inputs"].shape[1] * index // self.count for index in (self.index, self.index + 1))
        return {name: values[:, first:last] for name, values in batch.items()}

    def total(self, value: Tensor) -> Tensor:
        """The sum of a tensor over the ranks, in place."""
        if self.count > 1:
            self._together(lambda: distributed.all_reduce(value))
        return value

    def sum_gradients(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        """Replace the gradient of each parameter by the sum over the ranks; divided ones are summed already."""
        if self.count == 1 or self.shard:
            return
        bucket: list[Tensor] = []
        for gradient in (parameter.grad for parameter in parameters if parameter.grad is not None):
            bucket.append(gradient)
            if sum(gradient.numel() for gradient in bucket) >= _BUCKET:
                self._sum_bucket(bucket)
                bucket = []
        if bucket:
            self._sum_bucket(bucket)

    def _sum_bucket(self, gradients: list[Tensor]) -> None:
        flat = self.total(torch.cat([gradient.flatten() for gradient in gradients]))
        for gradient, summed in zip(
            gradients, torch.split(flat, [gradient.numel() for gradient in gradients]), strict=True
        ):
            gradient.copy_(summed.view_as(gradient))

    def of_first(self, value: ValueT) -> ValueT:
        """The value that the first rank has."""
        if self.count == 1:
            return value
        values = [value]
        self._together(lambda: distributed.broadcast_object_list(values, src=0))
        return values[0]

    def of_each(self, value: ValueT) -> Sequence[ValueT]:
        """The values that the ranks have, in their order."""
        if self.count == 1:
            return [value]
        values: list[ValueT | None] = [None] * self.count
        self._together(lambda: distributed.all_gather_object(values, value))
        return [value for value in values if value is not None]

    def _together(self, exchange: Callable[[], object]) -> None:
        """Run an exchange between the ranks.

        Raises:
            RankLostError: Another rank has died or does not answer.
        """
        try:
            exchange()
        except (RuntimeError, ValueError) as error:  # gloo and NCCL raise either, without a class of their own
            raise RankLostError((str(error).strip().splitlines() or ["no reason"])[0]) from error

    @contextmanager
    def exchanging(self) -> Iterator[None]:
        """Passes through a divided model, which exchanges weights and gradients inside.

        Raises:
            RankLostError: Another rank has died or does not answer.
        """
        try:
            yield
        except RuntimeError as error:
            if self.shard and (isinstance(error, distributed.DistError) or "gloo" in str(error)):
                raise RankLostError(str(error).strip().splitlines()[0]) from error
            raise


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
