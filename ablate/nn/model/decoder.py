"""A decoder language model: embedding, positions, causal blocks, norm, head.

In training it may predict tokens after the next one too (`MultiTokenSpec`). Shapes: K pack, B batch, T tokens, D width,
V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from ablate.nn.kernels.cross_entropy import cross_entropy, logit_tensors
from ablate.nn.model.block import Block, block_cost, build_block
from ablate.nn.model.stack import TokenHead, stack_cost, token_head_cost
from ablate.nn.pack import (
    RMSNorm,
    Shared,
    State,
    add_loss,
    collects_losses,
    counting,
    gathers,
    linear,
    mean_of_scored,
    numbers_documents,
    real_mask,
    scored_targets,
)
from ablate.nn.pack.forward_pass import logit_chunk, sum_of_chunks
from ablate.spec.cost import Cost, linear_cost
from ablate.spec.model import ModelSpec

_EPS = 1e-6


class FurtherToken(nn.Module):
    """The module of one token after the next: h' = Block(W [N(e); N(h)]); the block is built as the last layer."""

    def __init__(self, spec: ModelSpec, context: int, pack: int) -> None:
        super().__init__()
        layer_context = spec.layer_context(context, pack, layer=spec.depth - 1)
        self.norm_embedding = RMSNorm(pack, spec.width, _EPS)
        self.norm_hidden = RMSNorm(pack, spec.width, _EPS)
        self.join = linear(layer_context, 2 * spec.width, spec.width)
        self.block = build_block(spec.block, layer_context)

    def forward(self, embedded: Tensor, hidden: Tensor, padding: Tensor | None = None) -> Tensor:
        """Embeddings of the following tokens and hidden states of the previous ones, both [K, B, T, D], to the same.

        `padding` [K, B, T] is True where both tokens are real.
        """
        joined = self.join(torch.cat([self.norm_embedding(embedded), self.norm_hidden(hidden)], -1))
        residual = self.block.residual
        y: Tensor = residual.close(self.block(residual.open(joined), padding))
        return y


def add_further_losses(
    weights: Sequence[float],
    tokens: Tensor,
    embedded: Tensor,
    hidden: Tensor,
    modules: Sequence[nn.Module],
    logits: Callable[[Tensor], Tensor],
) -> None:
    """Add the losses of `modules`.

    Args:
        weights: One for each token after the next.
        tokens: Ids, [K, B, T].
        embedded: Their embeddings, [K, B, T, D].
        hidden: The output of the blocks of the model, [K, B, T, D].
        modules: One for each token after the next.
        logits: The final norm and the head, [K, ..., D] to [K, ..., V].
    """
    real = both = real_mask()
    for ahead, (weight, module) in enumerate(zip(weights, modules, strict=True), 1):
        if tokens.shape[2] < ahead + 2:
            return
        if real is not None and both is not None:
            both = both[:, :, :-1] & real[:, :, ahead:]
        with counting(both):
            hidden = module(embedded[:, :, ahead:], hidden[:, :, :-1], both)
        add_token_loss(weight, ahead + 1, hidden, tokens, logits)


def add_token_loss(weight: float, ahead: int, x: Tensor, tokens: Tensor, logits: Callable[[Tensor], Tensor]) -> None:
    """Add the mean cross entropy of the tokens `ahead` positions later, if there are any.

    Tokens that are padding, or that the loss of the task ignores, do not count.

    Args:
        ahead: How much later.
        x: What `logits` reads, [K, B, T, ...]; positions that have no token so much later are left out.
        tokens: Ids, [K, B, T].
        logits: [..., D] to [..., V].
    """
    targets = tokens[:, :, ahead:]
    if not targets.shape[2]:
        return
    x, scored = x[:, :, : targets.shape[2]], scored_targets(ahead)

    def nats(given: Tensor, expected: Tensor) -> Tensor:
        flat = logits(given).flatten(0, -2)
        flat = flat.float() if flat.itemsize < 4 else flat
        return cross_entropy(flat, expected.flatten()).view(len(expected), -1)

    if chunk := logit_chunk():

        def total(given: Tensor, expected: Tensor, *mask: Tensor) -> Tensor:
            losses = nats(given, expected)
            return (torch.where(mask[0], losses, 0) if mask else losses).sum(1)

        masks = () if scored is None else (scored.mask.flatten(1),)
        summed = sum_of_chunks(total, chunk, x.flatten(1, 2), targets.flatten(1), *masks)
        add_loss(weight * summed / (targets[0].numel() if scored is None else scored.count))
    else:
        add_loss(weight * mean_of_scored(nats(x, targets).view(targets.shape), scored))


def further_cost(spec: ModelSpec, vocabulary: int, context: int, length: int) -> Cost:
    """Cost of predicting tokens after the next one, over one sequence of `length` tokens."""
    further = spec.multi_token
    if further is None:
        return Cost()
    total = Cost()
    for ahead in range(1, len(further.weights) + 1):
        rows = max(0, length - 1 - ahead)
        total += Cost(activations=logit_tensors(vocabulary) * rows * vocabulary)
        if further.form == "modules":
            tokens = length - ahead if length > ahead else 0
            layer_context = spec.layer_context(context, layer=spec.depth - 1)
            norm = Cost(
                parameters=spec.width,
                multiplications=2 * tokens * spec.width,
                additions=tokens * spec.width,
                divisions=tokens * spec.width,
                activations=2 * tokens * spec.width,
            )
            total += norm * 2 + linear_cost(tokens, 2 * spec.width, spec.width)
            # Without tokens only the parameters count.
            block = sum(block_cost(spec.block, layer_context, max(1, tokens)).values(), Cost())
            total += block if tokens else Cost(parameters=block.parameters)
            total += replace(spec.final_norm.cost(spec.width, rows), parameters=0)
            total += replace(linear_cost(rows, spec.width, vocabulary), parameters=0)
    return total


States = tuple[State, ...]
"""The states of the embedding, and of each block at each of its passes, after the tokens read so far."""


def advance(
    limit: int | None,
    one: Callable[[Tensor, int, States], tuple[Tensor, States]],
    whole: Callable[[Tensor], Tensor],
    tokens: Tensor,
    position: int,
    states: States,
) -> tuple[Tensor, States]:
    """Read one more token by `one`; where a text has more than `limit` tokens, all of them again by `whole`.

    The last of the states are then the tokens read so far.
    """
    if limit is None:
        return one(tokens, position, states)
    *of_blocks, (before,) = states or ((tokens[:, :, :0],),)
    read = torch.cat([before, tokens], 2)
    logits, after = one(tokens, position, tuple(of_blocks)) if position < limit else (whole(read)[:, :, -1:], ())
    return logits, (*after, (read,))


def state_bytes(states: States) -> int:
    """Bytes of the tensors that decoding keeps; one that several layers keep counts once."""
    kept = {id(tensor): tensor for state in states for tensor in state}
    return sum(tensor.numel() * tensor.element_size() for tensor in kept.values())


class Decoder(TokenHead):
    """The module of a `ModelSpec` of family `decoder`."""

    def __init__(self, spec: ModelSpec, vocabulary: int, context: int, classes: int, pack: int) -> None:
        super().__init__(spec, vocabulary, context, pack)
        further = spec.multi_token
        modules = len(further.weights) if further is not None and further.form == "modules" else 0
        self.further = nn.ModuleList(FurtherToken(spec, context, pack) for _ in range(modules))

    def forward(self, tokens: Tensor, padding: Tensor | None = None) -> Tensor:
        """Token ids [K, B, T] to logits of the next token [K, B, T, V]; in training auxiliary losses are added.

        `padding` [K, B, T] is True where a token is real, or numbers documents that see nothing of one another.
        """
        embedded = self.embed(tokens, documents=padding if numbers_documents(padding) else None)
        hidden = self.hidden(embedded, padding, tokens)
        with counting(padding):
            logits = self.logits(self.norm(hidden))
            if self.spec.multi_token is not None and self.training and (collects_losses() or gathers()):
                self.look_further(tokens, embedded, hidden, logits)
        return logits

    def look_further(self, tokens: Tensor, embedded: Tensor, hidden: Tensor, logits: Tensor) -> None:
        """Add the losses of the tokens after the next one, as far as the text has them.

        Args:
            tokens: Ids, [K, B, T].
            embedded: Their embeddings, [K, B, T, D].
            hidden: The output of the blocks, [K, B, T, D].
            logits: Of the next token, [K, B, T, V]; features [K, B, T, D] where logits are computed in chunks.
        """
        assert self.spec.multi_token is not None
        weights = self.spec.multi_token.weights
        if self.spec.multi_token.form == "modules":
            add_further_losses(weights, tokens, embedded, hidden, list(self.further), self.logits_of_hidden)
        else:
            head = self.capped_logits if logit_chunk() else lambda given: given
            for ahead, weight in enumerate(weights, 2):
                add_token_loss(weight, ahead, logits, tokens, head)

    def logits_of_hidden(self, hidden: Tensor) -> Tensor:
        """The output of the blocks, [K, B, T, D], to logits [K, B, T, V]."""
        return self.capped_logits(self.norm(hidden))

    def step(self, tokens: Tensor, position: int, states: States) -> tuple[Tensor, States]:
        """The output of `forward` for one more token: ids [K, B, 1] to logits [K, B, 1, V].

        Args:
            tokens: The token at `place`, counted from 0.
            position: The number of tokens before it.
            states: States of the blocks after those tokens; empty at first.

        Returns:
            The logits, and the states for the next token.
        """
        return advance(self.spec.incremental_limit, self._step, self, tokens, position, states)

    def _step(self, tokens: Tensor, position: int, states: States) -> tuple[Tensor, States]:
        looked_back, *of_blocks = states or ((),) * (1 + len(self.spec.order))
        before = iter(of_blocks)
        kept: list[State] = [self.look_back(tokens, looked_back)]

        def run(block: Block, stream: Tensor, shared: Shared) -> Tensor:
            stream, state = block.step(stream, position, next(before), shared)
            kept.append(state)
            return stream

        hidden = self.through(self.embed(tokens, position, looked_back), run, tokens)
        return self.logits(self.norm(hidden)), tuple(kept)

    def states_after(self, tokens: Tensor) -> States:
        """The states after ids [K, B, T], which are read one by one."""
        states: States = ()
        for position in range(tokens.shape[2]):
            _, states = self.step(tokens[:, :, position : position + 1], position, states)
        return states


def decoder_cost(spec: ModelSpec, vocabulary: int, context: int, classes: int, length: int) -> Cost:
    """Cost of the forward pass over one sequence of `length` tokens."""
    total = stack_cost(spec, vocabulary, context, length) + token_head_cost(spec, vocabulary, length)
    return total + further_cost(spec, vocabulary, context, length)
