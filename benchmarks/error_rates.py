"""How often verdicts, intervals and estimates are wrong as people use the tool, beside what is promised.

`python -m benchmarks error_rates [--quick] [--json]`: simulated studies of known truth go through the decision code of
reports, from the numbers of trials to words. Each row gives the promised rate at which the case may be wrong, the
measured one with its Monte Carlo error, and the power that is left: how often a part whose removal changes nothing is
judged `not needed` in the same setting. The exit code is 1 if a case lies above its promise by more than that error.

Shapes: V variants, N paired seeds; differences are oriented so that positive is worse.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from ablate.analysis.answer import answer_of
from ablate.analysis.path import read_path
from ablate.analysis.study import read_study
from ablate.designs.search import SearchSpec
from ablate.designs.simplify import SimplifySpec
from ablate.stats import (
    Allowance,
    ExtendedSeeds,
    Observation,
    PairedDifference,
    SeedPlan,
    SeedSchedule,
    Verdict,
    estimate_effects,
    hold_together,
    judge,
    need_more_seeds,
    over_looks,
    paired_difference,
    summarise,
    tails_at_looks,
    tails_of,
)
from ablate.stats.calibrate import Rate, calibrate, decide, pooled_noise, rate
from ablate.stats.further import advised_schedule
from ablate.stats.hidden_noise import regret_bound, tuning_noise
from ablate.stats.scaling_law import Rung, climb
from ablate.stats.schedule import ERROR
from ablate.stats.trend import MOVING, bends, course_word, movements
from ablate.store.records import CurvePoint, DeclaredObjective, SpeedTiming, TrialState
from benchmarks.studies_in_memory import DIRECTION, MARGIN, SD, MemoryStore, study_in_memory, study_of

Matrix = NDArray[np.float64]
Noise = Callable[[np.random.Generator, tuple[int, int]], Matrix]


@dataclass(frozen=True, slots=True)
class Case:
    """A case as it was measured.

    Attributes:
        name: What people do.
        promised: How often it may be wrong; None where reports say that they promise nothing.
        measured: How often it was.
        error: Half of the 95 % Monte Carlo interval.
        power: How often a part whose removal changes nothing is judged `not needed` there; None where no verdict is.
        limit: The condition of the promise, where it has one.
    """

    name: str
    promised: float | None
    measured: float
    error: float
    power: float | None = None
    limit: str = ""

    @property
    def holds(self) -> bool:
        """Whether the case is not above its promise by more than Monte Carlo error."""
        return self.promised is None or self.measured - self.error <= self.promised


Measure = Callable[[np.random.Generator, int], Iterator[Case]]


def judged(row: Iterable[float], plan: SeedPlan | None = None, allowance: Allowance = Allowance()) -> Verdict:  # noqa: B008
    """The verdict on differences, seed by seed."""
    values = dict(enumerate(map(float, row)))
    return judge(
        values,
        dict.fromkeys(values, 0.0),
        margin=MARGIN,
        direction=DIRECTION,
        schedule=plan,
        allowance=allowance,
    )


def said_of(store: MemoryStore, variant: str) -> str:
    """The word of the report on a variant."""
    return next(row.verdict_word for row in read_study(store, "study").variants if row.name == variant)


def case(
    name: str, promised: float | None, wrong: list[bool], power: list[bool] | float | None = None, limit: str = ""
) -> Case:
    """A case of single outcomes."""
    error_rate: Rate = rate(np.array(wrong))
    measured_power = float(np.mean(power)) if isinstance(power, list) else power
    return Case(
        name,
        promised,
        error_rate.share,
        max(error_rate.high - error_rate.share, error_rate.share - error_rate.low),
        measured_power,
        limit,
    )


def extending(rng: np.random.Generator, times: int) -> Iterator[Case]:
    """The tool's own advice is followed: seeds are added to what is undecided, as its answer says."""

    def followed(row: Matrix) -> str:
        verdict = judged(row[:3])
        if verdict.word != "undecided" or verdict.further_seeds is None:
            return verdict.word
        advised = advised_schedule(3, verdict.further_seeds, lost=0)
        return verdict.word if advised is None else judged(row[: advised.max], ExtendedSeeds((3, advised))).word

    def raised(row: Matrix) -> str:
        declared = [3]
        verdict = judged(row[:3])
        while (
            verdict.word == "undecided" and verdict.further_seeds and declared[-1] + verdict.further_seeds <= len(row)
        ):
            declared.append(declared[-1] + verdict.further_seeds)
            verdict = judged(row[: declared[-1]], ExtendedSeeds(tuple(declared)))
        return verdict.word

    limit = "6 %: the first look has the whole 5 %, all additions together at most 1 % more"
    for name, follow in (("schedule that the answer advises", followed), ("`seeds: 3` raised again and again", raised)):
        at_margin = [follow(row) for row in MARGIN + rng.normal(0, SD, (times, 50))]
        power = [follow(row) == "not needed" for row in rng.normal(0.02, SD, (times // 4, 50))]
        for word in ("needed", "not needed"):
            yield case(f"1 {name}: {word}", 0.06, [one == word for one in at_margin], power, limit)


def promised_seeds(rng: np.random.Generator, times: int) -> Iterator[Case]:
    """The answer says that so many more seeds decide with this chance; they are added."""

    def followed(distance: Callable[[], float], seeds: int) -> tuple[list[float], list[bool]]:
        missed, undecided = [], []
        for _ in range(times // 2):
            row = MARGIN + distance() + rng.normal(0, SD, seeds + 100)
            verdict = judged(row[:seeds])
            if verdict.further_seeds is not None and verdict.chance is not None:
                total = seeds + verdict.further_seeds
                missed.append(1 - verdict.chance)
                undecided.append(not judged(row[:total], ExtendedSeeds((seeds, total))).is_decided)
        return missed, undecided

    for seeds in (3, 5):
        missed, undecided = followed(lambda: rng.uniform(-8, 8) * SD, seeds)
        yield case(f"13 added as said to {seeds} seeds: still undecided", float(np.mean(missed)), undecided)
        _, undecided = followed(lambda: -0.2 * MARGIN, seeds)
        limit = "the chance is an average over differences; it is smaller near the margin"
        name = f"13 the same, a difference of 0.8 margins, {seeds} seeds: still undecided"
        yield case(name, None, undecided, None, limit)


def lognormal(rng: np.random.Generator, shape: tuple[int, int]) -> Matrix:
    """Standard deviation `SD` and a long tail towards worse: sigma is 1."""
    noise: Matrix = SD * (rng.lognormal(0.0, 1.0, shape) - math.exp(0.5)) / math.sqrt((math.e - 1) * math.e)
    return noise


def rare(rng: np.random.Generator, shape: tuple[int, int]) -> Matrix:
    """One seed in ten ends 0.5 worse."""
    noise: Matrix = rng.normal(0.0, SD, shape) + 0.5 * (rng.random(shape) < 0.1) - 0.05
    return noise


def unpaired(rng: np.random.Generator, times: int) -> Iterator[Case]:
    """Runs of other people that share no seed: two means, of sides with other numbers of runs and other spreads."""

    def word_of(truth: float, runs: tuple[int, int], spreads: tuple[float, float]) -> str:
        ours, theirs = (dict(enumerate(rng.normal(0, SD * sd, n))) for n, sd in zip(runs, spreads, strict=True))
        shifted = {run: truth + value for run, value in ours.items()}
        return judge(shifted, theirs, margin=MARGIN, direction=DIRECTION, paired=False).word

    for runs, spreads in (((3, 3), (1, 1)), ((10, 9), (1, 1)), ((3, 10), (1, 3)), ((10, 3), (1, 3)), ((5, 5), (3, 1))):
        at_margin = [word_of(MARGIN, runs, spreads) for _ in range(times)]
        power = [word_of(0.0, runs, spreads) == "not needed" for _ in range(times // 4)]
        fewer_scatter_more = (runs[0] - runs[1]) * (spreads[0] - spreads[1]) < 0
        promised = 0.06 if fewer_scatter_more else ERROR
        limit = "6 %: Welch's test where the side with fewer runs scatters more" if fewer_scatter_more else ""
        for wrong in ("needed", "not needed"):
            name = f"16 not paired, {runs[0]} and {runs[1]} runs, spread {spreads[0]} and {spreads[1]}: {wrong}"
            yield case(name, promised, [word == wrong for word in at_margin], power, limit)


def heavy(rng: np.random.Generator, shape: tuple[int, int]) -> Matrix:
    """Standard deviation `SD`, most seeds a little better and few far worse: gamma noise of shape 0.5."""
    noise: Matrix = SD * (rng.gamma(0.5, 1.0, shape) - 0.5) / math.sqrt(0.5)
    return noise


def mild(rng: np.random.Generator, shape: tuple[int, int]) -> Matrix:
    """Standard deviation `SD` and a tail that few seeds hardly show: gamma noise of shape 2."""
    noise: Matrix = SD * (rng.gamma(2.0, 1.0, shape) - 2.0) / math.sqrt(2.0)
    return noise


def normal(rng: np.random.Generator, shape: tuple[int, int]) -> Matrix:
    """Standard deviation `SD`, and no tail."""
    return rng.normal(0.0, SD, shape)


def sixth(rng: np.random.Generator, shape: tuple[int, int]) -> Matrix:
    """One seed in six ends three standard deviations worse."""
    noise: Matrix = rng.normal(0.0, SD, shape) + 3 * SD * ((rng.random(shape) < 1 / 6) - 1 / 6)
    return noise


def skewed(rng: np.random.Generator, times: int) -> Iterator[Case]:
    """Noise with a long tail on one side, in a study of several comparisons and in one alone."""

    def words(differences: Matrix) -> list[str]:
        allowance = Allowance(tails=tails_of(differences.tolist()))
        return [judged(row, allowance=allowance).word for row in differences]

    noises: tuple[tuple[str, Noise], ...] = (("lognormal, sigma 1", lognormal), ("one seed in ten 0.5 worse", rare))
    for name, noise in noises:
        for shape in ((8, 10), (4, 20), (1, 30)):
            studies = max(60, times // (2 * shape[0]))
            wrong = [w == "not needed" for _ in range(studies) for w in words(MARGIN + noise(rng, shape))]
            power = [w == "not needed" for _ in range(studies // 4) for w in words(0.02 + noise(rng, shape))]
            limit = "enough trials to show the tail: 8 comparisons of 10 seeds, 4 of 20, or 30 seeds alone"
            yield case(f"2 {name}, {shape[0]} x {shape[1]} seeds", ERROR, wrong, power, limit)
    for shape in ((10, 4), (8, 5)):
        studies = max(60, times // (2 * shape[0]))
        wrong = [w == "not needed" for _ in range(studies) for w in words(MARGIN + heavy(rng, shape))]
        power = [w == "not needed" for _ in range(studies) for w in words(rng.normal(0.0, SD, shape))]
        limit = "power: under normal noise"
        yield case(f"2 gamma, shape 0.5, {shape[0]} x {shape[1]} seeds", ERROR, wrong, power, limit)
    for name, noise in (("gamma, shape 0.5", heavy), ("normal", normal)):

        def beside_broken(truth: float, noise: Noise = noise) -> list[str]:
            broken = 6 + 15 * SD * rng.gamma(1.0, 1.0, (1, 5))
            return words(np.concatenate([truth + noise(rng, (7, 5)), broken]))[:-1]

        studies = max(60, times // 14)
        wrong = [w == "not needed" for _ in range(studies) for w in beside_broken(MARGIN)]
        power = [w == "not needed" for _ in range(studies) for w in beside_broken(0.0)]
        yield case(f"2 {name}, 7 x 5 seeds beside a variant of 15 times the noise", ERROR, wrong, power)
    # Below that nothing can be valid: a comparison of whose seeds none ended badly does not know that some do.
    few: tuple[tuple[str, Noise, int, int], ...] = (
        ("gamma, shape 0.5", heavy, 8, 3),
        ("gamma, shape 0.5", heavy, 1, 5),
        ("gamma, shape 2", mild, 10, 4),
        ("one seed in six 3 sd worse", sixth, 10, 4),
        ("one seed in ten 0.5 worse", rare, 1, 3),
        ("one seed in ten 0.5 worse", rare, 4, 5),
    )
    for name, noise, variants, seeds in few:
        studies = max(60, times // (2 * variants))
        wrong = [w == "not needed" for _ in range(studies) for w in words(MARGIN + noise(rng, (variants, seeds)))]
        limit = f"the table says that a verdict assumes symmetric noise, which {seeds} seeds are too few to check"
        yield case(f"2 {name}, {variants} x {seeds} seeds", None, wrong, None, limit)


def covered(rng: np.random.Generator, times: int) -> Iterator[Case]:
    """The interval that is printed beside a difference, for noise with tails."""

    def missed(noise: Noise, shape: tuple[int, int]) -> Iterator[bool]:
        for _ in range(max(60, times // (2 * shape[0]))):
            study = noise(rng, shape).tolist()
            allowance = Allowance(tails=tails_of(study))
            for row in study:
                shown = over_looks(summarise(row), None, allowance=allowance)
                assert shown.low is not None
                assert shown.high is not None
                yield not shown.low <= 0.0 <= shown.high

    def two_tails(rng: np.random.Generator, shape: tuple[int, int]) -> Matrix:
        noise: Matrix = SD * rng.standard_t(3, shape)
        return noise

    cases: tuple[tuple[str, Noise, int, int, float | None], ...] = (
        ("t of 3 degrees", two_tails, 1, 30, ERROR),
        ("gamma, shape 0.5", heavy, 8, 5, ERROR),
        ("gamma, shape 0.5", heavy, 8, 10, ERROR),
        ("gamma, shape 0.5", heavy, 1, 30, ERROR),
        ("gamma, shape 0.5", heavy, 8, 3, None),
        ("gamma, shape 0.5", heavy, 1, 10, None),
    )
    for name, noise, variants, seeds, promised in cases:
        limit = "" if promised else f"as the verdicts: {seeds} seeds are too few to check that noise is symmetric"
        wrong = list(missed(noise, (variants, seeds)))
        yield case(f"12 interval, {name}, {variants} x {seeds} seeds: misses", promised, wrong, None, limit)


def tuned(rng: np.random.Generator, times: int) -> Iterator[Case]:
    """Each variant takes the learning rate that was best with two tuning seeds; some baselines are noisier than it."""
    noises = {regret: np.ones(2) for regret in (1.0, 2.0, 3.0)}
    cases = [*noises.items(), (4.0, np.array([1.0, 3.0])), (6.0, np.array([1.0, 3.0]))]
    for regret, noise in cases:
        regrets = SD * regret * np.array([0.0, 1.0, 1.0])
        words: dict[float, list[str]] = {MARGIN: [], 0.0: []}
        for truth, verdicts in words.items():
            for _ in range(times // (1 if truth else 4)):
                tried = regrets[:, None] + noise[:, None, None] * rng.normal(0, SD, (2, 3, 2))
                chosen = tried.mean(axis=2).argmin(axis=1)
                sides = [[dict(enumerate(one)) for one in side] for side in tried.tolist()]
                bound = [
                    regret_bound(side, int(at), *tuning_noise([side])) for side, at in zip(sides, chosen, strict=True)
                ]
                shift = truth + regrets[chosen[0]] - regrets[chosen[1]]
                row = shift + rng.normal(0, SD, 10)
                verdicts.append(judged(row, allowance=Allowance(low=bound[0], high=bound[1])).word)
        power = [word == "not needed" for word in words[0.0]]
        for word in ("needed", "not needed"):
            wrong = [one == word for one in words[MARGIN]]
            baseline = ", baseline 3 times as noisy" if noise[1] > 1 else ""
            yield case(f"3 tuned with two seeds, regret {regret:g} sd{baseline}: {word}", ERROR, wrong, power)


def crossed(rng: np.random.Generator, times: int) -> Iterator[Case]:
    """Intervals of main effects and interactions where what a switch does differs from seed to seed."""
    switches = dict.fromkeys("abcd", ("on", "off"))
    corners = [dict(zip(switches, row, strict=True)) for row in _product(4)]
    for seeds in (3, 6):
        missed = []
        for _ in range(max(30, times // 4)):
            own = {seed: rng.normal(0, 0.02, 4) for seed in range(seeds)}
            observations = [
                Observation(
                    corner,
                    seed,
                    float(sum(by for by, s in zip(own[seed], corner.values(), strict=True) if s == "off"))
                    + float(rng.normal(0, 0.01)),
                )
                for seed in range(seeds)
                for corner in corners
            ]
            for effect in estimate_effects(observations, switches).effects:
                assert effect.low is not None
                assert effect.high is not None
                if len(effect.term.settings) == 1:
                    missed.append(not effect.low <= 0.0 <= effect.high)
        yield case(f"4 effects of a crossed design, {seeds} seeds: intervals miss", ERROR, missed)


def _product(switches: int) -> list[tuple[str, ...]]:
    return [tuple("off" if number >> bit & 1 else "on" for bit in range(switches)) for number in range(2**switches)]


def simplifying(rng: np.random.Generator, times: int) -> Iterator[Case]:
    """`simplify` where every removal alone costs exactly the margin, or any number of them together does."""
    spec = SimplifySpec(kind="simplify", seeds=3)
    for switches in (5, 10):

        def at_margin(settings: Mapping[str, str]) -> float:
            return MARGIN * ("off" in settings.values())

        ended, missed = [], []
        for _ in range(max(40, times // switches)):
            path = read_path(study_in_memory(spec, switches, at_margin, rng), "study")
            assert path is not None
            ended.append(bool(path.confirmed))
            for one in path.confirmations:
                assert one.difference.low is not None
                assert one.difference.high is not None
                missed.append(not one.difference.low <= MARGIN <= one.difference.high)
        harmless = [
            bool((path := read_path(study_in_memory(spec, 3, lambda settings: 0.0, rng), "study")) and path.confirmed)
            for _ in range(max(20, times // 20))
        ]
        yield case(f"5 simplify, {switches} removals at the margin: confirmed path ends there", ERROR, ended, harmless)
        if missed:
            yield case(f"5 simplify, {switches} removals: interval of a confirmed step misses", ERROR, missed)


def searching(rng: np.random.Generator, times: int) -> Iterator[Case]:
    """A random search over 40 points that are all worse by the margin: is any called not worse?"""
    spec = SearchSpec(kind="search", sampler="random", points=40, seeds=3, batch=40)

    def called_fine(worse: float) -> bool:
        store = study_in_memory(spec, 6, lambda settings: worse * ("off" in settings.values()), rng)
        rows = read_study(store, "study").variants
        return any(row.verdict is not None and row.verdict.word == "not needed" for row in rows)

    wrong = [called_fine(MARGIN) for _ in range(max(20, times // 10))]
    power = [called_fine(0.0) for _ in range(max(10, times // 40))]
    yield case("6 search over 40 points at the margin: any of them `not worse`", ERROR, wrong, power)


def improving(rng: np.random.Generator, times: int) -> Iterator[Case]:
    """Parts whose removal, or whose replacement, improves the metric by exactly the margin: `better` is wrong."""
    plans: tuple[tuple[str, SeedPlan | None, int, float], ...] = (
        ("3 seeds", None, 3, ERROR),
        ("10 seeds", None, 10, ERROR),
        ("`seeds: {start: 3, max: 20}`", SeedSchedule(3, 20), 20, ERROR),
        ("`seeds: 3`, then 10", ExtendedSeeds((3, 10)), 10, 0.06),
    )
    for name, plan, seeds, promised in plans:
        wrong, power = (
            [judged(row, plan).word == "better" for row in truth + rng.normal(0, SD, (times // share, seeds))]
            for truth, share in ((-MARGIN, 1), (-3 * MARGIN, 4))
        )
        yield case(f"11 better, {name}", promised, wrong, power, "power: better by three margins")
    jointly = []
    for _ in range(times // 4):
        noise = rng.normal(0, SD / math.sqrt(2), (7, 5))  # six variants and the baseline that they share
        verdicts = {str(place): judged(row) for place, row in enumerate(-MARGIN + noise[1:] - noise[0])}
        jointly.append(any(verdicts[name].word == "better" for name in hold_together(verdicts)))
    yield case("11 better, 6 comparisons of 5 seeds: any that holds jointly", ERROR, jointly)


def failing(rng: np.random.Generator, times: int) -> Iterator[Case]:
    """The worst of a variant's trials failed, or the worst of the baseline's diverged."""
    for seeds, lost in ((5, 1), (10, 4)):
        wrong, power = (
            [
                judged(row[: seeds - lost], allowance=Allowance(high=math.inf)).word == "not needed"
                for row in np.sort(truth + rng.normal(0, SD, (times, seeds)), axis=1)
            ]
            for truth in (MARGIN, 0.0)
        )
        yield case(f"7 the {lost} worst of {seeds} trials failed: not needed", ERROR, wrong, power)
    for worse in (0.0, 1.0):  # than the trivial baseline, which then does not bound how badly a trial may end
        wrong = []
        for _ in range(times // 4):
            row = np.sort(3.0 + MARGIN + rng.normal(0, SD, 10))
            results: dict[str, list[float | TrialState]] = {
                "baseline": rng.normal(3.0, SD / 2, 10).tolist(),
                "v": [*row[:5].tolist(), *[TrialState.FAILED] * 5],
            }
            made = study_of(results, trivial=3.0 + 2 * MARGIN - worse)
            wrong.append(said_of(made, "v") in ("not needed", "better"))
        name = "worse than" if worse else "near"
        yield case(f"7 the 5 worst of 10 trials failed, all {name} the trivial baseline: not needed", ERROR, wrong)
    for seeds, lost in ((5, 1), (10, 3)):
        wrong, power = [], []
        for truth, words in ((MARGIN, wrong), (0.0, power)):
            for _ in range(times // 4):
                ends = np.sort(rng.normal(3.0, SD, seeds))
                results = {
                    "baseline": [*ends[: seeds - lost].tolist(), *[TrialState.DIVERGED] * lost],
                    "v": (3.0 + truth + rng.normal(0, SD, seeds)).tolist(),
                }
                made = study_of(results)
                words.append(said_of(made, "v") == ("needed" if truth else "not needed"))
        yield case(f"7 the baseline diverged at its {lost} worst of {seeds} seeds: needed", ERROR, wrong, power)


def scheduled(rng: np.random.Generator, times: int) -> Iterator[Case]:
    """The interval printed beside a schedule, when it stopped."""
    plan, missed, power = SeedSchedule(3, 20), [], []
    for truth in (MARGIN, 0.03, 0.0):
        drawn = truth + rng.normal(0, SD, (times, 20))
        decided = decide(drawn, MARGIN, plan)
        for row, used in zip(drawn, decided.seeds, strict=True):
            difference: PairedDifference = over_looks(summarise(row[:used].tolist()), plan)
            assert difference.low is not None
            assert difference.high is not None
            missed.append(not difference.low <= truth <= difference.high)
        if not truth:
            power = decided.not_needed.tolist()
    yield case("8 interval beside `seeds: {start: 3, max: 20}` misses", ERROR, missed, power)


def reopened(rng: np.random.Generator, times: int) -> Iterator[Case]:
    """Skewed noise and a schedule: does the answer decide what the design had decided when it added no more seeds?"""
    plan = SeedSchedule(5, 15)
    open_again = []
    for _ in range(max(10, times // 50)):
        drawn = np.array([0.0, 0.02, 0.03, MARGIN])[:, None] + lognormal(rng, (4, plan.max))
        zeros, asked = dict.fromkeys(range(plan.max), 0.0), {str(number): plan.start for number in range(4)}

        def seen(asked: Mapping[str, int] = asked, drawn: Matrix = drawn) -> dict[str, dict[int, float]]:
            return {name: dict(enumerate(drawn[int(name), :n].tolist())) for name, n in asked.items()}

        while more := need_more_seeds(seen(), zeros, margin=MARGIN, direction=DIRECTION, schedule=plan):
            asked |= {name: asked[name] + 1 for name in more}
        tails = tails_at_looks(((values, ()) for values in seen().values()), plan)
        words = {name: judged(values.values(), plan, Allowance(tails_at=tails)).word for name, values in seen().items()}
        open_again += [words[name] == "undecided" for name, n in asked.items() if n < plan.max]
    yield case("11 skewed noise, a schedule: a decision is undecided in the answer", 0.0, open_again)


def reading(rng: np.random.Generator, times: int) -> Iterator[Case]:
    """A study of ten seeds is read after each of them from the second on: does it ever say a wrong word?"""
    wrong: list[bool] = []
    power: list[bool] = []
    for truth, words in ((MARGIN, wrong), (0.0, power)):
        for _ in range(max(20, times // 20)):
            row = (3.0 + truth + rng.normal(0, SD, 10)).tolist()
            said = [
                said_of(
                    study_of({"baseline": [3.0] * 10, "v": [*row[:seen], *[TrialState.WAITING] * (10 - seen)]}), "v"
                )
                for seen in range(2, 11)
            ]
            words.append("not needed" in said if truth == MARGIN else said[-1] in ("not needed", "better"))
    yield case("12 a fixed study read after each of ten seeds: ever `not needed`", ERROR, wrong, power)


def confirming_again(rng: np.random.Generator, times: int) -> Iterator[Case]:
    """Five fresh seeds are raised to eight, twelve and sixteen until they confirm what was chosen."""
    wrong: list[bool] = []
    power: list[bool] = []
    for truth, words in ((MARGIN, wrong), (0.0, power)):
        for row in truth + rng.normal(0, SD, (times // 2, 16)):
            declared: tuple[int, ...] = ()
            for seeds in (5, 8, 12, 16):
                declared = (*declared, seeds)
                word = judged(row[:seeds], ExtendedSeeds(declared)).word
                if word in ("not needed", "better"):
                    break
            words.append(word in ("not needed", "better"))
    yield case("13 `confirm` raised until it holds: not needed", 0.06, wrong, power, "6 %, as other additions of seeds")


def along(rng: np.random.Generator, times: int) -> Iterator[Case]:
    """Differences at three budgets, with slopes that differ by seed: how often is a line called bent, and is a bend?"""
    places = np.array([1.0, 2.0, 4.0])
    for seeds in (3, 5):
        bent: dict[float, list[bool]] = {0.0: [], 0.1: []}
        for bend, found in bent.items():
            for _ in range(times // 4):
                line = rng.normal(0, SD, (seeds, 1)) + rng.normal(0.05, SD, (seeds, 1)) * np.log2(places)
                gaps = line + rng.normal(0, SD / 2, (seeds, 3)) - bend * (places == 4.0)
                found.append(bends({at: dict(enumerate(gaps[:, place].tolist())) for place, at in enumerate(places)}))
        limit = "power: the last step is 0.1 below the line"
        yield case(f"14 a line over three budgets, {seeds} seeds: bends", ERROR, bent[0.0], bent[0.1], limit)


def climbing(rng: np.random.Generator, times: int) -> Iterator[Case]:
    """Ladders, most of five rungs over a factor of 100: how often do intervals miss the truth at 10 times the compute?

    The baseline follows 1.5 + 0.5 (C / 1e13)^-0.3, with an exponent of 0.32 and a scale of 0.45 for the variant.
    """
    unit = 1e13
    settings: dict[str, dict[str, Any]] = {
        "3 seeds": {},
        "8 seeds": {"seeds": (8,) * 5},
        "3 seeds, noise 3 times as large on the smallest rung": {"small": 3.0},
        "3 seeds, differences that grow by 0.01 a decade": {"bend": 0.01},
        "3 seeds, the baseline of the largest rung 0.03 too high": {"mistuned": 0.03},
        "4 rungs over a factor of 28 with 4, 4, 3 and 2 seeds": {
            "computes": np.geomspace(3.2e11, 9e12, 4),
            "seeds": (4, 4, 3, 2),
        },
    }
    for name, setting in settings.items():
        bend, seeds = setting.get("bend", 0.0), setting.get("seeds", (3,) * 5)
        computes = setting.get("computes", np.geomspace(1e12, 1e14, 5))

        def variant(compute: float, bend: float = bend) -> float:
            return float(1.5 + 0.45 * (compute / unit) ** -0.32 + bend * max(0.0, math.log10(compute / unit)))

        def baseline(compute: float) -> float:
            return float(1.5 + 0.5 * (compute / unit) ** -0.3)

        target = 10 * computes[-1]
        truth = variant(target) - baseline(target)
        speedup = unit * (0.5 / (variant(target) - 1.5)) ** (1 / 0.3) / target
        missed: dict[str, list[bool]] = {"difference": [], "speedup": []}
        refused = []
        for _ in range(times // 8):
            rungs = []
            for place, compute in enumerate(computes):
                common, own, other = rng.normal(
                    0, 0.01 * setting.get("small", 1.0) ** (1 - place / 4), (3, seeds[place])
                )
                shift = setting.get("mistuned", 0.0) if place == 4 else 0.0
                losses = baseline(compute) + shift + common + own, variant(compute) + common + other
                rungs.append(Rung((compute, compute), *(dict(enumerate(side.tolist())) for side in losses)))
            ladder = climb(rungs)
            refused.append(ladder.difference is None)
            if ladder.difference is not None and ladder.speedup is not None:
                missed["difference"].append(not ladder.difference.low <= truth <= ladder.difference.high)
                missed["speedup"].append(not ladder.speedup.low <= speedup <= ladder.speedup.high)
        for what, misses in missed.items():
            promised = None if bend or setting.get("mistuned") else ERROR
            limit = f"extrapolation refused in {100 * np.mean(refused):.0f} %"
            limit += "" if promised else "; intervals hold only if the law does beyond the largest rung"
            yield case(f"15 ladder, {name}: interval of the {what} misses", promised, misses, None, limit)


def suites(rng: np.random.Generator, times: int) -> Iterator[Case]:
    """Three variants on four tasks, each worse by exactly the margin on every task, and so in the mean score."""
    trivial, seeds = {"a": 3.0, "b": 4.0, "c": 5.0, "d": 6.0}, 5
    margin = MARGIN * float(np.mean([1 / value for value in trivial.values()]))  # of the score; perfect is 0
    space: dict[str, Any] = {
        "tasks": {task: {"task": {}} for task in trivial},
        "aggregate": {"margin": margin, "perfect": 0.0, "trivial": trivial},
        "design": {"seeds": seeds},
    }
    words: dict[str, list[bool]] = {"needed": [], "not needed": []}
    missed, jointly, power = [], [], []
    for worse in (*[MARGIN] * max(20, times // 16), *[0.0] * max(10, times // 64)):
        shift = rng.normal(0, 0.05, (len(trivial), seeds))
        results: dict[str, list[float | TrialState]] = {
            f"{name}@task={task}": (2.0 + worse * (name != "baseline") + shift[place] + noise).tolist()
            for name in ("baseline", "u", "v", "w")
            for place, task in enumerate(trivial)
            for noise in (rng.normal(0, SD / math.sqrt(2), seeds),)
        }
        made = study_of(results)
        made.record = replace(made.record, space=space, baseline="baseline@task=a")
        report = read_study(made, "study")
        row = next(row for row in report.variants if row.name == "u")
        if not worse:
            power.append(row.verdict_word == "not needed")
            continue
        for word, wrong in words.items():
            wrong.append(row.verdict_word == word)
        assert row.difference is not None
        assert row.difference.low is not None
        assert row.difference.high is not None
        missed.append(not row.difference.low <= -margin <= row.difference.high)
        suite = answer_of(report).suite
        assert suite is not None
        jointly.append(
            {
                kind: any(
                    cell.jointly and (cell.verdict == "needed") == (kind == "needed")
                    for of in suite.rows[1:]
                    for cell in of.cells.values()
                )
                for kind in words
            }
        )
    for word, wrong in words.items():
        yield case(f"16 suite of 4 tasks, mean score: {word}", ERROR, wrong, power)
    yield case("16 suite of 4 tasks, interval of the mean score misses", ERROR, missed)
    for word in words:
        name = f"16 suite, 3 variants on 4 tasks: any {word} that holds jointly"
        yield case(name, ERROR, [of[word] for of in jointly])


def reaching(rng: np.random.Generator, times: int) -> Iterator[Case]:
    """The time to a target, read from noisy evaluations of runs, of which some may never reach it.

    Training is 1,000 steps with 40 evaluations, and the baseline needs about 600 steps. A variant at the margin needs
    5 % more steps, or as many steps of which each takes 5 % longer.
    """
    steps, reach, rounds = np.arange(0, 1001, 25), 1.9, 12

    def studied(slower: float, seeds: int, median: float, measure: str = "steps", lag: float = 0.0) -> str:
        made = study_of({name: [1.0] * seeds for name in ("baseline", "variant")})
        objective = {"reach": reach, "measure": measure}
        named = DeclaredObjective(metric=f"{measure}_to_{reach}", direction=DIRECTION, margin=MARGIN)
        made.record = replace(made.record, space={"objective": objective}, objective=named)
        shared = rng.normal(0, 0.1, seeds)
        for name, factor in (("baseline", 1.0), ("variant", slower)):
            own = shared + rng.normal(0, 0.02, seeds)
            for seed, scale in enumerate(median * factor * np.exp(own) / math.log(3.0 / 0.4)):
                losses = 1.5 + 3.0 * np.exp(-steps / scale) + rng.normal(0, 0.005, len(steps))
                made.curve_points[f"{name}/{seed}"] = tuple(
                    CurvePoint(int(step), 0.0, int(step), 0.0, None, float(loss))
                    for step, loss in zip(steps, losses, strict=True)
                )
        rates = np.exp(rng.normal(0, 0.02, (2, rounds)) - np.array([[lag], [0.0]]))
        made.timed["variant/0"] = (SpeedTiming("baseline", tuple(rates[0]), tuple(rates[1]), "cpu"),)
        return said_of(made, "variant")

    count, more = max(60, times // 4), math.log(1 + MARGIN)
    settings = {
        "steps": (1 + MARGIN, 600.0, "steps", 0.0, ERROR),
        "seconds, noise of 2 % between rounds": (1.0, 600.0, "seconds", more, ERROR),
        "steps, a third of the runs never reach it": (1 + MARGIN, 950.0, "steps", 0.0, ERROR),
    }
    for name, (slower, median, measure, lag, promised) in settings.items():
        for seeds in (4, 8):
            found = [studied(slower, seeds, median, measure, lag) for _ in range(count)]
            power = [studied(1.0, seeds, median, measure) == "not needed" for _ in range(count // 4)]
            for word in ("needed", "not needed"):
                wrong = [word_found == word for word_found in found]
                yield case(f"17 time to a target in {name}, {seeds} seeds: {word}", promised, wrong, power)


def calibrated(rng: np.random.Generator, times: int) -> Iterator[Case]:
    """The difference that a calibration promises to detect 4 times in 5, for the noisiest of eight variants."""
    sds, seeds = SD * np.array([0.5, 0.5, 0.5, 1, 1, 1, 2, 4]), 10
    wrong = []
    for _ in range(max(100, times // 2)):
        rows = sds[:, None] * rng.standard_normal((8, seeds))
        zeros = dict.fromkeys(range(seeds), 0.0)
        noise = pooled_noise(paired_difference(dict(enumerate(row)), zeros) for row in rows.tolist())
        assert noise is not None
        (power,) = calibrate(noise, MARGIN, (seeds,))
        verdict = judged(MARGIN + power.detectable_noisiest + sds[-1] * rng.standard_normal(seeds))
        wrong.append(verdict.word != "needed")  # one for each study: those of one study would share its estimate
    yield case("9 calibrate, the noisiest variant: not told at its distance", 0.2, wrong)


def moving(rng: np.random.Generator, times: int) -> Iterator[Case]:
    """The word on a course: differences that have settled at a level, with noise that lasts from point to point."""
    steps = [100.0 * number for number in range(1, 13)]
    length = steps[-1] / 3

    def words(seeds: int, moved: float) -> Iterator[str]:
        for _ in range(times):
            lasting = rng.normal(0, SD / 2, (seeds, len(steps))).cumsum(axis=1) / math.sqrt(len(steps))
            drift = MARGIN + moved * (np.array(steps) / length - 2)  # MARGIN + moved at the end
            moved_by = movements(
                steps, dict(enumerate((drift + lasting + rng.normal(0, SD / 2, lasting.shape)).tolist()))
            )
            assert moved_by is not None
            yield course_word(moved_by, MARGIN + moved, MARGIN)

    for seeds in (3, 5, 10):
        wrong = [word in MOVING for word in words(seeds, 0.1 * MARGIN)]
        power = [word == "growing" for word in words(seeds, 2 * MARGIN)]
        limit = "power: moves by twice the margin"
        yield case(f"10 course of {seeds} seeds, all but settled: growing or shrinking", ERROR, wrong, power, limit)
        wrong = [word == "settled" for word in words(seeds, MARGIN)]
        power = [word == "settled" for word in words(seeds, 0.0)]
        limit = "power: does not move"
        yield case(f"10 course of {seeds} seeds that moves by the margin: settled", ERROR, wrong, power, limit)


CASES: Mapping[str, Measure] = {
    "extending": extending,
    "promised_seeds": promised_seeds,
    "skewed": skewed,
    "covered": covered,
    "tuned": tuned,
    "crossed": crossed,
    "simplifying": simplifying,
    "searching": searching,
    "improving": improving,
    "failing": failing,
    "scheduled": scheduled,
    "reopened": reopened,
    "reading": reading,
    "confirming_again": confirming_again,
    "along": along,
    "calibrated": calibrated,
    "moving": moving,
    "unpaired": unpaired,
    "climbing": climbing,
    "suites": suites,
    "reaching": reaching,
}
FULL, QUICK, SMOKE = 8_000, 2_000, 150
"""Simulated comparisons of a case, about."""


def measure(times: int, seed: int = 0) -> list[Case]:
    """All cases."""
    return [
        simulated
        for number, simulate in enumerate(CASES.values())
        for simulated in simulate(np.random.default_rng([seed, number]), times)
    ]


def table(cases: Iterable[Case]) -> Table:
    """The cases as the documentation shows them."""
    made = Table("case", "promised", "measured", "power", "holds if", box=None)
    for one in cases:
        measured = f"{100 * one.measured:.1f} % ± {100 * one.error:.1f}{'' if one.holds else ' ABOVE'}"
        power = "" if one.power is None else f"{100 * one.power:.0f} %"
        made.add_row(one.name, _promise(one), measured, power, one.limit)
    return made


def _promise(one: Case) -> str:
    return "none" if one.promised is None else f"{100 * one.promised:.3g} %"


def markdown(cases: Iterable[Case]) -> Iterator[str]:
    """The cases as a table of the documentation."""
    yield "| case | promised | measured | power | holds if |"
    yield "|---|---|---|---|---|"
    for one in cases:
        measured = f"{100 * one.measured:.1f} ± {100 * one.error:.1f} %{'' if one.holds else ' **above**'}"
        power = "" if one.power is None else f"{100 * one.power:.0f} %"
        yield f"| {one.name} | {_promise(one)} | {measured} | {power} | {one.limit} |"


def campaign(arguments: list[str]) -> int:
    """Measure, print, and say by the exit code whether every promise holds."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks error_rates")
    parser.add_argument("--quick", action="store_true", help="about two minutes, with wider Monte Carlo error")
    parser.add_argument("--smoke", action="store_true", help="the smallest size, which shows only that it runs")
    parser.add_argument("--markdown", action="store_true", help="print the table as the documentation has it")
    parser.add_argument("--json", action="store_true", help="print the cases as JSON")
    options = parser.parse_args(arguments)
    cases = measure(SMOKE if options.smoke else QUICK if options.quick else FULL)
    if options.json:
        names = ("name", "promised", "measured", "error")
        print(json.dumps({"cases": [{name: asdict(one)[name] for name in names} for one in cases]}, indent=2))
    elif options.markdown:
        print("\n".join(markdown(cases)))
    else:
        Console(width=160).print(table(cases))
    return 0 if all(one.holds for one in cases) else 1
