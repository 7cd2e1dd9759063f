"""Small configurations of `transformers`, at odd sizes, one or more for each architecture that can be read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

V, T = 23, 11
NO_TOKENS = {"pad_token_id": None, "bos_token_id": None, "eos_token_id": None}
LLAMA = {
    "vocab_size": V,
    "hidden_size": 20,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 6,
    "intermediate_size": 28,
    "max_position_embeddings": T,
    **NO_TOKENS,
}
BERT = {
    "vocab_size": V,
    "hidden_size": 20,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 28,
    "max_position_embeddings": T,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "pad_token_id": None,
}
WITHOUT_HEAD_WIDTH = {name: one for name, one in LLAMA.items() if name != "head_dim"}
ROBERTA = BERT | {
    "pad_token_id": 1, "max_position_embeddings": T + 2, "bos_token_id": 0, "eos_token_id": 0, "type_vocab_size": 1
}  # fmt: skip
XLSTM = {
    "vocab_size": V,
    "hidden_size": 24,
    "num_heads": 3,
    "num_hidden_layers": 2,
    "ffn_round_up_to_multiple_of": 5,
    "norm_eps": 1e-3,
    "output_logit_soft_cap": 2.0,
    "qk_dim_factor": 1.5,
    "gate_soft_cap": 3.0,
    "chunk_size": 4,
    "autocast_kernel_dtype": "float32",
    "use_cache": False,  # theirs holds states of other sizes
    **NO_TOKENS,
}


@dataclass
class Small:
    """A small configuration.

    Attributes:
        kind: `model_type`.
        settings: Of its configuration class.
        tolerance: Relative and absolute, in double precision.
        padded_gradients: Whether their gradients are numbers where padding sees nothing real.
    """

    kind: str
    settings: dict[str, Any]
    tolerance: float = 1e-8
    padded_gradients: bool = True


CASES = {
    "gpt2": Small(
        "gpt2",
        {
            "vocab_size": V, "n_embd": 20, "n_layer": 2, "n_head": 4, "n_inner": 28, "n_positions": T,
            "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, **NO_TOKENS,
        },
    ),
    "llama": Small("llama", LLAMA),
    "llama_scaled": Small(
        "llama",
        LLAMA
        | {
            "head_dim": 10,
            "attention_bias": True,
            "mlp_bias": True,
            "tie_word_embeddings": True,
            "rope_parameters": {
                "rope_type": "llama3", "rope_theta": 100.0, "factor": 8.0, "low_freq_factor": 1.0,
                "high_freq_factor": 4.0, "original_max_position_embeddings": 32,
            },
        },
    ),
    "qwen3": Small("qwen3", LLAMA),
    "bert": Small("bert", BERT),
    "big_bird": Small(
        "big_bird",
        BERT | {"attention_type": "original_full", "rescale_embeddings": True, "bos_token_id": 1, "eos_token_id": 0},
    ),
    "longformer": Small(
        "longformer",
        ROBERTA | {"attention_window": [4, 8]},
        padded_gradients=False,
    ),
    "fnet": Small(
        "fnet",
        {name: one for name, one in BERT.items() if "attention" not in name} | {"bos_token_id": 0, "eos_token_id": 0},
    ),
    "olmo2": Small("olmo2", WITHOUT_HEAD_WIDTH | {"hidden_size": 24}),
    "smollm3": Small("smollm3", LLAMA | {"num_hidden_layers": 5}),
    "gemma3": Small(
        "gemma3_text",
        LLAMA
        | {
            "num_hidden_layers": 7, "hidden_size": 16, "sliding_window": 3, "query_pre_attn_scalar": 5,
            "final_logit_softcapping": 2.0,
        },
    ),
    "gpt_oss": Small(
        "gpt_oss", LLAMA | {"num_local_experts": 5, "num_experts_per_tok": 2, "sliding_window": 3, "hidden_size": 24,
                            "swiglu_limit": 0.9},
    ),
    "modernbert": Small(
        "modernbert",
        {
            "vocab_size": V, "hidden_size": 24, "num_hidden_layers": 5, "num_attention_heads": 4,
            "intermediate_size": 28, "max_position_embeddings": T, "local_attention": 4, "pad_token_id": None,
            "bos_token_id": None, "eos_token_id": None, "cls_token_id": None, "sep_token_id": None,
        },
    ),
    "mamba2": Small(
        "mamba2",
        {
            "vocab_size": V, "hidden_size": 12, "num_heads": 6, "head_dim": 4, "state_size": 5, "n_groups": 2,
            "num_hidden_layers": 2, "chunk_size": 4, "tie_word_embeddings": True, **NO_TOKENS,
        },
    ),
    "deepseek_v3": Small(
        "deepseek_v3",
        {
            "vocab_size": V, "hidden_size": 24, "intermediate_size": 28, "moe_intermediate_size": 12,
            "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 4, "n_routed_experts": 8,
            "kv_lora_rank": 10, "q_lora_rank": 8, "qk_rope_head_dim": 6, "v_head_dim": 5, "qk_nope_head_dim": 7,
            "n_group": 4, "topk_group": 2, "num_experts_per_tok": 3, "first_k_dense_replace": 1,
            "max_position_embeddings": T, **NO_TOKENS,
            "rope_parameters": {
                "rope_type": "yarn", "rope_theta": 100.0, "factor": 8.0, "original_max_position_embeddings": 4,
                "mscale": 1.0, "mscale_all_dim": 0.7,
            },
        },
    ),
    "t5": Small(
        "t5",
        {
            "vocab_size": V, "d_model": 20, "d_kv": 6, "num_heads": 4, "d_ff": 28, "num_layers": 3,
            "num_decoder_layers": 2, "relative_attention_num_buckets": 8, "relative_attention_max_distance": 9,
            "dropout_rate": 0.0, "pad_token_id": None, "eos_token_id": None,
        },
    ),
    "t5_gated": Small(
        "t5",
        {
            "vocab_size": V, "d_model": 20, "d_kv": 5, "num_heads": 4, "d_ff": 28, "num_layers": 2,
            "dropout_rate": 0.0, "feed_forward_proj": "gated-gelu", "pad_token_id": None, "eos_token_id": None,
        },
    ),
    "kimi_linear": Small(
        "kimi_linear",
        {
            "vocab_size": V, "hidden_size": 24, "intermediate_size": 28, "moe_intermediate_size": 12,
            "num_hidden_layers": 5, "num_attention_heads": 4, "num_key_value_heads": 4, "num_local_experts": 8,
            "kv_lora_rank": 10, "qk_rope_head_dim": 3, "v_head_dim": 5, "qk_nope_head_dim": 7,
            "num_experts_per_tok": 3, "linear_head_dim": 5, "linear_num_heads": 3, "max_position_embeddings": T,
            **NO_TOKENS,
        },
    ),
    "qwen3_next": Small(
        "qwen3_next",
        LLAMA
        | {
            "num_hidden_layers": 4, "head_dim": 8, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
            "linear_key_head_dim": 3, "linear_value_head_dim": 5, "moe_intermediate_size": 12, "num_experts": 6,
            "shared_expert_intermediate_size": 24, "num_experts_per_tok": 3, "mlp_only_layers": [1],
        },
    ),
    "arcee": Small("arcee", LLAMA | {"mlp_bias": True, "attention_bias": True}),
    "seed_oss": Small(
        "seed_oss",
        LLAMA | {"attention_bias": True, "attention_out_bias": False, "mlp_bias": True, "attention_dropout": 0.0,
                 "residual_dropout": 0.0},
    ),
    "qwen2": Small(
        "qwen2",
        WITHOUT_HEAD_WIDTH
        | {"hidden_size": 24, "use_sliding_window": True, "sliding_window": 3, "max_window_layers": 1},
    ),
    "qwen2_moe": Small(
        "qwen2_moe",
        WITHOUT_HEAD_WIDTH
        | {
            "hidden_size": 24, "moe_intermediate_size": 12, "shared_expert_intermediate_size": 24, "num_experts": 6,
            "num_experts_per_tok": 3, "mlp_only_layers": [1], "use_sliding_window": True, "sliding_window": 3,
        },
    ),
    "qwen3_moe": Small(
        "qwen3_moe",
        LLAMA
        | {
            "moe_intermediate_size": 12, "num_experts": 6, "num_experts_per_tok": 3, "decoder_sparse_step": 2,
            "use_sliding_window": True, "sliding_window": 3, "norm_topk_prob": True, "attention_bias": True,
        },
    ),
    "mistral": Small("mistral", LLAMA | {"sliding_window": 3}),
    "ministral": Small(
        "ministral",
        LLAMA | {"sliding_window": 3, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]},
    ),
    "mixtral": Small("mixtral", LLAMA | {"num_local_experts": 5, "num_experts_per_tok": 2, "sliding_window": 4}),
    "phi3": Small(
        "phi3",
        WITHOUT_HEAD_WIDTH
        | {
            "hidden_size": 32, "sliding_window": 3, "resid_pdrop": 0.0,
            "rope_parameters": {"rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 0.5},
        },
    ),
    "phi3_long": Small(
        "phi3",
        WITHOUT_HEAD_WIDTH
        | {
            "hidden_size": 32, "original_max_position_embeddings": 7, "max_position_embeddings": 28,
            "rope_parameters": {
                "rope_type": "longrope", "rope_theta": 100.0, "partial_rotary_factor": 0.75,
                "short_factor": [1.0, 1.2, 1.5], "long_factor": [1.0, 3.0, 5.5],
            },
        },
    ),
    "llama_dynamic": Small(
        "llama",
        LLAMA
        | {
            "max_position_embeddings": 7,
            "rope_parameters": {"rope_type": "dynamic", "rope_theta": 100.0, "factor": 2.5},
        },
    ),
    "starcoder2": Small("starcoder2", WITHOUT_HEAD_WIDTH | {"hidden_size": 24, "sliding_window": 4}),
    "gemma": Small("gemma", LLAMA | {"hidden_size": 16, "attention_bias": True}),
    "gemma2": Small(
        "gemma2",
        LLAMA
        | {
            "hidden_size": 16, "sliding_window": 3, "query_pre_attn_scalar": 5, "final_logit_softcapping": 2.0,
            "attn_logit_softcapping": 0.7,
        },
    ),
    "olmo": Small("olmo", WITHOUT_HEAD_WIDTH | {"hidden_size": 24, "attention_bias": True}),
    "olmo3": Small("olmo3", WITHOUT_HEAD_WIDTH | {"hidden_size": 24, "num_hidden_layers": 5, "sliding_window": 3}),
    "olmoe": Small(
        "olmoe", WITHOUT_HEAD_WIDTH | {"hidden_size": 24, "num_experts": 5, "num_experts_per_tok": 2}
    ),
    "phi": Small("phi", WITHOUT_HEAD_WIDTH | {"hidden_size": 32}),
    "stablelm": Small("stablelm", WITHOUT_HEAD_WIDTH | {"hidden_size": 32, "use_qkv_bias": True}),
    "stablelm_parallel": Small("stablelm", WITHOUT_HEAD_WIDTH | {"hidden_size": 32, "use_parallel_residual": True}),
    "nemotron": Small("nemotron", LLAMA | {"head_dim": 8, "attention_bias": True, "mlp_bias": True}),
    "gptj": Small(
        "gptj",
        {"vocab_size": V, "n_embd": 24, "n_layer": 2, "n_head": 3, "n_inner": 28, "n_positions": T, "rotary_dim": 4,
         **NO_TOKENS},
    ),
    "bloom": Small("bloom", {"vocab_size": V, "hidden_size": 30, "n_layer": 2, "n_head": 6, **NO_TOKENS},
                   tolerance=1e-6),  # its GELU has 0.79788456 for √(2/π)
    "xlstm": Small("xlstm", XLSTM),
    "roberta": Small("roberta", ROBERTA),
    "xlm_roberta": Small("xlm-roberta", ROBERTA),
    "camembert": Small("camembert", ROBERTA),
}  # fmt: skip

YARN = {"rope_type": "yarn", "beta_fast": 32.0, "beta_slow": 1.0, "original_max_position_embeddings": 4096}
PUBLISHED = {
    "gpt2": ("gpt2", {}),
    "bert": ("bert", {}),
    "modernbert": ("modernbert", {}),
    "llama3": (
        "llama",
        {
            "vocab_size": 128256, "num_key_value_heads": 8, "intermediate_size": 14336, "rms_norm_eps": 1e-5,
            "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}, "max_position_embeddings": 8192,
        },
    ),
    "qwen3": (
        "qwen3",
        {
            "hidden_size": 1024, "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8,
            "intermediate_size": 3072, "tie_word_embeddings": True, "max_position_embeddings": 40960,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0},
        },
    ),
    "qwen3_next": (
        "qwen3_next",
        {
            "max_position_embeddings": 262144,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25},
        },
    ),
    "gemma3": (
        "gemma3_text",
        {
            "vocab_size": 262144, "hidden_size": 1152, "num_attention_heads": 4, "num_key_value_heads": 1,
            "intermediate_size": 6912, "sliding_window": 512, "max_position_embeddings": 32768,
        },
    ),
    "olmo2": (
        "olmo2",
        {
            "vocab_size": 100352, "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 16,
            "intermediate_size": 8192, "rms_norm_eps": 1e-6, "max_position_embeddings": 4096,
            "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0},
        },
    ),
    "smollm3": (
        "smollm3",
        {
            "max_position_embeddings": 65536, "rope_parameters": {"rope_type": "default", "rope_theta": 5000000.0},
        },
    ),
    "gpt_oss": (
        "gpt_oss",
        {
            "num_hidden_layers": 24, "num_local_experts": 32,
            "rope_parameters": {**YARN, "rope_theta": 150000.0, "factor": 32.0, "truncate": False},
        },
    ),
    "deepseek_v3": (
        "deepseek_v3",
        {
            "max_position_embeddings": 163840,
            "rope_parameters": {**YARN, "rope_theta": 10000.0, "factor": 40.0, "mscale": 1.0, "mscale_all_dim": 1.0},
        },
    ),
    "kimi_linear": (
        "kimi_linear",
        {
            "linear_attn_config": {
                "full_attn_layers": [4, 8, 12, 16, 20, 24, 27],
                "kda_layers": [layer for layer in range(1, 27) if layer % 4],
            }
        },
    ),
    "t5": (
        "t5", {"d_model": 768, "d_ff": 3072, "num_layers": 12, "num_heads": 12, "tie_word_embeddings": True},
    ),
    "mamba2": (
        "mamba2",
        {
            "vocab_size": 50288, "hidden_size": 768, "num_hidden_layers": 24, "num_heads": 24, "n_groups": 1,
            "tie_word_embeddings": True,
        },
    ),
}  # fmt: skip
"""Of the named models: `model_type`, and what the published configuration sets beside the defaults of its class."""
