"""`SpaceFields`: baseline model, task, training, switches, design, objective, claims and resources of a space.

`ResourcesSpec`, resources of a trial and its checkpoints, is not part of the variant.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import (
    BeforeValidator,
    Field,
    JsonValue,
    PrivateAttr,
    ValidationInfo,
    model_validator,
)
from pydantic_core import PydanticCustomError

from ablate.metrics import INFERENCE, Measure, at_length, inside_names, rounded_loss, time_to
from ablate.spec.annotations import STUDY_NAME, ShortFor, Spelling
from ablate.spec.base import LARGEST, Margin, Spec, refusal
from ablate.spec.claims import ClaimField
from ablate.spec.composer import ROOTS, Composer
from ablate.spec.design import DesignContext, DesignField, Point, PointCost
from ablate.spec.fairness import (
    BudgetsField,
    MatchSpec,
    TunedValues,
    TuneSpec,
    tuned_by_variant,
)
from ablate.spec.model import ModelSpec
from ablate.spec.named import expand_setting
from ablate.spec.paths import full_path
from ablate.spec.suite import TASK, AggregateSpec, written_out
from ablate.spec.task import TaskField, TaskSpec
from ablate.spec.training import TrainingSpec

if TYPE_CHECKING:
    from ablate.spec.document import Document

_MINUTES = re.compile(r"(\d+(?:\.\d+)?) ?min(?:utes?)?")


@dataclass(frozen=True, slots=True)
class CheckpointInterval:
    """When a trial writes a checkpoint; never if both are 0.

    Attributes:
        seconds: Seconds of wall time between checkpoints.
    """

    steps: int = 0
    seconds: float = 0.0

    def is_due(self, step: int, seconds: float) -> bool:
        """Whether to write a checkpoint after a step, `seconds` after the last checkpoint."""
        return bool((self.steps and step % self.steps == 0) or (self.seconds and seconds >= self.seconds))


def _interval(value: Any) -> Any:
    text = value.strip() if isinstance(value, str) else value
    if isinstance(text, str):
        if (match := _MINUTES.fullmatch(text)) and float(match[1]) > 0:
            return text
        text = int(text) if text.isdecimal() else None
    if type(text) is int and 0 <= text <= LARGEST:
        return text
    remedy = "Write steps, such as 500, or minutes, such as `10 min`; 0 for no checkpoints."
    rule = "an interval is a number of steps, or of minutes"
    raise PydanticCustomError("interval", "{rule}", {"rule": rule, "remedy": remedy})


class ResourcesSpec(Spec):
    """Resources of each job, and its checkpoints.

    They do not affect results, so they are not part of the trial key. An engine refuses what it cannot give: the local
    engine has no `custom` resources, `labels` or URLs.
    """

    cpus: float = Field(default=1.0, gt=0)
    """Processor cores for each process of a job, which is also its number of threads (at least one)."""
    gpus: float | None = Field(default=None, ge=0)
    """GPUs for each job, or a fraction of one. Several GPUs must be in one machine; the job has one process on each,
    which trains on its share of every batch. Default where there are GPUs: one on the local engine; on a cluster the
    share that the predicted memory of the largest trial needs, so that jobs can share a GPU."""
    shard: bool = False
    """Whether the GPUs of a job divide weights, gradients and the state of the optimizer among them (FSDP), for models
    that do not fit on one. Otherwise each has all of them."""
    memory: float | None = Field(default=None, gt=0)
    """Memory for each job in GiB. Default: the predicted memory of the largest trial plus 0.5 GiB."""
    custom: dict[str, Annotated[float, Field(gt=0)]] = Field(default_factory=dict)
    """Custom resources, by the names given when the nodes were started."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Labels that the node of a job must have, such as `ray.io/accelerator-type: H100`."""
    checkpoint_every: Annotated[int | str, BeforeValidator(_interval)] = Field(
        default=0,
        json_schema_extra={
            "anyOf": [
                {"type": "integer", "minimum": 0, "maximum": LARGEST},
                {"type": "string", "pattern": _MINUTES.pattern},
            ]
        },
    )
    """Steps between checkpoints, such as 500, or minutes, such as `10 min`; 0: none. A trial whose process or machine
    died resumes from its last checkpoint, with the same curve."""
    checkpoint_dir: str = ""
    """Location of checkpoints: a folder, which all nodes of a cluster share, or on a cluster a URL that fsspec or Arrow
    supports (`s3://...`). Default of the local engine: a folder beside the store."""

    @property
    def checkpoint_interval(self) -> CheckpointInterval:
        """`checkpoint_every` as numbers."""
        if isinstance(self.checkpoint_every, int):
            return CheckpointInterval(steps=self.checkpoint_every)
        match = _MINUTES.fullmatch(self.checkpoint_every)
        assert match is not None, "validated"
        return CheckpointInterval(seconds=60 * float(match[1]))

    @property
    def processes(self) -> int:
        """The processes of a job: one for each of its GPUs, and one without any or on a share of one."""
        return max(1, int(self.gpus or 0))

    @model_validator(mode="before")
    @classmethod
    def _read_the_old_name(cls, value: Any) -> Any:
        if isinstance(value, Mapping) and "storage" in value and "checkpoint_dir" not in value:
            return {"checkpoint_dir" if name == "storage" else name: given for name, given in value.items()}
        return value

    @model_validator(mode="after")
    def _can_be(self) -> Self:
        if self.gpus is not None and self.gpus > 1 and self.gpus != int(self.gpus):
            rule = "a job gets whole GPUs, or a fraction of one"
            raise refusal(("gpus",), self.gpus, rule, f"Write {int(self.gpus)}, or less than 1.")
        return self


def _expand(value: Any, info: ValidationInfo) -> Any:
    if value is None:
        remedy = "Write `{}` for the setting that changes nothing."
        raise PydanticCustomError("no_setting", "a setting is a mapping of paths to values", {"remedy": remedy})
    if isinstance(value, str):
        remedy = "Write a mapping; a text for the whole switch is written as `removes:` or `replaces:`."
        raise PydanticCustomError("no_setting", "a setting is a mapping of paths to values", {"remedy": remedy})
    return expand_setting(value, (info.context or {}).get("folders", ())) if isinstance(value, dict) else value


Setting = Annotated[dict[str, JsonValue], BeforeValidator(_expand)]
"""Values of spec paths that a setting of a switch sets."""

TaskSetting = Annotated[dict[str, JsonValue], BeforeValidator(_expand), BeforeValidator(written_out)]
"""A task of a suite, with the values of other spec paths that it needs."""

Name = Annotated[str, Spelling(r"^[^\s,=]+$", "a name is one word without commas and equals signs")]
"""Name of a switch, setting or variant. Names of points combine these with commas and equals signs."""


class ObjectiveSpec(Spec):
    """The metric that is compared, and the smallest difference that matters."""

    metric: str = "val_loss"
    """Name of a metric of the task."""
    direction: Literal["minimize", "maximize"] = "minimize"
    """Whether smaller or larger values are better."""
    reach: float | None = Field(default=None, exclude_if=lambda reach: reach is None)
    """A target: what is compared is the time until the validation loss reaches it, not the loss at the end."""
    measure: Measure = Field(default="steps", exclude_if=lambda measure: measure == "steps")
    """In what that time is measured: `steps`, `tokens`, `flops` (arithmetic of training), or `seconds` (the tokens
    until then, over the training rate measured in turns with the baseline)."""
    margin: Margin
    """The smallest difference that matters, in units of the metric, declared before the study runs: one beyond it gives
    the verdict `needed` or `worse`, one below it `not needed` or `not worse`, an improvement beyond it `better`. With
    `reach` it is a share: 0.05 is 5 % more steps."""

    @property
    def compared(self) -> str:
        """The name of what is compared: the metric, or the time to the target, such as `steps_to_1.9`."""
        return self.metric if self.reach is None else time_to(self.measure, self.reach)


class SpaceFields(Spec):
    """The fields of a space, and what follows from them; `SpaceSpec` is a space whose parts fit together."""

    name: Annotated[str, STUDY_NAME]
    """Name of the study: letters, digits, `.`, `_` and `-`."""
    question: str
    """The question that the study answers, as a sentence."""
    source: str = ""
    """The paper that the question comes from."""
    departs: str = ""
    """How data or evaluation differ from that paper; `ablate data` shows it."""
    plugins: tuple[str, ...] = Field(default=(), exclude=True)
    """Python files with your own components, as `--plugin` names them; paths are relative to the space file."""
    task: TaskField
    """The task; a space with several has `tasks` instead."""
    tasks: dict[Name, TaskSetting] = Field(default_factory=dict, exclude_if=lambda tasks: not tasks)
    """Several tasks by name, on each of which every variant is trained: `{recall: {kind: recall}, copy: {kind: copy}}`.
    A task may set other paths too: `{task: {kind: copy}, training.steps: 500}`."""
    aggregate: AggregateSpec | None = Field(default=None, exclude_if=lambda aggregate: aggregate is None)
    """How the results of several tasks are averaged; needed with `tasks`."""
    model: ModelSpec
    """The baseline model."""
    training: TrainingSpec
    """The training of a trial."""
    switches: dict[Name, dict[Name, Setting]] = Field(min_length=1)
    """Settings of each switch; the first setting is the baseline's. A setting assigns values to spec paths. A path
    starts at `model`, `task` or `training`; `block` is short for `model.block`. Switches are applied in the order in
    which they are written: if two set the same path, the later one wins. A value replaces the previous one without
    merging. A `block` that is set to the name of a block replaces the exceptions of the model by those of the block. A
    switch or a setting may have a text on what it removes, `removes: the skip around attention`, or replaces,
    `replaces: attention by a mean`, which answers use. Brackets at its end explain the name, once below the answer:
    `replaces: the block by SAS (no attention skip)`."""
    variants: dict[Name, dict[Name, Name]] = Field(default_factory=dict)
    """Settings of named variants; other switches are at the baseline's setting. They may have a text, `removes` or
    `replaces`, as switches may."""
    design: DesignField
    """Which variants are trained, with how many seeds."""
    objective: ObjectiveSpec
    """The objective."""
    claims: tuple[ClaimField, ...] = ()
    """Hypotheses; each gets a verdict."""
    columns: tuple[str, ...] = Field(default=(), exclude_if=lambda columns: not columns)
    """Metrics and costs that the table shows beside the objective, with intervals; no verdict reads them."""
    resources: ResourcesSpec = ResourcesSpec()
    """Resources of a trial on a cluster; they do not affect results."""
    tune: TuneSpec | None = Field(default=None, exclude_if=lambda tune: tune is None)
    """A grid that is trained for each variant before the comparison, to choose its best values: paths with lists of
    values, and `seeds`, the number of trials of each combination."""
    tuned: TunedValues = Field(default_factory=dict, exclude_if=lambda tuned: not tuned)
    """Values that were tuned for each variant before this study, by spec path and variant. Every variant that the
    design trains must be listed; its value counts on all rungs, places of a sweep and tasks that have no own value,
    such as `mixer=linear@rung=2`."""
    match: Annotated[MatchSpec, ShortFor("equal")] = Field(
        default=MatchSpec(), exclude_if=lambda match: match == MatchSpec()
    )
    """The quantity that is equal for all variants: `steps`, `tokens`, `seconds`, `flops` or `parameters`."""
    budgets: BudgetsField = Field(default=(), exclude_if=lambda budgets: not budgets)
    """Lengths at which every variant is trained and compared, as multiples of `training.steps`, 1 among them: `[1, 2,
    4]`. Each has a whole schedule of its own. The report tells whether each verdict holds over them."""

    timing: Literal[False, True, "inference"] = Field(default=False, exclude_if=lambda timing: not timing)
    """Whether to time the variants after the trials: steps of each in turns with the baseline, some seconds each.
    Without, no report says how fast a variant trains. `inference` also measures how fast a decoder reads and writes
    text, and what it keeps in its caches; so does `--time` where a column or a claim names one of these."""

    _document: Document | None = PrivateAttr(default=None)

    @functools.cached_property
    def task_specs(self) -> dict[str, TaskSpec]:
        """The tasks by name; a single one has an empty name."""
        return {name: task for name, (task, _) in self.trained_tasks.items()}

    @functools.cached_property
    def trained_tasks(self) -> dict[str, tuple[TaskSpec, TrainingSpec]]:
        """The tasks by name, each with its training."""
        if not self.tasks:
            return {"": (self.task, self.training)}
        variants = {name: self.composer.compose({TASK: name}) for name in self.tasks}
        return {name: (variant.task, variant.training) for name, variant in variants.items()}

    @property
    def metric_names(self) -> frozenset[str]:
        """Names of all metrics of the task, or of those that all tasks have."""
        return functools.reduce(frozenset.intersection, self.metric_names_of_tasks.values())

    @property
    def metric_names_of_tasks(self) -> dict[str, frozenset[str]]:
        """Names of all metrics of each task; a single one has an empty name."""
        return {
            name: task.metric_names | self._measured(task, training, late=False)
            for name, (task, training) in self.trained_tasks.items()
        }

    @property
    def final_metric_names(self) -> frozenset[str]:
        """Names of the metrics that a task may not measure before the first step."""
        return frozenset().union(*(self._measured(*parts, late=True) for parts in self.trained_tasks.values()))

    def _measured(self, task: TaskSpec, training: TrainingSpec, *, late: bool) -> frozenset[str]:
        """Names of metrics that not every evaluation has; `late`: of those that are not known before the first step."""
        insides = frozenset() if training.insides == "none" else inside_names(self.model.depth, late=late)
        lengths = (at_length(name, length) for name in task.metric_names for length in training.lengths)
        return task.final_metric_names.union(insides, map(rounded_loss, training.rounded_bits), lengths)

    @property
    def times_inference(self) -> bool:
        """Whether a timing also measures what inference costs."""
        named = {*self.columns, *(quantity for claim in self.claims for quantity in claim.quantities())}
        return self.timing == "inference" or bool(named & INFERENCE)

    @functools.cached_property
    def composer(self) -> Composer:
        """Makes the variants of this space. Several tasks are a switch that is applied before all others."""
        switches = {TASK: self.tasks, **self.switches} if self.tasks else self.switches
        return Composer({root: getattr(self, root) for root in ROOTS}, switches)

    @property
    def baseline_settings(self) -> dict[str, str]:
        """Every switch at its first setting."""
        return self.composer.baseline_settings

    def single_settings(self) -> Iterator[tuple[str, str]]:
        """All (switch, setting) pairs except those of the baseline."""
        for switch, settings in self.switches.items():
            for setting in list(settings)[1:]:
                yield switch, setting

    def design_context(
        self, refusal: Callable[[Point], str | None], cost: Callable[[Point], PointCost]
    ) -> DesignContext:
        """The context of the design of this space; see `DesignContext` for the two callables."""
        return DesignContext(
            switches={switch: tuple(settings) for switch, settings in self.switches.items()},
            variants=self.variants,
            direction=self.objective.direction,
            margin=self.objective.margin,
            refusal=refusal,
            cost=cost,
            where=self._design_position,
            tuned=tuned_by_variant(self.tuned),
            rates=self._rates(),
        )

    def _rates(self) -> Literal["tuned", "scaled", "given"]:
        """As `DesignContext.rates`."""
        if self.model.initialiser.scales_rates:
            return "scaled"
        tuned = map(full_path, (*(self.tune.grid if self.tune is not None else ()), *self.tuned))
        return (
            "tuned" if any(path.startswith("training.optimizer") and path.endswith("lr") for path in tuned) else "given"
        )

    def _design_position(self, *keys: str) -> str:
        """As `DesignContext.where`."""
        loc = ("design", *keys)
        path = ".".join(loc)
        return path if self._document is None else f"{self._document.position(loc)}: `{path}`"

    def taken(self) -> Iterator[tuple[str, str]]:
        """All paths that a switch or the design sets, with what sets them."""
        for switch, options in self.switches.items():
            for path in (path for setting in options.values() for path in setting):
                yield path, f"the switch `{switch}`"
        for path in self.design.paths():
            yield path, f"the {self.design.kind_name()} design"

    def points(self) -> dict[str, Point]:
        """The points of the design that are known before results, by name."""
        # The names of points do not depend on their cost, which needs a model.
        context = self.design_context(lambda point: None, lambda point: PointCost(parameters=0, flops=0.0))
        return {point.name: point for point in self.design.build(context).points()}
