"""A quantity of a variant seed by seed, by its name: a final metric of its trials, or a figure of cost."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from ablate.analysis.runs import VariantRuns
from ablate.metrics import COSTS, TIMED
from ablate.stats import Direction
from ablate.store.records import StudyRecord, TrialRecord, VariantRecord

UNITS = {"flops": "FLOP", "activation_bytes": "bytes", "seconds": "s", "tokens_per_second": "tokens/s"}
"""Units of the figures of cost that have one."""
WORDS = {
    "flops": "training FLOP",
    "activation_bytes": "activation memory",
    "seconds": "seconds of training",
    "tokens_per_second": "tokens a second",
}
"""What figures of cost are called where a person reads them; all others by their name."""

_COST_OF: Mapping[str, Callable[[VariantRecord, TrialRecord], float | None]] = {
    "parameters": lambda variant, trial: variant.parameters,
    "activation_bytes": lambda variant, trial: variant.activation_bytes,
}


def values_of(quantity: str, variant: VariantRecord, runs: VariantRuns) -> dict[int, float]:
    """Seed to the quantity, over the trials that finished with a finite one.

    For what is timed, the rounds of the timing to it; empty if the variant was not timed (`ablate.analysis.speed`).
    """
    if quantity in TIMED:
        tokens = [sum(one.tokens for one in runs.whole(seed)) for seed in runs.finished]
        of_a_trial = math.fsum(tokens) / len(tokens) if tokens else 0.0
        return {
            number: rate if quantity == "tokens_per_second" else of_a_trial / rate
            for number, rate in sorted(runs.rates.items())
        }
    cost = _COST_OF.get(quantity)
    if quantity == "flops":  # of its stages too
        return {seed: sum(one.flops for one in runs.whole(seed)) for seed in sorted(runs.finished)}
    values = {
        seed: trial.metrics.get(quantity) if cost is None else cost(variant, trial)
        for seed, trial in runs.finished.items()
    }
    return {seed: float(value) for seed, value in sorted(values.items()) if value is not None and math.isfinite(value)}


def direction_of(quantity: str, record: StudyRecord) -> Direction | None:
    """Which way a quantity is better; None for a metric that is not the study's objective."""
    if quantity == record.objective["metric"]:
        direction: Direction = record.objective["direction"]
        return direction
    return COSTS.get(quantity)


def words_for(quantity: str) -> str:
    """What a quantity is called in a report."""
    return WORDS.get(quantity, quantity)
