"""`ablate cost`: Table 7 of arXiv:2308.07661 comes out of the command; sizes and names are checked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli_runs import Workplace

from ablate.cli.app import app
from ablate.errors import AblateError


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    app(args=["cost", *arguments], standalone_mode=False)
    return capsys.readouterr().out


def priced(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    answer = json.loads(run(capsys, *arguments, "--json"))
    assert isinstance(answer, dict)
    return answer


@pytest.mark.parametrize(
    ("block", "heads", "operations", "parameters"),
    [("extractor_attention", 32, 21_710_848, 65_536), ("she", 1, 278_888_448, 2_129_920)],
)
def test_table_7(capsys: pytest.CaptureFixture[str], block: str, heads: int, operations: int, parameters: int) -> None:
    mixer = priced(capsys, block, "--width", "128", "--context", "128", "--heads", str(heads))["mixer"]
    kinds = ("multiplications", "additions", "divisions", "exponentiations")
    assert sum(mixer[kind] for kind in kinds) == operations
    assert mixer["parameters"] == parameters


def test_a_model_of_the_paper_has_the_parameters_that_it_prints(capsys: pytest.CaptureFixture[str]) -> None:
    """18 layers of width 768: 167M and 146M by the paper, 166.6M and 145.9M by its code."""
    sizes = ("--width", "768", "--heads", "12", "--depth", "18", "--vocab-size", "50000")
    whole = {name: priced(capsys, name, *sizes)["total"]["parameters"] for name in ("pre_ln", "sas")}
    assert round(whole["pre_ln"] / 1e6) == 166
    assert round(whole["sas"] / 1e6) == 145


def test_total_is_the_sum_of_layers(capsys: pytest.CaptureFixture[str]) -> None:
    one, four = priced(capsys, "pre_ln"), priced(capsys, "pre_ln", "--depth", "4")
    for count in ("parameters", "flops", "activation_bytes"):
        assert four["total"][count] == 4 * one["total"][count]
        assert one["total"][count] == sum(one[part][count] for part in ("mixer", "mlp", "rest"))


@pytest.mark.parametrize(
    ("block", "scalars"),
    [("pre_ln", 2 * 64 * 96), ("simple", 3 * 32 * 32), ("linear", 3 * 32 * 33), ("we", 64 * 96), ("fnet", 0)],
)
def test_what_inference_caches(capsys: pytest.CaptureFixture[str], block: str, scalars: int) -> None:
    """Keys and values; 3 heads' states; with sums of features; all inputs; nothing where both sides are seen."""
    sizes = ("--width", "96", "--heads", "3", "--context", "64")
    found = priced(capsys, block, *sizes, "--mode", "inference")
    assert found["total"]["cache_bytes"] == 4 * scalars
    assert found["total"]["activation_bytes"] == 0


def test_a_step_of_attention_is_table_5(capsys: pytest.CaptureFixture[str]) -> None:
    mixer = priced(capsys, "extractor_attention", "--heads", "1", "--context", "57", "--mode", "inference")["mixer"]
    assert mixer["multiplications"] == 2 * 57 * 128 + 4 * 128**2


def test_the_table_says_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    shown = run(capsys, "she", "--heads", "1")
    assert "278,888,448" in shown
    assert "L²d²" in shown


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["pre_lm"], "Did you mean `pre_ln`"),
        (["pre_ln", "--heads", "3"], "the heads must divide the width"),
        (["simplify_block", "--width", "64"], "a space has its own `width`"),
        (["pre_ln", "--data", "file:text"], "a block is priced without data"),
    ],
)
def test_mistakes_are_reported(capsys: pytest.CaptureFixture[str], arguments: list[str], words: str) -> None:
    with pytest.raises(AblateError, match=words):
        run(capsys, *arguments)


def test_a_space_is_priced_on_other_data(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The data decides the vocabulary."""
    monkeypatch.chdir(tmp_path)
    place = Workplace(tmp_path, cache)
    file = tmp_path / place.space()
    file.write_text(file.read_text().replace("bytes", "chars"))
    (tmp_path / "other").mkdir()
    for name in "abcd":
        (tmp_path / "other" / name).write_text("0123456789" * 20 + name)
    (tmp_path / "other" / "e").write_text("0123456789" * 20)
    given = priced(capsys, str(file), "--cache", str(cache))["variants"][0]["vocabulary"]
    other = priced(capsys, str(file), "--cache", str(cache), "--data", "file:other")["variants"][0]["vocabulary"]
    assert given > 20
    assert 12 <= other <= 16, "ten digits, the names of the files to train on, the unknown and the end"
