"""`SpaceSpec`: a base model, a task, a training, the switches over them and the design that asks the question."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import (
    BeforeValidator,
    Field,
    JsonValue,
    PrivateAttr,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

from ablate.errors import SpaceError
from ablate.spec.annotations import STUDY_NAME, ShortFor, Spelling
from ablate.spec.base import Spec, below, refusal
from ablate.spec.claims import ClaimField, check_claims
from ablate.spec.design import BASELINE, DesignContext, DesignField, Point, PointCost
from ablate.spec.fairness import MatchSpec, TuneSpec, check_fairness, full_path
from ablate.spec.model import ModelSpec
from ablate.spec.named import expand_setting
from ablate.spec.paths import PathError, assign, overlaps
from ablate.spec.resources import ResourcesSpec
from ablate.spec.sentences import Loc, describe, sentence, where
from ablate.spec.task import TaskField
from ablate.spec.training import TrainingSpec
from ablate.spec.variant import VariantSpec

if TYPE_CHECKING:
    from ablate.spec.document import Document


def _expanded(value: Any, info: ValidationInfo) -> Any:
    if value is None:
        remedy = "Write `{}` for the setting that changes nothing."
        raise PydanticCustomError("no_setting", "a setting is a mapping of paths to values", {"remedy": remedy})
    return expand_setting(value, (info.context or {}).get("folders", ())) if isinstance(value, dict) else value


Setting = Annotated[dict[str, JsonValue], BeforeValidator(_expanded)]
"""Spec paths and the values that one setting of a switch gives them."""

Name = Annotated[str, Spelling(r"^[^\s,=]+$", "a name is one word without commas and equals signs")]
"""Name of a switch, a setting or a variant; names of points are made from them, with commas and equals signs."""

ROOTS = ("model", "task", "training")


class ObjectiveSpec(Spec):
    """What is compared, and how large a difference matters."""

    metric: str = "val_loss"
    """Name of a metric of the task."""
    direction: Literal["minimize", "maximize"] = "minimize"
    """Which way is better."""
    margin: float = Field(gt=0)
    """The difference, in units of the metric, below which a variant counts as not worse. Declared before the study
    runs: verdicts are `needed` beyond it and `not needed` within it."""


class SpaceSpec(Spec):
    """A space: the whole of a space file."""

    name: Annotated[str, STUDY_NAME]
    """Name of the study: letters, digits, `.`, `_` and `-`."""
    question: str
    """What the study is to find out, as a sentence."""
    source: str = ""
    """The paper that the question comes from."""
    departs: str = ""
    """How the data or the way of measuring departs from that paper's; `ablate data` says it."""
    task: TaskField
    """What the models learn."""
    model: ModelSpec
    """The baseline model."""
    training: TrainingSpec
    """How a trial is trained."""
    switches: dict[Name, dict[Name, Setting]] = Field(min_length=1)
    """Switch to settings; the first setting is the baseline's. A setting names spec paths and the values they get; a
    path starts at `model`, `task` or `training`, and `block` is short for `model.block`. Switches apply in the order
    they are written: where two set the same path, the later one wins. Nothing is merged into what a path held before.
    A `block` that is set to the name of a block brings its exceptions, in place of the model's."""
    variants: dict[Name, dict[Name, Name]] = Field(default_factory=dict)
    """Named variants: switch to setting; switches left out stay at the baseline's."""
    design: DesignField
    """Which variants are trained, with how many seeds."""
    objective: ObjectiveSpec
    """What is compared."""
    claims: tuple[ClaimField, ...] = ()
    """What is believed; each claim gets a verdict."""
    resources: ResourcesSpec = ResourcesSpec()
    """What a trial gets on a cluster; it changes no result."""
    tune: TuneSpec | None = Field(default=None, exclude_if=lambda tune: tune is None)
    """Values that each variant is tried with, and takes the best of, before it is compared; paths to lists of values,
    and `seeds`, how many choose."""
    match: Annotated[MatchSpec, ShortFor("equal")] = Field(
        default=MatchSpec(), exclude_if=lambda match: match == MatchSpec()
    )
    """What all variants have as much of as the baseline: `steps`, `tokens`, `seconds`, `flops` or `parameters`."""

    _text: str = PrivateAttr(default="")
    _document: Document | None = PrivateAttr(default=None)

    @property
    def text(self) -> str:
        """The space file as it was written; empty if the space was made in Python."""
        return self._text

    @field_validator("switches")
    @classmethod
    def _switches_switch(cls, switches: dict[str, dict[str, Setting]]) -> dict[str, dict[str, Setting]]:
        for switch, settings in switches.items():
            if len(settings) < 2:
                raise refusal(
                    (switch,),
                    settings,
                    f"a switch has at least two settings, and this one has {len(settings)}",
                    "Add a setting, or leave the switch out.",
                )
            for setting, paths in settings.items():
                for path in paths:
                    root = full_path(path).split(".")[0]
                    if root not in ROOTS:
                        near = difflib.get_close_matches(root, (*ROOTS, "block"), n=1)
                        raise refusal(
                            (switch, setting, path),
                            {},
                            "a path starts at `model`, `task` or `training`, or at `block`, short for `model.block`",
                            f"Did you mean `{near[0]}`?" if near else f"Write where in the space `{path}` stands.",
                        )
        return switches

    @model_validator(mode="after")
    def _is_a_space(self, info: ValidationInfo) -> Self:
        self._document = (info.context or {}).get("document")
        for name, settings in self.variants.items():
            self._check_variant(name, settings)
        self._check_baseline()
        if self.objective.metric.startswith("test_"):
            raise refusal(
                ("objective", "metric"),
                self.objective.metric,
                "a test is read once, at the end: what is chosen by looking at it is no longer tested by it",
                f"Name `val_{self.objective.metric.removeprefix('test_')}`; the test is shown beside it.",
            )
        if self.objective.metric not in self.task.metric_names:
            known = dict.fromkeys(sorted(self.task.metric_names))
            rule = f"the task {self.task.kind_name()} gives no metric of this name"
            raise _unknown(("objective", "metric"), rule, self.objective.metric, known)
        for switch, setting in self.single_settings():
            self._check_setting(switch, setting)
        check_fairness(self.tune, self.match, self._taken(), self._error_with)
        self._check_claims()
        return self

    @property
    def baseline_settings(self) -> dict[str, str]:
        """Every switch at its first setting."""
        return {switch: next(iter(settings)) for switch, settings in self.switches.items()}

    def single_settings(self) -> Iterator[tuple[str, str]]:
        """Every (switch, setting) that is not the baseline's."""
        for switch, settings in self.switches.items():
            for setting in list(settings)[1:]:
                yield switch, setting

    def resolve(self, settings: Mapping[str, str], values: Mapping[str, JsonValue] | None = None) -> VariantSpec:
        """The variant that some settings give; switches left out stay at the baseline's.

        Args:
            settings: Switch to setting.
            values: Spec paths and the values that they get after the switches have applied.

        Raises:
            SpaceError: There is no such switch, or it has no such setting.
            ValidationError: The settings make no block; paths are those of a `VariantSpec`.
        """
        try:
            self._check_settings((), settings)
        except ValidationError as error:
            (_, told), *_ = describe(error)
            raise SpaceError(told, where=f"space {self.name}") from None
        return self._with({**self.baseline_settings, **settings}, values or {})

    def with_names(self, aliases: Mapping[str, str]) -> Self:
        """The same space, its claims with other names for their variants: a study knows each variant by one name."""
        return self.model_copy(update={"claims": tuple(claim.renamed(aliases) for claim in self.claims)})

    def setter_of(self, settings: Mapping[str, str], path: str) -> tuple[str, str, str] | None:
        """The (switch, setting, path as written) among `settings` that last set this full path or a part of it."""
        found = None
        for switch, options in self.switches.items():
            if switch in settings:
                for written in options[settings[switch]]:
                    if overlaps(full_path(written), path):
                        found = (switch, settings[switch], written)
        return found

    def setters_below(self, root: str) -> tuple[str, ...]:
        """The switches of which some setting sets this root (`model`, `task`, `training`) or a path below it."""
        return tuple(
            switch
            for switch, options in self.switches.items()
            if any(overlaps(full_path(path), root) for setting in options.values() for path in setting)
        )

    def culprits(self, settings: Mapping[str, str]) -> dict[str, str]:
        """Of settings that make no model, those that are to blame: with any one of them at the baseline's, it would.

        Empty if the settings make a model.
        """
        if not self._refused(settings):
            return {}
        blamed = {switch: setting for switch, setting in settings.items() if setting != self.baseline_settings[switch]}
        for switch in list(blamed):
            without = {other: setting for other, setting in blamed.items() if other != switch}
            if self._refused(without):
                blamed = without
        return blamed

    def reason(self, settings: Mapping[str, str], error: ValidationError) -> str:
        """Why `resolve` refused settings: those to blame, then the path, the rule and the way out."""
        (loc, told), *_ = describe(error)
        blamed = ", ".join(f"{switch}={setting}" for switch, setting in self.culprits(settings).items())
        path = f"`{'.'.join(str(part) for part in loc)}`: {told}"
        return f"{blamed}: {path}" if blamed else path

    def canonical(self) -> Any:
        """As any spec, but switches and their settings are written as lists: their order has a meaning."""
        ordered = [[switch, [[*pair] for pair in settings.items()]] for switch, settings in self.switches.items()]
        return {**super().canonical(), "switches": ordered}

    def _with(self, chosen: Mapping[str, str], values: Mapping[str, JsonValue] = {}) -> VariantSpec:
        """The variant that these settings and values alone give; switches left out set nothing."""
        plain: dict[str, Any] = {root: getattr(self, root) for root in ROOTS}
        settings = [options[chosen[switch]] for switch, options in self.switches.items() if switch in chosen]
        for path, value in (item for assignments in (*settings, values) for item in assignments.items()):
            try:
                assign(plain, full_path(path), value)
            except PathError as error:
                loc = tuple(full_path(path).split("."))
                raise refusal(loc, {}, str(error), error.remedy, kind="no_path") from None
        return VariantSpec.model_validate(plain)

    def _refused(self, settings: Mapping[str, str], values: Mapping[str, JsonValue] | None = None) -> bool:
        try:
            self.resolve(settings, values)
        except ValidationError:
            return True
        return False

    def _check_baseline(self) -> None:
        """Refuse first settings that make no model, at the first switch that breaks it."""
        if not self._refused({}):
            return
        self._with({})
        applied: dict[str, str] = {}
        for switch, setting in self.baseline_settings.items():
            applied[switch] = setting
            try:
                self._with(applied)
            except ValidationError as error:
                lines = error.errors(include_url=False)
                raise self._at_switches(applied, lines, (switch, setting)) from None

    def _check_variant(self, name: str, settings: Mapping[str, str]) -> None:
        if name == BASELINE:
            raise refusal(
                ("variants", name), name, f"`{BASELINE}` is every switch at its first setting", "Choose another name."
            )
        self._check_settings(("variants", name), settings)

    def _check_settings(self, home: Loc, settings: Mapping[str, str]) -> None:
        """Refuse switches and settings that are not in the space; `home` is where they are written."""
        for switch, setting in settings.items():
            if switch not in self.switches:
                raise _unknown((*home, switch), f"there is no switch `{switch}`", switch, self.switches)
            if setting not in self.switches[switch]:
                rule = f"`{switch}` has no setting `{setting}`"
                raise _unknown((*home, switch), rule, setting, self.switches[switch])

    def design_context(
        self, refusal: Callable[[Point], str | None], cost: Callable[[Point], PointCost]
    ) -> DesignContext:
        """What the design of this space is told; the two callables are those of `DesignContext`."""
        return DesignContext(
            switches={switch: tuple(settings) for switch, settings in self.switches.items()},
            variants=self.variants,
            direction=self.objective.direction,
            margin=self.objective.margin,
            refusal=refusal,
            cost=cost,
            where=self._design_place,
        )

    def _design_place(self, *keys: str) -> str:
        """See `DesignContext.where`."""
        loc = ("design", *keys)
        path = ".".join(loc)
        return path if self._document is None else f"{self._document.position(loc)}: `{path}`"

    def _taken(self) -> Iterator[tuple[str, str]]:
        """Every path that a switch or the design sets, with who does."""
        for switch, options in self.switches.items():
            for path in (path for setting in options.values() for path in setting):
                yield path, f"the switch `{switch}`"
        for path in self.design.paths():
            yield path, f"the {self.design.kind_name()} design"

    def _error_with(self, values: Mapping[str, JsonValue]) -> ValidationError | None:
        """Why the baseline makes no model with these values; None if it makes one."""
        try:
            self.resolve({}, values)
        except ValidationError as error:
            return error
        return None

    def _check_claims(self) -> None:
        if not self.claims:
            return
        # The names of points do not hang on what they cost, which only a model can tell.
        context = self.design_context(lambda point: None, lambda point: PointCost(parameters=0, flops=0.0))
        points = {point.name: point for point in self.design.build(context).points()}
        settings = {name: point.settings for name, point in points.items()}
        metrics = self.task.metric_names

        def refused(name: str) -> bool:
            return self._refused(points[name].settings, points[name].values)

        try:
            check_claims(self.claims, settings, self.objective.metric, metrics, refused)
        except ValidationError as error:
            raise below(("claims",), error) from None

    def _check_setting(self, switch: str, setting: str) -> None:
        """Refuse paths that exist in no spec; a combination that is impossible alone may be fine beside others."""
        try:
            self.resolve({switch: setting})
        except ValidationError as error:
            lines = [line for line in error.errors(include_url=False) if line["type"] != "impossible"]
            if lines:
                settings = {**self.baseline_settings, switch: setting}
                raise self._at_switches(settings, lines, (switch, setting)) from None

    def _at_switches(
        self, settings: Mapping[str, str], lines: Iterable[ErrorDetails], turned: tuple[str, str]
    ) -> ValidationError:
        """Errors of a variant, put where its settings set the offending paths, else at the setting that was turned."""
        details: list[InitErrorDetails] = []
        for line in lines:
            path, problem = ".".join(str(part) for part in where(line)), sentence(line)
            switch, setting, written = self.setter_of(settings, path) or (*turned, "")
            loc: Loc = ("switches", switch, setting, *([written] if written else ()))
            if written and f"{path}.".startswith(f"{full_path(written)}."):
                loc += where(line)[len(full_path(written).split(".")) :]
            else:
                problem = f"`{path}`: {problem}"
            details.append(
                InitErrorDetails(type=PydanticCustomError("told", "{text}", {"text": problem}), loc=loc, input={})
            )
        return ValidationError.from_exception_data("spec", details)


def _unknown(loc: Loc, rule: str, name: str, known: Mapping[str, Any]) -> ValidationError:
    near = difflib.get_close_matches(name, known, n=1)
    remedy = f"Did you mean `{near[0]}`?" if near else f"There are: {', '.join(known)}."
    return refusal(loc, name, rule, remedy)
