"""`DownstreamSpec`: tasks of `lm-eval` on which a language model is measured after training."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ablate.spec.base import Spec

Metrics = Annotated[tuple[str, ...], Field(min_length=1)]


class DownstreamSpec(Spec):
    """Tasks of EleutherAI's `lm-eval`, measured once, after the last step.

    Each metric is one of the trial, which an objective or a claim may name: `val_TASK_METRIC`, such as
    `val_arc_easy_acc`. `val`, because a study decides by it, whichever examples the task reads. Needs the extra
    `evaluate`. The key of a trial holds these names and numbers and not the data of the tasks: give a task that changes
    another name.
    """

    tasks: dict[str, Metrics] = Field(min_length=1)
    """Name of a task or group to the names of its metrics: `{arc_easy: [acc, acc_norm]}`."""
    folder: str = ""
    """A folder with YAML files of further tasks; none unless set."""
    shots: int | None = Field(default=None, ge=0)
    """Solved examples before each question; unless set, as many as the task says."""
    limit: int | None = Field(default=None, ge=1)
    """Examples of each task, the first ones; all unless set."""

    def names(self) -> dict[str, tuple[str, str]]:
        """Name of each metric of a trial to the task and the metric of `lm-eval`."""
        return {
            f"val_{metric_name(task, metric)}": (task, metric)
            for task, metrics in self.tasks.items()
            for metric in metrics
        }


def metric_name(task: str, metric: str) -> str:
    """The name of a metric of a task in a store, without its split: `arc_easy_acc`."""
    return f"{task}_{metric.replace(',', '_')}"
