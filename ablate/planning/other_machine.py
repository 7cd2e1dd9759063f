"""An estimate of a plan on another machine: hours, GPU-hours, and whether each trial fits.

A step takes as long as its arithmetic at a share of the device's peak, or as its memory traffic at a share of its
bandwidth, whichever is longer (Williams et al., Roofline, doi:10.1145/1498765.1498785).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from ablate.devices import Device, devices_at_once, find_device, known_device, stated_device, with_peak
from ablate.errors import EngineError
from ablate.locations import read_file
from ablate.planning.memory import largest_micro_batch, part_of_rank, trial_bytes
from ablate.planning.plan import Plan, Trial, Variant
from ablate.spec.cost import BYTES
from ablate.spec.space_fields import ResourcesSpec
from ablate.spec.training import TrainingSpec

EFFICIENCY = {"fp32": 0.5, "tf32": 0.2, "bf16": 0.2}
"""The share of the peak that a training step reaches, if none is stated: matmuls in bfloat16 are so fast that the rest
of a step takes most of the time. GPT-2 small reached 0.60, 0.20 and 0.20 on an H100 (`benchmarks gpu_forecast`); He and
Hofmann's run (10 h on an A5000 for 659 PFLOP) reached 0.16."""
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
_TRIAL, _BF16, _MACHINE = "a small trial", "bf16", "machine"
"""Names of findings of `ablate.execution.doctor`."""


@dataclass(frozen=True, slots=True)
class Machine:
    """Equal devices.

    Attributes:
        device: One of them.
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

    at_once: int = field(init=False)
    """The number of trials that are trained at once."""

    def __post_init__(self) -> None:
        """Work out how many trials are trained at once.

        Raises:
            EngineError: There are fewer devices than a trial asks for.
        """
        object.__setattr__(self, "at_once", devices_at_once(self.count, self.each))

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
        """The training time of one trial on its devices.

        Raises:
            SpaceError: The user's trainer builds the model, of which nothing is known.
        """
        variant.spec.require_model()
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
        return trial_bytes(part_of_rank(variant, self._ranks), self._parts, "cuda")

    def _on_one(self, variant: Variant) -> float:
        training = variant.spec.training
        flops = variant.flops * (_RECOMPUTED if training.recompute == "blocks" else 1.0)
        arithmetic = flops / (self.device.peak(training.precision) * self.share(training))
        state = 2 * BYTES + training.optimizer.state_bytes()
        phases = training.phases(variant.context)
        inputs = sum(phase.steps * phase.batch_size * phase.context / variant.context for phase in phases)
        moved = float(training.steps * _STATE_PASSES * state * variant.cost.parameters)
        moved += inputs * _ACTIVATION_PASSES * variant.cost.activation_bytes
        return max(arithmetic, moved / (self.device.bandwidth * _BANDWIDTH))

    def fits(self, variant: Variant) -> bool:
        """Whether the predicted memory of a trial is there."""
        return self.needed(variant) <= self._memory

    def smaller(self, variant: Variant) -> TrainingSpec | None:
        """The training of a variant with the largest micro-batch that fits; None if none does."""
        return largest_micro_batch(part_of_rank(variant, self._ranks), self._memory, self._parts, "cuda")

    @property
    def _memory(self) -> float:
        """The bytes that a trial may use on each of its devices."""
        return _SHARE_OF_MEMORY * self.device.memory * min(1.0, self.each)


@dataclass(frozen=True, slots=True)
class MachineForecast:
    """The estimated duration of a plan on another machine.

    Attributes:
        done: The keys of trials that the store already holds.
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


@dataclass(frozen=True, slots=True)
class DoctorReport:
    """A machine that `ablate doctor` has examined.

    Attributes:
        device: One of its devices. One that is not in the table has the measured FLOP/s as its peak.
        known: Whether the device is in the table.
        shares: By precision, the share of the peak that a small trial has reached.
    """

    device: Device
    count: int
    known: bool
    shares: Mapping[str, float]


def read_doctor_report(file: Path) -> DoctorReport:
    """Read what `ablate doctor` has written.

    Raises:
        EngineError: The file cannot be read, or `ablate doctor` did not write it.
    """
    try:
        findings: dict[str, dict[str, Any]] = {
            finding["name"]: finding for finding in from_json(read_file(file, 16 << 20, EngineError))["findings"]
        }
        description = str(findings[_MACHINE]["says"]).partition(";")[0]
        rate = float(findings[_TRIAL]["values"]["flops_per_second"])
        in_bf16 = rate * float(findings[_BF16]["values"]["speed"])
        if not rate > 0 < in_bf16:
            raise ValueError("its rate is not above 0")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise EngineError(
            "this file was not written by `ablate doctor`",
            where=f"--doctor {file}",
            got=f"{type(error).__name__}: {error}",
            remedy="Write one on that machine: `ablate doctor --out FILE`.",
        ) from error
    known = known_device(description)
    device = known or stated_device(rate)
    numbered = re.search(r"\b(\d+) x ", description)
    rates = {"fp32": rate, "bf16": in_bf16}
    shares = {precision: value / device.peak(precision) for precision, value in rates.items()}
    return DoctorReport(device, int(numbered[1]) if numbered else 1, known is not None, shares)


def find_machine(
    on: str | None,
    flops: float | None,
    efficiency: float | None,
    doctor: Path | None,
    workers: int | None,
    resources: ResourcesSpec,
) -> Machine | None:
    """The machine that the options name; None if they name none.

    Raises:
        EngineError: The device is not known, a share of its peak is stated without a device, options contradict, or a
            trial asks for more devices than there are.
    """
    each, shard = resources.gpus or 1.0, resources.shard
    if doctor is not None and (efficiency is not None or flops is not None):
        raise EngineError(
            "the file says what this machine has reached",
            where="--doctor",
            remedy=f"Leave out {'--efficiency' if efficiency is not None else '--flops'}, or --doctor.",
        )
    report = None if doctor is None else read_doctor_report(doctor)
    if report is not None and on is None:
        count = max(report.count, int(each * (workers or 1)))
        return Machine(report.device, count, each=each, measured=report.shares, shard=shard)
    if on is None and flops is None:
        if efficiency is not None:
            raise EngineError(
                "this is a share of the peak of a device, and none is named",
                where="--efficiency",
                remedy="Name one with --on, or state its peak with --flops.",
            )
        return None
    if on is None:
        assert flops is not None, "one of them is given"
        return Machine(stated_device(flops), max(1, math.ceil((workers or 1) * each)), efficiency, each, shard=shard)
    if report is not None and not report.known:
        raise EngineError(
            "no peak FLOP/s is known for the machine in this file",
            where=f"--doctor {doctor}",
            remedy="Leave out --on to plan for that machine, or state a share with --efficiency.",
        )
    device, count = find_device(on)
    if workers is not None:
        count = max(1, math.ceil(workers * each))
    shares = {} if report is None else report.shares
    return Machine(device if flops is None else with_peak(device, flops), count, efficiency, each, shares, shard)
