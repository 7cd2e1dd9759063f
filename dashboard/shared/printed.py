"""The figures of written reports, as files."""

from __future__ import annotations

from ablate.report.pareto import Front
from shared.exports import Maker
from shared.store import findings


def printed(study: str, name: str) -> dict[str, Maker]:
    """A figure of the report of a study as SVG and PNG."""

    def make(kind: str) -> bytes:
        from ablate.report.figures import draw, save

        return save(draw(name, findings(study)), kind)

    return {f"{study}_{name}.{kind}": lambda kind=kind: make(kind) for kind in ("svg", "png")}  # type: ignore[misc]


def printed_front(study: str, found: Front) -> dict[str, Maker]:
    """A Pareto front as SVG and PNG."""

    def make(kind: str) -> bytes:
        from ablate.report.figures import save
        from ablate.report.figures.front import draw_front

        return save(draw_front(found), kind)

    return {f"{study}_front.{kind}": lambda kind=kind: make(kind) for kind in ("svg", "png")}  # type: ignore[misc]
