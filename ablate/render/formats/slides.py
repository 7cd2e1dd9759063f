"""Screens for a talk, in one HTML file without scripts that prints each as a page of a PDF."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import replace
from html import escape
from typing import Any, Literal

from pydantic import ValidationError

from ablate.analysis.answer import Answer, answer_of
from ablate.analysis.answer_rows import OF_VARIANTS
from ablate.analysis.effects import StudyEffects
from ablate.analysis.fairness import fairness_lines
from ablate.analysis.findings import Findings
from ablate.analysis.headline import shows_effects
from ablate.analysis.numbers import count, duration, percent
from ablate.analysis.report import StudyReport
from ablate.extras import missing_packages
from ablate.render.document import answer_note, effects_note, names_note
from ablate.render.figures import save
from ablate.render.figures.curves import beside_baseline
from ablate.render.figures.style import Palette
from ablate.render.formats import Format, Place
from ablate.render.formats.html import (
    ANSWER_STYLE,
    HEAD,
    PAGE,
    block_with_verdicts,
    claims_table,
    colours,
    data_url,
    effects_table,
    in_variables,
    inline,
    page_table,
    rows_of,
)
from ablate.render.formats.html import prose as html_prose
from ablate.store.records import VariantRecord

WIDTH, HEIGHT = 1280, 720
"""Of a screen in CSS pixels; a page is as large, at 96 pixels an inch."""
ROOM = (720.0, 610.0)
"""Width and height that the two blocks share, in CSS pixels."""
EDGE = 20
"""Pixels of the margin above and below the picture of a block that a screen has no room for."""
LARGER = {13: 16, 12: 15}
"""Sizes of text in the picture of a block, to those on a screen, as large as its boxes allow."""
MOST_ROWS = 16
"""Variants in the figure and in the list beside it."""
MOST_CLAIMS, MOST_EXPLAINED = 6, 13
MOST_WARNINGS = 2
"""What limits the answer that the first screen says; the last one says the rest."""

_PAGE = (
    HEAD
    + """<style>
@page {{ size: 1280px 720px; margin: 0; }}
:root {{ color-scheme: light dark; --ink: #1b2430; --soft: #4b5563; --paper: #ffffff; --rule: #cbd5e1;
  --open: #7a5200; {light} }}
html {{ font: 16px/1.4 system-ui, 'Segoe UI', 'Helvetica Neue', Arial, sans-serif; scroll-snap-type: y proximity; }}
* {{ box-sizing: border-box; }}
body {{ margin: 0; color: var(--ink); background: var(--paper); counter-reset: slide; }}
section {{ display: flex; flex-direction: column; gap: 1rem; padding: 1.75rem 3rem 1.5rem; position: relative;
  scroll-snap-align: start; counter-increment: slide; }}
section::after {{ content: counter(slide) " of {screens}"; position: absolute; right: 1rem; bottom: 0.4rem;
  color: var(--soft); font-size: 0.875rem; }}
h1, h2 {{ margin: 0; line-height: 1.15; overflow-wrap: anywhere; }}
h1 {{ font-size: {heading}rem; margin-bottom: 1rem; }}
h2 {{ font-size: 2rem; margin-bottom: 0.4rem; }}
p, ul {{ margin: 0 0 0.6rem; overflow-wrap: anywhere; }}
.source, .note, footer {{ color: var(--soft); font-size: 1.05rem; }}
.sides {{ display: flex; gap: 2rem; flex: 1; min-height: 0; }}
.text {{ flex: 1 1 0; min-width: 0; font-size: 1.2rem; align-self: center; }}
.warning {{ border-left: 0.3rem solid var(--open); padding-left: 0.8rem; }}
.blocks {{ display: flex; gap: 1.25rem; align-items: flex-start; justify-content: flex-end;
  align-self: center; flex: none; }}
.blocks figure {{ margin: 0; }}
.blocks img, .curves :is(svg, img) {{ width: 100%; height: auto; }}
.curves {{ flex: 1.3 1 0; min-width: 0; margin: 0; }}
figcaption {{ font-size: 1rem; text-align: center; }}
{answer_style}table.answer {{ font-size: {listed}rem; }}
table.answer th {{ font-size: 1rem; }}
table.answer td {{ height: {room}rem; }}
table.answer td.change {{ max-width: 21rem; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }}
table.answer :is(svg, .axis) {{ width: {interval:.1f}rem; font-size: 0.85rem; }}
table.answer svg {{ height: auto; }}
table.answer code {{ display: none; }}
.effects table.answer td.change {{ max-width: none; white-space: normal; }}
.claims table.answer {{ font-size: 1.1rem; }}
.claims table.answer td {{ height: 3.2rem; }}
.claims table.answer td.change {{ max-width: none; white-space: normal; }}
.claims table.answer :is(svg, .axis) {{ width: 15.25rem; font-size: 1rem; }}
.claims table.answer td.change small {{ display: block; font-size: 0.9em; }}
code {{ font-size: 0.9em; }}
footer {{ margin-top: auto; border-top: 1px solid var(--rule); padding-top: 0.5rem; }}
footer p {{ margin: 0 0 0.15rem; }}
@media screen and (min-width: 701px) {{
  html {{ font-size: min(1.25vw, 2.2222vh); }}
  section {{ min-height: 100vh; }}
}}
@media screen and (max-width: 700px) {{
  section {{ padding: 1.5rem 1rem; border-bottom: 1px solid var(--rule); }}
  h1 {{ font-size: 1.5rem; }} h2 {{ font-size: 1.3rem; }}
  .text, .curves, .claims {{ font-size: 1rem; flex: none; align-self: auto; }}
  .sides {{ flex-direction: column; }}
  .blocks {{ flex-direction: column; align-items: center; }}
  .blocks figure {{ width: calc(min(100%, 22rem) * var(--share)) !important; }}
  .source, .note, footer {{ font-size: 0.875rem; }}
  table.answer {{ font-size: 0.9rem; }}
  table.answer :is(thead, tbody) {{ display: block; }}
  table.answer tr {{ display: grid; grid-template-columns: 1.4rem 1fr auto; align-items: baseline; padding: 0.3rem 0;
    border-bottom: 1px solid var(--rule); }}
  table.answer tr.group {{ display: block; padding-top: 0.7rem; }}
  table.answer td, table.answer tr td.change {{ height: auto; white-space: normal; }}
  table.answer tr :is(th, td) {{ border: 0; }}
  table.answer .verdict span {{ display: none; }}
  table.answer .interval {{ grid-column: 1 / -1; }}
  table.answer .interval :is(.axis, img, svg) {{ display: block !important; width: 100% !important; }}
  table.answer .interval :is(img, svg) {{ height: auto; }}
  table.answer th small.narrow, table.answer .wide {{ display: none !important; }}
  .claims table.answer {{ font-size: 0.95rem; }}
  .claims table.answer tr {{ grid-template-columns: 1fr auto; }} .claims table.answer td {{ height: auto; }}
  .claims th.change {{ display: none; }} .claims th.number {{ grid-column: 1 / -1; }}
  .claims table.answer td.change {{ grid-column: 1 / -1; order: 1; }}
  .claims table.answer .interval {{ order: 2; margin: 0.3rem 0 0.6rem; }}
  .claims table.answer .verdict span {{ display: inline; }}
}}
@media screen and (prefers-color-scheme: dark) {{
  :root {{ --ink: #e8edf3; --soft: #b4bfcc; --paper: #10151d; --rule: #3a4554; --open: #f0b429; {dark} }}
}}
@media print {{
  html {{ font-size: 16px; }}
  section {{ width: 1280px; height: 720px; overflow: hidden; break-after: page; break-inside: avoid; }}
  section:last-child {{ break-after: auto; }}
}}
</style>
</head>
<body>
{body}
</body>
</html>
"""
)
_BOX = re.compile(r'viewBox="0 [\d.]+ (?P<width>[\d.]+) (?P<height>[\d.]+)" width="[\d.]+" height="[\d.]+"')
_BREAKS = re.compile(r"(?<=[,=@])(?=[a-z])")
_DARK = "(prefers-color-scheme: dark)"


def prose(text: str) -> str:
    """A sentence; the long names of variants may break where a setting begins."""
    return _BREAKS.sub("<wbr>", html_prose(text))


def slides(findings: Findings, after: str | None = None) -> str:
    """The screens: question with blocks and answer, the comparisons, claims if there are any, and what is next.

    Args:
        findings: What a study found.
        after: The variant whose block and curve are drawn beside the baseline's; None: `shown_variant`.
    """
    report = findings.report
    title = report.record.question or report.record.name
    screens = (_question(report, title, after), _comparisons(report), _claims(report), _closing(findings, after))
    shown = [screen for screen in screens if screen]
    letters = len(_answer(report)[0])
    effects = _effects(report)
    rows = min(len(rows_of(answer_of(report))), MOST_ROWS) if effects is None else _lines(effects)
    room = min(3.2, 25 / max(1, rows))
    return _PAGE.format(
        title=escape(title),
        body="\n".join(shown),
        screens=len(shown),
        heading=2.4 if letters < 150 else 1.9 if letters < 180 else 1.5 if letters < 320 else 1.2,
        listed=1.25 if rows < 8 else 1.1 if rows < 11 else 1.0 if rows < 13 else 0.85,
        room=f"{room:.2f}",
        interval=min(16.2, 8.4 * room),
        answer_style=ANSWER_STYLE,
        light=colours(dark=False),
        dark=colours(dark=True),
    )


def shown_variant(report: StudyReport) -> str | None:
    """The variant whose block is shown: the smallest that a verdict accepts, else the first judged, else the first.

    Those with the block of the baseline are left out, unless all have it. None if there is no variant but the baseline.
    """
    blocks = {variant.name: variant.spec.get("model", {}).get("block") for variant in report.record.variants}
    baseline = report.record.baseline
    others = [row for row in report.variants if row.name != baseline]
    others = [row for row in others if blocks[row.name] != blocks[baseline]] or others
    fine = [row for row in others if row.verdict is not None and row.verdict.is_acceptable]
    if fine:
        return min(fine, key=lambda row: row.parameters or 0).name
    judged = [row for row in others if row.verdict is not None]
    return next((row.name for row in (*judged, *others)), None)


def _after(report: StudyReport, after: str | None) -> str | None:
    """The variant beside the baseline: the one that was chosen, if there is such a one."""
    return after if any(row.name == after for row in report.variants) else shown_variant(report)


def _question(report: StudyReport, title: str, after: str | None) -> str:
    known = {variant.name: variant for variant in report.record.variants}
    name = _after(report, after)
    blocks = "" if name is None else _blocks(report, known[report.record.baseline], known[name])
    asked = " · ".join(filter(None, (title, report.record.source)))
    headline, limits = _answer(report)
    warnings = "".join(f'<p class="warning">{prose(limit)}</p>' for limit in limits[:MOST_WARNINGS])
    names = html_prose(names_note(answer_of(report), headline))
    return (
        f'<section>\n<div class="sides">\n<div class="text"><p class="source">{escape(asked)}</p>\n'
        f"<h1>{prose(headline)}</h1>\n<p>{names}</p>{warnings}</div>\n{blocks}</div>\n</section>"
    )


def _answer(report: StudyReport) -> tuple[str, list[str]]:
    """The headline, and what limits it, most first."""
    answer = answer_of(report, letters=not shows_effects(report))  # which the rows of effects do not explain
    limits = [line.text for line in answer.trust if line.level != "ok"]
    return " ".join(answer.headline), limits


def _blocks(report: StudyReport, before: VariantRecord, after: VariantRecord) -> str:
    """Both blocks, a unit of one as long as a unit of the other; nothing if a kind in them is not known here.

    The first has the colours of the verdicts on its parts, if there are any.
    """
    models = before.spec.get("model", {}), after.spec.get("model", {})
    try:
        judged = block_with_verdicts(report)
        first = _on_page(judged) if judged else _block(before.name, models[0])
        drawn = (first, _block(after.name, models[1], (before.name, models[0])))
    except (ValidationError, KeyError):
        return ""
    words = {row.variant: row.words for row in answer_of(report).rows}
    sizes = [_size(svg) for svg in drawn]
    scale = min(ROOM[0] / sum(width for width, _ in sizes), ROOM[1] / max(height for _, height in sizes))
    figures, widest = [], max(width for width, _ in sizes)
    for svg, (width, _), variant in zip(drawn, sizes, (before, after), strict=True):
        change = "" if variant is before else _change(before, variant)
        figures.append(
            f'<figure style="width: {width * scale / 16:.4f}rem; --share: {width / widest:.4f}">'
            f'<img alt="Block of {escape(variant.name)}" '
            f'src="{data_url(svg)}"><figcaption>{prose(words.get(variant.name, variant.name))}, '
            f"{count(variant.parameters)} parameters{change}</figcaption></figure>"
        )
    return f'<div class="blocks">{"".join(figures)}</div>\n'


def _block(name: str, model: Mapping[str, Any], versus: tuple[str, Mapping[str, Any]] | None = None) -> str:
    """The picture of a block without its title and its paper, dark only on a screen."""
    from ablate.render.drawing.svg import stored_svg

    return _on_page(stored_svg(name, model, versus, titled=False))


def _on_page(svg: str) -> str:
    for size, larger in LARGER.items():
        svg = svg.replace(f"font-size: {size}px", f"font-size: {larger}px")
    svg = _BOX.sub(_without_edges, svg, count=1)
    return svg.replace('class="paper"', 'style="fill: none"').replace(_DARK, f"screen and {_DARK}")


def _without_edges(box: re.Match[str]) -> str:
    height = float(box["height"]) - 2 * EDGE
    return f'viewBox="0 {EDGE} {box["width"]} {height:g}" width="{box["width"]}" height="{height:g}"'


def _change(before: VariantRecord, after: VariantRecord) -> str:
    if not before.parameters or not after.parameters or after.parameters == before.parameters:
        return ""
    return f" ({percent(after.parameters / before.parameters - 1)})"


def _size(svg: str) -> tuple[float, float]:
    found = _BOX.search(svg)
    assert found is not None, "a picture of a block has a view box"
    return float(found["width"]), float(found["height"])


def _comparisons(report: StudyReport) -> str:
    """What the headline counts: the rows of the answer, or effects."""
    if (effects := _effects(report)) is not None and report.effects is not None:
        shown = f'<div class="effects">{effects_table(effects, len(effects.interactions), PAGE)}</div>'
        kinds = ((of.main, of.interactions) for of in (report.effects, effects))
        every, drawn = (len(main) + len(pairs) for main, pairs in kinds)
        return _slide_of_rows(f"Effects on {effects.metric}", shown, effects_note(effects), every - drawn)
    answer = answer_of(report)
    rows = rows_of(answer)
    shown = page_table(answer, rows[:MOST_ROWS]) if rows else "<p>Nothing can be compared yet.</p>"
    note = answer_note(answer) if rows else ""
    names = names_note(answer) if len(rows) < MOST_EXPLAINED else ""
    return _slide_of_rows(_counts(answer) or "Comparisons", shown, f"{note} {names}", len(rows) - MOST_ROWS)


def _counts(answer: Answer) -> str:
    """How many rows have which verdict: removed parts apart from other changes, whose verdicts have other words."""
    counts = {group.key: f"{len(group.rows)} {group.key}" for group in answer.groups}
    parts = [counts.pop(key) for key in OF_VARIANTS if key in counts]
    others = [counts.pop(key) for key in OF_VARIANTS.values() if parts and key in counts]
    told = (f"Parts: {', '.join(parts)}" * bool(parts), f"Replacements: {', '.join(others)}" * bool(others))
    return ". ".join(filter(None, (*told, ", ".join(counts.values()))))


def _effects(report: StudyReport) -> StudyEffects | None:
    """The effects that a slide has room for, the first ones; None where the answer is on variants."""
    effects = report.effects
    if effects is None or not shows_effects(report):
        return None
    main, pairs = effects.ranked(effects.main)[: MOST_ROWS - 2], effects.ranked(effects.interactions)
    found = replace(effects, main=tuple(main), interactions=tuple(pairs))
    while found.interactions and _lines(found) > MOST_ROWS:
        found = replace(found, interactions=found.interactions[:-1])
    return found


def _lines(effects: StudyEffects) -> int:
    """Lines of the rows of effects with their headings: a pair that is one with another takes two."""
    return len(effects.main) + sum(2 if row.aliases else 1 for row in effects.interactions) + 2


def _slide_of_rows(title: str, shown: str, note: str, more: int) -> str:
    rest = f'<p class="note">{more} more rows are in the report.</p>' if more > 0 else ""
    said = f'{shown}{rest}<p class="note">{html_prose(note)}</p>'
    return f"<section>\n<h2>{escape(title)}</h2>\n{said}\n</section>"


def _claims(report: StudyReport) -> str:
    if not report.answer.claims:
        return ""
    more = len(report.answer.claims) - MOST_CLAIMS
    rest = f'<p class="note">{more} more claims are in the report.</p>' if more > 0 else ""
    note = "Claims are in the words of the study. Δ: the model that a claim is about minus the one that it is "
    note += "compared with, with its 95 % interval. Better or worse is supported only beyond the margin"
    rest += f'<p class="note">{note} ({report.margin:g}, dashed), or the one that a claim names.</p>'
    title = f"Claims: {answer_of(report).claim_counts}"
    return f'<section class="claims">\n<h2>{title}</h2>\n{claims_table(report, MOST_CLAIMS)}{rest}\n</section>'


def _closing(findings: Findings, after: str | None) -> str:
    """What would settle or extend the answer, beside curves; below, what makes it fair, its cost and where it ran."""
    report, cost, answer, steps = findings.report, findings.cost, answer_of(findings.report), ""
    for step in answer.next:
        typed = f"<br><code>{escape(shlex.join(['ablate', *step.arguments]))}</code>" if step.arguments else ""
        steps += f"<p>{prose(step.told[0].upper() + step.told[1:])}.{typed}</p>"
    tokens = "" if cost.tokens is None else f", {count(round(cost.tokens))} tokens"
    spent = f"{duration(cost.seconds)} of training{tokens}, shared trials of other studies included"
    told = [line.text for line in answer.trust if line.level == "ok"] or [report.progress.sentence]
    told += [*_answer(report)[1][MOST_WARNINGS:], *([spent] if report.record.judged is None else [])]
    fair = fairness_lines(None, report.evidence.matching, report.metric)  # what is trusted says what was tuned
    return (
        f'<section>\n<div class="sides"><div class="text"><h2>What next</h2>{steps}</div>'
        f"{_curves(findings, after)}</div>\n<footer>{_paragraphs(['; '.join(told) + '.', *fair, *_made(findings)])}"
        "</footer>\n</section>"
    )


def _curves(findings: Findings, after: str | None) -> str:
    """The curves of the baseline and of the block after; empty where they cannot be drawn or there are none."""
    name = _after(findings.report, after)
    drawn = None if name is None or missing_packages("figures") else beside_baseline(findings, name, Palette())
    if drawn is None:
        return ""
    caption = "Validation loss: means over the finished seeds, in bands from the lowest to the highest."
    svg = in_variables(inline(save(drawn, "svg").decode(), "curves"))
    return f'<figure class="curves">{svg}<figcaption>{caption}</figcaption></figure>'


def _made(findings: Findings) -> list[str]:
    """Where and how it was measured, in a few short lines; the report has the versions."""
    known = [(where.device, where.host, where.git_commit and f"git {where.git_commit[:12]}")
             for where in findings.environments]  # fmt: skip
    places = {", ".join(filter(None, one)) for one in known}
    commands = {where.command for where in findings.environments} - {""}
    return [text[:240] for text in (*sorted(places)[:2], *sorted(commands)[:2])]


def _paragraphs(texts: Iterable[str]) -> str:
    return "".join(f"<p>{prose(text)}</p>" for text in texts)


class SlidesFormat(Format):
    """Screens for a talk in one HTML file that prints as a PDF: question, comparisons, claims, what is next."""

    kind: Literal["slides"] = "slides"
    suffix = "html"
    ending = "_slides"
    inlined = True
    draws_blocks = True

    def render(self, findings: Findings, place: Place) -> str:
        """The whole page."""
        return slides(findings)
