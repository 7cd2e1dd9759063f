"""Mixers compared with the fastest plain implementations, forward and backward in float32 on the CPU.

`python -m benchmarks mixers [--tables NAME ...]`. Each row is timed in turns with its baselines. Outputs and gradients
are compared with those of a reference.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
import torch.nn.functional as F
from torch import Tensor

from ablate.kinds.mixers.attention import AttentionSpec
from ablate.kinds.mixers.attention_module import Attention
from ablate.kinds.mixers.attention_parts import ForgetSpec
from ablate.kinds.mixers.bigbird import BigBirdSpec
from ablate.kinds.mixers.blocks import BlocksSpec
from ablate.kinds.mixers.differential_attention import DifferentialAttentionSpec
from ablate.kinds.mixers.feature_maps import FastFoodSpec, LinearSpec, PerformerSpec
from ablate.kinds.mixers.gated_deltanet import GatedDeltaNetSpec
from ablate.kinds.mixers.gated_linear_attention import GatedLinearAttentionSpec
from ablate.kinds.mixers.generative import GenerativeSpec
from ablate.kinds.mixers.gmm import GmmSpec
from ablate.kinds.mixers.kimi_delta_attention import KimiDeltaAttentionSpec
from ablate.kinds.mixers.mamba2 import Mamba2Spec
from ablate.kinds.mixers.mamba3 import Mamba3Spec
from ablate.kinds.mixers.mlstm import MLSTMSpec
from ablate.kinds.mixers.native_sparse_attention import NativeSparseAttentionSpec
from ablate.kinds.mixers.path_attention import PathAttentionSpec
from ablate.kinds.mixers.patterns import LocalSpec, Longformer, LongformerSpec, SparseSpec
from ablate.kinds.mixers.retention import RetentionSpec
from ablate.kinds.mixers.rwkv7 import RWKV7Spec
from ablate.nn.kernels import convolution, linear_attention
from ablate.nn.kernels.processor import keep_freed_memory
from ablate.nn.kernels.random_features import fourier
from ablate.nn.kernels.softmax_attention import attend
from ablate.nn.pack import initialise
from ablate.nn.pack.layer_parts import State
from ablate.nn.pack.layer_parts import step as step_of_a_token
from ablate.spec.layer import LayerContext
from ablate.spec.sublayers import MixerSpec
from ablate.timing import side_by_side
from benchmarks.machine import machine

Way = Callable[..., Tensor]

_TOLERANCE = 1e-4
_seconds = 0.5
"""Time for measuring each row."""


def main(smoke: bool = False, tables: Sequence[str] = ()) -> None:
    """Print the named tables, or all."""
    global _seconds
    most, _seconds = (1, 0.0) if smoke else (None, 0.5)
    print(f"{torch.get_num_threads()} threads; median of rounds in turns, ± half the interquartile range\n")
    print("| what | shape | baseline ms | ours ms | ratio | aim |\n|---|---|---|---|---|---|")
    for name, table in TABLES.items():
        if name in tables or not tables:
            table(most)


def campaign(arguments: Sequence[str]) -> int:
    """Print all tables, or those that are named."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks mixers", description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="run at the smallest size")
    parser.add_argument("--tables", nargs="*", default=(), choices=[*TABLES], help="which; unless given, all")
    asked = parser.parse_args(arguments)
    keep_freed_memory()  # as the workers of a study do
    main(asked.smoke, asked.tables)
    print(f"\n{machine()}, {torch.backends.cpu.get_cpu_capability()}")
    return 0


def simple_attention(most: int | None) -> None:
    """Causal Q·(KᵀV) compared with SDPA (a different function), with the T x T matrix, and with SDPA by oneDNN."""
    for shape, aim in (
        ((16, 4, 128, 16), ""),
        ((8, 4, 512, 32), "4"),
        ((4, 4, 2048, 64), "8"),
        ((1, 4, 8192, 64), "30"),
    )[:most]:
        inputs = drawn([shape] * 3)
        if shape[2] <= 2048:
            same(linear_attention.causal, square, inputs)
        row("SimpleAttention / SDPA", shape, sdpa, linear_attention.causal, inputs, aim)
        if shape[2] <= 512:
            row("SimpleAttention / square", shape, square, linear_attention.causal, inputs, "")
        else:
            same(attended, sdpa, inputs)
            row("SimpleAttention / SDPA by oneDNN", shape, attended, linear_attention.causal, inputs, "")


def depthwise(most: int | None) -> None:
    """HE, WE and ME compared with a grouped `conv1d` and with a real FFT."""
    for (batch, length, width), aim in (((16, 128, 64), ""), ((8, 512, 128), "20"), ((4, 2048, 256), "40"))[:most]:
        text = (1, batch, length, width)
        inputs = drawn([text, (1, length, width)], scale=0.05)
        same(convolution.depthwise, grouped_conv1d, inputs)
        row("HE, WE / conv1d", text, grouped_conv1d, convolution.depthwise, inputs, aim)
        row("HE, WE / real FFT", text, convolution.depthwise_fourier, convolution.depthwise, inputs, "")
        scalars = drawn([text, (1, length)], scale=0.05)
        spread = spread_conv1d(width)
        same(convolution.shared, spread, scalars)
        row("ME / conv1d", text, spread, convolution.shared, scalars, aim)


def full(most: int | None) -> None:
    """SHE compared with `conv1d`."""
    for (batch, length, width), aim in (((16, 128, 64), "6"), ((8, 256, 128), ""))[:most]:
        text = (1, batch, length, width)
        inputs = drawn([text, (1, length, width, width)], scale=0.05)
        same(convolution.full, conv1d, inputs)
        row("SHE / conv1d", text, conv1d, convolution.full, inputs, aim)


def shaped(most: int | None) -> None:
    """The whole mixer with shaping compared with that without; a ratio of 0.91 is 1.1 times the time."""
    for length in (512, 2048) if most is None else (64,):
        shape = (1, 4, length, 128)
        plain, ours = (built(spec, length) for spec in (AttentionSpec(), AttentionSpec(shaping={"kind": "shaped"})))
        assert isinstance(ours, Attention)
        same(ours, partial(by_matrix, ours), drawn([(1, 1, length, 128)]))
        row("shaped / plain attention", shape, plain, ours, drawn([shape]), "0.91")


def linear_kinds(most: int | None) -> None:
    """Whole linear mixers compared with softmax attention: width 256, 4 heads, batch 1.

    Outputs are compared with those of the same mixer by the T x T matrix, including the decay.
    """
    specs: dict[str, MixerSpec] = {
        "linear (elu)": LinearSpec(),
        "performer, 64 features": PerformerSpec(features=64),
        "gmm (rks), 32 samples": GmmSpec(samples=32),
        "fastfood (rks)": FastFoodSpec(),
        "generative (rks), 32 samples": GenerativeSpec(samples=32),
        "retention": RetentionSpec(),
        "gated linear": GatedLinearAttentionSpec(),
    }
    for length in (512, 2048) if most is None else (64,):
        shape = (1, 1, length, 256)
        for name, spec in specs.items():
            baseline, ours = (built(each, length, width=256) for each in (AttentionSpec(), spec))
            if length <= 512:  # a decay for each channel needs T x T x d weights
                same(ours, partial(with_square, ours), drawn([shape]))
            row(f"{name} / attention", shape, baseline, ours, drawn([shape]), "")
    q, k, v = (x[..., :16].detach().requires_grad_() for x in drawn([(2, 4, 512, 32)] * 3))
    features = [fourier(x, 0.25).detach().requires_grad_() for x in (q, k)]
    same(lambda q, k, v: linear_attention.attend(q, k, v, is_causal=True), quotient, [*features, v])


RECURRENT: dict[str, MixerSpec] = {
    "gated delta net": GatedDeltaNetSpec(),
    "kimi delta attention": KimiDeltaAttentionSpec(),
    "mamba-2": Mamba2Spec(),
    "mamba-3": Mamba3Spec(),
    "rwkv-7": RWKV7Spec(),
    "mlstm": MLSTMSpec(),
}


def recurrent(length: int) -> None:
    """Whole recurrent mixers in chunks compared with the same mixers token by token: width 128, 4 heads, batch 1."""
    shape = (1, 1, length, 128)
    for name, spec in RECURRENT.items():
        ours = Alone(built(spec, length))
        by_token = partial(token_by_token, ours.mixer)
        same(ours, by_token, drawn([shape]))
        row(f"{name} / token by token", shape, by_token, ours, drawn([shape]), "5")


def softmax_kinds(most: int | None) -> None:
    """Relatives of softmax attention compared with it: width 256, 4 heads, batch 1.

    Outputs are compared with those of the same mixer token by token.
    """
    specs: dict[str, MixerSpec] = {
        "forgetting": AttentionSpec(forget=ForgetSpec(kind="of_input")),
        "blocks, 4 of 64 (moba)": AttentionSpec(blocks=BlocksSpec()),
        "native sparse": NativeSparseAttentionSpec(active=4, last=128),
        "path": PathAttentionSpec(),
        "differential": DifferentialAttentionSpec(),
    }
    for length in (512, 2048) if most is None else (64,):
        shape = (1, 1, length, 256)
        for name, spec in specs.items():
            baseline, ours = (built(each, length, width=256) for each in (AttentionSpec(), spec))
            if length <= 512:
                same(ours, partial(token_by_token, ours), drawn([shape]))
            row(f"{name} / attention", shape, baseline, ours, drawn([shape]), "")


class Alone(torch.nn.Module):
    """A mixer without the tensors that it publishes for later layers."""

    def __init__(self, mixer: torch.nn.Module) -> None:
        super().__init__()
        self.mixer = mixer

    def forward(self, x: Tensor) -> Tensor:
        """[K, B, T, D] to the same."""
        made = self.mixer(x)
        y: Tensor = made if isinstance(made, Tensor) else made[0]
        return y


def token_by_token(mixer: torch.nn.Module, x: Tensor) -> Tensor:
    """The recurrent form of a mixer over [1, 1, T, D]."""
    state: State = ()
    made = []
    for place, token in enumerate(torch.split(x, 1, 2)):
        y, state, *_ = step_of_a_token(mixer, token, place, state)
        made.append(y)
    return torch.cat(made, 2)


def growth(what: str, specs: dict[str, MixerSpec], lengths: Sequence[int]) -> None:
    """Growth of the time with the length; a slope of 1 is linear."""
    heading(what, lengths)
    for name, spec in specs.items():
        steps = [step(Alone(built(spec, length)), drawn([(1, 1, length, 128)])) for length in lengths]
        slope_row(name, steps, lengths)


def heading(what: str, lengths: Sequence[int]) -> None:
    """Print the head of a table of times by length."""
    columns = " | ".join(f"{length:,} ms" for length in lengths)
    print(f"\n| {what} | {columns} | slope |\n|{'---|' * (len(lengths) + 2)}")


def slope_row(name: str, steps: Sequence[Callable[[], object]], lengths: Sequence[int]) -> None:
    """Time steps of these lengths in turns, and print a row."""
    medians = [statistics.median(times) for times in side_by_side(steps, "cpu", _seconds)]
    slope = statistics.linear_regression([*map(math.log, lengths)], [*map(math.log, medians)]).slope
    print(f"| {name} | {' | '.join(f'{1000 * taken:.1f}' for taken in medians)} | {slope:.2f} |", flush=True)


SEEN: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "local, blocks of 64": lambda i, j: (i // 64 == j // 64) & (j <= i),
    "local, sliding 64": lambda i, j: (j <= i) & (i - j < 64),
    "longformer 128": lambda i, j: (j <= i) & ((i - j <= 64) | (j == 0)),
    "sparse, stride 64": lambda i, j: (j <= i) & ((i // 64 == j // 64) | (j % 64 >= 56)),
    "attention": lambda i, j: j <= i,
}
"""For each pattern, whether token i sees token j; that of bigbird is random and taken from its module."""


def windows(lengths: Sequence[int]) -> None:
    """Growth of the time with the length for a fixed window; a slope of 1 is linear."""
    specs: dict[str, tuple[MixerSpec, bool]] = {
        "local, blocks of 64": (LocalSpec(window=64), True),
        "local, sliding 64": (LocalSpec(pattern="sliding", window=64), True),
        "longformer 128": (LongformerSpec(window=128), True),
        "bigbird 64": (BigBirdSpec(), False),
        "sparse, stride 64": (SparseSpec(stride=64), True),
        "attention": (AttentionSpec(), True),
    }
    heading("pattern", lengths)
    for name, (spec, causal) in specs.items():
        mixer, text = built(spec, lengths[0], causal), drawn([(1, 1, lengths[0], 128)])
        at = torch.arange(lengths[0])
        mask = SEEN[name](at[:, None], at) if name in SEEN else drawn_blocks(mixer, lengths[0] // 64)
        same(mixer, partial(masked, mixer, mask), text)
        steps = [step(built(spec, length, causal), drawn([(1, 1, length, 128)])) for length in lengths]
        slope_row(name, steps, lengths)


def row(what: str, shape: tuple[int, ...], baseline: Way, ours: Way, inputs: list[Tensor], aim: str) -> None:
    """Time two implementations in turns and print a row."""
    before, after = side_by_side([step(baseline, inputs), step(ours, inputs)], "cpu", _seconds)
    ratio = statistics.median(before) / statistics.median(after)
    cells = [what, "x".join(map(str, shape)), spread(before), spread(after), f"{ratio:.2f}", aim]
    print(f"| {' | '.join(cells)} |", flush=True)


def spread(times: Sequence[float]) -> str:
    """Median and half the interquartile range."""
    quarters = statistics.quantiles(times, n=4)
    return f"{1000 * statistics.median(times):.2f} ± {500 * (quarters[2] - quarters[0]):.2f}"


def step(way: Way, inputs: list[Tensor]) -> Callable[[], object]:
    """A function that runs forward and backward."""
    direction = torch.randn_like(way(*inputs))
    parameters = list(way.parameters()) if isinstance(way, torch.nn.Module) else []

    def run() -> None:
        for tensor in (*inputs, *parameters):
            tensor.grad = None
        way(*inputs).backward(direction)  # type: ignore[no-untyped-call]

    return run


def same(ours: Way, theirs: Way, inputs: list[Tensor]) -> None:
    """Compare outputs and gradients."""
    y, z = ours(*inputs), theirs(*inputs)
    direction = torch.randn_like(y)
    pairs = zip(
        [y, *torch.autograd.grad(y, inputs, direction)], [z, *torch.autograd.grad(z, inputs, direction)], strict=True
    )
    for one, other in pairs:
        error = ((one - other).norm() / other.norm()).item()
        assert error < _TOLERANCE, f"they differ by {error:.1e}"


def drawn(shapes: Sequence[tuple[int, ...]], scale: float = 1.0) -> list[Tensor]:
    """Normal noise; all tensors but the first are scaled."""
    generator = torch.Generator().manual_seed(0)
    drawn = [torch.randn(shape, generator=generator) for shape in shapes]
    return [(x * scale if index else x).requires_grad_() for index, x in enumerate(drawn)]


def built(spec: MixerSpec, length: int, causal: bool = True, width: int = 128) -> torch.nn.Module:
    """A mixer with 4 heads."""
    module = spec.build(LayerContext(1, width, 4, 4, length, causal))
    initialise(module, [0])
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():  # so that no gain or map is exactly 0 or 1
        for parameter in module.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.02)
    return module


def by_matrix(mixer: Attention, x: Tensor) -> Tensor:
    """An attention mixer by its full attention matrix."""
    return joined(mixer, mixer.matrix(x) @ heads(mixer.value(x)))


def masked(mixer: Any, mask: Tensor, x: Tensor) -> Tensor:
    """Softmax attention with the maps of a mixer, and a mask [T, T] or [H, T, T]."""
    q, k, v = (heads(project(x)) for project in (mixer.query, mixer.key, mixer.value))
    y = ((q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(~mask, -math.inf).softmax(-1)) @ v
    if isinstance(mixer, Longformer):  # its first token is global, with separate maps
        y = torch.cat([heads(mixer.global_value(x))[..., :1, :], y[..., 1:, :]], -2)
    return joined(mixer, y)


def drawn_blocks(mixer: Any, count: int) -> Tensor:
    """The mask of BigBird with `count` blocks of 64, [H, T, T]: neighbours, both ends, and random blocks."""
    chosen, _ = mixer.lots(count, mixer.spec.random_blocks)  # [1, H, n, r]
    i = torch.arange(count)
    ends = (i == 0) | (i == count - 1)
    seen = ((i[:, None] - i).abs() <= 1) | ends | ends[:, None]
    seen = seen.expand(chosen.shape[1], -1, -1).scatter(2, chosen[0], True)
    return seen.repeat_interleave(64, 1).repeat_interleave(64, 2)


def heads(x: Tensor) -> Tensor:
    """[K, B, T, D] to [K, B, 4, T, d_h]."""
    return torch.unflatten(x, -1, (4, -1)).transpose(2, 3)


def joined(mixer: Any, y: Tensor) -> Tensor:
    """Concatenate heads [K, B, 4, T, d_h] and apply the output map."""
    mapped: Tensor = mixer.output(y.transpose(2, 3).flatten(3))
    return mapped


def with_square(mixer: torch.nn.Module, x: Tensor) -> Tensor:
    """A linear mixer by the T x T matrix, including the decay."""

    def fading(q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor | None = None) -> Tensor:
        if log_decay is None:
            return square(q, k, v)
        g = log_decay.double().cumsum(-2)  # [..., T, 1 or d]
        weights = (g.unsqueeze(-2) - g.unsqueeze(-3)).clamp(max=0).exp().to(q.dtype)
        return (
            torch.einsum("...id,...ijd,...jd->...ij", q, weights.expand(*weights.shape[:-1], q.shape[-1]), k).tril() @ v
        )

    with patch.object(linear_attention, "causal", fading):
        y: Tensor = mixer(x)
    return y


def sdpa(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal softmax attention by torch's fused kernel."""
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def attended(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The same by the kernel of our attention mixers."""
    return attend(q, k, v, is_causal=True)


def square(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """(QKᵀ ∘ tril)·V."""
    return (q @ k.mT).tril() @ v


def quotient(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """(QKᵀ ∘ tril)·V, divided by the sums of its rows."""
    weights = (q @ k.mT).tril()
    return (weights / weights.sum(-1, keepdim=True)) @ v


def grouped_conv1d(x: Tensor, w: Tensor) -> Tensor:
    """A depthwise convolution by torch."""
    past = F.pad(x[0].mT, (x.shape[2] - 1, 0))
    return F.conv1d(past, w[0].flip(0).mT[:, None], groups=x.shape[-1]).mT[None]


def spread_conv1d(width: int) -> Way:
    """A depthwise convolution with the same weights for all channels."""
    return lambda x, w: grouped_conv1d(x, w[..., None].expand(-1, -1, width))


def conv1d(x: Tensor, w: Tensor) -> Tensor:
    """A full convolution by torch."""
    return F.conv1d(F.pad(x[0].mT, (x.shape[2] - 1, 0)), w[0].flip(0).permute(2, 1, 0)).mT[None]


TABLES: dict[str, Callable[[int | None], None]] = {
    "simple_attention": simple_attention,
    "depthwise": depthwise,
    "full": full,
    "shaped": shaped,
    "linear_kinds": linear_kinds,
    "softmax_kinds": softmax_kinds,
    "recurrent": lambda most: recurrent(16 if most else 512),
    "growth": lambda most: growth("recurrent kind", RECURRENT, (64, 128) if most else (1024, 2048, 4096, 8192)),
    "windows": lambda most: windows((128, 256) if most else (1024, 2048, 4096)),
}
"""The tables by name; each takes how many sizes it may have, None for all."""
