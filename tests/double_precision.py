"""Modules of `transformers` in double precision, also where their code asks for single precision (norms, angles)."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor


class DoubledTorch:
    """`torch` for a module of `transformers`, single precision being double."""

    float32 = float = torch.float64

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


def compute_in_double(monkeypatch: pytest.MonkeyPatch, *modules: ModuleType) -> None:
    """Until the test ends, what these modules compute in single precision they compute in double."""
    for module in modules:
        monkeypatch.setattr(module, "torch", DoubledTorch())
    monkeypatch.setattr(Tensor, "float", Tensor.double)
