"""The list of columns: one more column is in every output, and what a column shows is what it writes for machines."""

from __future__ import annotations

import io
import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from fake_store import FakeStore, fake_store
from rich.console import Console
from scipy import stats

import ablate.analysis.columns as columns_module
from ablate.analysis import read_study
from ablate.analysis.columns import Cell, Column, columns, machine_row
from ablate.analysis.findings import read_findings
from ablate.analysis.report import StudyReport
from ablate.analysis.why import why
from ablate.render.as_json import study_json
from ablate.render.document import ablation_table
from ablate.render.formats import Place, find_format
from ablate.render.table import print_study
from ablate.stats.hidden_noise import Tails
from ablate.store.records import TrialState
from dashboard.views.answer import ablation


def made() -> FakeStore:
    store = fake_store({"baseline": ({}, 9), "norm=none": ({"norm": "none"}, 8)}, seeds=3)
    for seed in range(3):
        store.add("baseline", seed, {"val_loss": 3.0 + seed / 100})
        store.add("norm=none", seed, {"val_loss": 3.2 + seed / 90})
    return store


@pytest.fixture
def one_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """A column that no output knows: added to the list by a plain function call."""
    usual = columns_module.columns
    added = Column(
        "zest",
        "zest",
        lambda row: Cell("tangy" if row.name == "baseline" else "sour"),
        help=("zest: how it tastes.",),
    )
    more = lambda report: (*usual(report), added)  # noqa: E731
    for module in (
        columns_module,
        *(__import__(f"ablate.render.{name}", fromlist=["columns"]) for name in ("table", "document", "as_json")),
        __import__("ablate.render.formats.data", fromlist=["columns"]),
        __import__("dashboard.views.answer", fromlist=["columns"]),
    ):
        monkeypatch.setattr(module, "columns", more)


@pytest.mark.usefixtures("one_more")
@pytest.mark.parametrize("name", ["csv", "html", "json", "latex", "md", "terminal"])
def test_one_more_column_is_in_every_format(name: str) -> None:
    text = find_format(name).render(read_findings(made(), "a_study"), Place())
    assert isinstance(text, str)
    assert "zest" in text
    assert "tangy" in text
    assert "sour" in text
    assert ("how it tastes" in text) == (name not in ("csv", "json"))


@pytest.mark.usefixtures("one_more")
def test_one_more_column_is_on_the_terminal_and_on_the_page() -> None:
    report, console = read_study(made(), "a_study"), Console(width=100, file=io.StringIO())
    print_study(report, console)
    assert "tangy" in console.file.getvalue()  # type: ignore[attr-defined]
    assert list(ablation(report)["zest"]) == ["tangy", "sour"]


@pytest.mark.parametrize("seeds", [1, 3])
def test_half_widths_and_the_digits_they_need_are_known_where_there_is_an_interval(seeds: int) -> None:
    store = made()
    for key, trial in [*store.trial_records.items()]:
        metrics = trial.metrics | {"val_loss_at_64": 2.0 + trial.seed / 1e4}
        store.trial_records[key] = replace(trial, metrics=metrics)
        if trial.seed >= seeds:
            del store.trial_records[key]
    report = read_study(store, "a_study")
    frame = ablation(report)
    mean = report.variants[1].metrics["val_loss"]
    assert ("val_loss ±" in frame) == (seeds > 1)
    if mean.low is not None and mean.high is not None:
        assert frame["val_loss ±"][1] == pytest.approx((mean.high - mean.low) / 2)
    length = why(report, "norm=none").facts["lengths"].removeprefix("at 64 ")
    assert length == ("2.0001 ± 0.0002 (baseline 2.0001 ± 0.0002)" if seeds > 1 else "2.000 (baseline 2.000)")


def test_intervals_that_may_be_lopsided_are_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the study shows a tail, or where so many seeds are compared that intervals are bootstrapped."""
    report, tails = read_study(made(), "a_study"), Tails(2.0, 0.1, 8, low=False, high=True)
    assert report.evidence.tails is None

    def explained(report: StudyReport) -> bool:
        return any("where it is not symmetric" in line for column in columns(report) for line in column.help)

    assert not explained(report)
    assert explained(replace(report, evidence=replace(report.evidence, tails=tails)))
    for many in (3, 4):
        monkeypatch.setattr(columns_module, "MANY", many)
        assert explained(report) == (many == 3)


def test_the_number_that_is_shown_is_the_one_that_machines_get() -> None:
    store = made()
    store.time("norm=none", [1250.0, 1210.0, 1230.0], [1000.0, 990.0, 1010.0])
    report = read_study(store, "a_study")
    (_, row) = report.variants
    values = machine_row(row, columns(report))
    numbers = {column.key: cell.number for column in columns(report) if (cell := column.text(row)).number is not None}
    assert numbers.keys() == {"parameters", "parameter_change", "val_loss", "difference", "relative_speed"}
    for column in columns(report):
        assert numbers.get(column.key) in (None, *column.values(row).values())
    assert json.loads(json.dumps(study_json(report)))["variants"][1]["table"] == values
    titles = [title.partition(" (")[0] for title in ablation_table(report).titles]
    assert titles == [column.title for column in columns(report)]


def test_machines_get_every_number_of_each_row() -> None:
    """Of a study whose numbers are all different, against numpy and scipy."""
    losses = {"baseline": [3.0, 3.1, 3.25, 3.05], "a=x": [3.31, 3.42, 3.56, 3.34], "b=x": [3.02, 3.1, 3.27, 3.06]}
    store = fake_store({name: ({"a": name}, 100 - at) for at, name in enumerate((*losses, "c=x"))}, seeds=4)
    for name, ends in losses.items():
        for seed, end in enumerate(ends):
            slope = 0.0 if name == "baseline" else 0.001 * (1 + seed)
            curve = [(step, end + (1200 - step) * (0.002 + slope)) for step in range(100, 1300, 100)]
            store.add(name, seed, {"val_loss": end}, curve=curve)
    for seed in range(4):
        states = (TrialState.FINISHED, TrialState.DIVERGED, TrialState.PRUNED, TrialState.FAILED)
        store.add("c=x", seed, {"val_loss": 2.0} if seed == 0 else {}, state=states[seed], stopped_at=seed)
    rates, theirs = [1250.0, 1210.0, 1230.0], [1000.0, 990.0, 1010.0]
    store.time("a=x", rates, theirs)
    report = read_study(store, "a_study")
    shown = columns(report)
    baseline, ours, same, lost = (machine_row(row, shown) for row in report.variants)
    gaps = np.subtract(losses["a=x"], losses["baseline"])
    hedges = math.gamma(1.5) / math.sqrt(1.5)  # of three degrees of freedom
    moved = -400 * 0.001 * np.arange(1, 5)  # over the last third

    def interval(values: Any, prefix: str, *, logarithmic: bool = False) -> dict[str, Any]:
        low, high = stats.ttest_1samp(values, 0).confidence_interval(0.95)
        ends = [np.mean(values), low, high]
        mean, low, high = map(pytest.approx, np.exp(ends) if logarithmic else ends)
        return {prefix or "mean": mean, f"{prefix}{'_' if prefix else ''}low": low,
                f"{prefix}{'_' if prefix else ''}high": high}  # fmt: skip

    (row,) = (row for row in report.variants if row.name == "a=x")
    assert ours == {
        "variant": "a=x",
        "hash": "hash of a=x",
        "parameters": 99,
        "parameter_change": pytest.approx(-0.01),
        "planned": 4,
        "finished": 4,
        "diverged": 0,
        "pruned": 0,
        **interval(losses["a=x"], ""),
        **interval(gaps, "difference"),
        "pairs": 4,
        "standard_error": pytest.approx(stats.sem(gaps)),
        "effect_size": pytest.approx(hedges * np.mean(gaps) / np.std(gaps, ddof=1)),
        "sign_flip_at_margin_p": 2 / 2**4,  # all four lie beyond the margin
        "sign_flip_at_margin_floor": 2 / 2**4,
        "verdict": "needed",
        "reason": row.verdict_sentence,
        "further_seeds": None,
        "holds_together": True,
        "steps_to_baseline": None,
        "reached_baseline": 0,
        "course": "shrinking",
        **interval(moved, "movement"),
        "provisional": True,
        **interval(np.log(np.divide(rates, theirs)), "relative_speed", logarithmic=True),
    }
    assert same["reached_baseline"] == sum(a <= b for a, b in zip(losses["b=x"], losses["baseline"], strict=True))
    assert (same["verdict"], same["holds_together"]) == ("undecided", False)
    assert isinstance(same["further_seeds"], int)
    assert [lost[name] for name in ("planned", "finished", "diverged", "pruned")] == [4, 1, 1, 1]
    nothing = {"difference", "verdict", "reason", "pairs", "effect_size", "further_seeds", "holds_together", "course"}
    assert {baseline[name] for name in nothing} == {None}
