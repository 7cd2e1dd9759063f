"""What a file in this folder (or a plugin) needs to define a task: the abstract classes of `ablate.spec.task`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ablate.spec.task import TASKS, DataShape, DataSummary, Say, Task, TaskSpec

if TYPE_CHECKING:
    from ablate.spec.task import Batch

__all__ = ["PARTS", "TASKS", "Batch", "DataShape", "DataSummary", "Say", "Task", "TaskSpec"]

PARTS = ("train", "validation")
"""The parts that all data has; a test may come to them."""
