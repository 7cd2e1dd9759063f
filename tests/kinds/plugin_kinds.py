"""The plugin files of `docs/how-to/`: one kind of each family, written from the documentation alone."""

from __future__ import annotations

from pathlib import Path

from docs.snippets import blocks

OF_MODELS = {
    "mixers": "running_mean",
    "mlps": "squared",
    "norms": "tanh",
    "positions": "distance",
    "residuals": "unet",
    "initialisers": "orthogonal",
}
"""Families of a model to the kind on their page, tried in the process of the tests (`test_model_kinds`)."""
OF_THE_REST = {
    "optimizers": "sign_sgd",
    "schedules": "stable_decay",
    "tokenizers": "letters",
    "sources": "squares",
    "tasks": "reverse",
    "designs": "leave_two_out",
    "formats": "list",
    "trackers": "jsonl",
}
"""All other families likewise, tried in a process of their own."""
PAGES = Path(__file__).parents[2] / "docs" / "how-to"


def write_plugin(family: str, folder: Path) -> Path:
    """Write the plugin file of a family, `my_NAME.py`, into a folder."""
    file = folder / ("my_positions.py" if family == "positions" else f"my_{family.removesuffix('s')}.py")
    pages = (page.read_text(encoding="utf-8") for page in PAGES.glob("own-*.md"))
    (plugin,) = (block for page in pages for block in blocks(page) if block.title == file.name)
    file.write_text(plugin.text, encoding="utf-8")
    return file
