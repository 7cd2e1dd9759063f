"""Tasks of EleutherAI's `lm-eval` (the Language Model Evaluation Harness) on a pack of language models.

The harness fetches the data of its own tasks from the hub; tasks of a folder may read local files.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from ablate.downstream.scoring import Scored
from ablate.errors import AblateError, DataError, first_cause
from ablate.extras import require
from ablate.spec.task import Codec, metric_name

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
