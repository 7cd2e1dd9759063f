"""The pages, one file each: NAME.py holds `show()`, which draws the page.

`PAGES` lists them, under the headings and in the order of the side bar; a new page needs no other change. A page is
imported when it is first opened.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ablate.analysis.path import takes_path
from ablate.analysis.slices import crosses, factors_of
from ablate.store import StudyRecord


class Entry(NamedTuple):
    """An entry of the side bar.

    Attributes:
        name: Module and address of the page.
        applies: Whether the page has something to show for a study; None: it is not about one study.
    """

    name: str
    title: str
    icon: str
    applies: Callable[[StudyRecord], bool] | None = None


def _always(record: StudyRecord) -> bool:
    return True


def _at_least(variants: int) -> Callable[[StudyRecord], bool]:
    return lambda record: len(record.variants) >= variants


def _varies(record: StudyRecord) -> bool:
    """Whether a study estimates effects of its switches, or varies a number."""
    factors = factors_of(record)
    crossed = len(factors.switches) > 1 and crosses(record.variants, factors.switches, ())
    return crossed or bool(factors.axes)


PAGES: dict[str, tuple[Entry, ...]] = {
    "This study": (
        Entry("answer", "Answer", ":material/gavel:", _always),
        Entry("curves", "Curves", ":material/show_chart:", _always),
        Entry("effects", "Effects", ":material/tune:", _varies),
        Entry("path", "Path", ":material/stairs:", takes_path),
        Entry("search", "Search", ":material/travel_explore:", lambda record: not record.traits.plans_points),
        Entry("tradeoffs", "Trade-offs", ":material/balance:", _at_least(3)),
        Entry("compare", "Compare", ":material/compare_arrows:", _at_least(2)),
        Entry("trials", "All trials", ":material/table_rows:", _always),
        Entry("trial", "Trial", ":material/science:", _always),
        Entry("slides", "Slides", ":material/slideshow:", _at_least(2)),
        Entry("runs", "Run", ":material/play_circle:", _always),
    ),
    "All studies": (
        Entry("studies", "Studies", ":material/list:"),
        Entry("across", "Across studies", ":material/stacked_line_chart:"),
        Entry("cluster", "Now running", ":material/dns:"),
        Entry("design", "Design a space", ":material/design_services:"),
    ),
}
