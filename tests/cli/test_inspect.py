"""Insides on the command line: `ablate inspect`, and as objective, claim and column of a study."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_runs import Finished

from ablate.metrics import INSIDES, OF_ATTENTION

Call = Callable[..., Finished]
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
