"""A metric that is better when larger gives the same answer as its negative, which is better when smaller."""

from __future__ import annotations

import re
from dataclasses import replace
from statistics import fmean

import pytest
from fake_store import FakeStore
from test_golden_answers import CASES

from ablate.analysis import read_study
from ablate.analysis.calibration import read_calibration
from ablate.analysis.report import StudyReport
from ablate.store.records import WINDOWS, DeclaredObjective

APART = {
    "suite": "scores lie between trivial and perfect",
    "suite_lost": "as those of a suite",
    "claims_in_a_suite": "as those of a suite",
    "target": "a target is reached from above",
    "claims_of_target": "as that of a target",
    "seconds": "as those to a target",
    "ladder": "a law falls to its limit",
}


def mirrored(made: FakeStore) -> FakeStore:
    """The same study with the negative of its metric."""
    metric = made.record.objective["metric"]

    def turned(objective: DeclaredObjective) -> DeclaredObjective:
        return objective | {"direction": "maximize" if objective["direction"] == "minimize" else "minimize"}

    trials = {
        key: replace(
            trial,
            metrics={name: -value if name == metric else value for name, value in trial.metrics.items()},
            parts={name: tuple(-value for value in values) for name, values in trial.parts.items()},
        )
        for key, trial in made.trial_records.items()
    }
    curves = {
        key: tuple(point._replace(val_loss=None if point.val_loss is None else -point.val_loss) for point in curve)
        for key, curve in made.curve_points.items()
    }
    record = replace(
        made.record,
        objective=turned(made.record.objective),
        trivial={name: {of: -value for of, value in values.items()} for name, values in made.record.trivial.items()},
        declared_before=tuple(
            replace(before, objective=turned(before.objective)) for before in made.record.declared_before
        ),
    )
    windows = {
        key: tuple(
            replace(
                one,
                values={
                    WINDOWS: {
                        name: [None if value is None else -value for value in of]
                        for name, of in one.values[WINDOWS].items()
                    }
                },
            )
            for one in recordings
        )
        for key, recordings in made.recorded.items()
    }
    return replace(made, record=record, trial_records=trials, curve_points=curves, recorded=windows)


def found(report: StudyReport) -> dict[str, object]:
    """Every verdict of a report, with its bounds."""
    bounds = {row.name: row.verdict and row.verdict.bound for row in report.variants}
    return {
        "verdicts": {row.name: row.verdict and row.verdict.word for row in report.variants},
        "bounds": {f"{name} {end}": getattr(of, end) for name, of in bounds.items() if of for end in ("low", "high")},
        "claims": {
            claim.id: re.sub(r"(beats a \w+ \()-", r"\1", claim.sentence)
            for claim in report.answer.claims
            if claim.evidence.get("quantity") != report.metric or "over" in claim.evidence
        },
        "effects": report.effects and {row.name: report.effects.side(row) for row in report.effects.main},
        "places": report.scaling
        and [[point.verdict and point.verdict.word for point in of.points] for of in report.scaling.of],
    }


@pytest.mark.parametrize("name", [name for name in CASES if not name.startswith(tuple(APART))])
def test_the_negative_of_a_metric_has_the_same_verdicts(name: str) -> None:
    made = CASES[name]()
    expected, turned = (found(read_study(one, "a_study")) for one in (made, mirrored(made)))
    assert turned.pop("bounds") == pytest.approx(expected.pop("bounds"))
    assert turned == expected


def test_the_negative_of_a_metric_has_the_same_noise_of_how_much_worse_a_variant_is() -> None:
    made = CASES["leave_one_out"]()
    plain, turned = (read_calibration(one, "a_study") for one in (made, mirrored(made)))
    assert turned.noise.residuals == pytest.approx(plain.noise.residuals)
    loss = {key: trial.metrics.get("val_loss", 0.0) for key, trial in made.trial_records.items()}
    gaps = [
        [loss[f"{name}/{seed}"] - loss[f"baseline/{seed}"] for seed in range(4)]
        for name in ("a=off", "b=off", "c=off", "d=off", "both", "again")
    ]
    spread = [gap - fmean(of) for of in gaps for gap in of]
    assert plain.noise.residuals == pytest.approx([(4 / 3) ** 0.5 * one for one in spread])
