"""`ablate check-transfer`: both checks as a table, as JSON and as a picture, and its refusals."""

from __future__ import annotations

import json

import pytest
from cli_runs import Workplace


def test_both_checks_are_shown_and_their_verdict_is_the_exit_code(place: Workplace) -> None:
    space = place.space(steps=4)
    few = ("--widths", "8,16", "--rates", "0.5,1,2", "--seeds", "1")
    shown = place.call("check-transfer", space, *few, "--out", "check.svg")
    found = json.loads(place.call("check-transfer", space, *few, "--json").out)
    assert shown.code == 1 - found["transfers"]
    assert ("Rates transfer" in shown.out) == found["transfers"]
    assert not (found["transfers"] and any(curve["at_edge"] for curve in found["rates"]))
    assert [part["part"] for part in found["coordinates"]] == ["mixer", "mlp", "stream", "logits"]
    assert [(curve["size"], len(curve["losses"])) for curve in found["rates"]] == [(8, 3), (16, 3)]
    for curve in found["rates"]:
        best = min(curve["losses"], key=lambda at: at["loss"])
        assert curve["best"] == best["factor"]
    assert (place.folder / "check.svg").read_text().startswith("<svg")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--widths", "16"), "one number compares nothing"),
        (("--widths", "8,x"), "whole numbers above 0"),
        (("--rates", "1,inf"), "numbers above 0"),
        (("--out", "check.txt"), "pictures of this kind"),
    ],
)
def test_what_cannot_be_checked_is_refused(place: Workplace, arguments: tuple[str, ...], words: str) -> None:
    finished = place.call("check-transfer", place.space(), *arguments)
    assert finished.code == 2
    assert words in finished.err
