"""With `--json` standard output carries the JSON alone, whatever else prints."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_runs import ABLATE, Finished, Workplace, wait_for
from typer.main import get_command

from ablate.cli.app import app
from ablate.render.terminal.outputs import OUTPUTS

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


def test_every_command_with_json_has_a_schema() -> None:
    with_json = {
        name
        for name, command in get_command(app).commands.items()
        if any("--json" in one.opts for one in command.params)
    }
    assert with_json == set(OUTPUTS) - {"error"}


def test_the_schema_of_an_output_is_printed(call: Callable[..., Finished]) -> None:
    schema = json.loads(call("schema", "--output", "gate").out)
    assert (schema["version"], schema["additionalProperties"]) == (1, False)
    assert schema["properties"]["passed"] == {
        "description": "What the bounds of its comparison show of that.",
        "enum": ["passes", "fails", "undecided"],
        "title": "Passed",
        "type": "string",
    }
    unknown = call("schema", "--output", "shows")
    assert unknown.code == 2
    assert "Did you mean `show`?" in unknown.err


def test_what_commands_print_is_as_their_schemas_say(trained: Workplace) -> None:
    """`Workplace.call` compares each, here and in every other test."""
    place = trained
    key = json.loads(place.call("show", "tiny", "--trials", "--json").out)[0]["key"]
    for arguments in (
        ("new", "--list"),
        ("new", "mine"),
        ("validate", "tiny.yaml"),
        ("validate", "nothing.yaml"),
        ("validate", "gpt2"),
        ("plan", "tiny.yaml"),
        ("plan", "tiny.yaml", "--on", "h100"),
        ("status",),
        ("list",),
        ("show", "tiny"),
        ("show", "tiny", "--why", "norm=none"),
        ("report", "tiny"),
        ("report", "tiny", "--format", "csv", "--out", "written"),
        ("site", "public"),
        ("claims", "tiny"),
        ("gate", "tiny", "--variant", "norm=none"),
        ("ideas",),
        ("calibrate", "tiny"),
        ("diff", "tiny/baseline", "tiny/norm=none"),
        ("diff", "tiny.yaml", "tiny.yaml"),
        ("kinds",),
        ("draw", "sas"),
        ("draw", "sas", "--out", "sas.svg"),
        ("cost", "sas"),
        ("cost", "tiny.yaml"),
        ("bench", "identity", "--context", "8", "--width", "16"),
        ("inspect", "tiny.yaml"),
        ("check-kind", "identity", "--family", "mixers"),
        ("data", "tiny.yaml"),
        ("check-store",),
        ("reproduce", key),
        ("export-study", "tiny"),
        ("import-study", "tiny.study.zip", "--store", "moved.db"),
        ("rename", "tiny", "other"),
        ("delete", "other", "--yes"),
    ):
        printed = place.call(*arguments, "--json")
        assert printed.out or printed.code == 2, arguments
