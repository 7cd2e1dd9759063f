"""`masked_language_model`: tell tokens that were hidden in a text (BERT, arXiv:1810.04805, §3.1).

Shapes: K pack, B batch, T tokens, M hidden places, V vocabulary.
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
from ablate.tasks.language_model import nats, perplexity
from ablate.tasks.random_stream import Draws
from ablate.tasks.text import Text, TextSpec

if TYPE_CHECKING:
    import torch

    from ablate.tasks.base import Batch


class MaskedLanguageModelSpec(TextSpec):
    """Tell tokens that were hidden in a text.

    The text is prepared as for `language_model`; one id is added that stands for a hidden token. Every window hides
    the same number of tokens, at places drawn anew whenever it is read in training and always the same in validation.
    """

    model_families: ClassVar[frozenset[str]] = frozenset({"encoder"})
    metric_names: ClassVar[frozenset[str]] = frozenset({"val_loss", "val_perplexity", "val_accuracy"})
    pooled: ClassVar[bool | None] = False

    kind: Literal["masked_language_model"] = "masked_language_model"
    """Tell tokens that were hidden in a text."""
    hidden_share: float = Field(default=0.15, gt=0, lt=1)
    """Share of the tokens that is to be told; at least one is."""
    mask_share: float = Field(default=0.8, ge=0, le=1)
    """Of these, the share that the model sees as the id of a hidden token."""
    random_share: float = Field(default=0.1, ge=0, le=1)
    """Of these, the share that the model sees as a random token; the rest it sees as they are."""

    @model_validator(mode="after")
    def _shares_fit(self) -> Self:
        if self.mask_share + self.random_share > 1:
            rule = f"`mask_share` and `random_share` are parts of one whole, and mask_share is {self.mask_share}"
            raise refusal(("random_share",), self.random_share, rule, f"Lower it to {1 - self.mask_share:.3g}.")
        return self

    def open(self, cache: Path, fingerprint: str) -> MaskedLanguageModel:
        """Map the prepared tokens into memory after a look at their checksums.

        Raises:
            DataError: As `LanguageModelSpec.open`.
        """
        return MaskedLanguageModel(self, prepared.locate(cache, fingerprint), fingerprint)


class MaskedLanguageModel(Text):
    """See `MaskedLanguageModelSpec`. A window is T tokens.

    Args:
        spec: The task.
        folder: Prepared data, verified.
        fingerprint: Of the prepared data.

    Raises:
        DataError: One of the two texts is too short for the context.
    """

    def __init__(self, spec: MaskedLanguageModelSpec, folder: Path, fingerprint: str) -> None:
        super().__init__(spec, folder, fingerprint, window=spec.context, more_ids=1)
        self._shares = spec.mask_share, spec.random_share
        self._hidden = min(spec.context, max(1, round(spec.hidden_share * spec.context)))

    @property
    def mask(self) -> int:
        """The id of a hidden token."""
        return self.shape.vocabulary - 1

    def train_batch(self, seed: int, step: int, batch_size: int) -> Batch:
        """Windows at uniform random positions: `inputs` [B, T], `places` and `targets` [B, M], int64."""
        name = f"{self.fingerprint}/{seed}/{step}/{batch_size}"
        return self._hide(self.train_windows(name, batch_size), f"{name}/hidden")

    def validation_batches(self, batch_size: int) -> Iterator[Batch]:
        """The same windows with the same tokens hidden every time: as `train_batch`."""
        return self._batches("validation", batch_size)

    def test_batches(self, batch_size: int) -> Iterator[Batch]:
        """Windows of the test; as `validation_batches`."""
        return self._batches("test", batch_size)

    def _batches(self, part: str, batch_size: int) -> Iterator[Batch]:
        if not self.starts(part).size:
            return
        whole = self._hidden_in(part)
        for first in range(0, len(whole["inputs"]), batch_size):
            yield {name: values[first : first + batch_size] for name, values in whole.items()}

    def loss(self, outputs: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Mean cross entropy of the hidden tokens in nats: outputs [K, B, T, V], targets [K, B, M] -> [K]."""
        return nats(_at(outputs, batch), batch["targets"], self.spec.label_smoothing).mean(1)

    def measure(self, outputs: torch.Tensor, batch: Batch) -> dict[str, torch.Tensor]:
        """Totals of `nats`, `right` and `tokens`, float64 [K]."""
        hidden = _at(outputs, batch)
        total = nats(hidden, batch["targets"]).double().sum(1)
        right = (hidden.argmax(-1) == batch["targets"]).double().sum((1, 2))
        return {"nats": total, "right": right, "tokens": total.new_full(total.shape, batch["targets"][0].numel())}

    def metrics(self, sums: dict[str, list[Any]]) -> dict[str, list[float]]:
        """`val_loss` (nats for each hidden token), `val_perplexity`, `val_accuracy`."""
        losses = [total / tokens for total, tokens in zip(sums["nats"], sums["tokens"], strict=True)]
        return {
            "val_loss": losses,
            "val_perplexity": [perplexity(loss) for loss in losses],
            "val_accuracy": [right / tokens for right, tokens in zip(sums["right"], sums["tokens"], strict=True)],
        }

    def baselines(self) -> dict[str, dict[str, float]]:
        """Frequencies of tokens in the training text; the most frequent one is the guess."""
        targets = self._hidden_in("validation")["targets"].numpy().ravel()
        unigram = self.unigram()
        totals = {
            "nats": -unigram[targets].sum(),
            "right": (targets == unigram.argmax()).sum(),
            "tokens": targets.size,
        }
        sums: dict[str, list[Any]] = {name: [float(total)] for name, total in totals.items()}
        return {"unigram": {name: value for name, (value,) in self.metrics(sums).items()}}

    def _hidden_in(self, part: str) -> Batch:
        return self._hide(self.windows(part), f"{self.fingerprint}/{part}/hidden")

    def _hide(self, windows: NDArray[np.int64], name: str) -> Batch:
        import torch

        batch, tokens = windows.shape
        drawn = Draws(name)
        places = np.sort(drawn.subsets(tokens, self._hidden, batch), axis=1)
        targets = np.take_along_axis(windows, places, axis=1)
        fate = drawn.uniforms(places.shape)
        masked, random = self._shares
        shown = np.where(fate < masked, self.mask, targets)
        swapped = (fate >= masked) & (fate < masked + random)
        shown = np.where(swapped, drawn.integers(self.token_bytes.size, places.shape), shown)
        inputs = windows.copy()
        np.put_along_axis(inputs, places, shown, axis=1)
        arrays = {"inputs": inputs, "places": places, "targets": targets}
        return {key: torch.from_numpy(values) for key, values in arrays.items()}


def _at(outputs: torch.Tensor, batch: Batch) -> torch.Tensor:
    """Outputs at the hidden places: [K, B, T, V] -> [K, B, M, V]."""
    places = batch["places"].unsqueeze(-1).expand(-1, -1, -1, outputs.shape[-1])
    return outputs.gather(2, places)
