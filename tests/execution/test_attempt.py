"""What an attempt keeps of the events of a trial, and the outcome that it makes of them."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from engine_samples import ENVIRONMENT, planner

from ablate.designs.base import FixedDesign, Point, Proposal
from ablate.execution.attempt import Attempt, Dialogue, curve_point
from ablate.execution.reproduce import TOLERANCE, Reproduction
from ablate.planning.planner import make_plan
from ablate.roles import TrialRole
from ablate.store.records import CurvePoint, TrialState, WorkerRecord
from ablate.training.events import Diverged, Measurement, Started

WORKER = WorkerRecord("there", "cpu", 7)


def attempt_of(folder: Path, member: int = 1, **training: Any) -> Attempt:
    usual = {"steps": 8, "batch_size": 2, "optimizer": {"lr": 1e-3}}
    trial = make_plan(planner(folder, training={**usual, **training})).trials[0]
    return Attempt(trial, 1, member, 2, datetime.now(UTC), worker=WORKER)


def point(step: int, *losses: float, **more: Any) -> Measurement:
    """A point of a pack of two, whose second member has these losses and the first others."""
    metrics = {name: [99.0, loss] for name, loss in zip(("val_loss", "val_accuracy"), losses, strict=False)}
    return Measurement(step, 0.5 * step, 16 * step, 100.0 * step, [98.0, 3.0 + step], metrics, **more)


def test_a_curve_has_one_point_for_each_step_and_its_own_member(folder: Path) -> None:
    attempt = attempt_of(folder)
    assert (attempt.left, attempt.is_whole) == (1.0, False)
    never = attempt.outcome("it broke")
    assert (never.steps, never.seconds, never.tokens, never.flops, never.curve) == (0, 0.0, 0, 0.0, ())
    assert attempt.add(point(2, 5.0)) == CurvePoint(2, 1.0, 32, 200.0, 5.0, 5.0)
    assert attempt.left == 0.75
    parts = {"val_loss": [[9.0, 1.0], [8.0, 2.0]]}
    attempt.add(point(8, 4.0, 0.5, parts=parts, measured_at={"val_accuracy": 6}))
    assert (attempt.left, attempt.is_whole) == (0.0, True)
    attempt.add(point(8, 3.5, 0.25, parts=parts))
    assert [(one.step, one.val_loss, one.train_loss) for one in attempt.curve] == [(2, 5.0, 5.0), (8, 3.5, 11.0)]
    assert (attempt.metrics, attempt.parts) == ({"val_loss": 3.5, "val_accuracy": 0.25}, {"val_loss": (1.0, 2.0)})
    outcome = attempt.outcome()
    assert (outcome.state, outcome.reason, outcome.stopped_at) == (TrialState.FINISHED, "", None)
    assert (outcome.steps, outcome.seconds, outcome.tokens, outcome.flops) == (8, 4.0, 128, 800.0)
    assert (outcome.curve, outcome.parts) == (tuple(attempt.curve), attempt.parts)
    assert outcome.code == attempt.trial.code.identity


@pytest.mark.parametrize("how", ["begin_again", "restart_with"])
def test_a_job_that_sends_its_curve_again_begins_with_an_empty_one(folder: Path, how: str) -> None:
    attempt = attempt_of(folder)
    attempt.add(point(2, 5.0, compile_seconds=2.0))
    history = [(0, {"lr": 0.1}), (4, {"lr": 0.2})]
    if how == "begin_again":
        attempt.begin_again()
    else:
        attempt.restart_with(history)
    assert (attempt.curve, attempt.recordings) == ([], [])
    expected = (2, None) if how == "begin_again" else (1, WORKER)
    assert (attempt.number, attempt.worker) == expected
    for step in (0, 4, 6):
        attempt.add(point(step, 5.0))
    used = [(one.step, one.values.get("values")) for one in attempt.recordings]
    assert used == ([] if how == "begin_again" else [(0, {"lr": 0.1}), (4, {"lr": 0.1}), (6, {"lr": 0.2})])


def test_what_was_recorded_at_one_step_is_one_recording(folder: Path) -> None:
    attempt = attempt_of(folder, record_blocks=True)
    attempt.record_transfer(Started(1, "source", ("a",), ("b",), ("c",)))
    attempt.add(point(0, 5.0, usage={"cores": 1.0}, inside={"norm": {"blocks.0": [[1.0], [2.0]]}}))
    attempt.add(point(3, 4.0, compile_seconds=2.5, windows={"val_loss": [[9.0], [1.0]]}))
    for number, value in ((4, 2.0), (5, math.inf)):
        inside = point(number, 4.0)
        inside.metrics["inside_norm"] = [1.0, value]
        attempt.add(inside)
        attempt.add(point(number, 4.0, usage={"cores": value}))
    transfer = {"source": "source", "copied": ("a",), "new": ("b",), "unused": ("c",)}
    first, second, *insides = ((one.step, one.values) for one in attempt.recordings)
    assert first == (0, {"transfer": transfer, "usage": {"cores": 1.0}, "norm": {"blocks.0": [2.0]}})
    assert second == (3, {"compilation": {"seconds": 2.5}}), "windows are kept of trials that start from weights"
    assert insides == [
        (4, {"insides": {"inside_norm": 2.0}, "usage": {"cores": 2.0}}),
        (5, {"insides": {"inside_norm": None}, "usage": {"cores": math.inf}}),
    ]


@pytest.mark.parametrize("failure", ["", "it broke"])
@pytest.mark.parametrize("pruned", [None, 4])
@pytest.mark.parametrize("diverged", [None, Diverged(1, 6, math.inf)])
def test_a_failure_counts_before_a_divergence_and_that_before_the_end_by_a_design(
    folder: Path, failure: str, pruned: int | None, diverged: Diverged | None
) -> None:
    attempt = attempt_of(folder)
    attempt.add(point(4, 5.0, parts={"val_loss": [[9.0, 1.0], [8.0, 2.0]]}))
    attempt.pruned_at, attempt.diverged, attempt.parted = pruned, diverged, "its pack was split"
    outcome = attempt.outcome(failure)
    if failure:
        expected = TrialState.FAILED, failure
    elif diverged:
        expected = TrialState.DIVERGED, "the loss was inf at step 6"
    elif pruned:
        expected = TrialState.PRUNED, "its design ended it at step 4"
    else:
        expected = TrialState.FINISHED, "its pack was split"
    assert (outcome.state, outcome.reason) == expected
    assert bool(outcome.metrics) == bool(outcome.parts) == (outcome.state is TrialState.FINISHED)
    assert outcome.stopped_at == (6 if diverged else pruned)


@pytest.mark.parametrize("loss", [1.0, math.nan, math.inf])
def test_a_trial_whose_objective_is_not_finite_has_diverged_and_other_metrics_are_left_out(
    folder: Path, loss: float
) -> None:
    attempt = attempt_of(folder)
    attempt.add(point(4, 5.0))
    attempt.add(point(8, loss, math.nan, measured_at={"val_loss": 6}))
    attempt.check_finite("val_loss")
    outcome = attempt.outcome()
    finite = math.isfinite(loss)
    assert outcome.state is (TrialState.FINISHED if finite else TrialState.DIVERGED)
    assert outcome.metrics == ({"val_loss": loss} if finite else {})
    assert outcome.steps == 6, "the step of the objective"
    assert finite or outcome.reason == f"`val_loss` was {loss} at step 8"
    attempt.check_finite("val_other")
    assert attempt.counts_at is None, "of a metric that it lacks nothing is said"
    assert (attempt.diverged is None) == finite


@pytest.mark.parametrize("role", TrialRole)
def test_a_design_knows_of_comparisons_once_one_has_ended(folder: Path, role: TrialRole) -> None:
    attempt, proposal = attempt_of(folder), Proposal(Point("a", {}, role=role), 0)
    dialogue = Dialogue(FixedDesign([], (), lambda point: None), "val_loss", lambda keys: {})
    assert dialogue.ask(proposal, attempt.trial.key)
    assert not dialogue.ask(proposal, attempt.trial.key), "it is queued"
    assert not dialogue.has_compared
    dialogue.end(attempt.outcome(), 8, watched=True)
    assert dialogue.has_compared == (role is TrialRole.COMPARISON)
    assert not dialogue.ask(proposal, attempt.trial.key), "its result was told"


def test_a_point_of_a_curve_has_only_what_was_measured_there() -> None:
    assert curve_point(point(3), 0).val_loss is None
    assert curve_point(point(3, math.nan), 1).val_loss is None
    assert curve_point(point(3, 1.0, measured_at={"val_loss": 2}), 1).val_loss is None
    assert curve_point(point(3, 1.0, measured_at={"val_loss": 3}), 1).val_loss == 1.0


@pytest.mark.parametrize(
    ("losses", "ends", "verdict", "largest"),
    [
        ([4.0, 3.0], (None, None), "identical", 0.0),
        ([4.0, 3.0 + TOLERANCE / 2], (None, None), "equal", TOLERANCE / 2),
        ([4.0 - 2 * TOLERANCE, 3.0], (None, None), "different", 2 * TOLERANCE),
        ([4.0, None], (None, None), "different", 0.0),
        ([4.0], (None, None), "different", 0.0),
        ([4.0, 3.0], (None, 7), "different", 0.0),
        ([4.0, 3.0], (7, 7), "identical", 0.0),
        ([4.0, 3.0], (7, 8), "different", 0.0),
        ([], (None, None), "different", None),
    ],
)
def test_a_trial_is_reproduced_if_it_ends_alike_with_the_losses_that_it_had(
    folder: Path, losses: list[float | None], ends: tuple[int | None, int | None], verdict: str, largest: float | None
) -> None:
    def curve(values: list[float | None], train: float) -> tuple[CurvePoint, ...]:
        return tuple(CurvePoint(step, 0.0, 0, 0.0, train, value) for step, value in enumerate(values))

    class Trial:
        stopped_at = ends[0]

    again = None if ends[1] is None else Diverged(0, ends[1], math.inf)
    made = Reproduction(Trial(), "", curve([4.0, 3.0], 5.0), curve(losses, 5.0), again, ENVIRONMENT)  # type: ignore[arg-type]
    assert made.verdict == verdict
    assert made.largest_difference == (None if largest is None else pytest.approx(largest, abs=1e-12))
    if verdict == "identical":
        other = Reproduction(Trial(), "", made.stored, curve(losses, 5.1), again, ENVIRONMENT)  # type: ignore[arg-type]
        assert other.verdict == "equal", "the training losses differ"
