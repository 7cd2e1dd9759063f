"""Warnings on valid spaces that are probably not intended."""

from __future__ import annotations

from collections.abc import Iterator

from ablate.spec.space import SpaceSpec

_SMALLER_IS_BETTER = ("loss", "perplexity")


def doubts(space: SpaceSpec) -> Iterator[str]:
    """Warnings in one or two sentences, with the key and a remedy."""
    if space.design.seeds == 1 and space.training.steps:
        yield (
            "`design.seeds`: with one seed the noise is unknown, so every verdict will be `undecided`. "
            "Set `seeds: 3` or more."
        )
    objective = space.objective
    if objective.direction == "maximize" and objective.metric.endswith(_SMALLER_IS_BETTER):
        yield (
            f"`objective.direction`: smaller values of `{objective.metric}` are better, but it is maximised "
            "here. Set `direction: minimize`."
        )
