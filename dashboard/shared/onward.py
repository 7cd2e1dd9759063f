"""Next steps after a result: commands to copy and, on this machine, buttons that run them."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from ablate.analysis.continuing import deciding_seeds, study_arguments
from ablate.analysis.study import StudyReport
from ablate.command_line import command
from ablate.errors import AblateError
from shared.frame import STUDY, link
from shared.running import Run, last_run, may_run, start, start_space
from shared.store import complete, location, options, summary
from shared.text import escape, prose


def arguments(study: str, seeds: str = "") -> list[str]:
    """The arguments of `ablate` that continue a study of this dashboard's store."""
    return study_arguments(study, location(), seeds, [str(one) for one in options()["plugins"]])


def show_command(study: str, seeds: str = "") -> None:
    """Show the command that continues a study."""
    st.code(command(*arguments(study, seeds)), language="bash", wrap_lines=True)


def onward(study_report: StudyReport) -> None:
    """Show how to finish a study and how to decide undecided comparisons; nothing if neither is needed."""
    study = study_report.record.name
    counts, seeds = summary(study), deciding_seeds(study_report)
    open_ = counts is not None and not complete(counts)
    if not open_ and not seeds:
        return
    run = last_run(study)
    with st.container(border=True):
        if open_:
            st.markdown("Not all trials are trained yet. Continue with:")
            show_command(study)
        if seeds:
            first, _, most = seeds.partition(":")
            st.markdown(
                f"To decide what is undecided, add seeds: from {first} up to {most}, only where they may still decide:"
            )
            show_command(study, seeds)
        if run is not None and run.alive:
            st.caption("It runs; its log and the button that stops it are here:")
        elif may_run():
            with st.container(horizontal=True):
                if open_:
                    button("Resume", "play_arrow", lambda: start(study, arguments(study)), f"resume-{study}")
                if seeds:
                    button(f"Add seeds {seeds}", "add", lambda: start(study, arguments(study, seeds)), f"seeds-{study}")
        link("runs", "Run", **{STUDY: study})


def begin_study(name: str, text: str) -> None:
    """The button that starts the study of a valid draft; nothing where studies may not be started."""
    if not may_run():
        return
    run = last_run(name)
    busy = run is not None and run.alive
    with st.container(horizontal=True, vertical_alignment="center"):
        button("Start this study", "play_arrow", lambda: start_space(name, text), "start-study", disabled=busy)
        link("runs", "Its log" if busy else "Run")
        if summary(name) is not None:
            st.caption("The store has a study of this name; it continues with this space.", width="content")


def button(label: str, icon: str, act: Callable[[], Run], key: str, *, disabled: bool = False) -> None:
    """A button that starts a run, and shows the error if that fails."""
    if not st.button(escape(label), icon=f":material/{icon}:", key=key, disabled=disabled):
        return
    try:
        run = act()
    except AblateError as error:
        st.error(prose(str(error)))
    else:
        st.toast(f"Started {escape(run.study, 80)}; its log is on the page Run.", icon=":material/play_arrow:")
        st.session_state["runs"] = run.study
