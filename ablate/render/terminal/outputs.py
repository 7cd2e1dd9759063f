"""The JSON that each command prints with `--json`, as records and schemas; those of a study: `ablate.render.outputs`.

The functions that write the output are typed by these records.
"""

from __future__ import annotations

import difflib
import inspect
import re
from dataclasses import dataclass, is_dataclass
from typing import Any, Literal, NotRequired

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema
from typing_extensions import TypedDict

from ablate.analysis.claims import ClaimVerdict
from ablate.analysis.ideas import Idea
from ablate.analysis.why import GateAnswer, Why
from ablate.errors import ArgumentError
from ablate.execution.doctor import DoctorFinding
from ablate.render.drawing.picture import Drawing
from ablate.render.outputs import DrivenStudy, JudgedTableOutput, PairedOutput, ReportOutput, StudyOutput, TrialInFlight
from ablate.stats import Interval
from ablate.stats.calibrate import Power
from ablate.store.check import StoreCheck
from ablate.timing import Timing


class StartsOutput(TypedDict):
    """`new --list`: the starting points, each with its question."""

    starts: dict[str, str]


class NewSpaceOutput(TypedDict):
    """`new`: the file that was written."""

    space: str


class StartOutput(TypedDict):
    """What a variant takes from trained weights: the names of tensors."""

    source: str
    copied: tuple[str, ...]
    new: tuple[str, ...]
    unused: tuple[str, ...]


class InvalidPointOutput(TypedDict):
    """A point whose settings are not a valid model."""

    name: str
    reason: str


class ValidSpaceOutput(TypedDict):
    """`validate` of a space. For an invalid one the error on stderr lists every mistake.

    Attributes:
        points: Number of variants.
        further: What the design may add, as a clause.
        same_as: Name of a point to that of the equal one before it.
        without_effect: Settings that change nothing.
        doubts: Settings that are valid but probably a mistake.
        missing: What its data lacks.
    """

    space: str
    valid: Literal[True]
    points: int
    further: str
    invalid: list[InvalidPointOutput]
    same_as: dict[str, str]
    without_effect: list[str]
    doubts: list[str]
    starts: dict[str, StartOutput]
    missing: str | None


class ValidModelOutput(TypedDict):
    """`validate` of a model."""

    model: str
    description: str
    source: str
    family: str
    depth: int
    width: int
    vocabulary: int
    context: int
    parameters: int
    published_parameters: int | None


class PlannedVariantOutput(TypedDict):
    """A variant of a plan; `flops` is the arithmetic of one trial, training alone."""

    name: str
    hash: str
    settings: dict[str, Any]
    parameters: int | None
    flops: float | None
    steps: int
    width: int | None
    frozen: int
    start: StartOutput | None


class ScoutOutput(TypedDict):
    """A variant that only tunes or times another."""

    name: str
    hash: str
    flops: float | None
    steps: int


class LaterTrialOutput(TypedDict):
    """A trial that needs results of others before it is planned."""

    variant: str
    seed: int
    flops: float | None
    seconds: float | None


class TrialOutput(LaterTrialOutput):
    """A trial of a plan; `done` if the store has it."""

    key: str
    done: bool


class ChangedCodeOutput(TypedDict):
    """A kind whose code has changed since the store's trials, and how many of them that concerns."""

    kind: str
    what: str
    trials: int
    accepted: bool


class VariantOnMachineOutput(TypedDict):
    """A variant on another machine."""

    name: str
    hours: float
    efficiency: float
    memory_bytes: int
    fits: bool
    micro_batch: int | None


class OtherMachineOutput(TypedDict):
    """A plan on another machine (`--on`, `--flops`, `--doctor`)."""

    device: str
    count: int
    devices_of_a_trial: float
    hours: float
    device_hours: float
    memory_bytes: float | None
    variants: list[VariantOnMachineOutput]


class PlannedOutput(TypedDict):
    """`plan`.

    Attributes:
        later: Trials that need results of others first.
        seconds: Wall time of all that is not done.
        basis: What the estimate rests on.
        further_trials: The most that results can add to these; null: no bound is known.
        machine: With another machine only.
    """

    study: str
    variants: list[PlannedVariantOutput]
    trials: list[TrialOutput]
    scouts: list[ScoutOutput]
    later: list[LaterTrialOutput]
    invalid: list[InvalidPointOutput]
    same_as: dict[str, str]
    without_effect: list[str]
    warnings: list[str]
    doubts: list[str]
    changed_code: list[ChangedCodeOutput]
    seconds: float | None
    basis: str
    further_trials: int | None
    machine: NotRequired[OtherMachineOutput]


class TrainedOutput(TypedDict):
    """`study` and `resume`, as the last line of standard output.

    Attributes:
        trials: That the design proposed.
        trained: Finished in this run.
        reused: Finished before.
        failed: Failed in this run.
        seconds: Wall time of this run.
        interrupted: Whether it stopped before the end, by a signal or by --max-trials or --max-seconds.
        verdicts: Variant to its verdict.
        headline: The answer in one to three sentences.
    """

    study: str
    trials: int
    trained: int
    reused: int
    failed: int
    diverged: int
    pruned: int
    seconds: float
    interrupted: bool
    verdicts: dict[str, str]
    headline: list[str]


class ActivityOutput(TypedDict):
    """`status`."""

    at: str
    studies: list[DrivenStudy]
    running: list[TrialInFlight]


class ListedStudyOutput(TypedDict):
    """A study of `list`: its planned trials, and how many are in each state; `judged`: not trained here."""

    study: str
    question: str
    variants: int
    planned: int
    finished: int
    diverged: int
    pruned: int
    failed: int
    running: int
    judged: bool
    updated_at: str


class ListedTrialOutput(TypedDict):
    """A trial of `show --trials`."""

    key: str
    variant: str
    seed: int
    state: str
    metrics: dict[str, float]


class WrittenOutput(TypedDict):
    """`report --out` and `site`: the files."""

    written: list[str]


class IdeasOutput(TypedDict):
    """`ideas`, with a warning on how many were looked at."""

    ideas: list[Idea]
    caution: str


class NoiseOfStudyOutput(TypedDict):
    """The spread of the paired differences about their means; `residuals` says how many there are."""

    sd: float
    least: float
    most: float
    comparisons: int
    freedom: int
    most_freedom: int
    residuals: int


class CalibrationOutput(TypedDict):
    """`calibrate`: what each number of seeds can detect, and the schedule of the study."""

    study: str
    metric: str
    margin: float
    noise: NoiseOfStudyOutput
    fixed: list[Power]
    adaptive: Power | None


class SideTrialOutput(TypedDict):
    """A trial of a side."""

    key: str
    seed: int
    state: str


class ComparedSideOutput(TypedDict):
    """A side of `diff`."""

    name: str
    kind: str
    variant: str | None
    parameters: int | None
    trials: list[SideTrialOutput]


class PathDifferenceOutput(TypedDict):
    """A path whose value differs; a side that does not have it is left out."""

    path: str
    left: NotRequired[Any]
    right: NotRequired[Any]


class MetricDifferenceOutput(TypedDict):
    """A metric of both sides, and right minus left over their common seeds."""

    left: Interval
    right: Interval
    difference: PairedOutput


class SideBySideOutput(TypedDict):
    """`diff`. The environment is null where one of the sides has no trials."""

    left: ComparedSideOutput
    right: ComparedSideOutput
    spec: list[PathDifferenceOutput]
    environment: list[PathDifferenceOutput] | None
    seeds: list[int]
    result: dict[str, MetricDifferenceOutput]


class RenamedOutput(TypedDict):
    """`rename`."""

    study: str
    before: str


class DeletedOutput(TypedDict):
    """`delete`: how many trials went, and how many other studies keep."""

    deleted: str
    trials: int
    kept: int


class ExportedOutput(TypedDict):
    """`export-study`: the file, and how many trials are in it."""

    study: str
    file: str
    trials: int


class ImportedStudyOutput(TypedDict):
    """`import-study`: how many trials the file brought, and how many the store had."""

    study: str
    trials: int
    known: int


class MeasuredOutput(TypedDict):
    """A metric of a task of `lm-eval`."""

    task: str
    metric: str
    value: float | None
    standard_error: float | None


class MeasuredFileOutput(TypedDict):
    """A text: loss in nats per token."""

    path: str
    tokens: int
    bytes: int
    loss: float
    perplexity: float
    bits_per_byte: float


class EvaluatedOutput(TypedDict):
    """`evaluate`."""

    trial: str
    tasks: NotRequired[list[MeasuredOutput]]
    stored_as: NotRequired[list[str]]
    file: NotRequired[MeasuredFileOutput]


class GeneratedOutput(TypedDict):
    """`generate`."""

    trial: str
    prompt: str
    text: str


class TranslatedOutput(TypedDict):
    """`translate`: a line for each text."""

    text: str
    translation: str


class CurveTwiceOutput(TypedDict):
    """A validation loss as it was stored and as it is now."""

    step: int
    stored: float | None
    again: float | None


class DivergedTwiceOutput(TypedDict):
    """The steps at which the trial diverged."""

    stored: int | None
    again: int | None


class ReproducedOutput(TypedDict):
    """`reproduce`; in the environment, left is the stored one and right is this one."""

    trial: str
    variant: str | None
    seed: int
    verdict: Literal["identical", "equal", "different"]
    largest_difference: float | None
    tolerance: float
    diverged_at: DivergedTwiceOutput
    curve: list[CurveTwiceOutput]
    environment: list[PathDifferenceOutput]


class ImportedOutput(TypedDict):
    """`import`: the model, and the largest difference of its logits from those of `transformers`."""

    model_type: str
    family: str
    depth: int
    width: int
    vocabulary: int
    context: int
    parameters: int
    space: str | None
    compared: bool
    same: bool | None
    max_difference: float | None
    bound: NotRequired[float]


class ForOptunaOutput(TypedDict):
    """`export --optuna`: how many trials were written, and how many were there."""

    study: str
    written: int
    there: int
    storage: str


class ForHuggingFaceOutput(TypedDict):
    """`export --hf`."""

    trial: str
    folder: str
    model_type: str
    native: bool


class FactsOutput(TypedDict):
    """A kind (`kind`), or a named block or model (`name`), with its facts, which depend on the family."""

    kind: NotRequired[str]
    name: NotRequired[str]
    description: str


class PictureFileOutput(TypedDict):
    """`draw --out`."""

    picture: str


@dataclass(slots=True, kw_only=True)
class SizedDrawing(Drawing):
    """`draw`: boxes, lines and notes in character cells."""

    columns: int
    rows: int


class CountsOutput(TypedDict):
    """Counts of operations and bytes."""

    parameters: int
    multiplications: int
    additions: int
    divisions: int
    exponentiations: int
    flops: int
    activation_bytes: int
    cache_bytes: NotRequired[int]


class CostOfOutput(TypedDict):
    """`cost`: the sub-layers of one layer of the usual sort, what is around the layers, and the total of all."""

    name: str
    mode: Literal["inference", "training"]
    width: int
    heads: int
    context: int
    depth: int
    vocabulary: int
    complexity: str
    mixer: CountsOutput
    mlp: CountsOutput
    rest: CountsOutput
    around: CountsOutput
    total: CountsOutput


class CostOfSpaceOutput(TypedDict):
    """`cost` of a space."""

    variants: list[CostOfOutput]


class BenchOutput(TypedDict):
    """`bench`: what was timed; `growth` is the exponent of time in the length."""

    width: int
    heads: int
    batch: int
    device: str
    whole: bool
    threads: int
    rows: list[Timing]
    growth: dict[str, float | None]


class InspectOutput(TypedDict):
    """`inspect`: measures before training, by block and member; `absent` says why some are missing."""

    name: str
    on: str
    seeds: list[int]
    by_block: dict[str, dict[str, list[float | None]]]
    absent: dict[str, str]
    metrics: dict[str, list[float | None]]


class CoordinateOutput(TypedDict):
    """An output of the model at each size, and its change, after each step; `exponent` is the growth by size."""

    dimension: Literal["width", "depth"]
    part: str
    sizes: list[int]
    values: list[list[float | None]]
    changes: list[list[float | None]]
    exponent: float | None
    passes: bool


class LossAtRateOutput(TypedDict):
    """The loss at a factor of the rates of the space; null where a seed diverged."""

    factor: float
    loss: float | None


class RateCurveOutput(TypedDict):
    """The loss by learning rate at one size; `best` is the factor with the lowest loss."""

    dimension: Literal["width", "depth"]
    size: int
    losses: list[LossAtRateOutput]
    best: float
    at_edge: bool


class TransferOutput(TypedDict):
    """`check-transfer`; `grid_steps` is by how many steps of the grid the best rate moves, by dimension."""

    transfers: bool
    coordinates: list[CoordinateOutput]
    rates: list[RateCurveOutput]
    grid_steps: dict[str, int]


class BrokenRuleOutput(TypedDict):
    """A rule that a kind breaks, and where."""

    rule: str
    spec: dict[str, Any]
    context: dict[str, Any]
    detail: str


class CheckedKindOutput(TypedDict):
    """`check-kind`: it keeps the rules if `findings` is empty; `missing` names fields that it needs to be tried."""

    kind: str
    family: str
    settings: int
    rules: NotRequired[list[str]]
    warnings: NotRequired[list[str]]
    findings: NotRequired[list[BrokenRuleOutput]]
    missing: NotRequired[list[str]]


Bin = TypedDict("Bin", {"from": int, "to": int, "count": int})
"""A bin of a histogram, both ends included."""


class DataOutput(TypedDict):
    """`data`: counts by split, and the metrics of models that learn nothing."""

    space: str
    task: str
    data: str
    fingerprint: str
    vocabulary: int
    context: int
    classes: int | None
    rows: dict[str, int]
    tokens: dict[str, int]
    lengths: list[Bin]
    labels: dict[str, int]
    samples: list[str]
    notes: list[str]
    departs: str
    baselines: dict[str, dict[str, float | None]]


class ExaminedOutput(TypedDict):
    """`doctor`."""

    device: str
    findings: list[DoctorFinding]


class MistakeOutput(TypedDict):
    """A mistake: what, where, what was expected, what was found, how to correct it; of a file, all `mistakes`."""

    problem: str
    where: str
    expected: str | None
    got: str | None
    remedy: str | None
    mistakes: NotRequired[list[MistakeAtOutput]]


class MistakeAtOutput(TypedDict):
    """One of several mistakes of a file."""

    where: str
    problem: str


class FailedOutput(TypedDict):
    """Every command, on standard error, with exit code 2."""

    error: MistakeOutput


VERSION = 1
"""Of the outputs; raised when a key is removed or means something else. Keys may be added without that."""

OUTPUTS: dict[str, Any] = {
    "new": NewSpaceOutput | StartsOutput,
    "validate": ValidSpaceOutput | ValidModelOutput,
    "plan": PlannedOutput,
    "study": TrainedOutput,
    "resume": TrainedOutput,
    "status": ActivityOutput,
    "show": StudyOutput | Why | list[ListedTrialOutput],
    "report": ReportOutput | WrittenOutput,
    "site": WrittenOutput,
    "list": list[ListedStudyOutput],
    "judge": JudgedTableOutput | Why,
    "claims": list[ClaimVerdict],
    "gate": GateAnswer,
    "ideas": IdeasOutput,
    "calibrate": CalibrationOutput,
    "diff": SideBySideOutput,
    "rename": RenamedOutput,
    "delete": DeletedOutput,
    "export-study": ExportedOutput,
    "import-study": ImportedStudyOutput,
    "check-store": StoreCheck,
    "evaluate": EvaluatedOutput,
    "generate": GeneratedOutput,
    "translate": TranslatedOutput,
    "reproduce": ReproducedOutput,
    "import": ImportedOutput,
    "export": ForOptunaOutput | ForHuggingFaceOutput,
    "kinds": dict[str, list[FactsOutput]],
    "draw": SizedDrawing | PictureFileOutput,
    "cost": CostOfOutput | CostOfSpaceOutput,
    "bench": BenchOutput,
    "inspect": InspectOutput,
    "check-kind": CheckedKindOutput | list[CheckedKindOutput],
    "check-transfer": TransferOutput,
    "data": DataOutput | list[DataOutput],
    "doctor": ExaminedOutput,
    "error": FailedOutput,
}
"""Command to the record of its output; `error` is what every command prints on standard error."""


class _Schema(GenerateJsonSchema):
    """JSON Schema of what is written: a number of a dataclass may be null, and no key is unknown."""

    _inside = 0

    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> JsonSchemaValue:
        self._inside += 1
        try:
            return self._closed(super().dataclass_schema(schema), schema["cls"])
        finally:
            self._inside -= 1

    def typed_dict_schema(self, schema: core_schema.TypedDictSchema) -> JsonSchemaValue:
        outside, self._inside = self._inside, 0
        try:
            return self._closed(super().typed_dict_schema(schema), schema["cls"])
        finally:
            self._inside = outside

    def float_schema(self, schema: core_schema.FloatSchema) -> JsonSchemaValue:
        number = super().float_schema(schema)
        return {**number, "type": ["number", "null"]} if self._inside else number

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        made = super().nullable_schema(schema)
        first = made.get("anyOf", [made])[0]
        return first if "null" in first.get("type", ()) else made

    @staticmethod
    def _closed(made: JsonSchemaValue, record: Any) -> JsonSchemaValue:
        text, _, fields = (inspect.getdoc(record) or "").partition("\nAttributes:\n")
        for name, meaning in re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", fields, re.MULTILINE):
            if name in made["properties"]:
                made["properties"][name]["description"] = re.sub(r"\bNone\b", "null", " ".join(meaning.split()))
        closed = {**made, "description": " ".join(text.split()), "additionalProperties": record is FactsOutput}
        return {**closed, "required": list(made["properties"])} if is_dataclass(record) else closed


def output_schema(command: str) -> dict[str, Any]:
    """The JSON Schema of what a command prints with `--json`; `error`: of what every command prints on stderr.

    Raises:
        ArgumentError: No command of this name prints JSON.
    """
    if command not in OUTPUTS:
        near = difflib.get_close_matches(command, OUTPUTS, n=1)
        remedy = f"Did you mean `{near[0]}`?" if near else None
        raise ArgumentError(
            "no command of this name prints JSON",
            where="--output",
            expected=", ".join(OUTPUTS),
            got=command,
            remedy=remedy,
        )
    made = TypeAdapter(OUTPUTS[command]).json_schema(mode="serialization", schema_generator=_Schema)
    return {"$schema": _Schema.schema_dialect, "$id": f"ablate:output:{command}:{VERSION}", "version": VERSION, **made}
