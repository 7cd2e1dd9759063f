"""The plan: variants once each, trials with keys, what they cost and what cannot be."""

from __future__ import annotations

import itertools
import re
import threading
import time
from contextlib import nullcontext
from dataclasses import replace
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from engine_samples import ENVIRONMENT, SPACE, ScriptedEngine, planner, space
from rich.console import Console
from safetensors.torch import save_file
from torch.utils._python_dispatch import TorchDispatchMode

from ablate.errors import DataError, EngineError, PluginError, SpaceError
from ablate.execution.driver import run_study
from ablate.execution.engine import Observer
from ablate.kinds.mixers.attention import AttentionSpec
from ablate.nn.model import build_model, model_cost
from ablate.planning.forecast import (
    Speed,
    _busy,
    _nearest,
    forecast,
    measure_matmul,
    measure_speed,
    structure,
    timed_spec,
    usual_workers,
)
from ablate.planning.memory import largest_micro_batch, trial_bytes
from ablate.planning.plan import ChangedKind, EarlierTrials, Trial, Variant, without_effect
from ablate.planning.planner import make_plan
from ablate.planning.starting import Starting, refuse_untrained
from ablate.render.terminal.plan import print_plan
from ablate.spec.code import Code, CodeChange, stage_identity
from ablate.spec.design import Point
from ablate.spec.model import ModelSpec
from ablate.spec.space_fields import ResourcesSpec
from ablate.spec.task import Task
from ablate.spec.variant import VariantSpec
from ablate.store import open_store
from ablate.store.records import SettledTrial
from ablate.trained.transfer import Transfer
from ablate.training.events import Measurement
from ablate.training.loop import train
from ablate.training.members import Member
from ablate.training.pack import Pack


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_each_trial_has_the_key_of_its_variant_data_and_seed(folder: Path) -> None:
    plan = make_plan(planner(folder))
    assert len({trial.key for trial in plan.trials}) == len(plan.trials) == 6
    for trial in plan.trials:
        assert trial.key == trial.variant.spec.trial_key(trial.variant.fingerprint, trial.seed)
        assert trial.variant.spec == space().resolve(trial.variant.settings)
    (folder / "text" / "a").write_text("Another text. " * 60)
    assert not {trial.key for trial in make_plan(planner(folder)).trials} & {trial.key for trial in plan.trials}


@pytest.mark.parametrize("kind", ["bytes", {"kind": "bpe", "vocab_size": 270}])
def test_a_plan_warns_if_no_trial_sees_enough_tokens_for_an_answer(folder: Path, kind: object) -> None:
    def warnings(steps: int, **changes: object) -> list[str]:
        task = {**SPACE["task"], "tokenizer": kind}  # type: ignore[dict-item]
        training = {**SPACE["training"], "steps": steps}  # type: ignore[dict-item]
        plan = make_plan(planner(folder, task=task, training=training, **changes))
        return [one for one in plan.warnings if "no answer" in one]

    made = planner(folder, task={**SPACE["task"], "tokenizer": kind})  # type: ignore[dict-item]
    task = made.costs.prepare(make_plan(made).variants[0].spec)
    text = [int(token) for run in task.counted_runs() for token in run]  # type: ignore[attr-defined]
    pairs = len(set(itertools.pairwise(text)))
    enough = -(-8 * pairs // (2 * 8))  # two sequences of eight tokens a step
    (said,) = warnings(enough - 1)
    assert f"at most {16 * (enough - 1):,} tokens" in said
    assert f"fewer than {8 * pairs:,} (8 for each of the {pairs:,} pairs" in said
    assert warnings(enough) == []
    longer = {"steps": {"few": {}, "many": {"training.steps": enough}}}
    assert warnings(enough - 1, switches=longer) == [], "one variant may tell something"


def test_a_plan_of_growing_batches_costs_what_its_steps_cost(folder: Path) -> None:
    """8 steps: of 1, 1, 2 and 2 sequences of 4 tokens, then of 4 of 8; AdamW takes 14 operations a parameter."""
    training = {
        "steps": 8,
        "batch_size": 4,
        "optimizer": {"lr": 1e-3},
        "evaluations": 1,
        "batch_growth": {"kind": "stages", "shares": [0.25, 0.5], "until": [0.25, 0.5]},
        "context_growth": {"kind": "stages", "shares": [0.5], "until": [0.5]},
    }
    for variant in make_plan(planner(folder, training=training)).variants:
        short, whole = (model_cost(variant.spec.model, vocabulary=257, context=8, length=length) for length in (4, 8))
        passes = 3 * ((1 + 1 + 2 + 2) * short.flops + 4 * 4 * whole.flops)
        assert variant.flops == pytest.approx(passes + 8 * 14 * variant.cost.parameters)
        task = planner(folder, training=training).costs.prepare(variant.spec)
        (last,) = list(train([Member(variant.spec, 0)], task, torch.device("cpu")))[-1:]
        assert isinstance(last, Measurement)
        assert last.flops == pytest.approx(variant.flops)
        assert last.tokens == (1 + 1 + 2 + 2) * 4 + 4 * 4 * 8
        fits = largest_micro_batch(variant, trial_bytes(variant) - 1)
        assert fits is not None
        assert fits.micro_batch == 2  # 3 does not divide a batch of 4


def test_two_points_that_give_one_spec_are_one_variant(folder: Path) -> None:
    plan = make_plan(planner(folder, variants={"bare": {"values": "identity"}, "nothing": {}}))
    assert [variant.name for variant in plan.variants] == ["baseline", "values=identity", "norm=none"]
    assert plan.aliases == {"bare": "values=identity", "nothing": "baseline"}
    assert len(plan.trials) == 6


@pytest.mark.parametrize(
    ("trials", "accepted", "said"),
    [
        (1, False, "1 trial was trained with another version of K (W): it is trained again; --accept-changed-code "
         "would reuse it"),
        (2, False, "2 trials were trained with another version of K (W): they are trained again; "
         "--accept-changed-code would reuse them"),
        (1, True, "1 trial was trained with another version of K (W): it is reused, as --accept-changed-code says"),
    ],
)  # fmt: skip
def test_trials_of_changed_code_are_told(trials: int, accepted: bool, said: str) -> None:
    assert ChangedKind(CodeChange("K", "W"), trials, accepted).sentence == said


def test_points_without_effect_are_named_and_a_space_of_one_variant_is_warned_of() -> None:
    assert [line.split(" and is")[0] for line in without_effect({"a": "b", "c": "b"}, 2)] == [
        "a is the same variant as b", "c is the same variant as b",
    ]  # fmt: skip
    assert next(iter(without_effect({"a": "b"}, 1))).startswith("Warning: there is nothing to compare.")


def test_a_point_has_a_spec_of_its_own_for_each_tuned_value(folder: Path) -> None:
    costs, rates = planner(folder).costs, (1e-3, 2e-3, 1e-3)
    specs = [costs.valid_spec(Point("baseline", {}, tuned={"training.optimizer.lr": rate})) for rate in rates]
    assert [spec and spec.training.optimizer.lr for spec in specs] == [*rates]


@pytest.mark.parametrize(
    ("before", "now", "same"),
    [
        ("a" * 64, "a" * 64, True),
        ("a" * 32 + "c" * 32, "b" * 32 + "c" * 32, True),
        ("a" * 64, "a" * 32 + "b" * 32, False),
        ("a" * 32, "b" * 32, False),
    ],
)
def test_a_trial_of_other_code_is_accepted_only_with_the_same_data(before: str, now: str, same: bool) -> None:
    """A fingerprint is how data was prepared, then what it holds; data that needs no preparing has the first alone."""
    store: Any = SimpleNamespace(
        settled_trials=lambda: [SettledTrial("other", "h", 3, before, "its code")], codes=lambda identities: {}
    )
    variant: Any = SimpleNamespace(hash="h", fingerprint=now)
    trial = Trial("own", variant, 3, code=Code({"revisions": {"training": 2}}))
    accepted = EarlierTrials(store, accept=True).accepted(trial)
    assert (accepted.key, accepted.accepted is not None) == (("other", True) if same else ("own", False))
    assert EarlierTrials(store).accepted(trial) == trial


@pytest.mark.parametrize("stage", [None, ("hash", "data")])
def test_other_weights_than_a_space_was_written_for_are_refused(
    stage: tuple[str, str] | None, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = "b" * 64 if stage is None else stage_identity(*stage)
    source = SimpleNamespace(where="found.safetensors", identity=lambda: here)
    monkeypatch.setattr("ablate.planning.starting.read_source", lambda name, weights: source)
    given = {"source": "some.safetensors"} if stage is None else {"stage": {"training.steps": 1}}

    def identified(identity: str) -> str:
        changed = {"training.init_from": {**given, "identity": identity}}
        spec = Starting(folder).identified(space().resolve({}, changed), stage)
        assert spec.training.init_from is not None
        return spec.training.init_from.identity

    assert identified("") == identified(here) == here
    with pytest.raises(DataError, match="not those that the space was written for"):
        identified("c" * 64)


@pytest.mark.parametrize(
    ("lacks", "where"), [({"new": ("w",)}, "training.steps"), ({"moved": (1,)}, "training.init_from.layers")]
)
def test_without_training_all_weights_come_from_a_source_and_stay_in_their_layers(
    lacks: dict[str, Any], where: str
) -> None:
    made = Transfer("a source", {}, ("embedding.weight",), **{"new": (), "unused": (), **lacks})
    spec = space().resolve({}, {"training.steps": 1})
    refuse_untrained(spec, made)
    training = spec.training.model_copy(update={"steps": 0})
    with pytest.raises(SpaceError) as refused:
        refuse_untrained(spec.model_copy(update={"training": training}), made)
    assert refused.value.where == where


@pytest.mark.parametrize("hidden", [[], [6]])
def test_before_its_data_is_known_a_classifier_has_the_classes_of_its_source(folder: Path, hidden: list[int]) -> None:
    head = {"pooling": "cls", "hidden": hidden}
    model = {"family": "encoder", "depth": 1, "width": 8, "heads": 2, "block": "pre_ln", "head": head}
    whole = build_model(ModelSpec.model_validate(model), vocabulary=16, context=15, classes=10, seeds=[0])
    save_file(whole.state_dict(), folder / "whole.safetensors")
    task = {"kind": "listops", "data": "builtin:listops", "shortest": 8, "longest": 16}
    training = {
        **SPACE["training"],
        "steps": 0,
        "evaluations": 1,
        "init_from": {"source": str(folder / "whole.safetensors")},
    }
    spec = VariantSpec.model_validate({"model": model, "task": task, "training": training})
    made = Starting(folder).transfer_without_data(spec)
    assert made is not None
    assert made.new == made.unused == ()


def test_points_that_make_no_model_are_left_out_with_the_reason(folder: Path) -> None:
    switches = {"order": {"usual": {}, "kv": {"block.mixer.matmul_order": "kv_first"}}}
    plan = make_plan(planner(folder, switches=switches))
    assert [variant.name for variant in plan.variants] == ["baseline"]
    (invalid,) = plan.invalid
    assert invalid.point.name == "order=kv"
    assert "matmul_order" in invalid.reason
    assert "softmax" in invalid.reason


def test_a_mixer_without_a_cost_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: object) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(AttentionSpec, "cost", broken)
    with pytest.raises(PluginError, match=r"variant baseline: .* ZeroDivisionError: division by zero"):
        make_plan(planner(folder))


def test_a_space_whose_baseline_makes_no_model_is_refused() -> None:
    with pytest.raises((SpaceError, ValueError), match="kv_first"):
        space(switches={"order": {"kv": {"block.mixer.matmul_order": "kv_first"}, "usual": {}}})


def test_a_forecast_counts_what_is_done(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ablate.planning.forecast.available_cores", lambda: 1)
    plan = make_plan(planner(folder))
    before = forecast(plan, str(folder / "store.db"))
    assert (before.done, before.counts_evaluations) == (frozenset(), False)
    assert not (folder / "store.db").exists()
    assert before.total(plan) == pytest.approx(sum(before.seconds(trial) for trial in plan.trials))

    with open_store(folder / "store.db") as store:
        run_study(
            planner(folder, design={"kind": "leave_one_out", "seeds": 1}),
            store,
            ScriptedEngine(),
            ENVIRONMENT,
            Observer(),
        )
    finished = replace(plan, trials=tuple(trial for trial in plan.trials if trial.seed == 0))
    assert forecast(finished, str(folder / "store.db")).total(finished) == 0
    assert forecast(replace(plan, trials=()), str(folder / "store.db")).total(replace(plan, trials=())) == 0
    after = forecast(plan, str(folder / "store.db"))
    assert after.done == {trial.key for trial in plan.trials if trial.seed == 0}
    assert after.rate == pytest.approx(200.0 / 0.2)  # the scripted trials
    assert after.total(plan) == pytest.approx(sum(trial.variant.flops for trial in plan.trials) / 2 / 1000)


def test_a_forecast_runs_steps_and_an_evaluation_on_the_device_of_the_engine(folder: Path) -> None:
    source = planner(folder, training={"steps": 30, "batch_size": 2, "optimizer": {"kind": "adamw", "lr": 1e-3}})
    plan = make_plan(source)
    state = torch.get_rng_state()
    found = forecast(plan, str(folder / "store.db"), 1, tasks=source.costs.prepare)
    assert torch.equal(torch.get_rng_state(), state)
    assert "steps and an evaluation of" in found.basis
    assert found.counts_evaluations
    # Eleven evaluations of each trial: one before training and ten in it.
    extra = sum(11 * found.evaluation * trial.variant.cost.flops for trial in plan.trials)
    assert extra > 0
    assert found.total(plan) == pytest.approx(sum(found.seconds(trial) for trial in plan.trials) + extra)


def test_a_forecast_measures_the_middle_trial_in_the_pack_that_the_engine_would_make(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, int, int]] = []

    def measured(variant: Variant, task: Task, device: str, together: int, others: int) -> Speed:
        asked.append((variant.spec.model.depth, together, others))
        return Speed(1.0, 0.5, "measured")

    monkeypatch.setattr("ablate.planning.forecast.measure_speed", measured)
    design = {"kind": "leave_one_out", "seeds": 2}
    rates = {f"r{i}": {"training.optimizer.lr": 10.0**-i} for i in (1, 2, 3, 4)}
    depths = {"usual": {}, "deeper": {"model.depth": 3}, "deepest": {"model.depth": 4}, "deep": {"model.depth": 2}}
    for switch, numbers in ((rates, (1, 2, 3, 10)), (depths, (1, 5))):
        source = planner(folder, switches={"switch": switch}, design=design)
        for workers in numbers:
            found = forecast(make_plan(source), str(folder / "store.db"), workers, tasks=source.costs.prepare)
            assert (found.rate, found.evaluation, found.basis) == (1.0, 0.5, "measured")
    assert asked == [(1, 8, 0), (1, 4, 1), (1, 3, 2), (1, 1, 7), (3, 2, 0), (3, 1, 4)]
    source = planner(folder, switches={"switch": rates}, design=design)
    plan = make_plan(source)
    room = 4.5 * trial_bytes(plan.variants[0]) / 0.8
    monkeypatch.setattr("ablate.planning.forecast.free_bytes", lambda device: room)
    for workers in (1, 2):
        forecast(plan, str(folder / "store.db"), workers, tasks=source.costs.prepare)
    assert asked[-2:] == [(1, 4, 0), (1, 2, 1)], "workers share the memory"


def test_each_structure_is_forecast_at_its_own_speed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A linear mixer here has a fifth of the rate of attention, and so do its evaluations."""

    def measured(variant: Variant, task: Task, device: str, together: int, others: int) -> Speed:
        attends = variant.spec.model.blocks[0].mixer.kind_name() == "attention"
        return Speed(500.0 if attends else 100.0, 0.5, f"steps of {variant.name}", variant.name)

    monkeypatch.setattr("ablate.planning.forecast.measure_speed", measured)
    mixers = {"mixer": {"attention": {}, "linear": {"block.mixer": "linear"}}}
    source = planner(folder, switches=mixers)
    plan = make_plan(source)
    found = forecast(plan, str(folder / "store.db"), 1, tasks=source.costs.prepare)
    seconds = 0.0
    for trial in plan.trials:
        rate = {"baseline": 500.0}.get(trial.variant.name, 100.0)
        assert found.seconds(trial) == trial.variant.flops / rate
        evaluations = 1 + len(trial.variant.spec.training.evaluation_steps())
        seconds += trial.variant.flops / rate + evaluations * 0.5 * trial.variant.cost.flops * found.rate / rate
    assert found.total(plan) == pytest.approx(seconds)
    assert {"baseline", "mixer=linear"} == {*re.findall(r"steps of ([\w=]+)", found.basis)}


def test_the_rate_of_a_size_that_is_not_measured_is_that_of_the_nearest_of_its_kinds(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six of eight structures are measured, those with the most arithmetic; the smallest of each mixer is not."""

    def measured(variant: Variant, task: Task, device: str, together: int, others: int) -> Speed:
        attends = variant.spec.model.blocks[0].mixer.kind_name() == "attention"
        return Speed(variant.spec.model.width * (100.0 if attends else 1.0), 0.5, "steps", variant.name)

    monkeypatch.setattr("ablate.planning.forecast.measure_speed", measured)
    switches = {
        "mixer": {"attention": {}, "linear": {"block.mixer": "linear"}},
        "width": {str(width): {"model.width": width, "model.heads": 1} for width in (64, 16, 24, 32)},
    }
    source = planner(folder, switches=switches, design={"kind": "grid", "seeds": 1})
    plan = make_plan(source)
    found = forecast(plan, str(folder / "store.db"), 1, tasks=source.costs.prepare)
    rates = {trial.variant.name: trial.variant.flops / found.seconds(trial) for trial in plan.trials}
    widths = {"": 64, "width=16": 24, "width=24": 24, "width=32": 32}
    expected = {
        ",".join(filter(None, (mixer, width))) or "baseline": float(nearest) * (1 if mixer else 100)
        for mixer in ("", "mixer=linear")
        for width, nearest in widths.items()
    }
    assert rates == pytest.approx(expected)
    size = structure(plan.variants[0].spec)
    assert _nearest(size, [replace(size, kinds=(frozenset(), "sgd", "fp32"))]) is None


@pytest.mark.parametrize(
    ("tune", "seconds"),
    [
        # Two workers, four trials of each of two mixers: one trains the fast pack, the other the slow one, and waits.
        (None, 4 * 5.0),
        # Before, each mixer is tuned by six trials, and nothing is compared until the slow pack has ended.
        ({"training.optimizer.lr": [1e-3, 2e-3, 4e-3], "seeds": 2}, 6 * 5.0 + 4 * 5.0),
    ],
)
def test_a_worker_that_has_nothing_to_train_is_part_of_the_wall_time(
    tune: Any, seconds: float, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(variant: Variant, task: Task, device: str, together: int, others: int) -> Speed:
        attends = variant.spec.model.blocks[0].mixer.kind_name() == "attention"
        return Speed(variant.flops / (1.0 if attends else 5.0), 1e-30, "steps", variant.name)

    monkeypatch.setattr("ablate.planning.forecast.measure_speed", measured)
    mixers = {"mixer": {"attention": {}, "linear": {"block.mixer": "linear"}}}
    source = planner(folder, switches=mixers, tune=tune, design={"kind": "leave_one_out", "seeds": 4})
    found = forecast(make_plan(source), str(folder / "store.db"), 2, tasks=source.costs.prepare)
    assert found.total(make_plan(source)) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("design", "says"),
    [
        ({"kind": "leave_one_out", "seeds": 3}, None),
        # Four points are proposed at first; eight more follow, and two points with three seeds confirm.
        (
            {"kind": "search", "points": 12, "batch": 4, "seeds": 1, "confirm": 3},
            "at most 14 further trials, about 28 s of",
        ),
        # Three points with two to five seeds.
        ({"kind": "leave_one_out", "seeds": {"start": 2, "max": 5}}, "at most 9 further trials, about 18 s of"),
    ],
)
def test_a_plan_says_how_many_trials_results_can_add(
    design: Any, says: str | None, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(variant: Variant, task: Task, device: str, together: int, others: int) -> Speed:
        return Speed(variant.flops / 4.0, 0.0, "steps", variant.name)

    monkeypatch.setattr("ablate.planning.forecast.measure_speed", measured)
    values = {
        "values": {str(i): {"training.optimizer.lr": 0.001 * (1 + i)} for i in range(3 if "max" in str(design) else 20)}
    }
    source = planner(folder, switches=values, design=design)
    plan = make_plan(source)
    found = forecast(plan, str(folder / "store.db"), 2, tasks=source.costs.prepare)
    print_plan(plan, found, console := Console(file=StringIO(), width=200))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert f"Results add {says}" in text if says else "Results" not in text


class Matmuls(TorchDispatchMode):
    """Counts the products of matrices and their arithmetic; its clock stands still outside of them."""

    def __init__(self) -> None:
        super().__init__()
        self.count, self.flops, self.seconds = 0, 0.0, 0.0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.mm.default:
            self.count += 1
            self.flops += 2.0 * args[0].shape[0] * args[0].shape[1] * args[1].shape[1]
            self.seconds += 0.03
        return func(*args, **(kwargs or {}))


def test_the_speed_of_matmuls_is_their_arithmetic_over_their_time(monkeypatch: pytest.MonkeyPatch) -> None:
    with Matmuls() as matmuls:
        monkeypatch.setattr("ablate.planning.forecast.time.perf_counter", lambda: matmuls.seconds)
        rate = measure_matmul("cpu").rate
    assert matmuls.count > 2
    assert rate == pytest.approx(0.55 * matmuls.flops / matmuls.seconds)


@pytest.mark.parametrize(("together", "others", "step"), [(1, 0, 0.125), (3, 2, 0.125), (1, 0, 100.0)])
def test_the_speed_of_a_pack_is_the_arithmetic_of_its_trials_over_the_time_of_its_steps(
    together: int, others: int, step: float, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a clock by which an evaluation of the pack takes 0.4 s; of steps that are long only one is measured."""
    now, busy = 0.0, list[int]()

    class Timed(Pack):
        def step(self, number: int) -> None:
            nonlocal now
            now += step

        def point(self) -> Any:
            nonlocal now
            now += 0.4

    monkeypatch.setattr("ablate.planning.forecast.Pack", Timed)
    monkeypatch.setattr("ablate.planning.forecast._busy", lambda threads: nullcontext(busy.append(threads)))
    monkeypatch.setattr("ablate.planning.forecast.time.perf_counter", lambda: now)
    monkeypatch.setattr("ablate.planning.forecast.measure_matmul", lambda device: Speed(1e15, 0.0, "a matmul"))
    source = planner(folder)
    variant = make_plan(source).variants[0]
    speed = measure_speed(variant, source.costs.prepare(variant.spec), "cpu", together, others)
    assert busy == [others]
    each = variant.flops / variant.spec.training.steps
    assert speed.rate == pytest.approx(together * each / step)
    assert int(speed.source.split()[0]) == (1 if step > 1 else 5)
    assert speed.evaluation == pytest.approx(0.4 / together / variant.cost.flops)


def test_what_is_timed_has_nothing_beside_its_steps(folder: Path) -> None:
    beside = {
        "record_blocks": True,
        "insides": "evaluations",
        "rounded_bits": [8],
        "evaluate_at": {"context": [4]},
        "batch_growth": {"kind": "stages", "shares": [0.5], "until": [0.5]},
        "context_growth": {"kind": "stages", "shares": [0.5], "until": [0.5]},
        "init_from": {"stage": {"training.steps": 1}},
    }
    plain, full = (
        timed_spec(space(training={**SPACE["training"], **more}).resolve({}), 5)  # type: ignore[dict-item]
        for more in ({}, beside)
    )
    assert full == plain
    assert plain.training.steps == 5


@pytest.mark.parametrize(("cores", "cpus", "workers"), [(8, 1, 8), (8, 3, 2), (8, 8, 1), (2, 8, 1), (1, 0.5, 1)])
def test_workers_share_the_cores(cores: int, cpus: float, workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ablate.planning.forecast.available_cores", lambda: cores)
    assert usual_workers(ResourcesSpec(cpus=cpus), "cpu") == workers


@pytest.mark.parametrize(("gpus", "processes"), [(None, 1), (0, 1), (0.25, 1), (1, 1), (4, 4)])
def test_a_forecast_counts_the_gpus_of_a_trial_each_with_its_own_memory(
    gpus: float | None, processes: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Packs fill the memory of one, of which on a CPU each worker has its share."""
    source = planner(folder, resources={"gpus": gpus}, design={"kind": "leave_one_out", "seeds": 4})
    plan, asked = make_plan(source), list[int]()
    on_gpu = trial_bytes(plan.variants[0], device="cuda")

    def measured(variant: Variant, task: Task, device: str, together: int, others: int) -> Speed:
        asked.append(together)
        return Speed(1.0, 0.5, "measured")

    monkeypatch.setattr("ablate.planning.forecast.measure_speed", measured)
    monkeypatch.setattr("ablate.planning.forecast.free_bytes", lambda device: 3.5 * on_gpu / 0.8)
    for workers, together in ((1, 3), (2, 2)):  # 4 trials of a variant
        found = forecast(plan, str(folder / "store.db"), workers, device="cuda", tasks=source.costs.prepare)
        assert (found.rate, {*asked}) == (processes, {together})
        asked.clear()


def test_a_trial_that_asks_for_gpus_has_no_forecast_on_a_cpu(folder: Path) -> None:
    plan = make_plan(planner(folder, resources={"gpus": 8}))
    with pytest.raises(EngineError, match="too few GPUs for a trial"):
        forecast(plan, str(folder / "store.db"))
    assert forecast(plan, str(folder / "store.db"), 3).workers == 3


def test_further_workers_keep_their_cores_busy_as_long_as_steps_are_measured() -> None:
    before = threading.active_count()
    with _busy(2):
        time.sleep(0.1)
        assert threading.active_count() == before + 2
    assert threading.active_count() == before
