"""Equal budgets, compared with brute force and with the cost of models that are really built."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import pytest

from ablate.errors import SpaceError
from ablate.nn.model import build_model
from ablate.planning.budget import Size, Step, UnmatchedError, equal_steps, nearest_size
from ablate.planning.plan import Plan
from ablate.planning.planner import Planner, make_plan
from ablate.roles import TrialRole
from ablate.spec.fairness import MatchSpec
from ablate.spec.named import block_names
from ablate.spec.space import SpaceSpec

SPACE: dict[str, Any] = {
    "name": "sample",
    "question": "Which?",
    "task": {"kind": "recall", "context": 16, "pairs": 3, "symbols": 8},
    "model": {"family": "decoder", "depth": 2, "width": 128, "heads": 1, "block": "pre_ln"},
    "training": {"steps": 300, "batch_size": 4, "optimizer": {"kind": "adamw", "lr": 1e-3}},
    "switches": {
        "mixer": {"attention": {}, "linear": {"block.mixer": "linear"}},
        "mlp": {"usual": {}, "small": {"block.mlp.ratio": 2}},
        "batch": {"usual": {}, "large": {"training.batch_size": 10}},
    },
    "design": {"kind": "grid", "seeds": 1},
    "objective": {"margin": 0.1},
}


def plan(folder: Path, **changes: Any) -> Plan:
    return make_plan(Planner(SpaceSpec.model_validate({**SPACE, **changes}), folder / "cache", lambda line: None))


def test_the_nearest_size_is_that_of_a_full_search() -> None:
    """Over random growing curves, of which only some sizes make a model."""
    draw = random.Random(0)
    for _ in range(300):
        slope, square, start = draw.randint(1, 50), draw.randint(0, 12), draw.choice([1, 2, draw.randint(1, 60)])
        every, offset = draw.choice([1, 2, 3, 8]), draw.randint(0, 2)

        def parameters(size: int, a: int = slope, b: int = square, n: int = every, o: int = offset) -> int | None:
            return None if (size + o) % n else 7 + a * size + b * size * size

        target = 7 + slope * 40 * start // 11 + draw.randint(-5, 300)
        sizes = [size for size in range(1, 8 * start + 1) if parameters(size) is not None]
        found = nearest_size(parameters, target, start)
        if not [size for size in sizes if size >= start]:
            continue  # nothing to begin from
        most = parameters(sizes[-1]) or 0
        assert nearest_size(parameters, most + 9, start) == Size(sizes[-1], most), "no size is large enough"
        best = min(abs(parameters(size) - target) for size in sizes)  # type: ignore[operator]
        assert found is not None
        assert abs(found.parameters - target) == best
        assert parameters(found.number) == found.parameters


def test_only_powers_of_two() -> None:
    found = nearest_size(lambda n: n * n if n & (n - 1) == 0 else None, 300 * 300, 100)
    assert found is not None
    assert found.number == 256
    assert nearest_size(lambda n: None, 10, 4) is None


def test_whole_steps_come_within_half_a_step() -> None:
    draw = random.Random(1)
    for _ in range(200):
        base, other, steps = draw.uniform(0.1, 9), draw.uniform(0.1, 9), draw.randint(30, 500)
        found = equal_steps(MatchSpec(equal="seconds"), Step(1, 1, base), steps, Step(1, 1, other))
        assert abs(found * other - base * steps) <= other / 2 + 1e-9
    assert equal_steps(MatchSpec(equal="tokens"), Step(1, 1, 1), 67, Step(100, 1, 1)) == 1
    assert equal_steps(MatchSpec(equal="tokens"), Step(2, 1, 1), 1, Step(3, 1, 1)) == 1, "1.5 times, not more"
    assert equal_steps(MatchSpec(equal="flops"), Step(1, 0, 1), 7, Step(1, 0, 1)) == 7, "nothing to match"
    for steps, times in ((2, "50"), (66, "1.52")):
        with pytest.raises(UnmatchedError, match=rf"one step alone is {times} times the tokens"):
            equal_steps(MatchSpec(equal="tokens"), Step(1, 1, 1), steps, Step(100, 1, 1))


@pytest.mark.parametrize("equal", ["tokens", "flops"])
def test_steps_follow_the_budget_and_the_baseline_stays(equal: str, tmp_path: Path) -> None:
    made, plain = plan(tmp_path, match=equal), plan(tmp_path)
    assert made.variants[0].hash == plain.variants[0].hash
    spent = {}
    for variant in made.variants:
        training = variant.spec.training
        tokens = training.steps * training.batch_size * 16.0
        each = tokens if equal == "tokens" else variant.flops
        spent[variant.name] = each
        assert abs(each - spent["baseline"]) <= 0.51 * each / training.steps
        # Nothing but the steps is another.
        raw = made.space.resolve(variant.settings)
        assert variant.spec.model_copy(update={"training": raw.training}) == raw
    assert {v.spec.training.steps for v in made.variants if "large" in v.name} != {300}
    assert {v.spec.training.steps for v in plain.variants} == {300}


def test_parameters_within_one_percent_for_every_named_block_that_can(tmp_path: Path) -> None:
    """Every named block beside the first; those refused have no width within 1 %, by a full search."""
    names = [name for name in block_names([Path()]) if name != "pre_ln"]
    matched = 0
    for name in names:
        switches = {"block": {"pre_ln": {}, name: {"block": name}}}
        changes = {"switches": switches, "task": {**SPACE["task"], "context": 32}}
        unmatched = plan(tmp_path, **changes).variants
        if len(unmatched) < 2:
            continue  # it is not a decoder
        target = unmatched[0].cost.parameters
        try:
            variant = plan(tmp_path, **changes, match="parameters").variants[1]
        except SpaceError as error:
            assert "and 1 % is asked for" in str(error)  # noqa: PT017
            widths = {f"w{width}": {"block": name, "model.width": width} for width in range(32, 512)}
            tried = plan(tmp_path, **{**changes, "switches": {"width": {"usual": {}} | widths}}).variants
            counts = [one.cost.parameters for one in tried if one.name != "baseline"]
            assert len(counts) > 20
            assert min(abs(count - target) / target for count in counts) > 0.01
            continue
        model = build_model(variant.spec.model, vocabulary=made_of(variant), context=32, seeds=[0])
        assert abs(sum(p.numel() for p in model.parameters()) - target) <= 0.01 * target, name
        matched += 1
    assert matched > len(names) / 2


def made_of(variant: Any) -> int:
    """The vocabulary of the task of a variant."""
    task = variant.spec.task
    return int(task.open(Path(), task.prepare(Path(), lambda line: None)).shape.vocabulary)


def test_heads_must_still_divide_the_width_and_the_error_says_what_is_possible(tmp_path: Path) -> None:
    model = {**SPACE["model"], "heads": 16}
    with pytest.raises(SpaceError) as caught:
        plan(tmp_path, match="parameters", model=model)
    assert "of the baseline (and 3 more): the nearest that can be is `model.width: 1" in str(caught.value)
    assert "set `within: 0.044`, or solve `by: mlp`, or take fewer heads" in str(caught.value)
    found = re.search(r"with ([\d,]+) parameters, (\S+) % off ([\d,]+),", str(caught.value))
    assert found is not None
    nearest, off, wanted = (float(number.replace(",", "")) for number in found.groups())
    assert off == pytest.approx(100 * abs(nearest / wanted - 1), rel=0.05)  # it has two digits
    with pytest.raises(SpaceError, match="set `within: ") as caught:
        plan(tmp_path, match={"equal": "parameters", "within": 1e-6})
    assert "fewer heads" not in str(caught.value), "there is one"
    made = plan(tmp_path, match={"equal": "parameters", "within": 0.2}, model=model)
    target = made.variants[0].cost.parameters
    assert all(variant.spec.model.width % 16 == 0 for variant in made.variants)
    assert all(abs(variant.cost.parameters - target) <= 0.2 * target for variant in made.variants)
    assert {variant.spec.model.width for variant in made.variants} > {128}
    switches = {"mixer": SPACE["switches"]["mixer"], "norm": {"usual": {}, "none": {"block.mixer.value": "identity"}}}
    by_mlp = plan(tmp_path, match={"equal": "parameters", "by": "mlp"}, model=model, switches=switches)
    assert {variant.spec.model.width for variant in by_mlp.variants} == {128}
    assert all(abs(v.cost.parameters - by_mlp.variants[0].cost.parameters) <= 300 for v in by_mlp.variants)


def test_equal_arithmetic_counts_the_gradients_that_frozen_parts_save(tmp_path: Path) -> None:
    switches = {"frozen": {"no": {}, "mlp": {"training.freeze": ["mlp"]}}}
    usual, frozen = plan(tmp_path, match="flops", switches=switches).variants
    assert frozen.flops == pytest.approx(usual.flops, rel=0.51 / usual.spec.training.steps)
    assert frozen.spec.training.steps > usual.spec.training.steps


@pytest.mark.parametrize("steps", [1, 3])
def test_a_step_costs_its_share_of_the_trial(steps: int, tmp_path: Path) -> None:
    space = SpaceSpec.model_validate({**SPACE, "training": {**SPACE["training"], "steps": steps}})
    planner = Planner(space, tmp_path / "cache", lambda line: None)
    point = next(iter(planner.design().points()))
    spec = planner.costs.valid_spec(point)
    assert spec is not None
    _, tokens, flops = planner.costs.step_cost(spec, point)
    assert (tokens * steps, flops * steps) == pytest.approx(planner.costs.trial_cost(spec, point)[2])


@pytest.mark.parametrize("equal", ["tokens", "flops"])
def test_a_baseline_without_steps_cannot_be_matched(equal: str, tmp_path: Path) -> None:
    training = {**SPACE["training"], "steps": 0, "init_from": {"stage": {"training.steps": 3}}}
    with pytest.raises(SpaceError, match=r"takes no step.* set `training.steps`"):
        plan(tmp_path, match=equal, training=training, switches={"mixer": SPACE["switches"]["mixer"]})


def test_steps_are_timed_whatever_the_schedule_needs(tmp_path: Path) -> None:
    schedule = {"kind": "linear", "warmup_steps": 60}
    made = plan(tmp_path, match="seconds", training={**SPACE["training"], "schedule": schedule})
    timed = {trial.variant.name.removesuffix(" (timing)") for trial in made.trials if trial.role is TrialRole.TIMING}
    assert timed >= {"baseline", "mixer=linear"}
