"""Runs the blocks of each page in a process of its own: `python run_pages.py`, with folder to steps as JSON on stdin.

A step is `[what, name, text]`: `file` writes a file, `command` calls the command line, `python` runs a script. Every
space that is written or made by a command is cut down first, so that it trains in a moment.

The processes are forked from this one after it has imported torch and the engine, which takes longer than most pages.
The workers of a page's studies are forked as well; other tests start them as programs.
What a page prints is in `output.txt` beside its folder, and the exit codes are on stdout, as JSON.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from cli_runs import quick_workers  # noqa: E402

import ablate.execution.carry  # noqa: E402
import ablate.training.loop  # noqa: E402, F401 - before the processes of the pages fork
from ablate.cli import main  # noqa: E402

del sys.path[:2]


def cut(space: dict[str, Any]) -> None:
    """Make a space train in a moment; its question, switches, design and claims stay."""
    space["training"] |= {"steps": 4, "batch_size": 2, "evaluations": 2}
    space["model"] |= {"depth": 2, "width": 16, "heads": 2}
    if space["task"]["kind"] == "language_model":
        tiny = {"data": "file:text.txt", "tokenizer": "bytes", "context": 16, "validation_windows": 4}
        space["task"] = {"kind": "language_model", **tiny}


def run(what: str, name: str, text: str) -> None:
    """One step, in the current folder."""
    if what == "file":
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text, encoding="utf-8")
        return
    for file in Path().glob("*.yaml"):
        reader = YAML(typ="safe")
        space = reader.load(file)
        cut(space)
        reader.dump(space, file)
    if what == "python":
        exec(compile(text, name, "exec"), {"__name__": "__main__"})
        return
    sys.argv = shlex.split(text)
    try:
        main()
    except SystemExit as end:
        if end.code:
            sys.exit(f"`{text}` ended with exit code {end.code}")


def run_page(folder: Path, steps: list[list[str]]) -> None:
    """All steps of a page, in its folder, beside a text to train on."""
    output = os.open(folder.with_name("output.txt"), os.O_WRONLY | os.O_CREAT)
    os.dup2(output, sys.stdout.fileno())
    os.dup2(output, sys.stderr.fileno())
    os.chdir(folder)
    lines = [f"def f{line}(x): return x + {line * line}\n" for line in range(400)]
    documents = ("".join(lines[at : at + 20]) for at in range(0, 400, 20))
    Path("text.txt").write_text("<|endoftext|>\n".join(documents), encoding="utf-8")
    with quick_workers():
        for step in steps:
            run(*step)


def run_pages(pages: dict[str, list[list[str]]]) -> None:
    """One page after the other, each in a fork of this process."""
    codes: dict[str, int] = {}
    for folder, steps in pages.items():
        if os.fork() == 0:
            run_page(Path(folder), steps)
            return
        codes[folder] = os.waitstatus_to_exitcode(os.wait()[1])
    print(json.dumps(codes))


if __name__ == "__main__":
    run_pages(json.load(sys.stdin))
