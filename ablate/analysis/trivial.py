"""The trivial baselines of a study: what its objective's metric is without learning, and which models beat them."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from ablate.analysis.rows import JudgingRule
from ablate.analysis.runs import VariantRuns
from ablate.analysis.text import listed, plural
from ablate.analysis.warnings import WHICH, StudyWarning
from ablate.spec.suite import at_data
from ablate.stats import Direction, SeedPlan, bounds, summarise
from ablate.stats.bounds import LEAST_PAIRS, at_least


@dataclass(frozen=True, slots=True)
class TrivialBaseline:
    """A rule that learns nothing, such as always the most frequent label.

    Attributes:
        name: What the task calls it.
        metric: The objective's.
        value: Of the metric.
    """

    name: str
    metric: str
    value: float


def trivial_baselines(
    trivial: Mapping[str, Mapping[str, float]], metric: str, direction: Direction, data: Set[str] = frozenset()
) -> tuple[TrivialBaseline, ...]:
    """The trivial baselines that have the metric, the best first; none if an older ablate stored none.

    Args:
        data: Fingerprints of data: those on it, if the study's baseline saw other data; else on the baseline's.
    """
    of_data = {name.removesuffix(end): of for end in (at_data("", one) for one in data)
               for name, of in trivial.items() if name.endswith(end)}  # fmt: skip
    known = of_data or {name: of for name, of in trivial.items() if at_data("", "") not in name}
    baselines = [TrivialBaseline(name, metric, metrics[metric]) for name, metrics in known.items() if metric in metrics]
    return tuple(sorted(baselines, key=lambda baseline: baseline.value, reverse=direction == "maximize"))


@dataclass(frozen=True, slots=True)
class Scale:
    """How a metric of a task becomes a score that is 0 without learning and at most 1.

    Attributes:
        trivial: The metric without learning, of score 0.
        perfect: The best value of the metric, of score 1.
    """

    trivial: float
    perfect: float

    def score(self, value: float) -> float:
        """The score of a value of the metric."""
        return (value - self.trivial) / (self.perfect - self.trivial)


@dataclass(frozen=True, slots=True)
class Standing:
    """How one variant compares with the trivial baselines.

    Attributes:
        name: Of the variant.
        mean: Of the objective's metric over its seeds.
        ahead: Lower 95 % bound of its advantage over each trivial baseline that it beats with this confidence.
        better: The trivial baselines that its mean is better than.
        seeds: Over how many seeds.
        bar: What it must beat on its data (`bar_of`); None without trivial baselines.
    """

    name: str
    mean: float
    ahead: Mapping[str, float]
    better: frozenset[str]
    seeds: int
    bar: float | None = None


def standing_of(
    name: str,
    values: Sequence[float],
    trivial: Sequence[TrivialBaseline],
    direction: Direction,
    schedule: SeedPlan | None,
) -> Standing | None:
    """How a variant with these values, one for each seed, compares with trivial baselines; None without values.

    It is compared by the one-sided 95 % bound of its mean. Values that are all the same have no bound; there the value
    itself counts, as an accuracy of 1 at every seed is not an accident.
    """
    if not values:
        return None
    ahead, better = {}, set()
    for baseline in trivial:
        gains = [baseline.value - value if direction == "minimize" else value - baseline.value for value in values]
        if math.fsum(gains) > 0:
            better.add(baseline.name)
        lows = [bound.low for bound in bounds(gains, schedule)]
        if not lows and len(gains) >= LEAST_PAIRS and summarise(gains).is_flat:
            lows = [min(gains)]
        if (low := max(lows, default=0.0)) > 0:
            ahead[baseline.name] = low
    bar = bar_of(trivial).value if trivial else None
    return Standing(name, math.fsum(values) / len(values), ahead, frozenset(better), len(values), bar)


def standings_of(
    runs: Mapping[str, VariantRuns], trivial: Mapping[str, Mapping[str, float]], rule: JudgingRule
) -> list[Standing]:
    """How variants compare with the trivial baselines of their data; those that diverged or were pruned have no mean.

    Args:
        trivial: The metrics of trivial baselines by name, as the store has them.
    """
    standings = [
        standing_of(
            name,
            list(run.values(rule.metric).values()),
            trivial_baselines(trivial, rule.metric, rule.direction, run.data),
            rule.direction,
            rule.schedule,
        )
        for name, run in runs.items()
        if not run.diverged and not run.pruned
    ]
    return [standing for standing in standings if standing is not None]


def bar_of(trivial: Sequence[TrivialBaseline]) -> TrivialBaseline:
    """What a model must beat for its verdicts to count: the second best of three or more trivial baselines (a bigram
    of a bigram and a trigram), else the best."""
    return trivial[1] if len(trivial) > 2 else trivial[0]


def behind(standings: Sequence[Standing], trivial: Sequence[TrivialBaseline]) -> list[Standing]:
    """The variants that are not shown to beat what a model must beat, by their bound or, of one seed, by its value."""
    return [one for one in standings if trivial and bar_of(trivial).name not in _beaten(one)]


def _beaten(one: Standing) -> Collection[str]:
    return one.ahead if one.seeds >= LEAST_PAIRS else one.better


def learning_warnings(standings: Sequence[Standing], trivial: Sequence[TrivialBaseline]) -> Iterator[StudyWarning]:
    """Warnings on variants that do not beat the trivial baselines with 95 % confidence.

    Differences between models that do not beat what a model must beat (`bar_of`) are not informative. If none has
    learnt that much, there is no answer; a model of a single seed, which has no bound, has if its value is better.
    Models that beat that, but not the best trivial baseline, have learnt something: their verdicts apply to models like
    them.
    """
    if not standings or not trivial:
        return
    best, bar = trivial[0], bar_of(trivial)
    without, shown = behind(standings, trivial), f"{bar.name} ({bar.metric} {bar.value:.4g})"
    names = tuple(sorted(standing.name for standing in without))
    if len(without) == len(standings):
        which = "the only model does not beat" if len(standings) == 1 else f"none of the {len(standings)} models beats"
        full = (
            f"No answer yet: {which} the trivial baseline {shown} with 95 % confidence: "
            f"{listed(_shown(one, bar) for one in standings)}. Differences between models that have learnt so little "
            "say nothing about models that learn. Train for more steps, or at a better learning rate."
        )
        text = f"no model beats {_named(bar)} ({bar.value:.4g})"
        yield StudyWarning("unlearnt", "void", text, full, names, replaces_headline=True)
        return
    if without:
        what = "the best trivial baseline, " if bar is best else "the trivial baseline "
        full = (
            f"{_share(without, standings)} {'does' if len(without) == 1 else 'do'} not beat {what}{shown} with 95 % "
            f"confidence: {listed(_shown(one, bar) for one in without)}. Differences between models that have learnt "
            "so little are not informative."
        )
        less = not any(bar.name in one.better for one in without)
        text = f"{WHICH}: {'no' if less else 'not shown to be'} better than {_named(bar)}"
        text = f"{text} ({bar.value:.4g})" if all(one.bar in (None, bar.value) for one in without) else text
        yield StudyWarning("unlearnt", "void", text, full, names)
    if between := [one for one in standings if bar.name in one.ahead and best.name not in one.ahead]:
        full = (
            f"{_share(between, standings)} {'beats' if len(between) == 1 else 'beat'} the trivial baseline {shown} "
            f"with 95 % confidence, but not the best one, {best.name} ({best.value:.4g}). Verdicts apply to models of "
            "this size and length of training."
        )
        short = len(between) + len(without)
        who = "no model beats" if short == len(standings) else f"{short} of {len(standings)} do not beat"
        text = f"small models: {who} {_named(best)} ({best.value:.4g})"
        yield StudyWarning("beaten", "weak", text, full, tuple(one.name for one in between))


def _named(baseline: TrivialBaseline) -> str:
    """`a bigram`, `the most frequent answer`."""
    return f"{'the' if ' ' in baseline.name else 'a'} {baseline.name}"


def nothing_learnt(standings: Sequence[Standing], trivial: Sequence[TrivialBaseline]) -> str:
    """Why differences between these models mean nothing, as a clause: none has learnt enough. Empty if one has."""
    return next((line.text for line in learning_warnings(standings, trivial) if line.replaces_headline), "")


def _shown(one: Standing, bar: TrivialBaseline) -> str:
    own = "" if one.bar in (None, bar.value) else f", and {bar.name} {one.bar:.4g} on its data"
    return f"{one.name} ({one.mean:.4g}{', one seed' if one.seeds == 1 else ''}{own})"


def _share(some: Sequence[Standing], standings: Sequence[Standing]) -> str:
    if len(standings) == 1:
        return "The only model"
    return f"{len(some)} of {len(standings)} models"


def trivial_sentences(standings: Sequence[Standing], trivial: Sequence[TrivialBaseline]) -> Iterator[str]:
    """How far the variants are ahead of a trivial baseline: the best one that at least one of them beats with 95 %
    confidence."""
    for baseline in trivial:
        ahead = [standing.ahead[baseline.name] for standing in standings if baseline.name in standing.ahead]
        if ahead:
            break
    else:
        return
    what = "the best trivial baseline, " if baseline is trivial[0] else "the trivial baseline "
    if len(ahead) < len(standings):
        who = f"The other {plural(len(ahead), 'model')} {'beats' if len(ahead) == 1 else 'beat'} {baseline.name}"
    else:
        models = "The model beats" if len(ahead) == 1 else f"All {len(ahead)} models beat"
        who = f"{models} {what}{baseline.name} ({baseline.metric} {baseline.value:.4g}),"
    each = "" if len(ahead) == 1 else " for each"
    yield f"{who} by at least {at_least(min(ahead), 0.0)} (one-sided 95 % bound{each})."
