"""Qwen2 (arXiv:2407.10671) and Qwen3 (arXiv:2505.09388), dense and with experts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from ablate.trained.hugging_face.architecture import Link, by_layer, linear
from ablate.trained.hugging_face.architectures.llama import LlamaLike, expert_links, gated_links, mixture, windows
from ablate.trained.hugging_face.settings import Config


class Qwen2(LlamaLike):
    """`transformers`, `models/qwen2`."""

    model_type = "qwen2"
    written_as = "Qwen2ForCausalLM"
    inert: ClassVar[tuple[str, ...]] = ("max_window_layers", "use_sliding_window")
    """Of these the class makes `layer_types`."""

    def biases(self, config: Config) -> tuple[bool, bool, bool]:
        return True, False, False

    def places(self, config: Config) -> dict[str, Any]:
        layers = windows(config)
        if any(layers) and not config["use_sliding_window"]:
            raise config.refuse("use_sliding_window", "layers with `sliding_attention` need it")
        return super().places(config) | by_layer(layers)


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

    def places(self, config: Config) -> dict[str, Any]:
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
