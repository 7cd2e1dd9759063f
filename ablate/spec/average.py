"""`AverageSpec`: the average of the weights that is evaluated in their place.

- Acceleration of stochastic approximation by averaging (Polyak & Juditsky, 1992); torch.optim.swa_utils
- Attention Is All You Need (arXiv:1706.03762), section 6.1: the last 5 checkpoints; https://arxiv.org/abs/1706.03762
- Averaging Weights Leads to Wider Optima (arXiv:1803.05407), Algorithm 1; https://arxiv.org/abs/1803.05407
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, Literal

from pydantic import Field

from ablate.spec.annotations import OneOf
from ablate.spec.base import Family, PublishedKind


class AverageSpec(PublishedKind):
    """A running average of the weights, a ← a + w_t (θ_t - a) after step t, which is evaluated and kept instead of θ.

    Training continues with θ.
    """

    family = Family("average")

    @abstractmethod
    def weight(self, step: int, steps: int) -> float:
        """w_t, from 0 to 1, at a step counted from 1 to `steps`: 0 leaves the average, 1 makes it the weights.

        The first step has weight 1, so that the initial weights have no share.
        """


class EMASpec(AverageSpec):
    """a ← d·a + (1 - d)·θ, with Adam's bias correction."""

    kind: Literal["ema"] = "ema"
    source = "torch.optim.swa_utils.get_ema_multi_avg_fn; correction as in arXiv:1412.6980, section 3"
    decay: float = Field(default=0.999, gt=0, lt=1)
    """d; about 1/(1 - d) steps are averaged."""
    corrected: bool = True
    """Whether to remove the bias towards the first steps, as Adam does: step t has weight (1 - d)/(1 - d^t). Otherwise
    the average starts as the weights after step 1, as in torch."""

    def weight(self, step: int, steps: int) -> float:
        if self.corrected:
            return (1 - self.decay) / (1 - self.decay**step)
        return 1 - self.decay if step > 1 else 1.0


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


Average = Annotated[AverageSpec, OneOf]
