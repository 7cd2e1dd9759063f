"""GPT-2 (Language Models are Unsupervised Multitask Learners, 2019)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from ablate.trained.hugging_face.architecture import Architecture, Config
from ablate.trained.hugging_face.links import TURNED, Link, norm, parts, same


class GPT2(Architecture):
    """`transformers`, `models/gpt2`. Its maps are [in, out] as ours are, those of the attention side by side."""

    model_type = "gpt2"
    prefix = "transformer."
    defaults: ClassVar[Mapping[str, Any]] = {
        "n_inner": None,
        "activation_function": "gelu_new",
        "resid_pdrop": 0.1,
        "embd_pdrop": 0.1,
        "attn_pdrop": 0.1,
        "layer_norm_epsilon": 1e-5,
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "add_cross_attention": False,
        "tie_word_embeddings": True,
    }
    unused = ("transformer.h.*.attn.bias", "transformer.h.*.attn.masked_bias")

    def model(self, config: Config) -> dict[str, Any]:
        for name in ("scale_attn_by_inverse_layer_idx", "add_cross_attention"):
            config.need(name, False)
        config.need("scale_attn_weights", True)
        eps, biased = config["layer_norm_epsilon"], {"kind": "dense", "bias": True}
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
                    "ratio": (config["n_inner"] or 4 * config["n_embd"]) / config["n_embd"],
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

    def context(self, config: Config) -> int:
        longest: int = config["n_positions"]
        return longest

    def tied(self, config: Config) -> dict[str, str]:
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
