"""The shared parts of pages, and the errors of the command."""

from __future__ import annotations

import ast
import base64
import io
import math
import re
import socket
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
from cli_runs import Workplace
from fake_store import fake_store
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from rich.console import Console
from vega import at, marks, rows, series

from ablate.analysis import read_study
from ablate.analysis.answer import answer_of
from ablate.analysis.columns import columns
from ablate.analysis.curves import Band, Line, band
from ablate.analysis.effects import EffectRow, StudyEffects
from ablate.analysis.pareto import Front, FrontPoint
from ablate.analysis.runs import read_runs
from ablate.analysis.status import Status
from ablate.render.document import ablation_table
from ablate.render.figures.axes import draw_parallel
from ablate.render.figures.curves import band_panels, course_panels, draw_bands, outliers, rows_with_course
from ablate.render.figures.forest import most_telling_first
from ablate.render.figures.front import (
    draw_front,
    draw_front_panel,
    draw_front_rows,
    finding,
    is_crowded,
    not_drawn,
)
from ablate.render.figures.style import PAPER, Palette, character, spread, with_equal_decimals, wrapped
from ablate.render.table import print_study
from ablate.spec.document import read_document
from ablate.stats import Interval
from ablate.store import CurvePoint, TrialState
from ablate.store.records import RunningTrial, WorkerRecord
from dashboard.shared.exports import cell_words, on_page, widened
from dashboard.shared.results import split_tags
from dashboard.shared.schema import to_yaml
from dashboard.shared.text import aligned, escape, fitting, one_line, prose, wrapping
from dashboard.views import across, cluster, effects
from dashboard.views.across import DrawnVariant, common, differing
from dashboard.views.answer import LEAST, _word_widths, ablation
from dashboard.views.cluster import running_table
from dashboard.views.curves import PRUNED, Group, _offered, _singles
from dashboard.views.effects import parallel, variant_table
from dashboard.views.runs import meaning
from dashboard.views.studies import strip

FOLDER = Path(__file__).parent.parent.parent / "dashboard"
FILES = sorted(FOLDER.rglob("*.py"))


@given(st.text(max_size=200) | st.text(alphabet="*_`[]()<>#!&;~:/\\\\ ab", max_size=40))
def test_escaped_text_is_read_as_one_run_of_words(text: str) -> None:
    shown = escape(text).strip("\u2068\u2069")
    tokens = MarkdownIt("commonmark").enable("strikethrough").parseInline(shown)[0].children or []
    assert {token.type for token in tokens} <= {"text", "text_special"}
    words = "".join(token.content for token in tokens).replace("\u2060", "")
    assert words.strip() == one_line(text, 10_000).replace("\u2060", "").strip()


@given(st.text(alphabet="*_`[]()<>#!&;~:/\\\\ ab@.", max_size=60))
@example("_@_._")
def test_a_sentence_is_words_and_code_and_nothing_else(text: str) -> None:
    shown = MarkdownIt("commonmark").enable("strikethrough").parseInline(prose(text))[0].children or []
    assert {token.type for token in shown} <= {"text", "text_special", "code_inline"}
    words = "".join(token.content for token in shown).replace("\u2060", "").replace("`", "")
    assert "".join(words.split()) == "".join(text.replace("`", "").split())


GFM_MAIL = re.compile(r"[-.\w+]+@[-\w]+(?:\.[-\w]+)+")
"""What mdast-util-gfm-autolink-literal, which Streamlit's client reads Markdown with, makes a mail link of."""


def test_no_name_of_a_variant_becomes_a_mail_link() -> None:
    for name in ("baseline@training.optimizer.lr=0.003", "norm=none@model.heads=4,task.context=64"):
        assert GFM_MAIL.search(name), "without care it is one"
        shown = MarkdownIt("commonmark").parseInline(escape(name))[0].children or []
        assert not GFM_MAIL.search("".join(token.content for token in shown))


def test_a_long_text_is_cut() -> None:
    assert one_line("a" * 500) == "a" * 119 + "…"
    assert one_line("a\n\tb\u202ec") == "a b\ufffdc"


@pytest.mark.parametrize(
    ("value", "form", "words"),
    [
        (0.25, "percent", "25%"), (63_264, "compact", "63.3k"), (184_622, None, "184,622"),
        (1234.5, "localized", "1,234"), (-0.0042, "%+.4f", "-0.0042"), (1.80655, None, "1.807"),
        (True, None, "True"), ("SAS", "%+.4f", "SAS"),
        *((math.inf, form, "inf") for form in (None, "percent", "compact", "localized")),
    ],
)  # fmt: skip
def test_a_cell_on_a_phone_is_that_of_the_table(value: object, form: str | None, words: str) -> None:
    assert cell_words(value, form) == words


def test_a_name_in_a_figure_is_narrow_and_whole() -> None:
    name = "attention_skip=removed,values=identity,projection=identity@training.optimizer.lr=0.01"
    lines = wrapped(name, 34).split("\n")
    assert "".join(lines) == name
    assert max(map(len, lines)) <= 34
    assert wrapped("the block → SAS-P without normalisation", 24) == "the block → SAS-P\nwithout normalisation"
    assert wrapped("norm=none", 34) == "norm=none"


def test_names_that_begin_alike_are_lines_by_themselves() -> None:
    made = {f"{'a' * 80}@lr={last}": band([Line((0, 1), (0.0, 1.0), (3.0, 2.0))]) for last in ("0.001", "0.002")}
    drawn = draw_bands(made, dict.fromkeys(made, PAPER.look(0)), PAPER, ("steps", "loss"))
    assert len(series(marks(drawn, "line")[0])) == 2


def test_words_of_a_table_that_do_not_fit_on_a_line_are_wrapped() -> None:
    table = pd.DataFrame({"name": ["a" * 10, "b" * 40, None], "said": ["yes", "no", "no"]})
    assert fitting(table, "name") > 40 * 6
    assert fitting(table, "name", 90) == 90
    for length in range(1, 40):
        words = pd.DataFrame({"name": ["a" * length]})
        assert wrapping(words, {"name": fitting(words, "name")}) is None
    two, four = wrapping(table, {"name": 160}), wrapping(table, {"name": 90})
    assert two == 65, "Streamlit wraps words in rows of more than 64 pixels"
    assert four is not None
    assert four > two


def test_of_a_search_those_variants_are_drawn_first_that_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["baseline", *(f"pruned {n}" for n in range(9)), "found"]
    made = fake_store({name: ({}, 1) for name in names}, seeds=1)
    for name in names:
        state = TrialState.PRUNED if name.startswith("pruned") else TrialState.FINISHED
        made.add(name, 0, {"val_loss": 1.0} if state is TrialState.FINISHED else {}, state=state)
    monkeypatch.setattr("dashboard.views.curves.runs", lambda study: read_runs(made, made.record, "val_loss"))
    monkeypatch.setattr("dashboard.views.curves.answer", lambda study, task: answer_of(read_study(made, "a_study")))
    offered, first = _offered(made.record, "")
    assert set(offered) == set(names)
    assert first[:2] == ["baseline", "found"]
    assert set(first[2:]) == set(names) - {"baseline", "found"}


def test_an_outlier_has_an_axis_of_its_own_that_holds_it_and_its_baseline() -> None:
    ends = {"baseline": 1.0, "a": 1.1, "b": 1.2, "c": 1.15, "d": 9.0}
    bands = {name: Band((0.0, 1.0), (1.3, end), (1.3, end), (1.3, end), 3) for name, end in ends.items()}
    assert outliers(bands) == ["d"]
    beside, verdicts = dict.fromkeys("abcd", "baseline"), {"a": "worse", "b": "worse", "c": "undecided"}
    bounds = {"a": "≥ +0.05"}
    panels_of = partial(band_panels, bands, beside, PAPER, ("steps", "loss"), verdicts=verdicts, bounds=bounds)
    drawn = panels_of()
    titles = [(*panel["title"]["text"], *panel["title"]["subtitle"]) for panel in drawn["concat"]]
    assert titles == [("a", "worse · 1.10 · Δ ≥ +0.05"), ("b", "worse · 1.20"), ("c", "undecided · 1.15"),
                      ("d", "own axis · 9.00")], "each but the baseline, which is in all of them"  # fmt: skip
    keys = [panel["layer"][1]["encoding"] for panel in drawn["concat"]]
    colours = [key["color"]["scale"]["range"][-1] for key in keys]
    assert colours == [panel["title"]["subtitleColor"] for panel in drawn["concat"]]
    assert (colours[0] == colours[1], len(set(colours))) == (True, 3)
    assert [key["strokeDash"]["scale"]["domain"] for key in keys] == [["baseline", "variant"]] * 4
    *others, last = [key["y"]["scale"]["domain"] for key in keys]
    assert others == [others[0]] * 3
    assert others[0][1] < 2
    assert last[1] > 9
    assert last[0] < 1.0, "the baseline is in it"
    assert others[0][0] <= 1.0
    assert others[0][1] >= 1.2
    dashed = rows(marks(panels_of(margin=0.2)["concat"][0], "line")[-1])
    assert [row["mean"] for row in dashed] == pytest.approx([1.5, 1.2]), "the margin beside the baseline"
    assert outliers(dict(list(bands.items())[:3])) == [], "too few to tell"
    assert (drawn["columns"], panels_of(width=340)["columns"]) == (3, 2)
    falls = {name: Band((0.0, 1.0), (10.0, end), (10.0, end), (10.0, end), 3) for name, end in ends.items()}
    assert outliers(falls) == [], "what the axis shows is not named as beyond it"


def test_labels_at_the_ends_of_lines_do_not_collide() -> None:
    ends = {"a": 2.0, "b": 2.0, "c": 1.0}
    made = {name: Band((0.0, 1.0), (3.0, end), (3.0, end), (3.0, end), 3) for name, end in ends.items()}
    drawn = draw_bands(made, dict.fromkeys(made, PAPER.look(0)), PAPER, ("steps", "loss"), height=200)
    labels = marks(drawn, "text")
    low, high = labels[0]["encoding"]["y"]["scale"]["domain"]
    places = sorted((row["mean"] - low) / (high - low) * 200 for of in labels for row in rows(of))
    assert sorted(row["end"] for of in labels for row in rows(of)) == ["■ 1", "■ 2", "■ 2"]
    assert all(above - below >= 12 for below, above in pairwise(places)), "eleven pixels is the height of a letter"
    assert list(marks(drawn, "line")[0]["encoding"]["color"]["scale"]["domain"]) == ["a", "b", "c"]
    named = draw_bands(made, dict.fromkeys(made, PAPER.look(0)), PAPER, ("steps", "loss"), height=200, named=True)
    sign, color = character(PAPER.look(0)), PAPER.look(0).colour
    told = [(row["end"], of["mark"]["color"]) for of in marks(named, "text") for row in rows(of)]
    assert sorted(told) == [(f"{sign} {end}", color) for end in ("1 c", "2 a", "2 b")], "as its line"
    assert not any(layer["encoding"].get("color", {}).get("legend") for layer in named["layer"]), "said once"


def test_what_is_dominated_far_off_is_not_drawn_but_said() -> None:
    values = {"baseline": (1.8, 100.0), "small": (1.85, 90.0), "near": (1.9, 100.0), "far": (2.9, 101.0)}
    points = tuple(
        FrontPoint(name, dict(zip(("val_loss", "parameters"), map(measured, of), strict=True)), not sure, None, sure)
        for name, of in values.items()
        for sure in (name in ("near", "far"),)
    )
    front = Front(("val_loss", "parameters"), ("minimize", "minimize"), points, (), {name: name for name in values})
    drawn = draw_front(front, {"small": "as good"}, PAPER)
    hollow, filled, every = (rows(one) for one in marks(drawn, "point"))
    assert [row["variant"] for row in every] == ["baseline", "small", "near"]
    assert ([row["variant"] for row in hollow], [row["variant"] for row in filled]) == (["near"], ["baseline", "small"])
    assert {row["variant"]: row["verdict"] for row in every}["small"] == "as good"
    look = marks(drawn, "point")[0]["encoding"]["color"]["scale"]
    assert dict(zip(look["domain"], look["range"], strict=True))["as good"] == PAPER.verdict("not needed").colour
    assert marks(drawn, "point")[0]["encoding"]["y"]["scale"]["domain"][1] < 2.5
    assert not_drawn(front) == "Too far off to be drawn, and dominated: far."


def test_labels_below_each_other_have_equal_decimals() -> None:
    assert with_equal_decimals([1.837, 1.8, 0.05012]) == ["1.837", "1.800", "0.050"]
    assert with_equal_decimals([44.0, 8.0]) == ["44", "8"]
    assert with_equal_decimals([1e-6, 2.5e-5]) == ["1e-06", "2.5e-05"]
    assert with_equal_decimals([]) == []


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=12))
def test_labels_are_moved_apart_in_their_order_and_around_their_places(places: list[float]) -> None:
    moved = spread(places, 1.0)
    order = sorted(range(len(places)), key=lambda index: (places[index], index))
    assert all(moved[above] - moved[below] >= 1 - 1e-9 for below, above in pairwise(order))
    assert math.fsum(moved) == pytest.approx(math.fsum(places)), "as far up as down"
    assert spread([3 * index for index in range(4)], 1.0) == [0, 3, 6, 9], "those far apart stay"


def test_each_point_has_its_label_though_others_are_near() -> None:
    points = tuple(
        FrontPoint(
            f"v{number}", {"val_loss": measured(1.7 + number / 1e4), "parameters": measured(100.0)}, True, None, False
        )
        for number in range(9)
    )
    front = Front(
        ("val_loss", "parameters"), ("minimize", "minimize"), points, (), {one.variant: one.variant for one in points}
    )
    drawn = draw_front_panel(front, "parameters", {}, PAPER, {one.variant: one.variant.upper() for one in points})
    labels = [row for layer in marks(drawn, "text") for row in rows(layer)]
    assert {row["label"] for row in labels} == {f"V{number}" for number in range(9)}
    low, high = marks(drawn, "point")[0]["encoding"]["y"]["scale"]["domain"]
    places = sorted({(row["place"] - low) / (high - low) * 440 for row in labels})
    assert len(places) == 9
    assert all(above - below >= 11 for below, above in pairwise(places)), "eleven pixels is the height of a letter"


def test_each_running_trial_has_its_loss_and_where_it_runs_below_its_variant() -> None:
    begun = datetime(2026, 1, 1, tzinfo=UTC)
    where = WorkerRecord("here", "cpu", 5)
    trial = RunningTrial("k1", "s", "v", 3, 50, 200, 2.5, 1, begun, where, 1.0, 1.0, "fp32")
    waiting = replace(trial, key="k2", seed=4, step=None, val_loss=None, worker=None)
    status = Status(begun + timedelta(seconds=70), (), (trial, waiting), 0)
    told = cluster.running_html(status, running_table(status, {"s": {"v": "no norm"}}))
    first, second = re.findall("<tr><td>.*?</tr>", told.partition("no norm")[2])
    assert "trial=k1" in first
    assert [" ".join(re.sub("<.*?>", " ", one).split()) for one in (first, second)] == [
        "seed 3 here · cpu here · cpu 25% 2.5000 1 min 10 s",
        "seed 4 waits for a worker waits for a worker 0% - 1 min 10 s",
    ]


def test_across_studies_it_is_said_what_is_the_same() -> None:
    one = DrawnVariant("a", "", band([]), frozenset({"f1"}), "copy of 8 tokens", "", frozenset({100}), frozenset({800}))
    assert common([one, one]).endswith("Same budget: 100 steps, 800 tokens.")
    longer = replace(one, steps=frozenset({2000}), tokens=frozenset({16_000}))
    assert "Budgets differ (100 and 2,000 steps; 800 and 16,000 tokens)" in common([one, longer])
    assert not differing([one, longer])
    assert "different data" in differing([one, replace(one, data=frozenset({"f2"}))])


def test_rows_replace_a_column_of_points_that_hide_each_other() -> None:
    sizes = {"baseline": 100.0, "a": 100.0, "b": 100.1, "c": 100.0, "d": 100.0, "small": 73.0}
    points = tuple(
        FrontPoint(
            name, {"val_loss": measured(1.7 + n / 100), "parameters": measured(size)}, name == "small", "a", False
        )
        for n, (name, size) in enumerate(sizes.items())
    )
    titles = {name: name for name in sizes} | {"small": "no table"}
    front = Front(("val_loss", "parameters"), ("minimize", "minimize"), points, (), titles)
    assert finding(front, {}) == "No other variant is better in both than no table (val_loss +0.05, parameters -27 %)."
    all_but_first = replace(front, points=tuple(replace(one, on_front=one.variant != "baseline") for one in points))
    few = "5 of 6 are on the front: no other is better in both."
    good = "As good as the baseline with the fewest parameters: no table, -27 %."
    assert finding(all_but_first, {"small": "as good", "a": "better"}) == f"{good} {few}"
    none = "No variant with fewer parameters is shown to be as good as the baseline."
    assert finding(all_but_first, {"small": "undecided", "b": "as good"}) == f"{none} {few}"
    assert is_crowded(front, "parameters")
    apart = replace(front, points=tuple(one for one in points if one.variant != "b"))
    assert not is_crowded(apart, "parameters"), "four names fit beside each other"
    drawn = marks(draw_front_rows(front, {}, PAPER, titles), "point")[-1]
    domain = drawn["encoding"]["y"]["scale"]["domain"]
    assert len(set(domain)) == len(sizes), "each has a row of its own"
    assert domain[-1] == "no table, parameters -27 %"


def measured(mean: float) -> Interval:
    return Interval(mean, mean - 0.01, mean + 0.01, 3)


def test_numbers_of_a_column_have_the_same_decimals() -> None:
    assert [aligned(pd.Series(numbers)) for numbers in ([1.734, 6.93], [17.55, 2.6], [0.0012], [float("nan")])] == [
        "%.3f",
        "%.2f",
        "%.6f",
        "%.4g",
    ]


def test_a_strip_counts_the_verdicts_those_alike_together() -> None:
    drawn = base64.b64decode(strip(("worse", "ahead", "undecided", "must stay")).partition(",")[2]).decode()
    colours = re.findall(r'fill="(#[0-9a-f]+)"', drawn)
    words = ("ahead", "needed", "undecided")
    assert [one for one in colours if one != Palette().ink] == [Palette().verdict(word).colour for word in words]
    assert re.findall(r">(\d+)</text>", drawn) == ["1", "2", "1"]
    assert len({*re.findall(r'path d="([^"]+)"', drawn)}) == 3, "a shape tells a verdict, too"
    assert strip(()) is None


def test_a_number_of_seeds_is_told_with_what_it_trains() -> None:
    made = fake_store({"baseline": ({}, 100), "a=x": ({"a": "x"}, 90), "a=y": ({"a": "y"}, 90)}, seeds=4, margin=0.05)
    for seed in range(4):
        for name, value in (
            ("baseline", 2.0),
            ("a=x", 2.0 + 0.002 * (-1) ** seed),
            ("a=y", 2.05 + 0.03 * (-1) ** seed),
        ):
            made.add(name, seed, {"val_loss": value + 0.001 * seed}, seconds=30)
    report = read_study(made, "a_study")
    assert [row.name for row in report.variants if row.verdict and row.verdict.word == "undecided"] == ["a=y"]
    assert meaning(4, 8, report) == (
        "At least 4 seeds of each variant, and up to 8 of the 1 undecided and of the baseline; seeds 4 to 7 are new: 8 "
        "more trials at most, about 4 min 00 s of training."
    )
    assert "seeds 4 to 5 are new: 6 more trials at most" in meaning(6, 6, report)
    assert "no seed is new: 0 more trials at most." in meaning(4, 4, report)


def test_tags_are_split_at_commas_without_duplicates() -> None:
    assert split_tags(" b, a b ,, b,c ") == ("b", "a b", "c")


def test_yaml_is_read_back(tmp_path: Path) -> None:
    plain = {"name": "x: [", "model": {"depth": 2, "gain": 1e-8, "none": None, "list": [1, "é"], "empty": {}}}
    (tmp_path / "a.yaml").write_text(to_yaml(plain), encoding="utf-8")
    assert read_document(tmp_path / "a.yaml", "a file").plain == plain


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(FOLDER)))
def test_pages_use_neither_torch_nor_sql(file: Path) -> None:
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(str(node.module).split(".")[0])
    assert not found & {"torch", "sqlalchemy", "sqlite3", "alembic"}
    assert "unsafe_allow" not in file.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--host", "nowhere.invalid"), "there is no such address"),
        (("--port", "70000"), "--port"),
        (("--store", "text"), "a store is a file, but this is a folder"),
        (("--store", "mysql://x/y"), "cannot be a store"),
        (("--plugin", "missing.py"), "missing.py"),
    ],
    ids=" ".join,
)
def test_mistakes_are_reported(tmp_path: Path, cache: Path, arguments: tuple[str, ...], said: str) -> None:
    done = Workplace(tmp_path, cache).call("dashboard", *arguments)
    assert done.code == 2
    assert said in done.err
    assert "Traceback" not in done.err


def test_a_port_that_is_taken_is_reported(tmp_path: Path, cache: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = Workplace(tmp_path, cache).call("dashboard", "--port", str(taken.getsockname()[1]))
    assert (done.code, done.err.count("cannot listen here")) == (2, 1)


def test_without_the_extra_it_is_reported_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from ablate import extras, serving
    from ablate.errors import AblateError

    monkeypatch.setattr(extras, "find_spec", lambda name: None if name == "streamlit" else object())
    with pytest.raises(AblateError, match=r"needs streamlit.*ablate-blocks\[dashboard\]"):
        serving.serve("x.db", None, "127.0.0.1", ())


def test_no_table_gives_a_variant_without_result_a_mean_or_takes_it_for_the_baseline() -> None:
    """The same of the terminal, of documents (Markdown, HTML, LaTeX) and of the dashboard."""
    store = fake_store({"baseline": ({}, 9), "a": ({"s": "a"}, 9), "b": ({"s": "b"}, 9)}, seeds=2)
    for seed in range(2):
        store.add("baseline", seed, {"val_loss": 3.0 + seed / 100})
    for name, state in (("a", TrialState.PRUNED), ("b", TrialState.DIVERGED)):
        store.add(name, 0, {"val_loss": 2.0})
        store.add(name, 1, state=state, stopped_at=4)
    report = read_study(store, "a_study")
    table = {row["variant"]: row for row in ablation(report).to_dict("records")}
    written = {row[0]: row for group in ablation_table(report).groups for row in group}
    verdict = ablation_table(report).titles.index("verdict (one-sided)")
    console = Console(width=140, file=io.StringIO())
    print_study(report, console)
    for name, lost in (("a", "pruned"), ("b", "diverged")):
        assert pd.isna(table[name]["val_loss"])
        assert pd.isna(table[name]["difference"])
        assert table[name]["verdict"] == written[name][verdict] != "baseline"
        assert lost in written[name]
        line = next(line for line in console.file.getvalue().splitlines() if line.startswith(f"{name} "))
        assert lost in line
        assert "baseline" not in line


def test_the_table_has_what_the_terminal_has_of_a_tuned_study() -> None:
    store = fake_store({"baseline": ({}, 9), "a": ({"s": "a"}, 9)}, seeds=2)
    rates = {"baseline": 0.1, "a": 0.2}
    variants = [replace(one, spec={"training": {"lr": rates[one.name]}}) for one in store.record.variants]
    store.record = replace(store.record, space={"tuned": {"training.lr": rates}}, variants=tuple(variants))
    for seed in range(2):
        for name in ("baseline", "a"):
            store.add(name, seed, {"val_loss": 3.0 + seed / 100})
    report = read_study(store, "a_study")
    (group, *others), titles = ablation_table(report).groups, [column.title for column in columns(report)]
    written = [dict(zip(titles, row, strict=True)) for row in (*group, *(row for rows in others for row in rows))]
    shown = ablation(report).to_dict("records")
    for title in ("variant", "lr", "verdict", "steps", "course"):
        assert [str(row[title]) for row in shown] == [row[title] for row in written]


def test_the_axis_of_a_number_is_ordered_though_the_baseline_has_none() -> None:
    settings = [{}, *({"rate": rate} for rate in ("0.03", "0.001", "0.01"))]
    store = fake_store({"baseline": ({}, 9)} | {f"v{n}": (one, 9) for n, one in enumerate(settings) if one}, seeds=1)
    for name in ("baseline", "v1", "v2", "v3"):
        store.add(name, 0, {"val_loss": 3.0})
    record = store.study("a_study")
    drawn = parallel(variant_table(record, read_runs(store, record, "val_loss")), record, None, PAPER)
    places = {
        row["line"]: row["at"] for line in marks(drawn, "line") for row in rows(line) if row["axis"] == "rate (log)"
    }
    assert 0 not in places, "the baseline has no rate"
    high, low, middle = (places[line] for line in (1, 2, 3))
    assert low < middle < high
    told = {
        row["text"]: row["at"] for unit in marks(drawn, "text") for row in rows(unit) if row["axis"] == "rate (log)"
    }
    assert sorted(told, key=told.__getitem__) == ["0.001", "0.01", "0.03"]


def test_of_parallel_axes_the_best_mean_is_marked_and_the_table_shows_what_differs() -> None:
    settings = {"baseline": {"a": "on", "b": "2"}, "x": {"a": "off", "b": "2"}, "y": {"a": "on", "b": "3"}}
    losses = {"baseline": 3.0, "x": 2.0, "y": 4.0}
    for direction, best in (("minimize", "x"), ("maximize", "y")):
        made = fake_store({name: (one, 9) for name, one in settings.items()}, seeds=1, direction=direction)
        for name, loss in losses.items():
            made.add(name, 0, {"val_loss": loss})
        table = variant_table(made.record, read_runs(made, made.record, "val_loss"))
        place = effects.best_row(table, made.record)
        assert place is not None
        assert table["name"][place] == best
    assert effects.best_row(table.assign(val_loss=None), made.record) is None
    ahead = table.assign(val_loss=[9.0 if name == "baseline" else 1.0 for name in table["name"]])
    place = effects.best_row(ahead, made.record)
    assert place is not None
    assert table["name"][place] != "baseline", "the baseline is what others are compared with"


def test_an_interaction_is_better_or_worse_than_the_sum_only() -> None:
    effects = SimpleNamespace(is_worse=lambda change: change > 0, margin=0.4, withheld="", direction="minimize")
    effects.not_worse = partial(StudyEffects.not_worse, effects)
    side = partial(StudyEffects.side, effects)  # type: ignore[arg-type]
    main, pair = (("a", "off"),), (("a", "off"), ("b", "off"))
    said = [side(EffectRow(of, -1.0, -2.0, -0.5, ())) for of in (main, pair)]
    assert said == ["better", "better than the sum"]
    ends = [(-0.5, -0.1), (-0.3, 0.3), (-0.5, 0.3), (0.41, 0.6)]
    drawn = [side(EffectRow(main, sum(low_high) / 2, *low_high, ())) for low_high in ends]
    assert drawn == ["as good", "as good", "as good", "worse"]
    tuned, lost = EffectRow(main, 0.6, 0.5, 0.7, (), fall=0.2, rise=0.1), EffectRow(main, 0.6, 0.5, 0.7, (), hidden=0.5)
    assert tuned.bounds == pytest.approx((0.3, 0.8))
    assert side(tuned) == "undecided", "it may be better at another value than at that tuned for it"
    assert lost.bounds == (0.5, math.inf)
    assert side(lost) == "worse"


def test_pruned_trials_have_one_entry_in_the_legend() -> None:
    groups = {}
    for name in ("a", "b"):
        lines = {(name, seed): Line((0, 1), (0.0, 1.0), (3.0, 2.0)) for seed in range(3)}
        groups[name] = Group(band([]), lines, dict.fromkeys(lines, TrialState.PRUNED))
    points = _singles(groups, every_line=False, titles={})
    assert {point["name"] for point in points} == {PRUNED}
    assert len({point["trial"] for point in points}) == 6


def test_of_many_variants_the_decided_come_first_then_those_nearest_to_a_decision() -> None:
    names = [f"a=v{number}" for number in range(6)]
    made = fake_store({"baseline": ({}, 100), **{name: ({"a": name[2:]}, 90) for name in names}}, seeds=4, margin=0.05)
    # Difference from the baseline and the spread of it over seeds: needed, two that can go, undecided near and far.
    gaps = {"a=v0": (0.5, 0.001), "a=v1": (0.01, 0.001), "a=v2": (-0.2, 0.001), "a=v3": (0.06, 0.3),
            "a=v4": (0.0, 0.025), "a=v5": (0.051, 0.02)}  # fmt: skip
    for seed in range(4):
        made.add("baseline", seed, {"val_loss": 2.0})
        for name, (gap, sd) in gaps.items():
            made.add(name, seed, {"val_loss": 2.0 + gap + sd * (-1.5 + seed)})
    rows = {row.name: row for row in read_study(made, "a_study").variants if row.name in gaps}
    words = {name: row.verdict.word for name, row in rows.items() if row.verdict}
    assert [words[name] for name in ("a=v0", "a=v1", "a=v2")] == ["needed", "not needed", "better"]
    undecided = [name for name, word in words.items() if word == "undecided"]
    assert len(undecided) >= 2
    for first in (list(rows.values()), list(rows.values())[::-1]):
        ordered = [row.name for row in most_telling_first(first, "minimize")]
        decided = sorted(gaps.keys() - set(undecided), key=lambda name: gaps[name][0])
        assert ordered[: len(decided)] == decided, "the best of them first"
        further = [rows[name].verdict.further_seeds for name in ordered if name in undecided]  # type: ignore[union-attr]
        known = [count for count in further if count is not None]
        assert known == sorted(known)
        assert further == known + [None] * (len(further) - len(known))
    assert most_telling_first([rows["a=v1"], rows["a=v0"]], "maximize")[0].name == "a=v0"


def test_text_columns_get_the_width_that_numbers_leave() -> None:
    def widths(*rows: tuple[str, str], room: int = 430) -> dict[str, int]:
        return _word_widths(pd.DataFrame([{"variant": name, "verdict": word} for name, word in rows]), room)

    long_name, long_verdict = widths(("a" * 38, "pruned")), widths(("baseline", "undecided: " + "b" * 120))
    both = widths(("a" * 38, "b" * 120))
    assert long_name["variant"] > both["variant"] > long_verdict["variant"]
    mixed = widths(*[("a" * 38, "pruned")] * 20, ("a" * 38, "b" * 120))
    assert mixed["variant"] > both["variant"], "twenty names count for more than one verdict"
    for one in (long_name, long_verdict, both, mixed):
        assert sum(one.values()) == 430
    whole = widths(("attention_skip=removed", "undecided: about 15 more seeds would decide"), room=380)
    assert whole["variant"] > 24 + 6.4 * 22, "a name stands on one line, words of a verdict on three"
    assert widths(("a" * 60, "b" * 120), room=100) == LEAST


def test_pictures_side_by_side_have_one_scale_and_no_background() -> None:
    small, large = (
        f'<svg viewBox="0 0 {width} 90" width="{width}" height="90"><rect class="paper" width="100%"/></svg>'
        for width in (100, 400)
    )
    first, second = widened([small, large])
    assert 'viewBox="-150 0 400 90" width="400"' in first
    assert second == large
    assert 'class="paper" style="fill: none"' in on_page(first, is_dark=True)


def test_the_course_has_a_panel_for_each_variant_with_the_margin() -> None:
    made = fake_store({"baseline": ({"a": "on"}, 100), "a=off": ({"a": "off"}, 90)}, seeds=3, margin=0.05)
    for seed in range(3):
        for name, gap in (("baseline", 0.0), ("a=off", 0.1 + seed / 1000)):
            made.add(name, seed, {"val_loss": 2.0 + gap})
            made.curve_points[f"{name}/{seed}"] = tuple(
                CurvePoint(step, 0.0, 7 * step, 1e6 * step, None, 2.0 + gap * step / 100) for step in (25, 50, 75, 100)
            )
    report = read_study(made, "a_study")
    (row,) = rows_with_course(report)
    assert row.course is not None
    drawn = course_panels(report, PAPER)
    values = [point for point in drawn["data"]["values"] if point["panel"].startswith("a=")]
    assert [point["step"] for point in values] == [25, 50, 75, 100]
    assert [point["difference"] for point in values] == pytest.approx([0.101 * n for n in (0.25, 0.5, 0.75, 1.0)])
    assert at(drawn["spec"], "y") == [0, 0.05], "zero and the margin"


def test_a_front_is_a_line_that_crosses_no_label() -> None:
    losses = [1.78, 1.79, 1.80, 1.83, 1.86, 1.93, 1.785]
    sizes = [45.1, 43.3, 42.2, 40.2, 40.12, 40.06, 45.3]
    points = tuple(
        FrontPoint(f"v{n}", {"val_loss": measured(loss), "parameters": measured(size)}, n < 6, None, False)
        for n, (loss, size) in enumerate(zip(losses, sizes, strict=True))
    )
    names = {one.variant: f"{one.variant}, which has no output projection" for one in points}
    front = Front(("val_loss", "parameters"), ("minimize", "minimize"), points, (), names)
    drawn = draw_front_panel(front, "parameters", {}, PAPER, names, 1000)
    (line,) = marks(drawn, "line")
    corners = [(row["x"], row["y"]) for row in sorted(rows(line), key=lambda row: row["order"])]
    assert len(corners) == 11, "six points and the five corners between them"
    assert all(before[0] == after[0] or before[1] == after[1] for before, after in pairwise(corners))
    (left, right), (low, high) = (marks(drawn, "text")[0]["encoding"][axis]["scale"]["domain"] for axis in "xy")
    height = 11 * (high - low) / 440
    told = [(row, of["mark"]["align"]) for of in marks(drawn, "text") for row in rows(of)]
    assert len(told) == 2 * len(points), "each has its label, with a ground behind it"
    for row, align in told:
        width = 6 * len(row["label"]) * (right - left) / 1000
        ends = sorted((row["beside"], row["beside"] + (width if align == "left" else -width)))
        for before, after in pairwise(corners):
            across = min(before[0], after[0]) < ends[1] and ends[0] < max(before[0], after[0])
            along = min(before[1], after[1]) < row["place"] + height and row["place"] < max(before[1], after[1])
            assert not (across and along), f"the front runs through {row['label']}"


def test_across_studies_it_is_said_which_is_lowest_where_all_have_points() -> None:
    def side(name: str, *losses: float, every: float = 100.0) -> DrawnVariant:
        x = tuple(every * (place + 1) for place in range(len(losses)))
        return DrawnVariant(name, "", Band(x, losses, losses, losses, 1), frozenset({"f"}), "t", "", frozenset({1}),
                            frozenset({1}))  # fmt: skip

    short, long, half = side("x (a)", 3.0, 2.0), side("y (b)", 3.1, 2.1, 1.0), side("z (c)", 1.9, every=200.0)
    said = across.finding([short, long], "steps", "val_loss")
    assert said == "Lowest validation loss at 200 steps, the last that all reach: x (a), 2.0; next y (b), 2.1."
    near = replace(long, band=replace(long.band, low=(3.1, 1.9, 1.0)))
    assert across.finding([short, near, half], "steps", "val_loss").endswith(": z (c), 1.9; next x (a), 2.0.")
    assert across.finding([short, near], "steps", "val_loss").endswith("y (b), 2.1, but their seeds overlap.")
    told = across.conditions([short, replace(long, parameters=9, verdict="worse")], "steps", "val_loss").to_dict("list")
    assert told.pop("validation loss at 200 steps") == ["2.0", "2.1"]
    assert told.pop("distance to the lowest") == ["lowest", "+0.100"]
    assert told == {"variant": ["x (a)", "y (b)"], "verdict in its study": ["-", "worse"], "parameters": ["-", "9"]}
    judged = [short, replace(near, verdict="must stay: worse by at least 1 in val_loss")]
    assert across.finding(judged, "steps", "val_loss") == "Y (b), in its study: worse by at least 1 in val_loss."
    assert (
        across.conditions(judged, "steps", "val_loss")["verdict in its study"][1] == "worse by at least 1 in val_loss"
    )
    assert across.conditions([short, near], "steps", "val_loss")["distance to the lowest"][1] == "+0.100, seeds overlap"
    far = [side("far", 9.0, 9.0), short, near]
    assert across.far_from_others({one.name: one.band for one in far}) == [], "two others are not enough"
    assert across.finding([short], "steps", "val_loss") == ""
    assert across.finding([short, side("d", 1.0, every=77.0)], "steps", "val_loss") == "", "they share no place"
    assert across.finding([short, replace(long, data=frozenset({"g"}))], "steps", "val_loss") == ""


def test_on_a_phone_the_parallel_lines_that_stand_out_end_in_a_word_and_the_best_points_have_settings_in_common() -> (
    None
):
    losses, rates = [2.4, 2.0, 2.001, 2.1, 2.2, 2.3, 2.35, 2.5], [1.0, 4.0, 5.0, 9.0, 8.0, 7.0, 2.0, 1.5]
    names, columns = ["baseline", *"abcdefg"], {"lr": rates, "val_loss": losses}
    down = draw_parallel(columns, "val_loss", PAPER, names, wide=[0], best=1, down=True, width=340)
    ends = [row for layer in marks(down, "text")[-2:] for row in rows(layer)]
    assert [(end["text"], end["axis"]) for end in ends] == [("2.4 baseline", "val_loss"), ("2.0 best", "val_loss")]
    table = pd.DataFrame({"variant": names, "name": names, "diverged": 0, "norm": [*"xyyyxxxx"], **columns})
    record = fake_store({"baseline": ({}, 9)}).record
    assert effects.in_common(table, record) == "The 2 best of 8 have: norm y, lr 4 to 5."
    assert effects.in_common(table.assign(norm="x", lr=[1, 1, 9, 3, 4, 5, 6, 7]), record) == "", (
        "nothing tells them apart"
    )
