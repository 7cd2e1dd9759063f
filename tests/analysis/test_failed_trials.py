"""Failures and their reasons are reported wherever a study is read; seeds are advised only where they would help."""

from __future__ import annotations

import dataclasses
import json

import pytest
from fake_store import FakeStore, fake_store
from rich.console import Console

from ablate.analysis.answer import answer_of
from ablate.analysis.findings import read_findings
from ablate.analysis.study import read_study
from ablate.analysis.why import gate
from ablate.render.formats import render_report
from ablate.render.table import print_study
from ablate.roles import TrialRole
from ablate.store.records import PlannedTrial, TrialState, VariantRecord

WHY = "ValueError: the width 3 is odd\nTraceback (most recent call last):\n  File mixer.py"


def study(baseline: TrialState, other: TrialState, seeds: int = 2) -> FakeStore:
    made = fake_store({"baseline": ({}, 10), "a=x": ({}, 9)}, seeds=seeds)
    for name, state in (("baseline", baseline), ("a=x", other)):
        for seed in range(seeds):
            finished = state is TrialState.FINISHED
            reason = WHY if state is TrialState.FAILED else "" if finished else "the loss was nan at step 9"
            made.add(name, seed, {"val_loss": 3.0 + seed} if finished else {}, state=state, reason=reason)
    return made


def shown(made: FakeStore) -> str:
    console = Console(width=100)
    with console.capture() as capture:
        print_study(read_study(made, "a_study"), console)
    return capture.get()


@pytest.mark.parametrize(
    ("baseline", "other", "why"),
    [
        (
            TrialState.DIVERGED,
            TrialState.FINISHED,
            "the baseline diverged at seeds 0 and 1 (the loss was nan at step 9)",
        ),
        (
            TrialState.FAILED,
            TrialState.FINISHED,
            "the baseline failed at seeds 0 and 1 (ValueError: the width 3 is odd)",
        ),
        (TrialState.FINISHED, TrialState.FAILED, "its trials failed at seeds 0 and 1 (ValueError: the width 3 is odd)"),
    ],
)
def test_the_answer_says_what_was_lost_and_asks_for_no_seeds(baseline: TrialState, other: TrialState, why: str) -> None:
    report = read_study(study(baseline, other), "a_study")
    caveat, *answer = report.answer.sentences
    assert report.answer.warning_sentences == (caveat,)
    assert ("failed" if TrialState.FAILED in (baseline, other) else "diverged at 2 of 2 seeds") in caveat
    assert answer[0] == f"Too few results to judge a=x: {why}."
    assert not any("required" in sentence for sentence in answer)
    (row,) = answer_of(report).rows
    step = answer_of(report).next[0]
    if TrialState.FAILED in (baseline, other):
        assert row.bound_text == "failures"
        assert (step.arguments, step.purpose) == (("resume", "a_study"), "tries again what failed: 2 trials")
    asked = gate(report, "a=x", "not worse")
    assert (asked.passed, asked.next) == ("undecided", (step,) if step.arguments else ())


@pytest.mark.parametrize("name", ["terminal", "md", "html", "latex"])
def test_a_report_lists_what_failed_with_its_reason_once(name: str) -> None:
    text = render_report(read_findings(study(TrialState.FINISHED, TrialState.FAILED), "a_study"), name)
    assert isinstance(text, str)
    assert "Failed" in text
    assert " ".join(text.split()).count("ValueError: the width 3 is odd") == 3  # a row for each seed, and the answer
    assert "Traceback" not in text


def test_a_long_list_is_cut_and_json_has_all_of_it() -> None:
    made = study(TrialState.FINISHED, TrialState.FAILED, seeds=13)
    text = shown(made)
    assert "Failed: 13 trials" in text
    assert text.count("a=x, seed ") == 10
    assert "and 3 more" in text
    plain = json.loads(str(render_report(read_findings(made, "a_study"), "json")))
    assert [failure["seed"] for failure in plain["failures"]] == list(range(13))
    assert plain["failures"][0] == {"variant": "a=x", "seed": 0, "reason": WHY}
    assert plain["variants"][1]["failed"][0] == {"seed": 0, "reason": WHY}


def test_trials_that_only_tune_are_listed_too() -> None:
    made = study(TrialState.FINISHED, TrialState.FINISHED)
    made.add("baseline@lr=9", 1000, state=TrialState.FAILED, reason=WHY)
    made.record = dataclasses.replace(
        made.record,
        scout_variants=(VariantRecord("baseline@lr=9", "hash", {}, {}, 10),),
        scout_trials=(PlannedTrial("baseline@lr=9/1000", "baseline@lr=9", 1000, TrialRole.TUNING),),
    )
    assert "baseline@lr=9, seed 1000: ValueError: the width 3 is odd" in shown(made)


def test_nothing_is_said_where_nothing_failed() -> None:
    assert "Failed" not in shown(study(TrialState.FINISHED, TrialState.FINISHED))
