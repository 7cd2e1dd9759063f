"""The report as Markdown (GitHub's tables), with its figures as files beside it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import singledispatch
from typing import Literal

from ablate.analysis.answer import Answer
from ablate.analysis.findings import Findings
from ablate.render.blocks import Grid, Items, Listing, Paragraph, Picture, ReportDocument, with_code
from ablate.render.document import document, document_of_questions
from ablate.render.formats import Format, Place, file_stem

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~$!&])")
_OPENING = re.compile(r"^(\d*)([-+=.)])")  # would begin a list or underline a title


def escape(text: str) -> str:
    """Text of a user's as Markdown that shows it as it is, on one line."""
    return _OPENING.sub(r"\1\\\2", _inline(text))


def prose(text: str) -> str:
    """A sentence as Markdown that shows it as it is, with the code in its backticks as code."""
    return _OPENING.sub(r"\1\\\2", with_code(text, lambda plain: _SPECIAL.sub(r"\\\1", plain), "`{}`".format))


def _inline(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


@singledispatch
def _write(block: object, study: str) -> str:
    raise NotImplementedError(type(block))


@_write.register
def _paragraph(block: Paragraph, study: str) -> str:
    return prose(block.text)


@_write.register
def _items(block: Items, study: str) -> str:
    return "\n".join(f"- {prose(text)}" for text in block.texts)


@_write.register
def _grid(block: Grid, study: str) -> str:
    ruler = [":---" if number in block.texts else "---:" for number in range(len(block.titles))]
    rows = [[*map(_inline, row)] for group in block.groups for row in group]
    for row, link in zip(rows, block.links, strict=False):
        row[0] = f"[{row[0]}](<{link}>)"
    return "\n".join(f"| {' | '.join(row)} |" for row in [[*map(escape, block.titles)], ruler, *rows])


@_write.register
def _listing(block: Listing, study: str) -> str:
    longest = max((len(run) for run in re.findall("`+", block.text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{block.text}\n{fence}"


@_write.register
def _picture(block: Picture, study: str) -> str:
    return f"![{escape(block.caption)}]({study}_{block.name}.svg)\n\n*{prose(block.caption)}*"


def markdown(made: ReportDocument) -> str:
    """A document as Markdown."""
    parts = [f"# {escape(made.title)}"]
    for section in made.sections:
        title, study = escape(section.title), "" if section.of is None else file_stem(section.of)
        heading = f"{'#' * section.level} {title}"
        parts += [*([heading] if title else []), *(_write(block, study) for block in section.blocks)]
    return "\n\n".join(parts) + "\n"


class MarkdownFormat(Format):
    """The report as Markdown (GitHub's tables), with its figures as files beside it."""

    kind: Literal["md"] = "md"
    suffix = "md"
    figures = ("svg", "png")

    def render(self, findings: Findings, place: Place) -> str:
        """The whole report."""
        return markdown(document(findings, place.pictures))

    def render_questions(self, answer: Answer, findings: Sequence[Findings], places: Sequence[Place]) -> str:
        """Their one answer, then each of them."""
        return markdown(document_of_questions(answer, findings, [place.pictures for place in places]))
