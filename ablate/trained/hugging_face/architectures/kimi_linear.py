"""Kimi Linear (arXiv:2510.26692): Kimi Delta Attention, latent attention without positions, a mixture of experts."""

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
    Link,
    by_layer,
    convert_each,
    linear,
    norm,
    same,
)
from ablate.trained.hugging_face.architectures.deepseek_v3 import DeepseekV3, latent_links
from ablate.trained.hugging_face.architectures.llama import gated_links
from ablate.trained.hugging_face.settings import Config

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

    def places(self, config: Config) -> dict[str, Any]:
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
