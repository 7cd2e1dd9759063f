"""Longformer (arXiv:2004.05150) without global tokens, and its head of masked tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch

from ablate.trained.hugging_face.architecture import Conversion, by_layer, convert_each
from ablate.trained.hugging_face.architectures.bert import BertLike
from ablate.trained.hugging_face.settings import Config


class LongformerModel(BertLike):
    """`transformers`, `models/longformer`: `LongformerForMaskedLM`, which has no global tokens unless it is given some.

    The maps of global tokens are left out. Positions are counted from the one after the padding token's.
    """

    model_type = "longformer"
    prefix = "longformer."
    head: ClassVar[Mapping[str, str]] = {
        "dense": "lm_head.dense",
        "norm": "lm_head.layer_norm",
        "bias": "lm_head.bias",
        "output": "lm_head.decoder",
    }
    unused: ClassVar[tuple[str, ...]] = (*BertLike.unused, "*.attention.self.*_global.*")

    def model(self, config: Config) -> dict[str, Any]:
        depth, windows = config["num_hidden_layers"], config["attention_window"]
        sizes = [windows] * depth if isinstance(windows, int) else windows
        if len(sizes) != depth or not all(size > 0 and size % 2 == 0 for size in sizes):
            raise config.refuse("attention_window", "an even number for each layer can be read")
        return {**super().model(config), **by_layer([{"window": size // 2 + 1} for size in sizes])}

    def head_activation(self, config: Config) -> str:
        return "gelu"

    def context(self, config: Config) -> int:
        return super().context(config) - self._before(config)

    def positions(self, config: Config) -> Conversion:
        before = self._before(config)
        return convert_each(
            lambda theirs: theirs[before:],
            lambda ours: torch.cat([ours.new_zeros(before, ours.shape[1]), ours]),
        )

    @staticmethod
    def _before(config: Config) -> int:
        """Rows of the table that no real token has."""
        padding = config["pad_token_id"]
        if not isinstance(padding, int) or not 0 <= padding < config["vocab_size"]:
            raise config.refuse("pad_token_id", "a token of the vocabulary can be read; positions are counted from it")
        return padding + 1
