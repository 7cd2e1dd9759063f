"""Losses of token predictors and classifiers; accuracy and macro-F1; translations, their BLEU and chrF.

Shapes: K pack, B batch or texts, T tokens, S source tokens, V vocabulary, C classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from ablate.errors import DataError
from ablate.extras import require
from ablate.tasks.sampling import pad_rows
from ablate.tasks.tokenizers import Tokenizer

if TYPE_CHECKING:
    import torch

    from ablate.decoding import States


def nats(
    outputs: torch.Tensor, targets: torch.Tensor, smoothing: float = 0.0, ignored: int | None = None
) -> torch.Tensor:
    """Cross entropy of every target: [K, B, T, V] and [K, B, T] -> [K, B·T], in float32 at least.

    Args:
        outputs: Logits.
        targets: Ids.
        smoothing: s: the target has the probability 1 - s, and each id s/V.
        ignored: The target whose loss is 0; None for none.
    """
    from ablate.nn.kernels.cross_entropy import cross_entropy as fused

    flat = outputs.reshape(-1, outputs.shape[-1])
    flat = flat.float() if flat.itemsize < 4 else flat
    return fused(flat, targets.reshape(-1), smoothing, ignored).view(outputs.shape[0], -1)


def cross_entropy(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Cross entropy of every row in nats: logits [K, B, C] and labels [K, B] -> [K, B], in float32 at least."""
    from torch.nn import functional

    flat = outputs.reshape(-1, outputs.shape[-1])
    flat = flat.float() if flat.itemsize < 4 else flat
    return functional.cross_entropy(flat, labels.reshape(-1), reduction="none").view(labels.shape)


def totals(outputs: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
    """Totals over a batch: `nats` and `rows` [K]; `right`, `guessed` and `true`, counts for each class, [K, C]."""
    from torch.nn import functional

    classes = outputs.shape[-1]
    guesses = functional.one_hot(outputs.argmax(-1), classes).double()
    truth = functional.one_hot(labels, classes).double()
    nats = cross_entropy(outputs, labels).double().sum(1)
    return {
        "nats": nats,
        "rows": nats.new_full(nats.shape, labels.shape[1]),
        "right": (guesses * truth).sum(1),
        "guessed": guesses.sum(1),
        "true": truth.sum(1),
    }


def scores(sums: dict[str, list[Any]]) -> dict[str, list[float]]:
    """`val_loss`, `val_accuracy` and `val_macro_f1` of each member from the totals.

    Macro-F1 is the mean of 2·right / (guessed + true) over the classes that occur or are predicted.
    """
    rows, right = np.array(sums["rows"]), np.array(sums["right"])
    either = np.array(sums["guessed"]) + np.array(sums["true"])
    f1 = 2 * right / np.maximum(either, 1)
    return {
        "val_loss": (np.array(sums["nats"]) / rows).tolist(),
        "val_accuracy": (right.sum(1) / rows).tolist(),
        "val_macro_f1": (f1.sum(1) / (either > 0).sum(1)).tolist(),
    }


def of_log_probabilities(logs: NDArray[np.float64], labels: NDArray[np.int64]) -> dict[str, float]:
    """The scores of log probabilities [B, C]."""
    import torch

    sums = totals(torch.from_numpy(logs)[None], torch.from_numpy(labels)[None])
    return {name: value for name, (value,) in scores({key: total.tolist() for key, total in sums.items()}).items()}


def majority(train: NDArray[np.int64], validation: NDArray[np.int64], classes: int) -> dict[str, float]:
    """The scores of a predictor that uses the frequencies of the training labels, with add-one smoothing."""
    counts = np.bincount(train, minlength=classes) + 1.0
    return of_log_probabilities(np.tile(np.log(counts / counts.sum()), (validation.size, 1)), validation)


def of_texts(hypotheses: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """`bleu` and `chrf`, 0 to 100, by `sacrebleu` with its default settings."""
    require("translation", "the score of a translation")
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    return {
        "bleu": BLEU().corpus_score(list(hypotheses), [list(references)]).score,
        "chrf": CHRF().corpus_score(list(hypotheses), [list(references)]).score,
    }


MORE_THAN_SOURCE = 50
"""Maximum number of tokens by which a translation is longer than its source (arXiv:1706.03762, §6.1)."""
_AT_ONCE = 64


class Translator(Protocol):
    """The methods that a model needs for translation."""

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        """Embed ids: [K, B, S] -> [K, B, S, D]."""

    def mix(self, x: torch.Tensor, padding: torch.Tensor | None) -> torch.Tensor:
        """Run the encoder: [K, B, S, D] -> [K, B, S, D]."""

    def decode_step(
        self,
        memory: torch.Tensor,
        target: torch.Tensor,
        place: int,
        states: States,
        source_padding: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, States]:
        """Decode one token from the encoder output [K, B, S, D], the ids [K, B, 1] at position `place`, and the states.

        Returns:
        Logits [K, B, 1, V] and the new states.
        """


def translate(
    model: Translator,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    *,
    context: int,
    beams: int,
    length_penalty: float,
    device: torch.device | None,
) -> list[list[str]]:
    """Translate texts with every member of a pack.

    Args:
        model: An encoder-decoder in evaluation mode.
        tokenizer: Tokenizer of both languages.
        texts: Texts to translate.
        context: Maximum number of tokens in a text, including the end-of-document token.
        beams: Number of beams; 1: greedy decoding.
        length_penalty: Length penalty of beam search.
        device: Device of the model; None: the CPU.

        Returns:
        For each member, the translations in the order of `texts`.

    Raises:
        DataError: A text is longer than the context.
    """
    end = tokenizer.end_of_document
    sources = [np.append(ids, end) for ids in tokenizer.encode_all(texts)]
    for text, ids in zip(texts, sources, strict=True):
        if ids.size > context:
            raise DataError(
                "a text is too long for this model",
                where=repr(text[:60]),
                expected=f"at most {context} tokens, including the end of the text",
                got=f"{ids.size}",
                remedy="Divide it into sentences.",
            )
    order = sorted(range(len(texts)), key=lambda row: sources[row].size)
    translations: list[list[str]] = []
    for first in range(0, len(order), _AT_ONCE):
        rows = order[first : first + _AT_ONCE]
        members = _search(model, [sources[row] for row in rows], end, context, beams, length_penalty, device)
        translations = translations or [[""] * len(texts) for _ in members]
        for member, written in enumerate(members):
            for row, tokens in zip(rows, written, strict=True):
                translations[member][row] = tokenizer.decode(tokens)
    return translations


def _search(
    model: Translator,
    sources: list[NDArray[np.int64]],
    end: int,
    context: int,
    beams: int,
    length_penalty: float,
    device: torch.device | None,
) -> list[list[list[int]]]:
    import torch

    from ablate.decoding import Remembering, beam, greedy

    device = device or torch.device("cpu")
    lengths = np.array([ids.size for ids in sources])
    ids, real = pad_rows(np.concatenate(sources), np.cumsum(lengths) - lengths, lengths, int(lengths.max()), end)
    pack = next(cast("torch.nn.Module", model).parameters()).shape[0]
    with torch.no_grad():
        padding = torch.from_numpy(real).to(device).expand(pack, -1, -1)
        memory = model.mix(model.embed(torch.from_numpy(ids).to(device).expand(pack, -1, -1)), padding)

        def search(member: int) -> list[list[int]]:
            def advance(
                rows: torch.Tensor, tokens: torch.Tensor, place: int, states: States
            ) -> tuple[torch.Tensor, States]:
                ids = tokens[:, None].expand(pack, -1, -1)
                logits, states = model.decode_step(memory[:, rows], ids, place, states, padding[:, rows])
                return logits[member, :, -1], states

            step = Remembering(advance)
            if beams == 1:
                return greedy(step, len(sources), end, end, limits, device)
            return beam(step, len(sources), end, end, limits, device, beams, length_penalty)

        limits = np.minimum(lengths + MORE_THAN_SOURCE, context).tolist()
        return [search(member) for member in range(pack)]
