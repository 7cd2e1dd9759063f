"""A block: mixer and MLP with their norms, skips and gains (arXiv:2311.01906, eqs 1 and 7).

Sequential: X̂ = α_SA·X + β_SA·Mixer(Norm(X)); X_out = α_FF·X̂ + β_FF·MLP(Norm(X̂)).
Parallel: X_out = α_comb·X + β_FF·MLP(Norm(X)) + β_SA·Mixer(Norm(X)), one norm shared by both branches.
With post-norm the norm stands after each sum. A second skip of the mixer adds X to the second sum too (SimpleTRON).

Shapes: K pack, B batch, T tokens, D width.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial

from torch import Tensor, nn

from ablate.model.mlp import MLP, mlp_cost
from ablate.model.norm import build_norm, norm_cost
from ablate.pack import Gain, State, Unpacked, dropout, step
from ablate.spec.block import BlockSpec, GainSpec
from ablate.spec.cost import Cost
from ablate.spec.mixer import MixerContext, MixerSpec


def build_block(spec: BlockSpec, context: MixerContext) -> Block:
    """The module of a block; `forward(x, padding=None)` maps [K, B, T, D] to the same."""
    return ParallelBlock(spec, context) if spec.arrangement == "parallel" else SequentialBlock(spec, context)


class Block(nn.Module, ABC):
    """What both arrangements have: the mixer, the MLP, four gains and dropout."""

    def __init__(self, spec: BlockSpec, context: MixerContext) -> None:
        super().__init__()
        self.spec = spec
        self.mixer = build_mixer(spec.mixer, context)
        self.mlp = None if spec.mlp.kind == "none" else MLP(spec.mlp, context.pack, context.width, context.init_std)
        self.norm_mixer = build_norm(spec.norm.kind, context.pack, context.width, spec.norm.eps)
        self.mixer_branch = _gain(spec.gains.mixer_branch, context)
        self.mixer_skip = _gain(spec.gains.mixer_skip, context)
        self.mlp_branch = _gain(spec.gains.mlp_branch, context)
        self.mlp_skip = _gain(spec.gains.mlp_skip, context)

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        """[K, B, T, D] to the same; `padding` [K, B, T] is True where a token is real."""
        return self.around(x, lambda y: self.mixer(y, padding))

    def step(self, x: Tensor, place: int, state: State) -> tuple[Tensor, State]:
        """One token, [K, B, 1, D], and what the mixer keeps; see `Stepping.step`."""
        kept = [state]

        def mix(y: Tensor) -> Tensor:
            mixed, kept[0] = step(self.mixer, y, place, state)
            return mixed

        return self.around(x, mix), kept[0]

    @abstractmethod
    def around(self, x: Tensor, mix: Callable[[Tensor], Tensor]) -> Tensor:
        """The block round a mixer, [K, B, T, D] to the same."""

    def drop(self, x: Tensor) -> Tensor:
        """Dropout of a branch, in training."""
        return dropout(x, self.spec.dropout, self.training)


class SequentialBlock(Block):
    """The MLP reads what the mixer gave."""

    def __init__(self, spec: BlockSpec, context: MixerContext) -> None:
        super().__init__(spec, context)
        if self.mlp is not None:
            self.norm_mlp = build_norm(spec.norm.kind, context.pack, context.width, spec.norm.eps)

    def around(self, x: Tensor, mix: Callable[[Tensor], Tensor]) -> Tensor:
        """See `Block.around`."""
        skips, pre = self.spec.skips, self.spec.norm.place == "pre"
        y: Tensor = self.mixer_branch(self.drop(mix(self.norm_mixer(x) if pre else x)))
        if skips.mixer > 0:
            y = y + self.mixer_skip(x)
        if not pre:
            y = self.norm_mixer(y)
        if self.mlp is None:
            return y
        z: Tensor = self.mlp_branch(self.drop(self.mlp(self.norm_mlp(y) if pre else y)))
        if skips.mlp > 0:
            z = z + self.mlp_skip(y)
        if skips.mixer == 2:
            z = z + x
        return z if pre else self.norm_mlp(z)


class ParallelBlock(Block):
    """Mixer and MLP read the same normalised input."""

    def around(self, x: Tensor, mix: Callable[[Tensor], Tensor]) -> Tensor:
        """See `Block.around`."""
        assert self.mlp is not None
        shared = self.norm_mixer(x)
        y: Tensor = self.mixer_branch(self.drop(mix(shared)))
        y = y + self.mlp_branch(self.drop(self.mlp(shared)))
        return y + self.mixer_skip(x) if self.spec.skips.mixer > 0 else y


def build_mixer(spec: MixerSpec, context: MixerContext) -> nn.Module:
    """The mixer's module; one that knows nothing of the pack axis is wrapped."""
    build = partial(spec.build, context)
    return build() if spec.pack_aware else Unpacked(build, context.pack)


def block_cost(spec: BlockSpec, context: MixerContext, length: int) -> dict[str, Cost]:
    """Cost of the forward pass over one sequence: keys `mixer`, `mlp`, `rest` (norms, skips and gains)."""
    elements = length * context.width
    norms = 1 if spec.arrangement == "parallel" or spec.mlp.kind == "none" else 2
    branches = 1 if spec.mlp.kind == "none" else 2
    gains = spec.gains
    used = [gains.mixer_branch] + ([gains.mixer_skip] if spec.skips.mixer else [])
    if spec.mlp.kind != "none":
        used += [gains.mlp_branch] + ([gains.mlp_skip] if spec.skips.mlp else [])
    scaled = sum(gain != GainSpec() for gain in used)
    sums = spec.skips.mixer + spec.skips.mlp + (spec.arrangement == "parallel")
    # A gain keeps what it multiplies, dropout its noise; the input of a skip is kept already.
    kept = gains.mixer_branch.trainable + (branches == 2 and gains.mlp_branch.trainable) + branches * (spec.dropout > 0)
    rest = norm_cost(spec.norm.kind, context.width, length) * norms
    rest += Cost(
        parameters=sum(gain.trainable for gain in used),
        multiplications=scaled * elements,
        additions=sums * elements,
        activations=kept * elements,
    )
    mlp = mlp_cost(spec.mlp, context.width, length)
    if spec.arrangement == "parallel":
        mlp += Cost(activations=-elements)  # its input is the mixer's
    return {"mixer": spec.mixer.cost(context, length), "mlp": mlp, "rest": rest}


def _gain(spec: GainSpec, context: MixerContext) -> Gain:
    return Gain(context.pack, spec.initial(context.depth), trainable=spec.trainable)
