"""`SourcedSpec`: a task whose data a source gives; `TokenizedSpec`: one whose texts a tokenizer cuts."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ablate.spec.annotations import OneOf, Spelling
from ablate.tasks.base import TaskSpec
from ablate.tasks.sources import Address, parse
from ablate.tasks.tokenizers import TokenizerSpec

Column = Annotated[str, Spelling(r"\S", "a column has a name, or a number counted from 1 in a file without header")]


class SourcedSpec(TaskSpec):
    """A task on rows or texts of a source."""

    data: Address
    """Address of the data: `builtin:NAME`, `file:PATH` with a file, a glob or a folder, or `hub:NAME`."""
    bad_rows: Literal["refuse", "skip"] = "refuse"
    """Whether a bad row stops the preparation, or is left out and counted."""

    def missing(self) -> str | None:
        """See `TaskSpec.missing`."""
        return parse(self.data).missing()


class TokenizedSpec(SourcedSpec):
    """A task on tokens of text."""

    tokenizer: Annotated[TokenizerSpec, OneOf]
    """How text becomes tokens."""
    context: int = Field(ge=2, le=1_000_000)
    """Tokens in one input."""

    @property
    def length(self) -> int:
        """See `TaskSpec.length`: the context."""
        return self.context
