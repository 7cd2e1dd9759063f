"""The base of all model families, and its cost: token embedding with positions, a stack of blocks, a final norm.

Shapes: K pack, B batch, T tokens, D width, V vocabulary.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import cast

from torch import Tensor, nn

from ablate.errors import AblateError
from ablate.nn.kernels.cross_entropy import logit_tensors
from ablate.nn.model.block import Block, block_cost, build_block
from ablate.nn.model.embedding import (
    Bigrams,
    HeadBias,
    HeadMap,
    HeadTransform,
    Segments,
    Smear,
    bigram_cost,
    head_bias_cost,
    head_transform_cost,
    smear_cost,
)
from ablate.nn.pack import (
    Embedding,
    Packed,
    Shared,
    State,
    add_loss,
    add_positions_of_documents,
    collects_losses,
    counting,
    dropout,
    linear,
    mean_of_scored,
    next_call,
    recompute,
    recomputes,
    same_call,
    scored_outputs,
)
from ablate.nn.pack.forward_pass import logit_chunk
from ablate.spec.cost import Cost, linear_cost, total_cost
from ablate.spec.layer import EMBEDDING, LayerContext
from ablate.spec.model import ModelSpec


class Stack(nn.Module):
    """Embedding, positions, blocks, norm; a family adds its head.

    Args:
        vocabulary: Number of token ids V.
        context: The longest input in tokens.
        pack: K.
        causal: Whether the future is hidden; None for the default of the family.
    """

    def __init__(
        self, spec: ModelSpec, vocabulary: int, context: int, pack: int, *, causal: bool | None = None
    ) -> None:
        super().__init__()
        self.spec = spec
        self.longest_input = spec.longest_input(context)
        surroundings = replace(spec.layer_context(context, pack, causal=causal), vocabulary=vocabulary)
        initial = surroundings.initial("embedding", vocabulary, spec.width)
        self.embedding = Embedding(pack, vocabulary, spec.width, initial=initial)
        self.bigrams = None if spec.bigram is None else Bigrams(spec.bigram, surroundings, vocabulary)
        self.smear = None if spec.smear is None else Smear(spec.smear, surroundings)
        self.segments = Segments(spec.segments, surroundings) if spec.segments else None
        self.embedding_norm = None if spec.embedding_norm is None else spec.embedding_norm.build(pack, spec.width)
        self.embedding_map = linear(surroundings, spec.width, spec.width, bias=True) if spec.embedding_map else None
        added = spec.positions.applied == "embedding"
        self.positions = spec.positions.build(replace(surroundings, context=context)) if added else None
        self.blocks = nn.ModuleList(
            build_block(
                block, replace(spec.layer_context(context, pack, layer=layer, causal=causal), vocabulary=vocabulary)
            )
            for layer, block in enumerate(spec.blocks)
        )
        share_modules(self.blocks)
        self.stream, self.tokens = surroundings.stream(EMBEDDING), surroundings.tokens
        self.read = {
            tensor
            for block in self.blocks
            for sharing in cast(Block, block).sharing.values()
            for tensor in sharing.reads
        }
        self.norm = spec.final_norm.build(pack, spec.width)

    def embed(self, tokens: Tensor, first: int = 0, before: State = (), documents: Tensor | None = None) -> Tensor:
        """Token ids [K, B, T] to embeddings [K, B, T, D], with positions and the other parts that the model has.

        Args:
            first: Position of the first of them in the text.
            before: The result of `look_back` for the token before the first.
            documents: Numbers of the documents, [K, B, T]; positions then start at 0 in each document.

        Raises:
            ValueError: The ids have another shape, or there are none.
            AblateError: The input is longer than the model can read.
        """
        if tokens.dim() != 3 or 0 in tokens.shape:
            raise ValueError(f"token ids [K, B, T] of one token at least are expected; got {list(tokens.shape)}")
        if self.longest_input is not None and first + tokens.shape[2] > self.longest_input:
            raise AblateError(
                "the input is longer than the model can read",
                where="model",
                expected=f"at most {self.longest_input} tokens",
                got=f"{first + tokens.shape[2]}",
                remedy="Build the model with a longer context, or cut the input.",
            )
        id_before, x_before = before or (None, None)
        x = self._looked_up(tokens, id_before)
        if self.smear is not None:
            x = self.smear(x, x_before)
        if self.spec.embedding_scale == "sqrt_width":
            x = x * math.sqrt(self.spec.width)
        if self.segments is not None:
            x = self.segments(x)
        if self.positions is not None and documents is not None:
            x = add_positions_of_documents(self.positions, x, documents)
        elif self.positions is not None:
            x = self.positions(x, first)
        if self.embedding_norm is not None:
            x = self.embedding_norm(x)
        return x if self.embedding_map is None else self.embedding_map(x)

    def look_back(self, token: Tensor, before: State) -> State:
        """The state that the embedding of the next token reads: token ids [K, B, 1] and their embeddings.

        Args:
            before: The state that the embedding of this token has read.
        """
        if self.bigrams is None and self.smear is None:
            return ()
        return token, self._looked_up(token, before[0] if before else None)

    def _looked_up(self, tokens: Tensor, before: Tensor | None) -> Tensor:
        """Sums of rows of the tables of tokens and of pairs, [K, B, T, D]."""
        x: Tensor = self.embedding(tokens)
        return x if self.bigrams is None else x + self.bigrams(tokens, before)

    def mix(self, x: Tensor, padding: Tensor | None, tokens: Tensor | None = None) -> Tensor:
        """[K, B, T, D] through dropout, blocks and norm; `tokens` [K, B, T] are ids that layers may read."""
        y: Tensor = self.norm(self.hidden(x, padding, tokens))
        return y

    def hidden(self, x: Tensor, padding: Tensor | None, tokens: Tensor | None = None) -> Tensor:
        """[K, B, T, D] through dropout and blocks; `tokens` [K, B, T] are ids that layers may read."""
        x = dropout(x, self.spec.dropout, self.training)

        def run(block: Block, stream: Tensor, shared: Shared) -> Tensor:
            with counting(padding):  # in both passes of a block that is computed again
                y: Tensor = block(stream, padding, shared)
            return y

        return self.through(x, run, tokens)

    def through(
        self, x: Tensor, run: Callable[[Block, Tensor, Shared], Tensor], tokens: Tensor | None = None
    ) -> Tensor:
        """Embeddings [K, B, T, D] through all blocks, in their order; `run` computes one block."""
        blocks = [cast(Block, block) for block in self.blocks]
        shared: Shared = {self.stream: x} if self.stream in self.read else {}
        if tokens is not None and self.tokens in self.read:
            shared[self.tokens] = tokens
        stream = blocks[0].residual.open(x)
        for block in (blocks[layer] for layer in self.spec.order):
            stream = _through_block(run, block, stream, shared)
            if block.stream in self.read:
                shared[block.stream] = stream
        last = blocks[-1]
        return last.residual.finish(stream, tuple(shared[tensor] for tensor in last.sharing["residual"].reads))


def _through_block(
    run: Callable[[Block, Tensor, Shared], Tensor], block: Block, stream: Tensor, shared: Shared
) -> Tensor:
    """The stream through a block, which is computed again in the backward pass if `recomputes`."""
    call, before = next_call(), dict(shared)

    def passed(x: Tensor) -> tuple[Tensor, Shared]:
        own = dict(before)  # a copy, so that both passes start with the same tensors
        with same_call(call):
            y = run(block, x, own)
        return y, {tensor: value for tensor, value in own.items() if before.get(tensor) is not value}

    y, published = recompute(passed, stream) if recomputes() else passed(stream)
    shared.update(published)
    return y


def share_modules(blocks: Iterable[nn.Module]) -> None:
    """Replace modules of later layers by those of earlier ones with an equal `Packed.share_key`.

    The first layer owns such a module: its tensors have one name in the `state_dict`.
    """
    owned: dict[object, nn.Module] = {}
    for parent in [module for block in blocks for module in block.modules()]:
        for name, child in list(parent.named_children()):
            if isinstance(child, Packed) and child.share_key is not None:
                first = owned.setdefault(child.share_key, child)
                if first is not child:
                    delattr(parent, name)
                    parent.__dict__[name] = first  # used, but not registered as a module of this layer


def shared_parameters(layers: Iterable[LayerContext]) -> int:
    """Parameters that the costs of layers count more than once, because one position module serves all layers."""
    tables = Counter(
        (layer_context.positions, layer_context.positions.cost(layer_context, 1).parameters)
        for layer_context in layers
        if layer_context.positions is not None and layer_context.positions.one_for_all_layers
    )
    return sum((times - 1) * parameters for (_, parameters), times in tables.items())


class TokenHead(Stack):
    """A stack whose output is a distribution over tokens, by the embedding matrix or by a separate one."""

    def __init__(
        self, spec: ModelSpec, vocabulary: int, context: int, pack: int, *, causal: bool | None = None
    ) -> None:
        super().__init__(spec, vocabulary, context, pack, causal=causal)
        surroundings = spec.layer_context(context, pack)
        self.logit_scale = spec.initialiser.logit_scale(surroundings)
        self.head = None if spec.tied_head else HeadMap(surroundings, vocabulary)
        transform = spec.head_transform
        self.head_transform = None if transform is None else HeadTransform(transform, surroundings)
        self.head_bias = HeadBias(pack, vocabulary) if spec.head_bias else None

    def logits(self, x: Tensor) -> Tensor:
        """[K, B, T, D] to [K, B, T, V]; in training the z-loss is added, a mean over the scored outputs.

        If logits are computed in chunks, this returns its input, and the loss calls `logits_of_features` by chunk.
        """
        return x if logit_chunk() else self.logits_of_features(x)

    def logits_of_features(self, x: Tensor) -> Tensor:
        """As `logits`, also where logits are computed in chunks."""
        logits = self.capped_logits(x)
        if self.spec.z_loss and self.training and collects_losses():
            whole = logits.float() if logits.itemsize < 4 else logits
            add_loss(self.spec.z_loss * mean_of_scored(whole.logsumexp(-1).square(), scored_outputs()))
        return logits

    def capped_logits(self, x: Tensor) -> Tensor:
        """[K, B, T, D] to [K, B, T, V]."""
        if self.head_transform is not None:
            x = self.head_transform(x)
        if self.spec.logit_scale == "inverse_sqrt_width":
            x = x / math.sqrt(self.spec.width)
        logits: Tensor = self.embedding.logits(x) if self.head is None else self.head(x)
        if self.logit_scale != 1.0:
            logits = logits * self.logit_scale
        if self.head_bias is not None:
            logits = self.head_bias(logits)
        cap = self.spec.logit_cap
        return logits if cap is None else cap * (logits / cap).tanh()


def stack_cost(spec: ModelSpec, vocabulary: int, context: int, length: int, *, causal: bool | None = None) -> Cost:
    """Cost of a `Stack` over one sequence of `length` tokens that the blocks see."""
    parts = [
        Cost(parameters=vocabulary * spec.width, activations=length * spec.width * (spec.dropout > 0)),
        embedding_cost(spec, context, length),
        spec.final_norm.cost(spec.width, length),
    ]
    if spec.bigram is not None:
        parts.append(bigram_cost(spec.bigram, spec.width, vocabulary, length))
    if spec.smear is not None:
        parts.append(smear_cost(spec.smear, spec.width, length))
    contexts = [
        spec.layer_context(context, layer=layer, causal=causal, vocabulary=vocabulary) for layer in range(spec.depth)
    ]
    passes = Counter(spec.order)
    first = 0
    for _, same in itertools.groupby(spec.blocks, key=id):  # layers without an exception share one spec
        block, *others = same
        count = 1 + len(others)
        # They have one cost, unless it depends on the layer's index or number of passes.
        apart = block.differs_by_layer or bool(spec.loops)
        alike, times = (range(first, first + count), 1) if apart else (range(first, first + 1), count)
        for layer in alike:
            each = total_cost(block_cost(block, contexts[layer], length).values())
            parts.append(repeat_cost(each, passes[layer]) * times)
        first += count
    return total_cost([*parts, Cost(parameters=-shared_parameters(contexts))])


def repeat_cost(cost: Cost, times: int) -> Cost:
    """The cost of several passes through one set of weights."""
    return cost if times == 1 else cost * times + Cost(parameters=-(times - 1) * cost.parameters)


def embedding_cost(spec: ModelSpec, context: int, length: int) -> Cost:
    """Cost of the operations on token embeddings: scale, segments, positions, norm."""
    scaled = Cost(
        parameters=spec.segments * spec.width,
        multiplications=length * spec.width * (spec.embedding_scale != "none"),
        additions=length * spec.width * (spec.segments > 0),
    )
    if spec.embedding_norm is not None:
        scaled += spec.embedding_norm.cost(spec.width, length)
    if spec.embedding_map:
        scaled += linear_cost(length, spec.width, spec.width, bias=True)
    if spec.positions.applied != "embedding":
        return scaled
    return scaled + spec.positions.cost(replace(spec.layer_context(context), context=context), length)


def token_head_cost(spec: ModelSpec, vocabulary: int, length: int) -> Cost:
    """Cost of the map to token logits, and of the tensors at the loss (`nn.kernels.cross_entropy.logit_tensors`)."""
    logits = length * vocabulary
    head = linear_cost(length, spec.width, vocabulary) + Cost(activations=logit_tensors(vocabulary) * logits)
    if spec.head_transform is not None:
        head += head_transform_cost(spec.head_transform, spec.width, length)
    if spec.logit_scale != "none":
        head += Cost(divisions=length * spec.width)
    if spec.head_bias:
        head += head_bias_cost(vocabulary, length)
    if spec.logit_cap is not None:
        head += Cost(multiplications=2 * logits, exponentiations=logits, divisions=logits, activations=logits)
    return head + Cost(parameters=-spec.width * vocabulary) if spec.tied_head else head
