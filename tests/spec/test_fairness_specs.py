"""`tune`, `match`, `budgets` and growths of a space: how they are written, and what is refused."""

from __future__ import annotations

from contextlib import nullcontext
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from ablate.errors import SpaceError
from ablate.planning.planner import Planner, make_plan
from ablate.spec.design import DesignContext, PointCost
from ablate.spec.fairness import _lengths
from ablate.spec.reading import load_space
from ablate.spec.schedule import LinearGrowthSpec, StagesGrowthSpec
from ablate.spec.sentences import describe
from ablate.spec.space import SpaceSpec
from ablate.spec.training import TrainingSpec
from ablate.spec.variant import VariantSpec

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
    ({"match": "parameters", "design": {"kind": "ladder", "rungs": [1, 2]}}, "match", "its models must grow"),
    ({"match": {"equal": "tokens", "within": 0.1}}, "match.within", "applies to equal parameters"),
    ({"match": {"equal": "parameters", "by": "mlp"}}, "match.equal", "the switch `mlp` also sets"),
    (
        {"match": "flops", "switches": {"a": {"b": {}, "c": {"training.steps": 3}}}},
        "match.equal",
        "the switch `a` also sets",
    ),
]


BAD += [
    ({**changes, "tune": {"grid": changes["tune"], "seeds": 2}}, path, rule)
    for changes, path, rule in BAD
    if changes.get("tune") and "seeds" not in changes["tune"]
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


def context_of(made: SpaceSpec) -> DesignContext:
    return made.design_context(lambda point: None, lambda point: PointCost(parameters=0, flops=0.0))


def test_learning_rates_are_tuned_whatever_else_is() -> None:
    grid = {"training.batch_size": [2, 4]}
    found = [context_of(space(tune=tune)).rates for tune in (grid, grid | {LR: [1e-3, 2e-3]})]
    assert found == ["given", "tuned"]
    assert context_of(space(tuned={LR: RATES}, tune=grid)).rates == "tuned"


def test_values_tuned_before_reach_their_variants_and_no_other() -> None:
    tuned = space(tuned={LR: RATES}, design={"kind": "leave_one_out", "seeds": {"start": 2, "max": 4}})
    context = context_of(tuned)
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


TRAINING = {"steps": 100, "batch_size": 24, "optimizer": {"lr": 1e-3}}
MODEL = {"family": "decoder", "depth": 1, "width": 12, "heads": 3, "block": "pre_ln"}
TEXT = {"kind": "language_model", "data": "builtin:python_stdlib", "tokenizer": "bytes", "context": 48}


def test_gpt3_grows_its_batch_linearly() -> None:
    """GPT-3 (arXiv:2005.14165, appendix B): from 32k tokens to the whole over the first share of the training."""
    spec = LinearGrowthSpec(start=0.25, until=0.4)
    for step in range(1, 101):
        share = min(Fraction(1), Fraction(1, 4) + Fraction(3, 4) * Fraction(step, 40))
        assert spec.share(step, 100) == pytest.approx(float(share))


def test_bert_trains_on_short_inputs_for_nine_tenths() -> None:
    """BERT (arXiv:1810.04805, appendix A.2): 128 tokens for 90 % of the steps, 512 for the rest."""
    spec = StagesGrowthSpec(shares=(0.25,), until=(0.9,))
    assert [spec.size(512, step, 1000) for step in (1, 900, 901, 1000)] == [128, 128, 512, 512]


@pytest.mark.parametrize("steps", [0, 1, 7])
@pytest.mark.parametrize("growth", [{}, {"batch_growth": "linear"}, {"context_growth": "linear"}])
def test_phases_have_each_step_once_with_its_shape(growth: dict[str, Any], steps: int) -> None:
    start = {} if steps else {"init_from": "weights.safetensors"}
    training = TrainingSpec.model_validate(
        {"steps": steps, "batch_size": 8, "optimizer": {"lr": 0.1}, **start, **growth}
    )
    found = [
        (step, (phase.batch_size, phase.context))
        for phase in training.phases(16)
        for step in range(phase.first, phase.last + 1)
    ]
    assert found == [(step, training.shape_at(step, 16)) for step in range(1, steps + 1)]


@pytest.mark.parametrize("steps", [0, 1, 2, 3])
def test_a_warm_up_ends_within_the_training_unless_nothing_is_trained(steps: int) -> None:
    """Without a step a model is evaluated as it starts."""
    start = {} if steps else {"init_from": "weights.safetensors"}
    plain = {
        "steps": steps,
        "batch_size": 8,
        "optimizer": {"lr": 0.1},
        "schedule": {"kind": "linear", "warmup_steps": 2},
        **start,
    }
    with pytest.raises(ValidationError, match="never reach its peak") if steps == 1 else nullcontext():
        TrainingSpec.model_validate(plain)


def test_sizes_are_multiples_and_never_more_than_the_whole() -> None:
    spec = LinearGrowthSpec(start=0.01, until=1.0, multiple=8)
    sizes = [spec.size(64, step, 300) for step in range(1, 301)]
    assert set(sizes) == set(range(8, 65, 8))
    assert sizes == sorted(sizes)


def refusal(plain: dict[str, Any], whole: type[Any]) -> tuple[str, str]:
    with pytest.raises(ValidationError) as caught:
        whole.model_validate(plain)
    ((loc, sentence),) = describe(caught.value)
    return ".".join(map(str, loc)), sentence


@pytest.mark.parametrize(
    ("training", "where", "got", "remedy"),
    [
        ({"batch_growth": {"kind": "linear", "multiple": 5}}, "batch_growth.multiple", "5", "Set `multiple: 4`"),
        (
            {"batch_growth": "linear", "micro_batch": 8},
            "batch_growth.multiple",
            "a micro-batch, of 8 sequences",
            "Set `multiple: 8`",
        ),
        (
            {"batch_growth": {"kind": "stages", "shares": [0.5, 0.25]}},
            "batch_growth.shares",
            "must be ascending",
            "in ascending order",
        ),
        (
            {"batch_growth": {"kind": "stages", "until": [0.3, 0.3]}},
            "batch_growth.until",
            "must be ascending",
            "each number once",
        ),
        (
            {"batch_growth": {"kind": "stages", "shares": [0.5], "until": [0.1, 0.2]}},
            "batch_growth.until",
            "`shares` has 1",
            "as many numbers",
        ),
        (
            {"batch_growth": {"kind": "stages", "shares": [], "until": []}},
            "batch_growth.shares",
            "a stage",
            "one number",
        ),
    ],
    ids=["multiple", "micro_batch", "falls", "stays", "ends", "empty"],
)
def test_a_batch_that_cannot_grow_so_is_refused(training: dict[str, Any], where: str, got: str, remedy: str) -> None:
    path, sentence = refusal({**TRAINING, **training}, TrainingSpec)
    assert path == where
    assert got in sentence
    assert remedy in sentence


@pytest.mark.parametrize(
    ("task", "growth", "where", "remedy"),
    [
        (TEXT, {"kind": "linear", "multiple": 7}, "training.context_growth.multiple", "Set `multiple: 6`"),
        ({"kind": "copy"}, "linear", "training.context_growth", "choose the task `language_model`"),
    ],
    ids=["multiple", "task"],
)
def test_a_context_that_cannot_grow_so_is_refused(task: dict[str, Any], growth: Any, where: str, remedy: str) -> None:
    plain = {"model": MODEL, "task": task, "training": {**TRAINING, "context_growth": growth}}
    path, sentence = refusal(plain, VariantSpec)
    assert path == where
    assert remedy in sentence


def test_a_training_that_does_not_grow_keeps_its_name() -> None:
    """No hash of an earlier trial changes."""
    assert not {"batch_growth", "context_growth"} & set(TrainingSpec.model_validate(TRAINING).canonical())


BUDGETED = """
name: lengths
question: Does it hold?
task: {kind: language_model, data: "file:text.txt", tokenizer: bytes, context: 8, validation_windows: 4}
model: {family: decoder, depth: 1, width: 8, heads: 2, block: pre_ln}
training: {steps: 10, batch_size: 2, optimizer: {lr: 0.01}, evaluations: 2}
switches: {norm: {rms: {}, none: {block.norm: none}}}
design: {kind: leave_one_out, seeds: 2}
objective: {margin: 0.1}
"""


def budgeted(folder: Path, **changed: Any) -> Any:
    file = folder / "budgeted.yaml"
    (folder / "text.txt").write_text("what is learnt here is little\n" * 40, encoding="utf-8")
    text = BUDGETED.replace("file:text.txt", f"file:{folder / 'text.txt'}")
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
        budgeted(tmp_path, budgets=budgets)


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
        budgeted(tmp_path, budgets="[1, 2]", **changed)


def test_a_budget_is_above_none_and_at_most_a_thousand_times_the_steps() -> None:
    for budget in (1e-9, 2.0, 1000.0):
        assert _lengths((1.0, budget)) == tuple(sorted((1.0, budget)))
    for budget in (0.0, -1.0, 1000.5):
        with pytest.raises(ValidationError, match="a multiple of the space's steps"):
            _lengths((1.0, budget))


def test_each_length_has_its_own_steps_and_nothing_else_changes(tmp_path: Path) -> None:
    plan = make_plan(Planner(budgeted(tmp_path, budgets="[4, 1, 0.5]"), tmp_path, lambda line: None))
    steps = {variant.name: variant.spec.training.steps for variant in plan.variants}
    assert steps == {
        "baseline": 10, "norm=none": 10,
        "baseline@budget=0.5": 5, "baseline@budget=4": 40, "norm=none@budget=0.5": 5, "norm=none@budget=4": 40,
    }  # fmt: skip
    assert len(plan.trials) == 12
    alone = make_plan(Planner(budgeted(tmp_path), tmp_path, lambda line: None))
    assert {trial.key for trial in alone.trials} < {trial.key for trial in plan.trials}, "the same trials at budget 1"
    assert "budgets" not in budgeted(tmp_path).canonical()


def test_claims_may_name_variants_at_a_budget_and_follow_them(tmp_path: Path) -> None:
    claims = (
        "[{id: a, expect: grows, along: budget, left: baseline, right: norm=none, margin: 0.1},"
        " {id: b, expect: worse, left: norm=none@budget=2, right: baseline@budget=2, margin: 0.1}]"
    )
    assert len(budgeted(tmp_path, budgets="[1, 2]", claims=claims).claims) == 2
    with pytest.raises(SpaceError, match="budget"):
        budgeted(tmp_path, claims=claims)
