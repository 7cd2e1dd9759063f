"""Tuned and matched studies: through the plan, the driver, the store and the report, and resumed from the store."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from engine_samples import ENVIRONMENT, Script, ScriptedEngine, planner
from rich.console import Console

from ablate.analysis import read_study
from ablate.analysis.course import StepsToBaseline
from ablate.analysis.findings import read_findings
from ablate.cli.spaces_and_blocks import validate
from ablate.execution.driver import StudyResult, run_study
from ablate.execution.engine import Observer
from ablate.execution.protocol import Broken, Done, Happened, Job, Message
from ablate.planning.forecast import forecast
from ablate.planning.planner import make_plan
from ablate.render.as_json import study_json, to_text
from ablate.render.document import document
from ablate.render.table import print_study
from ablate.render.terminal.plan import plan_json, print_plan
from ablate.roles import TrialRole
from ablate.spec.variant import VariantSpec
from ablate.store import Store, open_store
from ablate.store.records import VariantRecord
from ablate.training.events import Measurement

pytestmark = pytest.mark.usefixtures("folder")

LR = "training.optimizer.lr"
TUNE = {LR: [1e-3, 3e-3, 1e-2], "seeds": 2}
BEST = {"usual": 1e-3, "identity": 3e-3, "none": 1e-2}
STEP_SECONDS = {"usual": 0.1, "identity": 0.05, "none": 0.16}
"""Of a variant, of the first half of a trial twice as much."""


def spec_of(job: Job) -> VariantSpec:
    return VariantSpec.model_validate_json(job.members[0].variant)


def spec_of_row(row: VariantRecord) -> VariantSpec:
    return VariantSpec.model_validate(row.spec)


def kind_of(spec: VariantSpec) -> str:
    block = spec.model.block
    return "none" if block.norm.kind == "none" else "identity" if block.mixer.value.kind == "identity" else "usual"


def truth(spec: VariantSpec, seed: int) -> float:
    """Every variant is as good as any other, each at its own rate, but for a little noise."""
    noise = 1e-6 * (seed % 10) * list(BEST).index(kind_of(spec))
    return 0.3 + noise + 0.4 * math.log(spec.training.optimizer.lr / BEST[kind_of(spec)]) ** 2 + 0.01 * (seed % 10)


def train(job: Job, attempt: int = 1) -> Sequence[Message]:
    spec = spec_of(job)
    steps, seed = spec.training.steps, job.members[0].seed
    each, end = STEP_SECONDS[kind_of(spec)], truth(spec, seed)
    points = []
    for step in (0, *spec.training.evaluation_steps()):
        seconds = each * (2 * min(step, steps / 2) + max(0.0, step - steps / 2))
        loss = end + (steps - step) / steps
        points.append(Measurement(step, seconds, 16 * step, 100.0 * step, [loss], {"val_loss": [loss]}))
    return [*(Happened(job.number, point) for point in points), Done(job.number)]


def run(store: Store, folder: Path, script: Script | ScriptedEngine = train, **changes: Any) -> StudyResult:
    engine = script if isinstance(script, ScriptedEngine) else ScriptedEngine(script)
    return run_study(planner(folder, **changes), store, engine, ENVIRONMENT, Observer())


def words(store: Store, study: str = "sample") -> dict[str, str]:
    return {row.name: row.verdict.word for row in read_study(store, study).variants if row.verdict is not None}


def test_one_rate_for_all_gives_the_wrong_verdict_and_tuned_rates_the_right_one(store: Store, folder: Path) -> None:
    run(store, folder, name="untuned", design={"kind": "leave_one_out", "seeds": 3})
    assert words(store, "untuned") == {"values=identity": "needed", "norm=none": "needed"}
    result = run(store, folder, tune=TUNE, design={"kind": "leave_one_out", "seeds": 3})
    assert words(store) == {"values=identity": "not needed", "norm=none": "not needed"}
    # 3 variants: 3 rates with 2 seeds each, then 3 seeds; those of the baseline are the untuned study's.
    assert (result.trials, result.reused) == (3 * 6 + 3 * 3, 3)
    tuning = read_study(store, "sample").evidence.tuning
    assert tuning is not None
    assert {name: tuned.values for name, tuned in tuning.of.items()} == {
        "baseline": {LR: 1e-3},
        "values=identity": {LR: 3e-3},
        "norm=none": {LR: 1e-2},
    }
    assert tuning.seeds == (1000, 1001)
    assert tuning.edges == ("baseline", "norm=none")
    for name, tuned in tuning.of.items():
        assert [tried.values[LR] for tried in tuned.tried] == TUNE[LR]
        means = {tried.values[LR]: tried.mean for tried in tuned.tried}
        best = min(means, key=means.__getitem__)
        assert tuned.values == {LR: best}, name
        assert means[best] == pytest.approx(0.305, abs=3e-6)  # the mean over seeds 1000 and 1001, at the optimum


def test_what_is_compared_has_other_seeds_than_what_chose(store: Store, folder: Path) -> None:
    engine = ScriptedEngine(train)
    run(store, folder, engine, tune=TUNE)
    chose = [(spec_of(job), job.members[0].seed) for job in engine.jobs]
    assert {seed for _, seed in chose} == {0, 1, 1000, 1001}
    compared = [spec.training.optimizer.lr == BEST[kind_of(spec)] for spec, seed in chose if seed < 1000]
    assert compared == [True] * 6
    report = read_study(store, "sample")
    assert {row.name for row in report.variants} == {"baseline", "values=identity", "norm=none"}
    assert all(row.planned == (0, 1) for row in report.variants)
    record = store.study("sample")
    assert {planned.seed for planned in record.scout_trials} == {1000, 1001}
    assert len(record.scout_variants) == 9
    assert {planned.role for planned in record.scout_trials} == {TrialRole.TUNING}
    assert {planned.role for planned in record.planned} == {TrialRole.COMPARISON}


@pytest.mark.parametrize("match", ["steps", "seconds"])
def test_stopped_anywhere_it_continues_to_the_same_end(folder: Path, match: str) -> None:
    changes = {"tune": TUNE, "match": match, "design": {"kind": "simplify", "seeds": 2}}
    with open_store(folder / "whole.db") as store:
        whole = ScriptedEngine(train)
        run(store, folder, whole, **changes)
        expected = store.study("sample")
    assert len(set(whole.trained)) == len(whole.trained) > 20
    for limit in (3, len(whole.jobs) // 2, len(whole.jobs) - 2):
        with open_store(folder / f"{limit}.db") as store:
            first = ScriptedEngine(lambda job, attempt, n=limit: train(job) if job.number <= n else stop())
            with pytest.raises(KeyboardInterrupt):
                run(store, folder, first, **changes)
            again = ScriptedEngine(train)
            run(store, folder, again, **changes)
            assert {*first.trained[:limit], *again.trained} == set(whole.trained)
            assert len(again.jobs) <= len(whole.jobs) - limit + 2
            resumed = store.study("sample")
            assert {p.key for p in resumed.planned} == {p.key for p in expected.planned}
            assert {p.key for p in resumed.scout_trials} == {p.key for p in expected.scout_trials}
            assert {v.name: v.hash for v in resumed.variants} == {v.name: v.hash for v in expected.variants}
            rest = ScriptedEngine(train)
            run(store, folder, rest, **changes)
            assert rest.jobs == []


def stop() -> Sequence[Message]:
    raise KeyboardInterrupt


def test_a_rate_that_diverges_or_fails_loses(store: Store, folder: Path) -> None:
    def break_the_best(job: Job, attempt: int) -> Sequence[Message]:
        spec = spec_of(job)
        if spec.training.optimizer.lr == BEST[kind_of(spec)] and job.members[0].seed == 1001:
            return [Broken(job.number, "ValueError: no", "Traceback")]
        return train(job)

    run(store, folder, break_the_best, tune=TUNE)
    tuning = read_study(store, "sample").evidence.tuning
    assert tuning is not None
    chosen = {name: tuned.values[LR] for name, tuned in tuning.of.items() if tuned.values}
    assert chosen == {"baseline": 3e-3, "values=identity": 1e-3, "norm=none": 3e-3}
    assert [tried.lost for tried in tuning.of["norm=none"].tried] == [0, 0, 1]


def test_two_studies_share_their_tuning(store: Store, folder: Path) -> None:
    run(store, folder, tune=TUNE)
    other = run(store, folder, tune=TUNE, name="other", design={"kind": "grid", "seeds": 2})
    # The corner that is new: six trials tune it, two are compared.
    assert (other.trials, other.reused) == (4 * 8, 3 * 8)
    assert len(read_study(store, "other").variants) == 4


def test_claims_are_about_variants_as_they_were_tuned(store: Store, folder: Path) -> None:
    claims = [
        {
            "id": name.partition("=")[0],
            "expect": 0.31,
            "subject": {"variant": name, "quantity": "val_loss"},
            "tolerance": 0.2,
        }
        for name in ("values=identity", "norm=none")
    ]
    run(store, folder, tune=TUNE, claims=claims, design={"kind": "leave_one_out", "seeds": 3})
    assert [claim.verdict for claim in read_study(store, "sample").answer.claims] == ["supported", "supported"]


@pytest.mark.parametrize(
    "design",
    [
        {"kind": "simplify", "seeds": 2},
        {"kind": "leave_one_out", "seeds": {"start": 2, "max": 4}},
        {"kind": "fractional"},
    ],
    ids=lambda design: design["kind"],
)
def test_every_variant_that_a_design_proposes_is_tuned(store: Store, folder: Path, design: dict[str, Any]) -> None:
    run(store, folder, tune=TUNE, design=design)
    tuning = read_study(store, "sample").evidence.tuning
    assert tuning is not None
    trained = {row.name: spec_of_row(row) for row in store.study("sample").variants}
    assert {kind_of(spec) for spec in trained.values()} == set(BEST)  # the design came to each kind of variant
    assert set(tuning.of) == set(trained)
    for name, spec in trained.items():
        assert tuning.of[name].values == {LR: BEST[kind_of(spec)]}, name
        assert spec.training.optimizer.lr == BEST[kind_of(spec)], name
        assert [tried.finished for tried in tuning.of[name].tried] == [2, 2, 2], name


def test_equal_seconds_by_the_second_half_of_timing_trials(store: Store, folder: Path) -> None:
    training = {"steps": 50, "batch_size": 2, "optimizer": {"kind": "adamw", "lr": 1e-3}}
    run(store, folder, match="seconds", training=training)
    report = read_study(store, "sample")
    steps = {name: spent.steps for name, spent in report.evidence.matching.of.items()}
    assert steps == {"baseline": 50, "values=identity": 100, "norm=none": round(50 / 1.6)}
    relative = [spent.relative for spent in report.evidence.matching.of.values()]
    assert relative == pytest.approx([1.0, 1.0, 31 * 1.6 / 50])
    # Each loss falls along a line to its end. The baseline is at its end with its last step; at the baseline's learning
    # rate the other variants end higher.
    assert report.evidence.matching.axis == "seconds"
    spent = {row.name: row.spent_to_baseline for row in report.variants}
    seconds = STEP_SECONDS["usual"] * (2 * 25 + 25)  # a step of the first half takes twice as long
    assert spent == {
        "baseline": StepsToBaseline(pytest.approx(seconds), 2, 2),
        "values=identity": StepsToBaseline(None, 0, 2),
        "norm=none": StepsToBaseline(None, 0, 2),
    }
    assert {row.name: row.steps_to_baseline.median for row in report.variants} == {
        "baseline": 50,
        "values=identity": None,
        "norm=none": None,
    }


def test_the_table_says_what_was_chosen_what_is_at_an_edge_and_how_near_the_budgets_are(
    store: Store, folder: Path
) -> None:
    run(store, folder, tune=TUNE, match="flops")
    console = Console(file=StringIO(), width=140)
    report = read_study(store, "sample")
    print_study(report, console)
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    (head,) = [line for line in lines if line.startswith("variant")]
    assert head.split() == ["variant", "parameters", "change", "lr", "val_loss", "difference", "verdict", "FLOP"]
    named = [line for line in lines if line.split() and line.split()[0] in report.evidence.matching.of]
    cells = {line.split()[0]: line for line in reversed(named)}  # sentences below the table begin with names too
    assert " 0.001* " in cells["baseline"]
    assert " 0.003 " in cells["values=identity"]
    assert " 0.01* " in cells["norm=none"]
    text = " ".join(" ".join(lines).split())
    assert "edge of the grid for baseline, norm=none" in text
    assert "Matched: equal flops, by `training.steps`" in text
    plain = json.loads(to_text(study_json(report)))
    assert plain["tune"] == {"grid": {LR: TUNE[LR]}, "seeds": [1000, 1001], "before": []}
    assert plain["match"]["equal"] == "flops"
    assert [variant["tuned"]["values"][LR] for variant in plain["variants"]] == [1e-3, 3e-3, 1e-2]
    found = read_findings(store, "sample")
    assert (found.cost.trials, found.scouting.trials) == (6, 18)
    assert "Fair comparison" in [section.title for section in document(found).sections]


def test_an_unfinished_study_can_be_shown_while_it_tunes(store: Store, folder: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(store, folder, lambda job, attempt: train(job) if job.number < 6 else stop(), tune=TUNE)
    report = read_study(store, "sample")
    assert report.evidence.tuning is not None
    assert all(tuned.values is None for tuned in report.evidence.tuning.of.values())
    assert report.answer.sentences[0].startswith("This answer is provisional: ")
    assert report.answer.warning_sentences == report.answer.sentences[:1]
    print_study(report, console := Console(file=StringIO(), width=100))
    assert "Still tuning: baseline, values=identity, norm=none." in console.file.getvalue()  # type: ignore[attr-defined]


def test_the_plan_counts_tuning_and_what_follows(store: Store, folder: Path) -> None:
    made, plain = make_plan(planner(folder, tune=TUNE)), make_plan(planner(folder))
    assert (len(made.trials), len(made.later), len(plain.trials)) == (18, 6, 6)
    assert made.flops == pytest.approx(4 * plain.flops)
    assert [variant.name for variant in made.variants] == [variant.name for variant in plain.variants]
    told = plan_json(made, forecast(made, str(folder / "none.db")))
    assert (len(told["trials"]), len(told["later"]), len(told["scouts"])) == (18, 6, 9)
    print_plan(made, forecast(made, str(folder / "none.db")), console := Console(file=StringIO(), width=200))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "18 trials of 9 variants tune these first" in text
    assert "24 trials, 24 of them to train" in text
    assert "0-1" in text


def test_validate_says_what_is_tuned_and_matched(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = planner(folder, tune=TUNE, match="flops").space
    (folder / "sample.yaml").write_text(json.dumps(made.model_dump(mode="json")))
    validate("sample.yaml")
    told = " ".join(capsys.readouterr().out.split())
    assert told == (
        "sample.yaml is a valid space: 3 points, each with 2 seeds, tuned over 3 values first, at equal flops."
    )
