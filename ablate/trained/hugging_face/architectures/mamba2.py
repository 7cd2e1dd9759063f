"""Mamba-2 (arXiv:2405.21060)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from ablate.spec.model import ModelSpec
from ablate.trained.hugging_face.architecture import TAPS, TURNED, Architecture, Link, linear, norm, parts, same
from ablate.trained.hugging_face.settings import Config

_USUAL_CONTEXT = 2048
"""Tokens of the texts that the published models were trained on; the model itself knows no longest text."""


class Mamba2Model(Architecture):
    """`transformers`, `models/mamba2`."""

    model_type = "mamba2"
    written_as = "Mamba2ForCausalLM"
    undeclared = ("max_position_embeddings",)
    prefix = "backbone."
    inert = (
        "chunk_size",
        "residual_in_fp32",
        "time_step_floor",
        "time_step_max",
        "time_step_min",
        "time_step_rank",
    )

    def model(self, config: Config) -> dict[str, Any]:
        config.need("use_bias", False)
        config.need("use_conv_bias", True)
        if config.activation("hidden_act") != "silu":
            raise config.refuse("hidden_act", "only 'silu' can be read")
        if config["rescale_prenorm_residual"]:
            raise config.refuse("rescale_prenorm_residual", "`transformers` rescales the weights that it reads by it")
        if config["num_heads"] * config["head_dim"] != config["expand"] * config["hidden_size"]:
            raise config.refuse("num_heads", "with `head_dim` it must make `expand` times `hidden_size`")
        if list(config.get("time_step_limit") or (0.0, math.inf)) != [0.0, math.inf]:
            raise config.refuse("time_step_limit", "steps without a limit alone can be read")
        norm = {"kind": "rms", "eps": config["layer_norm_epsilon"]}
        return {
            "family": "decoder",
            "depth": config["num_hidden_layers"],
            "width": config["hidden_size"],
            "block": {
                "mixer": {
                    "kind": "mamba2",
                    "expansion": config["expand"],
                    "head_width": config["head_dim"],
                    "state": config["state_size"],
                    "groups": config["n_groups"],
                    "taps": config["conv_kernel"],
                    "eps": config["layer_norm_epsilon"],
                },
                "mlp": "none",
                "norm": norm,
                "skips": {"mixer": 1, "mlp": 0},
            },
            "positions": "none",
            "final_norm": norm,
            "tied_head": config["tie_word_embeddings"],
        }

    def settings_of(self, spec: ModelSpec, vocabulary: int, context: int) -> dict[str, Any]:
        block: Any = spec.block
        mixer = block.mixer
        return {
            "vocab_size": vocabulary,
            "max_position_embeddings": context,
            "hidden_size": spec.width,
            "num_hidden_layers": spec.depth,
            "num_heads": spec.width * mixer.expansion // mixer.head_width,
            "head_dim": mixer.head_width,
            "expand": mixer.expansion,
            "state_size": mixer.state,
            "n_groups": mixer.groups,
            "conv_kernel": mixer.taps,
            "layer_norm_epsilon": block.norm.eps,
            "tie_word_embeddings": spec.tied_head,
        }

    def context(self, config: Config) -> int:
        return config.get("max_position_embeddings") or _USUAL_CONTEXT

    def tied_names(self, config: Config) -> dict[str, str]:
        return {"lm_head.weight": "backbone.embeddings.weight"} if config["tie_word_embeddings"] else {}

    def links(self, config: Config) -> Iterator[Link]:
        wide = config["expand"] * config["hidden_size"]
        sizes = [wide, wide + 2 * config["n_groups"] * config["state_size"], config["num_heads"]]
        yield same("backbone.embeddings.weight", "embedding.weight")
        for layer in range(config["num_hidden_layers"]):
            theirs, ours = f"backbone.layers.{layer}.mixer", f"blocks.{layer}.mixer"
            yield from norm(f"backbone.layers.{layer}.norm", f"blocks.{layer}.norm_mixer")
            maps = tuple(f"{ours}.{name}.weight" for name in ("gate", "inputs", "step_size"))
            yield Link((f"{theirs}.in_proj.weight",), maps, parts(sizes).then(TURNED))
            yield same(f"{theirs}.conv1d.weight", f"{ours}.convolution.weight", TAPS)
            yield same(f"{theirs}.conv1d.bias", f"{ours}.convolution.bias")
            yield same(f"{theirs}.dt_bias", f"{ours}.space.bias")
            yield same(f"{theirs}.A_log", f"{ours}.space.rate")
            yield same(f"{theirs}.D", f"{ours}.space.skip")
            yield from norm(f"{theirs}.norm", f"{ours}.norm")
            yield from linear(f"{theirs}.out_proj", f"{ours}.output")
        yield from norm("backbone.norm_f", "norm")
        if not config["tie_word_embeddings"]:
            yield same("lm_head.weight", "head.weight", TURNED)
