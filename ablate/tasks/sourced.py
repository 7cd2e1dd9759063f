"""`SourcedSpec`: a task that reads a data source; `TokenizedSpec`: one that also tokenizes the text."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ablate.spec.annotations import OneOf, Spelling
from ablate.spec.task import TaskSpec
from ablate.tasks.sources import Address, parse
from ablate.tasks.tokenizers import TokenizerSpec

Column = Annotated[str, Spelling(r"\S", "a column has a name, or in a file without a header a number counted from 1")]


class SourcedSpec(TaskSpec):
    """A task on rows or texts of a source."""

    data: Address
    """Address of the data: `builtin:NAME`, `file:PATH` with a file, a glob or a folder, or `hub:NAME`."""
    bad_rows: Literal["refuse", "skip"] = "refuse"
    """Whether a bad row stops the preparation, or is skipped and counted."""

    def missing(self) -> str | None:
        return parse(self.data).missing()


class TokenizedSpec(SourcedSpec):
    """A task on tokenized text."""

    tokenizer: Annotated[TokenizerSpec, OneOf]
    """The tokenizer."""
    context: int = Field(ge=2, le=1_000_000)
    """Number of tokens in one input."""

    @property
    def length(self) -> int:
        """The context."""
        return self.context
