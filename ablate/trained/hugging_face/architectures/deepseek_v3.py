"""DeepSeek-V3 (arXiv:2412.19437), and Kimi Linear (arXiv:2510.26692), which has its latent attention and experts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from ablate.trained.hugging_face.architecture import (
    STACKED,
    TAPS,
    TURNED,
    Conversion,
    Link,
    by_layer,
    convert_each,
    linear,
    norm,
    reorder_rows,
    same,
)
from ablate.trained.hugging_face.architectures.llama import LlamaLike, expert_links, gated_links
from ablate.trained.hugging_face.settings import Config

_BALANCE_RATE = 0.001
"""γ of arXiv:2408.15664, by which the bias of the choice moves when the model is trained on."""


class DeepseekV3(LlamaLike):
    """`transformers`, `models/deepseek_v3`. Rotated channels are adjacent pairs there, two halves in ours."""

    model_type = "deepseek_v3"

    def head_width(self, config: Config) -> dict[str, Any]:
        return {}

    inert = ("num_mtp_layers", "qk_head_dim")
    unused = (*LlamaLike.unused, "model.layers.61.*")  # the module of later tokens of the published model

    def mixer(self, config: Config) -> dict[str, Any]:
        config.need("attention_bias", False)
        config.need("attention_dropout", 0.0)
        config.need("num_key_value_heads", config["num_attention_heads"])
        return latent_mixer(config)

    def mlp(self, config: Config) -> dict[str, Any]:
        return self.experts(config, config["n_routed_experts"])

    def dense(self, config: Config) -> dict[str, Any]:
        """The MLP of the layers without experts."""
        return super().mlp(config)

    def experts(self, config: Config, experts: int) -> dict[str, Any]:
        """The MLP of the layers with so many experts."""
        return {
            "kind": "mixture",
            "experts": experts,
            "active": config["num_experts_per_tok"],
            "ratio": config["moe_intermediate_size"] / config["hidden_size"],
            "activation": config.activation("hidden_act"),
            "shared": config["n_shared_experts"],
            "scores": "sigmoid",
            "normalise": config["norm_topk_prob"],
            "scale": config["routed_scaling_factor"],
            "groups": config["n_group"],
            "active_groups": config["topk_group"],
            "balance_rate": _BALANCE_RATE,
        }

    def positions_by_layer(self, config: Config) -> dict[str, Any]:
        config.need("head_dim", config["qk_rope_head_dim"])
        if not isinstance(config["rope_interleave"], bool):
            raise config.refuse("rope_interleave", "true or false can be read")
        positions = config.rotary()
        share = config["rope_parameters"].get("mscale_all_dim")
        if "scaling" in positions and share:
            if positions["scaling"]["kind"] != "yarn":
                raise config.refuse("rope_parameters.mscale_all_dim", "it can be read with yarn alone", got=share)
            positions["scaling"]["all_channels"] = share
        dense, depth = config["first_k_dense_replace"], config["num_hidden_layers"]
        here = {"mlp": self.dense(config)}
        return {"positions": positions, **by_layer([here if layer < dense else {} for layer in range(depth)])}

    def mixer_links(self, config: Config, layer: int, theirs: str, ours: str) -> Iterator[Link]:
        return latent_links(config, f"{theirs}.self_attn", f"{ours}.mixer", interleaved=config["rope_interleave"])

    def mlp_links(self, config: Config, layer: int, theirs: str, ours: str) -> Iterator[Link]:
        if layer < config["first_k_dense_replace"]:
            yield from gated_links(theirs, ours)
            return
        yield from linear(f"{theirs}.gate", f"{ours}.router")
        yield same(f"{theirs}.gate.e_score_correction_bias", f"{ours}.choice.value")
        yield from expert_links(theirs, ours, config["n_routed_experts"])
        if config["n_shared_experts"]:
            yield from gated_links(f"{theirs}.shared_experts", f"{ours}.shared")


def latent_mixer(config: Config) -> dict[str, Any]:
    """Latent attention as a mixer spec."""
    mixer = {
        "kind": "latent_attention",
        "kv_rank": config["kv_lora_rank"],
        "plain_width": config["qk_nope_head_dim"],
        "turned_width": config["qk_rope_head_dim"],
        "value_width": config["v_head_dim"],
    }
    return mixer if config["q_lora_rank"] is None else {**mixer, "query_rank": config["q_lora_rank"]}


def latent_links(config: Config, theirs: str, ours: str, *, interleaved: bool) -> Iterator[Link]:
    """Latent attention.

    Args:
        theirs: What the names of their tensors begin with.
        ours: What the names of ours begin with.
        interleaved: Whether channels that are rotated together are adjacent in theirs.
    """
    plain, turned, latent = config["qk_nope_head_dim"], config["qk_rope_head_dim"], config["kv_lora_rank"]
    heads = config["num_attention_heads"]

    def map_of(before: int, times: int) -> Conversion:
        """Rows of [before | turned], `times` one below the other, to maps."""
        return reorder_rows(_halves(before, turned, times)).then(TURNED) if interleaved else TURNED

    if config["q_lora_rank"] is None:
        yield same(f"{theirs}.q_proj.weight", f"{ours}.query.weight", map_of(plain, heads))
    else:
        yield from linear(f"{theirs}.q_a_proj", f"{ours}.query_down")
        yield from norm(f"{theirs}.q_a_layernorm", f"{ours}.query_norm")
        yield same(f"{theirs}.q_b_proj.weight", f"{ours}.query.weight", map_of(plain, heads))
    yield same(f"{theirs}.kv_a_proj_with_mqa.weight", f"{ours}.down.weight", map_of(latent, 1))
    yield from norm(f"{theirs}.kv_a_layernorm", f"{ours}.norm")
    yield from linear(f"{theirs}.kv_b_proj", f"{ours}.up")
    yield from linear(f"{theirs}.o_proj", f"{ours}.output")


def _halves(before: int, turned: int, times: int) -> torch.Tensor:
    """Of rows whose last channels are pairs (x₀, y₀), (x₁, y₁) ..., the order x₀, x₁ ..., y₀, y₁ ..."""
    pairs = torch.arange(turned)
    one = torch.cat([torch.arange(before), before + pairs[0::2], before + pairs[1::2]])
    return (one + (before + turned) * torch.arange(times)[:, None]).flatten()


_DENSE = re.compile(r"\.block_sparse_moe\.((?:gate|up|down)_proj\.)")
_BY_HEAD = convert_each(lambda one: one.flatten(), lambda one: one.view(1, 1, -1, 1))


class KimiLinear(DeepseekV3):
    """`transformers`, `models/kimi_linear`. Its files name parts in their own way.

    With `tie_word_embeddings` the authors' code ties the output matrix, and `transformers` does not.
    """

    model_type = "kimi_linear"
    inert = ("head_dim", "qk_head_dim")

    def tensor_name(self, name: str) -> str:
        """`transformers` writes MLPs without experts under the name of those with experts; the authors do not."""
        return _DENSE.sub(r".mlp.\1", name)

    def settled(self, plain: Mapping[str, Any], theirs: Mapping[str, Tensor]) -> Mapping[str, Any]:
        """An output matrix of other values than the embeddings was written by `transformers`."""
        table = theirs.get("model.embed_tokens.weight")
        own = table is not None and "lm_head.weight" in theirs and not torch.equal(theirs["lm_head.weight"], table)
        return {**plain, "tie_word_embeddings": False} if own else plain

    def mlp(self, config: Config) -> dict[str, Any]:
        return self.experts(config, config["num_local_experts"])

    def positions_by_layer(self, config: Config) -> dict[str, Any]:
        kinds, mlps = self._kinds(config), config.layers("mlp_layer_types", "dense", "sparse")
        if "linear_attention" in kinds and config.activation("hidden_act") != "silu":
            raise config.refuse("hidden_act", "linear layers have it too, where 'silu' alone can be read")
        linear, dense = {"mixer": self._linear(config)}, {"mlp": self.dense(config)}
        layers = [
            {**(linear if kind == "linear_attention" else {}), **({} if mlp == "sparse" else dense)}
            for kind, mlp in zip(kinds, mlps, strict=True)
        ]
        return {"positions": "none", **by_layer(layers)}

    @staticmethod
    def _linear(config: Config) -> dict[str, Any]:
        return {
            "kind": "kimi_delta_attention",
            "heads": config["linear_num_heads"],
            "head_width": config["linear_head_dim"],
            "taps": config["linear_conv_kernel_dim"],
            "eps": config["rms_norm_eps"],
        }

    @staticmethod
    def _kinds(config: Config) -> list[str]:
        return config.layers("layer_types", "full_attention", "linear_attention")

    def mixer_links(self, config: Config, layer: int, theirs: str, ours: str) -> Iterator[Link]:
        theirs, ours = f"{theirs}.self_attn", f"{ours}.mixer"
        if self._kinds(config)[layer] == "full_attention":
            yield from latent_links(config, theirs, ours, interleaved=False)
            return
        for name, short in (("query", "q"), ("key", "k"), ("value", "v")):
            yield from linear(f"{theirs}.{short}_proj", f"{ours}.{name}")
            yield same(f"{theirs}.{short}_conv1d.weight", f"{ours}.{name}_convolution.weight", TAPS)
        yield from linear(f"{theirs}.f_a_proj", f"{ours}.fade_down")
        yield from linear(f"{theirs}.f_b_proj", f"{ours}.fade_up")
        yield same(f"{theirs}.dt_bias", f"{ours}.decay.bias")
        yield same(f"{theirs}.A_log", f"{ours}.decay.rate", _BY_HEAD)
        yield from linear(f"{theirs}.b_proj", f"{ours}.strength")
        yield from linear(f"{theirs}.g_a_proj", f"{ours}.gate_down")
        yield from linear(f"{theirs}.g_b_proj", f"{ours}.gate_up")
        yield from norm(f"{theirs}.o_norm", f"{ours}.norm")
        yield from linear(f"{theirs}.o_proj", f"{ours}.output")

    def mlp_links(self, config: Config, layer: int, theirs: str, ours: str) -> Iterator[Link]:
        if config["mlp_layer_types"][layer] == "dense":
            yield from gated_links(theirs, ours)
            return
        theirs = f"{theirs.removesuffix('.mlp')}.block_sparse_moe"
        yield from linear(f"{theirs}.gate", f"{ours}.router")
        yield same(f"{theirs}.gate.e_score_correction_bias", f"{ours}.choice.value")
        for name, short in (("gate", "w1"), ("down", "w2"), ("up", "w3")):
            experts = range(config["num_local_experts"])
            every = tuple(f"{theirs}.experts.{expert}.{short}.weight" for expert in experts)
            yield Link(every, (f"{ours}.experts.{name}",), STACKED.then(TURNED))
        if config["n_shared_experts"]:
            yield from gated_links(f"{theirs}.shared_experts", f"{ours}.shared")
