"""ablate: find out which parts of a Transformer block are needed.

The main commands as functions, for notebooks and scripts:
`load_space`, `plan`, `run`, `build`, `open_store`; `Study` reads what a
study has found, `judge` what runs show that were trained elsewhere.
"""

from __future__ import annotations

import sys

if sys.argv[:1] == ["-m"] and not sys.flags.safe_path:
    # `python -m ablate` searches the working folder first: a file `copy.py` there would shadow Python's. At the end of
    # the path it would still shadow namespace packages, such as `ruamel`.
    del sys.path[0]

from typing import TYPE_CHECKING

from ablate.lazy_imports import lazy_names

if TYPE_CHECKING:
    from ablate.api import build, load_space, plan, run
    from ablate.notebook import Study, judge
    from ablate.store import open_store

__all__ = ["Study", "build", "judge", "load_space", "open_store", "plan", "run"]


# Imported at first use: code that only reads the store does not import torch.
__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "Study": "ablate.notebook",
        "build": "ablate.api",
        "judge": "ablate.notebook",
        "plan": "ablate.api",
        "run": "ablate.api",
        "load_space": "ablate.api",
        "open_store": "ablate.store.store",
    },
)
