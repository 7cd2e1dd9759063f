"""The one tree of errors that a user can cause.

Every message says where it went wrong, what was expected, what was found and the way out; the command line prints
it as one paragraph and exits with 2.
"""

from __future__ import annotations


class AblateError(Exception):
    """A mistake that a person can mend.

    Args:
        problem: One sentence that says what is wrong.
        where: The file (with line and column if known), the path in a spec, or the resource.
        expected: What would have been right.
        got: What was found.
        remedy: The way out, as an instruction.
    """

    exit_code = 2

    def __init__(
        self,
        problem: str,
        *,
        where: str | None = None,
        expected: str | None = None,
        got: str | None = None,
        remedy: str | None = None,
    ) -> None:
        self.problem = problem
        self.where = where
        self.expected = expected
        self.got = got
        self.remedy = remedy
        super().__init__(self.paragraph())

    def paragraph(self) -> str:
        """The whole message as one paragraph of plain text."""
        parts = [f"{self.where}: {self.problem}" if self.where else self.problem]
        if self.expected is not None:
            parts.append(f"expected {self.expected}")
        if self.got is not None:
            parts.append(f"got {self.got}")
        text = _sentence("; ".join(part.rstrip(".") for part in parts))
        return f"{text} {_sentence(self.remedy)}" if self.remedy else text

    def __reduce__(self) -> tuple[object, ...]:
        # Errors cross process boundaries (a worker's mistake is shown by the driver), so keyword fields must survive.
        return (_rebuild, (type(self), self.problem, self.where, self.expected, self.got, self.remedy))


def _sentence(text: str) -> str:
    return text if text.endswith((".", "?", "!")) else f"{text}."


def _rebuild(
    kind: type[AblateError],
    problem: str,
    where: str | None,
    expected: str | None,
    got: str | None,
    remedy: str | None,
) -> AblateError:
    return kind(problem, where=where, expected=expected, got=got, remedy=remedy)


class SpaceError(AblateError):
    """A space file, or a spec in it, that cannot be."""


class PluginError(AblateError):
    """A user's own mixer or task that cannot be loaded."""


class DataError(AblateError):
    """Data that is missing, broken or unfit for its task."""


class StoreError(AblateError):
    """A store that cannot be opened, read or written."""


class StudyBusyError(StoreError):
    """Another process is running the same study."""


class NotFoundError(AblateError):
    """A study, variant or trial that the store does not hold."""


class EngineError(AblateError):
    """Trials that cannot be run as asked (no such device, workers that keep dying)."""
