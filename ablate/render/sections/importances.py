"""Importances as a section of a report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ablate.analysis.findings import Findings
from ablate.analysis.importances import StudyImportances
from ablate.analysis.numbers import MISSING
from ablate.analysis.text import plural
from ablate.render.blocks import Block, Grid, Paragraph, Picture, Section
from ablate.stats import Importance


def section(findings: Findings, pictures: Mapping[str, Picture]) -> Section | None:
    """How much of the spread each switch and axis explains."""
    if findings.no_importances is not None:
        return Section("Importances", (Paragraph(findings.no_importances),))
    if findings.importances is None:
        return None
    return Section("Importances", tuple(_blocks(findings.importances, findings.report.metric, pictures)))


def _blocks(importances: StudyImportances, metric: str, pictures: Mapping[str, Picture]) -> Iterator[Block]:
    yield Paragraph(how_to_read(importances, metric))
    if "importances" in pictures:
        yield pictures["importances"]
    rows = tuple((one.factor, _percent(one.share), _range(one)) for one in importances.factors)
    rest = (("interactions and noise", _percent(importances.rest), MISSING),)
    yield Grid(("switch or axis", "share", "interval"), (rows, rest), frozenset({0}))


def how_to_read(importances: StudyImportances, metric: str) -> str:
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
