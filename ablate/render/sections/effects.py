"""Main effects and interactions, and importances, as sections of a report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ablate.analysis.effects import EffectRow, StudyEffects, StudyImportances
from ablate.analysis.findings import Findings
from ablate.analysis.numbers import MISSING, decimals_for, fixed
from ablate.analysis.text import plural
from ablate.render.blocks import Block, Grid, Paragraph, Picture, Section
from ablate.stats import Importance

MOST_INTERACTIONS = 20
"""Interactions that the table shows, the largest ones."""
MOST_UNSEEN = 8


def section(findings: Findings, pictures: Mapping[str, Picture]) -> Section | None:
    """What each switch does on average over the others."""
    if findings.effects is None:
        return None
    return Section("Effects", tuple(_blocks(findings.effects, pictures)))


def _blocks(effects: StudyEffects, pictures: Mapping[str, Picture]) -> Iterator[Block]:
    yield Paragraph(how_to_read(effects))
    yield from (pictures[name] for name in ("effects", "interactions") if name in pictures)
    rows = (*effects.main, *effects.interactions)
    decimals = decimals_for(
        effects.margin, [(row.high - row.low) / 2 for row in rows if row.low is not None and row.high]
    )
    largest = sorted(effects.interactions, key=lambda row: -abs(row.estimate))[:MOST_INTERACTIONS]
    aliased = any(row.aliases for row in rows)
    titles = ("effect", "change", "95 % interval", *(("aliased with",) if aliased else ()))
    groups = tuple(
        tuple(_cells(row, decimals)[: len(titles)] for row in group) for group in (effects.main, largest) if group
    )
    yield Grid(titles, groups, frozenset({0, 3}) & frozenset(range(len(titles))))
    if rest := what_is_left(effects, len(largest)):
        yield Paragraph(rest)


def how_to_read(effects: StudyEffects) -> str:
    """What the numbers are, in sentences."""
    worse = "above" if effects.direction == "minimize" else "below"
    said = (
        f"A main effect is how much {effects.metric} changes from a switch's first setting to the one named, averaged "
        "over all settings of the other switches; an interaction (a:b) is how much the first of two effects changes "
        f"when the second setting is also active. Changes {worse} 0 are worse; the study's margin is "
        f"{effects.margin:g}. Least squares over {plural(effects.trials, 'trial')} with seeds as blocks; the 95 % "
        "intervals are not adjusted for one another."
    )
    if any(row.aliases for row in (*effects.main, *effects.interactions)):
        said += (
            " Effects in the last column are aliased with the effect of their row: the estimate is of their sum. A "
            "design of higher resolution separates them."
        )
    if effects.diverged:
        count = "counts" if effects.diverged == 1 else "count"
        said += (
            f" {plural(effects.diverged, 'trial')} that diverged {count} as {effects.counted_as:.4g}, the worst "
            f"{effects.metric} of any finished trial. To leave them out would favour the settings that diverge."
        )
    return said


def _cells(row: EffectRow, decimals: int) -> tuple[str, ...]:
    interval = MISSING
    if row.low is not None and row.high is not None:
        interval = f"{fixed(row.low, decimals, sign=True)} to {fixed(row.high, decimals, sign=True)}"
    return row.name, fixed(row.estimate, decimals, sign=True), interval, ", ".join(row.aliases) or MISSING


def what_is_left(effects: StudyEffects, shown: int) -> str:
    """What the estimates leave out, in sentences; empty if nothing.

    Args:
        effects: The effects.
        shown: How many interactions are shown beside it.
    """
    said = []
    if effects.chosen:
        said.append("The design chose its variants by results, so settings that did well occur in more of them.")
    if effects.pruned:
        said.append(
            f"Left out, as they have no final value: {plural(effects.pruned, 'trial')} stopped early, so effects are "
            "underestimated."
        )
    if effects.interactions_left_out:
        said.append(
            "There are too few variants to estimate interactions. Existing interactions widen the intervals and may "
            "bias the main effects."
        )
    if len(effects.interactions) > shown:
        said.append(f"Left out of the table: {plural(len(effects.interactions) - shown, 'smaller interaction')}.")
    if effects.unseen:
        more = f" and {len(effects.unseen) - MOST_UNSEEN} more" if len(effects.unseen) > MOST_UNSEEN else ""
        said.append(f"No trained combination identifies {', '.join(effects.unseen[:MOST_UNSEEN])}{more}.")
    if effects.axes:
        said.append(f"The variants also differ in {', '.join(effects.axes)}; these effects are part of the noise here.")
    if effects.sd is None:
        said.append("There are as many effects as trials, so no degrees of freedom remain for intervals.")
    return " ".join(said)


def importances_section(findings: Findings, pictures: Mapping[str, Picture]) -> Section | None:
    """How much of the spread each switch and axis explains."""
    if findings.no_importances is not None:
        return Section("Importances", (Paragraph(findings.no_importances),))
    if findings.importances is None:
        return None
    return Section("Importances", tuple(_importance_blocks(findings.importances, findings.report.metric, pictures)))


def _importance_blocks(importances: StudyImportances, metric: str, pictures: Mapping[str, Picture]) -> Iterator[Block]:
    yield Paragraph(how_to_read_importances(importances, metric))
    if "importances" in pictures:
        yield pictures["importances"]
    rows = tuple((one.factor, _percent(one.share), _range(one)) for one in importances.factors)
    rest = (("interactions and noise", _percent(importances.rest), MISSING),)
    yield Grid(("switch or axis", "share", "interval"), (rows, rest), frozenset({0}))


def how_to_read_importances(importances: StudyImportances, metric: str) -> str:
    """What the shares are, in sentences."""
    count = "counts" if importances.diverged == 1 else "count"
    diverged = (
        f" {plural(importances.diverged, 'diverged trial')} {count} as the worst that finished."
        if importances.diverged
        else ""
    )
    pruned = f" Left out: {plural(importances.pruned, 'trial')} stopped early." if importances.pruned else ""
    if any(one.low is not None for one in importances.factors):
        interval = (
            "The interval is that of the share without noise, from simulated studies with the noise of these "
            f"{plural(importances.seeds, 'seed')}."
        )
    else:
        interval = "There are too few seeds to estimate the noise, so there are no intervals: shares may be noise."
    return (
        f"How much of the variance of {metric} over the whole space each switch or axis explains by itself (fANOVA: a "
        f"random forest over {importances.variants} variants). The rest is interactions and noise. "
        f"{interval}{diverged}{pruned}"
    )


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _range(one: Importance) -> str:
    if one.low is None or one.high is None:
        return MISSING
    return f"{100 * one.low:.0f} to {100 * one.high:.0f} %"
