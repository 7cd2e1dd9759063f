"""A written report as titled sections of paragraphs, items, tables, listings and pictures, whatever the format."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ablate.report.findings import Findings
from ablate.report.numbers import MISSING, fixed, percent, times
from ablate.report.study import StudyReport, VariantRow
from ablate.report.table import TRIVIAL, groups, legend, shared_decimals, steps_to_baseline
from ablate.store.records import Environment, TrialState


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Sentences."""

    text: str


@dataclass(frozen=True, slots=True)
class Items:
    """Short texts, one below the other."""

    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Grid:
    """A table.

    Attributes:
        titles: One for each column.
        groups: Rows of cells; groups are set apart from one another.
        texts: Columns that hold text; all others hold numbers, which are set flush right.
    """

    titles: tuple[str, ...]
    groups: tuple[tuple[tuple[str, ...], ...], ...]
    texts: frozenset[int]


@dataclass(frozen=True, slots=True)
class Listing:
    """Lines to be shown exactly as they are."""

    text: str


@dataclass(frozen=True, slots=True)
class Picture:
    """The place of a figure of this name, with its caption."""

    name: str
    caption: str


Block = Paragraph | Items | Grid | Listing | Picture


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a report."""

    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Document:
    """A report as a person reads it from top to bottom."""

    title: str
    sections: tuple[Section, ...]


def document(findings: Findings, pictures: Sequence[Picture] = ()) -> Document:
    """The report of a study, with pictures after its table."""
    report = findings.report
    sections = [
        Section("Answer", (Paragraph(" ".join(report.answer)),)),
        Section("Ablation table", (_table(report), Paragraph(legend(report, "±")))),
    ]
    if pictures:
        sections.append(Section("Figures", tuple(pictures)))
    if report.claims:
        sections.append(Section("Claims", (_claims(report),)))
    sections.append(Section("Environment", (Items(tuple(_environments(findings))),)))
    sections.append(Section("Cost", tuple(_cost(findings))))
    sections.append(Section("How to reproduce", tuple(_reproduction(findings))))
    return Document(report.record.question or report.record.name, tuple(sections))


def _table(report: StudyReport) -> Grid:
    decimals = shared_decimals(report)
    metrics = (report.metric, *([report.test_metric] if report.test_metric else []))
    titles = ("variant", "parameters", "change", "seeds", *metrics, "difference", "verdict", "steps", "speed")
    rows = tuple(tuple(_cells(row, metrics, decimals) for row in group) for group in groups(report))
    if report.trivial:
        without = {"variant": report.trivial.name, report.metric: fixed(report.trivial.value, decimals)}
        rows += ((tuple({"verdict": TRIVIAL, **without}.get(title, MISSING) for title in titles),),)
    return Grid(titles, rows, frozenset({0, titles.index("verdict")}))


def _cells(row: VariantRow, metrics: Sequence[str], decimals: int) -> tuple[str, ...]:
    means, difference = ["diverged" if row.diverged else MISSING] * len(metrics), MISSING
    # As in the table of a terminal, the seeds that survived stand for no mean when others diverged.
    for place, metric in enumerate(metrics):
        if not row.diverged and (found := row.metrics.get(metric)):
            means[place] = fixed(found.mean, decimals) + _half_width(found.low, found.high, decimals)
    if not row.diverged and (paired := row.difference):
        difference = fixed(paired.difference, decimals, sign=True) + _half_width(paired.low, paired.high, decimals)
    return (
        row.name,
        f"{row.parameters:,}",
        percent(row.parameter_change),
        f"{len(row.finished)}/{len(row.planned)}",
        *means,
        difference,
        row.verdict.sentence if row.verdict else "baseline",
        steps_to_baseline(row),
        times(row.relative_speed),
    )


def _half_width(low: float | None, high: float | None, decimals: int) -> str:
    return "" if low is None or high is None else f" ± {fixed((high - low) / 2, decimals)}"


def _claims(report: StudyReport) -> Grid:
    rows = tuple(
        (
            claim.id,
            claim.says + (f" ({claim.source})" if claim.source else ""),
            claim.sentence,
            "; ".join(evidence_lines(claim.evidence)),
        )
        for claim in report.claims
    )
    return Grid(("claim", "says", "verdict", "evidence"), (rows,), frozenset(range(4)))


def evidence_lines(evidence: Any, name: str = "") -> Iterator[str]:
    """The numbers behind a claim as `name: number`, nested ones as `outer.inner: number`."""
    if isinstance(evidence, dict):
        for key, value in evidence.items():
            yield from evidence_lines(value, f"{name}.{key}" if name else str(key))
    elif isinstance(evidence, list) and any(isinstance(value, dict) for value in evidence):
        for number, value in enumerate(evidence, 1):
            yield from evidence_lines(value, f"{name}.{number}")
    elif isinstance(evidence, list):
        yield f"{name}: {', '.join(map(_short, evidence))}"
    elif evidence is not None and evidence != "":
        yield f"{name}: {_short(evidence)}"


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _environments(findings: Findings) -> Iterator[str]:
    for environment in findings.environments:
        versions = ", ".join(f"{package} {version}" for package, version in environment.versions.items())
        yield f"{environment.device}; host {environment.host}; {versions}{_commit(environment)}"
    yield f"data: {', '.join(fingerprint or 'unknown' for fingerprint in findings.data)} (content hash)"


def _commit(environment: Environment) -> str:
    if environment.git_commit is None:
        return ""
    return f"; git {environment.git_commit}" + ("" if environment.git_clean else " with uncommitted changes")


def _cost(findings: Findings) -> Iterator[Block]:
    cost, report = findings.cost, findings.report
    others = [f"{n} {state.value}" for state, n in report.progress.items() if n and state is not TrialState.FINISHED]
    ended = ", ".join([f"{report.progress[TrialState.FINISHED]} of {report.planned} trials finished", *others])
    yield Paragraph(
        f"{ended}. The {cost.trials} trials that ended took {cost.seconds:,.0f} s of training, {cost.tokens:.3g} "
        f"tokens and {cost.flops:.3g} FLOP, evaluation left out. Trials that another study of the same store had "
        "trained before are counted too."
    )
    rows = tuple(
        (name, str(of.trials), f"{of.seconds:,.1f}", f"{of.tokens:.3g}", f"{of.flops:.3g}")
        for name, of in findings.cost_of.items()
    )
    yield Grid(("variant", "trials", "seconds", "tokens", "FLOP"), (rows,), frozenset({0}))


def _reproduction(findings: Findings) -> Iterator[Block]:
    record = findings.report.record
    yield Paragraph(
        "Install the versions named above, save the space below as a file and run the command. Trials that the store "
        "already holds are not trained again; give another store to train all of them."
    )
    yield Listing(f"ablate study {record.name}.yaml --store again.db\nablate report {record.name} --store again.db")
    if commands := sorted({environment.command for environment in findings.environments}):
        yield Paragraph(f"These trials were run by: {'; '.join(commands)}")
    yield Paragraph(f"The space, {record.name}.yaml:")
    yield Listing(record.text.rstrip() or json.dumps(record.space, indent=2, ensure_ascii=False))
