"""The answer to a study's question in a few sentences, made from its verdicts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set

from ablate.stats import Verdict
from ablate.stats.bounds import LEAST_PAIRS
from ablate.stats.verdict import MOST_FURTHER_SEEDS

MOST_NAMES = 8
"""A sentence that lists more variants than this counts the rest."""


def answer_sentences(
    verdicts: Mapping[str, Verdict],
    pairs: Mapping[str, int],
    together: Set[str],
    metric: str,
    margin: float,
    complete: bool,
    scheduled: bool = False,
) -> tuple[str, ...]:
    """Which parts can go, which are needed, what is undecided and how many more seeds would settle it.

    Args:
        verdicts: Variant name to verdict, the baseline left out, in the order to name them.
        pairs: Variant name to the number of seeds that were compared with the baseline.
        together: Names of the variants whose verdicts hold together.
        metric: Name of the metric that was judged.
        margin: How much worse matters, in the unit of the metric.
        complete: Whether every planned trial has ended; if not, the answer says that it is provisional.
        scheduled: Whether the study adds seeds by a schedule, which then limits their number.
    """
    if not verdicts:
        return ("The study has no variant besides its baseline, so there is nothing to compare.",)
    sentences = []
    if names := [name for name, verdict in verdicts.items() if verdict.word == "not needed"]:
        sentences.append(f"What {_listed(names)} {_replace(names)} can go: {metric} at most {margin:g} worse.")
    if names := [name for name, verdict in verdicts.items() if verdict.word == "needed"]:
        sentences.append(f"What {_listed(names)} {_replace(names)} is needed: {metric} more than {margin:g} worse.")
    decided = [name for name, verdict in verdicts.items() if verdict.word in ("needed", "not needed")]
    if len(decided) > 1:
        sentences.append(_jointly(decided, together))
    if names := [name for name, verdict in verdicts.items() if verdict.word == "diverged"]:
        sentences.append(f"Training diverged with {_listed(names)}.")
    undecided = {name: verdict for name, verdict in verdicts.items() if verdict.word == "undecided"}
    if judged := [name for name in undecided if pairs[name] >= LEAST_PAIRS]:
        settle = _settle([undecided[name].further_seeds for name in judged], scheduled)
        sentences.append(f"Undecided: {_listed(judged)}; {settle}.")
    if too_few := [name for name in undecided if pairs[name] < LEAST_PAIRS]:
        sentences.append(
            f"Too few results to judge {_listed(too_few)}: at least {LEAST_PAIRS} paired seeds are required."
        )
    if not complete:
        sentences.append("Trials are still missing, so this may change.")
    return tuple(sentences)


def _jointly(decided: list[str], together: Set[str]) -> str:
    """Each verdict may be wrong once in twenty; whether they may be read as one statement, Holm's procedure says."""
    holding = [name for name in decided if name in together]
    if len(holding) == len(decided):
        return f"These {len(decided)} verdicts also hold together (Holm's procedure, 95 % for each word)."
    which = f"only {'that' if len(holding) == 1 else 'those'} on {_listed(holding)} would" if holding else "none would"
    return f"Each verdict holds by itself; read together at 95 % for each word, {which} (Holm's procedure)."


def _settle(further: list[int | None], scheduled: bool) -> str:
    within = [seeds for seeds in further if seeds is not None]
    most = "the schedule has" if scheduled else str(MOST_FURTHER_SEEDS)
    if not within:
        required = f"more seeds than {most}" if scheduled else f"more than {most} more seeds"
        return f"{required} would be required"
    seeds = f"about {max(within)} more {'seed' if max(within) == 1 else 'seeds'} would settle"
    if len(within) == len(further):
        return f"{seeds} it"
    return f"{seeds} {len(within)} of them, the others would require more than {most}"


def _listed(names: Iterable[str]) -> str:
    listed = list(names)
    if len(listed) > MOST_NAMES:
        listed = [*listed[:MOST_NAMES], f"{len(listed) - MOST_NAMES} others"]
    return listed[0] if len(listed) == 1 else f"{', '.join(listed[:-1])} and {listed[-1]}"


def _replace(names: list[str]) -> str:
    return "replaces" if len(names) == 1 else "replace"
