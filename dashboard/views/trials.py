"""All trials as a table, sorted and filtered by state, setting and metric, as stored in the address."""

from __future__ import annotations

from functools import partial
from typing import Any

import pandas as pd
import streamlit as st

from ablate.analysis.changes import setting_titles
from ablate.store import TrialState
from dashboard.shared.exports import Card, cards, export, is_narrow, table_files
from dashboard.shared.frame import address, begin_page, link
from dashboard.shared.results import (
    KEY,
    NAME,
    ROLE,
    SEED,
    STATE,
    VARIANT,
    VERSUS,
    Filter,
    filtered,
    numeric,
    switches,
    trials,
)
from dashboard.shared.store import every
from dashboard.shared.store import record as read_record
from dashboard.shared.text import aligned, fitting

ROWS = 200
"""Rows at a time."""
DESIGN = "order of the design"
LESS = ("parameters", "tokens", "FLOP", "attempts", "ended")
"""The last columns but those of settings."""
DIFFERENCE = "The objective minus that of the baseline with the same seed"
WIDEST = 320
"""Pixels of the column of variants."""
FILTERS = ("states", "setting", "metric")
"""Parameters of the address that filter."""


def show() -> None:
    """Draw the page."""
    study = begin_page("All trials")
    st.fragment(_live, run_every=every(study))(study)


def _live(study: str) -> None:
    table = trials(study)
    if table.empty:
        st.info("This study has planned no trial yet.")
        return
    wish = _controls(study, table)
    rows = filtered(table, wish)
    pages = max(1, -(-len(rows) // ROWS))
    page = 1
    if pages > 1:
        page = int(st.number_input("Page", 1, pages, key="page", bind="query-params", width=140))
    which = f", page {page:,} of {pages:,}" if pages > 1 else ""
    head = st.container(horizontal=True, vertical_alignment="center")
    how = "" if is_narrow() else "; a click on one gives a link to it, on a heading sorts by it"
    head.caption(f"{len(rows):,} of {len(table):,} trials{which}{how}", width="content")
    shown = _ordered(rows.iloc[(page - 1) * ROWS : page * ROWS])
    if shown.empty:
        st.info("No trial matches these filters.")
        return
    if is_narrow():
        cards(_cards(shown, wish.by), "Trials")
    elif picked := _picked(shown, wish):
        with head:
            link("trial", f"{picked[VARIANT]}, seed {picked[SEED]}", trial=str(picked[KEY]))
    export(table_files(f"{study}_trials", _ordered(rows)), "trials")


def _picked(shown: pd.DataFrame, wish: Filter) -> dict[str, Any] | None:
    """Show the table; the row of the cell that was clicked, if one was."""
    key = f"all-trials-{wish.by}-{wish.descending}"
    picked = st.dataframe(
        shown,
        key=key,
        hide_index=True,
        on_select=partial(_sort, key),
        selection_mode=["single-cell", "single-column"],
        placeholder="-",
        height=min(36 + 35 * len(shown), 720),
        column_config=_columns(shown),
        alt=f"Trials with state, settings, metrics and cost; {len(shown)} rows",
    )
    cells = picked["selection"]["cells"]
    return dict(shown.iloc[cells[0][0]]) if cells and cells[0][0] < len(shown) else None


def _cards(shown: pd.DataFrame, by: str) -> list[Card]:
    """The trials, each with its state, its first number, which is the objective, and the number that sorts."""
    known = numeric(shown.drop(columns=SEED))
    formats = {name: _format(shown, name) for name in dict.fromkeys((*known[:1], VERSUS, by)) if name in known}
    found = []
    for row in shown.to_dict("records"):
        told = [f"{name} {form % row[name]}" for name, form in formats.items() if pd.notna(row[name])]
        title, said = f"{row[VARIANT]}, seed {row[SEED]}", " · ".join([*told, row[STATE]])
        found.append(Card(title, address("trial", trial=str(row[KEY])), (said,)))
    return found


def _sort(key: str) -> None:
    """Sort by the column whose heading was clicked, at a second click the greatest first.

    The address keeps this; it would not keep the order of a table that sorts itself.
    """
    for name in st.session_state[key]["selection"]["columns"]:
        st.session_state["desc"] = st.session_state["by"] == name and not st.session_state["desc"]
        st.session_state["by"] = name


def _controls(study: str, table: pd.DataFrame) -> Filter:
    named = switches(read_record(study))
    settings = [f"{switch}={setting}" for switch, found in named.items() for setting in found]
    numbers = numeric(table)
    row = st.container(horizontal=True, vertical_alignment="bottom")
    by = row.selectbox("Sort by", [DESIGN, *map(str, table.columns)], key="by", bind="query-params", width=220)
    descending = row.toggle("Greatest first", key="desc", bind="query-params")
    filters = st.expander("Filter", icon=":material/filter_alt:", expanded=any(map(st.query_params.get, FILTERS)))
    first = filters.container(horizontal=True, vertical_alignment="bottom")
    states = first.multiselect(
        "State", [state.value for state in TrialState], key="states", bind="query-params", placeholder="all", width=260
    )
    chosen = first.multiselect(
        "Settings", settings, key="setting", bind="query-params", placeholder="all", width=360,
        help="Of each switch that is named, the settings that are shown",
    )  # fmt: skip
    second = filters.container(horizontal=True, vertical_alignment="bottom")
    metric = second.selectbox(
        "Number", numbers, index=None, key="metric", bind="query-params", placeholder="any", width=200,
        help="The column that the two bounds are of",
    )  # fmt: skip
    low = second.number_input("From", value=None, key="low", bind="query-params", format="%g", width=130)
    high = second.number_input("To", value=None, key="high", bind="query-params", format="%g", width=130)
    return Filter(
        tuple(states), tuple(chosen), str(metric or ""), low, high, "" if by == DESIGN else str(by), bool(descending)
    )


def _ordered(rows: pd.DataFrame) -> pd.DataFrame:
    """The most informative columns first, without empty ones, and without the role if all trials have the same."""
    known = [name for name in rows.columns if name in (VARIANT, SEED, KEY) or rows[name].notna().any()]
    if rows[ROLE].nunique() < 2:
        known.remove(ROLE)
    if rows[NAME].equals(rows[VARIANT]):
        known.remove(NAME)
    settings = [name for name in known if name.endswith("=")]
    last = [name for name in (NAME, KEY) if name in known]
    front = [name for name in known if name not in (*LESS, *settings, *last)]
    return rows[[*front, *(name for name in known if name in LESS), *settings, *last]]


def _format(shown: pd.DataFrame, name: str) -> str:
    """How the numbers of a column are written; differences as the objective before them, with their sign."""
    if name != VERSUS:
        return aligned(shown[name])
    return aligned(shown.iloc[:, shown.columns.get_loc(VERSUS) - 1]).replace("%", "%+")


def _columns(shown: pd.DataFrame) -> dict[str, Any]:
    config, settings = st.column_config, [name for name in shown if name.endswith("=")]
    titles = setting_titles(name.removesuffix("=") for name in settings)
    return {
        **{
            name: config.NumberColumn(format=_format(shown, name), help=DIFFERENCE if name == VERSUS else None)
            for name in shown.columns
            if shown[name].dtype == float
        },
        **{name: config.TextColumn(titles[name.removesuffix("=")]) for name in settings},
        "parameters": config.NumberColumn(format="compact"),
        "tokens": config.NumberColumn(format="compact"),
        "steps": config.NumberColumn(format="localized"),
        "FLOP": config.NumberColumn(format="compact"),
        "seconds": config.NumberColumn(format="%.1f"),
        "ended": config.DatetimeColumn(format="YYYY-MM-DD HH:mm"),
        VARIANT: config.TextColumn(width=fitting(shown, VARIANT, WIDEST)),
        NAME: config.TextColumn(width="medium"),
        KEY: config.TextColumn(width="small"),
    }
