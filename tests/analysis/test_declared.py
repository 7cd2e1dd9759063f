"""The answer reports margins that were changed, and claims that were added, after results could be seen."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from fake_store import NOON, FakeStore, fake_store

from ablate.analysis.declarations import (
    LEFT_OUT,
    NAMED_BY_USERS,
    DeclaredChange,
    Redeclaration,
    declared_otherwise,
    redeclarations,
    seed_sets_read,
)
from ablate.analysis.report import StudyReport
from ablate.analysis.study import _may_have_budgets, read_study
from ablate.plugins import FAMILIES
from ablate.render.as_json import study_json
from ablate.roles import TrialRole
from ablate.spec.base import Spec
from ablate.spec.space import SpaceSpec
from ablate.spec.space_fields import ResourcesSpec
from ablate.store.records import Declaration, DesignTraits, PlannedTrial, SharedTrials, TrialState


def test_changed_declarations_are_reported_with_the_answer() -> None:
    store = fake_store({"baseline": ({}, 10), "a=x": ({}, 10)}, seeds=2, margin=0.0001)
    now = store.record.objective
    assert not any("Until" in sentence for sentence in read_study(store, "a_study").answer.sentences)
    store.record = replace(
        store.record,
        declared_before=(
            Declaration({**now, "margin": 0.05}, [], NOON, 15),
            Declaration({**now, "margin": 0.05, "metric": "accuracy"}, ["a claim"], NOON + timedelta(hours=1), 1),
            Declaration({**now, "margin": 0.04, "metric": "accuracy"}, ["a claim"], NOON + timedelta(hours=2), 2),
        ),
    )
    report = read_study(store, "a_study")
    first, second, third = [sentence for sentence in report.answer.sentences if "Until" in sentence]
    (claims,) = [change for change in report.evidence.redeclared[0].changes if change.path == "claims"]
    assert (claims.before, claims.after) == ([], ["a claim"])
    assert first.startswith(f"Until {NOON:%Y-%m-%d %H:%M} UTC, when 15 trials had finished, the metric was val_loss ")
    assert " and there were no claims. " in first
    assert "the margin was" not in first, "the next declaration kept it"
    assert "when 1 trial had finished, the margin was 0.05. " in second
    assert all(part in third for part in ("metric was accuracy", "margin was 0.04", " and the claims were different. "))


TRAINING = {"steps": 200, "optimizer": {"kind": "adamw", "lr": 0.1}}
SPACE = {
    "design": {"kind": "leave_one_out", "seeds": 3, "first_seed": 0},
    "training": TRAINING,
    "switches": {"a": {"on": {}, "x": {"model.width": 8}}},
}


def redeclared(before: dict[str, Any], after: dict[str, Any], **seen: Any) -> FakeStore:
    """Three seeds of two variants, for which something else was declared until results had been seen."""
    store = fake_store({"baseline": ({}, 10), "a=x": ({}, 10)}, seeds=3, margin=0.1)
    for seed, value in enumerate((0.0, 0.001, 0.002)):
        store.add("baseline", seed, {"val_loss": 3.0})
        store.add("a=x", seed, {"val_loss": 3.0 + value})
    facts = {"variants": {"baseline": 3, "a=x": 3}, "pairs": 3, **seen}
    old = Declaration(store.record.objective, [], NOON, 6, 3, space={**SPACE, **before}, **facts)
    variants = tuple(replace(one, spec={"training": SPACE["training"]}) for one in store.record.variants)
    store.record = replace(store.record, space={**SPACE, **after}, declared_before=(old,), variants=variants)
    return store


LR = "training.optimizer.lr"


def tuning(seeds: int = 2, **grid: list[Any]) -> dict[str, Any]:
    return {"tune": {"grid": {name.replace("lr", LR): values for name, values in grid.items()}, "seeds": seeds}}


@pytest.mark.parametrize(
    ("before", "after", "path", "was", "now", "words"),
    [
        ({"training": {**TRAINING, "steps": 100}}, {}, "training.steps", 100, 200, "`training.steps` was 100"),
        ({"training": {"steps": 200, "optimizer": {"kind": "lion", "lr": 0.2}}}, {}, "training.optimizer",
         {"kind": "lion", "lr": 0.2}, TRAINING["optimizer"], "`training.optimizer` was lion"),
        (tuning(lr=[0.1, 0.2]), tuning(lr=[0.1, 0.2, 0.4]), f"tune.grid.{LR}", [0.1, 0.2], [0.1, 0.2, 0.4],
         f"`{LR}` was tuned over 0.1, 0.2"),
        ({}, tuning(lr=[0.1, 0.2]), "tune", None, tuning(lr=[0.1, 0.2])["tune"], "nothing was tuned"),
        (tuning(lr=[0.1, 0.2]), {}, f"tune.grid.{LR}", [0.1, 0.2], None, f"`{LR}` was tuned over 0.1, 0.2"),
        (tuning(lr=[0.1, 0.2]), tuning(lr=[0.1, 0.2], **{"training.steps": [9, 99]}), "tune.grid.training.steps", None,
         [9, 99], "`training.steps` was not tuned"),
        (tuning(2, lr=[0.1]), tuning(3, lr=[0.1]), "tune.seeds", 2, 3, "each value was tuned with 2 seeds"),
        (tuning(1, lr=[0.1]), tuning(3, lr=[0.1]), "tune.seeds", 1, 3, "each value was tuned with 1 seed"),
        ({"design": {"kind": "grid", "seeds": 2, "resolution": "V"}}, {}, "design.kind", "grid", "leave_one_out",
         "the design was grid"),
        ({"design": {**SPACE["design"], "seeds": 2}}, {}, "design.seeds", 2, 3, ""),
        ({"switches": {"a": {"on": {}, "x": {"model.width": 4}, "y": {}}, "b": {"on": {}}}}, {}, "switches.a.x",
         {"model.width": 4}, {"model.width": 8}, "`a=x` set other values"),
        ({"model": {"exceptions": {"1": {"mixer": "fnet"}}}}, {"model": {"exceptions": {}}}, "model.exceptions.1",
         {"mixer": "fnet"}, None, "`model.exceptions.1` was different"),
        ({"model": {"exceptions": {}}}, {"model": {"exceptions": {"-1": {"mlp": "none"}}}}, "model.exceptions.-1",
         None, {"mlp": "none"}, "`model.exceptions.-1` was not set"),
        ({"task": {"kind": "language_mixture", "sources": {"a": {"share": 1}, "b": {"share": 1}}}},
         {"task": {"kind": "language_mixture", "sources": {"a": {"share": 1}}}}, "task.sources.b", {"share": 1}, None,
         "`task.sources.b` was different"),
        ({}, {"training": {**TRAINING, "freeze": ["model.embedding"]}}, "training.freeze", None, ["model.embedding"],
         "`training.freeze` was not set"),
        ({"training": {**TRAINING, "schedule": {"kind": "cosine", "warmup_steps": 9}}},
         {"training": {**TRAINING, "schedule": {"kind": "cosine"}}}, "training.schedule.warmup_steps", 9, None,
         "`training.schedule.warmup_steps` was 9"),
        ({"training": {**TRAINING, "init_from": {"stage": {"model.width": 4}}}},
         {"training": {**TRAINING, "init_from": {"stage": {"model.width": 4, "training.steps": 9}}}},
         "training.init_from.stage.training.steps", None, 9, "`training.init_from.stage.training.steps` was not set"),
        ({"tuned": {LR: {"baseline": 0.1}}}, {"tuned": {LR: {"baseline": 0.2}}}, "tuned", {LR: {"baseline": 0.1}},
         {LR: {"baseline": 0.2}}, "`tuned` was different"),
        ({"tuned": None}, {"tuned": {LR: {"baseline": 0.2}}}, "tuned", {}, {LR: {"baseline": 0.2}},
         "`tuned` was not set"),
        ({"variants": {"both": {"a": "x"}, "gone": {}}}, {"variants": {"both": {"a": "x", "b": "y"}}}, "variants.both",
         {"a": "x"}, {"a": "x", "b": "y"}, "`both` set other values"),
        ({"trainer": {"command": ["train"], "parameters": {"lr": {"default": 0.1}}}},
         {"trainer": {"command": ["train"], "parameters": {"lr": {"default": 0.2}}}}, "trainer.parameters.lr.default",
         0.1, 0.2, "`trainer.parameters.lr.default` was 0.1"),
        ({"tasks": {"recall": {"pairs": 4}}}, {}, "tasks", {"recall": {"pairs": 4}}, None, "`tasks` was different"),
        ({"aggregate": {"margin": 0.05}}, {}, "aggregate", {"margin": 0.05}, None, "`aggregate` was different"),
        ({"design": {"kind": "ladder", "rungs": [{"model.width": 8}]}},
         {"design": {"kind": "ladder", "rungs": [{"model.width": 16}]}}, "design.rungs", [{"model.width": 8}],
         [{"model.width": 16}], "`design.rungs` was {'model.width': 8}"),
        ({"match": {"equal": "tokens"}}, {}, "match", {"equal": "tokens"}, None, "`match` was different"),
        ({}, {"training": {**TRAINING, "evaluate_at": {"task.span": [8, 16]}}}, "training.evaluate_at", None,
         {"task.span": [8, 16]}, "`training.evaluate_at` was not set"),
        ({"budgets": [1, 2]}, {}, "budgets", [1, 2], None, "`budgets` was 1, 2"),
        ({"model": {"note": "n" * 40}}, {"model": {"note": ""}}, "model.note", "n" * 40, "",
         f"`model.note` was {'n' * 40}"),
        ({"model": {"note": "n" * 41}}, {"model": {"note": ""}}, "model.note", "n" * 41, "",
         "`model.note` was different"),
        ({"design": {**SPACE["design"], "first_seed": 4}}, {}, "design.first_seed", 4, 0, "`design.first_seed` was 4"),
    ],
)  # fmt: skip
def test_every_part_of_a_declaration_that_changed_after_results_is_named(
    before: dict[str, Any], after: dict[str, Any], path: str, was: object, now: object, words: str
) -> None:
    report = read_study(redeclared(before, after), "a_study")
    (made,) = report.evidence.redeclared
    assert made == Redeclaration(NOON, 6, (DeclaredChange(path, was, now, words),), {})
    said = [one for one in report.answer.warning_sentences if f"6 trials had finished, {words}. Results that" in one]
    assert len(said) == bool(words), "what added seeds cost is said elsewhere"


def specs_below(base: type[Spec]) -> Iterator[type[Spec]]:
    for one in base.__subclasses__():
        yield one
        yield from specs_below(one)


def test_every_field_that_may_be_absent_in_a_declared_space_is_known() -> None:
    """An absent key means its default, or that the user has no such name: to add it later is a change."""
    for family in FAMILIES.values():
        family.members()
    whole = (
        SpaceSpec.__module__,
        *(f"ablate.{name}" for name in ("designs", "spec.fairness", "spec.named", "tables")),
    )
    parts = [one for one in specs_below(Spec) if one.__module__.startswith("ablate.") and one is not ResourcesSpec]
    fields = [pair for one in parts if not one.__module__.startswith(whole) for pair in one.model_fields.items()]
    assert {name for name, field in fields if field.exclude_if is not None} == LEFT_OUT
    maps = {name for name, field in fields if re.search(r"(?<!tuple\[)dict\[", str(field.annotation))}
    assert maps == NAMED_BY_USERS


def test_what_a_newer_version_of_a_space_adds_and_texts_are_no_change() -> None:
    after = {
        "training": {**SPACE["training"], "a_new_field": 1},
        "switches": {"a": {"removes": "a part", "on": {}, "x": {"model.width": 8, "removes": "it"}}},
        "variants": {"all": {"a": "x", "replaces": "all by x"}},
    }
    before = {"variants": {"all": {"a": "x"}}, "budgets": [], "match": {}, "design": {**SPACE["design"], "confirm": 3}}
    made = redeclared(before, after)
    claims = [{"id": "c", "expect": "better", **text} for text in ({"says": "so"}, {"source": "a paper"})]
    new = replace(made.record.variants[1], name="found", chosen=True)
    made.record = replace(
        made.record,
        space=made.record.space | {"claims": claims[1:]},
        variants=(*made.record.variants, new),
        declared_before=(replace(made.record.declared_before[0], claims=claims[:1]),),
    )
    assert redeclarations(made.record) == ()
    older = replace(made.record.declared_before[0], space={}, variants={"another": 2})
    assert redeclarations(replace(made.record, declared_before=(older,))) == (), "an older version kept no space"


def test_trials_of_other_code_or_data_are_a_declaration_too() -> None:
    answer = read_study(redeclared({}, {}, other_code=4, other_data=1), "a_study").answer
    (said,) = [sentence for sentence in answer.warning_sentences if "Until" in sentence]
    assert "4 trials had been trained with other code and 1 trial had been trained with other data. " in said


def test_a_variant_that_was_dropped_after_results_is_named_and_stays_in_the_family() -> None:
    kept = redeclared({}, {})
    report = read_study(kept, "a_study")
    assert report.answer.together == {"a=x"}
    verdict = report.variants[1].verdict
    assert verdict is not None
    others = {f"b={number}": 2 for number in range(int(0.05 / verdict.p_not_needed) + 1)}
    once = {"baseline": 3, "a=x": 3, **dict.fromkeys(others, 1)}
    together = read_study(redeclared({}, {}, variants=once), "a_study").answer.together
    assert together == {"a=x"}, "one pair is not a comparison"
    dropped = read_study(redeclared({}, {}, variants={"baseline": 3, "a=x": 3, **others}), "a_study")
    assert dropped.evidence.redeclared[0].dropped == others
    assert any(
        "b=0 (2 trials finished)" in sentence and "compared too" in sentence
        for sentence in dropped.answer.warning_sentences
    )
    assert dropped.answer.together == frozenset(), (
        "ten were tested, so that one of them holds only if it holds among ten"
    )


@pytest.mark.parametrize("count", [1, 2])
def test_what_was_compared_before_is_told_in_the_number_that_it_has(count: int) -> None:
    seen = {"baseline": 3, "a=x": 3} | dict.fromkeys(("b=x", "c=x")[:count], 2)
    (made,) = redeclarations(redeclared({}, {}, variants=seen).record)
    names = ("b=x (2 trials finished) was", "b=x (2 trials finished) and c=x (2 trials finished) were")
    assert [change.words for change in made.changes] == [f"{names[count - 1]} compared too"]


@pytest.mark.parametrize(
    ("firsts", "pairs", "said"),
    [((4,), 2, "2 sets of seeds were read one after the other (from seed 4 and 0 on). Each has the whole error rate of "
      "5 %: a verdict that came out of any of them is wrong in up to 10 % of cases."),
     ((4,), 1, ""), ((4,), None, ""), ((None,), 3, ""), ((0,), 3, ""),
     (range(21, 0, -1), 3, "22 sets of seeds were read one after the other (from seed 21, 20, 19, 18, 17, 16, 15, 14 "
      "and 14 others on). Each has the whole error rate of 5 %: a verdict that came out of any of them is wrong in up "
      "to 100 % of cases.")],
)  # fmt: skip
def test_several_sets_of_seeds_are_counted(firsts: Iterable[int | None], pairs: int | None, said: str) -> None:
    store = redeclared({}, {})
    (before,) = store.record.declared_before
    designs = ({"kind": "grid"} | ({} if first is None else {"first_seed": first}) for first in firsts)
    earlier = tuple(replace(before, space={"design": design}, pairs=pairs) for design in designs)
    assert "".join(seed_sets_read(replace(store.record, declared_before=earlier))) == said


def confirmed(fresh: list[float], *, confirm: int, seen: int) -> StudyReport:
    """A chosen variant on fresh seeds, of which a number was declared first and had been seen."""
    store = redeclared({}, {}, confirm=confirm, confirmed=seen)
    trials = tuple(
        PlannedTrial(f"{name}/{3000 + seed}", name, 3000 + seed, TrialRole.CONFIRMATION)
        for name in ("baseline", "a=x")
        for seed in range(len(fresh))
    )
    variants = tuple(replace(one, chosen=one.name == "a=x") for one in store.record.variants)
    store.record = replace(store.record, confirm_trials=trials, variants=variants)
    for seed, value in enumerate(fresh):
        store.add("baseline", 3000 + seed, {"val_loss": 3.0})
        store.add("a=x", 3000 + seed, {"val_loss": 3.0 + value})
    return read_study(store, "a_study")


def test_fresh_seeds_that_are_added_when_some_were_seen_spend_error_as_others_do() -> None:
    row = [0.0, 0.12, 0.06, 0.0, 0.06, 0.02, 0.04]  # all seven decide at 5 %, the first three do not
    at_once = confirmed(row, confirm=7, seen=3)
    assert at_once.variants[1].verdict is not None
    assert at_once.variants[1].verdict.word == "not needed"
    raised = confirmed(row, confirm=3, seen=3)
    assert raised.variants[1].verdict is not None
    assert raised.variants[1].verdict.word == "undecided"
    assert any(one.startswith("The number of fresh seeds was changed") for one in raised.answer.warning_sentences)
    for seen in (0, 1):  # no verdict of fewer than two pairs could be seen
        unseen = confirmed(row, confirm=3, seen=seen)
        assert unseen.variants[1].verdict == at_once.variants[1].verdict
    for seen in range(4):
        changes = [change for one in confirmed(row, confirm=3, seen=seen).evidence.redeclared for change in one.changes]
        assert ("design.confirm" in [change.path for change in changes]) == (seen > 1)


def test_the_same_trials_under_another_name_and_many_studies_are_said_beside_a_verdict() -> None:
    store = redeclared({}, {})
    record, planned = store.record, [PlannedTrial(f"b=x/{seed}", "b=x", seed) for seed in range(3)]
    store.record = replace(
        record,
        declared_before=(),
        shared=(SharedTrials("first", ("a=x",)),),
        studies=24,
        variants=(*record.variants, replace(record.variants[1], name="b=x", hash="hash of b=x")),
        planned=(*record.planned, *planned),
    )
    for seed in range(3):
        store.add("b=x", seed, {"val_loss": 3.1 + 0.1 * (-1) ** seed})
    assert [row.verdict_word for row in read_study(store, "a_study").variants[1:]] == ["not needed", "undecided"]
    answer = read_study(store, "a_study").answer.sentences
    assert any("The trials of a=x and of the baseline were compared before in the study `first`." in one and
               "of any of these 2 readings is wrong in up to 10 % of cases" in one for one in answer)  # fmt: skip
    assert any("This store holds 24 studies with results." in one and "up to 71 %." in one for one in answer)
    store.add("a=x", 1, state=TrialState.RUNNING)
    assert not any("studies with results" in one for one in read_study(store, "a_study").answer.sentences), (
        "no verdict to doubt"
    )


def test_json_has_what_was_declared_otherwise() -> None:
    plain = study_json(read_study(redeclared({"budgets": [1, 2]}, {}), "a_study"))["redeclared"]
    assert [(one["finished"], one["dropped"]) for one in plain] == [(6, {})]
    assert plain[0]["changes"] == [{"path": "budgets", "before": [1, 2], "after": None}]
    assert json.loads(json.dumps(plain)) == plain


def test_trials_of_another_version_of_a_kind_are_counted_by_what_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    store = redeclared({}, {})
    kinds = {code: {"kinds": {"mlp mine": {"file": "mine.py", "modules": {}}}} for code in ("new", "old")}
    kinds["old"]["kinds"] = {}
    monkeypatch.setattr(store, "codes", lambda identities: {one: kinds[one] for one in identities})
    store.record = replace(store.record, planned=tuple(replace(one, code="new") for one in store.record.planned))
    for key, trial in store.trial_records.items():
        store.trial_records[key] = replace(trial, code="new" if trial.seed == 2 else "old")
    (said,) = [one for one in read_study(store, "a_study").answer.warning_sentences if "--accept-changed-code" in one]
    assert said.startswith("4 trials were trained with another version of the kind `mine` (mine.py; a user defines it")
    del store.trial_records["baseline/0"], store.trial_records["a=x/0"], store.trial_records["a=x/1"]
    (said,) = [one for one in read_study(store, "a_study").answer.warning_sentences if "--accept-changed-code" in one]
    assert said.startswith("1 trial was trained with")


@pytest.mark.parametrize(
    ("traits", "space", "may"),
    [
        ({}, {}, True),
        ({"plans_points": False}, {}, False),
        ({"sets_values": True}, {}, False),
        ({}, {"budgets": [1, 2]}, False),
        ({}, {"match": {"equal": "parameters"}}, True),
        ({}, {"match": {"equal": "tokens"}}, False),
    ],
)
def test_longer_training_is_advised_where_a_space_could_have_it(
    traits: dict[str, bool], space: dict[str, Any], may: bool
) -> None:
    record = replace(fake_store({"baseline": ({}, 10)}).record, space=space, traits=DesignTraits(**traits))
    assert _may_have_budgets(record) == may


def test_a_variant_that_was_not_compared_before_its_results_is_named() -> None:
    (made,) = redeclarations(redeclared({}, {}, variants={"baseline": 3}).record)
    assert [(change.path, change.after, change.words) for change in made.changes] == [
        ("variants", ["a=x"], "a=x was not compared yet")
    ]
    assert redeclarations(redeclared({}, {}, variants={}).record) == (), "an older version did not say"


@pytest.mark.parametrize(("count", "more"), [(6, ""), (7, " and 1 more setting was different")])
def test_a_sentence_names_six_changes_at_most(count: int, more: str) -> None:
    changes = [DeclaredChange(f"{number}", None, None, f"`{number}` was 1") for number in range(count)]
    silent = DeclaredChange("design.seeds", 3, 4, "")
    made = [Redeclaration(NOON, 1, (silent,), {}), Redeclaration(NOON, 1, (silent, *changes), {})]
    (said,) = declared_otherwise(made)
    assert said.startswith("Until 2024-05-17 12:00 UTC, when 1 trial had finished, `0` was 1 and `1` was 1 and ")
    assert f"`5` was 1{more}. Results that" in said
