"""The answer to a study's question in a few sentences, made from its verdicts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import TYPE_CHECKING

from ablate.report.failures import first_line
from ablate.report.numbers import decimals_for, fixed
from ablate.report.text import plural
from ablate.stats import Direction, SeedSchedule, Verdict
from ablate.stats.bounds import LEAST_PAIRS
from ablate.stats.verdict import MOST_FURTHER_SEEDS

if TYPE_CHECKING:
    from ablate.report.study import VariantRow

MOST_NAMES = 8
"""A sentence that lists more variants than this counts the rest."""
ALONG = "@"
"""Stands in the names of variants that numbers were set in, before them: these replace no part."""


def answer_sentences(
    rows: Sequence[VariantRow],
    baseline: VariantRow,
    together: Set[str],
    metric: str,
    margin: float,
    complete: bool,
    schedule: SeedSchedule | None = None,
) -> tuple[str, ...]:
    """Which parts can go, which are needed, what is undecided and how many more seeds would settle it.

    Args:
        rows: The variants in the order to name them, the baseline left out or not.
        baseline: That of the study.
        together: Names of the variants whose verdicts hold together.
        metric: Name of the metric that was judged.
        margin: How much worse matters, in the unit of the metric.
        complete: Whether every planned trial has ended; if not, the answer says that it is provisional.
        schedule: How the study adds seeds, which then limits their number; None if it is fixed.
    """
    verdicts = {row.name: row.verdict for row in rows if row.verdict is not None}
    if not verdicts:
        return ("The study has no variant besides its baseline, so there is nothing to compare.",)
    sentences = [*_decided(verdicts, together, metric, margin)]
    if names := [name for name, verdict in verdicts.items() if verdict.word == "diverged"]:
        sentences.append(f"Training diverged with {listed(names)}.")
    undecided = [row for row in rows if row.verdict is not None and row.verdict.word == "undecided"]
    sentences += _undecided(undecided, baseline, schedule)
    if not complete:
        sentences.append("Trials are still missing, so this may change.")
    return tuple(sentences)


def best_sentence(rows: Sequence[VariantRow], metric: str, direction: Direction, margin: float) -> tuple[str, ...]:
    """Which of the points that a search tried has the best mean, as a sentence; none if no two have a mean."""
    means = {row.name: found.mean for row in rows if not row.diverged and (found := row.metrics.get(metric))}
    known = {name: mean for name, mean in means.items() if mean is not None}
    if len(known) < 2:
        return ()
    best = (min if direction == "minimize" else max)(known, key=known.__getitem__)
    mean = fixed(known[best], decimals_for(margin, ()))
    return (
        f"The best mean {metric} of {plural(len(known), 'point')} is that of {best}: {mean}. It was picked for it, so "
        "chance is on its side; train it with seeds of its own before you rely on the number.",
    )


def _decided(verdicts: Mapping[str, Verdict], together: Set[str], metric: str, margin: float) -> Iterator[str]:
    for word, end, distance in (("not needed", "can go", "at most"), ("needed", "is needed", "more than")):
        names = [name for name, verdict in verdicts.items() if verdict.word == word]
        if parts := [name for name in names if ALONG not in name]:
            yield f"What {listed(parts)} {_verb(parts, 'replace')} {end}: {metric} {distance} {margin:g} worse."
        if points := [name for name in names if ALONG in name]:
            are = "is" if len(points) == 1 else "are"
            yield f"{listed(points)} {are} surely {distance} {margin:g} worse in {metric} than the baseline."
    decided = [name for name, verdict in verdicts.items() if verdict.word in ("needed", "not needed")]
    if len(decided) > 1:
        yield _jointly(decided, together)


def _jointly(decided: list[str], together: Set[str]) -> str:
    """Each verdict may be wrong once in twenty; whether they may be read as one statement, Holm's procedure says."""
    holding = [name for name in decided if name in together]
    if len(holding) == len(decided):
        return f"These {len(decided)} verdicts also hold together (Holm's procedure, 95 % for each word)."
    which = f"only {'that' if len(holding) == 1 else 'those'} on {listed(holding)} would" if holding else "none would"
    return f"Each verdict holds by itself; read together at 95 % for each word, {which} (Holm's procedure)."


def _undecided(undecided: Sequence[VariantRow], baseline: VariantRow, schedule: SeedSchedule | None) -> Iterator[str]:
    least = schedule.start if schedule else LEAST_PAIRS
    judged = [row for row in undecided if _pairs(row) >= least]
    if rows := [row for row in judged if not _is_flat(row)]:
        further = [row.verdict.further_seeds for row in rows if row.verdict is not None]
        yield f"Undecided: {listed(row.name for row in rows)}; {_settle(further, schedule is not None)}."
    if rows := [row for row in judged if _is_flat(row)]:
        yield f"Undecided: {listed(row.name for row in rows)}; without any spread between seeds nothing can be tested."
    few: dict[str, list[str]] = {}
    for row in undecided:
        if _pairs(row) < least:
            few.setdefault(_why_few(row, baseline, least), []).append(row.name)
    for why, names in few.items():
        yield f"Too few results to judge {listed(names)}: {why}."


def _pairs(row: VariantRow) -> int:
    return 0 if row.difference is None else row.difference.n


def _is_flat(row: VariantRow) -> bool:
    return row.difference is not None and row.difference.is_flat


def _why_few(row: VariantRow, baseline: VariantRow, least: int) -> str:
    """Why a variant has too few pairs: what was lost, or else that they are not there yet."""
    lost = [*_lost("the baseline", baseline), *_lost("its trials", row)]
    return "; ".join(lost) or f"at least {least} paired seeds are required"


def _lost(whose: str, row: VariantRow) -> Iterator[str]:
    for happened, trials in (("diverged", row.diverged), ("failed", row.failed)):
        if trials:
            seeds = listed(str(trial.seed) for trial in trials)
            word = "seed" if len(trials) == 1 else "seeds"
            yield f"{whose} {happened} at {word} {seeds} ({first_line(trials[0].reason)})"


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


def listed(names: Iterable[str]) -> str:
    """`a, b and c`; beyond `MOST_NAMES` and one more the rest are counted."""
    found = list(names)
    if len(found) > MOST_NAMES + 1:  # that one more is as short as the count of it
        found = [*found[:MOST_NAMES], f"{len(found) - MOST_NAMES} others"]
    return found[0] if len(found) == 1 else f"{', '.join(found[:-1])} and {found[-1]}"


def _verb(names: Sequence[str], verb: str) -> str:
    return f"{verb}s" if len(names) == 1 else verb
