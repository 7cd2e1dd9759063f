"""Setting paths in specs of which only the needed parts are converted agrees with setting them in plain data."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from pydantic import ValidationError

from ablate.errors import SpaceError
from ablate.spec.base import Spec
from ablate.spec.composer import ROOTS
from ablate.spec.paths import assign
from ablate.spec.reading import load_space
from ablate.spec.space import SpaceSpec
from ablate.spec.variant import VariantSpec


def plain(value: Any) -> Any:
    """Every spec opened, however deep: the slow reference."""
    if isinstance(value, Spec):
        return {name: plain(item) for name, item in value.editable().items()}
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def slowly(space: SpaceSpec, settings: dict[str, str], values: dict[str, Any]) -> VariantSpec:
    opened = {root: plain(getattr(space, root)) for root in ROOTS}
    for switch, options in space.switches.items():
        for path, value in options[settings[switch]].items():
            assign(opened, f"model.{path}" if path.startswith("block") else path, value)
    for path, value in values.items():
        assign(opened, path, value)
    return VariantSpec.model_validate(opened)


@pytest.mark.parametrize("name", ["simplify_block", "recall", "translate"])
def test_the_same_variant(name: str) -> None:
    space = load_space(name)
    tried = refused = 0
    for chosen in product(*space.switches.values()):
        settings = dict(zip(space.switches, chosen, strict=True))
        values = {"training.optimizer.lr": 1e-4 * (1 + tried % 3), "model.init_std": 0.01 * (1 + tried % 2)}
        try:
            slow = slowly(space, settings, values)
        except ValidationError:
            refused += 1
            with pytest.raises(SpaceError):
                space.resolve(settings, values)
            continue
        quick = space.resolve(settings, values)
        assert quick == slow
        assert quick.content_hash() == slow.content_hash()
        tried += 1
        if tried == 60:
            break
    assert tried >= 2


def test_what_a_space_starts_from_is_left_as_it_is() -> None:
    space = load_space("simplify_block")
    before = space.model_dump_json(), space.model.canonical_json()
    for switch, setting in space.single_settings():
        try:
            space.resolve({switch: setting}, {"model.block.norm.eps": 1e-3})
        except SpaceError:
            continue
    assert (space.model_dump_json(), space.model.canonical_json()) == before
