"""`python -m ablate`: the command line, where the command `ablate` is not on the path."""

from __future__ import annotations

from ablate.cli import main
from ablate.processes import adopt_modules

if __name__ == "__main__":
    adopt_modules()
    main()
