"""`plugins` of a space, paths into a pattern, why two points are one variant, and spaces with other seeds."""

from __future__ import annotations

from pathlib import Path

import pytest

import ablate
from ablate.errors import SpaceError
from ablate.planning.plan import check_points
from ablate.planning.planner import Planner
from ablate.spec.design import SeedsSpec
from ablate.spec.named import shipped_spaces
from ablate.spec.reading import load_space, plugins_of, stored_space, with_design, with_longer, with_seeds
from ablate.spec.space import SpaceSpec

SPACE = """\
name: crossed
question: Do two switches on a pattern cross?
task: {kind: copy, span: 4, symbols: 4}
model: {family: decoder, depth: 4, width: 16, heads: 2, block: pre_ln, pattern: [{}, {mixer: linear}]}
training: {steps: 4, batch_size: 2, optimizer: {kind: adamw, lr: 0.01}}
switches:
  even: {attention: {}, local: {model.pattern.0.mixer: local}}
  odd: {linear: {}, retention: {model.pattern.1.mixer: retention}, whole: {model.pattern: [{}, {mlp: gated}]}}
design: {kind: grid, seeds: 2}
objective: {metric: val_loss, margin: 0.05}
"""
PLUGIN = """\
from typing import Literal
from ablate.kinds.norms.rms import RMSNormSpec

class Own(RMSNormSpec):
    kind: Literal["{kind}"] = "{kind}"
"""


def read(folder: Path, text: str) -> SpaceSpec:
    (folder / "space.yaml").write_text(text)
    return load_space(folder / "space.yaml")


def mixers(space: SpaceSpec, **settings: str) -> list[str]:
    return [block.mixer.kind_name() for block in space.resolve(settings).model.blocks]


def test_switches_set_single_items_of_a_pattern(tmp_path: Path) -> None:
    space = read(tmp_path, SPACE)
    assert mixers(space) == ["attention", "linear"] * 2
    assert mixers(space, even="local", odd="retention") == ["local", "retention"] * 2
    assert mixers(space) == ["attention", "linear"] * 2, "the baseline is not changed"


@pytest.mark.parametrize("item", ["2", "-1", "first", "1e0"])
def test_an_item_that_a_pattern_does_not_have(item: str, tmp_path: Path) -> None:
    with pytest.raises(SpaceError, match=rf"`model.pattern` is a list of 2, and has no item `{item}`.* from 0 to 1"):
        read(tmp_path, SPACE.replace("pattern.0", f"pattern.{item}"))


def test_a_grid_says_why_two_points_are_the_same_variant(tmp_path: Path) -> None:
    space = read(tmp_path, SPACE)
    seen = check_points(space, Planner(space, tmp_path, print).design())
    assert dict(seen.same_as) == {"even=local,odd=whole": "odd=whole"}
    (sentence,) = seen.without_effect
    assert "`odd=whole` sets `model.pattern` as a whole, after `even=local` has set `model.pattern.0.mixer`" in sentence
    even, odd = SPACE.splitlines()[6:8]  # in the other order, and `even` sets what is there already
    again = even.replace("local: {model.pattern.0.mixer: local}", "same: {model.pattern.0.mixer: attention}")
    space = read(tmp_path, SPACE.replace(f"{even}\n{odd}", f"{odd}\n{again}"))
    seen = check_points(space, Planner(space, tmp_path, print).design())
    assert "even=same,odd=whole" in {
        name.replace("odd=whole,even=same", "even=same,odd=whole") for name in seen.same_as
    }
    assert not [said for said in seen.without_effect if "as a whole" in said]


def test_plugins_are_relative_to_the_file_that_names_them_and_no_part_of_the_study(tmp_path: Path) -> None:
    beside = tmp_path / "parts"
    beside.mkdir()
    (beside / "own.py").write_text(PLUGIN.format(kind="own_norm_of_a_space"))
    (beside / "base.yaml").write_text(SPACE + "plugins: [own.py]\n")
    (tmp_path / "space.yaml").write_text(
        "extends: parts/base.yaml\nname: crossed\nmodel: {block: {mixer: attention, norm: own_norm_of_a_space}}\n"
    )
    assert plugins_of(tmp_path / "space.yaml") == [str(beside / "own.py")]
    space = ablate.load_space(tmp_path / "space.yaml")
    assert space.model.block.norm.kind_name() == "own_norm_of_a_space"
    assert space.plugins == with_seeds(space, "3").plugins == with_design(space, "leave_one_out").plugins
    assert "plugins" not in space.model_dump()
    assert "plugins" not in space.canonical()


def test_an_unknown_kind_hints_at_plugins(tmp_path: Path) -> None:
    with pytest.raises(SpaceError, match=r"there is no mixer kind `mine`.*`plugins: \[FILE.py\]` in the space"):
        read(
            tmp_path,
            SPACE.replace("mixer: local", "mixer: mine").replace("pattern.0.mixer: local", "pattern.0.mixer: mine"),
        )
    with pytest.raises(SpaceError, match="`plugins` is a list of Python files"):
        read(tmp_path, SPACE + "plugins: own.py\n")


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


@pytest.mark.parametrize("seeds", ["5", "3:8"])
@pytest.mark.parametrize("first", [0, 4])
def test_a_design_declares_the_seeds_that_it_may_reach(seeds: str, first: int) -> None:
    design = with_seeds(load_space("recall"), seeds).design.model_copy(update={"first_seed": first})
    assert [seed for seed in range(20) if design.declares(seed)] == [*range(first, first + int(seeds[-1]))]


def test_all_training_runs_are_longer() -> None:
    space = load_space("knockout_small")
    longer = with_longer(space, 4)
    assert (longer.name, longer.text) == ("knockout_small_x4", space.text)
    before, after = space.model_dump(mode="json"), longer.model_dump(mode="json")
    before["training"]["init_from"]["stage"]["training.steps"] *= 4
    before["switches"]["healing"]["brief"]["training.steps"] *= 4
    assert after == before | {"name": "knockout_small_x4"}
    assert with_longer(load_space("ladder_small"), 2).design.tokens_per_parameter == 12
    with pytest.raises(SpaceError, match="nothing in this space says how long it trains"):
        with_longer(load_space(shipped_spaces() / "trainers" / "digits.yaml"), 2)


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
