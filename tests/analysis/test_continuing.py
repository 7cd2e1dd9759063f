"""The seeds to add are those that the answer advises; a design without schedules gets no such advice."""

from __future__ import annotations

import dataclasses

import pytest
from fake_store import FakeStore, fake_store

from ablate.analysis import read_study
from ablate.analysis.continuing import deciding_seeds, study_arguments


def _store(design: dict[str, object]) -> FakeStore:
    made = fake_store({name: ({}, 10) for name in ("baseline", "a=x")}, seeds=2, margin=0.02)
    made.record = dataclasses.replace(made.record, space={"design": design})
    for name, values in {"baseline": (3.0, 3.0), "a=x": (3.03, 3.07)}.items():
        for seed, value in enumerate(values):
            made.add(name, seed, {"val_loss": value})
    return made


@pytest.mark.parametrize("kind", ["leave_one_out", "add_one_in", "grid", "sweep"])
def test_the_answer_and_the_command_name_the_same_schedule(kind: str) -> None:
    report = read_study(_store({"kind": kind, "seeds": 2}), "a_study")
    start, _, most = deciding_seeds(report).partition(":")
    assert f"`seeds: {{start: {start}, max: {most}}}`" in " ".join(report.answer)


@pytest.mark.parametrize(
    "design",
    [
        {"kind": "simplify", "seeds": 2},
        {"kind": "nobody's", "seeds": 2},
        {"kind": "grid", "seeds": {"start": 2, "max": 8}},
    ],
)
def test_no_seeds_where_none_can_be_added(design: dict[str, object]) -> None:
    report = read_study(_store(design), "a_study")
    assert "Undecided" in " ".join(report.answer)
    assert deciding_seeds(report) == ""
    assert "set `seeds" not in " ".join(report.answer)


def test_arguments() -> None:
    assert study_arguments("s", "x.db", "3:8", ["p.py"]) == [
        "study", "--stored", "s", "--seeds=3:8", "--store=x.db", "--plugin=p.py",
    ]  # fmt: skip
