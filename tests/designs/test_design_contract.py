"""What every design promises; and what designs find on a table of every variant of a real space."""

from __future__ import annotations

import math
import random
import statistics
import zlib

import pytest
from design_contexts import a_context, drive, resume

from ablate.contracts.design import CONTRACT, SpaceContext
from ablate.designs.base import BASELINE, Design, DesignContext, Point, Proposal
from ablate.designs.wrappers import BudgetedDesign, TunedDesign
from ablate.roles import TrialRole
from ablate.spec.design import DESIGNS, DesignSpec, SeedsSpec
from ablate.spec.fairness import TuneSpec
from benchmarks.truth_table import FOLDER, Tally, TruthTable, fractional, leave_one_out, other_seeds

SWITCHES = {"a": ("on", "off"), "b": ("on", "off"), "c": ("on", "half", "off"), "d": ("on", "off")}
TWO_LEVELS = dict.fromkeys("abcdefg", ("on", "off"))
VARIANTS = {"bare": {"a": "off", "b": "off"}}

# Every kind by its example, and further specs with the switches that they work on.
SPECS = [
    *(
        ({"kind": kind, "seeds": 2, **({"points": 14} if kind == "search" else member.example)}, SWITCHES)
        for kind, member in DESIGNS.members().items()
    ),
    ({"kind": "leave_one_out", "seeds": {"start": 2, "max": 5}}, SWITCHES),
    ({"kind": "add_one_in", "seeds": 2, "plainest": "bare"}, SWITCHES),
    ({"kind": "fractional", "seeds": 2, "resolution": "III"}, TWO_LEVELS),
    ({"kind": "fractional", "seeds": 2, "resolution": "V"}, SWITCHES),
    ({"kind": "simplify", "seeds": 2, "beam": 2}, SWITCHES),
    ({"kind": "search", "seeds": 2, "points": 14, "sampler": "random"}, SWITCHES),
    ({"kind": "search", "seeds": 1, "points": 12, "sampler": "gp", "batch": 2}, SWITCHES),
    ({"kind": "search", "seeds": 2, "points": 14, "sampler": "nsga2", "objectives": ["objective", "flops"]}, SWITCHES),
    ({"kind": "search", "seeds": 2, "points": 14, "ranges": {"x": {"low": 1, "high": 9}}}, SWITCHES),
]
IDS = [f"{index}-{spec['kind']}" for index, (spec, _) in enumerate(SPECS)]


def refuse_some(point: Point) -> str | None:
    """A component that cannot stay without another."""
    return "b stands on d" if (point.settings["b"], point.settings["d"]) == ("on", "off") else None


def landscape(point: Point, seed: int) -> float | None:
    """Something rough that depends on nothing but its arguments; a twentieth diverges."""
    corner = (sorted(point.settings.items()), sorted(point.values.items()), seed)
    draw = random.Random(zlib.crc32(repr(corner).encode()))
    return None if draw.random() < 0.05 else draw.gauss(0, 0.05) + 0.04 * seed


def build(spec: dict[str, object], context: DesignContext) -> Design:
    return DesignSpec.parse(spec).build(context)


def context_of(switches: dict[str, tuple[str, ...]]) -> DesignContext:
    return a_context(switches, variants=VARIANTS, refusal=refuse_some)


def plain(proposals: list[Proposal]) -> list[tuple[object, ...]]:
    return [(p.point.name, *p.point.settings.items(), *p.point.values.items(), p.seed) for p in proposals]


@pytest.fixture(params=SPECS, ids=IDS)
def case(request: pytest.FixtureRequest) -> tuple[dict[str, object], dict[str, tuple[str, ...]]]:
    return request.param


def test_it_keeps_the_contract(case) -> None:  # type: ignore[no-untyped-def]
    spec, switches = case
    assert CONTRACT.check(DesignSpec.parse(spec), [SpaceContext(switches, refuses=True)]) == []


WRAPPED = {
    "alone": lambda design: design,
    "tuned": lambda design: TunedDesign(design, TuneSpec(grid={"training.optimizer.lr": (1, 2)}, seeds=2), "minimize"),
    "at two lengths": lambda design: BudgetedDesign(design, (1, 2), 10),
    "tuned, at two lengths": lambda design: WRAPPED["tuned"](WRAPPED["at two lengths"](design)),
}


@pytest.mark.parametrize("wrapped", WRAPPED)
def test_results_add_at_most_as_many_trials_as_a_plan_says(case, wrapped: str) -> None:  # type: ignore[no-untyped-def]
    design = WRAPPED[wrapped](build(case[0], context_of(case[1])))
    first = design.ask()
    planned, further = len(first) + len(design.waiting()), design.further_trials()
    for proposal in first:
        design.tell(proposal.point, proposal.seed, landscape(proposal.point, proposal.seed))
    if further is None:
        assert design.further(), "only points that are not known yet make the number unknown"
    else:
        assert len(first) + len(drive(design, landscape)) <= planned + further


@pytest.mark.parametrize(
    "spec",
    [
        {"kind": "leave_one_out", "seeds": {"start": 2, "max": 5}},
        {"kind": "search", "seeds": 2, "points": 7, "confirm": 3},
        {"kind": "simplify", "seeds": 2, "confirm": 3},
    ],
)
def test_where_nothing_ends_a_design_early_the_bound_is_reached(spec: dict[str, object]) -> None:
    """Everything may go for `simplify`, and no verdict of `leave_one_out` is reached."""
    wide = 1.0 if "max" in str(spec) else 1e-9

    def same(point: Point, seed: int) -> float:
        return wide * (zlib.crc32(repr((point.name, seed)).encode()) % 7 - 3)

    design = build(spec, a_context(dict.fromkeys("abc", ("on", "off"))))
    first = design.ask()
    planned, further = len(first) + len(design.waiting()), design.further_trials()
    assert further
    for proposal in first:
        design.tell(proposal.point, proposal.seed, same(proposal.point, proposal.seed))
    assert len(first) + len(drive(design, same)) == planned + further


def test_every_point_gets_every_seed(case) -> None:  # type: ignore[no-untyped-def]
    seeds: dict[str, list[int]] = {}
    fresh: dict[str, list[int]] = {}
    for proposal in drive(build(case[0], context_of(case[1])), landscape):
        confirms = proposal.point.role is TrialRole.CONFIRMATION
        (fresh if confirms else seeds).setdefault(proposal.point.name, []).append(proposal.seed)
    expected = case[0]["seeds"]
    counts = {expected} if isinstance(expected, int) else set(range(expected["start"], expected["max"] + 1))
    assert all(sorted(of_point) == list(range(3000, 3005)) for of_point in fresh.values())
    assert fresh.keys() <= seeds.keys()
    assert all(sorted(of_point) == list(range(len(of_point))) for of_point in seeds.values())
    assert {len(of_point) for of_point in seeds.values()} <= counts


def test_every_point_is_paired_with_the_baseline(case) -> None:  # type: ignore[no-untyped-def]
    """With the baseline at the same value of a sweep, or on the same rung of a ladder."""
    proposals = drive(build(case[0], context_of(case[1])), landscape)
    baselines = {(*p.point.values.items(), p.seed) for p in proposals if p.point.name.split("@")[0] == BASELINE}
    for proposal in proposals:
        values = proposal.point.values.items() if case[0]["kind"] in ("sweep", "ladder") else ()
        assert (*values, proposal.seed) in baselines


def test_a_new_design_resumes_from_told_results(case) -> None:  # type: ignore[no-untyped-def]
    """Told what an interrupted run had finished, a new design asks for the same trials as if nothing had happened."""
    whole = drive(build(case[0], context_of(case[1])), landscape)
    for done in (0, len(whole) // 2, len(whole) - 1):
        assert plain(resume(build(case[0], context_of(case[1])), landscape, whole[:done])) == plain(whole)


ORDER = (7, 2, 9, 0, 4, 1, 8, 3, 6, 5)


@pytest.fixture(scope="module", params=sorted(file.stem for file in FOLDER.glob("*.yaml")))
def table(request: pytest.FixtureRequest) -> TruthTable:
    return TruthTable.read(request.param)


def shares(tally: Tally) -> tuple[float, float]:
    """Agreement and false verdicts, of the decisions that the grid makes too."""
    decided = tally.agree + tally.false
    return tally.agree / decided, tally.false / decided


def test_the_table_is_the_whole_grid_with_every_seed(table: TruthTable) -> None:
    assert len(table.rows) == math.prod(len(settings) for settings in table.switches.values()) >= 64
    assert all(len(row.losses) == table.seeds >= 10 for row in table.rows.values())


def test_leave_one_out_with_growing_seeds_agrees_with_the_grid_at_a_fifteenth_of_its_cost(table: TruthTable) -> None:
    tally = leave_one_out(table, SeedsSpec(start=3, max=table.seeds), "", [ORDER])
    agree, false = shares(tally)
    assert statistics.fmean(tally.saved) >= 15
    assert agree >= 0.95
    assert false <= 0.05
    assert tally.silent / tally.reference <= 0.1


def test_verdicts_hold_on_seeds_that_were_not_seen(table: TruthTable) -> None:
    _, false = shares(leave_one_out(table, 5, "", [ORDER], truth=other_seeds))
    assert false <= 0.05


@pytest.mark.parametrize(("resolution", "least"), [("IV", 0.9), ("V", 0.95)])
def test_main_effects_of_fractions_are_those_of_the_grid(table: TruthTable, resolution: str, least: float) -> None:
    """Resolution IV aliases main effects with interactions of three switches, V with those of four."""
    agree, false = shares(fractional(table, resolution, 2, [ORDER]))
    assert agree >= least
    assert false <= 1 - least
