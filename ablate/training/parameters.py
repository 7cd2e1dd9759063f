"""Facts about the parameters of a model for optimizers: name, shape, role, weight decay, index of the block."""

from __future__ import annotations

import re

from torch import nn

from ablate.nn.pack import Packed
from ablate.spec.parameter import ParameterInfo, Role

_BLOCK = re.compile(r"(?:decoder_)?blocks\.(\d+)\.")
_HEAD = "head."


def parameter_infos(model: nn.Module) -> list[ParameterInfo]:
    """One `ParameterInfo` for each parameter, in the order of `model.parameters()`."""
    infos = {}
    for path, module in model.named_modules():
        for name, parameter in module.named_parameters(recurse=False):
            if parameter not in infos:
                infos[parameter] = _info(f"{path}.{name}" if path else name, name, parameter, module)
    return list(infos.values())


def _info(qualified: str, name: str, parameter: nn.Parameter, module: nn.Module) -> ParameterInfo:
    packed = isinstance(module, Packed)
    shape = tuple(parameter.shape[packed:])
    # Modules without pack axis follow the usual rule: weight decay for parameters with two or more axes.
    decays = name in module.decayed if isinstance(module, Packed) else len(shape) > 1
    block = _BLOCK.match(qualified)
    return ParameterInfo(
        qualified, shape, _role(qualified, name, shape, module, decays), decays, block and int(block[1])
    )


def _role(qualified: str, name: str, shape: tuple[int, ...], module: nn.Module, decays: bool) -> Role:
    if isinstance(module, Packed) and module.is_table:
        return "embedding"
    depthwise = isinstance(module, Packed) and name in module.depthwise
    if not decays or len(shape) < 2 or depthwise:
        return "gain"
    return "head" if qualified.startswith(_HEAD) else "matrix"
