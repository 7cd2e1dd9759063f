"""`bpe`: byte-level byte pair encoding, trained with the `tokenizers` library."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from pydantic import Field

from ablate.tasks.tokenizers import FILE, Tokenizer, TokenizerSpec
from ablate.tasks.tokenizers.subwords import filled, read_saved, trained


class BpeSpec(TokenizerSpec):
    """Byte-level byte pair encoding, trained on all training documents with the `tokenizers` library."""

    kind: Literal["bpe"] = "bpe"
    """Byte-level byte pair encoding, trained on the training documents."""
    source = "arXiv:1508.07909, on bytes as in GPT-2; the tokenizers library"
    divides = "between visible characters"
    vocab_size: int = Field(ge=257, le=1_000_000)
    """Number of ids: 256 bytes, merged pairs, and the end of a document."""

    def train(self, texts: Iterable[str]) -> Tokenizer:
        """Merge the most frequent pair until the vocabulary is full; a pair must occur at least twice."""
        from tokenizers import Tokenizer as Model
        from tokenizers import decoders, models, pre_tokenizers, trainers

        model = Model(models.BPE())
        model.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        model.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=self.vocab_size - 1,
            min_frequency=2,
            show_progress=False,
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        )
        return filled(trained(model, texts, trainer), self.vocab_size)

    def load(self, folder: Path) -> Tokenizer:
        """Read the merges."""
        return read_saved(folder / FILE)
