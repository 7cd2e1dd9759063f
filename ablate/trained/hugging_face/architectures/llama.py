"""Llama (arXiv:2302.13971), what models that are written as it is share, and some of them: Arcee, Seed-OSS, SmolLM3,
gpt-oss.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, ClassVar

import torch

from ablate.kinds.mlps import HiddenLayerSpec
from ablate.spec.model import ModelSpec
from ablate.trained.hugging_face.architecture import (
    SAME,
    STACKED,
    TURNED,
    Architecture,
    Conversion,
    Link,
    by_layer,
    linear,
    norm,
    same,
)
from ablate.trained.hugging_face.settings import THEIR_ACTIVATIONS, Config, layer_types, to_rope

PARALLEL = {"arrangement": "parallel", "skips": {"mlp": 0}}
"""Attention and MLP side by side, after one norm."""
_GATED = {"up_proj": "up", "gate_proj": "gate", "down_proj": "down"}


class LlamaLike(Architecture):
    """A decoder of pre-norm blocks with rotary positions, grouped queries, a gated MLP and RMSNorm.

    Subclasses change what differs.
    """

    unused: ClassVar[tuple[str, ...]] = ("*.rotary_emb.inv_freq",)
    activation: ClassVar[str] = "hidden_act"
    """The setting of the nonlinearity of MLPs."""
    undeclared: ClassVar[tuple[str, ...]] = ("rope_theta",)
    norm_kind: ClassVar[str] = "rms"
    """`rms`, or `layer` with biases."""
    eps: ClassVar[str] = "rms_norm_eps"
    """The setting of ε of the norms."""
    partial: ClassVar[bool] = False
    """Whether a share of the channels of a head may be rotated."""
    final_norm: ClassVar[str] = "model.norm"
    """Their norm after the last block."""
    attention_maps: ClassVar[Mapping[str, str]] = {
        "q_proj": "query",
        "k_proj": "key",
        "v_proj": "value",
        "o_proj": "output",
    }
    """Their projections of attention to ours."""
    mlp_maps: ClassVar[Mapping[str, str]] = _GATED
    """Their maps of an MLP to ours; without a gate it is a plain one."""
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
            "block": {
                "mixer": self.mixer(config),
                "mlp": self.mlp(config),
                "norm": self.block_norm(config),
                **self.joined(config),
            },
            **self.positions_by_layer(config),
            "final_norm": self.norm(config),
            "tied_head": config["tie_word_embeddings"],
        }

    def biases(self, config: Config) -> tuple[bool, bool, bool]:
        """Whether queries, keys and values, whether the output, and whether the MLP have biases."""
        return config["attention_bias"], config["attention_bias"], False

    def joined(self, config: Config) -> dict[str, Any]:
        """How the branches of a block are joined to the stream: settings of a block."""
        return {}

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
        biased, (inner, outer, _) = {"kind": "dense", "bias": True}, self.biases(config)
        if inner:
            mixer |= {"query_key_bias": True, "value": biased}
        if outer:
            mixer["output"] = biased
        if self.query_key_norm is not None:
            mixer["query_key_norm"] = {"kind": "rms", "eps": config["rms_norm_eps"], **self.query_key_norm}
        return {**mixer, "dropout": config["attention_dropout"]} if config["attention_dropout"] else mixer

    def mlp(self, config: Config) -> dict[str, Any]:
        """The MLP of a block."""
        mlp = {
            "kind": "gated" if "gate" in self.mlp_maps.values() else "plain",
            "ratio": config["intermediate_size"] / config["hidden_size"],
            "activation": config.activation(self.activation),
        }
        return {**mlp, "bias": True} if self.biases(config)[2] else mlp

    def block_norm(self, config: Config) -> dict[str, Any]:
        """The norm of a block."""
        return self.norm(config)

    def norm(self, config: Config) -> dict[str, Any]:
        """The norm after the last block."""
        return {"kind": self.norm_kind, "eps": config[self.eps]}

    def positions_by_layer(self, config: Config) -> dict[str, Any]:
        """The positions of the model, and what differs between layers."""
        return {"positions": config.rotary(partial=self.partial)}

    def links(self, config: Config) -> Iterator[Link]:
        yield same("model.embed_tokens.weight", "embedding.weight")
        for layer in range(config["num_hidden_layers"]):
            theirs, ours = f"model.layers.{layer}", f"blocks.{layer}"
            for their_norm, our_norm in self.norms.items():
                yield from self.norm_links(f"{theirs}.{their_norm}", f"{ours}.{our_norm}")
            yield from self.mixer_links(config, layer, theirs, ours)
            yield from self.mlp_links(config, layer, f"{theirs}.mlp", f"{ours}.mlp")
        yield from self.norm_links(self.final_norm, "norm")
        if not config["tie_word_embeddings"]:
            yield same("lm_head.weight", "head.weight", TURNED)

    def norm_links(self, theirs: str, ours: str) -> Iterator[Link]:
        """A norm of the stream."""
        return norm(theirs, ours, bias=self.norm_kind == "layer", conversion=self.gain)

    def settings_of(self, spec: ModelSpec, vocabulary: int, context: int) -> dict[str, Any]:
        block: Any = spec.block
        mixer, mlp = block.mixer, block.mlp
        head_width = spec.head_width or spec.width // spec.heads
        window = next((layer.window for layer in spec.blocks if layer.window), None)
        hidden = mlp.hidden(spec.width) if mlp.kind != "mixture" else round(mlp.ratio * spec.width)
        settings = {
            "vocab_size": vocabulary,
            "max_position_embeddings": context,
            "hidden_size": spec.width,
            "intermediate_size": hidden,
            "num_hidden_layers": spec.depth,
            "num_attention_heads": spec.heads,
            "num_key_value_heads": mixer.kv_heads or spec.heads,
            "head_dim": head_width,
            "tie_word_embeddings": spec.tied_head,
            self.activation: THEIR_ACTIVATIONS[mlp.activation],
            self.eps: block.norm.eps,
            "mlp_bias": mlp.bias,
            "use_bias": mlp.bias,
            "attention_out_bias": mixer.output.bias,
            **dict.fromkeys(("attention_bias", "qkv_bias", "use_qkv_bias"), mixer.query_key_bias),
            "attention_dropout": mixer.dropout,
            **dict.fromkeys(("residual_dropout", "resid_pdrop"), block.dropout),
            **dict.fromkeys(("embedding_dropout", "embd_pdrop"), spec.dropout),
            "use_parallel_residual": block.arrangement == "parallel",
            "sliding_window": window,
            "use_sliding_window": window is not None,
            "layer_types": layer_types(spec),
            "final_logit_softcapping": spec.logit_cap,
            "attn_logit_softcapping": mixer.logits.soft_cap,
            "query_pre_attn_scalar": round(mixer.scale**-2) if isinstance(mixer.scale, float) else head_width,
            **self.written_rope(spec),
        }
        if mlp.kind == "mixture":
            plain = {
                layer: block.mlp for layer, block in enumerate(spec.blocks) if isinstance(block.mlp, HiddenLayerSpec)
            }
            settings |= {
                "intermediate_size": next((one.hidden(spec.width) for one in plain.values()), hidden),
                "mlp_only_layers": [*plain],
                **dict.fromkeys(("num_experts", "num_local_experts"), mlp.experts),
                "num_experts_per_tok": mlp.active,
                "moe_intermediate_size": hidden,
                "shared_expert_intermediate_size": hidden * mlp.shared,
                "norm_topk_prob": mlp.normalise,
            }
        return settings

    def written_rope(self, spec: ModelSpec) -> dict[str, Any]:
        """The settings of the rotary positions."""
        positions: Any = spec.positions
        rope = {**to_rope(positions.scaling), "rope_theta": positions.base}
        if self.partial:
            rope["partial_rotary_factor"] = positions.fraction
        original = "original_max_position_embeddings"
        # Both also stand where other programs, `transformers` 4 and the class of Phi-3 read them.
        beside = {name: rope[name] for name in ("rope_theta", original) if name in rope}
        if rope["rope_type"] == "dynamic":
            beside["max_position_embeddings"] = rope.pop(original)
        return {"rope_parameters": rope, **beside}

    def mixer_links(self, config: Config, layer: int, theirs: str, ours: str) -> Iterator[Link]:
        """The mixer of a layer; the names are those of the layer."""
        inner, outer, _ = self.biases(config)
        for their_name, our_name in self.attention_maps.items():
            biased = outer if our_name == "output" else inner
            yield from linear(f"{theirs}.self_attn.{their_name}", f"{ours}.mixer.{our_name}", bias=biased)
        if self.query_key_norm is not None:
            yield from query_key_norm_links(f"{theirs}.self_attn", f"{ours}.mixer", self.gain)

    def mlp_links(self, config: Config, layer: int, theirs: str, ours: str) -> Iterator[Link]:
        """The MLP of a layer; the names are those of the MLP."""
        for their_name, our_name in self.mlp_maps.items():
            yield from linear(f"{theirs}.{their_name}", f"{ours}.{our_name}", bias=self.biases(config)[2])


class Llama(LlamaLike):
    """`transformers`, `models/llama`."""

    model_type = "llama"
    written_as = "LlamaForCausalLM"

    def biases(self, config: Config) -> tuple[bool, bool, bool]:
        return config["attention_bias"], config["attention_bias"], config["mlp_bias"]


class Arcee(Llama):
    """`transformers`, `models/arcee`: Llama with a plain MLP."""

    model_type = "arcee"
    written_as = "ArceeForCausalLM"
    mlp_maps: ClassVar[Mapping[str, str]] = {"up_proj": "up", "down_proj": "down"}


class SeedOss(LlamaLike):
    """`transformers`, `models/seed_oss`."""

    model_type = "seed_oss"
    written_as = "SeedOssForCausalLM"

    def biases(self, config: Config) -> tuple[bool, bool, bool]:
        return config["attention_bias"], config["attention_out_bias"], config["mlp_bias"]

    def joined(self, config: Config) -> dict[str, Any]:
        return {"dropout": config["residual_dropout"]}


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


def windows_with_rotary(config: Config) -> dict[str, Any]:
    """The positions of the model and what differs between layers, where those that see a window rotate otherwise."""
    kinds = config["layer_types"]
    rope = {kind: config.rotary(kind) for kind in ("full_attention", "sliding_attention") if kind in kinds}
    layers = windows(config, {"positions": rope.get("sliding_attention")})
    return {"positions": rope.get("full_attention", "none"), **by_layer(layers)}


def mixture(config: Config, experts: str, hidden: str, *, normalise: bool) -> dict[str, Any]:
    """Gated experts among which a softmax chooses.

    Args:
        experts: The setting of how many there are.
        hidden: The setting of their hidden width.
        normalise: Whether the weights of the chosen ones add up to 1.
    """
    return {
        "kind": "mixture",
        "experts": config[experts],
        "active": config["num_experts_per_tok"],
        "ratio": config[hidden] / config["hidden_size"],
        "activation": config.activation("hidden_act"),
        "normalise": normalise,
    }


def expert_links(theirs: str, ours: str, experts: int, names: Mapping[str, str] = _GATED) -> Iterator[Link]:
    """Gated experts; the files hold the weights of each expert separately.

    Args:
        names: Their maps of an expert to ours.
    """
    for their_name, our_name in names.items():
        each = tuple(f"{theirs}.experts.{expert}.{their_name}.weight" for expert in range(experts))
        yield Link(each, (f"{ours}.experts.{our_name}",), STACKED.then(TURNED))


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


class SmolLM3(Llama):
    """`transformers`, `models/smollm3`."""

    model_type = "smollm3"
    written_as = "SmolLM3ForCausalLM"
    undeclared = ("rope_theta", "head_dim")
    inert = ("no_rope_layer_interval", "use_sliding_window")  # the class works lists over layers out from them

    def positions_by_layer(self, config: Config) -> dict[str, Any]:
        turned = config["no_rope_layers"]
        if not isinstance(turned, list) or len(turned) < config["num_hidden_layers"]:
            raise config.refuse("no_rope_layers", "a list with a value for each layer can be read")
        layers = [here if turned[i] else {**here, "positions": "none"} for i, here in enumerate(windows(config))]
        return super().positions_by_layer(config) | by_layer(layers)

    def settings_of(self, spec: ModelSpec, vocabulary: int, context: int) -> dict[str, Any]:
        turned = [int((layer.positions or spec.positions).kind_name() != "none") for layer in spec.blocks]
        return {**super().settings_of(spec, vocabulary, context), "no_rope_layers": turned}


_ALTERNATING = Conversion(
    lambda theirs: (theirs[0][..., 0::2], theirs[0][..., 1::2]),
    lambda ours: (torch.stack(list(ours), -1).flatten(-2),),
)
"""Columns of gate and of up in turn."""
_ALPHA = 1.702


class GptOss(LlamaLike):
    """`transformers`, `models/gpt_oss`, weights in a float type. The experts' matrices are [in, out] as ours are."""

    model_type = "gpt_oss"
    written_as = "GptOssForCausalLM"
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

    def settings_of(self, spec: ModelSpec, vocabulary: int, context: int) -> dict[str, Any]:
        mlp: Any = spec.block.mlp
        made = super().settings_of(spec, vocabulary, context)
        return {**made, "hidden_act": "silu", "swiglu_limit": mlp.limit}

    def positions_by_layer(self, config: Config) -> dict[str, Any]:
        return super().positions_by_layer(config) | by_layer(windows(config))

    def mixer_links(self, config: Config, layer: int, theirs: str, ours: str) -> Iterator[Link]:
        yield from attention_links(f"{theirs}.self_attn", f"{ours}.mixer", bias=config["attention_bias"])
        yield same(f"{theirs}.self_attn.sinks", f"{ours}.mixer.sinks.logit")

    def mlp_links(self, config: Config, layer: int, theirs: str, ours: str) -> Iterator[Link]:
        yield from linear(f"{theirs}.router", f"{ours}.router", bias=True)
        for suffix in ("", "_bias"):
            both = (f"{ours}.experts.gate{suffix}", f"{ours}.experts.up{suffix}")
            yield Link((f"{theirs}.experts.gate_up_proj{suffix}",), both, _ALTERNATING)
            yield same(f"{theirs}.experts.down_proj{suffix}", f"{ours}.experts.down{suffix}")
