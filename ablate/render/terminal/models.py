"""Models as text: those that `ablate import` reads from `transformers`, and named ones, which `validate` checks."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from ablate.analysis.text import plural
from ablate.nn.model.build import model_cost
from ablate.spec.lookup import FoundModel
from ablate.trained.hugging_face.check import Compared
from ablate.trained.hugging_face.checkpoint import CONFIG, Imported

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


def compared_line(imported: Imported, compared: Compared | None, *, weights: bool) -> str:
    """What is known of whether the model is the one that `transformers` reads."""
    if not weights:
        return "The weights were not read: the model starts from random ones."
    if imported.architecture.own:
        return "The code of the model is ablate's own, so there is nothing to compare it with."
    if compared is None:
        return "Not compared with transformers: if a setting means something else there, nobody has noticed."
    precision = "double" if compared.double else "single"
    of = f"those of transformers in {precision} precision, over texts of up to {plural(compared.tokens, 'token')}"
    if math.isnan(compared.difference):
        return f"Some logits are not numbers, so they cannot be compared with {of}."
    verdict = "which is rounding" if compared.same else f"more than the {compared.bound:.2g} that rounding explains"
    return f"Logits differ by at most {compared.difference:.2g} from {of}: {verdict}."


def model_file(imported: Imported, folder: Path, *, weights: bool) -> str:
    """The model and the weights that it starts from, as a model file, which a space can extend."""
    yaml = YAML()
    yaml.width = WIDTH
    yaml.default_flow_style = None  # innermost mappings on one line
    yaml.representer.ignore_aliases = lambda *values: True
    plain = {
        "description": f"The {imported.architecture.model_type} model in {folder.name}",
        "source": str(folder / CONFIG),
        "vocabulary": imported.vocabulary,
        "context": imported.context,
        **({"init_from": str(folder)} if weights else {}),
        "model": imported.model,
    }
    text = io.StringIO()
    yaml.dump(plain, text)
    return (
        f"# Written by `ablate import`: {summary(imported)}\n"
        f"# A space that starts from it names this file: `extends: FILE`.\n{text.getvalue()}"
    )


def model_json(model: FoundModel) -> dict[str, Any]:
    """What is known of a named model, as plain data."""
    spec, named = model.spec, model.named
    cost = model_cost(spec, vocabulary=named.vocabulary, context=named.context, length=1)
    return {
        "model": model.name,
        "description": named.description,
        "source": named.source,
        "family": spec.family,
        "depth": spec.depth,
        "width": spec.width,
        "vocabulary": named.vocabulary,
        "context": named.context,
        "parameters": cost.parameters,
        "published_parameters": named.parameters,
    }


def model_line(model: FoundModel) -> str:
    """What is known of a named model, in one line."""
    facts = model_json(model)
    published = facts["published_parameters"]
    also = (
        ""
        if published is None
        else ", as published"
        if published == facts["parameters"]
        else f", {published:,} published"
    )
    return (
        f"{model.name} is a valid model: {facts['family']}, {plural(facts['depth'], 'layer')} of width "
        f"{facts['width']}, {facts['parameters']:,} parameters{also}. {model.named.description}."
    )
