"""What a running study shows: on a terminal a live display, in a pipe a line for each trial that ends."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ablate.analysis.numbers import duration, plural, scaled
from ablate.execution.engine import Observer
from ablate.planning.plan import Plan, Trial
from ablate.render.table import in_lines
from ablate.store.records import TrialOutcome, TrialState
from ablate.training.events import Measurement

_REFRESH_SECONDS = 0.25
_SETTLING_SECONDS = 3.0
"""Seconds of training before the remaining time is estimated."""


@dataclass(slots=True)
class _Progress:
    """How far the trials of one variant are.

    Attributes:
        planned: How many there are.
        done: How many have ended, in this run or before.
        values: The objective of those that finished in this run.
        lost: How many diverged, failed or were pruned in this run.
    """

    planned: int = 0
    done: int = 0
    values: list[float] = field(default_factory=list)
    lost: int = 0


@dataclass(slots=True)
class _Row:
    """A trial that trains now."""

    trial: Trial
    step: int = 0
    train_loss: float | None = None

    @property
    def work_done(self) -> float:
        steps = self.trial.variant.spec.training.steps
        return work_of(self.trial) * min(1.0, self.step / steps) if steps else 0.0


def work_of(trial: Trial) -> float:
    """The arithmetic of a trial; 1 where it is not known, so that trials of the user's trainer count alike."""
    return trial.variant.flops or 1.0


class Display(Observer):
    """Shows how far the study is: on a terminal one line for each variant, with its mean so far. Used as a context."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None
        self._metric = "val_loss"
        self._name_width = 0
        self._total = 0
        self._done = 0
        self._work_done = 0.0
        self._work_left = 0.0
        self._begin = time.monotonic()
        self._refreshed = 0.0
        self._training_since: float | None = None
        self._running: dict[str, _Row] = {}
        self._variants: dict[str, _Progress] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.update(Text())
            self._live.stop()
            self._live = None

    def say(self, line: str) -> None:
        self._print(Text(line, style="dim"))

    def planned(self, plan: Plan, settled: Collection[str], from_other_studies: int, workers: int) -> None:
        left = [trial for trial in plan.trials if trial.key not in settled]
        self._count(plan.trials, settled)
        self._metric = plan.space.objective.metric
        self._name_width = max(len(variant.name) for variant in (*plan.variants, *plan.scouts))
        self._total = len(plan.trials)
        self._done = len(settled)
        self._work_left = sum(work_of(trial) for trial in left)
        self._begin = time.monotonic()
        after = f" and {len(plan.later)} after them" if plan.later else ""
        more = f", at most {plan.further} more by results" if plan.further else ""
        self.say(
            f"{plan.space.name}: {plural(len(plan.variants), 'variant')}, {plural(self._total, 'trial')}{after}{more}, "
            f"{f'{scaled(plan.flops)}FLOP, ' if plan.flops else ''}{plural(workers, 'worker')}"
        )
        if plan.invalid:
            self.say(f"{plural(len(plan.invalid), 'point')} left out as invalid; `ablate plan` says why")
        if settled:
            others = f", {from_other_studies} of them from other studies" if from_other_studies else ""
            self.say(f"{plural(len(settled), 'trial')} reused from the store{others}")
        if left and self._console.is_terminal and not self._console.is_dumb_terminal:
            # Refreshed by `beat`: a thread that does it would end with a traceback when the terminal closes.
            self._live = Live(self._view(), console=self._console, auto_refresh=False, transient=True)
            self._live.start(refresh=True)

    def _count(self, trials: Iterable[Trial], settled: Collection[str]) -> None:
        """Count planned trials for their variants."""
        for trial in trials:
            progress = self._variants.setdefault(trial.variant.name, _Progress())
            progress.planned += 1
            progress.done += trial.key in settled

    def started(self, trial: Trial) -> None:
        self._running[trial.key] = _Row(trial)

    def extended(self, trials: Collection[Trial], settled: Collection[str]) -> None:
        self._total += len(trials)
        self._done += len(settled)
        self._count(trials, settled)
        self._work_left += sum(work_of(trial) for trial in trials if trial.key not in settled)

    def reused(self, trial: Trial) -> None:
        self._done += 1
        self._variants[trial.variant.name].done += 1
        self._work_left -= work_of(trial)

    def moved(self, trial: Trial, step: int, train_loss: float) -> None:
        row = self._running[trial.key]
        row.step, row.train_loss = step, train_loss

    def measured(self, trial: Trial, point: Measurement, member: int) -> None:
        self._training_since = self._training_since or time.monotonic()
        row = self._running[trial.key]
        row.step = point.step
        if point.step:
            row.train_loss = point.train_loss[member]

    def lost(self, trial: Trial, reason: str) -> None:
        del self._running[trial.key]
        self._print(self._line(trial).append(f"{reason}; trained again", style="yellow"))

    def split(self, trials: Sequence[Trial], reason: str) -> None:
        for trial in trials:
            del self._running[trial.key]
        what = f"A pack of {len(trials)} trials broke and is split, to find the one at fault: {reason}"
        self._print(Text(what, style="yellow"))

    def ended(self, trial: Trial, outcome: TrialOutcome) -> None:
        del self._running[trial.key]
        self._done += 1
        self._work_done += work_of(trial)
        self._work_left -= work_of(trial)
        progress = self._variants[trial.variant.name]
        progress.done += 1
        if outcome.state is TrialState.FINISHED:
            progress.values.append(outcome.metrics[self._metric])
        else:
            progress.lost += 1
        if outcome.state is not TrialState.FINISHED:
            problem = f"{outcome.state.value}: {outcome.reason.splitlines()[0]}"
            style = "dim" if outcome.state is TrialState.PRUNED else "red"
            self._print(self._line(trial).append(problem, style=style))
        elif self._live is None:
            line = self._line(trial).append(f"{self._metric} {outcome.metrics[self._metric]:.4f}")
            line.append(f"  {duration(outcome.seconds):>11}{self._time_left()}", style="dim")
            self._print(line)

    def beat(self) -> None:
        if self._live is not None and time.monotonic() - self._refreshed > _REFRESH_SECONDS:
            self._refreshed = time.monotonic()
            self._live.update(self._view(), refresh=True)

    def _print(self, line: Text) -> None:
        """One line, however long: on a terminal above the live display."""
        self._console.print(line, soft_wrap=True)

    def _line(self, trial: Trial) -> Text:
        count = f"{self._done:>{len(str(self._total))}}/{self._total}"
        return Text.assemble(f"{count}  ", (f"{trial.variant.name:<{self._name_width}}  seed {trial.seed}  ", "bold"))

    def _view(self) -> Group:
        head = Table.grid(padding=(0, 2))
        head.add_row(
            Text(f"{self._done} of {plural(self._total, 'trial')}", style="bold"),
            ProgressBar(total=self._total, completed=self._done, width=20),
            Text(f"{duration(time.monotonic() - self._begin)} gone{self._time_left()}", style="dim"),
        )
        rows = Table.grid(padding=(0, 2))
        for _ in range(4):
            rows.add_column(no_wrap=True)
        room = max(3, self._console.height - 4)
        shown = sorted(self._variants, key=self._urgency)[:room]
        for name in [name for name in self._variants if name in shown]:
            rows.add_row(*self._variant_line(name))
        if hidden := len(self._variants) - len(shown):
            rows.add_row(Text(f"  and {hidden} more", style="dim"))
        return Group(head, rows)

    def _urgency(self, name: str) -> int:
        """0 for a variant that trains now, 1 for one that waits, 2 for one that is done."""
        progress = self._variants[name]
        if any(row.trial.variant.name == name for row in self._running.values()):
            return 0
        return 2 if progress.done >= progress.planned else 1

    def _variant_line(self, name: str) -> tuple[Text | Padding, ...]:
        progress = self._variants[name]
        running = [row for row in self._running.values() if row.trial.variant.name == name]
        style = "cyan" if running else "dim"
        values = progress.values
        mean = f"{self._metric} {math.fsum(values) / len(values):.4g}" if values else ""
        if running:
            steps = sum(row.step for row in running), sum(row.trial.variant.spec.training.steps for row in running)
            losses = [row.train_loss for row in running if row.train_loss is not None]
            now = f"step {steps[0]}{f'/{steps[1]}' if steps[1] else ''}" + (
                f", loss {losses[0]:.3f}" if losses else ", starting"
            )
        else:
            now = "done" if progress.done >= progress.planned else "waiting"
        lost = f", {progress.lost} lost" if progress.lost else ""
        return (
            Padding(Text(in_lines(name, self._console.width // 3), style=style), (0, 0, 0, 2)),
            Text(f"{progress.done}/{progress.planned}{lost}"),
            Text(mean, style="bold"),
            Text(now, style="dim"),
        )

    def _time_left(self) -> str:
        """From the work done per second since the first worker was ready; empty at first.

        Trials that run are counted by their share.
        """
        elapsed = time.monotonic() - (self._training_since or math.inf)
        running = sum(row.work_done for row in self._running.values())
        done = self._work_done + running
        if done <= 0 or elapsed < _SETTLING_SECONDS:
            return ""
        return f", {duration(max(0.0, self._work_left - running) * elapsed / done)} left"
