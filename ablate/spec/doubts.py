"""What a valid space may not mean: it is allowed, and said before anything is trained."""

from __future__ import annotations

from collections.abc import Iterator

from ablate.spec.space import SpaceSpec

_THE_LESS_THE_BETTER = ("loss", "perplexity")


def doubts(space: SpaceSpec) -> Iterator[str]:
    """A sentence or two for each, with the key that it is about and the way out."""
    if space.design.seeds == 1:
        yield (
            "`design.seeds`: with one seed nothing shows the noise, so that every verdict will be `undecided`. "
            "Set `seeds: 3` or more."
        )
    objective = space.objective
    if objective.direction == "maximize" and objective.metric.endswith(_THE_LESS_THE_BETTER):
        yield (
            f"`objective.direction`: `{objective.metric}` is the better the smaller it is, and is to be maximised "
            "here. Set `direction: minimize`."
        )
