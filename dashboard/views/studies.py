"""Studies: all studies of the store, filtered by name, question, tag or state; a click chooses one."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import pandas as pd
import streamlit as st

from ablate.analysis.answer_rows import TITLES, GroupKey
from ablate.analysis.changes import variant_titles
from ablate.analysis.numbers import count, counted, duration, plural, scaled
from ablate.analysis.status import Overview, read_overview
from ablate.errors import NotFoundError
from ablate.render.figures.style import DRAWN_AS, Palette, character
from ablate.render.formats.html import data_url
from ablate.render.interval import outline
from ablate.store import Mark, StudySummary
from dashboard.shared.exports import Card, cards, dark, export, is_narrow, table_files
from dashboard.shared.frame import LINK, STUDY, address, choice, link, look_at, no_study_yet, open_page, unknown_study
from dashboard.shared.results import edit_mark
from dashboard.shared.store import (
    LIVE,
    STORE,
    complete,
    ended,
    location,
    looking_at,
    record,
    stamp,
    store,
    stores,
    studies,
    summary,
)
from dashboard.shared.text import escape, leading_sentences, prose, wrapping
from dashboard.views import Entry

ENTRY = Entry("Studies", ":material/list:", "All studies", 120)

STRIP = 104
"""Width of the picture of a study's verdicts, in pixels."""
WIDTHS = {
    "★": 30,
    "store": 80,
    "study": 170,
    "verdicts": STRIP + 16,
    "question": 158,
    "data": 110,
    "parameters": 80,
    "steps": 54,
    "margin": 60,
    "trials": 54,
    "state": 80,
    "progress": 90,
    "left": 80,
    "updated": 94,
    "tags": 80,
}
"""Widths of columns, in pixels."""
ROOM, NARROWEST = 1092, 220
"""Pixels for all columns in a window of 1440; the column of answers takes what the others leave, at least so many."""
NUMBERS = {
    "parameters": "Of the baseline",
    "steps": "Of training of the baseline",
    "margin": "The difference of the metric that counts",
    "trials": "Of all variants and seeds",
}
"""Columns of numbers, and what they are of."""
TALLEST, LONGEST = 120, 165
"""Pixels of a row of six lines, and characters of an answer beyond which no further sentence is shown."""
CALLED: dict[GroupKey, tuple[str, str]] = {
    "better": ("better", "by more than the margin"),
    "can go": ("as good", "not worse by the margin"),
    "ahead": ("ahead", "better, but not shown to be by the margin"),
    "as good": ("as good", "not worse by the margin"),
    "must stay": ("worse", "by more than the margin"),
    "worse": ("worse", "by more than the margin"),
    "undecided": ("undecided", "more seeds are needed"),
    "lost": ("not compared", "trials diverged, failed or were pruned"),
}
"""What the list calls variants of a group, and what that means."""
HIDDEN = ("best", "simplest", "cost", "ended")
"""Columns that only the menu of the table and the download show."""
PAGE = 15
"""Number of rows per page; their contents are read study by study."""
_CLICKS, _OPENED = "clicks on the table of studies", "store and study whose answer was asked for"
_PICKED = "store and study of the row that was selected"
ENDED = ("complete", "trained elsewhere")
"""States of studies of which nothing is left to train."""
STATES = ("all", "running", "complete", "incomplete", "with failures")


def show() -> None:
    """Draw the page."""
    st.title("Studies", anchor=False)
    listed = _everywhere()
    if not listed:
        no_study_yet()
        st.fragment(_await_first, run_every=LIVE)()
        return
    unknown_study()
    filters = st.expander("Filter", key="filter") if is_narrow() else st.container()
    search, states, stars = filters.columns([4, 4, 1])
    words = search.text_input(
        "Search", key="find", bind="query-params", placeholder="words of a name or a question, or a tag", live=True
    )
    state = states.segmented_control(
        "State", STATES, default="all", key="state", bind="query-params", required=True, wrap=True
    )
    starred = stars.toggle("Starred", key="starred", bind="query-params")
    running = any(not complete(study) for _, study in listed)
    st.session_state[_OPENED] = None
    st.fragment(_table, run_every=LIVE if running else None)(str(words or ""), str(state), starred)


def _await_first() -> None:
    if _everywhere():
        st.rerun()


def _everywhere() -> list[tuple[str, StudySummary]]:
    """The studies of all stores, each with the name of its store, the latest first."""
    found: list[tuple[str, StudySummary]] = []
    for name in stores():
        with looking_at(name), suppress(NotFoundError):
            found += [(name, study) for study in studies()]
    return sorted(found, key=lambda one: one[1].updated_at, reverse=True)


def _marks() -> dict[tuple[str, str], Mark]:
    """The marks of studies, by store and study."""
    found: dict[tuple[str, str], Mark] = {}
    for name in stores():
        with looking_at(name), suppress(NotFoundError):
            found |= {(name, study): mark for study, mark in store().marks.all("study").items()}
    return found


def _table(words: str, state: str, starred: bool) -> None:
    if opened := st.session_state.get(_OPENED):  # asked again by each run until the browser has opened it
        open_page("answer", **choice(*opened))
    marks, listed = _marks(), _everywhere()
    found = [(at, study, marks.get((at, study.name), Mark())) for at, study in listed]
    shown = [(at, study, mark) for at, study, mark in found if _fits(study, mark, words, state)]
    shown = [one for one in shown if not starred or one[2].starred]
    size = PAGE // 2 + 1 if is_narrow() else PAGE
    pages, page = -(-len(shown) // size), 1
    above, below = st.container(), st.container()
    if pages > 1:
        page = int(below.number_input(f"Page (of {pages:,})", 1, pages, key="page", bind="query-params", width=140))
    rows = shown[(page - 1) * size : page * size]
    with above:
        table = _list(rows, page, _counted(len(rows), (page - 1) * size, len(shown), len(listed)))
    if table is None:
        return
    with below:
        if is_narrow():
            _legend(rows, briefly=False)
        export(table_files("studies", table), "studies")


def _counted(rows: int, before: int, shown: int, listed: int) -> str:
    """Which studies are shown, of how many."""
    which = f"{before + 1:,}-{before + rows:,} of {shown:,}" if rows < shown else f"{shown:,}"
    return f"{which} studies" if shown == listed else f"{which} that match, of {listed:,} studies"


def _list(rows: Sequence[tuple[str, StudySummary, Mark]], page: int, counts: str) -> pd.DataFrame | None:
    """The studies of a page of the list, as they are also exported; None without any."""
    st.caption(f"{counts}, the latest first; a name opens the answer")
    if not rows:
        st.info("No study matches these filters.")
        return None
    lines = list[dict[str, object]]()
    for at, study, mark in rows:
        with looking_at(at):
            lines.append(_row(at, study, mark, _overview(location(), study.name, stamp(study.name))))
    table = pd.DataFrame(lines).astype({"parameters": "Int64", "steps": "Int64", "margin": "Float64"})
    _legend(rows, briefly=is_narrow())
    names, picked = [(at, study.name) for at, study, _ in rows], st.session_state.get(_PICKED)
    widths = _widths(table)
    rows_high = (
        34 if is_narrow() else min(TALLEST, wrapping(table, {n: widths[n] for n in ("question", "answer")}) or 35)
    )
    table["verdicts"] = [strip(groups, rows_high) for groups in table["verdicts"]]
    if is_narrow():
        cards([_card(row, *name) for row, name in zip(table.to_dict("records"), names, strict=True)], "Studies")
    else:
        current = summary(picked[1]) if picked == _chosen() else None
        if current:
            _details(current)
        _chooser(table, names, _chosen(), page, rows_high)
    return table


def _widths(table: pd.DataFrame) -> dict[str, int]:
    """The width of each column in pixels; the column of answers takes the remaining room."""
    others = sum(WIDTHS.get(name, 0) for name in _informative_columns(table))
    return WIDTHS | {"answer": max(NARROWEST, ROOM - others)}


def _legend(rows: Sequence[tuple[str, StudySummary, Mark]], *, briefly: bool) -> None:
    """What the marks of these studies count and mean; `briefly`: their names alone."""
    found = set[GroupKey]()
    for at, study, _ in rows:
        with looking_at(at):
            found.update(_overview(location(), study.name, stamp(study.name)).verdicts)
    palette = Palette(dark())
    looks = {CALLED.get(key, (key, "")): palette.verdict(DRAWN_AS[key]) for key in TITLES if key in found}
    said = [
        f'<span style="white-space: nowrap"><span style="color: {look.colour}">{character(look)}</span> '
        f"{html.escape(name if briefly or not meant else f'{name} ({meant})')}</span>"
        for (name, meant), look in looks.items()
    ]
    if said:
        counts = "" if briefly else "A mark counts variants, of some designs average effects: "
        st.html(f"<small>{counts}{(' ' if briefly else ', ').join(said)}</small>")


def _card(row: Mapping[Hashable, Any], at: str, study: str) -> Card:
    state = "" if row["state"] in ENDED else f"{row['state']}, {row['ended']} of {row['trials']} trials ended"
    setup = (f"{count(row['parameters'])} parameters" if pd.notna(row["parameters"]) else "",
             f"{row['steps']:,} steps" if pd.notna(row["steps"]) else "",
             f"margin {row['margin']:g}" if pd.notna(row["margin"]) else "")  # fmt: skip
    said = (row.get("store"), state, row["tags"], ", ".join(filter(None, setup)), f"{row['updated']:%Y-%m-%d}")
    drawn = row["verdicts"] if pd.notna(row["verdicts"]) else ""
    return Card(f"{row['★']} {study}".strip(), address("answer", **choice(at, study)),
                (str(row["question"]), " · ".join(filter(None, said))), drawn, str(row["answer"]))  # fmt: skip


def _chooser(
    table: pd.DataFrame, names: list[tuple[str, str]], chosen: tuple[str, str], page: int, height: int
) -> None:
    """The table of studies, in which a click chooses one.

    Args:
        names: Store and study of each row.
        chosen: Store and study of the row that is selected, if it is one of these.
        page: Number of the page of rows.
        height: Of a row, in pixels.
    """
    # A new table for each choice, with that row selected, so that the selection agrees with the sidebar.
    clicks, widths = int(st.session_state.get(_CLICKS, 0)), _widths(table)
    selected = [names.index(chosen)] if chosen in names else []
    key = f"studies-{page}-{chosen}-{clicks}"
    st.dataframe(
        table.style.set_properties(subset=["study"], color=LINK[dark()]),
        key=key,
        hide_index=True,
        height="content",
        row_height=height,
        on_select=partial(_choose, key, clicks, selected, names),
        selection_mode=["single-row", "single-cell"],
        selection_default={"selection": {"rows": selected}},
        column_order=_informative_columns(table),
        column_config={
            **{name: st.column_config.Column(width=width) for name, width in widths.items()},
            "progress": st.column_config.ProgressColumn(
                "progress", min_value=0, max_value=1, format="percent", width=widths["progress"]
            ),
            "updated": st.column_config.DatetimeColumn("updated", format="distance", width=widths["updated"]),
            **{
                name: st.column_config.NumberColumn(format="localized", width=widths[name], help=told)
                for name, told in NUMBERS.items()
            },
            "verdicts": st.column_config.ImageColumn(
                "variants",
                width=widths["verdicts"],
                help="How many variants the answer judges so; of some designs, how many average effects",
            ),
        },
        placeholder="-",
        alt=f"Studies with their state, progress and verdicts; {len(names)} rows",
    )


def _fits(study: StudySummary, mark: Mark, words: str, state: str) -> bool:
    said = f"{study.name} {study.question} {' '.join(mark.tags)}".casefold()
    if not all(word in said for word in words.casefold().split()):
        return False
    return {
        "all": True,
        "running": study.running > 0,
        "complete": complete(study),
        "incomplete": not complete(study),
        "with failures": study.failed + study.diverged > 0,
    }[state]


def _informative_columns(table: pd.DataFrame) -> list[str]:
    """The columns that say something; of those that tell what was compared, the ones in which studies differ."""
    silent = {"★": ("",), "answer": ("",), "state": ENDED, "progress": (1.0,), "left": (), "tags": ("",)}
    compared = ("data", "parameters", "steps", "margin", "trials")

    def informs(name: str) -> bool:
        if name in compared:
            return int(table[name].replace("", None).nunique()) > (len(table) > 1)
        return name not in silent or not all(value in silent[name] or pd.isna(value) for value in table[name])

    return [name for name in map(str, table) if name not in HIDDEN and informs(name)]


def _chosen() -> tuple[str, str]:
    """The store and the study that all pages show; an empty name for no study."""
    return str(st.session_state.get(STORE) or next(iter(stores()))), str(st.session_state.get(STUDY) or "")


def _choose(key: str, clicks: int, shown: list[int], names: list[tuple[str, str]]) -> None:
    """Choose the study of the row that was clicked for all pages; a click on a cell opens its answer instead.

    A click on the box of the selected row also selects the first cell, of the verdicts, which therefore opens nothing.
    Streamlit also calls this when a live run brings the selection of a table that has been replaced, or the selection
    with which the table was drawn; neither is a click.

    Args:
        key: The table.
        clicks: Number of clicks on tables of studies before it was drawn.
        shown: Its rows that were selected when it was drawn.
        names: Store and study of each row.
    """
    selected = st.session_state[key]["selection"]
    rows, cells = list(selected["rows"]), [row for row, name in selected["cells"] if name != "verdicts"]
    if clicks != st.session_state.get(_CLICKS, 0) or (rows == shown and not cells):
        return
    st.session_state[_CLICKS] = clicks + 1
    if cells:
        st.session_state[_OPENED] = names[cells[0]]
        return
    if not rows and st.session_state.get(_PICKED) != names[shown[0]]:  # the row of the study that the sidebar chose
        rows = shown
    st.session_state[_PICKED] = names[rows[0]] if rows else None
    if rows:
        look_at(*names[rows[0]])
        st.rerun()  # with the select boxes in the sidebar


@st.cache_resource(show_spinner=False, max_entries=500)
def _overview(location: str, study: str, at: tuple[object, ...]) -> Overview:
    """The key figures of a study, which are empty if it has no variants; the page Answer shows the error."""
    try:
        return read_overview(store(), study)
    except NotFoundError:
        return Overview("", None, None, None, "", None, 0.0, None, None, (), ())


def state_of(study: StudySummary) -> str:
    """The state of a study, in a word."""
    if study.judged:
        return "trained elsewhere"
    if complete(study):
        return "complete"
    return "running" if study.running else "failed trials" if study.failed else "waiting"


def _row(at: str, study: StudySummary, mark: Mark, overview: Overview) -> dict[str, object]:
    settled = ended(study)
    lost = ", ".join(counted((("pruned", study.pruned), ("diverged", study.diverged), ("failed", study.failed))))
    notes = " ".join(
        ("Trained elsewhere.",) * study.judged + (f"Of {plural(study.planned, 'trial')}, {lost}.",) * bool(lost)
    )
    return {
        "verdicts": overview.verdicts,
        "★": "★" * mark.starred,
        **({"store": at} if len(stores()) > 1 else {}),
        "study": study.name,
        "question": study.question,
        "answer": f"{leading_sentences(overview.headline, LONGEST - len(notes)) * bool(settled)} {notes}".strip(),
        **_setup(study),
        "margin": overview.margin,
        "trials": study.planned,
        "state": state_of(study),
        "progress": settled / study.planned if study.planned else 0.0,
        "ended": settled,
        "best": overview.best,
        "simplest": overview.simplest,
        "cost": duration(overview.seconds),
        "left": duration(overview.seconds_left) if not complete(study) else None,
        "updated": study.updated_at,
        "tags": ", ".join(mark.tags),
    }


def _setup(study: StudySummary) -> dict[str, object]:
    """What was compared: the data, the size of the baseline and its training, as far as they are known."""
    known = record(study.name)
    baseline = next((one for one in known.variants if one.name == known.baseline), None)
    spec = baseline.spec if baseline else {}
    steps = spec.get("training", {}).get("steps")
    return {
        "data": str(spec.get("task", {}).get("data", "")).rpartition(":")[2],
        "parameters": (baseline.parameters or None) if baseline else None,
        "steps": steps if isinstance(steps, int) and steps else None,
    }


def strip(groups: Sequence[GroupKey], height: int = 34) -> str | None:
    """The verdicts of a study as a picture: the mark of each with how many variants it is on; None without any.

    Args:
        groups: Those of an answer that they are in.
        height: Of the row that it fills, in pixels.
    """
    palette, order = Palette(dark()), [*TITLES]
    counts = Counter(palette.verdict(DRAWN_AS[key]) for key in sorted(groups, key=order.index))
    if not counts:
        return None
    step = min(30.0, STRIP / len(counts))
    width = 6 + step * len(counts) if is_narrow() else STRIP
    marks = "".join(
        f'<path d="{outline(look.mark)}" fill="{look.colour}" '
        f'transform="translate({10 + place * step:g} {height / 2:g}) scale(0.9)"/>'
        f'<text x="{17 + place * step:g}" y="{height / 2 + 4.5:g}" font-family="sans-serif" font-size="13" '
        f'fill="{palette.ink}">{many}</text>'
        for place, (look, many) in enumerate(counts.items())
    )
    return data_url(f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height}">{marks}</svg>')


def _details(study: StudySummary) -> None:
    """What is chosen for all pages: what it cost, its best, its mark, and links to its pages."""
    overview = _overview(location(), study.name, stamp(study.name))
    titles = variant_titles(record(study.name))
    arithmetic = "" if overview.flops is None else f" ({scaled(overview.flops)}FLOP)"
    facts = [f"{ended(study):,} of {plural(study.planned, 'trial')} ended",
             f"{duration(overview.seconds)} of training{arithmetic}"]  # fmt: skip
    if overview.best is not None and overview.best_value is not None:
        facts.append(f"best {overview.metric} {overview.best_value:.4g}: {titles[overview.best]}")
    if overview.simplest_parameters is not None:
        small = f"{count(overview.simplest_parameters)} parameters: {titles[overview.simplest]}"
        facts.append(f"smallest that is not worse, {small}")
    with st.container(border=True):
        row = st.container(horizontal=True, vertical_alignment="center")
        row.header(f"Chosen: {escape(study.name)}", anchor=False, width="stretch")
        with row:
            for page, label in (("answer", "Answer"), ("curves", "Curves"), ("compare", "Compare"), ("trial", "Trial")):
                link(page, label, **{STUDY: study.name})
        st.caption(prose(f"{'; '.join(facts)}."))
        edit_mark("study", study.name)
