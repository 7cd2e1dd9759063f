"""`ablate study` from a space file to an answer, with real training."""

from __future__ import annotations

import json
import re
import shlex
import shutil

from cli_runs import ABLATE, Finished, Workplace, wait_for

KEYS = [
    *("study", "trials", "trained", "reused", "failed", "diverged", "pruned", "seconds", "interrupted"),
    *("verdicts", "headline"),
]

MIXERS = '''
"""Two mixers written for [B, T, D], without a thought for the pack axis."""

import os
from typing import ClassVar, Literal

import torch
from torch import nn

from ablate.spec.cost import Cost
from ablate.spec.layer import LayerContext
from ablate.spec.sublayers import MixerSpec


class Mean(nn.Module):
    def forward(self, x, padding=None):
        return x.cumsum(1) / torch.arange(1, x.shape[1] + 1, device=x.device)[:, None]


class Angry(Mean):
    def forward(self, x, padding=None):
        if "MENDED" not in os.environ:
            raise RuntimeError("this mixer always fails")
        return super().forward(x)


class RunningMeanSpec(MixerSpec):
    """Mean of the past."""

    source: ClassVar[str] = "folklore"
    complexity: ClassVar[str] = "Ld"
    bidirectional_form: ClassVar[bool] = False
    pack_aware: ClassVar[bool] = False
    kind: Literal["running_mean"] = "running_mean"

    def build(self, context: LayerContext) -> nn.Module:
        return Mean()

    def cost(self, context: LayerContext, length: int) -> Cost:
        return Cost(additions=length * context.width)


class AngrySpec(RunningMeanSpec):
    """Raises when it is used."""

    kind: Literal["angry"] = "angry"

    def build(self, context: LayerContext) -> nn.Module:
        return Angry()
'''


def finished_trials(place: Workplace) -> dict[str, tuple[object, ...]]:
    """Key to metrics and curve of the finished trials, without the time of day."""
    return {key: row[1:] for key, row in place.trials("finished").items()}


def test_a_study_prints_its_progress_and_its_answer_with_commands_that_work(done: tuple[Workplace, Finished]) -> None:
    place, finished = done
    assert finished.code == 0
    assert finished.err == ""
    assert "\x1b" not in finished.out
    assert "\r" not in finished.out
    for trial in range(1, 10):
        line = next(line for line in finished.out.splitlines() if line.startswith(f"{trial}/9  "))
        assert re.fullmatch(r"\d/9  (baseline|values=identity|norm=none) +seed [012]  val_loss \d\.\d{4} .* s.*", line)
    answer = finished.out[finished.out.index("Does a tiny model need its maps?") :]
    assert "No answer yet: no model beats a bigram" in answer
    more = re.search(r"^MORE +\S*ablate (show tiny)\b", answer, re.MULTILINE)
    assert more is not None
    shown = place.call("show", "tiny")
    assert (shown.code, shown.err) == (0, "")
    assert shown.out.strip() == answer.strip()
    for options in (["--why", "norm=none"], ["--table"], ["--checks"], ["--full"]):
        again = place.call(*more[1].split(), *options)
        assert (again.code, again.err) == (0, "")
        assert again.out


def test_a_plan_takes_the_options_that_continue_a_study(done: tuple[Workplace, Finished]) -> None:
    place, _ = done
    planned = place.call("plan", "tiny", "--stored", "--seeds=4", "--json")
    assert planned.code == 0, planned.err
    keys = {trial["key"] for trial in json.loads(planned.out)["trials"]}
    assert len(keys) == 12, "three variants with four seeds each"
    assert set(place.trials("finished")) < keys, "those that the study has trained are among them"
    assert place.call("plan", "tiny.yaml", "--seeds=1", "--json").code == 0


def test_a_finished_study_answers_at_once(done: tuple[Workplace, Finished]) -> None:
    place, _ = done
    before = place.trials("finished")
    assert len(before) == 9
    again = place.call("study", "tiny.yaml", "--json")
    assert again.code == 0
    assert list(again.last_object) == KEYS
    counts = {"study": "tiny", "trials": 9, "trained": 0, "reused": 9, "failed": 0, "diverged": 0, "pruned": 0}
    assert {key: again.last_object[key] for key in counts} == counts
    assert set(again.last_object["verdicts"]) == {"values=identity", "norm=none"}
    assert again.out.count("\n") == 1  # progress went to stderr
    assert "9 trials reused from the store\n" in again.err
    assert place.trials("finished") == before


def test_two_workers_and_a_second_store_give_the_same_numbers_to_the_last_bit(
    done: tuple[Workplace, Finished],
) -> None:
    place, _ = done
    before = finished_trials(place)
    shutil.move(place.store.parent, place.folder / "first")
    try:
        counted = place.call("study", "tiny.yaml", "--json", "--workers", "1").last_object
        assert counted["trained"] == 9
        assert finished_trials(place) == before
    finally:
        shutil.rmtree(place.store.parent, ignore_errors=True)
        shutil.move(place.folder / "first", place.store.parent)


def test_a_second_space_reuses_the_trials_that_it_shares(place: Workplace) -> None:
    assert place.call("study", place.space("first", seeds=1), "--workers", "1").code == 0
    before = place.trials("finished")
    # Another question about the same models: its name and margin are not part of a variant.
    second = place.call("study", place.space("second", seeds=2, margin=0.2), "--workers", "1")
    assert "3 trials reused from the store, 3 of them from other studies" in second.out
    after = place.trials("finished")
    assert len(after) == 6
    assert before.items() <= after.items()


def test_failures_and_divergences_are_reported_and_the_rest_continues(place: Workplace) -> None:
    place.folder.joinpath("mine.py").write_text(MIXERS)
    file = place.folder / place.space("trouble")
    old = "switches:\n"
    new = old + "  mixer: {usual: {}, mean: {block.mixer: running_mean}, angry: {block.mixer: angry}}\n"
    new += "  rate: {usual: {}, huge: {training.optimizer.lr: 1.0e+30}}\n"
    file.write_text(file.read_text().replace(old, new))

    first = wait_for(place.fork("study", file.name, "--plugin", "mine.py", "--workers", "1", "--json"))
    assert first.code == 3, first
    expected = {"study": "trouble", "trials": 12, "trained": 8, "reused": 0, "failed": 2, "diverged": 2, "pruned": 0}
    assert first.last_object.items() >= expected.items()
    assert "mixer=angry" in first.err
    assert "failed: RuntimeError: this mixer always fails" in first.err
    assert re.search(r"rate=huge +seed 0  diverged: the loss was (nan|inf) at step \d", first.err)
    assert "2 of 12 trials failed. Retry:\n  " in first.err
    stored = place.rows("SELECT stopped_at, metrics, reason FROM trials WHERE state = 'diverged'")
    assert all(step in {1, 2, 3} and json.loads(metrics) == {} and reason for step, metrics, reason in stored)
    ((reason,), *_) = place.rows("SELECT reason FROM trials WHERE state = 'failed'")
    assert reason.splitlines()[0] == "RuntimeError: this mixer always fails"
    assert "in forward" in reason

    shown = json.loads(place.call("show", "trouble", "--json").out)
    verdicts = {row["name"]: (row["versus_baseline"] or {}).get("verdict") for row in shown["variants"]}
    assert verdicts["rate=huge"] == "diverged"
    huge = next(row for row in shown["variants"] if row["name"] == "rate=huge")
    assert huge["metrics"] == {}
    assert "diverged" in place.call("show", "trouble").out

    # The same command, as it is suggested, tries what failed again, and nothing else.
    before = place.trials("finished") | place.trials("diverged")
    program, *arguments = shlex.split(first.err.splitlines()[-1])
    mended = wait_for(place.fork(*arguments, MENDED="1"))
    assert program == ABLATE
    assert mended.code == 0, mended
    assert {key: mended.last_object[key] for key in ("trained", "reused", "failed", "diverged")} == {
        "trained": 2,
        "reused": 8,
        "failed": 0,
        "diverged": 2,
    }
    assert before.items() <= (place.trials("finished") | place.trials("diverged")).items()
