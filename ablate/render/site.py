"""A static site over studies: a page that says what each asked and found, and a folder with the report of each.

The index is made of the reports as JSON alone (`ablate.render.as_json.report_json`), also of those of earlier versions.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from ablate.analysis.answer import TITLES, GroupKey
from ablate.analysis.findings import Findings
from ablate.analysis.numbers import count, duration
from ablate.errors import AblateError
from ablate.render.blocks import Block, Grid, Items, Paragraph, ReportDocument, Section
from ablate.render.formats import file_stem, write_report
from ablate.render.formats.html import html_page
from ablate.render.formats.md import markdown

Pages = Literal["html", "md"]
DATA = ("json", "csv")
"""What stands beside each report, for programs."""
LEGEND = (
    "Verdicts rest on one-sided 95 % bounds, in brackets (*: true alone, not jointly with the others); undecided means "
    "that the seeds do not tell. Claims are those of the sources."
)
_INDEX: dict[Pages, str] = {"html": "index.html", "md": "README.md"}
_GROUPS: dict[str, tuple[GroupKey, GroupKey]] = {
    "not needed": ("can go", "as good"),
    "needed": ("must stay", "worse"),
    "undecided": ("not known", "not known"),
    "not worse": ("as good", "as good"),
    "worse": ("worse", "worse"),
    "better": ("better", "better"),
}
"""Verdict to the group of an answer: of a removal, and of any other change."""


def write_site(studies: Sequence[Findings], folder: Path, pages: Pages = "html", title: str = "Studies") -> list[Path]:
    """Write `index.html` (or `README.md`) and, for each study, a folder with its report, its figures and its data.

    Args:
        studies: In the order of the index.
        folder: Made if it is not there. Files of the same names are replaced, others stay.
        pages: Whether pages are HTML, which any web server shows, or Markdown.
        title: Of the index.

    Returns:
        The files, the index first.

    Raises:
        AblateError: The folder cannot be written.
    """
    files, reports = [], {}
    for findings in studies:
        stem = file_stem(findings)
        written = [file for kind in (pages, *DATA) for file in write_report(findings, kind, folder / stem)]
        (data,) = (file for file in written if file.suffix == ".json")
        reports[f"{stem}/{stem}.{pages}"] = json.loads(data.read_text(encoding="utf-8"))
        files += written
    index = folder / _INDEX[pages]
    made = index_of(reports, title, LEGEND)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        index.write_text(markdown(made) if pages == "md" else html_page(made), encoding="utf-8")
    except OSError as error:
        raise AblateError(f"the site cannot be written ({error.strerror})", where=str(folder)) from None
    return [index, *files]


def index_of(
    reports: Mapping[str, Mapping[str, Any]], title: str, legend: str, more: Sequence[Section] = ()
) -> ReportDocument:
    """The index of a site.

    Args:
        reports: Address of a report to its content, as JSON data.
        title: Of the page.
        legend: How to read it.
        more: Sections after those of the studies.
    """
    sections = (Section(report["study"], tuple(_blocks(report)), link) for link, report in reports.items())
    return ReportDocument(title, (Section("", (Paragraph(legend),)), *sections, *more))


def _blocks(report: Mapping[str, Any]) -> Iterator[Block]:
    space = report["space"]
    question = report["question"] if report.get("judged") is None else f"{report['question']}."
    yield Paragraph(f"{question} Source: {space.get('source') or 'none'}.")
    if space.get("departs"):
        yield Paragraph(f"Departs from its source: {space['departs']}")
    cautions = (f"Caution: {caveat}" for caveat in report["caveats"])
    if found := (*_groups(report), *cautions):
        yield Items(found)
    if report["claims"]:
        rows = (
            (claim["says"], claim["source"], claim["sentence"].partition(": ")[2], claim["verdict"])
            for claim in report["claims"]
        )
        yield Grid(("the source says", "where", "here", "verdict"), (tuple(rows),), frozenset(range(4)))
    yield Paragraph(_run(report))


def _groups(report: Mapping[str, Any]) -> Iterator[str]:
    """The compared variants by verdict, as an answer has them: each change with the bound that its verdict rests on."""
    groups: dict[GroupKey, list[str]] = {key: [] for key in TITLES}
    for row in report["variants"]:
        versus, removed, otherwise = row["versus_baseline"], row["change"]["removed"], row["change"]["otherwise"]
        if versus is None:
            continue
        bound = (versus["sentence"] or versus["verdict"]).rpartition(": ")[2].partition(", margin")[0].partition(";")[0]
        better = re.match(r"better by at least ([\d.e+-]+)", bound)
        key = _GROUPS.get(versus["verdict"], ("lost", "lost"))[bool(otherwise or not removed)]
        key = "better" if better and float(better[1]) > report["objective"]["margin"] else key
        star = "" if versus["holds_together"] or key in ("not known", "lost") else " *"
        groups[key].append(f"{', '.join([*removed, *otherwise]) or row['name']} ({bound}{star})")
    for key, changes in groups.items():
        if changes:
            yield f"{TITLES[key].partition(':')[0]}: {'; '.join(changes)}"


def _run(report: Mapping[str, Any]) -> str:
    if judged := report.get("judged"):
        return f"Judged, not trained here: {judged['evidence']}."
    progress, cost = report["progress"], report["cost"]
    machines = dict.fromkeys(environment["device"] for environment in report["environments"])
    return (
        f"Run: {progress['finished']} of {progress['planned']} trials finished, {count(len(report['variants']))} "
        f"variants, {duration(cost['seconds'])} of training on {', '.join(machines)}."
    )
