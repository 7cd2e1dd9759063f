"""Llama (arXiv:2302.13971), and models that are written as it is: Qwen3, OLMo 2, SmolLM3, Gemma 3, gpt-oss."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, ClassVar

import torch

from ablate.spec.model import ModelSpec
from ablate.trained.hugging_face.architecture import (
    PLUS_ONE,
    SAME,
    TURNED,
    Architecture,
    Conversion,
    Link,
    by_layer,
    linear,
    norm,
    same,
)
from ablate.trained.hugging_face.settings import THEIR_ACTIVATIONS, Config


class LlamaLike(Architecture):
    """A decoder of pre-norm blocks with rotary positions, grouped queries, SwiGLU and RMSNorm.

    Subclasses change what differs.
    """

    unused: ClassVar[tuple[str, ...]] = ("*.rotary_emb.inv_freq",)
    activation: ClassVar[str] = "hidden_act"
    """The setting of the nonlinearity of MLPs."""
    written_as: ClassVar[str] = ""
    """The class of `transformers` as which models of ours are written; empty: they are not."""
    mlp_biases: ClassVar[bool] = False
    """Whether `mlp_bias` is obeyed."""
    gain: ClassVar[Conversion] = SAME
    """How the gains of norms are stored."""
    norms: ClassVar[Mapping[str, str]] = {"input_layernorm": "norm_mixer", "post_attention_layernorm": "norm_mlp"}
    """Their norms of a block to ours."""
    query_key_norm: ClassVar[Mapping[str, Any] | None] = None
    """Settings of the norm of queries and keys; None: it has none."""

    def model(self, config: Config) -> dict[str, Any]:
        return {
            "family": "decoder",
            "depth": config["num_hidden_layers"],
            "width": config["hidden_size"],
            "heads": config["num_attention_heads"],
            **self.head_width(config),
            "block": {"mixer": self.mixer(config), "mlp": self.mlp(config), "norm": self.block_norm(config)},
            **self.places(config),
            "final_norm": self.norm(config),
            "tied_head": config["tie_word_embeddings"],
        }

    def head_width(self, config: Config) -> dict[str, Any]:
        """`head_width`, where it is not the width divided by the heads."""
        wide = config.head_width * config["num_attention_heads"] != config["hidden_size"]
        return {"head_width": config.head_width} if wide else {}

    def mixer(self, config: Config) -> dict[str, Any]:
        """The mixer of a block."""
        heads, groups = config["num_attention_heads"], config["num_key_value_heads"]
        mixer: dict[str, Any] = {"kind": "attention"}
        if groups != heads:
            mixer["kv_heads"] = groups
        if config["attention_bias"]:
            biased = {"kind": "dense", "bias": True}
            mixer |= {"query_key_bias": True, "value": biased, "output": biased}
        if self.query_key_norm is not None:
            mixer["query_key_norm"] = {"kind": "rms", "eps": config["rms_norm_eps"], **self.query_key_norm}
        return {**mixer, "dropout": config["attention_dropout"]} if config["attention_dropout"] else mixer

    def mlp(self, config: Config) -> dict[str, Any]:
        """The MLP of a block."""
        mlp = {
            "kind": "gated",
            "ratio": config["intermediate_size"] / config["hidden_size"],
            "activation": config.activation(self.activation),
        }
        return {**mlp, "bias": True} if self.mlp_biases and config["mlp_bias"] else mlp

    def block_norm(self, config: Config) -> dict[str, Any]:
        """The norm of a block."""
        return self.norm(config)

    def norm(self, config: Config) -> dict[str, Any]:
        """The norm after the last block."""
        return {"kind": "rms", "eps": config["rms_norm_eps"]}

    def places(self, config: Config) -> dict[str, Any]:
        """The positions of the model, and what differs between layers."""
        return {"positions": config.rotary()}

    def links(self, config: Config) -> Iterator[Link]:
        yield same("model.embed_tokens.weight", "embedding.weight")
        for layer in range(config["num_hidden_layers"]):
            theirs, ours = f"model.layers.{layer}", f"blocks.{layer}"
            for their_norm, our_norm in self.norms.items():
                yield from norm(f"{theirs}.{their_norm}", f"{ours}.{our_norm}", conversion=self.gain)
            yield from self.mixer_links(config, layer, theirs, ours)
            yield from self.mlp_links(config, layer, f"{theirs}.mlp", f"{ours}.mlp")
        yield from norm("model.norm", "norm", conversion=self.gain)
        if not config["tie_word_embeddings"]:
            yield same("lm_head.weight", "head.weight", TURNED)

    def config_of(self, spec: ModelSpec, vocabulary: int, context: int) -> dict[str, Any] | None:
        if not self.written_as:
            return None
        block: Any = spec.block
        positions: Any = spec.positions
        return {
            "architectures": [self.written_as],
            "vocab_size": vocabulary,
            "hidden_size": spec.width,
            "intermediate_size": block.mlp.hidden(spec.width),
            "num_hidden_layers": spec.depth,
            "num_attention_heads": spec.heads,
            "num_key_value_heads": block.mixer.kv_heads or spec.heads,
            "head_dim": spec.head_width or spec.width // spec.heads,
            "hidden_act": THEIR_ACTIVATIONS[block.mlp.activation],
            "max_position_embeddings": context,
            "rms_norm_eps": block.norm.eps,
            "rope_parameters": {"rope_type": "default", "rope_theta": positions.base},
            "rope_theta": positions.base,  # where other programs, and `transformers` 4, read it
            "attention_bias": block.mixer.query_key_bias,
            "attention_dropout": block.mixer.dropout,
            "mlp_bias": block.mlp.bias,
            "tie_word_embeddings": spec.tied_head,
        }

    def mixer_links(self, config: Config, layer: int, theirs: str, ours: str) -> Iterator[Link]:
        """The mixer of a layer; the names are those of the layer."""
        yield from attention_links(f"{theirs}.self_attn", f"{ours}.mixer", bias=config["attention_bias"])
        if self.query_key_norm is not None:
            yield from query_key_norm_links(f"{theirs}.self_attn", f"{ours}.mixer", self.gain)

    def mlp_links(self, config: Config, layer: int, theirs: str, ours: str) -> Iterator[Link]:
        """The MLP of a layer; the names are those of the MLP."""
        return gated_links(theirs, ours, bias=self.mlp_biases and config["mlp_bias"])


class Llama(LlamaLike):
    """`transformers`, `models/llama`."""

    model_type = "llama"
    written_as = "LlamaForCausalLM"
    mlp_biases = True


def windows(config: Config, local: Mapping[str, Any] = MappingProxyType({})) -> list[dict[str, Any]]:
    """What is laid over the block in each layer, where some layers see a window.

    Args:
        local: What else differs in layers that see a window.
    """
    kinds = config.layers("layer_types", "full_attention", "sliding_attention")
    window = config["sliding_window"]
    if "sliding_attention" in kinds and window is None:
        raise config.refuse("sliding_window", "layers with `sliding_attention` need a window")
    return [{**local, "window": window} if kind == "sliding_attention" else {} for kind in kinds]


def attention_links(theirs: str, ours: str, *, bias: bool = False) -> Iterator[Link]:
    """The projections of queries, keys, values and the output."""
    for their_name, our_name in (("q_proj", "query"), ("k_proj", "key"), ("v_proj", "value"), ("o_proj", "output")):
        yield from linear(f"{theirs}.{their_name}", f"{ours}.{our_name}", bias=bias)


def gated_links(theirs: str, ours: str, *, bias: bool = False) -> Iterator[Link]:
    """A gated MLP."""
    for name in ("up", "gate", "down"):
        yield from linear(f"{theirs}.{name}_proj", f"{ours}.{name}", bias=bias)


def query_key_norm_links(theirs: str, ours: str, conversion: Conversion = SAME) -> Iterator[Link]:
    """Norms of queries and keys."""
    yield from norm(f"{theirs}.q_norm", f"{ours}.query_norm", conversion=conversion)
    yield from norm(f"{theirs}.k_norm", f"{ours}.key_norm", conversion=conversion)


class Qwen3(LlamaLike):
    """`transformers`, `models/qwen3`."""

    model_type = "qwen3"
    written_as = "Qwen3ForCausalLM"
    inert = ("max_window_layers", "use_sliding_window")  # the class works `layer_types` out from them
    query_key_norm: ClassVar[Mapping[str, Any]] = {}

    def places(self, config: Config) -> dict[str, Any]:
        layers = windows(config)
        if any(layers) and not config["use_sliding_window"]:
            raise config.refuse("use_sliding_window", "layers with `sliding_attention` need it")
        return super().places(config) | by_layer(layers)


class Olmo2(LlamaLike):
    """`transformers`, `models/olmo2`."""

    model_type = "olmo2"
    norms: ClassVar[Mapping[str, str]] = {
        "post_attention_layernorm": "norm_mixer",
        "post_feedforward_layernorm": "norm_mlp",
    }
    query_key_norm: ClassVar[Mapping[str, Any]] = {"over": "width"}

    def block_norm(self, config: Config) -> dict[str, Any]:
        return {**super().block_norm(config), "place": "output"}


class SmolLM3(LlamaLike):
    """`transformers`, `models/smollm3`."""

    model_type = "smollm3"

    inert = ("no_rope_layer_interval", "use_sliding_window")  # the class works lists over layers out from them
    mlp_biases = True

    def places(self, config: Config) -> dict[str, Any]:
        turned = config["no_rope_layers"]
        if not isinstance(turned, list) or len(turned) < config["num_hidden_layers"]:
            raise config.refuse("no_rope_layers", "a list with a value for each layer can be read")
        layers = [here if turned[i] else {**here, "positions": "none"} for i, here in enumerate(windows(config))]
        return super().places(config) | by_layer(layers)


class Gemma3(LlamaLike):
    """`transformers`, `models/gemma3`, `Gemma3ForCausalLM`. Gains of norms are stored as their difference from 1."""

    model_type = "gemma3_text"
    gain = PLUS_ONE
    activation = "hidden_activation"
    inert = ("_sliding_window_pattern",)
    norms: ClassVar[Mapping[str, str]] = {
        "input_layernorm": "norm_mixer",
        "post_attention_layernorm": "norm_mixer_output",
        "pre_feedforward_layernorm": "norm_mlp",
        "post_feedforward_layernorm": "norm_mlp_output",
    }
    query_key_norm: ClassVar[Mapping[str, Any]] = {}

    def model(self, config: Config) -> dict[str, Any]:
        config.need("use_bidirectional_attention", False)
        config.need("attn_logit_softcapping", None)
        cap = config["final_logit_softcapping"]
        return {
            **super().model(config),
            "embedding_scale": "sqrt_width",
            **({"logit_cap": cap} if cap is not None else {}),
        }

    def block_norm(self, config: Config) -> dict[str, Any]:
        return {**super().block_norm(config), "place": "sandwich"}

    def mixer(self, config: Config) -> dict[str, Any]:
        mixer = super().mixer(config)
        if config["query_pre_attn_scalar"] != config.head_width:
            mixer["scale"] = config["query_pre_attn_scalar"] ** -0.5
        return mixer

    def places(self, config: Config) -> dict[str, Any]:
        kinds = config["layer_types"]
        rope = {kind: config.rotary(kind) for kind in ("full_attention", "sliding_attention") if kind in kinds}
        layers = windows(config, {"positions": rope.get("sliding_attention")})
        return {"positions": rope.get("full_attention", "none"), **by_layer(layers)}


_ALTERNATING = Conversion(
    lambda theirs: (theirs[0][..., 0::2], theirs[0][..., 1::2]),
    lambda ours: (torch.stack(list(ours), -1).flatten(-2),),
)
"""Columns of gate and of up in turn."""
_ALPHA = 1.702


class GptOss(LlamaLike):
    """`transformers`, `models/gpt_oss`, weights in a float type. The experts' matrices are [in, out] as ours are."""

    model_type = "gpt_oss"

    inert = ("hidden_act",)

    def mixer(self, config: Config) -> dict[str, Any]:
        return {**super().mixer(config), "logits": {"sinks": True}}

    def mlp(self, config: Config) -> dict[str, Any]:
        config.need("swiglu_alpha", _ALPHA)
        return {
            "kind": "mixture",
            "experts": config["num_local_experts"],
            "active": config["num_experts_per_tok"],
            "ratio": config["intermediate_size"] / config["hidden_size"],
            "activation": "quick_gelu",
            "bias": True,
            "limit": config["swiglu_limit"],
            "shift": 1.0,
            "router_bias": True,
        }

    def places(self, config: Config) -> dict[str, Any]:
        return super().places(config) | by_layer(windows(config))

    def mixer_links(self, config: Config, layer: int, theirs: str, ours: str) -> Iterator[Link]:
        yield from attention_links(f"{theirs}.self_attn", f"{ours}.mixer", bias=config["attention_bias"])
        yield same(f"{theirs}.self_attn.sinks", f"{ours}.mixer.sinks.logit")

    def mlp_links(self, config: Config, layer: int, theirs: str, ours: str) -> Iterator[Link]:
        yield from linear(f"{theirs}.router", f"{ours}.router", bias=True)
        for suffix in ("", "_bias"):
            both = (f"{ours}.experts.gate{suffix}", f"{ours}.experts.up{suffix}")
            yield Link((f"{theirs}.experts.gate_up_proj{suffix}",), both, _ALTERNATING)
            yield same(f"{theirs}.experts.down_proj{suffix}", f"{ours}.experts.down{suffix}")
