"""`ablate validate` and `ablate plan` list the variants that are trained, those that are not, and warnings."""

from __future__ import annotations

from pathlib import Path

import pytest

from ablate.planning.plan import check_points
from ablate.planning.planner import Planner
from ablate.render.terminal.plan import lines, validate_json
from ablate.spec.reading import load_space

SPACE = """\
name: t
question: Why?
task: {kind: recall}
model: {family: decoder, depth: 1, width: 16, heads: 2, block: pre_ln}
training: {steps: 10, batch_size: 4, optimizer: {lr: 1e-3}}
switches:
  mixer:
    attention: {}
    twice: {block.mixer: attention}
  heads:
    two: {}
    three: {model.heads: 3}
design: {kind: leave_one_out, seeds: 3}
objective: {metric: val_loss, margin: 0.05}
"""


def told(text: str, folder: Path) -> list[str]:
    (folder / "s.yaml").write_text(text)
    space = load_space(folder / "s.yaml")
    planner = Planner(space, folder, lambda line: None)
    seen = check_points(space, planner.design())
    assert validate_json(space, seen)["points"] == seen.points
    return list(lines("s.yaml", space, seen))


def test_points_that_make_no_model_and_points_that_are_the_same_variant(tmp_path: Path) -> None:
    one_head = SPACE.replace("three: {model.heads: 3}", "three: {model.heads: 3}\n    one: {model.heads: 1}")
    first, left_out, reason, same = told(one_head, tmp_path)
    assert first == "s.yaml is a valid space: 4 points, each with 3 seeds."
    assert left_out == "1 point left out as invalid:"
    assert reason.startswith("  1 x heads=three: `model.heads`: the heads must divide the width")
    assert same.startswith("mixer=twice is the same variant as baseline and is trained once: what it sets is there")


@pytest.mark.parametrize(
    ("design", "said"),
    [
        ("{kind: search, points: 6, seeds: 2}", "1 point and up to 5 more from the search, each with 2 seeds."),
        ("{kind: search, points: 1, seeds: 2}", "1 point, each with 2 seeds."),
        ("{kind: simplify, seeds: 2}", "3 points and those of later rounds, each with 2 seeds."),
        ("{kind: grid, seeds: {start: 2, max: 5}}", "4 points, each with 2 to 5 seeds."),
    ],
)
def test_points_that_results_will_tell(design: str, said: str, tmp_path: Path) -> None:
    first, *_ = told(SPACE.replace("{kind: leave_one_out, seeds: 3}", design), tmp_path)
    assert first == f"s.yaml is a valid space: {said}"


def test_one_seed_decides_nothing_and_is_warned_of(tmp_path: Path) -> None:
    first, *_, doubt = told(SPACE.replace("seeds: 3", "seeds: 1"), tmp_path)
    assert first.endswith("each with 1 seed.")
    assert doubt.startswith("`design.seeds`: with one seed")


@pytest.mark.parametrize(
    ("metric", "direction", "doubted"),
    [
        ("val_loss", "maximize", True),
        ("val_perplexity", "maximize", True),
        ("val_loss", "minimize", False),
        ("val_accuracy", "maximize", False),
    ],
)
def test_a_loss_is_not_to_be_large(metric: str, direction: str, doubted: bool, tmp_path: Path) -> None:
    data = "{kind: language_model, data: builtin:python_stdlib, tokenizer: {kind: bpe, vocab_size: 512}, context: 32}"
    task = data if metric == "val_perplexity" else "{kind: recall}"
    text = SPACE.replace("val_loss", f"{metric}, direction: {direction}").replace("{kind: recall}", task)
    (tmp_path / "s.yaml").write_text(text)
    found = list(load_space(tmp_path / "s.yaml").warnings())
    assert [doubt.partition(":")[0] for doubt in found] == ["`objective.direction`"] * doubted


def test_a_space_in_which_no_switch_changes_anything_is_warned_of_first(tmp_path: Path) -> None:
    _, *found = told(SPACE.replace("three: {model.heads: 3}", "three: {model.heads: 2}"), tmp_path)
    assert found[0].startswith(
        "Warning: there is nothing to compare. Every point that makes a model is the same variant as baseline: "
    )
    names = ["mixer=twice", "heads=three"]
    assert [line.partition(":")[0] for line in found[1:]] == [
        f"{name} is the same variant as baseline and is trained once" for name in names
    ]


def test_one_switch_without_effect_is_no_reason_to_warn_of_all(tmp_path: Path) -> None:
    _, *validated = told(SPACE.replace("three: {model.heads: 3}", "three: {model.heads: 1}"), tmp_path)
    assert [line.partition(":")[0] for line in validated] == [
        "mixer=twice is the same variant as baseline and is trained once"
    ]
