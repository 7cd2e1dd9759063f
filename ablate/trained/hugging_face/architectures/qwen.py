"""Qwen2 (arXiv:2407.10671) and Qwen3 (arXiv:2505.09388), dense and with experts; Qwen3-Next, with Gated DeltaNet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import torch

from ablate.trained.hugging_face.architecture import (
    PLUS_ONE,
    TAPS,
    Conversion,
    Link,
    by_layer,
    linear,
    norm,
    parts,
    same,
)
from ablate.trained.hugging_face.architectures.llama import (
    LlamaLike,
    expert_links,
    gated_links,
    mixture,
    query_key_norm_links,
    windows,
)
from ablate.trained.hugging_face.settings import Config


class Qwen2(LlamaLike):
    """`transformers`, `models/qwen2`."""

    model_type = "qwen2"
    written_as = "Qwen2ForCausalLM"
    inert: ClassVar[tuple[str, ...]] = ("max_window_layers", "use_sliding_window")
    """Of these the class makes `layer_types`."""

    def biases(self, config: Config) -> tuple[bool, bool, bool]:
        return True, False, False

    def positions_by_layer(self, config: Config) -> dict[str, Any]:
        layers = windows(config)
        if any(layers) and not config["use_sliding_window"]:
            raise config.refuse("use_sliding_window", "layers with `sliding_attention` need it")
        return super().positions_by_layer(config) | by_layer(layers)


class Qwen3(Qwen2):
    """`transformers`, `models/qwen3`."""

    model_type = "qwen3"
    written_as = "Qwen3ForCausalLM"
    query_key_norm: ClassVar[Mapping[str, Any]] = {}

    def biases(self, config: Config) -> tuple[bool, bool, bool]:
        return config["attention_bias"], config["attention_bias"], False


class Qwen2Moe(Qwen2):
    """`transformers`, `models/qwen2_moe`: experts, of which some are shared, in some layers."""

    model_type = "qwen2_moe"
    written_as = "Qwen2MoeForCausalLM"

    def biases(self, config: Config) -> tuple[bool, bool, bool]:
        return config["qkv_bias"], False, False

    def mlp(self, config: Config) -> dict[str, Any]:
        return {**routed(config), **shared(config)}

    def positions_by_layer(self, config: Config) -> dict[str, Any]:
        dense = {"mlp": super().mlp(config)}
        layers = [
            {**self.window(config, layer), **({} if is_sparse(config, layer) else dense)}
            for layer in range(config["num_hidden_layers"])
        ]
        return {"positions": config.rotary(), **by_layer(layers)}

    def window(self, config: Config, layer: int) -> dict[str, Any]:
        """What is laid over the block where a layer sees a window."""
        here = windows(config)[layer]
        if here and not config["use_sliding_window"]:
            raise config.refuse("use_sliding_window", "layers with `sliding_attention` need it")
        return here

    def mlp_links(self, config: Config, layer: int, theirs: str, ours: str) -> Iterator[Link]:
        if not is_sparse(config, layer):
            yield from gated_links(theirs, ours)
            return
        yield from linear(f"{theirs}.gate", f"{ours}.router")
        yield from expert_links(theirs, ours, config["num_experts"])
        yield from self.shared_links(theirs, ours)

    def shared_links(self, theirs: str, ours: str) -> Iterator[Link]:
        """The experts that all tokens use."""
        return shared_links(theirs, ours)


class Qwen3Moe(Qwen2Moe):
    """`transformers`, `models/qwen3_moe`: without shared experts, and one window for all layers."""

    model_type = "qwen3_moe"
    written_as = "Qwen3MoeForCausalLM"
    undeclared = ("rope_theta", "head_dim")
    inert = ("use_sliding_window",)  # the class removes `sliding_window` without it
    query_key_norm: ClassVar[Mapping[str, Any]] = {}

    def biases(self, config: Config) -> tuple[bool, bool, bool]:
        return config["attention_bias"], config["attention_bias"], False

    def mlp(self, config: Config) -> dict[str, Any]:
        return routed(config)

    def window(self, config: Config, layer: int) -> dict[str, Any]:
        return {} if config["sliding_window"] is None else {"window": config["sliding_window"]}

    def shared_links(self, theirs: str, ours: str) -> Iterator[Link]:
        return iter(())


def routed(config: Config) -> dict[str, Any]:
    """The experts among which the router chooses."""
    return mixture(config, "num_experts", "moe_intermediate_size", normalise=config["norm_topk_prob"])


def shared(config: Config) -> dict[str, Any]:
    """Settings of the experts that all tokens use."""
    number, odd = divmod(config["shared_expert_intermediate_size"], config["moe_intermediate_size"])
    if odd or not number:
        raise config.refuse("shared_expert_intermediate_size", "a multiple of `moe_intermediate_size` can be read")
    return {"shared": number, "shared_gate": True}


def shared_links(theirs: str, ours: str) -> Iterator[Link]:
    """The experts that all tokens use, and their gate."""
    yield from gated_links(f"{theirs}.shared_expert", f"{ours}.shared")
    yield from linear(f"{theirs}.shared_expert_gate", f"{ours}.shared_gate")


def is_sparse(config: Config, layer: int) -> bool:
    """Whether a layer has experts; others have one MLP."""
    return layer not in (config["mlp_only_layers"] or ()) and (layer + 1) % config["decoder_sparse_step"] == 0


class Qwen3Next(LlamaLike):
    """`transformers`, `models/qwen3_next`. Modules of tokens after the next one are left out there too."""

    model_type = "qwen3_next"
    gain = PLUS_ONE
    unused = (*LlamaLike.unused, "mtp.*")
    query_key_norm: ClassVar[Mapping[str, Any]] = {}

    def mixer(self, config: Config) -> dict[str, Any]:
        config.need("attention_bias", False)
        if "linear_attention" in self._kinds(config) and config.activation("hidden_act") != "silu":
            raise config.refuse("hidden_act", "linear layers have it too, where 'silu' alone can be read")
        return {**super().mixer(config), "gate": "elementwise"}

    def mlp(self, config: Config) -> dict[str, Any]:
        return {**routed(config), **shared(config)}

    def positions_by_layer(self, config: Config) -> dict[str, Any]:
        linear = {"mixer": self._linear(config), "positions": "none"}
        dense = {"mlp": super().mlp(config)}
        layers = [
            {**(linear if kind == "linear_attention" else {}), **({} if is_sparse(config, layer) else dense)}
            for layer, kind in enumerate(self._kinds(config))
        ]
        return {"positions": config.rotary(partial=True), **by_layer(layers)}

    @staticmethod
    def _kinds(config: Config) -> list[str]:
        return config.layers("layer_types", "full_attention", "linear_attention")

    @staticmethod
    def _linear(config: Config) -> dict[str, Any]:
        return {
            "kind": "gated_deltanet",
            "heads": config["linear_num_value_heads"],
            "key_heads": config["linear_num_key_heads"],
            "key_width": config["linear_key_head_dim"],
            "value_width": config["linear_value_head_dim"],
            "taps": config["linear_conv_kernel_dim"],
            "eps": config["rms_norm_eps"],
        }

    def mixer_links(self, config: Config, layer: int, theirs: str, ours: str) -> Iterator[Link]:
        if self._kinds(config)[layer] == "linear_attention":
            yield from _delta_links(config, f"{theirs}.linear_attn", f"{ours}.mixer")
            return
        theirs, ours = f"{theirs}.self_attn", f"{ours}.mixer"
        width = config.head_width
        both = (f"{ours}.query.weight", f"{ours}.gate.map.weight")
        yield Link((f"{theirs}.q_proj.weight",), both, _by_group(config["num_attention_heads"], [width, width]))
        for their_name, our_name in (("k_proj", "key"), ("v_proj", "value"), ("o_proj", "output")):
            yield from linear(f"{theirs}.{their_name}", f"{ours}.{our_name}")
        yield from query_key_norm_links(theirs, ours, self.gain)

    def mlp_links(self, config: Config, layer: int, theirs: str, ours: str) -> Iterator[Link]:
        if not is_sparse(config, layer):
            yield from gated_links(theirs, ours)
            return
        yield from linear(f"{theirs}.gate", f"{ours}.router")
        yield from expert_links(theirs, ours, config["num_experts"])
        yield from shared_links(theirs, ours)


def _delta_links(config: Config, theirs: str, ours: str) -> Iterator[Link]:
    groups, key, value = (config[f"linear_{name}"] for name in ("num_key_heads", "key_head_dim", "value_head_dim"))
    many = config["linear_num_value_heads"] // groups
    maps = tuple(f"{ours}.{name}.weight" for name in ("query", "key", "value", "gate"))
    sizes = [key, key, many * value, many * value]
    yield Link((f"{theirs}.in_proj_qkvz.weight",), maps, _by_group(groups, sizes))
    maps = (f"{ours}.strength.weight", f"{ours}.fade.weight")
    yield Link((f"{theirs}.in_proj_ba.weight",), maps, _by_group(groups, [many, many]))
    taps = tuple(f"{ours}.{name}_convolution.weight" for name in ("query", "key", "value"))
    channels = [groups * key, groups * key, groups * many * value]
    yield Link((f"{theirs}.conv1d.weight",), taps, parts(channels).then(TAPS))
    yield same(f"{theirs}.dt_bias", f"{ours}.decay.bias")
    yield same(f"{theirs}.A_log", f"{ours}.decay.rate")
    yield from norm(f"{theirs}.norm", f"{ours}.norm")
    yield from linear(f"{theirs}.out_proj", f"{ours}.output")


def _by_group(groups: int, sizes: list[int]) -> Conversion:
    """A matrix whose rows are sorted by group, to one matrix per map with the rows of all groups."""

    def to_ours(theirs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        return tuple(one.flatten(0, 1).mT for one in torch.split(torch.unflatten(theirs[0], 0, (groups, -1)), sizes, 1))

    def to_theirs(ours: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        return (torch.cat([torch.unflatten(tensor.mT, 0, (groups, -1)) for tensor in ours], 1).flatten(0, 1),)

    return Conversion(to_ours, to_theirs)
