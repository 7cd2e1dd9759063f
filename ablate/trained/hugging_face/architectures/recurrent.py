"""Recurrent models: Mamba-2 (arXiv:2405.21060), and xLSTM (arXiv:2405.04517) as of xLSTM 7B (arXiv:2503.13427)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from ablate.spec.model import ModelSpec
from ablate.trained.hugging_face.architecture import TAPS, TURNED, Architecture, Link, linear, norm, parts, same
from ablate.trained.hugging_face.settings import Config

_MAMBA2_CONTEXT = 2048
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
        return config.get("max_position_embeddings") or _MAMBA2_CONTEXT

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


_XLSTM_CONTEXT = 8192
"""Tokens of the texts that the published model was trained on; the model itself knows no longest text."""
_XLSTM_MAPS = {
    "mlstm_layer.q": "mixer.query",
    "mlstm_layer.k": "mixer.key",
    "mlstm_layer.v": "mixer.value",
    "mlstm_layer.ogate_preact": "mixer.gate",
    "mlstm_layer.igate_preact": "mixer.input",
    "mlstm_layer.fgate_preact": "mixer.forget",
    "mlstm_layer.out_proj": "mixer.output",
    "ffn.proj_up_gate": "mlp.gate",
    "ffn.proj_up": "mlp.up",
    "ffn.proj_down": "mlp.down",
}
"""Their maps of a block to ours."""


class XLstm(Architecture):
    """`transformers`, `models/xlstm`: `xLSTMForCausalLM`, which reads padding as it reads any token."""

    model_type = "xlstm"
    written_as = "xLSTMForCausalLM"
    undeclared = ("max_position_embeddings",)
    prefix = "backbone."
    sees_padding = True
    exactly: ClassVar[Mapping[str, Any]] = {"autocast_kernel_dtype": "float32", "inference_state_dtype": "float32"}
    inert = (
        "add_out_norm",  # it is always there
        "autocast_kernel_dtype",
        "chunk_size",
        "chunkwise_kernel",
        "inference_state_dtype",
        "max_inference_chunksize",
        "mode",
        "norm_reduction_force_float32",
        "qk_head_dim",  # of states that their cache holds
        "return_last_states",
        "sequence_kernel",
        "step_kernel",
        "v_head_dim",
    )

    def model(self, config: Config) -> dict[str, Any]:
        only = {"use_bias": False, "tie_word_embeddings": False, "v_dim_factor": 1.0, "eps": 1e-6}
        for name, value in {**only, "weight_mode": "single"}.items():  # in another mode their class cannot be built
            config.need(name, value)
        width = config["hidden_size"]
        if config.get("embedding_dim") not in (None, width):
            raise config.refuse("embedding_dim", f"the width of the model, {width}, can be read")
        norm = {"kind": "rms", "eps": config["norm_eps"]}
        cap = config["output_logit_soft_cap"]
        return {
            "family": "decoder",
            "depth": self._depth(config),
            "width": width,
            "heads": config["num_heads"],
            "block": {
                "mixer": {
                    "kind": "mlstm",
                    "key_share": config["qk_dim_factor"],
                    "gate_cap": config["gate_soft_cap"],
                    "eps": config["norm_eps"],
                },
                "mlp": {"kind": "gated", "ratio": self._hidden(config) / width, "activation": "silu"},
                "norm": norm,
            },
            "positions": "none",
            "final_norm": norm,
            "tied_head": False,
            **({} if cap is None else {"logit_cap": cap}),
        }

    def settings_of(self, spec: ModelSpec, vocabulary: int, context: int) -> dict[str, Any]:
        block: Any = spec.block
        hidden = block.mlp.hidden(spec.width)
        return {
            "vocab_size": vocabulary,
            "max_position_embeddings": context,
            "hidden_size": spec.width,
            "num_hidden_layers": spec.depth,
            "num_heads": spec.heads,
            "qk_dim_factor": block.mixer.key_share,
            "gate_soft_cap": block.mixer.gate_cap,
            "norm_eps": block.norm.eps,
            "ffn_proj_factor": hidden / spec.width,
            "ffn_round_up_to_multiple_of": hidden,
            "output_logit_soft_cap": spec.logit_cap,
        }

    @staticmethod
    def _depth(config: Config) -> int:
        depth: int = config["num_hidden_layers"]
        return config.get("num_blocks") or depth

    @staticmethod
    def _hidden(config: Config) -> int:
        """Hidden width of the MLP, rounded up as the class does."""
        multiple = config["ffn_round_up_to_multiple_of"]
        return int((config["hidden_size"] * config["ffn_proj_factor"] + multiple - 1) // multiple * multiple)

    def context(self, config: Config) -> int:
        return config.get("max_position_embeddings") or _XLSTM_CONTEXT

    def tied_names(self, config: Config) -> dict[str, str]:
        return {}

    def links(self, config: Config) -> Iterator[Link]:
        yield same("backbone.embeddings.weight", "embedding.weight")
        for layer in range(self._depth(config)):
            theirs, ours = f"backbone.blocks.{layer}", f"blocks.{layer}"
            yield from norm(f"{theirs}.norm_mlstm", f"{ours}.norm_mixer")
            yield from norm(f"{theirs}.mlstm_layer.multihead_norm", f"{ours}.mixer.norm")
            yield from norm(f"{theirs}.norm_ffn", f"{ours}.norm_mlp")
            for their_name, our_name in _XLSTM_MAPS.items():
                biased = our_name in ("mixer.input", "mixer.forget")
                yield from linear(f"{theirs}.{their_name}", f"{ours}.{our_name}", bias=biased)
        yield from norm("backbone.out_norm", "norm")
        yield same("lm_head.weight", "head.weight", TURNED)
