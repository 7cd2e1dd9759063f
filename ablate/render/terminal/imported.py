"""`ablate import`: a model of `transformers` as text: what it is, and the section of a space."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from ablate.nn.model.build import model_cost
from ablate.trained.hugging_face.checkpoint import Imported

WIDTH = 120


def imported_json(imported: Imported) -> dict[str, Any]:
    """What was read, as plain data."""
    spec = imported.spec
    return {
        "model_type": imported.architecture.model_type,
        "family": spec.family,
        "depth": spec.depth,
        "width": spec.width,
        "vocabulary": imported.vocabulary,
        "context": imported.context,
        "parameters": model_cost(spec, vocabulary=imported.vocabulary, context=imported.context, length=1).parameters,
    }


def summary(imported: Imported) -> str:
    """What was read, in one line."""
    facts = imported_json(imported)
    return (
        f"{facts['model_type']}: {facts['family']}, {facts['depth']} layers of width {facts['width']}, "
        f"{facts['vocabulary']:,} tokens, context {facts['context']:,}, {facts['parameters']:,} parameters"
    )


def section(imported: Imported, folder: Path) -> str:
    """The model of a space and the weights that it starts from, as a file that a space can extend."""
    yaml = YAML()
    yaml.width = WIDTH
    yaml.default_flow_style = None  # innermost mappings on one line
    yaml.representer.ignore_aliases = lambda *values: True
    text = io.StringIO()
    yaml.dump({"model": imported.model, "training": {"init_from": str(folder)}}, text)
    return (
        f"# The model in {folder}, written by `ablate import`.\n# {summary(imported)}\n"
        f"# A space that starts from it names this file: `extends: FILE`.\n{text.getvalue()}"
    )
