"""The seeds to add are those that the answer advises; a design without schedules gets no such advice."""

from __future__ import annotations

import dataclasses

import pytest
from fake_store import FakeStore, fake_store

from ablate.analysis import read_study
from ablate.analysis.continuing import deciding_seeds, study_arguments
from ablate.store.records import DesignTraits


def _store(design: dict[str, object], *, adds_seeds: bool = True) -> FakeStore:
    made = fake_store({name: ({}, 10) for name in ("baseline", "a=x")}, seeds=2, margin=0.02)
    traits = DesignTraits(adds_seeds=adds_seeds)
    made.record = dataclasses.replace(made.record, space={"design": design}, traits=traits)
    for name, values in {"baseline": (3.0, 3.0), "a=x": (3.03, 3.07)}.items():
        for seed, value in enumerate(values):
            made.add(name, seed, {"val_loss": value})
    return made


def test_the_answer_and_the_command_name_the_same_schedule() -> None:
    report = read_study(_store({"kind": "somebody's", "seeds": 2}), "a_study")
    start, _, most = deciding_seeds(report).partition(":")
    assert f"`seeds: {{start: {start}, max: {most}}}`" in " ".join(report.answer.sentences)


@pytest.mark.parametrize(
    ("seeds", "adds_seeds"), [(2, False), ({"start": 2, "max": 8}, True)], ids=["no schedule", "schedule"]
)
def test_no_seeds_where_none_can_be_added(seeds: object, adds_seeds: bool) -> None:
    report = read_study(_store({"kind": "somebody's", "seeds": seeds}, adds_seeds=adds_seeds), "a_study")
    assert "Undecided" in " ".join(report.answer.sentences)
    assert deciding_seeds(report) == ""
    assert "set `seeds" not in " ".join(report.answer.sentences)


def test_arguments() -> None:
    assert study_arguments("s", "x.db", "3:8", ["p.py"]) == [
        "resume", "s", "--seeds=3:8", "--store=x.db", "--plugin=p.py",
    ]  # fmt: skip
