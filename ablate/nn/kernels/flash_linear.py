"""Recurrent states on a GPU by the kernels of flash-linear-attention, where it is installed; by torch elsewhere.

https://github.com/fla-org/flash-linear-attention (package `flash-linear-attention`, module `fla`). Its kernels multiply
in half precision, so they are used only in mixed precision, under autocast, and only after a check, once per process
and device, that their results and gradients agree with the chunked form in torch. The adapters were written from the
library's source; the tests of this project run on CPUs and cover only the torch forms.

Shapes: K pack, B batch, H heads, T tokens, d width of the keys, e width of the values.
"""

from __future__ import annotations

import importlib
import importlib.util
import warnings
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

from ablate.nn.kernels import linear_attention
from ablate.nn.kernels.delta_rule import Written, chunked

Kernel = Callable[..., Tensor]

_AGREES = 2e-2
"""Tolerance of the difference to the torch form, relative to its largest number; bfloat16 has 8 bits."""
_GRADIENTS_AGREE = 5e-2
"""Tolerance of the norm of the difference to a gradient of the torch form, relative to its norm; the library's tests
allow up to 2e-2 between two forms, and rounding the inputs to bfloat16 adds to it."""


def delta_rule(q: Tensor, k: Tensor, v: Tensor, strength: Tensor, log_decay: Tensor) -> Tensor:
    """S ← e^g·S + k·(β·(v - (e^g·S)ᵀ·k))ᵀ, o = Sᵀ·q: Gated DeltaNet, or with g for each channel Kimi Delta Attention.

    Args:
        q: [K, B, H, T, d].
        k: [K, B, H, T, d].
        v: [K, B, H, T, e].
        strength: β, [K, B, H, T, 1].
        log_decay: g ≤ 0, [K, B, H, T, 1] or [K, B, H, T, d].

    Returns:
        [K, B, H, T, e].
    """
    name = "by head" if log_decay.shape[-1] == 1 else "by channel"
    return _fastest(name, q.device, (q, k, v, strength, log_decay))


def rwkv7(r: Tensor, k: Tensor, v: Tensor, read: Tensor, strength: Tensor, log_decay: Tensor) -> Tensor:
    """S ← diag(e^g)·S - (κ ∘ a)·(κᵀ·S) + k·vᵀ, o = Sᵀ·r (arXiv:2503.14456, eq. 17).

    Args:
        r: [K, B, H, T, d].
        k: [K, B, H, T, d].
        v: [K, B, H, T, e].
        read: κ, [K, B, H, T, d].
        strength: a, [K, B, H, T, d].
        log_decay: g ≤ 0, [K, B, H, T, d].

    Returns:
        [K, B, H, T, e].
    """
    return _fastest("rwkv7", r.device, (r, k, v, read, strength, log_decay))


def fading(q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor) -> Tensor:
    """S ← e^g·S + k·vᵀ, o = Sᵀ·q, with one decay for each head: [K, B, H, T, d or e or 1] to [K, B, H, T, e]."""
    return _fastest("fading", q.device, (q, k, v, log_decay))


def _delta_rule_in_torch(q: Tensor, k: Tensor, v: Tensor, strength: Tensor, log_decay: Tensor) -> Tensor:
    return chunked(q, Written(k, strength * k, v), log_decay)


def _rwkv7_in_torch(r: Tensor, k: Tensor, v: Tensor, read: Tensor, strength: Tensor, log_decay: Tensor) -> Tensor:
    written = Written(read, read * strength, key=k, value=v, decayed_first=False)
    return chunked(r, written, log_decay)


def _by_time(*tensors: Tensor) -> list[Tensor]:
    """[K, B, H, T, d] to the kernels' [K·B, T, H, d]."""
    return [x.flatten(0, 1).transpose(1, 2).contiguous() for x in tensors]


def _by_head(o: Tensor, like: Tensor) -> Tensor:
    return o.transpose(1, 2).reshape(*like.shape[:-1], o.shape[-1])


def _delta_rule_by_head(q: Tensor, k: Tensor, v: Tensor, strength: Tensor, log_decay: Tensor) -> Tensor:
    kernel = importlib.import_module("fla.ops.gated_delta_rule").chunk_gated_delta_rule
    qs, ks, vs, betas, gs = _by_time(q, k, v, strength, log_decay)
    return _by_head(kernel(qs, ks, vs, g=gs.squeeze(-1), beta=betas.squeeze(-1), scale=1.0)[0], v)


def _delta_rule_by_channel(q: Tensor, k: Tensor, v: Tensor, strength: Tensor, log_decay: Tensor) -> Tensor:
    kernel = importlib.import_module("fla.ops.kda").chunk_kda
    qs, ks, vs, betas, gs = _by_time(q, k, v, strength, log_decay)
    return _by_head(kernel(qs, ks, vs, g=gs, beta=betas.squeeze(-1), scale=1.0)[0], v)


def _rwkv7(r: Tensor, k: Tensor, v: Tensor, read: Tensor, strength: Tensor, log_decay: Tensor) -> Tensor:
    kernel = importlib.import_module("fla.ops.rwkv7").chunk_rwkv7
    rs, ks, vs, reads, writes, ws = _by_time(r, k, v, -read, read * strength, log_decay)
    return _by_head(kernel(r=rs, w=ws, k=ks, v=vs, a=reads, b=writes, scale=1.0)[0], v)


def _fading(q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor) -> Tensor:
    kernel = importlib.import_module("fla.ops.simple_gla").chunk_simple_gla
    qs, ks, vs, gs = _by_time(q, k, v, log_decay)
    return _by_head(kernel(qs, ks, vs, g=gs.squeeze(-1), scale=1.0)[0], v)


# Name to the form in torch and that of the library.
_FORMS: dict[str, tuple[Kernel, Kernel]] = {
    "by head": (_delta_rule_in_torch, _delta_rule_by_head),
    "by channel": (_delta_rule_in_torch, _delta_rule_by_channel),
    "rwkv7": (_rwkv7_in_torch, _rwkv7),
    "fading": (linear_attention.causal, _fading),
}


def _fastest(name: str, device: torch.device, inputs: tuple[Tensor, ...]) -> Tensor:
    plain, fast = _FORMS[name]
    if (
        device.type != "cuda"
        or not torch.is_autocast_enabled("cuda")
        or not installed()
        or not _is_trusted(name, device)
    ):
        return plain(*inputs)
    return fast(*_half(inputs, torch.get_autocast_dtype("cuda")))


def _half(inputs: tuple[Tensor, ...], dtype: torch.dtype) -> list[Tensor]:
    """All inputs in half precision, except the decays, which are the last."""
    *others, log_decay = inputs
    return [*(x.to(dtype) for x in others), log_decay.float()]


def installed() -> bool:
    """Whether flash-linear-attention can be imported."""
    return importlib.util.find_spec("fla") is not None


@cache
def _is_trusted(name: str, device: torch.device) -> bool:
    """Whether the library's kernel agrees with torch on this device; warns if it does not."""
    plain, fast = _FORMS[name]
    try:
        with torch.inference_mode(mode=False), torch.enable_grad():
            inputs = [x.requires_grad_() for x in _drawn(name, device)]
            wanted, made = plain(*inputs), fast(*_half(tuple(inputs), torch.bfloat16))
            direction = torch.randn(wanted.shape, generator=torch.Generator().manual_seed(1)).to(device)
            slopes = [torch.autograd.grad((output * direction).sum(), inputs) for output in (wanted, made)]
        off = ((made - wanted).abs().max() / wanted.abs().max()).item()
        slopes_off = max(((ours - theirs).norm() / theirs.norm()).item() for theirs, ours in zip(*slopes, strict=True))
    except Exception as error:  # a kernel of another version or on another device may raise anything
        warnings.warn(f"flash-linear-attention is not used: {type(error).__name__}: {error}", stacklevel=3)
        return False
    agrees = off <= _AGREES and slopes_off <= _GRADIENTS_AGREE
    if not agrees:
        warnings.warn(
            f"flash-linear-attention is not used: its results differ from torch by {off:.2g}, its gradients by "
            f"{slopes_off:.2g}",
            stacklevel=3,
        )
    return agrees


def _drawn(name: str, device: torch.device) -> tuple[Tensor, ...]:
    """Random inputs for the kernel of this name."""
    generator = torch.Generator().manual_seed(0)

    def drawn(width: int) -> Tensor:
        return torch.randn(1, 2, 2, 100, width, generator=generator).to(device)

    q, v = drawn(64) / 8, drawn(64)
    k, read = (x / x.norm(dim=-1, keepdim=True) for x in (drawn(64), drawn(64)))
    strength, by_head, by_channel = drawn(1).sigmoid(), -drawn(1).exp(), -drawn(64).exp()
    return {
        "by head": (q, k, v, strength, by_head),
        "by channel": (q, k, v, strength, by_channel),
        "rwkv7": (q, k, v, read, drawn(64).sigmoid(), 0.6 * by_channel.clamp(min=-1)),
        "fading": (q, k, v, by_head),
    }[name]
