"""A space with other seeds, and the space that a store keeps."""

from __future__ import annotations

import pytest

from ablate.errors import SpaceError
from ablate.spec.design import SeedsSpec
from ablate.spec.reading import load_space, stored_space, with_seeds


@pytest.mark.parametrize(("text", "seeds"), [("5", 5), ("3:8", SeedsSpec(start=3, max=8))])
def test_only_the_seeds_change(text: str, seeds: object) -> None:
    space = load_space("recall")
    changed = with_seeds(space, text)
    assert changed.design.seeds == seeds
    before, after = space.model_dump(mode="json"), changed.model_dump(mode="json")
    before["design"].pop("seeds")
    after["design"].pop("seeds")
    assert after == before
    assert changed.text == space.text


@pytest.mark.parametrize("text", ["", "3:", "few", "-1", "3:2", "1:9", "0", "99999999"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(SpaceError, match="--seeds"):
        with_seeds(load_space("recall"), text)


@pytest.mark.parametrize("name", ["recall", "simplify_block"])
def test_a_stored_space_is_the_space(name: str) -> None:
    space = load_space(name)
    assert stored_space(space.model_dump(mode="json"), "x").model_dump(mode="json") == space.model_dump(mode="json")
    with pytest.raises(SpaceError, match="the stored space of x"):
        stored_space({"name": "x"}, "x")
