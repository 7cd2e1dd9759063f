"""The lab notebook: `studies/README.md`, and the page and figures of each study that is kept.

A kept study is a file `studies/NAME/NAME.study.zip`, written by `ablate export-study`. Pages are made of these files
alone: `python -m docs.studies` writes them, and `python -m docs.studies --check` says which differ from what the files
and this version of the code give. `python -m docs.studies --repeated FILE` compares the studies of a store, in which
they were run again, with the kept ones. `studies/notebook.yaml` says in which order the index has them, what
repetitions gave, and which studies were tried and dropped.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from ruamel.yaml import YAML

from ablate.analysis.answer import answer_of
from ablate.analysis.findings import Findings, read_findings
from ablate.render.answer import answer_svg
from ablate.render.blocks import Items, Paragraph, Section
from ablate.render.document import document
from ablate.render.figures import pictures
from ablate.render.formats import write_report
from ablate.render.formats.md import markdown
from ablate.render.site import LEGEND, index_of
from ablate.spec.document import read_document
from ablate.store import open_store

ROOT = Path(__file__).parent.parent
STUDIES = ROOT / "studies"
PAPERS = ROOT / "spaces" / "papers"
PICTURES = {"simplify_block": ROOT / "docs" / "images" / "simplify_block.svg"}
"""Studies whose answer is a picture in the documentation."""
NOTEBOOK = YAML(typ="safe").load(STUDIES / "notebook.yaml")


def kept() -> list[str]:
    """The names of the kept studies, in the order of the index: those that the notebook orders, then all others."""
    files = {file.parent.name for file in STUDIES.glob("*/*.study.zip")}
    return [*(name for name in NOTEBOOK["order"] if name in files), *sorted(files - set(NOTEBOOK["order"]))]


def read_kept() -> dict[str, Findings]:
    """The content of each kept study, by name."""
    found = {}
    with tempfile.TemporaryDirectory() as scratch, open_store(f"{scratch}/kept.db", create=True) as store:
        for name in kept():
            store.import_study(STUDIES / name / f"{name}.study.zip")
            found[name] = read_findings(store, name)
    return found


def texts(studies: Mapping[str, Findings]) -> dict[Path, str]:
    """Every page that is made of the kept studies: where it is, and what it says."""
    pages = {}
    for name, findings in studies.items():
        page = document(findings, pictures(findings))
        if again := NOTEBOOK["repeated"].get(name):
            page = replace(page, sections=(*page.sections, Section("Repetition", (Paragraph(again),), of=findings)))
        pages[STUDIES / name / f"{name}.md"] = markdown(page)
    made = "Made by `python -m docs.studies` of the files that `ablate import-study` opens. "
    legend = f"{made}{LEGEND} A `_small` study does not repeat the experiment of its source."
    linked = {f"{name}/{name}.md": findings for name, findings in studies.items()}
    index = index_of(linked, "Lab notebook", legend, [_dropped(), _not_run()])
    return pages | {STUDIES / "README.md": markdown(index)}


def write(studies: Mapping[str, Findings]) -> None:
    """Write all pages and their figures."""
    for name, findings in studies.items():
        for written in write_report(findings, "md", STUDIES / name):
            if written.suffix == ".png":
                written.unlink()
        if name in PICTURES:
            PICTURES[name].write_text(answer_svg(answer_of(findings.report)), encoding="utf-8")
    for file, text in texts(studies).items():
        file.write_text(text, encoding="utf-8")


def differing(studies: Mapping[str, Findings]) -> list[str]:
    """The pages that do not say what the kept files and this version of the code give."""
    made = texts(studies)
    return [str(file.relative_to(ROOT)) for file in made if not file.is_file() or file.read_text("utf-8") != made[file]]


def repetition(kept: Findings, again: Findings) -> str:
    """What changed when a study was run again: verdicts, claims, and the largest change of a final value."""
    before, after = _verdicts(kept), _verdicts(again)
    changed = [f"{name} from {word} to {after.get(name)}" for name, word in before.items() if after.get(name) != word]
    metric = kept.report.metric
    moved = max(
        abs(trial.metrics[metric] - again.runs[name].finished[seed].metrics[metric])
        for name, runs in kept.runs.items()
        for seed, trial in runs.finished.items()
        if name in again.runs and seed in again.runs[name].finished
    )
    verdicts = "; ".join(changed) or f"all {len(before)} verdicts and claims are the same"
    return f"{verdicts}; the largest change of a trial's {metric}: {moved:.2g}"


def _verdicts(findings: Findings) -> dict[str, str]:
    report = findings.report
    rows = {row.name: str(row.verdict.word) for row in report.variants if row.verdict is not None}
    return rows | {f"the claim {claim.id}": str(claim.verdict) for claim in report.answer.claims}


def _dropped() -> Section:
    rule = (
        "A study is kept if its baseline beats the best rule that learns nothing by ten times the paired noise, rates "
        "are tuned for every variant, and two thirds of its comparisons are decided. Exceptions:"
    )
    exceptions, dropped = (
        Items(tuple(f"`{name}`: {why}" for name, why in NOTEBOOK[group].items())) for group in ("exceptions", "dropped")
    )
    blocks = (Paragraph(rule), exceptions, Paragraph("These were run and are not kept:"), dropped)
    return Section("Tried and dropped", blocks)


def _not_run() -> Section:
    known = {*kept(), *NOTEBOOK["dropped"]}
    spaces = (file for file in sorted(PAPERS.rglob("*.yaml")) if file.stem not in known)
    asked = (f"`{file.name}`: {read_document(file, 'space').plain.get('question')}" for file in spaces)
    return Section("Not run", (Paragraph("Spaces of the papers without a report here:"), Items(tuple(asked))))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="say which pages differ; write nothing")
    parser.add_argument("--repeated", metavar="FILE", help="a store in which studies were run again; write nothing")
    asked = parser.parse_args()
    if asked.check:
        sys.exit("\n".join(f"{page} differs" for page in differing(read_kept())) or 0)
    elif asked.repeated:
        with open_store(asked.repeated, create=False) as repeated:
            run = {study.name for study in repeated.studies()}
            for name, findings in read_kept().items():
                if name in run:
                    print(f"{name}: {repetition(findings, read_findings(repeated, name))}")
    else:
        write(read_kept())
