"""What is used without a heavy package does not import it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [f"dashboard.shared.{path.stem}" for path in (ROOT / "dashboard" / "shared").glob("[!_]*.py")]
PAGES += [f"dashboard.views.{path.stem}" for path in (ROOT / "dashboard" / "views").glob("[!_]*.py")]
USES = {
    "the command line": ("import ablate.cli.app", "pydantic"),
    "a kind that shares a file": (
        "from ablate.spec.design import DESIGNS; DESIGNS.member('sweep')",
        "ablate.designs.ladder ablate.designs.search",
    ),
    "reports": (
        "import ablate.analysis.study, ablate.render.as_json, ablate.render.table, ablate.stats",
        "torch scipy.optimize scipy.stats optuna",
    ),
    "formats, which wait for the renderer of their figures": (
        "from ablate.render.formats import find_format, format_names; [find_format(name) for name in format_names()]",
        "torch scipy.stats optuna vl_convert",
    ),
    "drawings": ("import ablate.render.drawing", "torch"),
    "pages of the dashboard": (f"import {', '.join(sorted({*PAGES} - {'dashboard.views.design'}))}", "torch"),
    "designs": ("from ablate.spec.design import DESIGNS; DESIGNS.members()", "optuna"),
    "the local engine": (
        "from ablate.api import make_engine; from ablate.execution.options import RunOptions;"
        "make_engine(RunOptions(cache='c', device='cpu'))",
        "ray",
    ),
    "a step of an optimizer": (
        "import torch; from ablate.kinds.optimizers.adam import AdamW;"
        "weight = torch.nn.Parameter(torch.ones(3)); optimizer = AdamW([weight], lr=0.1, fused=True);"
        "weight.sum().backward(); optimizer.step(); optimizer.zero_grad()",
        "torch._dynamo",
    ),
}
"""A use, and the packages that neither it nor those before it import."""
PROGRAM = """
import json, sys
found = {}
for name, (use, packages) in json.loads(sys.argv[1]).items():
    exec(use)
    found[name] = sorted(set(packages.split()) & sys.modules.keys())
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def imported() -> dict[str, list[str]]:
    """What each use has imported that it should not; one process does all in turn."""
    command = [sys.executable, "-c", PROGRAM, json.dumps(USES)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    found: dict[str, list[str]] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("use", USES)
def test_it_imports_no_heavy_package(use: str, imported: dict[str, list[str]]) -> None:
    assert imported[use] == []
