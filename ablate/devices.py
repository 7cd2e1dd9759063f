"""Accelerators by name: peak arithmetic, memory and bandwidth as their makers state them, without sparsity.

Used to plan a study for another machine, and to say which share of its device a trial used (model FLOP utilisation).
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, replace

from ablate.errors import EngineError

_GIGA, _TERA, _GIB = 1e9, 1e12, 2**30


@dataclass(frozen=True, slots=True)
class Device:
    """One accelerator.

    Attributes:
        name: The name by which `--on` takes it.
        title: The name by which its driver reports it, as a pattern.
        fp32: Peak FLOP/s of matmuls in float32, without TF32.
        bf16: Peak FLOP/s of dense matmuls in bfloat16 with sums in float32; that of float32 if it has no units for it.
        memory: Bytes.
        bandwidth: Bytes a second between its memory and its processors.
    """

    name: str
    title: str
    fp32: float
    bf16: float
    memory: float
    bandwidth: float

    def peak(self, precision: str) -> float:
        """Peak FLOP/s of matmuls in a precision of `training.precision`.

        Units for TF32 are half as fast as those for bfloat16, on all devices that have both.
        """
        return {"bf16": self.bf16, "tf32": max(self.fp32, self.bf16 / 2), "fp32": self.fp32}[precision]


def _device(name: str, title: str, fp32: float, bf16: float, memory: float, bandwidth: float) -> Device:
    return Device(name, title, fp32 * _TERA, bf16 * _TERA, memory * _GIB, bandwidth * _GIGA)


DEVICES = {
    device.name: device
    for device in (
        # name, title, TFLOP/s in fp32 and bf16, GiB, GB/s
        _device("t4", r"Tesla T4", 8.1, 8.1, 16, 320),
        _device("v100", r"V100", 15.7, 15.7, 32, 900),
        _device("rtx2080ti", r"RTX 2080 Ti", 13.4, 13.4, 11, 616),
        _device("rtx3090", r"RTX 3090", 35.6, 71, 24, 936),
        _device("rtx4090", r"RTX 4090", 82.6, 165.2, 24, 1008),
        _device("a10", r"NVIDIA A10(?!0)", 31.2, 125, 24, 600),
        _device("a5000", r"RTX A5000", 27.8, 111.1, 24, 768),
        _device("a6000", r"RTX A6000", 38.7, 154.8, 48, 768),
        _device("l4", r"NVIDIA L4(?!0)", 30.3, 121, 24, 300),
        _device("l40s", r"L40S", 91.6, 362, 48, 864),
        _device("a100", r"A100.*40GB", 19.5, 312, 40, 1555),
        _device("a100-80gb", r"A100.*80GB", 19.5, 312, 80, 2039),
        _device("h100-pcie", r"H100 PCIe", 51, 756, 80, 2000),
        _device("h100", r"H100(?! PCIe)", 67, 989, 80, 3350),
        _device("h200", r"H200", 67, 989, 141, 4800),
        _device("b200", r"B200", 75, 2250, 180, 8000),
        _device("mi300x", r"MI300X", 163.4, 1307, 192, 5300),
    )
}
"""The known accelerators by name, from their makers' data sheets."""


def find_device(name: str) -> tuple[Device, int]:
    """The device of a name such as `h100`, or `h100x8` for eight of them, and their number.

    Raises:
        EngineError: It is not known.
    """
    plain = name.strip().lower()
    match = re.fullmatch(r"(.+?)x([1-9]\d*)", plain)
    device, count = (plain, 1) if plain in DEVICES or match is None else (match[1], int(match[2]))
    if device not in DEVICES:
        near = difflib.get_close_matches(device, DEVICES, n=1)
        raise EngineError(
            "this device is not known",
            where="--on",
            expected=f"one of {', '.join(DEVICES)}, with x8 for eight of them",
            got=repr(name),
            remedy=f"Did you mean `{near[0]}`?" if near else "State its peak with --flops.",
        )
    return DEVICES[device], count


def devices_at_once(count: int, each: float | None) -> int:
    """How many trials run at once on devices, at least one.

    Args:
        each: The devices of each trial, or a fraction of one; None: one.

    Raises:
        EngineError: A trial asks for more than there are.
    """
    each = each or 1.0
    if each > count:
        raise EngineError(
            "the machine has too few GPUs for a trial",
            where="resources.gpus",
            expected=f"at most {count}",
            got=f"{each:g}",
            remedy="Ask for fewer, or name a machine with more (`--on h100x8`).",
        )
    return max(1, int(count / each + 1e-6))


def stated_device(flops: float) -> Device:
    """A device known only by its peak FLOP/s; its memory and bandwidth are taken as unlimited."""
    return Device(f"a device of {flops:.3g} FLOP/s", "", flops, flops, float("inf"), float("inf"))


def with_peak(device: Device, flops: float) -> Device:
    """The device with another peak, in all precisions."""
    return replace(device, fp32=flops, bf16=flops)


def known_device(description: str) -> Device | None:
    """The device that a worker described, such as `cuda: 1 x NVIDIA H100 80GB HBM3`; None if it is not known."""
    return next((device for device in DEVICES.values() if re.search(device.title, description)), None)


def devices_of_a_trial(description: str) -> int:
    """The number of devices that a worker described as sharing each trial, as in `..., 4 for each trial`; else 1."""
    match = re.search(r", (\d+) for each trial$", description)
    return int(match[1]) if match else 1


def utilisation(flops: float, seconds: float, description: str, precision: str) -> float | None:
    """Model FLOP utilisation: the arithmetic of a model a second, over the peak of its device.

    Source: PaLM (arXiv:2204.02311), Appendix B. Activations that are computed again do not count.

    Args:
        description: The device as its worker described it.
        precision: As `training.precision`.

    Returns:
        A share from 0 to 1; None if the device or the arithmetic is not known, or nothing was trained.
    """
    device = known_device(description)
    if device is None or seconds <= 0 or not flops:
        return None
    return flops / seconds / (device.peak(precision) * devices_of_a_trial(description))
