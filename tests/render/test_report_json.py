"""Reading a report imports no heavy packages; its JSON has stable keys and strict numbers."""

from __future__ import annotations

import dataclasses
import json
import math

import jsonschema
import pytest
from fake_store import NOON, FakeStore, fake_store

from ablate.analysis import read_study
from ablate.analysis.findings import read_findings
from ablate.analysis.status import read_overview
from ablate.render.as_json import report_json, study_json, to_text
from ablate.render.formats import render_report
from ablate.render.outputs import as_data
from ablate.render.terminal.outputs import output_schema
from ablate.render.terminal.studies import studies_json
from ablate.stats import Allowance, judge
from ablate.store.records import StudySummary, TrialState

SCHEMA = output_schema("show")


def test_each_check_by_signs_names_what_it_tests() -> None:
    made = fake_store({"baseline": ({}, 10), "a=x": ({}, 9)}, seeds=3, margin=0.5)
    claim = {"id": "it", "expect": "worse", "left": "a=x", "right": "baseline", "margin": 0.5}
    made.record = dataclasses.replace(made.record, space={"claims": [claim]})
    for seed in range(3):
        made.add("baseline", seed, {"val_loss": 3.0})
        made.add("a=x", seed, {"val_loss": 3.5 + (seed - 1) / 10})
    plain = study_json(read_study(made, "a_study"))
    # Differences 0.4, 0.5 and 0.6: symmetric about the margin, all above 0.
    assert plain["variants"][1]["versus_baseline"]["sign_flip_at_margin"] == {"p": 1.0, "floor": 0.25}
    assert plain["claims"][0]["evidence"]["sign_flip_at_zero"] == {"p": 0.25, "floor": 0.25}


@pytest.fixture
def store() -> FakeStore:
    store = fake_store({"baseline": ({"norm": "rms"}, 1000), "norm=none": ({"norm": "none"}, 900)}, seeds=2)
    store.add("baseline", 0, {"val_loss": 3.0, "val_perplexity": math.inf}, curve=[(0, 5.0), (10, 3.0)])
    store.add("baseline", 1, {"val_loss": 3.25})
    store.add("norm=none", 0, {"val_loss": 3.5}, curve=[(0, 5.0), (10, math.nan)])
    store.add("norm=none", 1, state=TrialState.DIVERGED, stopped_at=4, curve=[(0, math.inf)])
    return store


def test_what_nobody_has_counted_is_absent(store: FakeStore) -> None:
    """Of the user's own trainer neither parameters nor arithmetic are known, and tokens if it has written them."""
    variants = tuple(dataclasses.replace(one, parameters=None) for one in store.record.variants)
    space = {"trainer": {"command": ["train"]}, "switches": {"norm": {"rms": {}, "none": {}}, "b": {"c": {}, "d": {}}}}
    store.record = dataclasses.replace(store.record, space=space, variants=variants)
    for tokens in (0, 500):
        for seed in range(2):
            store.add("baseline", seed, {"val_loss": 3.0 + seed / 8}, tokens=tokens, curve=[(5, 4.0), (10, 3.0)])
            store.add("norm=none", seed, {"val_loss": 3.5}, tokens=tokens, curve=[(5, 4.5), (10, 3.5)])
        findings = read_findings(store, "a_study")
        plain = json.loads(to_text(report_json(findings)))
        jsonschema.validate(plain, output_schema("report"))
        for row in plain["variants"]:
            assert (row["parameters"], row["parameter_change"]) == (None, None)
            assert all(
                (point["tokens"], point["flops"]) == (None, None) for point in (row["course"] or {}).get("points", ())
            )
        for cost in (plain["cost"], *plain["cost"]["variants"].values()):
            assert (bool(cost["tokens"]), cost["flops"]) == (bool(tokens), None)
        assert plain["cost"]["full_grid"]["flops"] is None
        written = str(render_report(findings, "md"))
        assert "FLOP" not in written
        assert ("tokens" in written) == bool(tokens)
        overview = read_overview(store, "a_study")
        assert (overview.simplest_parameters, overview.flops) == (None, None)


def test_keys_and_values(store: FakeStore) -> None:
    plain = json.loads(to_text(study_json(read_study(store, "a_study"))))
    jsonschema.validate(plain, SCHEMA)
    baseline, variant = plain["variants"]
    assert (plain["study"], plain["baseline"], plain["claims"]) == ("a_study", "baseline", [])
    assert baseline["versus_baseline"] is None
    assert baseline["metrics"]["val_loss"]["mean"] == 3.125
    assert baseline["metrics"]["val_perplexity"] == {"mean": None, "low": None, "high": None, "n": 1}
    assert (variant["name"], variant["hash"], variant["settings"]) == (
        "norm=none",
        "hash of norm=none",
        {"norm": "none"},
    )
    assert (variant["parameters"], variant["seeds"]) == (900, [0])
    assert variant["states"] == {"0": "finished", "1": "diverged"}
    versus = variant["versus_baseline"]
    assert (versus["difference"], versus["low"], versus["high"], versus["n"]) == (None, None, None, 1)
    assert versus["verdict"] == "diverged"


def test_no_results_at_all_is_still_strict_json() -> None:
    store = fake_store({"baseline": ({}, 0), "norm=none": ({}, 900)})
    plain = json.loads(to_text(study_json(read_study(store, "a_study"))))
    jsonschema.validate(plain, SCHEMA)
    assert plain["variants"][1]["versus_baseline"]["n"] == 0
    assert plain["progress"] == {
        "planned": 6,
        "waiting": 6,
        "running": 0,
        "finished": 0,
        "diverged": 0,
        "pruned": 0,
        "failed": 0,
    }


def test_strict_text_refuses_what_json_cannot_represent() -> None:
    with pytest.raises(ValueError, match="JSON"):
        to_text({"x": math.nan})


def test_studies() -> None:
    (plain,) = studies_json([StudySummary("one", "Why?", 3, 10, 5, 1, 1, 2, 1, NOON)])
    assert plain == {
        "study": "one",
        "question": "Why?",
        "variants": 3,
        "planned": 10,
        "finished": 5,
        "diverged": 1,
        "pruned": 1,
        "failed": 2,
        "running": 1,
        "judged": False,
        "updated_at": "2024-05-17T12:00:00+00:00",
    }


def test_bounds_without_an_end_are_null() -> None:
    """The verdict of a step of a path of which a confirmation trial failed has no upper bound."""
    allowance = Allowance(high=math.inf, why_high=("a trial failed",))
    verdict = judge({0: 1.0, 1: 1.1}, {0: 1.0, 1: 1.0}, margin=0.1, direction="minimize", allowance=allowance)
    assert verdict.bound is not None
    assert verdict.bound.high == math.inf
    written = json.loads(to_text(as_data(verdict)))
    assert written["bound"]["high"] is None
    assert written["bound"]["low"] == pytest.approx(verdict.bound.low)
