"""Torch's AdamW without the guard that keeps `torch.compile` out of an optimiser.

The guard imports the compiler when the first optimiser is made, which costs every worker process a second or two of its
processor before its first step. Nothing here is compiled, and the numbers are the same.
"""

from __future__ import annotations

import inspect

import torch


class AdamW(torch.optim.AdamW):
    """Decoupled weight decay (arXiv:1711.05101), as torch has it."""

    # What torch decorated, undecorated; a step's other decorator turned gradients off.
    step = torch.no_grad()(inspect.unwrap(torch.optim.AdamW.step))
    zero_grad = inspect.unwrap(torch.optim.AdamW.zero_grad)
    add_param_group = inspect.unwrap(torch.optim.AdamW.add_param_group)
