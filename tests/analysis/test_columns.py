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
from ablate.analysis.columns import (
    Cell,
    Column,
    _own_decimals,
    columns,
    flip_at_margin,
    groups,
    machine_row,
    shared_decimals,
    steps_to_baseline,
    varied_cells,
)
from ablate.analysis.findings import read_findings
from ablate.analysis.report import StudyReport
from ablate.analysis.rows import StepsToBaseline
from ablate.analysis.why import why
from ablate.render.as_json import study_json
from ablate.render.document import ablation_table
from ablate.render.formats import Place, find_format
from ablate.render.table import print_study
from ablate.stats import Bounds, Interval, PairedDifference, Verdict, summarise
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


def everything() -> StudyReport:
    """A study that is tuned and timed, and has a test, a course, a declared column and a trivial baseline."""
    store = fake_store({"baseline": ({}, 9000), "norm=none": ({"norm": "none"}, 8100)}, seeds=3)
    spec = {"training": {"lr": 0.1, "warmup": 5}, "model": {"lr": 0.2}}
    tuned = {path: {"baseline": 1, "norm=none": 2} for path in ("training.lr", "model.lr", "training.warmup")}
    store.record = replace(store.record, space={"columns": ["val_acc"], "tuned": tuned},
                           trivial={"bigram": {"val_loss": 9.0}},
                           variants=tuple(replace(one, spec=spec) for one in store.record.variants))  # fmt: skip
    for seed in range(3):
        for worse, name in ((0.0, "baseline"), (0.2, "norm=none")):
            metrics = {
                "val_loss": 3.0 + worse + seed * (1 + worse / 20) / 100,
                "test_loss": 3.1 + worse,
                "val_acc": 0.5 + seed / 1000,
            }
            store.add(name, seed, metrics, curve=[(step, metrics["val_loss"]) for step in range(1, 10)])
    store.time("norm=none", [1250.0, 1210.0, 1230.0], [1000.0, 990.0, 1010.0])
    return read_study(store, "a_study")


def test_every_column_has_its_headings_formats_and_rank() -> None:
    """A narrow terminal leaves out costs and declared metrics first, and never a verdict."""
    report = everything()
    told = ("title", "short", "number", "is_text", "informative", "dispensable", "beneath", "trivial")
    found = {column.key: tuple(getattr(column, name) for name in told) for column in columns(report)}
    assert found == {
        "variant": ("variant", "", "", True, True, 0, "", "bigram"),
        "parameters": ("parameters", "params", "localized", False, True, 4, "", None),
        "parameter_change": ("change", "", "percent", False, True, 0, "parameters", None),
        "tuned training.lr": ("training.lr", "", "", False, True, 0, "", None),
        "tuned model.lr": ("model.lr", "", "", False, True, 0, "", None),
        "tuned training.warmup": ("warmup", "", "", False, True, 0, "", None),
        "seeds": ("seeds", "", "", False, False, 0, "", None),
        "val_loss": ("val_loss", "", "%.3f", False, True, 0, "", 9.0),
        "test_loss": ("test_loss", "", "%.3f", False, True, 0, "", None),
        "val_acc": ("val_acc", "", "%.4f", False, True, 1, "", None),
        "difference": ("difference", "diff.", "%+.3f", False, True, 0, "", None),
        "verdict": ("verdict", "", "", True, True, 0, "", "trivial baseline"),
        "steps_to_baseline": ("steps", "", "", False, True, 2, "", None),
        "course": ("course", "", "", False, True, 3, "", None),
        "relative_speed": ("speed", "", "", False, True, 1, "", None),
    }
    written = [column.of_trivial(3) for column in columns(report) if column.trivial]
    assert written == ["bigram", "9.000", "trivial baseline"]
    cell = {column.key: column.text(report.variants[1]) for column in columns(report)}
    half, speed = 4.302653 * 0.01 / math.sqrt(3), cell["relative_speed"]
    assert cell["parameters"] == Cell("8,100", ("8.10k",), number=8100)
    assert cell["parameter_change"] == Cell("-10%", head=4, tone="dim", number=-0.1)
    number, width = pytest.approx(3.2101), pytest.approx(1.01 * half)
    assert cell["val_loss"] == Cell("3.210 ± 0.025", ("3.210", "± 0.025"), 5, number=number, half=width)
    number, width = pytest.approx(0.2001), pytest.approx(half / 100)
    assert cell["difference"] == Cell("+0.200 ± 0.000", ("+0.200", "± 0.000"), 6, number=number, half=width)
    assert cell["verdict"] == Cell("needed: worse by at least 0.19", ("needed", "≥ 0.19 worse"), 6, "needed")
    assert speed == Cell(speed.text, ("1.23x", speed.text[6:]), 5, number=pytest.approx(1.23, abs=0.005))


@pytest.mark.parametrize(
    ("state", "text", "tone"),
    [(TrialState.DIVERGED, "diverged", "diverged"), (TrialState.PRUNED, "pruned", "dim"), (TrialState.WAITING, "", "")],
)
def test_cells_of_variants_without_all_results_say_why(state: TrialState, text: str, tone: str) -> None:
    store = made()
    store.add("norm=none", 2, state=state)
    store.record = replace(store.record, space={"columns": ["val_acc"]})
    report = read_study(store, "a_study")
    cell = {column.key: column.text(report.variants[1]) for column in columns(report)}
    assert cell["val_acc"] == (Cell(text, head=len(text), tone=tone) if text else Cell("-"))
    assert (cell["difference"] == Cell("-")) == bool(text)
    (seeds,) = (column for column in columns(report) if column.key == "seeds")
    assert seeds.informative == (state is not TrialState.DIVERGED)
    assert cell["seeds"] == Cell("2/3")


@pytest.mark.parametrize(
    ("median", "reached", "of", "shown"),
    [
        (None, 0, 0, "-"), (None, 0, 3, "never"), (None, 1, 3, "1 of 3"), (9.125, 2, 3, "9.12"), (10.0, 3, 3, "10"),
        (10.5, 3, 3, "10"), (999999.0, 3, 3, "999999"), (1e6, 3, 3, "1e+06"),
    ],
)  # fmt: skip
def test_the_time_to_the_baseline_is_a_median_or_how_many_seeds_reached_it(
    median: float | None, reached: int, of: int, shown: str
) -> None:
    report = read_study(made(), "a_study")
    found = replace(report.variants[1], spent_to_baseline=StepsToBaseline(median, reached, of))
    assert steps_to_baseline(found) == shown
    (column,) = (
        one for one in columns(replace(report, variants=(report.baseline, found))) if one.key == "steps_to_baseline"
    )
    assert ("`1 of 3`: only 1 of 3 seeds reached it" in column.help[0]) == (0 < reached < of)


@pytest.mark.parametrize(
    ("verdict", "reason"),
    [
        (Verdict("needed", "", None, bound=Bounds(0.3, 0.154, 0.4, 3)), "≥ 0.15 worse"),
        (Verdict("not needed", "", None, bound=Bounds(-0.3, -0.4, -0.154, 3)), "≥ 0.15 better"),
        (Verdict("not needed", "", None, bound=Bounds(-0.1, -0.2, 0.0, 3)), "≤ 0 worse"),
        (Verdict("not worse", "", None, bound=Bounds(0.0, -0.1, 0.0154, 3)), "≤ 0.016 worse"),
        (Verdict("diverged", "", None), "0 of 3 seeds"),
        (Verdict("undecided", "", 5, chance=0.5), "5 more: 50 %"),
        (Verdict("undecided", "", 5), "~5 more seeds"),
        (Verdict("undecided", "", 1), "~1 more seed"),
        (Verdict("undecided", "", None, withheld="1 trial of it failed"), "failures"),
        (Verdict("undecided", "", None), "many more seeds"),
    ],
)  # fmt: skip
def test_a_narrow_window_gives_the_reason_of_a_verdict_in_a_few_characters(verdict: Verdict, reason: str) -> None:
    report = read_study(made(), "a_study")
    (column,) = (column for column in columns(report) if column.key == "verdict")
    assert column.text(replace(report.variants[1], verdict=verdict)).lines == (verdict.word, reason)


@pytest.mark.parametrize(("direction", "p"), [("minimize", 0.75), ("maximize", 0.25)])
def test_signs_are_flipped_at_the_margin_on_the_worse_side(direction: str, p: float) -> None:
    """Two of three differences lie above the margin, and all of them above its negative."""
    store = made()
    store.record = replace(store.record, objective={"metric": "val_loss", "direction": direction, "margin": 0.2011})
    report = read_study(store, "a_study")
    values = machine_row(report.variants[1], columns(report))
    assert [values[f"sign_flip_at_margin_{name}"] for name in ("p", "floor")] == [p, 0.25]
    assert flip_at_margin(summarise([0.3, 0.4]), report) == {"p": 0.5, "floor": 0.5}
    assert flip_at_margin(summarise([0.3]), report) is None


def test_digits_show_the_first_digit_of_most_half_widths() -> None:
    """Of the intervals of means and of differences; of 1.05e-5 and of 9e-5 that is the fifth decimal."""
    report = read_study(made(), "a_study")
    for low, high in ((-0.7e-5, 1.4e-5), (-0.6e-4, 1.2e-4)):
        mean, alone = Interval(3.0, 3.0 + low, 3.0 + high, 3), Interval(3.0, None, None, 1)
        difference = PairedDifference(0.1, 0.1 + low, 0.1 + high, 3, 0.1, 0.1)
        for of_mean, compared in ((mean, None), (alone, difference)):
            metrics = {"val_loss": of_mean, "val_acc": mean}
            rows = [replace(row, metrics=metrics, difference=compared) for row in report.variants]
            shown = replace(report, variants=(*rows, replace(rows[0], metrics={}, difference=None)))
            assert (shared_decimals(shown), _own_decimals(shown, "val_acc")) == (5, 5)
    for largest, digits in ((-100.0, 1), (99.5, 2), (-20.0, 2)):
        rows = [replace(row, metrics={"val_acc": replace(alone, mean=mean)})
                for row, mean in zip(report.variants, (0.5, largest), strict=True)]  # fmt: skip
        assert _own_decimals(replace(report, variants=tuple(rows)), "val_acc") == digits, "a thousandth of the largest"
    assert _own_decimals(report, "val_acc") == 3


def test_variants_that_change_one_switch_stand_together() -> None:
    settings = {"baseline": {}, "a=x": {"a": "x"}, "b=x": {"b": "x"}, "both": {"a": "x", "b": "x"}, "a=y": {"a": "y"},
                "a=z,b=x": {"a": "z", "b": "x"}, "c=x": {"c": "x"}}  # fmt: skip
    store = fake_store({name: (of, 9) for name, of in settings.items()}, seeds=1)
    report = read_study(store, "a_study")
    found = [[row.name for row in group] for group in groups(report)]
    assert found == [["baseline"], ["a=x", "a=y"], ["b=x", "c=x"], ["both", "a=z,b=x"]]
    alone = [[row.name for row in group] for group in groups(replace(report, variants=report.variants[:2]))]
    assert alone == [["baseline"], ["a=x"]]


def test_machines_get_what_varies_under_the_name_of_its_kind() -> None:
    """A setting of a variant that is not among the switches of the space is a `value`; lists and mappings are JSON."""
    report = everything()
    spec = {"training": {"lr": None, "warmup": [5, 6]}, "model": {"lr": {"b": 1, "a": 0.5}}}
    variant = replace(report.record.variants[1], spec=spec, settings={"norm": "none", "model.heads": "4"})
    record = replace(report.record, space=report.record.space | {"switches": {"norm": {}}}, variants=(variant,))
    tuning = report.evidence.tuning
    assert tuning is not None
    of = {"norm=none": replace(tuning.of["norm=none"], values={"training.lr": 0.5})}
    evidence = replace(report.evidence, tuning=replace(tuning, of=of))
    assert varied_cells(variant, replace(report, record=record, evidence=evidence)) == {
        "switch.norm": "none",
        "value.model.heads": 4,
        "tuned.training.lr": 0.5,
        "tuned.model.lr": '{"a": 0.5, "b": 1}',
        "tuned.training.warmup": "[5, 6]",
    }
    untuned = replace(report, record=replace(record, space={}), evidence=replace(evidence, tuning=None))
    assert varied_cells(variant, untuned) == {"switch.norm": "none", "switch.model.heads": "4"}


@pytest.mark.parametrize("comparable", [(True, None), (True, False), (False, None)])
def test_a_decay_of_one_variant_is_told_of_all_courses(comparable: tuple[bool | None, ...]) -> None:
    report = everything()
    course = report.variants[1].course
    assert course is not None
    rows = tuple(replace(report.variants[1], course=replace(course, comparable=one)) for one in comparable)
    told = {column.key: column for column in columns(replace(report, variants=(report.baseline, *rows)))}["course"]
    line = (
        "course: how much the difference changed over the last third of training; by its 95 % interval growing, "
        "shrinking or crossing zero, by more than 0.002; settled, by less than 0.02; unclear, neither."
    )
    decay = " The learning rate decays: earlier points do not show where shorter training runs would end."
    assert told.help == (line + decay * (False in comparable),)
    assert told.informative


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
