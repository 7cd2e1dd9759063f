"""Reads the stores for the pages, and caches the results until the study changes.

A dashboard may serve several stores. All functions read the one that the visitor has chosen, unless `looking_at` names
another.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from pathlib import Path
from typing import Any

import streamlit as st

from ablate.analysis import StudyReport, read_study
from ablate.analysis.findings import Findings, read_findings
from ablate.errors import NotFoundError
from ablate.locations import DEFAULT_STORE
from ablate.processes import hide_passwords
from ablate.serving import OPTIONS
from ablate.store import CurvePoint, Store, StudyRecord, StudySummary, TrialRecord, TrialState, open_store

_FRESH = 1.0
"""Seconds for which the list of studies is cached."""
LIVE = 2.0
"""Seconds between two reads of a running study."""
MOST_TIMED = 20
"""Trials of a study that tell how fast trials run."""
STORE = "store"
"""The parameter of the address, and the key of the session, that names the store; absent if there is one store."""
_LOOKED_AT: ContextVar[str | None] = ContextVar("store", default=None)


def options() -> dict[str, Any]:
    """The options that the command line has passed.

    `stores` and `plugins`; `token` and `read_only` if the dashboard is open to others; `may_run` if it is not.
    """
    given: dict[str, Any] = json.loads(os.environ.get(OPTIONS, "{}"))
    usual = {"stores": [DEFAULT_STORE], "plugins": [], "token": "", "read_only": False, "may_run": False}
    return usual | given


def read_only() -> bool:
    """Whether the dashboard may only read its store: it writes no marks, and starts nothing that reads other files."""
    return bool(options()["read_only"])


def stores() -> dict[str, str]:
    """The stores by name: the names of their files, with as many folders as needed to distinguish them."""
    return named_stores([str(option) for option in options()["stores"]])


def named_stores(locations: list[str]) -> dict[str, str]:
    """Names for stores, as short as possible and all different, without passwords of servers."""
    parts = [_parts(one) for one in locations]
    named: dict[str, str] = {}
    for location, path in zip(locations, parts, strict=True):
        lengths = range(1, len(path) + 1)
        alone = (n for n in lengths if sum(other[-n:] == path[-n:] for other in parts) == 1)
        name = "/".join(path[-next(alone, len(path)) :])
        named[location if name in named else name] = location
    return named


def _parts(location: str) -> tuple[str, ...]:
    if "://" in location:
        return tuple(hide_passwords(location).split("/"))
    return Path(location).expanduser().absolute().with_suffix("").parts


def location() -> str:
    """The file or URL of the store that the functions of this module read."""
    known = stores()
    asked = _LOOKED_AT.get() or (st.session_state.get(STORE) if len(known) > 1 else None)
    return known[asked] if asked in known else next(iter(known.values()))


@contextmanager
def looking_at(name: str) -> Iterator[None]:
    """Context manager: the functions of this module read the store of this name in the body."""
    before = _LOOKED_AT.set(name)
    try:
        yield
    finally:
        _LOOKED_AT.reset(before)


@st.cache_resource(show_spinner=False, on_release=Store.close)
def _open(location: str) -> Store:
    return open_store(location, create=False)


def store() -> Store:
    """The open store.

    Raises:
        NotFoundError: It does not exist yet.
        StoreError: It cannot be read.
    """
    return _open(location())


@st.cache_resource(show_spinner=False, ttl=_FRESH, max_entries=32)
def _studies(location: str) -> tuple[StudySummary, ...]:
    return tuple(store().studies())


def studies() -> tuple[StudySummary, ...]:
    """All studies, the latest first; at most a second old."""
    return _studies(location())


def summary(study: str) -> StudySummary | None:
    """The progress of a study; None if there is none of this name."""
    return next((one for one in studies() if one.name == study), None)


def complete(study: StudySummary) -> bool:
    """Whether every planned trial finished, diverged or was pruned."""
    return ended(study) == study.planned


def ended(study: StudySummary) -> int:
    """How many trials finished, diverged or were pruned."""
    return study.finished + study.diverged + study.pruned


def every(study: str) -> float | None:
    """Refresh interval of the live parts of a page, in seconds; None once the study has ended."""
    counts = summary(study)
    return None if counts is None or complete(counts) else LIVE


def stamp(study: str) -> tuple[datetime | int, ...]:
    """A key that changes with the stored data of a study, except for the curves of running trials."""
    counts = summary(study)
    if counts is None:
        return ()
    states = (counts.finished, counts.diverged, counts.pruned, counts.failed, counts.running)
    return (counts.updated_at, counts.planned, *states)


@st.cache_resource(show_spinner=False, max_entries=32)
def _record(location: str, study: str, at: tuple[datetime | int, ...]) -> StudyRecord:
    return store().study(study)


def record(study: str) -> StudyRecord:
    """A study with its variants and planned trials; much faster to read than its report.

    Raises:
        NotFoundError: There is no such study.
    """
    return _record(location(), study, stamp(study))


@st.cache_resource(show_spinner=False, max_entries=32)
def _report(location: str, study: str, at: tuple[datetime | int, ...]) -> StudyReport:
    return read_study(store(), study)


def report(study: str) -> StudyReport:
    """The report of a study.

    Raises:
        NotFoundError: There is no such study.
    """
    return _report(location(), study, stamp(study))


@st.cache_resource(show_spinner=False, max_entries=8)
def _findings(location: str, study: str, at: tuple[datetime | int, ...]) -> Findings:
    return read_findings(store(), study)


def findings(study: str) -> Findings:
    """The report of a study with its trials.

    Raises:
        NotFoundError: There is no such study, or none of its trials has ended.
    """
    return _findings(location(), study, stamp(study))


def moves(trial: TrialRecord) -> bool:
    """Whether its curve may still grow."""
    return trial.state is TrialState.RUNNING


@st.cache_resource(show_spinner=False, max_entries=64)
def _curves(location: str, keys: tuple[str, ...]) -> dict[str, tuple[CurvePoint, ...]]:
    return store().curves(keys)


@st.cache_resource(show_spinner=False, ttl=60, max_entries=8)
def _speed(location: str) -> float | None:
    for study in (one for one in store().studies() if one.finished and not one.judged):
        some = [trial.key for trial in store().study(study.name).planned[:MOST_TIMED]]
        ended = [one for one in store().trials(some).values() if one.state is TrialState.FINISHED and one.seconds]
        if flops := sum(one.flops for one in ended):
            return flops / sum(one.seconds for one in ended)
    return None


def speed() -> float | None:
    """Arithmetic a second of one trial, by some trials of the latest study of the store that has any; else None."""
    try:
        return _speed(location())
    except NotFoundError:
        return None


def settled_curves(keys: tuple[str, ...]) -> dict[str, tuple[CurvePoint, ...]]:
    """The curves of trials that are over, by key."""
    return _curves(location(), keys)
