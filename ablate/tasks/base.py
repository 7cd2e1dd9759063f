"""What a file in this folder, or a plugin, imports to define a task: the abstract classes of `ablate.spec.task`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ablate.spec.task import TASKS, DataShape, DataSummary, Say, Task, TaskSpec

if TYPE_CHECKING:
    from ablate.spec.task import Batch

__all__ = ["SPLITS", "TASKS", "Batch", "DataShape", "DataSummary", "Say", "Task", "TaskSpec"]

SPLITS = ("train", "validation")
"""The splits that all data has. A task may also have a test split."""
