"""Specs of what a model has around its blocks: terms of the embedding, loops, heads and further predicted tokens."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from ablate.spec.activations import Activation
from ablate.spec.annotations import default_kind
from ablate.spec.base import Spec, refusal
from ablate.spec.sublayers import Mixer, Norm, NormSpec


class BigramSpec(Spec):
    """A second embedding table, for pairs of neighbouring tokens, which share its rows by a hash.

    Row (36313·t_i XOR 27191·t_{i-1}) mod (R - 1) of R rows is added to the embedding of token i, the last row to that
    of the first token. The rows start at 0 (modded-nanogpt, record of 2026-01-19).
    """

    factor: float = Field(default=5.0, gt=0)
    """Rows R for each id of the vocabulary."""
    width: int | None = Field(default=None, ge=1)
    """Width of the table, where it is another than the model's; a map takes it to that width."""

    def rows(self, vocabulary: int) -> int:
        """R, for a vocabulary of this many ids; at least two."""
        return max(2, round(self.factor * vocabulary))


class SmearSpec(Spec):
    """Each embedding takes in a share of the one before: e_t + λ σ(w·e_t[:m]) e_{t-1}, λ and w trained from 0.

    modded-nanogpt, record of 2025-09-18 ("smear").
    """

    inputs: int = Field(default=12, ge=1)
    """m, the first entries of an embedding that the share is computed from."""


class HeadTransformSpec(Spec):
    """A dense layer between the blocks and the map to logits: N(act(W·x + b)), W [D, D].

    The head of masked language models (BERT, arXiv:1810.04805; ModernBERT, arXiv:2412.13663, whose W has no b).
    """

    activation: Activation = "gelu"
    """act."""
    bias: bool = True
    """Whether there is a b."""
    norm: Norm = default_kind(NormSpec)
    """N."""


class MultiTokenSpec(Spec):
    """Tokens after the next one, predicted in training alone: a loss is added for each.

    `modules`: token i + 1 + k is predicted from h_k = Block_k(W_k [N(e_{i+k}); N(h_{k-1})]), h_0 being what the blocks
    of the model give, through the model's own final norm, embedding and head (DeepSeek-V3, arXiv:2412.19437, eqs 21 to
    25). `same_logits`: the logits of the next token are scored on the tokens after it too (modded-nanogpt).
    """

    form: Literal["modules", "same_logits"] = "modules"
    """Whether each further token has its own module, instead of the logits of the next token."""
    weights: tuple[float, ...] = Field(default=(0.3,), min_length=1, max_length=16)
    """Weight of the mean loss of each token after the next one, but for those that the loss of the task ignores."""

    @model_validator(mode="after")
    def _counts_each_token(self) -> Self:
        for index, weight in enumerate(self.weights):
            if weight <= 0:
                rule = "a token whose loss has no weight above 0 is not predicted"
                raise refusal(("weights", index), weight, rule, "Set it above 0, or leave it out.")
        return self


class HeadSpec(Spec):
    """What an encoder's tokens become: one vector (pooling), then a small MLP to the classes."""

    pooling: Literal["cls", "mean", "first"] = "cls"
    """`cls`: a learnt token before the first, to which no position is added; `mean`: over the real tokens; `first`: the
    first real token (what Long Range Arena's dual encoder reads)."""
    start: Literal["zero", "normal"] = "zero"
    """How the token of `cls` starts: at 0 (Long Range Arena's code), or as the model's initialiser says for embeddings
    (BERT)."""
    hidden: tuple[Annotated[int, Field(ge=1)], ...] = ()
    """Widths of hidden layers between the pooled vector and the classes."""
    activation: Literal["relu", "gelu", "silu"] = "gelu"
    """Nonlinearity of the hidden layers."""
    features: Literal["pair", "interaction"] = "pair"
    """Of a dual encoder: `pair` gives [a, b] to the classifier, `interaction` [a, b, a∘b, a-b]."""

    @model_validator(mode="after")
    def _has_a_token_to_start(self) -> Self:
        if self.start != "zero" and self.pooling != "cls":
            rule = "only `pooling: cls` has a token of its own to start"
            raise refusal(("start",), self.start, rule, "Leave `start` out, or set `pooling: cls`.")
        return self


class CrossSpec(Spec):
    """The decoder of an encoder-decoder: its depth, and the attention that reads the encoder's output."""

    depth: int = Field(ge=1, le=1000)
    """Number of decoder blocks."""
    mixer: Mixer
    """The mixer that reads keys and values from the encoder's output."""


class LoopSpec(Spec):
    """Layers `first` to `last`, passed through `times` times in a row with shared weights.

    One layer in a loop is ALBERT's sharing (arXiv:1909.11942); a loop in the middle is the core of a recurrent-depth
    model (arXiv:2502.05171).
    """

    first: int = Field(ge=0)
    """Index of the first layer, from 0."""
    last: int = Field(ge=0)
    """Index of the last layer."""
    times: int = Field(ge=2, le=1000)
    """Passes."""
