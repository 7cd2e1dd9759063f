"""Descriptions of fields are those that pydantic reads off the source, at every import, if it is asked to."""

from __future__ import annotations

import pytest
from pydantic import BaseModel, ConfigDict, create_model

from ablate.spec.base import Spec
from ablate.spec.described import descriptions
from ablate.spec.space import SpaceSpec
from ablate.spec.training import TrainingSpec


class Parent(BaseModel):
    """Read by both."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    first: int = 1
    """One line."""
    bare: int = 2
    second: str = "x"
    """Two
    lines."""


class Child(Parent):
    first: int = 3
    third: float | None = None
    """Of the child."""
    """No field stands before this."""

    def method(self) -> None:
        """Of no field."""


@pytest.mark.parametrize("model", [Parent, Child])
def test_descriptions_are_those_of_pydantic(model: type[BaseModel]) -> None:
    theirs = {name: field.description for name, field in model.model_fields.items() if field.description}
    ours = descriptions(model)
    assert {name: ours[name] for name in theirs} == theirs
    assert "bare" not in ours


def test_a_class_without_source_has_none() -> None:
    assert descriptions(create_model("Typed", of=(int, 1))) == {}


@pytest.mark.parametrize("spec", [SpaceSpec, TrainingSpec])
def test_every_field_of_a_spec_is_described_in_its_schema(spec: type[Spec]) -> None:
    properties = spec.model_json_schema()["properties"]
    assert properties
    assert all(body.get("description") for body in properties.values())
