"""Studies whose trials start from the weights of others, trained for real in this process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import scipy.stats
import torch
from engine_samples import ENVIRONMENT, SPACE, Log, Rounds, Script, ScriptedEngine, diverge, planner, raise_, space
from pydantic import ValidationError

from ablate.analysis import read_study
from ablate.analysis.findings import read_findings
from ablate.analysis.runs import read_runs, values_of
from ablate.designs.base import Point, Proposal
from ablate.errors import DataError, SpaceError, StoreError
from ablate.execution import job_runner
from ablate.execution.driver import StudyResult, run_study
from ablate.execution.job_runner import JobRunner
from ablate.execution.protocol import Job, Message
from ablate.execution.reproduce import reproduce
from ablate.planning.planner import Planner, make_plan
from ablate.roles import TrialRole
from ablate.store import Store, open_store
from ablate.store.records import TRANSFER, WINDOWS, TrialState
from ablate.trained.weights import load_weights, weights_folder

STAGE: dict[str, Any] = {"training.steps": 3, "block.mixer.softmax": False}


def switches(**starts: dict[str, Any]) -> dict[str, Any]:
    return {"switches": {"start": {"scratch": {}, **starts}}, "design": {"kind": "leave_one_out", "seeds": 2}}


def study(store: Store, folder: Path, engine: ScriptedEngine | None = None, **changes: Any) -> StudyResult:
    engine = engine or ScriptedEngine(lambda job, attempt: carried_out(job, folder), size=1)
    made = planner(folder, **changes)
    made.costs.starting._weights = weights_folder(store.where)
    return run_study(made, store, engine, ENVIRONMENT, Log())


def carried_out(job: Job, folder: Path) -> Sequence[Message]:
    return list(JobRunner(folder / "cache", torch.device("cpu")).run_job(job, list))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_stage_is_trained_first_once_and_reused(here: Path) -> None:
    frozen = {"training.init_from": {"stage": STAGE}, "training.freeze": ["mixer.query", "mixer.key", "mixer.value"]}
    changes = switches(transferred={"training.init_from": {"stage": STAGE}}, frozen=frozen)
    with open_store(here / "a.db") as store:
        first = study(store, here, **changes)
        again = study(store, here, **changes)
        record = store.study(SPACE["name"])
        stages = [planned for planned in record.scout_trials if planned.role is TrialRole.STAGE]
        trials = store.trials([planned.key for planned in (*record.planned, *stages)])
        assert {trial.state for trial in trials.values()} == {TrialState.FINISHED}
        assert sorted(planned.seed for planned in stages) == [0, 1]  # one for both variants
        assert first.trained == 8
        assert (again.trained, again.reused) == (0, 8)
        names = {planned.key: (planned.variant, planned.seed) for planned in record.planned}
        told = {name: store.recordings(key)[0].values[TRANSFER] for key, name in names.items() if name[0] != "baseline"}
        for (_, seed), recording in told.items():
            (stage,) = (planned.key for planned in stages if planned.seed == seed)
            assert stage in recording["source"]
            assert "blocks.0.mixer.query.weight" in recording["copied"]
            assert recording["new"] == recording["unused"] == []
        sizes = {variant.name: variant.parameters for variant in record.variants}
        assert sizes["start=transferred"] - sizes["start=frozen"] == 3 * 8 * 8


def test_a_variant_that_trained_longer_with_its_stage_says_so_and_its_cost_counts(here: Path) -> None:
    """The baseline takes 2 steps. `more` takes 2 after a stage of 3, `equal` 1 after 1, `twice` 2 after 1 after 1."""
    one = {"training.steps": 1}
    changes = switches(
        more={"training.init_from": {"stage": {"training.steps": 3}}},
        equal={"training.steps": 1, "training.init_from": {"stage": one}},
        twice={"training.init_from": {"stage": {**one, "training.init_from": {"stage": one}}}},
    )
    with open_store(here / "a.db") as store:
        study(store, here, **changes)
        report, findings = read_study(store, SPACE["name"]), read_findings(store, SPACE["name"])
        said = {row.name: row.verdict_sentence or "" for row in report.variants}
        assert said["start=more"].endswith("; trained 3 steps more than the baseline")
        assert said["start=twice"].endswith("; trained 2 steps more than the baseline")
        assert "than the baseline" not in said["start=equal"]
        record = store.study(SPACE["name"])
        trials = store.trials([planned.key for planned in (*record.planned, *record.scout_trials)])
        own = [trials[planned.key] for planned in record.planned if planned.variant == "start=more"]
        stages = [trials[p.key] for p in record.scout_trials if trials[p.key].steps == 3]
        assert len(stages) == len(own) == 2
        cost = findings.cost_of["start=more"]
        assert (cost.trials, cost.tokens) == (4, sum(one.tokens for one in (*own, *stages)))
        assert cost.flops == pytest.approx(sum(one.flops for one in (*own, *stages)))
        assert findings.cost_of["baseline"].trials == 2
        runs = read_runs(store, record, "val_loss")
        more = next(variant for variant in record.variants if variant.name == "start=more")
        assert values_of("flops", more, runs["start=more"])[0] == pytest.approx(own[0].flops + stages[0].flops)


def test_a_trial_continues_where_its_stage_ended(here: Path) -> None:
    """The same model, evaluated without a step, has the loss with which its stage ended."""
    whole = {"training.steps": 0, "training.init_from": {"stage": {"training.steps": 3}, "map": "exact"}}
    with open_store(here / "a.db") as store:
        study(store, here, **switches(as_it_is=whole))
        record = store.study(SPACE["name"])
        trials = store.trials([planned.key for planned in (*record.planned, *record.scout_trials)])
        for seed in (0, 1):
            ended = {
                planned.variant: trials[planned.key].metrics["val_loss"]
                for planned in (*record.planned, *record.scout_trials)
                if planned.seed == seed
            }
            assert ended["start=as_it_is"] == pytest.approx(ended["stage of start=as_it_is"], rel=1e-6)
            assert ended["start=as_it_is"] != ended["baseline"]


def test_frozen_weights_are_those_of_the_stage_at_the_end(here: Path) -> None:
    frozen = {
        "training.init_from": {"stage": STAGE},
        "training.freeze": ["mixer.query"],
        "training.save_weights": True,
    }
    with open_store(here / "a.db") as store:
        study(store, here, **switches(frozen=frozen))
        record = store.study(SPACE["name"])
        keys = {p.variant: p.key for p in (*record.planned, *record.scout_trials) if p.seed == 0}
        ours, theirs = (
            load_weights(weights_folder(store.where), keys[name]).tensors
            for name in ("start=frozen", "stage of start=frozen")
        )
        name = "blocks.0.mixer.query.weight"
        torch.testing.assert_close(ours[name], theirs[name], rtol=0, atol=0)
        assert not torch.equal(ours["blocks.0.mlp.up.weight"], theirs["blocks.0.mlp.up.weight"])


@pytest.mark.parametrize(("script", "said"), [(diverge, "which diverged"), (raise_, "which failed")])
def test_a_trial_whose_stage_is_lost_fails_with_the_reason(here: Path, script: Script, said: str) -> None:
    with open_store(here / "a.db") as store:
        changes = switches(transferred={"training.init_from": {"stage": STAGE}})
        result = study(store, here, ScriptedEngine(script), **changes)
        assert not result.interrupted
        record = store.study(SPACE["name"])
        failed = [planned.key for planned in record.planned if planned.variant == "start=transferred"]
        assert len(failed) == 2
        for trial in store.trials(failed).values():
            assert trial.state is TrialState.FAILED
            assert trial.reason.endswith(said)


@pytest.mark.parametrize("kept", [True, False])
def test_a_trial_that_started_from_a_stage_is_reproduced(here: Path, kept: bool) -> None:
    """From the weights that its stage left, or, where these are gone, from the stage trained again."""
    twice = {"stage": {**STAGE, "training.init_from": {"stage": {"training.steps": 2}}}}
    with open_store(here / "a.db") as store:
        study(store, here, **switches(transferred={"training.init_from": twice}))
        record = store.study(SPACE["name"])
        (key,) = (p.key for p in record.planned if (p.variant, p.seed) == ("start=transferred", 1))
        if not kept:
            for file in weights_folder(store.where).iterdir():
                file.unlink()
        told: list[str] = []
        engine = ScriptedEngine(lambda job, attempt: carried_out(job, here), size=1)
        found = reproduce(
            key, store, here / "cache", engine, ENVIRONMENT, told.append, lambda *_: None, accept_changed_code=False
        )
        assert found.verdict == "identical"
        assert sum("is trained again first" in line for line in told) == (0 if kept else 2)


def test_a_stage_that_is_stored_without_its_weights_is_refused(here: Path) -> None:
    with open_store(here / "a.db") as store:
        start = {"training.init_from": {"stage": STAGE}}
        study(store, here, **switches(transferred=start))
        for file in weights_folder(store.where).iterdir():
            file.unlink()
        with pytest.raises(StoreError, match="weights were not kept"):
            study(store, here, **switches(transferred=start, frozen={**start, "training.freeze": ["mixer.query"]}))


def test_a_trial_that_others_start_from_is_compared_too_once_the_design_asks_for_it(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seed 1 of the baseline begins as a stage, seed 3 is asked for with what starts from it, seed 4 before that."""
    cold, warm = Point("baseline", {"start": "scratch"}), Point("start=warm", {"start": "warm"})
    asked = [
        [(cold, 0), (warm, 0)],
        [(warm, 1)],
        [(cold, 1)],
        [(warm, 3), (cold, 3)],
        [(cold, 4)],
        [(warm, 4), (warm, 2)],
    ]
    rounds = [[Proposal(point, seed) for point, seed in round_] for round_ in asked]
    with open_store(here / "a.db") as store:
        lr = {"training.optimizer.lr": 1e-3}
        made = planner(here, **switches(warm={"training.init_from": {"stage": lr}, "training.optimizer.lr": 3e-3}))
        made.costs.starting._weights = weights_folder(store.where)
        monkeypatch.setattr(Planner, "design", lambda planner: Rounds(rounds))
        engine = ScriptedEngine(lambda job, attempt: carried_out(job, here), size=1)
        result = run_study(made, store, engine, ENVIRONMENT, Log())
        record = store.study(SPACE["name"])
        planned = {(one.variant, one.seed) for one in record.planned}
        warms = {("start=warm", seed) for seed in range(5)}
        assert planned == warms | {("baseline", seed) for seed in (0, 1, 3, 4)}
        assert [(one.variant, one.seed) for one in record.scout_trials] == [("baseline", 2)]
        assert (result.trials, result.trained) == (10, 10)
        compared = {row.name: len(row.finished) for row in read_study(store, SPACE["name"]).variants}
        assert compared == {"baseline": 4, "start=warm": 5}


def test_an_evaluation_needs_all_weights(here: Path) -> None:
    without = {"training.steps": 0, "training.init_from": {"stage": {"training.steps": 2, "block.norm": "none"}}}
    with pytest.raises(SpaceError, match="would stay random"):
        make_plan(planner(here, **switches(without=without)))


def test_an_evaluation_needs_each_layer_as_it_was_trained(here: Path) -> None:
    """Without the first layer the second has its place, and with it its window."""
    window = {"model.depth": 2, "model.exceptions": {"first": {"window": 2}}}
    without = {
        "training.steps": 0,
        "model.depth": 1,
        "model.exceptions": {"first": {"window": 2}},
        "training.init_from": {"stage": {"training.steps": 2, **window}, "layers": [1]},
    }
    with pytest.raises(SpaceError, match=r"settings \(window.*layers 0.*silence it"):
        make_plan(planner(here, **switches(without=without)))


def test_unknown_parts_to_freeze_are_refused(here: Path) -> None:
    with pytest.raises(SpaceError, match="no such part"):
        make_plan(planner(here, **switches(frozen={"training.freeze": ["mixer.querry"]})))


def test_a_knock_out_pairs_the_validation_windows(here: Path) -> None:
    """One model without parts: each window's loss is recorded, their mean is the loss, and they are resampled."""
    parts = {
        "mlp": {"training.steps": 0, "model.exceptions.first": {"gains": {"mlp_branch": 0}}},
        "mixer": {"training.steps": 0, "model.exceptions.first": {"gains": {"mixer_branch": 0}}},
    }
    start = {"stage": {"training.steps": 30, "training.optimizer.lr": 0.02, "model.exceptions": {}}}
    training = {**SPACE["training"], "steps": 0, "init_from": start}
    task = {**SPACE["task"], "validation_windows": 60}
    changes = {**switches(**parts), "training": training, "task": task}
    with open_store(here / "a.db") as store:
        study(store, here, **{**changes, "design": {"kind": "leave_one_out", "seeds": 1}})
        record = store.study(SPACE["name"])
        losses = {}
        for planned in record.planned:
            (last,) = (one.values[WINDOWS] for one in store.recordings(planned.key) if WINDOWS in one.values)
            losses[planned.variant] = np.array(last["val_loss"])
            trial = store.trials([planned.key])[planned.key]
            assert losses[planned.variant].mean() == pytest.approx(trial.metrics["val_loss"], rel=1e-5)
        report = read_study(store, SPACE["name"])
        assert report.evidence.windows == len(losses["baseline"]) > 30
        for row in report.variants[1:]:
            gaps = losses[row.name] - losses["baseline"]
            theirs = scipy.stats.bootstrap((gaps,), np.mean, n_resamples=9999, rng=np.random.default_rng(0))
            assert row.difference is not None
            low, high = theirs.confidence_interval
            assert row.difference.difference == pytest.approx(gaps.mean())
            spread = 0.05 * (high - low)  # two samples of resamples
            ours = row.difference
            assert ours.low is not None
            assert ours.high is not None
            # The wider of t and the bootstrap, and wider still where the windows have a long tail.
            assert ours.low <= low + spread
            assert ours.high >= high - spread
            assert ours.high - ours.low <= 1.5 * (high - low)
            assert "seed" not in row.verdict_sentence
        assert any(
            sentence.startswith("Nothing was trained: each comparison pairs") for sentence in report.answer.sentences
        )


@pytest.mark.parametrize("seeds", [1, 2, {"start": 3, "max": 5}])
@pytest.mark.parametrize("start", ["abcd1234", {"stage": {"training.steps": 2}}], ids=["one model", "a stage"])
@pytest.mark.parametrize("steps", [0, 2])
def test_only_seeds_that_would_all_be_the_same_are_refused(steps: int, start: object, seeds: object) -> None:
    changes = {"training": {**SPACE["training"], "steps": steps, "init_from": start}}
    design = {"kind": "leave_one_out", "seeds": seeds}
    if steps == 0 and isinstance(start, str) and seeds != 1:
        with pytest.raises(ValidationError, match="the same number at every seed"):
            space(**changes, design=design)
    else:
        assert space(**changes, design=design).training.steps == steps


def test_nothing_is_measured_of_random_weights() -> None:
    with pytest.raises(ValidationError, match="starts from random weights"):
        space(training={**SPACE["training"], "steps": 0})


def test_weights_that_have_changed_since_the_plan_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a stage are new by then; a file that several members start from is read once."""
    read = list[str]()
    made: Any = lambda place, folder: read.append(place) or SimpleNamespace(identity=lambda: place)  # noqa: E731
    monkeypatch.setattr(job_runner, "read_source", made)
    monkeypatch.setattr(job_runner, "transfer", lambda model, shape, source, start: source.identity())

    def member(identity: str, stage: Any = None) -> Any:
        start = SimpleNamespace(stage=stage, identity=identity) if identity else None
        return SimpleNamespace(variant=SimpleNamespace(model=None, training=SimpleNamespace(init_from=start)))

    runner, task = JobRunner(Path("cache"), torch.device("cpu")), cast(Any, SimpleNamespace(shape=None))
    job = cast(Any, SimpleNamespace(members=[SimpleNamespace(initial_weights=place) for place in ("a", "", "a", "b")]))
    members = [member("a"), member(""), member("of the plan", stage={}), member("b")]
    assert list(runner._starts(job, members, task)) == [(0, "a"), (2, "a"), (3, "b")]
    assert read == ["a", "b"]
    with pytest.raises(DataError, match="b: the weights have changed since the study was planned"):
        list(runner._starts(job, [*members[:3], member("c")], task))
