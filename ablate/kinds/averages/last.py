"""`last`: the mean of the last checkpoints.

- Attention Is All You Need (arXiv:1706.03762), section 6.1: the last 5 checkpoints; https://arxiv.org/abs/1706.03762
- Averaging Weights Leads to Wider Optima (arXiv:1803.05407), Algorithm 1; https://arxiv.org/abs/1803.05407
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ablate.spec.average import AverageSpec


class LastSpec(AverageSpec):
    """The mean of the weights at checkpoints that are evenly spaced over the end of training, up to the last step.

    Before the first checkpoint the current weights are evaluated; after it, the mean of the checkpoints so far.
    """

    kind: Literal["last"] = "last"
    source = "arXiv:1706.03762 sec. 6.1; arXiv:1803.05407 Algorithm 1"
    count: int = Field(default=5, ge=2, le=10_000)
    """Number of checkpoints that are averaged."""
    share: float = Field(default=0.2, gt=0, le=1)
    """Share of the steps, at the end of training, over which the checkpoints are spaced."""

    def weight(self, step: int, steps: int) -> float:
        checkpoints = self.checkpoints(steps)
        if step < checkpoints[0]:
            return 1.0
        return 1 / (1 + checkpoints.index(step)) if step in checkpoints else 0.0

    def checkpoints(self, steps: int) -> list[int]:
        """The steps whose weights are averaged, ascending; fewer than `count` in a short training."""
        gap = self.share * steps / self.count
        return sorted({max(1, steps - round(index * gap)) for index in range(self.count)})
