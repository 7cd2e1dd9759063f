"""The optimizer of a pack, with separate settings and clipping for each member, and the average of its weights.

All members have the same kind of optimizer (`OptimizerSpec`), which treats each member independently. Members with
equal settings are adjacent in the pack. Their parameters are views of those of the model, and views with equal options
form one parameter group. Shapes: K pack.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ablate.extras import require
from ablate.nn.pack import Packed
from ablate.spec.layer import ParameterInfo, ParameterRole, RateScaling, StepGrowth, zeros
from ablate.spec.optimizer import OptimizerSpec
from ablate.spec.schedule import AverageSpec, ScheduleSpec
from ablate.spec.training import TrainingSpec
from ablate.training.events import State
from ablate.training.sharding import join_parts, local, part_of

_TINY = 1e-30
"""A lower bound of norms, as a matrix or its gradient may be 0."""


class PackOptimizer:
    """The optimizer of a pack.

    Args:
        model: Model of K members.
        settings: Training spec of each member; equal optimizers and schedules are adjacent.
        capturable: Whether steps are captured in a CUDA graph. Then learning rates and counters are device tensors.
        scaling: What the options of each parameter are multiplied by, given how its steps grow.
        total: Sums a tensor over the ranks among which the parameters are divided; None: they are whole.

    Attributes:
        rule: The torch optimizer, on views of the parameters.
        norms: 2-norms of the gradients at the last step before clipping, [trainable parameters, K], in the order of the
            model.
    """

    def __init__(
        self,
        model: nn.Module,
        settings: Sequence[TrainingSpec],
        *,
        capturable: bool = False,
        scaling: Callable[[ParameterInfo, StepGrowth | None], RateScaling] = lambda parameter, growth: RateScaling(),
        total: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        self._total = total
        self._parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._steps = settings[0].steps
        self._pack = len(settings)
        device = next(model.parameters()).device
        clips = [spec.optimizer.clip for spec in settings]
        self._clip: Tensor | float = clips[0] if len(set(clips)) == 1 else torch.tensor(clips, device=device)
        self.norms = torch.zeros((len(self._parameters), self._pack), device=device)
        trainable = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
        infos = [info for info in parameter_infos(model) if info.name in trainable]
        depth = 1 + max((info.layer for info in parameter_infos(model) if info.layer is not None), default=-1)
        whole = [settings[0].optimizer.state(local(p), info) for p, info in zip(self._parameters, infos, strict=True)]
        self._state = [{name: tensor for name, tensor in state.items() if tensor.dim()} for state in whole]
        self._parts: list[_Part] = []
        self._on_spheres: set[nn.Parameter] = set()
        self._peaks: list[tuple[float, ScheduleSpec]] = []
        groups: list[dict[str, Any]] = []
        for run in _runs(settings):
            spec, schedule = settings[run.start].optimizer, settings[run.start].schedule
            views: dict[tuple[tuple[str, Any], ...], list[nn.Parameter]] = {}
            for index, (parameter, info) in enumerate(zip(self._parameters, infos, strict=True)):
                counts = {name: tensor.clone() for name, tensor in whole[index].items() if not tensor.dim()}
                part = _Part(self._view(parameter, run), index, run, counts)
                self._parts.append(part)
                if spec.moves_on_sphere(info):
                    self._on_spheres.add(part.view)
                options = _scale_options(spec.options(info), scaling(info, spec.scaled_growth(info.role)))
                options["lr"] *= spec.rates.factor(info, depth)
                views.setdefault(tuple(options.items()), []).append(part.view)
            for items, members in views.items():
                group = {"params": members, **dict(items)}
                self._peaks.append((group["lr"], schedule))
                groups.append({**group, "lr": torch.tensor(group["lr"], device=device)} if capturable else group)
        check_packages(settings[0].optimizer)
        self.rule = settings[0].optimizer.build(groups, capturable=capturable)
        for part in self._parts:
            state = {name: self._cut(tensor, part.run) for name, tensor in self._state[part.index].items()}
            self.rule.state[part.view] = {**part.counts, **state}

    def set_rates(self, step: int) -> None:
        """Set the learning rates of a step, counted from 1."""
        for group, (peak, schedule) in zip(self.rule.param_groups, self._peaks, strict=True):
            rate = peak * schedule.factor(step, self._steps)
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate

    def zero_grad(self) -> None:
        """Clear the gradients."""
        for parameter in self._parameters:
            parameter.grad = None
        for part in self._parts:  # views of them, which would keep their memory
            part.view.grad = None

    def step(self) -> None:
        """Clip the gradients and update the parameters."""
        norms = clip_gradients(self._parameters, self._pack, self._clip, self._total)
        if len(norms) == len(self.norms):
            self.norms.copy_(norms)  # in place, as CUDA graphs require
        else:
            present = [index for index, parameter in enumerate(self._parameters) if parameter.grad is not None]
            for index, norm in zip(present, norms, strict=True):
                self.norms[index].copy_(norm)
        for part in self._parts:
            whole = self._parameters[part.index]
            if part.view is not whole:
                part.view.grad = None if whole.grad is None else local(whole.grad)[part.run]
        with self._steps_on_spheres():
            self.rule.step()

    @contextmanager
    def _steps_on_spheres(self) -> Iterator[None]:
        """Context manager: the step of the optimizer in the body moves matrices on their spheres (`hyperball`).

        There they are 0 at its start, so that it leaves -η·u: without decay no step depends on the parameter.
        """
        groups = self.rule.param_groups if self._on_spheres else ()
        moved = [
            (view, group)
            for group in groups
            for view in group["params"]
            if view in self._on_spheres and view.grad is not None
        ]
        with torch.no_grad():
            before = [view.clone() for view, _ in moved]
            for view, _ in moved:
                view.zero_()
            yield
            for (view, group), start in zip(moved, before, strict=True):
                norm = torch.linalg.matrix_norm(start, keepdim=True)
                length = torch.linalg.matrix_norm(view, keepdim=True).clamp(min=_TINY)
                ahead = start + view * (group["lr"] * norm / length)
                view.copy_(ahead * (norm / torch.linalg.matrix_norm(ahead, keepdim=True).clamp(min=_TINY)))

    def take_over(self, other: PackOptimizer, positions: Tensor) -> None:
        """Copy the state of another optimizer: its member `positions[k]` becomes member k."""
        for ours, theirs in zip(self._state, other._state, strict=True):
            for name, tensor in ours.items():
                tensor.copy_(theirs[name][positions])
        counts = {part.index: part.counts for part in other._parts}
        for part in self._parts:
            for name, count in part.counts.items():
                count.copy_(counts[part.index][name])

    def tensors(self) -> list[Tensor]:
        """All tensors that a step changes besides the parameters."""
        states = [*self._state, *(part.counts for part in self._parts)]
        return [self.norms, *(tensor for state in states for tensor in state.values())]

    def state(self) -> State:
        """The state of the optimizer; shares memory with it."""
        members = [
            {name: join_parts(tensor, parameter) for name, tensor in state.items()}
            for state, parameter in zip(self._state, self._parameters, strict=True)
        ]
        return {"members": members, "counts": [part.counts for part in self._parts]}

    def restore(self, state: State) -> None:
        """Load the state of an optimizer of an equal model."""
        for ours, theirs, parameter in zip(self._state, state["members"], self._parameters, strict=True):
            for name, tensor in ours.items():
                tensor.copy_(part_of(theirs[name], parameter))
        for part, counts in zip(self._parts, state["counts"], strict=True):
            for name, count in part.counts.items():
                count.copy_(counts[name])

    def _view(self, parameter: nn.Parameter, run: slice) -> nn.Parameter:
        """A parameter of some members, as far as this rank has it.

        A whole parameter of all members is the model's own, so that its gradient need not be copied.
        """
        if run == slice(0, self._pack) and self._total is None:
            return parameter
        return nn.Parameter(local(parameter.detach())[run])

    def _cut(self, tensor: Tensor, run: slice) -> Tensor:
        return tensor if run == slice(0, self._pack) else tensor[run]


def check_packages(optimizer: OptimizerSpec) -> None:
    """Check that the packages of an optimizer are installed.

    Raises:
        MissingPackageError: They are not.
    """
    if optimizer.extra:
        require(optimizer.extra, f"the optimizer `{optimizer.kind_name()}`", where="training.optimizer.kind")


def _scale_options(options: Mapping[str, Any], by: RateScaling) -> dict[str, Any]:
    """The options of a parameter, multiplied by what its parametrisation says, as far as the optimizer has them."""
    factors = {"lr": by.lr, "weight_decay": by.weight_decay, "eps": by.eps}
    return {name: value * factors[name] if name in factors else value for name, value in options.items()}


@dataclass(frozen=True, slots=True)
class _Part:
    """A parameter of adjacent members.

    Attributes:
        index: Index of the parameter in the model.
        run: Positions of the members.
        counts: Optimizer state that these members share.
    """

    view: nn.Parameter
    index: int
    run: slice
    counts: dict[str, Tensor]


def _runs(settings: Sequence[TrainingSpec]) -> list[slice]:
    """Slices of adjacent members with equal optimizer and schedule."""
    runs: list[slice] = []
    for _, same in itertools.groupby(settings, key=optimizer_order):
        start = runs[-1].stop if runs else 0
        runs.append(slice(start, start + len(list(same))))
    return runs


def optimizer_order(spec: TrainingSpec) -> str:
    """Sort key that makes members with equal optimizer and schedule adjacent."""
    return spec.optimizer.canonical_json() + spec.schedule.canonical_json()


@torch.no_grad()
def clip_gradients(
    parameters: list[nn.Parameter],
    pack: int,
    limit: float | Tensor,
    total: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """Clip the gradient of each member to the 2-norm `limit` (one value or [K]), in place.

    Args:
        parameters: Those of the model.
        pack: K.
        limit: The largest 2-norm.
        total: Sums a tensor over the ranks among which the parameters are divided; None: they are whole.

    Returns:
        The 2-norm of each gradient before clipping, [gradients, K].
    """
    gradients = [local(parameter.grad) for parameter in parameters if parameter.grad is not None]
    if pack == 1:
        alone = torch.stack(torch._foreach_norm(gradients))
        if total is not None:
            alone = total(alone.square()).sqrt()
        rate = (limit / (alone.norm() + 1e-6)).clamp(max=1.0)
        if rate.device.type != "cpu" or rate != 1.0:  # a GPU would have to wait for the answer
            torch._foreach_mul_(gradients, rate)
        return alone.unsqueeze(1)
    norms = torch.stack([torch.linalg.vector_norm(gradient.reshape(pack, -1), dim=1) for gradient in gradients])
    factor = (limit / (torch.linalg.vector_norm(norms, dim=0) + 1e-6)).clamp(max=1.0)
    for gradient in gradients:
        gradient.mul_(factor.view(-1, *[1] * (gradient.dim() - 1)))
    return norms


class WeightAverage:
    """A running average of the trainable weights of a model, the same for all K members.

    Args:
        spec: Gives the weight of each step in the average.
    """

    def __init__(self, model: nn.Module, spec: AverageSpec, steps: int) -> None:
        self._whole = list(model.parameters())
        self._parameters = [local(parameter) for parameter in self._whole]
        self._spec = spec
        self._steps = steps
        self._average = [parameter.detach().clone() for parameter in self._parameters]

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Add the weights after a step, counted from 1."""
        if weight := self._spec.weight(step, self._steps):
            torch._foreach_lerp_(self._average, self._parameters, weight)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Context manager: the model has the averages instead of its weights in the body."""
        before = [parameter.detach().clone() for parameter in self._parameters]
        self._put(self._average)
        try:
            yield
        finally:
            self._put(before)

    def state(self) -> list[Tensor]:
        """The averages, in the order of the model's parameters; shares memory with them."""
        return [join_parts(average, whole) for average, whole in zip(self._average, self._whole, strict=True)]

    def restore(self, averages: list[Tensor], positions: Tensor | None = None) -> None:
        """Continue from these averages; if `positions` is given, from those of the members at these positions."""
        for ours, theirs, whole in zip(self._average, averages, self._whole, strict=True):
            ours.copy_(part_of(theirs, whole) if positions is None else theirs[positions])

    @torch.no_grad()
    def _put(self, values: list[Tensor]) -> None:
        for parameter, value in zip(self._parameters, values, strict=True):
            parameter.copy_(value)  # in place, as a CUDA graph reads the memory of the parameters


_BLOCK = re.compile(r"(?:decoder_)?blocks\.(\d+)\.")
_HEAD = "head."


def parameter_infos(model: nn.Module) -> list[ParameterInfo]:
    """One `ParameterInfo` for each parameter, in the order of `model.parameters()`."""
    infos = {}
    for path, module in model.named_modules():
        for name, parameter in module.named_parameters(recurse=False):
            if parameter not in infos:
                infos[parameter] = _info(f"{path}.{name}" if path else name, name, parameter, module)
    return list(infos.values())


def _info(qualified: str, name: str, parameter: nn.Parameter, module: nn.Module) -> ParameterInfo:
    packed = isinstance(module, Packed)
    shape = tuple(parameter.shape[packed:])
    # Modules without pack axis follow the usual rule: weight decay for parameters with two or more axes.
    decays = name in module.decayed if isinstance(module, Packed) else len(shape) > 1
    block = _BLOCK.match(qualified)
    role = _role(qualified, name, shape, module, decays)
    at_zero = isinstance(module, Packed) and module.initial.get(name) is zeros
    outputs_first = isinstance(module, Packed) and name in module.outputs_first
    return ParameterInfo(qualified, shape, role, decays, block and int(block[1]), at_zero, outputs_first)


def _role(qualified: str, name: str, shape: tuple[int, ...], module: nn.Module, decays: bool) -> ParameterRole:
    if isinstance(module, Packed) and module.is_table:
        return "embedding"
    depthwise = isinstance(module, Packed) and name in module.depthwise
    if not decays or len(shape) < 2 or depthwise:
        return "gain"
    return "head" if qualified.startswith(_HEAD) else "matrix"
