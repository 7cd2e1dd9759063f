"""Tasks of EleutherAI's `lm-eval` (the Language Model Evaluation Harness), and log-likelihoods of token sequences.

The harness fetches the data of its own tasks from the hub; tasks of a folder may read local files.

Shapes: K pack, B rows, T tokens, V vocabulary.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor, nn

from ablate.errors import AblateError, DataError, first_cause
from ablate.extras import require
from ablate.spec.task import Codec, metric_name

States = tuple[tuple[Tensor, ...], ...]
"""What a model keeps of the tokens that it has read; empty before the first."""
_TOKENS_AT_ONCE = 8192
"""Tokens of a forward pass, over all members of the pack."""


class NextTokenModel(Protocol):
    """The methods that a causal language model needs to be measured."""

    def __call__(self, tokens: Tensor) -> Tensor:
        """Ids [K, B, T] to logits of the next token [K, B, T, V]."""

    def step(self, tokens: Tensor, place: int, states: States) -> tuple[Tensor, States]:
        """One token more: ids [K, B, 1] at position `place` to logits [K, B, 1, V] and the new states."""


class Likelihood(NamedTuple):
    """How likely a model finds a continuation.

    Attributes:
        nats: Its log-probability, natural logarithm.
        greedy: Whether each of its tokens is the most likely one.
    """

    nats: float
    greedy: bool


@dataclass(frozen=True, slots=True)
class Pair:
    """Ids that are given, at least one, and the ids that are scored after them."""

    given: tuple[int, ...]
    scored: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Scored:
    """A pack of language models in evaluation mode.

    Attributes:
        model: The models.
        pack: Their number K.
        context: The most tokens that they read.
        device: Where they are.
    """

    model: NextTokenModel
    pack: int
    context: int
    device: torch.device

    @torch.no_grad()
    def likelihoods(self, pairs: Sequence[Pair]) -> list[list[Likelihood]]:
        """The likelihoods of each pair under every member.

        What is given is cut from the left to what the context holds. Rows of a batch are padded on the right, which a
        causal model does not see.

        Returns:
            For each pair, one likelihood a member.

        Raises:
            ValueError: A pair has nothing given, or more scored tokens than the context holds.
        """
        rows = []
        for pair in pairs:
            if not pair.given or len(pair.scored) > self.context:
                raise ValueError(f"1 id or more is given and at most {self.context} are scored")
            rows.append((*pair.given, *pair.scored)[-self.context - 1 :])
        likelihoods: list[list[Likelihood]] = [[] for _ in pairs]
        order = sorted(range(len(pairs)), key=lambda place: len(rows[place]))
        while order:
            length = len(rows[order[-1]]) - 1
            size = max(1, _TOKENS_AT_ONCE // (max(length, 1) * self.pack))
            batch, order = order[-size:], order[:-size]
            self._score(
                [rows[place] for place in batch], [len(pairs[place].scored) for place in batch], batch, likelihoods
            )
        return likelihoods

    def _score(
        self, rows: list[tuple[int, ...]], counts: list[int], places: list[int], likelihoods: list[list[Likelihood]]
    ) -> None:
        if not any(counts):
            for place in places:
                likelihoods[place] = [Likelihood(0.0, True)] * self.pack
            return
        tokens = nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True).to(self.device)
        logits = self.model(tokens[:, :-1].expand(self.pack, -1, -1)).float()
        targets = tokens[:, 1:].expand(self.pack, -1, -1)
        nats = -nn.functional.cross_entropy(logits.flatten(0, 2), targets.flatten(), reduction="none")
        nats = nats.view(targets.shape).double()
        right = logits.argmax(-1) == targets
        for row, (place, count) in enumerate(zip(places, counts, strict=True)):
            last = len(rows[row]) - 1
            part = slice(last - count, last)
            sums, whole = nats[:, row, part].sum(-1).tolist(), right[:, row, part].all(-1).tolist()
            likelihoods[place] = [Likelihood(*pair) for pair in zip(sums, whole, strict=True)]

    def of_text(self, ids: Sequence[int], first: int) -> list[list[Likelihood]]:
        """The likelihoods of a text of any length, in windows of the context.

        The last window may overlap the one before it. Each token is predicted
        once. The first window has the id `first` before it; a later one the token before it.

        Args:
            first: An id that stands before the text, such as the end of a document.

        Returns:
            For each window, one likelihood a member.
        """
        return self.likelihoods(windows(ids, first, self.context))

    @torch.no_grad()
    def greedy(self, given: Sequence[int], most: int, stop: StopRule) -> list[list[int]]:
        """Continue a text with the most likely tokens.

        Args:
            given: Ids to continue, at least one; the last that leave room for `most` tokens in the context are read.
            most: The most tokens that are written, below the context.
            stop: Called with a member and its tokens so far; ends that member.

        Returns:
            The tokens that each member wrote.
        """
        given = list(given)[-max(1, self.context - most) :]
        written: list[list[int]] = [[] for _ in range(self.pack)]
        states: States = ()
        for place, token in enumerate(given):
            tokens = torch.full((self.pack, 1, 1), token, device=self.device)
            logits, states = self.model.step(tokens, place, states)
        running = set(range(self.pack))
        for place in range(len(given), len(given) + most):
            chosen = logits[:, 0, -1].argmax(-1)
            for member, token in enumerate(chosen.tolist()):
                if member in running:
                    written[member].append(token)
                    if stop(written[member]):
                        running.discard(member)
            if not running or place >= self.context:
                break
            logits, states = self.model.step(chosen.view(-1, 1, 1), place, states)
        return written


class StopRule(Protocol):
    """Says when a text is complete."""

    def __call__(self, written: list[int]) -> bool:
        """Whether nothing is to be written after these ids."""


def windows(ids: Sequence[int], first: int, context: int) -> list[Pair]:
    """Cut a text into pairs that predict each token once, each with `context` inputs where the text has as many."""
    text = (first, *ids)
    pairs = []
    for begin in range(1, len(text), context):
        end = min(begin + context, len(text))
        start = max(0, end - context - 1)
        pairs.append(Pair(text[start:begin], text[begin:end]))
    return pairs


_RESAMPLES = 100
"""Bootstrap resamples of `lm-eval`, for the error of a metric that has no formula for it."""
_NO_FILTER = "none"


@dataclass(frozen=True, slots=True)
class Request:
    """What is measured, and how.

    Attributes:
        tasks: Names of tasks or groups that `lm-eval` knows.
        folder: A folder with YAML files of further tasks; None for those of `lm-eval` alone.
        shots: Solved examples before each question; None for the number that a task says.
        limit: Examples of each task, the first ones; None for all.
    """

    tasks: tuple[str, ...]
    folder: Path | None = None
    shots: int | None = None
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class TaskScore:
    """A metric of a task.

    Attributes:
        task: Name of the task.
        metric: As `lm-eval` names it, with its filter if it has one: `acc`, `exact_match,strict-match`.
        value: The metric.
        error: Its standard error over examples; None if `lm-eval` knows none.
    """

    task: str
    metric: str
    value: float
    error: float | None

    @property
    def name(self) -> str:
        """What the metric is called in a store, without its split."""
        return metric_name(self.task, self.metric)


def measure(scored: Scored, codec: Codec, request: Request, where: str) -> list[tuple[TaskScore, ...]]:
    """Measure every member of a pack.

    Args:
        where: Names what asked for it, in messages.

    Returns:
        For each member, its metrics in the order of `lm-eval`.

    Raises:
        MissingPackageError: `lm-eval` is not installed.
        DataError: A task is unknown, or its data cannot be read.
    """
    require("evaluate", "a task of `lm-eval`", where=where)
    if request.folder is not None and not request.folder.is_dir():
        raise DataError("there is no such folder of tasks", where=where, got=str(request.folder))
    # `add_env_info` lists all packages and devices of the machine for 0.6 s in each evaluation; nothing reads the list.
    with _quiet(), patch("lm_eval.evaluator.add_env_info", lambda results: None, create=True):
        from lm_eval.evaluator import simple_evaluate
        from lm_eval.tasks import TaskManager

        from ablate.downstream.adapter import Adapter

        folder = None if request.folder is None else str(request.folder)
        # Reading the thousands of tasks of `lm-eval` takes seconds.
        manager = TaskManager(include_path=folder, include_defaults=False)
        if not set(request.tasks) <= set(manager.all_tasks):
            manager = TaskManager(include_path=folder)
        if unknown := [task for task in request.tasks if task not in manager.all_tasks]:
            raise DataError(
                f"`lm-eval` has no such task: {', '.join(unknown)}",
                where=where,
                expected="names of its tasks, groups or tags, or of tasks in your own folder",
                remedy="`lm-eval ls tasks` lists its own; name your folder with `--include FOLDER`, or as "
                "`downstream.folder` of a space.",
            )
        adapter = Adapter(scored, codec)
        scores = []
        for member in range(scored.pack):
            adapter.member = member
            try:
                evaluated = simple_evaluate(
                    model=adapter,
                    tasks=list(request.tasks),
                    task_manager=manager,
                    num_fewshot=request.shots,
                    limit=request.limit,
                    bootstrap_iters=_RESAMPLES,
                    log_samples=False,
                )
            except AblateError:
                raise
            except Exception as error:  # tasks run code of their own, and `datasets` raises many types of exceptions
                said = str(first_cause(error, where))
                text = next((line for line in said.splitlines() if line.strip()), type(error).__name__)
                raise DataError(
                    f"`lm-eval` cannot measure this ({text.strip()})",
                    where=where,
                    got=", ".join(request.tasks),
                    remedy="Check that the data of these tasks can be read here; `--debug` shows where it failed.",
                ) from error
            scores.append(_scores(evaluated["results"]))
    return scores


def _scores(results: dict[str, dict[str, Any]]) -> tuple[TaskScore, ...]:
    scores = []
    for task, values in results.items():
        for key, value in values.items():
            metric, comma, filtered = key.partition(",")
            if not comma or metric.endswith("_stderr") or not isinstance(value, (int, float)):
                continue
            error = values.get(f"{metric}_stderr,{filtered}")
            name = metric if filtered == _NO_FILTER else key
            scores.append(TaskScore(task, name, float(value), error if isinstance(error, float) else None))
    return tuple(scores)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep what the harness logs, warns of and draws off the terminal, and give back the generators that it seeds."""
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    loggers = [logging.getLogger(name) for name in ("lm_eval", "lm-eval", "datasets")]
    levels = [logger.level for logger in loggers]
    before = {name: os.environ.get(name) for name in _ENVIRONMENT}
    os.environ.update(_ENVIRONMENT)
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])


_ENVIRONMENT = {"TQDM_DISABLE": "1", "HF_DATASETS_DISABLE_PROGRESS_BARS": "1", "TOKENIZERS_PARALLELISM": "false"}
