"""Several documents in one window: each has the output that it has alone, and none sees another."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import nn

from ablate.kinds.mixers.attention import AttentionSpec
from ablate.nn.model import build_model
from ablate.nn.pack import positions_in_documents
from ablate.spec.model import ModelSpec
from ablate.spec.sublayers import MIXERS, MixerSpec
from ablate.spec.variant import VariantSpec
from ablate.tasks.language_model import LanguageModelSpec

V, LENGTHS = 19, (3, 5, 1, 4)
T = sum(LENGTHS)
NUMBERS = torch.repeat_interleave(torch.tensor([7, 2, 0, 9], dtype=torch.int32), torch.tensor(LENGTHS))

MODELS: dict[str, dict[str, Any]] = {
    "no positions": {"positions": "none"},
    "learned": {"positions": "learned"},
    "sinusoidal": {"positions": "sinusoidal"},
    "rotary": {"positions": "rotary"},
    "alibi": {"positions": "alibi"},
    "t5": {"positions": {"kind": "t5_buckets", "buckets": 8, "longest_distance": 16}},
    "window": {"positions": "rotary", "block": {"mixer": "attention", "window": 2}},
    "fewer keys": {"positions": "rotary", "block": {"mixer": {"kind": "attention", "kv_heads": 2}}},
    "sinks": {"positions": "rotary", "block": {"mixer": {"kind": "attention", "logits": {"sinks": True}}}},
    "soft cap": {"positions": "rotary", "block": {"mixer": {"kind": "attention", "logits": {"soft_cap": 5.0}}}},
    "shaped": {"positions": "rotary", "block": {"mixer": {"kind": "attention", "shaping": {"kind": "shaped"}}}},
    "scaled by length": {"positions": "learned", "block": {"mixer": {"kind": "attention", "scale": "length"}}},
    "no softmax": {"positions": "learned", "block": {"mixer": {"kind": "attention", "softmax": False}}},
    "no softmax, scaled": {
        "positions": "learned",
        "block": {"mixer": {"kind": "attention", "softmax": False, "scale": "length_and_head_width"}},
    },
    "differential": {"positions": "rotary", "block": {"mixer": "differential_attention"}},
    "latent": {
        "positions": "rotary",
        "block": {
            "mixer": {"kind": "latent_attention", "kv_rank": 6, "plain_width": 4, "turned_width": 4, "value_width": 4}
        },
    },
}


def decoder(name: str) -> nn.Module:
    spec = ModelSpec.model_validate(
        {"family": "decoder", "depth": 2, "width": 32, "heads": 4, "block": {"mixer": "attention"}} | MODELS[name]
    )
    model = build_model(spec, vocabulary=V, context=T, seeds=[0, 1]).double().eval()
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():  # gains and tables that start at 0 or 1 would hide mistakes
        parameter.data += 0.3 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    return model


def window() -> tuple[torch.Tensor, torch.Tensor]:
    """Ids and numbers of documents [2, 3, T]; the documents of the last row have other bounds."""
    ids = torch.randint(V, (2, 3, T), generator=torch.Generator().manual_seed(1))
    numbers = NUMBERS.expand(2, 3, T).clone()
    numbers[:, 2] = numbers[:, 2].flip(-1)
    return ids, numbers


@pytest.mark.parametrize("name", MODELS)
def test_each_document_gives_what_it_gives_alone(name: str) -> None:
    model, (ids, numbers) = decoder(name), window()
    together = model(ids, numbers)
    for row, lengths in ((0, LENGTHS), (2, LENGTHS[::-1])):
        first = 0
        for length in lengths:
            part = slice(first, first + length)
            alone = model(ids[:, row : row + 1, part])
            # Other shapes take other kernels: equal within rounding of double precision.
            torch.testing.assert_close(together[:, row : row + 1, part], alone, atol=1e-9, rtol=1e-9)
            first += length
    assert not torch.allclose(together[:, :, 3:], model(ids)[:, :, 3:])


@pytest.mark.parametrize("name", ["rotary", "shaped", "differential", "latent"])
def test_no_gradient_crosses_a_document(name: str) -> None:
    model, (ids, numbers) = decoder(name), window()
    embedded = model.embed(ids, documents=numbers).detach().requires_grad_()
    hidden = model.hidden(embedded, numbers, ids)
    hidden[:, 0, 3:8].square().sum().backward()  # the second document of the first row
    reached = embedded.grad.abs().sum((0, 3)) > 0
    assert reached[0].tolist() == [3 <= place < 8 for place in range(T)]
    assert not reached[1:].any()


def test_places_count_in_each_document() -> None:
    numbers = torch.tensor([[[4, 4, 4, 1, 1, 8], [1, 2, 3, 3, 3, 3]]])
    assert positions_in_documents(numbers).tolist() == [[[0, 1, 2, 0, 1, 0], [0, 0, 0, 1, 2, 3]]]


def task(tmp_path: Path, **fields: Any) -> LanguageModelSpec:
    folder = tmp_path / "texts"
    folder.mkdir(exist_ok=True)
    for number in range(40):
        (folder / f"{number}.txt").write_text(f"{number}" * (5 + number // 2))
    plain = {"data": f"file:{folder}", "tokenizer": "bytes", "context": 32, **fields}
    return LanguageModelSpec.model_validate(plain)


def test_the_loss_of_a_window_is_that_of_its_documents(tmp_path: Path) -> None:
    spec = task(tmp_path, separate_documents=True)
    opened = spec.open(tmp_path / "cache", spec.prepare(tmp_path / "cache", lambda line: None))
    model = build_model(
        ModelSpec.model_validate(
            {
                "family": "decoder",
                "depth": 2,
                "width": 32,
                "heads": 4,
                "positions": "learned",
                "block": {"mixer": "attention"},
            }
        ),
        vocabulary=opened.shape.vocabulary,
        context=32,
        seeds=[0],
    ).double()
    batch = {name: value[None] for name, value in opened.train_batch(0, 0, 4).items()}
    loss = opened.loss(opened.outputs(model, batch), batch)
    end, total = opened.tokenizer.end_of_document, 0.0
    for row in range(4):
        ids, targets = batch["inputs"][0, row], batch["targets"][0, row]
        bounds = [0, *(place for place in range(1, 32) if ids[place] == end), 32]
        assert len(bounds) > 2
        for first, last in itertools.pairwise(bounds):
            logits = model(ids[None, None, first:last])[0, 0]
            total += nn.functional.cross_entropy(logits, targets[first:last], reduction="sum").item()
    assert loss.item() == pytest.approx(total / (4 * 32), rel=1e-6)


def test_documents_share_windows_unless_the_space_says_otherwise(tmp_path: Path) -> None:
    assert "separate_documents" not in task(tmp_path).canonical()
    joined, separate = (task(tmp_path, separate_documents=said) for said in (False, True))
    cache = tmp_path / "cache"
    assert joined.prepare(cache, print) == separate.prepare(cache, print), "the prepared data is the same"
    assert "documents" not in joined.open(cache, joined.prepare(cache, print)).train_batch(0, 0, 2)


def variant(tmp_path: Path, model: dict[str, Any]) -> VariantSpec:
    plain = {"family": "decoder", "depth": 1, "width": 32, "heads": 4, "block": {"mixer": "attention"}} | model
    training = {"steps": 1, "batch_size": 2, "optimizer": {"kind": "adamw", "lr": 1e-3}}
    return VariantSpec.model_validate(
        {"model": plain, "task": task(tmp_path, separate_documents=True), "training": training}
    )


@pytest.mark.parametrize("kind", ["retention", "mamba2", "hyena", "gated_deltanet", "performer", "rwkv7"])
def test_mixers_that_cannot_separate_documents_are_refused(tmp_path: Path, kind: str) -> None:
    with pytest.raises(ValidationError, match=f"`separate_documents`, and {kind} with these settings cannot keep"):
        variant(tmp_path, {"block": {"mixer": kind}})


@pytest.mark.parametrize(
    ("model", "named"),
    [
        (
            {
                "positions": "none",
                "block": {"mixer": {"kind": "attention", "softmax": False, "matmul_order": "kv_first"}},
            },
            "attention with these settings",
        ),
        ({"depth": 2, "exceptions": {"1": {"mixer": "retention"}}}, "retention with these settings"),
        *(({name: {}}, f"`{name}` reads neighbours") for name in ("bigram", "smear", "multi_token")),
    ],
)
def test_what_reads_its_neighbours_is_refused(tmp_path: Path, model: dict[str, Any], named: str) -> None:
    variant(tmp_path, {})
    with pytest.raises(ValidationError, match=named):
        variant(tmp_path, model)


def test_only_kinds_that_were_tried_here_separate_documents() -> None:
    own = {kind: mixer.separates_documents for kind, mixer in MIXERS.members().items()}  # type: ignore[attr-defined]
    able = {kind for kind, method in own.items() if method is not MixerSpec.separates_documents}
    assert able == {"attention", "differential_attention", "latent_attention"}
    assert AttentionSpec().separates_documents()
