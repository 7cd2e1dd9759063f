"""Names of costs in claims, searches and reports, and whether smaller or larger values are better."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

Way = Literal["minimize", "maximize"]

COUNTED: Mapping[str, Way] = {"parameters": "minimize", "flops": "minimize", "activation_bytes": "minimize"}
"""Costs that follow from the spec: trainable parameters; arithmetic of training one trial; bytes that one sequence
keeps for the backward pass."""
TIMED: Mapping[str, Way] = {"seconds": "minimize", "tokens_per_second": "maximize"}
"""Costs measured during training, without evaluation; they depend on the machine and its load."""
COSTS: Mapping[str, Way] = {**COUNTED, **TIMED}
