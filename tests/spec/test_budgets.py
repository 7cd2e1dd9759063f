"""`budgets` of a space: what is refused, what they do not change, and what is trained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ablate.errors import SpaceError
from ablate.planning.planner import Planner, make_plan
from ablate.spec.reading import load_space

TEXT = """
name: lengths
question: Does it hold?
task: {kind: language_model, data: "file:text.txt", tokenizer: bytes, context: 8, validation_windows: 4}
model: {family: decoder, depth: 1, width: 8, heads: 2, block: pre_ln}
training: {steps: 10, batch_size: 2, optimizer: {lr: 0.01}, evaluations: 2}
switches: {norm: {rms: {}, none: {block.norm: none}}}
design: {kind: leave_one_out, seeds: 2}
objective: {margin: 0.1}
"""


def space(folder: Path, **changed: Any) -> Any:
    file = folder / "space.yaml"
    (folder / "text.txt").write_text("what is learnt here is little\n" * 40, encoding="utf-8")
    text = TEXT.replace("file:text.txt", f"file:{folder / 'text.txt'}")
    for key, value in changed.items():
        lines = [line for line in text.splitlines() if not line.startswith(f"{key}:")]
        text = "\n".join([*lines, f"{key}: {value}"])
    file.write_text(text, encoding="utf-8")
    return load_space(file)


@pytest.mark.parametrize(
    ("budgets", "said"),
    [
        ("[2, 4]", "the study itself is budget 1"),
        ("[1]", "the study itself is budget 1"),
        ("[1, 2, 2]", "2 is listed twice"),
        ("[1, -2]", "a budget is a multiple of the space's steps"),
        ("[1, 0.01]", "less than one of 10 steps is left"),
    ],
)
def test_impossible_budgets(budgets: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(SpaceError, match=said):
        space(tmp_path, budgets=budgets)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"match": "flops"}, "which `match: flops` also sets"),
        ({"design": "{kind: simplify, seeds: 2}"}, "only variants that the design names before any result"),
        ({"design": "{kind: sweep, path: model.width, values: [8, 16]}"}, "only variants that the design names"),
        ({"switches": "{long: {never: {}, always: {training.steps: 20}}}"}, "which the switch `long` also sets"),
    ],
)
def test_budgets_with_incompatible_settings(changed: dict[str, str], said: str, tmp_path: Path) -> None:
    with pytest.raises(SpaceError, match=said):
        space(tmp_path, budgets="[1, 2]", **changed)


def test_each_length_has_its_own_steps_and_nothing_else_changes(tmp_path: Path) -> None:
    plan = make_plan(Planner(space(tmp_path, budgets="[4, 1, 0.5]"), tmp_path, lambda line: None))
    steps = {variant.name: variant.spec.training.steps for variant in plan.variants}
    assert steps == {
        "baseline": 10, "norm=none": 10,
        "baseline@budget=0.5": 5, "baseline@budget=4": 40, "norm=none@budget=0.5": 5, "norm=none@budget=4": 40,
    }  # fmt: skip
    assert len(plan.trials) == 12
    alone = make_plan(Planner(space(tmp_path), tmp_path, lambda line: None))
    assert {trial.key for trial in alone.trials} < {trial.key for trial in plan.trials}, "the same trials at budget 1"
    assert "budgets" not in space(tmp_path).canonical()


def test_claims_may_name_variants_at_a_budget_and_follow_them(tmp_path: Path) -> None:
    claims = (
        "[{id: a, expect: grows, along: budget, left: baseline, right: norm=none, margin: 0.1},"
        " {id: b, expect: worse, left: norm=none@budget=2, right: baseline@budget=2, margin: 0.1}]"
    )
    assert len(space(tmp_path, budgets="[1, 2]", claims=claims).claims) == 2
    with pytest.raises(SpaceError, match="budget"):
        space(tmp_path, claims=claims)
