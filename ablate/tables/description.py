"""The description of a table of runs: which files, what identifies a run, what is asked; a few lines of YAML."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from ablate.errors import ArgumentError
from ablate.spec.base import Margin, Spec
from ablate.spec.document import read_document
from ablate.spec.sentences import describe

REACH = re.compile(r"^\s*(?P<metric>.+?)\s*(?P<sign>>=|<=)\s*(?P<target>\S+)\s*$")
"""A target: `METRIC >= NUMBER` or `METRIC <= NUMBER`."""


def _as_list(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


def _pattern(text: str) -> str:
    try:
        found = re.compile(text)
    except re.error as error:
        raise PydanticCustomError(
            "pattern", "this is not a regular expression ({problem})", {"problem": str(error)}
        ) from None
    if not found.groupindex:
        remedy = "Write what varies as `(?P<name>...)`."
        raise PydanticCustomError("pattern", "this regular expression has no named group", {"remedy": remedy})
    return text


def _target(text: str) -> str:
    match = REACH.match(text)
    try:
        known = match is not None and math.isfinite(float(match["target"]))
    except ValueError:
        known = False
    if not known:
        remedy = "Write `METRIC >= NUMBER` or `METRIC <= NUMBER`."
        raise PydanticCustomError("target", "this is not a target that a run can reach", {"remedy": remedy})
    return text


def _evaluation(value: Any) -> Any:
    is_step = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    if value is None or is_step or value in ("last", "shared", "best", "first"):
        return value
    remedy = "Give `last`, `shared`, `best`, `first`, or a step from 0 on."
    raise PydanticCustomError("evaluation", "this does not say which evaluation counts", {"remedy": remedy})


Columns = Annotated[tuple[str, ...], BeforeValidator(_as_list)]
Pattern = Annotated[str, AfterValidator(_pattern)]
Target = Annotated[str, AfterValidator(_target)]
Cells = dict[str, Columns]
"""Column to the texts that are meant."""
At = Annotated[Literal["last", "shared", "best", "first"] | Annotated[int, Field(ge=0)], BeforeValidator(_evaluation)]
Trap = Literal["zero", "mixed", "program", "percent", "folds", "summary"]
"""Refusals that a description may turn into warnings (`ablate.tables.traps`)."""


class RunTableSpec(Spec):
    """How files become rows, and rows become runs."""

    files: Columns = ()
    """Files, or patterns such as `*/*.csv`, relative to the description; or addresses of a tracker, such as
    `wandb:ENTITY/PROJECT`."""
    format: (
        Literal[
            "csv",
            "csv2",
            "tsv",
            "json",
            "jsonl",
            "parquet",
            "log",
            "lm-eval",
            "wandb",
            "tensorboard",
            "mlflow",
            "trackio",
            "aim",
        ]
        | None
    ) = None
    """Of the files; by default that of their ending. `csv2` has semicolons."""
    decimal: Literal[".", ","] | None = None
    """The decimal sign of a CSV or TSV file; by default a point, and of `csv2` the one that its numbers show."""
    header: Annotated[int, Field(ge=1, le=10)] = 1
    """Header rows of a CSV file; the names of several are joined with a dot, as `acc.test`."""
    path: Pattern | None = None
    """A regular expression that is searched in the path of each file; each named group is a column."""
    line: Pattern | None = None
    """Of a text log: a regular expression that is searched in each line; each named group is a column."""
    columns: Pattern | None = None
    """Of a table with a column for each seed: a regular expression that is searched in the names of columns. Each that
    matches becomes rows; its named groups are columns, and its cells the column `value`, or the one that the group
    `metric` names."""
    run: Columns = ()
    """The column with the name of a run; of several the first that is there."""
    name: Pattern | None = None
    """A regular expression that is searched in the name of a run; each named group is a column."""
    variant: Columns = ("variant",)
    """The column that names the variant; several make one name together. `*` is every column that has no other use."""
    ignore: Columns = ()
    """Columns that `*` leaves out."""
    seed: str | None = None
    """The column with the seed of a run, if it is not `seed`."""
    unit: str | None = None
    """What is repeated instead of seeds: the column of tasks, of data sets ..."""
    over: Columns = ()
    """Columns over which the value of one unit is averaged, such as folds or episodes: they are not independent."""
    step: Columns = ()
    """The column with the training step, where a run has a row for each evaluation; of several the first there."""
    repeated: Literal["refuse", "first", "last"] = "refuse"
    """What to do if a run holds a step twice: keep the first row, or the last."""
    pair: bool | None = None
    """Whether equal seeds share something. By default three seeds on both sides, or one task, are paired."""
    failed: Cells = Field(default_factory=dict)
    """Column to the texts of rows that are failed runs, such as `status: crash`."""
    rename: dict[str, dict[str, str]] = Field(default_factory=dict)
    """Column to texts and what they become, such as a task that was renamed between two versions."""

    @model_validator(mode="after")
    def _one_unit(self) -> RunTableSpec:
        if self.seed and self.unit:
            remedy = "Leave one of them out; what is averaged away is `over`."
            raise PydanticCustomError(
                "unit", "either `seed` or `unit` is what is repeated, not both", {"remedy": remedy}
            )
        return self


class QuestionSpec(Spec):
    """What is asked of a table; whatever is left out is as the description has it for all questions."""

    metric: str | None = None
    """The column that is compared; by default the name of the question."""
    direction: Literal["lower", "higher"] | None = None
    """Which of its values are better."""
    margin: Margin | None = None
    """How much worse matters, in the unit of the metric."""
    baseline: str | None = None
    """The variant with which all others are compared."""
    at: At | None = None
    """Which evaluation counts: `last` of each run, the last `shared` by all, the `best`, the `first`, or a step."""
    variants: Annotated[tuple[str, ...] | None, BeforeValidator(_as_list)] = None
    """The variants that are compared with the baseline; by default all."""
    where: Cells | None = None
    """Column to the texts of the rows that belong to the question."""
    each: str | None = None
    """The column whose every value is a question of its own, such as a task."""
    aggregate: bool | None = None
    """Whether to ask also for the mean over those, with each of them as one unit."""
    reach: Target | None = None
    """The metric at the first evaluation that reaches a target, such as `accuracy >= 0.9`."""
    files: Annotated[tuple[str, ...] | None, BeforeValidator(_as_list)] = None
    """Files of this question, instead of those of the table."""


class DescriptionSpec(QuestionSpec):
    """A table of runs that were trained elsewhere, and what is asked of it."""

    table: RunTableSpec = RunTableSpec()
    """How its files are read."""
    questions: dict[str, QuestionSpec] = Field(default_factory=dict)
    """By name. Without any, the keys above are the one question."""
    question: str | None = None
    """What the runs are to answer, in words; by default the metric and the baseline."""
    source: str | None = None
    """Who trained the runs, such as a repository; by default the files."""
    chosen: Columns = ()
    """Variants that were selected by these very results: they get no verdict without fresh runs."""
    holm: Literal["question", "all"] = "question"
    """Which verdicts hold jointly: those of each question, or all."""
    allow: tuple[Trap, ...] = ()
    """Refusals to turn into warnings."""

    def asked(self) -> dict[str, QuestionSpec]:
        """The questions by name, with what each takes from the description."""
        own = self.questions or {self.metric or "": QuestionSpec()}
        names = [name for name in QuestionSpec.model_fields if name != "files"]
        common = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        return {
            name: QuestionSpec.model_validate(
                {"metric": name or None} | common | {key: value for key, value in question if value is not None}
            )
            for name, question in own.items()
        }


def read_description(file: Path, over: Mapping[str, Any] | None = None) -> DescriptionSpec:
    """Read a description.

    Args:
        over: Keys that replace those of the file, such as options of a command.

    Raises:
        SpaceError: It cannot be read or is invalid; with file, line and column.
    """
    document = read_document(file, "the description of a table")
    plain = dict(document.plain)
    for key, value in (over or {}).items():
        both = isinstance(value, Mapping) and isinstance(plain.get(key), Mapping)
        plain[key] = {**plain[key], **value} if both else value
    try:
        return DescriptionSpec.model_validate(plain)
    except ValidationError as error:
        raise document.space_error(error) from None


def make_description(where: str, plain: Mapping[str, Any]) -> DescriptionSpec:
    """The same from plain values, such as options of a command.

    Raises:
        ArgumentError: One of them is invalid.
    """
    try:
        return DescriptionSpec.model_validate(plain)
    except ValidationError as error:
        (path, message), *_ = describe(error)
        option = ".".join(str(part) for part in path if part != "table")
        raise ArgumentError(f"`{option}`: {message}" if option else message, where=where) from None
