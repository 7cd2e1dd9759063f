"""The contracts of all families."""

from __future__ import annotations

from typing import Any

from ablate.contracts import design, format, mixer, parts, source, task, tokenizer, tracker, training
from ablate.contracts.contract import Contract

CONTRACTS: dict[str, Contract[Any, Any]] = {
    "mixers": mixer.CONTRACT,
    "mlps": parts.MLP,
    "norms": parts.NORM,
    "positions": parts.POSITION,
    "residuals": parts.RESIDUAL,
    "initialisers": parts.INITIALISER,
    "optimizers": training.OPTIMIZER,
    "schedules": training.SCHEDULE,
    "tasks": task.CONTRACT,
    "tokenizers": tokenizer.CONTRACT,
    "sources": source.CONTRACT,
    "designs": design.CONTRACT,
    "formats": format.CONTRACT,
    "trackers": tracker.CONTRACT,
}
"""By the name of the family, as in `ablate.plugins.FAMILIES`."""
