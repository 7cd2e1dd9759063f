"""The gate of attention at its five places, against the equations of arXiv:2505.06708 written with plain matmuls."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from pydantic import ValidationError
from slow_forms import assert_token_by_token, perturbed
from torch import Tensor

from ablate.kinds.mixers.attention import AttentionSpec
from ablate.nn.pack.initial import stream
from ablate.spec.layer import LayerContext

D, H, G, T = 12, 4, 2, 7
CONTEXT = LayerContext(1, D, H, depth=24, context=T, causal=True, init_std=0.5)
ACTS: dict[str, Callable[[Tensor], Tensor]] = {
    "sigmoid": torch.sigmoid,
    "silu": F.silu,
    "identity": torch.clone,
    "half_sigmoid": lambda z: 0.5 + 0.5 * z.sigmoid(),
    "double_sigmoid": lambda z: 2 / (1 + (-z).exp()),
}
GATES = [
    {"kind": kind, "place": place, "combine": combine, "shared": shared}
    for kind, place, combine, shared in itertools.product(
        ("headwise", "elementwise"),
        ("query", "key", "value", "heads", "output"),
        ("multiply", "add"),
        (False, True),
    )
    if place != "output" or (kind == "elementwise" and not shared)
] + [
    {"kind": "elementwise", "activation": "half_sigmoid"},
    {"kind": "headwise", "place": "query", "activation": "silu"},
    {"kind": "headwise", "activation": "double_sigmoid", "start": "zero"},
    {"kind": "elementwise", "combine": "add", "activation": "identity"},
    {"kind": "headwise", "input_dependent": False},
    {"kind": "elementwise", "input_dependent": False, "place": "value"},
    {"kind": "elementwise", "inputs": 5, "start": "zero"},
]


def reference(gate: dict[str, Any], weights: dict[str, Tensor], x: Tensor) -> Tensor:
    """x [T, D] to the same, head by head."""
    place, d_h = gate.get("place", "heads"), D // H
    made = x[:, : gate.get("inputs", D)] @ weights["gate.map.weight"] if "gate.map.weight" in weights else None
    factors = weights["gate.free"].expand(T, -1) if made is None else made
    act = ACTS[gate.get("activation", "sigmoid")]

    def gated(y: Tensor, where: str, head: int, heads: int) -> Tensor:
        if where != place:
            return y
        wide = 1 if gate["kind"] == "headwise" else factors.shape[1] // heads
        parts = [factors[:, i * wide : (i + 1) * wide] for i in range(heads)]
        used = act(torch.stack(parts).mean(0) if gate.get("shared") else parts[head])
        return y * used if gate.get("combine", "multiply") == "multiply" else y + used

    outputs = []
    for head in range(H):
        group = head // (H // G)
        mine, theirs = slice(head * d_h, (head + 1) * d_h), slice(group * d_h, (group + 1) * d_h)
        q = gated(x @ weights["query.weight"][:, mine], "query", head, H)
        k = gated(x @ weights["key.weight"][:, theirs], "key", group, G)
        v = gated(x @ weights["value.weight"][:, theirs], "value", group, G)
        hidden = torch.full((T, T), -torch.inf, dtype=x.dtype).triu(1)
        outputs.append(gated((q @ k.T / d_h**0.5 + hidden).softmax(-1) @ v, "heads", head, H))
    return gated(torch.cat(outputs, -1) @ weights["output.weight"], "output", 0, 1)


@pytest.mark.independent_check("mixers", "attention", against="the gates of arXiv:2505.06708, head by head")
@pytest.mark.parametrize("gate", GATES, ids=lambda gate: "-".join(map(str, gate.values())))
def test_each_gate_is_the_paper_s(gate: dict[str, Any]) -> None:
    spec = AttentionSpec.model_validate({"kind": "attention", "kv_heads": G, "gate": gate})
    mixer = perturbed(spec, CONTEXT)
    weights = {name: value[0] for name, value in mixer.named_parameters()}
    x = torch.randn(T, D, generator=stream(1, "x"), dtype=torch.float64).requires_grad_()
    made, expected = mixer(x[None, None])[0, 0], reference(gate, weights, x)
    torch.testing.assert_close(made, expected, rtol=1e-12, atol=1e-12)
    upstream = torch.randn(made.shape, generator=stream(2, "g"), dtype=torch.float64)
    ours, theirs = (torch.autograd.grad((y * upstream).sum(), [x, *mixer.parameters()]) for y in (made, expected))
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-10, atol=1e-10)
    assert spec.cost(CONTEXT, T).parameters == sum(value.numel() for value in weights.values())
    assert_token_by_token(mixer, x[None, None])


@pytest.mark.parametrize(
    "gate",
    [
        {"place": "value"},
        {"kind": "headwise", "place": "output"},
        {"kind": "elementwise", "place": "output", "shared": True},
        {"kind": "headwise", "input_dependent": False, "inputs": 3},
        {"kind": "headwise", "input_dependent": False, "start": "zero"},
    ],
)
def test_settings_that_no_gate_has_are_refused(gate: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        AttentionSpec.model_validate({"kind": "attention", "gate": gate})
