"""Forgetting attention (arXiv:2503.02130) with its shifts and norm, against the equations token by token."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from slow_forms import assert_equal_forms, assert_token_by_token, perturbed
from torch import Tensor

from ablate.kinds.mixers.attention import AttentionSpec
from ablate.nn.pack import initialise
from ablate.nn.pack.initial import stream
from ablate.spec.layer import LayerContext
from ablate.spec.sublayers import MixerSpec

D, H, T = 12, 4, 7
CONTEXT = LayerContext(2, D, H, depth=2, context=T, causal=True, init_std=0.5)
PRO: dict[str, Any] = {
    "forget": "of_input",
    "shift": ["key", "value"],
    "query_key_norm": {"kind": "rms", "gain": "heads"},
    "output_norm": {"kind": "rms", "gain": "heads"},
    "gate": "elementwise",
}
FORMS: dict[str, dict[str, Any]] = {
    "FoX (LLaMA)": {"forget": "of_input"},
    "FoX (Pro)": PRO,
    "trained": {"forget": {"kind": "trained", "shortest": 2, "longest": 50}},
    "fixed": {"forget": {"kind": "fixed", "shortest": 2, "longest": 50}},
    "grouped": {"forget": "of_input", "kv_heads": 2, "shift": ["key"]},
    "values alone": {"shift": ["value"], "kv_heads": 1},
    "with a sink": {"forget": "of_input", "logits": {"sinks": True}},
}


def slow(mixer: Any, member: int, x: Tensor, real: list[bool]) -> Tensor:
    """One sequence, head by head and pair by pair."""
    w = {name: value[member] for name, value in [*mixer.named_parameters(), *mixer.named_buffers()]}
    spec, d_h, groups = mixer.spec, D // H, mixer.kv_heads

    def shifted(name: str, y: list[Tensor]) -> list[Tensor]:
        if name not in spec.shift:
            return y
        made = []
        for t in range(len(x)):
            share = (x[t] @ w[f"shifts.{name}.share.weight"]).sigmoid().repeat_interleave(d_h)
            last = y[t - 1] if t and real[t - 1] else torch.zeros_like(y[t])
            own = y[t] if real[t] else torch.zeros_like(y[t])
            made.append(share * last + (1 - share) * own)
        return made

    keys = shifted("key", [token @ w["key.weight"] for token in x])
    values = shifted("value", [token @ w["value.weight"] for token in x])
    logs = []
    for t, token in enumerate(x):
        made = w.get("forget.bias", torch.full((H,), 1e9).to(x))  # without a gate nothing is forgotten
        if "forget.map.weight" in w:
            made = made + token @ w["forget.map.weight"]
        logs.append(made.sigmoid().log() * real[t])
    rows = []
    for i in range(len(x)):
        heads = []
        for head in range(H):
            mine, theirs = (slice(n * d_h, (n + 1) * d_h) for n in (head, head // (H // groups)))
            q = normed(w, "query_norm", head, (x[i] @ w["query.weight"])[mine])
            logits = {}
            for j in range(i + 1):
                if real[j] or j == i:
                    k = normed(w, "key_norm", head // (H // groups), keys[j][theirs])
                    forgotten = sum(logs[m][head] for m in range(j + 1, i + 1))
                    logits[j] = q @ k / math.sqrt(d_h) + forgotten
            e = {j: logit.exp() for j, logit in logits.items()}
            whole = sum(e.values()) + (w["sinks.logit"][head].exp() if "sinks.logit" in w else 0)
            y = sum(e[j] / whole * values[j][theirs] for j in e)
            assert isinstance(y, Tensor)
            heads.append(normed(w, "output_norm", head, y))
        y = torch.cat(heads)
        if "gate.map.weight" in w:
            y = y * (x[i] @ w["gate.map.weight"]).sigmoid()
        rows.append(y @ w["output.weight"])
    return torch.stack(rows)


def normed(w: dict[str, Tensor], name: str, head: int, y: Tensor) -> Tensor:
    """RMSNorm of one head, with its own gains."""
    weight = w.get(f"{name}.weight")
    return y if weight is None else y / (y.square().mean() + 1e-6).sqrt() * weight[head]


@pytest.mark.independent_check("mixers", "attention", against="arXiv:2503.02130 eqs 5 to 9, pair by pair")
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("name", FORMS)
def test_each_form_is_the_paper_s(name: str, padded: bool) -> None:
    spec = AttentionSpec.model_validate({"kind": "attention", **FORMS[name]})
    mixer = perturbed(spec, CONTEXT)
    assert_equal_forms(mixer, slow, T, D, padded)
    assert spec.cost(CONTEXT, T).parameters == sum(value[0].numel() for value in mixer.parameters())


@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("name", FORMS)
def test_token_by_token(name: str, window: int | None) -> None:
    spec = AttentionSpec.model_validate({"kind": "attention", **FORMS[name]})
    context = LayerContext(2, D, H, depth=2, context=T, causal=True, init_std=0.5, window=window)
    mixer = perturbed(spec, context)
    x = torch.randn(2, 3, T, D, generator=stream(1, "x"), dtype=torch.float64)
    assert spec.cache(context, T) == sum(kept[0, 0].numel() for kept in assert_token_by_token(mixer, x))


def test_documents_do_not_reach_one_another() -> None:
    mixer = perturbed(AttentionSpec.model_validate({"kind": "attention", **PRO}), CONTEXT)
    x = torch.randn(2, 1, T, D, generator=stream(1, "x"), dtype=torch.float64)
    numbers = torch.tensor([3] * 4 + [0] * (T - 4)).expand(2, 1, T)
    apart = torch.cat([mixer(x[:, :, :4]), mixer(x[:, :, 4:])], 2)
    torch.testing.assert_close(mixer(x, numbers), apart)


def test_times_are_log_spaced_over_the_heads() -> None:
    """After T tokens a head remembers 1/e: -1/log f = T, as the authors' code starts it."""
    spec = AttentionSpec.model_validate({"kind": "attention", "forget": FORMS["trained"]["forget"]})
    mixer = spec.build(CONTEXT)
    initialise(mixer, [0, 1])
    times = -1 / torch.sigmoid(mixer.forget.bias[0].double()).log()  # type: ignore[union-attr]
    torch.testing.assert_close(times.log(), torch.linspace(math.log(2), math.log(50), H).double(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("plain", "causal", "path"),
    [
        ({"forget": "of_input", "softmax": False}, True, "forget"),
        ({"forget": "of_input", "shaping": "shaped"}, True, "forget"),
        ({"forget": "of_input"}, False, "forget"),
        ({"shift": ["key"]}, False, "shift"),
        ({"forget": {"shortest": 2, "longest": 3}}, True, "forget.kind"),
        ({"forget": {"kind": "trained", "shortest": 2}}, True, "forget.longest"),
        ({"forget": "fixed"}, True, "forget.shortest"),
        ({"output_norm": {"kind": "rms", "temperature": 1.0}}, True, "output_norm.temperature"),
        ({"output_norm": "rms", "exclusive": True}, True, "output_norm"),
    ],
)
def test_what_cannot_be_is_refused(plain: dict[str, Any], causal: bool, path: str) -> None:
    context = LayerContext(1, D, H, depth=2, context=T, causal=causal)
    with pytest.raises(ValidationError) as caught:
        MixerSpec.parse({"kind": "attention", **plain}).check(context)
    (error,) = caught.value.errors()
    assert ".".join(map(str, error["loc"])) == path
