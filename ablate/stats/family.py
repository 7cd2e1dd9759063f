"""Multiple comparisons: which verdicts of a study hold jointly.

Each verdict answers a question of its own, declared with its margin, with an error rate of 5 %. A sentence that joins
several ("a, b and c can be removed") is wrong if one of them is. So the verdicts of a study form three families: all
its comparisons with the baseline tested for `needed` (or `worse`), all tested for `not needed` (or `not worse`), and
all tested for `better`. In each family Holm's procedure determines which verdicts hold jointly: it bounds the
family-wise error rate by 5 %, whatever the truth and however the comparisons depend on one another (they share the
baseline's trials).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TypeVar

from ablate.stats.schedule import ERROR
from ablate.stats.verdict import Verdict

Name = TypeVar("Name", bound=Hashable)


def holm(p_values: Mapping[Name, float], family: int | None = None) -> dict[Name, float]:
    """Holm's adjusted p-values: reject where they lie below an error rate, and it holds for the family.

    Args:
        p_values: By the name of each comparison.
        family: How many comparisons there are, where some that cannot be rejected (p-value 1) are not among these.
    """
    size, least = len(p_values) if family is None else family, 0.0
    adjusted: dict[Name, float] = {}
    for rank, name in enumerate(sorted(p_values, key=p_values.__getitem__)):
        least = max(least, min(1.0, (size - rank) * p_values[name]))
        adjusted[name] = least
    return {name: adjusted[name] for name in p_values}


def hold_together(verdicts: Mapping[str, Verdict], error: float = ERROR) -> frozenset[str]:
    """Names of the decided verdicts that hold together, over all comparisons of a study.

    Comparisons that are undecided or diverged count as members of every family.
    """
    worse = holm({name: verdict.p_needed for name, verdict in verdicts.items()})
    acceptable = holm({name: verdict.p_not_needed for name, verdict in verdicts.items()})
    better = holm({name: verdict.p_better for name, verdict in verdicts.items()})

    def adjusted(name: str, verdict: Verdict) -> float:
        if verdict.word == "better":
            return better[name]
        return worse[name] if verdict.is_worse else acceptable[name] if verdict.is_acceptable else 1.0

    return frozenset(name for name, verdict in verdicts.items() if adjusted(name, verdict) <= error)
