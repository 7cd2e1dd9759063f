"""What pages share, and what the command refuses."""

from __future__ import annotations

import ast
import io
import socket
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from cli_runs import Workplace
from fake_store import fake_store
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from rich.console import Console

from ablate.analysis import read_study
from ablate.render.document import ablation_table
from ablate.render.table import print_study
from ablate.spec.document import read_document
from ablate.store import CurvePoint, TrialState
from shared.course import course_alt, course_figure, coursed
from shared.marks import split_tags
from shared.numbers import arithmetic, duration
from shared.text import escape, for_plotly, one_line
from shared.yaml import to_yaml
from views import PAGES
from views.answer import ablation

FOLDER = Path(__file__).parent.parent.parent / "dashboard"
FILES = sorted(FOLDER.rglob("*.py"))


@given(st.text(max_size=200) | st.text(alphabet="*_`[]()<>#!&;~:/\\\\ ab", max_size=40))
def test_escaped_text_is_read_as_one_run_of_words(text: str) -> None:
    shown = escape(text).strip("\u2068\u2069")
    tokens = MarkdownIt("commonmark").enable("strikethrough").parseInline(shown)[0].children or []
    assert {token.type for token in tokens} <= {"text", "text_special"}
    words = "".join(token.content for token in tokens).replace("\u2060", "")
    assert words.strip() == one_line(text, 10_000).replace("\u2060", "").strip()


@given(st.text(alphabet="<>&abc/ ", max_size=80))
def test_plotly_reads_no_tags(text: str) -> None:
    assert "<" not in for_plotly(text)


def test_a_long_text_is_cut() -> None:
    assert one_line("a" * 500) == "a" * 119 + "…"
    assert one_line("a\n\tb\u202ec") == "a b\ufffdc"


def test_numbers_have_units() -> None:
    times = {0.0: "0 s", 8.24: "8.2 s", 59.0: "59 s", 240.0: "4.0 min", 11_160.0: "3.1 h", None: "-"}
    assert {seconds: duration(seconds) for seconds in times} == times
    amounts = {812.0: "812 FLOP", 8.1e9: "8.1 GFLOP", 1e15: "1.0 PFLOP", 5e18: "5 EFLOP"}
    assert {flops: arithmetic(flops) for flops in amounts} == amounts


def test_tags_are_parted_once_each() -> None:
    assert split_tags(" b, a b ,, b,c ") == ("b", "a b", "c")


def test_yaml_is_read_back(tmp_path: Path) -> None:
    plain = {"name": "x: [", "model": {"depth": 2, "gain": 1e-8, "none": None, "list": [1, "é"], "empty": {}}}
    (tmp_path / "a.yaml").write_text(to_yaml(plain), encoding="utf-8")
    assert read_document(tmp_path / "a.yaml", "a file").plain == plain


def test_every_page_has_a_file_and_every_file_a_page() -> None:
    listed = [entry.name for entries in PAGES.values() for entry in entries]
    assert sorted(listed) == sorted(path.stem for path in (FOLDER / "views").glob("*.py") if path.stem != "__init__")


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(FOLDER)))
def test_pages_know_neither_torch_nor_sql(file: Path) -> None:
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(str(node.module).split(".")[0])
    assert not found & {"torch", "sqlalchemy", "sqlite3", "alembic"}
    assert "unsafe_allow" not in file.read_text(encoding="utf-8")


def test_the_shared_modules_do_not_load_torch() -> None:
    modules = [f"shared.{path.stem}" for path in (FOLDER / "shared").glob("*.py")]
    modules += [f"views.{path.stem}" for path in (FOLDER / "views").glob("*.py") if path.stem != "design"]
    program = (
        f"import sys; sys.path.insert(0, {str(FOLDER)!r})\nimport {', '.join(modules)}\nprint('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


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
    done = Workplace(tmp_path, cache).run("dashboard", *arguments)
    assert done.code == 2
    assert said in done.err
    assert "Traceback" not in done.err


def test_a_port_that_is_taken_is_reported(tmp_path: Path, cache: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = Workplace(tmp_path, cache).run("dashboard", "--port", str(taken.getsockname()[1]))
    assert (done.code, done.err.count("cannot listen here")) == (2, 1)


def test_without_the_extra_it_is_reported_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from ablate import extras, serving
    from ablate.errors import AblateError

    monkeypatch.setattr(extras, "find_spec", lambda name: None if name == "streamlit" else object())
    with pytest.raises(AblateError, match=r"needs streamlit.*ablate-blocks\[dashboard\]"):
        serving.serve("x.db", None, "127.0.0.1", ())


def test_no_table_gives_a_lost_variant_a_mean_or_takes_it_for_the_baseline() -> None:
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
    console = Console(width=140, file=io.StringIO())
    print_study(report, console)
    for name, lost in (("a", "pruned"), ("b", "diverged")):
        assert pd.isna(table[name]["val_loss"])
        assert pd.isna(table[name]["difference"])
        assert table[name]["verdict"] == written[name][ablation_table(report).titles.index("verdict")] != "baseline"
        assert lost in written[name]
        line = next(line for line in console.file.getvalue().splitlines() if line.startswith(f"{name} "))
        assert lost in line
        assert "baseline" not in line


def test_the_course_is_drawn_against_what_is_asked_for_with_the_margin() -> None:
    made = fake_store({"baseline": ({"a": "on"}, 100), "a=off": ({"a": "off"}, 90)}, seeds=3, margin=0.05)
    for seed in range(3):
        for name, gap in (("baseline", 0.0), ("a=off", 0.1 + seed / 1000)):
            made.add(name, seed, {"val_loss": 2.0 + gap})
            made.curve_points[f"{name}/{seed}"] = tuple(
                CurvePoint(step, 0.0, 7 * step, 1e6 * step, None, 2.0 + gap * step / 100) for step in (25, 50, 75, 100)
            )
    report = read_study(made, "a_study")
    (row,) = coursed(report)
    assert row.course is not None
    for axis, unit in (("step", 1), ("tokens", 7), ("flops", 1e6)):
        drawn = course_figure(report, axis)  # type: ignore[arg-type]
        (line,) = [trace for trace in drawn.data if trace.name == "a=off"]
        assert list(line.x) == [unit * step for step in (25, 50, 75, 100)]
        assert list(line.y) == pytest.approx([0.101 * share for share in (0.25, 0.5, 0.75, 1.0)])
        heights = [shape.y0 for shape in drawn.layout.shapes]
        assert heights == [0, 0.05], "zero and the margin"
    assert "a=off growing" in course_alt(report)
