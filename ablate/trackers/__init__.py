"""Trackers: programs that show the curves of training runs, one file each in this folder.

`--log-to ADDRESS` copies the trials of a study to a tracker. The store stays the source of truth: nothing is read back
from a tracker.
"""

from __future__ import annotations

import difflib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

from ablate.errors import ArgumentError
from ablate.extras import require
from ablate.spec.base import Family, Kinded

TRACKERS = Family("tracker", package="ablate.trackers", entry_points="ablate.trackers")


@dataclass(frozen=True, slots=True)
class TrackedRun:
    """The start of a run as a tracker receives it: a trial, or the answer of a study.

    Attributes:
        identity: The same each time the same trial of the same study is sent; letters, digits and `-`, at most 64.
        study: The name of the study.
        name: Names of groups and of the run within its study, such as `("norm=none", "seed 0")`.
        config: The spec as plain JSON, with the variant, seed and role.
        tags: Short words by which runs are filtered.
    """

    identity: str
    study: str
    name: tuple[str, ...]
    config: Mapping[str, Any]
    tags: Mapping[str, str] = field(default_factory=dict)


class RunWriter(ABC):
    """Writes one run to a tracker."""

    @abstractmethod
    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Write a point of the curves: values by name after `step` optimizer steps. Steps increase."""

    @abstractmethod
    def end(self, state: str, results: Mapping[str, float], text: str) -> None:
        """Write the result and close the run.

        Args:
            state: `finished`, `diverged`, `pruned` or `failed`.
            results: Final values by name.
            text: Markdown: why a trial ended early, or the answer of a study; may be empty.
        """

    @abstractmethod
    def drop(self) -> None:
        """Close a run that did not end: it was interrupted or is trained again."""


class TrackerSession(ABC):
    """A connection to a tracker. All calls come from one thread."""

    @abstractmethod
    def holds(self, run: TrackedRun) -> bool:
        """Whether the tracker has this run up to its end."""

    @abstractmethod
    def begin(self, run: TrackedRun) -> RunWriter:
        """Begin a run; what the tracker has of the same run is replaced, because its whole curve is sent again."""

    def close(self) -> None:  # noqa: B027 - most trackers have nothing to close
        """Close the connection after the last run."""


class Tracker(Kinded):
    """A tracker. A final subclass adds `kind`, `extra`, `argument_name`, `connect` and `offline`.

    Its address is the kind, a colon and an argument, such as `tensorboard:DIR`.
    """

    family = TRACKERS
    extra: ClassVar[str] = ""
    """The extra of `ablate-blocks` that installs its package; empty if it needs none."""
    argument_name: ClassVar[str]
    """Name of the argument in messages, such as `DIR`."""

    argument: str
    """The part of the address after the colon."""

    @classmethod
    def form(cls) -> str:
        """The address with the name of the argument, such as `tensorboard:DIR`."""
        return f"{cls.kind_name()}:{cls.argument_name}"

    @classmethod
    def facts(cls) -> dict[str, str | bool]:
        """The address."""
        return {"address": cls.form()}

    @property
    def address(self) -> str:
        """The address as typed."""
        return f"{self.kind_name()}:{self.argument}"

    @abstractmethod
    def connect(self) -> TrackerSession:
        """Connect to the tracker; may raise any exception."""

    @classmethod
    @abstractmethod
    def offline(cls, folder: Path) -> Self:
        """A tracker that writes into a folder of this machine and needs no network; `ablate check-kind` tries it."""


def find_tracker(address: str) -> Tracker:
    """The tracker at an address, without connecting to it.

    Raises:
        ArgumentError: There is no such tracker, or the address has no argument.
        MissingPackageError: Its package is not installed.
    """
    kind, _, argument = address.partition(":")
    trackers = {name: one for name, one in TRACKERS.members().items() if issubclass(one, Tracker)}
    if kind not in trackers or not argument:
        forms = {name: f"`{tracker.form()}`" for name, tracker in trackers.items()}
        near = difflib.get_close_matches(kind, forms, n=1)
        raise ArgumentError(
            "this is not the address of a tracker",
            where="--log-to",
            expected=f"one of {', '.join(forms.values())}",
            got=repr(address),
            remedy=f"Did you mean {forms[near[0]]}?" if near else "Write the tracker, a colon and its argument.",
        )
    tracker = trackers[kind]
    if tracker.extra:
        require(tracker.extra, f"the tracker `{kind}`", where=f"--log-to {address}")
    return tracker(argument=argument)


def flat(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str | int | float | bool]]:
    """Nested JSON as pairs of a dotted path and a plain value; lists become text."""
    for name, value in config.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{name}.")
        elif isinstance(value, (str, int, float, bool)):
            yield f"{prefix}{name}", value
        else:
            yield f"{prefix}{name}", str(value)
