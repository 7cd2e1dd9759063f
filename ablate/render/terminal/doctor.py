"""The findings of `ablate doctor` on a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from ablate.execution.doctor import DoctorFinding
from ablate.render.cells import plain, plain_table


def print_findings(findings: Sequence[DoctorFinding], console: Console) -> None:
    """A row for each check."""
    table = plain_table(2)
    table.add_column(plain("check"), no_wrap=True)
    table.add_column(plain("state"), no_wrap=True)
    table.add_column(plain("found"), overflow="fold")
    for finding in findings:
        table.add_row(plain(finding.name), plain(finding.state), plain(finding.says))
    console.print(table)
