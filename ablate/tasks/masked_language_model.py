"""`masked_language_model`: predict masked tokens of a text (BERT, arXiv:1810.04805, §3.1).

Shapes: K pack, B batch, T tokens, M masked positions, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from ablate.spec.base import refusal
from ablate.tasks import cache as prepared
from ablate.tasks.language_model import PRIOR, KeyCounts, perplexity
from ablate.tasks.sampling import Draws
from ablate.tasks.scores import nats
from ablate.tasks.text import Text, TextSpec

if TYPE_CHECKING:
    import torch

    from ablate.spec.task import Batch


class MaskedLanguageModelSpec(TextSpec):
    """Predict masked tokens of a text.

    The text is prepared as for `language_model`, with one more id for the mask. Every window has the same number of
    masked positions. They are sampled at each step in training and fixed in validation.
    """

    model_families: ClassVar[frozenset[str]] = frozenset({"encoder"})
    metric_names: ClassVar[frozenset[str]] = frozenset({"val_loss", "val_perplexity", "val_accuracy"})
    pooled: ClassVar[bool | None] = False
    shortens: ClassVar[bool] = True

    kind: Literal["masked_language_model"] = "masked_language_model"
    """Predict masked tokens of a text."""
    hidden_share: float = Field(default=0.15, gt=0, lt=1)
    """Share of the tokens that the model predicts; at least one token."""
    mask_share: float = Field(default=0.8, ge=0, le=1)
    """Share of these tokens that is replaced by the mask id."""
    random_share: float = Field(default=0.1, ge=0, le=1)
    """Share of these tokens that is replaced by a random token; the rest is left unchanged."""

    @model_validator(mode="after")
    def _shares_fit(self) -> Self:
        if self.mask_share + self.random_share > 1:
            rule = f"`mask_share` and `random_share` must add up to at most 1, and mask_share is {self.mask_share}"
            raise refusal(("random_share",), self.random_share, rule, f"Lower it to {1 - self.mask_share:.3g}.")
        return self

    def open(self, cache: Path, fingerprint: str) -> MaskedLanguageModel:
        """Memory-map the prepared tokens after verifying their checksums.

        Raises:
            DataError: As `LanguageModelSpec.open`.
        """
        return MaskedLanguageModel(self, prepared.locate(cache, fingerprint), fingerprint)


class MaskedLanguageModel(Text):
    """The task of `MaskedLanguageModelSpec`. A window is T tokens.

    Args:
        spec: The task.
        folder: Folder of the verified prepared data.
        fingerprint: Fingerprint of the prepared data.

    Raises:
        DataError: The text of a split is too short for the context.
    """

    def __init__(self, spec: MaskedLanguageModelSpec, folder: Path, fingerprint: str) -> None:
        super().__init__(spec, folder, fingerprint, window=spec.context, more_ids=1)
        self._shares = spec.mask_share, spec.random_share
        self._hidden_share = spec.hidden_share

    @property
    def mask(self) -> int:
        """The id of the mask."""
        return self.shape.vocabulary - 1

    def validation_batches(self, batch_size: int) -> Iterator[Batch]:
        """The same windows with the same masks at each call, in the format of `train_batch`."""
        return self._batches("validation", batch_size)

    def test_batches(self, batch_size: int) -> Iterator[Batch]:
        """Windows of the test split, in the format of `validation_batches`."""
        return self._batches("test", batch_size)

    def _batches(self, split: str, batch_size: int) -> Iterator[Batch]:
        if not self.starts(split).size:
            return
        whole = self._masked_windows(split)
        for first in range(0, len(whole["inputs"]), batch_size):
            yield {name: values[first : first + batch_size] for name, values in whole.items()}

    def loss(self, outputs: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Mean cross entropy of the hidden tokens in nats: outputs [K, B, T, V], targets [K, B, M] -> [K]."""
        return nats(_at(outputs, batch), batch["targets"], self.spec.label_smoothing).mean(1)

    def scored(self, batch: Batch) -> torch.Tensor:
        """The outputs at masked positions."""
        nothing = batch["inputs"].new_zeros(()).bool().expand(batch["inputs"].shape)
        return nothing.scatter(2, batch["positions"], True)

    def measure(self, outputs: torch.Tensor, batch: Batch) -> dict[str, torch.Tensor]:
        """Totals of `nats`, `right` and `tokens`, float64 [K]."""
        masked = _at(outputs, batch)
        total = nats(masked, batch["targets"]).double().sum(1)
        right = (masked.argmax(-1) == batch["targets"]).double().sum((1, 2))
        return {"nats": total, "right": right, "tokens": total.new_full(total.shape, batch["targets"][0].numel())}

    def metrics(self, sums: dict[str, list[Any]]) -> dict[str, list[float]]:
        """`val_loss` (nats per masked token), `val_perplexity`, `val_accuracy`."""
        losses = [total / tokens for total, tokens in zip(sums["nats"], sums["tokens"], strict=True)]
        return {
            "val_loss": losses,
            "val_perplexity": [perplexity(loss) for loss in losses],
            "val_accuracy": [right / tokens for right, tokens in zip(sums["right"], sums["tokens"], strict=True)],
        }

    def baselines(self) -> dict[str, dict[str, float]]:
        """`unigram`: frequencies of tokens in the training text; `bigram`: those after the token shown before.

        Both know what is shown in the place of the token, by Bayes' rule: the mask says nothing, and any other id is
        the token itself or a random one. The bigram is smoothed as that of `language_model`; it has no accuracy.
        """
        batch = {name: values.numpy() for name, values in self._masked_windows("validation").items()}
        places, targets, size = batch["positions"], batch["targets"], self.token_bytes.size
        shown, before = (np.take_along_axis(batch["inputs"], at, 1) for at in (places, (places - 1).clip(min=0)))
        shares, is_mask = np.exp(self.unigram()), shown == self.mask
        most = shares.argmax()
        itself = np.where(is_mask, most, shown)  # any id where it is not read
        of_both = shares[np.stack([targets, itself])]

        masked, random = self._shares
        random, kept = random / size, max(0.0, 1 - masked - random)

        def nats_of(of_target: NDArray[np.float64], of_itself: NDArray[np.float64]) -> float:
            """The sum over the tokens, by the probabilities of token and shown id before anything is shown."""
            told = (kept * (targets == itself) + random) / (kept * of_itself + random).clip(min=1e-300)
            return float(-np.log(of_target * np.where(is_mask, 1.0, told)).sum())

        stays = ~is_mask & (of_both[1] * (kept + random) >= shares[most] * random)
        right = (targets == np.where(stays, itself, most)).sum()
        known = (places > 0) & (before != self.mask)
        before = np.where(known, before, 0)
        pairs, singles = KeyCounts(before * size + np.stack([targets, itself]), size * size), np.zeros(size)
        for run in self.counted_runs():
            run = run.astype(np.int64)
            singles += np.bincount(run[:-1], minlength=size)
            pairs.count(run[:-1] * size + run[1:])
        after = np.where(known, (pairs.key_counts + PRIOR * of_both) / (singles[before] + PRIOR), of_both)
        loss = nats_of(*after) / targets.size
        sums: dict[str, list[Any]] = {"nats": [nats_of(*of_both)], "right": [right], "tokens": [targets.size]}
        return {
            "unigram": {name: float(value) for name, (value,) in self.metrics(sums).items()},
            "bigram": {"val_loss": loss, "val_perplexity": perplexity(loss)},
        }

    def _masked_windows(self, split: str) -> Batch:
        return self.as_batch(self.windows(split), f"{self.fingerprint}/{split}")

    def as_batch(self, windows: NDArray[np.int64], name: str) -> Batch:
        """Windows [B, T], partly masked, as `inputs` [B, T], `positions` and `targets` [B, M], int64.

        The share of the tokens that is masked is the same for all lengths.
        """
        import torch

        batch, tokens = windows.shape
        draws = Draws(f"{name}/hidden")
        masked_count = min(tokens, max(1, round(self._hidden_share * tokens)))
        positions = np.sort(draws.subsets(tokens, masked_count, batch), axis=1)
        targets = np.take_along_axis(windows, positions, axis=1)
        uniform = draws.uniforms(positions.shape)
        masked, random = self._shares
        shown = np.where(uniform < masked, self.mask, targets)
        swapped = (uniform >= masked) & (uniform < masked + random)
        shown = np.where(swapped, draws.integers(self.token_bytes.size, positions.shape), shown)
        inputs = windows.copy()
        np.put_along_axis(inputs, positions, shown, axis=1)
        arrays = {"inputs": inputs, "positions": positions, "targets": targets}
        return {key: torch.from_numpy(values) for key, values in arrays.items()}


def _at(outputs: torch.Tensor, batch: Batch) -> torch.Tensor:
    """Outputs at the masked positions: [K, B, T, V] -> [K, B, M, V]."""
    positions = batch["positions"].unsqueeze(-1).expand(-1, -1, -1, outputs.shape[-1])
    return outputs.gather(2, positions)
