"""What kernels on a CPU fit their blocks to."""

from __future__ import annotations

from functools import cache
from pathlib import Path

CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
"""Where Linux describes the caches of a core."""
_USUAL = 1 << 20


@cache
def second_level_cache(caches: Path = CACHES) -> int:
    """Bytes of the cache of the second level, as the system tells; 1 MiB, that of most servers, where it does not.

    Args:
        caches: Where the system describes them: folders `index*` with the files `level` and `size` (`1024K`).
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
