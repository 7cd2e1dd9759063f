"""The contracts of all families."""

from __future__ import annotations

from typing import Any

from ablate.contracts import (
    design,
    format,
    initialiser,
    mixer,
    mlp,
    norm,
    optimizer,
    position,
    residual,
    schedule,
    source,
    task,
    tokenizer,
    tracker,
)
from ablate.contracts.contract import Contract

CONTRACTS: dict[str, Contract[Any, Any]] = {
    "mixers": mixer.CONTRACT,
    "mlps": mlp.CONTRACT,
    "norms": norm.CONTRACT,
    "positions": position.CONTRACT,
    "residuals": residual.CONTRACT,
    "initialisers": initialiser.CONTRACT,
    "optimizers": optimizer.CONTRACT,
    "schedules": schedule.CONTRACT,
    "tasks": task.CONTRACT,
    "tokenizers": tokenizer.CONTRACT,
    "sources": source.CONTRACT,
    "designs": design.CONTRACT,
    "formats": format.CONTRACT,
    "trackers": tracker.CONTRACT,
}
"""By the name of the family, as in `ablate.plugins.FAMILIES`."""
