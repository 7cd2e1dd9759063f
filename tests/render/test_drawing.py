"""Pictures of blocks: what is in them, that nothing overlaps, and that both painters draw all of it."""

from __future__ import annotations

import itertools
from pathlib import Path
from xml.etree import ElementTree

import pytest

from ablate.cli.app import app
from ablate.errors import AblateError
from ablate.render.drawing import compare, layout, to_svg, to_text
from ablate.render.drawing.layout import lay_out_verdicts
from ablate.render.drawing.picture import Drawing, Presence
from ablate.spec.block import BlockSpec
from ablate.spec.lookup import find_block
from ablate.spec.named import block_names

ROOT = Path(__file__).parent.parent.parent
PAIRS = [("pre_ln", "sas"), ("pre_ln", "sas_p_no_norm"), ("sas_p", "pre_ln"), ("pre_ln", "parallel"), ("fnet", "he")]


def drawn(name: str) -> Drawing:
    found = find_block(name)
    return layout(name, found.block, bool(found.exceptions))


def beside(old: str, new: str) -> Drawing:
    return compare(old, find_block(old).block, new, find_block(new).block)


def labels(picture: Drawing, state: Presence) -> set[str]:
    return {part.label for part in (*picture.boxes, *picture.chips) if part.state == state}


ALL = [*(pytest.param(drawn(name), id=name) for name in block_names())]
ALL += [pytest.param(beside(*pair), id="-".join(pair)) for pair in PAIRS]


@pytest.mark.parametrize("picture", ALL)
def test_boxes_do_not_overlap_and_hold_their_parts(picture: Drawing) -> None:
    for one, other in itertools.combinations(picture.boxes, 2):
        apart = one.x + one.width <= other.x or other.x + other.width <= one.x
        assert apart or one.y + one.height <= other.y or other.y + other.height <= one.y
    for chip in picture.chips:
        assert any(
            box.x < chip.x and chip.x + chip.width < box.x + box.width and box.y < chip.y < box.y + box.height - 1
            for box in picture.boxes
        )


def test_parts_have_the_verdict_on_the_first_block_that_lacks_them() -> None:
    block = find_block("pre_ln").block
    plain = block.model_dump(mode="json")

    def without(**changed: object) -> BlockSpec:
        return BlockSpec.model_validate(plain | changed)

    no_norm, no_skip = without(norm={"kind": "none"}), without(skips={**plain["skips"], "mixer": 0})
    neither = without(norm={"kind": "none"}, skips={**plain["skips"], "mixer": 0})
    picture = lay_out_verdicts("b", block, [(no_norm, "dispensable"), (no_skip, "needed"), (neither, "open")])
    kinds = {(box.kind, box.state) for box in picture.boxes}
    assert kinds == {("norm", "dispensable"), ("mixer", "kept"), ("mlp", "kept")}
    assert [note.state for note in picture.notes if note.text == "skip"].count("needed") == 1
    assert picture.legend == {"needed": "must stay", "dispensable": "can go"}
    ElementTree.fromstring(to_svg(picture))


@pytest.mark.parametrize("picture", ALL)
def test_both_painters_write_every_word(picture: Drawing) -> None:
    svg = ElementTree.fromstring(to_svg(picture))
    written = " ".join(text for text in svg.itertext())
    terminal = to_text(picture).plain
    for word in [*(box.label for box in picture.boxes), *(chip.label for chip in picture.chips)]:
        assert word in written
        assert word in terminal
    assert all(note.text in written and note.text in terminal for note in picture.notes)


def test_sas_beside_pre_ln() -> None:
    picture = beside("pre_ln", "sas")
    assert labels(picture, "removed") == {"W_V", "W_P"}
    assert labels(picture, "added") == {
        "αI + βA - γC",
        "× β_SA from 1, trained",
        "× β_FF from 0.424/√depth, trained",
    }
    assert [(note.text, note.state) for note in picture.notes if "skip" in note.text] == [
        ("skip", "removed"),
        ("skip", "kept"),
    ]


def test_a_block_beside_itself_is_unchanged() -> None:
    for name in block_names():
        picture = beside(name, name)
        parts = (*picture.boxes, *picture.chips, *picture.lines, *picture.sums, *picture.notes)
        assert {part.state for part in parts} == {"kept"}, name


def test_what_is_added_one_way_is_removed_the_other_way() -> None:
    there, back = beside("pre_ln", "sas"), beside("sas", "pre_ln")
    assert labels(there, "added") == labels(back, "removed")
    assert labels(there, "removed") == labels(back, "added")


def test_a_parallel_block_has_its_branches_side_by_side() -> None:
    boxes = {box.kind: box for box in drawn("parallel").boxes}
    assert boxes["mixer"].x + boxes["mixer"].width < boxes["mlp"].x
    assert boxes["mixer"].y < boxes["mlp"].y + boxes["mlp"].height
    assert [note.text for note in drawn("sas_p").notes if "skip" in note.text] == []


def test_norms_stand_where_the_block_has_them() -> None:
    for name, below in (("pre_ln", True), ("post_ln", False)):
        boxes = drawn(name).boxes
        mixer = next(box for box in boxes if box.kind == "mixer")
        lowest = max(box.y for box in boxes if box.kind == "norm")
        assert (lowest > mixer.y) is below


def test_the_pictures_of_the_readme_are_what_the_command_draws(tmp_path: Path) -> None:
    for arguments, name in ((["sas", "--versus", "pre_ln"], "pre_ln_versus_sas"), (["sas_p"], "sas_p")):
        app(args=["draw", *arguments, "--out", str(tmp_path / f"{name}.svg")], standalone_mode=False)
        made = (tmp_path / f"{name}.svg").read_text(encoding="utf-8")
        assert made == (ROOT / "docs" / "images" / f"{name}.svg").read_text(encoding="utf-8")


def test_a_picture_is_written_as_svg_only(tmp_path: Path) -> None:
    with pytest.raises(AblateError, match=r"pre_ln\.svg"):
        app(args=["draw", "pre_ln", "--out", str(tmp_path / "pre_ln.png")], standalone_mode=False)
