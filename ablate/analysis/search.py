"""A search in words: what proposed its points, and what the best has with seeds that chose it and with fresh ones."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import Any

from ablate.analysis.answer import Answer
from ablate.analysis.changes import setting_names, setting_titles
from ablate.analysis.numbers import fixed, listed, plural
from ablate.analysis.report import StudyReport
from ablate.analysis.runs import VariantRuns, baselines_of
from ablate.analysis.slices import axis_value, factors_of
from ablate.spec.design import BASELINE
from ablate.store.records import StudyRecord

SAMPLERS = {
    "tpe": "a tree-structured Parzen estimator (TPE)",
    "gp": "a Gaussian process",
    "nsga2": "evolution (NSGA-II)",
    "nsga3": "evolution (NSGA-III)",
    "cmaes": "CMA-ES",
    "random": "chance",
}
"""Samplers of a search in words."""


def search_words(record: StudyRecord) -> str:
    """What proposed the points of a search, and from which settings and ranges, in a sentence; empty for others."""
    design: dict[str, Any] = record.space.get("design", {})
    if design.get("sampler") not in SAMPLERS:
        return ""
    ranges = design.get("ranges", {})
    options = (
        {}
        if design["sampler"] == "cmaes"
        else {name: [*settings] for name, settings in record.space.get("switches", {}).items()}
    )
    titles = setting_titles([*options, *ranges])
    called = setting_names(record)
    among = [
        f"{titles[name]} ({', '.join(dict.fromkeys(called(name, setting) for setting in settings))})"
        for name, settings in options.items()
    ]
    among += [
        f"{titles[path]} ({of['low']:g} to {of['high']:g}{', logarithmic' * bool(of.get('log'))})"
        for path, of in ranges.items()
    ]
    by = SAMPLERS[design["sampler"]]
    return f"Up to {design['points']} points with the baseline, proposed by {by} from: {'; '.join(among)}."


def best_confirmed(report: StudyReport, answer: Answer) -> str | None:
    """The variant of a search that fresh seeds judge the best; None without fresh seeds that have ended."""
    confirmed = {row.name for row in report.variants if row.confirmed}
    return next((row.variant for group in answer.groups for row in group.rows if row.variant in confirmed), None)


def fresh_values(
    report: StudyReport, answer: Answer, fresh: Mapping[str, VariantRuns]
) -> dict[str, tuple[str, list[float]]]:
    """The baseline and the chosen point with what they are called and their values with the fresh seeds of both.

    Args:
        fresh: Variant name to its trials with fresh seeds.
    """
    if (best := best_confirmed(report, answer)) is None:
        return {}
    base = baselines_of(report.record)[best]
    first, second = (fresh[name].values(report.metric) for name in (base, best))
    seeds = [seed for seed in first if seed in second]
    on = plural(len(seeds), "fresh seed")
    return {
        name: (f"{title}, {on}", [values[seed] for seed in seeds])
        for name, title, values in ((base, BASELINE, first), (best, "chosen", second))
        if seeds
    }


def kinds_of(record: StudyRecord) -> dict[str, str]:
    """Variant to the settings of its switches in words, `activation GELU`; of a search of numbers alone, a point."""
    switches, called = factors_of(record).switches, setting_names(record)
    titles = setting_titles(switches)
    return {
        variant.name: ", ".join(f"{titles[name]} {called(name, variant.settings[name])}" for name in switches)
        or "point"
        for variant in record.variants
    }


def what_best_has(report: StudyReport, answer: Answer) -> str:
    """The numbers of the baseline, and which settings of switches both have, in a sentence after the headline.

    Empty without fresh seeds.
    """
    record, factors, best = report.record, factors_of(report.record), best_confirmed(report, answer)
    if best is None:
        return ""
    base, kinds, titles = baselines_of(record)[best], kinds_of(record), setting_titles(factors.axes)
    (plain,) = (variant for variant in record.variants if variant.name == base)
    values = {titles[axis]: axis_value(plain, axis) for axis in factors.axes}
    known = [f"{title} {value:.4g}" for title, value in values.items() if value is not None]
    said = [f"the baseline has {listed(known)}"] if known else []
    if factors.switches:
        own, other = kinds[best], kinds[base]
        said.append(f"both have {own}" if own == other else f"the chosen one has {own}, the baseline {other}")
    text = "; ".join(said)
    return f"{text[0].upper()}{text[1:]}." if text else ""


def seed_pairs(first: Mapping[int, float], second: Mapping[int, float]) -> dict[str, tuple[float, float]]:
    """The values of two sides with each seed that both have, and their means last; empty without such a seed."""
    pairs = {f"seed {seed}": (first[seed], second[seed]) for seed in sorted(first.keys() & second.keys())}
    if not pairs:
        return {}
    before, after = zip(*pairs.values(), strict=True)
    return pairs | {"mean": (fmean(before), fmean(after))}


def which_seeds(
    report: StudyReport, answer: Answer, runs: Mapping[str, VariantRuns], fresh: Mapping[str, VariantRuns]
) -> str:
    """With which seeds the trials of a search were trained that a figure draws, and with which its answer, in words.

    Empty without fresh seeds.

    Args:
        runs: Variant name to its trials.
        fresh: The same of those that confirm.
    """
    best = best_confirmed(report, answer)
    if best is None:
        return ""
    decimals, told, metric = max(3, answer.decimals), list[tuple[list[str], str]](), report.metric
    for of in (runs, fresh):
        pairs = seed_pairs(of[baselines_of(report.record)[best]].values(metric), of[best].values(metric))
        if pairs:
            other, own = (fixed(value, decimals) for value in pairs["mean"])
            told.append(([name.removeprefix("seed ") for name in pairs][:-1], f"{own}, the baseline {other}"))
    if len(told) < 2:
        return ""
    (chose, of_chose), (confirm, _) = told
    return (
        f"Drawn: seed{'s' * (len(chose) > 1)} {listed(chose)}, which chose the best point and so flatter"
        f"{'s' * (len(chose) == 1)} it ({of_chose}). The answer rests on {plural(len(confirm), 'fresh seed')} alone."
    )
