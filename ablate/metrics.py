"""Names of metrics and of costs.

A metric is named by the split that is measured and by what is measured, as in `val_loss` and `test_loss`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple, Self

Split = Literal["val", "test"]
"""`val`: the validation split, which decides what is better; `test`: read once, at the end, by reports alone."""


class Metric(NamedTuple):
    """A metric on a split.

    Attributes:
        name: What is measured: `loss`, `accuracy`.
        split: On which data; None for what is measured on none, as `seconds`.
    """

    name: str
    split: Split | None

    @classmethod
    def of(cls, written: str) -> Self:
        """The metric of a name such as `val_loss`."""
        split, underscore, name = written.partition("_")
        if underscore and split == "val":
            return cls(name, "val")
        if underscore and split == "test":
            return cls(name, "test")
        return cls(written, None)

    def on(self, split: Split) -> Self:
        """The same on another split."""
        return type(self)(self.name, split)

    def __str__(self) -> str:
        return self.name if self.split is None else f"{self.split}_{self.name}"


Way = Literal["minimize", "maximize"]

COUNTED: Mapping[str, Way] = {"parameters": "minimize", "flops": "minimize", "activation_bytes": "minimize"}
"""Costs that follow from the spec: trainable parameters; arithmetic of training one trial; bytes that one sequence
keeps for the backward pass."""
TIMED: Mapping[str, Way] = {"seconds": "minimize", "tokens_per_second": "maximize"}
"""Costs measured during training, without evaluation; they depend on the machine and its load."""
COSTS: Mapping[str, Way] = {**COUNTED, **TIMED}
