"""Main effects and interactions as a section of a report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ablate.analysis.effects import EffectRow, StudyEffects
from ablate.analysis.findings import Findings
from ablate.analysis.numbers import MISSING, decimals_for, fixed
from ablate.analysis.text import plural
from ablate.render.blocks import Block, Grid, Paragraph, Picture, Section

MOST_INTERACTIONS = 20
"""Interactions that the table shows, the largest ones."""
MOST_UNSEEN = 8


def section(findings: Findings, pictures: Mapping[str, Picture]) -> Section | None:
    """What each switch does on average over the others."""
    if findings.effects is None:
        return None
    return Section("Effects", tuple(_blocks(findings.effects, pictures)))


def _blocks(found: StudyEffects, pictures: Mapping[str, Picture]) -> Iterator[Block]:
    yield Paragraph(how_to_read(found))
    yield from (pictures[name] for name in ("effects", "interactions") if name in pictures)
    rows = (*found.main, *found.interactions)
    decimals = decimals_for(
        found.margin, [(row.high - row.low) / 2 for row in rows if row.low is not None and row.high]
    )
    largest = sorted(found.interactions, key=lambda row: -abs(row.estimate))[:MOST_INTERACTIONS]
    aliased = any(row.aliases for row in rows)
    titles = ("effect", "change", "95 % interval", *(("cannot be told from",) if aliased else ()))
    groups = tuple(
        tuple(_cells(row, decimals)[: len(titles)] for row in group) for group in (found.main, largest) if group
    )
    yield Grid(titles, groups, frozenset({0, 3}) & frozenset(range(len(titles))))
    if rest := what_is_left(found, len(largest)):
        yield Paragraph(rest)


def how_to_read(found: StudyEffects) -> str:
    """What the numbers are, in sentences."""
    worse = "above" if found.direction == "minimize" else "below"
    said = (
        f"A main effect is how much {found.metric} changes from a switch's first setting to the one named, averaged "
        "over all settings of the other switches; an interaction (a:b) is how much the first of two effects changes "
        f"when the second is there too. Changes {worse} 0 are for the worse; the study's margin is {found.margin:g}. "
        f"Least squares over {plural(found.trials, 'trial')} with seeds as blocks; each 95 % interval holds by itself."
    )
    if any(row.aliases for row in (*found.main, *found.interactions)):
        said += (
            " Effects in the last column cannot be told from the one before them: the change is what all of them do "
            "together, and a design of higher resolution would part them."
        )
    if found.diverged:
        count = "counts" if found.diverged == 1 else "count"
        said += (
            f" {plural(found.diverged, 'trial')} that diverged {count} as {found.counted_as:.4g}, the worst "
            f"{found.metric} with which any trial finished: leaving them out would flatter what made them diverge."
        )
    return said


def _cells(row: EffectRow, decimals: int) -> tuple[str, ...]:
    interval = MISSING
    if row.low is not None and row.high is not None:
        interval = f"{fixed(row.low, decimals, sign=True)} to {fixed(row.high, decimals, sign=True)}"
    return row.name, fixed(row.estimate, decimals, sign=True), interval, ", ".join(row.aliases) or MISSING


def what_is_left(found: StudyEffects, shown: int) -> str:
    """What the estimates leave out, in sentences; empty if nothing.

    Args:
        found: The effects.
        shown: How many interactions are shown beside it.
    """
    said = []
    if found.chosen:
        said.append("The design chose its variants by results, so settings that did well occur in more of them.")
    if found.pruned:
        said.append(
            f"Left out, as they have no final value: {plural(found.pruned, 'trial')} stopped early, so that what is "
            "shown is milder than the truth."
        )
    if found.interactions_left_out:
        said.append(
            "The variants are too few to tell interactions from one another: they are not estimated, and where there "
            "are any they widen the intervals and may shift the main effects."
        )
    if len(found.interactions) > shown:
        said.append(f"Left out of the table: {plural(len(found.interactions) - shown, 'smaller interaction')}.")
    if found.unseen:
        more = f" and {len(found.unseen) - MOST_UNSEEN} more" if len(found.unseen) > MOST_UNSEEN else ""
        said.append(f"No trained combination shows {', '.join(found.unseen[:MOST_UNSEEN])}{more}.")
    if found.axes:
        said.append(f"The variants also differ in {', '.join(found.axes)}; what that does is part of the noise here.")
    if found.sd is None:
        said.append("There are as many effects as trials, so nothing is left to see the noise from: no intervals.")
    return " ".join(said)
