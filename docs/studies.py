"""The index of the lab notebook, `studies/README.md`: what each study asked, what its source says, what it found.

Each study has a folder `studies/NAME/` with what `ablate report NAME --format F --out studies/NAME` writes for
F = json, md and parquet. The index is made of the JSON alone, and of the spaces in `spaces/papers/` that have none.

`python -m docs.studies` writes the index. `python -m docs.studies STORE` first renews the words of the reports of the
studies that a store holds, and `docs/images/simplify_block.svg`, which README shows. A report whose numbers would
change is left and named: the pages that quote its numbers have to change with it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ablate.analysis.answer import answer_of
from ablate.analysis.findings import read_findings
from ablate.render.answer import answer_svg
from ablate.render.blocks import Items, Paragraph, Section
from ablate.render.formats import render_report, write_report
from ablate.render.formats.md import markdown
from ablate.render.site import LEGEND, index_of
from ablate.spec.document import read_document
from ablate.store import Store, open_store

ROOT = Path(__file__).parent.parent
STUDIES = ROOT / "studies"
PAPERS = ROOT / "spaces" / "papers"
INDEX = STUDIES / "README.md"
FORMATS = ("json", "md", "parquet")
PICTURES = {"simplify_block": ROOT / "docs" / "images" / "simplify_block.svg"}
"""Studies whose answer is a picture in the documentation."""


def reports() -> list[dict[str, Any]]:
    """The reports of all studies, by name."""
    return [json.loads(file.read_text()) for file in sorted(STUDIES.glob("*/*.json"))]


def index() -> str:
    """The page as Markdown."""
    found = {f"{report['study']}/{report['study']}.md": report for report in reports()}
    made = "Made by `python -m docs.studies` from the reports beside it. "
    small = " A `_small` study has small models, as its report says: it does not repeat the experiment of its source."
    run = {report["study"] for report in found.values()}
    return markdown(index_of(found, "Lab notebook", f"{made}{LEGEND}{small}", [_not_run(run)]))


def _not_run(run: set[str]) -> Section:
    spaces = (file for file in sorted(PAPERS.glob("*.yaml")) if file.stem not in run)
    asked = (f"`{file.name}`: {read_document(file, 'space').plain.get('question')}" for file in spaces)
    return Section("Not run", (Paragraph("Spaces of the papers without a report here:"), Items(tuple(asked))))


def renew(store: Store) -> Iterator[str]:
    """Write the reports of the notebook's studies that a store holds; yields what was done with each."""
    for name in sorted(one.name for one in store.studies()):
        file = STUDIES / name / f"{name}.json"
        if not file.is_file():
            continue
        findings = read_findings(store, name)
        if _numbers(json.loads(file.read_text())) != _numbers(json.loads(render_report(findings, "json"))):
            yield f"{name} has other numbers in the store; its report is left"
            continue
        for format_name in FORMATS:
            for written in write_report(findings, format_name, file.parent):
                if written.suffix == ".png":
                    written.unlink()
        if name in PICTURES:
            PICTURES[name].write_text(answer_svg(answer_of(findings.report)), encoding="utf-8")
        yield f"{name} is renewed"


def _numbers(report: dict[str, Any]) -> list[Any]:
    """What pages quote of a report: means, intervals and verdicts."""
    return [(row["name"], row["parameters"], row["metrics"], _versus(row)) for row in report["variants"]]


def _versus(row: dict[str, Any]) -> list[Any]:
    return [(row["versus_baseline"] or {}).get(field) for field in ("difference", "low", "high", "verdict")]


if __name__ == "__main__":
    if len(sys.argv) > 1:
        with open_store(sys.argv[1], create=False) as opened:
            for line in renew(opened):
                print(line)
    INDEX.write_text(index())
