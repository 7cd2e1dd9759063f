"""Honest statistics: intervals, paired differences, verdicts, schedules, effects, fronts. Plain numbers in and out."""

from ablate.stats.bounds import Allowance, Bounds, bounds, over_looks
from ablate.stats.effects import (
    Configuration,
    Effect,
    Effects,
    Factor,
    Importance,
    Observation,
    Term,
    estimate_effects,
    importances,
)
from ablate.stats.hidden_noise import Tails, tails_at_looks, tails_of
from ablate.stats.paired import (
    Interval,
    PairedDifference,
    SignFlip,
    mean_interval,
    paired_difference,
    sign_flip,
    summarise,
    unpaired_difference,
)
from ablate.stats.schedule import ExtendedSeeds, SeedPlan, SeedSchedule, seeds_declared
from ablate.stats.verdict import Direction, Verdict, Word, dominators, hold_together, holm, judge, need_more_seeds

__all__ = [
    "Allowance",
    "Bounds",
    "Configuration",
    "Direction",
    "Effect",
    "Effects",
    "ExtendedSeeds",
    "Factor",
    "Importance",
    "Interval",
    "Observation",
    "PairedDifference",
    "SeedPlan",
    "SeedSchedule",
    "SignFlip",
    "Tails",
    "Term",
    "Verdict",
    "Word",
    "bounds",
    "dominators",
    "estimate_effects",
    "hold_together",
    "holm",
    "importances",
    "judge",
    "mean_interval",
    "need_more_seeds",
    "over_looks",
    "paired_difference",
    "seeds_declared",
    "sign_flip",
    "summarise",
    "tails_at_looks",
    "tails_of",
    "unpaired_difference",
]
