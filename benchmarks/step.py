"""A training step of the variants of the first study, beside its matrix products alone and a plain torch loop.

`python -m benchmarks step [--json] [--smoke]`. All ways run in turns in one process with one thread, and processor time
is measured, so other load on the machine affects all of them. Ratios are medians over the rounds.

- The *floor* is the time of the matrix products of the step and nothing else: forward, both gradients, and attention
  by two products forward and four backward. It is the faster of torch's products and ours.
- *Plain torch* is the same model in `benchmarks/plain_model.py`: `nn.Linear`, SDPA, `F.cross_entropy`, fused AdamW.
  Both start from the same values and see the same batches; their losses are compared before anything is timed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

from ablate.nn.kernels.processor import keep_freed_memory
from ablate.nn.kernels.product import multiply
from ablate.spec.reading import load_space
from ablate.spec.space import SpaceSpec
from ablate.spec.task import Task
from ablate.spec.variant import VariantSpec
from ablate.timing import side_by_side
from ablate.training.members import Member
from ablate.training.pack import Pack
from benchmarks.machine import OWN_SOURCE, machine
from benchmarks.plain_model import PlainModel, PlainTraining

SPACE = Path("spaces/simplify_block.yaml")
WIDTHS = {64: 0.6, 256: 0.75}
"""Width of the model to the share of the floor that is aimed at."""
HEADS = 4
AIM = 1.3
"""Plain torch over ours."""
CHECKED = 5
"""Steps whose losses are compared."""
TOLERANCE = 1e-4
WAYS = ("eager", "blocks", "whole", "plain", "plain compiled")
"""Ours eagerly, with compiled blocks, compiled as a whole; plain torch eagerly and compiled as a whole."""
_OPTIONS = {"fallback_random": True}
"""Of the compiler, as `training.compile: blocks` sets them."""


@dataclass(frozen=True, slots=True)
class Row:
    """A variant at a width.

    Attributes:
        variant: Its name in the space.
        width: Of the model.
        share_of_floor: Time of the products alone over ours.
        versus_plain_torch: Time of the plain loop over ours.
        milliseconds: Of our step.
    """

    variant: str
    width: int
    share_of_floor: float
    versus_plain_torch: float
    milliseconds: float


def measured(
    space: SpaceSpec, widths: Sequence[int], cache: Path, seconds: float, names: Sequence[str] = ()
) -> Iterator[Row]:
    """Measure the variants of a space with these names, or all, about `seconds` for each way."""
    for name, variant, task in resolved(space, widths, cache, names):
        yield row(name, variant, task, seconds)


def resolved(
    space: SpaceSpec, widths: Sequence[int], cache: Path, names: Sequence[str] = ()
) -> Iterator[tuple[str, VariantSpec, Task]]:
    """The variants of a space with these names, or all, at these widths, and their opened task."""
    opened = space.task.open(cache, space.task.prepare(cache, lambda line: None))
    settings = {"baseline": dict[str, str]()}
    settings |= {f"{switch}={setting}": {switch: setting} for switch, setting in space.single_settings()}
    settings |= {name: dict(chosen) for name, chosen in space.variants.items()}
    settings = {name: chosen for name, chosen in settings.items() if not names or name in names}
    for width in widths:
        for name, chosen in settings.items():
            yield name, space.resolve(chosen, {"model.width": width, "model.heads": HEADS}), opened


def row(name: str, variant: VariantSpec, task: Task, seconds: float) -> Row:
    """Measure one variant after a check that both ways give equal losses."""
    times, floor = timed(name, variant, task, ("eager", "plain"), seconds)
    ours = times["eager"]

    def ratio(taken: list[float]) -> float:
        return statistics.median(other / own for other, own in zip(taken, ours, strict=True))

    return Row(name, variant.model.width, ratio(floor), ratio(times["plain"]), 1000 * statistics.median(ours))


def timed(
    name: str, variant: VariantSpec, task: Task, ways: Sequence[str], seconds: float
) -> tuple[dict[str, list[float]], list[float]]:
    """Seconds of a step in each round by way, and of its matrix products; checks that all ways give equal losses.

    Raises:
        AssertionError: The losses differ.
    """
    with ExitStack() as stack:
        trainings = {way: Training(variant, task, way) for way in ways}
        for training in trainings.values():
            stack.callback(training.close)
        for step in range(1, CHECKED + 1):
            losses = {way: training.loss(step) for way, training in trainings.items()}
            if max(losses.values()) - min(losses.values()) > TOLERANCE * min(losses.values()):
                raise AssertionError(f"{name}: the losses of step {step} differ: {losses}")
        uncompiled = PlainModel(variant.model, task.shape.vocabulary, task.shape.context)
        products = recorded(uncompiled, task.train_batch(0, 1, variant.training.batch_size))
        calls = [training.call() for training in trainings.values()]
        floors = [replay(products, torch.bmm), replay(products, multiply)]
        *times, bmm, own = side_by_side([*calls, *floors], "cpu", seconds)
    return dict(zip(ways, times, strict=True)), min(bmm, own, key=statistics.median)


class Training:
    """Steps of a variant in one way.

    Args:
        variant: The variant.
        task: Its opened task.
        way: One of `WAYS`.
    """

    def __init__(self, variant: VariantSpec, task: Task, way: str) -> None:
        if way == "blocks":
            compiled = variant.training.model_copy(update={"compile": "blocks"})
            variant = variant.model_copy(update={"training": compiled})
        self.steps = variant.training.steps
        self._task, self._batch = task, variant.training.batch_size
        self._pack = Pack([Member(variant, 0)], task, torch.device("cpu"))
        if way == "whole":
            self._pack.model.compile(options=_OPTIONS)
        self._plain: PlainTraining | None = None
        if way.startswith("plain"):
            self.model = PlainModel(variant.model, task.shape.vocabulary, task.shape.context)
            self.model.start_from(self._pack.model.state_dict())
            self._plain = PlainTraining(self.model, variant.training)
            if way == "plain compiled":
                self.model.compile()

    def close(self) -> None:
        """Stop preparing batches."""
        self._pack.batches.close()

    def batch(self, step: int) -> dict[str, Tensor]:
        """The batch of a step, as plain torch takes it."""
        return self._task.train_batch(0, step, self._batch)

    def loss(self, step: int) -> float:
        """Run a step; the loss before it."""
        if self._plain is not None:
            batch = self.batch(step)
            return self._plain.step(step, batch["inputs"], batch["targets"]).item()
        self._pack.step(step)
        return self._pack.last_loss()[0]

    def call(self) -> Callable[[], object]:
        """A function that runs one more step."""
        if self._plain is not None:
            plain, batch = self._plain, self.batch(1)
            return lambda: plain.step(CHECKED + 1, batch["inputs"], batch["targets"])

        def step() -> None:
            torch.set_flush_denormal(True)  # as an open pack does
            self._pack.step(CHECKED + 1 + self._pack.steps % (self.steps - CHECKED - 1))
            list(self._pack.remove_diverged())
            torch.set_flush_denormal(False)

        return step


class _Products(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records the factors of all matrix products, as [K, N, I] and [K, I, O]."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found: list[tuple[Tensor, Tensor]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (torch.ops.aten.mm.default, torch.ops.aten.bmm.default):
            x, y = (_like(factor) for factor in args)
            self.found.append((x, y) if x.dim() == 3 else (x[None], y[None]))
        assert func not in (torch.ops.aten.addmm.default, torch.ops.aten.baddbmm.default), "a product with a sum"
        return func(*args, **(kwargs or {}))


def _like(x: Tensor) -> Tensor:
    """Noise of the shape and the strides of a tensor."""
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype).normal_()


def recorded(model: PlainModel, batch: dict[str, Tensor]) -> list[tuple[Tensor, Tensor]]:
    """The factors of the products of a step; attention is made by products."""
    with _Products() as products, sdpa_kernel(SDPBackend.MATH):
        logits = model(batch["inputs"])
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch["targets"].flatten()).backward()  # type: ignore[no-untyped-call]
    found: list[tuple[Tensor, Tensor]] = products.found
    return found


def replay(products: list[tuple[Tensor, Tensor]], product: Callable[[Tensor, Tensor], Tensor]) -> Callable[[], object]:
    """A function that computes the products and drops them."""

    @torch.no_grad()
    def run() -> None:
        for x, y in products:
            product(x, y)

    return run


def _measured(smoke: bool, names: Sequence[str] = ()) -> Iterator[Row]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    keep_freed_memory()
    space = load_space(SPACE, data=OWN_SOURCE)
    if smoke:
        space = space.model_copy(update={"variants": {}, "switches": {"norm": space.switches["norm"]}})
    try:
        with tempfile.TemporaryDirectory() as cache:
            yield from measured(space, (16,) if smoke else tuple(WIDTHS), Path(cache), 0.0 if smoke else 1.0, names)
    finally:
        torch.set_num_threads(threads)


def main(smoke: bool = False, names: Sequence[str] = ()) -> None:
    """Print the table."""
    print("one thread, batches of 8 x 64 tokens, 4 layers, 4 heads; medians of rounds in turns, in processor time")
    aims = ", ".join(f"{aim:.0%} of the floor at width {width}" for width, aim in WIDTHS.items())
    print(f"goals: {aims}, {AIM} x plain\n")
    print("| variant | width | ours ms | share of the floor | plain torch / ours |\n|---|---|---|---|---|")
    for each in _measured(smoke, names):
        met = each.share_of_floor >= WIDTHS.get(each.width, 0), each.versus_plain_torch >= AIM
        share, plain = (("" if each else " (missed)") for each in met)
        print(
            f"| {each.variant} | {each.width} | {each.milliseconds:.1f} | {each.share_of_floor:.0%}{share} |"
            f" {each.versus_plain_torch:.2f}{plain} |",
            flush=True,
        )


def campaign(arguments: Sequence[str]) -> int:
    """Print the table, or with `--json` its rows as JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks step", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the rows as JSON and nothing else")
    parser.add_argument("--smoke", action="store_true", help="run at the smallest size")
    parser.add_argument("--variants", nargs="*", default=(), help="names of variants; unless given, all")
    asked = parser.parse_args(arguments)
    if asked.json:
        names = ("variant", "width", "share_of_floor", "versus_plain_torch")
        rows = [{name: asdict(each)[name] for name in names} for each in _measured(asked.smoke, asked.variants)]
        print(json.dumps({"rows": rows}))
    else:
        main(asked.smoke, asked.variants)
        print(f"\n{machine()}")
    return 0
