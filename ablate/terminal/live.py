"""What a running study shows: on a terminal a live display, in a pipe a line for each trial that ends."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ablate.engine.observer import Observer
from ablate.engine.plan import Plan, PlannedTrial
from ablate.store.records import TrialOutcome, TrialState
from ablate.terminal.units import duration, scaled
from ablate.training.events import Point

_REFRESH_PER_SECOND = 4


class Display(Observer):
    """Shows trials done of all, what trains now, its loss and the time left. Used as a context."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None
        self._total = 0
        self._done = 0
        self._done_flops = 0.0
        self._left_flops = 0.0
        self._workers = 1
        self._begin = time.monotonic()
        self._running: dict[str, _Row] = {}

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
        """See `Observer.say`."""
        self._console.print(Text(line, style="dim"), soft_wrap=True)

    def planned(self, plan: Plan, reused: int, elsewhere: int, workers: int) -> None:
        """See `Observer.planned`."""
        self._total = len(plan.trials)
        self._workers = workers
        self._begin = time.monotonic()
        variants = f"{len(plan.variants)} variants, {self._total} trials"
        self.say(f"{plan.space.name}: {variants}, {scaled(plan.flops)}FLOP, {workers} worker{'s'[: workers != 1]}")
        if plan.invalid:
            self.say(f"{len(plan.invalid)} points make no model and are left out; `ablate plan` says why")
        if reused:
            where = f", {elsewhere} of them trained for other studies" if elsewhere else ""
            self.say(f"{reused} trials are in the store already and are not trained again{where}")
        self._done = reused
        self._left_flops = plan.flops * (1 - reused / max(1, self._total))
        if self._console.is_terminal and reused < self._total:
            self._live = Live(
                self._view(), console=self._console, refresh_per_second=_REFRESH_PER_SECOND, transient=True
            )
            self._live.start()

    def started(self, trial: PlannedTrial) -> None:
        """See `Observer.started`."""
        self._running[trial.key] = _Row(trial)

    def moved(self, trial: PlannedTrial, step: int, train_loss: float) -> None:
        """See `Observer.moved`."""
        row = self._running[trial.key]
        row.step, row.train_loss = step, train_loss

    def measured(self, trial: PlannedTrial, point: Point, member: int) -> None:
        """See `Observer.measured`."""
        row = self._running[trial.key]
        row.step, row.val_loss = point.step, point.metrics["val_loss"][member]
        if point.step:
            row.train_loss = point.train_loss[member]

    def ended(self, trial: PlannedTrial, outcome: TrialOutcome) -> None:
        """See `Observer.ended`."""
        row = self._running.pop(trial.key)
        self._done += 1
        self._done_flops += trial.variant.flops
        self._left_flops -= trial.variant.flops
        line = Text(f"{self._done:>4}/{self._total}  ")
        line.append(f"{trial.variant.name}  seed {trial.seed}", style="bold")
        if outcome.state is TrialState.FINISHED:
            line.append(f"  val_loss {row.val_loss:.4f}  ({outcome.seconds:.0f} s)")
        else:
            line.append(f"  {outcome.state.value}: {outcome.reason.splitlines()[0]}", style="red")
        if self._live is None:
            line.append(f"  {self._time_left()} left", style="dim")
            self._console.print(line, soft_wrap=True)
        elif outcome.state is not TrialState.FINISHED:
            self._live.console.print(line)

    def beat(self) -> None:
        """See `Observer.beat`."""
        if self._live is not None:
            self._live.update(self._view())

    def _view(self) -> Group:
        head = Table.grid(padding=(0, 2))
        head.add_row(
            Text(f"{self._done} of {self._total} trials", style="bold"),
            ProgressBar(total=self._total, completed=self._done, width=30),
            Text(f"{duration(time.monotonic() - self._begin)} gone, {self._time_left()} left", style="dim"),
        )
        rows = Table.grid(padding=(0, 2))
        for row in self._running.values():
            steps = row.trial.variant.spec.training.steps
            rows.add_row(
                Text(f"  {row.trial.variant.name}", style="cyan"),
                Text(f"seed {row.trial.seed}"),
                Text(f"step {row.step}/{steps}"),
                Text(f"loss {row.train_loss:.3f}" if row.train_loss is not None else "starting"),
                Text(f"val_loss {row.val_loss:.3f}" if row.val_loss is not None else "", style="dim"),
            )
        return Group(head, rows)

    def _time_left(self) -> str:
        # The arithmetic done per second of wall time so far, running trials counted by their share.
        running = sum(row.trial.variant.flops * row.step / row.trial.variant.spec.training.steps
                      for row in self._running.values())
        done = self._done_flops + running
        elapsed = time.monotonic() - self._begin
        if done <= 0 or elapsed < 3:
            return "?"
        return duration(max(0.0, self._left_flops - running) * elapsed / done)


class _Row:
    """A trial that trains now."""

    def __init__(self, trial: PlannedTrial) -> None:
        self.trial = trial
        self.step = 0
        self.train_loss: float | None = None
        self.val_loss: float | None = None

