"""What the scheduler of Linux has given to a process: it tells a process that hangs from one whose machine is busy."""

from __future__ import annotations

from pathlib import Path


def scheduled(pid: int) -> tuple[float, float]:
    """Seconds that a process was on a core, and seconds that it was ready while others had the cores.

    Both are 0 if the process has ended or the kernel does not tell.
    """
    try:
        ran, waited = Path(f"/proc/{pid}/schedstat").read_text().split()[:2]
    except (OSError, ValueError):
        return 0.0, 0.0
    return int(ran) / 1e9, int(waited) / 1e9


def told(seconds: float, ran: float, waited: float) -> str:
    """The time of a process that was given up: much time on a core tells of a loop, little of a wait."""
    return f"no end after {seconds:.1f} s: {ran:.1f} s on a core, {waited:.1f} s ready and without one"
