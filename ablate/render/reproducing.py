"""How to reproduce a study: the resolved space, the command, and what was not recorded."""

from __future__ import annotations

import io
import shlex
from collections.abc import Iterator, Sequence
from typing import Any

from ablate.analysis.findings import Findings
from ablate.render.blocks import Block, Listing, Paragraph

_KEPT = ("--plugin", "--engine")
"""Options of `ablate study` without which a space cannot be read or run. What else was given names where trials run
and are stored; the space contains `--data`."""


def reproduction(findings: Findings) -> Iterator[Block]:
    """The section of a report that says how to run the study again."""
    record = findings.report.record
    commands = sorted({environment.command for environment in findings.environments} - {""})
    yield Paragraph(
        "Install the versions named above, save the space below as a file and run the command. Trials that the store "
        "already holds are not trained again; give another store to train all of them. Paths in the space and in the "
        "command are those of the folder where the study was run."
    )
    kept = dict.fromkeys(option for command in commands for option in kept_options(command))
    words = [word for option in kept for word in option]
    again = shlex.join(["ablate", "study", f"{record.name}.yaml", *words, "--store", "again.db"])
    yield Listing(f"{again}\nablate report {record.name} --store again.db")
    if commands:
        yield Paragraph(f"These trials were run by: {'; '.join(commands)}")
    if unknown := _unknown(commands):
        yield Paragraph(unknown)
    yield Paragraph(
        f"The space, {record.name}.yaml, as it was understood: with what it extends, its blocks, the data that it was "
        "given and every default written out, so that it needs no other file of spaces."
    )
    yield Listing(space_yaml(record.space))


def kept_options(command: str) -> Iterator[tuple[str, str]]:
    """The options, with their values, of a command line that ran a study, without which it cannot be run again."""
    words = iter(_study_words(command))
    for word in words:
        option, equals, value = word.partition("=")
        if option in _KEPT:
            yield option, value if equals else next(words, "")


def _study_words(command: str) -> list[str]:
    """The words of a command `ablate study`; none of any other program's."""
    try:
        words = shlex.split(command)
    except ValueError:  # not what a shell could have read
        return []
    return words[2:] if words[1:2] == ["study"] else []


def _unknown(commands: Sequence[str]) -> str:
    """What of a study's runs is not known, as a sentence; empty if all is."""
    others = [command for command in commands if not _study_words(command)]
    if commands and not others:
        return ""
    who = f"by a program of its own ({'; '.join(others)})" if others else "by a version that noted no command"
    return (
        f"Some of it was run {who}: whether that loaded plugins, and which, is not recorded. If a kind in the space is "
        "unknown when you run it, name its file with --plugin."
    )


def space_yaml(space: dict[str, Any]) -> str:
    """A stored space as a file that `ablate study` reads; what is left empty at its top is left out."""
    from ruamel.yaml import YAML

    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style, yaml.allow_unicode = False, True
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]  # annotated as None
    written = io.StringIO()
    yaml.dump({key: value for key, value in space.items() if value not in ("", [], {}, None)}, written)
    return written.getvalue().rstrip()
