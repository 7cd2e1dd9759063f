"""Losses of token predictors and classifiers; accuracy and macro-F1; BLEU and chrF of translations.

Shapes: K pack, B batch, T tokens, V vocabulary, C classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ablate.extras import require

if TYPE_CHECKING:
    import torch


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
