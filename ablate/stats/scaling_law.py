"""Scaling laws of two models over a ladder of rungs: fit, effective speedup, and extrapolation, all with intervals.

The law is `L(C) = E + A (C / C0)^-alpha` (Hoffmann et al. 2022, arXiv 2203.15556, section 3.3, for one axis): L is the
loss, C the training compute in FLOPs, C0 the geometric mean of the computes, which only sets the unit of A. Two models
are fitted jointly with one irreducible loss E, because they learn the same data; each has its own E where an F-test
against the noise of the seeds rejects that. The effective speedup of a variant is the compute at which the baseline's
law reaches the variant's loss, divided by the variant's compute.

Given the exponents the law is linear in E and A, so the search for the least squares begins at the best exponents of a
grid, and goes on by Levenberg and Marquardt's method, for all resamples at once. Intervals come from a bootstrap over
the seeds of each rung, which keeps the pairs of a seed together. Resampled means of S seeds vary too little by (S - 1)
/ S, and quantiles of few seeds are too near: deviations are enlarged by the square root of the one, and intervals by
Student's t over the normal quantile.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ablate.stats import special
from ablate.stats.schedule import ERROR

Floats = NDArray[np.float64]

LEAST_RUNGS = 4
"""Rungs from which a law may be extrapolated: three rungs determine it without a residual."""
FURTHEST = 10.0
"""Maximum extrapolation, as a multiple of the compute of the largest rung."""
RESAMPLES = 500
_SEED = 0
_EXPONENTS = np.geomspace(0.03, 1.5, 8)
"""Where the search for exponents begins."""
_ITERATIONS = 40
_LOWEST = np.array([0.0, -30.0, -30.0, math.log(1e-3), math.log(1e-3)])
_HIGHEST = np.array([math.inf, 30.0, 30.0, math.log(5.0), math.log(5.0)])
_NEVER = math.inf
_NORMAL = 1.959964  # the normal quantile at 0.975

Fate = Literal["holds", "vanishes", "turns", "undecided"]


@dataclass(frozen=True, slots=True)
class Rung:
    """A rung of the ladder: losses of the baseline and of a variant.

    Attributes:
        compute: Training compute of the baseline and of the variant, in FLOPs.
        baseline: Seed to final loss.
        variant: Seed to final loss. Only seeds of both count.
    """

    compute: tuple[float, float]
    baseline: Mapping[int, float]
    variant: Mapping[int, float]

    @property
    def seeds(self) -> list[int]:
        """The seeds that both have, ascending."""
        return sorted(self.baseline.keys() & self.variant.keys())

    @property
    def freedom(self) -> int:
        """Degrees of freedom of the noise."""
        return len(self.seeds) - 1

    def losses(self) -> Floats:
        """Losses by seed: [S, 2], the baseline's first."""
        return np.array([[self.baseline[seed], self.variant[seed]] for seed in self.seeds], dtype=np.float64)


@dataclass(frozen=True, slots=True)
class Law:
    """`L(C) = irreducible + scale * (C / unit)^-exponent`."""

    irreducible: float
    scale: float
    exponent: float
    unit: float

    def loss(self, compute: float) -> float:
        """The loss at a training compute in FLOPs."""
        return float(self.irreducible + self.scale * (compute / self.unit) ** -self.exponent)

    def compute(self, loss: float) -> float:
        """The compute at which the law reaches a loss; infinite at or below the irreducible loss."""
        excess = loss - self.irreducible
        if excess <= 0:
            return _NEVER
        return self.unit * math.exp(math.log(self.scale / excess) / self.exponent)


@dataclass(frozen=True, slots=True)
class WithBounds:
    """A value with its two-sided 95 % interval; a bound is infinite where the baseline never reaches the loss."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class LadderFit:
    """A variant against the baseline over the rungs of a ladder.

    Attributes:
        baseline: Law of the baseline.
        variant: Law of the variant.
        speedups: Effective speedup at each rung: from the variant's measured loss there and the baseline's law.
        target: Compute of the extrapolation, in FLOPs.
        difference: Variant minus baseline at the target; None where `refusal` says why.
        speedup: Effective speedup at the target; None where `refusal` says why.
        held_out: Predicted minus measured difference at the largest rung, by the law of the rungs below it.
        refusal: Why nothing is extrapolated, as a clause; empty if something is.
    """

    baseline: Law
    variant: Law
    speedups: tuple[WithBounds, ...]
    target: float
    difference: WithBounds | None
    speedup: WithBounds | None
    held_out: WithBounds | None
    refusal: str = ""


def climb(rungs: Sequence[Rung], times: float = FURTHEST) -> LadderFit:
    """Fit the laws of baseline and variant, and extrapolate to a multiple of the largest rung's compute.

    Args:
        rungs: In ascending compute; each with at least two seeds of both.
        times: The target, as a multiple of the compute of the largest rung, at most `FURTHEST`.

    Raises:
        ValueError: There are fewer than three rungs, a rung has fewer than two paired seeds, or the target is not
            between 1 and `FURTHEST`.
    """
    if len(rungs) < LEAST_RUNGS - 1:
        raise ValueError(f"a scaling law needs at least {LEAST_RUNGS - 1} rungs, got {len(rungs)}")
    if any(len(rung.seeds) < 2 for rung in rungs):
        raise ValueError("each rung needs at least two seeds of both models")
    if not 1 <= times <= FURTHEST:
        raise ValueError(f"the target must lie between 1 and {FURTHEST:g} times the largest rung, got {times:g}")
    computes = np.array([rung.compute for rung in rungs], dtype=np.float64)
    unit = math.exp(float(np.log(computes).mean()))
    means, noise = _means(rungs), _noise(rungs)
    resamples = _Resamples.of(rungs, means)
    shared = _shares(computes / unit, means[:1], noise, rungs)
    laws = _fit(computes / unit, means, noise, shared)
    target = times * float(computes[-1, 0])
    baseline, variant = (Law(float(law[0]), float(law[1]), float(law[2]), unit) for law in laws[0])
    reached = [
        resamples.interval(_log(_inverse(laws, 0, means[:, place, 1]) * unit / rung.compute[1]), _exp)
        for place, rung in enumerate(rungs)
    ]
    if len(rungs) < LEAST_RUNGS:
        refusal = f"there are {len(rungs)} rungs, and a law is extrapolated from {LEAST_RUNGS} or more"
        return LadderFit(baseline, variant, tuple(reached), target, None, None, None, refusal)
    below = _fit(computes[:-1] / unit, means[:, :-1], noise[:-1], shared=True)
    predicted = _at(below, 1, computes[-1, 1] / unit) - _at(below, 0, computes[-1, 0] / unit)
    held_out = resamples.interval(predicted - (means[:, -1, 1] - means[:, -1, 0]))
    if not held_out.low <= 0 <= held_out.high:
        refusal = "the smaller rungs do not predict the largest one"
        return LadderFit(baseline, variant, tuple(reached), target, None, None, held_out, refusal)
    there = _at(laws, 1, target / unit)
    difference = resamples.interval(there - _at(laws, 0, target / unit))
    speedup = resamples.interval(_log(_inverse(laws, 0, there) * unit / target), _exp)
    return LadderFit(baseline, variant, tuple(reached), target, difference, speedup, held_out)


def outcome(here: float, difference: WithBounds | None, margin: float) -> Fate:
    """What becomes of a difference between the largest rung and the target.

    Args:
        here: Sign of what is shown at the largest rung: below 0 the variant is better than the baseline by more than
            the margin, above 0 worse by more than the margin, 0 if it differs by less than the margin.
        difference: Variant minus baseline at the target, of a loss.
        margin: How large a difference matters.

    Returns:
        `holds`: the 95 % interval at the target lies on the same side; `vanishes`: a difference at the largest rung,
        and within the margin at the target; `turns`: on another side; `undecided`: none of these.
    """
    if difference is None:
        return "undecided"
    inside = -margin < difference.low and difference.high < margin
    there = 0.0 if inside else -1.0 if difference.high < -margin else 1.0 if difference.low > margin else None
    if there is None:
        return "undecided"
    if there == here:
        return "holds"
    return "vanishes" if there == 0 else "turns"


def _exp(logarithm: float) -> float:
    return math.exp(logarithm) if logarithm < 700 else _NEVER


def _log(values: Floats) -> Floats:
    """Logarithms, minus infinity at 0: a model that learns nothing is as good as the baseline at no compute."""
    with np.errstate(divide="ignore"):
        return np.log(values)


def _means(rungs: Sequence[Rung]) -> Floats:
    """Mean losses [1 + RESAMPLES, R, 2]: the measured ones, then those of resampled seeds."""
    rng = np.random.default_rng(_SEED)
    columns = []
    for rung in rungs:
        losses = rung.losses()
        number = len(losses)
        picked = losses[rng.integers(0, number, (RESAMPLES, number))].mean(axis=1)
        mean = losses.mean(axis=0)
        columns.append(np.vstack([mean, mean + (picked - mean) * math.sqrt(number / (number - 1))]))
    return np.stack(columns, axis=1)


def _noise(rungs: Sequence[Rung]) -> Floats:
    """Standard errors of the mean losses [R, 2], which weigh the rungs.

    The variance over seeds, pooled over both models, is a power of the compute: few seeds tell no more of each rung.
    """
    variances = np.array([rung.losses().var(axis=0, ddof=1).mean() for rung in rungs])
    variances = np.maximum(variances, 1e-6 * variances.max() if variances.max() > 0 else 1.0)
    logs = np.log([rung.compute[0] for rung in rungs])
    smooth = np.exp(np.polyval(np.polyfit(logs - logs.mean(), np.log(variances), 1), logs - logs.mean()))
    errors = np.sqrt(smooth / [len(rung.seeds) for rung in rungs])
    return np.stack([errors, errors], axis=1)


@dataclass(frozen=True, slots=True)
class _Resamples:
    """Turns values of all resamples into intervals.

    Attributes:
        deviations: Of the mean losses from the measured ones: [RESAMPLES, R, 2].
        freedom: Degrees of freedom of the noise of each rung.
    """

    deviations: Floats
    freedom: Floats

    @classmethod
    def of(cls, rungs: Sequence[Rung], means: Floats) -> _Resamples:
        """Of mean losses [1 + RESAMPLES, R, 2], the measured ones first."""
        return cls(means[1:] - means[0], np.array([rung.freedom for rung in rungs]))

    def interval(self, values: Floats, back: Callable[[float], float] = float) -> WithBounds:
        """The first value with its interval from all others; `back` is applied to all three.

        The bootstrap's deviations are enlarged by Student's t over the normal quantile, at the degrees of freedom that
        Satterthwaite's formula gives for the shares which the rungs have in the variance.
        """
        value, others = float(values[0]), values[1:]
        if not math.isfinite(value):
            return WithBounds(back(value), back(float(np.quantile(others, ERROR / 2, method="nearest"))), _NEVER)
        bounds = [float(bound) for bound in np.quantile(others, (ERROR / 2, 1 - ERROR / 2), method="nearest")]
        widen = float(special.stdtrit(self._freedom_of(others - value), 1 - ERROR / 2)) / _NORMAL
        return WithBounds(back(value), *(back(value + widen * (bound - value)) for bound in bounds))

    def _freedom_of(self, changes: Floats) -> float:
        number, rungs, _ = self.deviations.shape
        finite = np.isfinite(changes)
        if finite.sum() < number / 2:
            return float(self.freedom.min())
        effects = self.deviations.reshape(number, -1)
        slopes = np.linalg.lstsq(effects[finite], changes[finite], rcond=None)[0]
        shares = (effects * slopes).reshape(number, rungs, 2).sum(axis=2).var(axis=0)
        if not shares.sum() > 0:
            return float(self.freedom.sum())
        return max(1.0, float(shares.sum() ** 2 / (shares**2 / self.freedom).sum()) - 1)  # one for the fitted weights


def _at(laws: Floats, side: int, compute: float) -> Floats:
    """Losses of all laws of a side at a compute in units."""
    irreducible, scale, exponent = np.moveaxis(laws[:, side], -1, 0)
    return np.asarray(irreducible + scale * compute**-exponent)


def _inverse(laws: Floats, side: int, losses: Floats) -> Floats:
    """Computes in units at which the laws of a side reach losses."""
    irreducible, scale, exponent = np.moveaxis(laws[:, side], -1, 0)
    excess = losses - irreducible
    ratio = scale / np.where(excess > 0, excess, 1.0)
    return np.where(excess > 0, ratio ** (1 / exponent), _NEVER)


def _shares(computes: Floats, means: Floats, noise: Floats, rungs: Sequence[Rung]) -> bool:
    """Whether one irreducible loss fits both models: an F-test of the better fit with two against the seeds' noise."""
    if len(computes) < LEAST_RUNGS:
        return True
    (joint,), (own,) = (_squares(computes, means, noise, _fit(computes, means, noise, of)) for of in (True, False))
    return bool(special.fdtrc(1, sum(rung.freedom for rung in rungs), max(0.0, joint - own)) > ERROR)


def _squares(computes: Floats, means: Floats, noise: Floats, laws: Floats) -> Floats:
    """Sums of squared residuals in standard errors, one for each fit."""
    fitted = np.stack(
        [np.stack([_at(laws, side, compute) for compute in computes[:, side]], axis=1) for side in (0, 1)], axis=2
    )
    return np.asarray((((means - fitted) / noise) ** 2).sum(axis=(1, 2)))


def _fit(computes: Floats, means: Floats, noise: Floats, shared: bool) -> Floats:
    """Least-squares laws [B, 2, 3] (irreducible, scale, exponent) of means [B, R, 2] at computes [R, 2] in units."""
    if shared:
        return _fit_jointly(computes, means, noise)
    alone = [
        _fit_jointly(computes[:, [side, side]], means[:, :, [side, side]], noise[:, [side, side]]) for side in (0, 1)
    ]
    return np.stack([alone[0][:, 0], alone[1][:, 1]], axis=1)


def _fit_jointly(computes: Floats, means: Floats, noise: Floats) -> Floats:
    """Levenberg-Marquardt from the best exponents of a grid, for all means at once."""
    targets = means.transpose(0, 2, 1).reshape(len(means), -1) / noise.T.ravel()
    logs, weights = np.log(computes.T), 1 / noise.T
    now = np.repeat(_start(logs, weights, targets[0])[None], len(means), axis=0)
    squares, damping = np.full(len(means), np.inf), np.full(len(means), 1e-2)
    proposed = now
    for _ in range(_ITERATIONS):
        residual, slopes = _linearise(proposed, logs, weights, targets)
        better = (found := (residual**2).sum(axis=1)) <= squares
        now, squares = np.where(better[:, None], proposed, now), np.where(better, found, squares)
        damping = np.clip(np.where(better, damping / 3, damping * 4), 1e-9, 1e9)
        if better.any():
            residual, slopes = _linearise(now, logs, weights, targets)
        gram = np.einsum("bnp,bnq->bpq", slopes, slopes)
        gram += damping[:, None, None] * np.eye(5) * (np.einsum("bpp->bp", gram)[:, None] + 1e-12)
        step = np.linalg.solve(gram, np.einsum("bnp,bn->bp", slopes, residual)[..., None])[..., 0]
        proposed = np.clip(now + step, _LOWEST, _HIGHEST)
    irreducible, scales, exponents = now[:, :1], np.exp(now[:, 1:3]), np.exp(now[:, 3:])
    return np.stack([np.concatenate([irreducible, irreducible], axis=1), scales, exponents], axis=-1)


def _linearise(parameters: Floats, logs: Floats, weights: Floats, targets: Floats) -> tuple[Floats, Floats]:
    """Weighted residuals [B, 2R] and slopes [B, 2R, 5] in E, the logarithms of both scales, and of both exponents."""
    exponents = np.exp(parameters[:, 3:, None])
    terms = np.exp(parameters[:, 1:3, None] - exponents * logs) * weights  # [B, 2, R]
    flat, rungs = (len(parameters), -1), logs.shape[1]
    residual = targets - (parameters[:, :1, None] * weights + terms).reshape(flat)
    slopes = np.zeros((len(parameters), 2 * rungs, 5))
    slopes[:, :, 0] = weights.ravel()
    for side in (0, 1):
        rows = slice(side * rungs, (side + 1) * rungs)
        slopes[:, rows, 1 + side] = terms[:, side]
        slopes[:, rows, 3 + side] = -terms[:, side] * exponents[:, side] * logs[side]
    return residual, slopes


def _start(logs: Floats, weights: Floats, targets: Floats) -> Floats:
    """Parameters of the best law among those whose two exponents lie on the grid, where it is linear."""
    from scipy.optimize import nnls  # takes 0.3 s, which only a ladder needs

    best = (math.inf, np.zeros(5))
    for first in _EXPONENTS:
        for second in _EXPONENTS:
            design = np.zeros((targets.size, 3))
            design[:, 0] = weights.ravel()
            rungs = logs.shape[1]
            design[:rungs, 1] = np.exp(-first * logs[0]) * weights[0]
            design[rungs:, 2] = np.exp(-second * logs[1]) * weights[1]
            found, distance = nnls(design, targets)
            if distance < best[0]:
                scales = np.log(np.maximum(found[1:], 1e-9))
                best = (distance, np.array([found[0], *scales, math.log(first), math.log(second)]))
    return best[1]
