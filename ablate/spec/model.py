"""`ModelSpec`: a stack of blocks with embedding and head."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Self

from pydantic import ModelWrapValidatorHandler, ValidationError, ValidationInfo, model_validator

from ablate.spec.base import below, cached_structure, refusal
from ablate.spec.block import BlockSpec
from ablate.spec.layer import (
    LayerContext,
    ParameterInfo,
    PartSpec,
    PositionSpec,
    RateScaling,
    StepGrowth,
)
from ablate.spec.model_fields import ModelFields
from ablate.spec.model_rules import check_model
from ablate.spec.named import expand_block, expand_model


class ModelSpec(ModelFields):
    """A model: `depth` blocks of one spec, with exceptions for the layers that differ."""

    @model_validator(mode="before")
    @classmethod
    def _name_a_model_or_block(cls, value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, str) or (isinstance(value, dict) and isinstance(value.get("name"), str)):
            value = expand_model(value, (info.context or {}).get("folders", ()))
        if isinstance(value, dict) and isinstance(value.get("block"), str):
            return expand_block(value, (info.context or {}).get("folders", ()))
        return value

    @model_validator(mode="wrap")
    @classmethod
    def _is_a_model(cls, value: Any, validate: ModelWrapValidatorHandler[Self]) -> Self:
        if isinstance(value, cls):
            return value  # it is frozen, and was checked when it was made
        model = validate(value)
        check_model(model)
        return model

    def check_documents(self) -> None:
        """Refuse what cannot keep the documents of one window apart.

        Raises:
            ValidationError: With the path below this spec.
        """
        for placed in self.placed_mixers():
            if not placed.mixer.separates_documents():
                raise refusal(
                    (*placed.mixer_home, "kind"),
                    placed.mixer.kind_name(),
                    f"the task has `separate_documents`, and {placed.mixer.kind_name()} with these settings cannot keep"
                    " documents apart",
                    "Use attention (with `matmul_order: qk_first`), differential_attention or latent_attention, or"
                    " leave `separate_documents` out.",
                )
        for name in ("bigram", "smear", "multi_token"):
            if getattr(self, name) is not None:
                raise refusal(
                    (name,),
                    getattr(self, name),
                    f"the task has `separate_documents`, and `{name}` reads neighbours across documents",
                    f"Leave `{name}` out, or leave `separate_documents` out.",
                )

    def check_context(self, context: int, length: int | None = None) -> None:
        """Refuse a longest input that a part of this model cannot work on.

        Args:
            context: The longest input in tokens that the model is built for.
            length: The longest one that it reads; unless given, the same.

        Raises:
            ValidationError: With the path below this spec.
        """
        shortest = context if length is None else min(length, context)
        if self.multi_token is not None and len(self.multi_token.weights) >= shortest:
            raise refusal(
                ("multi_token", "weights"),
                list(self.multi_token.weights),
                f"an input of {shortest} tokens has no token so far after the next one",
                f"Give at most {shortest - 1} weights." if shortest > 1 else "Leave `multi_token` out.",
            )
        for home, part, its_context in self._parts_that_read(context):
            try:
                part.check(its_context)
                _check_length(part, its_context, context, length)
            except ValidationError as error:
                raise below(home, error) from None

    def longest_input(self, context: int) -> int | None:
        """The longest input in tokens that the model, built for this context, can read; None if there is no limit."""
        limits = ((part.longest_input(its), its.context) for _, part, its in self._parts_that_read(context))
        return min((longest - its + context for longest, its in limits if longest is not None), default=None)

    @property
    def incremental_limit(self) -> int | None:
        """Tokens up to which a text can be read token by token; longer ones are read anew. None: without limit."""
        own = (placed for placed in self.placed_mixers() if not placed.cross)
        limits = (placed.positions(self.positions)[0].incremental_limit for placed in own)
        return min((limit for limit in limits if limit is not None), default=None)

    def _parts_that_read(self, context: int) -> Iterator[tuple[tuple[str, ...], PartSpec | PositionSpec, LayerContext]]:
        """Every part that may depend on the length of inputs, with its place in this spec and its context."""
        if self.positions.applied == "embedding":
            yield ("positions",), self.positions, replace(self.layer_context(context), context=context)
        for placed in self.placed_mixers():
            layer_context = self.layer_context(context, layer=placed.layer, causal=placed.causal, cross=placed.cross)
            yield placed.mixer_home, placed.mixer, layer_context
            if not placed.cross:
                yield (*placed.home, "mlp"), placed.block.mlp, layer_context
                yield (*placed.home, "residual"), placed.block.residual, layer_context
            if layer_context.positions is not None:
                its_context = placed.mixer.positions_context(layer_context)
                yield placed.positions(self.positions)[1], layer_context.positions, its_context

    def rate_scaling(self, parameter: ParameterInfo, growth: StepGrowth | None) -> RateScaling:
        """What the options of an optimizer whose steps grow so are multiplied by for a parameter."""
        return RateScaling() if growth is None else self.initialiser.scaling(parameter, growth, self.layer_context(1))

    def canonical(self) -> Any:
        """As any spec, but `depth`, `exceptions` and `pattern` are written as runs of equal layers.

        So is `block`, but that it stays beside them where a decoder is made of it.
        """
        plain = super().canonical()
        plain_block = plain["block"]
        runs: list[list[Any]] = []
        for _, same in itertools.groupby(self.blocks, key=id):  # layers without an exception share one spec
            block, *others = same
            layer = plain_block if block is self.block else block.canonical()
            if runs and runs[-1][1] == layer:
                runs[-1][0] += 1 + len(others)
            else:
                runs.append([1 + len(others), layer])
        for name in ("depth", "exceptions", "pattern", *(() if self.decoder is not None else ("block",))):
            plain.pop(name, None)
        for name in ("final_norm", "positions"):  # a kind with its defaults is written as its name
            if name in plain and plain[name].keys() == {"kind"}:
                plain[name] = plain[name]["kind"]
        if self.head_width is not None and self.head_width * self.heads == self.width:
            del plain["head_width"]
        plain["layers"] = runs
        return plain

    def structure(self) -> Any:
        """As any spec, layer by layer."""
        plain = super().structure()
        for name in ("depth", "exceptions", "pattern", *(() if self.decoder is not None else ("block",))):
            del plain[name]
        plain["layers"] = [cached_structure(block) for block in self.blocks]
        return plain

    def specs_beside(self) -> tuple[BlockSpec, ...]:
        """The blocks of layers that differ."""
        return self.blocks if self.exceptions or self.pattern else ()

    @property
    def fusable(self) -> bool:
        """Whether trials of this model can be members of one pack: every part keeps the pack axis apart."""
        return all(
            placed.mixer.pack_aware and placed.block.mlp.pack_aware and placed.block.residual.pack_aware
            for placed in self.placed_mixers()
        )


def _check_length(part: PartSpec | PositionSpec, its: LayerContext, context: int, length: int | None) -> None:
    """Refuse inputs that are longer than a part can read; `length` is asked for by `training.evaluate_at`."""
    longest, asked, extra = part.longest_input(its), length or context, its.context - context
    if longest is None or asked + extra <= longest:
        return
    by = "inputs have up to" if length is None else "`training.evaluate_at` asks for"
    field = part.length_field
    raise refusal(
        (field or "kind",),
        getattr(part, field or "kind"),
        f"{part.kind_name()} can read at most {longest - extra} tokens, and {by} {asked}",
        f"Set `{field}` to at least {asked + extra}{'' if length else ', or leave it out'}."
        if field
        else f"Choose another kind, or lengths of at most {longest - extra} tokens.",
    )
