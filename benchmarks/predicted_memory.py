"""Predicted against measured memory of 20 unlike trials, each in a process of its own.

`python -m benchmarks predicted_memory`. *In use* is the most that the trial, with its evaluations, had allocated at
once, beyond what was left of a trial with a narrow model before it: libraries, threads and data. The prediction is that
of `ablate plan`. *Process* is the peak of the process by the same account: it has the holes between tensors too, into
which the C library's allocator can put no tensor any more.
"""

from __future__ import annotations

import ctypes
import gc
import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import psutil
import torch

from ablate.nn.kernels.processor import keep_freed_memory
from ablate.nn.model import model_cost
from ablate.planning.memory import trial_bytes
from ablate.planning.plan import Variant
from ablate.spec.task import Task
from ablate.spec.variant import VariantSpec
from ablate.training.loop import train
from ablate.training.members import Member

MOST = 1.25
"""The largest ratio of the two, either way, that meets the goal."""
_MIB = 2**20
_DECODER: dict[str, Any] = {"family": "decoder", "depth": 4, "width": 256, "heads": 4}


def _decoder(
    batch: int, tokens: int = 256, symbols: int = 256, model: Mapping[str, Any] | None = None, **training: Any
) -> dict[str, Any]:
    return {
        "task": {"kind": "recall", "context": tokens, "pairs": 8, "symbols": symbols, "validation_rows": 64},
        "model": {**_DECODER, **(model or {"block": "pre_ln"})},
        "training": {"batch_size": batch, **training},
    }


def _block(**parts: Any) -> dict[str, Any]:
    return {"block": {"norm": "rms", "mixer": "attention", "mlp": "plain", **parts}}


_HYBRID = {**_block(mixer="gated_deltanet"), "pattern": [{}, {}, {}, {"mixer": "attention"}]}
SPACES: dict[str, dict[str, Any]] = {
    "attention": _decoder(8),
    "attention, one row": _decoder(1),
    "attention, two rows of 64 tokens": _decoder(2, 64),
    "20,000 ids": _decoder(4, symbols=20_000),
    "20,000 ids, one row of 64 tokens": _decoder(1, 64, 20_000),
    "20,000 ids, chunked logits": _decoder(4, symbols=20_000, loss_chunk=128),
    "micro-batches of 2": _decoder(16, micro_batch=2),
    "recomputed blocks": _decoder(16, recompute="blocks"),
    "2,048 tokens": _decoder(1, 2048),
    "bfloat16": _decoder(8, precision="bf16"),
    "Muon, averaged weights": _decoder(
        2, optimizer={"kind": "muon", "lr": 1e-3}, average={"kind": "last", "count": 2, "share": 0.5}
    ),
    "SOAP": _decoder(2, optimizer={"kind": "soap", "lr": 1e-3}),
    "gated MLP, dropout": _decoder(8, model={**_block(mlp={"kind": "gated", "activation": "silu"}), "dropout": 0.1}),
    "mixture of 8 experts": _decoder(8, model=_block(mlp={"kind": "mixture", "experts": 8})),
    "linear attention": _decoder(8, model=_block(mixer="linear")),
    "delta rule and attention": _decoder(8, model=_HYBRID),
    "delta rule and attention, one row": _decoder(1, model=_HYBRID),
    "Mamba-2": _decoder(8, model=_block(mixer="mamba2")),
    "hyper-connections": _decoder(8, model=_block(residual="hyper_connections")),
    "encoder": {
        "task": {"kind": "listops", "shortest": 64, "longest": 256, "train_rows": 200, "validation_rows": 100},
        "model": {**_DECODER, "family": "encoder", "block": "pre_ln", "head": {"pooling": "mean"}},
        "training": {"batch_size": 8},
    },
}
_TRAINING = {"steps": 3, "optimizer": {"lr": 1e-3}, "evaluations": 2}


def space(name: str, **model: Any) -> VariantSpec:
    """The variant of a row, with changes of its model."""
    plain = SPACES[name]
    return VariantSpec.model_validate(
        {**plain, "model": {**plain["model"], **model}, "training": {**_TRAINING, **plain["training"]}}
    )


def measured(name: str, folder: Path) -> dict[str, float]:
    """Bytes of a trial in this process: predicted, most in use, and peak of the process."""
    keep_freed_memory()
    torch.set_num_threads(1)
    spec = space(name)
    task = spec.task.open(folder, spec.task.prepare(folder, lambda line: None))
    narrow = space(name, width=32, depth=1, pattern=[])
    if narrow.task.kind_name() == "recall":
        changes = {"context": 16, "pairs": 2, "symbols": 64}
        narrow = narrow.model_copy(update={"task": narrow.task.model_copy(update=changes)})
    _train(narrow, narrow.task.open(folder, narrow.task.prepare(folder, lambda line: None)))
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # forgets the peak
    before, in_use = psutil.Process().memory_info().rss, InUse()
    with in_use:
        _train(spec, task)
    return {"predicted": predicted(spec, task), "in_use": in_use.most, "process": _peak() - before}


class InUse:
    """Context manager: watches the memory that the C library has given out, from another thread.

    Attributes:
        most: The most that it has seen, in bytes beyond what was in use at the beginning.
    """

    class _Info(ctypes.Structure):
        """`struct mallinfo2` of glibc."""

        _fields_: ClassVar = [
            (name, ctypes.c_size_t)
            for name in (
                *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
                *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
            )
        ]

    def __init__(self) -> None:
        self._read = ctypes.CDLL(None).mallinfo2
        self._read.restype = self._Info
        self._begin = self._now()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self.most = 0

    def __enter__(self) -> None:
        sys.setswitchinterval(1e-4)
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _now(self) -> int:
        info = self._read()
        return int(info.uordblks + info.hblkhd)

    def _watch(self) -> None:
        while not self._ended.wait(0.0005):
            self.most = max(self.most, self._now() - self._begin)


def predicted(spec: VariantSpec, task: Task) -> int:
    """The bytes of a trial as `ablate plan` predicts them."""
    shape = task.shape
    cost = model_cost(spec.model, vocabulary=shape.vocabulary, context=shape.context, classes=shape.classes)
    return trial_bytes(Variant("", {}, spec, "", cost, 0.0, "", vocabulary=shape.vocabulary, context=shape.context))


def _train(spec: VariantSpec, task: Task) -> None:
    for _ in train([Member(spec, 0)], task, torch.device("cpu")):
        pass


def _peak() -> int:
    """The largest memory of this process since its peak was forgotten."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def rows(names: Iterable[str]) -> Iterator[tuple[str, dict[str, float]]]:
    """The rows of these names, each measured in a process of its own, one after another."""
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            command = [sys.executable, "-m", __name__, name, folder]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            yield name, json.loads(done.stdout)


def main(smoke: bool = False) -> None:
    """Print the table."""
    if not hasattr(ctypes.CDLL(None), "mallinfo2"):
        print("only glibc tells what is in use")
        return
    print("| trial | predicted, MiB | in use, MiB | ratio | process, MiB |\n|---|---|---|---|---|")
    off = 0
    for name, row in rows(["attention, two rows of 64 tokens"] if smoke else SPACES):
        ratio = row["predicted"] / row["in_use"]
        missed = not 1 / MOST <= ratio <= MOST
        off += missed
        sizes = [f"{row[key] / _MIB:.0f}" for key in ("predicted", "in_use", "process")]
        said = f"{ratio:.2f}{' (missed)' if missed else ''}"
        print(f"| {name} | {sizes[0]} | {sizes[1]} | {said} | {sizes[2]} |", flush=True)
    print(f"\n{off} are more than {MOST - 1:.0%} off")


if __name__ == "__main__":
    print(json.dumps(measured(sys.argv[1], Path(sys.argv[2]))))
