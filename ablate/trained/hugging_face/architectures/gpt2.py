"""GPT-2 (Language Models are Unsupervised Multitask Learners, 2019)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ablate.spec.model import ModelSpec
from ablate.trained.hugging_face.architecture import TURNED, Architecture, Link, norm, parts, same
from ablate.trained.hugging_face.settings import THEIR_ACTIVATIONS, Config


class GPT2(Architecture):
    """`transformers`, `models/gpt2`. Its maps are [in, out] as ours are, those of the attention side by side."""

    model_type = "gpt2"
    prefix = "transformer."
    inert = (
        "reorder_and_upcast_attn",
        "summary_activation",
        "summary_first_dropout",
        "summary_proj_to_labels",
        "summary_type",
        "summary_use_proj",
    )
    unused = ("transformer.h.*.attn.bias", "transformer.h.*.attn.masked_bias")

    def model(self, config: Config) -> dict[str, Any]:
        for name in ("scale_attn_by_inverse_layer_idx", "add_cross_attention"):
            config.need(name, False)
        config.need("scale_attn_weights", True)
        eps, biased = config["layer_norm_epsilon"], {"kind": "dense", "bias": True}
        inner = 4 * config["n_embd"] if config["n_inner"] is None else config["n_inner"]
        return {
            "family": "decoder",
            "depth": config["n_layer"],
            "width": config["n_embd"],
            "heads": config["n_head"],
            "block": {
                "mixer": {
                    "kind": "attention",
                    "query_key_bias": True,
                    "value": biased,
                    "output": biased,
                    "dropout": config["attn_pdrop"],
                },
                "mlp": {
                    "kind": "plain",
                    "ratio": inner / config["n_embd"],
                    "activation": config.activation("activation_function"),
                    "bias": True,
                },
                "norm": {"kind": "layer", "eps": eps},
                "dropout": config["resid_pdrop"],
            },
            "positions": "learned",
            "final_norm": {"kind": "layer", "eps": eps},
            "dropout": config["embd_pdrop"],
            "tied_head": config["tie_word_embeddings"],
            "initialiser": "depth_scaled",
        }

    def config_of(self, spec: ModelSpec, vocabulary: int, context: int) -> dict[str, Any] | None:
        block: Any = spec.block
        return {
            "architectures": ["GPT2LMHeadModel"],
            "vocab_size": vocabulary,
            "n_positions": context,
            "n_embd": spec.width,
            "n_layer": spec.depth,
            "n_head": spec.heads,
            "n_inner": block.mlp.hidden(spec.width),
            "activation_function": THEIR_ACTIVATIONS[block.mlp.activation],
            "resid_pdrop": block.dropout,
            "embd_pdrop": spec.dropout,
            "attn_pdrop": block.mixer.dropout,
            "layer_norm_epsilon": block.norm.eps,
            "tie_word_embeddings": spec.tied_head,
        }

    def context(self, config: Config) -> int:
        longest: int = config["n_positions"]
        return longest

    def tied_names(self, config: Config) -> dict[str, str]:
        return {"lm_head.weight": "transformer.wte.weight"} if config["tie_word_embeddings"] else {}

    def links(self, config: Config) -> Iterator[Link]:
        width = config["n_embd"]
        yield same("transformer.wte.weight", "embedding.weight")
        yield same("transformer.wpe.weight", "positions.weight")
        for layer in range(config["n_layer"]):
            theirs, ours = f"transformer.h.{layer}", f"blocks.{layer}"
            yield from norm(f"{theirs}.ln_1", f"{ours}.norm_mixer", bias=True)
            for kind, axis in (("weight", 1), ("bias", 0)):
                maps = tuple(f"{ours}.mixer.{name}.{kind}" for name in ("query", "key", "value"))
                yield Link((f"{theirs}.attn.c_attn.{kind}",), maps, parts([width] * 3, axis))
                yield same(f"{theirs}.attn.c_proj.{kind}", f"{ours}.mixer.output.{kind}")
                yield same(f"{theirs}.mlp.c_fc.{kind}", f"{ours}.mlp.up.{kind}")
                yield same(f"{theirs}.mlp.c_proj.{kind}", f"{ours}.mlp.down.{kind}")
            yield from norm(f"{theirs}.ln_2", f"{ours}.norm_mlp", bias=True)
        yield from norm("transformer.ln_f", "norm", bias=True)
        if not config["tie_word_embeddings"]:
            yield same("lm_head.weight", "head.weight", TURNED)
