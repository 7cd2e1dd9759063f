"""How much training designs save and whether their verdicts are right, replayed on fully trained grids.

Three grids differ in task and size, with 64 or 128 variants and ten seeds each (`tests/designs/truth_tables/`, trained
by `train_truth_table.py`). Every corner of a space can be the baseline of a study, and seeds can be in any order, so
that one table gives many studies. The reference is the verdict of the full grid with ten seeds, by the same rule and
margin, where it is `needed` or `not needed`. Compute is the arithmetic of the proposed trials relative to that of the
full grid.
"""

from __future__ import annotations

import csv
import random
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from rich.console import Console
from rich.table import Table
from scipy.stats import binomtest

from ablate.designs.base import Design, DesignContext, Point, PointCost
from ablate.designs.fixed import LeaveOneOutSpec
from ablate.designs.fractional import FractionalSpec
from ablate.designs.simplify import SimplifySpec
from ablate.spec.design import SeedsSpec
from ablate.spec.reading import load_space
from ablate.stats import SeedSchedule, Word, judge
from ablate.stats.effects import Effect, Observation, estimate_effects

FOLDER = Path(__file__).parent.parent / "tests" / "designs" / "truth_tables"
ORDERS = 4
"""Number of orders of the seeds in which each study is replayed."""

Corner = tuple[tuple[str, str], ...]
Words = dict[str, Word]
"""Verdict on changing each switch."""


@dataclass(frozen=True, slots=True)
class Row:
    """A variant: its cost, and its final loss with each seed that did not diverge."""

    settings: dict[str, str]
    cost: PointCost
    losses: dict[int, float]


@dataclass(frozen=True)
class TruthTable:
    """A fully trained grid."""

    name: str
    switches: Mapping[str, tuple[str, ...]]
    margin: float
    rows: dict[Corner, Row]
    seeds: int

    @classmethod
    def read(cls, name: str) -> TruthTable:
        """Read a space of the folder and its table."""
        space = load_space(str(FOLDER / f"{name}.yaml"))
        switches = {switch: tuple(settings) for switch, settings in space.switches.items()}
        rows = {}
        with (FOLDER / f"{name}.csv").open(newline="") as file:
            for line in csv.DictReader(file):
                settings = {switch: line[switch] for switch in switches}
                numbers = {
                    int(name[5:]): float(text) for name, text in line.items() if name.startswith("seed_") and text
                }
                cost = PointCost(int(line["parameters"]), float(line["flops"]))
                rows[corner(settings)] = Row(settings, cost, numbers)
        return cls(name, switches, space.objective.margin, rows, space.design.fixed_seeds())

    @cached_property
    def flops(self) -> float:
        """Arithmetic of the full grid with all seeds."""
        return self.seeds * sum(row.cost.flops for row in self.rows.values())

    @cached_property
    def alone(self) -> dict[Corner, Words]:
        """Verdicts of the grid on changing each switch alone, by baseline."""
        return {
            key: {
                switch: self.judge(other, row.settings) for switch, other in turned(self.context(row.settings)).items()
            }
            for key, row in self.rows.items()
        }

    @cached_property
    def average(self) -> dict[Corner, Words]:
        """Verdicts of the grid on changing each switch, averaged over the others, by baseline."""
        everything = {key: row.losses for key, row in self.rows.items()}
        return {
            key: main_effects(everything, self.context(row.settings), self.margin) for key, row in self.rows.items()
        }

    def context(self, baseline: Mapping[str, str]) -> DesignContext:
        """The context of a study with this baseline."""
        switches = {
            switch: (baseline[switch], *(setting for setting in settings if setting != baseline[switch]))
            for switch, settings in self.switches.items()
        }
        return DesignContext(
            switches,
            {},
            "minimize",
            self.margin,
            lambda point: None,
            lambda point: self.rows[corner(point.settings)].cost,
        )

    def judge(self, variant: Mapping[str, str], baseline: Mapping[str, str]) -> Word:
        """The verdict of the grid on a variant, with all seeds."""
        return self.judge_seeds(self.rows[corner(variant)].losses, self.rows[corner(baseline)].losses, None)

    def judge_seeds(
        self, variant: Mapping[int, float], baseline: Mapping[int, float], schedule: SeedSchedule | None
    ) -> Word:
        """The verdict on losses by seed."""
        return judge(variant, baseline, margin=self.margin, direction="minimize", schedule=schedule).word


@dataclass
class Replay:
    """A replayed study: the cost of the trials its design proposed, and their results."""

    table: TruthTable
    order: Sequence[int]
    flops: float = 0.0
    trials: int = 0
    results: dict[Corner, dict[int, float]] = field(default_factory=dict)

    def run(self, design: Design) -> None:
        """Answer the proposals of a design from the table until it has none left."""
        while proposals := design.ask():
            for proposal in proposals:
                row = self.table.rows[corner(proposal.point.settings)]
                loss = row.losses.get(self.order[proposal.seed])
                self.trials += 1
                self.flops += row.cost.flops
                if loss is not None:
                    self.results.setdefault(corner(proposal.point.settings), {})[proposal.seed] = loss
                design.tell(proposal.point, proposal.seed, loss)


@dataclass
class Tally:
    """Statistics over many replays of one design."""

    name: str
    question: str
    saved: list[float] = field(default_factory=list)
    trials: list[int] = field(default_factory=list)
    agree: int = 0
    false: int = 0
    silent: int = 0
    reference: int = 0

    def add(self, replay: Replay, verdicts: Words, truth: Words) -> None:
        """Add a replay; comparisons that are undecided or diverged in the grid are not counted."""
        self.saved.append(replay.table.flops / replay.flops)
        self.trials.append(replay.trials)
        for switch, right in truth.items():
            if right not in ("needed", "not needed"):
                continue
            self.reference += 1
            self.agree += verdicts[switch] == right
            self.false += verdicts[switch] in ("needed", "not needed") and verdicts[switch] != right
            self.silent += verdicts[switch] not in ("needed", "not needed")

    def cells(self) -> list[str]:
        """A row of the printed table."""
        decided = self.agree + self.false
        return [
            self.name,
            self.question,
            f"{statistics.fmean(self.trials):,.0f}",
            f"{statistics.fmean(self.saved):.0f}x",
            f"{self.reference:,}",
            share(self.silent, self.reference),
            share(self.agree, decided),
            share(self.false, decided),
        ]


def corner(settings: Mapping[str, str]) -> Corner:
    """A hashable key for settings."""
    return tuple(sorted(settings.items()))


def share(count: int, of: int) -> str:
    """A share with its exact 95 % interval, in percent."""
    if not of:
        return "-"
    low, high = binomtest(count, of).proportion_ci()
    return f"{100 * count / of:.1f} % ({100 * low:.1f}-{100 * high:.1f})"


def turned(context: DesignContext) -> dict[str, dict[str, str]]:
    """The settings with one switch changed, by switch."""
    return {switch: {**context.baseline, switch: options[1]} for switch, options in context.switches.items()}


def all_seeds(table: TruthTable, row: Row, order: Sequence[int]) -> Words:
    """Verdicts of the grid with all seeds."""
    return table.alone[corner(row.settings)]


def other_seeds(table: TruthTable, row: Row, order: Sequence[int]) -> Words:
    """Verdicts of the grid with the second half of the seeds, which a study with the first half does not use."""
    rest = order[len(order) // 2 :]

    def of(settings: Mapping[str, str]) -> dict[int, float]:
        losses = table.rows[corner(settings)].losses
        return {seed: losses[seed] for seed in rest if seed in losses}

    context = table.context(row.settings)
    return {switch: table.judge_seeds(of(other), of(row.settings), None) for switch, other in turned(context).items()}


def on_average(table: TruthTable, row: Row, order: Sequence[int]) -> Words:
    """Verdicts of the grid on each switch, averaged over the others."""
    return table.average[corner(row.settings)]


def leave_one_out(
    table: TruthTable,
    seeds: int | SeedsSpec,
    name: str,
    orders: Iterable[Sequence[int]],
    question: str = "this part, in this block",
    truth: Callable[[TruthTable, Row, Sequence[int]], Words] = all_seeds,
) -> Tally:
    """Replay with every corner as the baseline; each single changed switch is compared with it."""
    tally = Tally(name, question)
    schedule = SeedSchedule(seeds.start, seeds.max) if isinstance(seeds, SeedsSpec) else None
    for order in orders:
        for row in table.rows.values():
            context = table.context(row.settings)
            replay = Replay(table, order)
            replay.run(LeaveOneOutSpec(kind="leave_one_out", seeds=seeds).build(context))
            base = replay.results.get(corner(row.settings), {})
            verdicts = {
                switch: table.judge_seeds(replay.results.get(corner(other), {}), base, schedule)
                for switch, other in turned(context).items()
            }
            tally.add(replay, verdicts, truth(table, row, order))
    return tally


def main_effects(results: Mapping[Corner, Mapping[int, float]], context: DesignContext, margin: float) -> Words:
    """The verdict on each main effect, from its one-sided 95 % bounds."""
    observations = [
        Observation(dict(settings), seed, loss) for settings, losses in results.items() for seed, loss in losses.items()
    ]
    estimates = estimate_effects(observations, context.switches, interactions=False, confidence=0.9)
    return {effect.term.settings[0][0]: effect_word(effect, margin) for effect in estimates.effects}


def effect_word(effect: Effect, margin: float) -> Word:
    """`needed` if the change is worse by more than the margin on average, `not needed` if it is not, or `undecided`."""
    if effect.low is None or effect.high is None:
        return "undecided"
    return "needed" if effect.low > margin else "not needed" if effect.high < margin else "undecided"


def fractional(table: TruthTable, resolution: str, seeds: int, orders: Iterable[Sequence[int]]) -> Tally:
    """Replay with every corner as the baseline, which gives different runs; compare main effects with the grid's."""
    tally = Tally(f"fractional {resolution}, {seeds} seeds", "this part, on average over the others")
    for order in orders:
        for row in table.rows.values():
            context = table.context(row.settings)
            replay = Replay(table, order)
            replay.run(FractionalSpec(kind="fractional", resolution=resolution, seeds=seeds).build(context))
            verdicts = main_effects(replay.results, context, table.margin)
            tally.add(replay, verdicts, table.average[corner(row.settings)])
    return tally


def simplify(table: TruthTable, seeds: int, beam: int, orders: Iterable[Sequence[int]]) -> list[str]:
    """The smallest block that `simplify` finds from the baseline of the space, and the smallest in the grid."""
    baseline = {switch: settings[0] for switch, settings in table.switches.items()}
    acceptable = [row for row in table.rows.values() if table.judge(row.settings, baseline) == "not needed"]
    smallest = min(row.cost.parameters for row in acceptable)
    saved, trials, parameters, not_worse = [], [], [], 0
    orders = list(orders)
    for order in orders:
        replay = Replay(table, order)
        design = SimplifySpec(kind="simplify", seeds=seeds, beam=beam).removing(table.context(baseline))
        replay.run(design)
        end: Point | None = design.path[-1].point if design.path else None
        row = table.rows[corner(end.settings if end else baseline)]
        saved.append(table.flops / replay.flops)
        trials.append(replay.trials)
        parameters.append(row.cost.parameters)
        not_worse += table.judge(row.settings, baseline) != "needed"
    return [
        f"simplify, beam {beam}, {seeds} seeds",
        f"{statistics.fmean(trials):,.0f}",
        f"{statistics.fmean(saved):.0f}x",
        f"{statistics.fmean(parameters):,.0f}",
        f"{smallest:,}",
        f"{not_worse} of {len(orders)}",
    ]


def main(smoke: bool = False) -> None:
    """Print for each grid how much compute each design saves and how often it is right."""
    console = Console(width=160)
    names = sorted(file.stem for file in FOLDER.glob("*.csv"))
    for name in names[:1] if smoke else names:
        table, shuffled = TruthTable.read(name), random.Random(0)
        console.print(
            f"{name}: {len(table.rows)} variants, {table.seeds} seeds, margin {table.margin:g} nats; each design is "
            f"replayed with every corner as baseline, with up to {ORDERS} orders of seeds."
        )
        orders = [shuffled.sample(range(table.seeds), table.seeds) for _ in range(ORDERS)]
        console.print(verdicts(table, orders, smoke))
        many = [shuffled.sample(range(table.seeds), table.seeds) for _ in range(1 if smoke else 20)]
        console.print(smallest_blocks(table, many, smoke))


def verdicts(table: TruthTable, orders: Sequence[Sequence[int]], smoke: bool) -> Table:
    """What designs save, and how often their verdicts are those of the grid."""
    printed = Table("design", "what is asked", "trials", "compute saved", "grid decides", "undecided", "agree", "false")
    if smoke:
        printed.add_row(*leave_one_out(table, 2, "leave_one_out, 2 seeds", orders[:1]).cells())
        return printed
    for seeds in (table.seeds, 5, 3):
        name = f"leave_one_out, {seeds} seeds"
        printed.add_row(*leave_one_out(table, seeds, name, orders[:1] if seeds == table.seeds else orders).cells())
    growing = SeedsSpec(start=3, max=table.seeds)
    name = f"leave_one_out, 3 to {table.seeds} seeds"
    printed.add_row(*leave_one_out(table, growing, name, orders).cells())
    half, disjoint = table.seeds // 2, "this part, in this block; the grid has other seeds"
    printed.add_row(*leave_one_out(table, half, f"leave_one_out, {half} seeds", orders, disjoint, other_seeds).cells())
    averaged = "this part, on average over the others"
    printed.add_row(*leave_one_out(table, growing, name, orders[:1], averaged, on_average).cells())
    for resolution in ("III", "IV", "V"):
        for seeds in (table.seeds, 2):
            printed.add_row(*fractional(table, resolution, seeds, orders[:1]).cells())
    return printed


def smallest_blocks(table: TruthTable, orders: Sequence[Sequence[int]], smoke: bool) -> Table:
    """The smallest blocks that `simplify` finds."""
    printed = Table(
        "design", "trials", "compute saved", "parameters found", "least in the grid", "not worse, says the grid"
    )
    for beam in (1,) if smoke else (1, 3):
        for seeds in (2,) if smoke else (table.seeds, 5):
            printed.add_row(*simplify(table, seeds, beam, orders))
    return printed


if __name__ == "__main__":
    main()
