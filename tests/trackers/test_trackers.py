"""The contents of trackers after a study, read by their own readers, compared with the curves of the store."""

from __future__ import annotations

import json
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, cast

import pytest
from cli_runs import quick_workers
from engine_samples import (
    ENVIRONMENT,
    SPACE,
    Log,
    Script,
    ScriptedEngine,
    diverge,
    finish,
    measured,
    planner,
)
from fake_store import fake_store

from ablate.errors import ArgumentError, MissingPackageError
from ablate.execution import tracking
from ablate.execution.driver import run_study
from ablate.execution.engine import Engine, Observer, ObserverGroup
from ablate.execution.local import LocalEngine
from ablate.execution.options import RunOptions
from ablate.execution.protocol import Broken, Happened, Job, Message
from ablate.execution.tracking import TrackingObserver
from ablate.roles import TrialRole
from ablate.spec.base import Family
from ablate.store import Store, TrialState, open_store
from ablate.tables.logged import wandb_records
from ablate.trackers import RunWriter, TrackedRun, Tracker, TrackerSession, find_tracker
from ablate.trackers.mlflow import Mlflow
from ablate.trackers.tensorboard import TensorBoard
from ablate.trackers.wandb import WeightsAndBiases

Curves = dict[str, list[tuple[int, float]]]
Runs = dict[tuple[str, int], tuple[Curves, dict[str, float], str]]
"""By variant and seed: curves by name, results by name, and how the run ended."""

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::PendingDeprecationWarning")


def read_tensorboard(folder: Path) -> Runs:
    """By TensorBoard's own reader, with no points purged: a step that was written twice is there twice."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found: Runs = {}
    for mark in folder.rglob("ablate.json"):
        events = EventAccumulator(str(mark.parent), purge_orphaned_data=False)
        events.Reload()
        if "spec/text_summary" not in events.Tags()["tensors"] or mark.parent.name.startswith("answer"):
            continue
        text = events.Tensors("spec/text_summary")[0].tensor_proto.string_val[0].decode()
        spec = json.loads(text.removeprefix("```json\n").removesuffix("\n```"))
        every = {tag: [(point.step, point.value) for point in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
        found[spec["variant"], spec["seed"]] = (
            {tag: points for tag, points in every.items() if "/" not in tag},
            {tag.removeprefix("result/"): points[-1][1] for tag, points in every.items() if "/" in tag},
            json.loads(mark.read_text())["state"],
        )
    return found


def read_mlflow(folder: Path) -> Runs:
    """By MLflow's client."""
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{folder / 'mlflow.db'}")
    found: Runs = {}
    for run in client.search_runs([one.experiment_id for one in client.search_experiments()]):
        if run.data.tags["role"] == "answer":
            continue
        curves = {
            name: [(point.step, point.value) for point in client.get_metric_history(run.info.run_id, name)]
            for name in run.data.metrics
        }
        found[run.data.params["variant"], int(run.data.params["seed"])] = (
            {name: points for name, points in curves.items() if "/" not in name},
            {name.removeprefix("result/"): points[-1][1] for name, points in curves.items() if "/" in name},
            run.data.tags.get("ablate.state", ""),
        )
    return found


def read_wandb(folder: Path) -> Runs:
    """From the files of offline runs, which `wandb sync` would send."""
    found: Runs = {}
    for file in (folder / "wandb").glob("offline-run-*/*.wandb"):
        curves: Curves = {}
        summary: dict[str, Any] = {}
        config: dict[str, Any] = {}
        for record in wandb_records(file):
            kind = record.WhichOneof("record_type")
            if kind == "run":
                config |= {item.key: json.loads(item.value_json) for item in record.run.config.update}
            elif kind == "history":
                items = {item.key or "/".join(item.nested_key): item.value_json for item in record.history.item}
                for name, value in items.items():
                    if not name.startswith("_"):
                        curves.setdefault(name, []).append((record.history.step.num, float(json.loads(value))))
            elif kind == "summary":
                summary |= {item.key or "/".join(item.nested_key): item.value_json for item in record.summary.update}
        if "variant" not in config:
            continue
        results = {
            name.removeprefix("result/"): float(json.loads(value))
            for name, value in summary.items()
            if name.startswith("result/")
        }
        found[config["variant"], config["seed"]] = (curves, results, json.loads(summary.get("state", '""')))
    return found


READERS: dict[type[Tracker], Callable[[Path], Runs]] = {
    TensorBoard: read_tensorboard,
    Mlflow: read_mlflow,
    WeightsAndBiases: read_wandb,
}


@pytest.fixture(params=READERS, ids=lambda tracker: tracker.kind_name())
def tracker(request: pytest.FixtureRequest, tmp_path: Path, new_mlflow: Callable[[Path], Path]) -> Tracker:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip(request.param.extra)
    if request.param is Mlflow:
        new_mlflow(tmp_path / "tracked")
    return request.param.offline(tmp_path / "tracked")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tracked").mkdir()
    return tmp_path


@pytest.fixture
def store(folder: Path) -> Iterator[Store]:
    with open_store(folder / "store.db") as opened:
        yield opened


class Remarks(Log):
    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def say(self, line: str) -> None:
        self.said.append(line)


def study(
    folder: Path, store: Store, trackers: list[Tracker], script: Script | Engine = finish, **changes: object
) -> list[str]:
    """Run the sample study, send what is missing and the answer; the warnings on trackers."""
    engine = script if isinstance(script, Engine) else ScriptedEngine(script)
    log, made = Remarks(), planner(folder, **changes)
    watching = TrackingObserver(made.space.name, trackers, log.say)
    try:
        run_study(made, store, engine, ENVIRONMENT, ObserverGroup(log, watching))
        watching.catch_up(store)
        watching.conclude("**The answer**", {"norm=none/difference": 0.5})
    finally:
        watching.close()
    return [line for line in log.said if "tracker" in line]


FEW = {"switches": {"norm": SPACE["switches"]["norm"]}}  # type: ignore[index]
"""Two variants: W&B takes half a second for each run."""


def stored(store: Store) -> Runs:
    """The same from the store."""
    record = store.study("sample")
    found: Runs = {}
    for planned in record.planned:
        trial = store.trials([planned.key])[planned.key]
        curve = store.curves([planned.key])[planned.key]
        curves: Curves = {"val_loss": [(point.step, point.val_loss) for point in curve if point.val_loss is not None]}
        curves |= {"train_loss": [(point.step, point.train_loss) for point in curve if point.train_loss is not None]}
        curves |= {
            name: [(point.step, getattr(point, name)) for point in curve] for name in ("tokens", "flops", "seconds")
        }
        found[planned.variant, planned.seed] = (curves, trial.metrics, trial.state.value)
    return found


def same(tracked: Runs, expected: Runs) -> None:
    assert tracked.keys() == expected.keys()
    for run, (curves, results, state) in expected.items():
        for name, points in curves.items():
            steps, values = zip(*tracked[run][0][name], strict=True)
            assert list(steps) == [step for step, _ in points], (run, name)
            assert list(values) == pytest.approx([value for _, value in points], rel=1e-6)  # TensorBoard keeps float32
        assert tracked[run][0].keys() == curves.keys()
        assert tracked[run][1] == pytest.approx(results, rel=1e-6)
        assert tracked[run][2] == state


def lose_worker_once(job: Job, attempt: int) -> Sequence[Message]:
    """The first attempt of each trial is lost after two points."""
    if attempt > 1:
        return finish(job, attempt)
    points = [Happened(job.number, measured(step, 9.0 - step)) for step in (0, 1)]
    return [*points, Broken(job.number, "its worker was killed by SIGKILL", "", "")]


def test_a_tracker_holds_the_curves_and_results_of_the_store(folder: Path, store: Store, tracker: Tracker) -> None:
    read = READERS[type(tracker)]
    assert study(folder, store, [tracker], lose_worker_once, **FEW) == []
    assert len(stored(store)) == 4
    first = read(folder / "tracked")
    same(first, stored(store))
    assert study(folder, store, [tracker], **FEW) == []
    assert read(folder / "tracked") == first, "what it held was sent again"


def test_trackers_hold_a_study_that_workers_trained(folder: Path, store: Store) -> None:
    """All of them at once, over trials of other processes; the driver does not know which engine started these."""
    places = {tracker: folder / "tracked" / tracker.kind_name() for tracker in READERS}
    for place in places.values():
        place.mkdir()
    trackers = [tracker.offline(place) for tracker, place in places.items()]
    with quick_workers(), LocalEngine(RunOptions(cache=folder / "cache", device="cpu", workers=2)) as engine:
        assert study(folder, store, trackers, engine, design={"kind": "leave_one_out", "seeds": 1}) == []
    expected = stored(store)
    assert {state for _, _, state in expected.values()} == {"finished"}
    for tracker, place in places.items():
        held = READERS[tracker](place)
        # The store keeps the curve of one metric; trackers have those of the task's others too.
        names = next(iter(expected.values()))[0].keys()
        others = {name for curves, _, _ in held.values() for name in curves.keys() - names}
        assert others == {"val_perplexity", "val_bits_per_byte"}
        kept = {
            run: ({name: curves[name] for name in names}, results, state)
            for run, (curves, results, state) in held.items()
        }
        same(kept, expected)


def test_what_the_tracker_lacks_comes_from_the_store(folder: Path, store: Store) -> None:
    run_study(planner(folder), store, ScriptedEngine(finish), ENVIRONMENT, Observer())
    assert study(folder, store, [TensorBoard(argument="tracked")]) == []
    same(read_tensorboard(folder / "tracked"), stored(store))


def test_an_interrupted_trial_is_sent_whole_by_the_next_run(folder: Path, store: Store) -> None:
    made = planner(folder, design={"kind": "leave_one_out", "seeds": 1})
    tracker = TensorBoard(argument="tracked")
    watching = TrackingObserver("sample", [tracker], print)
    trial = next(iter(made.trial(proposal) for proposal in made.design().ask()))
    assert trial is not None
    watching.started(trial)
    watching.measured(trial, measured(0, 7.0), 0)
    watching.measured(trial, measured(1, 6.0), 0)
    watching.close()  # the process is about to end; the store has no such trial
    assert study(folder, store, [tracker], design={"kind": "leave_one_out", "seeds": 1}) == []
    same(read_tensorboard(folder / "tracked"), stored(store))


def test_a_resumed_job_that_sends_its_curve_again_is_written_once(folder: Path) -> None:
    made = planner(folder)
    watching = TrackingObserver("sample", [TensorBoard(argument="tracked")], print)
    trial = next(iter(made.trial(proposal) for proposal in made.design().ask()))
    assert trial is not None
    for losses in ((5.0, 4.0), (3.0, 2.0, 1.0)):
        for step, loss in enumerate(losses):
            watching.measured(trial, measured(step, loss), 0)
    watching.close()
    ((curves, _, state),) = read_tensorboard(folder / "tracked").values()
    assert curves["val_loss"] == [(0, 3.0), (1, 2.0), (2, 1.0)]
    assert state == ""


def test_a_diverged_trial_is_shown_as_such(folder: Path, store: Store) -> None:
    study(folder, store, [TensorBoard(argument="tracked")], diverge)
    ends = {state for _, _, state in read_tensorboard(folder / "tracked").values()}
    assert ends == {"diverged"}


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> type[Tracker]:
    """A tracker whose network fails at the third point, in a family of its own."""

    class Writer(RunWriter):
        def log(self, step: int, values: object) -> None:
            if step > 1:
                raise ConnectionError("no route to host")

        def end(self, state: str, results: object, text: str) -> None: ...

        def drop(self) -> None: ...

    class Session(TrackerSession):
        def holds(self, run: TrackedRun) -> bool:
            return False

        def begin(self, run: TrackedRun) -> RunWriter:
            return Writer()

    class Unreachable(Tracker):
        family = Family("tracker of this test")
        kind: Literal["unreachable"] = "unreachable"
        argument_name = "URL"

        def connect(self) -> TrackerSession:
            return Session()

        @classmethod
        def offline(cls, folder: Path) -> Unreachable:
            return cls(argument=str(folder))

    return Unreachable


def test_a_tracker_that_fails_costs_a_warning(folder: Path, store: Store, broken: type[Tracker]) -> None:
    board = TensorBoard(argument="tracked")
    (warning,) = study(folder, store, [broken(argument="http://me:secret@host"), board])
    assert "http://me:***@host failed" in warning
    assert "ConnectionError: no route to host" in warning
    same(read_tensorboard(folder / "tracked"), stored(store))


def test_a_tracker_says_once_why_it_is_left_alone(broken: type[Tracker], monkeypatch: pytest.MonkeyPatch) -> None:
    """It cannot be reached, too many messages wait for it, or it takes none after the study."""
    monkeypatch.setattr(tracking, "_MOST_WAITING", 2)
    monkeypatch.setattr(tracking, "_CLOSE_SECONDS", 0.2)
    free, action = threading.Event(), tracking._Action("key", lambda session, runs: None)

    def connect(self: Tracker) -> TrackerSession:
        free.wait(60)
        raise ConnectionError("no such host")

    monkeypatch.setattr(broken, "connect", connect)
    late, slow, unreachable = (tracking._TrackerThread(broken(argument="x")) for _ in range(3))
    for _ in range(2):
        late.wait_and_put(action)
        slow.put(action)
    assert late.new_warning() == slow.new_warning() == ""
    late.wait_and_put(action)
    slow.put(action)
    free.set()
    unreachable._thread.join(60)
    expected = ("it took nothing for 0 s", "2 messages wait for it", "ConnectionError: no such host")
    for thread, why in zip((late, slow, unreachable), expected, strict=True):
        assert f"the tracker unreachable:x failed: {why}. The study continues" in thread.new_warning()
        assert thread.new_warning() == ""
        thread._thread.join(60)
        thread.put(action)
        thread.wait_and_put(action)
        assert thread._waiting.empty(), "nothing waits for it any more"


def test_a_tracker_that_hangs_does_not_hold_the_study(
    folder: Path, store: Store, broken: type[Tracker], monkeypatch: pytest.MonkeyPatch
) -> None:
    free = threading.Event()
    monkeypatch.setattr(tracking, "_CLOSE_SECONDS", 0.1)
    monkeypatch.setattr(broken, "connect", lambda self: free.wait(60))
    (warning,) = study(folder, store, [broken(argument="x")])
    free.set()
    assert "still busy" in warning
    assert {state for _, _, state in stored(store).values()} == {"finished"}


@pytest.mark.parametrize("address", ["tensorboard", "tensorboard:", "tensorbord:runs", "neptune:x", ""])
def test_an_invalid_address(address: str) -> None:
    with pytest.raises(ArgumentError, match=r"expected one of .*`tensorboard:DIR`"):
        find_tracker(address)


def test_a_tracker_whose_package_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ablate.extras.find_spec", lambda package: None)
    with pytest.raises(MissingPackageError, match=r"pip install 'ablate-blocks\[wandb\]'"):
        find_tracker("wandb:project")


NAMES = {
    "块": {"保留": {}, "去跳": {"block.skips.mixer": 0}, "去归": {"block.norm": "none"}},
    "n" * 200: {"kept": {}, "v" * 250: {"block.mixer.value": "identity"}},
    "../a/./b": {"kept": {}, "..": {"training.optimizer.lr": 2e-3}},
}
"""Switches in another script, longer than a file name, and named like paths."""


def test_two_variants_are_two_in_every_tracker(folder: Path, store: Store, tracker: Tracker) -> None:
    changes = {"switches": NAMES, "design": {"kind": "leave_one_out", "seeds": 1}}
    assert study(folder, store, [tracker], **changes) == []
    assert len(stored(store)) == 5
    same(READERS[type(tracker)](folder / "tracked"), stored(store))
    assert {path.name for path in folder.iterdir()} <= {"tracked", "text", "cache", "store.db", "store.db-shm",
                                                        "store.db-wal"}  # fmt: skip


def test_the_answer_is_a_run_of_its_own_that_replaces_an_earlier_one() -> None:
    sent: list[tracking._Action] = []
    watching = TrackingObserver("sample", [], print)
    watching._threads = [cast(Any, SimpleNamespace(wait_and_put=sent.append))]
    watching.conclude("**The answer**", {"a": 1.0})
    (action,) = sent
    given = action.call.keywords  # type: ignore[attr-defined]
    run = TrackedRun(action.key, "sample", ("answer",), {"study": "sample"}, {"role": "answer"})
    assert (given["run"], given["key"], given["curve"], given["replaces"]) == (run, run.identity, (), True)
    assert given["result"] == tracking._Result("finished", {"a": 1.0}, "**The answer**")
    assert action.begins


def test_every_trial_that_has_ended_is_sent_whatever_the_others_do() -> None:
    made, sent = fake_store({"baseline": ({}, 10), "a=x": ({}, 9)}, seeds=3), list[tracking._Action]()
    states = (None, TrialState.RUNNING, TrialState.FINISHED, TrialState.DIVERGED, TrialState.WAITING, TrialState.PRUNED)
    for planned, state in zip(made.record.planned, states, strict=True):
        if state is not None:
            made.add(planned.variant, planned.seed, {"val_loss": 1.0}, state=state)
    watching = TrackingObserver("a_study", [], print)
    watching._threads = [cast(Any, SimpleNamespace(wait_and_put=sent.append))]
    watching.catch_up(cast(Store, made))
    assert [action.key for action in sent] == ["baseline/1", "a=x/1", "a=x/2"]


def test_a_run_that_was_lost_begins_again_with_its_trial(folder: Path) -> None:
    made, sent = planner(folder), list[tracking._Action]()
    watching = TrackingObserver("sample", [], print)
    watching._threads = [cast(Any, SimpleNamespace(put=sent.append, wait_and_put=sent.append))]
    trial = next(iter(made.trial(proposal) for proposal in made.design().ask()))
    assert trial is not None
    watching.started(trial)
    watching.measured(trial, measured(0, 7.0), 0)
    assert [action.begins for action in sent] == [True, False]
    watching.lost(trial, "its node died")
    watching.split([trial], "it did not fit")  # its run is closed already
    dropped = tracking._drop
    assert [action.call.func is dropped for action in sent] == [False, False, True]  # type: ignore[attr-defined]
    watching.started(trial)
    assert [action.begins for action in sent] == [True, False, False, True]


def test_the_answer_has_a_number_for_each_variant(
    folder: Path, store: Store, new_mlflow: Callable[[Path], Path]
) -> None:
    mlflow = pytest.importorskip("mlflow")
    new_mlflow(folder / "tracked")
    tracker = Mlflow.offline(folder / "tracked")
    run_study(planner(folder), store, ScriptedEngine(finish), ENVIRONMENT, Observer())
    names = ["块=去跳", "块=去归", "块_去跳", "a/b", "a_b", f"{'x' * 300}1", f"{'x' * 300}2", "a//b", "."]
    numbers = {f"{name}/difference": float(number) for number, name in enumerate(names)}
    said: list[str] = []
    watching = TrackingObserver("sample", [tracker], said.append)
    watching.conclude("**The answer**", numbers)
    watching.close()
    assert said == []
    client = mlflow.MlflowClient(f"sqlite:///{folder / 'tracked' / 'mlflow.db'}")
    (run,) = client.search_runs([one.experiment_id for one in client.search_experiments()])
    assert sorted(run.data.metrics.values()) == sorted(numbers.values())


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_no_run_stays_open_and_the_next_start_writes_what_is_missing(
    folder: Path, store: Store, monkeypatch: pytest.MonkeyPatch, new_mlflow: Callable[[Path], Path]
) -> None:
    mlflow = pytest.importorskip("mlflow")
    new_mlflow(folder / "tracked")
    from ablate.trackers.mlflow import _Run

    def fail(*_: object) -> None:
        raise ConnectionError("no route to host")

    tracker = Mlflow.offline(folder / "tracked")
    client = mlflow.MlflowClient(f"sqlite:///{folder / 'tracked' / 'mlflow.db'}")
    for method in ("__init__", "log", "end"):
        with monkeypatch.context() as patched:
            patched.setattr(_Run, method, fail)
            (warning,) = study(folder, store, [tracker], **FEW)
        assert "ConnectionError: no route to host" in warning
        runs = client.search_runs([one.experiment_id for one in client.search_experiments()])
        assert runs
        assert "RUNNING" not in {run.info.status for run in runs}, method
    assert study(folder, store, [tracker], **FEW) == []
    same(read_mlflow(folder / "tracked"), stored(store))


def test_a_run_that_a_tracker_cannot_take_costs_no_other(
    folder: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither those before it nor those after it."""
    from ablate.trackers.tensorboard import _Events

    usual = _Events.log

    def log(self: _Events, step: int, values: dict[str, float]) -> None:
        if self._run.config["variant"] == "norm=none" and self._run.config["seed"] == 0:
            raise ValueError("it does not like this one")
        usual(self, step, values)

    monkeypatch.setattr(_Events, "log", log)
    (warning,) = study(folder, store, [TensorBoard(argument="tracked")])
    assert "it does not like this one" in warning
    whole = stored(store)
    lost = ("norm=none", 0)
    found = read_tensorboard(folder / "tracked")
    same(
        {run: held for run, held in found.items() if run != lost},
        {run: held for run, held in whole.items() if run != lost},
    )


def test_parameters_of_a_trainer_take_no_name_that_is_ours() -> None:
    spec = {"trainer": {}, "variant": "b16", "role": "teacher", "key": 1, "settings": "none", "lr": 0.1}
    role = TrialRole.COMPARISON
    run = tracking._trial_run("study", "k" * 64, "size=large", {"size": "large"}, 3, role, 7, spec)
    assert (run.study, run.name, run.tags) == ("study", ("size=large", "seed 3"), {"role": "comparison"})
    about = {"variant": "size=large", "settings": {"size": "large"}, "seed": 3, "role": "comparison", "key": "k" * 64}
    clashing = {f"{name} (parameter)": spec[name] for name in ("variant", "role", "key", "settings")}
    assert run.config == {**about, "parameters": 7, **clashing, "lr": 0.1, "trainer": {}}
    others = ({"study": "other"}, {"key": "l" * 64})
    usual = {"study": "study", "key": "k" * 64}
    names = {tracking._trial_run(**{**usual, **one}, **AS_ABOVE).identity for one in ({}, *others)}
    assert len(names) == 3, "a run of each trial in each study"


AS_ABOVE: dict[str, Any] = {
    "variant": "v", "settings": {}, "seed": 0, "role": TrialRole.COMPARISON, "parameters": None, "spec": {},
}  # fmt: skip
