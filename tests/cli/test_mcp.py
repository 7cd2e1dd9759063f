"""The MCP server: the SDK's own client goes from a question to a verdict."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anyio
import pytest
from cli_runs import ABLATE, SPACE, Workplace
from mcp import Client, StdioServerParameters
from mcp.server.mcpserver.exceptions import ToolError

from ablate.assistant import Workshop
from ablate.errors import AblateError
from ablate.locations import SKILL


class RefusedError(Exception):
    """A tool that reported a mistake."""


def alone(function: Callable[..., Awaitable[Any]], *arguments: Any) -> None:
    """Run a coroutine in a thread: in that of the tests, a browser may keep an event loop running."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(anyio.run, function, *arguments).result()


def converse(place: Workplace, talk: Callable[[Callable[..., Awaitable[Any]]], Awaitable[None]], *options: str) -> None:
    """Run a conversation with a server in the folder of a workplace."""

    async def serve() -> None:
        server = StdioServerParameters(
            command=ABLATE, args=["mcp", "--folder", str(place.folder), *options], env=place.environment
        )
        async with Client(server) as client:

            async def call(tool: str, **arguments: Any) -> Any:
                result = await client.call_tool(tool, arguments)
                if result.is_error:
                    raise RefusedError(result.content[0].text)  # type: ignore[union-attr]
                return result.structured_content

            assert {tool.name for tool in (await client.list_tools()).tools} == TOOLS
            await talk(call)

    alone(serve)


TOOLS = {"describe", "validate", "plan", "start", "status", "stop", "answer", "why", "ideas"}


def test_a_client_goes_from_a_question_to_a_verdict(place: Workplace) -> None:
    space = SPACE.format(name="tiny", steps=6, seeds=2, margin=0.05)

    async def talk(call: Callable[..., Awaitable[Any]]) -> None:
        known = await call("describe")
        assert "needed" in known["starting_points"]
        assert "objective" in known["keys"]
        assert "question:" in (await call("describe", topic="needed"))["space"]
        assert "margin" in (await call("describe", topic="ObjectiveSpec"))["properties"]

        with pytest.raises(RefusedError) as mistake:
            await call("validate", name="tiny", space=space.replace("steps:", "stepz:"))
        text = str(mistake.value)
        said = json.loads(text[text.index("{") :])["error"]
        assert "stepz" in said["problem"]
        assert said["where"].startswith("tiny.yaml:")
        assert (await call("validate", name="tiny", space=space))["points"] == 3

        planned = await call("plan", name="tiny")
        assert (planned["trials"], planned["done"], planned["budget_left_seconds"]) == (6, 0, 300.0)
        assert (await call("start", name="tiny"))["limit_seconds"] == 300.0
        ended = await call("status", wait_seconds=200)
        assert ended["running"] is None
        assert ended["ended"]["exit_code"] == 0, ended
        assert ended["budget_left_seconds"] < 300

        answer = (await call("answer", study="tiny"))["answer"]
        (row,) = (row for group in answer["groups"] for row in group["rows"] if row["variant"] == "norm=none")
        assert row["verdict"]
        assert (await call("why", study="tiny", variant="norm=none"))["row"] == row
        assert {idea["study"] for idea in (await call("ideas"))["ideas"]} == {"tiny"}

    before = set(place.folder.parent.iterdir())
    converse(place, talk, "--max-seconds", "300")
    assert set(place.folder.parent.iterdir()) == before


def test_nothing_above_the_budget_is_started(place: Workplace) -> None:
    async def talk(call: Callable[..., Awaitable[Any]]) -> None:
        await call("validate", name="long", space=SPACE.format(name="long", steps=10_000_000, seeds=2, margin=0.05))
        with pytest.raises(RefusedError, match="60 of the budget are left"):
            await call("start", name="long")
        assert (await call("status"))["running"] is None

    converse(place, talk, "--max-seconds", "60")
    assert place.rows("SELECT 1 FROM trials") == []


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("../other", "name: ../other", "not a name for a study"),
        ("mine", "name: other", "another name"),
        ("mine", "name: mine\nplugins: [evil.py]", "would run code"),
        ("mine", "name: mine\ntrainer: {command: [rm, -r, .]}", "would run code"),
        ("mine", "extends: parent.yaml\nname: mine", "would run code"),
        ("mine", "name: mine\nresources: {checkpoint_dir: /elsewhere}", "outside the server's folder"),
    ],
)
def test_a_space_that_runs_code_or_writes_elsewhere_is_refused(
    tmp_path: Path, name: str, text: str, problem: str
) -> None:
    (tmp_path / "parent.yaml").write_text("name: parent\nplugins: [evil.py]\n")
    workshop = Workshop(tmp_path, 60.0)
    with pytest.raises(AblateError, match=problem):
        workshop.write_space(name, text)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["parent.yaml"]


@pytest.mark.parametrize("command", ["kinds", "show"])
def test_a_text_of_the_assistant_is_no_option_of_a_command(tmp_path: Path, command: str) -> None:
    (tmp_path / "evil.py").write_text("open('ran', 'w').close()")
    workshop = Workshop(tmp_path, 60.0)
    with pytest.raises(ToolError):
        alone(workshop.ask, command, "--plugin=evil.py")
    assert not (tmp_path / "ran").exists()


def test_code_is_a_choice_of_the_user(tmp_path: Path) -> None:
    assert Workshop(tmp_path, 60.0, code=True).write_space("mine", "name: mine\nplugins: [my.py]") == "mine.yaml"


def test_the_skill_file_is_one_that_can_be_copied(place: Workplace) -> None:
    printed = place.call("mcp", "--skill").out
    assert printed == SKILL.read_text()
    _, front, _ = printed.split("---\n", 2)
    assert front.startswith("name: ablate\ndescription: ")
