"""Honest statistics of paired seeds: intervals, paired differences and verdicts. Plain numbers in and out."""

from ablate.stats.paired import Interval, PairedDifference, mean_interval, paired_difference
from ablate.stats.verdict import Direction, Verdict, Word, judge

__all__ = [
    "Direction",
    "Interval",
    "PairedDifference",
    "Verdict",
    "Word",
    "judge",
    "mean_interval",
    "paired_difference",
]
