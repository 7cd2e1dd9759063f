"""Models of the named blocks: not every mixer can hide the future, and not every one sees both sides."""

from __future__ import annotations

from typing import Any

from ablate.spec.block import BlockSpec
from ablate.spec.named import named_block


def a_family_for(name: str) -> str:
    """A family that the named block can be in: `decoder` wherever its mixer has a causal form."""
    block = BlockSpec.model_validate(named_block(name).block)
    return "decoder" if block.mixer.causal_form else "encoder"


def without_dropout(name: str) -> dict[str, Any]:
    """Family, block and exceptions of a model of the named block, in which nothing is random."""
    named = named_block(name)
    return {"family": a_family_for(name), "block": {**named.block, "dropout": 0}, "exceptions": named.exceptions}
