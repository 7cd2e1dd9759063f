"""Reading a report is fast: it imports no heavy packages."""

from __future__ import annotations

import subprocess
import sys


def test_reports_import_neither_torch_nor_anything_else_that_is_slow() -> None:
    program = (
        "import sys, ablate.analysis.study, ablate.render.as_json, ablate.render.table, ablate.stats\n"
        "print(sorted({'torch', 'scipy.optimize', 'scipy.stats', 'optuna'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_only_formats_with_figures_wait_for_its_renderer() -> None:
    program = (
        "import sys, ablate.render.formats\n"
        "from ablate.render.formats import find_format, format_names\n"
        "for name in format_names(): find_format(name)\n"
        "print(sorted({'torch', 'scipy.stats', 'optuna', 'vl_convert'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
