"""The size of the processor's cache, to which kernels on a CPU adapt their blocks."""

from __future__ import annotations

from functools import cache
from pathlib import Path

CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
"""Where Linux describes the caches of a core."""
_USUAL = 1 << 20


@cache
def second_level_cache(caches: Path = CACHES) -> int:
    """Size of the level-2 cache in bytes; 1 MiB, as in most servers, if the system does not report it.

    Args:
        caches: The folder in which the system describes them: `index*/level` and `index*/size` (`1024K`).
    """
    for folder in sorted(caches.glob("index*")):
        try:
            level, size = ((folder / name).read_text(encoding="ascii").strip() for name in ("level", "size"))
        except OSError:
            continue
        number, unit = size[:-1], {"K": 1 << 10, "M": 1 << 20}.get(size[-1:])
        if level == "2" and unit and number.isdigit():
            return int(number) * unit
    return _USUAL
