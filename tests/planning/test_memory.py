"""What plans tell before anything trains: memory that a plan needs, and FLOPs against torch's own count."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import psutil
import pytest
from engine_samples import SPACE, planner
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from ablate.errors import EngineError
from ablate.execution.driver import run_study
from ablate.execution.engine import Observer
from ablate.execution.environment import describe_environment
from ablate.execution.local import LocalEngine
from ablate.execution.options import RunOptions
from ablate.nn.kernels import product, softmax_attention
from ablate.nn.model import build_model, model_cost
from ablate.planning.memory import (
    _evaluation_bytes,
    check_fits,
    check_memory,
    free_bytes,
    largest_blocks,
    largest_micro_batch,
    part_of_rank,
    trial_bytes,
)
from ablate.planning.plan import Variant
from ablate.planning.planner import make_plan
from ablate.spec.task import DataShape, Task, TaskSpec
from ablate.spec.variant import VariantSpec
from ablate.store import open_store
from ablate.training.members import freeze

GIB = 2**30


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_plan_is_refused_when_its_workers_need_more_than_there_is(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make_plan(planner(folder))
    largest = max(trial_bytes(variant) for variant in plan.variants)
    on_gpu = functools.partial(trial_bytes, device="cuda")

    def available(size: int) -> None:
        memory = psutil.virtual_memory()._replace(available=size)
        monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)

    available(2 * largest)
    check_memory(plan, 2, "cpu")
    available(2 * largest - 1)
    check_memory(plan, 1, "cpu")
    with pytest.raises(EngineError, match="do not fit into memory") as caught:
        check_memory(plan, 2, "cpu")
    assert "variant baseline" in str(caught.value)
    assert "--workers" in str(caught.value)
    model = {"family": "decoder", "depth": 8, "width": 64, "heads": 2, "block": {"mixer": "attention"}}
    deep = make_plan(planner(folder, model=model))
    whole, sharded = (max(trial_bytes(part_of_rank(one, 2), parts) for one in deep.variants) for parts in (1, 2))
    assert sharded < whole
    available(2 * whole - 1)
    check_memory(deep, 1, "cpu", ranks=2, shard=True)
    with pytest.raises(EngineError, match="for 2 at once"):
        check_memory(deep, 1, "cpu", ranks=2)
    available(5 * GIB)
    check_fits("large", 5 * GIB, 1, "cpu")
    with pytest.raises(EngineError, match=r"at most 5\.0 GiB; got a predicted 6\.0 GiB for 2 at once"):
        check_fits("large", 3 * GIB, 2, "cpu")
    monkeypatch.setattr("torch.cuda.device_count", lambda: 3)
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda number: ((30, 40), (10, 40), (20, 40))[number])
    assert free_bytes("cuda") == 10, "of the fullest"
    monkeypatch.setattr("ablate.planning.memory.free_bytes", lambda device: max(map(on_gpu, plan.variants)))
    check_memory(plan, 2, "cuda")  # each process has a GPU
    monkeypatch.setattr("ablate.planning.memory.free_bytes", lambda device: max(map(on_gpu, plan.variants)) - 1)
    with pytest.raises(EngineError, match="do not fit into memory"):
        check_memory(plan, 2, "cuda")


def test_a_model_far_too_large_is_refused_before_its_data_is_prepared(folder: Path, tmp_path: Path) -> None:
    model = {"family": "decoder", "depth": 96, "width": 12288, "heads": 96, "block": {"mixer": "attention"}}
    too_large = planner(folder, model=model)
    too_large.say = lambda line: pytest.fail(f"prepared data: {line}")
    with (
        open_store(tmp_path / "s.db") as store,
        LocalEngine(RunOptions(cache=folder / "cache", device="cpu", workers=1)) as local,
        pytest.raises(EngineError, match="variant baseline: its trials do not fit into memory"),
    ):
        run_study(too_large, store, local, describe_environment("cpu"), Observer())
    assert not (folder / "cache").exists()


def test_blocks_need_less_than_the_model_that_they_are_in(folder: Path) -> None:
    variants = {variant.name: trial_bytes(variant) for variant in make_plan(planner(folder)).variants}
    name, needed = largest_blocks(planner(folder))
    assert 0 < needed < variants[name]


def test_what_match_may_shrink_is_not_refused(folder: Path) -> None:
    deep = {"depth": {"1": {}, "100": {"model.depth": 100}}}
    free = planner(folder, switches=deep)
    matched = planner(folder, switches=deep, match="parameters")
    assert largest_blocks(free)[1] == pytest.approx(100 * largest_blocks(matched)[1], rel=0.05)
    assert largest_blocks(matched)[0] == "baseline"


@functools.cache
def shape_of(task: TaskSpec) -> DataShape:
    """Many symbols take a second."""
    return task.open(Path(), task.prepare(Path(), lambda line: None)).shape


def variant_of(model: Any, task: dict[str, Any], training: dict[str, Any]) -> Variant:
    """With the cost that plans tell."""
    usual = {"steps": 3, "optimizer": {"lr": 1e-3}}
    spec = VariantSpec.model_validate(
        {"model": model, "task": {"kind": "recall", **task}, "training": {**usual, **training}}
    )
    shape = shape_of(spec.task)
    cost = model_cost(spec.model, vocabulary=shape.vocabulary, context=shape.context)
    return Variant("", {}, spec, "", cost, 0.0, "", vocabulary=shape.vocabulary, context=shape.context)


@pytest.mark.parametrize(("ranks", "parts", "measured"), [(1, 1, 49.0), (2, 1, 34.5), (2, 2, 26.8), (4, 4, 15.1)])
def test_the_memory_of_one_of_several_processes_is_what_was_measured(ranks: int, parts: int, measured: float) -> None:
    """Measured in MiB with torch's profiler on a CPU: the peak of the second step, with two moments of AdamW."""
    model = {"family": "decoder", "depth": 8, "width": 128, "heads": 4, "block": "pre_ln"}
    variant = variant_of(model, {"symbols": 1024}, {"steps": 10, "batch_size": 8, "evaluations": 1})
    predicted = trial_bytes(part_of_rank(variant, ranks), parts) / 2**20
    assert 0.99 * measured <= predicted <= 1.12 * measured


WORDS = {
    "kind": "translation",
    "data": "builtin:number_words",
    "source": "english",
    "target": "german",
    "context": 48,
    "tokenizer": {"kind": "bpe", "vocab_size": 300},
    "validation_pairs": 30,
}
TASKS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "language_model": (SPACE["task"], {"family": "decoder"}),  # type: ignore[dict-item]
    "listops": (
        {"kind": "listops", "shortest": 0, "longest": 60, "train_rows": 400, "validation_rows": 50},
        {"family": "encoder", "head": {"pooling": "mean"}},
    ),
    "translation by tokens": (
        {**WORDS, "batches_by": "tokens"},
        {"family": "encoder_decoder", "decoder": {"depth": 1, "mixer": "attention"}},
    ),
}
"""Tasks whose inputs have one length, lengths by bucket, and numbers of rows by bucket too."""
ROWS, STEPS, SAMPLE = 6, 2, 300
AVERAGE = {"kind": "last", "count": 2, "share": 0.5}


def drawn(task: Task) -> list[tuple[int, dict[str, Tensor]]]:
    """A batch of each size, with the number of those among `SAMPLE` batches."""
    counts, batches = Counter[tuple[int, ...]](), dict[tuple[int, ...], dict[str, Tensor]]()
    for step in range(SAMPLE):
        batch = {name: tensor[None] for name, tensor in task.train_batch(0, step, ROWS).items()}
        size = tuple(length for name in sorted(batch) for length in batch[name].shape)
        counts[size] += 1
        batches[size] = batch
    return [(count, batches[size]) for size, count in counts.items()]


def counted(variant: Variant, task: Task, batches: Iterable[tuple[int, dict[str, Tensor]]]) -> float:
    """Arithmetic of a training step as torch counts it: products of matrices, forward and backward, over batches."""
    shape = task.shape
    sizes = {"vocabulary": shape.vocabulary, "context": shape.context, "classes": shape.classes}
    model = build_model(variant.spec.model, **sizes, seeds=[0])
    freeze(model, variant.spec.training.freeze)
    total = 0
    for count, batch in batches:
        with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
            task.loss(task.outputs(model, batch), batch).sum().backward()
        total += count * counter.get_total_flops()
    return total / SAMPLE


@pytest.mark.parametrize("kind", TASKS)
def test_plans_tell_the_arithmetic_of_real_batches_and_what_frozen_parts_save(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(product, "_by_onednn", lambda x, y: False)  # torch counts no other products than its own
    monkeypatch.setattr(softmax_attention, "_LEAST", 1 << 60)
    task, family = TASKS[kind]
    block = {"mixer": "attention", "mlp": {"kind": "plain"}, "norm": "rms"}
    made = planner(
        tmp_path,
        task=task,
        model={"depth": 1, "width": 64, "heads": 2, "block": block, **family},
        training={"steps": STEPS, "batch_size": ROWS, "optimizer": {"kind": "sgd", "lr": 0.1}},
        switches={"frozen": {"nothing": {}, "mlps": {"training.freeze": ["mlp"]}}},
    )
    usual, frozen = make_plan(made).variants
    told, counts, batches = [], [], drawn(made.costs.prepare(usual.spec))
    for variant in (usual, frozen):
        told.append(variant.flops / STEPS - variant.spec.training.optimizer.step_flops(variant.cost.parameters, 64))
        counts.append(counted(variant, made.costs.prepare(variant.spec), batches))
    assert told == pytest.approx(counts, rel=0.1)
    assert told[0] - told[1] == pytest.approx(counts[0] - counts[1], rel=0.1)
    assert usual.cost.parameters - frozen.cost.parameters == frozen.frozen > 0


@pytest.mark.parametrize(
    ("task", "model", "training", "measured", "within"),
    [
        # gradients of one matrix as embedding and head
        ({"symbols": 20_000, "context": 64}, {}, {"batch_size": 1}, 174, 1.1),
        ({"symbols": 20_000}, {}, {"batch_size": 4}, 328, 1.1),
        ({"symbols": 20_000}, {}, {"batch_size": 4, "loss_chunk": 128}, 191, 1.1),
        # a matrix of the head alone, and the gradients that chunks of the loss add to it
        ({"symbols": 20_000}, {"depth": 2, "tied_head": False}, {"batch_size": 4, "loss_chunk": 64}, 227, 1.12),
        (
            *({"symbols": 20_000}, {"depth": 2, "tied_head": False}),
            *({"batch_size": 4, "loss_chunk": 64, "precision": "bf16"}, 240, 1.15),
        ),
        ({}, {}, {"batch_size": 1}, 68, 1.1),  # an evaluation joins batches
        # weights are kept aside while their average is evaluated, and not while gradients are
        ({}, {}, {"batch_size": 2, "optimizer": {"kind": "muon", "lr": 1e-3}, "average": AVERAGE}, 79, 1.15),
        ({"symbols": 4000}, {}, {"batch_size": 4, "recompute": "blocks", "average": AVERAGE}, 157, 1.25),
    ],
)
def test_the_memory_of_small_batches_is_what_was_measured(
    task: dict[str, Any], model: dict[str, Any], training: dict[str, Any], measured: float, within: float
) -> None:
    """In MiB, by `python -m benchmarks predicted_memory`."""
    usual = {"family": "decoder", "depth": 4, "width": 256, "heads": 4, "block": "pre_ln"}
    variant = variant_of({**usual, **model}, {"context": 256, "pairs": 8, "symbols": 256, **task}, training)
    assert measured / within <= trial_bytes(variant) / 2**20 <= within * measured


@pytest.mark.parametrize("symbols", [256, 20_000])
@pytest.mark.parametrize("average", [None, AVERAGE])
@pytest.mark.parametrize(("batch", "rows"), [(1, 1), (4, 4), (4, 1)])
def test_a_loss_by_chunks_of_all_tokens_needs_what_one_without_chunks_needs(
    symbols: int, average: Any, batch: int, rows: int
) -> None:
    """Whatever needs the most: training, its start or its end, or an evaluation."""
    model = {"family": "decoder", "depth": 1, "width": 64, "heads": 4, "block": "pre_ln"}
    task = {"context": 64, "symbols": symbols}
    for recompute in ("none", "blocks"):
        training = {"batch_size": batch, "micro_batch": rows, "average": average, "recompute": recompute}
        whole, chunked = (variant_of(model, task, {**training, **chunk}) for chunk in ({}, {"loss_chunk": rows * 64}))
        assert trial_bytes(whole) == trial_bytes(chunked)


def test_an_evaluation_needs_more_the_more_rows_it_has_however_small_its_chunks() -> None:
    model = {"family": "decoder", "depth": 1, "width": 64, "heads": 4, "block": "pre_ln"}
    variants = [variant_of(model, {"context": 64}, {"batch_size": rows, "loss_chunk": 1}) for rows in (32, 64, 96)]
    needed = [_evaluation_bytes(one.spec, one.vocabulary, one.context, "cpu") for one in variants]
    assert needed == [needed[0], 2 * needed[0], 3 * needed[0]]


@pytest.mark.parametrize(
    ("training", "measured"),
    [
        ({"precision": "fp32"}, 16.6),
        ({"precision": "tf32"}, 16.6),
        ({"precision": "bf16"}, 14.4),
        ({"precision": "bf16", "recompute": "blocks"}, 7.6),
    ],
)
def test_the_memory_of_gpt2_on_a_gpu_is_what_was_measured(training: dict[str, Any], measured: float) -> None:
    """In GiB on an H100, with dropout of attention, by `python -m benchmarks gpu_forecast`."""
    task = {"context": 1024, "pairs": 8, "symbols": 32768, "validation_rows": 32}
    variant = variant_of("gpt2", task, {"batch_size": 32, "micro_batch": 16, "evaluations": 1, **training})
    assert measured / 1.25 <= trial_bytes(variant, device="cuda") / GIB <= 1.25 * measured
    largest = largest_micro_batch(variant, 1.25 * 2 * measured * GIB, device="cuda")
    assert largest is not None
    assert largest.micro_batch == 32
