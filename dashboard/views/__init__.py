"""The pages, one file each: NAME.py declares its `ENTRY` of the side bar, and holds `show()`, which draws the page.

`PAGES` is read from the texts of the files, so that a new page needs no other change; a page is imported when it is
first opened.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, replace
from pathlib import Path
from pkgutil import resolve_name
from typing import Literal, get_args

from ablate.store import StudyRecord

Heading = Literal["This study", "All studies"]


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of the side bar. A page writes it with literals alone, as `ENTRY = Entry(...)` below its imports.

    Attributes:
        heading: Below which heading it stands; pages of `This study` are shown for the chosen study.
        order: Position below its heading, the smallest first.
        variants: How many variants a study needs for the page to have something to show.
        applies: What else decides that: a function of the study's record, as `MODULE:NAME`; empty: nothing.
        name: Module and address of the page; `PAGES` takes it from the file.
    """

    title: str
    icon: str
    heading: Heading
    order: int
    variants: int = 0
    applies: str = ""
    name: str = ""

    def is_for(self, record: StudyRecord | None) -> bool:
        """Whether the page has something to show; pages about all studies always have."""
        if self.heading == "All studies":
            return True
        if record is None or len(record.variants) < self.variants:
            return False
        return not self.applies or bool(resolve_name(self.applies)(record))


def read_entry(file: Path) -> Entry:
    """The entry that the file of a page declares, without importing it.

    Raises:
        ValueError: It declares none.
    """
    declared = re.search(r"^ENTRY = (Entry\(.*?\))$", file.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    if declared is None:
        raise ValueError(f"{file} is in the folder of the pages and declares no `ENTRY = Entry(...)`")
    call = ast.parse(declared[1], mode="eval").body
    assert isinstance(call, ast.Call)
    values = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
    return replace(Entry(*map(ast.literal_eval, call.args), **values), name=file.stem)


def read_pages() -> dict[str, tuple[Entry, ...]]:
    """The entries of all pages by their heading, in the order of the side bar."""
    files = (file for folder in __path__ for file in Path(folder).glob("[!_]*.py"))
    entries = sorted(map(read_entry, files), key=lambda entry: entry.order)
    return {heading: tuple(entry for entry in entries if entry.heading == heading) for heading in get_args(Heading)}


PAGES = read_pages()
