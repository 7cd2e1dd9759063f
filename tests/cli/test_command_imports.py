"""What only reads the store must not wait for torch."""

from __future__ import annotations

import subprocess
import sys

import pytest
from cli_runs import Finished, Workplace

CALL = """
import sys
from ablate.cli import main
sys.argv = ["ablate", *sys.argv[1:]]
try:
    main()
except SystemExit as end:
    print(sorted({"torch", "optuna", "tokenizers", "alembic"} & set(sys.modules)), file=sys.stderr)
    raise
"""


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["study", "--help"],
        ["list"],
        ["list", "--json"],
        ["show", "tiny"],
        ["show", "tiny", "--json"],
        ["report", "tiny"],
        ["report", "tiny", "--format", "html"],
        ["diff", "tiny/baseline", "tiny/norm=none"],
        ["new", "quick"],
    ],
    ids=" ".join,
)
def test_torch_is_not_imported(done: tuple[Workplace, Finished], arguments: list[str]) -> None:
    place = done[0]
    place.folder.joinpath("quick.yaml").unlink(missing_ok=True)
    called = subprocess.run(
        [sys.executable, "-W", "error", "-c", CALL, *arguments],
        cwd=place.folder,
        env=place.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (called.returncode, called.stderr) == (0, "[]\n")
