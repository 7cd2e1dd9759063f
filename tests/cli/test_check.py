"""`ablate check`: finds what is broken in a user's mixer, from a file or from an installed package."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

MIXER = '''
from typing import Literal
import torch
from ablate.spec.cost import Cost
from ablate.spec.mixer import MixerContext, MixerSpec

class {name}Spec(MixerSpec):
    """A mean over the tokens so far, or something like it."""
    kind: Literal["{kind}"] = "{kind}"
    source = "a test"
    complexity = "Ld"
    bidirectional_form = False
    pack_aware = False

    def build(self, context: MixerContext) -> torch.nn.Module:
        return {name}()

    def cost(self, context: MixerContext, length: int) -> Cost:
        return Cost(additions=length * context.width)

class {name}(torch.nn.Module):
    def forward(self, x, padding=None):
        {body}
'''
MASKED = """real = torch.ones(x.shape[:2]) if padding is None else padding.float()
        return (x * real[..., None]).cumsum(1) / real.cumsum(1).clamp(min=1)[..., None]"""
LEAKY = "return x.roll(-1, 1)"


def ablate(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "PYTHONPATH": f"{Path.cwd()}:{folder}"}
    command = [sys.executable, "-m", "ablate.cli", *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=300
    )


def test_a_right_mixer_passes(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MIXER.format(name="Mine", kind="mine", body=MASKED), encoding="utf-8")
    done = ablate("check", "mine", "--plugin", "mine.py", folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "keeps all" in done.stdout


def test_a_leak_is_found(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MIXER.format(name="Mine", kind="mine", body=LEAKY), encoding="utf-8")
    done = ablate("check", "mine", "--plugin", "mine.py", "--json", folder=tmp_path)
    assert done.returncode == 1, done.stderr
    assert "hides_the_future" in {finding["rule"] for finding in json.loads(done.stdout)["findings"]}
    assert "hides_the_future" in ablate("check", "mine", "--plugin", "mine.py", folder=tmp_path).stdout


def test_an_installed_package_brings_its_kind(tmp_path: Path) -> None:
    (tmp_path / "theirs.py").write_text(MIXER.format(name="Theirs", kind="theirs", body=MASKED), encoding="utf-8")
    info = tmp_path / "theirs-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text("[ablate.mixers]\ntheirs = theirs\n", encoding="utf-8")
    listed = ablate("kinds", "--json", folder=tmp_path)
    assert "theirs" in {mixer["kind"] for mixer in json.loads(listed.stdout)["mixers"]}
    assert ablate("check", "theirs", folder=tmp_path).returncode == 0


def test_an_unknown_kind_is_a_mistake(tmp_path: Path) -> None:
    done = ablate("check", "atention", folder=tmp_path)
    assert done.returncode == 2
    assert "Did you mean `attention`" in done.stderr


@pytest.mark.parametrize("width", ["80", "100"])
def test_kinds_fit_the_terminal(width: str, tmp_path: Path) -> None:
    """No name or word is broken over two lines, and no line is longer than the terminal."""
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "COLUMNS": width}
    command = [sys.executable, "-m", "ablate.cli", "kinds"]
    shown = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=300).stdout
    assert max(map(len, shown.splitlines())) <= int(width)
    assert "gated_linear_attention" in shown
    assert "causal or bidirectional" in shown
