"""`SpaceSpec`: a base model, a task, a training, the switches over them and the design that asks the question."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any, Literal, Self

from pydantic import Field, JsonValue, PrivateAttr, ValidationError, field_validator, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from ablate.spec.base import Spec, refusal
from ablate.spec.design import DesignField
from ablate.spec.model import ModelSpec
from ablate.spec.paths import PathError, assign, overlaps
from ablate.spec.task import TaskField
from ablate.spec.training import TrainingSpec
from ablate.spec.variant import VariantSpec

Setting = dict[str, JsonValue]
"""Spec paths and the values that one setting of a switch gives them."""

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

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")
    """Name of the study: letters, digits, `.`, `_` and `-`."""
    question: str
    """What the study is to find out, as a sentence."""
    source: str = ""
    """The paper that the question comes from."""
    task: TaskField
    """What the models learn."""
    model: ModelSpec
    """The baseline model."""
    training: TrainingSpec
    """How a trial is trained."""
    switches: dict[str, dict[str, Setting]] = Field(min_length=1)
    """Switch to settings; the first setting is the baseline's. A setting names spec paths and the values they get; a
    path starts at `model`, `task` or `training`, and `block` is short for `model.block`. Switches apply in the order
    they are written: where two set the same path, the later one wins."""
    variants: dict[str, dict[str, str]] = Field(default_factory=dict)
    """Named variants: switch to setting; switches left out stay at the baseline's."""
    design: DesignField
    """Which variants are trained, with how many seeds."""
    objective: ObjectiveSpec
    """What is compared."""

    _text: str = PrivateAttr(default="")

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
                    list(settings),
                    f"a switch has at least two settings, and `{switch}` has {len(settings)}",
                    "Add a setting, or leave the switch out.",
                )
            for setting, paths in settings.items():
                for path in paths:
                    if _full_path(path).split(".")[0] not in ROOTS:
                        raise refusal(
                            (switch, setting, path),
                            path,
                            "a path starts at `model`, `task` or `training`, or at `block`, short for `model.block`",
                            f"Write where in the space `{path}` stands.",
                        )
        return switches

    @model_validator(mode="after")
    def _is_a_space(self) -> Self:
        for name, settings in self.variants.items():
            self._check_variant(name, settings)
        self.resolve({})
        for switch, setting in self.single_settings():
            self._check_setting(switch, setting)
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

    def resolve(self, settings: Mapping[str, str]) -> VariantSpec:
        """The variant that some settings give; switches left out stay at the baseline's.

        Raises:
            ValidationError: The settings make no block; paths are those of a `VariantSpec`.
        """
        plain: dict[str, Any] = {
            # A model's own canonical form merges block and exceptions, and switches must still find them.
            "model": Spec.canonical(self.model),
            "task": self.task.canonical(),
            "training": self.training.canonical(),
        }
        chosen = {**self.baseline_settings, **settings}
        for switch, options in self.switches.items():
            for path, value in options[chosen[switch]].items():
                try:
                    assign(plain, _full_path(path), value)
                except PathError as error:
                    loc = tuple(_full_path(path).split("."))
                    details = PydanticCustomError("path", "{text}", {"text": str(error), "remedy": error.remedy})
                    raise ValidationError.from_exception_data(
                        "spec", [InitErrorDetails(type=details, loc=loc, input=value)]
                    ) from None
        return VariantSpec.model_validate(plain)

    def setter_of(self, settings: Mapping[str, str], path: str) -> tuple[str, str, str] | None:
        """The (switch, setting, path as written) among `settings` that last set this full path or a part of it."""
        found = None
        for switch, options in self.switches.items():
            if switch in settings:
                for written in options[settings[switch]]:
                    if overlaps(_full_path(written), path):
                        found = (switch, settings[switch], written)
        return found

    def _check_variant(self, name: str, settings: Mapping[str, str]) -> None:
        for switch, setting in settings.items():
            if switch not in self.switches:
                raise _unknown(("variants", name, switch), "switch", switch, self.switches)
            if setting not in self.switches[switch]:
                raise _unknown(("variants", name, switch), f"setting of `{switch}`", setting, self.switches[switch])

    def _check_setting(self, switch: str, setting: str) -> None:
        """Refuse paths that exist in no spec; a combination that is impossible alone may be fine beside others."""
        try:
            self.resolve({switch: setting})
        except ValidationError as error:
            details: list[InitErrorDetails] = []
            for line in error.errors(include_url=False):
                if line["type"] == "impossible":
                    continue
                path = ".".join(str(part) for part in line["loc"])
                written = (self.setter_of({switch: setting}, path) or ("", "", path))[2]
                kind = PydanticCustomError(
                    line["type"],  # type: ignore[arg-type]
                    "{text}",
                    {**line.get("ctx", {}), "text": f"`{path}`: {line['msg']}"},
                )
                loc = ("switches", switch, setting, written)
                details.append(InitErrorDetails(type=kind, loc=loc, input=line["input"]))
            if details:
                raise ValidationError.from_exception_data("spec", details) from None


def _full_path(path: str) -> str:
    return f"model.{path}" if path == "block" or path.startswith("block.") else path


def _unknown(loc: tuple[str, ...], noun: str, name: str, known: Mapping[str, Any]) -> ValidationError:
    near = difflib.get_close_matches(name, known, n=1)
    remedy = f"Did you mean `{near[0]}`?" if near else f"There are: {', '.join(known)}."
    return refusal(loc, name, f"there is no {noun} `{name}`", remedy)
