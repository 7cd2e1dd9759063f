"""`tune` and `match` in a space: how they are written, what they do not change, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from ablate.spec.design import PointCost
from ablate.spec.sentences import describe
from ablate.spec.space import SpaceSpec

LR = "training.optimizer.lr"
SPACE: dict[str, Any] = {
    "name": "sample",
    "question": "Which?",
    "task": {"kind": "recall", "context": 16, "pairs": 3, "symbols": 8},
    "model": {"family": "decoder", "depth": 1, "width": 16, "heads": 2, "block": {"mixer": "attention"}},
    "training": {"steps": 10, "batch_size": 2, "optimizer": {"kind": "adamw", "lr": 1e-3}},
    "switches": {
        "mlp": {"usual": {}, "small": {"block.mlp.ratio": 2}},
        "decay": {"none": {}, "some": {"training.optimizer.weight_decay": 0.1}},
    },
    "design": {"kind": "leave_one_out"},
    "objective": {"margin": 0.1},
}


def space(**changes: object) -> SpaceSpec:
    return SpaceSpec.model_validate({**SPACE, **changes})


def test_neither_given_changes_neither_hash_nor_stored_space() -> None:
    plain = space()
    assert not {"tune", "match"} & (plain.canonical().keys() | plain.model_dump(mode="json").keys())
    assert space(match="steps").content_hash() == plain.content_hash()


@pytest.mark.parametrize("seeds", [{}, {"seeds": 3}])
def test_a_grid_may_be_written_flat_or_whole(seeds: dict[str, int]) -> None:
    grid = {LR: [1e-3, 1e-2], "training.batch_size": [2, 4]}
    flat, whole = space(tune={**grid, **seeds}), space(tune={"grid": grid, **seeds})
    assert flat == whole
    assert flat.tune is not None
    assert flat.tune.seeds == seeds.get("seeds", 2)
    assert list(flat.tune.combinations()) == [
        {LR: lr, "training.batch_size": batch} for lr in (1e-3, 1e-2) for batch in (2, 4)
    ]
    stored = SpaceSpec.model_validate(flat.model_dump(mode="json"))
    assert stored == flat
    assert stored.content_hash() == flat.content_hash() != space().content_hash()


def test_a_bare_word_is_a_quantity() -> None:
    assert space(match="flops") == space(match={"equal": "flops"})
    assert space(match="parameters").match.path == "model.width"
    assert space(match={"equal": "parameters", "by": "mlp"}, switches={"a": {"b": {}, "c": {"block.norm": "none"}}})


BAD: list[tuple[dict[str, Any], str, str]] = [
    ({"tune": {LR: [1e-3]}}, f"tune.{LR}", "at least two values"),
    ({"tune": {LR: []}}, f"tune.{LR}", "at least two values"),
    ({"tune": {LR: 1e-3}}, f"tune.{LR}", "a list of values"),
    ({"tune": {LR: [1e-3, 2e-3, 1e-3]}}, f"tune.{LR}.2", "listed twice"),
    ({"tune": {LR: [1e-3, -1e-3]}}, f"tune.{LR}.1", "greater than 0"),
    ({"tune": {"training.optimizer.rate": [1, 2]}}, "tune.training.optimizer.rate.0", "no key `rate`"),
    ({"tune": {"optimizer.lr": [1, 2]}}, "tune.optimizer.lr.0", "no key `optimizer`"),
    ({"tune": {"block.mlp.ratio": [1, 2]}}, "tune.block.mlp.ratio", "the switch `mlp` also sets it"),
    ({"tune": {"training.optimizer": [{"lr": 1}, {"lr": 2}]}}, "tune.training.optimizer", "the switch `decay`"),
    ({"tune": {}}, "tune", "nothing to tune"),
    ({"tune": {"seeds": 2}}, "tune", "nothing to tune"),
    ({"tune": {LR: [1e-3, 1e-2], "seeds": 0}}, "tune.seeds", "at least 1"),
    ({"tune": {LR: [k / 1000 for k in range(1, 102)]}}, "tune", "101 combinations"),
    (
        {"tune": {LR: [1e-3, 1e-2]}, "design": {"kind": "sweep", "path": LR, "values": [1, 2]}},
        f"tune.{LR}",
        "the sweep design also sets it",
    ),
    ({"tune": {"training.steps": [5, 10]}, "match": "tokens"}, "tune.training.steps", "`match: tokens` also sets it"),
    ({"match": "speed"}, "match.equal", "'tokens'"),
    ({"match": {"equal": "tokens", "within": 0.1}}, "match.within", "applies to equal parameters"),
    ({"match": {"equal": "parameters", "by": "mlp"}}, "match.equal", "the switch `mlp` also sets"),
    (
        {"match": "flops", "switches": {"a": {"b": {}, "c": {"training.steps": 3}}}},
        "match.equal",
        "the switch `a` also sets",
    ),
]


@pytest.mark.parametrize(("changes", "path", "rule"), BAD)
def test_impossible_settings_are_refused_with_their_path_and_a_remedy(
    changes: dict[str, Any], path: str, rule: str
) -> None:
    with pytest.raises(ValidationError) as caught:
        space(**changes)
    messages = {".".join(map(str, loc)): sentence for loc, sentence in describe(caught.value)}
    assert list(messages) == [path]
    assert rule in messages[path]


RATES = {"baseline": 1e-3, "mlp=small": 2e-3, "decay=some": 4e-3}


def test_values_tuned_before_reach_their_variants_and_no_other() -> None:
    tuned = space(tuned={LR: RATES}, design={"kind": "leave_one_out", "seeds": {"start": 2, "max": 4}})
    context = tuned.design_context(lambda point: None, lambda point: PointCost(parameters=0, flops=0.0))
    proposals = tuned.design.build(context).ask()
    assert {proposal.point.name: proposal.point.tuned[LR] for proposal in proposals} == RATES
    small = next(proposal.point for proposal in proposals if proposal.point.name == "mlp=small")
    assert tuned.resolve(small.settings, small.tuned).training.optimizer.lr == 2e-3
    assert SpaceSpec.model_validate(tuned.model_dump(mode="json")) == tuned
    assert "tuned" not in space().canonical()


@pytest.mark.parametrize(
    ("changes", "path", "words"),
    [
        ({"tuned": {LR: {**RATES, "mlp=smal": 1e-3}}}, f"tuned.{LR}.mlp=smal", "Did you mean `mlp=small`"),
        ({"tuned": {LR: {"baseline": 1e-3}}}, f"tuned.{LR}", "`mlp=small` and 1 more"),
        ({"tuned": {LR: {**RATES, "mlp=small": -1}}}, f"tuned.{LR}.mlp=small", "greater than 0"),
        ({"tuned": {"training.optimizer.rate": RATES}}, "tuned.training.optimizer.rate.baseline", "no key `rate`"),
        ({"tuned": {"block.mlp.ratio": RATES}}, "tuned.block.mlp.ratio", "the switch `mlp` also sets it"),
        ({"tuned": {LR: RATES}, "tune": {LR: [1e-3, 2e-3]}}, f"tuned.{LR}", "`tune` also sets it"),
        (
            {"tuned": {LR: RATES}, "design": {"kind": "simplify"}},
            f"tuned.{LR}",
            "chooses its variants by results",
        ),
    ],
)
def test_impossible_tuned_values(changes: dict[str, Any], path: str, words: str) -> None:
    with pytest.raises(ValidationError) as caught:
        space(**changes)
    loc, sentence = describe(caught.value)[0]
    assert ".".join(map(str, loc)) == path
    assert words in sentence


def test_a_value_is_tuned_below_a_part_that_a_switch_sets_as_a_whole() -> None:
    optimizers = {"optimizer": {"adamw": {}, "lion": {"training.optimizer": {"kind": "lion", "lr": 1e-4}}}}
    tuned = space(switches=optimizers, tune={LR: [1e-3, 2e-3]})
    optimizer = tuned.resolve({"optimizer": "lion"}, {LR: 2e-3}).training.optimizer
    assert (optimizer.kind_name(), optimizer.lr) == ("lion", 2e-3)
