"""Numbers in the lines of a text log, found by a regular expression with a named group for each."""

from __future__ import annotations

import re

_NOT_FINITE = re.compile(r"(?<![\w.])[-+]?(nan|inf(inity)?)(?![\w.])", re.IGNORECASE)
_SIGN_OR_EXPONENT = re.compile(r"(?<![\w.])(-(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?|(\d+\.?\d*|\.\d+)[eE][-+]?\d+)(?!\w)")
_STAND_IN = "0.0000"
_NUMBER_BEGINS = re.compile(r"(?<![\w.])-\Z|\d\.?([eE][-+]?)?\Z")
_NUMBER_GOES_ON = re.compile(r"[eE][-+]?\d|\d")


class CutNumberError(ValueError):
    """A group takes a part of a number, or not the numbers that have a sign or an exponent; the message says which."""


def groups_of_line(pattern: re.Pattern[str], line: str) -> dict[str, str] | None:
    r"""The named groups of a line that took part, as texts; None if the line does not match.

    `nan` and `inf` are numbers too: `loss (?P<loss>\d+\.\d+)` finds `nan` in `loss nan`, so that no run that diverged
    ends with the number before.

    Raises:
        CutNumberError: A group takes a part of a number, such as `9.1` of `9.1e-05`, or `2.34` of `12.34`; or the line
            would match if its numbers had neither a sign nor an exponent.
    """
    match = pattern.search(line)
    if match is None:
        return _not_finite(pattern, line)
    found = {name: text for name, text in match.groupdict().items() if text is not None}
    for name, text in found.items():
        if _is_cut(match, name, text):
            raise CutNumberError(f"the group {name!r} cuts {text!r} out of a longer number")
    return found


def _not_finite(pattern: re.Pattern[str], line: str) -> dict[str, str] | None:
    """The groups of a line that matches only with plain numbers instead of those that are not finite."""
    finite = _NOT_FINITE.sub(_STAND_IN, line)
    plain = _SIGN_OR_EXPONENT.sub(_STAND_IN, finite)
    for text in (finite, plain):
        if text == line or (match := pattern.search(text)) is None:
            continue
        texts = {name: of for name, of in match.groupdict().items() if of is not None}
        instead = [one.span() for one in re.finditer(re.escape(_STAND_IN), text)]
        taken = [
            name for name in texts if any(match.start(name) < end and begin < match.end(name) for begin, end in instead)
        ]
        if taken and text != finite:
            raise CutNumberError(f"the group {taken[0]!r} takes no number with a sign or an exponent, as this line has")
        if taken:
            return texts | dict.fromkeys(taken, "nan")
    return None


def _is_cut(match: re.Match[str], name: str, text: str) -> bool:
    """Whether digits before or after a group belong to its number, and neither to another group nor to the pattern."""
    if not re.fullmatch(r"[-+]?(\d+\.?\d*|\.\d+)", text):
        return False
    line, start, end = match.string, match.start(name), match.end(name)
    edges = {edge for group in match.re.groupindex if group != name for edge in match.span(group)}
    before = _NUMBER_BEGINS.search(line[:start]) if text[0] not in "-+" else None
    spelled = re.search(rf"(-|\\-|\\\.|\.|0\*|0\+|\\d)\(\?P<{name}>", match.re.pattern)
    zeros = re.search(r"(?<![\d.])(?<![eE][-+])0+\Z", line[:start])
    if before is not None and start not in edges and not spelled and not zeros:
        return True
    if end == match.end() and "." not in text and re.compile(r"\.\d").match(line, end):
        return True
    return end not in edges and _NUMBER_GOES_ON.match(line, end) is not None
