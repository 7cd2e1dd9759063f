"""`TrainingSpec`: how a trial is trained; the weights that it starts from, and its population."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, ValidationError, ValidationInfo, field_validator, model_validator

from ablate.spec.annotations import OneOf, ShortFor, default_kind
from ablate.spec.base import Spec, below, largest_divisor, refusal
from ablate.spec.named import expand_setting
from ablate.spec.optimizer import OptimizerSpec
from ablate.spec.schedule import Average, Growth, Phase, ScheduleSpec, runs

_MUTABLE_PATHS = ("training.optimizer.", "training.schedule.")

Positive = Annotated[float, Field(gt=0)]


class ExchangeSpec(Spec):
    """Population based training (arXiv:1711.09846): at intervals the worst members copy weights, optimizer state and
    values of the best ones, and continue with perturbed values."""

    size: int = Field(default=8, ge=2, le=1000)
    """Number of members."""
    every: int = Field(ge=1)
    """Steps between exchanges."""
    ranges: dict[str, tuple[Positive, Positive]] = Field(min_length=1)
    """Lower and upper bounds of paths below `training.optimizer` or `training.schedule`. Values are sampled uniformly
    on a logarithmic scale, and perturbed by a fifth up or down."""
    share: float = Field(default=0.25, gt=0, le=0.5)
    """Share of members that copy from the same share of best members."""
    redraw: float = Field(default=0.25, ge=0, le=1)
    """Probability that a copied value is resampled instead of perturbed."""

    @model_validator(mode="after")
    def _can_exchange(self) -> Self:
        for path, (low, high) in self.ranges.items():
            if not path.startswith(_MUTABLE_PATHS):
                rule = "only paths below `training.optimizer` or `training.schedule` can change during training"
                raise refusal(("ranges", path), [low, high], rule, "Search over other paths with `kind: search`.")
            if not low < high:
                raise refusal(
                    ("ranges", path), [low, high], "a range must be ascending", f"Write `[{high:g}, {low:g}]`."
                )
        return self

    def clip(self, path: str, value: float) -> float:
        """A value clipped to its range and rounded to six digits."""
        low, high = self.ranges[path]
        return float(f"{min(max(value, low), high):.6g}")


class PopulationSpec(ExchangeSpec):
    """The population of a trial and its member number, set by the design."""

    member: int = Field(ge=0)
    """Number of this member."""
    draws: int = Field(default=0, ge=0)
    """Random seed of the initial values of members."""


class InitFromSpec(Spec):
    """The weights of a trained model, and how they are given to this one. A bare text is the `source`.

    A trial is known by the content of its source: a file that moves gives the same trial, one that changes another.
    """

    source: str = ""
    """The key of a trial whose weights the store keeps (`save_weights`), or its first characters; a file of weights
    under our names (safetensors, or what torch loads with `weights_only=True`); the folder of a Hugging Face model; or
    `hub:OWNER/NAME[@REVISION]`."""
    stage: dict[str, Any] | None = None
    """Instead of a source: a stage of training before this one. The values, by spec path, with which this variant is
    trained first, without its own `init_from` and `freeze` unless they set one. Each seed starts from the stage's trial
    of that seed, which is a trial as any other: it is trained once and reused."""
    map: Literal["auto", "exact"] = "auto"
    """`auto`: copies what agrees by meaning, and lists what is new and what has no place; `exact`: refuses a source
    whose tensors have other names or shapes."""
    layers: tuple[Annotated[int, Field(ge=0)], ...] | None = None
    """For each layer of the model, the layer of the source that it starts from; unless set, layer i of d starts from
    layer i·s/d of the s that the source has, rounded down."""
    identity: str = ""
    """Checksum of the source's weights, or of the stage's spec and data. It is filled in when the study is planned;
    where it is written, another content is refused."""

    @field_validator("stage", mode="before")
    @classmethod
    def _name_a_block(cls, stage: Any, info: ValidationInfo) -> Any:
        return expand_setting(stage, (info.context or {}).get("folders", ())) if isinstance(stage, dict) else stage

    @model_validator(mode="after")
    def _has_one_source(self) -> Self:
        if bool(self.source) == (self.stage is not None) and not (self.identity and self.stage is None):
            raise refusal(
                ("source",),
                self.source,
                "weights come from a `source` or from a `stage` of this study",
                "Write `init_from: FILE`, or `init_from: {stage: {training.steps: 100}}`.",
            )
        return self

    def canonical(self) -> Any:
        """As any spec; of a source whose identity is known, the identity alone."""
        plain = super().canonical()
        return (
            {name: value for name, value in plain.items() if name not in ("source", "stage")}
            if self.identity
            else plain
        )


_ASIDE = ("save_weights", "record_blocks")
_BACKWARD = 2.0
"""Arithmetic of a backward pass over that of its forward pass."""


Lengths = Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(min_length=1)]


class TrainingSpec(Spec):
    """Steps, batches, optimizer, schedule, precision and how often the validation loss is measured."""

    value_fields: ClassVar[frozenset[str]] = frozenset({"schedule", "save_weights", "record_blocks", "init_from"})

    steps: int = Field(ge=0)
    """Optimizer steps. With 0 a model that `init_from` names is evaluated as it is."""
    batch_size: int = Field(ge=1)
    """Sequences in a batch; the largest number of them, if it grows."""
    batch_growth: Growth | None = Field(default=None, exclude_if=lambda growth: growth is None)
    """How the batch size grows over the steps up to `batch_size`; it is constant unless set."""
    context_growth: Growth | None = Field(default=None, exclude_if=lambda growth: growth is None)
    """How the length of training inputs grows over the steps up to the context of the task; it is constant unless set.
    Validation and test always have the whole context."""
    optimizer: Annotated[OptimizerSpec, OneOf]
    """The optimizer; `adamw` unless it says its `kind`."""
    schedule: Annotated[ScheduleSpec, OneOf] = default_kind(ScheduleSpec)
    """The learning rate over the steps; `linear` unless it says its `kind`."""
    average: Average | None = None
    """The average of the weights that is evaluated and kept instead of the weights after the last step; none unless
    set."""
    micro_batch: int | None = Field(default=None, ge=1)
    """Sequences that are processed at once: the gradients of the parts of a batch are summed before the step. A divisor
    of `batch_size`, and of each larger batch that `batch_growth` gives. Results are those of the whole batch but for
    rounding and the noise of dropout; less memory is needed. Default: the whole batch."""
    recompute: Literal["none", "blocks"] = "none"
    """What is computed again in the backward pass to save memory: `blocks` keeps only the input of each block, for
    about a third more time. Results stay the same."""
    loss_chunk: int | None = Field(default=None, ge=1)
    """Tokens whose logits are computed at once; the backward pass computes them again, so that the logits of a batch
    are never all in memory. For models that predict tokens. Default: all."""
    precision: Literal["fp32", "tf32", "bf16"] = "fp32"
    """`bf16`: matrix products under autocast; parameters and optimizer stay fp32. `tf32`: float32 products that round
    their factors to 10 bits of fraction, on GPUs from NVIDIA's Ampere on; refused elsewhere."""
    compile: Literal["none", "blocks"] = Field(default="none", exclude_if=lambda compile: compile == "none")
    """`blocks`: `torch.compile` of each block, during the first steps; equal blocks share a program. The time that it
    takes does not count as training. Evaluations run eagerly. A CPU needs a C++ compiler, a GPU Triton."""
    evaluations: int = Field(default=10, ge=1, le=100_000)
    """Points of the validation curve, evenly spread over the steps; the last one is at the end."""
    population: PopulationSpec | None = Field(default=None, exclude_if=lambda population: population is None)
    """The population that the trial belongs to; the design `population` sets it."""
    init_from: Annotated[InitFromSpec, ShortFor("source")] | None = Field(
        default=None, exclude_if=lambda init_from: init_from is None
    )
    """The weights from which every trial starts; random ones unless set."""
    freeze: tuple[str, ...] = Field(default=(), exclude_if=lambda freeze: not freeze)
    """Parts of the model that keep their weights: `mixer.query`, `mlp`, `embedding`, `blocks.0` ... A part is the
    beginning of the name of a parameter, with or without its layer. It has no gradient and no optimizer state."""
    insides: Literal["none", "ends", "evaluations"] = Field(
        default="none", exclude_if=lambda insides: insides == "none"
    )
    """When attention, activations and gradients are measured on the first validation windows, as metrics whose names
    begin with `inside_`: `ends`, before the first step and after the last; `evaluations`, at every evaluation too. Any
    of them may be an objective, and be named in claims and columns."""
    rounded_bits: tuple[Annotated[int, Field(ge=2, le=8)], ...] = Field(default=(), exclude_if=lambda bits: not bits)
    """Numbers of bits, such as `[8, 4]`, to which the final weights are rounded for further losses, `val_loss_int8` and
    `val_loss_int4`: the matrices of all layers to the nearest integer times one scale for each output channel, without
    calibration. Each takes one more evaluation."""
    evaluate_at: dict[str, Lengths] = Field(default_factory=dict, exclude_if=lambda at: not at)
    """Lengths at which the final model is also measured, by the name of the field of the task that sets its length:
    `{context: [64, 128, 256]}`, or `{span: [16, 64]}` of `copy`. Every metric of the task is measured at each length
    after the last step, as `val_loss_at_256`, on the validation data of the task with that value."""
    save_weights: bool = False
    """Whether the final weights of every trial are kept, for `ablate generate` and `ablate translate`. It changes no
    result, so it is not part of the identity of a trial: one that was trained without is not trained again."""

    record_blocks: bool = False
    """Whether each evaluation records how large the weights and gradients of every block are, and how its mixer mixes
    the first tokens of the validation data, for the trial's page of the dashboard. As `save_weights`, it renames no
    trial."""

    @property
    def lengths(self) -> tuple[int, ...]:
        """The lengths of `evaluate_at`, each once."""
        return tuple(dict.fromkeys(length for lengths in self.evaluate_at.values() for length in lengths))

    @property
    def rows_at_once(self) -> int:
        """Sequences that are processed at once."""
        return self.micro_batch or self.batch_size

    @model_validator(mode="after")
    def _divides_its_batch(self) -> Self:
        if self.micro_batch is not None and self.batch_size % self.micro_batch:
            raise refusal(
                ("micro_batch",),
                self.micro_batch,
                f"a micro-batch divides the batch, which has {self.batch_size} sequences",
                f"Set `micro_batch` to {largest_divisor(self.batch_size, self.micro_batch)}, or another divisor.",
            )
        return self

    @model_validator(mode="after")
    def _grows_to_its_batch(self) -> Self:
        if self.batch_growth is None:
            return self
        try:
            self.batch_growth.check(self.batch_size)
        except ValidationError as error:
            raise below(("batch_growth",), error) from None
        sizes = [phase.batch_size for phase in self.phases(context=1)]
        uneven = [size for size in sizes if size % min(size, self.rows_at_once)]
        if uneven:
            raise refusal(
                ("batch_growth", "multiple"),
                self.batch_growth.multiple,
                f"a micro-batch, of {self.micro_batch} sequences, divides each larger batch, and one has {uneven[0]}",
                f"Set `multiple: {self.micro_batch}`, or a smaller `micro_batch`.",
            )
        return self

    @model_validator(mode="after")
    def _evaluates_what_was_trained(self) -> Self:
        if self.steps == 0 and self.init_from is None:
            raise refusal(
                ("steps",),
                0,
                "without a step a model is evaluated as it starts, and this one starts from random weights",
                "Set `init_from`, or 1 step or more.",
            )
        return self

    @model_validator(mode="after")
    def _exchanges_what_was_measured(self) -> Self:
        if self.population is not None and self.init_from is not None:
            raise refusal(
                ("init_from",),
                self.init_from.source,
                "members of a population copy weights of one another, and start from random ones",
                "Leave `init_from` out, or choose another design.",
            )
        if self.population is not None and self.population.every * min(self.evaluations, self.steps) < self.steps:
            raise refusal(
                ("population", "every"),
                self.population.every,
                "members are compared by their validation loss, which is measured at every"
                f" {self.steps / self.evaluations:g} steps",
                "Set `every` to no less, or more `training.evaluations`.",
            )
        return self

    @model_validator(mode="after")
    def _has_time_for_its_schedule(self) -> Self:
        if self.steps == 0:
            return self
        try:
            self.schedule.check_steps(self.steps)
        except ValidationError as error:
            raise below(("schedule",), error) from None
        return self

    def canonical(self) -> Any:
        """As any spec, without what changes no result."""
        return {name: value for name, value in super().canonical().items() if name not in _ASIDE}

    def shape_at(self, step: int, context: int) -> tuple[int, int]:
        """Batch size, and length of training inputs in tokens, at a step counted from 1.

        Args:
            context: Length of the inputs of the task.
        """
        batch, growth = self.batch_growth, self.context_growth
        return (
            self.batch_size if batch is None else batch.size(self.batch_size, step, self.steps),
            context if growth is None else growth.size(context, step, self.steps),
        )

    def phases(self, context: int) -> tuple[Phase, ...]:
        """The steps by the shape of their batches, in order; none without a step.

        Args:
            context: Length of the inputs of the task.
        """
        if self.batch_growth is None and self.context_growth is None:
            return (Phase(1, self.steps, self.batch_size, context),) if self.steps else ()
        return tuple(runs(lambda step: self.shape_at(step, context), self.steps))

    def step_flops(
        self, forward: float, parameters: int, width: int, frozen: float = 0.0, batch_size: float | None = None
    ) -> float:
        """Arithmetic of one step: forward and backward pass over a batch, and the optimizer.

        Args:
            forward: Arithmetic of the forward pass over one example.
            parameters: Trainable parameters of the model.
            frozen: Part of `forward` that frozen maps do, whose own gradients are not computed.
            batch_size: Sequences in the batch, on average; `self.batch_size` unless given.
        """
        backward = _BACKWARD * forward - frozen
        return (forward + backward) * (batch_size or self.batch_size) + self.optimizer.step_flops(parameters, width)

    def evaluation_steps(self) -> tuple[int, ...]:
        """The steps after which the validation loss is measured, ascending, the last step among them."""
        count = min(self.evaluations, self.steps)
        return tuple(round(self.steps * (i + 1) / count) for i in range(count))

    def inside_steps(self) -> frozenset[int]:
        """The steps after which `insides` are measured; 0 is before the first."""
        ends = (0, self.steps)
        return frozenset({"none": (), "ends": ends, "evaluations": (*ends, *self.evaluation_steps())}[self.insides])
