"""`ablate bench`: its table, its JSON, its picture, and its errors for wrong command lines."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_runs import Finished

Call = Callable[..., Finished]


def test_table_and_picture(call: Call, tmp_path: Path) -> None:
    picture = tmp_path / "bench.svg"
    arguments = ["bench", "pre_ln", "bigbird", "--context", "16,8", "--width", "8", "--heads", "2", "--batch", "1"]
    done = call(*arguments, "--out", str(picture))
    assert done.code == 0, done.err
    assert done.out.index("8 tokens") < done.out.index("16 tokens")
    assert "sees both sides" in done.out
    assert "Time grows as" in done.out or "lost in noise" in done.out
    assert "<svg" in picture.read_text(encoding="utf-8")


def test_json(call: Call) -> None:
    done = call("bench", "we", "--context", "8", "--width", "8", "--heads", "2", "--batch", "2", "--json")
    assert done.code == 0, done.err
    told = json.loads(done.out)
    assert [(row["block"], row["length"], row["ratio"]) for row in told["rows"]] == [("we", 8, 1.0)]
    assert told["growth"] == {"we": None}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["pre_lm"], ["pre_lm", "Did you mean `pre_ln`?"]),
        (["pre_ln", "--context", "8,many"], ["--context", "got `many`", "128,512"]),
        (["pre_ln", "--context", ""], ["--context"]),
        (["pre_ln", "--context", "0"], ["above 0"]),
        (["pre_ln", "--heads", "3"], ["pre_ln", "heads"]),
        (["pre_ln", "--out", "bench.gif"], ["bench.gif", ".svg"]),
        (["pre_ln", "--out", "nowhere/bench.svg"], ["no such folder"]),
        (["pre_ln", "--device", "abacus"], ["--device", "got abacus"]),
        ([], ["BLOCK"]),
    ],
    ids=lambda value: "-".join(value).replace("/", "_"),
)
def test_wrong_command_lines(call: Call, arguments: list[str], words: list[str]) -> None:
    done = call("bench", *arguments)
    assert done.code == 2, done.err
    assert "Traceback" not in done.err
    for word in words:
        assert word in done.err
