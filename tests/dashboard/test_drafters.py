"""The processes that draw and check for the dashboard: one that is slow or killed costs its own answer alone."""

from __future__ import annotations

import json

import psutil

from dashboard.shared.pictures import Drafter

REQUEST = json.dumps(["block", "pre_ln"])


def processes() -> list[psutil.Process]:
    return [child for child in psutil.Process().children() if any("drafter.py" in part for part in child.cmdline())]


def test_one_that_takes_longer_than_its_patience_is_ended() -> None:
    before = processes()
    assert Drafter([], patience=0.0).answer(json.dumps(["schema"])) == ""
    assert processes() == before


def test_one_that_was_killed_is_restarted_and_its_start_does_not_count_as_an_answer() -> None:
    before = processes()
    drafter = Drafter([], patience=1.5)  # less than it takes to import torch
    answered = drafter.answer(REQUEST)
    assert json.loads(answered)
    (process,) = set(processes()) - set(before)
    process.kill()
    process.wait()
    assert drafter.answer(REQUEST) == answered
