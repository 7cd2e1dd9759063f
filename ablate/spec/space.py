"""`SpaceSpec`: a space whose parts fit together, with its texts; it resolves settings to variants.

`TrainerSpace` is one that drives the user's trainer.
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Iterator, Mapping
from typing import Any, Literal, Self

from pydantic import (
    Field,
    JsonValue,
    ModelWrapValidatorHandler,
    PrivateAttr,
    SerializerFunctionWrapHandler,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_serializer,
    model_validator,
)
from pydantic.json_schema import SkipJsonSchema

from ablate.errors import SpaceError
from ablate.spec.base import below, refusal
from ablate.spec.composer import ROOTS, Composer, check_settings
from ablate.spec.paths import WORDS, Place, full_path, with_texts, without_texts
from ablate.spec.sentences import describe
from ablate.spec.space_fields import Setting, SpaceFields
from ablate.spec.space_rules import check_space, check_texts
from ablate.spec.suite import TASK, in_first_task, split_task, with_first_task
from ablate.spec.trainer import TrainerSpec
from ablate.spec.trainer_variant import ABSENT, ParameterComposer, TrainerTask
from ablate.spec.variant import VariantSpec


class SpaceSpec(SpaceFields):
    """A space: the content of a space file."""

    _text: str = PrivateAttr(default="")
    _texts: dict[Place, dict[str, str]] = PrivateAttr(default_factory=dict)

    @property
    def text(self) -> str:
        """The text of the space file; empty if the space was created in Python."""
        return self._text

    @model_validator(mode="wrap")
    @classmethod
    def _keep_texts_apart(cls, value: Any, validate: ModelWrapValidatorHandler[Self], info: ValidationInfo) -> Any:
        """Remove texts from `switches` and `variants`, so that they are in no spec and no hash."""
        if not isinstance(value, Mapping):
            return validate(value)
        if "trainer" in value and not issubclass(cls, TrainerSpace):
            return TrainerSpace.model_validate(value, context=info.context)
        plain, texts = without_texts(with_first_task(value))
        check_texts(plain, texts)
        try:
            space = validate(plain)
        except ValidationError as error:
            raise in_first_task(error, plain) from None
        space._texts = {
            place: {word: " ".join(text.split()) for word, text in at.items()} for place, at in texts.items()
        }
        return space

    @model_serializer(mode="wrap")
    def _with_texts(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        plain = with_texts(serialize(self), self._texts)
        return {name: value for name, value in plain.items() if name != TASK} if self.tasks else plain

    @field_validator("tasks")
    @classmethod
    def _tasks_set_paths(cls, tasks: dict[str, dict[str, JsonValue]]) -> dict[str, dict[str, JsonValue]]:
        for task, paths in tasks.items():
            for path in paths:
                try:
                    cls._check_path(path)
                except ValidationError as error:
                    raise below((task, path), error) from None
        return tasks

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
                    try:
                        cls._check_path(path)
                    except ValidationError as error:
                        raise below((switch, setting, path), error) from None
        return switches

    @classmethod
    def _check_path(cls, path: str) -> None:
        """Refuse a path that no setting can set."""
        root = full_path(path).split(".")[0]
        if root not in ROOTS:
            near = difflib.get_close_matches(root, (*ROOTS, "block", *WORDS), n=1)
            raise refusal(
                (),
                {},
                "a path starts at `model`, `task` or `training`, or at `block`, short for `model.block`",
                f"Did you mean `{near[0]}`?" if near else f"Write the full path of `{path}`.",
            )

    @model_validator(mode="after")
    def _is_a_space(self, info: ValidationInfo) -> Self:
        self._document = (info.context or {}).get("document")
        check_space(self)
        return self

    def resolve(self, settings: Mapping[str, str], values: Mapping[str, JsonValue] | None = None) -> VariantSpec:
        """The variant with some settings; other switches are at the baseline's setting.

        Args:
            settings: Settings by switch.
            values: Values of spec paths that are set after the switches.

        Raises:
            SpaceError: There is no such switch, it has no such setting, or the settings are invalid.
        """
        here, values = f"space {self.name}", values or {}
        _expect_mapping(settings, here, "settings must be a mapping of switch to setting", '{"norm": "none"}')
        _expect_mapping(values, here, "values must be a mapping of spec path to value", '{"model.depth": 2}')
        try:
            check_settings(self.composer.switches, (), settings)
        except ValidationError as error:
            (_, problem), *_ = describe(error)
            raise SpaceError(problem, where=here) from None
        try:
            return self.composer.compose(settings, values)
        except ValidationError as error:
            reason = self.composer.reason(settings, error)
            raise SpaceError(f"this is not a valid model: {reason}", where=here) from None

    def with_names(self, aliases: Mapping[str, str]) -> Self:
        """The same space with renamed variants in its claims: a study has one name for each variant."""
        aliases = {split_task(alias)[0]: split_task(name)[0] for alias, name in aliases.items()}
        return self.model_copy(update={"claims": tuple(claim.renamed(aliases) for claim in self.claims)})

    def canonical(self) -> Any:
        """As for any spec, but with switches and settings as lists, because their order matters."""
        ordered = [[switch, [[*pair] for pair in settings.items()]] for switch, settings in self.switches.items()]
        left_out = {"plugins", *([TASK] if self.tasks else [])}
        plain = {name: value for name, value in super().canonical().items() if name not in left_out}
        return {**plain, "switches": ordered}

    def warnings(self) -> Iterator[str]:
        """Settings that are valid and probably not intended: one or two sentences each, with the key and a remedy."""
        if self.design.seeds == 1 and self.training.steps:
            yield (
                "`design.seeds`: with one seed the noise is unknown, so every verdict will be `undecided`. "
                "Set `seeds: 3` or more."
            )
        objective = self.objective
        if objective.direction == "maximize" and objective.metric.endswith(("loss", "perplexity")):
            yield (
                f"`objective.direction`: smaller values of `{objective.metric}` are better, but it is maximised "
                "here. Set `direction: minimize`."
            )


class TrainerSpace(SpaceSpec):
    """A space whose trials the user's trainer runs. It has `trainer` and no `model`, `task` or `training`."""

    trainer: TrainerSpec
    """The command or function that trains a trial, its parameters and its metrics."""
    model: SkipJsonSchema[Any] = Field(default=ABSENT, exclude=True)
    """None that ablate knows."""
    task: SkipJsonSchema[Any] = Field(default=None, exclude=True)
    """Its data is not known."""
    training: SkipJsonSchema[Any] = Field(default=None, exclude=True)
    """Nothing of it is known but its steps."""

    @model_validator(mode="before")
    @classmethod
    def _has_no_model(cls, value: Any) -> Any:
        for name in (*ROOTS, "tasks", "aggregate", "budgets", "timing") if isinstance(value, Mapping) else ():
            if value.get(name):
                rule = f"a space with a `trainer` has no `{name}`, which needs models that ablate builds"
                raise refusal((name,), {}, rule, f"Leave `{name}` out; what varies is in `trainer.parameters`.")
        return value

    @classmethod
    def _check_path(cls, path: str) -> None:
        """Nothing: the trainer knows its parameters, and refuses others."""

    @model_validator(mode="after")
    def _is_a_space(self, info: ValidationInfo) -> Self:
        task = TrainerTask(trainer=self.trainer, named=self.metric_names)
        self.__dict__.update(task=task, training=self.trainer.training(self.trainer.defaults))
        self._document = (info.context or {}).get("document")
        for loc, value, rule in self._unusable():
            raise refusal(loc, value, f"{rule} models that ablate builds", "Leave it out.")
        check_space(self)
        return self

    def _unusable(self) -> Iterator[tuple[tuple[str, ...], Any, str]]:
        """The place, the value, and a rule for each setting that the user's trainer cannot follow."""
        if self.match.equal != "steps":
            yield ("match",), self.match.equal, f"equal {self.match.equal} are known of"
        if self.design.kind_name() == "population":
            yield ("design", "kind"), "population", "a population exchanges the weights of"
        if self.objective.reach is not None:
            yield ("objective", "reach"), self.objective.reach, "the time to a target is read from curves of"
        if self.resources.shard:
            yield ("resources", "shard"), True, "dividing a model among GPUs needs"
        if self.resources.checkpoint_every:
            given = self.resources.checkpoint_every
            yield (
                ("resources", "checkpoint_every"),
                given,
                "a trainer writes into `{checkpoint}` itself, and ablate saves the state of",
            )

    @property
    def metric_names(self) -> frozenset[str]:
        """The metrics of the objective and of the claims; a trainer may measure any."""
        claimed = (getattr(claim, "metric", None) for claim in self.claims)
        return frozenset([self.objective.metric, *filter(None, claimed), *self.columns])

    def _rates(self) -> Literal["tuned", "scaled", "given"]:
        """Whether anything is tuned: which parameter is a rate is not known."""
        return "tuned" if self.tune is not None or self.tuned else "given"

    @functools.cached_property
    def composer(self) -> Composer:
        """Makes the variants of this space."""
        return ParameterComposer(self.trainer, self.switches)


def _expect_mapping(given: object, where: str, rule: str, example: str) -> None:
    if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given):
        raise SpaceError(rule, where=where, expected=f"for example {example}", got=repr(given))
