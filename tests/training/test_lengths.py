"""`training.evaluate_at`: final models measured at other lengths, against evaluations of one window at a time."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from pydantic import ValidationError
from random_tokens import CPU
from torch import Tensor

from ablate.errors import AblateError, DataError
from ablate.nn.model import build_model
from ablate.planning.planner import Planner
from ablate.spec.base import Kinded
from ablate.spec.layer import POSITIONS
from ablate.spec.model import ModelSpec
from ablate.spec.space import SpaceSpec
from ablate.spec.sublayers import MIXERS
from ablate.spec.task import TASKS, Task, TaskSpec
from ablate.spec.variant import VariantSpec
from ablate.tasks.probe import UNSCORED, Probe
from ablate.training.members import Member
from ablate.training.pack import Pack

MODEL = {"family": "decoder", "depth": 1, "width": 16, "heads": 2, "block": "pre_ln", "positions": "none"}
TRAINING: dict[str, Any] = {"steps": 2, "batch_size": 4, "optimizer": {"lr": 0.01}}
OTHER_SIZES: dict[str, dict[str, Any]] = {
    "copy": {"span": 8},
    "palindrome": {"span": 8},
    "stack": {"operations": 8},
    "capo": {"biographies": 2, "people": 20},
    "recall": {"context": 32, "pairs": 4, "symbols": 32},
    "selective_copy": {"context": 32, "copied": 4},
}
RECALL = {"kind": "recall", **OTHER_SIZES["recall"]}


def variant(task: dict[str, Any], lengths: dict[str, list[int]], **model: Any) -> VariantSpec:
    plain = {"task": task, "model": {**MODEL, **model}, "training": {**TRAINING, "evaluate_at": lengths}}
    return VariantSpec.model_validate(plain)


def opened(spec: TaskSpec, cache: Path) -> Task:
    return spec.open(cache, spec.prepare(cache, lambda line: None))


def trained(spec: VariantSpec, task: Task) -> tuple[dict[str, list[float]], list[torch.nn.Module]]:
    """The final metrics of a pack of two, and its model with each member alone."""
    with Pack([Member(spec, 3), Member(spec, 8)], task, CPU) as pack:
        for step in (1, 2):
            pack.step(step)
            assert not any("_at_" in name for name in pack.events[-1].metrics) if pack.events else True
        metrics, alone = pack.point().metrics, []
        for member in range(2):
            shape = task.shape
            model = build_model(spec.model, vocabulary=shape.vocabulary, context=shape.context, seeds=[0])
            weights = {name: tensor[member : member + 1] for name, tensor in pack.model.state_dict().items()}
            model.load_state_dict(weights)
            alone.append(model.eval())
    return metrics, alone


@torch.no_grad()
def logits_of(model: torch.nn.Module, window: Tensor) -> Tensor:
    logits: Tensor = model(window[None, None])[0, 0].double()
    return logits


@pytest.mark.parametrize("kind", ["recall", "copy", "stack", "parity"])
def test_probes_are_measured_as_one_window_after_another(kind: str, tmp_path: Path) -> None:
    """The windows are those on which a model trained at the length is validated, whatever the batches."""
    field = TASKS.members()[kind].length_field  # type: ignore[attr-defined]
    plain = {"kind": kind, "validation_rows": 13, **OTHER_SIZES.get(kind, {"context": 8})}
    lengths = [plain[field] * 2, plain[field], plain[field] * 4]
    spec = variant(plain, {field: lengths}, positions="rotary")
    metrics, models = trained(spec, opened(spec.task, tmp_path))
    for length in lengths:
        longer = opened(TaskSpec.parse({**plain, field: length}), tmp_path)
        (batch,) = longer.validation_batches(13)
        for member, model in enumerate(models):
            losses, right, solved = [], [], []
            for inputs, targets in zip(batch["inputs"], batch["targets"], strict=True):
                logits, asked = logits_of(model, inputs), targets != UNSCORED
                losses += F.cross_entropy(logits[asked], targets[asked], reduction="none").tolist()
                right += (own := (logits.argmax(-1) == targets)[asked].tolist())
                solved += [all(own)] if own else []
            found = {name: metrics[f"val_{name}_at_{length}"][member] for name in ("loss", "accuracy")}
            assert found["loss"] == pytest.approx(np.mean(losses), rel=1e-5)
            assert found["accuracy"] == pytest.approx(np.mean(right))
            assert metrics[f"val_sequence_accuracy_at_{length}"][member] == pytest.approx(np.mean(solved))
    for name in ("loss", "accuracy", "sequence_accuracy"):
        assert metrics[f"val_{name}_at_{plain[field]}"] == metrics[f"val_{name}"]


def test_text_is_measured_in_evenly_spaced_windows_of_each_length(tmp_path: Path) -> None:
    text = "".join(f"line {number} of {number % 7} words\n" for number in range(300))
    (tmp_path / "text.txt").write_text(text, encoding="utf-8")
    plain = {"kind": "language_model", "data": f"file:{tmp_path / 'text.txt'}", "tokenizer": "bytes", "context": 16}
    plain["validation_windows"] = 5
    spec = variant(plain, {"context": [8, 64]}, positions="sinusoidal")
    task = opened(spec.task, tmp_path / "cache")
    metrics, models = trained(spec, task)
    tokens = np.load(next((tmp_path / "cache").rglob("validation.npy"))).astype(np.int64)
    for length in (8, 64):
        starts = [round(number * ((len(tokens) - length - 1) // 4)) for number in range(5)]
        for member, model in enumerate(models):
            losses = [
                F.cross_entropy(
                    logits_of(model, torch.from_numpy(tokens[start : start + length])),
                    torch.from_numpy(tokens[start + 1 : start + length + 1]),
                ).item()
                for start in starts
            ]
            assert metrics[f"val_loss_at_{length}"][member] == pytest.approx(np.mean(losses), rel=1e-5)
            assert metrics[f"val_perplexity_at_{length}"][member] == pytest.approx(math.exp(np.mean(losses)), rel=1e-4)
    with pytest.raises(DataError, match="text is shorter than one window"):
        task.at_length(100_000)


def kinds() -> list[tuple[str, Kinded]]:
    return [("mixer", kind()) for kind in MIXERS.members().values()] + [
        ("positions", kind()) for kind in POSITIONS.members().values()
    ]


@pytest.mark.parametrize(("place", "kind"), kinds(), ids=lambda one: one if isinstance(one, str) else one.kind_name())
@pytest.mark.parametrize("family", ["decoder", "encoder"])
def test_every_kind_reads_four_times_its_context_or_is_refused_before_training(
    place: str, kind: Kinded, family: str
) -> None:
    plain: dict[str, Any] = {"family": family, "depth": 1, "width": 64, "heads": 4, "block": {"mixer": "attention"}}
    plain |= {"positions": "none"} | ({"head": {"pooling": "cls"}} if family == "encoder" else {})
    if place == "mixer":
        plain["block"] = {"mixer": kind}
    else:
        plain["positions"] = kind
    try:
        spec = ModelSpec.model_validate(plain)
    except ValidationError:
        pytest.skip("the kind has no such form")
    model = build_model(spec, vocabulary=5, context=16, classes=3, seeds=[0]).eval()
    text = torch.arange(64)[None, None] % 5
    for length in (7, 16, 64):
        longest = spec.longest_input(16)
        if longest is None or length <= longest:
            spec.check_context(16, length)
            assert model(text[:, :, :length]).isfinite().all()
            continue
        assert length > 16
        with pytest.raises(ValidationError, match=f"can read at most .* asks for {length}"):
            spec.check_context(16, length)
        with pytest.raises(AblateError, match=f"at most {longest} tokens; got {length}"):
            model(text[:, :, :length])


def test_a_field_sets_the_longest_input_of_a_kind() -> None:
    plain = {**MODEL, "block": {"mixer": {"kind": "mlp_mixer", "length": 40}}}
    ModelSpec.model_validate(plain).check_context(16, 40)
    with pytest.raises(ValidationError) as caught:
        ModelSpec.model_validate(plain).check_context(41)
    (error,) = caught.value.errors()
    assert error["loc"] == ("block", "mixer", "length")
    assert error["msg"].startswith("mlp_mixer can read at most 40 tokens, and inputs have up to 41")
    assert error["ctx"]["remedy"] == "Set `length` to at least 41, or leave it out."


@pytest.mark.parametrize(
    ("task", "lengths", "place", "said"),
    [
        (
            {"kind": "copy", "span": 4},
            {"context": [8]},
            "training.evaluate_at.context",
            "the length of .* is its `span`",
        ),
        ({"kind": "mano"}, {"operations": [8]}, "training.evaluate_at.operations", "measured at one length only"),
        (
            OTHER_SIZES["recall"] | {"kind": "recall"},
            {"context": [33]},
            "training.evaluate_at.context",
            "multiple of 2",
        ),
        (OTHER_SIZES["recall"] | {"kind": "recall"}, {"context": [8]}, "training.evaluate_at.context", "four tokens"),
        ({"kind": "parity", "context": 4}, {"context": [4, 5]}, "model.positions.kind", "learned can read at most 4"),
    ],
)
def test_lengths_that_cannot_be_measured_are_refused(
    task: dict[str, Any], lengths: dict[str, list[int]], place: str, said: str
) -> None:
    with pytest.raises(ValidationError, match=said) as caught:
        variant(task, lengths, positions="learned")
    (error,) = caught.value.errors()
    assert ".".join(map(str, error["loc"])) == place
    assert error["ctx"]["remedy"]


SPACE = {
    "name": "reach",
    "question": "?",
    "task": {"kind": "parity", "context": 8, "validation_rows": 20},
    "model": MODEL,
    "training": {**TRAINING, "evaluate_at": {"context": [16, 32]}},
    "switches": {"mixer": {"attention": {}, "mamba2": {"block.mixer": "mamba2"}}},
    "design": {"kind": "leave_one_out", "seeds": 1},
    "objective": {"metric": "val_accuracy_at_32", "direction": "maximize", "margin": 0.05},
    "columns": ["val_loss_at_16"],
    "claims": [
        {"id": "c", "left": "mixer=mamba2", "right": "baseline", "expect": "better", "margin": 0.1,
         "metric": "val_accuracy"},
    ],
}  # fmt: skip


def test_metrics_at_lengths_are_objectives_and_have_their_own_trivial_baselines(tmp_path: Path) -> None:
    space = SpaceSpec.model_validate(SPACE)
    assert {"val_loss_at_16", "val_sequence_accuracy_at_32"} <= space.metric_names & space.final_metric_names
    planner = Planner(space, tmp_path, lambda line: None)
    variant = planner.resolve(next(iter(space.points().values())))
    assert variant is not None
    trivial = planner._trivial_on([variant.spec])
    longer = opened(TaskSpec.parse({**SPACE["task"], "context": 32}), tmp_path)  # type: ignore[dict-item]
    assert trivial["last 8 tokens"]["val_accuracy_at_32"] == longer.baselines()["last 8 tokens"]["val_accuracy"]
    rounded = SpaceSpec.model_validate({**SPACE, "training": {**SPACE["training"], "rounded_bits": [4]}})  # type: ignore[dict-item]
    other = Planner(rounded, tmp_path, lambda line: None)
    variant = other.resolve(next(iter(rounded.points().values())))
    assert variant is not None
    assert other._trivial_on([variant.spec])["guess"]["val_loss_int4"] == trivial["guess"]["val_loss"]
    with pytest.raises(ValidationError, match="no metric of this name"):
        SpaceSpec.model_validate({**SPACE, "columns": ["val_loss_at_64"]})


def test_tasks_of_a_suite_have_lengths_of_their_own() -> None:
    tasks = {
        "state": {"task": SPACE["task"], "training.evaluate_at": {"context": [32]}},
        "copy": {"task": {"kind": "copy", "span": 8}, "training.evaluate_at": {"span": [32]}},
    }
    plain = {name: value for name, value in SPACE.items() if name not in ("task", "columns", "claims")}
    suite = {**plain, "training": TRAINING, "tasks": tasks, "aggregate": {"margin": 0.1}}
    assert SpaceSpec.model_validate(suite).metric_names >= {"val_accuracy_at_32", "val_loss_at_32"}
    tasks["copy"]["training.evaluate_at"] = {"span": [16]}
    with pytest.raises(ValidationError, match="the task `copy` \\(copy\\) has no metric `val_accuracy_at_32`"):
        SpaceSpec.model_validate(suite)


def test_windows_of_a_length_do_not_depend_on_the_trained_length(tmp_path: Path) -> None:
    for kind, task in TASKS.members().items():
        field = task.length_field  # type: ignore[attr-defined]
        if not issubclass(task, TaskSpec) or not field or "data" in task.model_fields or "sources" in task.model_fields:
            continue
        plain = {"kind": kind, "validation_rows": 7, **OTHER_SIZES.get(kind, {"context": 32})}
        one, other = (opened(TaskSpec.parse({**plain, field: plain[field] * times}), tmp_path) for times in (1, 2))
        assert isinstance(one, Probe)
        (first,), (second,) = (list(task.at_length(plain[field] * 4).validation_batches(7)) for task in (one, other))
        assert torch.equal(first["inputs"], second["inputs"]), kind
        assert torch.equal(first["targets"], second["targets"]), kind
        assert one.at_length(plain[field] * 4).shape.vocabulary == one.shape.vocabulary, kind
