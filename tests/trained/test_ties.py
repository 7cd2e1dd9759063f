"""Tied and untied tensors in files of `transformers`: read as it reads them, or refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from small_models import CASES, T, V
from torch import Tensor

from ablate.errors import DataError
from ablate.nn.model import build_model
from ablate.nn.pack.initial import stream
from ablate.trained.hugging_face.architecture import architectures
from ablate.trained.hugging_face.checkpoint import (
    load_tensors,
    read_config,
    read_tensors,
    to_ours,
    to_theirs,
    understand,
)

transformers = pytest.importorskip("transformers")

HEADS = {
    "bert": "cls.predictions.decoder",
    "big_bird": "cls.predictions.decoder",
    "fnet": "cls.predictions.decoder",
    "longformer": "lm_head.decoder",
    "kimi_linear": "lm_head",
    "gpt2": "lm_head",
}


def saved(name: str, folder: Path, **settings: Any) -> Path:
    """A model of `transformers` with random parameters."""
    case = CASES[name]
    config = transformers.CONFIG_MAPPING[case.kind](**{**case.settings, **settings})
    auto = getattr(transformers, architectures()[case.kind].auto_class)
    model = auto.from_config(config, attn_implementation="eager")
    with torch.no_grad():
        for path, parameter in model.named_parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=stream(5, path))
    model.save_pretrained(folder)
    return folder


def changed(folder: Path, **settings: Any) -> None:
    """Write settings to `config.json`; None takes one away."""
    file = folder / "config.json"
    plain = {**json.loads(file.read_text(encoding="utf-8")), **settings}
    file.write_text(json.dumps({name: value for name, value in plain.items() if value is not None}), encoding="utf-8")


def tensors_of(folder: Path) -> dict[str, Tensor]:
    found: dict[str, Tensor] = load_file(folder / "model.safetensors")
    return found


def added(folder: Path, **tensors: Tensor) -> None:
    whole = {**tensors_of(folder), **tensors}
    save_file(whole, folder / "model.safetensors", metadata={"format": "pt"})


def assert_the_same_logits(name: str, folder: Path) -> None:
    auto = getattr(transformers, architectures()[CASES[name].kind].auto_class)
    theirs = auto.from_pretrained(folder, attn_implementation="eager").double().eval()
    imported = read_config(folder)
    ours = build_model(imported.spec, vocabulary=imported.vocabulary, context=imported.context, seeds=[0]).double()
    load_tensors(ours, read_tensors(folder, imported, torch.float64))
    tokens = torch.randint(2, V, (2, T), generator=stream(1, "tokens"))
    with torch.no_grad():
        if imported.spec.family == "encoder_decoder":
            made, wanted = ours.eval()(tokens[None], tokens[None])[0], theirs(tokens, decoder_input_ids=tokens).logits
        else:
            made, wanted = ours.eval()(tokens[None])[0], theirs(tokens).logits
    # Parts of theirs stay in float32.
    torch.testing.assert_close(made, wanted, rtol=1e-4, atol=1e-4)


def test_t5_reads_whether_outputs_are_scaled(tmp_path: Path) -> None:
    """T5 1.1 as `transformers` saves it."""
    folder = saved("t5", tmp_path, tie_word_embeddings=False)
    assert json.loads((folder / "config.json").read_text(encoding="utf-8"))["scale_decoder_outputs"] is False
    assert_the_same_logits("t5", folder)


def test_t5_1_1_as_published_has_an_output_matrix_of_its_own(tmp_path: Path) -> None:
    """Its `config.json` has no `scale_decoder_outputs`, and its `lm_head.weight` is not a copy of the embeddings."""
    folder = saved("t5_gated", tmp_path)
    changed(folder, tie_word_embeddings=False, scale_decoder_outputs=None)
    head = torch.randn(tensors_of(folder)["shared.weight"].shape, generator=stream(2, "head"))
    added(folder, **{"lm_head.weight": head})
    assert_the_same_logits("t5_gated", folder)


@pytest.mark.parametrize("name", ["bert", "longformer"])
def test_an_untied_head_has_its_own_bias(name: str, tmp_path: Path) -> None:
    folder = saved(name, tmp_path, tie_word_embeddings=False)
    assert_the_same_logits(name, folder)
    imported = read_config(folder)
    ours = to_ours(tensors_of(folder), imported)
    again = to_ours(to_theirs(ours, imported), imported)
    torch.testing.assert_close(again["head_bias.value"], ours["head_bias.value"], rtol=0, atol=0)


@pytest.mark.parametrize("name", HEADS)
def test_a_tied_tensor_of_other_values_is_refused(name: str, tmp_path: Path) -> None:
    """An equal one is a copy, and is left out."""
    folder = saved(name, tmp_path, tie_word_embeddings=True)
    imported, head = read_config(folder), f"{HEADS[name]}.weight"
    tensors = tensors_of(folder)
    twin = tensors[imported.architecture.tied_names(imported.config)[head]]
    ours = to_ours({**tensors, head: twin.clone()}, imported)
    assert "embedding.weight" in ours
    assert "head.weight" not in ours
    with pytest.raises(DataError, match=f"`{head}` differs from .*") as raised:
        to_ours({**tensors, head: twin + 1}, imported)
    assert "tie_word_embeddings: false" in str(raised.value)


@pytest.mark.parametrize("kind", [["llama"], {"llama": 1}, None, 5])
def test_a_model_type_that_is_no_name_is_refused(kind: object) -> None:
    with pytest.raises(DataError, match="models of this `model_type` cannot be read"):
        understand({"model_type": kind}, "config.json")
