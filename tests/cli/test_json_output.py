"""With `--json` standard output carries the JSON alone, whatever else prints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_runs import ABLATE, Finished, Workplace, wait_for

NOISY = """
import atexit, os, sys
print("printed")
os.system("echo from a child")
os.write(1, b"written past Python\\n")
atexit.register(print, "printed at the end")
"""
NOISE = {"printed", "from a child", "written past Python", "printed at the end"}
AT_END = {"printed at the end"}
"""A forked process does not print this."""


@pytest.fixture
def noisy(place: Workplace) -> Workplace:
    (place.folder / "noisy.py").write_text(NOISY)
    return place


def test_what_a_plugin_prints_goes_to_standard_error(noisy: Workplace) -> None:
    listed = noisy.run("kinds", "--plugin", "noisy.py", "--json")
    assert listed.code == 0, listed.err
    assert "mixers" in json.loads(listed.out)
    assert set(listed.err.splitlines()) == NOISE
    shown = wait_for(noisy.fork("kinds", "--plugin", "noisy.py"))
    assert shown.err == "", "without --json it prints where it wants to"


def test_a_study_prints_one_object(noisy: Workplace) -> None:
    command = ("study", noisy.space(seeds=1), "--plugin", "noisy.py", "--workers", "1", "--json")
    trained = wait_for(noisy.fork(*command))
    assert trained.code == 0, trained.err
    assert json.loads(trained.out)["trained"] == 3
    assert set(trained.err.splitlines()) >= NOISE - AT_END


def test_a_reader_that_stops_sees_no_traceback(done: tuple[Workplace, Finished]) -> None:
    assert done[0].shell(f"{ABLATE} list --json | true") == Finished(0, "", "")


def test_every_command_with_json_has_its_option_named_so() -> None:
    """`--json` is looked for on the command line before any command is imported."""
    commands = Path(__file__).parent.parent.parent / "ablate" / "cli"
    options = (commands / "options.py").read_text()
    assert 'JsonOption = Annotated[bool, typer.Option("--json"' in options
    others = [file.name for file in commands.glob("*.py") if '"--json"' in file.read_text()]
    assert sorted(others) == ["app.py", "options.py"]
