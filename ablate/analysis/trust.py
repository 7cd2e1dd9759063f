"""How far to trust an answer: one line for each thing that supports or limits it, the most serious first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from ablate.analysis.caveats import turning_edges
from ablate.analysis.numbers import percent
from ablate.analysis.study import StudyReport
from ablate.analysis.text import listed, plural
from ablate.analysis.trivial import bar_of, no_answer_yet
from ablate.analysis.windows import SHARE
from ablate.store.records import TrialState

Level = Literal["ok", "weak", "void"]
_ORDER: tuple[Level, ...] = ("void", "weak", "ok")


@dataclass(frozen=True, slots=True)
class TrustLine:
    """One reason to trust an answer, or not to.

    Attributes:
        level: `ok`; `weak`: the answer holds with this limit; `void`: it does not hold for what the text names.
        text: A clause of one line.
        replaces_headline: Whether it leaves no answer at all.
    """

    level: Level
    text: str
    replaces_headline: bool = False


def trust_lines(report: StudyReport) -> tuple[TrustLine, ...]:
    """All lines, the evidence first, then the limits by their weight."""
    limits = [*_learnt(report), *_chosen(report), *_lost(report), *_tuning(report), *_declared(report), *_draw(report)]
    limits += [TrustLine("weak", f"a verdict {assumed}")] if (assumed := assumption(report)) else []
    return (_evidence(report), *sorted(limits, key=lambda line: _ORDER.index(line.level)))


def assumption(report: StudyReport) -> str | None:
    """On what condition verdicts hold, as the end of a sentence on one; None where there is none, or it is not open."""
    if report.tails is not None:
        how = "worse" if report.tails.skewness > 0 else "better"
        return f"allows for a few seeds that end far {how} than the others"
    bounds = [row.verdict.bound for row in report.variants if row.verdict is not None and row.verdict.is_decided]
    seeds = [bound.n for bound in bounds if bound is not None]
    if report.windows or not seeds:
        return None
    return f"holds if seeds scatter symmetrically; {min(seeds)} seeds cannot show it"


def _evidence(report: StudyReport) -> TrustLine:
    finished = report.progress[TrialState.FINISHED]
    said = [f"{finished:,}/{report.planned:,} trials"]
    pairs = [row.difference.n for row in report.variants if row.difference is not None]
    if pairs:
        fewest, most = min(pairs), max(pairs)
        said.append(f"{fewest if fewest == most else f'{fewest} to {most}'} paired {report.unit}s")
    if report.tuning is not None and all(tuned.values is not None for tuned in report.tuning.of.values()):
        paths = [path.rpartition(".")[2] for path in report.tuning.grid]
        said.append(f"{listed(paths)} tuned for every variant")
    if report.matching.path is not None:
        said.append(f"equal {report.matching.equal}")
    missing = report.progress[TrialState.WAITING] + report.progress[TrialState.RUNNING]
    if missing:
        said.append(f"{missing:,} still missing")
    return TrustLine("weak" if missing else "ok", ", ".join(said))


def _learnt(report: StudyReport) -> Iterator[TrustLine]:
    """Whether the models learnt more than trivial baselines know."""
    if not report.standings or not report.trivials:
        return
    best, models = report.trivials[0], len(report.standings)
    if behind := report.unlearnt:
        bar = bar_of(report.trivials)
        if no_answer_yet(report.standings, report.trivials):
            yield TrustLine("void", f"no model beats a {bar.name} ({bar.value:.4g})", replaces_headline=True)
        else:
            yield TrustLine("void", f"{_few(sorted(behind))}: learnt no more than a {bar.name} ({bar.value:.4g})")
    between = [one.name for one in report.standings if one.name not in behind and best.name not in one.ahead]
    if between:
        who = "no model beats" if len(between) + len(behind) == models else f"{len(between)} of {models} do not beat"
        yield TrustLine("weak", f"small models: {who} a {best.name} ({best.value:.4g})")


def _chosen(report: StudyReport) -> Iterator[TrustLine]:
    """Whether fresh seeds have confirmed what results selected."""
    if unproven := sum(row.chosen for row in report.variants):
        who = f"{plural(unproven, 'variant')} {'was' if unproven == 1 else 'were'}"
        yield TrustLine("weak", f"{who} selected by these same seeds; UNPROVEN until fresh seeds confirm")


def _lost(report: StudyReport) -> Iterator[TrustLine]:
    if report.failures:
        names = list(dict.fromkeys(failure.variant for failure in report.failures))
        yield TrustLine("weak", f"{plural(len(report.failures), 'trial')} failed ({_few(names)})")
    if report.baseline.diverged:
        yield TrustLine("weak", f"the baseline diverged at {plural(len(report.baseline.diverged), 'seed')}")


def _tuning(report: StudyReport) -> Iterator[TrustLine]:
    if names := turning_edges(report.tuning, report.variants, report.baseline):
        yield TrustLine("weak", f"best value at the edge of the tuning grid: {_few(names)}")


def _declared(report: StudyReport) -> Iterator[TrustLine]:
    for sentence in report.changed:
        first = sentence.partition(". ")[0].rstrip(".")
        yield TrustLine("weak", f"{first[0].lower()}{first[1:]}")


def _draw(report: StudyReport) -> Iterator[TrustLine]:
    if report.draw_sd is not None and report.draw_sd > SHARE * report.margin:
        share = percent(report.draw_sd / report.margin).lstrip("+")
        yield TrustLine("weak", f"another draw of validation data would move differences by {share} of the margin")


def _few(names: list[str]) -> str:
    return ", ".join(names) if len(names) <= 2 else f"{names[0]} and {len(names) - 1} others"
