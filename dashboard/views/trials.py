"""All trials below their variants with means and verdicts, or in one table that is sorted; filtered, by the address."""

from __future__ import annotations

import html
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import pandas as pd
import streamlit as st

from ablate.analysis.answer import Answer
from ablate.analysis.answer_rows import OF_VARIANTS, TITLES, AnswerRow, GroupKey
from ablate.analysis.changes import setting_titles
from ablate.analysis.numbers import MISSING, count, counted, fixed, interval_words, listed, plural
from ablate.render.document import names_note
from ablate.render.figures.style import DRAWN_AS, Palette
from ablate.render.formats.html import holds_alone, marked_verdict
from ablate.render.interval import Axis, axis_html, seeds_svg
from ablate.roles import TrialRole
from ablate.spec.suite import at_task
from ablate.stats import mean_interval
from ablate.store import TrialState
from dashboard.shared.evidence import UNPROVEN, WHY
from dashboard.shared.exports import Card, cards, dark, export, image, is_narrow, table_files
from dashboard.shared.frame import address, begin_page, choose_in_words, link
from dashboard.shared.results import (
    KEY,
    NAME,
    ROLE,
    SEED,
    STATE,
    VARIANT,
    VERSUS,
    Filter,
    answer,
    filtered,
    numeric,
    own_baselines,
    switches,
    trials,
)
from dashboard.shared.store import every, report
from dashboard.shared.store import record as read_record
from dashboard.shared.text import aligned, fitting, prose
from dashboard.views import Entry

ENTRY = Entry("All trials", ":material/table_rows:", "This study", 80)

ROWS = 200
"""Rows at a time."""
GROUPED, EACH, DESIGN = "by variant", "every trial", "order of the design"
LESS = ("parameters", "tokens", "FLOP", "attempts", "ended")
"""The last columns but those of settings."""
DIFFERENCE = "The objective minus that of the baseline with the same seed"
ROLES = [TrialRole.CONFIRMATION, TrialRole.COMPARISON, TrialRole.TUNING, TrialRole.TIMING, TrialRole.STAGE]
"""In the order in which variants are shown."""
SCOUTS, FEW = [role.value for role in TrialRole if role.scouts], 3
"""Roles of trials that are never compared; and how many variants are too many to be open at once."""
WIDEST = 320
"""Pixels of the column of variants."""
Judged = tuple[GroupKey, AnswerRow]
"""A variant as an answer has it, with the group that it is in."""
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
    headline = st.container()  # above the controls, so that a narrow window shows it first
    wish = _controls(study, table)
    rows, grouped = filtered(table, wish), wish.by == GROUPED
    known = judged(study)
    if grouped:
        with headline:
            st.markdown(f"**{prose(found_words(table[~table[ROLE].isin(SCOUTS)], known, len(report(study).tasks)))}**")
        rows = by_variant(rows, [*own_baselines(read_record(study)).values(), *known])
    pages = max(1, -(-len(rows) // ROWS))
    page = 1
    if pages > 1:
        page = int(st.number_input("Page", 1, pages, key="page", bind="query-params", width=140))
    which = f", page {page:,} of {pages:,}" if pages > 1 else ""
    head = st.container(horizontal=True, vertical_alignment="center")
    how = "" if is_narrow() or grouped else "; a click on one gives a link to it, on a heading sorts by it"
    if not grouped or len(rows) < len(table):
        head.caption(f"{len(rows):,} of {len(table):,} trials{which}{how}", width="content")
    here = rows.iloc[(page - 1) * ROWS : page * ROWS]
    shown = _ordered(here)
    if shown.empty:
        st.info("No trial matches these filters.")
        return
    if grouped:
        _groups(study, here, table, known)
    elif is_narrow():
        cards(_cards(shown, wish.by), "Trials")
    elif picked := _picked(shown, wish):
        with head:
            link("trial", f"{picked[VARIANT]}, seed {picked[SEED]}", trial=str(picked[KEY]))
    export(table_files(f"{study}_trials", _ordered(rows)), "trials")


def judged(study: str) -> dict[str, Judged]:
    """The variants that the answer compares, by verdict and difference, with these; of a suite those on each task."""
    groups = ((task, group) for task in report(study).tasks or ("",) for group in answer(study, task).groups)
    found = [
        (at_task(row.variant, task), (OF_VARIANTS.get(group.key, group.key), row))
        for task, group in groups
        for row in group.rows
    ]
    order, worse = list(TITLES), answer(study).worse

    def place(of: tuple[str, Judged]) -> tuple[int, float]:
        key, row = of[1]
        return order.index(key), math.inf if row.difference is None else worse * row.difference

    return dict(sorted(found, key=place))


def by_variant(rows: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """The trials of a variant together, variants in the order of `names`; fresh seeds first, what only tunes last."""
    places = {name: place for place, name in enumerate(dict.fromkeys([*names, *rows[NAME]]))}
    keys = pd.DataFrame({ROLE: rows[ROLE].map(ROLES.index), NAME: rows[NAME].map(places), SEED: rows[SEED]})
    return rows.loc[keys.sort_values([ROLE, NAME, SEED], kind="stable").index]


def found_words(table: pd.DataFrame, known: Mapping[str, Judged], tasks: int) -> str:
    """How many variants, on so many tasks of a suite, have which verdict, and how many trials ended how."""
    verdicts = Counter(key for key, _ in known.values())
    judged_so, on = ", ".join(counted(verdicts.items())) or "no verdict yet", f", on {tasks} tasks" if tasks else ""
    states = Counter(map(str, table[STATE]))
    finished = states.pop(TrialState.FINISHED, 0)
    ended = [f"{finished:,} of {len(table):,} trials finished", *counted(states.items())]
    ended = ended if states else [f"all {plural(len(table), 'trial')} finished"]
    return f"{listed(ended).capitalize()}. Beside the baseline{on}: {judged_so}."


def _groups(study: str, here: pd.DataFrame, table: pd.DataFrame, known: Mapping[str, Judged]) -> None:
    """Each variant with its mean and its verdict, its trials behind a click; below what is never compared."""
    scouts = here[ROLE].isin(SCOUTS)
    compared, decimals, metric = here[~scouts], max(3, answer(study).decimals), str(table.columns[2])
    fresh = {row.name for row in report(study).variants if row.confirmed}
    title, of = read_record(study).objective["metric"], answer(study, next(iter(report(study).tasks), ""))
    axis = Axis.of_picture(of)
    if len(compared):
        groups, judged_here = [], list[Judged]()
        for (role, name), trials in compared.groupby([ROLE, NAME], sort=False):
            all_of_it = table[(table[ROLE] == role) & (table[NAME] == name)]
            verdict = known.get(name) if (role == TrialRole.CONFIRMATION) == (name in fresh) else None
            judged_here += [verdict] if verdict else []
            lines = [_line(row, metric, decimals) for row in trials.to_dict("records")]
            groups.append((_head(all_of_it, verdict, metric, decimals, axis, of), lines if len(all_of_it) > 1 else []))
        st.html(group_table(groups, title, axis_html(axis)))
        st.caption(prose(how_to_read(judged_here, of)))
        if said := names_note(answer(study)):
            with st.expander("What the names mean", type="compact"):
                st.caption(prose(said))
    if scouts.any():
        with st.expander(f"{plural(int(scouts.sum()), 'trial')} that tune or time, and are never compared"):
            lines = [_line(row, metric, decimals, named=True) for row in here[scouts].to_dict("records")]
            st.html(group_table([(None, lines)], title))


def how_to_read(judged_here: Sequence[Judged], of: Answer) -> str:
    """What the numbers of the table are, and those of its marks that these rows have."""
    rows = [row for _, row in judged_here]
    said = (
        f"●: a seed minus the baseline's with the same seed; an arrow: beyond the axis; shaded: worse by the margin, "
        f"{of.margin:g}, or more. {of.metric}: {'lower' if of.worse > 0 else 'higher'} is better; ±: half the 95 % "
        "interval of the mean."
    )
    if any(key == "undecided" for key, _ in judged_here):
        said += " Of an undecided variant both bounds are shown."
    if any(map(holds_alone, rows)):
        said += " *: true alone, not jointly with the other verdicts."
    if any(key == "unproven" for key, _ in judged_here):
        said += f" {UNPROVEN}"
    more = next((row.bound_text for row in rows if row.verdict == "undecided" and row.bound_text.startswith("+")), "")
    return said + (f" {more}: about so many more would decide." if more else "")


def _bound(row: AnswerRow, of: Answer) -> tuple[str, str]:
    """The bound behind a verdict, of an undecided one both; and how many more seeds may decide that."""
    if row.verdict != "undecided":
        return row.bound_text, ""
    both = row.low is not None and row.high is not None and math.isfinite(row.high - row.low)
    further = row.bound_text if row.bound_text.startswith("+") else ""
    return interval_words(row.low, row.high, of.margin, of.decimals) if both else "", further


def _head(
    trials: pd.DataFrame, verdict: Judged | None, metric: str, decimals: int, axis: Axis, of: Answer
) -> tuple[str, ...]:
    """The cells of a variant: verdict and name, its seeds as circles, mean, difference, bound, seeds and size.

    Args:
        trials: All that it has in this role.
        verdict: On it, if it rests on these trials.
        metric: The column of the objective.
        decimals: With how many its values are written.
        axis: Of the circles.
        of: The answer that has the verdict.
    """
    first, values = trials.iloc[0], trials[metric].dropna()
    finished = int((trials[STATE] == TrialState.FINISHED).sum())
    lost = trials[STATE].isin([TrialState.DIVERGED, TrialState.PRUNED]).any()
    mean, palette = MISSING, Palette(dark())
    if len(values) and not lost and all(map(math.isfinite, values)):
        interval = mean_interval(map(float, values))
        mean = fixed(interval.mean, decimals)
        if interval.low is not None and interval.high is not None:
            mean += f" ± {(interval.high - interval.low) / 2:.{decimals}f}"
    difference = trials[VERSUS].mean() if trials[VERSUS].notna().all() else None
    name, bound, further, mark, colour = html.escape(first[VARIANT]), "", "", "", palette.grey
    if first[ROLE] == TrialRole.CONFIRMATION:
        name += " <small>on fresh seeds</small>"
    leads = address("trial", trial=str(first[KEY])) if len(trials) == 1 else ""
    if verdict is not None:
        key, row = verdict
        bound, further = map(html.escape, _bound(row, of))
        difference, colour = row.difference, palette.verdict(DRAWN_AS[key]).colour
        mark = f"{marked_verdict(key, row, palette.verdict)} "
        leads = leads or address(**{WHY: first[NAME]})
    if leads:
        name = f'<a href="{html.escape(leads)}">{name}{f", seed {first[SEED]}" * (len(trials) == 1)}</a>'
    size = MISSING if pd.isna(first["parameters"]) else count(int(first["parameters"]))
    seeds = f"{finished} of {len(trials)}" if finished < len(trials) else f"{finished}"
    short = f"{seeds} finished" if finished < len(trials) else ""
    known = (bound, further, short or plural(finished, "seed"))
    apart = [float(one) for one in trials[VERSUS].dropna() if math.isfinite(one)]
    drawn = image(seeds_svg(axis, apart, colour=colour, ink=palette.ink, ground=palette.ground)) if apart else ""
    return (
        f"{mark}{name}", " · ".join(filter(None, known)), drawn, mean,
        fixed(difference, decimals, sign=True), bound,
        f"{seeds} {further.removesuffix(' seeds')}", size,
    )  # fmt: skip


def _line(row: Mapping[str, Any], metric: str, decimals: int, *, named: bool = False) -> tuple[str, ...]:
    """The cells of a trial, which lead to it."""
    value, versus = (None if pd.isna(row[name]) else float(row[name]) for name in (metric, VERSUS))
    title = f"{html.escape(row[VARIANT])}, seed {row[SEED]}" if named else f"seed {row[SEED]}"
    state = "" if row[STATE] == TrialState.FINISHED else row[STATE]
    return (
        f'<a href="{html.escape(address("trial", trial=str(row[KEY])))}">{title}</a> <small>{state}</small>', "", "",
        fixed(value, decimals), fixed(versus, decimals, sign=True), "", "", "",
    )  # fmt: skip


def group_table(
    groups: Sequence[tuple[tuple[str, ...] | None, Sequence[tuple[str, ...]]]], metric: str, axis: str = ""
) -> str:
    """Rows of variants that open to those of their trials, all as HTML; narrow windows show fewer cells.

    Args:
        groups: The cells of a variant, None for none, and those of its trials.
        metric: What is compared.
        axis: What stands above the circles.
    """
    titles = ("variant, trials", "", axis, html.escape(metric), "vs baseline", "95 % bound", "seeds", "parameters")
    kinds = ("change", "below", "strip", "number", "number", "number wide", "number wide", "number wide")

    def line(cells: Sequence[str], tag: str, kind: str) -> str:
        shown = (f'<span class="{kind}">{cell}</span>' for kind, cell in zip(kinds, cells, strict=True))
        return f'<{tag} class="{kind}">{"".join(shown)}</{tag}>'

    def group(head: tuple[str, ...] | None, trials: Sequence[tuple[str, ...]]) -> str:
        below = "".join(line(cells, "div", "trial") for cells in trials)
        if head is None or not trials:
            return below if head is None else line(head, "div", "of")
        return f"<details{' open' * (len(groups) < FEW)}>{line(head, 'summary', 'of')}{below}</details>"

    body = "".join(group(*one) for one in groups)
    return f'<div class="variants" role="region" aria-label="Trials">{line(titles, "div", "head")}{body}</div>'


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
    box = partial(row.segmented_control, required=True, label_visibility="collapsed")
    first = EACH if "by" in st.query_params else GROUPED  # an order is that of single trials
    by = choose_in_words(box, "Rows", "rows", [GROUPED, EACH], first, {})
    filtering = f"Filter{': on' if any(map(st.query_params.get, FILTERS)) else ''}"
    filters = row.popover(filtering, icon=":material/filter_alt:", key="filter")
    if by == EACH:
        by = row.selectbox("Sort by", [DESIGN, *map(str, table.columns)], key="by", bind="query-params", width=220)
    sorts = by not in (GROUPED, DESIGN)
    descending = sorts and row.toggle("Greatest first", key="desc", bind="query-params")
    above = filters.container(horizontal=True, vertical_alignment="bottom")
    states = above.multiselect(
        "State", [state.value for state in TrialState], key="states", bind="query-params", placeholder="all", width=260
    )
    chosen = above.multiselect(
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
