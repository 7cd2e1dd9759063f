"""`Packed`: a module that declares the initial values of its tensors, and which of them have weight decay."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import torch
from torch import nn

if TYPE_CHECKING:
    from ablate.spec.initialiser import Initial


class Packed(nn.Module):
    """Base of all primitives: tensors are declared as [K, ...] and filled by `initialise`.

    Attributes:
        pack: K.
        initial: Name of a tensor to the rule of its initial values.
        decayed: Names of the parameters with weight decay (matrices; not gains, norms, biases).
        depthwise: Names of the parameters with two axes that are not matrices: depthwise filters, whose fan-in is their
            number of taps.
    """

    is_table: ClassVar[bool] = False
    """Whether its weight is a table of vectors, for tokens or positions, not a map."""
    share_key: object = None
    """In the layers of a stack, modules with equal keys are one module; None: not shared."""

    def __init__(self, pack: int) -> None:
        super().__init__()
        self.pack = pack
        self.initial: dict[str, Initial] = {}
        self.decayed: set[str] = set()
        self.depthwise: set[str] = set()

    def declare(
        self,
        name: str,
        shape: tuple[int, ...],
        initial: Initial,
        *,
        decay: bool = False,
        trainable: bool = True,
        depthwise: bool = False,
    ) -> None:
        """Register a parameter (or, not trainable, a buffer) of shape [K, *shape]."""
        values = torch.zeros((self.pack, *shape))
        if trainable:
            self.register_parameter(name, nn.Parameter(values))
        else:
            self.register_buffer(name, values)
        self.initial[name] = initial
        if decay:
            self.decayed.add(name)
        if depthwise:
            self.depthwise.add(name)
