"""Numbers in the lines of a text log, found by a regular expression with a named group for each."""

from __future__ import annotations

import re

_NOT_FINITE = re.compile(r"(?<![\w.])[-+]?(nan|inf(inity)?)(?![\w.])", re.IGNORECASE)
_STAND_IN = "0.0000"
_NUMBER_BEGINS = re.compile(r"(?<![\w.])-\Z|\d\.?\Z")
_NUMBER_GOES_ON = re.compile(r"[eE][-+]?\d|\d")


class CutNumberError(ValueError):
    """A group holds a part of a number.

    Attributes:
        name: Of the group.
        text: What it holds.
    """

    def __init__(self, name: str, text: str) -> None:
        super().__init__(f"the group {name!r} cuts {text!r} out of a longer number")
        self.name = name
        self.text = text


def groups_of_line(pattern: re.Pattern[str], line: str) -> dict[str, str] | None:
    r"""The named groups of a line that took part, as texts; None if the line does not match.

    `nan` and `inf` are numbers too: `loss (?P<loss>\d+\.\d+)` finds `nan` in `loss nan`, so that no run that diverged
    ends with the number before.

    Raises:
        CutNumberError: A group holds a part of a number, such as `9.1` of `9.1e-05`, or `2.34` of `12.34`.
    """
    match = pattern.search(line)
    if match is None:
        match = pattern.search(_NOT_FINITE.sub(_STAND_IN, line)) if _NOT_FINITE.search(line) else None
        texts = match.groupdict() if match is not None else {}
        stood_in = _STAND_IN in texts.values()
        return {n: "nan" if t == _STAND_IN else t for n, t in texts.items() if t is not None} if stood_in else None
    found = {name: text for name, text in match.groupdict().items() if text is not None}
    for name, text in found.items():
        if _is_cut(match, name, text):
            raise CutNumberError(name, text)
    return found


def _is_cut(match: re.Match[str], name: str, text: str) -> bool:
    """Whether digits before or after a group belong to its number, and neither to another group nor to the pattern."""
    if not re.fullmatch(r"[-+]?(\d+\.?\d*|\.\d+)", text):
        return False
    line, start, end = match.string, match.start(name), match.end(name)
    edges = {edge for group in match.re.groupindex if group != name for edge in match.span(group)}
    before = _NUMBER_BEGINS.search(line[:start]) if text[0] not in "-+" else None
    spelled = re.search(rf"(-|\\-|\\\.|\.|0\*|0\+|\\d)\(\?P<{name}>", match.re.pattern)
    zeros = re.search(r"(?<![\d.])0+\Z", line[:start])
    if before is not None and start not in edges and not spelled and not zeros:
        return True
    if end == match.end() and "." not in text and re.compile(r"\.\d").match(line, end):
        return True
    return end not in edges and _NUMBER_GOES_ON.match(line, end) is not None
