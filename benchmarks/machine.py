"""Describes the machine of a measurement; `OWN_SOURCE` is text that is available on every machine."""

from __future__ import annotations

import platform
from datetime import UTC, datetime
from pathlib import Path

import ablate

OWN_SOURCE = f"file:{Path(ablate.__file__).parent}/spec/*.py"
"""Our own source code, which is faster to prepare than the standard library."""


def machine() -> str:
    """Processor, cores, Python version and date on one line."""
    from ablate.machine import available_cores

    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    processor = names[0] if names else platform.processor() or platform.machine()
    day = datetime.now(UTC).date()
    return f"{processor}, {available_cores()} cores, Python {platform.python_version()}, {day}"
