"""Scaling laws of a ladder: against scipy's fit, against laws whose truth is known, and where they are refused."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy.optimize import least_squares
from scipy.stats import f, norm, t

from ablate.stats.scaling_law import _EXPONENTS, Law, Rung, WithBounds, _means, _Resamples, _start, climb, outcome

UNIT = 1e13


def law(irreducible: float, scale: float, exponent: float) -> Callable[[float], float]:
    return lambda compute: irreducible + scale * (compute / UNIT) ** -exponent


def rungs(
    baseline: Callable[[float], float],
    variant: Callable[[float], float],
    *,
    number: int = 5,
    seeds: int = 4,
    noise: float = 0.0,
    draw: int = 0,
) -> list[Rung]:
    """A factor of 100 in compute; half of the noise is common to both models of a seed."""
    rng = np.random.default_rng(draw)
    made = []
    for compute in np.geomspace(1e12, 1e14, number):
        common, own, other = rng.normal(0, noise, (3, seeds))
        base = dict(enumerate(baseline(compute) + common + own))
        made.append(Rung((compute, compute), base, dict(enumerate(variant(compute) + common + other))))
    return made


def test_a_variant_that_needs_a_third_less_compute_has_that_speedup_on_every_rung_and_beyond() -> None:
    baseline = law(1.5, 0.5, 0.3)
    found = climb(rungs(baseline, lambda compute: baseline(1.5 * compute), noise=1e-9))
    assert [speedup.value for speedup in found.speedups] == pytest.approx([1.5] * 5, rel=1e-6)
    assert found.speedup is not None
    assert found.speedup.value == pytest.approx(1.5, rel=1e-6)
    assert found.difference is not None
    assert found.difference.value == pytest.approx(baseline(1.5e15) - baseline(1e15), rel=1e-5)
    assert found.baseline.irreducible == found.variant.irreducible


def fewer_seeds(made: list[Rung]) -> list[Rung]:
    """The rungs with one seed less on each than on the one below it, but for the last two."""
    left = [made[0].seeds[place:] for place in range(len(made) - 1)]
    return [
        Rung(rung.compute, {seed: rung.baseline[seed] for seed in seeds}, rung.variant)
        for rung, seeds in zip(made, [*left, left[-1]], strict=True)
    ]


def fit_by_scipy(made: list[Rung], *, own: bool) -> tuple[float, np.ndarray]:
    """Sum of squared residuals in standard errors, and E of both, then A and alpha of each; E of each if `own`."""
    computes = np.array([rung.compute[0] for rung in made])
    means = np.array([rung.losses().mean(axis=0) for rung in made])
    variances = np.array([rung.losses().var(axis=0, ddof=1).mean() for rung in made])
    line = np.polynomial.Polynomial.fit(np.log(computes), np.log(variances), 1)
    seeds = np.array([len(rung.seeds) for rung in made])
    weights = np.sqrt(seeds * np.exp(-line(np.log(computes))))[:, None]

    def residuals(parameters: np.ndarray) -> np.ndarray:
        lowest, rest = parameters[[0, 0]] + [0, parameters[5] if own else 0], parameters[1:]
        fitted = [lowest[k] + rest[2 * k] * (computes / UNIT) ** -rest[2 * k + 1] for k in (0, 1)]
        return np.asarray((weights * (means - np.stack(fitted, axis=1))).ravel())

    start = (1.4, 0.4, 0.3, 0.4, 0.3, *([0.01] if own else []))
    found = least_squares(residuals, start, xtol=1e-15, ftol=1e-15, gtol=1e-15, x_scale="jac", max_nfev=5000)
    return 2 * found.cost, found.x


def test_the_laws_are_those_of_a_joint_least_squares_fit_by_scipy() -> None:
    made = fewer_seeds(rungs(law(1.5, 0.5, 0.3), law(1.5, 0.45, 0.33), noise=0.01, seeds=6, draw=3))
    found = climb(made)
    got = [found.baseline.irreducible, found.baseline.scale, found.baseline.exponent]
    got += [found.variant.scale, found.variant.exponent]
    assert got == pytest.approx(fit_by_scipy(made, own=False)[1], rel=1e-4)


@pytest.mark.parametrize("number", [4, 5])
def test_models_share_an_irreducible_loss_unless_an_f_test_against_the_noise_rejects_it(number: int) -> None:
    shares = []
    for draw in range(12):
        variant = law(1.5 + 0.01 * draw, 0.45, 0.3)
        made = fewer_seeds(rungs(law(1.5, 0.5, 0.3), variant, number=number, noise=0.004, seeds=6, draw=draw))
        gain = fit_by_scipy(made, own=False)[0] - fit_by_scipy(made, own=True)[0]
        found = climb(made)
        shares.append(found.baseline.irreducible == found.variant.irreducible)
        assert shares[-1] == (f.sf(gain, 1, sum(len(rung.seeds) - 1 for rung in made)) > 0.05), draw
    assert {True, False} <= set(shares)


def test_losses_without_noise_give_the_law_itself() -> None:
    found = climb(rungs(law(1.5, 0.5, 0.3), law(1.5, 0.4, 0.3)))
    assert (found.variant.irreducible, found.variant.scale) == pytest.approx((1.5, 0.4), rel=1e-4)
    alike = rungs(law(1.5, 0.5, 0.3), law(1.5, 0.4, 0.3), noise=0.003)
    alike[2] = rungs(law(1.5, 0.5, 0.3), law(1.5, 0.4, 0.3))[2]  # by chance without a spread
    assert climb(alike).variant.scale == pytest.approx(0.4, abs=0.03)


@pytest.mark.parametrize("seeds", [2, 3, 6])
def test_an_interval_is_that_of_student_where_one_rung_decides(seeds: int) -> None:
    """Only the first rung has noise, and the value is its variant's mean: t at its seeds less one, and the weights."""
    made = rungs(law(1.5, 0.5, 0.3), law(1.5, 0.5, 0.3), seeds=seeds, noise=0.01, draw=5)
    quiet = [made[0], *rungs(law(1.5, 0.5, 0.3), law(1.5, 0.5, 0.3), seeds=6)[1:]]
    means = _means(quiet)
    found = _Resamples.of(quiet, means).interval(means[:, 0, 1])
    assert found.value == pytest.approx(quiet[0].losses()[:, 1].mean())
    bounds = np.quantile(means[1:, 0, 1], [0.025, 0.975], method="nearest") - found.value
    widened = bounds * t.ppf(0.975, max(1, seeds - 2)) / norm.ppf(0.975)
    assert (found.low - found.value, found.high - found.value) == pytest.approx(widened, rel=1e-6)


def test_the_search_begins_at_the_law_itself_if_its_exponents_are_on_the_grid() -> None:
    logs, exponents = np.log([[0.1, 0.3, 1.0, 8.0], [0.1, 0.4, 2.0, 9.0]]), _EXPONENTS[[2, 5]]
    weights = np.array([[1.0, 2.0, 3.0, 4.0], [2.0, 2.0, 1.0, 1.0]])
    targets = weights * (1.5 + np.array([[0.5], [0.2]]) * np.exp(-exponents[:, None] * logs))
    assert _start(logs, weights, targets.ravel()) == pytest.approx([1.5, *np.log([0.5, 0.2]), *np.log(exponents)])


def test_two_models_that_tend_to_different_losses_do_not_share_one() -> None:
    found = climb(rungs(law(1.5, 0.5, 0.3), law(1.7, 0.3, 0.4), noise=1e-4, seeds=6))
    assert found.baseline.irreducible != found.variant.irreducible
    assert found.variant.irreducible == pytest.approx(1.7, abs=0.01)


def test_a_loss_that_the_baseline_never_reaches_has_no_finite_speedup() -> None:
    curve = Law(1.5, 0.5, 0.3, UNIT)
    assert curve.compute(1.4) == curve.compute(1.5) == math.inf
    assert curve.compute(curve.loss(3e13)) == pytest.approx(3e13)
    found = climb(rungs(law(1.5, 0.5, 0.3), law(1.2, 0.5, 0.3), noise=1e-4))
    assert found.speedup is None or found.speedup.value == math.inf


@pytest.mark.parametrize(
    ("slopes", "freedom"), [((1, 1, 1, 1), 4 * 3 - 1), ((1, 0, 0, 0), 3 - 1), ((1, 2, 0, 0), 4.41 - 1)]
)
def test_the_degrees_of_freedom_are_those_of_satterthwaite_less_one_for_the_weights(
    slopes: tuple[float, ...], freedom: float
) -> None:
    """Of a sum of independent variances s: (sum of s)² over the sum of s²/f; here each rung has f = 3."""
    deviations = np.random.default_rng(3).standard_normal((20_000, len(slopes), 2))
    resamples = _Resamples(deviations, np.full(len(slopes), 3.0))
    assert resamples._freedom_of((deviations.sum(axis=2) * slopes).sum(axis=1)) == pytest.approx(freedom, rel=0.02)


def test_intervals_of_equal_models_cover_a_speedup_of_one() -> None:
    covered = 0
    for draw in range(60):
        found = climb(rungs(law(1.5, 0.5, 0.3), law(1.5, 0.5, 0.3), seeds=3, noise=0.01, draw=draw))
        covered += found.speedups[-1].low <= 1 <= found.speedups[-1].high
    assert covered >= 50  # 57 expected; below 50 with a chance of 0.2 % at 95 %


@pytest.mark.parametrize("seeds", [2, 3, 8])
def test_resampled_means_spread_as_a_mean_does(seeds: int) -> None:
    """Plain resampling of n seeds has a spread that is too small by a factor of √(1 - 1/n)."""
    made = rungs(law(1.5, 0.5, 0.3), law(1.5, 0.5, 0.3), seeds=seeds, noise=0.01)
    for rung, (first, *resampled) in zip(made, _means(made).swapaxes(0, 1), strict=True):
        losses = rung.losses()
        assert first == pytest.approx(losses.mean(axis=0))
        assert np.std(resampled, axis=0) == pytest.approx(losses.std(axis=0, ddof=1) / math.sqrt(seeds), rel=0.08)


def test_a_mistuned_largest_rung_is_found_by_the_law_of_the_others() -> None:
    *small, last = rungs(law(1.5, 0.5, 0.3), law(1.5, 0.45, 0.3), noise=0.003)
    mistuned = Rung(last.compute, {seed: loss + 0.1 for seed, loss in last.baseline.items()}, last.variant)
    found = climb([*small, mistuned])
    assert found.difference is None
    assert "do not predict" in found.refusal
    assert found.held_out is not None
    assert found.held_out.low > 0
    assert climb([*small, last]).difference is not None


def test_three_rungs_give_speedups_and_no_extrapolation() -> None:
    found = climb(rungs(law(1.5, 0.5, 0.3), law(1.5, 0.45, 0.3), number=3, noise=0.003))
    assert (found.difference, found.speedup, found.held_out) == (None, None, None)
    assert len(found.speedups) == 3


@pytest.mark.parametrize(
    ("number", "seeds", "times", "said"),
    [(2, 3, 10, "at least 3 rungs"), (5, 1, 10, "two seeds"), (5, 3, 11, "between 1 and 10"), (5, 3, 0.5, "between 1")],
)
def test_what_cannot_be_extrapolated_is_refused(number: int, seeds: int, times: float, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        climb(rungs(law(1.5, 0.5, 0.3), law(1.5, 0.45, 0.3), number=number, seeds=seeds, noise=0.003), times)


def test_a_single_seed_on_one_rung_is_refused() -> None:
    *small, last = rungs(law(1.5, 0.5, 0.3), law(1.5, 0.45, 0.3), number=5, noise=0.003)
    with pytest.raises(ValueError, match="two seeds"):
        climb([*small, Rung(last.compute, {0: last.baseline[0]}, {0: last.variant[0]})])


@pytest.mark.parametrize(
    ("here", "low", "high", "word"),
    [
        (-1.0, -0.3, -0.2, "holds"), (-1.0, -0.05, 0.05, "vanishes"), (-1.0, 0.2, 0.3, "turns"),
        (-1.0, -0.3, 0.0, "undecided"), (0.0, -0.05, 0.05, "holds"), (0.0, 0.2, 0.3, "turns"),
        (0.0, -0.3, -0.2, "turns"), (1.0, 0.2, 0.3, "holds"), (1.0, -0.05, 0.05, "vanishes"),
        (1.0, 0.05, 0.3, "undecided"), (0.0, -0.1, 0.05, "undecided"),
    ],
)  # fmt: skip
def test_what_becomes_of_a_difference(here: float, low: float, high: float, word: str) -> None:
    assert outcome(here, WithBounds((low + high) / 2, low, high), margin=0.1) == word
    assert outcome(here, None, margin=0.1) == "undecided"
