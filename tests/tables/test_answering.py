"""What a judged table answers: pairing, failures, several questions, selection, and a study's own export."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from cli_runs import Workplace
from fake_store import fake_store
from scipy import stats

from ablate import judge
from ablate.analysis.calibration import read_calibration
from ablate.analysis.columns import columns
from ablate.analysis.diff import read_comparison
from ablate.analysis.findings import read_findings
from ablate.analysis.next_steps import next_steps
from ablate.analysis.optuna_export import export_optuna
from ablate.analysis.study import read_study
from ablate.analysis.why import why
from ablate.errors import AblateError, ArgumentError, NotFoundError, SpaceError, StoreError
from ablate.notebook import JudgedStudy
from ablate.render.as_json import study_json
from ablate.render.formats import Place, find_format, write_questions
from ablate.spec.reading import stored_space
from ablate.stats import hold_together
from ablate.stats.verdict import replacement_word
from ablate.store import StudyDraft, open_store
from ablate.tables.answering import answer_of_table, read_all_findings, read_reports

ASKED = {"metric": "loss", "direction": "lower", "margin": 0.1, "baseline": "base"}
MARKUP = "a|b <i>&*_`x` $y$ #1 \\z"


def table(runs: dict[str, dict[str, Any]], **more: Any) -> pd.DataFrame:
    return pd.DataFrame(
        {"variant": variant, "seed": seed, "loss": value, **more}
        for variant, own in runs.items()
        for seed, value in own.items()
    )


def row(study: JudgedStudy, variant: str, question: str | None = None) -> Any:
    report = study.report if question is None else study.studies[question].report
    return next(one for one in report.variants if one.name == variant)


BASE = {"1": 1.0, "2": 1.2, "3": 0.8}


def test_shared_seeds_are_paired_and_what_pairing_buys_is_said() -> None:
    study = judge(table({"base": BASE, "other": {"3": 0.83, "1": 1.01, "2": 1.23}}), **ASKED)
    assert study.answer.splitlines()[0] == "loss (lower is better) against base: 3 seeds each, paired by seed"
    assert row(study, "other").difference.values == pytest.approx([0.01, 0.03, 0.03])
    facts = study.why("other").facts
    interval = stats.ttest_ind([0.83, 1.01, 1.23], [1.0, 1.2, 0.8], equal_var=False).confidence_interval(0.9)
    assert facts["otherwise"] == f"not paired, the 95 % bounds would be {interval.low:+.4g} to {interval.high:+.4g}"
    assert dict(study.why("other").seeds) == pytest.approx({"1": 0.01, "2": 0.03, "3": 0.03})


@pytest.mark.parametrize("variant", [{"7": 1.0, "8": 1.1, "9": 1.2}, {"1": 1.0, "2": 1.1, "9": 1.2}])
def test_seeds_that_are_not_shared_are_compared_by_their_means(variant: dict[str, float]) -> None:
    study = judge(table({"base": BASE, "other": variant}), **ASKED)
    assert "not paired: too few seeds are on both sides" in study.answer
    interval = stats.ttest_ind([1.0, 1.1, 1.2], [1.0, 1.2, 0.8], equal_var=False).confidence_interval(0.95)
    assert (row(study, "other").difference.low, row(study, "other").difference.high) == pytest.approx(
        (interval.low, interval.high), abs=1e-12
    )


def test_equal_seeds_are_labels_if_it_is_said_so(tmp_path: Path) -> None:
    """What needs pairs is then null in JSON and refused by `calibrate`, and no legend speaks of pairs."""
    study = judge(table({"base": BASE, "other": BASE}), pair=False, **ASKED)
    assert "not paired: equal seeds share nothing" in study.answer
    assert not row(study, "other").difference.is_paired
    versus = study_json(study.report)["variants"][1]["versus_baseline"]
    assert versus is not None
    assert versus["sign_flip_at_margin"] is None
    legend = " ".join(text for column in columns(study.report) for text in column.help)
    assert "difference: variant minus baseline, not paired; lower loss is better" in legend
    study.keep(tmp_path / "s.db", "labels")
    with open_store(tmp_path / "s.db") as store:
        with pytest.raises(NotFoundError, match="runs that are not paired"):
            read_calibration(store, "labels")
        with pytest.raises(StoreError, match="judged, not trained here"):
            export_optuna(store, "labels", f"sqlite:///{tmp_path}/optuna.db")
        sides = read_comparison(store, ["labels/base", "labels/other"])
        assert sides.difference(sides.sides[1], "loss") == row(study, "other").difference


def test_two_tables_are_paired_only_where_their_units_are_the_same(tmp_path: Path) -> None:
    """In a store the units of a table are numbers, in the order of its rows: those of another one may be others."""
    by_task = {"arc": 0.3, "boolq": 0.8, "copa": 0.6, "hellaswag": 0.5}
    asked = ASKED | {"direction": "higher", "unit": "task"}
    for name, tasks in (("one", [*by_task]), ("two", [*by_task]), ("turned", [*by_task][::-1])):
        runs = {variant: {task: by_task[task] for task in tasks} for variant in ("base", "other")}
        judge(table(runs).rename(columns={"seed": "task"}), **asked).keep(tmp_path / "s.db", name)
    with open_store(tmp_path / "s.db") as store:
        for other, paired in (("two", True), ("turned", False)):
            sides = read_comparison(store, ["one/base", f"{other}/other"])
            difference = sides.difference(sides.sides[1], "loss")
            assert (sides.is_paired, difference.is_paired) == (paired, paired)
            assert difference.difference == pytest.approx(0.0, abs=1e-12)


def test_a_pair_is_enough_if_pairing_is_declared() -> None:
    study = judge(table({"base": BASE, "other": {"1": 1.01, "2": 1.22, "9": 1.0}}), pair=True, **ASKED)
    assert row(study, "other").difference.n == 2
    assert "other lacks 3 and alone has 9: compared at the seeds that both have" in " ".join(
        study.report.answer.sentences
    )


@pytest.mark.parametrize("cell", [None, math.nan, math.inf, "", "N/A"])
def test_a_missing_value_is_a_failed_run(cell: Any) -> None:
    fine = judge(table({"base": BASE, "other": {"1": 1.0, "2": 1.2, "3": 0.8, "4": cell}}), **ASKED)
    assert len(row(fine, "other").failed) == 1
    study = judge(table({"base": {**BASE, "4": 1.1}, "other": {"1": 1.01, "2": 1.2, "3": 0.83, "4": cell}}), **ASKED)
    assert row(study, "other").verdict_word == "undecided"
    assert "1 trial of other failed" in row(study, "other").verdict.sentence
    worse = judge(table({"base": {**BASE, "4": 1.1}, "other": {"1": 2.0, "2": 2.2, "3": 1.83, "4": cell}}), **ASKED)
    assert row(worse, "other").verdict_word == "worse"
    lost = judge(table({"base": {**BASE, "4": cell}, "other": {"1": 2.0, "2": 2.2, "3": 1.83, "4": 2.1}}), **ASKED)
    assert row(lost, "other").verdict_word == "undecided"


def test_no_number_of_runs_is_named_where_equal_values_decide_nothing() -> None:
    """Without any spread there is no test, of however many runs; and noise of a thousand margins needs too many."""
    same = {"base": BASE, "same": BASE}
    (step,) = next_steps(judge(table(same), **ASKED).report)
    assert step.purpose == "no number of seeds settles what is undecided: `--why` says what would"
    noisy = {seed: value + 100.0 * (-1) ** int(seed) for seed, value in BASE.items()}
    (step,) = next_steps(judge(table(same | {"noisy": noisy}), **ASKED).report)
    assert step.purpose == "1 of 2 undecided comparisons needs over 100 more seeds"


def test_what_was_selected_by_these_results_has_no_verdict() -> None:
    study = judge(table({"base": BASE, "other": {"1": 0.5, "2": 0.7, "3": 0.31}}), chosen=["other"], **ASKED)
    assert row(study, "other").verdict is None
    assert "UNPROVEN" in study.answer


def test_a_baseline_that_was_selected_by_these_results_leaves_no_verdict() -> None:
    runs = table({"base": BASE, "other": {"1": 1.5, "2": 1.7, "3": 1.31}, "third": BASE})
    assert row(judge(runs, **ASKED), "other").verdict_word == "worse"
    study = judge(runs, chosen=["base"], **ASKED)
    assert [one.verdict for one in study.report.variants] == [None] * 3
    with pytest.raises(AblateError, match="a chosen variant is not in the table"):
        judge(runs.assign(acc=runs["loss"]), questions={"loss": {}, "acc": {}}, chosen=["typo"], **ASKED)


def test_variants_of_every_parameter_but_the_seed() -> None:
    frame = pd.DataFrame(
        {"lr": lr, "width": width, "seed": seed, "loss": lr + seed / 10, "note": f"run {lr} {seed}"}
        for lr in (0.1, 0.2)
        for width in (64,)
        for seed in range(3)
    )
    study = judge(frame, variant="*", ignore=["note"], **(ASKED | {"baseline": "lr=0.1, width=64"}))
    assert [one.name for one in study.report.variants] == ["lr=0.1, width=64", "lr=0.2, width=64"]
    assert row(study, "lr=0.2, width=64").difference.difference == pytest.approx(0.1)


def tasks() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {"variant": variant, "seed": seed, "task": task, "loss": place + shift + 0.01 * noise}
        for place, task in enumerate(("easy", "hard", "long", "short"))
        for variant, shift in (("base", 0.0), ("good", 0.01), ("bad", 0.4))
        for seed, noise in enumerate(rng.normal(size=4))
    )


def test_several_questions_make_one_answer_with_their_aggregate() -> None:
    frame = tasks()
    study = judge(frame, each="task", aggregate=True, **ASKED)
    assert list(study.studies) == ["easy", "hard", "long", "short", "loss over tasks"]
    lines = study.answer.splitlines()
    assert lines[2] == "10 comparisons over 5 questions: 5 as good within the margin and 5 worse."
    means = frame.pivot_table(index="task", columns="variant", values="loss", aggfunc="mean")
    reference = stats.ttest_rel(means["bad"], means["base"]).confidence_interval(0.95)
    over = row(study, "bad", "loss over tasks").difference
    assert (over.low, over.high, over.n) == pytest.approx((reference.low, reference.high, 4), abs=1e-9)
    assert study.why("easy: bad").row.verdict == "worse"
    with pytest.raises(NotFoundError, match="easy: good"):
        study.why("nothing")


def test_holm_over_all_questions_is_stricter() -> None:
    """The p-values of ten comparisons, three times each: what holds in one question need not hold over all."""
    rng = np.random.default_rng(3)
    frame = pd.DataFrame(
        {"variant": variant, "seed": seed, "task": f"t{task}", "loss": shift * (variant != "base") + noise}
        for task in range(12)
        for shift in (0.25 + 0.02 * task,)
        for variant in ("base", "other")
        for seed, noise in enumerate(rng.normal(0, 0.1, 5))
    )
    each, together = (judge(frame, each="task", holm=holm, **ASKED) for holm in ("question", "all"))
    stars = [study.answer.count(" * ") + study.answer.count(" *\n") for study in (each, together)]
    assert stars[0] == 0 < stars[1]


def test_several_descriptions_make_one_report(tmp_path: Path) -> None:
    """One answer, a section for each question, joint verdicts over all of them, in every format that holds several."""
    rng = np.random.default_rng(7)
    for name in ("first", "second"):
        rows = [
            {"variant": variant, "seed": seed, "loss": shift + noise, "speed": 1 + noise}
            for shift, variant in ((0.0, "base"), (0.16, "other"))
            for seed, noise in enumerate(rng.normal(0, 0.03, 4))
        ]
        pd.DataFrame(rows).to_csv(tmp_path / f"{name}.csv", index=False)
    (tmp_path / "a.yaml").write_text(
        "table: {files: first.csv}\nbaseline: base\nmargin: 0.1\ndirection: lower\nquestions: {loss: {}, speed: {}}\n"
    )
    (tmp_path / "b.yaml").write_text(
        "table: {files: second.csv}\nbaseline: base\nmargin: 0.1\ndirection: lower\nmetric: loss\n"
    )
    files = [str(tmp_path / name) for name in ("a.yaml", "b.yaml")]
    study = judge(files, holm="all")
    assert list(study.studies) == ["a_loss", "a_speed", "b"]
    alone = judge(files[1])
    assert row(study, "other", "b").difference == row(alone, "other").difference

    reports = read_reports(study._table)
    verdicts = {f"{n}: {v.name}": v.verdict for n, one in reports.items() for v in one.variants if v.verdict}
    answer = answer_of_table(study._table, reports)
    assert {one.variant for one in answer.rows if one.jointly} == hold_together(verdicts)
    assert all(one.variant == one.words == one.label for one in answer.rows), "each names its question"
    decided = sum(verdict.is_decided for verdict in verdicts.values())
    held = (
        f"all {decided}" if len(hold_together(verdicts)) == decided else f"{len(hold_together(verdicts))} of {decided}"
    )
    assert decided > 1
    assert f"Jointly over all questions {held} verdicts hold" in " ".join(answer.headline)

    findings = read_all_findings(study._table, reports)
    for format_, marks in {
        "md": ["## a\\_loss", "## b", "### Ablation table", "a_speed_forest.svg"],
        "html": ["<h2>a_loss</h2>", "<h2>b</h2>", "<h3>Ablation table</h3>"],
        "latex": [r"\section*{a\_loss}", r"\section*{b}", r"\subsection*{Ablation table}"],
        "csv": ["\na_loss,", "\na_speed,", "\nb,"],
        "json": ['"a_loss": {', '"b": {', '"answer"'],
        "terminal": ["a_loss", "b ───"],
    }.items():
        report, *_ = write_questions(answer, findings, format_, tmp_path / format_, "both")
        text = report.read_text()
        assert report.stem == "both"
        assert [mark for mark in marks if mark not in text] == []
    ids = re.findall(r' id="([^"]+)"', (tmp_path / "html" / "both.html").read_text())
    assert len(ids) == len(set(ids))
    slides = write_questions(answer, findings, "slides", tmp_path / "slides", "both")
    assert [file.name for file in slides] == [f"{name}_slides.html" for name in study.studies]
    with pytest.raises(ArgumentError, match="not judged together"):
        judge([files[0], str(tmp_path / "first.csv")])


def test_questions_of_other_metrics_are_shown_in_margins() -> None:
    frame = table({"base": BASE, "other": {"1": 1.2, "2": 1.41, "3": 0.99}}).assign(acc=lambda rows: -10 * rows["loss"])
    questions = {"loss": {}, "acc": {"direction": "higher", "margin": 1.0}}
    study = judge(frame, questions=questions, **{key: value for key, value in ASKED.items() if key != "metric"})
    assert "how much worse, in margins" in study.answer
    bounds = [line.split()[-1] for line in study.answer.splitlines() if "other" in line]
    assert len(set(bounds)) == 1  # the same comparison in two units


@pytest.mark.parametrize("format_", ["md", "html", "latex", "csv", "json", "slides", "terminal"])
def test_names_and_sources_are_escaped_in_every_report(format_: str) -> None:
    frame = table({"base": BASE, MARKUP: {"1": 1.01, "2": 1.22, "3": 0.8}})
    study = judge(frame, **ASKED)
    rendered = find_format(format_).render(read_findings(study._store, study.name), Place())  # type: ignore[arg-type]
    text = rendered.decode() if isinstance(rendered, bytes) else rendered
    assert "Cost" not in text
    assert "How to reproduce" not in text
    if format_ == "html":
        assert "<i>" not in text
        assert "&lt;i&gt;" in text
    if format_ == "md":
        assert r"a\|b \<i\>\&\*\_\`x\` \$y\$ \#1 \\z" in text
    if format_ == "latex":
        assert r"\textless{}i\textgreater{}" in text
    if format_ in ("md", "html", "terminal"):
        assert "ot trained here" in text


def test_the_export_of_a_study_has_its_verdicts() -> None:
    """To the digit, with a tail of the noise, a failed seed, and words for what a part is replaced by."""
    rng = np.random.default_rng(5)
    names = ("base", "a", "b", "c", "d")
    store = fake_store({name: ({}, 10) for name in names}, seeds=6, margin=0.1, metric="loss")
    frame = []
    for name, shift in zip(names, (0.0, 0.01, 0.2, -0.4, 0.05), strict=True):
        for seed in range(6):
            value = float(shift + 0.05 * rng.gamma(0.5))
            store.add(name, seed, {"loss": value})
            frame.append({"variant": name, "seed": seed, "loss": value})
    study, judged = read_study(store, "a_study"), judge(pd.DataFrame(frame), **ASKED).report
    assert study.evidence.tails is not None
    assert judged.evidence.tails == study.evidence.tails
    assert judged.answer.together == study.answer.together
    for ours, theirs in zip(judged.variants, study.variants, strict=True):
        assert ours.difference == theirs.difference
        if theirs.verdict is not None:
            assert ours.verdict is not None
            assert ours.verdict.word == replacement_word(theirs.verdict.word)
            assert ours.verdict.bound == theirs.verdict.bound
            assert ours.verdict.p_not_needed == theirs.verdict.p_not_needed


def test_judged_runs_that_are_kept_have_the_same_verdicts(tmp_path: Path) -> None:
    """To the digit, in a store and in another to which the study was moved; failures and names of units stay."""
    runs = {"base": {"a": 1.0, "b": 1.2, "c": 0.8}, MARKUP: {"a": 1.4, "b": 1.7, "c": math.nan}}
    judged = judge(table(runs), **ASKED)
    for _ in range(2):  # the second time replaces the first
        assert judged.keep(tmp_path / "s.db", "mine") == ["mine"]
    with open_store(tmp_path / "s.db") as store, open_store(tmp_path / "t.db") as other:
        store.export_study("mine", tmp_path / "mine.zip")
        other.import_study(tmp_path / "mine.zip")
        for place in (store, other):
            kept = read_study(place, "mine")
            (summary,) = place.studies()
            assert (summary.judged, summary.finished, summary.diverged, summary.failed) == (True, 5, 0, 1)
            for ours, theirs in zip(kept.variants, judged.report.variants, strict=True):
                assert (ours.difference, ours.verdict) == (theirs.difference, theirs.verdict)
                assert [failed.reason for failed in ours.failed] == [failed.reason for failed in theirs.failed]
            assert why(kept, MARKUP).seeds == pytest.approx({"a": 0.4, "b": 0.5})
        with pytest.raises(SpaceError, match="judged, not trained here"):
            stored_space(store.study("mine").space, "mine")
        store.begin_study(StudyDraft("trained", "", "", {}, "", ASKED | {"direction": "minimize"}, "base"), [], [])
    with pytest.raises(StoreError, match=r"s\.db: a study of this name was trained here"):
        judged.keep(tmp_path / "s.db", "trained")
    with pytest.raises(ArgumentError, match="not a name for a study"):
        judged.keep(tmp_path / "s.db", "a/b")


def test_runs_are_judged_again_under_a_name_whose_study_was_renamed(tmp_path: Path) -> None:
    judged = judge(table({"base": BASE, MARKUP: {"1": 1.01, "2": 1.22, "3": 0.8}}), **ASKED)
    judged.keep(tmp_path / "s.db", "mine")
    with open_store(tmp_path / "s.db") as store:
        store.rename_study("mine", "before")
    judged.keep(tmp_path / "s.db", "mine")
    with open_store(tmp_path / "s.db") as store:
        for name in ("mine", "before"):
            assert [row.verdict for row in read_study(store, name).variants] == [
                row.verdict for row in judged.report.variants
            ]
        store.delete_study("before")
        assert [row.verdict for row in read_study(store, "mine").variants] == [
            row.verdict for row in judged.report.variants
        ]


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    monkeypatch.chdir(tmp_path)
    run_here = Workplace(tmp_path, cache).call
    table({"base": BASE, MARKUP: {"1": 1.01, "2": 1.22, "3": 0.8}}).to_csv("runs.csv", index=False)
    options = ["--metric", "loss", "--direction", "lower", "--margin", "0.1", "--baseline", "base"]
    shown = run_here("judge", "runs.csv", *options)
    assert shown.code == 0
    assert "3 seeds each, paired by seed" in shown.out
    assert MARKUP in shown.out
    plain = json.loads(run_here("judge", "runs.csv", *options, "--json").out)
    study = judge("runs.csv", **ASKED)
    (variant,) = (one for one in plain["questions"]["loss"]["variants"] if one["name"] == MARKUP)
    assert variant["versus_baseline"]["difference"] == row(study, MARKUP).difference.difference
    assert plain["questions"]["loss"]["judged"]["evidence"] == "3 seeds each, paired by seed"
    assert plain["answer"]["groups"][0]["rows"][0]["variant"] == MARKUP
    assert "not paired, the 95 % bounds would be" in run_here("judge", "runs.csv", *options, "--why", MARKUP).out
    assert run_here("judge", "runs.csv", *options, "--format", "md", "--out", "reports").code == 0
    assert (tmp_path / "reports" / "loss.md").is_file()
    Path("described.yaml").write_text(
        'table: {files: "runs.csv"}\nmetric: loss\nmargin: 0.1\nbaseline: base\ndirection: lower\n'
    )
    assert run_here("judge", "described.yaml").out.splitlines()[:2] == shown.out.splitlines()[:2]
    with Path("described.yaml").open("a") as description:
        description.write("question: Which is lower?\nsource: someone's runs\n")
    assert run_here("judge", "described.yaml").out.splitlines()[0] == "Which is lower?"
    assert run_here("judge", "described.yaml", "--format", "md", "--out", "described").code == 0
    assert "The runs are those of someone's runs;" in (tmp_path / "described" / "loss.md").read_text()
    for arguments in (
        ["runs.csv"],
        ["none.csv", *options],
        ["runs.csv", *options, "--where", "x"],
        ["runs.csv", *options, "--at", "noon"],
    ):
        refused = run_here("judge", *arguments)
        assert refused.code == 2
        assert "Traceback" not in refused.err
