"""Diagnostics of the blocks of a model: norms of weights and gradients, and the mixing maps of mixers.

The mixing map of a mixer y = mixer(x) at a sample is M_ij = ‖∂y_i/∂x_j‖_F / √D: the root mean square sensitivity of
output i to input j. The definition is the same for every kind: for attention without values and with constant queries
and keys it is the attention matrix, for a convolution its kernel, for FNet its Fourier matrix. Fig. 5 of SimpleTRON
(arXiv:2111.15588) shows its standard deviation during training, for the attention matrix.

Shapes: K pack, B batch, T tokens, D width, P parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ablate.nn.model.block import Block
from ablate.nn.model.encoder import DecoderBlock
from ablate.nn.pack import numbers_documents

SAMPLE_TOKENS = 32
"""Number of tokens of the sample that are used: its first tokens."""
DIRECTIONS = 8
"""Number of orthonormal random directions with which the Frobenius norm is estimated. The map is exact for D of at most
8. Otherwise the relative error is about 0.1 for a row, and some hundredths for the standard deviation over all rows."""

_MIXERS = ("mixer", "cross")
_PARTS = (*_MIXERS, "mlp")

Inside = dict[str, dict[str, list[Any]]]
"""By quantity (`weights`, `gradients`, `spread`, `map`) and part of the model, a value for each member of the pack."""


def look_inside(model: nn.Module, norms: Tensor | None, run: Callable[[], object], *, maps: bool) -> Inside:
    """Compute the quantities to record of the blocks of a model.

    Args:
        model: Model of K members. The model and torch's random state are not changed.
        norms: 2-norms of the gradients, [P, K], in the order of the trainable parameters; None before the first step.
        run: Runs the model on one sequence, [K, 1, T].
        maps: Whether to return the maps in addition to their standard deviation.

    Returns:
        `weights` and `gradients`: 2-norms for `block 1 mixer`, `block 1 mlp` and `block 1 rest` (norms and gains).
        `spread`: standard deviation of the entries of the mixing map, for `block 1 mixer`. `map`: its rows.
    """
    recorded: Inside = {"weights": weight_norms(model)}
    if norms is not None:
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        recorded["gradients"] = _norms_by_part(model, trained, norms.square().tolist())
    mixing = mixing_maps(model, run)
    recorded["spread"] = {part: rows.std((1, 2), correction=0).tolist() for part, rows in mixing.items()}
    if maps:
        recorded["map"] = {part: rows.tolist() for part, rows in mixing.items()}
    return recorded


@torch.no_grad()
def weight_norms(model: nn.Module) -> dict[str, list[float]]:
    """2-norms of the trainable parameters of each part of each block, for each member."""
    pack = pack_of(model)
    parameters = list(model.parameters())
    squares = [parameter.reshape(pack, -1).square().sum(1).tolist() for parameter in parameters]
    return _norms_by_part(model, parameters, squares)


def mixing_maps(model: nn.Module, run: Callable[[], object], tokens: int = SAMPLE_TOKENS) -> dict[str, Tensor]:
    """The mixing map of every mixer, [K, T, T] (for cross-attention: target by source), of the real tokens.

    Args:
        model: Model of K members.
        run: Runs the model on one sequence, [K, 1, T], with equal padding for all members.
        tokens: Number of tokens of the inputs that are used: the first ones. Padding after them is left out.
    """
    mixers = {f"{layer} {name}": getattr(block, name) for layer, block in layers(model) for name in _MIXERS
              if hasattr(block, name)}  # fmt: skip
    with evaluating(model):
        with torch.no_grad():
            calls = _captured_calls(mixers, run)
        return {part: _map(mixers[part], call, tokens) for part, call in calls.items()}


def _captured_calls(mixers: dict[str, nn.Module], run: Callable[[], object]) -> dict[str, tuple[Any, ...]]:
    """The inputs and shared tensors of the first call of each mixer."""
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
    """The map of one mixer, of real tokens to real tokens. Sequence i of the batch yields row i."""
    given, shared = call
    given = (*given, None, None, None)[:4]  # the input and, in cross-attention, the memory, each with its padding
    to = _real(given[0], given[1], tokens)
    of = to if given[2] is None else _real(given[2], given[3], tokens)
    rows, width = int(to[-1]) + 1, given[0].shape[3]
    until = (rows, rows, int(of[-1]) + 1, int(of[-1]) + 1)
    inputs = [None if tensor is None else _cut(tensor, last, rows) for tensor, last in zip(given, until, strict=True)]
    inputs = inputs if given[2] is not None else inputs[:2]
    more = {"shared": tuple(_cut(tensor, rows, rows) for tensor in shared)} if shared else {}
    x = inputs[0] if given[2] is None else inputs[2]  # cross-attention mixes the tokens of its memory
    assert x is not None
    x.requires_grad_()
    index = torch.arange(rows, device=x.device)
    squares = torch.zeros(*x.shape[:3], device=x.device)
    with torch.enable_grad():
        outputs = mixer(*inputs, **more)
        y: Tensor = outputs if isinstance(outputs, Tensor) else outputs[0]  # without published tensors
        for direction in _directions(rows, width).to(x):
            cotangent = torch.zeros_like(y)
            cotangent[:, index, index] = direction
            (gradient,) = torch.autograd.grad(y, x, cotangent, retain_graph=True, allow_unused=True)
            if gradient is not None:
                squares += gradient.square().sum(-1)
    norms: Tensor = (squares / min(width, DIRECTIONS)).sqrt()
    return norms[:, to][:, :, of]


def _real(x: Tensor, padding: Tensor | None, tokens: int) -> Tensor:
    """Positions of the real tokens among the first ones of x [K, 1, T, D]; the first token if there are none."""
    if padding is None or numbers_documents(padding):
        return torch.arange(min(tokens, x.shape[2]), device=x.device)
    real = padding[0, 0, :tokens].nonzero().flatten()
    return real if len(real) else torch.zeros(1, dtype=torch.int64, device=x.device)


def _cut(given: Tensor, tokens: int, rows: int) -> Tensor:
    """`rows` copies of the first tokens of [K, 1, T, ...]."""
    copies = given[:, :, :tokens].repeat(1, rows, *[1] * (given.dim() - 2))
    return copies.float() if copies.is_floating_point() else copies


def _directions(rows: int, width: int) -> Tensor:
    """Random directions [directions, T, D], the same at every call, so that changes over training are the model's."""
    drawn = torch.empty(rows, width, min(width, DIRECTIONS)).normal_(generator=torch.Generator().manual_seed(0))
    directions: Tensor = torch.linalg.qr(drawn).Q
    return directions.permute(2, 0, 1)


def _norms_by_part(
    model: nn.Module, parameters: Sequence[nn.Parameter], squares: list[list[float]]
) -> dict[str, list[float]]:
    """Sum squared norms of the parameters of each part of each block and take the square roots."""
    part_of = {
        id(parameter): f"{layer} {head if (head := name.partition('.')[0]) in _PARTS else 'rest'}"
        for layer, block in layers(model)
        for name, parameter in block.named_parameters()
    }
    sums: dict[str, list[float]] = {}
    for parameter, values in zip(parameters, squares, strict=True):
        if id(parameter) in part_of:
            into = sums.setdefault(part_of[id(parameter)], [0.0] * len(values))
            into[:] = [before + value for before, value in zip(into, values, strict=True)]
    return {part: [total**0.5 for total in totals] for part, totals in sums.items()}


def layers(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The blocks with their names: `block 1`, `block 2` ..., then `decoder block 1` ... of an encoder-decoder."""
    for label, kind in (("block", Block), ("decoder block", DecoderBlock)):
        blocks = [module for module in model.modules() if isinstance(module, kind)]
        yield from ((f"{label} {number}", block) for number, block in enumerate(blocks, 1))


def pack_of(model: nn.Module) -> int:
    """The number K of members of a model."""
    return next(len(parameter) for name, parameter in model.named_parameters() if name.startswith("embedding."))


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Set evaluation mode, which disables dropout."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)
