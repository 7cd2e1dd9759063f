"""The report as one HTML file that opens offline: figures inlined as SVG, no script, nothing loaded."""

from __future__ import annotations

import re
from functools import singledispatch
from html import escape
from typing import Literal

from ablate.analysis.findings import Findings
from ablate.render.blocks import Grid, Items, Listing, Paragraph, Picture, with_code
from ablate.render.document import document
from ablate.render.figures import draw, save
from ablate.render.formats import Format, Place

HEAD = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<title>{title}</title>
"""
"""The beginning of a page that loads and runs nothing, for `str.format`."""
_PAGE = (
    HEAD
    + """<style>
body {{ font: 16px/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff; max-width: 75rem; margin: 2rem auto;
  padding: 0 1rem; }}
h1 {{ line-height: 1.2; }}
h2 {{ margin-top: 2.5rem; border-bottom: 1px solid #ccc; }}
section > p {{ max-width: 50rem; }}
.answer > p:first-of-type {{ font-size: 1.35rem; font-weight: 600; }}
.wide {{ overflow-x: auto; }}
table {{ border-collapse: collapse; font-size: 0.9rem; font-variant-numeric: tabular-nums; }}
thead th {{ border-top: 2px solid; border-bottom: 1px solid; }}
tbody {{ border-bottom: 1px solid #ccc; }}
tbody:last-child {{ border-bottom: 2px solid; }}
th, td {{ padding: 0.25rem 0.75rem; text-align: right; vertical-align: top; white-space: nowrap; }}
.text {{ text-align: left; white-space: normal; min-width: 12rem; overflow-wrap: anywhere; }}
pre {{ background: #f5f5f5; padding: 0.75rem; overflow-x: auto; font-size: 0.85rem; }}
code {{ font-size: 0.9em; background: #f0f2f4; padding: 0 0.2em; }}
li {{ overflow-wrap: anywhere; }}
figure {{ margin: 1.5rem 0; }}
figure svg {{ max-width: 100%; height: auto; }}
figcaption {{ max-width: 50rem; font-size: 0.9rem; }}
@media print {{ body {{ font-size: 10pt; margin: 0; }} figure, tr {{ break-inside: avoid; }} }}
</style>
</head>
<body>
{body}
</body>
</html>
"""
)


def prose(text: str) -> str:
    """A sentence in HTML that shows it as it is, with the code in its backticks as code."""
    return with_code(text, escape, lambda code: f"<code>{escape(code)}</code>")


def answer_and_table(findings: Findings) -> str:
    """The answer and the ablation table alone, as a piece of a page."""
    sections = {section.title: section.blocks for section in document(findings).sections}
    shown = (*sections["Answer"], *sections["Ablation table"])
    return "\n".join(_write(block, findings) for block in shown)


@singledispatch
def _write(block: object, findings: Findings) -> str:
    raise NotImplementedError(type(block))


@_write.register
def _paragraph(block: Paragraph, findings: Findings) -> str:
    return f"<p>{prose(block.text)}</p>"


@_write.register
def _items(block: Items, findings: Findings) -> str:
    return "<ul>" + "".join(f"<li>{prose(text)}</li>" for text in block.texts) + "</ul>"


@_write.register
def _grid(block: Grid, findings: Findings) -> str:
    classes = [' class="text"' if number in block.texts else "" for number in range(len(block.titles))]

    def row(cells: tuple[str, ...], tag: str) -> str:
        marked = zip(cells, classes, strict=True)
        return "<tr>" + "".join(f"<{tag}{which}>{escape(cell)}</{tag}>" for cell, which in marked) + "</tr>"

    bodies = ["<tbody>" + "\n".join(row(cells, "td") for cells in group) + "</tbody>" for group in block.groups]
    head = f"<thead>{row(block.titles, 'th')}</thead>"
    return f'<div class="wide"><table>\n{head}\n{"".join(bodies)}\n</table></div>'


@_write.register
def _listing(block: Listing, findings: Findings) -> str:
    return f"<pre>{escape(block.text)}</pre>"


@_write.register
def _picture(block: Picture, findings: Findings) -> str:
    svg = _inline(save(draw(block.name, findings), "svg").decode(), block.name)
    return (
        f'<figure role="img" aria-label="{escape(block.caption)}">\n{svg}\n'
        f"<figcaption>{prose(block.caption)}</figcaption></figure>"
    )


def _inline(svg: str, name: str) -> str:
    """The `<svg>` element alone, with ids that no other picture of the page has."""
    element = svg[svg.index("<svg") :].strip()
    element = re.sub(r'(?<= id=")(?=[^"])', f"{name}-", element)
    return re.sub(r'(?<=url\(#)|(?<=href="#)', f"{name}-", element)


class HtmlFormat(Format):
    """The report as one HTML file that opens offline: figures inlined as SVG, no script, nothing loaded."""

    kind: Literal["html"] = "html"
    suffix = "html"
    figures = ("svg", "png")
    inlined = True

    def render(self, findings: Findings, place: Place) -> str:
        """The whole page."""
        made = document(findings, place.pictures)
        parts = [f"<h1>{escape(made.title)}</h1>"]
        for section in made.sections:
            parts.append(f'<section class="{escape(section.title.lower().replace(" ", "-"))}">')
            parts.append(f"<h2>{escape(section.title)}</h2>")
            parts += [_write(block, findings) for block in section.blocks]
            parts.append("</section>")
        return _PAGE.format(title=escape(made.title), body="\n".join(parts))
