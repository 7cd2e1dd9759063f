"""The size of a cache, as Linux reports it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ablate.nn.kernels.processor import second_level_cache


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
