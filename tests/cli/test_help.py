"""The help of every command, old spellings, JSON errors, completion; commands that only read import no torch."""

from __future__ import annotations

import itertools
import json
import re
import shlex

import pytest
import typer
from cli_runs import Finished, Workplace
from typer.testing import CliRunner

from ablate.cli.app import COMMAND_NAMES, EXAMPLES, OLD_SPELLINGS, app, new_spelling

COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", COMMAND_NAMES)
def test_help_is_read_without_a_manual_of_its_notation(name: str) -> None:
    shown = CliRunner().invoke(app, [name, "--help"], env={"COLUMNS": "200", "NO_COLOR": "1"}).output
    assert not re.search(r"<(bool|str|int|float|path)|\{[A-Z]|\[\[|may be given", shown)
    assert "[default: " not in " ".join(parameter.help or "" for parameter in COMMANDS[name].params)
    for line in EXAMPLES[name]:
        assert f"ablate {line}" in shown
    for parameter in COMMANDS[name].params:
        assert parameter.metavar or getattr(parameter, "is_flag", False) or parameter.type_descriptor.is_choice, (
            parameter
        )
        if getattr(parameter, "multiple", False):
            assert parameter.help.endswith("repeatable."), parameter.opts


@pytest.mark.parametrize("name", COMMAND_NAMES)
def test_examples_are_command_lines_of_that_command(name: str) -> None:
    assert len(EXAMPLES[name]) == 2
    for line in EXAMPLES[name]:
        first, *arguments = shlex.split(re.split(r" [<>] ", line)[0])
        assert first == name
        COMMANDS[name].make_context(name, arguments)


def test_options_of_several_commands_have_one_order() -> None:
    orders = [
        [option.opts[0] for option in COMMANDS[name].params if option.opts[0][0] == "-"] for name in COMMAND_NAMES
    ]
    before = {pair for order in orders for pair in itertools.combinations(order, 2)}
    shared = {"--data", "--store", "--device", "--workers", "--cache", "--plugin", "--out", "--json"}
    assert not {(a, b) for a, b in before if a in shared and b in shared and (b, a) in before}


def test_old_spellings_work_and_say_the_new_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert new_spelling(["study", "x", "--stored", "--storage=d"]) == ["resume", "x", "--checkpoint-dir=d"]
    said = capsys.readouterr().err
    assert "`ablate study --stored` is now `ablate resume`" in said
    assert "`--storage` is now `--checkpoint-dir`" in said
    assert new_spelling(["check", "rms"]) == ["check-kind", "rms"]
    assert new_spelling(["show", "--json", "check"]) == ["show", "--json", "check"]
    for command, options in OLD_SPELLINGS.items():
        names = {
            name for parameter in COMMANDS[command].params for name in (*parameter.opts, *parameter.secondary_opts)
        }
        assert names.isdisjoint(options)
        assert names.issuperset(options.values())


def test_an_error_is_an_object_with_json(place: Workplace) -> None:
    failed = place.call("show", "x", "--json")
    assert (failed.code, failed.out) == (2, "")
    error = json.loads(failed.err)["error"]
    assert set(error) == {"problem", "where", "expected", "got", "remedy"}
    assert error["problem"] == "there is no store here yet"
    assert json.loads(place.call("study", "--json").err)["error"]["where"] == "ablate study"


def test_all_mistakes_of_a_space_are_listed_with_json(place: Workplace) -> None:
    file = place.folder / place.space("bad")
    file.write_text(file.read_text().replace("heads: 2", "heads: two").replace("steps: 6", "steps: six"))
    error = json.loads(place.call("validate", "bad.yaml", "--json").err)["error"]
    assert [re.sub(r".*bad.yaml", "", mistake["where"]) for mistake in error["mistakes"]] == [":4:47", ":6:3"]
    assert all("`" in mistake["problem"] for mistake in error["mistakes"])


def test_an_empty_folder_is_no_mistake(place: Workplace) -> None:
    listed, status = place.call("list"), place.call("status")
    assert (listed.code, status.code) == (0, 0)
    assert "ablate study simplify_block" in listed.out
    assert json.loads(place.call("list", "--json").out) == []


def test_the_environment_names_the_store(
    done: tuple[Workplace, Finished], place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ABLATE_STORE", str(done[0].store))
    named = place.call("list", "--json")
    assert [study["study"] for study in json.loads(named.out)] == ["tiny"]


def test_a_shell_completes_commands_and_studies(done: tuple[Workplace, Finished]) -> None:
    for words, expected in (("ablate sta", "status"), ("ablate show ti", "tiny")):
        answer = CliRunner().invoke(
            app,
            env={"_ABLATE_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" ")),
                 "ABLATE_STORE": str(done[0].store)},
            prog_name="ablate",
        )  # fmt: skip
        assert answer.output.split() == [expected]


HEAVY = {"torch", "optuna", "tokenizers", "alembic"}
READING = [
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
    finished = done[0].series(*READING, python=["-W", "error"])
    return dict(zip(map(" ".join, READING), finished, strict=True))


@pytest.mark.parametrize("command", [" ".join(command) for command in READING])
def test_torch_is_not_imported(called: dict[str, Finished], command: str) -> None:
    finished = called[command]
    assert (finished.code, finished.err, HEAVY & set(finished.imported)) == (0, "", set())
