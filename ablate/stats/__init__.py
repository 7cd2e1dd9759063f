"""Honest statistics: intervals, paired differences, verdicts, schedules, effects, fronts. Plain numbers in and out."""

from ablate.stats.bounds import Bounds, bounds
from ablate.stats.effects import Effect, Effects, Observation, Term, estimate_effects
from ablate.stats.family import hold_together, holm
from ablate.stats.front import dominators
from ablate.stats.importance import Configuration, Factor, Importance, importances
from ablate.stats.paired import Interval, PairedDifference, mean_interval, paired_difference, summarise
from ablate.stats.schedule import SeedSchedule
from ablate.stats.sequential import need_more_seeds
from ablate.stats.signs import SignFlip, sign_flip
from ablate.stats.verdict import Direction, Verdict, Word, judge

__all__ = [
    "Bounds",
    "Configuration",
    "Direction",
    "Effect",
    "Effects",
    "Factor",
    "Importance",
    "Interval",
    "Observation",
    "PairedDifference",
    "SeedSchedule",
    "SignFlip",
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
    "paired_difference",
    "sign_flip",
    "summarise",
]
