"""Memory: what recurrent forms allocate grows linearly; the C library reuses it; the cache has its size."""

from __future__ import annotations

import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from ablate.nn.kernels import delta_rule, linear_attention
from ablate.nn.kernels.processor import second_level_cache

CHUNK = 4


def delta(length: int) -> Tensor:
    q, k, v, g = (torch.randn(1, length, width, requires_grad=True) for width in (8, 8, 8, 1))
    return delta_rule.chunked(q, delta_rule.Written(k, k, v), -g.exp(), CHUNK)


def written(length: int) -> Tensor:
    q, k, v, g = (torch.randn(1, length, 8, requires_grad=True) for _ in range(4))
    return delta_rule.chunked(q, delta_rule.Written(k, k, None, k, v, decayed_first=False), -g.exp(), CHUNK)


def fading(length: int) -> Tensor:
    q, k, v, g = (torch.randn(1, length, width, requires_grad=True) for width in (8, 8, 8, 1))
    return linear_attention.causal(q, k, v, -g.exp(), CHUNK)


def allocated(form: Callable[[int], Tensor], length: int) -> int:
    """Bytes of all tensors that forward and backward make, however short they live."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as run:
        form(length).sum().backward()
    changes = [event.nbytes() for event in run.profiler.kineto_results.events() if event.name() == "[memory]"]
    return sum(change for change in changes if change > 0)


@pytest.mark.parametrize("form", [delta, written, fading])
def test_twice_the_tokens_take_twice_the_memory(form: Callable[[int], Tensor]) -> None:
    assert allocated(form, 1024) < 2.2 * allocated(form, 512)


PAGES = """
import resource, sys
from ablate.nn.kernels.processor import keep_freed_memory
if sys.argv[1] == "kept":
    keep_freed_memory()
for turn in range(11):
    if turn == 1:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    block = bytearray(b"x") * 40_000_000
    del block
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def pages(how: str) -> int:
    """Pages that ten blocks of 40 MB took after a first one."""
    done = subprocess.run([sys.executable, "-c", PAGES, how], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="there is nothing to set")
def test_freed_memory_is_taken_again() -> None:
    usual, kept = pages("usual"), pages("kept")
    assert kept < usual / 4  # how many there are depends on their size


@pytest.mark.parametrize(("size", "expected"), [("2048K", 2 << 20), ("1M", 1 << 20), ("", 1 << 20), ("big", 1 << 20)])
def test_the_second_level_is_read(size: str, expected: int, tmp_path: Path) -> None:
    for index, (level, own) in enumerate([("1", "32K"), ("1", "48K"), ("2", size), ("3", "65536K")]):
        folder = tmp_path / f"index{index}"
        folder.mkdir()
        (folder / "level").write_text(level + "\n", encoding="ascii")
        (folder / "size").write_text(own + "\n", encoding="ascii")
    assert second_level_cache(tmp_path) == expected


def test_an_unknown_system_has_a_usual_one(tmp_path: Path) -> None:
    assert second_level_cache(tmp_path / "nowhere") == 1 << 20
