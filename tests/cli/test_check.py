"""`ablate check-kind` finds the mistakes of a user's mixer; `ablate check-transfer` in all its outputs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_runs import Finished, Workplace, wait_for

MIXER = '''
from typing import Literal
import torch
from ablate.spec.cost import Cost
from ablate.spec.layer import LayerContext
from ablate.spec.sublayers import MixerSpec

class {name}Spec(MixerSpec):
    """A mean over the tokens so far, or something like it."""
    kind: Literal["{kind}"] = "{kind}"
    source = "a test"
    complexity = "Ld"
    bidirectional_form = False
    pack_aware = False

    def build(self, context: LayerContext) -> torch.nn.Module:
        return {name}()

    def cost(self, context: LayerContext, length: int) -> Cost:
        return Cost(additions=length * context.width)

class {name}(torch.nn.Module):
    def forward(self, x, padding=None):
        {body}
'''
MASKED = """real = torch.ones(x.shape[:2]) if padding is None else padding.float()
        return (x * real[..., None]).cumsum(1) / real.cumsum(1).clamp(min=1)[..., None]"""
LEAKY = "return x.roll(-1, 1)"


FROZEN = """torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.unused = torch.nn.Linear(9, 9).requires_grad_(False)
"""


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> dict[str, Finished]:
    """The output of `check` for a correct mixer, for one that leaks and for one with a frozen map."""
    place = Workplace(tmp_path_factory.mktemp("check"), cache)
    files = {
        "right": MIXER.format(name="Right", kind="right", body=MASKED),
        "leaky": MIXER.format(name="Leaky", kind="leaky", body=LEAKY),
        "frozen": MIXER.replace("torch.nn.Module):\n", FROZEN).format(name="Frozen", kind="frozen", body=MASKED),
    }
    for kind, text in files.items():
        (place.folder / f"{kind}.py").write_text(text, encoding="utf-8")
    commands = [["check-kind", kind, "--plugin", f"{kind}.py"] for kind in files]
    # In processes of their own, because a kind that has been defined stays.
    *found, plain = (
        wait_for(place.fork(*command))
        for command in (*commands, ["check-kind", "leaky", "--plugin", "leaky.py", "--json"])
    )
    return dict(zip((*files, "leaky as JSON"), (*found, plain), strict=True))


def test_a_correct_mixer_passes(checked: dict[str, Finished]) -> None:
    done = checked["right"]
    assert done.code == 0, done.out + done.err
    assert "keeps all" in done.out


def test_a_leak_is_found(checked: dict[str, Finished]) -> None:
    done = checked["leaky as JSON"]
    assert done.code == 1, done.err
    assert "is_causal" in {finding["rule"] for finding in json.loads(done.out)["findings"]}
    assert checked["leaky"].code == 1
    assert "is_causal" in checked["leaky"].out


def test_a_warning_breaks_no_rule(checked: dict[str, Finished]) -> None:
    done = checked["frozen"]
    assert done.code == 0, done.out + done.err
    assert "Warning: the layers `unused` start from torch's default values" in done.out
    assert "keeps all" in done.out


def test_an_installed_package_brings_its_kind(place: Workplace) -> None:
    (place.folder / "theirs.py").write_text(MIXER.format(name="Theirs", kind="theirs", body=MASKED), encoding="utf-8")
    info = place.folder / "theirs-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text("[ablate.mixers]\ntheirs = theirs\n", encoding="utf-8")
    space = place.folder / place.space()
    space.write_text(space.read_text().replace("block.norm: none", "block.mixer: theirs"), encoding="utf-8")
    commands = ["validate", space.name], ["check-kind", "theirs"], ["kinds", "--json"]  # first before all are known
    read, checked, listed = place.series(*commands, PYTHONPATH=str(place.folder))
    assert read.code == 0, read.out + read.err
    assert "theirs" in {mixer["kind"] for mixer in json.loads(listed.out)["mixers"]}
    assert checked.code == 0, checked.out + checked.err


def test_an_unknown_kind_is_a_mistake(place: Workplace) -> None:
    done = place.call("check-kind", "atention")
    assert done.code == 2
    assert "Did you mean `attention`" in done.err


@pytest.mark.parametrize("width", [80, 100])
def test_kinds_fit_the_terminal(width: int, place: Workplace) -> None:
    """No name or word is broken over two lines, and no line is longer than the terminal."""
    shown = place.call("kinds", "mixers", columns=width).out
    assert max(map(len, shown.splitlines())) <= width
    assert "gated_linear_attention" in shown
    assert "causal or bidirectional" in shown


def test_all_kinds_of_a_family(place: Workplace) -> None:
    done = place.call("check-kind", "--all", "--family", "norms")
    assert (done.code, done.err) == (0, "")
    assert [line.split()[0] for line in done.out.splitlines()] == ["dynamic_tanh", "layer", "none", "rms"]
    assert len(json.loads(place.call("check-kind", "--all", "--family", "norms", "--json").out)) == 4


@pytest.mark.parametrize("arguments", [["check-kind"], ["check-kind", "rms", "--all"]])
def test_one_kind_or_all(place: Workplace, arguments: list[str]) -> None:
    done = place.call(*arguments)
    assert done.code == 2
    assert "Write `ablate check-kind KIND` or `ablate check-kind --all`." in done.err


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
