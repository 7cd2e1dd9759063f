"""Spaces with several tasks: what they say, what they refuse, and that their trials are those of single tasks."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from ablate.errors import SpaceError
from ablate.planning.planner import Planner, _check_scale, make_plan
from ablate.spec.sentences import describe
from ablate.spec.space import SpaceSpec

RECALL = {"kind": "recall", "context": 24, "pairs": 4, "symbols": 32, "validation_rows": 64}
COPY = {"kind": "copy", "span": 8}
PLAIN: dict[str, Any] = {
    "name": "a_suite",
    "question": "Which mixers recall and copy?",
    "tasks": {"recall": RECALL, "copy": {"task": COPY, "training.steps": 30}},
    "model": {"family": "decoder", "depth": 1, "width": 16, "heads": 2, "block": "pre_ln"},
    "training": {"steps": 20, "batch_size": 8, "optimizer": {"kind": "adamw", "lr": 1e-3}},
    "switches": {"mixer": {"attention": {}, "linear": {"block.mixer": "linear"}}},
    "design": {"kind": "leave_one_out", "seeds": 2},
    "objective": {"metric": "val_accuracy", "direction": "maximize", "margin": 0.05},
    "aggregate": {"margin": 0.05},
}


def plan_keys(plain: dict[str, Any], cache: Path) -> dict[str, list[str]]:
    plan = make_plan(Planner(SpaceSpec.model_validate(plain), cache, lambda line: None))
    keys: dict[str, list[str]] = {}
    for trial in plan.trials:
        keys.setdefault(trial.variant.name, []).append(trial.key)
    return keys


def test_trials_are_those_of_a_space_with_this_task_alone(tmp_path: Path) -> None:
    tuned = {"training.optimizer.lr": {"baseline": 1e-3, "mixer=linear": 2e-3, "mixer=linear@task=copy": 3e-3}}
    suite = plan_keys({**PLAIN, "tuned": tuned}, tmp_path)
    alone = {name: value for name, value in PLAIN.items() if name not in ("tasks", "aggregate")}
    rates = {"recall": 2e-3, "copy": 3e-3}
    single: dict[str, list[str]] = {}
    for task, spec in {"recall": RECALL, "copy": COPY}.items():
        training = {**PLAIN["training"], "steps": 30 if task == "copy" else 20}
        of_task = {"training.optimizer.lr": {"baseline": 1e-3, "mixer=linear": rates[task]}}
        keys = plan_keys({**alone, "task": spec, "training": training, "tuned": of_task}, tmp_path)
        single |= {f"{name}@task={task}": of for name, of in keys.items()}
    assert suite == single
    assert len({key for keys in suite.values() for key in keys}) == 8


def test_stored_space_is_the_same_space() -> None:
    claim = {"id": "a", "task": "copy", "left": "mixer=linear", "right": "baseline", "expect": "worse", "margin": 0.1}
    space = SpaceSpec.model_validate({**PLAIN, "claims": [claim]})
    stored = space.model_dump(mode="json")
    assert "task" not in stored
    assert stored["tasks"]["recall"] == {"task": RECALL}
    assert SpaceSpec.model_validate(stored) == space


REFUSED = {
    "no aggregate": ({"aggregate": None}, "tasks", "declares the smallest difference of its mean score"),
    "task and tasks": ({"task": RECALL}, "tasks", "either `task` or `tasks`"),
    "one task": ({"tasks": {"recall": RECALL}}, "tasks", "at least two tasks"),
    "no task": ({"tasks": {"recall": 3, "copy": COPY}}, "tasks.recall", "a task is a mapping with `kind`"),
    "first": ({"tasks": {"recall": {**RECALL, "pears": 2}, "copy": COPY}}, "tasks.recall.task.pears", "no key `pears`"),
    "second": ({"tasks": {"copy": COPY, "recall": {**RECALL, "pears": 2}}}, "tasks.recall", "no key `pears`"),
    "path": ({"tasks": {"copy": COPY, "recall": {"task": RECALL, "steps": 3}}}, "tasks.recall.steps", "a path starts"),
    "family": ({"tasks": {"copy": COPY, "lists": {"kind": "listops"}}}, "tasks.lists", "needs the family encoder"),
    "metric": ({"objective": {**PLAIN["objective"], "metric": "val_f1"}}, "objective.metric", "no metric `val_f1`"),
    "perfect": (
        {"objective": {"metric": "val_loss", "direction": "minimize", "margin": 0.1}},
        "aggregate",
        "best value of `val_loss` is not known",
    ),
    "adaptive": ({"design": {"kind": "simplify", "seeds": 2}}, "design.kind", "follows one objective"),
    "schedule": ({"design": {"kind": "leave_one_out", "seeds": {"start": 2, "max": 4}}}, "design.seeds", "adds seeds"),
    "tune": ({"tune": {"training.optimizer.lr": [1e-3, 2e-3]}}, "tune", "Tune in a study of its own"),
    "budgets": ({"budgets": [1, 2]}, "budgets", "lengths of one task"),
    "match": ({"match": "flops"}, "match", "one baseline"),
    "timing": ({"timing": True}, "timing", "timed on one task"),
    "a switch of a task": (
        {"switches": {"pairs": {"4": {}, "8": {"task.pairs": 8}}}},
        "tasks",
        "the switch `pairs` sets `task.pairs`",
    ),
    "set twice": (
        {"switches": {"steps": {"a": {}, "b": {"training.steps": 8}}}},
        "tasks.copy.training.steps",
        "the switch `steps` sets",
    ),
    "untuned": ({"tuned": {"training.optimizer.lr": {"baseline": 1e-3}}}, "tuned.training.optimizer.lr", "no value"),
    "claim": (
        {"claims": [{"id": "a", "task": "recal", "left": "mixer=linear", "right": "baseline", "expect": "worse",
                     "margin": 1}]},
        "claims.0.task",
        "no task `recal`",
    ),
    "variant on one task": (
        {"switches": {"positions": {"learnt": {"model.positions": "learned"}, "turned": {"model.positions": "rotary"}}},
         "tasks": {"recall": RECALL, "copy": {"task": COPY, "model.heads": 16}}},
        "tasks.copy",
        "`positions=turned` cannot be trained on it",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("changed", "where", "said"), REFUSED.values(), ids=REFUSED)
def test_refusals_say_where_and_why(changed: dict[str, Any], where: str, said: str) -> None:
    with pytest.raises(ValidationError) as refused:
        SpaceSpec.model_validate({**PLAIN, **changed})
    path, sentence = describe(refused.value)[0]
    assert ".".join(map(str, path)) == where
    assert said in sentence


def test_scores_need_a_trivial_baseline_below_the_perfect_value(tmp_path: Path) -> None:
    space = SpaceSpec.model_validate({**PLAIN, "aggregate": {"margin": 0.05, "trivial": {"copy": 1.0}}})
    planner = Planner(space, tmp_path, lambda line: None)
    sane = Planner(SpaceSpec.model_validate(PLAIN), tmp_path, lambda line: None)
    baselines = [one for one in make_plan(sane).variants if one.name.startswith("baseline")]
    assert {name.partition("@task=")[2] for name in sane.trivial(baselines)} == {"recall", "copy"}
    with pytest.raises(SpaceError, match=r"accuracy 1 of the trivial baseline, and 1\.0 as perfect"):
        planner.trivial(make_plan(planner).variants)
    for best, accepted in ((0.9, True), (1.0, False)):  # of two trivial baselines the better one counts
        with nullcontext() if accepted else pytest.raises(SpaceError, match="perfect already"):
            _check_scale(sane.space, "recall", {"a": {"val_accuracy": 0.2}, "b": {"val_accuracy": best}})


def test_a_variant_that_one_task_makes_another_is_refused_as_its_mean_would_lack_that_task(tmp_path: Path) -> None:
    same = {**PLAIN, "tasks": {"copy": COPY, "again": {"task": COPY}}}
    with pytest.raises(SpaceError, match="the tasks `again` and `copy` are the same"):
        plan_keys(same, tmp_path)
    fixed = {"task": COPY, "model.exceptions": {"0": {"mixer": "linear"}}}
    with pytest.raises(SpaceError, match=r"on the task `fixed` the variant mixer=linear is the same as baseline"):
        plan_keys({**PLAIN, "tasks": {"recall": RECALL, "fixed": fixed}}, tmp_path)
    # Each task ignores one of two parts, so that `both` is another variant on each of them.
    parts = {"a": ("attention", 1), "b": ("linear", 2), "c": ("retention", 3), "both": ("linear", 3)}
    switches = {"parts": {name: {"block.mixer": mixer, "block.mlp.ratio": n} for name, (mixer, n) in parts.items()}}
    tasks = {
        "mixes": {"task": RECALL, "model.exceptions": {"0": {"mlp": "gated"}}},
        "maps": {"task": COPY, "model.exceptions": {"0": {"mixer": "attention"}}},
    }
    with pytest.raises(SpaceError, match=r"the variant parts=both is the same as parts=\w, and on others it is not"):
        plan_keys({**PLAIN, "switches": switches, "tasks": tasks}, tmp_path)
