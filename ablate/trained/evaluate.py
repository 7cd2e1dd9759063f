"""Measure a trained decoder after its training: on tasks of `lm-eval`, and on the text of a file."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch

from ablate.downstream.harness import Request, TaskScore, measure
from ablate.downstream.scoring import NextTokenModel, Scored
from ablate.errors import DataError
from ablate.spec.task import Codec
from ablate.trained.decode import Trained, codec_of


@dataclass(frozen=True, slots=True)
class TextScore:
    """How well a model predicts a text.

    Attributes:
        tokens: Of the text, without an end of document.
        bytes: Of the text in UTF-8.
        nats: Mean loss, nats per token.
    """

    tokens: int
    bytes: int
    nats: float

    @property
    def perplexity(self) -> float:
        """Per token; infinity on overflow."""
        return math.exp(self.nats) if self.nats < 700 else math.inf

    @property
    def bits_per_byte(self) -> float:
        """Bits per byte of UTF-8, which models with different tokenizers share."""
        return self.nats * self.tokens / math.log(2) / self.bytes


def evaluate_tasks(trained: Trained, request: Request, device: torch.device) -> tuple[TaskScore, ...]:
    """Measure a decoder on tasks of `lm-eval`.

    Raises:
        SpaceError: The model is not a decoder that learnt text.
        MissingPackageError: `lm-eval` is not installed.
        DataError: A task is unknown, or its data cannot be read.
    """
    codec, scored = _scored(trained, device)
    return measure(scored, codec, request, where="--tasks")[0]


def evaluate_file(trained: Trained, path: Path, device: torch.device, say: Callable[[str], None]) -> TextScore:
    """Measure how well a decoder predicts the text of a file, as one document.

    Each token is predicted once, from the tokens before it as far as its window of the model's context goes back.

    Args:
        trained: The model.
        path: A text file in UTF-8.
        device: Where it computes.
        say: Receives what to mind about the text.

    Raises:
        SpaceError: The model is not a decoder that learnt text.
        DataError: The file is not text, or is empty.
    """
    codec, scored = _scored(trained, device)
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise DataError("this is not text in UTF-8", where=str(path), remedy="Convert it to UTF-8.") from None
    ids = codec.encode(text).tolist()
    if not ids:
        raise DataError("there is no text in this file", where=str(path))
    if codec.decode(ids) != text:
        say("The tokenizer does not keep this text as it is: what it cannot write counts as an unknown token.")
    windows = scored.of_text(ids, codec.end_of_document)
    return TextScore(len(ids), len(text.encode()), -sum(window.nats for (window,) in windows) / len(ids))


def _scored(trained: Trained, device: torch.device) -> tuple[Codec, Scored]:
    codec = codec_of(trained, "decoder", "be measured on text")
    model = cast(NextTokenModel, trained.model.to(device))
    return codec, Scored(model, 1, trained.task.shape.context, device)
