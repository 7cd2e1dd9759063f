"""Models of `transformers`, read through their files, against ours; tied tensors as it reads them."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from safetensors.torch import load_file, save_file
from small_models import CASES, PUBLISHED, Small, T, V
from torch import Tensor, nn

from ablate.errors import DataError
from ablate.nn.model import build_model
from ablate.nn.model.decoder import States
from ablate.nn.pack.initial import stream
from ablate.spec.lookup import find_model
from ablate.trained.hugging_face.architecture import architectures
from ablate.trained.hugging_face.check import compare, in_double
from ablate.trained.hugging_face.checkpoint import (
    Imported,
    load_tensors,
    read_config,
    read_tensors,
    to_ours,
    to_theirs,
    understand,
)

transformers = pytest.importorskip("transformers")


@dataclass
class Both:
    """One model as theirs and as ours, in double precision.

    Attributes:
        theirs: Of `transformers`.
        ours: The same model read from its files.
        folder: The files.
    """

    case: Small
    theirs: Any
    ours: nn.Module
    imported: Imported
    folder: Path

    @functools.cached_property
    def origin(self) -> dict[str, Tensor]:
        """What becomes of zeros on the way to ours."""
        return written(self, self.folder / "origin", torch.zeros_like)


@pytest.fixture(params=CASES, scope="module")
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    case = CASES[request.param]
    folder_name = case.kind.removesuffix("_text").replace("-", "_")
    modules = [f"models.{folder_name}.modeling_{folder_name}", "modeling_rope_utils"]
    with in_double(*(importlib.import_module(f"transformers.{module}") for module in modules)):
        yield made(case, tmp_path_factory.mktemp(request.param))


def made(case: Small, folder: Path) -> Both:
    kind = transformers.CONFIG_MAPPING[case.kind]
    settings = {**case.settings, "attn_implementation": "eager", "experts_implementation": "eager"}
    auto = getattr(transformers, architectures()[case.kind].auto_class)
    theirs = auto.from_config(kind(**settings)).double().eval()
    with torch.no_grad():
        for name, parameter in theirs.named_parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=stream(5, name), dtype=torch.float64)
            if case.settings.get("pad_token_id") and "position_embeddings" in name:
                parameter[:2] = 0  # no real token has these places
        for name, choice in theirs.named_buffers():
            if name.endswith("e_score_correction_bias"):  # the only state that is not a parameter
                choice += torch.randn(choice.shape, generator=stream(5, name), dtype=torch.float64)
    theirs.save_pretrained(folder)
    imported = read_config(folder)
    ours = build_model(imported.spec, vocabulary=imported.vocabulary, context=imported.context, seeds=[0]).double()
    load_tensors(ours, read_tensors(folder, imported, torch.float64))
    return Both(case, theirs, ours.eval(), imported, folder)


def tokens() -> Tensor:
    """None of them is a padding token, after which some models count positions."""
    return torch.randint(2, V, (2, T), generator=stream(1, "tokens"))


REAL = {
    "whole": torch.ones(2, T, dtype=torch.bool),
    "padded": torch.arange(T) < torch.tensor([[4], [T]]),
    "padded on the left": torch.arange(T) >= torch.tensor([[3], [0]]),
}


def logits_of_theirs(both: Both, real: Tensor) -> Tensor:
    """Of the tokens; a model that reads one text and writes another reads them backwards and writes them."""
    if both.imported.architecture.sees_padding:
        return both.theirs(tokens()).logits
    if both.imported.spec.family != "encoder_decoder":
        return both.theirs(tokens(), attention_mask=real.long()).logits
    read, seen = tokens().flip(0, 1), real.flip(0, 1).long()
    target = {"decoder_input_ids": tokens(), "decoder_attention_mask": real.long()}
    return both.theirs(read, attention_mask=seen, **target).logits


def logits_of_ours(both: Both, real: Tensor | None) -> Tensor:
    masks = None if real is None else real[None]
    if both.imported.spec.family != "encoder_decoder":
        return both.ours(tokens()[None], masks)[0]
    seen = None if real is None else real.flip(0, 1)[None]
    return both.ours(tokens().flip(0, 1)[None], tokens()[None], seen, masks)[0]


@pytest.mark.independent_check("mixers", "attention", against="Gemma 3, gpt-oss, Qwen3-Next, OLMo 2 in `transformers`")
@pytest.mark.independent_check("mixers", "fnet", against="FNet of `transformers`")
@pytest.mark.independent_check("mixers", "gated_deltanet", against="Qwen3-Next of `transformers`")
@pytest.mark.independent_check("mixers", "kimi_delta_attention", against="Kimi Linear of `transformers`")
@pytest.mark.independent_check("mixers", "longformer", against="Longformer of `transformers`")
@pytest.mark.independent_check("mixers", "latent_attention", against="DeepSeek-V3 of `transformers`")
@pytest.mark.independent_check("mixers", "mamba2", against="Mamba-2 of `transformers`")
@pytest.mark.independent_check("mixers", "mlstm", against="xLSTM of `transformers`")
@pytest.mark.independent_check(
    "mlps", "mixture", against="experts of gpt-oss, Qwen3-Next, DeepSeek-V3 in `transformers`"
)
@pytest.mark.independent_check("mlps", "none", against="Mamba-2 of `transformers`, which has no MLP")
@pytest.mark.independent_check("mlps", "plain", against="GPT-2 and BERT of `transformers`")
@pytest.mark.independent_check("positions", "learned", against="GPT-2 and BERT of `transformers`")
@pytest.mark.independent_check("positions", "none", against="Mamba-2 and Kimi Linear of `transformers`")
@pytest.mark.independent_check("residuals", "plain", against="GPT-2 of `transformers`")
@pytest.mark.independent_check(
    "models",
    "bert modernbert gpt2 t5 llama3 qwen3 qwen3_next gemma3 olmo2 smollm3 gpt_oss deepseek_v3 kimi_linear mamba2",
    against="`transformers`: logits and gradients of a small random model, with padding",
)
@pytest.mark.parametrize("padding", REAL)
def test_logits_and_gradients_are_theirs(both: Both, padding: str, tmp_path: Path) -> None:
    real = REAL["whole" if both.imported.architecture.sees_padding else padding]
    mask = None if real.all() else real
    theirs, ours = logits_of_theirs(both, real)[real], logits_of_ours(both, mask)[real]
    close = {"rtol": both.case.tolerance, "atol": both.case.tolerance}
    torch.testing.assert_close(ours, theirs, **close)
    if padding != "whole" and not both.case.padded_gradients:
        return
    direction = torch.randn(ours.shape, generator=stream(3, "direction"), dtype=torch.float64)
    both.ours.zero_grad()
    both.theirs.zero_grad()
    (ours * direction).sum().backward()
    (theirs * direction).sum().backward()
    # Gradients go the way of the weights: through files. What is not a gradient is taken away again.
    gradients = written(both, tmp_path / "gradients", gradient)
    for name, parameter in both.ours.named_parameters():
        assert parameter.grad is not None, name
        torch.testing.assert_close(
            parameter.grad, gradients[name] - both.origin[name], **close, msg=lambda text, name=name: f"{name}: {text}"
        )


def gradient(parameter: Tensor) -> Tensor:
    return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad


def written(both: Both, folder: Path, value: Any) -> dict[str, Tensor]:
    """What becomes of other values of their parameters on the way to ours."""
    kept = {name: one.detach().clone() for name, one in both.theirs.named_parameters()}
    with torch.no_grad():
        for one in both.theirs.parameters():
            one.copy_(value(one))
        both.theirs.save_pretrained(folder)
        for name, one in both.theirs.named_parameters():
            one.copy_(kept[name])
    return read_tensors(folder, both.imported, torch.float64)


@pytest.mark.independent_check(
    "models",
    "gpt2 t5 llama3 qwen3 qwen3_next gemma3 olmo2 smollm3 gpt_oss deepseek_v3 kimi_linear mamba2",
    against="`transformers`: logits in cached decoding",
)
def test_cached_decoding_gives_the_same_logits(both: Both) -> None:
    ours: Any = both.ours
    states, logits = cast(States, ()), []
    with torch.no_grad():
        if both.imported.spec.family == "encoder":
            pytest.skip("an encoder generates no text")
        elif both.imported.spec.family == "decoder":
            advance = ours.step
        else:
            memory = ours.mix(ours.embed(tokens().flip(0, 1)[None]), None)
            advance = functools.partial(ours.decode_step, memory)
        for place in range(T):
            step, states = advance(tokens()[None, :, place : place + 1], place, states)
            logits.append(step[0])
        theirs = logits_of_theirs(both, REAL["whole"])
        if both.imported.spec.incremental_limit is not None:  # other positions while a text is short
            for length in range(1, T):  # from short to long: theirs keeps the scale of the longest text since
                theirs[:, length - 1] = both.theirs(tokens()[:, :length]).logits[:, -1]
    torch.testing.assert_close(torch.cat(logits, 1), theirs, rtol=both.case.tolerance, atol=both.case.tolerance)


@pytest.mark.parametrize("name", CASES)
def test_dropout_is_at_the_places_of_theirs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Told by one that multiplies by 1 + p; where it is elsewhere, the architecture says so."""
    case, shares = CASES[name], dict[str, float]()
    for field in dataclasses.fields(transformers.CONFIG_MAPPING[case.kind]):
        if "drop" in field.name and not field.name.startswith(("classifier", "summary")):
            more = {**shares, field.name: 0.1 + 0.07 * len(shares)}
            with contextlib.suppress(DataError):  # in some places it is refused
                understand({"model_type": case.kind, **case.settings, **more}, "config.json")
                shares = more
    if not shares:
        assert case.kind in {"mamba2", "deepseek_v3", "kimi_linear", "xlstm"}, "their dropout is not read any more"
        return
    both = made(dataclasses.replace(case, settings={**case.settings, **shares}), tmp_path)
    scaled = lambda x, p=0.5, training=True, inplace=False: x * (1 + p) if training else x  # noqa: E731
    monkeypatch.setattr(torch.nn.functional, "dropout", scaled)
    both.theirs.train()
    both.ours.train()
    with torch.no_grad():
        theirs, ours = logits_of_theirs(both, REAL["whole"]), logits_of_ours(both, None)
    # Parts of theirs stay in float32.
    assert torch.allclose(ours, theirs, rtol=1e-4, atol=1e-4) == (not both.imported.architecture.dropout)


def test_weights_go_back_as_they_came(both: Both, tmp_path: Path) -> None:
    """Ours under their names are the tensors of their files, and nothing else."""
    from safetensors.torch import load_file

    back = to_theirs({name: one.detach() for name, one in both.ours.state_dict().items()}, both.imported)
    named = both.imported.architecture.tensor_name
    there = {named(name): one for name, one in load_file(both.folder / "model.safetensors").items()}
    used = {name for link in both.imported.architecture.links(both.imported.config) for name in link.theirs}
    assert back.keys() == there.keys() & used
    for name, one in back.items():
        torch.testing.assert_close(one, there[name], rtol=0, atol=1e-15)
    assert to_ours(back, both.imported, torch.float64).keys() >= dict(both.ours.named_parameters()).keys()


@pytest.mark.independent_check(
    "models",
    "bert modernbert gpt2 t5 llama3 qwen3 qwen3_next gemma3 olmo2 smollm3 gpt_oss deepseek_v3 kimi_linear mamba2",
    against="`transformers`: parameters at the published size",
)
@pytest.mark.parametrize("name", PUBLISHED)
def test_a_named_model_is_the_published_one(name: str, tmp_path: Path) -> None:
    """`transformers` counts as many parameters, and its configuration makes the same model here."""
    kind, settings = PUBLISHED[name]
    found, config = find_model(f"models/{name}"), transformers.CONFIG_MAPPING[kind](**settings)
    with torch.device("meta"):
        theirs = getattr(transformers, architectures()[kind].auto_class).from_config(config)
    assert theirs.num_parameters() == found.named.parameters
    config.save_pretrained(tmp_path)
    imported = read_config(tmp_path)
    assert imported.spec.canonical() == found.spec.canonical()
    assert imported.vocabulary == found.named.vocabulary
    assert imported.context == found.named.context


def test_every_architecture_is_tried() -> None:
    assert {case.kind for case in CASES.values()} == {kind for kind, one in architectures().items() if not one.own}


HEADS = {
    "bert": "cls.predictions.decoder",
    "big_bird": "cls.predictions.decoder",
    "fnet": "cls.predictions.decoder",
    "longformer": "lm_head.decoder",
    "deepseek_v3": "lm_head",
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


@pytest.mark.parametrize(("head", "tied"), [("none", True), ("a copy", True), ("its own", False)])
@pytest.mark.parametrize(
    ("name", "tie"),
    [*itertools.product(("t5", "t5_gated"), (True, False, None)), ("kimi_linear", True)],  # else that one has its own
)
def test_the_weights_say_whether_the_head_is_tied(
    name: str, head: str, tied: bool, tie: bool | None, tmp_path: Path
) -> None:
    """T5's class takes the setting for one of scales; Kimi Linear's ties nothing, and that of the authors does."""
    folder = saved(name, tmp_path, pad_token_id=1)
    changed(folder, tie_word_embeddings=tie, scale_decoder_outputs=None)
    tensors = tensors_of(folder)
    tensors.pop("lm_head.weight", None)
    table = tensors["shared.weight" if name.startswith("t5") else "model.embed_tokens.weight"]
    if head != "none":
        tensors["lm_head.weight"] = table.clone() if head == "a copy" else torch.randn_like(table)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    imported = read_config(folder)
    assert imported.spec.tied_head == tied
    assert compare(folder, imported).same
    if name.startswith("t5"):
        theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder)
        assert (theirs.lm_head.weight is theirs.shared.weight) == tied


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


@pytest.mark.parametrize("name", ["bert", "big_bird", "longformer", "fnet", "t5", "deepseek_v3"])
def test_names_of_published_files_are_read(name: str, tmp_path: Path) -> None:
    """Norms as TensorFlow names them (BERT), and what `transformers` leaves out too (T5 1.0, DeepSeek-V3)."""
    case = CASES[name]
    read = made(case, tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    older = {one.replace("LayerNorm.weight", "LayerNorm.gamma"): value for one, value in tensors.items()}
    older = {one.replace("LayerNorm.bias", "LayerNorm.beta"): value for one, value in older.items()}
    known = getattr(transformers, architectures()[case.kind].auto_class).from_config(read.theirs.config)
    for pattern in type(known)._keys_to_ignore_on_load_unexpected or ():
        older[pattern.replace("\\", "").replace("*", "mlp.weight")] = torch.zeros(2, 3)
    assert older.keys() != tensors.keys()
    save_file(older, tmp_path / "model.safetensors", {"format": "pt"})
    again = read_tensors(tmp_path, read.imported, torch.float64)
    assert all(torch.equal(again[one], value) for one, value in dict(read.ours.named_parameters()).items())
    twin = next(iter(older.keys() - tensors.keys())).replace("gamma", "weight").replace("beta", "bias")
    if twin in tensors:
        save_file({**older, twin: tensors[twin].clone()}, tmp_path / "model.safetensors", {"format": "pt"})
        with pytest.raises(DataError, match="under an older name and a newer one"):
            read_tensors(tmp_path, read.imported)


@pytest.mark.parametrize("kind", [["llama"], {"llama": 1}, None, 5])
def test_a_model_type_that_is_no_name_is_refused(kind: object) -> None:
    with pytest.raises(DataError, match="models of this `model_type` cannot be read"):
        understand({"model_type": kind}, "config.json")
