"""Claims with their verdicts, drawn with rich: colour on a terminal, plain text in a pipe."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from ablate.render.cells import plain

if TYPE_CHECKING:
    from ablate.analysis.claims import ClaimVerdict

COLOURS = {"supported": "green", "refuted": "red", "undecided": "yellow"}


def print_claims(claims: Sequence[ClaimVerdict], console: Console) -> None:
    """Print each claim with its source, and below it the verdict."""
    console.print(plain(f"Claims: {_counted(claims)}", "bold"))
    for claim in claims:
        head = [plain(claim.id, "bold"), *([plain(claim.says)] if claim.says else [])]
        head += [plain(f"({claim.source})", "dim")] if claim.source else []
        verdict = plain(claim.sentence)
        verdict.stylize(COLOURS[claim.verdict], 0, len(claim.verdict))
        console.print(Text("  ").join(head))
        console.print(Padding(verdict, (0, 0, 0, 4), expand=False))


def _counted(claims: Sequence[ClaimVerdict]) -> str:
    verdicts = [claim.verdict for claim in claims]
    return ", ".join(f"{verdicts.count(word)} {word}" for word in COLOURS if word in verdicts)
