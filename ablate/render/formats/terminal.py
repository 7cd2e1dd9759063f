"""The report as text for a terminal: what `ablate show` prints, then environment, cost and how to reproduce."""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch
from typing import Literal

from rich.console import Console
from rich.text import Text

from ablate.analysis.answer import Answer, answer_of
from ablate.analysis.findings import Findings
from ablate.render.answer import print_answer
from ablate.render.blocks import Grid, Items, Listing, Paragraph, Picture
from ablate.render.document import document
from ablate.render.formats import Format, Place
from ablate.render.table import named, plain, plain_table, print_study

SHOWN = ("Answer", "Checks", "Ablation table", "Failed trials", "Claims")
"""Sections that the printed study holds already."""


@singledispatch
def _print(block: object, console: Console) -> None:
    raise NotImplementedError(type(block))


@_print.register
def _paragraph(block: Paragraph, console: Console) -> None:
    console.print(plain(block.text))


@_print.register
def _items(block: Items, console: Console) -> None:
    for text in block.texts:
        console.print(plain(text))


@_print.register
def _grid(block: Grid, console: Console) -> None:
    table = plain_table(gap=2)
    for number, title in enumerate(block.titles):
        table.add_column(plain(title), justify="left" if number in block.texts else "right", overflow="fold")
    for group in block.groups:
        for row in group:
            cells = [*map(plain, row)]
            if block.texts:  # the first text column names the row
                first = min(block.texts)
                cells[first] = named(row[first], console.width // 3)
            table.add_row(*cells)
        table.add_section()
    console.print(table)


@_print.register
def _listing(block: Listing, console: Console) -> None:
    for line in block.text.splitlines():
        words = Text(" ").join(plain(word) for word in line.split(" "))  # every blank stays
        console.print(Text("    ") + words, soft_wrap=True)


@_print.register
def _picture(block: Picture, console: Console) -> None:
    console.print(plain(block.caption))


def _print_study(findings: Findings, console: Console) -> None:
    judged = findings.report.record.judged is not None
    print_answer(answer_of(findings.report), console, shown_by=None if judged else ())
    console.print()
    print_study(findings.report, console)
    for section in document(findings).sections:
        if section.title not in SHOWN:
            console.print()
            console.print(plain(section.title, "bold"))
            for block in section.blocks:
                _print(block, console)


def _text(printed: str, place: Place) -> str:
    return Text.from_ansi(printed).plain + "\n" if place.folder else printed


class TerminalFormat(Format):
    """The report as text for a terminal: what `ablate show` prints, then environment, cost and how to reproduce."""

    kind: Literal["terminal"] = "terminal"
    suffix = "txt"
    coloured = True

    def render(self, findings: Findings, place: Place) -> str:
        """The whole report, coloured if it goes to a terminal."""
        console = Console(highlight=False, no_color=True if place.folder else None)
        with console.capture() as capture:
            _print_study(findings, console)
        return _text(capture.get(), place)

    def render_questions(self, answer: Answer, findings: Sequence[Findings], places: Sequence[Place]) -> str:
        """Their one answer, then each of them."""
        console = Console(highlight=False, no_color=True if places[0].folder else None)
        with console.capture() as capture:
            print_answer(answer, console, shown_by=None)
            for found in findings:
                console.print()
                console.rule(plain(found.report.record.name), align="left")
                _print_study(found, console)
        return _text(capture.get(), places[0])
