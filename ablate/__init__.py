"""ablate: find out which parts of a Transformer block are needed.

The words of the command line, for notebooks: `load_space`, `plan`, `run`, `build`, `open_store`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ablate.late import late

if TYPE_CHECKING:
    from ablate.api import build, plan, run
    from ablate.spec.reading import load_space
    from ablate.store import open_store

__all__ = ["build", "load_space", "open_store", "plan", "run"]


def __dir__() -> list[str]:
    """What a notebook completes: also what is looked up late."""
    return sorted({*globals(), *__all__})


# Looked up late, so that what only reads the store never imports torch.
__getattr__ = late(
    __name__,
    {
        "build": "ablate.api",
        "plan": "ablate.api",
        "run": "ablate.api",
        "load_space": "ablate.spec.reading",
        "open_store": "ablate.store.store",
    },
)
