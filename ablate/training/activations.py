"""Measures inside a model as metrics: attention, activations, signal and gradients (`ablate.metrics.INSIDES`).

One forward and backward pass over fixed validation windows without dropout; the gradients of weights are not computed.
Statistics are those of real tokens. A block that runs several times counts with the mean over its calls.

Shapes: K pack, B batch, T tokens, S keys, N real tokens of a batch, D width, H heads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ablate.metrics import GROWTHS, INITIAL, INSIDES, LARGEST, NO_MATRIX, OF_ATTENTION, inside_name
from ablate.nn.kernels.softmax_attention import observing_attention
from ablate.nn.pack import numbers_documents
from ablate.spec.task import Task
from ablate.training.block_recordings import evaluating, layers, pack_of

if TYPE_CHECKING:
    from ablate.spec.task import Batch

SAMPLE_TOKENS = 512
"""About how many tokens of the validation data are used: its first windows, one at least."""


@dataclass(frozen=True, slots=True)
class Insides:
    """Measures of a model of K members.

    Attributes:
        by_block: Measure to block, such as `block 2`, to a value for each member. `block 0` is the input of the first.
        absent: Measure to the reason why no block has it.
    """

    by_block: dict[str, dict[str, list[float]]]
    absent: dict[str, str]

    def metrics(self, *, initial: bool) -> dict[str, list[float]]:
        """The metrics of a trial by their names, for each member.

        Args:
            initial: Whether this is before the first step; then also those that are kept from there.
        """
        found: dict[str, list[float]] = {}
        for measure, blocks in self.by_block.items():
            for kept in [False, True] if initial and measure in INITIAL else [False]:
                found[inside_name(measure, initial=kept)] = _of_model(measure, blocks)
                found |= {inside_name(measure, block, initial=kept): values for block, values in blocks.items()}
        if initial:
            stack = list(self.by_block[INITIAL[0]])[-1].rpartition(" ")[0]  # that of the outputs
            forward, backward = (
                [values for block, values in self.by_block[measure].items() if block.rpartition(" ")[0] == stack]
                for measure in INITIAL
            )
            for growth, end, start in zip(GROWTHS, (forward[-1], backward[0]), (forward[0], backward[-1]), strict=True):
                found[inside_name(growth, initial=True)] = [_ratio(*pair) for pair in zip(end, start, strict=True)]
        return found


def _of_model(measure: str, blocks: Mapping[str, list[float]]) -> list[float]:
    """The largest or the mean over the blocks, for each member; without the input of the first block."""
    values = [of_block for block, of_block in blocks.items() if not block.endswith(" 0")]
    if measure in LARGEST:
        return [max(member) for member in zip(*values, strict=True)]
    return [math.fsum(member) / len(member) for member in zip(*values, strict=True)]


def _ratio(left: float, right: float) -> float:
    return left / right if right else math.nan


Loss = Callable[[nn.Module], Tensor]
"""Runs a model on fixed inputs and gives the mean loss of each member, [K]."""


def loss_on_validation(
    task: Task, device: torch.device, pack: int, contexts: Callable[[], AbstractContextManager[Any]] = nullcontext
) -> Loss:
    """The loss on the first validation windows of a task; `contexts` gives the context of a forward pass."""
    rows = max(1, SAMPLE_TOKENS // task.shape.context)
    batch: Batch = {
        name: values[:rows].to(device).expand(pack, -1, *values.shape[1:])
        for name, values in next(iter(task.validation_batches(rows))).items()
    }

    def loss(model: nn.Module) -> Tensor:
        with contexts():
            outputs = task.outputs(model, batch)
        return task.loss(outputs.float(), batch)

    return loss


def loss_on_random_tokens(vocabulary: int, context: int, device: torch.device, pack: int) -> Loss:
    """The mean negative log probability, in nats, of uniformly random tokens after uniformly random ones."""
    rows, generator = max(1, SAMPLE_TOKENS // context), torch.Generator().manual_seed(0)
    drawn = torch.randint(vocabulary, (2, 1, rows, context), generator=generator).to(device)
    tokens, targets = drawn.expand(-1, pack, -1, -1)
    return lambda model: (
        F.cross_entropy(model(tokens).float().movedim(-1, 1), targets, reduction="none").flatten(1).mean(1)
    )


def measure_insides(model: nn.Module, loss: Loss) -> Insides:
    """Measure all but `update_ratio`. The model, its gradients and torch's random state are not changed.

    Args:
        model: Of K members.
        loss: Of the members, [K], which share nothing, so that each has the gradient of its own loss.
    """
    watch = _Watch(pack_of(model))
    with evaluating(model), torch.enable_grad(), watch.watching(model):
        total = loss(model).sum()
        streams = [stream for _, stream, _ in watch.streams if stream.requires_grad]
        gradients = dict(zip(map(id, streams), torch.autograd.grad(total, streams, allow_unused=True), strict=True))
    with torch.no_grad():
        watch.measure_streams(gradients)
    by_block = {
        measure: {block: torch.stack(calls).mean(0).tolist() for block, calls in watch.found[measure].items()}
        for measure in INSIDES
        if measure in watch.found
    }
    why = "the windows have one token" if OF_ATTENTION & by_block.keys() else NO_MATRIX
    return Insides(by_block, {measure: why for measure in INSIDES if measure in OF_ATTENTION - by_block.keys()})


@torch.no_grad()
def update_ratios(model: nn.Module, before: Sequence[Tensor], pack: int) -> dict[str, list[float]]:
    """2-norms of the last change of the trainable weights over those of the weights before it, [K], as metrics.

    Args:
        model: After the step.
        before: All its parameters before the step, in their order.
        pack: K.
    """
    of_block = {id(weight): label for label, block in layers(model) for weight in block.parameters()}
    sums: dict[str, list[Tensor]] = {}
    for weight, old in zip(model.parameters(), before, strict=True):
        if weight.requires_grad:
            squares = torch.stack([part.reshape(pack, -1).square().sum(1) for part in (weight - old, old)])
            for place in {"", of_block.get(id(weight), "")}:
                sums.setdefault(place, []).append(squares)
    ratios = {place: torch.stack(parts).sum(0).sqrt() for place, parts in sums.items()}
    return {inside_name("update_ratio", place): (change / norm).tolist() for place, (change, norm) in ratios.items()}


@dataclass(slots=True)
class _Watch:
    """What one forward pass shows.

    Attributes:
        pack: K.
        streams: Block, stream [K, B, T, ...] and which of its tokens are real [B, T] (None: all), in order.
        found: Measure to block to the values of each call, [K].
    """

    pack: int
    streams: list[tuple[str, Tensor, Tensor | None]] = field(default_factory=list)
    found: dict[str, dict[str, list[Tensor]]] = field(default_factory=dict)

    def watching(self, model: nn.Module) -> ExitStack:
        """Context manager: blocks and mixers report what they compute in the body."""
        stack = ExitStack()
        reading: list[tuple[str, Tensor | None]] = []

        def observe(logits: Tensor, weights: Tensor) -> None:
            if reading:
                self._measure_attention(*reading[-1], logits, weights)

        def enter(label: str, given: tuple[Any, ...]) -> tuple[Any, ...] | None:
            first = label.endswith(" 1") and not any(place == label for place, *_ in self.streams)
            if not first:
                return None
            x = given[0] if given[0].requires_grad else given[0].detach().requires_grad_()
            self.streams.append((f"{label.removesuffix(' 1')} 0", x, _real(given)))
            return (x, *given[1:])

        def leave(label: str, given: tuple[Any, ...], stream: Tensor) -> None:
            self._add("depth_similarity", label, _cosines(given[0].detach(), stream.detach(), _real(given)))
            self.streams.append((label, stream, _real(given)))

        for label, block in layers(model):
            mixer = cast(nn.Module, block.mixer)
            hooks = [
                block.register_forward_pre_hook(lambda _, given, label=label: enter(label, given)),
                block.register_forward_hook(lambda _, given, stream, label=label: leave(label, given, stream)),
                mixer.register_forward_pre_hook(lambda _, given, label=label: reading.append((label, _real(given)))),
                mixer.register_forward_hook(lambda *_: reading.pop() and None),
            ]
            for hook in hooks:
                stack.callback(hook.remove)
        stack.enter_context(observing_attention(observe))
        return stack

    def measure_streams(self, gradients: Mapping[int, Tensor | None]) -> None:
        """Measure the streams and the gradients of the loss with respect to them, which are given by their `id`."""
        for label, stream, real in self.streams:
            x = _entries(stream.detach(), real)
            magnitudes = x.flatten(1).abs()
            centred = x.flatten(1).double() - x.flatten(1).double().mean(1, keepdim=True)
            squares = centred.square()
            self._add("massive_activation", label, magnitudes.amax(1) / magnitudes.median(1).values)
            self._add("kurtosis", label, squares.square().mean(1) / squares.mean(1).square())
            self._add("effective_rank", label, _effective_rank(x))
            self._add("stream_rms", label, _rms(x))
            if (gradient := gradients.get(id(stream))) is not None:
                self._add("gradient_rms", label, _rms(_entries(gradient, real)))

    def _measure_attention(self, label: str, real: Tensor | None, logits: Tensor, weights: Tensor) -> None:
        """Measure an attention matrix [..., H, T, S] whose queries are the tokens of a mixer's input."""
        shape = (self.pack, -1, *weights.shape[-3:])
        logits, weights = logits.reshape(shape).float(), weights.reshape(shape).float()
        rows = weights.new_ones(weights.shape[1], weights.shape[3], dtype=torch.bool) if real is None else real
        counted = rows.unsqueeze(1).expand(-1, weights.shape[2], -1)  # [B, H, T]
        logits, weights = (x.expand(-1, len(rows), -1, -1, -1) for x in (logits, weights))
        entropies = torch.special.entr(weights).sum(-1)
        self._add("attention_entropy", label, entropies[:, counted].mean(1))
        self._add("largest_logit", label, logits.amax(-1)[:, counted].amax(1))
        if rows[:, 1:].any():
            self._add("first_token_share", label, weights[..., 1:, 0][:, counted[..., 1:]].mean(1))

    def _add(self, measure: str, label: str, values: Tensor) -> None:
        self.found.setdefault(measure, {}).setdefault(label, []).append(values)


def _real(given: tuple[Any, ...]) -> Tensor | None:
    """Which tokens of an input are real, [B, T], from the arguments of a block or mixer; None if all are."""
    masks: Iterator[Tensor] = (tensor for tensor in given[1:] if isinstance(tensor, Tensor) and tensor.dim() == 3)
    padding = next(masks, None)
    return None if padding is None or numbers_documents(padding) else padding[0]


def _entries(x: Tensor, real: Tensor | None) -> Tensor:
    """[K, B, T, ...] to the entries of the real tokens, [K, N, D]."""
    tokens = x.flatten(1, 2) if real is None else x[:, real]
    return tokens.flatten(2).float()


def _rms(x: Tensor) -> Tensor:
    return x.flatten(1).square().mean(1).sqrt()


def _cosines(before: Tensor, after: Tensor, real: Tensor | None) -> Tensor:
    return torch.cosine_similarity(_entries(before, real), _entries(after, real), dim=-1).mean(1)


def _effective_rank(x: Tensor) -> Tensor:
    """exp of the entropy of the normalised singular values of each matrix of [K, N, D]."""
    x = x.double()
    gram = x @ x.mT if x.shape[1] < x.shape[2] else x.mT @ x
    singular = torch.linalg.eigvalsh(gram).clamp(min=0).sqrt()
    rank: Tensor = torch.special.entr(singular / singular.sum(1, keepdim=True)).sum(1).exp()
    return rank
