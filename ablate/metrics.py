"""Names of metrics and of costs.

A metric is named by the split that is measured and by what is measured, as in `val_loss` and `test_loss`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple, Self

Split = Literal["val", "test"]
"""`val`: the validation split, which decides what is better; `test`: read once, at the end, by reports alone."""


class Metric(NamedTuple):
    """A metric on a split.

    Attributes:
        name: What is measured: `loss`, `accuracy`.
        split: On which data; None for what is measured on none, as `seconds`.
    """

    name: str
    split: Split | None

    @classmethod
    def of(cls, written: str) -> Self:
        """The metric of a name such as `val_loss`."""
        split, underscore, name = written.partition("_")
        if underscore and split == "val":
            return cls(name, "val")
        if underscore and split == "test":
            return cls(name, "test")
        return cls(written, None)

    def on(self, split: Split) -> Self:
        """The same on another split."""
        return type(self)(self.name, split)

    def __str__(self) -> str:
        return self.name if self.split is None else f"{self.split}_{self.name}"


Way = Literal["minimize", "maximize"]

CACHE, PREFILL, DECODE = "cache_bytes_per_token", "prefill_tokens_per_second", "decode_tokens_per_second"
INFERENCE = frozenset({CACHE, PREFILL, DECODE})
"""Costs of reading and writing text with a decoder, which are measured where a space asks for them."""
COUNTED: Mapping[str, Way] = {
    "parameters": "minimize",
    "flops": "minimize",
    "activation_bytes": "minimize",
    CACHE: "minimize",
}
"""Costs that do not depend on the seed, nor on the machine."""
TIMED: Mapping[str, Way] = {
    "seconds": "minimize",
    "tokens_per_second": "maximize",
    PREFILL: "maximize",
    DECODE: "maximize",
}
"""Costs measured in turns with the baseline; they depend on the machine."""
COSTS: Mapping[str, Way] = {**COUNTED, **TIMED}
COST_MEANINGS: Mapping[str, str] = {
    "parameters": "trainable parameters",
    "flops": "arithmetic of training one trial",
    "activation_bytes": "bytes that one sequence keeps for the backward pass",
    "seconds": "seconds of training at the measured rate",
    "tokens_per_second": "training tokens a second, from steps in turns with the baseline",
    PREFILL: "tokens a second when a decoder reads one sequence of its whole context at once",
    DECODE: "tokens a second when it writes that sequence one by one, with the caches of its mixers",
    CACHE: "bytes of these caches at its end, over its tokens",
}

INSIDES: Mapping[str, str] = {
    "attention_entropy": "entropy of the attention weights of a query, in nats; mean over queries and heads",
    "first_token_share": "attention weight on the first token (a sink); mean over heads and all queries but the first",
    "largest_logit": "largest attention logit, before the softmax",
    "massive_activation": "largest over median magnitude of the entries of the residual stream",
    "kurtosis": "fourth standardised moment of the entries of the residual stream; 3 of a normal distribution",
    "effective_rank": "exp of the entropy of the normalised singular values of the stream, tokens by width",
    "depth_similarity": "cosine of the stream after a block with that before it; mean over tokens",
    "stream_rms": "root mean square of the entries of the residual stream",
    "gradient_rms": "root mean square of the gradient of the validation loss with respect to the residual stream",
    "update_ratio": "2-norm of the last change of the weights over that of the weights",
}
"""Measures of `training.insides`: of the output of a block, or of its mixer. Sources: attention entropy, Stabilizing
Transformer Training (arXiv:2303.06296); share of the first token, arXiv:2309.17453; massive activations,
arXiv:2402.17762; kurtosis, arXiv:2405.19279; effective rank, Roy & Vetterli, EUSIPCO 2007, definition 1."""
LARGEST = frozenset({"largest_logit", "massive_activation"})
"""Measures whose value of the model is the largest over its blocks; of all other measures it is the mean."""
OF_ATTENTION = frozenset({"attention_entropy", "first_token_share", "largest_logit"})
"""Those that only mixers with an attention matrix over all tokens have."""
NO_MATRIX = "no mixer of it computes an attention matrix over all tokens"
"""Why a model lacks them."""
INITIAL = ("stream_rms", "gradient_rms")
"""Those that are kept from before the first step too, as `inside_initial_stream_rms`."""
GROWTHS: Mapping[str, str] = {
    "forward_growth": "`stream_rms` after the last block over that before the first, before the first step",
    "backward_growth": "`gradient_rms` before the first block over that after the last, before the first step",
}


STACKS = ("block", "decoder block")
"""What a block is called in the names of metrics, by the stack that it is in."""
INSIDE = "inside_"
"""How the names of metrics of `training.insides` begin."""
INSIDE_INITIAL = f"{INSIDE}initial_"
"""How those begin that are measured before the first step."""


def inside_name(measure: str, block: str = "", *, initial: bool = False) -> str:
    """The name of a metric of `training.insides`, such as `inside_kurtosis` or `inside_kurtosis_block_2`.

    Args:
        measure: One of `INSIDES` or `GROWTHS`.
        block: A block such as `block 2` or `decoder block 1`; `block 0` is the input of the first. Empty: the model.
        initial: Before the first step.
    """
    return (INSIDE_INITIAL if initial else INSIDE) + "_".join((measure, *block.split()))


def inside_names(depth: int, *, late: bool = False) -> frozenset[str]:
    """All names of metrics of `training.insides` that a model of this depth may have.

    Args:
        depth: The number of blocks, of encoder and decoder each.
        late: Only those that are not known before the first step.
    """
    places = ["", *(f"{stack} {number}" for stack in STACKS for number in range(depth + 1))]
    if late:
        return frozenset(inside_name("update_ratio", place) for place in places)
    return frozenset(
        [
            *(inside_name(measure, place) for measure in INSIDES for place in places),
            *(inside_name(measure, place, initial=True) for measure in INITIAL for place in places),
            *(inside_name(measure, initial=True) for measure in GROWTHS),
        ]
    )


def rounded_loss(bits: int) -> str:
    """The name of the validation loss with weights rounded to so many bits (`training.rounded_bits`)."""
    return f"val_loss_int{bits}"


CURVE_METRIC = "val_loss"
"""The metric that curves hold at every evaluation."""
Measure = Literal["steps", "tokens", "flops", "seconds"]
"""In what the time to a target is measured (`ObjectiveSpec.measure`)."""


def time_to(measure: Measure, reach: float) -> str:
    """The name of the steps (tokens, FLOPs, seconds) of training until the validation loss reaches a target."""
    return f"{measure}_to_{reach:.12g}"


def at_length(metric: str, length: int) -> str:
    """The name of a metric at another length (`training.evaluate_at`), such as `val_accuracy_at_256`."""
    return f"{metric}_at_{length}"


def split_length(metric: str) -> tuple[str, int | None]:
    """A metric without its length, and the length; None for a metric at the trained length."""
    name, at, length = metric.rpartition("_at_")
    return (name, int(length)) if at and length.isdecimal() else (metric, None)


def no_metric(name: str, owner: str = "the task") -> str:
    """Why a space has no metric of this name, as the rule of a refusal."""
    if name.startswith(INSIDE):
        return f"`{name}` is not measured: metrics of this kind need `training.insides`, and a block that has it"
    return f"{owner} has no metric of this name"


def why_absent(metric: str) -> str:
    """Why a finished trial may lack a metric, as a clause; empty if nothing is known."""
    of_attention = any(metric.startswith(inside_name(measure)) for measure in OF_ATTENTION)
    return NO_MATRIX if of_attention else ""
