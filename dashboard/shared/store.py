"""Reads the store for the pages, and keeps what was read until the study has moved on."""

from __future__ import annotations

import json
import os
from datetime import datetime
from typing import Any

import streamlit as st

from ablate.analysis import StudyReport, read_study
from ablate.analysis.findings import Findings, read_findings
from ablate.serving import OPTIONS
from ablate.store import CurvePoint, Store, StudyRecord, StudySummary, TrialRecord, TrialState, open_store

_FRESH = 1.0
"""Seconds for which the list of studies is kept."""
LIVE = 2.0
"""Seconds between two looks at a study that runs."""


def options() -> dict[str, Any]:
    """What the command line handed over.

    `store` and `plugins`; `token` and `read_only` where others may come; `may_run` where nobody else may.
    """
    given: dict[str, Any] = json.loads(os.environ.get(OPTIONS, "{}"))
    usual = {"store": "studies/ablate.db", "plugins": [], "token": "", "read_only": False, "may_run": False}
    return usual | given


def read_only() -> bool:
    """Whether the dashboard only reads its store: it writes no mark, and starts nothing that reads other files."""
    return bool(options()["read_only"])


@st.cache_resource(show_spinner=False)
def _open(location: str) -> Store:
    return open_store(location, create=False)


def store() -> Store:
    """The open store.

    Raises:
        NotFoundError: There is none yet.
        StoreError: It cannot be read.
    """
    return _open(str(options()["store"]))


@st.cache_resource(show_spinner=False, ttl=_FRESH, max_entries=2)
def _studies(location: str) -> tuple[StudySummary, ...]:
    return tuple(store().studies())


def studies() -> tuple[StudySummary, ...]:
    """All studies, the latest first; as fresh as a second ago."""
    return _studies(str(options()["store"]))


def summary(study: str) -> StudySummary | None:
    """How far a study has come; None if there is none of this name."""
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
    """A study with its variants and planned trials; much sooner read than its report.

    Raises:
        NotFoundError: There is no such study.
    """
    return _record(str(options()["store"]), study, stamp(study))


@st.cache_resource(show_spinner=False, max_entries=32)
def _report(location: str, study: str, at: tuple[datetime | int, ...]) -> StudyReport:
    return read_study(store(), study)


def report(study: str) -> StudyReport:
    """The report of a study.

    Raises:
        NotFoundError: There is no such study.
    """
    return _report(str(options()["store"]), study, stamp(study))


@st.cache_resource(show_spinner=False, max_entries=8)
def _findings(location: str, study: str, at: tuple[datetime | int, ...]) -> Findings:
    return read_findings(store(), study)


def findings(study: str) -> Findings:
    """The report of a study with its trials.

    Raises:
        NotFoundError: There is no such study, or none of its trials has ended.
    """
    return _findings(str(options()["store"]), study, stamp(study))


def moves(trial: TrialRecord) -> bool:
    """Whether its curve may still grow."""
    return trial.state is TrialState.RUNNING


@st.cache_resource(show_spinner=False, max_entries=64)
def settled_curves(keys: tuple[str, ...]) -> dict[str, tuple[CurvePoint, ...]]:
    """The curves of trials that are over, by key."""
    return store().curves(keys)
