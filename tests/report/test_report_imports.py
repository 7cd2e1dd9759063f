"""Reading a report must be quick: nothing heavy behind it."""

from __future__ import annotations

import subprocess
import sys


def test_reports_import_neither_torch_nor_anything_else_that_is_slow() -> None:
    program = (
        "import sys, ablate.report, ablate.report.as_json, ablate.report.table, ablate.stats\n"
        "print(sorted({'torch', 'scipy.stats', 'optuna'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
