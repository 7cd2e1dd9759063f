"""GPT-2 (Language Models are Unsupervised Multitask Learners, 2019), and decoders named as it is: GPT-J
(https://github.com/kingoflolz/mesh-transformer-jax), BLOOM (arXiv:2211.05100).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import torch

from ablate.spec.model import ModelSpec
from ablate.trained.hugging_face.architecture import (
    TURNED,
    Architecture,
    Conversion,
    Link,
    linear,
    norm,
    parts,
    reorder_rows,
    same,
)
from ablate.trained.hugging_face.architectures.llama import PARALLEL
from ablate.trained.hugging_face.settings import THEIR_ACTIVATIONS, Config

_BIASED = {"query_key_bias": True, "value": {"kind": "dense", "bias": True}, "output": {"kind": "dense", "bias": True}}


class GPTLike(Architecture):
    """A decoder of pre-norm blocks with LayerNorm and a plain MLP. Subclasses change what differs."""

    prefix = "transformer."
    table: ClassVar[str] = "wte"
    """Their name of the embedding."""
    norms: ClassVar[Mapping[str, str]] = {"ln_1": "norm_mixer", "ln_2": "norm_mlp"}
    """Their norms of a block to ours."""

    def model(self, config: Config) -> dict[str, Any]:
        norm = {"kind": "layer", "eps": config["layer_norm_epsilon"]}
        return {
            "family": "decoder",
            "depth": config["num_hidden_layers"],
            "width": config["hidden_size"],
            "heads": config["num_attention_heads"],
            "block": {**self.block(config), "norm": norm},
            "final_norm": norm,
            "tied_head": config["tie_word_embeddings"],
        }

    @abstractmethod
    def block(self, config: Config) -> dict[str, Any]:
        """A block without its norm."""

    def tied_names(self, config: Config) -> dict[str, str]:
        return {"lm_head.weight": f"transformer.{self.table}.weight"} if config["tie_word_embeddings"] else {}

    def links(self, config: Config) -> Iterator[Link]:
        yield same(f"transformer.{self.table}.weight", "embedding.weight")
        for layer in range(config["num_hidden_layers"]):
            theirs, ours = f"transformer.h.{layer}", f"blocks.{layer}"
            for their_norm, our_norm in self.norms.items():
                yield from norm(f"{theirs}.{their_norm}", f"{ours}.{our_norm}", bias=True)
            yield from self.layer_links(config, theirs, ours)
        yield from norm("transformer.ln_f", "norm", bias=True)
        if not config["tie_word_embeddings"]:
            yield same("lm_head.weight", "head.weight", TURNED)

    @abstractmethod
    def layer_links(self, config: Config, theirs: str, ours: str) -> Iterator[Link]:
        """Mixer and MLP of a layer."""

    def settings_of(self, spec: ModelSpec, vocabulary: int, context: int) -> dict[str, Any]:
        block: Any = spec.block
        return {
            "vocab_size": vocabulary,
            "n_positions": context,
            **dict.fromkeys(("n_embd", "hidden_size"), spec.width),
            "n_layer": spec.depth,
            "n_head": spec.heads,
            "n_inner": block.mlp.hidden(spec.width),
            "activation_function": THEIR_ACTIVATIONS[block.mlp.activation],
            **dict.fromkeys(("resid_pdrop", "hidden_dropout"), block.dropout),
            **dict.fromkeys(("attn_pdrop", "attention_dropout"), block.mixer.dropout),
            "embd_pdrop": spec.dropout,
            "layer_norm_epsilon": block.norm.eps,
            "tie_word_embeddings": spec.tied_head,
        }


class GPT2(GPTLike):
    """`transformers`, `models/gpt2`. Its maps are [in, out] as ours are, those of the attention side by side."""

    model_type = "gpt2"
    written_as = "GPT2LMHeadModel"
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
        own = {"positions": "learned", "dropout": config["embd_pdrop"], "initialiser": "depth_scaled"}
        return {**super().model(config), **own}

    def block(self, config: Config) -> dict[str, Any]:
        mixer = {"kind": "attention", **_BIASED, "dropout": config["attn_pdrop"]}
        return {"mixer": mixer, **_mlp_and_dropout(config)}

    def links(self, config: Config) -> Iterator[Link]:
        yield from super().links(config)
        yield same("transformer.wpe.weight", "positions.weight")

    def layer_links(self, config: Config, theirs: str, ours: str) -> Iterator[Link]:
        for kind, axis in (("weight", 1), ("bias", 0)):
            maps = tuple(f"{ours}.mixer.{name}.{kind}" for name in ("query", "key", "value"))
            yield Link((f"{theirs}.attn.c_attn.{kind}",), maps, parts([config["hidden_size"]] * 3, axis))
            yield same(f"{theirs}.attn.c_proj.{kind}", f"{ours}.mixer.output.{kind}")
            yield same(f"{theirs}.mlp.c_fc.{kind}", f"{ours}.mlp.up.{kind}")
            yield same(f"{theirs}.mlp.c_proj.{kind}", f"{ours}.mlp.down.{kind}")


def _mlp_and_dropout(config: Config) -> dict[str, Any]:
    """The MLP of a block, and the dropout after mixer and MLP."""
    width = config["hidden_size"]
    inner = 4 * width if config["n_inner"] is None else config["n_inner"]
    activation = config.activation("activation_function")
    mlp = {"kind": "plain", "ratio": inner / width, "activation": activation, "bias": True}
    return {"mlp": mlp, "dropout": config["resid_pdrop"]}


class GPTJ(GPTLike):
    """`transformers`, `models/gptj`: attention and MLP side by side. Rotated channels are adjacent pairs there."""

    model_type = "gptj"
    written_as = "GPTJForCausalLM"
    unused = ("transformer.h.*.attn.bias", "transformer.h.*.attn.masked_bias", "*.embed_positions")
    norms: ClassVar[Mapping[str, str]] = {"ln_1": "norm_mixer"}

    def model(self, config: Config) -> dict[str, Any]:
        head_width, turned = self._widths(config)
        if turned % 2 or not 0 < turned <= head_width:
            raise config.refuse("rotary_dim", f"an even number up to the width of a head, {head_width}, can be read")
        positions = {"kind": "rotary", "base": 10000.0, "fraction": turned / head_width}
        own = {"positions": positions, "dropout": config["embd_pdrop"], "head_bias": True}
        return {**super().model(config), **own}

    def settings_of(self, spec: ModelSpec, vocabulary: int, context: int) -> dict[str, Any]:
        positions: Any = spec.positions
        turned = positions.turning(spec.width // spec.heads)
        return {**super().settings_of(spec, vocabulary, context), "rotary_dim": turned}

    @staticmethod
    def _widths(config: Config) -> tuple[int, int]:
        """Channels of a head, and those of them that are rotated."""
        head_width, turned = config["hidden_size"] // config["num_attention_heads"], config["rotary_dim"]
        return head_width, head_width if turned is None else turned

    def block(self, config: Config) -> dict[str, Any]:
        mixer = {"kind": "attention", "dropout": config["attn_pdrop"]}
        return {"mixer": mixer, **PARALLEL, **_mlp_and_dropout(config)}

    def links(self, config: Config) -> Iterator[Link]:
        yield from super().links(config)
        yield same("lm_head.bias", "head_bias.value")

    def layer_links(self, config: Config, theirs: str, ours: str) -> Iterator[Link]:
        head_width, turned = self._widths(config)
        one = torch.cat([torch.arange(0, turned, 2), torch.arange(1, turned, 2), torch.arange(turned, head_width)])
        heads = torch.arange(config["num_attention_heads"])
        halves = reorder_rows((one + head_width * heads[:, None]).flatten()).then(TURNED)
        for name, conversion in (("query", halves), ("key", halves), ("value", TURNED)):
            yield same(f"{theirs}.attn.{name[0]}_proj.weight", f"{ours}.mixer.{name}.weight", conversion)
        yield from linear(f"{theirs}.attn.out_proj", f"{ours}.mixer.output")
        yield from linear(f"{theirs}.mlp.fc_in", f"{ours}.mlp.up", bias=True)
        yield from linear(f"{theirs}.mlp.fc_out", f"{ours}.mlp.down", bias=True)


class Bloom(GPTLike):
    """`transformers`, `models/bloom`. Rows of queries, keys and values are sorted by head."""

    model_type = "bloom"
    written_as = "BloomForCausalLM"
    table = "word_embeddings"
    norms: ClassVar[Mapping[str, str]] = {"input_layernorm": "norm_mixer", "post_attention_layernorm": "norm_mlp"}
    inert = ("slow_but_exact",)

    def model(self, config: Config) -> dict[str, Any]:
        config.need("apply_residual_connection_post_layernorm", False)
        model = super().model(config)
        return {**model, "positions": {"kind": "alibi", "slopes": "bloom"}, "embedding_norm": model["final_norm"]}

    def block(self, config: Config) -> dict[str, Any]:
        return {
            "mixer": {"kind": "attention", **_BIASED, "dropout": config["attention_dropout"]},
            "mlp": {"kind": "plain", "ratio": 4, "activation": "gelu_tanh", "bias": True},
            "dropout": config["hidden_dropout"],
        }

    def context(self, config: Config) -> int:
        """Any; that of training is in no setting."""
        return 2048

    def links(self, config: Config) -> Iterator[Link]:
        yield from super().links(config)
        yield from norm("transformer.word_embeddings_layernorm", "embedding_norm", bias=True)

    def layer_links(self, config: Config, theirs: str, ours: str) -> Iterator[Link]:
        split = _by_head(config["num_attention_heads"])
        for kind, conversion in (("weight", split.then(TURNED)), ("bias", split)):
            maps = tuple(f"{ours}.mixer.{name}.{kind}" for name in ("query", "key", "value"))
            yield Link((f"{theirs}.self_attention.query_key_value.{kind}",), maps, conversion)
        yield from linear(f"{theirs}.self_attention.dense", f"{ours}.mixer.output", bias=True)
        yield from linear(f"{theirs}.mlp.dense_h_to_4h", f"{ours}.mlp.up", bias=True)
        yield from linear(f"{theirs}.mlp.dense_4h_to_h", f"{ours}.mlp.down", bias=True)


def _by_head(heads: int) -> Conversion:
    """Rows sorted by head, and in it by query, key and value, to the rows of each of the three."""
    return Conversion(
        lambda theirs: tuple(one.flatten(0, 1) for one in torch.unflatten(theirs[0], 0, (heads, 3, -1)).unbind(1)),
        lambda ours: (torch.stack([torch.unflatten(tensor, 0, (heads, -1)) for tensor in ours], 1).flatten(0, 2),),
    )
