"""An estimate of a plan on another machine: hours, GPU-hours, and whether each trial fits.

A step takes as long as its arithmetic at a share of the device's peak, or as its memory traffic at a share of its
bandwidth, whichever is longer (Williams et al., Roofline, doi:10.1145/1498765.1498785).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ablate.devices import Device, devices_at_once
from ablate.planning.memory import largest_micro_batch, part_of_rank, trial_bytes
from ablate.planning.plan import Plan
from ablate.planning.planned import Trial, Variant
from ablate.spec.cost import BYTES
from ablate.spec.training import TrainingSpec

EFFICIENCY = {"fp32": 0.5, "tf32": 0.35, "bf16": 0.25}
"""The share of the peak that an eager training step reaches, if none is stated: matrix products in bfloat16 are so fast
that the rest of a step takes most of the time. He and Hofmann's run (10 h on an A5000 for 659 PFLOP) reached 0.16."""
_BANDWIDTH = 0.8
"""The share of the stated bandwidth that large transfers reach."""
_ACTIVATION_PASSES = 4
"""How often an activation is moved: written and read in the forward pass, read in the backward pass, and its gradient
written."""
_STATE_PASSES = 2
"""How often weights, gradients and the state of the optimizer are moved in a step: read and written."""
_RECOMPUTED = 4 / 3
"""The arithmetic of a step whose forward pass runs twice, over that of one whose forward pass runs once."""
_SHARE_OF_MEMORY = 0.95
"""The share of a device's memory that its driver and libraries leave."""


@dataclass(frozen=True, slots=True)
class Machine:
    """Equal devices.

    Attributes:
        device: One of them.
        count: Their number.
        efficiency: The share of the peak that a step reaches, as the user states it; None: `measured`, or else
            `EFFICIENCY`, by precision.
        each: The devices that train one trial together, each its share of every batch; or the fraction of one device
            that a trial has. The exchange of gradients is taken to cost no time.
        measured: By precision, the share of the peak that `ablate doctor` has measured.
        shard: Whether the devices of a trial divide its model among them.
    """

    device: Device
    count: int
    efficiency: float | None = None
    each: float = 1.0
    measured: Mapping[str, float] = field(default_factory=dict)
    shard: bool = False

    @property
    def at_once(self) -> int:
        """The number of trials that are trained at once.

        Raises:
            EngineError: There are fewer devices than a trial asks for.
        """
        return devices_at_once(self.count, self.each)

    def share(self, training: TrainingSpec) -> float:
        """The share of the peak that a step reaches."""
        if self.efficiency is not None:
            return self.efficiency
        return self.measured.get(training.precision, EFFICIENCY[training.precision])

    def source(self, training: TrainingSpec) -> str:
        """Where the share comes from."""
        if self.efficiency is not None:
            return "as stated"
        return "measured by doctor" if training.precision in self.measured else "which is usual"

    def seconds(self, variant: Variant) -> float:
        """The training time of one trial on its devices."""
        return self._on_one(part_of_rank(variant, self._ranks)) * self._ranks / self.each

    @property
    def _ranks(self) -> int:
        """The processes of a trial, each on a device."""
        return int(max(1.0, self.each))

    @property
    def _parts(self) -> int:
        return self._ranks if self.shard else 1

    def needed(self, variant: Variant) -> int:
        """The predicted bytes of a trial on each of its devices."""
        return trial_bytes(part_of_rank(variant, self._ranks), self._parts)

    def _on_one(self, variant: Variant) -> float:
        training = variant.spec.training
        flops = variant.flops * (_RECOMPUTED if training.recompute == "blocks" else 1.0)
        arithmetic = flops / (self.device.peak(training.precision) * self.share(training))
        state = 2 * BYTES + training.optimizer.state_bytes()
        context = max(1, variant.context)
        inputs = sum(phase.steps * phase.batch_size * phase.context / context for phase in training.phases(context))
        moved = float(training.steps * _STATE_PASSES * state * variant.cost.parameters)
        moved += inputs * _ACTIVATION_PASSES * variant.cost.activation_bytes
        return max(arithmetic, moved / (self.device.bandwidth * _BANDWIDTH))

    def fits(self, variant: Variant) -> bool:
        """Whether the predicted memory of a trial is there."""
        return self.needed(variant) <= self._memory

    def smaller(self, variant: Variant) -> TrainingSpec | None:
        """The training of a variant with the largest micro-batch that fits; None if none does."""
        return largest_micro_batch(part_of_rank(variant, self._ranks), self._memory, self._parts)

    @property
    def _memory(self) -> float:
        """The bytes that a trial may use on each of its devices."""
        return _SHARE_OF_MEMORY * self.device.memory * min(1.0, self.each)


@dataclass(frozen=True, slots=True)
class MachineForecast:
    """The estimated duration of a plan on another machine.

    Attributes:
        done: The keys of trials that the store already holds.
        machine: The other machine.
    """

    done: frozenset[str]
    machine: Machine

    @property
    def workers(self) -> int:
        """The number of trials at once."""
        return self.machine.at_once

    @property
    def counts_evaluations(self) -> bool:
        """Evaluations are not in the total."""
        return False

    @property
    def basis(self) -> str:
        """A description of the source of the estimate."""
        stated = self.machine.efficiency
        share = f"{stated:g} of the peak" if stated is not None else "usual shares of the peak"
        if stated is None and self.machine.measured:
            share = "the share that doctor measured of the peak"
        return f"{share} of {self.machine.device.name}"

    def seconds(self, trial: Trial) -> float:
        """The training time of one trial."""
        return self.machine.seconds(trial.variant)

    def device_seconds(self, plan: Plan) -> float:
        """The training times of the trials that are not done, summed over the devices of each."""
        return self.machine.each * sum(self._left(plan))

    def total(self, plan: Plan) -> float:
        """The wall time of all trials that are not done."""
        return max(sum(self._left(plan)) / self.workers, max(self._left(plan), default=0.0))

    def _left(self, plan: Plan) -> list[float]:
        return [self.seconds(trial) for trial in (*plan.trials, *plan.later) if trial.key not in self.done]
