"""The pages, one file each: NAME.py holds `show()`, which draws the page.

`PAGES` lists them, under the headings and in the order of the navigation; a new page needs no other change. A page is
imported when it is first opened.
"""

from __future__ import annotations

from typing import NamedTuple


class Entry(NamedTuple):
    """An entry of the navigation: module and address of the page, its title, its icon."""

    name: str
    title: str
    icon: str


PAGES: dict[str, tuple[Entry, ...]] = {
    "Look": (
        Entry("studies", "Studies", ":material/list:"),
        Entry("answer", "Answer", ":material/gavel:"),
        Entry("curves", "Curves", ":material/show_chart:"),
        Entry("effects", "Effects", ":material/tune:"),
        Entry("path", "Path", ":material/stairs:"),
        Entry("tradeoffs", "Trade-offs", ":material/balance:"),
    ),
    "Look closer": (
        Entry("compare", "Compare", ":material/compare_arrows:"),
        Entry("across", "Across studies", ":material/stacked_line_chart:"),
        Entry("search", "Search", ":material/travel_explore:"),
        Entry("trials", "All trials", ":material/table_rows:"),
        Entry("trial", "Trial", ":material/science:"),
        Entry("slides", "Slides", ":material/slideshow:"),
        Entry("cluster", "Cluster", ":material/dns:"),
    ),
    "Begin": (
        Entry("design", "Design a space", ":material/design_services:"),
        Entry("runs", "Run", ":material/play_circle:"),
    ),
}
