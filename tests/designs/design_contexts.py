"""Spaces for designs to work on, without models: switches, forbidden combinations, costs and simulated results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ablate.designs.base import Design, DesignContext, Point, PointCost, Proposal

Refusal = Callable[[Point], str | None]
Landscape = Callable[[Point, int], float | None]


def nothing_refused(point: Point) -> str | None:
    return None


def parts_left(point: Point) -> PointCost:
    """A cost that falls by one parameter for each switch that is not at its first setting."""
    kept = sum(setting in ("on", "0") for setting in point.settings.values())
    return PointCost(100 + kept, 1000.0 + 10 * kept)


def a_context(
    switches: Mapping[str, Sequence[str]],
    *,
    variants: Mapping[str, Mapping[str, str]] | None = None,
    refusal: Refusal = nothing_refused,
    cost: Callable[[Point], PointCost] = parts_left,
    margin: float = 0.1,
    direction: str = "minimize",
) -> DesignContext:
    return DesignContext(switches, variants or {}, direction, margin, refusal, cost)  # type: ignore[arg-type]


def on_off(*names: str) -> dict[str, tuple[str, str]]:
    return dict.fromkeys(names, ("on", "off"))


def drive(design: Design, landscape: Landscape, reverse: bool = False) -> list[Proposal]:
    """Ask and tell until the design is done; the results of one call of `ask` come in order, or in reverse."""
    asked = []
    while proposals := design.ask():
        asked += proposals
        for proposal in reversed(proposals) if reverse else proposals:
            design.tell(proposal.point, proposal.seed, landscape(proposal.point, proposal.seed))
    return asked


def resume(design: Design, landscape: Landscape, stored: Sequence[Proposal]) -> list[Proposal]:
    """What a new design asks for if it is told at once what is stored, as by the driver, and the rest one by one."""
    known = {(proposal.point.name, proposal.seed) for proposal in stored}
    asked, waiting = list[Proposal](), list[Proposal]()
    while (proposals := design.ask()) or waiting:
        asked += proposals
        waiting += [one for one in proposals if (one.point.name, one.seed) not in known]
        for one in [one for one in proposals if one not in waiting] if proposals else [waiting.pop()]:
            design.tell(one.point, one.seed, landscape(one.point, one.seed))
    return asked
