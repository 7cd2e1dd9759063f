"""What goes on inside the blocks of a model: how large weights and gradients are, and how each mixer mixes tokens.

The mixing map of a mixer y = mixer(x) at a sample is M_ij = ‖∂y_i/∂x_j‖_F / √D: the root mean square by which output i
answers to input j. It is defined alike for every kind: attention without values gives its attention matrix if queries
and keys stand still, a convolution its kernel, FNet its Fourier matrix. Its standard deviation over training is what
SimpleTRON's Fig. 5 (arXiv:2111.15588) shows of the attention before the values.

Shapes: K pack, B batch, T tokens, D width, P parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ablate.nn.model.block import Block
from ablate.nn.model.encoder_decoder import DecoderBlock

SAMPLE_TOKENS = 32
"""The first tokens of the sample, which are mixed by themselves."""
DIRECTIONS = 8
"""Orthonormal directions of each output that stand for all D of them. With D of 8 or less the map is exact; else a row
of it is good to some tenth, and its standard deviation, over rows with directions of their own, to some hundredths."""

_MIXERS = ("mixer", "cross")
_PARTS = (*_MIXERS, "mlp")

Inside = dict[str, dict[str, list[Any]]]
"""Quantity (`weights`, `gradients`, `spread`, `map`), then part of the model, then a value for each place of a pack."""


def look_inside(model: nn.Module, norms: Tensor | None, run: Callable[[], object], *, maps: bool) -> Inside:
    """What is to be recorded of a model's blocks.

    Args:
        model: Of K members; left as it was, and so are torch's random numbers.
        norms: 2-norms of the gradients, [P, K], in the order of the model's parameters; None before the first step.
        run: Runs the model on one sequence, [K, 1, T].
        maps: Whether the maps themselves are wanted, not only their standard deviation.

    Returns:
        `weights` and `gradients`: 2-norms, by `block 1 mixer`, `block 1 mlp` and `block 1 rest` (norms and gains).
        `spread`: standard deviation of the entries of the mixing map, by `block 1 mixer`. `map`: its rows.
    """
    found: Inside = {"weights": weight_norms(model)}
    if norms is not None:
        found["gradients"] = _joined(model, norms.square().tolist())
    drawn = mixing_maps(model, run)
    found["spread"] = {part: one.std((1, 2), correction=0).tolist() for part, one in drawn.items()}
    if maps:
        found["map"] = {part: one.tolist() for part, one in drawn.items()}
    return found


@torch.no_grad()
def weight_norms(model: nn.Module) -> dict[str, list[float]]:
    """2-norm of the trainable parameters of each part of each block, for each member."""
    pack = _pack(model)
    squares = [parameter.reshape(pack, -1).square().sum(1).tolist() for parameter in model.parameters()]
    return _joined(model, squares)


def mixing_maps(model: nn.Module, run: Callable[[], object], tokens: int = SAMPLE_TOKENS) -> dict[str, Tensor]:
    """The mixing map of every mixer, [K, T, T] (of a cross-attention, target by source).

    Args:
        model: Of K members.
        run: Runs it on one sequence, [K, 1, T].
        tokens: The first of a mixer's inputs, which it is given by themselves.
    """
    mixers = {f"{layer} {name}": getattr(block, name) for layer, block in _layers(model) for name in _MIXERS
              if hasattr(block, name)}  # fmt: skip
    with _evaluating(model):
        with torch.no_grad():
            calls = _heard(mixers, run)
        return {part: _map(mixers[part], call, tokens) for part, call in calls.items()}


def _heard(mixers: dict[str, nn.Module], run: Callable[[], object]) -> dict[str, tuple[Any, ...]]:
    """What each mixer is given when the model runs for the first time: its inputs, and its shared tensors."""
    calls: dict[str, tuple[Any, ...]] = {}
    hooks = [
        mixer.register_forward_pre_hook(
            lambda _, given, more, part=part: calls.setdefault(part, (given, more.get("shared", ()))) and None,
            with_kwargs=True,
        )
        for part, mixer in mixers.items()
    ]
    try:
        run()
    finally:
        for hook in hooks:
            hook.remove()
    return calls


def _map(mixer: nn.Module, call: tuple[Any, ...], tokens: int) -> Tensor:
    """The map of one mixer: sequence i of a batch asks for row i of it."""
    given, shared = call
    rows, width = min(tokens, given[0].shape[2]), given[0].shape[3]
    inputs = [None if one is None else _cut(one, tokens, rows) for one in given]
    more = {"shared": tuple(_cut(one, tokens, rows) for one in shared)} if shared else {}
    x = inputs[2] if len(inputs) > 2 else inputs[0]  # a cross-attention mixes the tokens of its memory
    assert x is not None
    x.requires_grad_()
    place = torch.arange(rows, device=x.device)
    squares = torch.zeros(*x.shape[:3], device=x.device)
    with torch.enable_grad():
        made = mixer(*inputs, **more)
        y: Tensor = made if isinstance(made, Tensor) else made[0]  # what it publishes is left
        for direction in _directions(rows, width).to(x):
            wanted = torch.zeros_like(y)
            wanted[:, place, place] = direction
            (gradient,) = torch.autograd.grad(y, x, wanted, retain_graph=True, allow_unused=True)
            if gradient is not None:
                squares += gradient.square().sum(-1)
    found: Tensor = (squares / min(width, DIRECTIONS)).sqrt()
    return found


def _cut(given: Tensor, tokens: int, rows: int) -> Tensor:
    """The first tokens of [K, 1, T, ...], in `rows` copies."""
    copies = given[:, :, :tokens].repeat(1, rows, *[1] * (given.dim() - 2))
    return copies.float() if copies.is_floating_point() else copies


def _directions(rows: int, width: int) -> Tensor:
    """[directions, T, D], the same at every call, so that a curve over training is that of the model alone."""
    drawn = torch.empty(rows, width, min(width, DIRECTIONS)).normal_(generator=torch.Generator().manual_seed(0))
    directions: Tensor = torch.linalg.qr(drawn).Q
    return directions.permute(2, 0, 1)


def _joined(model: nn.Module, squares: list[list[float]]) -> dict[str, list[float]]:
    """Squared norms of the parameters, joined to norms of the parts of blocks."""
    part_of = {
        id(parameter): f"{layer} {head if (head := name.partition('.')[0]) in _PARTS else 'rest'}"
        for layer, block in _layers(model)
        for name, parameter in block.named_parameters()
    }
    sums: dict[str, list[float]] = {}
    for parameter, values in zip(model.parameters(), squares, strict=True):
        if id(parameter) in part_of:
            into = sums.setdefault(part_of[id(parameter)], [0.0] * len(values))
            into[:] = [before + value for before, value in zip(into, values, strict=True)]
    return {part: [total**0.5 for total in totals] for part, totals in sums.items()}


def _layers(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The blocks by their names: `block 1`, `block 2` ..., then `decoder block 1` ... of an encoder-decoder."""
    for said, kind in (("block", Block), ("decoder block", DecoderBlock)):
        blocks = [module for module in model.modules() if isinstance(module, kind)]
        yield from ((f"{said} {number}", block) for number, block in enumerate(blocks, 1))


def _pack(model: nn.Module) -> int:
    return next(len(parameter) for name, parameter in model.named_parameters() if name.startswith("embedding."))


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Without dropout."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)
