"""`Composer`: makes the variants of a space by laying settings of switches over its model, task and training."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from pydantic import JsonValue, ValidationError

from ablate.spec.base import Spec, refusal
from ablate.spec.paths import PathError, assign, full_path, overlaps
from ablate.spec.sentences import Loc, describe
from ablate.spec.variant import VariantSpec

ROOTS = ("model", "task", "training")

Switches = Mapping[str, Mapping[str, Mapping[str, JsonValue]]]
"""The settings of each switch, the baseline's first, with the values of the spec paths that they set."""
_Key = tuple[str, ...]


class Composer:
    """Composes the variants of a space. Roots that several variants share are validated and serialised once.

    A root (`model`, `task`, `training`) depends only on the switches that set paths below it.

    Args:
        roots: The baseline by root, as the space writes it.
    """

    def __init__(self, roots: Mapping[str, Spec], switches: Switches) -> None:
        self._baseline = roots
        self._switches = switches
        self._setters = {root: self.setters_below(root) for root in roots}
        self._roots: dict[_Key, Spec] = {}
        self._errors: dict[_Key, ValidationError] = {}
        self._reasons: list[tuple[dict[str, str], str]] = []

    @property
    def switches(self) -> Switches:
        """The switches, those that the space itself adds among them."""
        return self._switches

    @property
    def baseline_settings(self) -> dict[str, str]:
        """Every switch at its first setting."""
        return {switch: next(iter(settings)) for switch, settings in self._switches.items()}

    def compose(self, settings: Mapping[str, str], values: Mapping[str, JsonValue] | None = None) -> VariantSpec:
        """The variant with some settings; other switches are at the baseline's setting.

        Args:
            settings: Settings by switch.
            values: Values of spec paths that are set after the switches.

        Raises:
            ValidationError: There is no such switch, it has no such setting, or the settings are invalid; with the
                path in the `VariantSpec`.
        """
        check_settings(self._switches, (), settings)
        settings, values = {**self.baseline_settings, **settings}, dict(values or {})
        keys = {
            root: (root, *(settings[switch] for switch in setters), repr(values))
            for root, setters in self._setters.items()
        }
        model_and_task = (*keys["model"], *keys["task"])
        if model_and_task in self._errors:
            raise self._errors[model_and_task]
        try:
            if all(key in self._roots for key in keys.values()):
                return VariantSpec.model_validate({root: self._roots[key] for root, key in keys.items()})
            spec = self.lay_over_baseline(settings, values)
        except ValidationError as error:
            if all(line["loc"][:1] in (("model",), ("task",)) for line in error.errors()):
                self._errors[model_and_task] = error  # independent of the training
            raise
        shared = {root: self._roots.setdefault(key, getattr(spec, root)) for root, key in keys.items()}
        if all(shared[root] is getattr(spec, root) for root in ROOTS):
            return spec
        return VariantSpec.model_validate(shared)

    def lay_over_baseline(self, chosen: Mapping[str, str], values: Mapping[str, JsonValue] = {}) -> VariantSpec:
        """The variant with only these settings and values; other switches set nothing.

        Raises:
            ValidationError: They are invalid.
        """
        plain: dict[str, Any] = dict(self._baseline)
        settings = [options[chosen[switch]] for switch, options in self._switches.items() if switch in chosen]
        for path, value in (item for assignments in (*settings, values) for item in assignments.items()):
            try:
                assign(plain, full_path(path), value)
            except PathError as error:
                loc = tuple(full_path(path).split("."))
                raise refusal(loc, {}, str(error), error.remedy, kind="no_path") from None
        return self._validate(plain)

    def _validate(self, plain: Mapping[str, Any]) -> VariantSpec:
        return VariantSpec.model_validate(plain)

    def error_with(self, values: Mapping[str, JsonValue], settings: Mapping[str, str] = {}) -> ValidationError | None:
        """Why these settings are invalid with these values; None if they are valid."""
        try:
            self.compose(settings, values)
        except ValidationError as error:
            return error
        return None

    def reason(self, settings: Mapping[str, str], error: ValidationError) -> str:
        """Why `compose` refused settings: the settings that cause it, the path, the rule and a remedy."""
        for blamed, reason in self._reasons:
            if blamed.items() <= settings.items():
                return reason
        (loc, problem), *_ = describe(error)
        path = f"`{'.'.join(str(part) for part in loc)}`: {problem}"
        culprits = self.culprits(settings)
        if not culprits:
            return path
        reason = f"{', '.join(f'{switch}={setting}' for switch, setting in culprits.items())}: {path}"
        self._reasons.append((culprits, reason))
        return reason

    def culprits(self, settings: Mapping[str, str]) -> dict[str, str]:
        """A minimal set of settings that together are invalid; empty if the settings are valid."""
        if self.error_with({}, settings) is None:
            return {}
        baseline = self.baseline_settings
        blamed = {switch: setting for switch, setting in settings.items() if setting != baseline[switch]}
        for switch in list(blamed):
            without = {other: setting for other, setting in blamed.items() if other != switch}
            if self.error_with({}, without) is not None:
                blamed = without
        return blamed

    def why_same(self, settings: Mapping[str, str], other: Mapping[str, str]) -> str:
        """Why two points are the same variant: the later setting that replaces what an earlier one sets."""
        points = [{**self.baseline_settings, **chosen} for chosen in (settings, other)]
        for switch, options in self._switches.items():
            for point in points if points[0][switch] != points[1][switch] else ():
                for path in options[point[switch]]:
                    if (later := self._replaced_by(switch, path, point)) is not None:
                        by, setting, whole = later
                        return (
                            f"`{by}={setting}` sets `{whole}` as a whole, after `{switch}={point[switch]}` has set"
                            f" `{path}`; to cross the two, let `{by}` set paths below `{whole}`"
                        )
        return "what it sets is there already, or is set again by the pattern or the exceptions of the model"

    def _replaced_by(self, switch: str, path: str, settings: Mapping[str, str]) -> tuple[str, str, str] | None:
        """The (switch, setting, path as written) that sets a path, or what contains it, after a switch."""
        order = list(self._switches)
        for later in order[order.index(switch) + 1 :]:
            for written in self._switches[later][settings[later]]:
                if f"{full_path(path)}.".startswith(f"{full_path(written)}."):
                    return later, settings[later], written
        return None

    def setter_of(self, settings: Mapping[str, str], path: str) -> tuple[str, str, str] | None:
        """The last (switch, setting, path as written) among `settings` that sets this full path or a part of it."""
        last = None
        for switch, options in self._switches.items():
            if switch in settings:
                for written in options[settings[switch]]:
                    if overlaps(full_path(written), path):
                        last = (switch, settings[switch], written)
        return last

    def setters_below(self, root: str) -> tuple[str, ...]:
        """The switches that set this root (`model`, `task`, `training`) or a path below it."""
        return tuple(
            switch
            for switch, options in self._switches.items()
            if any(overlaps(full_path(path), root) for setting in options.values() for path in setting)
        )


def check_settings(switches: Switches, home: Loc, settings: Mapping[str, str]) -> None:
    """Refuse unknown switches and settings.

    Args:
        home: Path of the settings in the space.
        settings: Settings by switch.

    Raises:
        ValidationError: There is no such switch or setting.
    """
    for switch, setting in settings.items():
        if switch not in switches:
            raise unknown_name((*home, switch), f"there is no switch `{switch}`", switch, switches)
        if not isinstance(setting, str) or setting not in switches[switch]:
            rule = f"`{switch}` has no setting `{setting}`"
            raise unknown_name((*home, switch), rule, setting, switches[switch])


def unknown_name(loc: Loc, rule: str, name: str, known: Mapping[str, Any]) -> ValidationError:
    """The error for a name that is not among the known ones; it suggests a similar one."""
    near = difflib.get_close_matches(str(name), known, n=1)
    remedy = f"Did you mean `{near[0]}`?" if near else f"Known names: {', '.join(known)}."
    return refusal(loc, name, rule, remedy)
