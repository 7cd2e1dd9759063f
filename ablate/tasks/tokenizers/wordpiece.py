"""`wordpiece`: WordPiece as in BERT, trained with the `tokenizers` library."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from ablate.tasks.tokenizers import FILE, Tokenizer, TokenizerSpec
from ablate.tasks.tokenizers.subwords import UNKNOWN, filled, read_saved, trained

if TYPE_CHECKING:
    import tokenizers


class WordPieceSpec(TokenizerSpec):
    """WordPiece as in BERT, trained on all training documents with the `tokenizers` library. White space is lost."""

    kind: Literal["wordpiece"] = "wordpiece"
    """WordPiece as in BERT, trained on the training documents."""
    source = "Schuster & Nakajima 2012, as in BERT (arXiv:1810.04805); the tokenizers library"
    divides = "after any line"
    vocab_size: int = Field(ge=3, le=1_000_000)
    """Number of ids: word pieces, the unknown token and the end of a document."""
    lowercase: bool = True
    """Whether to lowercase the text and strip accents."""

    def train(self, texts: Iterable[str]) -> Tokenizer:
        """Join the most frequent pair until the vocabulary is full; a pair must occur at least twice."""
        from tokenizers import Tokenizer as Model
        from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

        if iter(texts) is texts:
            texts = list(texts)
        normalizer = normalizers.BertNormalizer(lowercase=self.lowercase, strip_accents=self.lowercase)
        known: set[str] = set()
        for text in texts:
            known.update(normalizer.normalize_str(text))
        characters = sorted(character for character in known if not character.isspace())
        # Otherwise the library numbers the pieces within words in the order of a randomly seeded hash table.
        within = [f"##{character}" for character in characters]
        trainer = trainers.WordPieceTrainer(
            vocab_size=self.vocab_size - 1,
            min_frequency=2,
            show_progress=False,
            special_tokens=[UNKNOWN, *within],
            initial_alphabet=characters,
            limit_alphabet=len(characters),
        )

        def model(pieces: dict[str, int] | None = None) -> tokenizers.Tokenizer:
            tokenizer = Model(models.WordPiece(pieces, unk_token=UNKNOWN))
            tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, pre_tokenizers.BertPreTokenizer()
            tokenizer.decoder = decoders.WordPiece()
            return tokenizer

        # A new model, because the trained one treats the pieces within words as special tokens.
        return filled(model(trained(model(), texts, trainer).get_vocab()), self.vocab_size)

    def load(self, folder: Path) -> Tokenizer:
        """Read the pieces."""
        return read_saved(folder / FILE)
