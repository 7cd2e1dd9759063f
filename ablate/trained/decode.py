"""Decode with a trained model, and measure it: on texts to generate or translate, on tasks of `lm-eval`, on a file."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch
from torch import nn

from ablate.decoding import Sampling, choose
from ablate.downstream.harness import NextTokenModel, Request, Scored, TaskScore, measure
from ablate.errors import AblateError, DataError, SpaceError
from ablate.locations import read_file
from ablate.nn.model import build_model
from ablate.nn.model.decoder import Decoder, States
from ablate.spec.code import CodeReader
from ablate.spec.task import Codec, Task
from ablate.spec.variant import VariantSpec
from ablate.tasks.translation import Translation
from ablate.trained.weights import check_code, load_weights

_UNFINISHED = "\N{REPLACEMENT CHARACTER}"


@dataclass(frozen=True, slots=True)
class Trained:
    """The model of one trial, in evaluation mode, with the task that it learnt.

    Attributes:
        model: A pack of one.
    """

    key: str
    variant: VariantSpec
    task: Task
    model: nn.Module


def load_trained(
    folder: Path, trial: str, cache: Path, say: Callable[[str], None], *, accept_changed_code: bool | None = False
) -> Trained:
    """Build the model of a trial and give it its final weights.

    Args:
        folder: Where the weights are kept.
        trial: The key of a trial, or the first characters of it.
        cache: Folder of prepared data: the task's tokenizer is there.
        say: Receives progress if the data must be prepared again, and a warning if the code has changed.
        accept_changed_code: Whether its kinds may have changed since it was trained; None: they never may.

    Raises:
        NotFoundError: No weights of such a trial are kept.
        PluginError: A kind of the user's has changed, and that is not accepted.
        DataError: The weights or the data are broken, or the data has changed.
    """
    weights = load_weights(folder, trial)
    check_code(
        CodeReader().of(weights.variant),
        weights.code,
        f"trial {weights.key[:12]}",
        say,
        accept=accept_changed_code,
    )
    spec = weights.variant.task
    try:
        task = spec.open(cache, weights.fingerprint)
    except DataError:
        if spec.prepare(cache, say) != weights.fingerprint:
            raise DataError(
                "the data is no longer what this trial was trained on",
                where=f"trial {weights.key}",
                remedy="Bring back the data that the trial saw, or train again on the data as it is now.",
            ) from None
        task = spec.open(cache, weights.fingerprint)
    shape = task.shape
    model = build_model(
        weights.variant.model,
        vocabulary=shape.vocabulary,
        context=shape.context,
        classes=shape.classes,
        seeds=[weights.seed],
    )
    try:
        model.load_state_dict(weights.tensors)
    except RuntimeError as error:
        raise DataError(
            f"the weights do not fit the model ({str(error).splitlines()[-1].strip()})",
            where=f"trial {weights.key}",
            remedy="If one of your plugins has changed, load it as it was; else install the version of ablate that "
            "trained the trial, or train it again, into a new store in another folder.",
        ) from None
    return Trained(weights.key, weights.variant, task, model.eval())


def generate(trained: Trained, prompt: str, tokens: int, sampling: Sampling, seed: int) -> Iterator[str]:
    """The continuation of a prompt, in pieces as they are generated, without the prompt.

    The model sees as much of the end of the text as its context holds; until it is full, each token is read once (see
    `Reading`). Writing ends with the document, or after `tokens` tokens.

    Raises:
        SpaceError: The model is not a decoder, or did not learn text.
    """
    codec = codec_of(trained, "decoder", "generate")
    generator = torch.Generator().manual_seed(seed)
    ids = codec.encode(prompt).tolist() or [codec.end_of_document]
    known = [token for token in ids if token != codec.end_of_document]
    written = codec.decode(known)
    reading = Reading(trained)
    for _ in range(tokens):
        token = choose(reading.next_logits(ids), sampling, generator)
        if token == codec.end_of_document:
            break
        ids.append(token)
        known.append(token)
        text = codec.decode(known)
        # A character of several tokens is yielded once it is complete.
        if not text.endswith(_UNFINISHED):
            yield text[len(written) :]
            written = text
    if len(rest := codec.decode(known)) > len(written):
        yield rest[len(written) :]


class Reading:
    """A decoder that reads a text as it grows and keeps what its mixers can keep of it.

    Beyond the context, each token moves the window and all positions, so the whole window is read again each time.
    """

    def __init__(self, trained: Trained) -> None:
        self._trained = trained
        self._states: States = ()
        self._read = 0
        self._logits = torch.empty(0)

    @torch.no_grad()
    def next_logits(self, ids: Sequence[int]) -> torch.Tensor:
        """Logits [V] of the token after `ids`, which begin with those of the last call."""
        if len(ids) > self._trained.task.shape.context:
            return next_logits(self._trained, ids)
        model = cast(Decoder, self._trained.model)
        for place in range(self._read, len(ids)):
            self._logits, self._states = model.step(torch.tensor([[[ids[place]]]]), place, self._states)
        self._read = len(ids)
        return self._logits[0, 0, -1]


@torch.no_grad()
def next_logits(trained: Trained, ids: Sequence[int]) -> torch.Tensor:
    """Logits [V] of the token after `ids`, from as many of the last ids as fit the context."""
    window = torch.tensor(ids[-trained.task.shape.context :])
    logits: torch.Tensor = trained.model(window.view(1, 1, -1))[0, 0, -1]
    return logits


def translate(trained: Trained, texts: Sequence[str], beams: int, length_penalty: float) -> list[str]:
    """The translation of each text; `beams` 1 is greedy.

    Raises:
        SpaceError: The model learnt no translation.
        DataError: A text is too long.
    """
    codec_of(trained, "encoder_decoder", "translate")
    if not isinstance(trained.task, Translation):
        raise _cannot(trained, "encoder_decoder", "translate")
    return trained.task.translate(trained.model, texts, beams=beams, length_penalty=length_penalty)[0]


def codec_of(trained: Trained, family: str, purpose: str) -> Codec:
    """The tokenizer of a model that can be used for a purpose.

    Args:
        family: The family that the purpose needs: `decoder` or `encoder_decoder`.
        purpose: For messages, what follows "this model cannot".

    Raises:
        SpaceError: The model is of another family, or learnt no text.
    """
    codec = trained.task.codec()
    if trained.variant.model.family != family or codec is None:
        raise _cannot(trained, family, purpose)
    return codec


def _cannot(trained: Trained, family: str, purpose: str) -> AblateError:
    return SpaceError(
        f"this model cannot {purpose}",
        where=f"trial {trained.key}",
        expected="a decoder that learnt text" if family == "decoder" else "an encoder-decoder that learnt to translate",
        got=f"a model of family {trained.variant.model.family} and the task {trained.variant.task.kind_name()}",
        remedy="Name the trial of another space.",
    )


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
        path: A text file in UTF-8.
        device: Where it computes.
        say: Receives what to mind about the text.

    Raises:
        SpaceError: The model is not a decoder that learnt text.
        DataError: The file is not text, or is empty.
    """
    codec, scored = _scored(trained, device)
    try:
        text = read_file(path, _MOST_TEXT, DataError, noun="a text").decode()
    except UnicodeDecodeError:
        raise DataError("this is not text in UTF-8", where=str(path), remedy="Convert it to UTF-8.") from None
    ids = codec.encode(text).tolist()
    if not ids:
        raise DataError("there is no text in this file", where=str(path))
    if codec.decode(ids) != text:
        say("The tokenizer does not keep this text as it is: what it cannot write counts as an unknown token.")
    windows = scored.of_text(ids, codec.end_of_document)
    return TextScore(len(ids), len(text.encode()), -sum(window.nats for (window,) in windows) / len(ids))


_MOST_TEXT = 1 << 30


def _scored(trained: Trained, device: torch.device) -> tuple[Codec, Scored]:
    codec = codec_of(trained, "decoder", "be measured on text")
    model = cast(NextTokenModel, trained.model.to(device))
    return codec, Scored(model, 1, trained.task.shape.context, device)
