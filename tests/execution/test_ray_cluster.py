"""The Ray engine on a real cluster: what it trains, refuses and ends is what the local engine does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_runs import Workplace
from engine_samples import SPACE, planner
from own_trainers import space as own_space
from own_trainers import write_script
from ray.cluster_utils import Cluster
from ray_engines import RAY_MARKS, Listening, begun, drive
from ray_samples import (
    POPULATION,
    ended,
    job,
    listen,
    numbers,
    points,
    recorded,
    trial,
)

from ablate.errors import EngineError
from ablate.execution.local import LocalEngine
from ablate.execution.options import RunOptions
from ablate.execution.protocol import Began, Broken, Done, Happened, Job, JobMember
from ablate.execution.ray.engine import RayEngine
from ablate.planning.planner import make_plan
from ablate.spec.space_fields import ResourcesSpec
from ablate.store import Store, open_store
from ablate.store.records import TrialState

pytestmark = RAY_MARKS


def test_fractions_are_respected_plugins_are_copied_and_stopped_trials_stop(
    trainer: Listening, ray_folder: Path
) -> None:
    assert trainer.size == 2
    for number in (1, 2, 3):
        trainer.submit(job(number, trial(ray_folder, steps=10**6)))
    heard = listen(trainer, lambda heard: len(begun(heard)) == 2)
    assert len({message.worker.pid for message in begun(heard)}) == 2
    assert Path((ray_folder / "travels").read_text()).name == "travels.py"
    assert not begun(trainer.poll(0.0) + trainer.poll(1.0)), "a third would take what is not there"
    for number in (1, 2, 3):
        trainer.stop(number, 0)
    assert {type(message) for message in listen(trainer, ended(1, 2, 3))} <= {Began, Done, Happened}


def test_with_json_standard_output_is_one_object_and_no_file_of_the_folder_stands_in_for_a_module(
    cluster: Cluster, tmp_path: Path
) -> None:
    place = Workplace(tmp_path, tmp_path / "cache")
    (tmp_path / "noisy.py").write_text("import os\nprint('printed')\nos.write(1, b'written past Python\\n')\n")
    for name in ("ablate", "copy", "yaml"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('a file of the working folder')\n")
    where = ("--engine", "ray", "--address", cluster.address, "--workers", "1")
    trained = place.run("study", place.space(seeds=1), *where, "--plugin", "noisy.py", "--json")
    assert trained.code == 0, trained.err
    assert json.loads(trained.out)["trained"] == 3
    assert {"printed", "written past Python"} <= set(trained.err.splitlines())


def test_resources_that_no_machine_has_are_refused_with_those_there_are(
    cluster: Cluster, trainer: Listening, ray_folder: Path
) -> None:
    wanted = ResourcesSpec(custom={"slice": 5}, memory=0.1)
    with (
        RayEngine(
            RunOptions(cache=ray_folder / "cache", device="cpu", resources=wanted, address=cluster.address)
        ) as small,
        pytest.raises(EngineError, match=r"no machine .* slice 5; got .*slice 1"),
    ):
        small.admit(make_plan(planner(ray_folder)))


def test_the_same_space_gives_the_same_variants_trials_and_numbers(
    trainer: Listening, ray_folder: Path, store: Store, tmp_path: Path
) -> None:
    recording = {**SPACE["training"], "record_blocks": True}
    with LocalEngine(RunOptions(cache=ray_folder / "cache", device="cpu", workers=1)) as local:
        drive(local, store, ray_folder, training=recording)
    assert all(found[-1] for found in numbers(store).values())
    with open_store(tmp_path / "ray.db") as other:
        result = drive(trainer, other, ray_folder, training=recording)
        assert (result.trained, result.trials) == (6, 6)
        assert numbers(other) == numbers(store)
        records = other.trials([planned.key for planned in other.study("sample").planned]).values()
        workers = {record.worker.pid for record in records if record.worker}
        assert len(workers) <= 2, "actors stay warm from one trial to the next"


def test_a_trainer_of_the_user_gives_the_same_numbers(cluster: Cluster, tmp_path: Path) -> None:
    place = Workplace(tmp_path, tmp_path / "cache")
    write_script(tmp_path)
    plain = own_space(name="sample", design={"kind": "leave_one_out", "seeds": 1})
    (tmp_path / "own.yaml").write_text(json.dumps(plain))
    study, found = ("study", "own.yaml", "--workers", "1", "--json"), []
    for done in (
        place.run(*study, "--engine", "ray", "--address", cluster.address),
        place.call(*study, "--store", "here.db"),
    ):
        assert (done.code, done.last_object["trained"]) == (0, 2), done.err
    for file in (place.store, tmp_path / "here.db"):
        with open_store(file) as opened:
            found.append(numbers(opened))
    assert found[0] == found[1]


def test_what_a_search_prunes_is_ended_by_rays_scheduler(trainer: Listening, ray_folder: Path, store: Store) -> None:
    steps = 600
    search = {
        "kind": "search",
        "sampler": "random",
        "seeds": 1,
        "points": 7,
        "confirm": 0,
        "ranges": {"training.optimizer.lr": {"low": 1e-8, "high": 1e-2, "log": True}},
        "pruning": {"kind": "median", "finished": 1},
    }
    training = {**SPACE["training"], "steps": steps, "evaluations": 20}
    trainer.heard.clear()
    result = drive(trainer, store, ray_folder, design=search, training=training)
    assert result.trials == result.trained + result.pruned == 7
    records = store.trials([planned.key for planned in store.study("sample").planned])
    pruned = [record for record in records.values() if record.state is TrialState.PRUNED]
    assert len(pruned) == result.pruned > 0
    for record in pruned:
        curve = store.curves([record.key])[record.key]
        assert record.steps == curve[-1].step == record.stopped_at < steps
        assert record.metrics == {}
    told = {number: points([m for m in trainer.heard if m.number == number]) for number in range(1, 8)}
    assert sum(curve[-1].step < steps for curve in told.values()) > 0, "nobody was ended while it trained"


def test_a_population_exchanges_weights_and_values(trainer: Listening, ray_folder: Path, store: Store) -> None:
    """Four members on two placements take turns.

    Which members exchange depends on who reports first: the best has a checkpoint for others only if it was among the
    best when it reported. With four exchanges somebody always finds one.
    """
    rate = "training.optimizer.lr"
    low, high = POPULATION["design"]["ranges"][rate]
    result = drive(trainer, store, ray_folder, **POPULATION)
    assert (result.trained, result.trials) == (5, 5)
    baseline, *members = [planned.key for planned in store.study("sample").planned]
    curves = store.curves(members)
    assert {tuple(point.step for point in curve) for curve in curves.values()} == {tuple(range(0, 101, 10))}
    assert recorded(store, baseline) == []
    used = {key: [values["values"][rate] for _, values in recorded(store, key)] for key in members}
    assert all(low <= value <= high for values in used.values() for value in values)
    begins = [variant.spec["training"]["optimizer"]["lr"] for variant in store.study("sample").variants[1:]]
    assert {values[0] for values in used.values()} <= {float(f"{value:.4g}") for value in begins}
    took = {key for key, values in used.items() if len(set(values)) > 1}
    assert took, "nobody took over values"
    for key in took:  # a member that copies another continues with other values after an exchange
        assert used[key].index(next(value for value in used[key] if value != used[key][0])) in (3, 5, 7, 9)
    trained = {key: curve[1].seconds for key, curve in curves.items()}
    assert len(set(trained.values())) < 4, "nobody has the weights, and so the first steps, of another"


def test_a_trial_that_does_not_fit_into_memory_or_raises_fails_alone(trainer: Listening, ray_folder: Path) -> None:
    fine = trial(ray_folder, steps=2, evaluations=2)
    huge = fine.variant.spec.model_dump(mode="json")
    huge["model"]["width"] = 2**30  # an embedding of a terabyte, which is refused at once
    trainer.submit(Job(201, (JobMember(json.dumps(huge), 0),), fine.variant.fingerprint))
    trainer.submit(Job(202, (JobMember('{"no": "variant"}', 0),), "f"))
    trainer.submit(job(203, fine))
    heard = listen(trainer, ended(201, 202, 203))
    broken = {message.number: message for message in heard if isinstance(message, Broken)}
    assert set(broken) == {201, 202}
    assert "allocate memory" in broken[201].reason
    assert "Traceback" in broken[201].trace, "it would not fit elsewhere: no second attempt"
    assert broken[202].reason.startswith("ValidationError")
    assert Done(203) in heard
