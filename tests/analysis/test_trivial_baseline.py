"""The best trivial baseline stands beside the models, in every table."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from io import StringIO

import pytest
from fake_store import FakeStore, fake_store
from rich.console import Console

from ablate.analysis.findings import read_findings
from ablate.analysis.study import read_study
from ablate.analysis.trivial import Standing, learning_warnings, standing_of, trivial_baselines
from ablate.analysis.warnings import StudyWarning
from ablate.render.as_json import study_json, to_text
from ablate.render.document import ablation_table
from ablate.render.formats import Place, find_format
from ablate.render.table import print_study
from ablate.spec.suite import on_data
from ablate.spec.task import task_hash

TRIVIAL = {"majority": {"val_loss": 2.5, "val_accuracy": 0.1}, "unigram": {"val_loss": 3.5, "val_accuracy": 0.75}}


def study(metric: str, direction: str, reached: float, trivial: dict[str, dict[str, float]] = TRIVIAL) -> FakeStore:
    store = fake_store({"baseline": ({}, 100), "skip=none": ({"skip": "none"}, 90)}, metric=metric, direction=direction)
    store.record = replace(store.record, trivial=trivial)
    for seed in range(3):
        store.add("baseline", seed, {metric: reached + 0.01 * seed})
        store.add("skip=none", seed, {metric: reached})
    return store


@pytest.mark.parametrize(
    ("metric", "direction", "best", "value"),
    [("val_loss", "minimize", "majority", 2.5), ("val_accuracy", "maximize", "unigram", 0.75)],
)
def test_the_best_is_the_best_by_the_objective(metric: str, direction: str, best: str, value: float) -> None:
    store = study(metric, direction, 0.8 if direction == "maximize" else 2.0)
    report = read_study(store, "a_study")
    assert report.evidence.trivial is not None
    assert (report.evidence.trivial.name, report.evidence.trivial.value) == (best, value)
    assert report.answer.warning_sentences == ()
    assert report.answer.sentences[-1].startswith(
        f"Both models beat the best trivial baseline, {best} ({metric} {value:.4g}), by"
    )
    plain = study_json(report)["trivial_baselines"]
    assert plain == {"best": best, "metrics": TRIVIAL}
    to_text(plain)

    out = Console(file=StringIO(), width=100)
    print_study(report, out)
    line = next(line for line in out.file.getvalue().splitlines() if line.startswith(best))
    assert "trivial baseline" in line
    assert f"{value:.2f}" in line

    findings = read_findings(store, "a_study")
    table = ablation_table(findings.report)
    assert table.groups[-1][0][0] == best
    for name in ("md", "html", "latex", "terminal"):
        assert "trivial baseline" in find_format(name).render(findings, Place())
    rows = list(csv.DictReader(io.StringIO(find_format("csv").render(findings, Place()))))
    assert {row["trivial_baseline"] for row in rows} == {best}
    assert {float(row["trivial_value"]) for row in rows} == {value}


@pytest.mark.parametrize(
    ("metric", "direction", "reached"), [("val_loss", "minimize", 2.6), ("val_accuracy", "maximize", 0.7)]
)
def test_a_baseline_that_has_learnt_nothing_is_reported(metric: str, direction: str, reached: float) -> None:
    report = read_study(study(metric, direction, reached), "a_study")
    assert report.answer.sentences[: len(report.answer.warning_sentences)] == report.answer.warning_sentences
    (caveat,) = report.answer.sentences
    assert caveat.startswith("No answer yet: none of the 2 models beats the trivial baseline")
    assert report.answer.warning_sentences == report.answer.sentences


def test_a_study_whose_models_know_less_than_pairs_of_tokens_has_no_answer() -> None:
    trivial = {name: {"val_loss": value} for name, value in {"unigram": 3.3, "bigram": 2.5, "trigram": 1.9}.items()}
    store = study("val_loss", "minimize", 2.6, trivial)
    for seed in range(3):
        store.add("skip=none", seed, {"val_loss": 3.0 + 0.02 * seed})
    compared = {"left": "skip=none", "right": "baseline", "expect": "worse", "margin": 0.1}
    claims = [{"id": "worse", "says": "It is worse.", **compared}]
    subject = {"variant": "skip=none", "quantity": "val_loss"}
    claims.append({"id": "loss", "says": "It reaches 3.", "subject": subject, "expect": 3, "tolerance": 0.1})
    store.record = replace(store.record, space={**store.record.space, "claims": claims})
    report = read_study(store, "a_study")
    assert [row.verdict_word for row in report.variants[1:]] == ["undecided"]
    (row,) = (row for group in study_json(report)["answer"]["groups"] for row in group["rows"])
    assert (row["verdict"], row["bound"]) == ("undecided", None)
    for name in ("csv", "md", "html", "latex"):
        written = find_format(name).render(read_findings(store, "a_study"), Place())
        assert "undecided: no model beats a bigram" in written, name
    assert [claim.verdict for claim in report.answer.claims] == ["undecided", "supported"]
    assert report.answer.claims[0].sentence.startswith(
        "undecided: no model beats a bigram (2.5): models that have learnt"
    )
    assert report.answer.sentences[0].startswith(
        "No answer yet: none of the 2 models beats the trivial baseline bigram"
    )
    said = " ".join(report.answer.sentences)
    assert all(
        verdict not in said for verdict in ("You need", "can remove", "hold jointly", "Undecided", "by at least")
    )
    out = Console(file=StringIO(), width=100)
    print_study(report, out)
    assert "No answer yet" in out.file.getvalue()
    for seed in range(3):  # one model that knows more makes the others a warning
        store.add("skip=none", seed, {"val_loss": 2.0 + 0.02 * seed})
    report = read_study(store, "a_study")
    assert [claim.verdict for claim in report.answer.claims] == ["refuted", "refuted"]
    assert "No answer yet" not in " ".join(report.answer.sentences)
    assert any("does not beat the trivial baseline bigram" in sentence for sentence in report.answer.warning_sentences)
    texts = [[warning.text for warning in report.answer.warnings if warning.key == "beaten"]]
    for seed in range(3):
        store.add("baseline", seed, {"val_loss": 1.5 + 0.02 * seed})
    texts += [[one.text for one in read_study(store, "a_study").answer.warnings if one.key == "beaten"]]
    shown = "shown to beat a trigram (1.9)"
    assert texts == [[f"no model is {shown}"], [f"1 of 2 models is not {shown}"]]


@pytest.mark.parametrize(("loss", "answered"), [(2.4, True), (2.6, False)])
def test_single_seeds_count_by_their_means(loss: float, answered: bool) -> None:
    store = study("val_loss", "minimize", loss)
    for key in [key for key in store.trial_records if not key.endswith("/0")]:
        del store.trial_records[key]
    report = read_study(store, "a_study")
    assert report.answer.sentences[0].startswith("No answer yet") != answered
    assert bool(report.evidence.unlearnt) != answered, "nor is one of them said to have learnt nothing"
    assert not any("one-sided 95 % bound" in sentence for sentence in report.answer.sentences), "it has none"


def test_models_between_the_two_best_of_three_are_distinguished_from_those_that_learnt_nothing() -> None:
    trivial = {name: {"val_loss": value} for name, value in {"unigram": 3.3, "bigram": 2.5, "trigram": 1.9}.items()}
    store = study("val_loss", "minimize", 2.1, trivial)
    (between,) = read_study(store, "a_study").answer.warning_sentences
    assert between.startswith(
        "2 of 2 models beat the trivial baseline bigram (val_loss 2.5) with 95 % confidence, but not the best one, "
        "trigram (1.9)."
    )
    for seed in range(3):
        store.add("skip=none", seed, {"val_loss": 2.7 + 0.01 * seed, "val_accuracy": 0.1})
    report = read_study(store, "a_study")
    behind, between = report.answer.warning_sentences
    assert behind.startswith(
        "1 of 2 models does not beat the trivial baseline bigram (val_loss 2.5) with 95 % confiden"
    )
    assert ": skip=none" in behind
    assert between.startswith("1 of 2 models beats the trivial baseline bigram")
    assert report.evidence.trivial is not None
    assert report.evidence.trivial.name == "trigram", "the table shows the best"


def test_models_of_several_tasks_are_told_from_the_rules_of_the_first_of_them() -> None:
    def standing(name: str, shift: float) -> Standing:
        rules = {name: {"val_loss": value + shift} for name, value in (("uni", 3.3), ("bigram", 2.5), ("trigram", 1.9))}
        values = [2.1 + shift, 2.11 + shift, 2.12 + shift]
        found = standing_of(name, values, trivial_baselines(rules, "val_loss", "minimize"), "minimize", None)
        assert found is not None
        return found

    (alone,), (both,) = (learning_warnings(some) for some in ([standing("a", 0)], [standing("a", 0), standing("b", 1)]))
    beaten = "the trivial baseline bigram (val_loss 2.5) with 95 % confidence, but not the best one, trigram (1.9)."
    assert alone.full.startswith(f"The only model beats {beaten}")
    assert both.full.startswith(f"2 of 2 models beat {beaten}")


@pytest.mark.parametrize("trivial", [{}, {"source": {"val_bleu": 0.3}}])
def test_without_one_nothing_is_reported(trivial: dict[str, dict[str, float]]) -> None:
    report = read_study(study("val_loss", "minimize", 9.0, trivial), "a_study")
    assert report.evidence.trivial is None
    assert study_json(report)["trivial_baselines"]["best"] is None
    assert not any("trivial" in sentence for sentence in report.answer.sentences)


def test_learning_is_checked_by_the_loss_where_no_rule_has_the_objective() -> None:
    store = study("inside_kurtosis", "minimize", 3.0)
    for seed in range(3):
        store.add("baseline", seed, {"inside_kurtosis": 3.0 + 0.01 * seed, "val_loss": 2.6})
        store.add("skip=none", seed, {"inside_kurtosis": 9.0 + 0.02 * seed, "val_loss": 2.7})
    report = read_study(store, "a_study")
    assert [row.verdict_word for row in report.variants[1:]] == ["undecided"]
    assert report.answer.sentences[0].startswith(
        "No answer yet: none of the 2 models beats the trivial baseline majority"
    )
    assert report.evidence.trivial is None, "the table has a column for the objective alone"
    for seed in range(3):
        store.add("baseline", seed, {"inside_kurtosis": 3.0 + 0.01 * seed, "val_loss": 2.0})
    report = read_study(store, "a_study")
    assert report.evidence.unlearnt == {"skip=none"}
    said = (
        "1 of 2 models does not beat the best trivial baseline, majority (val_loss 2.5) with 95 % confidence: skip=none"
    )
    assert any(sentence.startswith(said) for sentence in report.answer.warning_sentences)
    assert [row.verdict_word for row in report.variants[1:]] == ["needed"]


def test_a_loss_that_is_measured_on_other_tokens_is_named() -> None:
    store = study("val_loss", "minimize", 2.0)
    tasks = {"baseline": {"kind": "mine", "tokenizer": "bytes"}, "skip=none": {"kind": "mine", "tokenizer": "words"}}
    bars = {name: on_data("unigram", task_hash(json.dumps(task, sort_keys=True))) for name, task in tasks.items()}
    variants = tuple(replace(one, spec={"task": tasks[one.name]}) for one in store.record.variants)

    def named(there: float) -> list[StudyWarning]:
        trivial = {
            "unigram": {"val_loss": 3.5},
            bars["baseline"]: {"val_loss": 3.5},
            bars["skip=none"]: {"val_loss": there},
        }
        store.record = replace(store.record, variants=variants, trivial=trivial)
        return [line for line in read_study(store, "a_study").answer.warnings if line.key == "other task"]

    assert named(3.5) == []
    (line,) = named(5.25)
    assert line.variants == ("skip=none",)
    assert "a unigram has 5.25 there, 3.5 on the baseline's" in line.text


@pytest.mark.parametrize("trivial", [{}, {"source": {"val_bleu": 0.3}}])
def test_the_answer_says_that_learning_was_not_checked(trivial: dict[str, dict[str, float]]) -> None:
    report = read_study(study("val_loss", "minimize", 9.0, trivial), "a_study")
    said = [line.text for line in report.answer.warnings if line.key == "unlearnt"]
    assert said == ["learning is not checked: val_loss has no trivial baseline"]
    checked = read_study(study("val_loss", "minimize", 2.0), "a_study")
    assert not [line for line in checked.answer.warnings if line.key == "unlearnt"]


def test_test_metrics_are_shown_beside_validation_metrics() -> None:
    store = study("val_accuracy", "maximize", 0.8)
    assert read_study(store, "a_study").test_metric is None
    for seed in range(3):
        for name in ("baseline", "skip=none"):
            store.add(name, seed, {"val_accuracy": 0.8 + 0.01 * seed, "test_accuracy": 0.3125})
    report = read_study(store, "a_study")
    assert report.test_metric == "test_accuracy"
    out = Console(file=StringIO(), width=120)
    print_study(report, out)
    text = out.file.getvalue()
    assert "test_accuracy: measured once" in " ".join(text.split())
    assert sum("0.31" in line for line in text.splitlines()) == 2
    findings = read_findings(store, "a_study")
    table = ablation_table(findings.report)
    at = table.titles.index("test_accuracy")
    assert [row[at].split()[0] for group in table.groups for row in group] == ["0.312", "0.312", "-"]
    rows = list(csv.DictReader(io.StringIO(find_format("csv").render(findings, Place()))))
    assert {float(row["test_mean"]) for row in rows} == {0.3125}
