"""The index of the lab notebook, `studies/README.md`: what each study asked, what its source says, what it found.

Each study has a folder `studies/NAME/` with what `ablate report NAME --format F --out studies/NAME` writes for
F = json, md and parquet. The index is made of the JSON alone, and of the spaces in `spaces/papers/` that have none.

`python -m docs.studies` writes the index. `python -m docs.studies STORE` first renews the words of the reports of the
studies that a store holds, and `docs/images/simplify_block.svg`, which README shows. A report whose numbers would
change is left and named: the pages that quote its numbers have to change with it.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ablate.analysis.answer import TITLES, GroupKey, answer_of
from ablate.analysis.findings import read_findings
from ablate.analysis.numbers import count, duration
from ablate.render.answer import answer_svg
from ablate.render.formats import render_report, write_report
from ablate.spec.document import read_document
from ablate.store import Store, open_store

ROOT = Path(__file__).parent.parent
STUDIES = ROOT / "studies"
PAPERS = ROOT / "spaces" / "papers"
INDEX = STUDIES / "README.md"
FORMATS = ("json", "md", "parquet")
PICTURES = {"simplify_block": ROOT / "docs" / "images" / "simplify_block.svg"}
"""Studies whose answer is a picture in the documentation."""
GROUPS: dict[str, tuple[GroupKey, GroupKey]] = {
    "not needed": ("can go", "as good"),
    "needed": ("must stay", "worse"),
    "undecided": ("not known", "not known"),
}
"""Verdict to the group of an answer: of a removal, and of any other change."""


def reports() -> list[dict[str, Any]]:
    """The reports of all studies, by name."""
    return [json.loads(file.read_text()) for file in sorted(STUDIES.glob("*/*.json"))]


def index() -> str:
    """The page as Markdown."""
    found = reports()
    return "\n".join(
        [
            "# Lab notebook",
            "",
            "Made by `python -m docs.studies` from the reports beside it. Each folder holds the report that "
            "`ablate report` wrote (Markdown with figures, JSON with the space, Parquet). Claims are those of the "
            "sources; verdicts rest on one-sided 95 % bounds, in brackets (*: true alone, not jointly with "
            "the others), and `undecided` means that the seeds do not tell. A "
            "`_small` study has small models, as its report says: it does not repeat the experiment of its source.",
            "",
            *(line for report in found for line in _study(report)),
            "## Not run",
            "",
            "Spaces of the papers without a report here:",
            "",
            *_not_run({report["study"] for report in found}),
            "",
        ]
    )


def _study(report: dict[str, Any]) -> Iterator[str]:
    name, space = report["study"], report["space"]
    yield f"## [{name}]({name}/{name}.md)"
    yield ""
    yield f"{report['question']} Source: {space.get('source') or 'none'}."
    yield ""
    if space.get("departs"):
        yield f"Departs from its source: {space['departs']}"
        yield ""
    yield from _groups(report)
    yield from (f"- **Caution**: {caveat}" for caveat in report["caveats"])
    yield ""
    if report["claims"]:
        yield "| the source says | where | here | verdict |"
        yield "| :--- | :--- | :--- | :--- |"
        for claim in report["claims"]:
            cells = (claim["says"], claim["source"], claim["sentence"].partition(": ")[2], claim["verdict"])
            yield f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"
        yield ""
    yield _run(report)
    yield ""


def _groups(report: dict[str, Any]) -> Iterator[str]:
    """The compared variants by verdict, as an answer has them: each change with the bound that its verdict rests on."""
    groups: dict[GroupKey, list[str]] = {key: [] for key in TITLES}
    for row in report["variants"]:
        versus, removed, otherwise = row["versus_baseline"], row["change"]["removed"], row["change"]["otherwise"]
        if versus is None:
            continue
        bound = versus["sentence"].rpartition(": ")[2].partition(", margin")[0].partition(";")[0]
        better = re.match(r"better by at least ([\d.e+-]+)", bound)
        key = GROUPS[versus["verdict"]][bool(otherwise or not removed)]
        key = "better" if better and float(better[1]) > report["objective"]["margin"] else key
        star = "" if versus["holds_together"] or key == "not known" else " *"
        groups[key].append(f"{', '.join([*removed, *otherwise]) or row['name']} ({bound}{star})")
    for key, changes in groups.items():
        if changes:
            yield f"- **{TITLES[key].partition(':')[0]}**: {'; '.join(changes)}"


def _run(report: dict[str, Any]) -> str:
    progress, cost = report["progress"], report["cost"]
    machines = dict.fromkeys(environment["device"] for environment in report["environments"])
    return (
        f"Run: {progress['finished']} of {progress['planned']} trials finished, {count(len(report['variants']))} "
        f"variants, {duration(cost['seconds'])} of training on {', '.join(machines)}."
    )


def _not_run(run: set[str]) -> Iterator[str]:
    for file in sorted(PAPERS.glob("*.yaml")):
        if file.stem not in run:
            plain = read_document(file, "space").plain
            yield f"- [{file.stem}](../spaces/papers/{file.name}): {plain.get('question')}"


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
