"""Each trap of a table, on rows of our own making: refused or warned of, by name; and what is not a trap passes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ablate import judge
from ablate.analysis.columns import columns
from ablate.errors import AblateError
from ablate.notebook import JudgedStudy

Values = dict[str, list[Any]]
LOSS = {"base": [1.0, 1.1, 0.9], "other": [1.02, 1.09, 0.93]}
LOWER = {"metric": "loss", "direction": "lower", "margin": 0.1, "baseline": "base"}


def rows(values: Values, metric: str = "loss", **more: Values) -> pd.DataFrame:
    """A row for each value of each variant, with its place as the seed."""
    return pd.DataFrame(
        {"variant": variant, "seed": str(seed), metric: value} | {name: of[variant][seed] for name, of in more.items()}
        for variant, own in values.items()
        for seed, value in enumerate(own)
    )


def judged(frame: pd.DataFrame, **description: Any) -> JudgedStudy:
    return judge(frame, **(LOWER | description))


def warnings(study: JudgedStudy) -> str:
    return "\n".join(warning.full or warning.text for warning in study.report.answer.warnings)


def word(study: JudgedStudy, variant: str) -> str:
    return next(row.verdict_word for row in study.report.variants if row.name == variant)


def refused(frame: pd.DataFrame, **description: Any) -> str:
    with pytest.raises(AblateError) as caught:
        judged(frame, **description)
    return str(caught.value)


def test_an_ordinary_table_has_no_warning_but_the_usual() -> None:
    study = judged(rows(LOSS))
    assert word(study, "other") == "not worse"
    assert [warning.key for warning in study.report.answer.warnings if warning.text] == ["evidence", "assumption"]


def test_a_crash_that_is_the_minimum_is_refused_or_marked_as_failed() -> None:
    crash = rows(
        {**LOSS, "broken": [0.0, 1.05, 0.97]},
        status={"base": ["ok"] * 3, "other": ["ok"] * 3, "broken": ["crash", "ok", "ok"]},
    )
    crash["loss"] += [10.0] * 6 + [0.0, 10.0, 10.0]
    text = refused(crash)
    assert "loss is exactly 0 in 1 run, and at least 10.9 in all others" in text
    assert "variant 'broken', seed 0" in text
    assert "`allow: zero`" in text
    marked = judged(crash, failed={"status": "crash"})
    assert word(marked, "broken") == "undecided"
    assert [failure.reason for failure in marked.report.progress.failures] == ["status is crash (table row 7)"]
    allowed = judged(crash, allow=["zero"])
    assert any(warning.level == "void" for warning in allowed.report.answer.warnings)


@pytest.mark.parametrize(
    ("values", "direction", "said"),
    [
        (
            [1.02, -1.0, 0.93],
            "lower",
            "exactly -1 in 1 run, and at least 0.9 in all others: a crash that is the minimum",
        ),
        ([1.02, 999.0, 0.93], "higher", "exactly 999 in 1 run, and at most 1.1 in all others: a crash that is the max"),
        ([1.02, 1e9, 0.93], "lower", "exactly 1e+09 in 1 run, far from all others (the next is 1.1)"),
        ([1.02, 0.0, 0.93], "higher", "exactly 0 in 1 run, far from all others (the next is 0.9)"),
    ],
)
def test_a_crash_that_is_written_as_a_number(values: list[float], direction: str, said: str) -> None:
    frame = rows({"base": LOSS["base"], "other": values}, "value")
    asked = {"metric": "value", "direction": direction, "margin": 0.01}
    assert said in (refused(frame, **asked) if "a crash that" in said else warnings(judged(frame, **asked)))


@pytest.mark.parametrize(("metric", "wrong"), [("val_loss", "higher"), ("accuracy", "lower"), ("error", "higher")])
def test_a_direction_that_the_name_contradicts_is_warned_of(metric: str, wrong: str) -> None:
    frame = rows(LOSS, metric)
    for direction in ("lower", "higher"):
        said = warnings(judged(frame, metric=metric, direction=direction))
        assert ("is that the right direction?" in said) == (direction == wrong)
    assert "right direction" not in warnings(judged(rows(LOSS, "f1_error"), metric="f1_error"))


def test_zeros_that_are_values_are_none() -> None:
    assert word(judged(rows({"base": [0.0, 0.1, 0.05], "other": [0.02, 0.0, 0.06]})), "other") == "not worse"


def test_two_metrics_in_one_column_are_refused() -> None:
    auc = {"base": [0.9, 0.91, "", ""], "other": [0.92, 0.93, "", ""]}
    logloss = {"base": ["", "", 0.3, 0.4], "other": ["", "", 0.2, 0.35]}
    mixed = {name: [a if a != "" else b for a, b in zip(auc[name], logloss[name], strict=True)] for name in auc}
    assert "loss is auc in 4 rows and logloss in 4: two metrics in one column" in refused(
        rows(mixed, auc=auc, logloss=logloss)
    )


def test_a_copy_of_the_metric_is_no_second_metric() -> None:
    assert word(judged(rows(LOSS, score=LOSS)), "other") == "not worse"


def test_percent_beside_fractions_is_refused() -> None:
    frame = rows({"base": [0.83, 0.82, 0.84], "other": [84.0, 83.0, 85.0]}, "accuracy")
    assert "a fraction beside percent?" in refused(frame, metric="accuracy", direction="higher")


def test_a_margin_that_does_not_fit_percent_is_warned_of() -> None:
    frame = rows({"base": [83.0, 82.0, 84.0], "other": [84.0, 83.0, 85.0]}, "accuracy")
    assert "the margin is 0.02 points" in warnings(judged(frame, metric="accuracy", direction="higher", margin=0.02))


@pytest.mark.parametrize("unit", ["fold", "episode", "doc_id"])
def test_what_lies_within_a_run_is_not_a_unit(unit: str) -> None:
    frame = rows(LOSS).rename(columns={"seed": unit})
    assert f"{unit!r} lie within one training run" in refused(frame, unit=unit)
    assert f"over: {unit}" in refused(frame, unit=unit)


def test_folds_are_averaged_within_the_unit() -> None:
    frame = pd.DataFrame(
        {"variant": variant, "task": f"t{task}", "fold": fold, "loss": task + fold / 100 + shift}
        for variant, shift in (("base", 0.0), ("other", 0.01))
        for task in range(4)
        for fold in range(5)
    )
    frame.loc[0, "loss"] += 0.05
    study = judged(frame, unit="task", over="fold")
    row = next(row for row in study.report.variants if row.name == "other")
    assert row.difference is not None
    assert row.difference.n == 4
    assert sorted(row.difference.values) == pytest.approx([0.0, 0.01, 0.01, 0.01])
    assert "a statement about such tasks, not about another training run" in warnings(study)


def test_minima_and_maxima_taken_as_runs_are_refused() -> None:
    frame = rows({"base": [1.0, 1.1, 0.9], "base__MIN": [1.0, 1.1, 0.9], "base__MAX": [1.0, 1.1, 0.9]})
    assert "'base__MIN' is W&B's summary of another run" in refused(frame)


@pytest.mark.parametrize("name", ["mean", "Std.", "avg_3", "± sd"])
def test_a_row_of_means_under_a_table_is_no_seed(name: str) -> None:
    frame = rows(LOSS)
    total = pd.DataFrame({"variant": ["base", "other"], "seed": name, "loss": [1.0, 1.013]})
    assert f"the seed {name!r} names a summary of other rows" in refused(pd.concat([frame, total]))
    judged(frame.assign(seed="mean " + frame.seed.map({"0": "field", "1": "bed", "2": "street"})))


def test_means_over_runs_are_no_runs() -> None:
    frame = pd.DataFrame(
        {"variant": ["base", "a"] * 2, "data": ["x", "x", "y", "y"], "mean": [1.0, 2, 3, 4], "std": 0.1}
    )
    assert "the mean of several runs" in refused(frame, metric="mean")
    assert "allowed: mean stands beside 'std'" in warnings(judged(frame, metric="mean", allow=("summary",)))
    renamed = frame.rename(columns={"mean": "loss", "std": "loss_std"})
    assert "'loss_std' stands beside loss" in warnings(judged(renamed))


@pytest.mark.parametrize(("cells", "said"), [("xyz", "the unit (`unit: other`)"), ("123", "the seed (`seed: other`)")])
def test_a_column_that_tells_rows_apart_and_is_not_used_is_warned_of(cells: str, said: str) -> None:
    frame = rows({"base": [1.0, 1.3, 0.9], "a": [1.1, 1.2, 1.0]}).drop(columns="seed", errors="ignore")
    assert "each variant has one row for each" not in warnings(judged(frame))
    assert said in warnings(judged(frame.assign(other=[*cells, *cells])))
    assert said not in warnings(judged(frame.assign(other=[*cells, *cells]), unit="other"))


def test_one_name_that_is_written_in_two_ways_is_warned_of() -> None:
    said = warnings(judged(rows({"base": [1.0, 1.1, 0.9], "No norm": [1.02, 1.09, 0.93], "no_norm": [1.0, 1.2, 0.8]})))
    assert "'No norm' and 'no_norm' differ only in case, spaces or dashes" in said
    rates = {"base": [1.0, 1.1, 0.9], "lr=1e-3": [1.02, 1.09, 0.93], "lr=1e3": [1.0, 1.2, 0.8]}
    assert "differ only" not in warnings(judged(rows(rates)))


def test_equal_values_under_other_seeds_are_warned_of() -> None:
    assert "runs of other have equal values under different seeds" in warnings(
        judged(rows({"base": [1.01234, 1.1, 0.9], "other": [1.04567, 1.04567, 0.93]}))
    )


def test_one_experiment_twice_is_warned_of() -> None:
    twins = rows({**LOSS, "twin": [0.93, 1.02, 1.09]})
    assert "twin and other have identical values: one experiment recorded twice counts twice in Holm" in warnings(
        judged(twins)
    )


def test_one_run_of_each_variant_has_no_verdict() -> None:
    study = judged(rows({"base": [1.0], "other": [0.5]}))
    assert word(study, "other") == "undecided"
    assert "one seed of each variant: a single run shows no noise, so it has no verdict" in warnings(study).lower()


def test_a_moving_baseline_is_warned_of() -> None:
    frame = rows(LOSS, status={"base": ["keep"] * 3, "other": ["keep", "discard", "keep"]})
    assert "so the baseline moved" in warnings(judged(frame))


def test_names_that_became_numbers_are_warned_of() -> None:
    frame = rows({"222": [1.0, 1.1, 0.9], "22": [1.02, 1.09, 0.93]}).astype({"variant": int})
    assert "would have lost its zeros" in warnings(judged(frame, baseline="222"))
    lost = rows({"222": [1.0, 1.1, 0.9], "22": [1.02, 1.09, 0.93]}).astype({"variant": int})
    assert "have lost their zeros" in refused(lost, baseline="022")


def test_texts_of_digits_keep_their_zeros() -> None:
    study = judged(rows({"022": [1.0, 1.1, 0.9], "22": [1.02, 1.09, 0.93]}), baseline="022")
    assert {row.name for row in study.report.variants} == {"022", "22"}
    assert "zeros" not in warnings(study)


def test_a_metric_with_two_definitions_is_warned_of() -> None:
    bits = {"base": [1.0, 1.1, 0.9], "other": [1.02, 1.09, 0.93]}
    nats = {"base": [2.5, 2.75, 2.25], "other": [2.04, 2.18, 1.86]}
    text = warnings(judged(rows(bits, nats=nats)))
    assert "loss / nats is 0.4 in base and 0.5 in other" in text
    same = {"base": [2.5, 2.75, 2.25], "other": [2.55, 2.725, 2.325]}
    assert "loss / nats" not in warnings(judged(rows(bits, nats=same)))


def test_a_variant_that_is_better_by_too_much_is_warned_of() -> None:
    text = warnings(judged(rows({"base": [3.0, 3.1, 2.9], "other": [0.5, 0.6, 0.4]})))
    assert "other is better by 25 margins: is loss defined alike everywhere" in text


def stepped(curves: dict[str, list[list[float]]]) -> pd.DataFrame:
    return pd.DataFrame(
        {"variant": variant, "seed": str(seed), "step": 100 * (place + 1), "loss": value}
        for variant, own in curves.items()
        for seed, curve in enumerate(own)
        for place, value in enumerate(curve)
    )


CURVES = {
    "base": [[3.0, 2.0, 1.0], [3.1, 2.1, 1.1], [2.9, 1.9, 0.9]],
    "other": [[3.0, 2.0, 1.02, 0.5], [3.1, 2.1, 1.09, 0.6], [2.9, 1.9, 0.93, 0.4]],
}


def test_unequal_training_is_warned_of_and_the_shared_step_compared() -> None:
    last = judged(stepped(CURVES), step="step")
    assert "runs end at different steps (300 to 400)" in warnings(last).lower()
    shared = judged(stepped(CURVES), step="step", at="shared")
    assert "different steps" not in warnings(shared)
    row = next(row for row in shared.report.variants if row.name == "other")
    assert row.difference is not None
    assert row.difference.values == pytest.approx([0.02, -0.01, 0.03])


def test_unequal_training_is_warned_of_where_episodes_are_averaged() -> None:
    frame = rows(LOSS)
    frame = pd.concat([frame.assign(step=step, episode=episode) for step in (10, 20) for episode in range(2)])
    short = frame[~((frame["variant"] == "other") & (frame["step"] == 20) & (frame["episode"] == 1))]
    said = "runs end at different steps (10 to 20)"
    assert said in warnings(judged(short, step="step", over="episode"))
    assert said not in warnings(judged(frame, step="step", over="episode"))


def test_a_seed_under_another_name_is_warned_of() -> None:
    frame = rows(LOSS).rename(columns={"seed": "config.Seed"}).iloc[:-1]
    assert "is it the seed (`seed: config.Seed`)" in warnings(judged(frame))
    assert "is it the seed" not in warnings(judged(frame, seed="config.Seed"))


def test_the_best_of_several_evaluations_is_warned_of() -> None:
    assert "is optimistic" in warnings(judged(stepped(CURVES), step="step", at="best"))


STOPPING = {
    "base": [[3.0, 2.0, 0.98], [3.1, 0.99], [2.9, 2.5, 1.9, 0.97]],
    "other": [[3.0, 2.4, 2.2, 2.1], [3.1, 2.6, 2.3, 2.2], [2.9, 2.5, 2.4, 2.3]],
}


def test_runs_that_stop_at_a_target_are_warned_of() -> None:
    curves = {"base": [[3.0, 2.5, 2.0, 1.5, 0.98], [3.1, 2.6, 1.4, 0.99]], "other": [[3.0, 2.9, 2.8, 2.7]] * 2}
    frame = stepped(curves)
    frame.loc[frame["variant"] == "other", "loss"] += [0.001 * place for place in range(8)]
    text = warnings(judged(frame, step="step"))
    assert "runs of base stop once they reach about the same loss (censored)" in text.lower()


def test_a_run_that_never_arrives_can_only_be_worse() -> None:
    frame = stepped(STOPPING).assign(time=lambda rows: rows["step"] * 1.0)
    asked = {"metric": "time", "margin": 20.0, "reach": "loss <= 1", "step": "step"}
    study = judged(frame, **asked)
    assert "3 of 3 runs of other never reached loss <= 1 (censored)" in warnings(study)
    row = next(row for row in study.report.variants if row.name == "other")
    assert row.verdict is not None
    assert row.difference is not None
    assert row.difference.values == pytest.approx([100.0, 200.0, 0.0])
    assert row.verdict.word == "undecided"
    turned = judged(frame, **(asked | {"baseline": "other"}))
    assert word(turned, "base") == "undecided"  # the baseline's true times are longer
    certain = stepped(
        {
            **STOPPING,
            "other": [curve + [2.0 + 0.01 * seed] * (20 + seed) for seed, curve in enumerate(STOPPING["other"])],
        }
    )
    assert word(judged(certain.assign(time=lambda rows: rows["step"] * 1.0), **asked), "other") == "worse"


def test_a_mean_over_questions_of_runs_that_never_arrive_can_only_be_worse() -> None:
    """Runs of one side end before they arrive, and early: their times flatter them in every mean."""
    rows = [
        {"variant": variant, "task": task, "seed": str(seed), "step": step, "loss": 0.5 if step == last else 2.0}
        for variant, last, ends in (("base", 10, 10), ("other", 0, 3))
        for task in ("easy", "hard", "long", "short")
        for seed in range(3)
        for step in range(1, ends + 1)
    ]
    frame = pd.DataFrame(rows)
    frame["time"] = frame["step"] + np.random.default_rng(0).normal(0, 0.01, len(frame))
    asked = {"metric": "time", "margin": 0.5, "reach": "loss <= 1", "step": "step", "each": "task", "aggregate": True}
    for baseline, other in (("base", "other"), ("other", "base")):
        study = judged(frame, **(asked | {"baseline": baseline}))
        for one in study.studies.values():
            row = next(row for row in one.report.variants if row.name == other)
            assert row.verdict is not None
            assert "never reached the target" in row.verdict.sentence
            (verdicts,) = (column for column in columns(one.report) if column.key == "verdict")
            assert verdicts.text(row).lines == ("undecided", "censored"), "it does not say that more seeds decide"


def test_a_run_that_holds_a_step_twice_is_refused() -> None:
    frame = pd.concat([stepped(CURVES), stepped({"base": [[9.0, 8.0]]})], ignore_index=True)
    text = refused(frame, step="step", at="shared")
    assert "one run has step 100 2 times: does a second run stand under its name?" in text
    assert "repeated: first" in text
    first, last = (judged(frame, step="step", at=100, repeated=keep) for keep in ("first", "last"))
    means = [study.report.baseline.metrics["loss"].mean for study in (first, last)]
    assert means == pytest.approx([3.0, 5.0])


LOG = """\
        print0(f"step:{step}/{train_steps} val_loss:{val_loss:.5f}")
step:100 val_loss:3.5
step:200 val_loss:3.28
final val_loss:3.27
"""


def logs(folder: Path) -> dict[str, Any]:
    for variant in ("base", "other"):
        for run in range(3):
            (folder / variant).mkdir(exist_ok=True)
            (folder / variant / f"{run}.log").write_text(LOG.replace("3.28", f"3.2{run}5"), encoding="utf-8")
    path = "(?P<variant>[^/]+)/(?P<run>.+).log"
    return {
        "table": "*/*.log",
        "data": folder,
        "path": path,
        "metric": "val_loss",
        **{k: LOWER[k] for k in ("direction", "margin", "baseline")},
    }


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (r"val_loss:(?P<val_loss>\S+)", "program text that looks like a result"),
        (r"^step:(?P<step>\d+) val_loss:(?P<val_loss>\d)", "cuts '3' out of a longer number"),
        (r"^nothing (?P<val_loss>\S+)", "`line` matches no line"),
        (r"^step:\d+ val_loss:(?P<val_loss>\S+)", "2 rows are one run"),
    ],
)
def test_a_log_pattern_that_takes_the_wrong_lines_is_refused(line: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(AblateError, match=said):
        judge(**logs(tmp_path), line=line)


def test_a_later_value_of_the_metric_is_warned_of(tmp_path: Path) -> None:
    study = judge(**logs(tmp_path), line=r"^step:200 val_loss:(?P<val_loss>\S+)")
    assert "a later line of 0.log also gives val_loss" in warnings(study)
    assert "not paired: no seed is recorded" in study.report.record.question
    folder = judge(**(logs(tmp_path) | {"table": "."}), line=r"^step:200 val_loss:(?P<val_loss>\S+)", format="log")
    assert folder.answer.partition("NEXT")[0] == study.answer.partition("NEXT")[0]
    stepped_ = judge(**logs(tmp_path), line=r"^step:(?P<step>\d+) val_loss:(?P<val_loss>\S+)", step="step")
    assert "a later line" not in warnings(stepped_)


def ended(cell: Any, step: int, status: str = "ok") -> pd.DataFrame:
    """Curves in which the last run of `other` has one evaluation, and then a row at a step that no other run has."""
    frame = stepped({"base": CURVES["base"], "other": CURVES["base"]}).astype({"loss": object}).assign(status="ok")
    own = (frame["variant"] == "other") & (frame["seed"] == "2")
    frame = frame[~own | (frame["step"] == 100)]
    last = {"variant": "other", "seed": "2", "step": step, "loss": cell, "status": status}
    return pd.concat([frame, pd.DataFrame([last])], ignore_index=True)


@pytest.mark.parametrize("at", [None, "shared", "best"])
@pytest.mark.parametrize(("cell", "status"), [(None, "crash"), ("", "crash"), ("nan", "ok"), ("inf", "ok")])
def test_a_run_that_ends_at_a_step_of_its_own_has_failed(cell: Any, status: str, at: str | None) -> None:
    study = judged(ended(cell, 137, status), step="step", failed={"status": "crash"}, at=at)
    lost = [failure.seed for row in study.report.variants for failure in row.failed if row.name == "other"]
    assert lost == [2] or (at == "best" and status == "ok")  # the best of a run that diverged later is a result
    if at != "best":
        assert word(study, "other") == "undecided"


def test_a_text_for_what_was_not_measured_ends_no_run() -> None:
    """As loggers that write `nan` into the rows between evaluations."""
    frame = stepped(CURVES).astype({"loss": object})
    between = frame.assign(step=frame["step"] + 50, loss="nan")
    study = judged(pd.concat([frame, between], ignore_index=True), step="step", at="shared")
    assert not any(row.failed for row in study.report.variants)


def test_a_run_that_ended_before_its_first_evaluation_has_failed() -> None:
    early = pd.DataFrame([{"variant": "other", "seed": "3", "step": 50, "loss": None}])
    base = stepped({"base": [*CURVES["base"], CURVES["base"][0]], "other": CURVES["base"]})
    study = judged(pd.concat([base, early], ignore_index=True), step="step")
    assert word(study, "other") == "undecided"
    assert "loss is missing" in next(row.failed[0].reason for row in study.report.variants if row.failed)


def test_the_shared_step_is_that_of_all_runs_which_did_not_fail() -> None:
    frame = stepped({**CURVES, "broken": CURVES["base"]}).assign(status="ok")
    frame.loc[(frame["variant"] == "broken") & (frame["seed"] == "0"), "status"] = "crash"
    frame = frame[(frame["status"] == "ok") | (frame["step"] == 100)]
    study = judged(frame, step="step", at="shared", failed={"status": "crash"})
    row = next(row for row in study.report.variants if row.name == "other")
    assert row.difference is not None
    assert row.difference.values == pytest.approx([0.02, -0.01, 0.03])
    assert "compared at step 300, the last that all of them have" in " ".join(study.report.answer.sentences)
    apart = pd.concat([stepped({"base": CURVES["base"]}), stepped({"other": CURVES["base"]}).eval("step = step + 50")])
    assert "no step is shared by all runs" in refused(apart, step="step", at="shared")
    both = apart.assign(step=apart["step"].replace({350: 200}))
    assert "compared at step 200" in " ".join(judged(both, step="step", at="shared").report.answer.sentences)


def test_evaluations_of_a_run_are_no_runs() -> None:
    curves = stepped(CURVES).drop(columns="seed")
    assert "go on from step to step, and each counts as a run" in refused(curves)
    ends = rows(LOSS).drop(columns="seed").assign(epoch=[7, 5, 9, 4, 8, 2])
    assert word(judged(ends), "other") == "undecided"


def test_lines_of_one_log_that_count_as_runs_are_warned_of(tmp_path: Path) -> None:
    named = logs(tmp_path) | {"path": "(?P<variant>[^/]+)/"}
    assert "2 lines of" in warnings(judge(**named, line=r"^step:\d+ val_loss:(?P<val_loss>\S+)"))
    assert "lines of" not in warnings(judge(**named, line=r"^step:200 val_loss:(?P<val_loss>\S+)"))


@pytest.mark.parametrize(
    ("column", "cell"), [("status", "crashed"), ("trial_state", "TrialState.PRUNED"), ("sys/failed", "True")]
)
@pytest.mark.parametrize("seeds", [True, False])
def test_runs_that_did_not_end_as_planned_are_warned_of(column: str, cell: str, seeds: bool) -> None:
    frame = rows(LOSS).assign(**{column: ["ok"] * 5 + [cell]})
    frame = frame if seeds else frame.drop(columns="seed")
    assert f"1 run with {column} {cell}: the last value counts" in warnings(judged(frame))
    curves = stepped(CURVES).assign(**{column: "ok"})
    curves.loc[curves["seed"] == "1", column] = cell
    assert f"2 runs with {column} {cell}" in warnings(judged(curves, step="step", at="shared"))


def test_a_run_that_never_arrives_has_failed_where_its_metric_also_gets_better() -> None:
    """The metric of a run that stops early is no bound then, in either direction."""
    frame = stepped(STOPPING).assign(score=lambda rows: 0.5 - rows["step"] / 1000)
    asked = {"metric": "score", "margin": 0.01, "reach": "loss <= 1", "step": "step"}
    for direction, sign in (("lower", 1.0), ("higher", -1.0)):
        study = judged(frame.assign(score=sign * frame["score"]), **(asked | {"direction": direction}))
        row = next(row for row in study.report.variants if row.name == "other")
        assert ["never reached loss <= 1" in failure.reason for failure in row.failed] == [True] * 3
        assert "censored" not in warnings(study)
        assert row.verdict_word == "undecided"


def folds(without: set[tuple[str, int]]) -> pd.DataFrame:
    """Folds of very different difficulty, at which two variants are equal."""
    return pd.DataFrame(
        {"variant": variant, "seed": str(seed), "fold": fold, "loss": fold / 2 + (fold + 1) * (seed + 1) * noise}
        for variant, noise in (("base", 0.0), ("other", 0.0001), ("third", 0.0002))
        for seed in range(4)
        for fold in range(4)
        if (variant, fold) not in without
    )


def test_means_are_over_the_folds_that_all_variants_have() -> None:
    study = judged(folds({("other", 3)}), over="fold")
    assert word(study, "other") == "not worse"
    row = next(row for row in study.report.variants if row.name == "other")
    assert row.difference is not None
    assert row.difference.values == pytest.approx([0.0002, 0.0004, 0.0006, 0.0008])
    assert "8 values left out of the means over fold" in " ".join(study.report.answer.sentences)
    apart = folds({("other", 0), ("other", 1), ("base", 2), ("base", 3), ("third", 2), ("third", 3)})
    assert "no fold is in all" in " ".join(judged(apart, over="fold").report.answer.sentences)
    assert "No fold" not in " ".join(judged(folds(set()), over="fold").report.answer.sentences)


def test_folds_of_folds_without_a_seed_are_one_run() -> None:
    frame = folds(set()).rename(columns={"seed": "repeat"})
    assert "one run of each variant" in warnings(judged(frame, over=["fold", "repeat"]))
    assert "4 rows are one run" in refused(frame, over="fold")


def tasks(without: set[tuple[str, int]]) -> pd.DataFrame:
    frame = folds(without).rename(columns={"fold": "task", "seed": "suite"})
    return frame.assign(task=frame["suite"] + "-" + frame["task"].astype(str))


def test_a_mean_over_questions_is_over_the_tasks_that_all_variants_have() -> None:
    study = judged(tasks({("other", 3)}), unit="task", each="suite", aggregate=True)
    over = study.studies["loss over suites"].report
    row = next(row for row in over.variants if row.name == "other")
    assert row.difference is not None
    assert row.difference.values == pytest.approx([0.0002, 0.0004, 0.0006, 0.0008])
    assert "Not every variant has 0-3 of 0: left out of its mean" in " ".join(over.answer.sentences)


def test_a_question_that_the_baseline_lacks_is_left_out_and_tasks_that_differ_are_warned_of() -> None:
    frame = tasks({("base", task) for task in range(4)}).query("suite == '3'")
    rest = tasks(set()).query("suite != '3'")
    study = judged(pd.concat([frame, rest], ignore_index=True), unit="task", each="suite", aggregate=True)
    assert list(study.studies) == ["0", "1", "2", "loss over suites"]
    said = " ".join(study.studies["0"].report.answer.sentences)
    assert "base has no suite 3: no variant can be compared there" in said
    apart = tasks(set()).query("variant == 'base' or task > '2'").query("variant != 'base' or task < '2'")
    assert "other and base have no task in common" in warnings(judged(apart, unit="task"))


@pytest.mark.parametrize("direction", ["lower", "higher"])
def test_tasks_are_paired_however_few_both_sides_have(direction: str) -> None:
    """The two easiest tasks say nothing against twenty."""
    frame = pd.DataFrame(
        {"variant": variant, "task": f"t{task}", "loss": task / 40}
        for variant in ("base", "other")
        for task in range(20)
        if variant == "base" or task < 2
    )
    for metric in (frame, frame.assign(loss=-frame["loss"])):
        study = judged(metric, unit="task", direction=direction, margin=0.02)
        assert word(study, "other") == "undecided"
