"""Writes the reference pages of the documentation from the code: commands, the space file, the kinds and their checks.

MkDocs calls `on_files` at each build (`hooks` in `mkdocs.yml`), so the pages cannot drift from the code.
"""

from __future__ import annotations

import ast
import functools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from ruamel.yaml import YAML

from ablate.cli.app import EXAMPLES, PANELS, app, usage
from ablate.metrics import COST_MEANINGS, COSTS, GROWTHS, INITIAL, INSIDES, LARGEST, inside_name
from ablate.plugins import FAMILIES
from ablate.spec.base import Kinded, Spec
from ablate.spec.named import block_names, model_names, named_block, named_model
from ablate.spec.reading import plain_space
from ablate.spec.space import SpaceSpec, TrainerSpace

_EXIT_CODES = """
| exit code | meaning |
|---|---|
| 0 | The command succeeded. |
| 1 | A claim is refuted (`claims --fail-if-refuted`), results differ (`reproduce`, `import`), a kind breaks a rule. |
| 2 | The input is invalid or a store is damaged. One paragraph on stderr says where, and what to do. |
| 3 | Some trials failed. |
| 130 | The command was interrupted, or `delete` was answered with no. |
"""


def on_files(files: Any, config: Any) -> Any:
    """Add the generated pages to the site."""
    from mkdocs.structure.files import File

    pages = {"commands": commands_page(), "space": space_page(), "kinds": kinds_page()}
    pages |= {"checks": checks_page(), "coverage": coverage_page(), "metrics": metrics_page()}
    for name, page in pages.items():
        files.append(File.generated(config, f"reference/{name}.md", content=page))
    return files


def commands_page() -> str:
    """Every command with its arguments and options, from the command line's own parser."""
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    lines = [
        "# Commands\n",
        "`ablate COMMAND --help` prints the same text. `--debug` before a command shows the traceback of an error. "
        "With `--json`, standard output carries the JSON alone, and an error is the object "
        '`{"error": {"problem", "where", "expected", "got", "remedy"}}` on standard error. '
        "`ablate schema --output COMMAND` prints the JSON Schema of it. "
        "`ablate --install-completion` completes commands, options, spaces and studies in your shell. "
        "`ABLATE_STORE` names the store of commands without `--store`, `ABLATE_CACHE` the folder for prepared data.\n",
        _EXIT_CODES,
    ]
    for panel, names in PANELS.items():
        lines.append(f"## {panel}\n")
        for name in names:
            lines.extend(_command(name, commands[name]))
    return "\n".join(lines)


def _command(name: str, command: Any) -> Iterator[str]:
    arguments = [parameter for parameter in command.params if not parameter.opts[0].startswith("-")]
    options = [parameter for parameter in command.params if parameter.opts[0].startswith("-")]
    yield f"### ablate {name}\n"
    yield f"```text\n{' '.join(['ablate', name, *map(usage, arguments), '[OPTIONS]'])}\n```\n"
    yield f"{command.help}\n"
    examples = "\n".join(f"ablate {line}" for line in EXAMPLES[name])
    yield f"```sh\n{examples}\n```\n"
    yield from _table(("argument or option", "default", "meaning"), (_parameter(p) for p in [*arguments, *options]))


def _parameter(parameter: Any) -> tuple[str, str, str]:
    flag = getattr(parameter, "is_flag", False)
    if parameter.opts[0].startswith("-"):
        value = "" if flag else f" {parameter.metavar or parameter.name.upper()}"
        name = ", ".join(f"`{option}{value}`" for option in parameter.opts)
    else:
        name = f"`{usage(parameter)}`"
    if isinstance(parameter.show_default, str):
        default = _prose(parameter.show_default)
    elif parameter.required:
        default = "required"
    else:
        default = "" if flag or parameter.default in (None, ()) else f"`{parameter.default}`"
    return name, default, _prose(parameter.help or "")


def space_page() -> str:
    """every mapping of a space file that is not a kind, in the order in which a reader meets it."""
    lines = [
        "# The space file\n",
        "A space is one YAML file. Each table lists the keys of one mapping. Unknown keys are errors. "
        "`ablate schema` prints the same as JSON Schema, and `ablate validate FILE` checks a file. "
        "A key whose type is a family takes the name of a kind, or a mapping with `kind` and the kind's own keys; "
        "see [Kinds](kinds.md).\n",
    ]
    for spec, schema in _schemas().items():
        if not issubclass(spec, Kinded):
            lines.extend(_spec(spec, schema, heading=2))
    return "\n".join(lines)


def metrics_page() -> str:
    """Every quantity that is not a metric of one task, with its meaning."""
    lines = [
        "# Metrics and costs\n",
        "Claims, columns and fronts name them, and an objective may be any but a cost. The metrics of a task are in "
        "the text of [its kind](kinds.md#tasks).\n",
        "## Costs\n",
        *_table(("name", "meaning"), ((f"`{name}`", COST_MEANINGS[name]) for name in COSTS)),
        "\n## Losses of rounded weights\n",
        "`val_loss_int8`, `val_loss_int4` ... with `training.rounded_bits`: [rounded weights]"
        "(../how-to/insides.md#rounded-weights).\n",
        "\n## Other lengths\n",
        "Each metric of the task with a length, such as `val_loss_at_256`, with `training.evaluate_at`: "
        "[beyond the trained length](../how-to/capabilities.md#beyond-the-trained-length).\n",
        "\n## Insides\n",
        "With `training.insides`. These are of the model; `inside_kurtosis_block_2` is that of a block. `block_0` is "
        "the input of the first block; an encoder-decoder has `decoder_block_1` too. [Look inside models]"
        "(../how-to/insides.md) says how to use them.\n",
        *_table(
            ("name", "over blocks", "meaning"),
            (
                (f"`{inside_name(measure)}`", "largest" if measure in LARGEST else "mean", meaning)
                for measure, meaning in INSIDES.items()
            ),
        ),
        "\nBefore the first step:\n",
        *_table(
            ("name", "meaning"),
            [
                *((f"`{inside_name(measure, initial=True)}`", f"`{measure}`, by block too") for measure in INITIAL),
                *((f"`{inside_name(name, initial=True)}`", meaning) for name, meaning in GROWTHS.items()),
            ],
        ),
    ]
    return "\n".join(lines)


def kinds_page() -> str:
    """Every family with its kinds and their keys, the named blocks and the named models."""
    schemas = _schemas()
    nested = {spec.family.noun: spec.family for spec in schemas if issubclass(spec, Kinded)}
    families = {family.noun: family for family in FAMILIES.values()} | nested
    lines = [
        "# Kinds\n",
        "A family is a slot of a space that has alternatives. A kind is one alternative. "
        "`ablate kinds` prints them, with those of `--plugin FILE`.\n",
    ]
    for noun in sorted(families, key=str.lower):
        lines.append(f"## {_heading(noun)}\n")
        for spec in families[noun].members().values():
            lines.extend(_spec(spec, schemas.get(spec) or spec.model_json_schema(), heading=3))
    lines.append("## Named blocks\n\n`model.block` takes one of these names instead of a block spec.\n")
    blocks = ((name, named_block(name)) for name in block_names())
    rows = ((f"`{name}`", _prose(block.description), _prose(block.source)) for name, block in blocks)
    lines.extend(_table(("block", "what it is", "source"), rows))
    lines.append(
        "## Named models\n\n`model` takes one of these names instead of a model spec, or a mapping with `name` and "
        "what is laid over that model. On the command line `models/NAME` names a model that has the name of a block.\n"
    )
    models = {name: named_model(name) for name in model_names()}
    counts = {name: f"{model.parameters:,}" if model.parameters else "" for name, model in models.items()}
    model_rows = (
        (f"`{name}`", _prose(model.description), counts[name], _prose(model.source)) for name, model in models.items()
    )
    lines.extend(_table(("model", "what it is", "published parameters", "source"), model_rows))
    return "\n".join(lines)


def independent_checks() -> dict[str, dict[str, dict[str, str]]]:
    """What the tests are marked with: by family (or `models`), by kind (or name), tests and what they compare with.

    A test of `tests/` is marked by `@pytest.mark.independent_check(FAMILY, "KIND KIND ...", against=WHAT)`.
    """
    found: dict[str, dict[str, dict[str, str]]] = {
        name: {} for name in (*FAMILIES, "blocks", "growths", "averages", "models")
    }
    tests = Path(__file__).parents[1] / "tests"
    for file in sorted(tests.rglob("test_*.py")):
        text = file.read_text(encoding="utf-8")
        if "@pytest.mark.independent_check(" not in text:  # no need to parse it
            continue
        for test in (node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)):
            for mark in (call for call in test.decorator_list if isinstance(call, ast.Call)):
                if ast.unparse(mark.func) == "pytest.mark.independent_check":
                    family, kinds = (ast.literal_eval(argument) for argument in mark.args)
                    (against,) = (ast.literal_eval(keyword.value) for keyword in mark.keywords)
                    name = f"{file.relative_to(tests).as_posix()}::{test.name}"
                    for kind in kinds.split():
                        found[family].setdefault(kind, {})[name] = against
    return {family: dict(sorted(kinds.items())) for family, kinds in found.items() if kinds}


def checks_page() -> str:
    """For every kind of a part of a model or of its training, and every named model, the tests that hold it."""
    lines = [
        "# Independent checks\n",
        "Each kind of a part of a model or of its training, and each named model, is compared with code that is not "
        "ours, or with published equations that a test writes again, slowly. The tests are below `tests/`. Besides, "
        "`ablate check-kind --all` tries each kind by the rules of its family.\n",
    ]
    for family, kinds in independent_checks().items():
        lines.append(f"## {_heading(family)}\n")
        rows = (
            (f"`{kind}`", _prose(against), f"`{test}`")
            for kind, tests in kinds.items()
            for test, against in tests.items()
        )
        lines.extend(_table(("model" if family == "models" else "kind", "compared with", "test"), rows))
    return "\n".join(lines)


def coverage() -> list[dict[str, Any]]:
    """The ablation tables of papers: `paper`, `source`, `table`, `space`, and for each row a variant or `why` none."""
    tables: list[dict[str, Any]] = YAML(typ="safe").load(Path(__file__).parent / "coverage.yaml")
    return tables


def coverage_page() -> str:
    """Which rows of the ablation tables of papers are variants of a shipped space, and why the others are missing."""
    lines = [
        "# Tables of papers\n",
        "Which rows of the ablation tables of recent papers are variants of a shipped space, and why the others are "
        "not. A variant has the settings of its row; no row was trained here, and each space departs from its paper as "
        "stated. `ablate validate SPACE` checks a space, and `ablate study SPACE --data file:PATH` trains it; the "
        "models are large, so begin with a smaller `model` and `training`.\n",
    ]
    tables, counts = coverage(), []
    for table in tables:
        covered = sum(isinstance(variant, str) for variant in table["rows"].values())
        counts.append((table["paper"], _prose(table["source"]), f"{covered} of {len(table['rows'])}"))
    lines.extend(_table(("paper", "source", "rows"), counts))
    for table in tables:
        lines.append(f"## {table['paper']}\n")
        file = f"spaces/{table['space']}.yaml"
        departs = plain_space(Path(__file__).parents[1] / file)["departs"]
        lines.append(f"{_prose(table['source'])}, {table['table']}; `{file}`. Departs from the paper: {departs}\n")
        rows = (
            (row, f"`{variant}`" if isinstance(variant, str) else _prose(f"none: {variant['why']}"))
            for row, variant in table["rows"].items()
        )
        lines.extend(_table(("row", "variant"), rows))
    return "\n".join(lines)


def _heading(noun: str) -> str:
    plural = noun if noun.endswith("s") else f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return plural[0].upper() + plural[1:]


def _spec(spec: type[Spec], schema: dict[str, Any], heading: int) -> Iterator[str]:
    title = f"`{spec.kind_name()}`" if issubclass(spec, Kinded) else spec.__name__
    anchor = "" if not issubclass(spec, Kinded) else f" {{ #{_anchor(spec)} }}"
    yield f"{'#' * heading} {title}{anchor}\n"
    summary, _, details = schema.get("description", "").partition("\n")
    yield f"{_prose(summary)}\n"
    if details.strip():
        yield f"```text\n{details.strip()}\n```\n"
    known = ((name, spec.__dict__.get(name)) for name in ("source", "complexity"))
    facts = [f"{name}: {fact}" for name, fact in known if isinstance(fact, str)]
    if facts:
        yield f"{_prose('; '.join(facts))}\n"
    required = set(schema.get("required", ()))
    rows = [
        (f"`{name}`", _type(field), _default(spec, name, required), _prose(field.get("description", "")))
        for name, field in schema.get("properties", {}).items()
        if not (name == "kind" and issubclass(spec, Kinded))
    ]
    if rows:
        yield from _table(("key", "type", "default", "meaning"), rows)


@functools.cache
def _schemas() -> dict[type[Spec], dict[str, Any]]:
    """Every spec below a space with its JSON Schema, breadth first in the order of the fields."""
    root = SpaceSpec.model_json_schema()
    classes = {spec.__name__: spec for spec in _subclasses(Spec)}
    found: dict[type[Spec], dict[str, Any]] = {SpaceSpec: root}
    with_trainer = TrainerSpace.model_json_schema()
    definitions = {**with_trainer["$defs"], **root["$defs"]}
    for schema in (waiting := [root, {"properties": {"trainer": with_trainer["properties"]["trainer"]}}]):
        for name in _references(schema.get("properties", {})):
            spec = classes.get(name)
            if spec is not None and spec not in found:
                found[spec] = definitions[name]
                waiting.append(found[spec])
    return found


def _subclasses(spec: type[Spec]) -> Iterator[type[Spec]]:
    for below in spec.__subclasses__():
        yield below
        yield from _subclasses(below)


def _references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if "$ref" in node:
            yield node["$ref"].rpartition("/")[2]
        for value in node.values():
            yield from _references(value)
    elif isinstance(node, list):
        for value in node:
            yield from _references(value)


def _type(field: dict[str, Any]) -> str:
    """The type of a key in words, with links to the mappings and families that it takes."""
    options = field.get("anyOf") or field.get("oneOf") or [field]
    if any(_is_kind(option) for option in options):  # the bare names of kinds are in the family's list already
        options = [option for option in options if "enum" not in option]
    words: list[str] = []
    for option in options:
        for word in _option(option):
            if word not in words:
                words.append(word)
    return " or ".join(words)


def _is_kind(option: dict[str, Any]) -> bool:
    spec = _spec_named(option.get("$ref", "").rpartition("/")[2])
    return spec is not None and issubclass(spec, Kinded)


def _option(option: dict[str, Any]) -> Iterator[str]:
    if "$ref" in option:
        yield _link(option["$ref"].rpartition("/")[2])
    elif "anyOf" in option or "oneOf" in option:
        yield _type(option)
    elif "enum" in option:
        yield ", ".join(f"`{value}`" for value in option["enum"])
    elif "const" in option:
        yield f"`{option['const']}`"
    elif option.get("type") == "array":
        items = option.get("items", {})
        yield f"list of {_type(items)}" if items else "list"
    elif option.get("type") == "object":
        values = option.get("additionalProperties")
        yield f"mapping to {_type(values)}" if isinstance(values, dict) and values else "mapping"
    else:
        yield _scalar(option)


def _scalar(option: dict[str, Any]) -> str:
    kinds = option.get("type", "any value")
    name = kinds if isinstance(kinds, str) else "string" if "string" in kinds else " or ".join(kinds)
    bounds = [
        f"{sign} {option[key]:g}"
        for key, sign in (("exclusiveMinimum", ">"), ("minimum", "≥"), ("exclusiveMaximum", "<"), ("maximum", "≤"))
        if key in option
    ]
    return _prose({"null": "`null`"}.get(name, name) + (f" {', '.join(bounds)}" if bounds else ""))


def _link(name: str) -> str:
    spec = _spec_named(name)
    if spec is None:
        return "any value"
    if issubclass(spec, Kinded):
        return f"[{spec.family.noun}](kinds.md#{_heading(spec.family.noun).lower().replace(' ', '-')})"
    return f"[{name}](space.md#{name.lower()})"


def _spec_named(name: str) -> type[Spec] | None:
    return next((spec for spec in _subclasses(Spec) if spec.__name__ == name), None)


def _anchor(spec: type[Kinded]) -> str:
    return f"{spec.family.noun}-{spec.kind_name()}".replace(" ", "-")


def _default(spec: type[Spec], name: str, required: set[str]) -> str:
    if name in required or name not in spec.model_fields:
        return "required"
    value = spec.model_fields[name].get_default(call_default_factory=True)
    if isinstance(value, Spec):
        value = value.canonical()
    if value in ("", (), [], {}):
        return ""
    plain = json.dumps(value, default=lambda item: item.canonical() if isinstance(item, Spec) else str(item))
    return f"`{plain.strip(chr(34))}`"


def _prose(text: str) -> str:
    """Text for one cell or paragraph: one line, with what Markdown would read as markup escaped outside of code."""
    parts = re.split(r"(`[^`]*`)", " ".join(text.split()))
    return "".join(part if part.startswith("`") else re.sub(r"([*_<|\[\]])", r"\\\1", part) for part in parts)


def _table(head: tuple[str, ...], rows: Any) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"
    yield ""
