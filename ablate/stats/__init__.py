"""Honest statistics of paired seeds: intervals, paired differences, verdicts, schedules. Plain numbers in and out."""

from ablate.stats.bounds import Bounds, bounds
from ablate.stats.family import hold_together, holm
from ablate.stats.paired import Interval, PairedDifference, mean_interval, paired_difference, summarise
from ablate.stats.schedule import SeedSchedule
from ablate.stats.sequential import need_more_seeds
from ablate.stats.signs import SignFlip, sign_flip
from ablate.stats.verdict import Direction, Verdict, Word, judge

__all__ = [
    "Bounds",
    "Direction",
    "Interval",
    "PairedDifference",
    "SeedSchedule",
    "SignFlip",
    "Verdict",
    "Word",
    "bounds",
    "hold_together",
    "holm",
    "judge",
    "mean_interval",
    "need_more_seeds",
    "paired_difference",
    "sign_flip",
    "summarise",
]
