"""The budget of a study: the quantity in which each variant matches the baseline."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable, Mapping, Sequence

from pydantic import JsonValue, ValidationError

from ablate.designs.base import BASELINE, Point
from ablate.designs.wrappers import TIMING_STEPS, keeps_step_time, timing_point
from ablate.planning.match import Step, UnmatchedError, equal_parameters, equal_steps
from ablate.spec.cost import Cost
from ablate.spec.paths import full_path, value_at
from ablate.spec.space import SpaceSpec
from ablate.spec.variant import VariantSpec

_REMARKS = {
    "steps": (),
    "tokens": ("Every variant trains on as many tokens as the baseline; its steps are adjusted.",),
    "flops": ("Every variant uses as much arithmetic as the baseline; its steps are adjusted.",),
    "parameters": ("Every variant has as many parameters as the baseline; its size is adjusted.",),
    "seconds": (
        "Every variant trains as many seconds as the baseline. Steps are timed when the study begins, on the machine "
        "that runs it; until then they are estimated from the arithmetic. Another machine gives other steps.",
    ),
}


class Budget:
    """Solves the setting of each point with which it matches the baseline.

    Args:
        space: Its `match` names the equal quantity.
        spec_of: The variant of a point as the space writes it; None if it makes no model.
        measure: The cost of a variant, with its trained parameters alone, and the tokens and arithmetic of one of its
            steps, on average.
    """

    def __init__(
        self,
        space: SpaceSpec,
        spec_of: Callable[[Point], VariantSpec | None],
        measure: Callable[[VariantSpec, Point], tuple[Cost, float, float]],
    ) -> None:
        self._match = space.match
        self._composer = space.composer
        self._spec_of = spec_of
        self._measure = measure
        self._solved: dict[str, VariantSpec] = {}
        self._timed: dict[str, dict[int, float]] = {}
        self._tuned_paths = (*(space.tune.grid if space.tune is not None else ()), *space.tuned)
        self.baseline = Point(BASELINE, space.baseline_settings)
        """The baseline without matching: the target of all variants."""

    def remarks(self) -> Sequence[str]:
        """Remarks on the budget for the user, one line each."""
        return _REMARKS[self._match.equal]

    @functools.cached_property
    def written(self) -> dict[str, JsonValue]:
        """The tuned paths that do not change how long a step takes, as the space writes them."""
        spec = self._baseline_spec
        paths = [path for path in self._tuned_paths if keeps_step_time(full_path(path))]
        return {path: value_at(spec.model_dump(mode="json"), full_path(path)) for path in paths}

    def time(self, digest: str, seed: int, seconds: float) -> None:
        """Record the seconds of a step of the timing trial with this content hash."""
        self._timed.setdefault(digest, {})[seed] = seconds

    def matched(self, point: Point, spec: VariantSpec) -> VariantSpec:
        """The variant of a point with the budget of the baseline.

        Args:
            point: The point.
            spec: Its variant as the space writes it.

        Raises:
            UnmatchedError: It cannot match that budget.
        """
        path = self._match.path
        if path is None or path in point.tuned:  # timing trials set their own steps
            return spec
        digest = spec.content_hash()
        if digest in self._solved:
            return self._solved[digest]
        if self._match.equal == "parameters":
            target = self._measure(self._baseline_spec, self.baseline)[0].parameters
            solved = equal_parameters(self._match, target, spec, functools.partial(self._parameters, point))
        else:
            # Estimated or measured: both sides alike.
            times = self._seconds(self.baseline), self._seconds(point)
            timed = times if None not in times else (None, None)
            ours, theirs = self._step(self._baseline_spec, self.baseline, timed[0]), self._step(spec, point, timed[1])
            solved = {path: equal_steps(self._match, ours, self._baseline_spec.training.steps, theirs)}
            if self._match.equal == "seconds" and None in times:
                return self._with(point, solved)
        self._solved[digest] = self._with(point, solved)
        return self._solved[digest]

    @functools.cached_property
    def _baseline_spec(self) -> VariantSpec:
        spec = self._spec_of(self.baseline)
        assert spec is not None, "a space whose baseline makes no model is refused"
        return spec

    def _with(self, point: Point, solved: Mapping[str, JsonValue]) -> VariantSpec:
        return self._composer.compose(point.settings, {**point.values, **point.tuned, **solved})

    def _parameters(self, point: Point, values: Mapping[str, JsonValue]) -> int | None:
        try:
            return self._measure(self._with(point, values), point)[0].parameters
        except ValidationError:
            return None

    def _step(self, spec: VariantSpec, point: Point, seconds: float | None) -> Step:
        _, tokens, flops = self._measure(spec, point)
        return Step(tokens, flops, flops if seconds is None else seconds)

    def _seconds(self, point: Point) -> float | None:
        """Seconds of a step, the median over the timing trials; None before they have ended."""
        if self._match.equal != "seconds":
            return None
        spec = self._spec_of(timing_point(point, self.written))
        if spec is None:
            raise UnmatchedError(
                f"its steps cannot be timed: with `training.steps: {TIMING_STEPS}` its settings make no model; use "
                "`match: flops`"
            )
        timed = self._timed.get(spec.content_hash(), {})
        return statistics.median(timed.values()) if timed else None
