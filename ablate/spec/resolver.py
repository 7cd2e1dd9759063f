"""`Resolver`: resolves many points of a space. Roots that points share are validated and serialised once."""

from __future__ import annotations

import json
from collections.abc import Mapping

from pydantic import JsonValue, ValidationError

from ablate.spec.base import Spec
from ablate.spec.space import ROOTS, SpaceSpec
from ablate.spec.variant import VariantSpec

_Key = tuple[str, ...]


class Resolver:
    """A faster equivalent of `SpaceSpec.compose`.

    A root (`model`, `task`, `training`) depends only on the switches that set paths below it.

    Args:
        space: The space of the points.
    """

    def __init__(self, space: SpaceSpec) -> None:
        self._space = space
        self._setters = {root: space.setters_below(root) for root in ROOTS}
        self._roots: dict[_Key, Spec] = {}
        self._errors: dict[_Key, ValidationError] = {}
        self._blamed: list[tuple[dict[str, str], str]] = []

    def resolve(self, settings: Mapping[str, str], values: Mapping[str, JsonValue]) -> VariantSpec:
        """The variant of a point.

        Raises:
            ValidationError: The settings make no model.
        """
        written = json.dumps(dict(values))
        keys = {
            root: (root, *(settings[switch] for switch in setters), written) for root, setters in self._setters.items()
        }
        model_and_task = (*keys["model"], *keys["task"])
        if model_and_task in self._errors:
            raise self._errors[model_and_task]
        try:
            if all(key in self._roots for key in keys.values()):
                return VariantSpec.model_validate({root: self._roots[key] for root, key in keys.items()})
            spec = self._space.compose(settings, values)
        except ValidationError as error:
            if all(line["loc"][:1] in (("model",), ("task",)) for line in error.errors(include_url=False)):
                self._errors[model_and_task] = error  # independent of the training
            raise
        shared = {root: self._roots.setdefault(key, getattr(spec, root)) for root, key in keys.items()}
        if all(shared[root] is getattr(spec, root) for root in ROOTS):
            return spec
        return VariantSpec.model_validate(shared)

    def reason(self, settings: Mapping[str, str], error: ValidationError) -> str:
        """Why `resolve` refused settings; as `SpaceSpec.reason`, cached by the settings that cause it."""
        for blamed, reason in self._blamed:
            if blamed.items() <= settings.items():
                return reason
        reason = self._space.reason(settings, error)
        blamed = self._space.culprits(settings)
        if blamed:
            self._blamed.append((blamed, reason))
        return reason
