"""`Design`: an ask/tell object. It is asked for trials and told how they ended; it knows nothing of who trains them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

BASELINE = "baseline"


@dataclass(frozen=True, slots=True)
class Point:
    """A corner of the space: a name that is unique in the study, and a setting for every switch."""

    name: str
    settings: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Proposal:
    """A trial that a design asks for."""

    point: Point
    seed: int


class Design(ABC):
    """Proposes trials and learns from their results.

    The same calls with the same results give the same proposals, so a study is resumed by telling a new design what
    the store already holds.
    """

    @abstractmethod
    def points(self) -> list[Point]:
        """Every point that may be proposed, the baseline first, as far as is known before results."""

    @abstractmethod
    def ask(self) -> list[Proposal]:
        """Trials that can start now, in order; each is proposed once. Empty: wait for results, or the design is done."""

    @abstractmethod
    def tell(self, point: Point, seed: int, value: float | None) -> None:
        """The objective of a trial; None if it diverged or failed."""


def setting_name(settings: Mapping[str, str], baseline: Mapping[str, str]) -> str:
    """Name of a point by what differs from the baseline: `switch=setting`, joined by commas."""
    changed = [f"{switch}={setting}" for switch, setting in settings.items() if setting != baseline[switch]]
    return ",".join(changed) or BASELINE
