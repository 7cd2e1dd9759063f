"""The index of the lab notebook, `studies/README.md`: what each study asked, what its source says, what it found.

Each study has a folder `studies/NAME/` with what `ablate report NAME --format F --out studies/NAME` writes for
F = json, md and parquet. The index is made of the JSON alone, and of the spaces in `spaces/papers/` that have none.

`python -m docs.studies` writes the index.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ablate.analysis.numbers import count
from ablate.render.terminal.units import duration
from ablate.spec.document import read_document

ROOT = Path(__file__).parent.parent
STUDIES = ROOT / "studies"
PAPERS = ROOT / "spaces" / "papers"
INDEX = STUDIES / "README.md"


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
            "sources; verdicts rest on one-sided 95 % bounds, and `undecided` means that the seeds do not tell. A "
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
    yield f"Answer: {' '.join(report['answer'])}"
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


if __name__ == "__main__":
    INDEX.write_text(index())
