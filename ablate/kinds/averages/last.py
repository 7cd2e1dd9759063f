"""`last`: the mean of the last checkpoints.

- Attention Is All You Need (arXiv:1706.03762), section 6.1: the last 5 checkpoints; https://arxiv.org/abs/1706.03762
- Averaging Weights Leads to Wider Optima (arXiv:1803.05407), Algorithm 1; https://arxiv.org/abs/1803.05407
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ablate.spec.average import AverageSpec


class LastSpec(AverageSpec):
    """The mean of the weights at some steps, evenly spread over the end of the training, the last step among them.

    Before the first of these steps the weights themselves are evaluated; between them, the mean of those so far.
    """

    kind: Literal["last"] = "last"
    source = "arXiv:1706.03762 sec. 6.1; arXiv:1803.05407 Algorithm 1"
    count: int = Field(default=5, ge=2, le=10_000)
    """Checkpoints that are averaged."""
    share: float = Field(default=0.2, gt=0, le=1)
    """Share of the steps, at the end, over which they are spread."""

    def weight(self, step: int, steps: int) -> float:
        checkpoints = self.checkpoints(steps)
        if step < checkpoints[0]:
            return 1.0
        return 1 / (1 + checkpoints.index(step)) if step in checkpoints else 0.0

    def checkpoints(self, steps: int) -> list[int]:
        """The steps whose weights are averaged, ascending; fewer than `count` in a short training."""
        gap = self.share * steps / self.count
        return sorted({max(1, steps - round(index * gap)) for index in range(self.count)})
