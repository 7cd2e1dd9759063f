"""Trained weights that variants of a study start from: their source, and which tensors are copied."""

from __future__ import annotations

from pathlib import Path

from ablate.errors import DataError, SpaceError
from ablate.spec.code import stage_identity
from ablate.spec.task import DataShape, Task
from ablate.spec.variant import VariantSpec
from ablate.trained.source import SourceWeights, read_source
from ablate.trained.transfer import Transfer, outline_of, transfer
from ablate.training.members import frozen_counts, part_names, unknown_parts


class Starting:
    """Reads each source once.

    Args:
        weights: Folder of the weights of the store's trials.
    """

    def __init__(self, weights: Path) -> None:
        self._weights = weights
        self._sources: dict[str, tuple[SourceWeights, str]] = {}
        self._known: dict[str, VariantSpec] = {}

    def identified(self, spec: VariantSpec, stage: tuple[str, str] | None) -> VariantSpec:
        """The spec with the identity of its source, and with the file or folder that was found.

        Args:
            spec: As the space writes it.
            stage: Content hash and data fingerprint of the variant that is trained before it; None if there is none.

        Raises:
            NotFoundError: There is no such source.
            DataError: It cannot be read, or is another than the spec says.
        """
        start = spec.training.init_from
        if start is None:
            return spec
        key = spec.content_hash()
        if key not in self._known:
            where, identity = start.source, start.identity
            if stage is not None:
                identity_now = stage_identity(*stage)
            else:
                source, identity_now = self._source(start.source)
                where = source.where
            if identity and identity != identity_now:
                raise DataError(
                    "the weights are not those that the space was written for",
                    where=f"training.init_from, {start.source or 'stage'}",
                    expected=f"the identity {identity[:12]}",
                    got=identity_now[:12],
                    remedy="Restore the weights, or leave `identity` out.",
                )
            known = start.model_copy(update={"source": where, "identity": identity_now})
            training = spec.training.model_copy(update={"init_from": known})
            self._known[key] = VariantSpec.model_validate(
                {"model": spec.model, "task": spec.task, "training": training}
            )
        return self._known[key]

    def transfer(self, spec: VariantSpec, task: Task, stage: tuple[VariantSpec, Task] | None) -> Transfer | None:
        """What a variant takes from its source; None if it starts from random weights.

        Args:
            stage: The variant that is trained before it, and its task; None if there is none.

        Raises:
            SpaceError: Without a step of training, some of its weights would be random.
        """
        start = spec.training.init_from
        if start is None:
            return None
        source = self._source(start.source)[0] if stage is None else self._of_stage(*stage)
        made = transfer(spec.model, task.shape, source, start)
        refuse_untrained(spec, made)
        return made

    def transfer_without_data(self, spec: VariantSpec) -> Transfer | None:
        """The weights that a variant takes from its source, as far as known without the data; None without a source.

        Vocabulary and classes are taken to be those of the source. Of a stage nothing can be said.

        Raises:
            AblateError: The source is missing or cannot be read, or what it lacks would stay random.
        """
        start = spec.training.init_from
        if start is None or start.stage is not None:
            return None
        source = self._source(start.source)[0]
        table = source.tensors.get("embedding.weight")
        vocabulary = 256 if table is None else table.shape[-2]
        last = 0 if spec.model.head is None else len(spec.model.head.hidden)
        biases = source.tensors.get(f"head.layers.{last}.bias")
        classes = 2 if biases is None else biases.shape[-1]
        made = transfer(spec.model, DataShape(vocabulary, spec.task.length, classes), source, start)
        refuse_untrained(spec, made)
        return made

    def frozen(self, spec: VariantSpec, task: Task) -> tuple[int, float]:
        """How many parameters are frozen, and the arithmetic of their gradients for a token.

        Raises:
            SpaceError: A part to freeze is none of the model, or nothing is left to train.
        """
        parts = spec.training.freeze
        if not parts:
            return 0, 0.0
        model = outline_of(spec.model, task.shape)
        if unknown := unknown_parts(model, parts):
            raise SpaceError(
                "the model has no such part to freeze",
                where="training.freeze",
                expected=f"some of {', '.join(part_names(model))}",
                got=", ".join(unknown),
                remedy="A part is the beginning of the name of a parameter, with or without `blocks.N.`.",
            )
        whole, maps = frozen_counts(model, parts)
        if spec.training.steps and whole == sum(parameter.numel() for parameter in model.parameters()):
            raise SpaceError(
                "all parts are frozen, so that nothing would be trained",
                where="training.freeze",
                got=", ".join(parts),
                remedy="Leave a part out, or set `training.steps: 0`.",
            )
        return whole, 2.0 * maps

    def _source(self, name: str) -> tuple[SourceWeights, str]:
        if name not in self._sources:
            source = read_source(name, self._weights)
            self._sources[name] = source, source.identity()
            self._sources[source.where] = self._sources[name]
        return self._sources[name]

    @staticmethod
    def _of_stage(stage: VariantSpec, task: Task) -> SourceWeights:
        """Names and shapes of the weights that a stage will leave."""
        tensors = dict(outline_of(stage.model, task.shape).state_dict())
        return SourceWeights("the stage before", tensors, stage.model)


def refuse_untrained(spec: VariantSpec, made: Transfer) -> None:
    """Refuse a model that is not trained and would keep some random weights.

    Raises:
        SpaceError: There are such weights, or layers with the settings of others.
    """
    if spec.training.steps == 0 and made.new:
        raise SpaceError(
            "without training, what the source does not have would stay random",
            where="training.steps",
            expected="a source with weights for the whole model",
            got=made.sentence(),
            remedy="Change the model to one that the source has the weights of, or set `training.steps`.",
        )
    if spec.training.steps == 0 and made.moved:
        raise SpaceError(
            "without training, layers would compute with the settings (window, positions, norms) of other layers",
            where="training.init_from.layers",
            expected="each layer with the settings that its weights were trained with",
            got=f"others in the layers {', '.join(map(str, made.moved))}",
            remedy="To do without layer N, keep and silence it: `model.exceptions.N: {gains: "
            "{mixer_branch: 0, mlp_branch: 0}}`. Or give these layers their settings under `model.exceptions`.",
        )
