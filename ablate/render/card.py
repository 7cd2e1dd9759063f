"""The card of a model that is written for other programs: its block, data, cost, verdicts, and how to open it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ablate.spec.cost import Cost
from ablate.spec.training import TrainingSpec
from ablate.spec.variant import VariantSpec

PICTURE = "block.svg"
"""File of the block's picture, beside the card."""

_OPENED = {
    "decoder": ("A decoder", "AutoModelForCausalLM", "text-generation"),
    "encoder": ("An encoder", "AutoModelForMaskedLM", "fill-mask"),
    "encoder_decoder": ("An encoder-decoder", "AutoModelForSeq2SeqLM", "text2text-generation"),
}
"""Of a family: its name, the class that opens its models, and what the hub says that they are for."""


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What the card of a trial's model says beside its spec.

    Attributes:
        cost: Of the forward pass over one input of the longest.
        metrics: Final metrics.
        verdicts: What studies say of its variant, as sentences.
        native: Whether `transformers` opens it without the code of the folder.
        tokenizer: Whether the folder has a tokenizer.
        data: The address of its data, or the kind of its task.
    """

    key: str
    seed: int
    cost: Cost
    metrics: dict[str, float]
    verdicts: Sequence[str]
    native: bool
    tokenizer: bool
    data: str


def card(variant: VariantSpec, facts: ModelFacts) -> str:
    """The card as Markdown, with the header that the hub reads."""
    model, training = variant.model, variant.training
    trust = "" if facts.native else ", trust_remote_code=True"
    needs = (
        "It has the format of `transformers`."
        if facts.native
        else "Its modelling file builds it with `ablate`: `pip install ablate-blocks`."
    )
    family, opens, purpose = _OPENED[model.family]
    opened = [f"from transformers import {opens}{', AutoTokenizer' if facts.tokenizer else ''}"]
    opened.append(f'model = {opens}.from_pretrained("."{trust})')
    if facts.tokenizer:
        opened.append(f'tokenizer = AutoTokenizer.from_pretrained("."{trust})')  # otherwise it asks about the code
    metrics = [f"| {name} | {value:.6g} |" for name, value in sorted(facts.metrics.items())]
    verdicts = [f"- {sentence}" for sentence in facts.verdicts] or ["No study of the store compares it."]
    start = "random weights" if training.init_from is None else "trained weights (`init_from`)"
    lines = [
        "---",
        "library_name: transformers",
        f"pipeline_tag: {purpose}",
        "tags: [ablate]",
        "---",
        "",
        f"# Trial {facts.key[:12]}",
        "",
        f"{family} of {model.depth} blocks of width {model.width}, trained by `ablate`. {needs}",
        "",
        f"![One of its blocks]({PICTURE})",
        "",
        "```python",
        *opened,
        "```",
        "",
        "## Data and training",
        "",
        f"- Data: `{facts.data}`",
        f"- Task: {variant.task.kind_name()}, inputs of {variant.task.length} tokens",
        f"- {training.steps:,} steps of {_inputs(training)} by {training.optimizer.kind_name()} from {start}, "
        f"seed {facts.seed}",
        *([] if facts.tokenizer else ["- Its tokenizer has no form that `transformers` reads; use `ablate generate`."]),
        "",
        "## Cost",
        "",
        f"- {facts.cost.parameters:,} parameters",
        f"- {facts.cost.flops:,.0f} FLOPs for the forward pass over {variant.task.length} tokens",
        "",
        "## Results",
        "",
        "| metric | value |",
        "|---|---|",
        *metrics,
        "",
        "Verdicts on its variant:",
        "",
        *verdicts,
        "",
    ]
    return "\n".join(lines)


def _inputs(training: TrainingSpec) -> str:
    """What a batch holds, in words."""
    size = f"{training.batch_size} inputs" if training.batch_growth is None else f"up to {training.batch_size} inputs"
    return size if training.context_growth is None else f"{size}, which grow to this length,"
