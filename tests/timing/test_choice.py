"""The table of choices: similar sizes share an entry, invalid entries are ignored, concurrent writers do no damage."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ablate.errors import EngineError
from ablate.nn.kernels import choice, convolution, linear_attention
from ablate.nn.pack.initial import stream
from ablate.spec.lookup import find_block
from ablate.timing.measure import Setting, step_of
from ablate.timing.tune import fastest, tune

WAYS = {"slow": 1, "fast": 2}


@pytest.fixture(autouse=True)
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("ABLATE_CACHE", str(tmp_path))
    choice.table.cache_clear()
    yield tmp_path / "kernels.json"
    choice.table.cache_clear()


def test_the_rule_holds_until_something_is_measured() -> None:
    x = torch.zeros(1)
    assert choice.choose("sum", WAYS, "slow", x, 100, 30) == 1
    choice.remember({choice.key("sum", "cpu", 128, 32): "fast"})
    assert choice.choose("sum", WAYS, "slow", x, 100, 30) == 2
    assert choice.choose("sum", WAYS, "slow", x, 129, 30) == 1
    assert choice.choose("product", WAYS, "slow", x, 100, 30) == 1


@pytest.mark.parametrize("text", ["", "{", "[1, 2]", '{"sum/cpu/128": "gone"}', '{"sum/cpu/128": 3}', "\x00"])
def test_a_table_that_makes_no_sense_changes_nothing(table: Path, text: str) -> None:
    table.write_text(text, encoding="utf-8")
    assert choice.choose("sum", WAYS, "slow", torch.zeros(1), 128) == 1


def test_what_is_remembered_is_added() -> None:
    choice.remember({"a": "slow"})
    choice.remember({"b": "fast"})
    choice.table.cache_clear()
    assert choice.table() == {"a": "slow", "b": "fast"}


@given(st.lists(st.tuples(*[st.floats(0.5, 2.0)] * 3), min_size=3, max_size=20))
def test_what_is_tuned_is_never_slower_than_the_rule_but_for_noise(rounds: list[tuple[float, ...]]) -> None:
    taken = dict(zip("abc", map(list, zip(*rounds, strict=True)), strict=True))
    for rule in "abc":
        way = fastest(taken, rule)
        assert np.median(taken[way]) <= np.median(taken[rule])
        wins = sum(ours < theirs for ours, theirs in zip(taken[way], taken[rule], strict=True))
        assert way == rule or wins >= 0.75 * len(rounds)


def test_a_way_that_always_wins_is_taken_and_one_that_sometimes_does_is_not() -> None:
    rule = [1.0, 1.1, 0.9, 1.0]
    assert fastest({"rule": rule, "other": [0.5, 0.6, 0.4, 0.5]}, "rule") == "other"
    assert fastest({"rule": rule, "other": [0.9, 1.2, 0.8, 1.05]}, "rule") == "rule"
    assert fastest({"a": [2.0, 2.0], "b": [1.0, 3.0]}, "gone") in ("a", "b")
    assert fastest({"a": [2.0, 2.0], "b": [1.0, 1.0]}, "gone") == "b"


BLOCKS = ["simple", "linear", "performer", "retention", "gated_linear_attention", "he", "me", "she"]


def test_tuning_leaves_a_choice_for_every_kernel_that_the_blocks_ask_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ablate.timing.tune._SECONDS", 0.0)
    setting = Setting(8, 2, 2, "cpu", whole=False)
    tuned = list(tune(BLOCKS, [30], setting))
    assert {one.key.split("/")[0] for one in tuned} == {"causal", "depthwise", "shared", "full"}
    assert all(one.seconds[one.way] <= one.seconds[one.rule] for one in tuned)
    assert choice.table() == {one.key: one.way for one in tuned}
    for name in BLOCKS:
        model = find_block(name).model(width=8, heads=2, depth=None)
        with choice.asking() as asked:
            step_of(name, model, 30, setting)()
        assert asked
        assert {key for key, (ways, _) in asked.items() if len(ways) > 1} <= choice.table().keys(), name


def test_a_way_that_gives_other_numbers_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = {**convolution.SHARED, "direct": lambda x, w: 1.01 * convolution.shared_direct(x, w)}
    monkeypatch.setattr(convolution, "SHARED", wrong)
    with pytest.raises(EngineError, match="shared/cpu/32: `depthwise` is not equal to `direct`"):
        list(tune(["me"], [30], Setting(8, 2, 2, "cpu", whole=False)))
    assert choice.table() == {}


def test_every_way_gives_the_same() -> None:
    generator = stream(0, "tune")
    x = torch.randn(1, 2, 30, 8, generator=generator)
    w = torch.randn(1, 30, 8, generator=generator)
    before = convolution.depthwise(x, w), linear_attention.causal(x, x, x)
    for name in ("direct", "fourier", "pairs"):
        choice.remember({choice.key("depthwise", "cpu", 30, 30): name})
        torch.testing.assert_close(convolution.depthwise(x, w), before[0], rtol=1e-4, atol=1e-4)
        odd = convolution.depthwise(x[:, :1], w)  # of which there are no pairs
        torch.testing.assert_close(odd, before[0][:, :1], rtol=1e-4, atol=1e-4)
    for name in linear_attention.CHUNKS:
        choice.remember({choice.key("causal", "cpu", 30, 8, 8): name})
        torch.testing.assert_close(linear_attention.causal(x, x, x), before[1], rtol=1e-4, atol=1e-4)
