"""The written report in each format: complete, escaped, and readable by another program."""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pyarrow.parquet
import pytest
from fake_store import FakeStore, fake_store
from markdown_it import MarkdownIt

from ablate.analysis.findings import read_findings
from ablate.errors import AblateError, NotFoundError
from ablate.render.blocks import Grid, Paragraph, ReportDocument, Section
from ablate.render.document import space_yaml
from ablate.render.formats import find_format, format_names, render_report, write_report
from ablate.render.formats.data import harmless
from ablate.render.formats.html import html_page
from ablate.render.formats.latex import escape as latex_escape
from ablate.render.formats.md import escape as markdown_escape
from ablate.store.records import Environment, TrialState

NASTY = r"\input{x} <script>alert(1)</script> 50% & $x_1$ #1 | `a` *b* ~c^ 'd' \"e\" -- ± ≤ α 漢"
LAB = Environment({"python": "3.12", "torch": "2.9"}, "cpu: lab", "host_1", "abc123", False, "ablate study a.yaml")
VARIANTS = ("baseline", "skip=removed", "norm=none")


def store(question: str = NASTY) -> FakeStore:
    made = fake_store({name: ({"norm": "rms"}, 1000) for name in VARIANTS}, question=question)
    claims = [
        {"id": "skip", "says": NASTY, "source": "Table_1", "expect": "worse", "left": "skip=removed"}
        | {"right": "baseline", "margin": 0.1},
    ]
    made.record = replace(made.record, space={"claims": claims}, text=f"name: a_study\n  # {NASTY}\n\nlast: 1\n")
    for seed, (name, effect) in itertools.product(range(3), zip(VARIANTS, (0.0, 0.5, 0.0), strict=True)):
        loss = 3 + effect + seed / 7 + (seed * effect) / 100
        made.add(name, seed, {"val_loss": loss}, curve=[(0, 8.0), (50, 4.0), (100, loss)])
    made.add("norm=none", 2, state=TrialState.DIVERGED, stopped_at=9)
    made.trial_records = {key: replace(trial, environment=LAB, flops=1e12) for key, trial in made.trial_records.items()}
    return made


def rendered(made: FakeStore, name: str) -> str:
    text = render_report(read_findings(made, "a_study"), name)
    assert isinstance(text, str)
    return text


@pytest.mark.parametrize("name", sorted({*format_names()} - {"parquet"}))
def test_every_format_holds_the_question_the_answer_the_verdicts_and_the_claims(name: str) -> None:
    text = rendered(store("Which parts can go?"), name)
    plain = re.sub(r"\\allowbreak\{\}|\\(?=[_=\-])", "", " ".join(text.split()))
    words = ["skip=removed", "norm=none", "needed: worse by at least", "diverged: 1 of 3 seeds"]
    if name == "terminal":  # where verdicts are as short as the table is narrow
        words[2:] = ["needed", "worse", "1 of 3 seeds"]
    if name == "slides":
        words[2:] = ["worse", "diverged", "Worse: "]
    elif name != "csv":
        words += ["Worse than the baseline by more than"]
    if name != "csv":
        words += [
            "Which parts can go?",
            "supported" if name == "slides" else "supported: ",
            "cpu: lab",
            "abc123",
            "ablate study a.yaml",
            "9",
        ]
    for word in words:
        assert word in plain, word


def test_the_formats_are_those_that_are_promised() -> None:
    assert {"terminal", "md", "html", "latex", "csv", "parquet", "json"} <= set(format_names())
    with pytest.raises(AblateError, match=r"expected one of csv, html, .*got `pdf`"):
        find_format("pdf")


def test_csv_keeps_every_digit() -> None:
    findings = read_findings(store(), "a_study")
    rows = list(csv.DictReader(io.StringIO(rendered(store(), "csv"))))
    assert [row["variant"] for row in rows] == list(VARIANTS)
    for row, variant in zip(rows, findings.report.variants, strict=True):
        mean = variant.metrics.get("val_loss")  # none where a trial diverged
        assert row["mean"] == ("" if mean is None else repr(mean.mean))
        assert row["switch.norm"] == "rms"
        if variant.difference and variant.difference.low is not None:
            assert float(row["difference_low"]) == variant.difference.low
    assert (rows[0]["difference"], rows[0]["verdict"], rows[2]["diverged"]) == ("", "", "1")
    assert math.isclose(float(rows[1]["flops"]), 3e12)


def test_parquet_is_the_csv_with_types() -> None:
    findings = read_findings(store(), "a_study")
    written = render_report(findings, "parquet")
    assert isinstance(written, bytes)
    table = pyarrow.parquet.read_table(io.BytesIO(written))
    lines = list(csv.DictReader(io.StringIO(rendered(store(), "csv"))))
    assert table.column_names == list(lines[0])
    assert [str(kind) for kind in table.select(["variant", "parameters", "mean"]).schema.types] == [
        "string", "int64", "double",
    ]  # fmt: skip
    for row, line in zip(table.to_pylist(), lines, strict=True):
        assert {title: "" if value is None else str(value) for title, value in row.items()} == line


@pytest.mark.parametrize("values", [("0.125", "head_width"), ("4", str(2**70)), ("0.5", str(2**60))])
def test_a_path_of_several_types_is_text_in_parquet(values: tuple[str, str]) -> None:
    """As `block.mixer.scale`, a number or a word."""
    made = fake_store({"baseline": ({"a.scale": values[0]}, 1), "other": ({"a.scale": values[1]}, 1)}, seeds=1)
    made.record = replace(made.record, space={"switches": {}})
    for name in ("baseline", "other"):
        made.add(name, 0, {"val_loss": 2.0})
    written = render_report(read_findings(made, "a_study"), "parquet")
    assert isinstance(written, bytes)
    table = pyarrow.parquet.read_table(io.BytesIO(written))
    assert table["value.a.scale"].to_pylist() == [*values]


def test_json_has_what_show_prints_and_cost_environment_and_space() -> None:
    plain = json.loads(rendered(store(), "json"))
    assert plain["question"] == NASTY
    assert (plain["cost"]["trials"], plain["cost"]["seconds"], plain["cost"]["flops"]) == (9, 90.0, 9e12)
    assert plain["cost"]["variants"]["baseline"]["trials"] == 3
    assert plain["environments"] == [
        {"versions": LAB.versions, "device": "cpu: lab", "host": "host_1", "git_commit": "abc123", "git_clean": False}
        | {"command": "ablate study a.yaml"}
    ]
    assert plain["text"].startswith("name: a_study")


@pytest.mark.parametrize(
    "text", [NASTY, "1. one", "- one", "# one", "+ one", "1) one", "=", "[a](b)", "![a](b)", "&lt;"]
)
def test_markdown_shows_text_as_it_is(text: str) -> None:
    (paragraph,) = [
        token for token in MarkdownIt("gfm-like", {"linkify": False}).parse(markdown_escape(text)) if token.content
    ]
    assert paragraph.children is not None
    assert {child.type for child in paragraph.children} <= {"text", "text_special"}
    assert "".join(child.content for child in paragraph.children) == text


def test_markdown_tables_have_a_cell_for_each_title() -> None:
    text = rendered(store(), "md")
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    kinds = [token.type for token in tokens]
    assert kinds.count("table_open") == 4
    assert kinds.count("tr_open") == (1 + 2) + 3 + 3 + 1 + 3, "the answer has a row for each variant but the baseline"
    assert [token.content for token in tokens if token.type == "fence"][-1].rstrip() == space_yaml(store().record.space)


class Page(HTMLParser):
    """Tags, attributes and text of a page; fails on tags that do not match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in ("meta", "wbr"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_html_is_one_page_that_loads_nothing_and_runs_nothing() -> None:
    page = Page(rendered(store(), "html"))
    assert NASTY in page.text
    assert not {"script", "link", "iframe", "img", "object", "base"} & set(page.tags)
    figures = 2 * 2  # the forest, and the loss against steps, for a page and a phone; nothing was timed
    assert page.tags.count("svg") == figures + 3, "and intervals of the answer and of the claim"
    references = [value for name, value in page.attributes if name in ("src", "href", "xlink:href", "action")]
    clips = [value for _, value in page.attributes if value is not None and value.startswith("url(")]
    assert clips, "curves end at the edge of their panel"
    references += [clip.removeprefix("url(").removesuffix(")") for clip in clips]
    ids = [value for name, value in page.attributes if name == "id"]
    assert all(value is not None and value.startswith("#") and value[1:] in ids for value in references)
    assert len(ids) == len(set(ids))
    assert not [name for name, _ in page.attributes if name.startswith("on")]


def test_a_phone_shows_each_cell_below_its_title_and_long_paragraphs_after_a_click() -> None:
    table = Grid(("variant", "loss <", "course"), ((("a", "1.5", "-"), ("b", "2", "up")),), frozenset({0}))
    short, long = "Short.", f"First of many. {'Then another one. ' * 60}Last."
    made = ReportDocument("t", (Section("s", (table, Paragraph(short), Paragraph(long))),))
    page = html_page(made)
    titles = [value for name, value in Page(page).attributes if name == "data-title"]
    assert titles == ["variant", "loss <", "variant", "loss <", "course"], "none for a cell that says nothing"
    assert page.count("<details>") == 1
    assert "<summary>First of many.</summary><p>Then another one." in page
    assert f"<p>{short}</p>" in page


def test_latex_escapes_what_is_special_and_keeps_dashes() -> None:
    assert latex_escape(r"50% & $x_1$ #{a}~^\ ") == (
        r"50\% \& \$x\_1\$ \#\{a\}\textasciitilde{}\textasciicircum{}\textbackslash{}"
    )
    assert latex_escape("a -- b") == "a -{}- b"
    assert latex_escape("é ± 漢") == r"é \ensuremath{\pm} [U+6F22]"


def test_latex_tables_are_booktabs_with_a_cell_for_each_column(tmp_path: Path) -> None:
    write_report(read_findings(store(), "a_study"), "latex", tmp_path)
    text = (tmp_path / "a_study.tex").read_text(encoding="utf-8")
    assert set(text) <= {chr(code) for code in range(0x250)}
    opened, closed = re.findall(r"\\begin\{(\w+)\}", text), re.findall(r"\\end\{(\w+)\}", text)
    assert sorted(opened) == sorted(closed)
    bare = re.sub(r"\\[\\{}%&$#_]", "", text)
    assert bare.count("{") == bare.count("}")
    for table in re.findall(r"\\begin\{longtable\}(.*?)\\end\{longtable\}", text, re.DOTALL):
        assert [table.count(rule) for rule in (r"\toprule", r"\bottomrule")] == [1, 1]
        cells = {len(re.findall(r"(?<!\\)&", line)) for line in table.splitlines() if line.endswith(r"\\")}
        assert len(cells) == 1
    for picture in re.findall(r"\\includegraphics\[.*?\]\{(.*?)\}", text):
        assert (tmp_path / picture).read_bytes().startswith(b"%PDF")


def test_a_terminal_keeps_every_blank_of_a_listing() -> None:
    made = store()
    made.record = replace(made.record, space={"a": {"b": "two  blanks"}})
    assert "    a:\n      b: two  blanks\n" in rendered(made, "terminal")


def test_the_table_of_a_paper_has_a_caption_and_five_columns(tmp_path: Path) -> None:
    written = write_report(read_findings(store(), "a_study"), "latex", tmp_path)
    table = tmp_path / "a_study_table.tex"
    assert table in written
    text = table.read_text()
    lines = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert [line.count(" & ") for line in lines] == [4] * len(lines)
    cells = {line.split(" & ")[0]: line.removesuffix(r" \\").split(" & ")[1:] for line in lines}
    assert set(cells) == {"change", "baseline", "skip=removed", "norm=none"}
    assert cells["baseline"][1].startswith("3.14")  # 3 + (0 + 1 + 2) / 3 / 7
    assert cells["skip=removed"][2] == "+0.505 [+0.497, +0.513]"  # 0.5, 0.505 and 0.51; t(2) = 2.920
    assert cells["norm=none"][3] == "diverged"
    assert r"\label{tab:a_study}" in text
    assert r"\caption{" in text
    assert "over 3 seeds" in text


def test_latex_keeps_every_blank_of_a_listing_and_breaks_no_number() -> None:
    made = store()
    made.record = replace(made.record, space={"a": {"b": {"c": "# --  {x}"}}})
    text = rendered(made, "latex")
    assert r"\mbox{}~~~~c: \textquotesingle{}\# -{}-~~\{x\}\textquotesingle{}\par" in text
    assert r"\frenchspacing" in text
    assert not re.search(r"\d\.\\allowbreak", text)


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="there is no pdflatex here")
def test_latex_compiles(tmp_path: Path) -> None:
    write_report(read_findings(store(), "a_study"), "latex", tmp_path)
    paper = r"\documentclass{article}\usepackage{booktabs}\begin{document}\input{a_study_table}\end{document}"
    (tmp_path / "paper.tex").write_text(paper)
    for name in ("a_study", "paper"):
        command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", f"{name}.tex"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False, timeout=300)
        assert done.returncode == 0, done.stdout.decode(errors="replace")[-2000:]
        assert (tmp_path / f"{name}.pdf").read_bytes().startswith(b"%PDF")


@pytest.mark.parametrize("name", ["md", "html"])
def test_a_folder_gets_the_report_and_its_figures_as_svg_and_png(name: str, tmp_path: Path) -> None:
    paths = write_report(read_findings(store(), "a_study"), name, tmp_path / "new" / "folder")
    names = [path.name for path in paths]
    assert all(path.is_file() for path in paths)
    assert names[0] == f"a_study.{name}"
    assert {"a_study_forest.svg", "a_study_forest.png", "a_study_loss_steps.svg"} <= set(names)
    for shown in re.findall(r"!\[.*\]\((.*?)\)", paths[0].read_text(encoding="utf-8")):
        assert shown in names


def test_text_in_a_file_has_no_colour(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    (path,) = write_report(read_findings(store(), "a_study"), "terminal", tmp_path)
    assert "\x1b" not in path.read_text(encoding="utf-8")


def test_what_cannot_be_written_or_reported_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for name, remedy in ((str(tmp_path / "a" / "mine.md"), str(tmp_path / "a")), ("mine.md", "mine")):
        with pytest.raises(AblateError, match=rf"expected a folder; got .*mine\.md.*`--out {remedy}`"):
            write_report(read_findings(store(), "a_study"), "md", Path(name))
    with pytest.raises(AblateError, match=r"cannot be written.*Name a folder that you may write"):
        write_report(read_findings(store(), "a_study"), "csv", tmp_path / "file" / "folder")
    with pytest.raises(
        NotFoundError,
        match=r"no results to report yet.*expected a trial that has ended.*got 3 planned.*Run it with `ablate study`",
    ):
        read_findings(fake_store({"baseline": ({}, 1)}), "a_study")


@pytest.mark.parametrize("name", sorted({*format_names()} - {"parquet"}))
def test_no_format_lets_a_control_character_through(name: str) -> None:
    text = rendered(store("Which \x1b[31mparts\x07 can \u202ego\x9b?"), name)
    assert "parts" in text or name == "csv"
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", text)


@pytest.mark.parametrize("name", ["../../evil", "/evil", "..", "a/b", "\x1b", "n" * 5000])
def test_a_report_stays_in_its_folder_whatever_its_study_is_called(name: str, tmp_path: Path) -> None:
    made = store()
    made.record = replace(made.record, name=name)
    folder = tmp_path / "in" / "reports"
    for path in write_report(read_findings(made, name), "md", folder):
        assert path.resolve().parent == folder
        assert path.is_file()
    assert [path.name for path in tmp_path.iterdir()] == ["in"]
    assert [path.name for path in (tmp_path / "in").iterdir()] == ["reports"]


@pytest.mark.parametrize("first", ["=1+1", "+1+1", "-1+1", "@SUM(A1)", "\tx", "=cmd|' /C calc'!A0"])
def test_no_cell_of_a_csv_is_a_formula(first: str) -> None:
    made = fake_store({name: ({"switch": first}, 1000) for name in ("baseline", first)})
    for seed, name in itertools.product(range(3), ("baseline", first)):
        made.add(name, seed, {"val_loss": 3.0 + seed / 7})
    rows = list(csv.DictReader(io.StringIO(rendered(made, "csv"))))
    assert [row["variant"] for row in rows] == ["baseline", f"'{first}"]
    for row in rows:
        for cell in row.values():
            assert not cell.startswith(("=", "+", "@", "\t")), cell
            assert not cell.startswith("-") or float(cell) <= 0


def test_a_number_of_a_csv_stays_one() -> None:
    for number in ("-1", "+2.5", "-1e-3"):
        assert harmless(number) == number
