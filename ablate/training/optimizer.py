"""AdamW over a pack, each member with its own settings and its own clipping by the norm of its whole gradient.

AdamW works element by element, so members do not mix. Members with the same settings stand side by side in the pack
and are one parameter group, whose tensors are views of the model's parameters. Shapes: K pack.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ablate.pack import Packed
from ablate.spec.training import OptimizerSpec, ScheduleSpec, TrainingSpec
from ablate.training.adamw import AdamW
from ablate.training.events import State


class PackOptimizer:
    """The optimiser of a pack.

    Args:
        model: Its K members.
        settings: How each member is trained; equal optimisers and schedules stand side by side.
        capturable: Whether steps are captured in a CUDA graph: rates and counts then live on the device.

    Attributes:
        adamw: Torch's, over views of the parameters.
        norms: 2-norms of the gradients at the last step before clipping, [parameters, K], in the model's order.
    """

    def __init__(self, model: nn.Module, settings: Sequence[TrainingSpec], *, capturable: bool = False) -> None:
        self._parameters = list(model.parameters())
        self._steps = settings[0].steps
        self._pack = len(settings)
        device = self._parameters[0].device
        clips = [spec.optimizer.clip for spec in settings]
        self._clip: Tensor | float = clips[0] if len(set(clips)) == 1 else torch.tensor(clips, device=device)
        self.norms = torch.zeros((len(self._parameters), self._pack), device=device)
        self._moments = [(torch.zeros_like(p), torch.zeros_like(p)) for p in self._parameters]
        self._parts: list[_Part] = []
        self._schedules: list[tuple[OptimizerSpec, ScheduleSpec]] = []
        decayed = _decayed(model)
        groups: list[dict[str, object]] = []
        for run in _runs(settings):
            spec, schedule = settings[run.start].optimizer, settings[run.start].schedule
            parts = [_Part(self._view(p, run), index, run) for index, p in enumerate(self._parameters)]
            self._parts += parts
            for decays in (True, False):
                members = [part.view for part in parts if (self._parameters[part.index] in decayed) == decays]
                if members:
                    self._schedules.append((spec, schedule))
                    groups.append(
                        {
                            "params": members,
                            "lr": torch.tensor(spec.lr, device=device) if capturable else spec.lr,
                            "weight_decay": spec.weight_decay if decays else 0.0,
                            "betas": spec.betas,
                            "eps": spec.eps,
                        }
                    )
        self.adamw = AdamW(groups, fused=True, capturable=capturable)
        for part in self._parts:
            first, second = self._moments[part.index]
            step = torch.zeros((), device=device)
            self.adamw.state[part.view] = {"step": step, "exp_avg": first[part.run], "exp_avg_sq": second[part.run]}

    def set_rates(self, step: int) -> None:
        """Set the learning rates of a step, counted from 1."""
        for group, (spec, schedule) in zip(self.adamw.param_groups, self._schedules, strict=True):
            rate = spec.lr * schedule.factor(step, self._steps)
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for parameter in self._parameters:
            parameter.grad = None

    def step(self) -> None:
        """Clip the gradients and move the parameters."""
        norms = clip_gradients(self._parameters, self._pack, self._clip)
        if len(norms) == len(self.norms):
            self.norms.copy_(norms)  # in place, as a CUDA graph asks for
        else:
            present = [index for index, parameter in enumerate(self._parameters) if parameter.grad is not None]
            for index, norm in zip(present, norms, strict=True):
                self.norms[index].copy_(norm)
        for part in self._parts:
            whole = self._parameters[part.index]
            if part.view is not whole:
                part.view.grad = None if whole.grad is None else whole.grad[part.run]
        self.adamw.step()

    def take_over(self, other: PackOptimizer, places: Tensor) -> None:
        """Go on where another optimiser is: its member `places[k]` becomes member k."""
        for ours, theirs in zip(self._moments, other._moments, strict=True):
            for moment, source in zip(ours, theirs, strict=True):
                moment.copy_(source[places])
        done = {part.index: other.adamw.state[part.view]["step"] for part in other._parts}
        for part in self._parts:
            self.adamw.state[part.view]["step"].copy_(done[part.index])

    def state(self) -> State:
        """Moments and counts of steps; shares memory with the optimiser."""
        counts = [self.adamw.state[part.view]["step"] for part in self._parts]
        return {"moments": [list(moments) for moments in self._moments], "counts": counts}

    def restore(self, state: State) -> None:
        """Go on where another optimiser of an equal model gave its state."""
        for ours, theirs in zip(self._moments, state["moments"], strict=True):
            for moment, source in zip(ours, theirs, strict=True):
                moment.copy_(source)
        for part, count in zip(self._parts, state["counts"], strict=True):
            self.adamw.state[part.view]["step"].copy_(count)

    def _view(self, parameter: nn.Parameter, run: slice) -> nn.Parameter:
        """A parameter of some members; the model's own if these are all, so that its gradient need not be passed on."""
        return parameter if run == slice(0, self._pack) else nn.Parameter(parameter.detach()[run])


@dataclass(frozen=True, slots=True)
class _Part:
    """A parameter, counted by `index`, of the members `run`; `view` shares its memory."""

    view: nn.Parameter
    index: int
    run: slice


def _runs(settings: Sequence[TrainingSpec]) -> list[slice]:
    """The members that stand side by side with one optimiser and one schedule."""
    runs: list[slice] = []
    for _, same in itertools.groupby(settings, key=optimizer_order):
        start = runs[-1].stop if runs else 0
        runs.append(slice(start, start + len(list(same))))
    return runs


def optimizer_order(spec: TrainingSpec) -> str:
    """A key by which members are sorted, so that those of one optimiser and schedule stand side by side."""
    return spec.optimizer.canonical_json() + spec.schedule.canonical_json()


def _decayed(model: nn.Module) -> set[nn.Parameter]:
    """The parameters that weight decay touches: matrices and embeddings."""
    found: set[nn.Parameter] = set()
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            # Modules that know nothing of the pack axis follow the usual rule: what has two axes decays.
            if name in module.decayed if isinstance(module, Packed) else parameter.dim() > 1:
                found.add(parameter)
    return found


@torch.no_grad()
def clip_gradients(parameters: list[nn.Parameter], pack: int, limit: float | Tensor) -> Tensor:
    """Scale down, in place, the gradient of each member whose 2-norm is longer than `limit` (of all, or [K]).

    Returns:
        The 2-norm of each gradient before, [gradients, K].
    """
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if pack == 1:
        alone = torch.stack(torch._foreach_norm(gradients))
        torch._foreach_mul_(gradients, (limit / (alone.norm() + 1e-6)).clamp(max=1.0))
        return alone.unsqueeze(1)
    norms = torch.stack([torch.linalg.vector_norm(gradient.reshape(pack, -1), dim=1) for gradient in gradients])
    factor = (limit / (torch.linalg.vector_norm(norms, dim=0) + 1e-6)).clamp(max=1.0)
    for gradient in gradients:
        gradient.mul_(factor.view(-1, *[1] * (gradient.dim() - 1)))
    return norms
