"""The best trivial baseline stands beside the models, in every table."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import replace
from io import StringIO
from typing import Any

import pytest
from fake_store import FakeStore, fake_store
from rich.console import Console

from ablate.analysis.findings import read_findings
from ablate.analysis.study import read_study
from ablate.analysis.trivial import learning_warnings, standing_of, trivial_baselines, trivial_sentences
from ablate.analysis.warnings import StudyWarning
from ablate.render.as_json import study_json, to_text
from ablate.render.document import ablation_table
from ablate.render.formats import Place, find_format
from ablate.render.table import print_study
from ablate.spec.suite import on_data
from ablate.spec.task import task_hash
from ablate.stats.schedule import SeedSchedule

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
    assert report.evidence.trivial is not None
    assert report.evidence.trivial.name == "trigram", "the table shows the best"
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


COUNTED = {"unigram": 3.3, "bigram": 2.5, "trigram": 1.9}
LITTLE = "Differences between models that have learnt so little"
IN_VAIN = (
    f"with 95 %% confidence: %s. {LITTLE} say nothing about models that learn. Train for more steps, or at a better "
    "learning rate."
)
BEHIND = f"with 95 %% confidence: %s. {LITTLE} are not informative."
BETWEEN = (
    "beat%s the trivial baseline bigram (val_loss 2.5) with 95 %% confidence, but not the best one, trigram (1.9). "
    "Verdicts apply to models of this size and length of training."
)
EACH = "(one-sided 95 % bound for each)."
LEARNT: dict[str, tuple[dict[str, Sequence[float]], dict[str, float], list[tuple[Any, ...]], list[str]]] = {
    "the only one learnt nothing": (
        {"a": [4.0, 4.0]}, COUNTED,
        [("unlearnt", "void", "no model beats a bigram (2.5)",
          "No answer yet: the only model does not beat the trivial baseline bigram (val_loss 2.5) " + IN_VAIN % "a (4)",
          ("a",), True)],
        [],
    ),
    "two of two tasks learnt nothing": (
        {"b": [4.0], "a of another": [3.6, 3.6]}, COUNTED,
        [("unlearnt", "void", "no model beats a bigram",
          "No answer yet: none of the 2 models beats the trivial baseline bigram (val_loss 2.5) "
          + IN_VAIN % "b (4, one seed) and a of another (3.6, and bigram 3.5 on its task)",
          ("a of another", "b"), True)],
        ["The other model beats unigram by at least 0.7 (one-sided 95 % bound)."],
    ),
    "one of three learnt nothing, one little": (
        {"c": [2.5, 2.5], "b": [2.0, 2.0], "a": [1.5, 1.5]}, COUNTED,
        [("unlearnt", "void", "{variants}: no better than a bigram (2.5)",
          "1 of 3 models does not beat the trivial baseline bigram (val_loss 2.5) " + BEHIND % "c (2.5)",
          ("c",), False),
         ("beaten", "weak", "2 of 3 models are not shown to beat a trigram (1.9)",
          "1 of 3 models " + BETWEEN % "s", ("b",), False)],
        ["The other model beats trigram by at least 0.4 (one-sided 95 % bound)."],
    ),
    "two are not shown to be better than the best of two": (
        {"b": [1.0, 1.9], "a": [1.9, 1.9], "c": [1.5, 1.5], "d": [1.0, 1.0]}, {"commonest label": 1.9, "unigram": 3.3},
        [("unlearnt", "void", "{variants}: not shown to be better than the commonest label (1.9)",
          "2 of 4 models do not beat the best trivial baseline, commonest label (val_loss 1.9) "
          + BEHIND % "b (1.45) and a (1.9)", ("a", "b"), False)],
        ["The other 2 models beat commonest label by at least 0.4 " + EACH],
    ),
    "two of two tasks learnt little": (
        {"b": [2.0, 2.1, 2.2], "a of another": [2.9, 2.9]}, COUNTED,
        [("beaten", "weak", "no model is shown to beat a trigram (1.9)",
          "2 of 2 models " + BETWEEN % "", ("b", "a of another"), False)],
        ["Both models beat the trivial baseline bigram of their tasks, by at least 0.23 " + EACH],
    ),
    "the only one learnt little": (
        {"a": [2.0, 2.0]}, COUNTED,
        [("beaten", "weak", "no model is shown to beat a trigram (1.9)",
          "The only model " + BETWEEN % "s", ("a",), False)],
        ["The model beats the trivial baseline bigram (val_loss 2.5), by at least 0.5 (one-sided 95 % bound)."],
    ),
    "one of two learnt little, and the task of the other has two rules": (
        {"b": [2.0, 2.0], "a without trigram": [1.5, 1.5]}, COUNTED,
        [("beaten", "weak", "1 of 2 models is not shown to beat a trigram (1.9)",
          "1 of 2 models " + BETWEEN % "s", ("b",), False)],
        ["Both models beat the trivial baseline bigram (val_loss 2.5), by at least 0.5 " + EACH],
    ),
    "all learnt enough": (
        {"a": [0.896, 0.896], "b": [0.1, 0.1], "c": [0.5, 0.5]}, COUNTED, [],
        ["All 3 models beat the best trivial baseline, trigram (val_loss 1.9), by at least 1 " + EACH],
    ),
    "single seeds learnt": ({"a": [2.4], "b": [1.0]}, COUNTED, [], []),
}  # fmt: skip
"""Losses of models by seed, losses of the rules, warnings, and sentences. On another task each rule loses 1 more."""


@pytest.mark.parametrize(("models", "rules", "warned", "said"), LEARNT.values(), ids=LEARNT)
def test_what_models_learnt_beside_rules_that_learn_nothing(
    models: dict[str, Sequence[float]], rules: dict[str, float], warned: list[tuple[Any, ...]], said: list[str]
) -> None:
    standings = []
    for name, values in models.items():
        own = {rule: {"val_loss": value + ("another" in name)} for rule, value in rules.items()}
        if "without" in name:
            del own[name.split()[-1]]
        trivial = trivial_baselines(own, "val_loss", "minimize")
        standings.append(standing_of(name, values, trivial, "minimize", None))
    warnings = learning_warnings(standings)
    told = [(one.key, one.level, one.text, one.full, one.variants, one.replaces_headline) for one in warnings]
    assert (told, [*trivial_sentences(standings)]) == (warned, said)


def test_a_model_that_beat_a_rule_at_one_look_of_a_schedule_beats_it() -> None:
    (rule,) = trivial_baselines({"unigram": {"val_loss": 3.0}}, "val_loss", "minimize")
    values, plan = [2.0, 2.01, 1.99, 9.0], SeedSchedule(3, 12)
    for n, ahead in ((2, set()), (3, {"unigram"}), (4, {"unigram"})):
        assert standing_of("a", values[:n], [rule], "minimize", plan).ahead.keys() == ahead


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
    bars = {name: on_data("", task_hash(json.dumps(task, sort_keys=True))) for name, task in tasks.items()}
    variants = tuple(replace(one, spec={"task": tasks[one.name]}) for one in store.record.variants)

    def named(**there: float) -> list[StudyWarning]:
        here = {"unigram": 3.5, "bigram": 2.5}
        trivial = {"unigram": {"val_loss": 3.5}}
        for variant, rules in (("baseline", here), ("skip=none", there)):
            trivial |= {rule + bars[variant]: {"val_loss": value} for rule, value in rules.items()}
        store.record = replace(store.record, variants=variants, trivial=trivial)
        return [line for line in read_study(store, "a_study").answer.warnings if line.key == "other task"]

    assert named(unigram=3.5, bigram=2.5) == []
    for there, said in (
        ({"unigram": 5.25, "bigram": 2.5}, " (a unigram has 5.25 there, 3.5 on the baseline's)"),
        ({"unigram": 3.5, "bigram": 2.25}, " (a bigram has 2.25 there, 2.5 on the baseline's)"),
        ({"majority": 3.0}, ""),
    ):
        (line,) = named(**there)
        text = f"{{variants}}: val_loss is measured on another task{said}"
        assert (line.level, line.text, line.variants) == ("weak", text, ("skip=none",))


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
