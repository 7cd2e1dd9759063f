"""What stands for the model, task and variant where a study runs the user's trainer (`ablate.spec.trainer`).

A variant is a value for each parameter, and a trial is one run of the trainer with these values and a seed
(`ablate.execution.own_trainer`). Whatever asks such a study for its model gets a `SpaceError` that says why there is
none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from pydantic import Field, JsonValue, SerializerFunctionWrapHandler, model_serializer, model_validator
from pydantic.json_schema import SkipJsonSchema

from ablate.errors import SpaceError
from ablate.spec.base import Spec
from ablate.spec.composer import Composer, Switches, check_settings
from ablate.spec.task import DataShape, DataSummary, Say, Task, TaskSpec
from ablate.spec.variant import VariantSpec

if TYPE_CHECKING:
    import torch

    from ablate.spec.task import Batch
from ablate.spec.trainer import TrainerSpec


def _no_model() -> SpaceError:
    return SpaceError(
        "this needs a model and data that ablate knows, and this study runs a trainer of your own",
        where="`trainer`",
        remedy="Verdicts, curves, reports and the dashboard work; cost, packs, block drawings and weights do not.",
    )


class _Absent:
    """Stands for the model of a variant that the user's trainer builds: everything it is asked is an error."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise _no_model()

    def __deepcopy__(self, memo: object) -> _Absent:
        return self


ABSENT: Any = _Absent()
"""The model of the user's trainer."""


class TrainerTask(TaskSpec):
    """Stands for the task of the user's trainer, whose data ablate does not know."""

    model_families: ClassVar[frozenset[str]] = frozenset()
    trainer: TrainerSpec
    """The trainer."""
    named: frozenset[str] = frozenset()
    """The metrics that its space names. Others may be in its rows."""

    @classmethod
    def kind_name(cls) -> str:
        """A name for messages."""
        return "of the trainer"

    @property
    def length(self) -> int:
        """Not known."""
        raise _no_model()

    @property
    def final_metric_names(self) -> frozenset[str]:
        """All that the space names: a trainer may measure it only at its end."""
        return self.named

    def missing(self) -> str | None:
        """The program or file that is missing."""
        return self.trainer.missing(Path.cwd())

    def prepare(self, cache: Path, say: Say) -> str:
        """Check that the trainer is there; nothing is prepared.

        Raises:
            SpaceError: A program or file is missing.
        """
        if missing := self.missing():
            raise SpaceError(missing, where="`trainer`")
        return ""

    def open(self, cache: Path, fingerprint: str) -> Task:
        """Data of which nothing is known."""
        return _NoData()


class _NoData(Task):
    """The data of the user's trainer."""

    fingerprint = ""
    shape = DataShape(0, 0)

    def train_batch(self, seed: int, step: int, batch_size: int) -> Batch:
        raise _no_model()

    def validation_batches(self, batch_size: int) -> Iterator[Batch]:
        return iter(())

    def loss(self, outputs: torch.Tensor, batch: Batch) -> torch.Tensor:
        raise _no_model()

    def metrics(self, sums: dict[str, list[Any]]) -> dict[str, list[float]]:
        return {}

    def measure(self, outputs: torch.Tensor, batch: Batch) -> dict[str, torch.Tensor]:
        return {}

    def tokens_per_batch(self, batch_size: int) -> int:
        return 0

    def describe(self) -> DataSummary:
        raise _no_model()


class TrainerVariant(VariantSpec):
    """A variant of the user's trainer: the trainer, and a value for each of its parameters.

    As JSON the parameters stand beside the trainer, so that the path of a parameter is its name.
    """

    builds_model: ClassVar[bool] = False

    trainer: TrainerSpec
    """The trainer."""
    parameters: dict[str, JsonValue]
    """Value of each parameter."""
    model: SkipJsonSchema[Any] = Field(default=ABSENT, exclude=True)
    """None that ablate knows."""
    task: SkipJsonSchema[Any] = Field(default=None, exclude=True)
    """Its data is not known."""
    training: SkipJsonSchema[Any] = Field(default=None, exclude=True)
    """Nothing of it is known but its steps."""

    @model_validator(mode="before")
    @classmethod
    def _parameters_apart(cls, value: Any) -> Any:
        if isinstance(value, Mapping) and "parameters" not in value:
            values = {name: item for name, item in value.items() if name != "trainer"}
            return {"trainer": value.get("trainer"), "parameters": values}
        return value

    @model_serializer(mode="wrap")
    def _parameters_beside(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {"trainer": serialize(self)["trainer"], **self.parameters}

    @model_validator(mode="after")
    def _fits(self) -> Self:
        values = self.trainer.check(self.parameters)
        training = self.trainer.training(values)
        self.__dict__.update(parameters=values, training=training, task=TrainerTask(trainer=self.trainer))
        return self

    def canonical(self) -> Any:
        """The trainer and all values, those at their default too: the trainer may not know the default."""
        parameters = Spec.canonical(self)["parameters"]
        return {"trainer": self.trainer.canonical(), **parameters}

    def canonical_json(self) -> str:
        """As any spec."""
        return Spec.canonical_json(self)

    def declared_sources(self) -> TrainerSpec:
        """The trainer, with the values of parameters in its command."""
        return self.trainer.with_values(self.parameters)

    def require_model(self) -> None:
        """Refuse what needs the model.

        Raises:
            SpaceError: Always.
        """
        raise _no_model()

    def is_complete(self, step: int) -> bool:
        """True: the trainer has ended without an error when its last row counts."""
        return True

    def stage(self) -> VariantSpec | None:
        """None: it starts from nothing that ablate trained."""
        return None


class ParameterComposer(Composer):
    """Composes variants of a trainer: settings of switches set parameters."""

    def __init__(self, trainer: TrainerSpec, switches: Switches) -> None:
        super().__init__({}, switches)
        self._trainer = trainer

    def compose(self, settings: Mapping[str, str], values: Mapping[str, JsonValue] | None = None) -> VariantSpec:
        """As for any space."""
        check_settings(self._switches, (), settings)
        return self.lay_over_baseline({**self.baseline_settings, **settings}, values or {})

    def _validate(self, plain: Mapping[str, Any]) -> VariantSpec:
        return TrainerVariant(trainer=self._trainer, parameters=self._trainer.check(plain))


def read_variant(text: str) -> VariantSpec:
    """The variant that a JSON text describes: a model that ablate builds, or a run of the user's trainer.

    Raises:
        ValidationError: It is neither.
    """
    kind: Callable[[str], VariantSpec] = VariantSpec.model_validate_json
    return TrainerVariant.model_validate_json(text) if text.startswith('{"trainer":') else kind(text)
