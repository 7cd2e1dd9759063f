"""What each switch of a study does on average over the others, what each pair does, and how much each explains.

Effects are estimated for studies that cross their switches: every trained setting occurs with at least two combinations
of the other switches' settings. A grid, a fraction of one and a search do; turning one switch at a time does not, as
its effects are those of the ablation table. Importances are the shares of the spread that each switch and each numeric
axis explains by itself, by fANOVA.

A trial that diverged has no value, and to leave it out would favour the setting that diverged: it counts as the worst
that a trial of the study finished with, as it does in a search.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Literal

from ablate.analysis.changes import effect_titles
from ablate.analysis.fairness import Tuning, read_tuning
from ablate.analysis.judging import awaited_seeds, nothing_learnt_by, read_regrets
from ablate.analysis.runs import StudyReader, VariantRuns, read_runs, seed_schedule
from ablate.analysis.scaling import main_part
from ablate.analysis.slices import Factors, axis_value, crosses, factors_of, is_logarithmic
from ablate.analysis.times import Target
from ablate.extras import require
from ablate.stats import (
    Configuration,
    Direction,
    Effects,
    Factor,
    Importance,
    Interval,
    Observation,
    SeedPlan,
    estimate_effects,
    importances,
    mean_interval,
)
from ablate.store.records import StudyRecord, VariantRecord

Side = Literal["worse", "better", "as good", "worse than the sum", "better than the sum", "within", "undecided"]
NO_REPLACEMENT = "no replacement"
"""What is known of two removed parts that together are not worse than the sum says by the margin."""
_ROUNDING = 1e-9
MOST_TERMS = 1_500
"""Above this number of effects only main effects are estimated."""
_LEAST_LETTERS = 4
"""Letters of a word by which a question may name a setting."""


@dataclass(frozen=True, slots=True)
class EffectRow:
    """An effect on the objective, in its unit.

    Attributes:
        settings: The switch and the setting whose effect it is; of an interaction, both.
        estimate: Of a main effect, the change from the switch's first setting to this one, averaged over all settings
            of the other switches; of an interaction, how much the effect of the first changes with the second.
        low: Lower bound of the two-sided 95 % t interval; None where nothing is left to see the noise from.
        high: Upper bound of the same.
        aliases: Names of further effects that these trials cannot tell from it: the estimate is of all of them.
        hidden: How the estimate moves for each unit by which the diverged trials are worse than what they count as.
        fall: By how much it may be lower, as variants may be better at another value than at that tuned for them.
        rise: By how much it may be higher, likewise.
    """

    settings: tuple[tuple[str, str], ...]
    estimate: float
    low: float | None
    high: float | None
    aliases: tuple[str, ...]
    hidden: float = 0.0
    fall: float = 0.0
    rise: float = 0.0

    @property
    def name(self) -> str:
        """`switch=setting`, joined by a colon."""
        return ":".join(f"{switch}={setting}" for switch, setting in self.settings)

    def narrowed(self, share: float) -> EffectRow:
        """The same with an interval of this share of its width around the estimate."""
        if self.low is None or self.high is None:
            return self
        low, high = (self.estimate + share * (end - self.estimate) for end in (self.low, self.high))
        return replace(self, low=low, high=high)

    @property
    def bounds(self) -> tuple[float, float] | None:
        """The interval that decides: that of the estimate with all that widens it; None without one.

        Diverged trials are worse than they count, by nobody knows how much: on the side to which they would move an
        effect, nothing bounds it.
        """
        if self.low is None or self.high is None:
            return None
        low = -math.inf if self.hidden < -_ROUNDING else self.low - self.fall
        return low, math.inf if self.hidden > _ROUNDING else self.high + self.rise


@dataclass(frozen=True, slots=True)
class StudyEffects:
    """The effects of a study on its objective.

    Attributes:
        metric: Name of the objective's metric.
        direction: Whether a smaller or a larger metric is better.
        margin: How large a difference matters, in the unit of the metric.
        main: Main effects, in the order of the switches.
        interactions: Of pairs of settings, in the same order; empty if they were not estimated.
        unseen: Names of effects that the combinations trained do not show at all.
        interactions_left_out: Whether interactions were not estimated because the variants are too few to tell them
            from one another; they are part of the noise then.
        sd: Standard deviation of what the effects leave unexplained; None without degrees of freedom.
        degrees: Degrees of freedom of `sd`.
        trials: How many trials the estimates rest on, diverged ones among them.
        diverged: How many of these diverged.
        counted_as: The value that diverged trials counted as; None if none did.
        pruned: How many trials were stopped early; they have no final value and are left out.
        axes: Numeric axes along which the variants differ too; they are part of the noise.
        chosen: Whether the design chose variants by results, so that settings that did well occur in more of them.
        withheld: Why no effect is on any side yet, as a clause: trials are missing, or no model has learnt enough.
        titles: Names of effects, aliases and unseen ones to what they are in words.
        asked: Names of the interactions whose two settings the question of the study names.
    """

    metric: str
    direction: Direction
    margin: float
    main: tuple[EffectRow, ...]
    interactions: tuple[EffectRow, ...]
    unseen: tuple[str, ...]
    interactions_left_out: bool
    sd: float | None
    degrees: int
    trials: int
    diverged: int
    counted_as: float | None
    pruned: int
    axes: tuple[str, ...]
    chosen: bool
    withheld: str = ""
    titles: Mapping[str, str] = field(default_factory=dict)
    asked: tuple[str, ...] = ()

    def ranked(self, rows: Iterable[EffectRow]) -> list[EffectRow]:
        """Effects in the order of a reader: what the question asks for, what is decided, the largest."""
        return sorted(
            rows, key=lambda row: (row.name not in self.asked, self.side(row) == "undecided", -abs(row.estimate))
        )

    def is_worse(self, change: float) -> bool:
        """Whether a change of the metric is for the worse."""
        return change > 0 if self.direction == "minimize" else change < 0

    def not_worse(self, row: EffectRow) -> bool:
        """Whether the bounds of an effect exclude that it is for the worse by the margin."""
        if row.bounds is None or self.withheld:
            return False
        return row.bounds[1] < self.margin if self.direction == "minimize" else row.bounds[0] > -self.margin

    def side(self, row: EffectRow) -> Side:
        """Where the bounds of an effect lie: `worse` or `better` by more than the margin, or `undecided`.

        A main effect is `as good` if one bound excludes that it is worse by the margin, as in the verdict on a variant.
        An interaction is `worse than the sum`, `better than the sum`, or `within` the margin on both sides: two
        settings that are better together than the sum of their effects may still be worse than the baseline.
        """
        margin = self.margin
        if row.bounds is None or self.withheld:
            return "undecided"
        low, high = row.bounds
        if low <= margin and high >= -margin:
            if len(row.settings) == 1 and self.not_worse(row):
                return "as good"
            return "within" if -margin < low and high < margin else "undecided"
        if len(row.settings) > 1:
            return "worse than the sum" if self.is_worse(row.estimate) else "better than the sum"
        return "worse" if self.is_worse(row.estimate) else "better"

    def finding(self, row: EffectRow) -> str:
        """What is known of an effect, in a few words: its side, or that two removed parts do not replace each other.

        That is shown by one bound alone: without both it is not worse than the sum says by the margin.
        """
        side = self.side(row)
        shown = side == "undecided" and not row.aliases
        return NO_REPLACEMENT if shown and self.removes(row) and self.not_worse(row) else side

    def removes(self, *rows: EffectRow) -> bool:
        """Whether these effects are of nothing but the removal of parts."""
        titles = (title for row in rows for title in self.titles[row.name].split(" × "))
        return all(title.startswith("no ") for title in titles)

    def parts(self, name: str) -> str:
        """The title of an effect, of removed parts these parts alone: `skip × norm` of `no skip × no norm`."""
        return " × ".join(title.removeprefix("no ") for title in self.titles[name].split(" × "))

    def open_because(self, row: EffectRow) -> str:
        """Why an undecided effect has no interval with two ends, as a clause, or what is known of it nevertheless."""
        if self.side(row) != "undecided" or self.withheld:
            return ""
        if row.bounds is None:
            return "too few trials for an interval"
        if not all(map(math.isfinite, row.bounds)):
            return "trials diverged, so one side has no bound"
        if not self.not_worse(row):
            return ""
        if self.finding(row) == NO_REPLACEMENT:
            return f"may be {f'below {-self.margin:g}' if self.direction == 'minimize' else f'above +{self.margin:g}'}"
        return "not worse than the sum"


def read_effects(store: StudyReader, name: str) -> StudyEffects | None:
    """The effects of a study; None if it does not cross at least two switches, or has no trial that finished.

    Raises:
        NotFoundError: The store holds no such study.
    """
    record = store.study(name)
    return effects_of(record, read_runs(store, record, record.objective["metric"]), read_tuning(store, record))


def effects_of(
    record: StudyRecord, runs: Mapping[str, VariantRuns], tuning: Tuning | None = None
) -> StudyEffects | None:
    """The same, of what was read already.

    Args:
        runs: Variant name to its trials.
        tuning: What was tuned for each variant.
    """
    record = main_part(record)
    factors = factors_of(record)
    if Target.of(record) is not None:  # ratios have no sums of effects
        return None
    values = counted_values(record, runs)
    ended = [variant for variant in record.variants if values.get(variant.name)]
    if not ended or not factors.switches or not crosses(ended, factors.switches, ()):
        return None
    observations, worse, diverged, slack = list[Observation](), list[Observation](), 0, list[float]()
    unit = 1.0 if record.objective["direction"] == "minimize" else -1.0
    regrets = {} if tuning is None else read_regrets(tuning, record.objective["direction"])
    schedule = seed_schedule(record)
    for variant in ended:
        lost = runs[variant.name].diverged
        for seed, value in values[variant.name].items():
            observations.append(Observation(variant.settings, seed, value))
            worse.append(Observation(variant.settings, seed, value + unit * (seed in lost)))
            slack.append(regrets.get(variant.name, 0.0))
        diverged += len(lost)
    effects, left_out = _estimate(observations, factors.switches, schedule, slack)
    moved = _estimate(worse, factors.switches, schedule, slack)[0] if diverged else effects
    awaited = (awaited_seeds(schedule, runs[variant.name]) for variant in record.variants)
    estimates = {effect.term.name: effect.estimate for effect in moved.effects}
    carried: dict[str, list[str]] = {}
    for alias, others in effects.aliased.items():
        for other in others:
            carried.setdefault(other, []).append(alias)
    rows = [
        EffectRow(
            effect.term.settings,
            effect.estimate,
            effect.low,
            effect.high,
            tuple(carried.get(effect.term.name, ())),
            estimates[effect.term.name] - effect.estimate,
            *((effect.fall, effect.rise) if unit > 0 else (effect.rise, effect.fall)),
        )
        for effect in effects.effects
    ]
    titles = effect_titles(record, [*(row.name for row in rows), *effects.aliased])
    return StudyEffects(
        metric=record.objective["metric"],
        direction=record.objective["direction"],
        margin=float(record.objective["margin"]),
        main=tuple(row for row in rows if len(row.settings) == 1),
        interactions=tuple(row for row in rows if len(row.settings) == 2),
        unseen=tuple(name for name, others in effects.aliased.items() if not others),
        interactions_left_out=left_out,
        sd=effects.sd,
        degrees=effects.degrees,
        trials=len(observations),
        diverged=diverged,
        counted_as=worst_value(record, runs) if diverged else None,
        pruned=sum(len(run.pruned) for run in runs.values()),
        axes=tuple(factors.axes),
        chosen=record.traits.chooses,
        withheld=next(filter(None, awaited), "") or nothing_learnt_by(record, runs),
        titles=titles,
        asked=tuple(row.name for row in rows if _asks_for(record.question, row, titles)),
    )


def _asks_for(question: str, row: EffectRow, titles: Mapping[str, str]) -> bool:
    """Whether a question names both settings of an interaction, or of one that cannot be told from it, by a word."""

    def words(text: str) -> set[str]:
        return {word.removesuffix("s") for word in re.findall(r"[a-z]+", text.lower()) if len(word) >= _LEAST_LETTERS}

    of_pairs = (titles[name].split(" × ") for name in (row.name, *row.aliases) if name.count(":") == 1)
    return any(all(words(part) & words(question) for part in pair) for pair in of_pairs)


def setting_means(
    record: StudyRecord, runs: Mapping[str, VariantRuns], row: EffectRow
) -> dict[tuple[bool, ...], Interval]:
    """The means that an effect is a difference of: whether each of its settings is active, to the mean objective.

    A mean is over the seeds, and at each seed over the settings of the other switches that ended.

    Returns:
        Nothing where trials are missing or unbalanced, so that the effect is not the difference of these means.
    """
    record = main_part(record)
    values = counted_values(record, runs)
    found: dict[tuple[bool, ...], dict[int, list[float]]] = {}
    for name, active in active_settings(record, row).items():
        by_seed = found.setdefault(active, {})
        for seed, value in values.get(name, {}).items():
            by_seed.setdefault(seed, []).append(value)
    means = {active: mean_interval(map(fmean, by_seed.values())) for active, by_seed in found.items()}
    signs = ((one.mean, (-1) ** active.count(False)) for active, one in means.items())
    contrast = math.fsum(sign * mean for mean, sign in signs if mean is not None)
    whole = len(means) == 2 ** len(row.settings) and math.isclose(contrast, row.estimate, abs_tol=_ROUNDING)
    return means if whole else {}


def active_settings(record: StudyRecord, row: EffectRow) -> dict[str, tuple[bool, ...]]:
    """Variant to whether each setting of an effect is active in it, of those with it or the switch's first setting."""
    record = main_part(record)
    switches = factors_of(record).switches
    found = {}
    for variant in record.variants:
        own = [(variant.settings[switch], switches[switch][0], setting) for switch, setting in row.settings]
        if all(here in (first, setting) for here, first, setting in own):
            found[variant.name] = tuple(here == setting for here, _, setting in own)
    return found


def trials_by_effect(
    record: StudyRecord, runs: Mapping[str, VariantRuns], effects: StudyEffects
) -> list[tuple[dict[str, bool], float]]:
    """Each trial that ended: name of a main effect to whether its setting is active there, and the objective."""
    active = {row.name: active_settings(record, row) for row in effects.main}
    return [
        ({effect: of[name] == (True,) for effect, of in active.items() if name in of}, value)
        for name, values in counted_values(main_part(record), runs).items()
        for value in values.values()
    ]


def worst_value(record: StudyRecord, runs: Mapping[str, VariantRuns]) -> float | None:
    """The worst objective with which a trial of the study finished; None if none did."""
    values = [value for run in runs.values() for value in run.values(record.objective["metric"]).values()]
    if not values:
        return None
    return max(values) if record.objective["direction"] == "minimize" else min(values)


def counted_values(record: StudyRecord, runs: Mapping[str, VariantRuns]) -> dict[str, dict[int, float]]:
    """Variant to seed to the objective of its trials that ended: the worst value for those that diverged.

    Empty if no trial finished.
    """
    worst = worst_value(record, runs)
    if worst is None:
        return {}
    found = {variant.name: runs[variant.name] for variant in record.variants}
    return {
        name: run.values(record.objective["metric"]) | dict.fromkeys(run.diverged, worst) for name, run in found.items()
    }


def _estimate(
    observations: list[Observation],
    switches: Mapping[str, tuple[str, ...]],
    schedule: SeedPlan | None,
    slack: Sequence[float],
) -> tuple[Effects, bool]:
    """Effects with interactions, if each confounded effect is an alias of one other; else main effects alone.

    In a regular fraction an interaction is the alias of one other effect, which the table names. In other designs it is
    a mixture of many effects, which would bias the estimates.
    """
    steps = [len(settings) - 1 for settings in switches.values()]
    if (sum(steps) ** 2 - sum(step**2 for step in steps)) // 2 <= MOST_TERMS:
        effects = estimate_effects(observations, switches, schedule=schedule, slack=slack)
        if all(len(others) <= 1 for others in effects.aliased.values()):
            return effects, False
    effects = estimate_effects(observations, switches, interactions=False, schedule=schedule, slack=slack)
    return effects, True


LEAST = 4
"""Minimum number of variants for importances."""


@dataclass(frozen=True, slots=True)
class StudyImportances:
    """The importances of a study.

    Attributes:
        factors: Of each switch and numeric axis, the most important first.
        rest: What no factor explains by itself: interactions and noise; between 0 and 1.
        variants: How many variants they rest on.
        seeds: How many seeds.
        diverged: How many trials diverged and counted as the worst value.
        pruned: How many trials were stopped early; they have no final value and are left out.
    """

    factors: tuple[Importance, ...]
    rest: float
    variants: int
    seeds: int
    diverged: int
    pruned: int


def read_importances(store: StudyReader, name: str) -> StudyImportances | None:
    """The importances of a study; None if it does not cross at least two things, or fewer than four variants ended.

    Takes about 2 s for 64 variants, 25 s for 1,000.

    Raises:
        NotFoundError: The store holds no such study.
        MissingPackageError: Optuna or scikit-learn is not installed.
    """
    record = store.study(name)
    return importances_of(record, read_runs(store, record, record.objective["metric"]))


def importances_of(record: StudyRecord, runs: Mapping[str, VariantRuns]) -> StudyImportances | None:
    """The same, of what was read already.

    Args:
        runs: Variant name to its trials.

    Raises:
        MissingPackageError: Optuna or scikit-learn is not installed.
    """
    record = main_part(record)
    varying, values = factors_of(record), counted_values(record, runs)
    factors = _factors(varying)
    if len(factors) < 2:
        return None
    used, configurations, diverged = [], [], 0
    for variant in record.variants:
        places, own = _levels(variant, varying), values.get(variant.name)
        if places is not None and own:
            used.append(variant)
            configurations.append(Configuration(places, own))
            diverged += len(runs[variant.name].diverged)
    if len(used) < LEAST or not crosses(used, varying.switches, list(varying.axes)):
        return None
    require("search", "the importance of a switch (fANOVA)")
    shares = importances(configurations, factors)
    if not shares:
        return None
    return StudyImportances(
        factors=tuple(sorted(shares, key=lambda one: -one.share)),
        rest=max(0.0, 1.0 - math.fsum(share.share for share in shares)),
        variants=len(configurations),
        seeds=len({seed for configuration in configurations for seed in configuration.values}),
        diverged=diverged,
        pruned=sum(len(run.pruned) for run in runs.values()),
    )


def _factors(varying: Factors) -> dict[str, Factor]:
    switches = {switch: Factor(settings=len(settings)) for switch, settings in varying.switches.items()}
    axes = {}
    for axis, values in varying.axes.items():
        low, high = (_scale(value, values) for value in (values[0], values[-1]))
        axes[axis] = Factor(low=low, high=high)
    return switches | axes


def _levels(variant: VariantRecord, varying: Factors) -> dict[str, float] | None:
    """The level of a variant on each factor; None if it has none on a numeric axis."""
    places: dict[str, float] = {
        switch: settings.index(variant.settings[switch]) for switch, settings in varying.switches.items()
    }
    for axis, values in varying.axes.items():
        at = axis_value(variant, axis)
        if at is None:
            return None
        places[axis] = _scale(at, values)
    return places


def _scale(value: float, values: tuple[float, ...]) -> float:
    return math.log(value) if is_logarithmic(values) else value
