"""The driver when trials are trained in packs: each member is a trial of its own, and what breaks is split."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from engine_samples import ENVIRONMENT, Log, ScriptedEngine, finish, measured, planner

from ablate.execution.driver import StudyResult, run_study
from ablate.execution.engine import Observer
from ablate.execution.protocol import Broken, Done, Happened, Job, JobMember, JobRestarted, Message
from ablate.planning.packing import Packing, ResumablePack
from ablate.planning.planner import make_plan
from ablate.roles import TIMING_SEEDS
from ablate.spec.variant import VariantSpec
from ablate.store import Store
from ablate.store.records import TrialState
from ablate.training.events import Diverged, TrialWarning

pytestmark = pytest.mark.usefixtures("folder")

RATES = {
    "switches": {"rate": {f"r{i}": {"training.optimizer.lr": 10.0**-i} for i in (1, 2, 3, 4)}},
    "design": {"kind": "leave_one_out", "seeds": 2},
}
"""Eight trials of one structure."""

Run = Callable[..., StudyResult]


@pytest.fixture
def run(folder: Path, store: Store) -> Run:
    def run(
        engine: ScriptedEngine, most: int | None = 4, observer: Observer | None = None, **changes: Any
    ) -> StudyResult:
        made = planner(folder, **{**RATES, **changes})
        return run_study(made, store, engine, ENVIRONMENT, observer or Observer(), Packing(most))

    return run


def sizes(engine: ScriptedEngine) -> list[int]:
    return [len(job.members) for job in engine.jobs]


def test_trials_of_one_structure_are_one_job_and_stored_one_by_one(run: Run, store: Store) -> None:
    engine = ScriptedEngine(size=1)
    result = run(engine)
    assert (result.trials, result.trained) == (8, 8)
    assert sizes(engine) == [4, 4]
    for planned in store.study("sample").planned:
        trial = store.trials([planned.key])[planned.key]
        assert trial.state is TrialState.FINISHED
        assert trial.metrics == {"val_loss": pytest.approx(1.0 + 0.1 * planned.seed)}
        losses = [point.val_loss for point in store.curves([planned.key])[planned.key]]
        assert losses == pytest.approx([loss + 0.1 * planned.seed for loss in (3.0, 2.0, 1.0)])
    trained = [
        (VariantSpec.model_validate_json(m.variant).content_hash(), m.seed) for j in engine.jobs for m in j.members
    ]
    assert len(set(trained)) == 8


def test_every_worker_has_something_to_do_before_packs_grow(run: Run) -> None:
    engine = ScriptedEngine(size=3)
    run(engine, most=8)
    assert sizes(engine)[:3] == [3, 3, 2]


def test_other_structures_are_other_jobs(run: Run) -> None:
    switches = {"norm": {"usual": {}, "none": {"block.norm": "none"}}, **RATES["switches"]}
    engine = ScriptedEngine(size=1)
    run(engine, most=64, switches=switches)
    assert sizes(engine) == [8, 2]


def test_a_member_that_diverges_is_stored_at_once_and_no_longer_tracked(run: Run, store: Store) -> None:
    def diverge_one(job: Job, attempt: int) -> Sequence[Message]:
        events = [measured(0, 3, 3, 3, 3), Diverged(1, 1, float("inf")), measured(2, 2, float("nan"), 2, 2)]
        return [*(Happened(job.number, event) for event in events), Done(job.number)]

    log = Log()
    result = run(ScriptedEngine(diverge_one, size=1), observer=log)
    assert (result.trained, result.diverged) == (6, 2)
    assert [what for what, *_ in log.told if what != "started"] == ["diverged", *["finished"] * 3] * 2
    gone = [outcome for outcome in log.outcomes if outcome.state is TrialState.DIVERGED]
    assert all([point.step for point in store.curves([end.key])[end.key]] == [0] for end in gone)


@pytest.mark.parametrize(
    ("deaths", "broken"),
    [(0, ("OutOfMemoryError: CUDA out of memory.", "Traceback ...")), (3, ("its worker died", "", ""))],
    ids=["out of memory", "workers died again and again"],
)
def test_a_pack_that_does_not_fit_is_split_and_the_study_continues(
    deaths: int, broken: tuple[str, ...], run: Run, store: Store
) -> None:
    def two_fit(job: Job, attempt: int) -> Sequence[Message]:
        if len(job.members) <= 2:
            return finish(job, attempt)
        begun = Happened(job.number, measured(0, *[3.0] * len(job.members)))
        died = [JobRestarted(job.number, "its worker was killed because its node ran out of memory")] * deaths
        return [begun, *died, Broken(job.number, *broken)]

    engine, log = ScriptedEngine(two_fit, size=1), Log()
    result = run(engine, most=8, observer=log)
    assert (result.trained, result.failed) == (8, 0)
    assert sizes(engine) == [8, 4, 2, 2, 2, 2], "what was learnt of the structure is kept"
    assert [size for what, _, size in log.told if what == "split"] == [8, 4]
    keys = [planned.key for planned in store.study("sample").planned]
    assert all([p.step for p in curve] == [0, 1, 2] for curve in store.curves(keys).values()), "begun curves are gone"


def test_a_pack_whose_worker_was_killed_continues_as_the_pack_it_was(run: Run, store: Store) -> None:
    def killed_once(job: Job, attempt: int) -> Sequence[Message]:
        if job.number != 1:
            return finish(job, attempt)
        events = [measured(0, 3, 3, 3, 3), Diverged(1, 1, float("inf")), measured(1, 2, float("nan"), 2, 2)]
        killed = Broken(job.number, "its worker was killed by SIGKILL", "", "")
        return [*(Happened(job.number, event) for event in events), killed]

    engine = ScriptedEngine(killed_once, size=1)
    result = run(engine)
    assert (result.trained, result.diverged, result.failed) == (7, 1, 0)
    assert sizes(engine) == [4, 4, 4]
    assert engine.jobs[1].members == replace_weights(engine.jobs[0].members, engine.jobs[1].members)
    assert engine.stopped == [], "who diverged is there again, and leaves where it left before"
    records = store.trials([planned.key for planned in store.study("sample").planned]).values()
    assert {record.reason for record in records if record.state is TrialState.FINISHED} == {""}


def replace_weights(members: Sequence[JobMember], other: Sequence[JobMember]) -> tuple[JobMember, ...]:
    """The members with the files of weights of others; completed members have none."""
    return tuple(replace(member, weights=two.weights) for member, two in zip(members, other, strict=True))


def test_a_trial_separated_from_its_pack_says_so(run: Run, store: Store) -> None:
    def two_survive(job: Job, attempt: int) -> Sequence[Message]:
        if len(job.members) <= 2:
            return finish(job, attempt)
        return [Broken(job.number, "its worker was killed by SIGKILL", "", "")]

    engine = ScriptedEngine(two_survive, size=1)
    assert run(engine, most=4).trained == 8
    assert sizes(engine) == [4, 4, 2, 2, 2, 2]
    reasons = [store.trials([planned.key])[planned.key].reason for planned in store.study("sample").planned]
    assert reasons[:4] == ["its pack of 4 trials was split: its worker was killed by SIGKILL"] * 4
    assert reasons[4:] == [""] * 4, "these never began in a larger one"


def test_a_member_at_fault_fails_alone(run: Run) -> None:
    def seed_one_of_r2_is_bad(job: Job, attempt: int) -> Sequence[Message]:
        if any(m.seed == 1 and '"lr":0.01' in m.variant for m in job.members):
            return [Broken(job.number, "ValueError: no", "Traceback ...")]
        return finish(job, attempt)

    engine, log = ScriptedEngine(seed_one_of_r2_is_bad, size=1), Log()
    result = run(engine, most=8, observer=log)
    assert (result.trained, result.failed) == (7, 1)
    (failed,) = [outcome for outcome in log.outcomes if outcome.state is TrialState.FAILED]
    assert (failed.seed, failed.reason) == (1, "ValueError: no\nTraceback ...")
    innocent = [outcome.reason for outcome in log.outcomes if outcome.state is TrialState.FINISHED]
    assert len(innocent) == 7
    assert not any("ValueError" in reason for reason in innocent)
    assert not any(what == "lost" for what, *_ in log.told), "nobody lost a worker"


def test_a_member_that_kills_its_workers_fails_alone_after_a_second_try(run: Run) -> None:
    def seed_one_of_r2_kills(job: Job, attempt: int) -> Sequence[Message]:
        if any(m.seed == 1 and '"lr":0.01' in m.variant for m in job.members):
            return [Broken(job.number, "its worker was killed by SIGKILL", "", "log")]
        return finish(job, attempt)

    engine = ScriptedEngine(seed_one_of_r2_kills, size=1)
    result = run(engine, most=2)
    assert (result.trained, result.failed) == (7, 1)
    bad = [job for job in engine.jobs if any(m.seed == 1 and '"lr":0.01' in m.variant for m in job.members)]
    assert [len(job.members) for job in bad] == [2, 2, 1, 1]


def test_a_pack_of_which_one_is_left_when_it_breaks_counts_as_a_pack(run: Run) -> None:
    def last_one_breaks(job: Job, attempt: int) -> Sequence[Message]:
        if len(job.members) == 1:
            return finish(job, attempt)
        gone = [Happened(job.number, Diverged(i, 1, float("nan"))) for i in range(len(job.members) - 1)]
        return [*gone, Broken(job.number, "OutOfMemoryError: CUDA out of memory.", "Traceback ...")]

    result = run(ScriptedEngine(last_one_breaks, size=1), most=2)
    assert result.failed == 0
    assert result.trained + result.diverged == 8


def test_an_interrupt_forgets_every_member(run: Run, store: Store) -> None:
    def lose_the_engine(job: Job, attempt: int) -> Sequence[Message]:
        raise RuntimeError("gone")

    with pytest.raises(RuntimeError, match="gone"):
        run(ScriptedEngine(lose_the_engine, size=1))
    assert store.trials([planned.key for planned in store.study("sample").planned]) == {}


def test_a_warning_is_passed_on(run: Run) -> None:
    class Said(Observer):
        lines: list[str] = []  # noqa: RUF012

        def say(self, line: str) -> None:
            self.lines.append(line)

    script = lambda job, attempt: [Happened(job.number, TrialWarning("slow")), *finish(job, attempt)]  # noqa: E731
    run(ScriptedEngine(script, size=1), observer=Said())
    assert Said.lines == ["slow"] * 2


def test_completed_members_leave_a_pack_that_continues(run: Run, store: Store, folder: Path) -> None:
    class Resuming(ScriptedEngine):
        def resumable_packs(self) -> list[ResumablePack]:
            return [ResumablePack(tuple(reversed(keys)), frozenset(keys))]

    keys = [trial.key for trial in make_plan(planner(folder, **RATES)).trials]
    run(ScriptedEngine(size=1), switches={"rate": {name: RATES["switches"]["rate"][name] for name in ("r1", "r2")}})
    over = {key for key, record in store.trials(keys).items() if record.state is TrialState.FINISHED}
    assert len(over) == 4
    engine = Resuming(size=1)
    result = run(engine, most=2)
    assert (result.trained, result.reused) == (8 - len(over), len(over))
    assert [member.key for member in engine.jobs[0].members] == list(reversed(keys))
    assert {engine.jobs[0].members[member].key for _, member in engine.stopped} == over
    assert sizes(engine) == [8]


def test_a_job_that_ends_early_does_not_end_its_trials(run: Run, store: Store) -> None:
    def end_early(job: Job, attempt: int) -> Sequence[Message]:
        return finish(job, attempt) if len(job.members) == 1 else [*finish(job, attempt)[:2], Done(job.number)]

    result = run(ScriptedEngine(end_early, size=1), most=2)
    assert (result.trained, result.failed) == (8, 0)
    curves = store.curves([planned.key for planned in store.study("sample").planned]).values()
    assert {curve[-1].step for curve in curves} == {2}


def test_timing_trials_are_trained_alone(run: Run, store: Store) -> None:
    """Its share of the seconds of a pack would depend on what else is in the pack."""
    engine = ScriptedEngine(size=1)
    run(engine, match="seconds")
    timing = [job for job in engine.jobs if job.members[0].seed in TIMING_SEEDS]
    assert [len(job.members) for job in timing] == [1] * 12
    assert max(sizes(engine)) == 4
