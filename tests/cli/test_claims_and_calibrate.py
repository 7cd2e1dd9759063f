"""`ablate claims` and `ablate calibrate` on a store that a real space was written to."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from cli_runs import Workplace
from jsonschema import Draft7Validator

from ablate.errors import SpaceError
from ablate.spec.reading import load_space
from ablate.spec.schema import space_schema
from ablate.store import (
    Environment,
    PlannedTrial,
    StudyDraft,
    TrialOutcome,
    TrialState,
    VariantRecord,
    open_store,
)

SPACE = """
name: beliefs
question: Does the norm matter?
task: {kind: language_model, data: builtin:python_stdlib, tokenizer: bytes, context: 32}
model: {family: decoder, depth: 2, width: 16, heads: 2, block: pre_ln}
training: {steps: 2, batch_size: 2, optimizer: {lr: 1.0e-3}}
switches:
  norm: {rms: {}, none: {block.norm: none}}
  skip: {kept: {}, removed: {block.skips.mixer: 0}}
design: {kind: leave_one_out, seeds: SEEDS}
objective: {metric: val_loss, margin: 0.05}
claims:
  - {id: skip-matters, says: The skip matters., source: Table 1, expect: worse, left: skip=removed, right: baseline, margin: 0.05}
  - {id: norm-can-go, expect: not_worse, left: norm=none, right: baseline, margin: 0.05}
  - {id: size, expect: 20947008, subject: {variant: baseline, quantity: parameters}, tolerance: 0}
  - {id: order, expect: ordered, order: [baseline, norm=none, skip=removed], margin: 0.001}
"""  # noqa: E501
HERE = Environment({"python": "3.12"}, "cpu", "lab", None, None, "ablate study")
NOW = datetime(2025, 5, 1, tzinfo=UTC)
EFFECTS = {"baseline": 0.0, "norm=none": 0.02, "skip=removed": 0.5}


@pytest.fixture(scope="module")
def beliefs(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Workplace:
    """Holds a store whose study tells 0.02 from the margin of 0.05, at a noise of about 0.01."""
    folder = tmp_path_factory.mktemp("claims")
    (folder / "beliefs.yaml").write_text(SPACE.replace("SEEDS", "4"), encoding="utf-8")
    space, rng = load_space(folder / "beliefs.yaml"), np.random.default_rng(2)
    objective, plain = space.objective.model_dump(mode="json"), space.model_dump(mode="json")
    with open_store(folder / "studies" / "ablate.db") as store:
        store.begin_study(
            StudyDraft(space.name, space.question, "", plain, space.text, objective, "baseline"),
            [VariantRecord(name, name, {}, {}, 20_947_008) for name in EFFECTS],
            [PlannedTrial(f"{name}/{seed}", name, seed) for seed in range(4) for name in EFFECTS],
        )
        for seed in range(4):
            loss = 3.0 + rng.normal(0, 0.1)
            for name, effect in EFFECTS.items():
                metrics = {"val_loss": loss + effect + rng.normal(0, 0.005)}
                key, finished = f"{name}/{seed}", TrialState.FINISHED
                ended = TrialOutcome(key, name, seed, finished, metrics, 2, 1.0, 9, 9.0, None, "", "data", NOW, NOW)
                store.record_outcome(ended, HERE)
    return Workplace(folder, cache)


def test_a_trained_study_settles_its_claims_also_by_another_name_of_a_variant(place: Workplace) -> None:
    file = place.folder / place.space(seeds=2)
    claims = """
variants: {plain: {norm: none}} # the same variant as norm=none, under which the study keeps it
claims:
  - {id: alias, expect: not_worse, left: plain, right: baseline, metric: parameters, margin: 0.5}
  - {id: size, expect: 1, subject: {variant: plain, quantity: parameters}}
  - {id: work, expect: 0, subject: {variant: plain, quantity: flops}, tolerance: 1.0e+12}
"""
    file.write_text(file.read_text() + claims, encoding="utf-8")
    trained = place.call("study", file.name, "--workers", "1")
    assert trained.code == 0, trained.err
    assert "CLAIMS    2 supported; refuted: " in trained.out
    checked = place.call("claims", "tiny", "--fail-if-refuted", "--json")
    assert checked.code == 1
    alias, size, work = json.loads(checked.out)
    assert (alias["verdict"], alias["evidence"]["left"]) == ("supported", "norm=none")
    parameters = {
        row["name"]: row["parameters"] for row in json.loads(place.call("show", "tiny", "--json").out)["variants"]
    }
    assert (size["verdict"], size["evidence"]["found"]) == ("refuted", parameters["norm=none"])
    assert (work["verdict"], work["evidence"]["found"] > 0) == ("supported", True)
    assert "Noise of val_loss" in place.call("calibrate", "tiny").out


def test_torch_is_not_imported(beliefs: Workplace) -> None:
    heavy = {"torch", "scipy.stats", "optuna"}
    commands = (
        ["claims", "beliefs"],
        ["claims", "beliefs", "--fail-if-refuted"],
        ["show", "beliefs"],
        ["calibrate", "beliefs"],
    )
    for command, done in zip(commands, beliefs.series(*commands, python=["-W", "error"]), strict=True):
        assert (done.code, done.err, heavy & set(done.imported)) == (0, "", set()), command


def test_claims_are_listed(beliefs: Workplace) -> None:
    done = beliefs.call("claims", "beliefs")
    assert (done.code, done.err) == (0, "")
    lines = [line.rstrip() for line in done.out.splitlines()]
    assert lines[0] == "Claims: 4 supported"
    assert "skip-matters  The skip matters.  (Table 1)" in lines
    assert "    supported: baseline has 20,947,008 parameters" in lines
    assert beliefs.call("claims", "beliefs", "--fail-if-refuted").code == 0
    assert "CLAIMS    4 supported" in beliefs.call("show", "beliefs").out


def test_claims_for_a_program(beliefs: Workplace) -> None:
    plain = json.loads(beliefs.call("claims", "beliefs", "--json").out)
    assert [claim["id"] for claim in plain] == ["skip-matters", "norm-can-go", "size", "order"]
    assert plain == json.loads(beliefs.call("show", "beliefs", "--json").out)["claims"]


def test_check_fails_when_a_claim_is_refuted(beliefs: Workplace, place: Workplace) -> None:
    space = load_space(beliefs.folder / "beliefs.yaml").model_dump(mode="json")
    space["claims"][0]["expect"] = "not_worse"
    place.store.parent.mkdir()
    place.store.write_bytes(beliefs.store.read_bytes())
    with open_store(place.store) as store:
        record = store.study("beliefs")
        store.begin_study(
            StudyDraft(record.name, record.question, "", space, "", record.objective, "baseline"),
            record.variants,
            record.planned,
        )
    assert place.call("claims", "beliefs").code == 0
    checked = place.call("claims", "beliefs", "--fail-if-refuted")
    assert checked.code == 1
    assert "refuted: skip=removed is at least 0.4" in checked.out


def test_calibrate_prints_detectable_differences(beliefs: Workplace) -> None:
    done = beliefs.call("calibrate", "beliefs")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("Noise of val_loss, paired by seed, over 2 comparisons: 0.0")
    _, table, _ = done.out.split("\n\n")
    rows = [line.split() for line in table.splitlines() if line.split()[0].isdigit()]
    assert [row[0] for row in rows] == ["2", "3", "4", "5", "7", "10", "15", "20"]
    plain = json.loads(beliefs.call("calibrate", "beliefs", "--json").out)
    assert 0.004 < plain["noise"]["sd"] < 0.012
    tells = [power["detectable_difference"] for power in plain["fixed"]]
    assert tells == sorted(tells, reverse=True)
    for power in plain["fixed"]:
        assert power["false_needed"]["low"] <= 0.055
        assert power["false_not_needed"]["low"] <= 0.055
    assert plain["adaptive"] is None


def test_a_study_without_trials_cannot_be_calibrated(beliefs: Workplace, place: Workplace) -> None:
    with open_store(place.store) as store:
        store.begin_study(
            StudyDraft("empty", "?", "", {}, "", {"metric": "x", "direction": "minimize", "margin": 1.0}, "baseline"),
            [VariantRecord("baseline", "b", {}, {}, 1)],
            [PlannedTrial("b/0", "baseline", 0)],
        )
    done = place.call("calibrate", "empty")
    assert done.code == 2
    assert "shows no noise yet" in done.err
    assert "Run it with at least 2 seeds." in " ".join(done.err.split())
    claims = place.call("claims", "empty", "--fail-if-refuted")
    assert (claims.code, "has no claims" in claims.out) == (0, True)


def test_an_invalid_claim_is_reported_with_line_and_column(tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    text = SPACE.replace("SEEDS", "4").replace("left: norm=none", "left: norm=non")
    file.write_text(text, encoding="utf-8")
    with pytest.raises(SpaceError) as caught:
        load_space(file)
    line = next(number for number, line in enumerate(text.splitlines(), 1) if "norm=non," in line)
    message = str(caught.value)
    assert f"wrong.yaml:{line}:" in message
    assert "the design trains no variant `norm=non`. Did you mean `norm=none`?" in message


def test_the_json_schema_takes_the_claims_and_underlines_mistakes(tmp_path: Path) -> None:
    from ruamel.yaml import YAML

    validator = Draft7Validator(space_schema())
    plain = YAML(typ="safe").load(SPACE.replace("SEEDS", "4"))
    assert list(validator.iter_errors(plain)) == []
    for key, value in (("expect", "bettr"), ("margn", 0.1), ("margin", "much")):
        wrong = {**plain, "claims": [{**plain["claims"][0], key: value}]}
        assert list(validator.iter_errors(wrong))
