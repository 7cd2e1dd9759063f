"""The report as one HTML file that opens offline: figures inlined as SVG, no script, nothing loaded."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial, singledispatch
from html import escape
from itertools import chain, groupby, repeat
from operator import itemgetter
from statistics import mode
from types import MappingProxyType
from typing import Literal
from urllib.parse import quote

from pydantic import ValidationError

from ablate.analysis.answer import Answer, verdicts_on_parts
from ablate.analysis.answer_rows import AnswerRow, GroupKey, outcome_words, verdict_word
from ablate.analysis.claims import ClaimVerdict
from ablate.analysis.effects import EffectRow, StudyEffects
from ablate.analysis.findings import Findings
from ablate.analysis.headline import shows_effects
from ablate.analysis.judging import deciding_bounds
from ablate.analysis.ladder import Climbs, ScaleRow
from ablate.analysis.numbers import MISSING, count, decimals_for, fixed, interval_words, listed, percent, plural
from ablate.analysis.path import Removal, RemovalPath
from ablate.analysis.report import StudyReport
from ablate.analysis.rows import SELECTED
from ablate.render.blocks import (
    AnswerGrid,
    Cautions,
    ClaimsGrid,
    Grid,
    Items,
    Listing,
    Paragraph,
    Picture,
    ReportDocument,
    Section,
    with_code,
)
from ablate.render.document import document, document_of_questions, effects_note, setup
from ablate.render.figures import draw, save
from ablate.render.figures.effects import SIDES
from ablate.render.figures.path import removal_outcome
from ablate.render.figures.style import DRAWN_AS, Look, Palette, character, tones
from ablate.render.formats import Format, Place
from ablate.render.interval import FURTHER, Axis, Span, axis_html, interval_svg
from ablate.spec.design import BASELINE, split_axis

_OUTCOMES = {"vanishes": "not worse", "turns": "undecided"}
"""What becomes of a difference at larger models, to the verdict as which it is drawn; others are verdicts."""
ANSWER_STYLE = """
table.answer { width: 100%; border-collapse: collapse; font-size: 0.9rem; }
table.answer :is(th, td) { padding: 0.1rem 0.5rem; text-align: left; border: 0; font-variant-numeric: tabular-nums;
    border-bottom: 1px solid rgba(128, 140, 155, 0.3); }
table.answer th { font-weight: 400; font-size: 0.8rem; opacity: 0.8; }
table.answer td { height: 31px; white-space: normal; vertical-align: middle; }
table.answer .number { text-align: right; white-space: nowrap; }
table.answer .verdict, table.answer .interval { white-space: nowrap; }
table.answer :is(img, svg) { display: block; width: 244px; max-width: none; }
.axis { display: block; position: relative; height: 1.3em; width: 244px; }
.axis span { position: absolute; }
.axis .middle { transform: translateX(-50%); }
.axis .end { transform: translateX(-100%); }
table.answer a { color: var(--link, inherit); }
table.answer code { font-size: 0.75rem; opacity: 0.8; overflow-wrap: anywhere; background: none; }
table.answer tbody tr { position: relative; }
table.answer tbody tr:hover { background: rgba(128, 140, 155, 0.12); }
table.answer td a::after { content: ""; position: absolute; inset: 0; }
table.answer :is(tr.group, small.narrow) { display: none; }
table.answer span.whole { display: inline-block; }
table.answer small { font-size: 0.8rem; opacity: 0.8; }
@media (max-width: 900px) { table.answer code, table.answer .wide { display: none; } }
@media (max-width: 640px) {
    table.answer td { height: 36px; }
    table.answer :is(th, td) { padding: 0.1rem 0.2rem; }
    table.answer :is(.verdict span, em) { display: none; }
    table.answer tr.group { display: table-row; }
    table.answer tr.group em { display: inline; font-style: normal; }
    table.answer small { display: block !important; }
    table.answer th.verdict { font-size: 0; }
    table.forest :is(thead, tbody, tr.group) { display: block; }
    table.forest tr { display: grid; grid-template-columns: minmax(1.2rem, auto) 1fr auto; align-items: baseline;
        column-gap: 0.3rem; padding: 0.3rem 0;
        border-bottom: 1px solid rgba(128, 140, 155, 0.3); }
    table.forest tr :is(th, td) { height: auto; padding: 0.1rem 0; border: 0; }
    table.forest td[colspan] { grid-column: 1 / -1; padding-top: 0.6rem; }
    table.forest .interval { grid-column: 1 / -1; }
    table.forest td.verdict:empty ~ .interval { display: none; }
    table.forest .axis { width: auto; }
    table.forest .interval :is(img, svg) { width: 100%; height: auto; margin: -0.25rem 0; }
}
"""
"""The style of `verdict_table`; narrow screens show fewer columns."""
_CLAIMED = {"supported": "not needed", "refuted": "needed", "undecided": "undecided"}
"""Verdicts on claims to those on variants in whose colour and mark they are drawn."""
_BRACKETS = re.compile(r" \([^()]*\)$")
_FIRST = re.compile(r"(?<=[.]) (?=[A-Z])")
"""Between the first sentence of a paragraph and the others."""
MOST_LINES, MOST_LETTERS = 20, 600
"""Lines of a listing, and letters of a paragraph, that are shown before a click."""
MOST_PAIRS = 6
"""Interactions in the first table; the section on effects has more."""
BLOCK = "The block of the baseline, with the verdicts on its parts."
CLOSED = frozenset({"Checks", "Ablation table", "Differences from the baseline", "Fair comparison", "How to reproduce"})
"""Sections that even a wide page shows after a click: what others above them say in another form, or is looked up."""
LONG = 160
"""Characters of an answer up to which all of it is the headline; of a longer one its first sentence is."""
WIDTHS = {"page": 800, "phone": 356}
"""Pixels of a figure, on a page those of its text."""
_COLOUR = re.compile(r"#[0-9a-f]{6}\b")
_OPTION = re.compile(r"(?<!\S)--?[a-z][\w-]*")
_BREAKS = re.compile(r"(?<=[,=_])(?=\w)")
_VERDICT = re.compile(r"([▲●■◆])( (?:better|can go|as good|must stay|worse|undecided))?")
"""A verdict in a cell: its mark, with the word where there is room."""
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
:root {{ color-scheme: light dark; --ink: #1a1a1a; --paper: #ffffff; --rule: #cccccc; --tint: #f2f4f6; {light} }}
body {{ font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 75rem;
  margin: 1.5rem auto; padding: 0 1rem; }}
h1 {{ font-size: 1.25rem; font-weight: 400; line-height: 1.3; margin: 0; }}
h2 {{ font-size: 1.3rem; margin: 2.5rem 0 0.75rem; border-bottom: 1px solid var(--rule); }}
h3 {{ font-size: 1.05rem; margin: 1.75rem 0 0.5rem; }}
:is(p, ul):not(.setup, .headline) {{ max-width: 50rem; }}
p.headline {{ font-size: 1.5rem; font-weight: 600; line-height: 1.3; margin: 0.4rem 0 0.6rem; }}
.caution {{ border-left: 4px solid currentColor; padding-left: 0.6rem; font-weight: 600; }}
.setup {{ font-size: 0.9rem; opacity: 0.85; margin: 0; }}
.setup + table, .setup + .wide {{ margin-top: 1rem; }}
nav {{ font-size: 0.9rem; margin: 1.5rem 0 0; }}
.wide {{ overflow-x: auto; }}
{answer_style}table {{ border-collapse: collapse; font-size: 0.875rem; font-variant-numeric: tabular-nums; }}
thead th {{ border-top: 2px solid; border-bottom: 1px solid; vertical-align: bottom; }}
tbody {{ border-bottom: 1px solid var(--rule); }}
tbody:last-child {{ border-bottom: 2px solid; }}
th, td {{ padding: 0.2rem 0.5rem; text-align: right; vertical-align: top; }}
td, b.verdict, .option {{ white-space: nowrap; }}
.text {{ text-align: left; white-space: normal; min-width: 5.5rem; }}
td.text:first-child {{ min-width: 13rem; }}
pre {{ background: var(--tint); padding: 0.75rem; font-size: 0.85rem; white-space: pre-wrap; overflow-wrap: anywhere; }}
code {{ font-size: 0.9em; background: var(--tint); padding: 0 0.2em; }}
summary {{ cursor: pointer; }}
summary > :is(h2, h3) {{ display: inline; border: 0; }}
.part {{ margin: 1.75rem 0 0; border-top: 1px solid var(--rule); padding-top: 1rem; }}
:is(p, li, summary, figcaption) {{ overflow-wrap: anywhere; }}
:is(details details, .note) {{ margin: 1rem 0; }}
figure {{ margin: 1rem 0; }}
figure svg {{ display: block; }}
figure :is(svg, img) {{ max-width: 100%; height: auto; }}
figure .phone {{ display: none; }}
figcaption {{ max-width: 50rem; font-size: 0.9rem; }}
@media print {{ details::details-content {{ content-visibility: visible; }} }}
@media print, (min-width: 641px) {{
  @supports selector(::details-content) {{
    .open::details-content {{ content-visibility: visible; }}
    .open > summary {{ pointer-events: none; list-style: none; }}
    .note > summary {{ display: none; }}
  }}
}}
@media screen and (max-width: 640px) {{
  .part {{ margin-top: 0.75rem; padding-top: 0.6rem; }}
  h2 {{ font-size: 1.1rem; }}
  :is(nav, figure .page) {{ display: none; }}
  figure .phone {{ display: block; }}
  body {{ margin-top: 0.75rem; }}
  h1 {{ font-size: 1rem; }}
  p.headline {{ font-size: 1.15rem; }}
  th, td {{ padding: 0.2rem 0.35rem; }}
  .wide thead {{ display: none; }}
  .wide :is(table, tbody, tr) {{ display: block; }}
  .wide tr {{ padding: 0.4rem 0; border-top: 1px solid var(--rule); }}
  .wide td {{ display: flex; justify-content: space-between; gap: 1rem; padding: 0; white-space: normal; }}
  .wide td::before {{ content: attr(data-title); opacity: 0.8; }}
  .wide td.text {{ display: block; overflow-wrap: anywhere; }}
  .wide td.text::before {{ content: attr(data-title) ": "; }}
  .wide td.text:first-child {{ font-weight: 600; }}
  .wide td.text:first-child::before {{ content: none; }}
  .wide td:not([data-title]) {{ display: none; }}
}}
@media screen and (prefers-color-scheme: dark) {{
  :root {{ --ink: #e4e8ee; --paper: #11161d; --rule: #3a4554; --tint: #1d2630; {dark} }}
}}
@media print {{
  body {{ font-size: 10pt; margin: 0; }}
  figure, tr {{ break-inside: avoid; }}
  .wide table {{ font-size: 7.5pt; }}
  .wide :is(th, td) {{ padding: 0.1rem 0.25rem; }}
  .wide .text, .wide td.text:first-child {{ min-width: 3rem; overflow-wrap: anywhere; }}
}}
</style>
</head>
<body>
{body}
</body>
</html>
"""
)


def colours(*, dark: bool) -> str:
    """The colours of figures as CSS variables, which are called as they are on a light page."""
    return " ".join(f"--{light[1:]}: {tone[dark]};" for light, tone in tones().items())


def in_variables(text: str) -> str:
    """A text in which colours of figures are the CSS variables `colours`."""
    return _COLOUR.sub(lambda colour: f"var(--{colour[0][1:]})" if colour[0] in tones() else colour[0], text)


def prose(text: str) -> str:
    """A sentence in HTML that shows it as it is, with the code in its backticks as code."""
    return with_code(text, _whole_options, lambda code: f"<code>{_whole_options(code)}</code>")


def _whole_options(text: str) -> str:
    """A text in HTML in which no option of a command is broken at its hyphens."""
    return _OPTION.sub(r'<span class="option">\g<0></span>', escape(text))


_NOTEBOOK = f"""<style>{ANSWER_STYLE}
:root {{ {colours(dark=False)} }}
:is([data-jp-theme-light=false], .vscode-dark) {{ {colours(dark=True)} }}
</style>"""


def answer_and_table(findings: Findings) -> str:
    """The answer and the ablation table alone, as a piece of a page."""
    sections = {section.title: section.blocks for section in document(findings).sections}
    headline, *shown = (*sections["Answer"], *sections["Ablation table"])
    first = f'<div style="font-size: 1.3em; font-weight: 600">{_write(headline, findings)}</div>'
    parts = [_NOTEBOOK, first, *(_write(block, findings) for block in shown)]
    return "\n".join(parts)


@singledispatch
def _write(block: object, findings: Findings | None) -> str:
    raise NotImplementedError(type(block))


@_write.register
def _paragraph(block: Paragraph, findings: Findings | None) -> str:
    first, *rest = _FIRST.split(block.text, 1)
    if len(block.text) <= MOST_LETTERS or not rest:
        return f"<p>{prose(block.text)}</p>"
    return _fold(prose(first), f"<p>{prose(rest[0])}</p>")


def _fold(title: str, shown: str) -> str:
    """What is shown after a click."""
    return f"<details><summary>{title}</summary>{shown}</details>"


@_write.register
def _items(block: Items, findings: Findings | None) -> str:
    return "<ul>" + "".join(f"<li>{prose(text)}</li>" for text in block.texts) + "</ul>"


@_write.register
def _grid(block: Grid, findings: Findings | None) -> str:
    rows = [row for group in block.groups for row in group]
    said = [place for place in range(len(block.titles)) if not rows or {row[place] for row in rows} - {"", MISSING}]
    block = replace(block.only(*said), fold=block.fold)
    classes = [' class="text"' if number in block.texts else "" for number in range(len(block.titles))]

    def row(cells: Iterable[str], tag: str, link: str = "") -> str:
        shown = [
            with_verdicts(escape(cell), PAGE) if " " in cell else _BREAKS.sub("<wbr>", escape(cell)) for cell in cells
        ]
        named = [
            f' data-title="{escape(title)}"' if tag == "td" and cell not in ("", MISSING) else ""
            for title, cell in zip(block.titles, shown, strict=True)
        ]
        if link:
            shown[0] = f'<a href="{escape(quote(link))}">{shown[0]}</a>'
        marked = zip(shown, classes, named, strict=True)
        return "<tr>" + "".join(f"<{tag}{which}{title}>{cell}</{tag}>" for cell, which, title in marked) + "</tr>"

    links = chain(block.links, repeat(""))
    groups = ("\n".join(row(cells, "td", next(links)) for cells in group) for group in block.groups)
    bodies = [f"<tbody>{rows}</tbody>" for rows in groups]
    head = f"<thead>{row(block.titles, 'th')}</thead>"
    table = f'<div class="wide"><table>\n{head}\n{"".join(bodies)}\n</table></div>'
    return _fold(escape(block.fold), table) if block.fold else table


def with_verdicts(cell: str, palette: Palette) -> str:
    """A cell in HTML with the verdicts in it in their colours."""
    looks = palette.verdicts(("better", "not needed", "needed", "undecided")).values()
    colour = {character(look): look.colour for look in looks}
    return _VERDICT.sub(lambda found: f'<b class="verdict" style="color: {colour[found[1]]}">{found[0]}</b>', cell)


@_write.register
def _answer_grid(block: AnswerGrid, findings: Findings | None) -> str:
    return page_table(block.answer, rows_of(block.answer))


@_write.register
def _claims_grid(block: ClaimsGrid, findings: Findings | None) -> str:
    assert findings is not None, "claims are on findings"
    return claims_table(findings.report, len(findings.report.answer.claims)) + _grid(block, findings)


def rows_of(answer: Answer) -> list[tuple[GroupKey, AnswerRow]]:
    """All rows of an answer, each with the group that it is of."""
    return [(group.key, row) for group in answer.groups for row in group.rows]


class _OfPage(Palette):
    """The colours of verdicts as the CSS variables of a page, and the ink as the colour of its text."""

    @property
    def ink(self) -> str:
        """The colour of text and lines."""
        return "currentColor"

    def verdict(self, word: str) -> Look:
        """The look of a verdict."""
        look = super().verdict(word)
        return replace(look, colour=in_variables(look.colour))


PAGE = _OfPage()
"""For a page that has the CSS variables `colours`."""


def page_table(answer: Answer, rows: Sequence[tuple[GroupKey, AnswerRow]]) -> str:
    """The same as `verdict_table`, on a page that has the CSS variables `colours`."""

    return verdict_table(answer, rows, PAGE.verdict, PAGE.ink)


def verdict_table(
    answer: Answer,
    rows: Sequence[tuple[GroupKey, AnswerRow]],
    look: Callable[[str], Look],
    ink: str,
    *,
    link: Callable[[AnswerRow], str] | None = None,
    embed: Callable[[str], str] = str,
    baseline: bool = False,
) -> str:
    """Rows of an answer as a table that is a forest plot; `ANSWER_STYLE` is its style.

    Args:
        rows: With the groups that they are of.
        look: The look of a verdict.
        ink: The colour of lines.
        link: Where a row leads; None: nowhere.
        embed: What makes HTML of an SVG element; the default leaves it as it is.
        baseline: Whether a row above them has the value from which the differences are.
    """
    axis, write = Axis.of_picture(answer), partial(fixed, decimals=answer.decimals, sign=True)
    titles = [f"Δ {escape(answer.quantity)}", f"95 % bound, by {answer.unit}", "parameters"]
    if all(row.parameter_change is None for _, row in rows):
        titles.pop()

    def cells(key: GroupKey, row: AnswerRow) -> tuple[str, ...]:
        drawn, variant = look(DRAWN_AS[key]), split_axis(row.variant)[0]
        name = "" if row.combines or variant in (row.label, BASELINE) else f" <code>{escape(variant)}</code>"
        warning = f" <em>{escape(row.warning)}</em>" if row.warning else ""
        alone = "*" * holds_alone(row)
        bound = row.bound_text
        if key == "undecided" and row.low is not None:
            bound = "; ".join(filter(None, (interval_words(row.low, row.high, answer.margin, answer.decimals), bound)))
        below = "; ".join(filter(None, (f"{bound}{alone}", row.warning)))
        words = f"{escape(row.label)}{name}"
        if link is not None:  # what it leads to has its name
            words = f'<a href="{escape(link(row))}">{escape(row.label)}</a>'
        return (
            marked_verdict(key, row, look),
            f'{words}{warning}<small class="narrow"> {escape(below)}</small>',
            *_compared(axis, row, drawn, write, ink, embed),
            escape(bound),
            percent(row.parameter_change),
        )

    groups = [
        (_marked(look(DRAWN_AS[key]), key, tag="em"), [cells(*each) for each in of])
        for key, of in groupby(rows, key=itemgetter(0))
    ]
    if baseline and answer.baseline is not None:
        value = f"{escape(answer.reference)}: {escape(answer.quantity)} {fixed(answer.baseline, answer.decimals)}"
        nothing = embed(interval_svg(axis, Span(None, None, None), colour=ink, ink=ink, mark="circle"))
        groups.insert(0, ("", [("", value, "", nothing, *[""] * (len(titles) - 1))]))
    told = f"The answer: {plural(len(rows), 'variant')} with verdicts and their 95 % bounds"
    return _forest(titles, axis_html(axis), groups, told)


def effects_table(
    effects: StudyEffects,
    most: int,
    palette: Palette,
    embed: Callable[[str], str] = str,
    means: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Effects as a table that is a forest plot, in the order of a reader; `ANSWER_STYLE` is its style.

    Pairs come first where the question of the study asks for some.

    Args:
        most: Interactions that it shows.
        embed: What makes HTML of an SVG element; the default leaves it as it is.
        means: Name of an effect to the means that it is the difference of.
    """
    worse = 1 if effects.direction == "minimize" else -1
    removes = effects.removes(*effects.main, *effects.interactions)
    two_means = f"mean {escape(effects.metric)} {'with → without it' if removes else 'before → after'}"
    one, two = ("Without one part", "Without both parts") if removes else ("Each by itself", "Two together")
    others = "s" * (len(effects.main) > 2)
    over = f"with and without the other{others}"
    above, below_it = ("above", "below")[::worse]
    mixed = any(row.aliases for row in effects.interactions)
    sign = f" <small>{above} 0: each does the work of the other; {below_it} 0: each needs the other</small>"
    sign *= removes and not mixed
    groups = [
        (f"<b>{one}, on average {over}</b>", effects.ranked(effects.main)),
        (f"<b>{two}, beyond the sum of the two</b>{sign}", effects.ranked(effects.interactions)[:most]),
    ]
    rows_of_all = [row for _, rows in groups for row in rows]
    spans = [*map(_span, (not effects.asked and effects.main) or rows_of_all)]
    both = bool(effects.interactions) or any(effects.side(row) == "better" for row in effects.main)
    axis = Axis.of_effects(effects.margin, worse, spans, both=both)
    decimals = decimals_for(effects.margin, ())
    write = partial(fixed, decimals=decimals, sign=True)

    def title(name: str) -> str:
        said = escape(effects.parts(name) if removes else effects.titles[name])
        return f'<span class="whole">{said}</span>'  # a line is broken between the effects of a sum

    def cells(row: EffectRow) -> tuple[str, ...]:
        side, span = effects.finding(row), _span(row)
        drawn = SIDES[side](palette)
        aliases = "".join(f" + {title(name)}" for name in row.aliases)
        why = f" <em>{reason}</em>" if (reason := effects.open_because(row)) else ""
        ends, at = interval_words(span.low, span.high, effects.margin, decimals), escape(means.get(row.name, ""))
        below = "; ".join(filter(None, (f"{side}: {ends}", reason, f"mean {at}" * bool(at))))
        return (
            _marked(drawn, side),
            f'{title(row.name)}{aliases}{why}<small class="narrow"> {below}</small>',
            *_compared(axis, span, drawn, write, palette.ink, embed),
            ends,
            *((at,) if means else ()),
        )

    told = f"{plural(len(rows_of_all), 'effect')} on {escape(effects.metric)} with 95 % intervals"
    titles = [
        f"Δ {escape(effects.metric)}",
        "95 % interval",
        *((two_means,) if means else ()),
    ]
    shown = [(title, [*map(cells, rows)]) for title, rows in groups if rows]
    shown = shown[:: -1 if effects.asked else 1]
    pair = "sum of two pairs" if mixed else "pair"
    words = ("part that is removed" if removes else "change") if effects.main else pair
    return _forest(titles, axis_html(axis), shown, told, headed=True, words=words)


def claims_table(report: StudyReport, most: int) -> str:
    """Claims with their verdicts as a table that is a forest plot, on a page that has the CSS variables `colours`.

    Only differences of the objective are drawn, or where no claim is on it, of the metric of most.

    Args:
        most: Claims that it shows, the first ones.
    """
    metric, worse = str(report.record.objective["metric"]), 1 if report.direction == "minimize" else -1
    claims = report.answer.claims[:most]
    found = [str(one.evidence["metric"]) for one in claims if {"difference", "metric"} <= one.evidence.keys()]
    metric = metric if metric in found or not found else mode(found)
    spans = [
        Span(*map(claim.evidence.get, ("difference", "low", "high")))
        if claim.evidence.get("metric") == metric else Span(None, None, None)
        for claim in claims
    ]  # fmt: skip
    axis, write = (
        Axis.around(report.margin, worse, spans, FURTHER, both=True),
        partial(fixed, decimals=decimals_for(report.margin, ()), sign=True),
    )

    def cells(claim: ClaimVerdict, span: Span) -> tuple[str, ...]:
        word = _CLAIMED[claim.verdict]
        drawn = PAGE.verdict(word)
        own = f"its own margin {claim.evidence['margin']:g}" if claim.own_margin(report.margin) else ""
        about = "; ".join(filter(None, (without_brackets(claim.reason(report.titles)), own, claim.source)))
        return (
            _marked(drawn, claim.verdict),
            f"{prose(claim.says or claim.id)} <small>{prose(about)}</small>",
            *_compared(axis, span, replace(drawn, colour="currentColor"), write, "currentColor", str),
        )

    rows = [cells(claim, span) for claim, span in zip(claims, spans, strict=True)]
    told = f"{plural(len(rows), 'claim')} with verdicts and 95 % intervals"
    return _forest([f"Δ {escape(metric)}"], axis_html(axis), [("", rows)], told, words="claim")


def without_brackets(sentence: str) -> str:
    """A verdict without the statistics in brackets at its end, which the report has."""
    return _BRACKETS.sub("", sentence)


def _span(row: EffectRow) -> Span:
    """An effect with the interval that decides."""
    low, high = row.bounds or (None, None)
    return Span(row.estimate, low, high)


def path_table(path: RemovalPath, palette: Palette, embed: Callable[[str], str] = str) -> str:
    """The removals that a path tried, round by round, as a table that is a forest plot; `ANSWER_STYLE` is its style.

    Args:
        embed: What makes HTML of an SVG element; the default leaves it as it is.
    """

    fresh = {one.variant: one for one in path.confirmations}

    def span(one: Removal, *, chose: bool = False) -> Span:
        confirmation = None if chose or not one.on_path else fresh.get(one.standing.variant)
        paired, ends = one.standing.difference, one.bounds
        if confirmation is not None:
            paired, ends = confirmation.difference, deciding_bounds(confirmation.verdict, path.direction)
        known = paired is not None and one.verdict.word != "diverged"
        low, high = (None, None) if ends is None else (ends.low, ends.high)
        return Span(paired.difference if paired and known else None, low, high)

    spans = [span(one) for tried in path.rounds for one in tried]
    axis = Axis.around(path.margin, 1 if path.direction == "minimize" else -1, spans, FURTHER)
    decimals = decimals_for(path.margin, ())
    write = partial(fixed, decimals=decimals, sign=True)

    def cells(number: int, one: Removal, beside: Sequence[Removal]) -> tuple[str, ...]:
        (word, looked), of = removal_outcome(one, path), span(one)
        drawn = palette.verdict(looked)
        origins = {other.parent for other in beside}
        notes = [f"from {path.titles.get(one.parent, one.parent)}"] * (len(origins) > 1)
        if one.on_path and one.standing.variant in fresh:
            seeds = plural(fresh[one.standing.variant].difference.n, "fresh seed")
            notes.append(f"on {seeds}; {write(span(one, chose=True).difference)} on the seeds that chose it")
        notes += _said_before(number, one, word, path)
        told = "".join(f" <small>{escape(note)}</small>" for note in notes)
        ends = interval_words(of.low, of.high, path.margin, decimals)
        return (
            _marked(drawn, word),
            f'{escape(one.words)}<small class="narrow"> {escape(word)}: {escape(ends)}</small>{told}',
            *_compared(axis, of, drawn, write, palette.ink, embed),
            escape(ends),
            MISSING if one.standing.parameters is None else f"{one.standing.parameters:,}",
            MISSING if one.standing.flops is None else count(round(one.standing.flops)),
        )

    def heading(number: int, tried: Sequence[Removal]) -> str:
        gone = [step.words for step in path.steps[: number - 1]]
        origins = len({one.parent for one in tried})
        what = f"besides {listed(gone)}, one more part is removed" if gone else "one part is removed"
        what = f"one more part is removed from {origins} blocks" if origins > 1 else what
        return f"<b>Round {number}: {escape(what)}</b>"

    shown = [
        (heading(number, tried), [cells(number, one, tried) for one in tried])
        for number, tried in enumerate(path.rounds, 1)
    ]
    titles = [f"Δ {escape(path.metric)}", "95 % bounds", "parameters", "FLOP"]
    told = "Removals that were tried, round by round, with what became of them"
    scale = axis_html(axis)
    return _forest(titles, scale, shown, told, headed=True, words="part that is removed")


def _said_before(number: int, one: Removal, word: str, path: RemovalPath) -> list[str]:
    """That the same removal had another verdict in the round before, and why it may: what was not removed there."""
    if number < 2 or path.beam > 1 or len(path.steps) < number - 1:
        return []
    same = (other for other in path.rounds[number - 2] if (other.switch, other.setting) == (one.switch, one.setting))
    said = [removal_outcome(other, path)[0] for other in same]
    return [f"{was} in round {number - 1}, with {path.steps[number - 2].words} in place" for was in said if was != word]


def scale_forest(answer: Answer, climbs: Climbs, palette: Palette, embed: Callable[[str], str] = str) -> str:
    """What becomes of the differences of a ladder at larger models, as a table that is a forest plot.

    Args:
        climbs: The laws behind it.
        embed: What makes HTML of an SVG element; the default leaves it as it is.
    """
    laws = {one.scaling.variant: one for one in climbs.of}
    of = {row.words: laws[name] for row in answer.rows if (name := split_axis(row.variant)[0]) in laws}
    there = {words: one.ladder.difference for words, one in of.items() if one.ladder and not one.refusal}
    spans = {words: Span(one.value, one.low, one.high) for words, one in there.items() if one is not None}
    axis = Axis.around(answer.margin, answer.worse, [*spans.values()], FURTHER)
    write = partial(fixed, decimals=answer.decimals, sign=True)

    def cells(row: ScaleRow) -> tuple[str, ...]:
        span = spans.get(row.words, Span(None, None, None))
        outcome, _, reason = outcome_words(row).partition(": ")
        drawn = palette.verdict(_OUTCOMES.get(row.outcome, row.outcome) if row.there else SELECTED)
        why = f" <small>{escape(reason)}</small>" if reason else ""
        below = f"{outcome}, speedup {escape(row.speedup)}" if row.there else outcome
        by_rung = " ".join(map(escape, row.by_rung))
        return (
            _marked(drawn, outcome),
            f'{escape(row.words)}<small class="narrow"> {below}</small>{why}'
            f'<small class="narrow"> Δ at {rungs}: {by_rung}</small>',
            *_compared(axis, span, drawn, write, palette.ink, embed),
            interval_words(span.low, span.high, answer.margin, answer.decimals),
            escape(row.speedup) if row.there else MISSING,
            "&ensp;".join(map(escape, row.by_rung)),
        )

    times, rungs = answer.scale[0].times, ", ".join(answer.scale[0].compute)
    titles = [f"Δ at {times:g}x", "95 % interval", "speedup there", f"Δ at {rungs}"]
    told = f"What becomes of each difference at {times:g} times the compute"
    return _forest(titles, axis_html(axis), [("", map(cells, answer.scale))], told)


def _compared(
    axis: Axis,
    of: Span | AnswerRow,
    drawn: Look,
    write: Callable[[float | None], str],
    ink: str,
    embed: Callable[[str], str],
) -> tuple[str, str]:
    """A difference as a number and as an interval."""
    svg = interval_svg(axis, of, colour=drawn.colour, ink=ink, mark=drawn.mark)
    return f"<b>{write(of.difference)}</b>", embed(svg)


def marked_verdict(key: GroupKey, row: AnswerRow, look: Callable[[str], Look]) -> str:
    """The verdict on a row of a group with its mark, in its colour; with a star if it does not hold jointly."""
    return _marked(look(DRAWN_AS[key]), escape(verdict_word(key, row)) + "*" * holds_alone(row))


def _marked(drawn: Look, word: str, tag: str = "span") -> str:
    """A verdict with the mark of the figures, in its colour."""
    return f'<b style="color: {drawn.colour}">{character(drawn)} <{tag}>{word}</{tag}></b>'


def _forest(
    titles: Sequence[str],
    scale: str,
    groups: Iterable[tuple[str, Iterable[Sequence[str]]]],
    told: str,
    *,
    headed: bool = False,
    words: str = "change",
) -> str:
    """Rows of a verdict, words, a number, its interval, and what only a wide window shows.

    Args:
        titles: Of the number, and of what follows the interval.
        scale: What stands above the intervals.
        groups: Their headings, if they have one, with their rows, all as HTML.
        told: What it holds, for those who cannot see it.
        headed: Whether a wide window shows the headings, too.
        words: What stands above the words.
    """
    kinds = ["verdict", "change", "number", "interval", *["number wide"] * (len(titles) - 1)]

    def line(texts: Iterable[str], tag: str) -> str:
        return "".join(f'<{tag} class="{kind}">{text}</{tag}>' for kind, text in zip(kinds, texts, strict=False))

    body = ""
    for heading, rows in groups:
        if heading:
            body += f'<tr class="{"" if headed else "group"}"><td colspan="{len(kinds)}">{heading}</td></tr>'
        body += "".join(f"<tr>{line(row, 'td')}</tr>" for row in rows)
    head = f"<thead><tr>{line(('verdict', words, titles[0], scale, *titles[1:]), 'th')}</tr></thead>"
    return f'<table class="answer forest" aria-label="{told}">{head}<tbody>{body}</tbody></table>'


def group_mark(key: GroupKey) -> str:
    """The character for the mark in which a group is drawn."""
    return character(Palette().verdict(DRAWN_AS[key]))


def holds_alone(row: AnswerRow) -> bool:
    """Whether a verdict does not hold jointly with the others."""
    return row.bound is not None and not row.jointly


@_write.register
def _listing(block: Listing, findings: Findings | None) -> str:
    shown = f"<pre>{_whole_options(block.text)}</pre>"
    lines = block.text.count("\n") + 1
    return shown if lines <= MOST_LINES else _fold(f"{lines:,} lines", shown)


@_write.register
def _picture(block: Picture, findings: Findings | None) -> str:
    assert findings is not None, "a document with pictures has findings"
    own = block.name if findings.report.record.judged is None else f"{block.name}{findings.report.record.id}"
    drawn = ""
    for of, width in WIDTHS.items():
        svg = save(draw(block.name, findings, Palette(), width), "svg").decode()
        drawn += f'<div class="{of}">{in_variables(inline(svg, f"{of}-{own}"))}</div>\n'
    told = f'role="img" aria-label="{escape(block.caption)}"'
    return f"<figure {told}>\n{drawn}<figcaption>{prose(block.caption)}</figcaption></figure>"


def block_with_verdicts(report: StudyReport) -> str:
    """The block of the baseline with the verdicts on its parts as SVG; empty without any, or if a kind is not known."""
    from ablate.render.drawing.svg import judged_svg

    judged, name = verdicts_on_parts(report), report.record.baseline
    models = {variant.name: variant.spec.get("model", {}) for variant in report.record.variants}
    try:
        return judged_svg(name, models[name], judged) if judged else ""
    except ValidationError:
        return ""


def data_url(svg: str) -> str:
    """A picture as an address: in an image nothing of it can run, and its ids and styles stay its own."""
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()


def inline(svg: str, name: str) -> str:
    """The `<svg>` element alone, with ids that no other picture of the page has: they begin with its name."""
    element = svg[svg.index("<svg") :].strip()
    element = re.sub(r'(?<= id=")(?=[^"])', f"{name}-", element)
    return re.sub(r'(?<=url\(#)|(?<=href="#)', f"{name}-", element)


def html_page(made: ReportDocument) -> str:
    """A document as a page: the answer, then its other sections, which a phone shows after a click."""
    parts, links = list[str](), list[str]()
    for number, section in enumerate(made.sections):
        shown = (_answer if section.title == "Answer" else _blocks)(section)
        if section.title in ("", "Answer"):
            parts.append(f"<section>\n{shown}\n</section>")
            if svg := "" if section.of is None else block_with_verdicts(section.of.report):
                svg = svg.replace('class="paper"', 'style="fill: none"')
                block = f'<figure><img alt="{BLOCK}" src="{data_url(svg)}"><figcaption>{BLOCK}</figcaption></figure>'
                parts.append(f'<details class="part open"><summary><h2>The block</h2></summary>{block}</details>')
            continue
        title, tag, at = escape(section.title), f"h{section.level}", f"part-{number}"
        links += [f'<a href="#{at}">{title}</a>'] if section.level == 2 else []
        state = "" if section.title in CLOSED else " open"
        parts.append(
            f'<details class="part{state}"><summary><{tag}>{title}</{tag}></summary>\n'
            f'<div id="{at}">\n{shown}\n</div></details>'
        )
    parts.insert(1, f"<nav>Contents: {' · '.join(links)}</nav>" if len(links) > 1 else "")
    body = "\n".join((f"<h1>{escape(made.title)}</h1>", *parts))
    return _PAGE.format(
        title=escape(made.title), body=body, answer_style=ANSWER_STYLE,
        light=colours(dark=False), dark=colours(dark=True),
    )  # fmt: skip


def _blocks(section: Section) -> str:
    return "\n".join(_write(block, section.of) for block in section.blocks)


def _answer(section: Section) -> str:
    """The headline, the rows that it is about with how to read them, and below them what else there is."""
    (headline, *blocks), findings = section.blocks, section.of
    assert isinstance(headline, Paragraph), "an answer begins with its sentences"
    first, *others = _FIRST.split(headline.text, 1) if len(headline.text) > LONG else [headline.text]
    head = [f'<p class="headline">{prose(first)}</p>', *(f"<p>{prose(said)}</p>" for said in others)]
    if isinstance(limits := blocks[0], Cautions):
        head += [f'<p class="caution">{prose(text)}</p>' for text in limits.texts]
        del blocks[0]
    end = next(place for place, block in enumerate(blocks) if isinstance(block, Items))
    rows = "".join(_write(block, findings) for block in blocks[:end] if isinstance(block, Grid))
    rows += _note([block.text for block in blocks[:end] if isinstance(block, Paragraph)])
    rest = [_write(block, findings) for block in blocks[end:]]
    if findings is not None:
        report = findings.report
        head += [f'<p class="setup">{prose(line)}</p>' for line in setup(findings)]
        if report.effects is not None and shows_effects(report):
            title = f"{plural(len(report.variants) - 1, 'combination')}, each by itself against the baseline"
            table = effects_table(report.effects, MOST_PAIRS, PAGE)
            rows = f"{table}{_note([effects_note(report.effects)])}{_fold(title, rows)}"
    return "\n".join((*head, rows, *rest))


def _note(texts: Iterable[str]) -> str:
    """How to read a table, which a phone shows after a click."""
    said = "".join(f"<p>{prose(text)}</p>" for text in texts)
    return f'<details class="open note"><summary>How to read this</summary>{said}</details>' if said else ""


class HtmlFormat(Format):
    """The report as one HTML file that opens offline: figures inlined as SVG, no script, nothing loaded."""

    kind: Literal["html"] = "html"
    suffix = "html"
    figures = ("svg", "png")
    inlined = True
    draws_blocks = True

    def render(self, findings: Findings, place: Place) -> str:
        """The whole page."""
        return html_page(document(findings, place.pictures))

    def render_questions(self, answer: Answer, findings: Sequence[Findings], places: Sequence[Place]) -> str:
        """Their one answer, then each of them."""
        return html_page(document_of_questions(answer, findings, [place.pictures for place in places]))
