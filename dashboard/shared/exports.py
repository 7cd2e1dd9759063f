"""Downloads: each page offers its contents as files, which are created when they are requested."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from functools import partial

import pandas as pd
import streamlit as st

from ablate.portable_names import FILE, portable_name
from ablate.render.figures import draw, save
from ablate.render.figures.style import PAPER, themed
from ablate.render.formats.csv import harmless
from ablate.render.formats.latex import escape
from dashboard.shared.charts import Draw
from dashboard.shared.store import findings

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
        return "" if value is None or value != value else f"{value:.6g}" if isinstance(value, float) else str(value)

    lines = [" & ".join(escape(cell(value)) for value in row) + r" \\" for row in table.itertuples(index=False)]
    columns = "".join("r" if pd.api.types.is_numeric_dtype(kind) else "l" for kind in table.dtypes)
    head = " & ".join(map(escape, map(str, table.columns))) + r" \\"
    rows = "\n".join(lines)
    return f"\\begin{{tabular}}{{{columns}}}\n\\toprule\n{head}\n\\midrule\n{rows}\n\\bottomrule\n\\end{{tabular}}\n"
