"""Results of designs, read for the pages and cached until the study changes, without curves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from ablate.analysis.effects import StudyEffects, StudyImportances, effects_of, importances_of
from ablate.analysis.pareto import Front, front_of
from ablate.analysis.path import RemovalPath, path_of
from ablate.analysis.runs import VariantRuns, read_confirming, read_runs
from ablate.analysis.scaling import at_own_length
from ablate.analysis.slices import Slice, crosses, factors_of, slices_of
from ablate.analysis.text import counted
from ablate.store import TrialState
from dashboard.shared.store import location, record, stamp, store
from dashboard.shared.text import escape


@st.cache_resource(show_spinner=False, max_entries=8)
def _runs(location: str, study: str, at: tuple[Any, ...]) -> dict[str, VariantRuns]:
    study_record = record(study)
    return read_runs(store(), study_record, study_record.objective["metric"])


def runs(study: str) -> Mapping[str, VariantRuns]:
    """Variant name to its trials.

    Raises:
        NotFoundError: There is no such study.
    """
    return _runs(location(), study, stamp(study))


def any_ended(study: str) -> bool:
    """Whether there is a result; if there is none, the page says so."""
    if any(run.finished or run.diverged for run in runs(study).values()):
        return True
    st.info("No trial has ended yet. This page fills with the first result.", icon=":material/hourglass_empty:")
    return False


def missing(study: str, what: str, remedy: str, *, crossed: bool = False) -> None:
    """Show why a page is empty for a study, and which design in a space file would fill it.

    Args:
        study: Its name.
        what: The reason, as the end of a sentence about its design.
        remedy: The design that would fill the page.
        crossed: Whether any design that crosses its switches would do, so that only results may be missing.
    """
    if crossed and _crosses(study):
        states = [state for run in runs(study).values() for state in run.states.values()]
        said = ", ".join(counted((state.value, states.count(state)) for state in TrialState))
        st.info(
            f"The design of this study crosses its switches, but the trials that have a final value do not: {said}. "
            "Without pruning, or with more trials, they would.",
            icon=":material/info:",
        )
        return
    kind = str(record(study).space.get("design", {}).get("kind", "its own"))
    st.info(f"The design of this study, {escape(kind)}, {what}. {remedy}", icon=":material/info:")


def _crosses(study: str) -> bool:
    """Whether the variants of a study, with or without a result, cross at least two switches."""
    own = at_own_length(record(study))
    switches = factors_of(own).switches
    return len(switches) > 1 and crosses(own.variants, switches, ())


@st.cache_resource(show_spinner=False, max_entries=8)
def _effects(location: str, study: str, at: tuple[Any, ...]) -> StudyEffects | None:
    return effects_of(record(study), runs(study))


def effects(study: str) -> StudyEffects | None:
    """The result of `ablate.analysis.effects.read_effects`, cached."""
    return _effects(location(), study, stamp(study))


@st.cache_resource(show_spinner=False, max_entries=8)
def _importances(location: str, study: str, at: tuple[Any, ...]) -> StudyImportances | None:
    return importances_of(record(study), runs(study))


def importances(study: str) -> StudyImportances | None:
    """The result of `ablate.analysis.effects.read_importances`, cached; takes seconds."""
    return _importances(location(), study, stamp(study))


@st.cache_resource(show_spinner=False, max_entries=8)
def _path(location: str, study: str, at: tuple[Any, ...]) -> RemovalPath | None:
    return path_of(record(study), runs(study), read_confirming(store(), record(study)))


def path(study: str) -> RemovalPath | None:
    """The result of `ablate.analysis.path.read_path`, cached."""
    return _path(location(), study, stamp(study))


@st.cache_resource(show_spinner=False, max_entries=32)
def _front(location: str, study: str, quantities: tuple[str, ...], at: tuple[Any, ...]) -> Front | None:
    return front_of(record(study), runs(study), quantities)


def front(study: str, quantities: tuple[str, ...] = ()) -> Front | None:
    """The result of `ablate.analysis.pareto.read_front`, cached."""
    return _front(location(), study, quantities, stamp(study))


@st.cache_resource(show_spinner=False, max_entries=8)
def _slices(location: str, study: str, at: tuple[Any, ...]) -> tuple[Slice, ...]:
    return slices_of(record(study), runs(study))


def slices(study: str) -> tuple[Slice, ...]:
    """The result of `ablate.analysis.slices.read_slices`, cached."""
    return _slices(location(), study, stamp(study))


def plans_ahead(study: str) -> bool:
    """Whether the design of a study names all its points before any result."""
    return record(study).traits.plans_points
