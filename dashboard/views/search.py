"""Search: the course of a search in Optuna's plots: history, intermediate values, two parameters at a time."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import plotly.graph_objects as go
import streamlit as st

from ablate.portable_names import NameRule, portable_name
from ablate.render.export import KEY, STATE, optuna_study
from ablate.store import TrialState
from shared.charts import chart
from shared.colours import look
from shared.frame import begin_page, link
from shared.results import any_ended, missing, plans_ahead
from shared.store import location, stamp, store
from shared.store import record as read_record
from shared.text import for_plotly

if TYPE_CHECKING:
    import optuna

MOST = 2000
"""Maximum number of trials that are drawn, the latest ones."""
MOST_CURVES = 200
PLOTS = ("contour", "rank")
_LABEL = NameRule(str.isprintable, 40)
"""A name in a plot, which shows two names that it cannot tell apart as one."""


def show() -> None:
    """Draw the page."""
    study = begin_page("Search")
    if not any_ended(study):
        return
    if plans_ahead(study):
        missing(
            study, "plans all its points before any result", "A `search`, `simplify` or `population` design does not."
        )
        return
    searched = _study(location(), study, stamp(study))
    metric = str(read_record(study).objective["metric"])
    trials = searched.get_trials(deepcopy=False)
    counts = {state: sum(trial.user_attrs[STATE] == state for trial in trials) for state in TrialState}
    st.caption(", ".join(f"{count:,} {state}" for state, count in counts.items() if count))
    picked = [*_history(searched, metric), *_intermediate(searched, trials)]
    if picked:
        trial = trials[picked[0]]
        with st.container(horizontal=True):
            link("trial", f"Trial {picked[0]}: {trial.user_attrs['variant']}, seed {trial.user_attrs['seed']}",
                 trial=str(trial.user_attrs[KEY]))  # fmt: skip
    else:
        st.caption("A click on a point gives a link to its trial.")
    _pair(searched, trials, metric)


@st.cache_resource(show_spinner="Reading the trials", max_entries=4)
def _study(location: str, study: str, at: tuple[Any, ...]) -> optuna.Study:
    return optuna_study(store(), study, MOST, lambda text: for_plotly(portable_name(text, _LABEL), 40))


def _drawn(draw: Callable[..., go.Figure], *arguments: Any, **named: Any) -> go.Figure:
    """A figure by Optuna without its title and size; the page has a heading for it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some of its plots warn that they are experimental
        made = draw(*arguments, **named)
    made.update_layout(title=None, height=420, margin={"l": 8, "r": 8, "t": 28, "b": 48},
                       legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0})  # fmt: skip
    return made


def _history(searched: optuna.Study, metric: str) -> list[int]:
    """Draw the value of each trial and the best so far, and return the numbers of selected trials."""
    from optuna.visualization import plot_optimization_history

    st.subheader("Optimisation history", anchor=False)
    made = _drawn(plot_optimization_history, searched, target_name=for_plotly(metric))
    for trace, colours in zip(made.data, (look(0), look(1)), strict=False):
        trace.update(marker={"color": colours.colour}, line={"color": colours.colour})
    trials = searched.get_trials(deepcopy=False)
    done = [trial for trial in trials if trial.value is not None]
    best = f", the best {searched.best_value:.5g}" if done else ""
    alt = f"{metric} of {len(done)} finished trials in the order of the search{best}"
    return [int(point["x"]) for point in _points(chart(made, "history", alt, picks=True)) if "x" in point]


def _intermediate(searched: optuna.Study, trials: list[optuna.trial.FrozenTrial]) -> list[int]:
    """Draw the curves of the trials, pruned ones in another colour, and return the numbers of selected trials."""
    from optuna.visualization import plot_intermediate_values

    shown = [trial for trial in trials if trial.intermediate_values and trial.state.name in ("COMPLETE", "PRUNED")]
    if not shown:
        return []
    st.subheader("Intermediate values", anchor=False)
    made = _drawn(plot_intermediate_values, searched)
    finished, pruned = look(0), look(1)
    lost = sum(trial.state.name == "PRUNED" for trial in shown)
    for number, trace in enumerate(made.data):
        trial = shown[number]
        drawn = pruned if trial.state.name == "PRUNED" else finished
        name = f"{trial.user_attrs['variant']}, seed {trial.user_attrs['seed']}, {trial.user_attrs[STATE]}"
        trace.update(
            name=name, opacity=0.75, line={"color": drawn.colour, "dash": drawn.dash, "width": 1.4},
            marker={"color": drawn.colour, "symbol": drawn.mark, "size": 5, "maxdisplayed": 10},
            customdata=[trial.number] * len(trace.x),
            hovertemplate=f"{name}<br>step %{{x:,}}<br>%{{y:.5f}}<extra></extra>",
        )  # fmt: skip
    made.data = made.data[-MOST_CURVES:]
    kept = (("finished", finished), ("pruned", pruned)) if lost else (("finished", finished),)
    for label, drawn in kept:
        made.add_scatter(x=[None], y=[None], mode="lines+markers", name=label, showlegend=True,
                         line={"color": drawn.colour, "dash": drawn.dash}, marker={"symbol": drawn.mark})  # fmt: skip
    for trace in made.data[: -len(kept)]:
        trace.showlegend = False
    made.update_layout(showlegend=True)
    made.update_xaxes(title="steps")
    made.update_yaxes(title="validation loss")
    alt = f"Validation loss along the training of {len(shown)} trials, of which {lost} were pruned"
    if len(shown) > MOST_CURVES:
        st.caption(f"The latest {MOST_CURVES} of {len(shown):,} trials.")
    return [int(point["customdata"]) for point in _points(chart(made, "intermediate", alt, picks=True)) if
            isinstance(point.get("customdata"), int)]  # fmt: skip


def _pair(searched: optuna.Study, trials: list[optuna.trial.FrozenTrial], metric: str) -> None:
    """Two parameters against one another, coloured by the objective."""
    values: dict[str, set[Any]] = {}
    for trial in trials:
        if trial.state.name == "COMPLETE":
            for name, value in trial.params.items():
                values.setdefault(name, set()).add(value)
    varied = [name for name, seen in values.items() if len(seen) > 1]
    named = {name for name in varied if any(isinstance(value, str) for value in values[name])}
    varied.sort(key=named.__contains__)  # numeric parameters first
    scaled = len(named) < len(varied)  # a contour needs numeric parameters
    if len(varied) < 2:
        st.caption("Fewer than two parameters vary among the finished trials, so there is no plot of two of them.")
        return
    st.subheader("Two parameters", anchor=False)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        kind = st.segmented_control(
            "Plot", list(PLOTS), default="contour" if scaled else "rank", key="plot", bind="query-params", required=True
        )
        # Optuna decides which of the two is horizontal.
        first = st.selectbox("Parameter", varied, key="one", bind="query-params", width=280)
        rest = [name for name in varied if name != first]
        second = st.selectbox("With", rest, key="other", bind="query-params", width=280)
    from optuna.visualization import plot_contour, plot_rank

    draw = {"contour": plot_contour, "rank": plot_rank}[str(kind)]
    made = _drawn(draw, searched, params=[first, second], target_name=for_plotly(metric))
    made.update_layout(height=520)
    chart(made, "pair", f"{kind} plot of {metric} over {first} and {second}")
    st.caption(
        "The contour is interpolated between the points that were tried."
        if kind == "contour"
        else "Each point is a trial, coloured by its rank: the first is the best."
    )
    st.caption(f"By Optuna, over {len(trials):,} trials. `ablate export STUDY --optuna URL` writes them for Optuna.")


def _points(picked: Any) -> list[dict[str, Any]]:
    return list(picked["selection"]["points"]) if picked else []
