"""Names and code in sentences: whole in tables, shown as code where a format has code."""

from __future__ import annotations

from collections.abc import Callable
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from rich.console import Console

from ablate.render.blocks import Grid, lead, with_code
from ablate.render.formats.html import prose as html
from ablate.render.formats.latex import prose as latex
from ablate.render.formats.md import prose as markdown
from ablate.render.formats.terminal import _print
from ablate.render.table import in_lines

WORDS = st.text(alphabet="ab *_[](){}<>#!&;~:/\\$|é", min_size=1, max_size=12).map(lambda text: " ".join(text.split()))
PIECES = st.lists(st.tuples(WORDS, WORDS), min_size=1, max_size=4).filter(lambda pairs: all(all(one) for one in pairs))


class _Read(HTMLParser):
    """What a piece of HTML says, and what in it is code; other elements are an error."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.pieces: list[tuple[str, bool]] = []
        self.inside = False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        assert (tag, attrs) == ("code", [])
        self.inside = True

    def handle_endtag(self, tag: str) -> None:
        self.inside = False

    def handle_data(self, data: str) -> None:
        self.pieces.append((data, self.inside))


def _html(text: str) -> list[tuple[str, bool]]:
    return _Read(html(text)).pieces


def _markdown(text: str) -> list[tuple[str, bool]]:
    tokens = MarkdownIt("commonmark").enable("strikethrough").parseInline(markdown(text))[0].children or []
    assert {token.type for token in tokens} <= {"text", "text_special", "code_inline"}
    return [(token.content, token.type == "code_inline") for token in tokens]


@pytest.mark.parametrize("read", [_html, _markdown])
@given(pairs=PIECES)
def test_code_is_written_as_code_and_the_rest_as_it_is(
    read: Callable[[str], list[tuple[str, bool]]], pairs: list[tuple[str, str]]
) -> None:
    found = read(" ".join(f"{words} `{code}`" for words, code in pairs))
    assert [text for text, is_code in found if is_code] == [code for _, code in pairs]
    said = "".join(text for text, is_code in found if not is_code)
    assert said.split() == " ".join(words for words, _ in pairs).split()


@pytest.mark.parametrize("text", ["a ` b", "``a``", "`a``b`", "`", "a `` b"])
def test_backticks_without_a_partner_stay(text: str) -> None:
    assert with_code(text, str, lambda code: f"<{code}>") == text


def test_code_has_the_font_of_code_in_latex() -> None:
    assert latex("set `a_b` 50%") == r"set \texttt{a\_\allowbreak{}b} 50\%"


def test_a_lead_ends_at_the_first_colon_outside_code() -> None:
    assert lead("You need: the norm: yes") == ("You need", "the norm: yes")
    assert lead("Set `seeds: 4`, then go on: at once") == ("Set `seeds: 4`, then go on", "at once")
    assert lead("Set `seeds: 4`") == ("", "Set `seeds: 4`")


@pytest.mark.parametrize(
    ("name", "width", "lines"),
    [
        ("baseline", 26, ["baseline"]),
        ("mlp=gone,skip=gone,mixer=linear", 40, ["mlp=gone,skip=gone,mixer=linear"]),
        ("mlp=gone,skip=gone,mixer=linear", 20, ["mlp=gone,skip=gone,", "mixer=linear"]),
        ("baseline@model.width=16", 16, ["baseline", "@model.width=16"]),
        (
            "skip=gone (training.optimizer.lr=0.001, timing)",
            20,
            ["skip=gone", "(training.optimizer.lr=", "0.001, timing)"],
        ),
        ("attention_skip=removed", 16, ["attention_skip=", "removed"]),
        ("a_very_long_name_of_one_word", 8, ["a_very_long_name_of_one_word"]),
    ],
)
def test_a_name_is_broken_at_its_commas(name: str, width: int, lines: list[str]) -> None:
    assert in_lines(name, width).splitlines() == lines


def test_columns_of_a_table_keep_their_order_and_their_kind() -> None:
    grid = Grid(
        ("name", "first", "last", "said"), ((("a", "1", "2", "x"),), (("b", "3", "4", "y"),)), frozenset({0, 3})
    )
    told = Grid(("name", "last", "said"), ((("a", "2", "x"),), (("b", "4", "y"),)), frozenset({0, 2}))
    assert grid.only(0, 2, -1) == told


def test_rows_of_a_table_are_distinguished_however_long_their_names(capsys: pytest.CaptureFixture[str]) -> None:
    names = ("mlp=gone,skip=gone,mixer=linear", "mlp=gone,skip=gone,mixer=retention")
    grid = Grid(
        ("number", "variant", "value"), (tuple(("1", name, "2.125 ± 0.125") for name in names),), frozenset({1})
    )
    _print(grid, Console(width=50))
    lines = capsys.readouterr().out.split()
    assert {"mixer=linear", "mixer=retention"} <= set(lines)
