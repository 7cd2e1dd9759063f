"""Figures, tables and listings on a page, each with a text for screen readers, and downloads of what a page shows.

A first view costs what the browser has to load: 1.6 MB for `st.code`, which has the grammars of all languages, 1.5 MB
for `st.dataframe`, half of that for a figure. So short tables and listings are HTML.
"""

from __future__ import annotations

import html
import io
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from typing import Any

import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from ablate.analysis.curves import Axis, Loss
from ablate.analysis.numbers import MISSING, count
from ablate.portable_names import FILE, portable_name
from ablate.render.blocks import Grid
from ablate.render.figures import draw, save
from ablate.render.figures.style import PAPER, Palette, Spec, themed
from ablate.render.formats.data import harmless
from ablate.render.formats.html import data_url, with_verdicts
from ablate.render.formats.latex import escape
from dashboard.shared.store import findings

Draw = Callable[[Palette], Spec]
"""Draws a figure in the colours of a page or of paper."""
AXES: dict[Axis, str] = {"steps": "steps", "tokens": "tokens", "flops": "FLOP"}
LOSSES: dict[Loss, str] = {"val_loss": "validation", "train_loss": "training"}
NARROW = "the window is narrow"
"""Key of the session: whether the window is as narrow as that of a phone, as `watch_browser` has said."""
CARD_LINE = 56
"""Characters of a card on one line of a phone."""
NARROW_TABLE = 52
"""Characters of a row that a phone shows as a table, with two between columns."""
_SIZE = re.compile(r'viewBox="0 0 ([\d.]+) ([\d.]+)" width="[\d.]+"')


def dark() -> bool:
    """Whether the page is dark."""
    return bool(st.context.theme.type == "dark")


def is_narrow() -> bool:
    """Whether the window is as narrow as that of a phone."""
    return bool(st.session_state.get(NARROW))


def page_width() -> int:
    """The width of panels on this page in pixels."""
    return 340 if is_narrow() else 1060


def chart(draw: Draw, key: str, alt: str, *, picks: bool = False) -> list[dict[str, Any]]:
    """Show a figure in the colours of the page.

    Args:
        key: Unique on its page.
        alt: What it shows, for screen readers.
        picks: Whether its points can be picked, which runs the page again.

    Returns:
        What the picked points are, if `picks`.
    """
    palette = Palette(dark())
    spec = themed(draw(palette), palette)
    if not picks:
        st.vega_lite_chart(spec=spec, key=key, alt=alt, theme=None)
        return []
    event = st.vega_lite_chart(spec=spec, key=key, alt=alt, theme=None, on_select="rerun", selection_mode="picked")
    return list(event["selection"].get("picked", []))


def choose_axis_and_loss(row: DeltaGenerator) -> tuple[Axis, Loss]:
    """Controls in a row for the horizontal axis and the loss of a band; the address stores both."""
    axis = row.segmented_control(
        "Against", list(AXES), default="steps", format_func=AXES.__getitem__, key="axis", bind="query-params",
        required=True, wrap=True,
    )  # fmt: skip
    loss = row.segmented_control(
        "Loss", list(LOSSES), default="val_loss", format_func=LOSSES.__getitem__, key="loss", bind="query-params",
        required=True, wrap=True,
    )  # fmt: skip
    return axis, loss


def plain_table(grid: Grid, told: str, links: Sequence[str] = (), lasts: Sequence[str] = ()) -> None:
    """Show cells of text as a table, verdicts among them in their colours.

    Args:
        told: What it holds, for those who cannot see it.
        links: The page that the first cell of each row opens; empty for none.
        lasts: The page that the last cell of each row opens; empty for none.
    """
    palette = Palette(dark())

    def row(cells: Sequence[str], tag: str, first: str = "", last: str = "") -> str:
        kinds = ("" if place in grid.texts else ' class="number"' for place in range(len(cells)))
        shown = [with_verdicts(html.escape(cell), palette) for cell in cells]
        for place, link in ((0, first), (-1, last)):
            shown[place] = f'<a href="{html.escape(link)}">{shown[place]}</a>' if link else shown[place]
        return "".join(f"<{tag}{kind}>{cell}</{tag}>" for cell, kind in zip(shown, kinds, strict=True))

    rows = zip_longest((cells for group in grid.groups for cells in group), links, lasts, fillvalue="")
    body = "".join(f"<tr>{row(cells, 'td', first, last)}</tr>" for cells, first, last in rows)
    st.html(
        f'<div class="scrolled" role="region" tabindex="0" aria-label="{html.escape(told)}"><table class="answer">'
        f"<thead><tr>{row(grid.titles, 'th')}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def show_grid(grid: Grid, told: str, links: Sequence[str] = ()) -> None:
    """Show cells of text as a table, in a narrow window each row as a card with a line for each of its cells.

    Args:
        told: What it holds, for those who cannot see it.
        links: The page that each row opens; empty for none.
    """
    if not is_narrow():
        plain_table(grid, told, links)
        return
    found = []
    rows = [row for group in grid.groups for row in group]
    for (title, *cells), link in zip(rows, links or [""] * len(rows), strict=True):
        lines = [""]
        for of, cell in zip(grid.titles[1:], cells, strict=True):
            said = f"{of}: {cell}" if cell != MISSING else ""
            joined = " · ".join(filter(None, (lines[-1], said)))
            lines[-1:] = [joined] if len(joined) <= CARD_LINE or not lines[-1] else [lines[-1], said]
        found.append(Card(title, link, tuple(lines)))
    cards(found, told)


@dataclass(frozen=True, slots=True)
class Card:
    """A row of a table as a narrow window shows it.

    Attributes:
        title: What the row is about.
        address: The page that a click opens; empty for none.
        lines: What else is known of it.
        image: The address of a picture; empty for none.
        finding: What matters most of it, below its first line; empty for none.
        further: A last line, and the page that a click on it opens, which may be none.
    """

    title: str
    address: str
    lines: tuple[str, ...]
    image: str = ""
    finding: str = ""
    further: tuple[str, str] = ("", "")


def _leading(inner: str, to: str) -> str:
    """HTML that leads to a page, if one is given."""
    return f'<a href="{html.escape(to)}">{inner}</a>' if to else f"<div>{inner}</div>"


def cards(rows: Sequence[Card], told: str) -> None:
    """Show rows below each other: a table in a narrow window would show its first columns alone.

    Args:
        told: What they are, for those who cannot see them.
    """

    def shown(card: Card) -> str:
        image = f'<img src="{html.escape(card.image)}" alt="">' if card.image else ""
        told = [f"<span>{html.escape(line)}</span>" for line in card.lines if line]
        told.insert(1, f"<span><strong>{html.escape(card.finding)}</strong></span>" if card.finding else "")
        lines = "".join(told)
        first = _leading(f"<b>{html.escape(card.title)}</b>{image}{lines}", card.address)
        words, to = card.further
        return f"<li>{first}{_leading(f'<span>{html.escape(words)}</span>', to) if words else ''}</li>"

    st.html(f'<ul class="cards" aria-label="{html.escape(told)}">{"".join(map(shown, rows))}</ul>')


def show_table(table: pd.DataFrame, key: str, alt: str, **options: Any) -> None:
    """Show rows that are only read: as `st.dataframe` with its options, in a narrow window as cards.

    Args:
        alt: What they are, for those who cannot see them.
    """
    if not is_narrow():
        st.dataframe(table, key=key, alt=alt, hide_index=True, placeholder="-", **options)
        return
    shown = table[list(options.get("column_order", table.columns))]
    config = options.get("column_config", {})
    title = next((name for name in shown if shown[name].dtype.kind == "O"), shown.columns[0])
    formats = {name: ((config.get(name) or {}).get("type_config") or {}).get("format") for name in shown}
    texts = [
        [MISSING if pd.isna(row[name]) or row[name] == "" else cell_words(row[name], formats[name]) for name in shown]
        for row in shown.to_dict("records")
    ]
    columns = zip((max(name.split(), key=len) for name in shown), *texts, strict=True)
    if sum(max(map(len, column)) + 2 for column in columns) <= NARROW_TABLE:
        words = frozenset(place for place, name in enumerate(shown) if shown[name].dtype.kind == "O")
        plain_table(Grid(tuple(shown), (tuple(map(tuple, texts)),), words), alt)
        return
    found = []
    for row in shown.to_dict("records"):
        told = {name: value for name, value in row.items() if name != title and pd.notna(value) and value != ""}
        said = " · ".join(f"{name} {cell_words(value, formats[name])}" for name, value in told.items())
        said = re.sub(r" · [^·]*± ", " ± ", said)  # a column of halves of intervals follows that of their middles
        found.append(Card(str(row[title]), "", (said,)))
    cards(found, alt)


def cell_words(value: Any, form: str | None) -> str:
    """A cell as a column of `st.dataframe` with this format shows it."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return str(value)
    if not math.isfinite(value):
        return f"{value}"
    if form is not None and form.startswith("%"):
        return form % value
    if form == "percent":
        return f"{value:.0%}"
    if form == "compact":
        return count(round(value))
    return f"{value:,}" if isinstance(value, int) else f"{value:,.0f}" if form == "localized" else f"{value:.4g}"


def grid_of_texts(table: pd.DataFrame) -> Grid:
    """A table of texts, with a hyphen for each that is missing."""
    rows = table.astype(object).where(table.notna(), MISSING).astype(str).itertuples(index=False, name=None)
    return Grid(tuple(map(str, table)), (tuple(rows),), frozenset(range(table.shape[1])))


def code(text: str) -> None:
    """Show lines as they are; a click selects and copies them."""
    st.html(f'<pre class="code" tabindex="0" title="A click copies it">{html.escape(text)}</pre>')


def picture(svg: str, alt: str) -> None:
    """Show an SVG document on the background and in the colours of the page; as an image, so that no script runs."""
    st.image(on_page(svg, dark()), alt=alt)


def image(svg: str) -> str:
    """A picture as an HTML image without a text of its own."""
    return f'<img alt="" src="{data_url(svg)}">'


def on_page(svg: str, is_dark: bool) -> str:
    """The document without a background, light or dark as the page is, whatever the system's preference."""
    clear = svg.replace('<rect class="paper" ', '<rect class="paper" style="fill: none" ', 1)
    return clear.replace("(prefers-color-scheme: dark)", "all" if is_dark else "not all")


def width_of(svg: str) -> float:
    """The width of a picture in pixels; 0 if there is none."""
    size = _SIZE.search(svg)
    return float(size[1]) if size else 0.0


def widened(svgs: Sequence[str]) -> list[str]:
    """The same pictures padded to equal width, so that columns of equal width show them at one scale."""
    widest = max(map(width_of, svgs), default=0.0)

    def wide(size: re.Match[str]) -> str:
        left = (float(size[1]) - widest) / 2
        return f'viewBox="{left:g} 0 {widest:g} {size[2]}" width="{widest:g}"'

    return [_SIZE.sub(wide, svg, count=1) for svg in svgs]


_TYPES = {
    "csv": "text/csv",
    "parquet": "application/vnd.apache.parquet",
    "tex": "application/x-tex",
    "svg": "image/svg+xml",
    "png": "image/png",
    "html": "text/html",
    "md": "text/markdown",
    "json": "application/json",
    "yaml": "application/yaml",
    "txt": "text/plain",
}
Maker = Callable[[], str | bytes]


def export(files: Mapping[str, Maker], key: str) -> None:
    """A menu of downloads.

    Args:
        files: File name to the function that creates its content. The suffix sets the type.
        key: Unique on its page.
    """
    with st.popover("Export", icon=":material/download:", key=f"export-{key}"):
        for name, make in files.items():
            stem, _, suffix = name.rpartition(".")
            st.download_button(
                name.replace("_", r"\_"),
                make,
                file_name=f"{portable_name(stem, FILE, room=10)}.{suffix}",
                mime=_TYPES[suffix],
                key=f"{key}-{name}",
                on_click="ignore",
                width="stretch",
            )


def figure_files(name: str, drawn: Draw) -> dict[str, Maker]:
    """A figure on paper as SVG and PNG, drawn when it is requested."""
    return {f"{name}.{kind}": partial(_saved, drawn, kind) for kind in ("svg", "png")}


def _saved(drawn: Draw, kind: str) -> bytes:
    return save(themed(drawn(PAPER), PAPER), kind)


def report_figure(study: str, name: str) -> dict[str, Maker]:
    """A figure of the report of a study as files."""
    return {f"{study}_{name}.{kind}": partial(_drawn, study, name, kind) for kind in ("svg", "png")}


def _drawn(study: str, name: str, kind: str) -> bytes:
    return save(draw(name, findings(study)), kind)


def table_files(name: str, table: pd.DataFrame) -> dict[str, Maker]:
    """A table as CSV, Parquet and LaTeX."""
    return {
        f"{name}.csv": lambda: table.map(harmless).to_csv(index=False),
        f"{name}.parquet": lambda: _parquet(table),
        f"{name}.tex": lambda: _latex(table),
    }


def _parquet(table: pd.DataFrame) -> bytes:
    written = io.BytesIO()
    table.to_parquet(written, index=False)
    return written.getvalue()


def _latex(table: pd.DataFrame) -> str:
    def cell(value: object) -> str:
        return "" if value is None or value != value else f"{value:.4g}" if isinstance(value, float) else str(value)

    lines = [" & ".join(escape(cell(value)) for value in row) + r" \\" for row in table.itertuples(index=False)]
    columns = "".join("r" if pd.api.types.is_numeric_dtype(kind) else "l" for kind in table.dtypes)
    head = " & ".join(map(escape, map(str, table.columns))) + r" \\"
    rows = "\n".join(lines)
    return f"\\begin{{tabular}}{{{columns}}}\n\\toprule\n{head}\n\\midrule\n{rows}\n\\bottomrule\n\\end{{tabular}}\n"
