"""The best trivial baseline of a study: what its objective's metric is without learning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ablate.stats import Direction


@dataclass(frozen=True, slots=True)
class TrivialBaseline:
    """A rule that learns nothing, such as always the most frequent label.

    Attributes:
        name: What the task calls it.
        metric: The objective's.
        value: Of the metric.
    """

    name: str
    metric: str
    value: float

    def beats(self, value: float, direction: Direction) -> bool:
        """Whether a model with this value is no better."""
        return self.value <= value if direction == "minimize" else self.value >= value


def best_trivial(
    trivial: Mapping[str, Mapping[str, float]], metric: str, direction: Direction
) -> TrivialBaseline | None:
    """The best of the trivial baselines that have the metric; None if none has (or an older ablate stored none)."""
    found = [TrivialBaseline(name, metric, metrics[metric]) for name, metrics in trivial.items() if metric in metrics]
    if not found:
        return None
    best = min if direction == "minimize" else max
    return best(found, key=lambda baseline: baseline.value)


def warning(best: TrivialBaseline | None, baseline: float | None, direction: Direction) -> tuple[str, ...]:
    """A sentence for an answer whose baseline has learnt nothing worth comparing; none if it has.

    Args:
        best: The best trivial baseline, if there is one.
        baseline: Mean of the objective's metric over the seeds of the baseline, None before it has one.
        direction: Whether a smaller or a larger metric is better.
    """
    if best is None or baseline is None or not best.beats(baseline, direction):
        return ()
    return (
        f"The baseline ({best.metric} {baseline:.4g}) does not beat the trivial baseline, {best.name} "
        f"({best.value:.4g}): a comparison of models that have learnt so little says little.",
    )
