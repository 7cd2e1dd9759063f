"""The verdicts on the claims of a study: supported, refuted or undecided, with the evidence.

A claim rests on paired seeds and one-sided 95 % bounds of the left variant's advantage. Its evidence has the sign
of the table: the metric of the left variant minus that of the right one, or minus that of the baseline if this is on
the left. It is supported when the bound shows it, refuted when the other bound shows its contrary, and else undecided
with the number of seeds that would decide. Where a contrary has several parts (`equal` is refuted from above or from
below, an order at any of its pairs), they share the error rate. Each claim is a question of its own, wrong at most
once in twenty.

Divergence counts in metrics of quality, not in costs: a variant with a diverged seed is worse, by more than any margin,
than a variant that finished that seed and never diverged. Two variants that both diverged are not compared, and a trend
with a diverged trial is not judged.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal

from ablate.analysis.changes import in_words
from ablate.analysis.fairness import Tuning
from ablate.analysis.judging import Allowances, read_allowances
from ablate.analysis.numbers import decimals_for, fixed, plural
from ablate.analysis.results import Results
from ablate.analysis.runs import VariantRuns, baselines_of, seed_schedule
from ablate.analysis.scaling import NO_AXIS_POINTS, AxisPoints
from ablate.metrics import COSTS, COUNTED
from ablate.spec.claims import ClaimSpec, ComparisonClaim, NumberClaim, OrderClaim, TrendClaim, position
from ablate.stats import (
    Allowance,
    Bounds,
    Direction,
    PairedDifference,
    SeedPlan,
    bounds,
    over_looks,
    sign_flip,
    summarise,
)
from ablate.stats.bounds import NO_ALLOWANCE, at_least, at_most
from ablate.stats.further import further_pairs
from ablate.stats.paired import as_share
from ablate.stats.schedule import ERROR
from ablate.stats.trend import bends, slope_weights, slopes, steps
from ablate.store.records import StudyRecord

ClaimWord = Literal["supported", "refuted", "undecided"]
CONFIDENCE = 0.95
"""Of the two-sided intervals in the evidence."""


@dataclass(frozen=True, slots=True)
class ClaimVerdict:
    """A claim with its verdict.

    Attributes:
        id: Of the claim.
        says: The claim as a sentence.
        source: Where it is claimed.
        verdict: Supported, refuted or undecided.
        sentence: The verdict with its reason, for a person; starts with the word.
        evidence: The numbers behind it, as strict JSON data.
    """

    id: str
    says: str
    source: str
    verdict: ClaimWord
    sentence: str
    evidence: dict[str, Any]

    @property
    def variants(self) -> tuple[str, ...]:
        """The variants that the evidence names."""
        return tuple(dict.fromkeys(_names_in(self.evidence)))

    def reason(self, titles: Mapping[str, str]) -> str:
        """Why it has its verdict, with variants by their titles."""
        return in_words(self.sentence.removeprefix(f"{self.verdict}: "), titles, self.variants)

    @property
    def so_far(self) -> str:
        """What is known of an undecided difference, as a clause; empty for any other claim."""
        known = self.evidence
        if self.verdict != "undecided" or None in map(known.get, ("difference", "margin")):
            return ""
        write = functools.partial(fixed, decimals=decimals_for(known["margin"], ()), sign=True)
        return f"so far {write(known['difference'])}, margin {known['margin']:g}"

    def own_margin(self, margin: float) -> str:
        """That its margin is another than that of its study, as a clause; empty if it is the same, or has none."""
        own = self.evidence.get("margin")
        return "" if own is None or own == margin else f"this margin is the claim's own, the study's is {margin:g}"


def _names_in(evidence: Any) -> Iterator[str]:
    if isinstance(evidence, dict):
        for key, value in evidence.items():
            if key in ("left", "right", "variant", "over") and isinstance(value, str):
                yield value
            else:
                yield from _names_in(value)
    elif isinstance(evidence, list):
        for value in evidence:
            yield from _names_in(value)


@dataclass(frozen=True, slots=True)
class _Finding:
    verdict: ClaimWord
    reason: str
    evidence: dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Expectation:
    """An expectation that bounds of an advantage decide.

    Attributes:
        supported: Whether a lower and an upper bound show it, given the margin.
        refuted: Whether they show its contrary.
        edges: Limits of the expected range of the advantage, in margins.
        parts: In how many ways its contrary can be shown; they share the error rate.
    """

    supported: Callable[[float, float, float], bool]
    refuted: Callable[[float, float, float], bool]
    edges: tuple[float, ...]
    parts: int = 1


_EXPECTATIONS = {
    "better": _Expectation(lambda low, high, m: low > m, lambda low, high, m: high < m, (1,)),
    "not_worse": _Expectation(lambda low, high, m: low > -m, lambda low, high, m: high < -m, (-1,)),
    "worse": _Expectation(lambda low, high, m: high < -m, lambda low, high, m: low > -m, (-1,)),
    "equal": _Expectation(
        lambda low, high, m: -m < low and high < m, lambda low, high, m: low > m or high < -m, (-1, 1), parts=2
    ),
}


def judge_claims(
    record: StudyRecord,
    runs: Mapping[str, VariantRuns],
    allowances: Allowances | None = None,
    unlearnt: str = "",
    tuning: Tuning | None = None,
    places: AxisPoints = NO_AXIS_POINTS,
    behind: Set[str] = frozenset(),
) -> tuple[ClaimVerdict, ...]:
    """The verdicts on the claims of a study's space, in their order.

    Args:
        record: The study, its space among it.
        runs: Variant name to its trials.
        allowances: By how much bounds are widened; as the trials say, unless given.
        unlearnt: Why the study has no answer, if no model has learnt: then no comparison of quality has a verdict.
        tuning: What was tuned for each variant; each metric has an allowance of its own for it.
        places: Those of the study's axis; at each no comparison of quality has a verdict if no model has learnt there.
        behind: Names of the variants that are not shown to have learnt enough; two of them are not compared.
    """
    allowances, schedule = allowances or read_allowances(record, runs), seed_schedule(record)
    results = Results(record, runs, schedule, allowances, tuning, places, unlearnt, behind)
    verdicts = []
    for plain in record.space.get("claims", ()):
        claim = ClaimSpec.parse(plain)
        finding = _settle(claim, replace(results, schedule=results.schedule_on(claim.names().values())))
        if why := _too_little(claim, results):
            reason = f"{why}: models that have learnt so little decide no claim"
            finding = _Finding("undecided", reason, finding.evidence)
        evidence = {"task": claim.task, **finding.evidence} if claim.task else finding.evidence
        sentence = f"{finding.verdict}: {f'on {claim.task} ' if claim.task else ''}{finding.reason}"
        verdicts.append(ClaimVerdict(claim.id, claim.says, claim.source, finding.verdict, sentence, evidence))
    return tuple(verdicts)


def _too_little(claim: ClaimSpec, results: Results) -> str:
    """Why a claim that compares measured quality of variants compares some that have learnt too little; else empty."""
    if not isinstance(claim, ComparisonClaim | OrderClaim | TrendClaim):
        return ""
    if (metric := results.metric(claim.metric)) in COSTS or metric not in results.known_metrics():
        return ""
    pairs: Iterable[tuple[str, str]] = [(claim.left, claim.right)] if isinstance(claim, ComparisonClaim) else ()
    if isinstance(claim, OrderClaim):
        pairs = pairwise(claim.order)
    elif isinstance(claim, TrendClaim):
        pairs = claim.sides({variant.name: variant.settings for variant in results.record.variants}).values()
    measured = [pair for pair in pairs if not results.unmeasured(metric, pair)]
    return next((why for pair in measured if (why := results.too_little(*pair))), "")


@functools.singledispatch
def _settle(claim: ClaimSpec, results: Results) -> _Finding:
    raise NotImplementedError(type(claim))


@_settle.register
def _comparison(claim: ComparisonClaim, results: Results) -> _Finding:
    metric = results.metric(claim.metric)
    direction = results.direction(claim.direction, metric)
    expectation = _EXPECTATIONS[claim.expect]
    return _compare(claim.left, claim.right, metric, direction, claim.margin, expectation, results)


@_settle.register
def _order(claim: OrderClaim, results: Results) -> _Finding:
    # Support needs every pair at the full error rate. One refuted pair refutes the order, so pairs share that rate.
    pairs = list(pairwise(claim.order))
    better = _EXPECTATIONS["better"]
    expectation = _Expectation(better.supported, better.refuted, better.edges, parts=len(pairs))
    metric = results.metric(claim.metric)
    direction = results.direction(claim.direction, metric)
    findings = [_compare(left, right, metric, direction, claim.margin, expectation, results) for left, right in pairs]
    evidence = {"metric": metric, "margin": claim.margin, "pairs": [finding.evidence for finding in findings]}
    unsupported: tuple[ClaimWord, ...] = ("refuted", "undecided")
    for verdict in unsupported:
        if picked := [
            (pair, finding) for pair, finding in zip(pairs, findings, strict=True) if finding.verdict == verdict
        ]:
            reasons = [finding.reason for _, finding in picked]
            if verdict == "undecided":
                reasons = [f"{left} before {right}, {finding.reason}" for (left, right), finding in picked]
            return _Finding(verdict, "; ".join(reasons), evidence)
    return _Finding("supported", "; ".join(finding.reason for finding in findings), evidence)


@_settle.register
def _trend(claim: TrendClaim, results: Results) -> _Finding:
    metric = results.metric(claim.metric)
    direction = results.direction(claim.direction, metric)
    by_setting = claim.sides({variant.name: variant.settings for variant in results.record.variants})
    sides = {at: names for setting, names in by_setting.items() if (at := position(setting)) is not None}
    evidence: dict[str, Any] = {"metric": metric, "margin": claim.margin, "along": claim.along}
    evidence |= {"positions": sorted(sides), "left": claim.left, "right": claim.right}
    if diverged := sorted({name for side in sides.values() for name in side if results.diverged(name, metric)}):
        return _Finding("undecided", f"{', '.join(diverged)} diverged, so the gap has no trend", evidence)
    if len(sides) < 2:
        return _Finding("undecided", f"the study trained both variants at {len(sides)} of the positions", evidence)
    names = list(dict.fromkeys(name for side in sides.values() for name in side))
    if short := results.awaited(metric, names) or results.unmeasured(metric, names):
        return _Finding("undecided", short, evidence)
    gaps = {at: results.advantage(left, right, metric, direction) for at, (left, right) in sides.items()}
    sign = 1.0 if claim.expect == "grows" else -1.0

    def words(bound: Bounds, lower: bool, error: float) -> str:
        how, limit = claim.expect, f"at least {at_least(bound.low, claim.margin)}"
        if not lower and bound.high < 0:
            how = "shrinks" if how == "grows" else "grows"
            limit = f"at least {at_least(-bound.high, claim.margin)}"
        elif not lower:
            limit = f"at most {at_most(bound.high, claim.margin)}"
        return f"the gap {how} by {limit} in {metric} for each doubling ({_one_sided(error)})"

    of, minus, sense = claim.left, claim.right, sign if direction == "maximize" else -sign
    baselines = baselines_of(results.record)
    if all(baselines[right] == left for left, right in sides.values()):
        of, minus, sense = minus, of, -sense
    evidence["difference_of"] = f"{metric} of {of} minus {minus}, its change for each doubling"
    better = _EXPECTATIONS["better"]

    def found(rates: Mapping[int, float], weights: Mapping[float, float]) -> _Finding:
        by_seed = {seed: sign * rate for seed, rate in rates.items()}
        weights = {at: sign * weight for at, weight in weights.items()}
        allowance = results.trend_allowance(sides, weights, metric, direction)
        relative = results.is_relative(metric)
        return _paired_finding(
            by_seed, claim.margin, better, results, metric, words, evidence, allowance, sense, relative
        )

    whole = found(slopes(gaps), slope_weights(gaps))
    if whole.verdict != "supported" or not bends(gaps):
        return whole
    # One slope would hide a step that goes the other way: where the gap bends, every step must show the trend.
    for (before, after), step in zip(pairwise(sorted(gaps)), steps(gaps), strict=True):
        each = 1 / math.log2(after / before)
        part = found({seed: each * change for seed, change in step.items()}, {before: -each, after: each})
        if part.verdict != "supported":
            reason = f"the gap bends, and from {before:g} to {after:g} it does not show this: {part.reason}"
            return _Finding("undecided", reason, whole.evidence)
    return whole


@_settle.register
def _number(claim: NumberClaim, results: Results) -> _Finding:
    name, quantity, over = claim.subject.variant, claim.subject.quantity, claim.subject.over
    names = [name, over] if over else [name]
    evidence: dict[str, Any] = {"variant": name, "quantity": quantity, "expected": claim.expect}
    evidence |= {"tolerance": claim.tolerance, **({"over": over} if over else {})}
    if missing := [name for name in names if name not in results.runs]:
        return _Finding("undecided", f"the study has no variant {' and no '.join(missing)}", evidence)
    if quantity in COUNTED:
        return _counted_number(claim, results, evidence)
    for variant in names:
        if diverged := sorted(results.diverged(variant, quantity)):
            reason = f"{variant} diverged at {_seeds(diverged)}"
            return _Finding("refuted", reason, {**evidence, "diverged": diverged})
    if short := results.awaited(quantity, names) or results.unmeasured(quantity, names):
        return _Finding("undecided", short, evidence)
    values = results.values(name, quantity)
    if over:
        theirs = results.values(over, quantity)
        if zero := sorted(seed for seed in values.keys() & theirs.keys() if theirs[seed] == 0):
            return _Finding("undecided", f"{quantity} of {over} is 0 at {_seeds(zero)}: no ratio is known", evidence)
        values = {seed: value / theirs[seed] for seed, value in values.items() if seed in theirs}
    off_by_seed = {seed: value - claim.expect for seed, value in values.items()}

    def words(bound: Bounds, lower: bool, error: float) -> str:
        lowest, highest = claim.expect - claim.tolerance, claim.expect + claim.tolerance
        low, high = claim.expect + bound.low, claim.expect + bound.high
        # Each end is told from the end of the claimed range that it may lie beyond.
        below = at_least(low, highest if low > highest else lowest, 5)
        above = at_most(high, lowest if high < lowest else highest, 5)
        between = f"between {below} and {above}"
        level = f"{100 * (1 - 2 * error):g} % interval"
        what = f"{quantity} of {name} over that of {over}" if over else f"{quantity} of {name}"
        return f"{what} lies {between} ({level}), the claim is {claim.expect:g} ± {claim.tolerance:g}"

    allowance = results.allowance(names, quantity)
    return _paired_finding(
        off_by_seed, claim.tolerance, _EXPECTATIONS["equal"], results, quantity, words, evidence, allowance
    )


def _counted_number(claim: NumberClaim, results: Results, evidence: dict[str, Any]) -> _Finding:
    """A number that is counted: the quantity of the first variant, over that of the second if there is one."""
    name, quantity, over = claim.subject.variant, claim.subject.quantity, claim.subject.over
    ours, theirs = results.count(name, quantity), results.count(over, quantity) if over else None
    if ours is None or (over and not theirs):
        return _Finding("undecided", results.unknown(quantity, [name, over] if over else [name]), evidence)
    value = ours / theirs if theirs else ours

    def near(number: float) -> bool:
        return math.isclose(max(abs(number - claim.expect), claim.tolerance), claim.tolerance)  # 1.1 - 1 is above 0.1

    off, within = value - claim.expect, near(value)
    verdict: ClaimWord = "supported" if within else "refuted"
    if over:
        shown = next(text for digits in range(4, 18) if near(float(text := f"{value:.{digits}g}")) == within)
        reason = f"{name} has {shown} times the {quantity} of {over}"
        reason += f", the claim is {claim.expect:g} ± {claim.tolerance:g}"
    else:
        apart = "" if off == 0 else f", {abs(off):,.12g} {'more' if off > 0 else 'fewer'} than {claim.expect:,.12g}"
        reason = f"{name} has {value:,.12g} {quantity}{apart}"
    return _Finding(verdict, reason, {**evidence, "found": value})


def _compare(
    left: str,
    right: str,
    metric: str,
    direction: Direction,
    margin: float,
    expectation: _Expectation,
    results: Results,
) -> _Finding:
    evidence: dict[str, Any] = {"metric": metric, "margin": margin, "left": left, "right": right}
    if missing := [name for name in (left, right) if name not in results.runs]:
        return _Finding("undecided", f"the study has no variant {' and no '.join(missing)}", evidence)
    if metric in COUNTED:
        return _count(left, right, metric, direction, margin, expectation, results, evidence)
    if short := results.awaited(metric, (left, right)) or results.unmeasured(metric, (left, right)):
        return _Finding("undecided", short, evidence)
    worst = _by_divergence(left, right, metric, results)
    if worst is not None:
        infinite, reason = worst
        evidence |= {"diverged": {name: sorted(results.diverged(name, metric)) for name in (left, right)}}
        verdict: ClaimWord = "undecided"
        if infinite is not None:
            verdict = "supported" if expectation.supported(infinite, infinite, margin) else "refuted"
        return _Finding(verdict, reason, evidence)

    def words(bound: Bounds, lower: bool, error: float) -> str:
        limit = _lower(bound.low, margin) if lower else _upper(bound.high, margin)
        if len(expectation.edges) == 2 and expectation.supported(bound.low, bound.high, margin):
            limit = f"at most {at_most(max(-bound.low, bound.high), margin)} better or worse"
        rests_on = f"{_one_sided(error)}, {plural(bound.n, f'paired {results.unit_of(metric)}')}, margin {margin:g}"
        return f"{left} is {limit} than {right} in {metric} ({rests_on})"

    advantage = results.advantage(left, right, metric, direction)
    allowance = results.advantage_allowance(left, right, metric, direction)
    of, minus, sense = left, right, 1.0 if direction == "maximize" else -1.0
    if baselines_of(results.record)[right] == left:
        of, minus, sense = right, left, -sense
    relative = results.is_relative(metric)
    evidence["difference_of"] = f"{metric} of {of} {'over' if relative else 'minus'} {minus}{', minus 1' * relative}"
    return _paired_finding(advantage, margin, expectation, results, metric, words, evidence, allowance, sense, relative)


def _count(
    left: str,
    right: str,
    metric: str,
    direction: Direction,
    margin: float,
    expectation: _Expectation,
    results: Results,
    evidence: dict[str, Any],
) -> _Finding:
    """Compare costs: they do not depend on the seed, so one value of each variant decides."""
    ours, theirs = results.count(left, metric), results.count(right, metric)
    if ours is None or theirs is None:
        missing = [name for name, count in ((left, ours), (right, theirs)) if count is None]
        return _Finding("undecided", results.unknown(metric, missing), evidence)
    advantage = theirs - ours if direction == "minimize" else ours - theirs
    verdict: ClaimWord = "supported" if expectation.supported(advantage, advantage, margin) else "refuted"
    reason = f"{left} has {ours:,.12g} {metric}, {right} {theirs:,.12g} (margin {margin:g})"
    return _Finding(verdict, reason, {**evidence, "found": {left: ours, right: theirs}})


def _by_divergence(left: str, right: str, metric: str, results: Results) -> tuple[float | None, str] | None:
    """The infinite advantage that follows from divergence, and a reason; None if neither variant diverged.

    The advantage is None if divergence does not decide.
    """
    gone = {name: results.diverged(name, metric) for name in (left, right)}
    if gone[left] and gone[right]:
        return None, f"{left} and {right} both diverged"
    for loser, winner, advantage in ((left, right, -math.inf), (right, left, math.inf)):
        if gone[loser]:
            witnesses = sorted(gone[loser] & results.values(winner, metric).keys())
            if not witnesses:
                return None, f"{loser} diverged at {_seeds(sorted(gone[loser]))}, which {winner} has not finished"
            return advantage, f"{loser} diverged at {_seeds(witnesses)}, which {winner} finished"
    return None


def _paired_finding(
    by_seed: Mapping[int, float],
    margin: float,
    expectation: _Expectation,
    results: Results,
    metric: str,
    words: Callable[[Bounds, bool, float], str],
    evidence: dict[str, Any],
    allowance: Allowance,
    sense: float = 1.0,
    relative: bool = False,
) -> _Finding:
    """Compare an advantage, paired by seed, with an expectation.

    `words(bounds, lower, error)` formats the bounds; `lower`: whether the lower one decided; `error`: its error rate.
    `sense` turns the advantage into the difference of the evidence: 1 or -1. If `relative`, the advantage is one of
    logarithms, and the margin and all that comes out are shares.
    """
    values, schedule = list(by_seed.values()), results.schedule_of(metric)
    if (known := results.known_metrics()) and metric not in {*known, *COSTS}:
        return _Finding("undecided", f"no trial has a metric `{metric}`; there are: {', '.join(known)}", evidence)
    summary = over_looks(summarise(values, CONFIDENCE), schedule, CONFIDENCE)
    turned = allowance if sense > 0 else allowance.turned()
    shown = over_looks(summarise([sense * value for value in values], CONFIDENCE), schedule, CONFIDENCE, turned)
    evidence = evidence | _numbers(shown.as_shares() if relative else shown, list(by_seed))
    for verdict, bound, error in _looks(values, margin, expectation, schedule, allowance, relative):
        lower = bound.low > max(expectation.edges) * margin  # the bound that the decision rests on
        return _Finding(verdict, words(bound, lower, error), evidence | {"further_seeds": None})
    if allowance != NO_ALLOWANCE and _looks(values, margin, expectation, schedule, relative=relative):
        return _Finding("undecided", "; ".join(dict.fromkeys((*allowance.why_low, *allowance.why_high))), evidence)
    edges = [edge * margin for edge in expectation.edges]
    edges = [-math.log1p(-min(edge, _NEARLY_ALL)) for edge in edges] if relative else edges
    edge = min(edges, key=lambda at: abs((summary.difference or 0.0) - at))
    if summary.difference is not None and summary.sd is not None and not summary.is_flat:
        tested = allowance.shifted(edge, summary.difference)
        if tested is None:
            return _Finding("undecided", "; ".join(dict.fromkeys((*allowance.why_low, *allowance.why_high))), evidence)
        edge = tested
    further = further_pairs(summary, edge, schedule, results.unit_of(metric), sense)
    more = {"further_seeds": further.seeds, "chance_of_decision": further.chance}
    return _Finding("undecided", further.reason, evidence | more)


def _looks(
    values: Sequence[float],
    margin: float,
    expectation: _Expectation,
    schedule: SeedPlan | None,
    allowance: Allowance = NO_ALLOWANCE,
    relative: bool = False,
) -> list[tuple[ClaimWord, Bounds, float]]:
    """The decisions at all looks, with the error rate of their bounds. The first decision counts."""
    shared, scale = ERROR / expectation.parts, _share_saved if relative else lambda bound: bound
    contrary = {bound.n: bound for bound in map(scale, bounds(values, schedule, shared, allowance))}
    decisions: list[tuple[ClaimWord, Bounds, float]] = []
    for bound in map(scale, bounds(values, schedule, allowance=allowance)):
        other = contrary.get(bound.n)
        if expectation.supported(bound.low, bound.high, margin):
            decisions.append(("supported", bound, ERROR))
        elif other is not None and expectation.refuted(other.low, other.high, margin):
            decisions.append(("refuted", other, shared))
    return decisions


_NEARLY_ALL = 0.999
"""The largest share that can be saved of a time."""


def _share_saved(bound: Bounds) -> Bounds:
    """Bounds of `log(theirs / ours)` as the share of theirs that ours saves: 0.05 is 5 % less."""
    mean, low, high = (-as_share(-value) for value in (bound.mean, bound.low, bound.high))
    return Bounds(mean, low, high, bound.n)


def _numbers(summary: PairedDifference, seeds: list[int]) -> dict[str, Any]:
    """The evidence that every measured claim has.

    `low` and `high` are a two-sided interval of `confidence`; verdicts rest on one-sided bounds.
    """
    numbers: dict[str, Any] = {"difference": summary.difference, "low": summary.low, "high": summary.high}
    numbers["confidence"] = CONFIDENCE
    flipped = sign_flip(summary.values) if summary.values else None
    return numbers | {
        "n": summary.n,
        "seeds": seeds,
        "effect_size": summary.effect_size,
        "sign_flip_at_zero": {"p": flipped.p, "floor": flipped.floor} if flipped else None,
    }


def _one_sided(error: float) -> str:
    """The name of a bound with this error rate, which holds over all looks of a schedule."""
    return f"one-sided {100 * (1 - error):.4g} % bound"


def _lower(low: float, margin: float) -> str:
    return f"at least {at_least(low, margin)} better" if low > 0 else f"at most {at_most(-low, margin)} worse"


def _upper(high: float, margin: float) -> str:
    return f"at least {at_least(-high, margin)} worse" if high < 0 else f"at most {at_most(high, margin)} better"


def _seeds(seeds: Sequence[int]) -> str:
    return f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"
