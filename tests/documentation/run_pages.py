"""Runs the blocks of a page.

A step is `[what, name, text]`: `file` writes a file, `command` calls the command line, `python` runs a script. Every
space that is written or made by a command is cut down first, so that it trains in a moment.
"""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from ablate.cli import main


def cut(space: dict[str, Any]) -> None:
    """Make a space train in a moment; its question, switches, design and claims stay, and all of one that extends."""
    if "extends" in space:
        return
    space["training"] |= {"steps": 4, "batch_size": 2, "evaluations": 2}
    space["model"] |= {"depth": 2, "width": 16, "heads": 2}
    if space.get("task", {}).get("kind") == "language_model":
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
        if "trainer" in space:  # each trial is a program that starts
            file.write_text(re.sub(r"\bseeds: \d+", "seeds: 1", file.read_text(encoding="utf-8")), encoding="utf-8")
            continue
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


def run_page(steps: list[list[str]]) -> None:
    """All steps of a page, in the current folder, beside a text to train on."""
    lines = [f"def f{line}(x): return x + {line * line}\n" for line in range(400)]
    documents = ("".join(lines[at : at + 20]) for at in range(0, 400, 20))
    Path("text.txt").write_text("<|endoftext|>\n".join(documents), encoding="utf-8")
    for step in steps:
        run(*step)
