"""`ablate cost`, `ablate bench` and `ablate inspect`: what they print for a block, and what they refuse."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_runs import Finished, Workplace

from ablate.cli.app import app
from ablate.errors import AblateError
from ablate.metrics import INSIDES, OF_ATTENTION


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


SPACE = """
name: tiny
question: Is the norm needed?
task: {kind: copy, symbols: 8, span: 4}
model: {family: decoder, depth: 2, width: 8, heads: 2, block: pre_ln}
training: {steps: 2, batch_size: 2, optimizer: {lr: 1.0e-3}}
switches: {mixer: {attention: {}, mamba2: {block.mixer: mamba2}}}
design: {kind: leave_one_out, seeds: 2}
objective: {metric: val_loss, direction: minimize, margin: 0.1}
"""


@pytest.fixture
def space(tmp_path: Path) -> Path:
    file = tmp_path / "tiny.yaml"
    file.write_text(SPACE, encoding="utf-8")
    return file


def test_a_space_and_its_variant(call: Call, space: Path) -> None:
    done = call("inspect", str(space), "--seeds", "2", "--json")
    assert done.code == 0, done.err
    told = json.loads(done.out)
    assert told["name"] == "tiny/baseline"
    assert set(told["by_block"]) == set(INSIDES) - {"update_ratio"}
    assert list(told["by_block"]["stream_rms"]) == ["block 0", "block 1", "block 2"]
    assert all(len(values) == 2 for values in told["metrics"].values())
    done = call("inspect", str(space), "--variant", "mixer=mamba2")
    assert done.code == 0, done.err
    assert all(f"no {measure}" in done.out for measure in OF_ATTENTION)
    assert "forward_growth" in done.out


def test_a_model_on_random_tokens(call: Call) -> None:
    done = call("inspect", "gpt2_small", "--context", "8", "--seeds", "1")
    assert done.code == 0, done.err
    assert "random sequences of 8 tokens" in done.out
    assert "kurtosis" in done.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["gpt2_small", "--variant", "x"], ["--variant", "only a space"]),
        (["nothing_like_this"], ["nothing_like_this"]),
        (["SPACE", "--context", "8"], ["--context"]),
        (["SPACE", "--variant", "norm=none"], ["--variant", "baseline, mixer=mamba2"]),
    ],
)
def test_mistakes(call: Call, space: Path, arguments: list[str], words: list[str]) -> None:
    done = call("inspect", *(str(space) if argument == "SPACE" else argument for argument in arguments))
    assert done.code == 2, done.err
    assert all(word in done.err for word in words)


def test_insides_are_an_objective_a_claim_and_a_column(call: Call, space: Path) -> None:
    claim = "{id: entropy, expect: better, left: mixer=mamba2, right: baseline, metric: inside_attention_entropy"
    text = SPACE.replace("val_loss", "inside_stream_rms_block_2").replace("training: {", "training: {insides: ends, ")
    space.write_text(
        text + f"columns: [inside_attention_entropy, flops]\nclaims: [{claim}, direction: maximize, margin: 0.1}}]\n",
        encoding="utf-8",
    )
    assert (done := call("study", str(space))).code == 0, done.err
    told = json.loads(call("show", "tiny", "--json").out)
    baseline, other = told["variants"]
    assert baseline["metrics"]["inside_attention_entropy"]["n"] == 2
    assert "inside_attention_entropy" not in other["metrics"]
    assert other["metrics"]["flops"]["mean"] > 0
    assert "mixer=mamba2 has no inside_attention_entropy: no mixer" in " ".join(call("claims", "tiny").out.split())
    space.write_text(SPACE.replace("val_loss", "inside_kurtosis"), encoding="utf-8")
    assert "training.insides" in call("validate", str(space)).err
