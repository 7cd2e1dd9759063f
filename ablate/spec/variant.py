"""`VariantSpec`: everything that determines a trial except its seed and the content of its data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

from pydantic import ValidationError, model_validator

from ablate.spec.base import Spec, below, content_hash, refusal
from ablate.spec.code import Code, CodeReader
from ablate.spec.model import ModelSpec
from ablate.spec.paths import PathError, assign, full_path
from ablate.spec.sentences import describe
from ablate.spec.task import TaskField
from ablate.spec.training import TrainingSpec


class VariantSpec(Spec):
    """The full spec that results from settings of the switches."""

    builds_model: ClassVar[bool] = True
    """Whether ablate builds and trains its model; False where the user's trainer does (`TrainerVariant`)."""

    model: ModelSpec
    """The model."""
    task: TaskField
    """The task."""
    training: TrainingSpec
    """The training."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        families = self.task.model_families
        if self.model.family not in families:
            raise refusal(
                ("model", "family"),
                self.model.family,
                f"the task {self.task.kind_name()} needs the family {' or '.join(sorted(families))}",
                "Change `model.family` or `task.kind`.",
            )
        if self.task.pooled is not None and self.task.pooled != (self.model.head is not None):
            need = (
                "one output per input, so the model needs a `head`"
                if self.task.pooled
                else "an output per token, so the model cannot have a `head`"
            )
            raise refusal(
                ("model", "head"),
                None,
                f"the task {self.task.kind_name()} needs {need}",
                "Add `head: {pooling: mean}`." if self.task.pooled else "Leave `head` out.",
            )
        try:
            if self.task.separates_documents:
                self.model.check_documents()
            self.model.check_context(self.task.length)
        except ValidationError as error:
            raise below(("model",), error) from None
        for field, lengths in self.training.evaluate_at.items():
            self._check_lengths(field, lengths)
        if self.training.loss_chunk is not None and (
            self.model.head is not None or self.model.family == "dual_encoder"
        ):
            raise refusal(
                ("training", "loss_chunk"),
                self.training.loss_chunk,
                "the loss is computed in chunks of tokens, and this model predicts a class",
                "Leave `loss_chunk` out.",
            )
        self._check_context_growth()
        initialiser, optimizer = self.model.initialiser, self.training.optimizer
        if initialiser.scales_rates and optimizer.scaled_growth("matrix") is None:
            raise refusal(
                ("training", "optimizer", "kind"),
                optimizer.kind_name(),
                f"{initialiser.kind_name()} scales rates with the size of the model; this optimizer does not say how",
                "Define its method `growth` (with `hyperball` there is none), set `training.optimizer.kind: adamw`, or"
                " another `model.initialiser`.",
            )
        try:
            self.training.optimizer.check_model(self.model)
        except ValidationError as error:
            raise below(("training", "optimizer"), error) from None
        for name in ("micro_batch", "batch_growth"):
            if self.task.uneven_batches and getattr(self.training, name) is not None:
                raise refusal(
                    ("training", name),
                    {},
                    f"batches by tokens have other numbers of rows at each step, which `{name}` cannot divide",
                    "Leave it out, or set `task.batches_by: pairs`.",
                )
        return self

    def canonical_json(self) -> str:
        """As any spec, made of the texts of its parts, which variants share."""
        parts = ("model", self.model), ("task", self.task), ("training", self.training)
        return "{" + ",".join(f'"{name}":{part.canonical_json()}' for name, part in parts) + "}"

    def _check_context_growth(self) -> None:
        growth = self.training.context_growth
        if growth is None:
            return
        if not self.task.shortens:
            raise refusal(
                ("training", "context_growth"),
                growth.kind_name(),
                f"the inputs of the task {self.task.kind_name()} are whole, and lose their answer when they are cut",
                "Leave `context_growth` out, or choose the task `language_model`, `language_mixture` or"
                " `masked_language_model`.",
            )
        try:
            growth.check(self.task.length)
        except ValidationError as error:
            raise below(("training", "context_growth"), error) from None

    def _check_lengths(self, field: str, lengths: Sequence[int]) -> None:
        """Refuse lengths at which the task cannot be measured, or that the model cannot read."""
        where, own = ("training", "evaluate_at", field), self.task.length_field
        if field != own:
            rule = f"the task {self.task.kind_name()} is measured at one length only"
            if own:
                rule = f"the length of the task {self.task.kind_name()} is its `{own}`"
            remedy = f"Write `evaluate_at: {{{own}: [...]}}`." if own else "Leave `evaluate_at` out."
            raise refusal(where, list(lengths), rule, remedy)
        for length in lengths:
            try:
                longest = self.task.at_length(length).length
            except ValidationError as error:
                (_, rule), *_ = describe(error)
                rule = f"the task {self.task.kind_name()} cannot have `{field}: {length}`: {rule}"
                raise refusal(where, length, rule, "Leave this length out, or change the task.") from None
            try:
                self.model.check_context(self.task.length, longest)
            except ValidationError as error:
                raise below(("model",), error) from None

    def require_model(self) -> None:
        """Nothing: ablate builds its model.

        Raises:
            SpaceError: The user's trainer does.
        """

    def is_complete(self, step: int) -> bool:
        """Whether a trial whose curve ends at this step was trained to its end."""
        return step == self.training.steps

    def stage(self) -> VariantSpec | None:
        """The variant that is trained before this one; None if it starts from no stage of its study.

        Raises:
            ValidationError: The values of the stage are invalid.
        """
        start = self.training.init_from
        if start is None or start.stage is None:
            return None
        left_out = ("init_from", "freeze")
        training = {name: value for name, value in self.training.editable().items() if name not in left_out}
        plain: dict[str, Any] = {"model": self.model, "task": self.task, "training": training}
        for path, value in start.stage.items():
            try:
                assign(plain, full_path(path), value)
            except PathError as error:
                loc = ("training", "init_from", "stage", path)
                raise refusal(loc, value, str(error), error.remedy, kind="no_path") from None
        try:
            return VariantSpec.model_validate(plain)
        except ValidationError as error:
            raise below(("training", "init_from", "stage"), error) from None

    def code(self, reader: CodeReader) -> Code:
        """The code of its kinds, and of those of the stages that are trained before it."""
        before = self.stage()
        own = reader.of(self)
        return own if before is None else own.after(before.code(reader))

    def trial_key(self, data_fingerprint: str, seed: int) -> str:
        """The key of a trial: trials with equal keys are the same training run, in any study."""
        return trial_key(self.content_hash(), data_fingerprint, seed, self.code(CodeReader()))


def trial_key(variant_hash: str, data_fingerprint: str, seed: int, code: Code = Code.unknown) -> str:
    """The key of a trial of the variant with this content hash, trained by this code."""
    identity = {"code": code.identity} if code.identity else {}
    return content_hash({"variant": variant_hash, "data": data_fingerprint, "seed": seed, **identity})
