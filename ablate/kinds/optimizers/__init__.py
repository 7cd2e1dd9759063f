"""The kinds of optimizer, and what several of them need."""

from __future__ import annotations

import inspect
from typing import Any

import torch


def without_compile_guard(optimizer: type[torch.optim.Optimizer]) -> type[Any]:
    """The same optimizer class, with the methods that torch decorates as they are without the decorators.

    The decorators import the compiler when the first optimizer is made, which costs every worker process a second or
    two of processor time before its first step. Nothing here is compiled, and the numbers are the same.
    """
    methods = {name: inspect.unwrap(getattr(optimizer, name)) for name in ("step", "zero_grad", "add_param_group")}
    methods["step"] = torch.no_grad()(methods["step"])  # the decorators of `step` turned gradients off, too
    return type(optimizer.__name__, (optimizer,), methods)
