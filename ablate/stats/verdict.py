"""The verdict on a variant: is the part that it removes needed, not needed, is the model better without it, or neither?

Let d be the mean paired difference, oriented so that positive is worse than the baseline, and `margin` the smallest
difference that matters. `needed`: the one-sided 95 % lower t bound of d lies above the margin. `not needed`: the
one-sided 95 % upper t bound lies below it (non-inferiority). `better`: that bound lies below minus the margin.
Otherwise `undecided`: a difference that is not significant is not equality, and if all differences are the same the
noise cannot be estimated. A variant with a diverged trial is `diverged`; the other trials are not averaged. For a
variant that replaces a part, or adds one, the words are `worse` and `not worse`.

With a schedule of seeds the bounds are those of its looks, and the first look that decides is the verdict; `not needed`
becomes `better` if that look or a later one shows it, but no seeds are added to find out. From
`paired.MANY` seeds on the bootstrap's bounds must agree with t's. An allowance widens the bounds for what the spread
between the compared seeds does not show: trials that failed, a long tail of the noise, a value that was tuned.

Of several verdicts `joint` says which hold together, which need another seed, and which points are on a front.
Each verdict answers a question of its own, declared with its margin, with an error rate of 5 %. A sentence that joins
several ("a, b and c can be removed") is wrong if one of them is. So the verdicts of a study form three families: all
its comparisons with the baseline tested for `needed` (or `worse`), all tested for `not needed` (or `not worse`), and
all tested for `better`. In each family Holm's procedure determines which verdicts hold jointly: it bounds the
family-wise error rate by 5 %, whatever the truth and however the comparisons depend on one another (they share the
baseline's trials).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, TypeVar

import numpy as np

from ablate.stats.bounds import (
    LEAST_PAIRS,
    NO_ALLOWANCE,
    Allowance,
    Bounds,
    at_least,
    at_most,
    bounds,
    p_above,
    p_below,
    unpaired_bounds,
)
from ablate.stats.further import Further, further_pairs
from ablate.stats.hidden_noise import tails_at_looks
from ablate.stats.paired import PairedDifference, paired_difference, summarise, unpaired_difference
from ablate.stats.schedule import ERROR, SeedPlan

Word = Literal["needed", "not needed", "worse", "not worse", "better", "undecided", "diverged"]
Direction = Literal["minimize", "maximize"]

WORSE: frozenset[Word] = frozenset({"needed", "worse"})
"""Words of a variant that is shown to be worse by more than the margin."""
ACCEPTABLE: frozenset[Word] = frozenset({"not needed", "not worse", "better"})
"""Words of a variant that is shown not to be."""
OF_REPLACEMENT: Mapping[str, Word] = {"needed": "worse", "not needed": "not worse"}
"""Words on variants that remove a part, to those on variants that replace one."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the paired seeds say about a variant.

    Attributes:
        word: The verdict, as people and programs read it.
        sentence: The verdict with its reason, for a person; starts with the word.
        further_seeds: About how many more paired seeds would decide an `undecided` one; None if it is more than 100,
            or than the schedule has, and for every other word.
        p_needed: P-value of the test whose rejection is `needed`, over all looks so far; 1 where nothing was tested.
        p_not_needed: The same for `not needed`.
        withheld: Why an `undecided` one, which the spread between seeds alone would decide, is not; else empty.
        bound: Bounds of how much worse the variant is, of the look that decides, else of the last; None if there are
            none.
        p_better: As `p_needed`, of the test whose rejection is `better`.
        chance: The chance that `further_seeds` decide (`ablate.stats.schedule`); None where it is not known.
    """

    word: Word
    sentence: str
    further_seeds: int | None
    p_needed: float = 1.0
    p_not_needed: float = 1.0
    withheld: str = ""
    bound: Bounds | None = None
    p_better: float = 1.0
    chance: float | None = None

    @property
    def is_worse(self) -> bool:
        """Whether the variant is shown to be worse by more than the margin: `needed` or `worse`."""
        return self.word in WORSE

    @property
    def is_acceptable(self) -> bool:
        """Whether the variant is shown not to be: `not needed`, `not worse` or `better`."""
        return self.word in ACCEPTABLE

    @property
    def is_ahead(self) -> bool:
        """Whether the variant is shown to be better at all, by the margin or not."""
        return self.is_acceptable and self.bound is not None and self.bound.high < 0

    @property
    def is_decided(self) -> bool:
        """Whether it is either of those; a variant that diverged is neither."""
        return self.is_worse or self.is_acceptable

    @property
    def reason(self) -> str:
        """The sentence without the word that precedes a colon."""
        return self.sentence.removeprefix(f"{self.word}: ")

    def of_replacement(self) -> Verdict:
        """The same on a variant that replaces a part or adds one, rather than removing it."""
        word = replacement_word(self.word)
        return replace(self, word=word, sentence=_sentence(word, self.reason))


def replacement_word(word: Word) -> Word:
    """The word on a variant that replaces a part, for the word on one that removes it."""
    return OF_REPLACEMENT.get(word, word)


def removal_word(word: str) -> str:
    """The word on a variant that removes a part, for the word on one that replaces it; other texts stay."""
    return next((removal for removal, replacing in OF_REPLACEMENT.items() if replacing == word), word)


def judge(
    variant: Mapping[int, float],
    baseline: Mapping[int, float],
    *,
    margin: float,
    direction: Direction,
    diverged: Mapping[int, int | None] | None = None,
    baseline_diverged: Mapping[int, int | None] | None = None,
    schedule: SeedPlan | None = None,
    allowance: Allowance = NO_ALLOWANCE,
    worst: Sequence[float] = (),
    unit: str = "seed",
    paired: bool = True,
    relative: bool = False,
) -> Verdict:
    """Judge a variant against the baseline.

    Args:
        variant: Seed to final metric of the variant's finished trials.
        margin: How much worse matters, in the unit of the metric, above 0.
        direction: Whether a smaller or a larger metric is better.
        diverged: Seed to step (None if unknown) of the variant's trials that diverged.
        baseline_diverged: The same for the baseline. Its seeds cannot be compared, and the sentence says so; as those
            that are left flatter the baseline, nothing is `needed` then.
        schedule: How seeds were added; None if their number was fixed beforehand.
        allowance: By how much the bounds are widened, of differences oriented so that positive is worse.
        worst: How much worse, at the worst, each trial of the variant would have been that failed, where that is
            known; then the allowance on their account need not be infinite, and they count with these.
        unit: What is paired, as a word: validation windows where nothing was trained.
        paired: Whether equal seeds share something (batches, initial values), so that runs are paired by them; else
            the two means are compared by Welch's t-test. Without pairs there is no schedule, and no `worst`.
        relative: Whether the metrics are logarithms of what is compared. The margin, below 1, and the bounds that come
            out are shares then: 0.05 is 5 % more. Smaller is better.

    Raises:
        ValueError: The margin is not above 0, or a metric is not finite.
    """
    if not margin > 0:
        raise ValueError(f"the margin must be above 0, got {margin}")
    lost = f"the baseline diverged at {_places(sorted(baseline_diverged), unit)}" if baseline_diverged else ""
    aside = f"; {lost}" if lost else ""
    if diverged:
        trials = len(variant.keys() | diverged.keys())
        return Verdict("diverged", f"diverged: {_divergence_in_words(trials, diverged, unit)}{aside}", None)
    sense = 1.0 if direction == "minimize" else -1.0
    worse = _how_much_worse(variant, baseline, sense, paired=paired)
    if worst:
        allowance += _of_worst(worse, worst, schedule)
    if baseline_diverged:
        why = f"{lost}, and the other {unit}s alone flatter it"
        allowance += Allowance(low=math.inf, why_low=(why,))
    word, reason, bound, withheld, further = _compare(worse, margin, schedule, allowance, unit, sense, relative)
    sentence = _sentence(word, reason if withheld else f"{reason}{aside}")
    if worse.is_flat:
        return Verdict(word, sentence, further.seeds)
    above, below = (math.log1p(margin), math.log1p(-margin)) if relative else (margin, -margin)
    return Verdict(
        word,
        sentence,
        further.seeds,
        p_needed=_p_over_looks(worse, schedule, lambda at: p_above(at, above, allowance)),
        p_not_needed=_p_over_looks(worse, schedule, lambda at: p_below(at, above, allowance)),
        withheld=withheld,
        bound=bound,
        p_better=_p_over_looks(worse, schedule, lambda at: p_below(at, below, allowance)),
        chance=further.chance,
    )


def _how_much_worse(
    variant: Mapping[int, float], baseline: Mapping[int, float], sense: float, *, paired: bool
) -> PairedDifference:
    if paired:
        difference = paired_difference(variant, baseline)
        return difference if sense > 0 else summarise([-value for value in difference.values])
    ours, theirs = ([sense * value for value in side.values()] for side in (variant, baseline))
    return unpaired_difference(ours, theirs)


def decision(looks: Iterable[Bounds], margin: float) -> tuple[Word, Bounds | None]:
    """The verdict that bounds of how much worse a variant is give, and the bounds that it rests on.

    Args:
        looks: In their order. The first that decides is the verdict, and a later one at most makes it `better`.
        margin: How much worse matters.

    Returns:
        `undecided` with the last bounds, if no look decides; None if there are none.
    """
    bound: Bounds | None = None
    decided: tuple[Word, Bounds] | None = None
    for bound in looks:
        if decided is None and bound.low > margin:
            return "needed", bound
        if bound.high < -margin:
            return "better", bound
        if decided is None and bound.high < margin:
            decided = "not needed", bound
    return decided or ("undecided", bound)


def _sentence(word: Word, reason: str) -> str:
    """The word with its reason; some reasons begin with the word."""
    return reason if reason.startswith(word) else f"{word}: {reason}"


def _divergence_in_words(trials: int, diverged: Mapping[int, int | None], unit: str) -> str:
    steps = [step for step in diverged.values() if step is not None]
    first = f", first at step {min(steps)}" if steps else ""
    return f"{len(diverged)} of {trials} {_plural(trials, unit)}{first}"


def _of_worst(worse: PairedDifference, worst: Sequence[float], schedule: SeedPlan | None) -> Allowance:
    """What failed trials may add to the upper bound, had each ended at its worst; infinite with looks."""
    lost = f"{len(worst)} {_plural(len(worst), 'trial')} of it failed"
    reason = f"{lost}, and might have ended so much worse that the verdict changes; run the study again"
    if schedule is None and worse.n >= LEAST_PAIRS and not worse.is_flat:
        (seen,), (counted,) = bounds(worse.values, None), bounds([*worse.values, *worst], None)
        return Allowance(high=max(0.0, counted.high - seen.high), why_high=(reason,))
    return Allowance(high=math.inf, why_high=(reason,))


class _Compared(NamedTuple):
    word: Word
    reason: str
    bound: Bounds | None
    withheld: str = ""
    further: Further = Further()


def _compare(
    worse: PairedDifference,
    margin: float,
    schedule: SeedPlan | None,
    allowance: Allowance,
    unit: str,
    sense: float,
    relative: bool,
) -> _Compared:
    word, bound = decision(_looks(worse, schedule, allowance, relative), margin)
    if word != "undecided" and bound is not None:
        return _Compared(word, _reason(bound, margin), bound)
    if allowance != NO_ALLOWANCE:
        without, _ = decision(_looks(worse, schedule, NO_ALLOWANCE, relative), margin)
        if without != "undecided":
            why = "; ".join(allowance.why_low if without == "needed" else allowance.why_high)
            return _Compared("undecided", why, bound, why)
    edge = math.log1p(margin) if relative else margin
    if worse.difference is not None and worse.n >= (schedule.start if schedule else LEAST_PAIRS) and not worse.is_flat:
        tested = allowance.shifted(edge, worse.difference)
        if tested is None:
            why = "; ".join(allowance.why_high if worse.difference < edge else allowance.why_low)
            return _Compared("undecided", why, bound, why)
        edge = tested
    further = further_pairs(worse, edge, schedule, unit, sense)
    return _Compared("undecided", further.reason, bound, further=further)


def _looks(
    worse: PairedDifference, schedule: SeedPlan | None, allowance: Allowance, relative: bool
) -> Iterator[Bounds]:
    if worse.is_paired:
        looks = bounds(worse.values, schedule, allowance=allowance)
    else:
        looks = unpaired_bounds(worse, allowance=allowance)
    return map(Bounds.as_shares, looks) if relative else looks


def _reason(bound: Bounds, margin: float) -> str:
    if bound.low > margin:
        return f"worse by at least {at_least(bound.low, margin)}"
    if bound.high < 0:
        return f"better by at least {at_least(-bound.high, margin)}"
    return f"at most {at_most(bound.high, margin)} worse, margin {margin:g}"


def _p_over_looks(
    worse: PairedDifference, schedule: SeedPlan | None, p_of: Callable[[PairedDifference], float]
) -> float:
    if schedule is None:
        return p_of(worse)
    return schedule.overall({n: p_of(summarise(worse.values[:n])) for n in schedule.looks(worse.n)})


def _places(numbers: list[int], unit: str) -> str:
    """Seeds by their numbers; of other units, whose numbers mean nothing to a reader, how many there are."""
    noun = _plural(len(numbers), unit)
    return f"{noun} {', '.join(map(str, numbers))}" if unit == "seed" else f"{len(numbers)} {noun}"


def _plural(count: int, noun: str) -> str:
    return noun if count == 1 else f"{noun}s"


Name = TypeVar("Name", bound=Hashable)


def holm(p_values: Mapping[Name, float], family: int | None = None) -> dict[Name, float]:
    """Holm's adjusted p-values: reject where they lie below an error rate, and it holds for the family.

    Args:
        p_values: By the name of each comparison.
        family: How many comparisons there are, where some that cannot be rejected (p-value 1) are not among these.
    """
    size, least = len(p_values) if family is None else family, 0.0
    adjusted: dict[Name, float] = {}
    for rank, name in enumerate(sorted(p_values, key=p_values.__getitem__)):
        least = max(least, min(1.0, (size - rank) * p_values[name]))
        adjusted[name] = least
    return {name: adjusted[name] for name in p_values}


def hold_together(verdicts: Mapping[str, Verdict], error: float = ERROR) -> frozenset[str]:
    """Names of the decided verdicts that hold together, over all comparisons of a study.

    Comparisons that are undecided or diverged count as members of every family.
    """
    worse = holm({name: verdict.p_needed for name, verdict in verdicts.items()})
    acceptable = holm({name: verdict.p_not_needed for name, verdict in verdicts.items()})
    better = holm({name: verdict.p_better for name, verdict in verdicts.items()})

    def adjusted(name: str, verdict: Verdict) -> float:
        if verdict.word == "better":
            return better[name]
        return worse[name] if verdict.is_worse else acceptable[name] if verdict.is_acceptable else 1.0

    return frozenset(name for name, verdict in verdicts.items() if adjusted(name, verdict) <= error)


def need_more_seeds(
    variants: Mapping[str, Mapping[int, float]],
    baseline: Mapping[int, float],
    *,
    margin: float,
    direction: Direction,
    schedule: SeedPlan,
    diverged: Mapping[str, Mapping[int, int | None]] | None = None,
) -> tuple[str, ...]:
    """Names of the variants that want another trial, in the order given.

    A variant wants one while its verdict is undecided and it has fewer pairs than `schedule.max`. One that is decided,
    or has diverged, never wants one again. The baseline wants a trial of a seed as soon as any variant does.

    Args:
        variants: Variant to seed to final metric, of the trials that finished; the baseline left out.
        baseline: Seed to final metric of the baseline.
        margin: How much worse matters, in the unit of the metric, above 0.
        direction: Whether a smaller or a larger metric is better.
        diverged: Variant to seed to step (None if unknown) of trials that diverged.

    Raises:
        ValueError: The margin is not above 0, or a metric is not finite.
    """
    sign, lost = 1.0 if direction == "minimize" else -1.0, diverged or {}
    worse = {
        name: {seed: sign * (values[seed] - baseline[seed]) for seed in values.keys() & baseline.keys()}
        for name, values in variants.items()
    }
    tails = tails_at_looks(((worse[name], lost.get(name, ())) for name in variants), schedule)
    return tuple(
        name
        for name, values in variants.items()
        if len(worse[name]) < schedule.max
        and judge(
            values,
            baseline,
            margin=margin,
            direction=direction,
            diverged=lost.get(name),
            schedule=schedule,
            allowance=Allowance(tails_at=tails),
        ).word
        == "undecided"
    )


def dominators(points: Sequence[Sequence[float]], directions: Sequence[Direction]) -> list[list[int]]:
    """For each point the others that dominate it; none for a point on the front. Equal points do not dominate each
    other.

    Args:
        points: A row of finite numbers for each point, a column for each direction.
        directions: Whether a smaller or a larger number is better.
    """
    if not points:
        return []
    signs = np.array([1.0 if direction == "minimize" else -1.0 for direction in directions])
    costs = np.asarray(points, dtype=np.float64) * signs
    dominating = []
    for cost in costs:
        dominates = (costs <= cost).all(axis=1) & (costs < cost).any(axis=1)
        dominating.append([int(index) for index in np.flatnonzero(dominates)])
    return dominating
