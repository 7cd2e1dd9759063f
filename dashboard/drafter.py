"""A process that draws blocks and checks drafts of spaces. It imports torch, which the dashboard does not.

It writes a line once it is ready. Then it reads a line of JSON for each request, `[name of a function below, arguments
...]`, and writes one with the answer as JSON text. Its arguments are plugin files. It ends when its input ends.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from ablate.analysis.changes import NOTHING, change_of
from ablate.analysis.findings import read_findings
from ablate.designs.base import FixedDesign
from ablate.errors import AblateError
from ablate.locations import cache_folder, temporary_folder
from ablate.nn.model.pricing import price
from ablate.planning.forecast import forecast
from ablate.planning.plan import check_points
from ablate.planning.planner import Planner, make_plan
from ablate.plugins import load_plugin
from ablate.processes import adopt_modules, keep_printing
from ablate.render.drawing.picture import parts_of
from ablate.render.drawing.svg import judged_svg, pickable_svg, stored_svg
from ablate.render.formats import render_report
from ablate.render.formats.slides import slides
from ablate.render.terminal.cost import Priced, cost_json
from ablate.render.terminal.plan import further_trials
from ablate.spec.block import BlockSpec
from ablate.spec.model import ModelSpec
from ablate.spec.named import block_names, named_block, shipped_spaces, write_space
from ablate.spec.paths import WORDS
from ablate.spec.reading import load_space
from ablate.spec.schema import space_schema
from ablate.spec.sentences import describe
from ablate.spec.space import SpaceSpec
from ablate.store import open_store

Plain = dict[str, Any]
TEMPLATE = "the template"
RATE = "training.optimizer.lr"
PASSES = 3
"""Arithmetic of a training step in forward passes: the backward pass takes two."""
MOST_OFFERS = 80
"""Settings that are offered for a part of a block."""
MOST_NAMED = 12
"""Points of a design whose names are shown."""


def schema() -> Plain:
    """The schemas of spaces and of paths that switches may set, and the names of spaces and blocks to start from."""
    paths = space_schema()["$defs"]["Setting"]["properties"]
    spaces = sorted(file.stem for file in shipped_spaces().glob("*.yaml"))
    return {
        "space": SpaceSpec.model_json_schema(),
        "paths": {
            path: node for path, node in paths.items() if not path.startswith("model.block") and path not in WORDS
        },
        "spaces": [TEMPLATE, *spaces],
        "blocks": list(block_names()),
    }


def start(name: str) -> Plain:
    """The space of this name to start a draft from, with all defaults written out."""
    if name != TEMPLATE:
        return load_space(name).model_dump(mode="json")
    with tempfile.TemporaryDirectory(dir=temporary_folder()) as folder:
        return load_space(write_space("my_question", Path(folder))).model_dump(mode="json")


def block(name: str) -> Plain:
    """The plain specs that a block's name stands for: `block`, and the `exceptions` of single layers."""
    named = named_block(name)
    return {"block": named.block, "exceptions": named.exceptions}


def read(text: str) -> Plain:
    """The space that a text describes, with all defaults written out, or why it describes none."""
    try:
        plain = YAML(typ="safe", pure=True).load(text)
    except YAMLError as error:
        return {"problem": f"This is not valid YAML: {error}"}
    if not isinstance(plain, dict):
        return {"problem": "This is not a space: a space is a mapping with a name, a task and a model."}
    space, refusal = _space(plain, text)
    return {"problem": refusal} if space is None else {"space": space.model_dump(mode="json")}


def offers(draft: Plain, part: str, values: dict[str, list[Any]]) -> list[Plain]:
    """The settings that remove, replace or vary a part of the draft's block and give a valid variant.

    Args:
        part: Slot of the part, as `pickable_svg` names it.
        values: Path in the block to values to try; of a number half and twice of what it is are tried, too.

    Returns:
        The `path` that is its subject, the `setting` of all paths, `words` of the change, whether it `removes` the
        part, and its `text` as switches write it; removals first, then what has a text, then what changes the least.
    """
    model = ModelSpec.model_validate(draft["model"]).model_dump(mode="json")
    before, found = parts_of(BlockSpec.model_validate(model["block"])), []
    box = part.partition(":")[0]
    for path, setting in _candidates(model["block"], values):
        try:
            after = parts_of(BlockSpec.model_validate(_changed(model["block"], setting)))
        except (ValidationError, LookupError, TypeError):
            continue
        value = setting[path]
        changed = {slot for slot in after.keys() | before if after.get(slot) != before.get(slot)}
        inside = path == f"block.{part}" and any(slot.startswith(f"{part}: ") for slot in changed)
        if not (part in changed or inside) or (box != part and box in changed):
            continue
        change = change_of(setting, {"model": model})
        removes = part not in after and value in NOTHING
        text = {"removes": " and ".join(change.removed)} if change.only_removes else {}
        if not text and all(words.startswith("replacing ") for words in change.otherwise):
            text = {"replaces": " and ".join(words.removeprefix("replacing ") for words in change.otherwise)}
        words = change.words if text else f"{path.removeprefix('block.')}: {value}"
        offer: Plain = {"path": path, "setting": setting, "words": words, "removes": removes, "text": text}
        found.append((not removes, not text, len(changed), offer))
    found.sort(key=lambda each: each[:3])
    return [offer for *_, offer in found if _is_valid(draft, offer["setting"])][:MOST_OFFERS]


def _candidates(block: Plain, values: dict[str, list[Any]]) -> Iterator[tuple[str, Plain]]:
    """Subjects and settings to try; a sub-layer is removed with the skip around it, which cannot stay."""
    for path, listed in values.items():
        here: Any = block
        for name in path.split(".")[1:]:
            here = here.get(name) if isinstance(here, dict) else None
        numbers = [] if isinstance(here, bool) or not isinstance(here, (int, float)) else [here / 2, here * 2]
        if isinstance(here, int):
            numbers = [int(number) for number in numbers if number == int(number)]
        skip = path.replace("block.", "block.skips.")
        for value in (*listed, *numbers):
            if value != here:
                yield path, {path: value, skip: 0} if value == "none" and skip in values else {path: value}


def _changed(block: Plain, setting: Plain) -> Plain:
    """A copy of a plain block with other values at some paths."""
    copied = dict(block)
    for path, value in setting.items():
        _, *parents, last = path.split(".")
        here = copied
        for name in parents:
            here[name] = here = dict(here[name])
        if parents and last not in here:
            raise LookupError(path)
        here[last] = value
    return copied


_OF_A_TRIAL = ("name", "question", "task", "tasks", "aggregate", "model", "training", "objective")
"""Fields of a space that name no variant."""


def _is_valid(draft: Plain, setting: Plain) -> bool:
    """Whether a space with this change is valid."""
    space = {name: draft[name] for name in _OF_A_TRIAL if name in draft}
    space["switches"] = {"offered": {"kept": {}, "changed": setting}}
    space["design"] = {"kind": "leave_one_out", "seeds": 2}
    try:
        SpaceSpec.model_validate(space).resolve({"offered": "changed"})
    except (ValidationError, AblateError):
        return False
    return True


def words(model: Plain, switches: dict[str, Plain]) -> dict[str, dict[str, str]]:
    """What each setting of each switch changes in a model, in words; empty where that is not known."""
    try:
        whole = ModelSpec.model_validate(model).model_dump(mode="json")
    except ValidationError:
        return {}
    return {
        name: {setting: _words(paths, whole) for setting, paths in settings.items() if setting not in WORDS}
        for name, settings in switches.items()
    }


def _words(paths: Plain, model: Plain) -> str:
    if removed := paths.get("removes"):
        return f"without {removed}"
    if replaced := paths.get("replaces"):
        return f"replaces {replaced}"
    return change_of({path: value for path, value in paths.items() if path not in WORDS}, {"model": model}).title


def check(draft: Plain, text: str, versus: Plain | None) -> Plain:
    """The drawing, cost and variants of a draft, and its problems; `beside` has those with a path.

    Args:
        versus: The plain block to compare its block with in the drawing.
    """
    model, problems = _model(draft)
    beside = _beside(draft)
    space, refusal = _space(draft, text)
    cost = None if model is None else _cost(model, space)
    return {
        "svg": _svg(draft, versus),
        "picked": _pickable(draft, versus),
        "cost": cost,
        "size": None if space is None or cost is None else _size(space, cost["total"]["flops"] / cost["context"]),
        "problems": [*problems, *([] if refusal is None or problems else [refusal])],
        "beside": beside,
        **({} if space is None else _variants(space)),
    }


def picture(name: str, model: Plain, versus: tuple[str, Plain] | None, titled: bool) -> Plain:
    """The drawing of a block as SVG; empty if one of its kinds is unknown to this process."""
    try:
        return {"svg": stored_svg(name, model, versus, titled=titled)}
    except ValidationError:
        return {"svg": ""}


def judged(name: str, model: Plain, verdicts: list[tuple[Plain, str]]) -> Plain:
    """The drawing of a baseline with the verdicts on its parts as SVG; empty if a kind is unknown to this process."""
    try:
        return {"svg": judged_svg(name, model, verdicts)}
    except ValidationError:
        return {"svg": ""}


def plan(draft: Plain, text: str, store: str) -> Plain:
    """The number of trials of a draft and their estimated duration; prepares its data, as `ablate plan` does."""
    space, refusal = _space(draft, text)
    if space is None:
        return {"problem": refusal}
    try:
        planner = Planner(space, cache_folder(), lambda line: None)
        made = make_plan(planner)
        estimate = forecast(made, store, tasks=planner.costs.prepare)
    except AblateError as error:
        return {"problem": str(error)}
    return {
        "trials": len(made.trials),
        "later": len(made.later),
        "done": len(estimate.done),
        "seconds": estimate.total(made),
        "flops": made.flops,
        "basis": estimate.basis,
        "workers": estimate.workers,
        "further": further_trials(made, estimate),
    }


def talk(study: str, store: str, after: str | None) -> Plain:
    """The slides of a study as one HTML file; empty if the study no longer exists."""
    try:
        with open_store(store, create=False) as opened:
            return {"html": slides(read_findings(opened, study), after)}
    except AblateError as error:
        return {"html": "", "problem": str(error)}


def written(study: str, store: str, form: str, at: list[Any]) -> str:
    """The report of a study in a format that draws blocks; `at` makes answers to requests at other times different."""
    with open_store(store, create=False) as opened:
        return str(render_report(read_findings(opened, study), form))


def _model(draft: Plain) -> tuple[Any, list[str]]:
    try:
        return ModelSpec.model_validate(draft.get("model")), []
    except ValidationError as error:
        return None, [f"{'.'.join(map(str, ('model', *loc)))}: {said}" for loc, said in describe(error)]


def _beside(draft: Plain) -> list[tuple[str, str]]:
    """The problems of a draft, by path."""
    try:
        SpaceSpec.model_validate(draft)
    except ValidationError as error:
        return [(".".join(map(str, loc)), said) for loc, said in describe(error)]
    return []


def _space(draft: Plain, text: str) -> tuple[SpaceSpec | None, str | None]:
    """The space, read from its file as `ablate validate` reads it, or its problems."""
    if "extends" in draft:  # a draft may come from an address, which must not cause files to be read
        return None, "A draft extends no other space: start from that space, and change it."
    name = f"{draft.get('name') or 'space'}.yaml"
    with tempfile.TemporaryDirectory(dir=temporary_folder()) as folder:
        file = Path(folder, "space.yaml")
        file.write_text(text, encoding="utf-8")
        try:
            space = load_space(file)
            Planner(space, Path(folder), lambda line: None).design()
        except AblateError as error:
            return None, str(error).replace(str(file), name)
    return space, None


def _svg(draft: Plain, versus: Plain | None) -> str:
    name = str(draft.get("name") or "block")
    beside = None if versus is None or versus == draft["model"].get("block") else ("the start", {"block": versus})
    try:
        return stored_svg(name, draft["model"], beside)
    except (ValidationError, KeyError):
        return ""


def _pickable(draft: Plain, versus: Plain | None) -> str:
    try:
        beside = None if versus == draft["model"].get("block") else versus
        return pickable_svg(draft["model"], beside, [*_varied(draft)])
    except (ValidationError, KeyError):
        return ""


def _varied(draft: Plain) -> Iterator[Plain]:
    """The block with each setting of a switch alone, where that is valid."""
    block = ModelSpec.model_validate(draft["model"]).model_dump(mode="json")["block"]
    for switch in draft["switches"].values():
        for setting in switch.values():
            paths = setting if isinstance(setting, dict) else {}
            own = {path: value for path, value in paths.items() if path.startswith("block.")}
            with suppress(ValidationError, LookupError, TypeError):
                other = _changed(block, own)
                BlockSpec.model_validate(other)
                yield other


def _cost(model: Any, space: SpaceSpec | None) -> Plain:
    """Cost of one layer by part, and of all layers, for the longest input of the task."""
    context = 128 if space is None else space.task.length
    sizes = {"width": model.width, "heads": model.heads, "context": context, "depth": model.depth, "vocabulary": 0}
    priced = Priced("", sizes, price(model, context=context), inference=False)
    return dict(cost_json(priced))


def _size(space: SpaceSpec, flops: float) -> Plain | None:
    """How many trials a space has, and about how much they compute, without its data; None if that takes results.

    Args:
        flops: Of the forward pass of the baseline over a token.
    """
    design, training = Planner(space, Path(), lambda line: None).design(), space.training
    if not isinstance(design, FixedDesign):
        return None
    trials = len(design.ask())
    tokens = trials * training.steps * training.batch_size * space.task.length
    return {"trials": trials, "tokens": tokens, "flops": PASSES * flops * tokens}


def _variants(space: SpaceSpec) -> Plain:
    """Number of different models, invalid points, and settings without effect of a design, as in `ablate validate`."""
    planner = Planner(space, Path(), lambda line: None)
    design = planner.design()
    seen = check_points(space, design)
    return {
        "points": seen.points,
        "variants": seen.variants,
        "names": [point.name for point in design.points()[:MOST_NAMED]],
        "invalid": [{"variant": name, "reason": reason} for name, reason in seen.reasons.items()],
        "without_effect": list(seen.without_effect),
        "doubts": list(seen.warnings),
        "training": _training(space),
    }


def _training(space: SpaceSpec) -> Plain:
    """For how many steps, with how many seeds and at which learning rates a space trains its variants."""
    plain, tuned = space.model_dump(mode="json"), []
    if space.tune is not None:
        tuned = [*space.tune.grid.get(RATE, ())]
    elif space.tuned:
        tuned = [*space.tuned.get(RATE, {}).values()]
    seeds = plain["design"].get("seeds_per_rung") or plain["design"]["seeds"]
    numbers = (
        (seeds["start"], seeds["max"]) if isinstance(seeds, dict) else [*([seeds] if isinstance(seeds, int) else seeds)]
    )
    return {
        "steps": space.training.steps,
        "seeds": (min(numbers), max(numbers)),
        "rates": sorted({rate for rate in tuned if isinstance(rate, float)}) or [plain["training"]["optimizer"]["lr"]],
    }


ANSWERS = {
    answer.__name__: answer
    for answer in (schema, start, block, read, offers, words, check, picture, judged, plan, talk, written)
}


def answer(request: list[Any]) -> str:
    """The answer to a request as a JSON text."""
    name, *arguments = request
    reply: Mapping[str, Any] | list[Plain] | str = ANSWERS[name](*arguments)
    return json.dumps(reply)


def main() -> None:
    """Load the plugins, then answer requests."""
    keep_printing()
    adopt_modules()
    for plugin in sys.argv[1:]:
        load_plugin(plugin)
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
