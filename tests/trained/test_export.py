"""Models of trials opened by `transformers`; `ablate translate` with a trained model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from small_models import CASES

from ablate.api import run
from ablate.cli.app import app
from ablate.errors import DataError, SpaceError
from ablate.nn.model import build_model
from ablate.nn.pack.initial import stream
from ablate.spec.model import ModelSpec
from ablate.spec.space import SpaceSpec
from ablate.store import open_store
from ablate.tasks.tokenizers.kinds import ByteTokenizer
from ablate.tasks.tokenizers.subwords import SubwordTokenizer
from ablate.trained.hugging_face import settings
from ablate.trained.hugging_face.check import compare
from ablate.trained.hugging_face.checkpoint import read_config, read_tensors, understand
from ablate.trained.hugging_face.export import native, write_folder, write_tokenizer

transformers = pytest.importorskip("transformers")

V, T = 257, 16
BIASED = {"kind": "dense", "bias": True}
GPT2 = {
    "family": "decoder",
    "depth": 2,
    "width": 12,
    "heads": 3,
    "positions": "learned",
    "block": {
        "mixer": {"kind": "attention", "query_key_bias": True, "value": BIASED, "output": BIASED},
        "mlp": {"kind": "plain", "ratio": 2, "activation": "gelu_tanh", "bias": True},
        "norm": {"kind": "layer", "eps": 1e-5},
    },
    "final_norm": {"kind": "layer", "eps": 1e-5},
}
LLAMA = {
    "family": "decoder",
    "depth": 2,
    "width": 12,
    "heads": 2,
    "positions": "rotary",
    "tied_head": False,
    "block": {
        "mixer": {"kind": "attention", "kv_heads": 1},
        "mlp": {"kind": "gated", "ratio": 2, "activation": "silu"},
        "norm": {"kind": "rms", "eps": 1e-6},
    },
    "final_norm": {"kind": "rms", "eps": 1e-6},
}
OWN = {"family": "decoder", "depth": 3, "width": 12, "heads": 3, "positions": "rotary", "block": "sas"}


CONSTANTS = [
    {"positions": "sinusoidal", "block": "pre_ln"},
    {"positions": "learned", "block": "pre_ln"},
    {"block": {"mixer": "retention"}},
    {"block": {"mixer": "hyena"}},
    {"block": {"mixer": "mlp_mixer"}},
    {"positions": "alibi", "block": "pre_ln"},
]
"""Models with positions that count tokens, and with constants that no file holds."""


def random_model(spec: ModelSpec, vocabulary: int, context: int) -> Any:
    """One whose biases are not 0 and whose gains are not 1."""
    model = build_model(spec, vocabulary=vocabulary, context=context, seeds=[0]).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter += 0.2 * torch.randn(parameter.shape, generator=stream(1, name))
    return model


def written(plain: dict[str, Any], folder: Path) -> tuple[Any, Any]:
    spec = ModelSpec.model_validate(plain)
    model = random_model(spec, V, T)
    return model, write_folder(folder, spec, model, ByteTokenizer(), vocabulary=V, context=T)


@pytest.mark.parametrize(("plain", "kind"), [(GPT2, "gpt2"), (LLAMA, "llama"), (OWN, "ablate")])
def test_logits_are_those_of_the_trial(plain: dict[str, Any], kind: str, tmp_path: Path) -> None:
    model, exported = written(plain, tmp_path)
    assert exported.model_type == kind
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, trust_remote_code=not exported.native).eval()
    tokens = torch.randint(V, (2, T), generator=stream(0, "tokens"))
    with torch.no_grad():
        torch.testing.assert_close(theirs(tokens).logits, model(tokens[None])[0], rtol=1e-4, atol=1e-5)
        real = torch.arange(T) < torch.tensor([[T], [T // 2]])
        ours = model(tokens[None], real[None])[0]
        torch.testing.assert_close(
            theirs(tokens, attention_mask=real.long()).logits[real], ours[real], rtol=1e-4, atol=1e-5
        )
    assert (tmp_path / "modeling_ablate.py").exists() == (kind == "ablate")
    went_on = theirs.generate(tokens[:1, :4], max_new_tokens=3, do_sample=False, pad_token_id=0)
    best = [int(model(went_on[None, :, :length])[0, 0, -1].argmax()) for length in range(4, went_on.shape[1])]
    assert went_on[0, 4:].tolist() == best


@pytest.mark.parametrize("change", CONSTANTS, ids=str)
def test_a_modelling_file_keeps_constants_and_leaves_padding_out(change: dict[str, Any], tmp_path: Path) -> None:
    """Logits of the real tokens are those without padding, on whichever side it is."""
    model, exported = written({"family": "decoder", "depth": 2, "width": 12, "heads": 3, **change}, tmp_path)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, trust_remote_code=True).eval()
    tokens = torch.randint(V, (2, T), generator=stream(0, "tokens"))
    with torch.no_grad():
        expected = model(tokens[None])[0]
        torch.testing.assert_close(theirs(tokens).logits, expected, rtol=1e-4, atol=1e-5)
        for real in (torch.arange(T) >= 5, torch.arange(T) < T - 5):
            padded = torch.zeros_like(tokens)
            padded[:, real] = tokens[:, : T - 5]
            mask = torch.stack([real, real]).long()
            logits = theirs(padded, attention_mask=mask).logits[:, real]
            torch.testing.assert_close(logits, expected[:, : T - 5], rtol=1e-4, atol=1e-5)
    assert not exported.native


def test_the_loss_of_a_modelling_file_is_that_of_transformers(tmp_path: Path) -> None:
    """The mean over the tokens that the Trainer counts, which may be those of several batches."""
    model, _ = written(OWN, tmp_path)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, trust_remote_code=True).eval()
    tokens = torch.randint(V, (2, T), generator=stream(0, "tokens"))
    labels = tokens.masked_fill(torch.arange(T) < 3, -100)
    with torch.no_grad():
        costs = torch.nn.functional.cross_entropy(
            model(tokens[None])[0, :, 2:-1].flatten(0, 1), tokens[:, 3:].flatten(), reduction="none"
        )
        torch.testing.assert_close(theirs(tokens, labels=labels).loss, costs.mean())
        torch.testing.assert_close(theirs(tokens, labels=labels, num_items_in_batch=100).loss, costs.sum() / 100)


@pytest.mark.parametrize("plain", [GPT2, LLAMA, OWN])
@pytest.mark.parametrize("installed", [True, False])
def test_what_was_exported_is_read_again(
    plain: dict[str, Any], installed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same model with the same weights, whether or not `transformers` is there, and without its modelling file."""
    model, _ = written(plain, tmp_path)
    monkeypatch.setattr(settings, "has_classes", lambda: installed)
    imported = read_config(tmp_path)
    theta = json.loads((tmp_path / "config.json").read_text(encoding="utf-8")).get("rope_theta")
    assert theta == (10000.0 if plain is LLAMA else None)  # for programs that do not read `rope_parameters`
    assert imported.spec.blocks == ModelSpec.model_validate(plain).blocks
    assert (imported.vocabulary, imported.context) == (V, T)
    read = read_tensors(tmp_path, imported)
    for name, parameter in model.named_parameters():
        assert torch.equal(read[name], parameter), name


def test_the_tokenizer_is_that_of_the_trial(tmp_path: Path) -> None:
    written(GPT2, tmp_path)
    tokenizer, ours = transformers.AutoTokenizer.from_pretrained(tmp_path), ByteTokenizer()
    for text in ("Once upon a time", "  tabs\tand\nlines ", "naïve — 文字 🎈"):
        assert tokenizer.encode(text, add_special_tokens=False) == ours.encode(text).tolist()
        assert tokenizer.decode(ours.encode(text).tolist()) == text
    assert tokenizer.eos_token_id == ours.end_of_document


def test_an_exported_tokenizer_puts_nothing_around_a_text(tmp_path: Path) -> None:
    """A saved tokenizer may put tokens before and after a text, which the model has not seen."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    made = Tokenizer(models.WordLevel({"<s>": 0, "</s>": 1, "one": 2, "two": 3, "<unk>": 4}, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.add_special_tokens(["<s>", "</s>"])
    made.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 1)])
    ours = SubwordTokenizer(made, "</s>")
    assert write_tokenizer(tmp_path, ours, T)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert tokenizer("one two")["input_ids"] == ours.encode("one two").tolist() == [2, 3]
    assert tokenizer.eos_token_id == ours.end_of_document


def test_only_the_very_same_model_is_native() -> None:
    """One setting that no decoder of `transformers` has, and the folder brings its own modelling file."""
    assert native(ModelSpec.model_validate(GPT2), V, T) is not None
    for change in ({"positions": "none"}, {"logit_cap": 30.0}, {"exceptions": {"1": {"norm": "none"}}}):
        assert native(ModelSpec.model_validate({**GPT2, **change}), V, T) is None
    block: dict[str, Any] = LLAMA["block"]
    for scale in ("none", "length"):
        mixer = {**block["mixer"], "scale": scale}
        assert native(ModelSpec.model_validate({**LLAMA, "block": {**block, "mixer": mixer}}), V, T) is None


NOT_WRITTEN = {"deepseek_v3", "kimi_linear", "longformer", "qwen3_next"}
WRITTEN_AS_THEMSELVES = [name for name in CASES if name not in NOT_WRITTEN]
TWO_SORTS = {
    "rope_parameters": {
        "full_attention": {"rope_type": "linear", "rope_theta": 300.0, "factor": 2.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 50.0},
    }
}
OTHER_SETTINGS: dict[str, dict[str, Any]] = {
    "bert": {
        "hidden_act": "relu", "layer_norm_eps": 1e-3, "type_vocab_size": 3, "hidden_dropout_prob": 0.2,
        "attention_probs_dropout_prob": 0.3, "tie_word_embeddings": False,
    },
    "big_bird": {
        "hidden_act": "relu", "layer_norm_eps": 1e-3, "type_vocab_size": 3, "hidden_dropout_prob": 0.2,
        "attention_probs_dropout_prob": 0.3,
    },
    "fnet": {"hidden_act": "silu", "layer_norm_eps": 1e-3, "type_vocab_size": 3, "hidden_dropout_prob": 0.2},
    "modernbert": {
        "hidden_activation": "relu", "classifier_activation": "tanh", "norm_eps": 1e-3, "norm_bias": True,
        "attention_bias": True, "mlp_bias": True, "classifier_bias": True, "decoder_bias": False,
        "embedding_dropout": 0.2, "tie_word_embeddings": False, "local_attention": 6,
        "layer_types": ["sliding_attention", "full_attention", "full_attention", "sliding_attention", "full_attention"],
        **TWO_SORTS,
    },
    "llama": {
        "rope_parameters": {
            "rope_type": "yarn", "rope_theta": 300.0, "factor": 4.0, "original_max_position_embeddings": 8,
            "beta_fast": 8.0, "beta_slow": 2.0, "attention_factor": 1.3, "truncate": False,
        }
    },
    "mamba2": {"tie_word_embeddings": False, "layer_norm_epsilon": 1e-3, "conv_kernel": 3, "expand": 2},
    "smollm3": {
        "no_rope_layers": [0, 1, 1, 0, 1], "use_sliding_window": True, "sliding_window": 4,
        "rope_parameters": {"rope_type": "linear", "rope_theta": 300.0, "factor": 2.0},
    },
    "gemma3": TWO_SORTS,
    "olmo3": TWO_SORTS,
    "t5": {"feed_forward_proj": "gated-silu", "layer_norm_epsilon": 1e-3, "dropout_rate": 0.2},
    "t5_gated": {"tie_word_embeddings": False, "d_kv": 3, "relative_attention_max_distance": 50},
}  # fmt: skip
"""Settings off their defaults besides those of the small configurations."""


@pytest.mark.parametrize(
    ("name", "changes"), [*((name, {}) for name in WRITTEN_AS_THEMSELVES), *OTHER_SETTINGS.items()], ids=str
)
def test_models_that_are_read_are_written(name: str, changes: dict[str, Any], tmp_path: Path) -> None:
    """As the very type that they were, or RoBERTa as BERT, with logits of `transformers` in double precision."""
    case = CASES[name]
    settings = transformers.CONFIG_MAPPING[case.kind](**case.settings | changes).to_dict()
    settings |= {key: changes[key] for key in changes if key == "tie_word_embeddings"}  # T5's class forgets it
    read = understand({**settings, "model_type": case.kind}, name)
    model = random_model(read.spec, read.vocabulary, read.context)
    exported = write_folder(tmp_path, read.spec, model, None, vocabulary=read.vocabulary, context=read.context)
    assert exported.model_type == ("bert" if "roberta" in name or name == "camembert" else case.kind)
    compared = compare(tmp_path, read_config(tmp_path))
    assert compared.double
    assert compared.difference <= compared.bound


def test_tokens_of_masks_and_of_the_start_of_a_text_are_written(tmp_path: Path) -> None:
    """That of a mask follows those of the tokenizer; a translation starts with the end of a document."""
    bytes_, end = ByteTokenizer(), ByteTokenizer().end_of_document
    for name, vocabulary in (("bert", V + 1), ("t5", V)):
        spec = understand({"model_type": name, **CASES[name].settings}, name).spec
        model = random_model(spec, vocabulary, T)
        write_folder(tmp_path / name, spec, model, bytes_, vocabulary=vocabulary, context=T)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "bert")
    assert tokenizer("a<|mask|>b")["input_ids"] == [97, tokenizer.mask_token_id, 98] == [97, V, 98]
    assert transformers.AutoTokenizer.from_pretrained(tmp_path / "t5").mask_token is None
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "t5").eval()
    source = torch.randint(V, (1, T), generator=stream(0, "tokens"))
    made = theirs.generate(source, max_new_tokens=4, do_sample=False)[0].tolist()
    assert made[0] == end
    for length in range(1, len(made)):
        with torch.no_grad():
            logits = model(source[None], torch.tensor([[made[:length]]]))[0, 0, -1]
        assert made[length] == int(logits.argmax())


def test_what_cannot_be_written_is_refused(tmp_path: Path) -> None:
    written(GPT2, tmp_path)
    with pytest.raises(DataError, match="a model already"):
        written(GPT2, tmp_path)
    spec = ModelSpec.model_validate({**GPT2, "family": "encoder"})
    model = build_model(spec, vocabulary=V, context=T, seeds=[0])
    with pytest.raises(SpaceError, match="cannot be written"):
        write_folder(tmp_path / "b", spec, model, None, vocabulary=V, context=T)


WORDS = {"one": "eins", "two": "zwei", "six": "sechs", "ten": "zehn", "red": "rot", "cat": "Katze"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("translate")


@pytest.fixture(scope="module")
def key(folder: Path, cache: Path) -> str:
    """A translator of two words, word by word, that a worker trained."""
    pairs = [(f"{a} {b}", f"{WORDS[a]} {WORDS[b]}") for a in WORDS for b in WORDS]
    text = "".join(f"{source}\t{target}\n" for source, target in pairs)
    (folder / "pairs.tsv").write_text(text, encoding="utf-8")
    task: dict[str, Any] = {"kind": "translation", "data": f"file:{folder}/pairs.tsv", "source": 1, "target": 2}
    plain = {
        "name": "words",
        "question": "Can it say it?",
        "task": {
            **task,
            "tokenizer": {"kind": "words", "vocab_size": 32},
            "context": 8,
            "validation_pairs": 2,
            "label_smoothing": 0,
        },
        "model": {
            "family": "encoder_decoder",
            "depth": 1,
            "width": 32,
            "heads": 2,
            "block": "pre_ln",
            "decoder": {"depth": 1, "mixer": "attention"},
            "init_std": 0.1,
        },
        "training": {
            "steps": 150,
            "batch_size": 16,
            "optimizer": {"lr": 1e-2},
            "evaluations": 1,
            "save_weights": True,
        },
        "switches": {"heads": {"two": {}, "same": {"model.heads": 2}}},
        "design": {"kind": "leave_one_out", "seeds": 1},
        "objective": {"margin": 0.05},
    }
    run(SpaceSpec.model_validate(plain), store=folder / "store.db", device="cpu", workers=1, cache=cache)
    with open_store(folder / "store.db") as store:
        return store.study("words").planned[0].key


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("beams", ["1", "3"])
def test_it_says_what_it_learnt(
    beams: str, key: str, folder: Path, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    common = ["translate", key[:10], "--store", str(folder / "store.db"), "--cache", str(cache), "--beams", beams]
    app([*common, "red cat"], standalone_mode=False)
    assert capsys.readouterr().out.split() == ["rot", "Katze"]
    app([*common, "--json", "ten six"], standalone_mode=False)
    assert "zehn sechs" in json.dumps(json.loads(capsys.readouterr().out))
