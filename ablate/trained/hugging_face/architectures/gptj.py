"""GPT-J (https://github.com/kingoflolz/mesh-transformer-jax) and BLOOM (arXiv:2211.05100)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from ablate.trained.hugging_face.architecture import (
    TURNED,
    Architecture,
    Conversion,
    Link,
    linear,
    norm,
    reorder_rows,
    same,
)
from ablate.trained.hugging_face.architectures.llama import PARALLEL
from ablate.trained.hugging_face.settings import Config

_BIASED = {"kind": "dense", "bias": True}


class GPTJ(Architecture):
    """`transformers`, `models/gptj`: attention and MLP side by side. Rotated channels are adjacent pairs there."""

    model_type = "gptj"
    prefix = "transformer."
    unused = ("transformer.h.*.attn.bias", "transformer.h.*.attn.masked_bias", "*.embed_positions")

    def model(self, config: Config) -> dict[str, Any]:
        head_width, turned = config["n_embd"] // config["n_head"], config["rotary_dim"]
        turned = head_width if turned is None else turned
        if turned % 2 or not 0 < turned <= head_width:
            raise config.refuse("rotary_dim", f"an even number up to the width of a head, {head_width}, can be read")
        inner = 4 * config["n_embd"] if config["n_inner"] is None else config["n_inner"]
        norm = {"kind": "layer", "eps": config["layer_norm_epsilon"]}
        return {
            "family": "decoder",
            "depth": config["n_layer"],
            "width": config["n_embd"],
            "heads": config["n_head"],
            "block": {
                "mixer": {"kind": "attention", "dropout": config["attn_pdrop"]},
                "mlp": {
                    "kind": "plain",
                    "ratio": inner / config["n_embd"],
                    "activation": config.activation("activation_function"),
                    "bias": True,
                },
                "norm": norm,
                **PARALLEL,
                "dropout": config["resid_pdrop"],
            },
            "positions": {"kind": "rotary", "base": 10000.0, "fraction": turned / head_width},
            "final_norm": norm,
            "dropout": config["embd_pdrop"],
            "tied_head": config["tie_word_embeddings"],
            "head_bias": True,
        }

    def context(self, config: Config) -> int:
        longest: int = config["n_positions"]
        return longest

    def tied_names(self, config: Config) -> dict[str, str]:
        return {"lm_head.weight": "transformer.wte.weight"} if config["tie_word_embeddings"] else {}

    def links(self, config: Config) -> Iterator[Link]:
        heads, head_width = config["n_head"], config["n_embd"] // config["n_head"]
        turned = config["rotary_dim"] or head_width
        one = torch.cat([torch.arange(0, turned, 2), torch.arange(1, turned, 2), torch.arange(turned, head_width)])
        halves = reorder_rows((one + head_width * torch.arange(heads)[:, None]).flatten()).then(TURNED)
        yield same("transformer.wte.weight", "embedding.weight")
        for layer in range(config["n_layer"]):
            theirs, ours = f"transformer.h.{layer}", f"blocks.{layer}"
            yield from norm(f"{theirs}.ln_1", f"{ours}.norm_mixer", bias=True)
            for name, conversion in (("query", halves), ("key", halves), ("value", TURNED)):
                yield same(f"{theirs}.attn.{name[0]}_proj.weight", f"{ours}.mixer.{name}.weight", conversion)
            yield from linear(f"{theirs}.attn.out_proj", f"{ours}.mixer.output")
            yield from linear(f"{theirs}.mlp.fc_in", f"{ours}.mlp.up", bias=True)
            yield from linear(f"{theirs}.mlp.fc_out", f"{ours}.mlp.down", bias=True)
        yield from norm("transformer.ln_f", "norm", bias=True)
        if not config["tie_word_embeddings"]:
            yield same("lm_head.weight", "head.weight", TURNED)
        yield same("lm_head.bias", "head_bias.value")


class Bloom(Architecture):
    """`transformers`, `models/bloom`. Rows of queries, keys and values are sorted by head."""

    model_type = "bloom"
    prefix = "transformer."
    inert = ("slow_but_exact",)

    def model(self, config: Config) -> dict[str, Any]:
        config.need("apply_residual_connection_post_layernorm", False)
        norm = {"kind": "layer", "eps": config["layer_norm_epsilon"]}
        return {
            "family": "decoder",
            "depth": config["n_layer"],
            "width": config["hidden_size"],
            "heads": config["n_head"],
            "block": {
                "mixer": {
                    "kind": "attention",
                    "query_key_bias": True,
                    "value": _BIASED,
                    "output": _BIASED,
                    "dropout": config["attention_dropout"],
                },
                "mlp": {"kind": "plain", "ratio": 4, "activation": "gelu_tanh", "bias": True},
                "norm": norm,
                "dropout": config["hidden_dropout"],
            },
            "positions": {"kind": "alibi", "slopes": "bloom"},
            "embedding_norm": norm,
            "final_norm": norm,
            "tied_head": config["tie_word_embeddings"],
        }

    def context(self, config: Config) -> int:
        """Any; that of training is in no setting."""
        return 2048

    def tied_names(self, config: Config) -> dict[str, str]:
        return {"lm_head.weight": "transformer.word_embeddings.weight"} if config["tie_word_embeddings"] else {}

    def links(self, config: Config) -> Iterator[Link]:
        maps = ("query", "key", "value")
        yield same("transformer.word_embeddings.weight", "embedding.weight")
        yield from norm("transformer.word_embeddings_layernorm", "embedding_norm", bias=True)
        for layer in range(config["n_layer"]):
            theirs, ours = f"transformer.h.{layer}", f"blocks.{layer}"
            yield from norm(f"{theirs}.input_layernorm", f"{ours}.norm_mixer", bias=True)
            for kind, turned in (("weight", [TURNED]), ("bias", [])):
                conversion = _by_head(config["n_head"])
                for after in turned:
                    conversion = conversion.then(after)
                ours_of = tuple(f"{ours}.mixer.{name}.{kind}" for name in maps)
                yield Link((f"{theirs}.self_attention.query_key_value.{kind}",), ours_of, conversion)
            yield from linear(f"{theirs}.self_attention.dense", f"{ours}.mixer.output", bias=True)
            yield from norm(f"{theirs}.post_attention_layernorm", f"{ours}.norm_mlp", bias=True)
            yield from linear(f"{theirs}.mlp.dense_h_to_4h", f"{ours}.mlp.up", bias=True)
            yield from linear(f"{theirs}.mlp.dense_4h_to_h", f"{ours}.mlp.down", bias=True)
        yield from norm("transformer.ln_f", "norm", bias=True)
        if not config["tie_word_embeddings"]:
            yield same("lm_head.weight", "head.weight", TURNED)


def _by_head(heads: int) -> Conversion:
    """Rows sorted by head, and in it by query, key and value, to the rows of each of the three."""
    return Conversion(
        lambda theirs: tuple(one.flatten(0, 1) for one in torch.unflatten(theirs[0], 0, (heads, 3, -1)).unbind(1)),
        lambda ours: (torch.stack([torch.unflatten(one, 0, (heads, -1)) for one in ours], 1).flatten(0, 2),),
    )
