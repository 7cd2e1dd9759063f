"""The code blocks of the documentation: found for the tests, and run again to renew the output that a page shows.

Conventions of the pages:

- a block with `title="NAME"` is a file of that name;
- a `console` block holds commands (`$ `) and their output, which run one after the other in one folder;
- a `python` block without a title is a script that runs in that folder;
- a `yaml` block without a title is a part of the page's space: its top-level keys replace those of the space;
- a `sh` block holds commands that need another machine or much time: they are parsed and not run.

`python -m docs.snippets PAGE FOLDER` writes the files of a page into a folder, runs its commands there and puts their
output into the page.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>\w+)?(?: title=\"(?P<title>[^\"]+)\")?[^\n]*\n(?P<text>.*?)^ *```$", re.M | re.S
)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of a page.

    Attributes:
        language: The word behind the fence; empty if there is none.
        title: The name of the file that the block holds; empty if it holds none.
        text: What stands between the fences.
    """

    language: str
    title: str
    text: str

    def commands(self) -> list[str]:
        """The commands of a `console` or `sh` block, without prompt, comments and output."""
        lines = self.text.splitlines()
        if self.language == "console":
            lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
        elif self.language != "sh":
            return []
        return [
            command for line in lines if (command := line.partition(" #")[0].strip()) and not command.startswith("#")
        ]


def blocks(text: str) -> Iterator[Block]:
    """The fenced blocks of a page, in order."""
    for match in _FENCE.finditer(text):
        body = match["text"]
        if match["indent"]:
            body = re.sub(rf"^{match['indent']}", "", body, flags=re.M)
        yield Block(match["language"] or "", match["title"] or "", body)


def renew(page: Path, folder: Path) -> None:
    """Run the commands of a page in `folder` and put their output into the page."""
    text = page.read_text(encoding="utf-8")

    def renewed(match: re.Match[str]) -> str:
        block = Block(match["language"] or "", match["title"] or "", match["text"])
        if block.title:
            file = folder / block.title
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(block.text, encoding="utf-8")
        if block.language != "console":
            return match[0]
        shown = "\n".join(f"$ {command}\n{_output(command, folder)}" for command in block.commands())
        return f"```console\n{shown.rstrip()}\n```"

    page.write_text(_FENCE.sub(renewed, text), encoding="utf-8")


def _output(command: str, folder: Path) -> str:
    print(f"$ {command}", file=sys.stderr)
    done = subprocess.run(command, shell=True, cwd=folder, text=True, stdout=subprocess.PIPE, check=True)
    lines = (line.rstrip().replace(f"{folder.resolve()}/", "") for line in done.stdout.strip("\n").splitlines())
    return "".join(f"{line}\n" for line in lines)


if __name__ == "__main__":
    renew(Path(sys.argv[1]), Path(sys.argv[2]))
