"""Predicted against measured time and memory of trials on a GPU.

`python -m benchmarks gpu_forecast [--small]`. The predictions are those of `ablate plan --on`. Memory is the most that
torch's allocator has given out (*in use*) and taken from the device (*reserved*, with the pool of the CUDA graph); an
evaluation is part of it. Each row prints the ratio of prediction to measurement.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from ablate.devices import known_device
from ablate.nn.model import model_cost
from ablate.planning.memory import trial_bytes
from ablate.planning.other_machine import Machine
from ablate.planning.plan import Variant
from ablate.spec.variant import VariantSpec
from ablate.training.members import Member
from ablate.training.pack import Pack
from benchmarks.predicted_memory import SPACES, space

_WARM_UP, _TIMED = 8, 10
_GPT2: dict[str, Any] = {
    "task": {"kind": "recall", "context": 1024, "pairs": 8, "symbols": 32768, "validation_rows": 32},
    "model": "gpt2",
}
_LARGE: dict[str, dict[str, Any]] = {
    "GPT-2 small, bf16": {"precision": "bf16"},
    "GPT-2 small, bf16, compiled": {"precision": "bf16", "compile": "blocks"},
    "GPT-2 small, bf16, recomputed": {"precision": "bf16", "recompute": "blocks"},
    "GPT-2 small, tf32": {"precision": "tf32"},
    "GPT-2 small, fp32": {"precision": "fp32"},
}
"""Settings of training in batches of 32 x 1,024 tokens, in micro-batches of 16."""
_LONG: dict[str, Any] = {
    "attention": "attention",
    "MoBA": {"kind": "attention", "blocks": {"size": 64, "active": 8}},
    "NSA": {"kind": "native_sparse_attention", "size": 64, "active": 8, "last": 512},
    "gated DeltaNet": "gated_deltanet",
}
"""Mixers of 4 layers of 512 in bfloat16, in batches of 2 x 16,384 tokens."""


def measure(name: str, spec: VariantSpec) -> None:
    """Print the row of a trial."""
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before, held = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
    device = torch.device("cuda")
    with tempfile.TemporaryDirectory() as folder:
        task = spec.task.open(Path(folder), spec.task.prepare(Path(folder), lambda line: None))
        with Pack([Member(spec, 0)], task, device) as pack:
            seconds = []
            for step in range(1, _WARM_UP + _TIMED + 1):
                begin = time.perf_counter()
                pack.step(step)
                torch.cuda.synchronize()
                seconds.append(time.perf_counter() - begin)
            pack.point()
            flops, warning = pack.totals.whole[1], pack.eager_warning
    took = statistics.median(seconds[_WARM_UP:])
    in_use = torch.cuda.max_memory_allocated() - before
    reserved = torch.cuda.max_memory_reserved() - held
    shape = task.shape
    cost = model_cost(spec.model, vocabulary=shape.vocabulary, context=shape.context)
    variant = Variant("", {}, spec, "", cost, flops, "", vocabulary=shape.vocabulary, context=shape.context)
    here = known_device(torch.cuda.get_device_name())
    predicted = Machine(here, 1).seconds(variant) / spec.training.steps if here else float("nan")
    memory = trial_bytes(variant, device="cuda")
    share = flops / spec.training.steps / took / here.peak(spec.training.precision) if here else float("nan")
    print(
        f"{name:40}{1000 * took:9.2f} ms{predicted / took:7.2f}{share:8.1%}"
        f"{in_use / 2**20:10.0f} MiB{memory / in_use:7.2f}{memory / reserved:7.2f}  {warning}",
        flush=True,
    )


def _spec(training: Mapping[str, Any]) -> VariantSpec:
    usual = {"steps": _WARM_UP + _TIMED, "batch_size": 32, "micro_batch": 16, "optimizer": {"lr": 6e-4}}
    return VariantSpec.model_validate({**_GPT2, "training": {**usual, "evaluations": 1, **training}})


def _long(mixer: Any) -> VariantSpec:
    task = {"kind": "recall", "context": 16_384, "pairs": 8, "symbols": 256, "validation_rows": 2}
    block = {"mixer": mixer, "mlp": "plain", "norm": "rms"}
    model = {"family": "decoder", "depth": 4, "width": 512, "heads": 8, "positions": "none", "block": block}
    training = {"steps": _WARM_UP + _TIMED, "batch_size": 2, "precision": "bf16", "optimizer": {"lr": 1e-3}}
    return VariantSpec.model_validate({"task": task, "model": model, "training": {**training, "evaluations": 1}})


def campaign(arguments: list[str]) -> int:
    """Print the rows of all trials."""
    parser = argparse.ArgumentParser(prog="gpu_forecast")
    parser.add_argument("--small", action="store_true", help="without GPT-2 small")
    options = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        print("torch finds no CUDA device; run this on a machine with a GPU.")
        return 0
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    print(f"{'':40}{'step':>12}{'pred.':>7}{'of peak':>8}{'in use':>14}{'pred.':>7}{'reserved':>9}")
    rows = {} if options.small else {name: _spec(training) for name, training in _LARGE.items()}
    small = {name: space(name) for name in SPACES}
    longer = {"steps": _WARM_UP + _TIMED}
    rows |= {f"{name}, 16,384 tokens": _long(mixer) for name, mixer in _LONG.items()}
    rows |= {
        name: spec.model_copy(update={"training": spec.training.model_copy(update=longer)})
        for name, spec in small.items()
    }
    for name, spec in rows.items():
        try:
            measure(name, spec)
        except RuntimeError as error:  # continue with the other rows
            print(f"{name:40} fails: {type(error).__name__}: {str(error).splitlines()[0]}", flush=True)
    return 0
