"""The MCP server: an assistant asks a question, sees what it costs, trains within a budget, and reads the verdict.

Each tool runs a command with `--json` in the server's folder, so that its output is that of the command line, with the
same schema. Spaces that name code or a place to write to are refused unless the user allows code.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

from ablate.errors import AblateError, ArgumentError, SpaceError
from ablate.locations import DEFAULT_STORE, SKILL, real_path
from ablate.processes import python_command
from ablate.spec.annotations import STUDY_NAME
from ablate.spec.named import shipped_spaces
from ablate.spec.reading import plain_space

_CODE = ("plugins", "trainer")
_LONGEST_LOG = 2000
_PATIENCE = 20.0
"""Seconds in which a study that is asked to stop may store what it has."""


@dataclass
class StartedStudy:
    """A study that the server has started.

    Attributes:
        process: Of `ablate study`.
        log: The file of its progress.
        begin: When it was started, in seconds of `time.monotonic`.
        limit: Seconds after which it stops.
        seconds: How long it took; None while it runs.
    """

    study: str
    process: subprocess.Popen[str]
    log: Path
    begin: float
    limit: float
    seconds: float | None = None


@dataclass
class Workshop:
    """A folder with spaces and a store, in which commands are run within a budget.

    Attributes:
        folder: All that is written lies in it.
        budget: Seconds of training that may be started in all.
        code: Whether a space may name plugins or a trainer, which run as the user.
        runs: What was started, the oldest first.
    """

    folder: Path
    budget: float
    code: bool = False
    runs: list[StartedStudy] = field(default_factory=list)

    @property
    def left(self) -> float:
        """Seconds of the budget that are not spent or promised to a study that runs."""
        self._settle()
        return max(0.0, self.budget - sum(run.limit if run.seconds is None else run.seconds for run in self.runs))

    @property
    def running(self) -> StartedStudy | None:
        """The study that runs now."""
        self._settle()
        return next((run for run in self.runs if run.seconds is None), None)

    def _settle(self) -> None:
        for run in self.runs:
            if run.seconds is None and run.process.poll() is not None:
                run.seconds = min(time.monotonic() - run.begin, run.limit)

    async def ask(self, command: str, *texts: str, options: Sequence[str] = ("--json",)) -> Any:
        """What a command prints.

        Args:
            command: The command.
            texts: Its arguments, which may come from the assistant: none of them is read as an option.
            options: Its options, such as `--json`.

        Raises:
            ToolError: It ended with an error; the message is its object.
        """
        done = await anyio.run_process(
            _command(command, *options, "--", *texts),
            cwd=self.folder,
            env=self._environment(),
            check=False,
            stdin=subprocess.DEVNULL,
        )
        if done.returncode not in (0, 1, 3) or not done.stdout:
            raise ToolError(done.stderr.decode(errors="replace").strip()[-_LONGEST_LOG:])
        return json.loads(done.stdout)

    def write_space(self, name: str, text: str) -> str:
        """Write a space as `NAME.yaml`; the name of the file.

        Raises:
            AblateError: The name is not one for a study, the space names another, or it names what is not allowed.
        """
        if not STUDY_NAME.fits(name):
            raise ArgumentError(f"this is not a name for a study: {STUDY_NAME.rule}", where="name", got=name)
        file = self.folder / f"{name}.yaml"
        new = file.with_name(f".{name}.yaml")
        new.write_text(text, encoding="utf-8")
        try:
            self._check(new, name)
            new.replace(file)
        finally:
            new.unlink(missing_ok=True)
        return file.name

    def _check(self, file: Path, name: str) -> None:
        plain = plain_space(file)
        if plain.get("name") != name:
            raise SpaceError("the space has another name", where="name", expected=name, got=str(plain.get("name")))
        resources = plain.get("resources")
        elsewhere = [key for key in ("checkpoint_dir", "storage") if isinstance(resources, dict) and key in resources]
        refused = [
            *(key for key in _CODE if key in plain and not self.code),
            *(f"resources.{key}" for key in elsewhere),
        ]
        if refused:
            raise SpaceError(
                "this would run code, or write outside the server's folder",
                where=refused[0],
                remedy="Leave it out, or ask the user to start the server with `--allow-code`."
                if refused[0] in _CODE
                else "Leave it out: checkpoints lie beside the store.",
            )

    def space(self, name: str) -> str:
        """The file of a space that was written.

        Raises:
            AblateError: There is none.
        """
        if not STUDY_NAME.fits(name) or not (self.folder / f"{name}.yaml").is_file():
            known = ", ".join(sorted(file.stem for file in self.folder.glob("*.yaml"))) or "none yet"
            raise ArgumentError("there is no such space", where="name", expected=known, got=name)
        self._check(self.folder / f"{name}.yaml", name)  # a person may have changed it since
        return f"{name}.yaml"

    def start(self, name: str, seconds: float) -> StartedStudy:
        """Start to train a study, for at most so many seconds."""
        log = self.folder / f"{name}.log"
        with log.open("w", encoding="utf-8") as progress:
            process = subprocess.Popen(
                _command("study", self.space(name), "--max-seconds", f"{seconds:.0f}", "--json"),
                cwd=self.folder,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=progress,
                text=True,
            )
        self.runs.append(StartedStudy(name, process, log, time.monotonic(), seconds))
        return self.runs[-1]

    def stop(self) -> None:
        """Ask the study that runs to stop, and wait until it has stored what it has."""
        if (run := self.running) is not None:
            run.process.terminate()
            with suppress(subprocess.TimeoutExpired):
                run.process.wait(_PATIENCE)
            run.process.kill()
            run.process.wait()
            self._settle()

    def _environment(self) -> dict[str, str]:
        cache = self.folder / "cache"
        own = {"ABLATE_STORE": DEFAULT_STORE, "ABLATE_CACHE": str(cache), "HF_HOME": str(cache / "huggingface")}
        return {**os.environ, **own}


def _command(*arguments: str) -> list[str]:
    return python_command("-m", "ablate", *arguments)


def make_server(workshop: Workshop) -> MCPServer[Any]:
    """The server with its tools."""
    server: MCPServer[Any] = MCPServer("ablate", instructions=_instructions(workshop), log_level="WARNING")
    for tool in _tools(workshop):
        server.add_tool(tool)
    return server


def serve_assistant(folder: Path, budget: float, *, code: bool) -> None:
    """Serve on standard input and output until the client closes them; a study that still runs is then stopped.

    Args:
        folder: All that is written lies in it; it is made if it is not there.
        budget: Seconds of training that may be started in all.
        code: Whether spaces may name plugins and trainers.
    """
    folder.mkdir(parents=True, exist_ok=True)
    workshop = Workshop(real_path(folder), budget, code)
    try:
        make_server(workshop).run("stdio")
    finally:
        workshop.stop()


def _instructions(workshop: Workshop) -> str:
    text = SKILL.read_text(encoding="utf-8").partition("---\n")[2].partition("---\n")[2]
    return (
        f"{text}\n## This server\n\nUse its tools instead of the command line: describe, validate, plan, start, "
        f"status, answer, why, ideas. Studies lie in {workshop.folder}. All training runs together may take "
        f"{workshop.budget:g} seconds; `plan` reports how many are left.\n"
    )


def _tools(workshop: Workshop) -> Sequence[Callable[..., Any]]:
    async def describe(topic: str = "") -> dict[str, Any]:
        """What a space can say. Without a topic: the starting points, the families and the keys of a space.

        Args:
            topic: A starting point (its commented space), a family such as `mixers` (its kinds), a key of a space such
                as `training`, or the name of a definition that a schema refers to (its JSON Schema).
        """
        starts = {file.stem: file for file in sorted((shipped_spaces() / "starts").glob("*.yaml"))}
        if topic in starts:
            return {"space": starts[topic].read_text(encoding="utf-8")}
        definitions = (await workshop.ask("schema", options=()))["$defs"]
        of_space = definitions["SpaceSpec"]["properties"]
        if topic in of_space or topic in definitions:
            return dict(of_space.get(topic) or definitions[topic])
        if topic:
            return dict(await workshop.ask("kinds", topic))
        keys = {key: schema.get("description", "") for key, schema in of_space.items()}
        families = {family: len(kinds) for family, kinds in (await workshop.ask("kinds")).items()}
        return {
            "starting_points": (await workshop.ask("new", options=("--list", "--json")))["starts"],
            "families": families,
            "keys": keys,
        }

    async def validate(name: str, space: str) -> dict[str, Any]:
        """Write a space as NAME.yaml and check it: its points, or every mistake with place and remedy. Trains nothing.

        Args:
            name: Of the study; the `name` in the space.
            space: The YAML text.
        """
        return dict(await workshop.ask("validate", _call(workshop.write_space, name, space)))

    async def plan(name: str) -> dict[str, Any]:
        """What a space would train and how long that takes on this machine, against the budget. Trains nothing."""
        planned: dict[str, Any] = await workshop.ask("plan", _call(workshop.space, name))
        trials, later = planned.pop("trials"), planned.pop("later")
        return planned | {
            "trials": len(trials),
            "done": sum(trial["done"] for trial in trials),
            "later": len(later),
            "budget_left_seconds": round(workshop.left, 1),
        }

    async def start(name: str) -> dict[str, Any]:
        """Train a study, or continue it, in the background. Refused if the plan does not fit into the budget."""
        if (run := workshop.running) is not None:
            raise ToolError(f"{run.study} runs; wait for it with `status`, or `stop` it")
        seconds, left = (await workshop.ask("plan", _call(workshop.space, name)))["seconds"], workshop.left
        if left < 1 or (seconds or 0) > left:
            raise ToolError(
                f"this takes about {seconds or 0:.0f} seconds, and {left:.0f} of the budget are left; use fewer seeds, "
                "steps or variants, or ask the user for a larger --max-seconds"
            )
        run = _call(workshop.start, name, left)
        return {"study": run.study, "estimate_seconds": seconds, "limit_seconds": run.limit}

    async def status(wait_seconds: float = 0.0) -> dict[str, Any]:
        """What runs, its progress, and how the last run ended.

        Args:
            wait_seconds: Wait until the study has ended, but at most so long, and not above 300.
        """
        with anyio.move_on_after(min(wait_seconds, 300.0)):
            while wait_seconds and workshop.running is not None:
                await anyio.sleep(0.2)
        last = workshop.runs[-1] if workshop.runs else None
        ended = None
        if last is not None and last.seconds is not None:
            log = last.log.read_text(encoding="utf-8", errors="replace")[-_LONGEST_LOG:]
            ended = {"study": last.study, "exit_code": last.process.returncode, "log": log}
        running = workshop.running
        return {
            "running": None if running is None else running.study,
            "ended": ended,
            "budget_left_seconds": round(workshop.left, 1),
            "store": await workshop.ask("status"),
        }

    async def stop() -> dict[str, Any]:
        """Stop the study that runs. What has finished is stored, and `start` continues it."""
        run = workshop.running
        await anyio.to_thread.run_sync(workshop.stop)
        return {"stopped": None if run is None else run.study}

    async def answer(study: str) -> dict[str, Any]:
        """The answer of a study: rows with intervals and verdicts, how far to trust it, what would settle the rest."""
        shown = await workshop.ask("show", study)
        return {key: shown[key] for key in ("answer", "objective", "progress", "claims", "caveats", "failures")}

    async def why(study: str, variant: str) -> dict[str, Any]:
        """Why one variant has its verdict, seed by seed."""
        return dict(await workshop.ask("show", study, options=(f"--why={variant}", "--json")))

    async def ideas(text: str = "") -> dict[str, Any]:
        """What the studies here have tried, with verdicts; ask before you try something."""
        return dict(await workshop.ask("ideas", *([text] if text else [])))

    return describe, validate, plan, start, status, stop, answer, why, ideas


def _call(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function of the workshop, and tell the assistant a mistake.

    Raises:
        ToolError: It was a mistake.
    """
    try:
        return function(*arguments)
    except AblateError as error:
        raise ToolError(json.dumps({"error": error.plain()}, ensure_ascii=False)) from None
