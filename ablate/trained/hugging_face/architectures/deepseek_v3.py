"""DeepSeek-V3 (arXiv:2412.19437): latent attention, and a mixture of experts balanced by a bias."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from ablate.trained.hugging_face.architecture import (
    STACKED,
    TURNED,
    Conversion,
    Link,
    by_layer,
    linear,
    norm,
    reorder_rows,
    same,
)
from ablate.trained.hugging_face.architectures.llama import LlamaLike, gated_links
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

    def places(self, config: Config) -> dict[str, Any]:
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


def expert_links(theirs: str, ours: str, experts: int) -> Iterator[Link]:
    """Gated experts; the files hold the weights of each expert separately."""
    for name in ("up", "gate", "down"):
        each = tuple(f"{theirs}.experts.{expert}.{name}_proj.weight" for expert in range(experts))
        yield Link(each, (f"{ours}.experts.{name}",), STACKED.then(TURNED))


def _halves(before: int, turned: int, times: int) -> torch.Tensor:
    """Of rows whose last channels are pairs (x₀, y₀), (x₁, y₁) ..., the order x₀, x₁ ..., y₀, y₁ ..."""
    pairs = torch.arange(turned)
    one = torch.cat([torch.arange(before), before + pairs[0::2], before + pairs[1::2]])
    return (one + (before + turned) * torch.arange(times)[:, None]).flatten()
