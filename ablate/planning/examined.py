"""The file that `ablate doctor` writes, as the speed of a machine to plan for."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ablate.devices import Device, known_device, stated_device
from ablate.errors import EngineError

_TRIAL, _BF16, _MACHINE = "a small trial", "bf16", "machine"
"""Names of findings of `ablate.execution.doctor`."""


@dataclass(frozen=True, slots=True)
class Examined:
    """A machine that `ablate doctor` has examined.

    Attributes:
        device: One of its devices. One that is not in the table has the measured FLOP/s as its peak.
        count: The number of its devices.
        known: Whether the device is in the table.
        shares: By precision, the share of the peak that a small trial has reached.
    """

    device: Device
    count: int
    known: bool
    shares: Mapping[str, float]


def read_doctor(file: Path) -> Examined:
    """Read what `ablate doctor` has written.

    Raises:
        EngineError: The file cannot be read, or is another one.
    """
    try:
        findings: dict[str, dict[str, Any]] = {each["name"]: each for each in json.loads(file.read_text())["findings"]}
        description = str(findings[_MACHINE]["says"]).partition(";")[0]
        rate = float(findings[_TRIAL]["values"]["flops_per_second"])
        in_bf16 = rate * float(findings[_BF16]["values"]["speed"])
        if not rate > 0 < in_bf16:
            raise ValueError("its rate is no number above 0")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise EngineError(
            "this is no file of `ablate doctor`",
            where=f"--doctor {file}",
            got=f"{type(error).__name__}: {error}",
            remedy="Write one on that machine: `ablate doctor --out FILE`.",
        ) from error
    known = known_device(description)
    device = known or stated_device(rate)
    numbered = re.search(r"\b(\d+) x ", description)
    rates = {"fp32": rate, "bf16": in_bf16}
    shares = {precision: value / device.peak(precision) for precision, value in rates.items()}
    return Examined(device, int(numbered[1]) if numbered else 1, known is not None, shares)
