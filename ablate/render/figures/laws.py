"""A ladder: the scaling laws of the baseline and of each variant through their rungs, and as far as they are
extrapolated.
"""

from __future__ import annotations

from collections.abc import Mapping

from ablate.analysis.findings import Findings
from ablate.analysis.ladder import Climb, losses_by_rung, speedup_text
from ablate.analysis.numbers import MISSING, fixed
from ablate.analysis.report import StudyReport
from ablate.render.blocks import Grid, Paragraph, Picture, Section
from ablate.render.figures.style import (
    WIDTH,
    Palette,
    Spec,
    by_look,
    far_off,
    mark,
    number,
    omission,
    panels,
)
from ablate.spec.design import BASELINE

POINTS = 40
"""Points of a drawn law."""
MOST_PANELS = 24
"""Variants beyond this number are not drawn."""
VARIANT = "variant"


def pictures(findings: Findings) -> tuple[Picture, ...]:
    """The laws of a ladder."""
    climbs = findings.report.climbs
    if climbs is None or not has_laws(findings.report):
        return ()
    shown, far = _drawn(findings.report)
    hidden = len(_fitted(findings.report)) - len(shown) - len(far)
    return (
        Picture(
            "laws",
            f"{findings.report.metric} against training compute, both logarithmic: means with 95 % intervals over "
            f"seeds, and the fitted laws up to {climbs.times:g} times the compute of the largest rung, or to that "
            f"rung where nothing is extrapolated.{omission(far, hidden)}",
        ),
    )


def has_laws(report: StudyReport) -> bool:
    """Whether a law is fitted to any variant."""
    return bool(_fitted(report))


def _fitted(report: StudyReport) -> list[Climb]:
    return [] if report.climbs is None else [one for one in report.climbs.of if one.ladder is not None]


def _drawn(report: StudyReport) -> tuple[list[Climb], list[str]]:
    """The variants that are drawn, and those that are left out because they lie far off."""
    fitted = _fitted(report)
    differences = {one.scaling.variant: [point.difference.difference for point in one.scaling.points] for one in fitted}
    far = far_off(differences, report.margin)
    return [one for one in fitted if one.scaling.variant not in far][:MOST_PANELS], far


def draw_laws(report: StudyReport, palette: Palette, width: float = WIDTH) -> Spec:
    """A panel for each variant, beside the baseline, all with the same axes."""
    means = {other.record.name: other.metrics for other in report.other_lengths}
    means |= {row.name: row.metrics for row in report.variants}
    rows, titles = list[Spec](), report.titles
    for one in _drawn(report)[0]:
        panel = titles.get(one.scaling.variant, one.scaling.variant)
        ladder, places = one.ladder, one.scaling.points
        assert ladder is not None, "only fitted laws are drawn"
        assert report.scaling is not None
        rungs = [report.scaling.places.index(point.at) + 1 for point in places]
        end = places[-1].at if one.refusal else ladder.target
        for name, law, of in ((BASELINE, ladder.baseline, BASELINE), (VARIANT, ladder.variant, one.scaling.variant)):
            for step in range(POINTS + 1):
                compute = places[0].at * (end / places[0].at) ** (step / POINTS)
                rows.append({"panel": panel, "name": name, "compute": compute, "law": law.loss(compute)})
            for point, mean in zip(places, losses_by_rung(means, of, report.metric, rungs), strict=True):
                if mean is not None:
                    rows.append({"panel": panel, "name": name, "compute": point.at, "mean": mean.mean,
                                 "low": mean.low, "high": mean.high})  # fmt: skip
    plain = palette.variants(report.record)[report.record.baseline]
    looks = by_look("name", {BASELINE: plain, VARIANT: palette.look(0)}, "color", "shape")
    computes = [row["compute"] for row in rows]
    values = [row[key] for row in rows for key in ("law", "low", "high", "mean") if (row.get(key) or 0.0) > 0.0]
    few = {"tickCount": 4, "labelOverlap": True}
    x = number(
        "compute", "training FLOP", log=True, domain=(min(computes), max(computes)), axis={"format": ".0e", **few}
    )
    y = number("mean", report.metric, log=True, domain=(min(values), max(values)), axis={"format": ".3~g", **few})
    return panels(
        [
            mark("line", None, {"x": x, "y": {**y, "field": "law"}, "color": looks["color"]}, strokeWidth=1.6)
            | {"transform": [{"filter": "isValid(datum.law)"}]},
            mark("rule", None, {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}, "color": looks["color"]})
            | {"transform": [{"filter": "isValid(datum.low) && datum.low > 0"}]},
            mark("point", None, {"x": x, "y": y, **looks}, size=34)
            | {"transform": [{"filter": "isValid(datum.mean)"}]},
        ],
        rows,
        height=150,
        width=width,
    )  # fmt: skip


FIGURES = {"laws": lambda findings, palette, width: draw_laws(findings.report, palette, width)}


def section(findings: Findings, pictures: Mapping[str, Picture]) -> Section | None:
    """The laws of a ladder, the effective speedup at each rung, and how far the law of the smaller rungs was off."""
    fitted = _fitted(findings.report)
    if not fitted:
        return None
    rungs = max(len(one.scaling.points) for one in fitted)
    titles = ("variant", "E", "a", *(f"speedup {rung}" for rung in range(1, rungs + 1)), "held-out error")
    rows = [_row(one, rungs) for one in fitted]
    text = (
        "Laws `E + A C^-a` of the loss, and the effective speedup on each rung: the compute at which the law of the "
        "baseline reaches the loss of the variant, over its own. Held-out error: the difference that the law of the "
        "smaller rungs predicts for the largest, minus the measured one. Intervals are 95 % bootstrap intervals."
    )
    picture = [pictures["laws"]] if "laws" in pictures else []
    return Section("Scaling laws", (Paragraph(text), Grid(titles, (tuple(rows),), frozenset({0})), *picture))


def _row(one: Climb, rungs: int) -> tuple[str, ...]:
    ladder = one.ladder
    assert ladder is not None, "only fitted laws have a row"
    speedups = [speedup_text(speedup) for speedup in ladder.speedups]
    error = ladder.held_out
    shown = MISSING if error is None else " … ".join(fixed(end, 3, sign=True) for end in (error.low, error.high))
    return (
        one.scaling.variant,
        fixed(ladder.variant.irreducible, 2),
        fixed(ladder.variant.exponent, 2),
        *speedups,
        *[MISSING] * (rungs - len(speedups)),
        shown,
    )
