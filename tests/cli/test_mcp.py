"""The MCP server: the SDK's own client goes from a question to a verdict."""

from __future__ import annotations

import copy
import json
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import pytest
from cli_runs import ABLATE, SPACE, Workplace
from mcp import Client, StdioServerParameters
from mcp.server.mcpserver.exceptions import ToolError

from ablate.assistant import Workshop, _tools
from ablate.errors import AblateError
from ablate.locations import SKILL
from ablate.spec.sublayers import MIXERS


class Started(NamedTuple):
    """What `Workshop.start` returns of a study, without its process."""

    study: str
    limit: float


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
        with pytest.raises(RefusedError) as mistake:
            await call("validate", name="tiny", space=space.replace("steps:", "stepz:"))
        text = str(mistake.value)
        said = json.loads(text[text.index("{") :])["error"]
        assert "stepz" in said["problem"]
        assert said["where"].startswith("tiny.yaml:")

        (place.folder / "tiny.yaml").write_text(space)
        assert (await call("start", name="tiny"))["limit_seconds"] == 300.0
        ended = await call("status", wait_seconds=300)
        assert ended["running"] is None
        assert ended["ended"]["exit_code"] == 0, ended
        assert ended["budget_left_seconds"] < 300

        answer = (await call("answer", study="tiny"))["answer"]
        (row,) = (row for group in answer["groups"] for row in group["rows"] if row["variant"] == "norm=none")
        assert row["verdict"]

    before = set(place.folder.parent.iterdir())
    converse(place, talk, "--max-seconds", "300")
    assert set(place.folder.parent.iterdir()) == before


def tools_of(place: Workplace, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Calls tools by their names in this process, with commands that run in it too."""

    @cache
    def printed(command: str, *arguments: str) -> Any:
        return json.loads(place.call(command, *arguments).out)

    async def ask(workshop: Workshop, command: str, *texts: str, options: Sequence[str] = ("--json",)) -> Any:
        return copy.deepcopy(printed(command, *options, "--", *texts))

    monkeypatch.setattr(Workshop, "ask", ask)
    tools = {tool.__name__: tool for tool in _tools(Workshop(place.folder, 300.0))}

    def call(tool: str, *texts: str) -> Any:
        with pytest.raises(StopIteration) as end:  # it waits for nothing
            tools[tool](*texts).send(None)
        return end.value.value

    return call


def test_an_assistant_learns_what_a_space_can_say(place: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    call = tools_of(place, monkeypatch)
    known = call("describe")
    assert "needed" in known["starting_points"]
    assert "objective" in known["keys"]
    assert known["families"]["mixers"] == len(MIXERS.members())
    assert "question:" in call("describe", "needed")["space"]
    assert "margin" in call("describe", "ObjectiveSpec")["properties"]
    assert call("describe", "training")["description"] == known["keys"]["training"]
    assert "attention" in json.dumps(call("describe", "mixers"))


def test_a_trained_study_is_planned_explained_and_remembered(
    trained: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = tools_of(trained, monkeypatch)
    assert call("validate", "tiny", (trained.folder / "tiny.yaml").read_text())["points"] == 3
    planned = call("plan", "tiny")
    assert (planned["trials"], planned["done"], planned["budget_left_seconds"]) == (9, 9, 300.0)
    (row,) = (one for group in call("answer", "tiny")["answer"]["groups"] for one in group["rows"]
              if one["variant"] == "norm=none")  # fmt: skip
    assert call("why", "tiny", "norm=none")["row"] == row
    assert {idea["study"] for idea in call("ideas")["ideas"]} == {"tiny"}


@pytest.mark.parametrize(("seconds", "starts"), [(60.0, True), (60.5, False), (None, True)])
def test_nothing_above_the_budget_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float | None, starts: bool
) -> None:
    async def ask(*_: Any) -> dict[str, Any]:
        return {"seconds": seconds}

    def begin(workshop: Workshop, name: str, limit: float) -> Started:
        begun.append(limit)
        return Started(name, limit)

    begun: list[float] = []
    monkeypatch.setattr(Workshop, "ask", ask)
    monkeypatch.setattr(Workshop, "start", begin)
    workshop = Workshop(tmp_path, 60.0)
    workshop.write_space("tiny", SPACE.format(name="tiny", steps=6, seeds=2, margin=0.05))
    (start,) = (tool for tool in _tools(workshop) if tool.__name__ == "start")
    with nullcontext() if starts else pytest.raises(ToolError, match="60 of the budget are left"):
        alone(start, "tiny")
    assert begun == ([60.0] if starts else [])


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


def test_a_text_of_the_assistant_is_no_option_of_a_command(tmp_path: Path) -> None:
    (tmp_path / "evil.py").write_text("open('ran', 'w').close()")
    workshop = Workshop(tmp_path, 60.0)
    with pytest.raises(ToolError):
        alone(workshop.ask, "kinds", "--plugin=evil.py")
    assert not (tmp_path / "ran").exists()


def test_code_is_a_choice_of_the_user(tmp_path: Path) -> None:
    assert Workshop(tmp_path, 60.0, code=True).write_space("mine", "name: mine\nplugins: [my.py]") == "mine.yaml"


def test_the_skill_file_is_one_that_can_be_copied(place: Workplace) -> None:
    printed = place.call("mcp", "--skill").out
    assert printed == SKILL.read_text()
    _, front, _ = printed.split("---\n", 2)
    assert front.startswith("name: ablate\ndescription: ")
