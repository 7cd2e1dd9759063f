"""A mixture of experts: y = Σ_{e ∈ top(x)} p_e(x)·Expert_e(x) + Shared(x), each token with its own few experts.

s = softmax(W_r x) or σ(W_r x); top(x) are the k experts with the largest s + b; p_e = s_e, divided by their sum if
`normalise`, times `scale`. No token is dropped. With `latent` experts read W↓x and their sum is multiplied by W↑, while
router and shared experts keep the model's width. Three methods balance the load of the experts: a loss c·E·Σ_e f_e P_e,
where f_e is the number of assignments to expert e per token and P_e the mean of s_e/Σs; a bias b without gradient, to
which γ·sign(mean load - load_e) is added after each step; or one that is computed after each step from the scores of
its N tokens: with α_i the largest s_ij + b_j of an expert that token i did not choose, b_j becomes minus the
⌊Nk/E⌋-th largest s_ij - α_i, counted from 0, and then loses its mean over j. Padding counts in none of them.

- Switch Transformers (arXiv:2101.03961), eqs 4 to 6; https://arxiv.org/abs/2101.03961
- ST-MoE (arXiv:2202.08906), Eq. 5, the loss on the router's logits; https://arxiv.org/abs/2202.08906
- Auxiliary-Loss-Free Load Balancing (arXiv:2408.15664), Algorithm 1; https://arxiv.org/abs/2408.15664
- DeepSeek-V3 (arXiv:2412.19437), eqs 12 to 16: groups of experts, σ, scale; https://arxiv.org/abs/2412.19437
- LatentMoE (arXiv:2601.18089); https://arxiv.org/abs/2601.18089. The norm of the input is as in `marin-community/marin`
  (`MoEMLP`, experiments/grug/fast_track/model.py), that of the sum is Kimi K3's, from a third party's text
- Quantile balancing: Kimi K3 (arXiv:2607.24653), eqs 13 and 14, from a third party's text. Marin does this to logits

Shapes: K pack, B batch, T tokens, N = B·T, D width, E experts, k experts of a token, W expert width, D' width of what
experts read and write.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from ablate.kinds.mlps import HiddenLayerSpec
from ablate.kinds.mlps.gated import GatedMLPSpec, gated_product, product_cost
from ablate.kinds.mlps.plain import PlainMLPSpec
from ablate.kinds.norms.rms import RMSNormSpec
from ablate.nn.kernels.product import product
from ablate.nn.pack import (
    ACTIVATIONS,
    Batchwise,
    Packed,
    RMSNorm,
    add_loss,
    collects_losses,
    gathers,
    is_second_pass,
    linear,
    part_share,
    real_mask,
    sum_over_parts,
    zeros,
)
from ablate.spec.activations import KEPT, LABELS, Activation
from ablate.spec.base import refusal
from ablate.spec.cost import Cost, linear_cost
from ablate.spec.layer import Initial, InitialiserSpec, LayerContext, Role
from ablate.spec.sublayers import MLPSpec

_LATENT_EPS = 1e-5
_GROUP_BEST = 2
"""Experts whose scores make the score of their group (DeepSeek-V3)."""


class MixtureSpec(MLPSpec):
    """Σ p_e(x)·Expert_e(x) over the experts that a router chooses for each token, and shared experts."""

    source = "arXiv:2101.03961 eqs 4 to 6; arXiv:2412.19437 eqs 12 to 16"

    kind: Literal["mixture"] = "mixture"
    experts: int = Field(default=8, ge=2, le=4096)
    """E, number of experts that the router chooses from."""
    active: int = Field(default=2, ge=1)
    """k, number of experts of each token."""
    ratio: float = Field(default=1.0, gt=0)
    """Hidden width of one expert divided by the model's width."""
    gated: bool = True
    """Whether experts are gated MLPs, or plain ones."""
    activation: Activation = "silu"
    """Nonlinearity of the experts."""
    bias: bool = False
    """Whether the projections of the experts have biases."""
    limit: float | None = Field(default=None, gt=0)
    """If set, both factors of a gated expert are clamped to it, as in the gated MLP."""
    shift: float = 0.0
    """Added to W₁x of a gated expert before the product, as in the gated MLP."""
    latent: float | None = Field(default=None, gt=0)
    """Width of what experts read and write, divided by the model's width (LatentMoE); unless set, the model's width,
    without W↓ and W↑. `ratio` always refers to the model's width."""
    latent_norm: Literal["none", "input", "output"] = "none"
    """RMSNorm with gains, ε 1e-5: of W↓x (`input`), or of the sum of the experts' outputs before W↑ (`output`)."""
    shared: int = Field(default=0, ge=0)
    """Number of shared experts, used by every token; together they are one MLP of this many times the width."""
    shared_gate: bool = False
    """Whether the shared experts are multiplied by σ(w·x) (Qwen3-Next)."""
    scores: Literal["softmax", "sigmoid"] = "softmax"
    """s, the function from the router's logits to scores."""
    normalise: bool = True
    """Whether the weights of a token's experts are divided by their sum."""
    scale: float = Field(default=1.0, gt=0)
    """Factor of the weights, applied last."""
    router_bias: bool = False
    """Whether the router has a trained bias."""
    groups: int = Field(default=1, ge=1)
    """Number of groups of experts; the score of a group is the sum of its two largest scores."""
    active_groups: int = Field(default=1, ge=1)
    """Number of groups from which the experts of a token are chosen."""
    balance_loss: float = Field(default=0.0, ge=0)
    """c, weight of the loss that balances the load, used only in training."""
    balance_rate: float = Field(default=0.0, ge=0)
    """γ, change of the bias b after each step; 0 for no bias."""
    balance_quantile: bool = False
    """Whether b is computed from the scores of each step's batch, so that every expert gets its share of it. Each rank
    of a trial on several GPUs computes its own, and the mean of those that have tokens is used."""
    z_loss: float = Field(default=0.0, ge=0)
    """Weight of the mean of (log Σ exp of the router's logits)² over the tokens that are not padding, used only in
    training."""

    @model_validator(mode="after")
    def _can_choose(self) -> Self:
        if self.active > self.experts:
            raise refusal(
                ("active",),
                self.active,
                f"a token cannot have more experts than the layer, which has {self.experts}",
                f"Set `active` to at most {self.experts}, or more `experts`.",
            )
        if self.experts % self.groups or (self.groups > 1 and self.experts // self.groups < _GROUP_BEST):
            raise refusal(
                ("groups",),
                self.groups,
                f"the {self.experts} experts are divided into equal groups of at least {_GROUP_BEST}",
                "Set `groups` to a divisor of `experts`, at most half of it.",
            )
        if self.active_groups > self.groups:
            raise refusal(
                ("active_groups",),
                self.active_groups,
                f"there are {self.groups} groups of experts",
                "Set `active_groups` to at most `groups`.",
            )
        there = self.experts // self.groups * self.active_groups
        if self.active > there:
            raise refusal(
                ("active",),
                self.active,
                f"the active groups hold {there} experts",
                f"Set `active` to at most {there}, or more `active_groups`.",
            )
        if self.latent_norm != "none" and self.latent is None:
            raise refusal(
                ("latent_norm",),
                self.latent_norm,
                "it is the norm of latent vectors, and `latent` is not set",
                "Set `latent: 0.5`, or leave `latent_norm` out.",
            )
        if self.balance_quantile and (self.balance_rate or self.groups > 1 or self.active == self.experts):
            name = "balance_rate" if self.balance_rate else "groups" if self.groups > 1 else "active"
            raise refusal(
                (name,),
                getattr(self, name),
                "`balance_quantile` computes the whole bias, for a choice among all experts that leaves some out",
                f"Leave `{name}` out, or set `balance_quantile: false`."
                if name != "active"
                else f"Set `active: {self.experts - 1}` at most, or `balance_quantile: false`.",
            )
        if self.shared_gate and not self.shared:
            raise refusal(
                ("shared_gate",), True, "it multiplies the shared experts, and `shared` is 0", "Set `shared: 1`."
            )
        if not self.gated and (self.limit is not None or self.shift):
            name = "limit" if self.limit is not None else "shift"
            raise refusal(
                (name,),
                getattr(self, name),
                "limit and shift belong to the product of a gated expert, and these experts are plain",
                f"Leave `{name}` out, or set `gated: true`.",
            )
        if self.active == 1 and self.normalise:
            raise refusal(
                ("normalise",),
                True,
                "the weight of a token's only expert, divided by itself, is 1, so the router would get no gradient",
                "Set `normalise: false` beside `active: 1`.",
            )
        return self

    @property
    def expert(self) -> HiddenLayerSpec:
        """The MLP of one expert."""
        settings = {"ratio": self.ratio, "activation": self.activation, "bias": self.bias}
        if self.gated:
            return GatedMLPSpec.model_validate({**settings, "limit": self.limit, "shift": self.shift})
        return PlainMLPSpec.model_validate(settings)

    def build(self, context: LayerContext) -> ExpertMixture:
        return ExpertMixture(self, context)

    def starts_at_zero(self, initialiser: InitialiserSpec) -> bool:
        """Whether the last projections of the experts do; a bias always starts at 0."""
        return initialiser.zero_outputs

    def cost(self, context: LayerContext, length: int) -> Cost:
        """All experts count as parameters, only the active ones as arithmetic and memory."""
        width, rows = self.width_of_experts(context.width), length * self.active
        hidden = self.expert.hidden(context.width)
        each = linear_cost(1, width, (1 + self.gated) * hidden, bias=self.bias)
        each += linear_cost(1, hidden, width, bias=self.bias)
        kept = (2 if self.gated else 0) + KEPT.get(self.activation, 1)
        inside = Cost(
            parameters=self.experts * each.parameters,
            multiplications=rows * (each.multiplications + (1 + self.gated) * hidden + width),
            additions=rows * each.additions + length * (self.active - 1) * width,
            activations=rows * (each.activations + kept * hidden + width),
        )
        if self.gated:
            inside += product_cost(rows * hidden, self.limit, self.shift)
        inside += self._latent_cost(context.width, length)
        router = linear_cost(length, context.width, self.experts, bias=self.router_bias)
        router += Cost(
            exponentiations=length * self.experts,
            divisions=length * self.experts,
            additions=length * self.experts,
            activations=length * (self.experts + 2 * self.active),
        )
        return inside + router + self._shared_cost(context, length)

    def width_of_experts(self, width: int) -> int:
        """D', of a model of width D."""
        return width if self.latent is None else max(1, round(self.latent * width))

    def _latent_cost(self, width: int, length: int) -> Cost:
        """W↓, W↑ and the norm; the router keeps the input of W↓."""
        if self.latent is None:
            return Cost()
        inner = self.width_of_experts(width)
        maps = linear_cost(length, width, inner) + linear_cost(length, inner, width) + Cost(activations=-length * width)
        if self.latent_norm == "none":
            return maps
        return maps + RMSNormSpec(eps=_LATENT_EPS).cost(inner, length)

    def _shared_cost(self, context: LayerContext, length: int) -> Cost:
        if not self.shared:
            return Cost()
        elements = length * context.width
        total = self._shared().cost(context, length) + Cost(additions=elements)
        if self.shared_gate:
            gate = Cost(
                multiplications=elements, exponentiations=length, divisions=length, activations=elements + length
            )
            total += linear_cost(length, context.width, 1) + gate
        return total + Cost(activations=-elements)  # the router keeps the input

    def _shared(self) -> HiddenLayerSpec:
        return self.expert.model_copy(update={"ratio": self.ratio * self.shared})

    def shared_module(self, context: LayerContext) -> nn.Module | None:
        """The shared experts as one MLP, or None."""
        return self._shared().build(context) if self.shared else None

    def parts(self) -> tuple[tuple[tuple[str, str], ...], ...]:
        of_all = f"{self.active} of {self.experts} experts"
        label = f"{LABELS.get(self.activation, self.activation)}{' gated' * self.gated}, {self.ratio:g}d wide"
        shared = (("shared", f"{self.shared} shared"),) if self.shared else ()
        latent = () if self.latent is None else ((("latent", f"experts of W↓x, {self.latent:g}d wide"),),)
        return (
            (("router", f"router, {self.scores}"),),
            *latent,
            (("experts", of_all), *shared),
            (("activation", label),),
        )


class ExpertMixture(Batchwise):
    """The module of `MixtureSpec`.

    Attributes:
        choice: b, a buffer that is updated at the end of each training step; None if the spec has none.
    """

    def __init__(self, spec: MixtureSpec, context: LayerContext) -> None:
        super().__init__()
        self.spec = spec
        self._load: Tensor | None = None
        """Assignments to each expert, [K, E], summed over the forward passes of this step."""
        self._margins: list[Tensor] = []
        """s_ij - α_i of each forward pass of this step, [K, N, E], -∞ for padding."""
        self.router = linear(context, context.width, spec.experts, bias=spec.router_bias)
        chooses = spec.balance_rate or spec.balance_quantile
        self.choice = ChoiceBias(context.pack, spec.experts) if chooses else None
        self.latent = Latent(spec, context) if spec.latent is not None else None
        self.experts = Experts(spec, context)
        self.shared = spec.shared_module(context)
        self.shared_gate = linear(context, context.width, 1) if spec.shared_gate else None

    def forward(self, x: Tensor) -> Tensor:
        """[K, ..., D] to the same."""
        flat = x.flatten(1, -2)
        logits = self.router(flat)
        logits = logits.float() if logits.itemsize < 4 else logits
        scores = logits.softmax(-1) if self.spec.scores == "softmax" else logits.sigmoid()
        chosen = self.choose_experts(scores.detach())
        weights = scores.gather(-1, chosen)
        if self.spec.normalise:
            weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
        weights = (weights * self.spec.scale).to(x.dtype)
        if self.latent is None:
            y: Tensor = self.experts(flat, chosen, weights).view_as(x)
        else:
            y = self.latent.back(self.experts(self.latent(flat), chosen, weights)).view_as(x)
        if self.training and (torch.is_grad_enabled() or gathers()):
            self.balance(logits, scores, chosen)
        if self.shared is not None:
            shared = self.shared(x)
            y = y + (shared if self.shared_gate is None else shared * self.shared_gate(x).sigmoid())
        return y

    def choose_experts(self, scores: Tensor) -> Tensor:
        """Scores [K, N, E] to the indices of each token's experts, [K, N, k]."""
        spec = self.spec
        if self.choice is not None:
            scores = scores + self.choice.value.unsqueeze(1)
        if spec.groups > 1:
            grouped = scores.view(*scores.shape[:-1], spec.groups, -1)
            best = grouped.topk(_GROUP_BEST, -1).values.sum(-1).topk(spec.active_groups, -1).indices
            kept = torch.zeros_like(grouped[..., 0], dtype=torch.bool).scatter(-1, best, True)
            scores = grouped.masked_fill(~kept.unsqueeze(-1), -torch.inf).flatten(-2)
        return scores.topk(spec.active, -1).indices

    def balance(self, logits: Tensor, scores: Tensor, chosen: Tensor) -> None:
        """In training: add the losses of the router, and count the tokens of each expert; padding does not count."""
        spec, mask = self.spec, real_mask()
        if not (self.choice is not None or ((spec.balance_loss or spec.z_loss) and (collects_losses() or gathers()))):
            return
        pack, tokens, _ = chosen.shape
        real = scores.new_ones(()).expand(pack, tokens) if mask is None else mask.flatten(1).to(scores.dtype)
        once = real.unsqueeze(-1).expand(-1, -1, spec.active).flatten(1)
        load = scores.new_zeros(pack, spec.experts).scatter_add(-1, chosen.flatten(1), once)
        if self.choice is not None and not gathers() and not is_second_pass():
            self._load = load if self._load is None else self._load + load
            if spec.balance_quantile:
                bar = (scores + self.choice.value.unsqueeze(1)).detach().topk(spec.active + 1, -1).values[..., -1:]
                self._margins.append((scores.detach() - bar).masked_fill(real.unsqueeze(-1) == 0, -torch.inf))
        batch_load, count = load, real.sum(-1, keepdim=True)
        if self.needs_first_pass(padded=mask is not None):
            of_batch = sum_over_parts(self, torch.cat([load, count], -1))
            batch_load, count = of_batch[:, :-1], of_batch[:, -1:]
        count = count.clamp(min=1)

        def mean(values: Tensor) -> Tensor:
            """Values [K, N, ...] to their mean over real tokens; in a part of a batch, see `Scored.count`."""
            if mask is None:
                return values.mean(1)
            return torch.einsum("kn...,kn->k...", values, real / (count * part_share()))

        if spec.z_loss:
            add_loss(spec.z_loss * mean(logits.logsumexp(-1).square()))
        if spec.balance_loss:
            shares = mean(scores / scores.sum(-1, keepdim=True))
            add_loss(spec.balance_loss * spec.experts * (batch_load / count * shares).sum(-1))

    def needs_first_pass(self, padded: bool) -> bool:
        """Whether a loss is used that a part of a batch cannot compute alone.

        The loss that balances the load is a product of two means over the batch; with padding every mean needs the
        number of real tokens of the batch.
        """
        return self.spec.balance_loss > 0 or (padded and self.spec.z_loss > 0)

    @torch.no_grad()
    def end_step(self, total: Callable[[Tensor], Tensor] = lambda value: value) -> None:
        """Add γ·sign(mean load - load) to b, or set it to minus the quantiles."""
        if self._margins and self.choice is not None:
            margins = torch.cat(self._margins, 1)
            counts = margins.isfinite().any((1, 2))[:, None].to(margins.dtype)
            made = total(balancing_bias(margins, self.spec.active).nan_to_num() * counts)
            ranks = total(counts)
            self.choice.value.copy_(torch.where(ranks > 0, made / ranks.clamp(min=1), self.choice.value))
        elif self.choice is not None and self._load is not None:
            load = total(self._load)
            self.choice.value += self.spec.balance_rate * (load.mean(-1, keepdim=True) - load).sign()
        self._load, self._margins = None, []


def balancing_bias(margins: Tensor, active: int) -> Tensor:
    """The bias [K, E] of quantile balancing, with mean 0.

    Args:
        margins: s_ij - α_i, [K, N, E], -∞ for tokens that do not count.
        active: k.
    """
    count = margins.isfinite().all(-1).sum(-1)
    place = count * active // margins.shape[-1]  # below N: not all experts are active
    ordered = margins.sort(1, descending=True).values
    bars = ordered.gather(1, place[:, None, None].expand(-1, 1, margins.shape[-1])).squeeze(1)
    return bars.mean(-1, keepdim=True) - bars


class Latent(nn.Module):
    """W↓ and its norm, and after the experts W↑ and its norm."""

    def __init__(self, spec: MixtureSpec, context: LayerContext) -> None:
        super().__init__()
        width, inner = context.width, spec.width_of_experts(context.width)
        self.down = linear(context, width, inner)
        self.norm = RMSNorm(context.pack, inner, _LATENT_EPS) if spec.latent_norm != "none" else None
        self.of_input = spec.latent_norm == "input"
        self.up = linear(context, inner, width, role="output")

    def forward(self, x: Tensor) -> Tensor:
        """[K, N, D] to [K, N, D']."""
        y: Tensor = self.down(x)
        return self.norm(y) if self.norm is not None and self.of_input else y

    def back(self, y: Tensor) -> Tensor:
        """[K, N, D'] to [K, N, D]."""
        made: Tensor = self.up(self.norm(y) if self.norm is not None and not self.of_input else y)
        return made


class ChoiceBias(Packed):
    """b [K, E], added to the scores where experts are chosen; no gradient reaches it."""

    value: Tensor

    def __init__(self, pack: int, experts: int) -> None:
        super().__init__(pack)
        self.declare("value", (experts,), zeros, trainable=False)


class Experts(Packed):
    """All experts, as stacks of matrices [K, E, in, out]."""

    up: Tensor
    gate: Tensor
    down: Tensor
    up_bias: Tensor
    gate_bias: Tensor
    down_bias: Tensor

    def __init__(self, spec: MixtureSpec, context: LayerContext) -> None:
        super().__init__(context.pack)
        self.spec = spec
        width, hidden = spec.width_of_experts(context.width), spec.expert.hidden(context.width)
        ways_in = ("up", "gate") if spec.gated else ("up",)
        for name in ways_in:
            self._stack(name, context, "hidden", width, hidden)
        self._stack("down", context, "output" if spec.latent is None else "hidden", hidden, width)

    def _stack(self, name: str, context: LayerContext, role: Role, inputs: int, outputs: int) -> None:
        initial = context.initial(role, inputs, outputs)
        self.declare(name, (self.spec.experts, inputs, outputs), _each(initial), decay=True)
        if self.spec.bias:
            self.declare(f"{name}_bias", (self.spec.experts, outputs), context.initialiser.initial_bias(inputs))

    def forward(self, x: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        """Tokens [K, N, D'], and the indices and weights of their experts [K, N, k], to weighted sums [K, N, D'].

        Tokens are sorted by expert, and each expert computes its own: memory and arithmetic do not depend on how equal
        the loads are.
        """
        pack, tokens, width = x.shape
        active, experts = chosen.shape[-1], self.spec.experts
        home = (chosen + experts * torch.arange(pack, device=x.device)[:, None, None]).flatten()
        load = torch.bincount(home, minlength=pack * experts).tolist()
        order = home.argsort(stable=True)
        each = x.unsqueeze(2).expand(-1, -1, active, -1).reshape(-1, width)
        made = self.compute(each.index_select(0, order), load).index_select(0, order.argsort())
        return (made.view(pack, tokens, active, width) * weights.unsqueeze(-1)).sum(2)

    def compute(self, rows: Tensor, load: Sequence[int]) -> Tensor:
        """Rows [K·N·k, D'], sorted by expert, to the same; `load` has the number of rows of each expert."""
        spec = self.spec
        matrices = {name: self._of_each(name) for name in ("up", "gate", "down") if name != "gate" or spec.gated}
        biases = {name: self._of_each(f"{name}_bias") for name in matrices} if spec.bias else {}

        def mapped(name: str, values: Tensor, expert: int) -> Tensor:
            y = product(values.unsqueeze(0), matrices[name][expert].unsqueeze(0)).squeeze(0)
            return y + biases[name][expert] if biases else y

        made = []
        for expert, values in enumerate(torch.split(rows, list(load))):
            up = mapped("up", values, expert)
            if spec.gated:
                gate = mapped("gate", values, expert)
                hidden = gated_product(gate, up, spec.activation, spec.limit, spec.shift)
            else:
                hidden = ACTIVATIONS[spec.activation](up)
            made.append(mapped("down", hidden, expert))
        return torch.cat(made)

    def _of_each(self, name: str) -> tuple[Tensor, ...]:
        """The parameters of this name, one for each expert of each member."""
        parameters: Tensor = getattr(self, name)
        return parameters.flatten(0, 1).unbind()


def _each(initial: Initial) -> Initial:
    """Apply an initialiser to each matrix of a stack [E, in, out]."""
    if initial is zeros:
        return zeros

    def fill(values: Tensor, generator: torch.Generator) -> Tensor:
        for matrix in values:
            initial(matrix, generator)
        return values

    return fill
