"""Costs stay what they were: with `match` they decide steps and sizes of variants, and so the keys of stored trials.

Whether they are right, `mixers/test_costs.py` and the contracts find out from what torch counts.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from families import a_family_for
from pydantic import ValidationError

from ablate.contracts.checking import settings
from ablate.contracts.modules import is_taken
from ablate.kinds.positions.logit_biases import T5BucketsSpec
from ablate.kinds.positions.rotary import RotarySpec
from ablate.nn.model.pricing import price
from ablate.plugins import FAMILIES
from ablate.spec.base import Kinded, Spec
from ablate.spec.cost import Cost
from ablate.spec.layer import LayerContext
from ablate.spec.model import ModelSpec
from ablate.spec.named import block_names

GOLDEN = Path(__file__).with_name("golden_costs.json")
"""Sums over many settings and sizes, as `PYTHONPATH=tests python tests/kinds/test_golden_costs.py` writes them."""
WIDE = LayerContext(1, 64, 4, depth=5, context=64, causal=True, vocabulary=11)
CONTEXTS = [
    replace(WIDE, layer=layer, **changes)  # type: ignore[arg-type]
    for layer in (0, 4)
    for changes in (
        {},
        {"width": 60, "positions": RotarySpec(), "separate_inputs": layer > 0},
        {"causal": False, "positions": T5BucketsSpec(), "sublayers": ("mixer",)},
        {"causal": layer > 3, "window": 9, "head_width": 24},
    )
]
VALUES: dict[Any, tuple[Any, ...]] = {bool: (False, True), NoneType: (None,)}


def values(annotation: Any) -> Iterator[Any]:
    """Some that a field may have; of a spec, those with one field of it changed."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        yield from (value for part in arguments for value in values(part))
    elif origin is Literal:
        yield from arguments
    elif origin is tuple:
        yield from ((value,) for value in values(arguments[0]))
    elif not isinstance(annotation, type) or not issubclass(annotation, Spec):
        yield from VALUES.get(annotation, (1, 2, 3, 0.25, 1.5) if annotation in (int, float) else ())
    else:
        for one in annotation.family.members().values() if issubclass(annotation, Kinded) else (annotation,):
            named = (
                [{"kind": kind} for kind in values(one.model_fields["kind"].annotation)]
                if "kind" in one.model_fields
                else [{}]
            )
            yield from (kind | change for kind in named for change in ({}, *changes(one)))


def changes(of: type[Spec]) -> Iterator[dict[str, Any]]:
    fields = {name: field.annotation for name, field in of.model_fields.items() if name != "kind"}
    return ({name: value} for name, annotation in fields.items() for value in values(annotation))


def specs(kind: type[Any]) -> Iterator[Any]:
    """The defaults, each two named choices, and each field changed by itself."""
    given = {"lr": 0.1} if "lr" in kind.model_fields else {}
    yield from settings(kind, given)
    for change in changes(kind):
        try:
            yield kind.model_validate({**kind.example, **given, **change})
        except ValidationError:
            continue


def costs(family: str, spec: Any) -> Iterator[tuple[Cost, int]]:
    """Each with another number that is known beside it."""
    if family == "optimizers":
        yield Cost(multiplications=round(spec.step_flops(1000, 30))), spec.state_bytes()
    for context in () if family == "optimizers" else CONTEXTS:
        length = context.context + context.layer
        if family == "norms":
            yield spec.cost(context.width, length), 0
        elif not is_taken(spec, context):
            continue
        elif family == "positions":
            yield spec.cost(context, length, key_heads=2, pairs=length * (length + 1) // 2), 0
        elif family == "residuals":
            yield spec.cost(context, length, joins=2), spec.cache(context) + sum(spec.stream_sizes(context))
        else:
            yield spec.cost(context, context.context), 0
        if family == "mixers" and context.causal:
            yield spec.step_cost(context, 40), spec.cache(context, 5) + 2 * spec.cache(context, 64)


def of_blocks() -> Iterator[tuple[Cost, int]]:
    for name in sorted(block_names()):
        plain = {"family": a_family_for(name), "depth": 3, "width": 64, "heads": 4, "block": name}
        model = ModelSpec.model_validate(plain)
        for inference in (False, True):
            made = price(model, context=64, vocabulary=11, classes=3, inference=inference)
            yield made.total, made.cache


def summed(each: Iterable[tuple[Cost, int]]) -> dict[str, int]:
    total = Counter[str]()
    for cost, other in each:
        total.update(asdict(cost) | {"others": other})
    return dict(total)


def golden() -> dict[str, dict[str, int]]:
    found = {"named blocks": summed(of_blocks())}
    for family in ("mixers", "mlps", "norms", "positions", "residuals", "optimizers"):
        for kind, of in sorted(FAMILIES[family].members().items()):
            if of.__module__.startswith("ablate."):
                found[f"{family} {kind}"] = summed(one for spec in specs(of) for one in costs(family, spec))
    return found


def test_costs_do_not_change() -> None:
    assert golden() == json.loads(GOLDEN.read_text(encoding="utf-8"))


if __name__ == "__main__":
    lines = (f" {json.dumps(name)}: {json.dumps(one)}" for name, one in golden().items())
    GOLDEN.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
