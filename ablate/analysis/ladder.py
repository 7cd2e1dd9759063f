"""Does a gain survive scale? The laws, effective speedups and extrapolation of each variant of a ladder."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ablate.analysis.fairness import read_tuning
from ablate.analysis.numbers import MISSING, fixed
from ablate.analysis.runs import StudyReader, VariantRuns, read_runs
from ablate.analysis.scaling import Scaling, Scalings, rungs_of
from ablate.analysis.times import relative_speed
from ablate.designs.ladder import MOST_RUNGS, at_rung
from ablate.stats import Interval, special
from ablate.stats.scaling_law import FURTHEST, LEAST_RUNGS, Fate, LadderFit, Rung, WithBounds, climb, outcome
from ablate.stats.schedule import ERROR
from ablate.store.records import StudyRecord


@dataclass(frozen=True, slots=True)
class Climb:
    """A variant over the rungs of a ladder.

    Attributes:
        scaling: Its differences and verdicts, by rung.
        ladder: Laws, speedups and extrapolation; None where `refusal` says why.
        outcome: What becomes of the difference at the largest rung; `undecided` where nothing is extrapolated.
        refusal: Why nothing is extrapolated, as a clause; empty if something is.
        seconds: The effective speedup at each rung in seconds of training instead of FLOPs, None where the rung was
            not timed: that in FLOPs, times the FLOPs a second of the variant over those of the baseline of this rung.
    """

    scaling: Scaling
    ladder: LadderFit | None
    outcome: Fate
    refusal: str = ""
    seconds: tuple[WithBounds | None, ...] = ()

    @property
    def fate_in_words(self) -> str:
        """The outcome, and of a difference that holds on which side of the margin: `better`, `not worse` or `worse`."""
        if self.outcome != "holds":
            return self.outcome
        verdict = self.scaling.points[-1].verdict
        return "worse" if verdict.is_worse else "better" if verdict.word == "better" else "not worse"


@dataclass(frozen=True, slots=True)
class Climbs:
    """All variants of a ladder.

    Attributes:
        verdicts: The verdict at each of them; empty where it has none.
        times: The target, as a multiple of the compute of the largest rung.
        of: The variants, in the order of the design.
    """

    times: float
    of: tuple[Climb, ...]


def read_climbs(store: StudyReader, record: StudyRecord, scalings: Scalings | None) -> Climbs | None:
    """The laws of a ladder's variants; None if the study is not a ladder or has no two finished rungs.

    Args:
        scalings: The differences by rung.
    """
    rungs = rungs_of(record)
    if not rungs or scalings is None:
        return None
    metric, margin = record.objective["metric"], float(record.objective["margin"])
    runs = {rung: read_runs(store, study, metric) for rung, study in rungs.items()}
    times = float(record.space["design"].get("target", FURTHEST))
    if record.objective["direction"] != "minimize":
        clause = "a law describes a loss, and larger values of this objective are better"
        return Climbs(times, tuple(Climb(scaling, None, "undecided", clause) for scaling in scalings.of))
    reasons = _reasons(store, rungs)
    climbs = []
    for scaling in scalings.of:
        name = scaling.variant
        here = [(rungs[rung].baseline, of) for rung, of in runs.items() if name in of]
        climbs.append(_climb(scaling, here, metric, margin, times, reasons.get(name, "")))
    return Climbs(times, tuple(climbs))


def last_rung(rungs: Mapping[int, StudyRecord], name: str) -> int | None:
    """The rung after which a ladder dropped a variant; None if it did not."""
    declared = {rung: study for rung, study in rungs.items() if any(variant.name == name for variant in study.variants)}
    trained, begun = (
        [rung for rung, study in declared.items() if any(trial.variant == of(study) for trial in study.planned)]
        for of in (lambda study: name, lambda study: study.baseline)
    )
    return max(trained) if trained and any(rung > max(trained) for rung in begun) else None


def _reasons(store: StudyReader, rungs: Mapping[int, StudyRecord]) -> dict[str, str]:
    """Variants whose law must not be extrapolated, with the reason."""
    names = {variant.name for study in rungs.values() for variant in study.variants}
    reasons = {
        name: f"it was dropped after rung {last}" for name in names if (last := last_rung(rungs, name)) is not None
    }
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
    if any(
        side.diverged or side.failed or side.pruned for of, runs in here for side in (runs[of], runs[scaling.variant])
    ):
        return Climb(scaling, None, "undecided", "a rung lost trials or has fewer than two seeds")
    here = [(baseline, runs) for baseline, runs in here if runs[baseline].finished and runs[scaling.variant].finished]
    for baseline, runs in here:
        ours, theirs = runs[baseline], runs[scaling.variant]
        rung = Rung((_compute(ours), _compute(theirs)), ours.values(metric), theirs.values(metric))
        if len(rung.seeds) < 2:
            return Climb(scaling, None, "undecided", "a rung lost trials or has fewer than two seeds")
        rungs.append(rung)
    if len(rungs) < LEAST_RUNGS - 1:
        clause = f"{len(rungs)} rungs have finished, and a law needs {LEAST_RUNGS - 1}; {LEAST_RUNGS} to extrapolate"
        return Climb(scaling, None, "undecided", reason or clause)
    ladder = climb(rungs, times)
    seconds = tuple(
        _in_seconds(speedup, runs[scaling.variant], runs[baseline])
        for speedup, (baseline, runs) in zip(ladder.speedups, here, strict=True)
    )
    reason = reason or ladder.refusal or ("" if times > 1 else "the design has `target: 1`")
    if reason:
        return Climb(scaling, ladder, "undecided", reason, seconds)
    verdict = scaling.points[-1].verdict
    side = -1.0 if verdict.word == "better" else 1.0 if verdict.is_worse else 0.0
    fate = outcome(side, ladder.difference, margin) if verdict.is_decided else "undecided"
    return Climb(scaling, ladder, fate, seconds=seconds)


def _compute(runs: VariantRuns) -> float:
    """Training FLOPs of a trial with its stages; those of a variant differ by nothing but rounding."""
    return math.fsum(trial.flops for seed in runs.finished for trial in runs.whole(seed)) / len(runs.finished)


def _in_seconds(speedup: WithBounds, runs: VariantRuns, baseline: VariantRuns) -> WithBounds | None:
    """A speedup in FLOPs as one in seconds, with the errors of both factors; None if the rung was not timed.

    The baseline at the compute that it would need is taken to do as many FLOPs a second as on this rung.
    """
    speed = relative_speed(runs.rates, baseline.rates)
    if speed is None or speed.mean is None or speed.low is None or speed.high is None:
        return None
    ours, theirs = (
        math.fsum(trial.flops for trial in side.finished.values())
        / math.fsum(trial.tokens for trial in side.finished.values())
        for side in (runs, baseline)
    )  # FLOPs of a token
    factor = speed.mean * ours / theirs
    value, low, high = speedup.value, speedup.low, speedup.high
    if not 0 < low <= value <= high < math.inf:  # the baseline never gets there
        return WithBounds(factor * value, factor * low, factor * high)
    below = math.hypot(math.log(value / low), math.log(speed.mean / speed.low))
    above = math.hypot(math.log(high / value), math.log(speed.high / speed.mean))
    return WithBounds(factor * value, factor * value * math.exp(-below), factor * value * math.exp(above))


@dataclass(frozen=True, slots=True)
class NextRung:
    """The smallest further rung that is expected to decide what a ladder left open.

    Attributes:
        value: Of the dial.
        times: Its compute over that of the largest rung so far.
        variants: Names of the variants that it may settle.
        decides: Whether it is expected to; else it is the rung that a law needs first.
    """

    value: float
    times: float
    variants: tuple[str, ...]
    decides: bool


def next_rung(climbs: Climbs, record: StudyRecord) -> NextRung | None:
    """The rung that would decide the variants that are undecided for too little compute; None if there is none.

    Rungs go on as the last two do. On one that decides, the difference by the laws lies further from the margin than
    the one-sided bound of as many seeds with the noise of the largest rung.

    Args:
        record: The study, with the rungs that it has.
    """
    design, margin = record.space["design"], float(record.objective["margin"])
    rungs = [float(value) for value in design["rungs"]]
    places = sorted({point.at for climb in climbs.of for point in climb.scaling.points})
    if climbs.times <= 1 or design.get("per_rung") or design.get("seeds_per_rung") or len(places) < len(rungs):
        return None
    growth, step = places[-1] / places[-2], rungs[-1] / rungs[-2]
    whole = design.get("dial", "depth") == "depth"

    def rung(number: int) -> float:
        value = rungs[-1] * step**number
        return float(round(value)) if whole else value

    if len(rungs) < LEAST_RUNGS:
        return NextRung(rung(1), growth, tuple(climb.scaling.variant for climb in climbs.of), decides=False)
    waiting = [climb for climb in climbs.of if climb.outcome == "undecided" and not climb.refusal]
    for number in range(1, MOST_RUNGS - len(rungs) + 1):
        if (times := growth**number) > FURTHEST:
            break
        if settled := [climb.scaling.variant for climb in waiting if _would_decide(climb, times * places[-1], margin)]:
            return NextRung(rung(number), times, tuple(settled), decides=True)
    return None


def _would_decide(one: Climb, compute: float, margin: float) -> bool:
    shown = one.scaling.points[-1].difference
    assert one.ladder is not None
    assert shown.standard_error is not None
    there = one.ladder.variant.loss(compute) - one.ladder.baseline.loss(compute)
    half = -float(special.stdtrit(shown.degrees, ERROR)) * shown.standard_error
    return abs(there) - half > margin or abs(there) + half < margin


@dataclass(frozen=True, slots=True)
class ScaleRow:
    """A variant of a ladder, as an answer shows it.

    Attributes:
        words: What it changes.
        compute: The compute of each rung, of those at which any variant has a difference, as a multiple of the largest
            one's: `0.31x`.
        by_rung: Its difference from the baseline at each of them.
        times: The target, as a multiple of the compute of the largest rung.
        there: The interval of the difference at the target; empty where nothing is extrapolated.
        speedup: The effective speedup at the target, or at the largest rung where nothing is extrapolated.
        seconds: That at the largest rung in seconds of training; empty if it was not timed.
        outcome: What becomes of the difference at the target, in words.
        refusal: Why nothing is extrapolated, as a clause.
    """

    words: str
    compute: tuple[str, ...]
    by_rung: tuple[str, ...]
    verdicts: tuple[str, ...]
    times: float
    there: str
    speedup: str
    seconds: str
    outcome: str
    refusal: str

    @property
    def line(self) -> str:
        """All of it in one line of text."""
        steps = f"{self.words}: by rung {' '.join(self.by_rung)}"
        timed = f", in seconds {self.seconds} on the largest rung" if self.seconds else ""
        if not self.there:
            reached = f", speedup {self.speedup} on the largest rung{timed}" if self.speedup else ""
            return f"{steps}{reached}; not extrapolated: {self.refusal}"
        return f"{steps} | {self.times:g}x: {self.there}, speedup {self.speedup}{timed}, {self.outcome}"


def scale_rows(climbs: Climbs, decimals: int, words: Mapping[str, str]) -> Iterator[ScaleRow]:
    """The variants of a ladder, as an answer shows them.

    Args:
        words: Names of variants to what they change.
    """
    rungs = sorted({point.at for climb in climbs.of for point in climb.scaling.points})
    for ascent in climbs.of:
        words_at = {point.at: point.verdict.word for point in ascent.scaling.points}
        ladder = ascent.ladder
        difference = None if ladder is None or ascent.refusal else ladder.difference
        speedup = None if ladder is None else ladder.speedups[-1] if ascent.refusal else ladder.speedup
        ends = () if difference is None else (difference.low, difference.high)
        timed = ascent.seconds[-1] if ascent.seconds else None
        yield ScaleRow(
            words.get(ascent.scaling.variant, ascent.scaling.variant),
            tuple(f"{rung / rungs[-1]:.2g}x" for rung in rungs),
            tuple(_at_rung(ascent.scaling, rung, decimals) for rung in rungs),
            tuple(words_at.get(rung, "") for rung in rungs),
            climbs.times,
            " … ".join(_with_sign(end, decimals) for end in ends),
            "" if speedup is None else speedup_text(speedup),
            "" if timed is None else speedup_text(timed),
            ascent.fate_in_words,
            ascent.refusal,
        )


def _at_rung(one: Scaling, rung: float, decimals: int) -> str:
    """The difference of a variant at a rung; `lost` where it has none, and a hyphen where it was not planned."""
    point = next((point for point in one.points if point.at == rung), None)
    if point is None:
        return MISSING
    return "lost" if point.difference.difference is None else _with_sign(point.difference.difference, decimals)


def losses_by_rung(
    metrics: Mapping[str, Mapping[str, Interval]], variant: str, metric: str, rungs: Iterable[int]
) -> list[Interval | None]:
    """The mean metric of a variant on each of these rungs, with its interval; None where none is known.

    Args:
        metrics: Names of variants with their rungs to metrics.
        variant: Name of a variant without its rung.
    """
    known = [metrics.get(at_rung(variant, rung), {}).get(metric) for rung in rungs]
    return [interval if interval is not None and interval.mean is not None else None for interval in known]


def climb_sentences(climbs: Climbs | None, metric: str, decimals: int) -> Iterator[str]:
    """What each law predicts, and by how much the law of the smaller rungs missed the largest one."""
    if climbs is None:
        return
    for ascent in climbs.of:
        ladder = ascent.ladder
        if ladder is None:
            yield f"{ascent.scaling.variant}: no law is fitted, because {ascent.refusal}."
            continue
        speedups = ", ".join(speedup_text(speedup) for speedup in ladder.speedups)
        said = f"{ascent.scaling.variant}: effective speedup by rung {speedups}"
        if any(ascent.seconds):
            timed = ", ".join("not timed" if speedup is None else speedup_text(speedup) for speedup in ascent.seconds)
            said += f"; in seconds of training {timed}"
        if ladder.held_out is not None:
            error = _with_interval(ladder.held_out, decimals)
            said += f"; the law of the smaller rungs misses the difference of {metric} at the largest by {error}"
        if ladder.difference is None or ascent.refusal:
            yield f"{said}. It is not extrapolated, because {ascent.refusal}."
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
    value, low, high = (_with_sign(bound, decimals) for bound in (estimate.value, estimate.low, estimate.high))
    return f"{value} [{low}, {high}]"


def _with_sign(value: float, decimals: int) -> str:
    return fixed(value, decimals, sign=True)
