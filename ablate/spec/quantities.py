"""What a variant costs, by the names that claims, searches and reports use, and which way each is better."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

Way = Literal["minimize", "maximize"]

COUNTED: Mapping[str, Way] = {"parameters": "minimize", "flops": "minimize", "activation_bytes": "minimize"}
"""Follow from the spec: trainable parameters; arithmetic of training one trial; bytes that one sequence keeps for the
backward pass."""
TIMED: Mapping[str, Way] = {"seconds": "minimize", "tokens_per_second": "maximize"}
"""Measured in training, evaluation left out: they hang on the machine and on what else it did."""
COSTS: Mapping[str, Way] = {**COUNTED, **TIMED}
