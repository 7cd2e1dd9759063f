"""A suite: the mean score against plain arithmetic and scipy, Holm over variants and tasks, and what is lost."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from fake_store import NOON, FakeStore, fake_store
from scipy import stats

from ablate.analysis.answer import answer_of
from ablate.analysis.columns import columns, varied_cells
from ablate.analysis.headline import MOST_NAMED
from ablate.analysis.report import StudyReport
from ablate.analysis.study import read_study
from ablate.analysis.suite import on_task, reader_of, scales_of, tasks_of
from ablate.analysis.trivial import Scale
from ablate.errors import NotFoundError
from ablate.render.answer import answer_text
from ablate.render.figures.profile import matrix
from ablate.store.records import Declaration, DeclaredObjective, SharedTrials, TrialState

TRIVIAL = {"recall": 0.25, "copy": 0.5, "parity": 0.5}
MARGIN = 0.05
Values = Mapping[str, Mapping[str, Sequence[float]]]
"""Variant to task to accuracy by seed."""


def suite(
    values: Values, claims: Sequence[Mapping[str, object]] = (), seeds: int = 3, metric: str = "val_accuracy"
) -> FakeStore:
    """A suite by accuracy, or by the share that is wrong as the metric `val_error`."""
    sign, tasks = 1 if metric == "val_accuracy" else -1, list(next(iter(values.values())))
    store = fake_store(
        {
            f"{variant}@task={task}": ({"task": task, "mixer": variant}, 100 + 15 * place)
            for variant in values
            for place, task in enumerate(tasks)
        },
        seeds,
        metric=metric,
        direction="maximize" if sign > 0 else "minimize",
        margin=MARGIN,
    )
    space = {
        "tasks": {task: {"task": {"kind": task}} for task in tasks},
        "aggregate": {"margin": MARGIN, "perfect": float(sign > 0)},
        "design": {"kind": "leave_one_out", "seeds": seeds},
        "switches": {
            "mixer": {name: {"replaces": f"attention by {name}"} if name != "baseline" else {} for name in values}
        },
        "claims": list(claims),
    }
    trivial = {f"guessing@task={task}": {metric: (sign < 0) + sign * TRIVIAL.get(task, 0.5)} for task in tasks}
    store.record = type(store.record)(
        **{name: getattr(store.record, name) for name in store.record.__slots__} | {"space": space, "trivial": trivial}
    )
    for variant, of in values.items():
        for task, by_seed in of.items():
            for seed, value in enumerate(by_seed):
                store.add(f"{variant}@task={task}", seed, {metric: (sign < 0) + sign * value})
    return store


def drawn(rng: np.random.Generator, means: Mapping[str, Mapping[str, float]], seeds: int = 3) -> Values:
    return {
        variant: {task: (mean + rng.normal(0, 0.01, seeds)).tolist() for task, mean in of.items()}
        for variant, of in means.items()
    }


MEANS = {
    "baseline": {"recall": 0.9, "copy": 0.95, "parity": 0.55},
    "linear": {"recall": 0.4, "copy": 0.94, "parity": 0.56},
    "delta": {"recall": 0.91, "copy": 0.95, "parity": 0.9},
}


@pytest.fixture(scope="module")
def values() -> Values:
    return drawn(np.random.default_rng(1), MEANS)


@pytest.fixture(scope="module")
def report(values: Values) -> StudyReport:
    return read_study(suite(values), "a_study")


def scores(of: Mapping[str, Sequence[float]]) -> np.ndarray:
    return np.mean([(np.array(of[task]) - TRIVIAL[task]) / (1 - TRIVIAL[task]) for task in of], axis=0)


def test_aggregate_is_the_mean_score_paired_by_seed(values: Values, report: StudyReport) -> None:
    for row in report.variants:
        mean = row.metrics["score"]
        expected = scores(values[row.name])
        assert mean.mean == pytest.approx(expected.mean())
        assert row.parameters == 115, "the mean of those of its tasks"
        if row.name == "baseline":
            continue
        paired = expected - scores(values["baseline"])
        interval = stats.t.interval(0.95, 2, paired.mean(), stats.sem(paired))
        assert row.difference is not None
        assert (row.difference.low, row.difference.high) == pytest.approx(interval)
        assert row.difference.n == 3
    assert {row.name: row.verdict_word for row in report.variants} == {
        "baseline": "", "linear": "worse", "delta": "better",
    }  # fmt: skip


def test_a_task_alone_is_the_study_of_that_task(values: Values, report: StudyReport) -> None:
    on_parity = on_task(report, "parity")
    for row in on_parity.variants[1:]:
        assert row.difference is not None
        assert row.difference.difference == pytest.approx(
            np.mean(values[row.name]["parity"]) - np.mean(values["baseline"]["parity"])
        )
    assert on_parity.evidence.trivial is not None
    assert on_parity.evidence.trivial.value == 0.5
    for of, known in ((report, "one of recall, copy and parity"), (on_parity, "a study of several tasks")):
        with pytest.raises(NotFoundError, match=f"has no task 'party'; expected {known}; got 'party'"):
            on_task(of, "party")


def test_shares_that_are_wrong_have_the_scores_and_verdicts_of_those_that_are_right(
    values: Values, report: StudyReport
) -> None:
    right, wrong = (answer_of(one).suite for one in (report, read_study(suite(values, metric="val_error"), "a_study")))
    assert right is not None
    assert wrong is not None
    for row, other in zip(right.rows, wrong.rows, strict=True):
        assert other.variant == row.variant
        for task, cell in row.cells.items():
            found = other.cells[task]
            assert found.verdict == cell.verdict
            assert [found.score, found.score_low, found.score_high] == pytest.approx(
                [cell.score, cell.score_low, cell.score_high]
            )


def test_a_task_is_scored_from_its_best_rule_or_from_0_without_one(values: Values) -> None:
    store = suite(values)
    rules = {"guessing@task=recall": 0.25, "bigram@task=recall": 0.4, "guessing@task=copy": 0.5}
    trivial = {name: {"val_accuracy": value} for name, value in rules.items()}
    scales = scales_of(replace(store.record, trivial=trivial))
    assert scales == {"recall": Scale(0.4, 1.0), "copy": Scale(0.5, 1.0), "parity": Scale(0.0, 1.0)}


def test_former_declarations_and_shared_trials_are_those_of_the_task_or_of_the_whole(values: Values) -> None:
    """A variant counts as seen at as many seeds as on the task with the fewest; one task alone is no suite."""
    store, single = suite(values), {"task": {"kind": "copy"}, "claims": []}
    claims = [{"id": "mean"}, {"id": "one", "task": "copy"}, {"id": "other", "task": "recall"}]
    seen = {"baseline@task=recall": 3, "baseline@task=copy": 2, "linear@task=copy": 1, "linear@task=recall": 2}
    before = Declaration(store.record.objective, claims, NOON, 8, space=store.record.space, variants=seen)
    alone = Declaration(store.record.objective, [], NOON, 3, space=single, variants={"baseline": 3})
    shared = SharedTrials("earlier", ("linear@task=recall", "delta@task=recall", "linear@task=copy"))
    store.record = replace(store.record, declared_before=(before, alone), shared=(shared,))
    tasks, whole = tasks_of(store.record), reader_of(store, "a_study").study("a_study")
    assert [tuple(one.variants for one in task.shared) for task in tasks.values()] == [
        (("linear", "delta"),), (("linear",),), (),
    ]  # fmt: skip
    of_copy, of_whole = tasks["copy"].declared_before, whole.declared_before
    few = {"baseline": 2, "linear": 1}
    assert of_copy[0] == replace(before, space=tasks["copy"].space, claims=claims[1:2], variants=few)
    assert of_copy[1].space == single
    objective = DeclaredObjective(metric="score", direction="maximize", margin=MARGIN)
    assert of_whole == (replace(before, objective=objective, claims=claims[:1], variants=few), alone)
    assert whole.shared == ()
    assert [one.settings for one in tasks["copy"].variants] == [{"mixer": name} for name in values]


def test_a_trial_of_a_suite_takes_what_those_of_its_tasks_take(values: Values) -> None:
    store = suite(values)
    store.trial_records = {
        key: replace(one, flops=2.0**place, code="own", parts={"val_accuracy": (0.5,)})
        for place, (key, one) in enumerate(store.trial_records.items())
    }
    reader = reader_of(store, "a_study")
    found = reader.trials([planned.key for planned in reader.study("a_study").planned]).values()
    assert {(one.seconds, one.tokens, one.code, len(one.parts)) for one in found} == {(30.0, 3000, "", 0)}
    assert sum(one.flops for one in found) == 2.0**27 - 1, "each counts once"


def test_the_size_of_a_variant_is_unknown_if_that_on_one_task_is(values: Values) -> None:
    store = suite(values)
    variants = [
        replace(
            variant,
            hash=variant.hash.replace("linear@task=recall", "baseline@task=recall"),
            spec={"width": number},
            parameters=None if variant.name == "linear@task=copy" else number,
        )
        for number, variant in enumerate(store.record.variants)
    ]
    store.record = replace(store.record, variants=tuple(variants))
    reader = reader_of(store, "a_study")
    found = {one.name: one for one in reader.study("a_study").variants}
    assert len({one.hash for one in found.values()}) == 3, "also of two that are alike on the first task"
    assert {name: one.parameters for name, one in found.items()} == {"baseline": 1, "linear": None, "delta": 7}
    assert {name: one.spec["width"] for name, one in found.items()} == {"baseline": 0, "linear": 3, "delta": 6}


def test_equal_values_at_every_seed_have_no_mark_and_the_baseline_is_called_by_what_all_replace(
    values: Values,
) -> None:
    alike = {name: {**of, "copy": [1.0, 1.0, 1.0]} for name, of in values.items()}
    answer = answer_of(read_study(suite(alike), "a_study"))
    assert answer.suite is not None
    assert [row.variant for row in answer.suite.rows if row.cells["copy"].alike] == ["delta", "linear"]
    assert not any(row.cells["recall"].alike for row in answer.suite.rows)
    lines = answer_text(answer).splitlines()
    assert sum("1.000 " in line or line.endswith("1.000") for line in lines) == 3
    assert not any("1.000?" in line for line in lines)
    assert "no mark: equal to the baseline" in " ".join(lines)
    assert any(line.startswith("attention (baseline)") for line in lines)
    by_task = "On recall, linear is worse than attention; on parity, delta is better; on copy, none is shown to be "
    in_mean = "In mean score, delta is better than attention; linear is worse."
    assert answer.headline == (in_mean, f"{by_task}better or worse.")


def test_holm_over_variants_and_tasks() -> None:
    """Verdicts of each task hold alone with p about 0.03; together with six others they do not."""
    shift = np.array([-0.9, 0.0, 0.9]) * 0.012
    means = {"baseline": dict.fromkeys(TRIVIAL, 0.9), "a": dict.fromkeys(TRIVIAL, 0.9 - MARGIN - 0.03)}
    means["b"] = means["c"] = means["a"]
    values = {
        variant: {task: (mean + shift * (variant != "baseline")).tolist() for task, mean in of.items()}
        for variant, of in means.items()
    }
    report = read_study(suite(values), "a_study")
    found = answer_of(report).suite
    assert found is not None
    p_values = {
        (row.variant, task): stats.t.sf(
            (-np.subtract(values[row.variant][task], values["baseline"][task]).mean() - MARGIN)
            / stats.sem(np.subtract(values[row.variant][task], values["baseline"][task])),
            2,
        )
        for row in found.rows[1:]
        for task in TRIVIAL
    }
    assert max(p_values.values()) < 0.05
    smallest = 9 * min(p_values.values())
    assert smallest > 0.05
    cells = [cell for row in found.rows[1:] for cell in row.cells.values()]
    assert [cell.verdict for cell in cells] == ["worse"] * 9
    assert not any(cell.jointly for cell in cells)


@pytest.mark.parametrize("begun", [True, False])
def test_a_trial_lost_on_one_task_is_lost_in_the_mean(values: Values, begun: bool) -> None:
    store = suite(values)
    store.add("linear@task=recall", 1, state=TrialState.PRUNED, stopped_at=3)
    for step, task in enumerate(("copy", "parity")):
        store.add(f"linear@task={task}", 1, state=TrialState.DIVERGED, stopped_at=step, reason=f"no {task}")
    store.add("delta@task=copy", 2, state=TrialState.RUNNING)
    if not begun:
        del store.trial_records["delta@task=copy/2"]
    report = read_study(store, "a_study")
    rows = {row.name: row for row in report.variants}
    assert rows["linear"].verdict_word == "diverged"
    (lost,) = rows["linear"].diverged
    assert (lost.step, lost.reason) in ((0, "on copy: no copy"), (1, "on parity: no parity"))
    assert rows["delta"].verdict_word == "undecided"
    assert rows["delta"].finished == (0, 1)
    assert on_task(report, "recall").variants[2].verdict_word == "not worse"
    for seed in range(3):
        store.add("delta@task=recall", seed, state=TrialState.RUNNING)
    shown = answer_text(answer_of(read_study(store, "a_study")), 80)
    assert next(line for line in shown.splitlines() if line.startswith("delta")).split()[1] == "0/3"
    assert (
        report.progress.sentence
        == f"23 of 27 trials finished, 1 {'running' if begun else 'waiting'}, 2 diverged, 1 pruned"
    )


def test_claims_name_a_task_or_are_about_the_mean(values: Values) -> None:
    sides = {"left": "delta", "right": "baseline", "margin": MARGIN}
    claims = [
        {"id": "parity", "says": "", "task": "parity", "expect": "better", **sides},
        {"id": "mean", "says": "", "expect": "better", **sides},
        {"id": "recall", "says": "", "task": "recall", "expect": "better", **sides},
    ]
    judged = read_study(suite(values, claims), "a_study").answer.claims
    assert [(claim.id, claim.verdict) for claim in judged] == [
        ("parity", "supported"), ("mean", "supported"), ("recall", "refuted"),
    ]  # fmt: skip
    assert judged[0].sentence.startswith("supported: on parity delta is at least")
    assert judged[0].evidence["task"] == "parity"
    assert judged[1].evidence["metric"] == "score"


def test_the_matrix_calls_variants_as_the_rows_above_it_do(values: Values) -> None:
    answer = answer_of(read_study(suite(values), "a_study"))
    assert answer.suite is not None
    for row in answer.suite.rows:
        for cell in row.cells.values():
            assert cell.score_low is not None
            assert cell.score_high is not None
            assert cell.score == pytest.approx((cell.score_low + cell.score_high) / 2)
            assert cell.score_low < cell.score_high
            assert cell.sentence.startswith(cell.verdict)
            assert bool(cell.sentence) == bool(cell.verdict) == (row.variant != "baseline")
    rows = tuple(replace(row, words=f"the change of {row.variant}") for row in answer.suite.rows)
    shown = matrix(replace(answer, suite=replace(answer.suite, rows=rows))).groups[0]
    assert [row[0] for row in shown] == [row.words for row in rows]


def test_a_task_that_no_model_has_learnt_is_said(values: Values) -> None:
    unlearnt = {name: {**of, "parity": [0.5, 0.51, 0.49]} for name, of in values.items()}
    report = read_study(suite(unlearnt), "a_study")
    (warning,) = (one for one in report.answer.warnings if one.text == "no model has learnt parity")
    assert warning.full.endswith("so that this task does not tell the variants apart.")
    both = {name: {**of, "copy": [0.5, 0.51, 0.49]} for name, of in unlearnt.items()}
    texts = [one.full for one in read_study(suite(both), "a_study").answer.warnings]
    assert [text for text in texts if text.endswith("so that these tasks do not tell the variants apart.")]
    found = answer_of(report).suite
    assert found is not None
    assert [task.learnt for task in found.tasks.values()] == [True, True, False]
    assert {(task.kind, task.rule, task.trivial) for task in found.tasks.values()} == {
        (task, "guessing", trivial) for task, trivial in TRIVIAL.items()
    }
    store = suite(unlearnt)
    store.record.space["aggregate"] |= {"trivial": {"copy": 0.25}}
    found = answer_of(read_study(store, "a_study")).suite
    assert found is not None
    assert {(task.rule, task.trivial) for task in found.tasks.values()} == {
        ("guessing", 0.25), ("", 0.25), ("guessing", 0.5),
    }  # fmt: skip


def test_answer_of_twelve_variants_on_six_tasks_fits_a_screen() -> None:
    names = ["baseline", *(f"a_long_name_{number}" for number in range(11))]
    tasks = ["recall", "copy", "parity"]
    store = suite(drawn(np.random.default_rng(2), {name: dict.fromkeys(tasks, 0.8) for name in names}))
    answer = answer_of(read_study(store, "a_study"))
    lines = answer_text(answer, 80).splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    for group in answer.groups:
        worst = [row.bound for row in group.rows]
        assert worst == sorted(worst, key=lambda bound: -(bound or 0))  # an accuracy: the lower, the worse


@pytest.mark.parametrize("variants", [1, MOST_NAMED, MOST_NAMED + 1])
@pytest.mark.parametrize("tasks", [2, 4, 5, 6])
def test_the_headline_of_a_suite_names_as_many_as_fit_and_counts_the_others(variants: int, tasks: int) -> None:
    names, own = "abc"[:variants], [f"t{number}" for number in range(tasks)]
    means = {name: dict.fromkeys(own, 0.6 if name in names else 0.9) for name in ("baseline", *names)}
    mean, told = answer_of(read_study(suite(drawn(np.random.default_rng(0), means)), "a_study")).headline
    named = {1: "a is", 2: "[ab] and [ab] are"}.get(variants, f"{variants} are")
    assert re.fullmatch(f"In mean score, {named} worse than (attention|the baseline)\\.", mean)
    assert len(re.findall(f"[oO]n t\\d, {named} worse", told)) == min(tasks, 4)
    assert re.findall(r"\bt\d", told) == own[:4]
    more = tasks - 4
    assert re.findall(r"; on (\d) more tasks? some are\.", told) == ([str(more)] if more > 0 else [])


def test_rates_that_differ_between_tasks_are_shown_for_each_task(values: Values) -> None:
    store, path = suite(values), "training.optimizer.lr"
    rates = {"baseline": 3e-3, "linear@task=copy": 1e-2, "linear": 1e-3, "delta": 3e-3}
    store.record.space["tuned"] = {path: rates}
    for variant in store.record.variants:
        rate = rates.get(variant.name, rates[variant.name.partition("@")[0]])
        variant.spec["training"] = {**variant.spec.get("training", {}), "optimizer": {"lr": rate}}
    report = read_study(store, "a_study")
    (column,) = [column for column in columns(report) if column.key == f"tuned {path}"]
    assert [column.text(row).text for row in report.variants] == ["0.003", "0.001, 0.01", "0.003"]
    linear = report.record.variants[1]
    assert json.loads(str(varied_cells(linear, report)[f"tuned.{path}"])) == {
        "recall": 1e-3,
        "copy": 1e-2,
        "parity": 1e-3,
    }
    copy = on_task(report, "copy")
    assert copy.evidence.tuning is not None
    assert copy.evidence.tuning.of["linear"].values == {path: 1e-2}
    for task, rate in (("recall", 1e-3), ("copy", 1e-2), ("parity", 1e-3)):
        on = on_task(report, task).record.space["tuned"]
        assert on == {path: {"baseline": 3e-3, "linear": rate, "delta": 3e-3}}
