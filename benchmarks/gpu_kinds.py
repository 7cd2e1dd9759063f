"""Short trials of every kind, task and setting of training on a GPU, compared with the same trials on a CPU.

`python -m benchmarks gpu_kinds [--processes 8] [--only TEXT] [--device cuda]`. Each kind of each family is tried at its
defaults and with each named choice changed. On a GPU a trial runs as users get it: as a CUDA graph if its step can be
captured. A row is printed for each trial that differs, fails, or runs eagerly, and the exit code is 1 if one differs or
fails.
"""

from __future__ import annotations

import argparse
import copy
import math
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from torch import distributed

from ablate.contracts.checking import CONTRACTS, settings
from ablate.errors import AblateError
from ablate.spec.base import Kinded
from ablate.spec.sentences import describe
from ablate.spec.space_fields import CheckpointInterval
from ablate.spec.sublayers import MIXERS, MixerSpec
from ablate.spec.variant import VariantSpec
from ablate.training.events import Checkpoint, Diverged, Measurement, TrialWarning
from ablate.training.loop import train
from ablate.training.members import Member
from ablate.training.sharding import Ranks
from benchmarks.machine import OWN_SOURCE

_STEPS = 12
_NATS = 2e-3
"""The largest difference of losses in float32: sums in another order, over twelve steps of an optimizer."""
_ROUNDED_NATS = 3e-2
"""The same in bfloat16 and TF32."""
_NOISY_NATS = 0.3
"""The same with dropout, whose noise differs between devices."""
_SHARE = 0.05
"""The largest difference of a metric that counts right answers, of which small validation sets have few."""
_MODEL: dict[str, Any] = {"family": "decoder", "depth": 2, "width": 64, "heads": 4}
_BLOCK: dict[str, Any] = {"mixer": "attention", "mlp": "plain", "norm": "rms"}
_RECALL: dict[str, Any] = {"kind": "recall", "context": 64, "pairs": 8, "symbols": 64, "validation_rows": 64}
_LISTOPS: dict[str, Any] = {"kind": "listops", "shortest": 16, "longest": 64, "train_rows": 100, "validation_rows": 64}
_BESIDE: dict[tuple[str, str], dict[str, Any]] = {
    ("residuals", "normalised"): {"norm": "none"},
    ("mlps", "none"): {"skips": {"mlp": 0}},
}
"""What else the block of a kind needs, by its family and name."""
_WAYS: dict[str, dict[str, Any]] = {
    "tf32": {"precision": "tf32"},
    "bf16": {"precision": "bf16"},
    "compiled blocks": {"compile": "blocks"},
    "compiled blocks in bf16": {"compile": "blocks", "precision": "bf16"},
    "recomputed blocks": {"recompute": "blocks"},
    "recomputed blocks in bf16": {"recompute": "blocks", "precision": "bf16"},
    "compiled and recomputed blocks": {"compile": "blocks", "recompute": "blocks"},
    "chunked logits": {"loss_chunk": 100},
    "chunked logits in bf16": {"loss_chunk": 100, "precision": "bf16"},
    "micro-batches": {"micro_batch": 2},
    "everything": {"precision": "bf16", "recompute": "blocks", "loss_chunk": 100, "micro_batch": 2},
    "growing batches": {"batch_growth": {"kind": "stages", "shares": [0.25, 0.5], "until": [0.4, 0.7]}},
    "moving average of the weights": {"average": {"kind": "ema", "decay": 0.9}},
    "mean of the last weights": {"average": {"kind": "last", "count": 2, "share": 0.5}},
    "frozen parts": {"freeze": ["mixer", "embedding"]},
    "insides": {"insides": "evaluations"},
    "recorded blocks": {"record_blocks": True},
    "rounded weights": {"rounded_bits": [8, 4]},
    "other lengths": {"evaluate_at": {"context": [32, 128]}},
    "clipped gradients": {"optimizer": {"lr": 1e-3, "clip": 0.1}},
}

_WITH_KERNELS = ("gated_deltanet", "kimi_delta_attention", "rwkv7", "retention", "mamba2", "gated_linear_attention")
"""Mixers for which flash-linear-attention has kernels, which are used in bfloat16."""


@dataclass(frozen=True, slots=True)
class Case:
    """Trials that are trained together on each device.

    Attributes:
        specs: One trial, or those of a pack.
        resumed: Whether the run on a GPU is interrupted at half of its steps and resumed from its checkpoint.
        divided: Whether the run on a GPU divides its weights (FSDP2), in a group of one process.
    """

    specs: tuple[VariantSpec, ...]
    resumed: bool = False
    divided: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """Final metrics by name, with one value for each member; the members that diverged; and warnings."""

    metrics: Mapping[str, list[float]]
    diverged: tuple[int, ...]
    warning: str


def _variant(model: Mapping[str, Any], task: Mapping[str, Any] = _RECALL, **training: Any) -> VariantSpec:
    usual = {"steps": _STEPS, "batch_size": 8, "optimizer": {"lr": 1e-3}, "evaluations": 2}
    return VariantSpec.model_validate({"model": model, "task": task, "training": {**usual, **training}})


def _trial(family: str, spec: Kinded) -> VariantSpec:
    """The trial in which a kind of a family is tried."""
    plain = spec.model_dump(mode="json")
    if plain["kind"] == "listops":
        return _variant({**_MODEL, "family": "encoder", "block": _BLOCK, "head": {"pooling": "mean"}}, _LISTOPS)
    if family == "tasks":
        return _of_task(spec)
    if family in ("optimizers", "schedules"):
        return _variant({**_MODEL, "block": _BLOCK}, **{family.removesuffix("s"): plain})
    if family in ("positions", "initialisers"):
        return _variant({**_MODEL, "block": _BLOCK, family.removesuffix("s").replace("position", "positions"): plain})
    block = {**_BLOCK, family.removesuffix("s"): plain, **_BESIDE.get((family, plain["kind"]), {})}
    if isinstance(spec, MixerSpec) and not spec.causal_form:
        model = {**_MODEL, "family": "encoder", "block": block, "head": {"pooling": "mean"}}
        return _variant(model, _LISTOPS)
    return _variant({**_MODEL, "block": block})


def _of_task(spec: Any) -> VariantSpec:
    context = CONTRACTS["tasks"].contexts(spec)[0]
    model: dict[str, Any] = {**_MODEL, "family": context.model_family, "block": _BLOCK}
    if spec.pooled or (spec.pooled is None and context.model_family == "dual_encoder"):
        model["head"] = {"pooling": "mean"}
    if context.model_family == "encoder_decoder":
        model["decoder"] = {"depth": 1, "mixer": "attention"}
    return _variant(model, spec.model_dump(mode="json"))


def _changed_once(kind: type[Kinded], given: Mapping[str, Any]) -> Iterator[Kinded]:
    first = None
    for spec in settings(kind, given):
        first = first or spec
        if sum(getattr(spec, name) != getattr(first, name) for name in kind.model_fields) <= 1:
            yield spec


@cache
def cases() -> dict[str, Case | str]:
    """By what is tried; a text says why a setting cannot be tried."""
    return {**_of_kinds(), **_of_training()}


def _of_kinds() -> dict[str, Case | str]:
    found: dict[str, Case | str] = {}
    families = ("mixers", "mlps", "norms", "positions", "residuals", "initialisers", "optimizers", "schedules", "tasks")
    for family in families:
        contract = CONTRACTS[family]
        for kind, member in contract.family.members().items():
            given = {**contract.given, **member.example, **(contract.smaller if family == "tasks" else {})}
            fixed = {name: value for name, value in given.items() if name in member.model_fields}
            tried = _changed_once(member, fixed)
            for spec in [next(tried)] if family == "tasks" else tried:
                name = f"{family.removesuffix('s')} {_shown(kind, spec, member, fixed)}"
                try:
                    found[name] = Case((_trial(family, spec),))
                except (ValidationError, AblateError) as error:
                    found[name] = _reason(error)
    return found


def _of_training() -> dict[str, Case | str]:
    plain = {**_MODEL, "block": _BLOCK, "positions": "rotary"}
    found = {name: Case((_variant(plain, **way),)) for name, way in _WAYS.items()}
    for mixer in _WITH_KERNELS:
        block = {**_BLOCK, "mixer": {**MIXERS.members()[mixer].example, "kind": mixer}}
        found[f"{mixer} in bf16"] = Case((_variant({**_MODEL, "block": block}, precision="bf16"),))
    noisy = {**plain, "dropout": 0.1, "block": {**_BLOCK, "mixer": {"kind": "attention", "dropout": 0.1}}}
    for name in ("bf16", "recomputed blocks", "micro-batches"):
        found[f"dropout, {name}"] = Case((_variant(noisy, **_WAYS[name]),))
    text = {"kind": "language_model", "data": OWN_SOURCE, "tokenizer": "bytes", "context": 64, "validation_windows": 32}
    growth = {"kind": "stages", "shares": [0.25], "until": [0.5]}
    averaged = _variant(plain, precision="bf16", average={"kind": "ema", "decay": 0.9})
    pack = tuple(_variant(plain, optimizer={"lr": rate}) for rate in (1e-3, 2e-3, 4e-3, 1e-3))
    calm, wild = (_variant(plain, optimizer={"kind": "sgd", "lr": rate}) for rate in (1e-3, 1e30))
    return {
        **found,
        "growing context": Case((_variant(plain, text, context_growth=growth),)),
        "a pack": Case(pack),
        "a pack in bf16": Case(
            tuple(_variant(plain, optimizer=spec.training.optimizer, precision="bf16") for spec in pack)
        ),
        "a pack whose members diverge": Case((calm, wild, calm, wild, wild)),
        "resumed": Case(pack[:1], resumed=True),
        "a pack, resumed": Case(pack, resumed=True),
        "resumed in bf16 with an average": Case((averaged,), resumed=True),
        "divided weights": Case((_variant(plain),), divided=True),
        "divided weights in bf16": Case((_variant(plain, precision="bf16"),), divided=True),
    }


def _shown(kind: str, spec: Kinded, member: type[Kinded], given: Mapping[str, Any]) -> str:
    usual = member.model_validate(given)
    changed = [f"{name}={_brief(getattr(spec, name))}" for name in member.model_fields
               if getattr(spec, name) != getattr(usual, name)]  # fmt: skip
    return " ".join([kind, *changed])


def _brief(value: object) -> object:
    return value.canonical_json() if isinstance(value, Kinded) else value


def _reason(error: ValidationError | AblateError) -> str:
    return next(iter(describe(error)))[1] if isinstance(error, ValidationError) else str(error).splitlines()[0]


def outcome(case: Case, device: str, folder: Path) -> Outcome:
    """Train the trials of a case on a device."""
    spec = case.specs[0]
    task = spec.task.open(folder, spec.task.prepare(folder, lambda line: None))
    members = [Member(spec, seed) for seed, spec in enumerate(case.specs)]
    start = None
    if case.resumed:
        for event in train(members, task, torch.device(device), save=CheckpointInterval(steps=_STEPS // 2)):
            if isinstance(event, Checkpoint):
                start = copy.deepcopy(event.state)  # it shares memory with the pack
                break
    with _group(device, folder) if case.divided else nullcontext(Ranks()) as ranks:
        events = list(train(members, task, torch.device(device), start=start, ranks=ranks))
    last = [event for event in events if isinstance(event, Measurement)][-1]
    metrics = {**last.metrics, "train_loss": last.train_loss}
    return Outcome(
        metrics,
        tuple(event.member for event in events if isinstance(event, Diverged)),
        "; ".join(dict.fromkeys(event.text for event in events if isinstance(event, TrialWarning))),
    )


@contextmanager
def _group(device: str, folder: Path) -> Iterator[Ranks]:
    backend = "nccl" if device == "cuda" else "gloo"
    distributed.init_process_group(backend, init_method=f"file://{folder}/meeting", rank=0, world_size=1)
    try:
        yield Ranks(shard=True)
    finally:
        distributed.destroy_process_group()


def compared(name: str, device: str) -> tuple[str, str, float, str]:
    """Name, state (`ok`, `differs`, `fails` or `skipped`), the largest difference of losses, and what to say."""
    case = cases()[name]
    if isinstance(case, str):
        return name, "skipped", math.nan, case
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        try:
            ours = outcome(case, device, Path(folder))
        except Exception as error:
            return name, "fails", math.nan, f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
        plain = Case(tuple(_in_float32(spec) for spec in case.specs))
        theirs = outcome(plain, "cpu", Path(folder))
    rounded = case.specs[0].training.precision != "fp32"
    nats, worst, off = _ROUNDED_NATS if rounded else _NATS, 0.0, []
    if case.specs[0].model.dropout:
        nats = _NOISY_NATS
    for metric, values in theirs.metrics.items():
        for ours_of, theirs_of in zip(ours.metrics.get(metric, []), values, strict=True):
            gap = abs(ours_of - theirs_of) if ours_of == ours_of or theirs_of == theirs_of else 0.0
            if "loss" in metric:
                worst = max(worst, gap)
            scale = max(1.0, abs(theirs_of)) if theirs_of == theirs_of else 1.0
            if not gap <= (nats if "loss" in metric else _SHARE) * scale:
                off.append(f"{metric} {ours_of:.6g} instead of {theirs_of:.6g}")
    if ours.diverged != theirs.diverged:
        off.append(f"members {ours.diverged} diverged instead of {theirs.diverged}")
    if ours.metrics.keys() != theirs.metrics.keys():
        off.append(f"other metrics: {sorted(ours.metrics.keys() ^ theirs.metrics.keys())}")
    return name, "differs" if off else "ok", worst, "; ".join([*off[:3], ours.warning]).strip("; ")


def _in_float32(spec: VariantSpec) -> VariantSpec:
    return spec.model_copy(
        update={"training": spec.training.model_copy(update={"precision": "fp32", "compile": "none"})}
    )


def campaign(arguments: list[str]) -> int:
    """Run all cases, print those that need a look, and a line of totals."""
    parser = argparse.ArgumentParser(prog="gpu_kinds")
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--only", default="", help="a part of the names to try")
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args(arguments)
    names = sorted((name for name in cases() if options.only in name), key=lambda name: "=" in name)
    with ProcessPoolExecutor(options.processes, mp_context=get_context("spawn")) as pool:
        running = [pool.submit(compared, name, options.device) for name in names]
        rows = []
        for done in as_completed(running):
            rows.append(done.result())
            name, state, difference, said = rows[-1]
            if state != "ok" or said:
                print(f"{state:8}{difference:9.1e}  {name}: {said}", flush=True)
    counts = {state: sum(row[1] == state for row in rows) for state in ("ok", "differs", "fails", "skipped")}
    eager = sum("eagerly" in row[3] for row in rows)
    known = [row[2] for row in rows if row[1] == "ok"]
    print(f"{len(rows)} trials: {counts}; {eager} run eagerly; losses that agree differ by at most {max(known):.1e}")
    return 1 if counts["differs"] or counts["fails"] else 0
