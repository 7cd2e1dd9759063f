"""Settings of models of `transformers`: each is obeyed as `transformers` obeys it, or refused by its name."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
from small_models import CASES

from ablate.errors import DataError
from ablate.trained.hugging_face import settings
from ablate.trained.hugging_face.architecture import architectures
from ablate.trained.hugging_face.checkpoint import Imported, _understood, _with_numbers, understand
from benchmarks.hostile_configurations import drawn, tried

transformers = pytest.importorskip("transformers")

KINDS = [kind for kind, one in architectures().items() if not one.own]
LEFT_OUT = object()
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8, "rope_theta": 100.0}
LONG = {
    "rope_type": "longrope",
    "short_factor": [1.0, 1.5, 2.0],
    "long_factor": [2.0, 3.0, 9.0],
    "original_max_position_embeddings": 8,
}


def plain_of(name: str, changes: dict[str, Any]) -> dict[str, Any]:
    """The settings of a small model, some of them changed."""
    case = CASES[name]
    whole = {"model_type": case.kind, **json.loads(json.dumps(case.settings)), **changes}
    return {key: value for key, value in whole.items() if value is not LEFT_OUT}


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("longformer", {"hidden_act": "relu"}),
        ("kimi_linear", {"hidden_act": "gelu", "layer_types": ["full_attention"] * 5}),
        ("llama", {"rope_parameters": {"rope_type": "default"}, "rope_scaling": {"type": "linear", "factor": 3.0}}),
        ("llama", {"rope_theta": 100.0, "rope_scaling": {"rope_type": "linear", "factor": 3.0}}),
        ("llama", {"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}}),
        ("smollm3", {"partial_rotary_factor": 0.5}),
        ("llama", {"original_max_position_embeddings": 20, "rope_parameters": {**YARN}}),
        ("llama", {"rope_scaling": {"type": "yarn", "factor": 2.0}}),
        ("llama", {"rope_parameters": {**YARN, "beta_fast": 2.0, "beta_slow": 2.0}}),
        ("llama", {"rope_parameters": {**YARN, "factor": None}, "max_position_embeddings": 16}),
        ("llama", {"rope_scaling": {"type": "dynamic", "factor": 2.0}}),
        ("llama", {"rope_parameters": LONG, "max_position_embeddings": 40}),
        ("llama", {"rope_parameters": {**LONG, "attention_factor": 1.3}, "max_position_embeddings": 8}),
        ("phi3_long", {"rope_scaling": {**LONG, "rope_type": "su", "partial_rotary_factor": 0.75}}),
        ("phi3_long", {"rope_parameters": {**LONG, "factor": 3.0, "partial_rotary_factor": 0.75}}),
        ("llama", {"max_position_embeddings": LEFT_OUT}),
        ("gpt_oss", {}),
        ("gpt_oss", {"rope_scaling": None}),
        ("gpt_oss", {"num_experts_per_tok": 3, "hidden_act": "relu"}),
        ("t5", {"dense_act_fn": "gelu_new"}),
        ("t5", {"is_gated_act": True}),
        ("t5", {"tie_word_embeddings": False}),
        ("t5", {"feed_forward_proj": "gated-silu", "num_decoder_layers": LEFT_OUT}),
        ("gemma3", {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 100.0}}),
        ("gemma3", {"rope_scaling": {"type": "linear", "factor": 4.0}, "rope_local_base_freq": 50.0}),
        ("gemma3", {"rope_scaling": {"rope_type": "linear", "factor": 4.0}, "sliding_window_pattern": 2}),
        ("modernbert", {"sliding_window": 1}),
        ("modernbert", {"rope_scaling": {"rope_type": "linear", "factor": 4.0}, "global_rope_theta": 100.0}),
        ("modernbert", {"rope_scaling": {"type": "linear", "factor": 4.0}, "global_attn_every_n_layers": 2}),
        ("qwen3", {"mlp_bias": True}),
        ("qwen3", {"use_sliding_window": True, "sliding_window": 3, "max_window_layers": 1}),
        ("smollm3", {"use_sliding_window": True, "sliding_window": 3, "no_rope_layers": [0, 1, 0, 1, 1]}),
        ("qwen3_next", {"rope_parameters": {"rope_type": "default"}, "full_attention_interval": 2}),
        ("gpt2", {"n_positions": LEFT_OUT, "n_inner": LEFT_OUT, "reorder_and_upcast_attn": True}),
        ("bert", {"chunk_size_feed_forward": 4, "return_dict": False}),
    ],
)
def test_settings_are_obeyed(name: str, changes: dict[str, Any], tmp_path: Path) -> None:
    """Logits are those of `transformers` in double precision."""
    assert tried(plain_of(name, changes), tmp_path / "model")[0] == "exact"


@pytest.mark.parametrize(
    ("name", "changes", "field"),
    [
        ("kimi_linear", {"hidden_act": "gelu"}, "hidden_act"),
        ("qwen3_next", {"hidden_act": "gelu"}, "hidden_act"),
        ("llama", {"rope_scaling": {"type": "proportional", "factor": 2.0}}, "rope_scaling"),
        ("llama", {"rope_parameters": {**LONG, "short_factor": [1.0, 2.0, 3.0, 4.0]}}, "rope_parameters.short_factor"),
        ("llama", {"rope_parameters": {**YARN, "partial_rotary_factor": 0.5}}, "rope_parameters.partial_rotary_factor"),
        ("llama", {"rope_parameters": {**YARN, "beta_fast": 1.0, "beta_slow": 2.0}}, "rope_parameters.beta_slow"),
        ("llama", {"rope_parameters": {"rope_type": "yarn"}}, "rope_parameters"),
        ("llama", {"rope_scaling": {**YARN, "factor": "4"}}, "rope_scaling.factor"),
        ("qwen3", {"rope_parameters": {"full_attention": YARN}}, "rope_parameters"),
        ("llama", {"is_causal": False}, "is_causal"),
        ("llama", {"per_layer_config": {"0": {"hidden_act": "relu"}}}, "per_layer_config"),
        ("gemma3", {"attn_logit_softcapping": 30.0}, "attn_logit_softcapping"),
        ("fnet", {"use_tpu_fourier_optimizations": True}, "use_tpu_fourier_optimizations"),
        ("mamba2", {"num_heads": 5}, "num_heads"),
        ("mamba2", {"rescale_prenorm_residual": True}, "rescale_prenorm_residual"),
        ("deepseek_v3", {"head_dim": 4}, "head_dim"),
        ("deepseek_v3", {"num_key_value_heads": 2}, "num_key_value_heads"),
        ("modernbert", {"head_dim": 4}, "head_dim"),
        ("gpt2", {"n_inner": 0}, "n_inner"),
        ("gpt2", {"hidden_size": 22}, "hidden_size"),
        ("t5", {"num_heads": None}, "num_heads"),
        ("t5", {"feed_forward_proj": "swoosh"}, "feed_forward_proj"),
        ("t5", {"dense_act_fn": "swoosh"}, "dense_act_fn"),
        ("deepseek_v3", {"qk_rope_head_dim": 5, "attention_bias": True, "rope_parameters": None}, "qk_rope_head_dim"),
        ("t5", {"num_decoder_layers": 0}, "num_decoder_layers"),
        ("llama", {"num_hidden_layers": "3"}, "num_hidden_layers"),
        ("llama", {"num_hidden_layers": 10**9}, "num_hidden_layers"),
        ("llama", {"vocab_size": -1}, "vocab_size"),
        ("llama", {"intermediate_size": 1.5}, "intermediate_size"),
        ("llama", {"rms_norm_eps": 0.0}, "rms_norm_eps"),
        ("qwen3", {"layer_types": ["full_attention", "sliding_attention", "full_attention"]}, "sliding_window"),
        ("longformer", {"attention_window": [4, 5]}, "attention_window"),
        ("longformer", {"pad_token_id": None}, "pad_token_id"),
        ("gemma3", {"sliding_window_pattern": 0}, "sliding_window_pattern"),
        ("gemma3", {"rope_local_base_freq": float("nan")}, "rope_local_base_freq"),
        ("kimi_linear", {"linear_attn_config": None}, "linear_attn_config"),
        ("bert", {"position_embedding_type": "relative_key"}, "position_embedding_type"),
    ],
)
def test_settings_are_refused_by_name(name: str, changes: dict[str, Any], field: str) -> None:
    with pytest.raises(DataError) as refused:
        understand(plain_of(name, changes), "config.json")
    assert f"`{field}`" in str(refused.value)
    assert refused.value.remedy


@pytest.mark.parametrize("number", range(3, 24, 2))
def test_random_configurations(number: int, tmp_path: Path) -> None:
    """As the campaign `python -m benchmarks hostile --only configurations` tries them."""
    plain, changed = drawn(number, random.Random(f"test {number}"))
    verdict, said = tried(plain, tmp_path / "model")
    assert verdict in {"exact", "refused", "unbuilt"}, (plain["model_type"], changed, said)


@pytest.mark.parametrize("kind", KINDS)
def test_all_that_their_code_reads_is_read_here(kind: str) -> None:
    """Every setting that the modelling code mentions is read here, or changes no logits of tokens."""
    config_class = transformers.CONFIG_MAPPING[kind]
    source = Path(transformers.__file__).parent / config_class.__module__.removeprefix("transformers.").replace(
        ".", "/"
    )
    text = source.with_name(source.name.replace("configuration_", "modeling_") + ".py").read_text(encoding="utf-8")
    text = re.sub(r"#.*", "", text)
    assert "config." in text
    found = set(re.findall(r"config\.([a-z]\w*)|getattr\((?:self\.)?config, \"([a-z]\w*)\"", text))
    names = {config_class.attribute_map.get(one, one) for pair in found for one in pair if one}
    read: set[str] = set()
    for case in (case for case in CASES.values() if case.kind == kind):
        imported = understand(plain_of(next(name for name in CASES if CASES[name] is case), {}), "config.json")
        list(imported.architecture.links(imported.config))
        read |= imported.config._read
    inert = {config_class.attribute_map.get(one, one) for one in architectures()[kind].inert}
    assert names - read - inert - settings.HARMLESS - OF_OTHER_HEADS == set()


OF_OTHER_HEADS = set(
    """get_text_config hidden_dropout id image_token_id is_encoder_decoder mm_tokens_per_image onnx_export
    num_labels problem_type summary_last_dropout text_config vision_config decoder_start_token_id
    use_sliding_window layer_types sliding_window use_tpu_fourier_optimizations
    residual_in_fp32""".split()  # noqa: SIM905
)
"""What is read for heads, images, masks and caches that play no part, or is refused unless it has its default."""


def meaning(imported: Imported) -> Any:
    return imported.spec.canonical(), imported.vocabulary, imported.context


@pytest.mark.parametrize("kind", KINDS)
def test_without_transformers_the_meaning_is_the_same_or_refused(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random configurations, and those that `transformers` writes, which are all read."""
    case = next(case for case in CASES.values() if case.kind == kind)
    whole = _with_numbers(json.loads(transformers.CONFIG_MAPPING[kind](**case.settings).to_json_string(use_diff=False)))
    configurations = [whole]
    for number in range(1, 30, 2):
        plain, _ = drawn(number, random.Random(f"{kind} {number}"))
        configurations.append(plain)
    expected = [understood(plain) for plain in configurations]
    monkeypatch.setattr(settings, "has_classes", lambda: False)
    for plain, same in zip(configurations, expected, strict=True):
        found = understood(plain)
        assert found is None or same is None or found == same, plain
    assert understood(whole) == expected[0] is not None


@pytest.mark.parametrize("name", ["qwen3_next", "gpt_oss", "llama", "gemma3", "deepseek_v3"])
@pytest.mark.parametrize(
    "rope",
    [{"rope_theta": 77.0}, {"rope_parameters": {"rope_type": "default", "rope_theta": 77.0}}, {"rope_theta": None}],
    ids=str,
)
def test_without_transformers_the_class_s_own_positions_hold(
    name: str, rope: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part of the channels (Qwen3-Next) or YaRN (gpt-oss), which a file need not say; else the file is refused."""
    with_lists = {"layer_types": understand(plain_of(name, {}), "config.json").config.get("layer_types") or LEFT_OUT}
    plain = plain_of(name, {"rope_parameters": LEFT_OUT, **rope, **with_lists})
    expected = understood(plain)
    monkeypatch.setattr(settings, "has_classes", lambda: False)
    assert understood(plain) in (None, expected)


def understood(plain: dict[str, Any]) -> Any:
    try:
        return meaning(_understood(plain, "config.json"))
    except Exception:  # what `understand` makes a DataError of
        return None


def test_a_file_of_older_settings_asks_for_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "has_classes", lambda: False)
    plain = plain_of("llama", {"rope_scaling": {"type": "linear", "factor": 3.0}})
    with pytest.raises(DataError, match=r"older form.*ablate-blocks\[transformers\]"):
        understand(plain, "config.json")
    with pytest.raises(DataError, match=r"`layer_types` is missing.*ablate-blocks\[transformers\]"):
        understand(plain_of("qwen3", {"rope_theta": 100.0}), "config.json")
    with pytest.raises(DataError, match=r"`rope_parameters` is missing.*ablate-blocks\[transformers\]"):
        understand(plain_of("gpt_oss", {"rope_theta": 100.0}), "config.json")


def test_the_stored_defaults_are_those_of_the_classes() -> None:
    """`python -m ablate.trained.hugging_face.settings > ablate/trained/hugging_face/settings.json` writes them."""
    assert settings._STORED.read_text(encoding="utf-8") == settings.stored_text(KINDS)
