"""A static site over studies: a table of what each asked and found, and a folder with the report of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from ablate.analysis.answer import answer_of
from ablate.analysis.findings import Findings
from ablate.analysis.numbers import duration, plural
from ablate.errors import AblateError
from ablate.locations import write_file
from ablate.render.blocks import Grid, Paragraph, ReportDocument, Section
from ablate.render.document import last_end
from ablate.render.formats import file_stem, write_report
from ablate.render.formats.html import html_page
from ablate.render.formats.md import markdown

Pages = Literal["html", "md"]
DATA = ("json", "csv")
"""What stands beside each report, for programs."""
LEGEND = (
    "Verdicts rest on one-sided 95 % bounds (*: true alone, not jointly with the others). Models: the baseline, and "
    "the best rule that learns nothing. Claims are those of the source."
)
_INDEX: dict[Pages, str] = {"html": "index.html", "md": "README.md"}
_TITLES = ("study", "question", "answer", "models", "claims", "cost", "date", "source")


def write_site(studies: Sequence[Findings], folder: Path, pages: Pages = "html", title: str = "Studies") -> list[Path]:
    """Write `index.html` (or `README.md`) and, for each study, a folder with its report, its figures and its data.

    Args:
        studies: In the order of the index.
        folder: Made if it is not there. Files of the same names are replaced, others stay.
        pages: Whether pages are HTML, which any web server shows, or Markdown.

    Returns:
        The files, the index first.

    Raises:
        AblateError: The folder cannot be written.
    """
    files = []
    for findings in studies:
        for kind in (pages, *DATA):
            files += write_report(findings, kind, folder / file_stem(findings))
    index = folder / _INDEX[pages]
    made = index_of(
        {f"{(stem := file_stem(findings))}/{stem}.{pages}": findings for findings in studies}, title, LEGEND
    )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_file(index, (markdown(made) if pages == "md" else html_page(made)).encode())
    except OSError as error:
        raise AblateError(f"the site cannot be written ({error.strerror})", where=str(folder)) from None
    return [index, *files]


def index_of(studies: Mapping[str, Findings], title: str, legend: str, more: Sequence[Section] = ()) -> ReportDocument:
    """The index of a site.

    Args:
        studies: Address of a report to what it reports, in the order of the table.
        legend: How to read it.
        more: Sections after the table.
    """
    rows = tuple(map(_row, studies.values()))
    table = Grid(_TITLES, (rows,), frozenset(range(len(_TITLES))), links=tuple(studies))
    return ReportDocument(title, (Section("", (Paragraph(legend), table)), *more))


def _row(findings: Findings) -> tuple[str, ...]:
    report = findings.report
    record, answer, trivial = report.record, answer_of(report), report.evidence.trivial
    baseline = "" if answer.baseline is None else f"{answer.metric} {answer.baseline:.{answer.decimals}f}"
    rule = f"{trivial.name} {trivial.value:.{answer.decimals}f}" if trivial is not None else ""
    trials = plural(findings.cost.trials, "trial" if record.judged is None else "run")
    return (
        record.name,
        record.question,
        " ".join(answer.headline),
        "; ".join(filter(None, (baseline, rule))),
        answer.claim_counts,
        f"{trials}, {duration(findings.cost.seconds)}" if record.judged is None else f"{trials}, not trained here",
        f"{last_end(findings):%Y-%m-%d}",
        record.source,
    )
