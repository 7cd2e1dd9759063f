"""Commands that only read the store do not import torch."""

from __future__ import annotations

import pytest
from cli_runs import Finished, Workplace

HEAVY = {"torch", "optuna", "tokenizers", "alembic"}
COMMANDS = [
    ["list"],
    ["--help"],
    ["study", "--help"],
    ["list", "--json"],
    ["show", "tiny"],
    ["show", "tiny", "--json"],
    ["report", "tiny"],
    ["report", "tiny", "--format", "html"],
    ["diff", "tiny/baseline", "tiny/norm=none"],
    ["new", "quick"],
]


@pytest.fixture(scope="module")
def called(done: tuple[Workplace, Finished]) -> dict[str, Finished]:
    """Each command and what became of it. One process runs them all, so the first that imports a module is known."""
    finished = done[0].series(*COMMANDS, python=["-W", "error"])
    return dict(zip(map(" ".join, COMMANDS), finished, strict=True))


@pytest.mark.parametrize("command", [" ".join(command) for command in COMMANDS])
def test_torch_is_not_imported(called: dict[str, Finished], command: str) -> None:
    finished = called[command]
    assert (finished.code, finished.err, HEAVY & set(finished.imported)) == (0, "", set())
