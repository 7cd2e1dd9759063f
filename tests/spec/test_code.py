"""The code of kinds in the keys of trials: of users' kinds always, of ours from their second revision on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ablate import plugins
from ablate.plugins import FAMILIES, load_plugin
from ablate.spec import code
from ablate.spec.code import CodeReader, code_changes
from ablate.spec.sublayers import MIXERS
from ablate.spec.variant import VariantSpec

MIXER = """
from typing import Literal
import torch
from ablate.kinds.mixers.token_mixing import FNetSpec
from ablate.spec.cost import Cost
from ablate.spec.sublayers import MixerSpec

class OwnMixer(MixerSpec):
    kind: Literal["own_mixer"] = "own_mixer"
    source = "this file"
    complexity = "Ld"
    pack_aware = False
    def build(self, context):
        return torch.nn.Identity()
    def cost(self, context, length):
        return Cost(additions=length)
"""
PLAIN: dict[str, Any] = {
    "model": {"family": "decoder", "depth": 2, "width": 8, "heads": 2, "block": "pre_ln"},
    "task": {"kind": "copy", "span": 4},
    "training": {"steps": 3, "batch_size": 2, "optimizer": {"kind": "adamw", "lr": 1e-3}},
}


@pytest.fixture(autouse=True)
def families(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Kinds that a test loads are forgotten after it."""
    for family in FAMILIES.values():
        monkeypatch.setattr(family, "_members", family.members())
    monkeypatch.setattr(plugins, "_loaded", {})
    return


@pytest.fixture
def load(tmp_path: Path) -> Callable[[str], None]:
    def written(text: str, name: str = "own.py") -> None:
        (tmp_path / name).write_text(text, encoding="utf-8")
        load_plugin(str(tmp_path / name))

    return written


def variant(**model: Any) -> VariantSpec:
    return VariantSpec.model_validate({**PLAIN, "model": {**PLAIN["model"], **model}})


def key(spec: VariantSpec) -> str:
    return spec.trial_key("data", 0)


WITH_OWN = {"in_a_block": {"block": {"mixer": "own_mixer", "mlp": "plain", "norm": "layer"}}}
WITH_OWN["in_one_layer"] = {"exceptions": {"1": {"mixer": "own_mixer"}}}


@pytest.mark.parametrize("model", WITH_OWN.values(), ids=WITH_OWN)
def test_the_key_follows_the_code_of_a_users_kind(load: Callable[[str], None], model: dict[str, Any]) -> None:
    plain = key(variant())
    load(MIXER)
    first = key(variant(**model))
    load(MIXER.replace("import torch", "# a comment\nimport torch"))
    assert key(variant(**model)) == first
    load(MIXER.replace("additions=length", "additions=2 * length"))
    assert key(variant(**model)) != first
    assert key(variant()) == plain  # a kind that it does not use


def test_what_a_users_kind_inherits_from_counts(load: Callable[..., None], tmp_path: Path) -> None:
    load(MIXER)
    heir = """
import sys
from typing import Literal
from ablate.spec.sublayers import MIXERS
class Heir(MIXERS.members()["own_mixer"]):
    kind: Literal["own_heir"] = "own_heir"
"""
    load(heir, "heir.py")
    of_heir = CodeReader().of(MIXERS.members()["own_heir"]()).content["kinds"]["mixer own_heir"]
    assert of_heir["file"] == "heir.py"
    assert set(of_heir["modules"]) == {"", "own"}


def test_the_caller_of_a_factory_counts(load: Callable[..., None], tmp_path: Path, monkeypatch: Any) -> None:
    """A class that a function of another module makes has the name of that module."""
    monkeypatch.syspath_prepend(str(tmp_path))
    made = MIXER.replace("class OwnMixer", "def make(by):\n  class OwnMixer").replace("\n    ", "\n      ")
    (tmp_path / "factory_of_kinds.py").write_text(made.replace("additions=length", "additions=by * length"))
    keys = set()
    for by in (1, 2):
        load(f"from factory_of_kinds import make\nmake({by})\n")
        keys.add(CodeReader().of(MIXERS.members()["own_mixer"]()).identity)
    assert len(keys) == 2


def test_a_subclass_of_ours_is_a_users_kind(load: Callable[[str], None]) -> None:
    load(
        "from typing import Literal\nfrom ablate.kinds.mixers.token_mixing import FNetSpec\n"
        'class Mine(FNetSpec):\n    kind: Literal["own_fnet"] = "own_fnet"\n'
    )
    content = CodeReader().of(MIXERS.members()["own_fnet"]()).content
    assert set(content["kinds"]) == {"mixer own_fnet"}
    assert set(content["kinds"]["mixer own_fnet"]["modules"]) == {""}


def test_the_code_of_a_stage_counts(load: Callable[[str], None]) -> None:
    load(MIXER)
    training = {**PLAIN["training"], "init_from": {"stage": {"block.mixer": "own_mixer"}}}
    staged = VariantSpec.model_validate({**PLAIN, "training": training})
    first = key(staged)
    load(MIXER.replace("additions=length", "additions=2 * length"))
    assert key(staged) != first
    (change,) = code_changes({}, staged.code(CodeReader()).content)
    assert change.kind == "the kind `own_mixer` in the stage before"


def test_what_one_of_two_codes_alone_has_is_defined_by_whom_the_newer_says(load: Callable[[str], None]) -> None:
    load(MIXER)
    content, none = CodeReader().of(MIXERS.members()["own_mixer"]()).content, {"kinds": {}, "revisions": {}}
    assert code_changes(content, content) == ()
    for before, after, who in ((content, none, "ablate"), (none, content, "a user")):
        (change,) = code_changes(before, after)
        assert (change.kind, change.what) == ("the kind `own_mixer`", f"own.py; {who} defines it now")


def test_our_kinds_have_no_code_in_their_keys_until_they_are_revised(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = variant()
    assert CodeReader().of(spec).identity == ""
    first = key(spec)
    attention = type(spec.model.block.mixer)
    monkeypatch.setattr(attention, "code_revision", 2)
    monkeypatch.setitem(code.Kinded.identified, attention, ())
    revised = CodeReader().of(spec)
    assert revised.content == {"revisions": {"mixer attention": 2}}
    assert key(spec) != first
    (change,) = code_changes({}, revised.content)
    assert (change.kind, change.what) == ("ablate's kind `attention`", "revision 2 instead of 1")
    monkeypatch.setattr(code, "REVISION", 3)
    assert CodeReader().of(spec).content["revisions"] == {"mixer attention": 2, "training": 3}
