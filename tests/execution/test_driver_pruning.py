"""Pruning through the driver and the store: what is pruned, what a resumed study and another study make of it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from engine_samples import ENVIRONMENT, Log, Rounds, ScriptedEngine, measured, planner

from ablate.analysis.study import read_study
from ablate.designs.base import BASELINE, Point, Proposal
from ablate.execution.driver import StudyResult, run_study
from ablate.execution.protocol import Done, Happened, Job, Message
from ablate.planning.packing import Packing
from ablate.planning.planner import Planner
from ablate.spec.variant import VariantSpec
from ablate.store import Store, open_store
from ablate.store.records import TrialState

pytestmark = pytest.mark.usefixtures("folder")

STEPS = 10
SEARCH = {
    "kind": "search",
    "sampler": "random",
    "seeds": 1,
    "points": 17,
    "batch": 8,
    "confirm": 0,
    "ranges": {"training.optimizer.lr": {"low": 1e-4, "high": 1e-2}},
}
PRUNING = {"kind": "median", "finished": 3}


def curves(job: Job, attempt: int) -> Sequence[Message]:
    """Each trial falls the faster the higher its rate is; all points come, also those after a stop. Trainers need not
    validate at each point: here at all but the first after the start.
    """
    rates = [VariantSpec.model_validate_json(member.variant).training.optimizer.lr for member in job.members]
    points = [measured(step, *(3.0 - step * rate * 20 for rate in rates)) for step in range(STEPS + 1)]
    points[1] = replace(points[1], metrics={})
    return [*(Happened(job.number, point) for point in points), Done(job.number)]


def run(
    store: Store,
    folder: Path,
    pruning: Any = PRUNING,
    name: str = "sample",
    most: int = 1,
    log: Log | None = None,
    size: int = 2,
    jobs: int = 100,
) -> tuple[StudyResult, ScriptedEngine]:
    """Run the study on so many workers; interrupted when it has started `jobs` jobs."""
    made = planner(
        folder,
        name=name,
        training={"steps": STEPS, "batch_size": 2, "optimizer": {"lr": 1e-4}},
        design={**SEARCH, **({"pruning": pruning} if pruning else {})},
    )

    def script(job: Job, attempt: int) -> Sequence[Message]:
        if len(engine.jobs) > jobs:
            raise KeyboardInterrupt
        return curves(job, attempt)

    engine = ScriptedEngine(script, size=size)
    return run_study(made, store, engine, ENVIRONMENT, log or Log(), Packing(most)), engine


def by_state(store: Store, name: str = "sample") -> dict[TrialState, set[str]]:
    records = store.trials([planned.key for planned in store.study(name).planned])
    return {state: {key for key, record in records.items() if record.state is state} for state in TrialState}


@pytest.mark.parametrize("most", [1, 4])
def test_pruned_trials_are_stored_as_pruned_with_their_curves(store: Store, folder: Path, most: int) -> None:
    log = Log()
    result, engine = run(store, folder, most=most, log=log)
    found = by_state(store)
    assert result.trials == 17 == result.trained + result.pruned
    assert len(found[TrialState.PRUNED]) == result.pruned == len(engine.stopped) > 2
    for outcome in (each for each in log.outcomes if each.state is TrialState.PRUNED):
        assert outcome.metrics == {}
        assert outcome.reason == f"its design ended it at step {outcome.stopped_at}"
        steps = [point.step for point in store.curves([outcome.key])[outcome.key]]
        assert steps == list(range(outcome.stopped_at + 1))
        assert outcome.steps == outcome.stopped_at < STEPS
    (summary,) = store.studies()
    assert (summary.finished, summary.pruned) == (result.trained, result.pruned)


@pytest.mark.parametrize("jobs", [5, 12])
def test_a_study_that_was_interrupted_prunes_what_the_whole_one_does(store: Store, folder: Path, jobs: int) -> None:
    """The design is told the stored curves: a median of the new trials alone would prune others."""
    whole, _ = run(store, folder, size=1)
    expected = by_state(store)
    with open_store(folder / "resumed.db") as resumed:
        with pytest.raises(KeyboardInterrupt):
            run(resumed, folder, size=1, jobs=jobs)
        _, engine = run(resumed, folder, size=1)
        assert 0 < len(engine.jobs) < 17
        assert by_state(resumed) == expected
    assert whole.pruned > 2


class Opinions(Rounds):
    """Points of these names ask for one trial; `wishes` says from which step on each would end it, None for never."""

    def __init__(self, wishes: dict[str, int | None]) -> None:
        settings = {"values": "dense", "norm": "usual"}
        super().__init__([[Proposal(Point(name, settings), 0) for name in wishes]])
        self.wishes, self.heard = wishes, {name: list[float]() for name in wishes}

    @property
    def prunes(self) -> bool:
        return True

    def watch(self, point: Point, seed: int, reached: float, loss: float) -> bool:
        self.heard[point.name].append(reached)
        wish = self.wishes[point.name]
        return wish is not None and reached * STEPS >= wish


@pytest.mark.parametrize("wishes", [*itertools.product((None, 3, STEPS), repeat=2), (3, 5)])
def test_a_trial_ends_once_all_that_asked_for_it_agree_and_not_at_its_last_step(
    store: Store, folder: Path, monkeypatch: pytest.MonkeyPatch, wishes: tuple[int | None, int | None]
) -> None:
    designs: list[Opinions] = []
    names = dict(zip((BASELINE, "same"), wishes, strict=True))
    monkeypatch.setattr(Planner, "design", lambda planner: designs.append(Opinions(names)) or designs[-1])
    result, engine = run(store, folder, pruning=None)
    agreed = None if None in wishes else max(wish or 0 for wish in wishes)
    ends = agreed is not None and agreed < STEPS
    assert len(engine.jobs) == 1
    (record,) = store.trials([planned.key for planned in store.study("sample").planned]).values()
    assert (record.state is TrialState.PRUNED, len(engine.stopped), result.pruned) == (ends, ends, ends)
    assert record.stopped_at == (agreed if ends else None)
    reached = [step / STEPS for step in range((agreed or 0) + 1 if ends else STEPS + 1) if step != 1]
    assert designs[-1].heard == dict.fromkeys(names, reached), "each hears of every loss, whatever another wishes"
    again, engine = run(store, folder, pruning=None)
    assert (engine.jobs, again.pruned, again.reused) == ([], ends, not ends)
    assert designs[-1].heard == dict.fromkeys(names, reached), "from the store as from the trial"


def test_without_pruning_it_is_trained_to_its_end(store: Store, folder: Path) -> None:
    first, _ = run(store, folder)
    pruned = by_state(store)[TrialState.PRUNED]
    other, engine = run(store, folder, pruning=None, name="other")
    assert (other.trained, other.reused, other.pruned) == (first.pruned, first.trained, 0)
    assert by_state(store, "other")[TrialState.FINISHED] >= pruned
    back, engine = run(store, folder)
    assert engine.jobs == []
    assert (back.reused, back.pruned) == (17, 0), "a whole trial is worth more than a pruned one"


def test_another_study_that_prunes_decides_for_itself(store: Store, folder: Path) -> None:
    first, _ = run(store, folder)
    other, engine = run(store, folder, name="other")
    assert len(engine.jobs) == first.pruned
    assert other.reused == first.trained


def test_the_design_of_a_study_may_stop_pruning(store: Store, folder: Path) -> None:
    first, _ = run(store, folder)
    whole, engine = run(store, folder, pruning=None)
    assert len(engine.jobs) == first.pruned
    assert (whole.trained, whole.pruned) == (first.pruned, 0)


def test_pruned_trials_have_no_mean_and_no_verdict(store: Store, folder: Path) -> None:
    run(store, folder)
    report = read_study(store, "sample")
    pruned = [row for row in report.variants if row.pruned]
    assert len(pruned) == report.progress.states[TrialState.PRUNED] > 2
    assert all(row.metrics == {} and row.verdict is None and row.difference is None for row in pruned)
    assert all(row.finished == () for row in pruned)
    others = [row for row in report.variants if not row.pruned]
    assert all(row.metrics for row in others)
