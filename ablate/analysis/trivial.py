"""The trivial baselines of a study: what its objective's metric is without learning, and which models beat them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ablate.analysis.numbers import listed
from ablate.analysis.rows import JudgingRule
from ablate.analysis.runs import VariantRuns
from ablate.analysis.warnings import WHICH, StudyWarning
from ablate.metrics import CURVE_METRIC
from ablate.stats import Direction, SeedPlan, bounds, summarise
from ablate.stats.bounds import LEAST_PAIRS, at_least

RULES = {
    "bigram": "guesses each token from the one before it, by counting",
    "trigram": "guesses each token from the two before it, by counting",
}
"""Trivial baselines whose names say too little, to what they do."""


@dataclass(frozen=True, slots=True)
class TrivialBaseline:
    """A rule that learns nothing, such as always the most frequent label.

    Attributes:
        name: What the task calls it.
        metric: The objective's, or the validation loss.
        value: Of the metric.
    """

    name: str
    metric: str
    value: float


def trivial_baselines(
    rules: Mapping[str, Mapping[str, float]], metric: str, direction: Direction
) -> tuple[TrivialBaseline, ...]:
    """The trivial baselines of a task that have the metric, the best first; none if an older ablate stored none."""
    baselines = [TrivialBaseline(name, metric, metrics[metric]) for name, metrics in rules.items() if metric in metrics]
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
    """How one variant compares with the trivial baselines of its task.

    Attributes:
        name: Of the variant.
        mean: Of its metric over its seeds.
        ahead: Lower 95 % bound of its advantage over each trivial baseline that it beats with this confidence.
        better: The trivial baselines that its mean is better than.
        seeds: Over how many seeds.
        trivial: The trivial baselines of its task, the best first.
    """

    name: str
    mean: float
    ahead: Mapping[str, float]
    better: frozenset[str]
    seeds: int
    trivial: tuple[TrivialBaseline, ...]

    @property
    def bar(self) -> TrivialBaseline:
        """What it must beat for its verdicts to count: the second best of three or more trivial baselines (a bigram of
        a bigram and a trigram), else the best."""
        return self.trivial[1] if len(self.trivial) > 2 else self.trivial[0]

    @property
    def is_behind(self) -> bool:
        """Whether it is not shown to beat that, by its bound or, of one seed, by its value."""
        return self.bar.name not in (self.ahead if self.seeds >= LEAST_PAIRS else self.better)

    @property
    def is_between(self) -> bool:
        """Whether it beats that, but not the best trivial baseline."""
        return self.bar.name in self.ahead and self.trivial[0].name not in self.ahead


def standing_of(
    name: str,
    values: Sequence[float],
    trivial: Sequence[TrivialBaseline],
    direction: Direction,
    schedule: SeedPlan | None,
) -> Standing:
    """How a variant with these values, one for each seed, compares with trivial baselines.

    It is compared by the one-sided 95 % bound of its mean. Values that are all the same have no bound; there the value
    itself counts, as an accuracy of 1 at every seed is not an accident.
    """
    ahead, better = {}, set()
    for baseline in trivial:
        gains = [baseline.value - value if direction == "minimize" else value - baseline.value for value in values]
        if math.fsum(gains) > 0:
            better.add(baseline.name)
        lows = [bound.low for bound in bounds(gains, schedule)]
        if not lows and summarise(gains).is_flat:
            lows = gains
        if (low := max(lows, default=0.0)) > 0:
            ahead[baseline.name] = low
    return Standing(name, math.fsum(values) / len(values), ahead, frozenset(better), len(values), tuple(trivial))


def standings_of(runs: Mapping[str, VariantRuns], rule: JudgingRule) -> list[Standing]:
    """How variants compare with the trivial baselines of their tasks.

    By the objective; where no rule has that, as of a measure of the model's insides, by the validation loss. Variants
    without trivial baselines have no standing, nor those that diverged or were pruned, which have no mean.
    """
    standings = []
    for name, run in runs.items():
        trivial = _of_task(run, rule)
        values = [*run.values(trivial[0].metric).values()] if trivial else []
        if values and not run.diverged and not run.pruned:
            direction = rule.direction if trivial[0].metric == rule.metric else "minimize"
            standings.append(standing_of(name, values, trivial, direction, rule.schedule))
    return standings


def _of_task(run: VariantRuns, rule: JudgingRule) -> tuple[TrivialBaseline, ...]:
    """The trivial baselines of a variant's task by the objective, or by the validation loss."""
    own = trivial_baselines(run.rules, rule.metric, rule.direction)
    return own or trivial_baselines(run.rules, CURVE_METRIC, "minimize")


def measured_otherwise(
    runs: Mapping[str, VariantRuns], baselines: Mapping[str, str], rule: JudgingRule
) -> Iterator[StudyWarning]:
    """A warning on variants whose objective is measured on other tokens than that of what they are compared with.

    Such as those of another tokenizer: a rule that learns nothing then has another value, which is in the difference.

    Args:
        baselines: Variant to what it is compared with.
    """
    pairs = {name: (_of_task(runs[name], rule), _of_task(runs[base], rule)) for name, base in baselines.items()}
    other = {name: (ours, theirs) for name, (ours, theirs) in pairs.items() if ours and theirs and ours != theirs}
    if not other:
        return
    ours, theirs = next(iter(other.values()))
    known = (
        f" ({with_article(there)} has {there.value:.4g} there, {here.value:.4g} on the baseline's)"
        for there in ours
        for here in theirs
        if there.name == here.name and there != here
    )
    text = f"{WHICH}: {ours[0].metric} is measured on another task{next(known, '')}"
    yield StudyWarning("other task", "weak", text, variants=tuple(other))


def behind(standings: Sequence[Standing]) -> list[Standing]:
    """The variants that are not shown to beat what a model must beat."""
    return [standing for standing in standings if standing.is_behind]


def learning_warnings(standings: Sequence[Standing]) -> Iterator[StudyWarning]:
    """Warnings on variants that do not beat the trivial baselines with 95 % confidence.

    Differences between models that do not beat what a model must beat (`Standing.bar`) are not informative. If none has
    learnt that much, there is no answer; a model of a single seed, which has no bound, has if its value is better.
    Models that beat that, but not the best trivial baseline, have learnt something: their verdicts apply to models like
    them.
    """
    if without := behind(standings):
        first = without[0].bar
        shown = f"{first.name} ({first.metric} {first.value:.4g})"
        said = listed(_in_words(standing, first) for standing in without)
        names = tuple(sorted(standing.name for standing in without))
        value = f" ({first.value:.4g})" if all(standing.bar == first for standing in without) else ""
        if len(without) == len(standings):
            which = f"none of the {len(standings)} models beats" if without[1:] else "the only model does not beat"
            full = (
                f"No answer yet: {which} the trivial baseline {shown} with 95 % confidence: {said}. Differences "
                "between models that have learnt so little say nothing about models that learn. Train for more steps, "
                "or at a better learning rate."
            )
            text = f"no model beats {with_article(first)}{value}"
            yield StudyWarning("unlearnt", "void", text, full, names, replaces_headline=True)
            return
        what = "the best trivial baseline, " if first is without[0].trivial[0] else "the trivial baseline "
        full = (
            f"{_share(without, standings)} {'does' if len(without) == 1 else 'do'} not beat {what}{shown} with 95 % "
            f"confidence: {said}. Differences between models that have learnt so little are not informative."
        )
        less = not any(standing.bar.name in standing.better for standing in without)
        text = f"{WHICH}: {'no' if less else 'not shown to be'} better than {with_article(first)}{value}"
        yield StudyWarning("unlearnt", "void", text, full, names)
    if between := [standing for standing in standings if standing.is_between]:
        best, bar = between[0].trivial[0], between[0].bar
        full = (
            f"{_share(between, standings)} {'beats' if len(between) == 1 else 'beat'} the trivial baseline {bar.name} "
            f"({bar.metric} {bar.value:.4g}) with 95 % confidence, but not the best one, {best.name} "
            f"({best.value:.4g}). Verdicts apply to models of this size and length of training."
        )
        short = len(between) + len(without)
        who = (
            "no model is shown to beat"
            if short == len(standings)
            else f"{short} of {len(standings)} models {'is' if short == 1 else 'are'} not shown to beat"
        )
        text = f"{who} {with_article(best)} ({best.value:.4g})"
        yield StudyWarning("beaten", "weak", text, full, tuple(standing.name for standing in between))


def with_article(baseline: TrivialBaseline) -> str:
    """`a bigram`, `the most frequent answer`."""
    return f"{'the' if ' ' in baseline.name else 'a'} {baseline.name}"


def nothing_learnt(standings: Sequence[Standing]) -> str:
    """Why differences between these models mean nothing, as a clause: none has learnt enough. Empty if one has."""
    return next((line.text for line in learning_warnings(standings) if line.replaces_headline), "")


def warn_of_unchecked(
    runs: Mapping[str, VariantRuns], standings: Sequence[Standing], metric: str
) -> Iterator[StudyWarning]:
    """A warning on variants of whose task no rule without learning is known, so that nothing shows that they learn."""
    ended, known = {name for name, run in runs.items() if run.finished}, {standing.name for standing in standings}
    lacking = tuple(name for name in runs if name in ended - known and not runs[name].diverged)
    if lacking:
        which = f"{WHICH}: " if len(lacking) < len(ended) else ""
        text = f"{which}learning is not checked: {metric} has no trivial baseline"
        yield StudyWarning("unlearnt", "weak", text, variants=lacking if which else ())


def _in_words(one: Standing, bar: TrivialBaseline) -> str:
    own = "" if one.bar == bar else f", and {one.bar.name} {one.bar.value:.4g} on its task"
    return f"{one.name} ({one.mean:.4g}{', one seed' if one.seeds == 1 else ''}{own})"


def _share(some: Sequence[Standing], standings: Sequence[Standing]) -> str:
    if len(standings) == 1:
        return "The only model"
    return f"{len(some)} of {len(standings)} models"


def trivial_sentences(standings: Sequence[Standing]) -> Iterator[str]:
    """How far the variants are ahead of a trivial baseline: the best one that at least one of them beats with 95 %
    confidence."""
    names = dict.fromkeys(baseline.name for standing in standings for baseline in standing.trivial)
    for name in names:
        ahead = [standing for standing in standings if name in standing.ahead]
        if ahead:
            break
    else:
        return
    values = {baseline for standing in ahead for baseline in standing.trivial if baseline.name == name}
    baseline = next(iter(values))
    best = all(standing.trivial[0].name == name for standing in ahead)
    what = "the best trivial baseline, " if best else "the trivial baseline "
    if len(ahead) < len(standings):
        who = f"The other {'model beats' if len(ahead) == 1 else f'{len(ahead)} models beat'} {name}"
    else:
        models = {1: "The model beats", 2: "Both models beat"}.get(len(ahead), f"All {len(ahead)} models beat")
        of = f"({baseline.metric} {baseline.value:.4g})" if len(values) == 1 else "of their tasks"
        who = f"{models} {what}{name} {of},"
    each = "" if len(ahead) == 1 else " for each"
    least = at_least(min(standing.ahead[name] for standing in ahead), 0.0)
    yield f"{who} by at least {least} (one-sided 95 % bound{each})."
