"""Does a gain survive scale? The laws, effective speedups and extrapolation of each variant of a ladder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ablate.analysis.fairness import read_tuning
from ablate.analysis.numbers import fixed
from ablate.analysis.runs import StudyReader, VariantRuns, read_runs
from ablate.analysis.scaling import Scaling, Scalings, rungs_of
from ablate.stats.scaling_law import FURTHEST, LEAST_RUNGS, Fate, LadderFit, Rung, WithBounds, climb, outcome
from ablate.store.records import StudyRecord


@dataclass(frozen=True, slots=True)
class Climb:
    """A variant over the rungs of a ladder.

    Attributes:
        scaling: Its differences and verdicts, by rung.
        ladder: Laws, speedups and extrapolation; None where `refusal` says why.
        outcome: What becomes of the difference at the largest rung; `undecided` where nothing is extrapolated.
        refusal: Why nothing is extrapolated, as a clause; empty if something is.
    """

    scaling: Scaling
    ladder: LadderFit | None
    outcome: Fate
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class Climbs:
    """All variants of a ladder.

    Attributes:
        times: The target, as a multiple of the compute of the largest rung.
        of: The variants, in the order of the design.
    """

    times: float
    of: tuple[Climb, ...]


def read_climbs(store: StudyReader, record: StudyRecord, scalings: Scalings | None) -> Climbs | None:
    """The laws of a ladder's variants; None if the study is no ladder or has no two finished rungs.

    Args:
        scalings: The differences by rung.
    """
    rungs = rungs_of(record)
    if not rungs or scalings is None:
        return None
    metric, margin = record.objective["metric"], float(record.objective["margin"])
    runs = {rung: read_runs(store, study, metric) for rung, study in rungs.items()}
    times = float(record.space["design"].get("target", FURTHEST))
    reasons = _reasons(store, record, rungs)
    climbs = []
    for scaling in scalings.of:
        name = scaling.variant
        here = [(rungs[rung].baseline, of) for rung, of in runs.items() if name in of and of[name].finished]
        climbs.append(_climb(scaling, here, metric, margin, times, reasons.get(name, "")))
    return Climbs(times, tuple(climbs))


def _reasons(store: StudyReader, record: StudyRecord, rungs: Mapping[int, StudyRecord]) -> dict[str, str]:
    """Variants whose law must not be extrapolated, with the reason."""
    if record.objective["direction"] != "minimize":
        clause = "a law describes a loss, and larger values of this objective are better"
        return {one.name: clause for study in rungs.values() for one in study.variants}
    reasons: dict[str, str] = {}
    for rung, study in rungs.items():
        tuning = read_tuning(store, study)
        if tuning is None:
            continue
        edges = {name: tuned.edges[0] for name, tuned in tuning.of.items() if tuned.edges}
        at_baseline = edges.get(study.baseline)
        for variant in study.variants:
            if path := at_baseline or edges.get(variant.name):
                whose = "the baseline's" if at_baseline else "its"
                reasons.setdefault(variant.name, f"{whose} {path} on rung {rung} lies at the edge of the grid")
    return reasons


def _climb(
    scaling: Scaling,
    here: Sequence[tuple[str, Mapping[str, VariantRuns]]],
    metric: str,
    margin: float,
    times: float,
    reason: str,
) -> Climb:
    rungs = []
    for baseline, runs in here:
        ours, theirs = runs[baseline], runs[scaling.variant]
        lost = any((side.diverged, side.failed, side.pruned) != ({}, {}, {}) for side in (ours, theirs))
        rung = Rung((_compute(ours), _compute(theirs)), ours.values(metric), theirs.values(metric))
        if lost or len(rung.seeds) < 2:
            return Climb(scaling, None, "undecided", "a rung lost trials or has fewer than two seeds")
        rungs.append(rung)
    if len(rungs) < LEAST_RUNGS - 1:
        clause = f"{len(rungs)} rungs have finished, and a law needs {LEAST_RUNGS - 1}; {LEAST_RUNGS} to extrapolate"
        return Climb(scaling, None, "undecided", clause)
    ladder = climb(rungs, max(1.0, times))
    reason = reason or ladder.refusal or ("" if times > 1 else "the design has `target: 1`")
    if reason:
        return Climb(scaling, ladder, "undecided", reason)
    verdict = scaling.points[-1].verdict
    side = -1.0 if verdict.word == "better" else 1.0 if verdict.is_worse else 0.0
    fate = outcome(side, ladder.difference, margin) if verdict.is_decided else "undecided"
    return Climb(scaling, ladder, fate)


def _compute(runs: VariantRuns) -> float:
    """Training FLOPs of a trial; those of a variant differ by nothing but rounding."""
    flops = [trial.flops for trial in runs.finished.values()]
    return sum(flops) / len(flops)


def climb_lines(climbs: Climbs, decimals: int) -> Iterator[tuple[str, str]]:
    """For each variant its name, and a line: its difference by rung, extrapolation, speedup, and what becomes of it."""
    for one in climbs.of:
        steps = "by rung " + " ".join(
            "lost" if point.difference.difference is None else _signed(point.difference.difference, decimals)
            for point in one.scaling.points
        )
        if one.refusal or one.ladder is None or one.ladder.difference is None or one.ladder.speedup is None:
            said = speedup_text(one.ladder.speedups[-1]) if one.ladder is not None else ""
            reached = f", speedup {said} on the largest rung" if said else ""
            yield one.scaling.variant, f"{steps}{reached}; not extrapolated: {one.refusal}"
            continue
        low, high = (_signed(bound, decimals) for bound in (one.ladder.difference.low, one.ladder.difference.high))
        speedup = speedup_text(one.ladder.speedup)
        yield one.scaling.variant, f"{steps} | {climbs.times:g}x: {low} … {high}, speedup {speedup}, {one.outcome}"


def climb_sentences(climbs: Climbs | None, metric: str, decimals: int) -> Iterator[str]:
    """What each law predicts, and by how much the law of the smaller rungs missed the largest one."""
    if climbs is None:
        return
    for one in climbs.of:
        ladder = one.ladder
        if ladder is None:
            yield f"{one.scaling.variant}: no law is fitted, because {one.refusal}."
            continue
        speedups = ", ".join(speedup_text(speedup) for speedup in ladder.speedups)
        said = f"{one.scaling.variant}: effective speedup by rung {speedups}"
        if ladder.held_out is not None:
            error = _with_interval(ladder.held_out, decimals)
            said += f"; the law of the smaller rungs misses the difference of {metric} at the largest by {error}"
        if ladder.difference is None or one.refusal:
            yield f"{said}. It is not extrapolated, because {one.refusal}."
        else:
            there = _with_interval(ladder.difference, decimals)
            yield f"{said}. At {climbs.times:g} times the compute of the largest rung the difference is {there}."
    yield (
        "Effective speedup: the compute at which the law of the baseline reaches the loss of the variant, over its own "
        "compute. Intervals are 95 % bootstrap intervals over the seeds of each rung; they hold if the losses follow "
        "the law `E + A C^-a` beyond the largest rung."
    )


def speedup_text(speedup: WithBounds) -> str:
    """`1.02 (0.97 … 1.08)`; the baseline may never reach a loss."""
    value, low, high = ("∞" if bound >= 1e3 else f"{bound:.2f}" if bound >= 0.01 else "0"
                        for bound in (speedup.value, speedup.low, speedup.high))  # fmt: skip
    return f"above {low}" if value == "∞" else "below 0.01" if high == "0" else f"{value} ({low} … {high})"


def _with_interval(estimate: WithBounds, decimals: int) -> str:
    value, low, high = (_signed(each, decimals) for each in (estimate.value, estimate.low, estimate.high))
    return f"{value} [{low}, {high}]"


def _signed(value: float, decimals: int) -> str:
    return fixed(value, decimals, sign=True)
