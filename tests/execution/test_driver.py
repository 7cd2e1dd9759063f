"""The driver between a design, an engine and a store; the engine follows a script and trains nothing."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, replace
from datetime import UTC, datetime
from inspect import signature
from pathlib import Path
from typing import cast

import postgres
import pytest
from engine_samples import (
    ENVIRONMENT,
    SPACE,
    Log,
    Rounds,
    Script,
    ScriptedEngine,
    diverge,
    finish,
    lose_worker,
    measured,
    planner,
    raise_,
)

from ablate.analysis.runs import read_runs
from ablate.designs.base import BASELINE, Point, Proposal
from ablate.errors import EngineError, PluginError, SpaceError, StoreError, StudyBusyError
from ablate.execution.attempt import Attempt, Dialogue
from ablate.execution.driver import Limits, StudyResult, run_study
from ablate.execution.engine import Observer, ObserverGroup
from ablate.execution.ledger import Ledger
from ablate.execution.protocol import Began, Done, Happened, Job, JobRestarted, Message, StateReplaced
from ablate.planning.plan import Trial
from ablate.planning.planner import Planner, make_plan
from ablate.spec.variant import VariantSpec
from ablate.store import Store, open_store
from ablate.store.records import TrialOutcome, TrialState, WorkerRecord
from ablate.tasks.language_model import LanguageModel, LanguageModelSpec
from ablate.training.events import Measurement

pytestmark = pytest.mark.usefixtures("folder")

Run = Callable[..., StudyResult]
UseRounds = Callable[[list[list[Proposal]]], list[Rounds]]


@pytest.fixture(params=["sqlite", "postgres"])
def location(request: pytest.FixtureRequest, folder: Path) -> Iterator[str]:
    """Where several drivers keep one store."""
    if request.param == "sqlite":
        yield str(folder / "shared.db")
        return
    with postgres.schema(request.getfixturevalue("postgres_server")) as inside:
        yield inside


@pytest.fixture
def run(folder: Path, store: Store) -> Run:
    def run(
        script: Script | ScriptedEngine = finish, observer: Observer | None = None, made: Planner | None = None
    ) -> StudyResult:
        engine = script if isinstance(script, ScriptedEngine) else ScriptedEngine(script)
        begin = time.monotonic()
        result = run_study(made or planner(folder), store, engine, ENVIRONMENT, observer or Observer())
        assert 0 < result.seconds <= time.monotonic() - begin
        return result

    return run


def counts(result: StudyResult) -> dict[str, object]:
    return {key: value for key, value in asdict(result).items() if value and key not in {"study", "seconds"}}


def states(store: Store) -> list[TrialState]:
    keys = [planned.key for planned in store.study("sample").planned]
    return [record.state for record in store.trials(keys).values()]


def for_variant(name: str, script: Script, folder: Path) -> Script:
    """A script for one variant; the others finish."""
    wanted = planner(folder).space.resolve(dict([name.split("=")])).content_hash()

    def choose(job: Job, attempt: int) -> Sequence[Message]:
        chosen = script if VariantSpec.model_validate_json(job.members[0].variant).content_hash() == wanted else finish
        return chosen(job, attempt)

    return choose


def test_trials_are_trained_seed_by_seed_and_stored_with_their_curves(run: Run, store: Store) -> None:
    log, engine = Log(), ScriptedEngine()
    assert counts(run(engine, log)) == {"trials": 6, "trained": 6}
    assert {member.folders for job in engine.jobs for member in job.members} == {None}, (
        "only trainers of users have them"
    )
    order = [(name, seed) for what, name, seed in log.told if what == "started"]
    names = [BASELINE, "values=identity", "norm=none"]
    assert order == [(name, seed) for seed in (0, 1) for name in names]
    study = store.study("sample")
    assert [(planned.variant, planned.seed) for planned in study.planned] == order
    assert [variant.name for variant in study.variants] == names
    for planned in study.planned:
        trial = store.trials([planned.key])[planned.key]
        assert trial.state is TrialState.FINISHED
        assert trial.metrics == {"val_loss": pytest.approx(1.0 + 0.1 * planned.seed)}
        assert (trial.steps, trial.tokens, trial.flops, trial.seconds) == (2, 32, 200.0, 0.2)
        assert [point.step for point in store.curves([planned.key])[planned.key]] == [0, 1, 2]


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(299, ""), (300, "5 minutes"), (5400, "90 minutes"), (5460, "1.5 hours"), (36_000, "10.0 hours")],
)
def test_a_long_trial_is_announced_before_it_begins(
    seconds: int, told: str, run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flops = max(trial.variant.flops for trial in make_plan(planner(folder)).trials)
    monkeypatch.setattr("ablate.execution.study_run._LONG_FLOP", flops)
    monkeypatch.setattr(ScriptedEngine, "speed", lambda _: flops / seconds)
    said: list[str] = []
    log = Log()
    monkeypatch.setattr(log, "say", said.append)
    run(observer=log)
    announced = [line for line in said if line.startswith("a trial takes up to about ")]
    assert len(announced) == bool(told)
    assert all(told in line for line in announced)
    run(observer=log)
    assert len([line for line in said if line.startswith("a trial takes")]) == len(announced), "nothing is left"


def test_a_trial_that_raises_is_tried_again_only_in_the_next_run(run: Run, store: Store, folder: Path) -> None:
    engine = ScriptedEngine(for_variant("norm=none", raise_, folder))
    log = Log()
    assert counts(run(engine, log)) == {"trials": 6, "trained": 4, "failed": 2}
    assert len(engine.jobs) == 6
    failed = [outcome for outcome in log.outcomes if outcome.state is TrialState.FAILED]
    assert [(one.reason, one.steps) for one in failed] == [("ValueError: no\nTraceback ...\nValueError: no", 0)] * 2
    assert states(store).count(TrialState.FAILED) == 2
    assert counts(run()) == {"trials": 6, "trained": 2, "reused": 4}


@pytest.mark.parametrize(
    ("script", "reasons"),
    [
        (lambda job, attempt: (lose_worker if attempt == 1 else finish)(job, attempt), set()),
        (lose_worker, {"its worker was killed by SIGKILL\nlog"}),
        (lambda job, attempt: [*finish(job, attempt)[:2], Done(job.number)], {"its job ended before it did"}),
    ],
    ids=["once", "its worker twice", "its job twice"],
)
def test_a_trial_that_loses_its_worker_or_its_job_gets_a_second_and_no_third(
    script: Script, reasons: set[str], run: Run, folder: Path
) -> None:
    engine, log = ScriptedEngine(for_variant("norm=none", script, folder)), Log()
    assert counts(run(engine, log)) == {"trials": 6, **({"trained": 4, "failed": 2} if reasons else {"trained": 6})}
    assert len(engine.jobs) == 8
    assert {one.reason for one in log.outcomes if one.reason} == reasons
    assert reasons or [name for what, name, _ in log.told if what == "lost"] == ["norm=none"] * 2


def test_a_diverged_trial_is_settled(run: Run, store: Store, folder: Path) -> None:
    log = Log()
    assert counts(run(for_variant("norm=none", diverge, folder), log)) == {"trials": 6, "trained": 4, "diverged": 2}
    diverged = [outcome for outcome in log.outcomes if outcome.state is TrialState.DIVERGED]
    assert [(outcome.stopped_at, outcome.metrics) for outcome in diverged] == [(1, {})] * 2
    assert diverged[0].reason == "the loss was inf at step 1"
    assert [point.val_loss for point in store.curves([diverged[0].key])[diverged[0].key]] == [3.0, None]
    engine = ScriptedEngine()
    assert counts(run(engine)) == {"trials": 6, "reused": 4, "diverged": 2}
    assert engine.jobs == []


def test_a_task_that_does_not_give_the_metric_it_names_ends_the_study_at_once(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LanguageModelSpec, "metric_names", frozenset({"val_los"}))  # as a user's own task might
    objective = {"metric": "val_los", "direction": "minimize", "margin": 0.1}
    engine = ScriptedEngine()
    with pytest.raises(SpaceError, match="expected one of val_loss"):
        run(engine, made=planner(folder, objective=objective))
    assert len(engine.jobs) <= engine.size


@pytest.mark.parametrize(
    ("limits", "ended"),
    [
        (Limits(), 6),
        (Limits(trials=1), 1),
        (Limits(trials=3), 3),
        (Limits(trials=6), 6),
        (Limits(seconds=0.0), 1),
        (Limits(seconds=1e9), 6),
    ],
)
def test_a_run_stops_at_its_limits_and_the_next_goes_on(
    limits: Limits, ended: int, folder: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    completed: list[object] = []
    monkeypatch.setattr(ScriptedEngine, "complete", lambda self: completed.append(self))

    def run(limits: Limits = Limits()) -> dict[str, object]:  # noqa: B008 - frozen
        engine = ScriptedEngine(size=1)
        return counts(run_study(planner(folder), store, engine, ENVIRONMENT, Observer(), limits=limits))

    whole = {"trials": 6, "trained": ended}
    assert run(limits) == (whole if ended == 6 else {**whole, "interrupted": True})
    assert len(completed) == (ended == 6), "what only a continuation reads stays until there is none"
    rest = {"trained": 6 - ended} if ended < 6 else {}
    assert run() == {"trials": 6, "reused": ended, **rest}
    assert completed


def test_what_a_continuation_reads_stays_while_a_trial_has_failed(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    completed: list[object] = []
    monkeypatch.setattr(ScriptedEngine, "complete", lambda self: completed.append(self))
    run(for_variant("norm=none", raise_, folder))
    assert completed == []


def only_at_the_end(number: int, **metrics: float) -> list[Message]:
    values = {name: [value] for name, value in metrics.items()}
    return [Happened(number, Measurement(2, 0.2, 32, 200.0, [2.5], values)), Done(number)]


def test_a_trial_that_ends_without_the_objective_fails_unless_none_has_it(run: Run, folder: Path) -> None:
    objective = {"metric": "val_perplexity", "direction": "minimize", "margin": 0.1}

    def one_has_it(job: Job, attempt: int) -> Sequence[Message]:
        more = (
            {"val_perplexity": 3.0} if job.number == 1 else {"val_perplexity": float("inf")} if job.number == 2 else {}
        )
        return only_at_the_end(job.number, val_loss=2.0, **more)

    log = Log()
    made = planner(folder, objective=objective)
    found = counts(run(ScriptedEngine(one_has_it, size=1), log, made))
    assert found == {"trials": 6, "trained": 1, "failed": 4, "diverged": 1}
    failed = {one.reason for one in log.outcomes if one.state is TrialState.FAILED}
    assert failed == {"it ended without a finite `val_perplexity`; it measured val_loss"}
    other = planner(folder, name="other", objective=objective, training={**SPACE["training"], "steps": 3})
    for heard in (slice(2, None), slice(1)):  # the end alone, and the first point alone, which is enough
        with pytest.raises(SpaceError, match="does not measure this; expected one of val_loss; got 'val_perplexity'"):
            run(lambda job, attempt, heard=heard: [*finish(job, attempt)][heard], made=other)


def test_a_member_that_continues_from_another_state_sends_its_curve_again(run: Run, store: Store) -> None:
    history = ((0, {"lr": 0.5}), (1, {"lr": 0.25}))

    def replaced(job: Job, attempt: int) -> Sequence[Message]:
        before = [Happened(job.number, measured(step, 9.0)) for step in (0, 1)]
        return [*before, StateReplaced(job.number, history), *finish(job, attempt)]

    run(replaced)
    for planned in store.study("sample").planned:
        curve = store.curves([planned.key])[planned.key]
        assert [(point.step, point.val_loss != 9.0) for point in curve] == [(0, True), (1, True), (2, True)]
        values = [one.values["values"] for one in store.recordings(planned.key)]
        assert values == [{"lr": 0.5}, {"lr": 0.5}, {"lr": 0.25}]


def test_a_group_of_observers_tells_each_what_happens_and_prints_once() -> None:
    told: list[tuple[int, str, tuple[object, ...]]] = []
    happenings = [name for name, value in vars(Observer).items() if callable(value) and not name.startswith("_")]

    def remembering(number: int) -> Observer:
        listens = {name: lambda self, *given, n=name: told.append((number, n, given)) for name in happenings}
        return cast(Observer, type("Remembering", (Observer,), listens)())

    group = ObserverGroup(remembering(0), remembering(1))
    for name in happenings:
        given = tuple(range(len(signature(getattr(Observer, name)).parameters) - 1))
        getattr(group, name)(*given)
        assert told == [(number, name, given) for number in ((0,) if name == "say" else (0, 1))]
        told.clear()


def point(name: str, **settings: str) -> Point:
    return Point(name, {"values": "dense", "norm": "usual", **settings})


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> UseRounds:
    """Make every planner's design one of these rounds; returns the designs as they are made."""

    def use(script: list[list[Proposal]]) -> list[Rounds]:
        made: list[Rounds] = []
        monkeypatch.setattr(Planner, "design", lambda self: made.append(Rounds(script)) or made[-1])
        return made

    return use


class Grown(Observer):
    """Remembers by how many trials a plan has grown, and how many of them the store had."""

    def __init__(self) -> None:
        self.by: list[tuple[int, int]] = []

    def extended(self, trials: Collection[Trial], settled: Collection[str]) -> None:
        self.by.append((len(trials), len(settled)))


def test_a_design_may_wait_for_results_and_gets_each_once(run: Run, store: Store, rounds: UseRounds) -> None:
    base, other = point(BASELINE), point("x", values="identity")
    script = [[Proposal(base, 0)], [Proposal(other, 0), Proposal(base, 1)], [Proposal(other, 1)]]
    made = rounds(script)
    engine, grown = ScriptedEngine(), Grown()
    assert counts(run(engine, grown)) == {"trials": 4, "trained": 4}
    assert grown.by == [(2, 0), (1, 0)]
    heard = [(trial.variant.name, trial.seed) for trial in (*engine.admitted.trials, *engine.expected)]
    assert heard == [(BASELINE, 0), ("x", 0), (BASELINE, 1), ("x", 1)], "the engine may have to make room"
    assert made[-1].values == [(BASELINE, 0, 1.0), ("x", 0, 1.0), (BASELINE, 1, 1.1), ("x", 1, 1.1)]
    assert [(planned.variant, planned.seed) for planned in store.study("sample").planned] == [
        (BASELINE, 0),
        ("x", 0),
        (BASELINE, 1),
        ("x", 1),
    ]
    # Resumed, a fresh design hears the same from the store alone.
    first = made[-1]
    engine, grown = ScriptedEngine(), Grown()
    assert counts(run(engine, grown)) == {"trials": 4, "reused": 4}
    assert grown.by == [(2, 2), (1, 1)]
    assert made[-1] is not first
    assert made[-1].values == first.values
    assert engine.jobs == []


def test_points_that_are_one_variant_are_trained_once_and_reported_for_each(run: Run, rounds: UseRounds) -> None:
    one, same, again = point(BASELINE), point("same"), point("again")
    made = rounds([[Proposal(one, 0), Proposal(same, 0)], [Proposal(again, 0)]])
    engine = ScriptedEngine()
    assert counts(run(engine)) == {"trials": 1, "trained": 1}
    assert len(engine.jobs) == 1
    assert made[-1].values == [(BASELINE, 0, 1.0), ("same", 0, 1.0), ("again", 0, 1.0)]


def test_a_failed_trial_is_not_asked_for_again_by_an_alias(run: Run, rounds: UseRounds) -> None:
    made = rounds([[Proposal(point(BASELINE), 0)], [Proposal(point("same"), 0)]])
    engine = ScriptedEngine(raise_)
    assert counts(run(engine)) == {"trials": 1, "failed": 1}
    assert len(engine.jobs) == 1
    assert made[-1].values == [(BASELINE, 0, None), ("same", 0, None)]


def test_points_that_make_no_model_are_reported_once(run: Run, folder: Path, rounds: UseRounds) -> None:
    switches = {
        "values": {"dense": {}, "identity": {"block.mixer.value": "identity"}},
        "norm": {"usual": {}, "none": {"block.mixer.matmul_order": "kv_first"}},
    }
    bad = point("bad", norm="none")
    made = rounds([[Proposal(point(BASELINE), 0), Proposal(bad, 0)], [Proposal(bad, 1)], [Proposal(point("x"), 1)]])
    assert counts(run(made=planner(folder, switches=switches))) == {"trials": 2, "trained": 2}
    assert made[-1].values == [("bad", 0, None), (BASELINE, 0, 1.0), ("bad", 1, None), ("x", 1, 1.1)]


def outcome_of(trial: Trial) -> TrialOutcome:
    attempt = Attempt(trial, 1, 0, 1, datetime.now(UTC))
    attempt.add(measured(2, 1.0 + 0.1 * trial.seed))
    return attempt.outcome()


def test_a_trial_that_another_study_finishes_meanwhile_is_taken_as_it_is(run: Run, store: Store, folder: Path) -> None:
    first, *others = make_plan(planner(folder)).trials

    def another_study_is_quicker(job: Job, attempt: int) -> Sequence[Message]:
        with store.lease("other") as lease:
            ledger = Ledger(store, lease, ENVIRONMENT)
            assert not ledger.mark_running(first, 1), "it is being trained here"
            for trial in others:
                assert ledger.mark_running(trial, 1)
                ledger.end(outcome_of(trial), None)
        return finish(job, attempt)

    engine = ScriptedEngine(another_study_is_quicker, size=1)
    log = Log()
    assert counts(run(engine, log)) == {"trials": 6, "trained": 1, "reused": 5}
    assert len(engine.jobs) == 1
    assert [what for what, _, _ in log.told] == ["started", "finished", *["reused"] * 5]


@pytest.mark.parametrize("ends", [True, False])
def test_a_trial_that_another_study_trains_is_waited_for_while_others_train(
    run: Run, store: Store, folder: Path, monkeypatch: pytest.MonkeyPatch, ends: bool
) -> None:
    monkeypatch.setattr("ablate.execution.study_run._LOOK_SECONDS", -1.0)
    first, *others = make_plan(planner(folder)).trials
    jobs: list[Job] = []
    with ExitStack() as stack:
        lease = stack.enter_context(store.lease("other"))
        ledger = Ledger(store, lease, ENVIRONMENT)
        ledger.begin(make_plan(planner(folder, name="other")), {})
        assert ledger.mark_running(first, 1)

        def finish_five(job: Job, attempt: int) -> Sequence[Message]:
            jobs.append(job)
            if len(jobs) == 5:  # of ours all are trained; now the other driver ends the trial, or dies
                if ends:
                    ledger.end(outcome_of(first), None)
                else:
                    stack.close()
            return finish(job, attempt)

        log = Log()
        expected = {"trained": 5, "reused": 1} if ends else {"trained": 6}
        assert counts(run(ScriptedEngine(finish_five, size=1), log)) == {"trials": 6, **expected}
    trained = [(name, seed) for what, name, seed in log.told if what == "finished"]
    assert trained[:5] == [(trial.variant.name, trial.seed) for trial in others]
    assert len(jobs) == (5 if ends else 6)


def test_two_drivers_of_the_same_trials_train_each_once(folder: Path, location: str) -> None:
    """Two studies with the same trials, at once, on one store."""
    jobs: list[tuple[str, int]] = []

    def note(job: Job, attempt: int) -> Sequence[Message]:
        jobs.append((job.members[0].variant, job.members[0].seed))
        time.sleep(0.02)
        return finish(job, attempt)

    def drive(name: str) -> StudyResult:
        with open_store(location) as opened:
            made = planner(folder, name=name, design={"kind": "leave_one_out", "seeds": 8})
            return run_study(made, opened, ScriptedEngine(note), ENVIRONMENT, Observer())

    planner(folder)  # makes the text
    with open_store(location), ThreadPoolExecutor(2) as pool:
        results = list(pool.map(drive, ["one", "two"]))
    assert len(jobs) == len(set(jobs)) == 24
    assert sum(result.trained for result in results) == 24
    assert [result.trained + result.reused for result in results] == [24, 24]


def test_an_engine_may_restart_a_job_itself(run: Run, store: Store, folder: Path) -> None:
    def elsewhere(job: Job, attempt: int) -> Sequence[Message]:
        began, lost, *told = [
            Began(job.number, WorkerRecord("first", "cpu: old", 1)),
            Happened(job.number, measured(0, 9.0)),
            JobRestarted(job.number, "its node died"),
            Began(job.number, WorkerRecord("second", "cpu: new", 2)),
            *finish(job, attempt),
        ]
        return [began, lost, *told]

    log = Log()
    assert counts(run(elsewhere, log)) == {"trials": 6, "trained": 6}
    assert [what for what, _, _ in log.told[:6]].count("lost") >= 1
    for record in store.trials([planned.key for planned in store.study("sample").planned]).values():
        assert record.attempts == 2
        assert record.worker == WorkerRecord("second", "cpu: new", 2)
        assert record.environment is not None
        assert (record.environment.host, record.environment.device) == ("second", "cpu: new")
        assert [point.step for point in store.curves([record.key])[record.key]] == [0, 1, 2]
        assert store.curves([record.key])[record.key][0].val_loss != 9.0


def test_two_drivers_of_one_study(run: Run, folder: Path) -> None:
    def second_driver(job: Job, attempt: int) -> Sequence[Message]:
        with pytest.raises(StudyBusyError):
            run()
        return finish(job, attempt)

    assert counts(run(second_driver)) == {"trials": 6, "trained": 6}


@pytest.fixture
def interruptible() -> Iterator[None]:
    """The usual handler of SIGINT, which a shell makes its background processes ignore."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_keeps_what_ended_and_forgets_what_ran(run: Run, store: Store) -> None:
    def interrupt(job: Job, attempt: int) -> Sequence[Message]:
        if job.number < 3:
            return finish(job, attempt)
        if job.number == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return [Happened(job.number, measured(0, 3.0))]

    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    result = run(interrupt)
    assert counts(result) == {"trials": 6, "trained": 2, "interrupted": True}
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
    assert states(store) == [TrialState.FINISHED] * 2
    assert counts(run()) == {"trials": 6, "trained": 4, "reused": 2}


def test_an_interrupt_after_the_last_trial_interrupts_nothing(run: Run) -> None:
    def interrupt_at_the_end(job: Job, attempt: int) -> Sequence[Message]:
        if job.number == 6:
            os.kill(os.getpid(), signal.SIGTERM)
        return finish(job, attempt)

    assert counts(run(interrupt_at_the_end)) == {"trials": 6, "trained": 6}


def test_an_engine_that_breaks_leaves_no_running_trial(run: Run, store: Store) -> None:
    def break_(job: Job, attempt: int) -> Sequence[Message]:
        raise EngineError("nothing works any more", where="engine")

    with pytest.raises(EngineError):
        run(break_)
    assert states(store) == []
    assert counts(run()) == {"trials": 6, "trained": 6}


def test_a_store_that_fails_ends_the_run_and_loses_nothing(
    run: Run, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = Store.record_outcome
    calls: list[object] = []

    def full(self: Store, *arguments: object) -> bool:
        calls.append(arguments)
        if len(calls) > 3:
            raise StoreError("no space is left on the disk", where="store")
        return written(self, *arguments)

    monkeypatch.setattr(Store, "record_outcome", full)
    with pytest.raises(StoreError, match="no space"):
        run()
    monkeypatch.setattr(Store, "record_outcome", written)
    assert states(store) == [TrialState.FINISHED] * 3
    assert counts(run()) == {"trials": 6, "trained": 3, "reused": 3}


def test_a_lost_lease_stops_the_driver_and_leaves_the_store_to_the_other(
    run: Run, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ablate.execution.study_run._RENEW_SECONDS", -1.0)

    def lose(job: Job, attempt: int) -> Sequence[Message]:
        with store._database.writing() as connection:
            connection.exec_driver_sql("UPDATE leases SET token = 'of another driver'")
        return [Happened(job.number, measured(0, 3.0))]

    with pytest.raises(StudyBusyError):
        run(lose)
    assert states(store) == [TrialState.WAITING] * 2, "the next driver trains what this one left"


def test_the_driver_never_spins(run: Run) -> None:
    """Every turn of its loop waits for the engine; only the last look does not."""
    engine = ScriptedEngine()
    run(engine)
    assert all(wait >= 0.05 for wait in engine.waits[:-1])


def test_the_trivial_baselines_of_the_data_are_stored(run: Run, store: Store, folder: Path) -> None:
    run()
    made = planner(folder)
    task = made.costs.prepare(made.space.resolve({}))
    assert store.study("sample").trivial == task.baselines()
    assert store.study("sample").trivial["bigram"]["val_loss"] < store.study("sample").trivial["unigram"]["val_loss"]


LABELS = {"usual": {}, "short": {"task.context": 4}, "smooth": {"task.validation_windows": 3}}


@pytest.mark.parametrize("begins", [True, False], ids=["from the start", "after results"])
def test_each_variant_has_the_trivial_baselines_of_its_own_task(
    begins: bool, run: Run, store: Store, folder: Path, rounds: UseRounds
) -> None:
    """Also where the data is the same, and where a design proposes the task after its first results."""
    made = planner(folder, switches={"labels": LABELS})
    named = {f"labels={setting}" if setting != "usual" else BASELINE: {"labels": setting} for setting in LABELS}
    proposals = [Proposal(Point(name, settings), 0) for name, settings in named.items()]
    rounds([proposals] if begins else [[one] for one in proposals])
    run(made=made)
    runs = read_runs(store, store.study("sample"), "val_loss")
    tasks = {name: made.costs.prepare(made.space.resolve(settings)) for name, settings in named.items()}
    assert len({task.fingerprint for task in tasks.values()}) == 1
    assert {name: of.rules for name, of in runs.items()} == {name: task.baselines() for name, task in tasks.items()}
    assert len({repr(of.rules) for of in runs.values()}) == 3


def test_a_task_that_cannot_compute_its_trivial_baselines(
    run: Run, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LanguageModel, "baselines", lambda self: 1 / 0)
    with pytest.raises(PluginError, match="trivial baselines raised ZeroDivisionError"):
        run()
    assert store.studies() == []


def test_a_trivial_baseline_that_is_not_a_number_is_left_out(
    run: Run, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        LanguageModel, "baselines", lambda self: {"a": {"val_loss": 2.0, "val_perplexity": float("inf")}}
    )
    run()
    assert store.study("sample").trivial == {"a": {"val_loss": 2.0}}


@pytest.mark.parametrize(
    ("metrics", "seconds", "speeds"),
    [({"val_loss": 2.0}, 4.0, [25.0]), ({"val_loss": 2.0}, 0.0, []), ({}, 4.0, []), ({}, 0.0, [])],
)
def test_a_design_knows_the_speed_of_what_has_a_result(
    metrics: dict[str, float], seconds: float, speeds: list[float], folder: Path
) -> None:
    """A trial may have taken no time by the clock of the machine, and one that diverged says nothing of speed."""

    class Timed(Rounds):
        def timed(self, point: Point, seed: int, tokens_per_second: float) -> None:
            heard.append(tokens_per_second)

    heard: list[float] = []
    proposal = Proposal(Point(BASELINE, {}), 0)
    design = Timed([[proposal]])
    dialogue = Dialogue(design, "val_loss", lambda keys: {})
    assert [dialogue.ask(asked, "key") for asked in design.ask()] == [True]
    state = TrialState.FINISHED if metrics else TrialState.DIVERGED
    finished = outcome_of(make_plan(planner(folder)).trials[0])
    ended = replace(finished, key="key", state=state, metrics=metrics, seconds=seconds, tokens=100)
    dialogue.end(ended, 2, watched=True)
    assert heard == speeds
    assert design.values == [(BASELINE, 0, metrics.get("val_loss"))]
