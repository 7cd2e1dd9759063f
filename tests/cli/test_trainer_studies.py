"""Studies that drive the user's trainer: killed, resumed, changed, pruned, tuned, and on Ray."""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from cli_runs import Finished, Workplace, eventually, wait_for
from own_trainers import SCRIPT, space, trainer, write_script
from ruamel.yaml import YAML

from ablate.spec.reading import load_space
from ablate.spec.space import TrainerSpace


@pytest.fixture
def own(place: Workplace) -> Workplace:
    write_script(place.folder)
    return place


def study(place: Workplace, *options: str, **changes: Any) -> tuple[str, ...]:
    """The command of a study over the script."""
    (place.folder / "own.yaml").write_text(json.dumps(space(**changes)))
    return ("study", "own.yaml", "--json", "--workers", "2", *options)


def counts(done: Finished) -> dict[str, int]:
    assert done.code in (0, 3), done.err
    return {name: done.last_object[name] for name in ("trials", "trained", "reused", "failed", "diverged", "pruned")}


def reasons(place: Workplace) -> list[str]:
    return [reason for (reason,) in place.rows("SELECT reason FROM trials WHERE state = 'failed' ORDER BY key")]


def commands(place: Workplace) -> list[psutil.Process]:
    """The trainers that run."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        if any(str(place.folder) in argument for argument in process.info["cmdline"] or ()):
            found.append(process)
    return found


def test_kills_lose_nothing_that_had_finished(own: Workplace) -> None:
    # Of 16 trials two run at once; each kill falls somewhere after the next one has finished, or before.
    numbers = random.Random(0)
    command = study(own, design={"kind": "leave_one_out", "seeds": 8})
    kept: dict[str, tuple[object, ...]] = {}
    for further in (1, 0, 1):
        goal, delay = len(kept) + further, 0.15 * numbers.random()
        driver = own.fork(*command)
        eventually(lambda goal=goal: len(own.trials("finished")) >= goal)
        time.sleep(delay)
        driver.kill()
        assert wait_for(driver).code == -signal.SIGKILL
        now = own.trials("finished")
        assert kept.items() <= now.items()
        kept = now
    assert 2 <= len(kept) < 16
    done = counts(wait_for(own.fork(*command)))
    assert done == {
        "trials": 16,
        "trained": 16 - len(kept),
        "reused": len(kept),
        "failed": 0,
        "diverged": 0,
        "pruned": 0,
    }
    assert kept.items() <= own.trials("finished").items()
    assert all(len(own.curve(key)) == 3 for key in own.trials("finished"))
    eventually(lambda: not commands(own))
    # A trainer alone, without ablate, gives the same numbers: no row was lost or mixed up.
    batches, noise = random.Random(7), random.Random("7 0.1 train")
    low = [1 / step + batches.gauss(0, 0.02) + noise.gauss(0, 0.002) for step in (1, 2, 3)][-1]
    values = [json.loads(found)["val_loss"] for (found,) in own.rows("SELECT metrics FROM trials WHERE seed = 7")]
    assert min(values) == pytest.approx(low, abs=1e-9)


def test_a_trial_that_loses_its_process_goes_on_from_its_checkpoint(own: Workplace) -> None:
    once = trainer(parameters={"does": "die_once", "lr": 0.1, "steps": 4})
    done = own.call(*study(own, trainer=once))
    assert counts(done) == {"trials": 4, "trained": 0, "reused": 0, "failed": 4, "diverged": 0, "pruned": 0}
    assert all(reason.startswith("its processes were killed") for reason in reasons(own))
    # What failed is tried again by the same command, from where the trainer had got to: step 2.
    done = own.call(*study(own, trainer=once))
    assert counts(done) == {"trials": 4, "trained": 4, "reused": 0, "failed": 0, "diverged": 0, "pruned": 0}
    assert all([step for step, *_ in own.curve(key)] == [3, 4] for key in own.trials("finished"))
    assert not list(own.store.with_suffix(".runs").glob("*/checkpoint"))


def test_failures_have_the_end_of_the_log_and_other_trials_go_on(own: Workplace) -> None:
    switches = {"does": {name: {"does": name} for name in ("train", "exit", "damage", "diverge")}}
    done = own.call(*study(own, switches=switches, design={"kind": "leave_one_out", "seeds": 1}))
    assert done.code == 3
    assert counts(done) == {"trials": 4, "trained": 1, "reused": 0, "failed": 2, "diverged": 1, "pruned": 0}
    said = "\n".join(sorted(reasons(own)))
    assert "it ended with exit code 1\nbegins\nValueError: the rate is too large" in said
    assert "its metrics file metrics.jsonl is damaged: line 2" in said


@pytest.mark.parametrize(
    ("baseline", "switches", "early"),
    [
        ("train", {"does": {"train": {}, "stop": {"does": "stop"}}}, ["does=stop"]),
        ("train", {"does": {"train": {}, "unmeasured": {"does": "unmeasured"}}}, ["does=unmeasured"]),
        ("stop", {"does": {"stop": {}, "train": {"does": "train"}}}, ["baseline"]),
        ("stop", {"rate": {"low": {}, "high": {"lr": 0.3}}}, ["baseline", "rate=high"]),
        ("train", {"steps": {"four": {}, "two": {"steps": 2}}}, []),
    ],
)
def test_a_result_of_an_earlier_step_is_not_compared_silently(
    own: Workplace, baseline: str, switches: dict[str, Any], early: list[str]
) -> None:
    """As that of a trainer that ends without an error before the others, or before it was asked to."""
    own.call(*study(own, trainer=trainer(parameters={"does": baseline, "lr": 0.1, "steps": 4}), switches=switches))
    shown = json.loads(own.call("show", "own", "--json").out)
    warned = [line for line in shown["answer"]["trust"] if line["key"] == "ended early"]
    assert [line["variants"] for line in warned] == ([early] if early else [])
    for line in warned:
        named = [f"{name} (seeds 0 and 1 measured at step 2 of 4)" for name in early]
        assert line["text"] == f"unequal training: {', '.join(named)}"
    rows = [row for group in shown["answer"]["groups"] for row in group["rows"]]
    assert [row["variant"] for row in rows if "measured at step 2 of 4" in row["warning"]] == [
        name for name in early if name != "baseline"
    ]


def test_a_changed_source_file_trains_again_and_says_so(own: Workplace) -> None:
    own.call(*study(own))
    write_script(own.folder, SCRIPT.replace("1 / step", "1.5 / step"))
    done = own.call(*study(own))
    assert counts(done)["trained"] == 4
    assert "4 trials were trained with another version of the file `train.py` (train.py: statements of the" in done.err
    write_script(own.folder, SCRIPT.replace("1 / step", "2 / step"))
    done = own.call(*study(own, "--accept-changed-code"))
    assert counts(done)["reused"] == 4


def test_a_changed_file_that_is_not_declared_is_a_warning(own: Workplace) -> None:
    (own.folder / "lib.py").write_text("x = 1")
    (own.folder / "own notes.py").write_text("x = 1")
    for command in ("init -q", "add lib.py", "-c user.name=a -c user.email=a@b commit -qm first"):
        assert own.shell(f"git {command}").code == 0
    (own.folder / "lib.py").write_text("x = 2")
    done = own.call(*study(own))
    assert "lib.py, own notes.py: changed since the last commit, and not among `trainer.sources`" in done.err
    assert "no change of its code is noticed" not in done.err
    through_a_shell = ["sh", "-c", "exec {python} train.py $0 {config}", "--seed={seed}"]
    (own.folder / "own.yaml").write_text(json.dumps(space(trainer=trainer(command=through_a_shell))))
    done = own.call("plan", "own.yaml")
    assert "`trainer.command` names no file here, so no change of its code is noticed" in " ".join(done.err.split())
    assert own.rows("SELECT json_extract(content, '$.git_clean') FROM environments") == [(0,)]


def test_a_file_that_changes_while_a_study_runs_is_noticed(own: Workplace) -> None:
    changes = SCRIPT + "\nPath('train.py').write_text(Path('train.py').read_text() + 'x = 1')\n"
    write_script(own.folder, changes)
    done = own.call(*study(own, "--workers", "1"))
    assert counts(done) == {"trials": 4, "trained": 1, "reused": 0, "failed": 3, "diverged": 0, "pruned": 0}
    assert "the code of the trial's kinds (train.py) is not that with which the study was planned" in reasons(own)[0]


def test_an_objective_that_is_not_measured_ends_the_study_with_the_first_trial(own: Workplace) -> None:
    done = own.call(*study(own, objective={"metric": "accuracy", "direction": "maximize", "margin": 0.1}))
    assert done.code == 2
    assert "does not measure this" in done.err
    assert "'accuracy'" in done.err


def test_tuning_claims_and_a_schedule_of_seeds(own: Workplace) -> None:
    claims = [
        {
            "id": "longer",
            "says": "Longer training is better.",
            "left": "longer=yes",
            "right": "baseline",
            "expect": "better",
            "margin": 0.05,
        }
    ]
    done = own.call(
        *study(
            own,
            switches={"longer": {"no": {}, "yes": {"steps": 30}}},
            tune={"lr": [0.1, 0.4], "seeds": 3},
            design={"kind": "leave_one_out", "seeds": {"start": 6, "max": 9}},
            claims=claims,
        )
    )
    assert counts(done)["failed"] == 0
    shown = json.loads(own.call("show", "own", "--json").out)
    (claim,) = shown["claims"]
    assert claim["verdict"] == "supported"
    assert own.rows("SELECT count(*) FROM trials WHERE seed >= 1000") == [(12,)]


WORST_WAITS = """
        ended = [float(rate) for rate in Path("ended").read_text().split()]
        if len(ended) > 1 and given.lr > max(ended):
            time.sleep((0, 1, 60)[step - 1])
        print(json.dumps(row)"""
"""A trial whose rate, and so its loss, is above those of two that have ended has a minute in which it may be pruned."""
SAYS_RATE = "with open('ended', 'a') as file:\n    print(given.lr, file=file)\n"


def test_pruners_watch_the_rows_as_they_come(own: Workplace) -> None:
    search = {
        "kind": "search",
        "sampler": "random",
        "seeds": 1,
        "points": 8,
        "batch": 2,
        "confirm": 0,
        "ranges": {"lr": {"low": 0.1, "high": 5.0}},
        "pruning": {"kind": "median", "finished": 2},
    }
    (own.folder / "ended").touch()
    write_script(own.folder, SCRIPT.replace("\n        print(json.dumps(row)", WORST_WAITS) + SAYS_RATE)
    done = counts(own.call(*study(own, design=search)))
    assert done["failed"] == 0
    assert done["pruned"] >= 1
    eventually(lambda: not commands(own))


def test_what_needs_a_model_is_refused_or_absent(own: Workplace) -> None:
    own.call(*study(own))
    for command in (("cost", "own.yaml"), ("data", "own.yaml"), ("plan", "own.yaml", "--on", "h100")):
        refused = own.call(*command)
        assert refused.code == 2
        assert "this needs a model and data that ablate knows, and this study runs a trainer of your own" in refused.err
    planned = json.loads(own.call("plan", "own.yaml", "--json").out)
    assert {(one["flops"], one["parameters"]) for one in planned["variants"]} == {(None, None)}
    assert {trial["flops"] for trial in planned["trials"]} == {None}
    for name in ("parameters", "FLOP"):
        assert name not in own.call("plan", "own.yaml").out
        assert name not in own.call("show", "own", "--table").out
    assert own.call("report", "own", "--format", "html", "--out", "report").code == 0
    assert own.call("show", "own", "--why", "rate=high").code == 0


def test_the_ready_trainer_goes_on_from_its_checkpoint_with_the_same_curve(own: Workplace) -> None:
    ready = Path(__file__).parents[2] / "spaces" / "trainers"
    plain = YAML(typ="safe").load((ready / "spirals.yaml").read_text())
    plain["trainer"]["command"][1] = str(ready / "spirals.py")
    plain |= {
        "design": {"kind": "leave_one_out", "seeds": 1},
        "switches": {"width": plain["switches"]["width"]},
        "claims": [],
    }
    plain["trainer"]["parameters"]["steps"] = 100
    (own.folder / "own.yaml").write_text(json.dumps(plain))
    command = ("study", "own.yaml", "--json", "--workers", "2")
    assert counts(own.call(*command))["trained"] == 2
    whole = {key: curve for key, (*_, curve) in ((key, (own.curve(key),)) for key in own.trials("finished"))}
    own.store.unlink()
    for runs in own.store.with_suffix(".runs").iterdir():  # as if each had been killed after 50 steps
        made = runs / "checkpoint"
        made.mkdir()
        arguments = json.loads((runs / "config.json").read_text())
        given = [f"--{name}={value}" for name, value in arguments.items()]
        half = (
            (ready / "spirals.py")
            .read_text()
            .replace("if step % (given", "if step == 51: break\n        if step % (given")
        )
        subprocess.run([sys.executable, "-c", half, *given, f"--out={made}", f"--checkpoint={made}"], check=True)
        assert len((made / "metrics.jsonl").read_text().splitlines()) == 5
    assert counts(own.call(*command))["trained"] == 2
    assert {key: own.curve(key) for key in own.trials("finished")} == whole


@pytest.mark.parametrize("name", ["spirals", "digits", "finetune"])
def test_a_ready_trainer_is_planned(own: Workplace, name: str) -> None:
    """Its script and the parameters that the script takes are those of the space."""
    shutil.copytree(Path(__file__).parents[2] / "spaces" / "trainers", own.folder / "spaces" / "trainers")
    space = load_space(own.folder / "spaces" / "trainers" / f"{name}.yaml")
    assert isinstance(space, TrainerSpace)
    script = (own.folder / "spaces" / "trainers" / f"{name}.py").read_text()
    assert all(parameter in script for parameter in space.trainer.parameters)
    assert own.call("plan", f"spaces/trainers/{name}.yaml", "--json").code == 0


def test_an_objective_whose_last_value_is_not_finite_has_diverged(own: Workplace) -> None:
    """Whatever its name: the value before is no result."""
    write_script(own.folder, SCRIPT.replace('"train_loss": loss + 0.1, "val_loss": loss', '"score": -loss'))
    changed = trainer(parameters={"does": "diverge", "lr": 0.1, "steps": 2})
    switches = {"does": {"diverge": {}, "train": {"does": "train"}}}
    objective = {"metric": "score", "direction": "maximize", "margin": 0.1}
    done = own.call(*study(own, trainer=changed, switches=switches, objective=objective))
    assert counts(done) == {"trials": 4, "trained": 2, "reused": 0, "failed": 0, "diverged": 2, "pruned": 0}
    reasons = own.rows("SELECT DISTINCT reason FROM trials WHERE state = 'diverged'")
    assert reasons == [("`score` was nan at step 2",)]
