"""A study whose mixer is edited between runs: told by `plan` and `study`, trained again, or accepted and recorded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_runs import Finished, Workplace, wait_for

MIXER = '''
from typing import Literal

import torch

from ablate.spec.cost import Cost
from ablate.spec.sublayers import MixerSpec


class EditedSpec(MixerSpec):
    """The mean of the past."""

    kind: Literal["edited"] = "edited"
    source = "this file"
    complexity = "Ld"
    bidirectional_form = False
    pack_aware = False

    def build(self, context):
        return Edited()

    def cost(self, context, length):
        return Cost(additions=length)


class Edited(torch.nn.Module):
    def forward(self, x, padding=None):
        return (1.0 * x).cumsum(1)
'''
SPACE = """
name: edited
question: Is the mean enough?
task: {kind: copy, span: 4, symbols: 4, validation_rows: 8}
model: {family: decoder, depth: 1, width: 8, heads: 2, block: pre_ln}
training: {steps: 4, batch_size: 2, optimizer: {kind: adamw, lr: 1.0e-2}, save_weights: true}
switches:
  mixer: {attention: {}, mean: {block.mixer: edited}}
design: {kind: leave_one_out, seeds: 2}
objective: {metric: val_loss, margin: 0.05}
"""
CHANGED = "another version of the kind `edited` (my_mixer.py: `Edited.forward` changed)"


class Edits:
    """A study of a mixer in a file, with the versions of that file."""

    def __init__(self, place: Workplace) -> None:
        self.place = place
        (place.folder / "edited.yaml").write_text(SPACE, encoding="utf-8")
        self.write(MIXER)

    def write(self, text: str) -> None:
        (self.place.folder / "my_mixer.py").write_text(text, encoding="utf-8")

    def run(self, *arguments: str) -> Finished:
        plugin = () if arguments[0] in ("show", "check-store") else ("--plugin", "my_mixer.py")
        done = wait_for(self.place.fork(*arguments, *plugin))
        return Finished(done.code, " ".join(done.out.split()), " ".join(done.err.split()))

    def study(self, *more: str) -> tuple[dict[str, int], str]:
        done = wait_for(self.place.fork("study", "edited.yaml", "--plugin", "my_mixer.py", "--json", *more))
        assert done.code == 0, done.err
        return done.last_object, " ".join(done.err.split())

    def keys(self) -> set[str]:
        """The keys of the trials of the edited mixer."""
        return {key for (key,) in self.place.rows("SELECT key FROM trials WHERE code != ''")}


@pytest.fixture
def edits(tmp_path: Path) -> Edits:
    return Edits(Workplace(tmp_path, tmp_path / "cache"))


def test_a_study_with_an_edited_mixer(edits: Edits) -> None:
    result, told = edits.study()
    assert (result["trained"], result["reused"]) == (4, 0)
    assert "another version" not in told
    first = edits.keys()
    assert len(first) == 2

    edits.write('"""A docstring."""\n' + MIXER.replace("1.0 * x", "  # a comment\n            1.0 * x\n        "))
    assert edits.study()[0]["reused"] == 4

    edits.write(MIXER.replace("1.0 * x", "2.0 * x"))
    plan = json.loads(wait_for(edits.place.fork("plan", "edited.yaml", "--plugin", "my_mixer.py", "--json")).out)
    what = "my_mixer.py: `Edited.forward` changed"
    assert plan["changed_code"] == [{"kind": "the kind `edited`", "what": what, "trials": 2, "accepted": False}]
    assert [trial["done"] for trial in plan["trials"]].count(False) == 2
    assert f"2 trials were trained with {CHANGED}: they are trained again" in edits.run("plan", "edited.yaml").out
    refused = edits.run("reproduce", min(first))
    assert refused.code == 2
    assert f"the code is not that with which the trial was trained: {CHANGED[19:]}" in refused.err
    refused = edits.run("generate", min(first))
    assert (refused.code, "--accept-changed-code takes the code as it is now" in refused.err) == (2, True)

    refused = edits.run("export", min(first), "--hf", "published")
    assert (refused.code, refused.err.endswith("Bring back the file as it was.")) == (2, True), refused.err

    result, told = edits.study("--accept-changed-code")
    assert (result["trained"], result["reused"]) == (0, 4)
    assert f"2 trials were trained with {CHANGED}: they are reused" in told
    assert edits.keys() == first
    warning = f"2 trials were trained with {CHANGED} and reused, because --accept-changed-code was given"
    assert warning in edits.run("show", "edited").out

    result, told = edits.study()
    assert (result["trained"], result["reused"]) == (2, 2)
    assert f"2 trials were trained with {CHANGED}: they are trained again" in told
    assert "another version" not in edits.run("show", "edited").out
    (second, *_), both = edits.keys() - first, edits.keys()
    assert len(both) == 4
    assert "identical" in edits.run("reproduce", second).out
    assert edits.study()[0]["reused"] == 4
    assert edits.run("check-store").code == 0


def test_a_file_that_changes_while_its_study_runs_is_not_trained_under_the_key_of_the_old(edits: Edits) -> None:
    """The worker starts after the plan is made; the file that it reads is another."""
    edits.write(MIXER + "\nimport os, sys\nif os.environ.get('EDIT'):\n    open(__file__, 'a').write('ADDED = 1\\n')\n")
    done = wait_for(edits.place.fork("study", "edited.yaml", "--plugin", "my_mixer.py", "--json", EDIT="1"))
    assert done.code == 3
    failures = [reason for (reason,) in edits.place.rows("SELECT reason FROM trials WHERE state = 'failed'")]
    assert len(failures) == 2
    assert all("is not that with which the study was planned" in reason for reason in failures)
