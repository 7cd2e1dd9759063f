"""The JSON Schema of what each command prints with `--json`, made of the records in `outputs`."""

from __future__ import annotations

import difflib
import inspect
import re
from dataclasses import is_dataclass
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from ablate.analysis.claims import ClaimVerdict
from ablate.analysis.why import GateAnswer, Why
from ablate.errors import ArgumentError
from ablate.render.outputs import JudgedTableOutput, ReportOutput, StudyOutput
from ablate.render.terminal.outputs import (
    ActivityOutput,
    BenchOutput,
    CalibrationOutput,
    CheckedKindOutput,
    CostOfOutput,
    CostOfSpaceOutput,
    DataOutput,
    DeletedOutput,
    EvaluatedOutput,
    ExaminedOutput,
    ExportedOutput,
    FactsOutput,
    FailedOutput,
    ForHuggingFaceOutput,
    ForOptunaOutput,
    GeneratedOutput,
    IdeasOutput,
    ImportedOutput,
    ImportedStudyOutput,
    InspectOutput,
    ListedStudyOutput,
    ListedTrialOutput,
    NewSpaceOutput,
    PictureFileOutput,
    PlannedOutput,
    RenamedOutput,
    ReproducedOutput,
    SideBySideOutput,
    SizedDrawing,
    StartsOutput,
    TrainedOutput,
    TransferOutput,
    TranslatedOutput,
    ValidModelOutput,
    ValidSpaceOutput,
    WrittenOutput,
)
from ablate.store.check import StoreCheck

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
