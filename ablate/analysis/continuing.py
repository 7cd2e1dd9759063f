"""How to continue a study: the seeds that may decide what is undecided, and the arguments of `ablate study`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ablate.analysis.ladder import next_rung
from ablate.analysis.report import StudyReport
from ablate.analysis.sentences import advised_seeds
from ablate.analysis.text import few, plural
from ablate.store.records import TrialState


@dataclass(frozen=True, slots=True)
class NextStep:
    """A command that would settle or extend an answer.

    Attributes:
        arguments: Of `ablate`.
        purpose: What it may settle, in a few words.
        seconds: Training time that it needs, from the trials that ended; None if that is not known.
    """

    arguments: tuple[str, ...]
    purpose: str
    seconds: float | None = None


def next_steps(report: StudyReport) -> tuple[NextStep, ...]:
    """The commands that would settle what a study left open; empty if it left nothing open, or more seeds than pay."""
    if missing := report.progress.states[TrialState.WAITING] + report.progress.states[TrialState.RUNNING]:
        arguments = ("resume", report.record.name)
        return (NextStep(arguments, f"trains what is missing: {plural(missing, 'trial')}"),)
    tuning = report.evidence.tuning
    if tuning is not None and any(tuned.values is None for tuned in tuning.of.values()):
        return (NextStep(("resume", report.record.name), "tunes to the end, then trains the comparisons"),)
    return (*_more_seeds(report), *_together(report), *_further_rung(report))


def _more_seeds(report: StudyReport) -> Iterator[NextStep]:
    """More seeds for what is undecided."""
    if not (seeds := deciding_seeds(report)):
        return
    undecided = [row for row in report.variants if row.verdict is not None and row.verdict.word == "undecided"]
    further = max(row.verdict.further_seeds or 0 for row in undecided if row.verdict is not None)
    trained = [row.seconds / len(row.finished) for row in (report.baseline, *undecided) if row.finished]
    seconds = further * sum(trained) if report.baseline.finished else None
    arguments = ("resume", report.record.name, "--seeds", seeds)
    yield NextStep(arguments, f"may settle {len(undecided)} of {len(report.variants) - 1}", seconds)


def _together(report: StudyReport) -> Iterator[NextStep]:
    """The removals that hold alone tried together, with fresh seeds for what that selects."""
    record = report.record
    alone = [
        row
        for row in report.variants
        if row.verdict is not None and row.verdict.is_acceptable and row.change.only_removes and not row.change.combines
    ]
    fits = not (record.traits.chooses or record.space.get("tuned") or report.evidence.windows or report.scaling)
    if len(alone) > 1 and fits:
        arguments = ("resume", record.name, "--design", "simplify")
        yield NextStep(arguments, f"tries the {len(alone)} removals together")


def _further_rung(report: StudyReport) -> Iterator[NextStep]:
    """The rung of a ladder that would decide what it left open."""
    rung = None if report.climbs is None else next_rung(report.climbs, report.record)
    if rung is None:
        return
    tune, seeds = report.record.space.get("tune") or {}, len(report.baseline.planned)
    tuning = math.prod(len(values) for values in tune.get("grid", {}).values()) * tune.get("seeds", 0) if tune else 0
    trained = math.fsum(row.seconds for row in report.variants) * (1 + tuning / seeds)
    what = "would decide" if rung.decides else "is needed before anything is extrapolated:"
    purpose = f"a rung of {rung.times:.2g} times the compute {what} {few(rung.variants)}"
    yield NextStep(("resume", report.record.name, "--rung", f"{rung.value:g}"), purpose, rung.times * trained)


def deciding_seeds(report: StudyReport) -> str:
    """The seeds that would decide what is undecided, as `--seeds` takes them: `4:11`, or `9` of a time to a target.

    Returns:
        An empty text if nothing is undecided, if more seeds than a schedule has would be needed, or if the design adds
        seeds already or cannot add any.
    """
    undecided = [row for row in report.variants if row.verdict is not None and row.verdict.word == "undecided"]
    if report.rule.relative:  # a schedule would follow the final loss
        further = max((row.verdict.further_seeds or 0 for row in undecided if row.verdict is not None), default=0)
        return str(len(report.baseline.planned) + further) if further else ""
    if report.unit != "seed" or not report.record.traits.adds_seeds:
        return ""
    advised = advised_seeds(undecided, report.rule.schedule)
    return "" if advised is None else f"{advised.start}:{advised.max}"


def study_arguments(study: str, store: str, seeds: str = "", plugins: Sequence[str] = ()) -> list[str]:
    """The arguments of `ablate` that continue a study of a store.

    Args:
        store: A file or a URL.
        seeds: As `--seeds` takes them; empty: those that it has.
        plugins: Files with kinds of the user's own.
    """
    chosen = [f"--seeds={seeds}"] if seeds else []
    given = [f"--plugin={plugin}" for plugin in plugins]
    return ["resume", study, *chosen, f"--store={store}", *given]
