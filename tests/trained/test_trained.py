"""Weights that a study keeps, and text that trained models generate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from ablate.api import run
from ablate.cli.app import app
from ablate.decoding import Sampling
from ablate.errors import AblateError, DataError, NotFoundError, PluginError, SpaceError
from ablate.plugins import load_plugin
from ablate.spec.space import SpaceSpec
from ablate.spec.sublayers import MIXERS
from ablate.store import open_store
from ablate.trained.decode import Reading, Trained, generate, load_trained, next_logits, translate
from ablate.trained.weights import load_weights, save_weights, weights_folder
from ablate.training.loop import train
from ablate.training.members import Member

pytestmark = pytest.mark.usefixtures("quick")

CYCLE = "abcdefgh."
GREEDY = Sampling(temperature=0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("study")


@pytest.fixture(scope="module")
def space(folder: Path) -> SpaceSpec:
    """A decoder that is to say one cycle of letters again and again."""
    text = "\n<|endoftext|>\n".join(CYCLE * count for count in range(20, 40))
    (folder / "cycle.txt").write_text(text, encoding="utf-8")
    plain: dict[str, Any] = {
        "name": "cycle",
        "question": "Can it go round?",
        "task": {"kind": "language_model", "data": f"file:{folder}/cycle.txt", "tokenizer": "chars", "context": 24},
        "model": {
            "family": "decoder",
            "depth": 1,
            "width": 16,
            "heads": 2,
            "block": {"mixer": "attention", "mlp": {"kind": "plain"}, "norm": "rms"},
            "init_std": 0.1,
        },
        "training": {
            "steps": 120,
            "batch_size": 8,
            "optimizer": {"lr": 1e-2},
            "evaluations": 1,
            "save_weights": True,
            "record_blocks": True,
        },
        "switches": {"heads": {"two": {}, "one": {"model.heads": 1}}},
        "design": {"kind": "leave_one_out", "seeds": 1},
        "objective": {"margin": 0.05},
    }
    return SpaceSpec.model_validate(plain)


@pytest.fixture(scope="module")
def keys(space: SpaceSpec, folder: Path, cache: Path) -> list[str]:
    """The trials of the study, run for real by a worker."""
    run(space, store=folder / "store.db", device="cpu", workers=1, cache=cache)
    with open_store(folder / "store.db") as store:
        return [trial.key for trial in store.study("cycle").planned]


@pytest.fixture(scope="module")
def trained(keys: list[str], folder: Path, cache: Path) -> Trained:
    return load_trained(folder / "weights", keys[0][:12], cache, print)


def test_a_study_keeps_the_weights_of_every_trial(keys: list[str], folder: Path) -> None:
    assert weights_folder(str(folder / "store.db")) == folder / "weights"
    assert all((folder / "weights" / f"{key}.safetensors").is_file() for key in keys)


def test_the_weights_are_those_at_the_end_of_training(trained: Trained, space: SpaceSpec, folder: Path) -> None:
    ends: dict[int, dict[str, torch.Tensor]] = {}
    variant = space.resolve({})
    kept = load_weights(folder / "weights", trained.key)
    assert kept.variant == variant

    def keep(model: torch.nn.Module, place: int, member: int) -> None:
        path = folder / f"member{member}.safetensors"
        save_weights(path, model, place, variant, (7, 0)[member], kept.fingerprint)
        ends[member] = load_weights(folder, path.stem).tensors

    members = [Member(variant, 7), Member(variant, 0)]
    list(train(members, trained.task, torch.device("cpu"), keep))
    assert ends.keys() == {0, 1}
    assert ends[1].keys() == kept.tensors.keys()
    for name, value in kept.tensors.items():  # seed 0 ran alone in the study, and as the second of a pack here
        torch.testing.assert_close(ends[1][name], value, rtol=1e-2, atol=1e-3)
    assert any(not torch.allclose(ends[0][name], ends[1][name], atol=0.01) for name in ends[0])


def test_others_may_read_the_weights_as_the_umask_has_it(keys: list[str], folder: Path, tmp_path: Path) -> None:
    kept = folder / "weights" / f"{keys[0]}.safetensors"
    ordinary = tmp_path / "ordinary"
    ordinary.touch(mode=0o644)
    assert kept.stat().st_mode == ordinary.stat().st_mode


def test_the_store_has_what_was_recorded_of_each_trial(
    keys: list[str], space: SpaceSpec, folder: Path, cache: Path
) -> None:
    other = space.model_copy(update={"name": "packed", "design": space.design.model_copy(update={"seeds": 2})})
    run(other, store=folder / "packed.db", device="cpu", workers=1, cache=cache, pack=2)
    with open_store(folder / "store.db") as alone, open_store(folder / "packed.db") as packed:
        for key in keys:
            begin, end = alone.recordings(key)
            assert (begin.step, end.step) == (0, 120)
            assert set(end.values) - {"usage"} == {"weights", "gradients", "spread", "map"}
            rows = end.values["map"]["block 1 mixer"]
            assert [len(row) for row in rows] == [24] * 24
            assert rows[0][1] == 0.0 < rows[1][0]
            together = packed.recordings(key)[1].values  # in its pack the losses differ by rounding
            assert together["weights"] == pytest.approx(end.values["weights"], rel=1e-2)
        norms = [
            packed.recordings(trial.key)[1].values["weights"]["block 1 mlp"] for trial in packed.study("packed").planned
        ]
        assert len(set(norms)) == len(norms) == 4


def test_keeping_weights_and_recording_rename_no_trial(space: SpaceSpec) -> None:
    variant = space.resolve({})
    without = variant.training.model_copy(update={"save_weights": False, "record_blocks": False})
    assert variant.model_copy(update={"training": without}).content_hash() == variant.content_hash()


def test_greedy_continues_as_the_training_text_does(trained: Trained) -> None:
    text = "".join(generate(trained, "defgh.abc", 40, GREEDY, seed=0))
    assert text == ("defgh.abc" * 6)[:40]


def test_each_token_is_drawn_from_the_full_forward(trained: Trained) -> None:
    ids = trained.task.codec().encode(CYCLE * 5).tolist()  # type: ignore[union-attr]
    window = torch.tensor(ids[-24:])
    with torch.no_grad():
        logits = trained.model(window[None, None])[0, 0, -1]
    torch.testing.assert_close(next_logits(trained, ids), logits)


def test_a_seed_gives_its_text_again(trained: Trained) -> None:
    hot = Sampling(temperature=3.0)
    texts = ["".join(generate(trained, "abc", 30, hot, seed)) for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]


def test_what_cannot_be_written_is_reported(trained: Trained, keys: list[str], folder: Path, cache: Path) -> None:
    with pytest.raises(SpaceError, match="cannot translate"):
        translate(trained, ["abc"], 1, 0.0)
    with pytest.raises(NotFoundError, match="save_weights: true"):
        load_trained(folder / "weights", "0000000", cache, print)
    broken = folder / "broken"
    broken.mkdir()
    (broken / f"{keys[0]}.safetensors").write_bytes((folder / "weights" / f"{keys[0]}.safetensors").read_bytes()[:-9])
    with pytest.raises(DataError, match=r"these weights cannot be read.*Restore the file from a copy"):
        load_trained(broken, keys[0], cache, print)


def test_weights_that_have_changed_are_reported_and_not_used(
    keys: list[str], folder: Path, tmp_path: Path, cache: Path
) -> None:
    """One bit of a number: the file has its length and its form, and safetensors reads it."""
    content = bytearray((folder / "weights" / f"{keys[0]}.safetensors").read_bytes())
    content[-3] ^= 1
    (tmp_path / f"{keys[0]}.safetensors").write_bytes(content)
    with pytest.raises(DataError, match=r"these weights cannot be read \(their checksum is not the one") as caught:
        load_trained(tmp_path, keys[0], cache, print)
    assert "delete" not in str(caught.value)
    whole = safe_open(folder / "weights" / f"{keys[0]}.safetensors", framework="pt")
    tensors = {name: whole.get_tensor(name) for name in whole.keys()}  # noqa: SIM118 - no mapping
    other = {**whole.metadata(), "seed": "7"}
    save_file(tensors, tmp_path / f"{keys[0]}.safetensors", other)
    with pytest.raises(DataError, match="their checksum is not the one"):
        load_trained(tmp_path, keys[0], cache, print)
    del other["sha256"]  # as an older ablate wrote it
    save_file(tensors, tmp_path / f"{keys[0]}.safetensors", other)
    assert load_trained(tmp_path, keys[0], cache, print).key == keys[0]


def test_the_command_prints_the_text(
    keys: list[str], folder: Path, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    common = [keys[0][:10], "--store", str(folder / "store.db"), "--cache", str(cache), "--prompt", "abcdefgh.abc"]
    app(["generate", *common, "--tokens", "7", "--greedy"], standalone_mode=False)
    assert capsys.readouterr().out == "abcdefgh.abcdefgh.a\n"
    app(["generate", *common, "--tokens", "7", "--top-k", "1", "--json"], standalone_mode=False)
    assert json.loads(capsys.readouterr().out)["text"] == "defgh.a"


def test_reading_token_by_token_is_the_full_forward(trained: Trained) -> None:
    ids = trained.task.codec().encode(CYCLE * 4).tolist()  # type: ignore[union-attr]
    reading = Reading(trained)
    for length in (1, 2, 7, 8, 23, 24, 25, 30):  # the context is 24
        torch.testing.assert_close(reading.next_logits(ids[:length]), next_logits(trained, ids[:length]))


def test_show_lists_the_keys_that_generate_takes(
    keys: list[str], folder: Path, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = ["--store", str(folder / "store.db")]
    app(["show", "cycle", "--trials", *store], standalone_mode=False)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [line[:4] for line in lines[2:]] == [
        [keys[0][:12], "baseline", "0", "finished"],
        [keys[1][:12], "heads=one", "0", "finished"],
    ]
    app(["generate", lines[2][0], *store, "--cache", str(cache), "--tokens", "2", "--greedy"], standalone_mode=False)
    capsys.readouterr()
    app(["show", "cycle", "--trials", "--json", *store], standalone_mode=False)
    found = json.loads(capsys.readouterr().out)
    assert [trial["key"] for trial in found] == keys
    assert float(lines[2][4]) == pytest.approx(found[0]["metrics"]["val_loss"], abs=1e-4)


MEAN = '''
from typing import Literal
import torch
from ablate.spec.cost import Cost
from ablate.spec.sublayers import MixerSpec

class AwayMeanSpec(MixerSpec):
    """The mean of all tokens so far."""
    kind: Literal["away_mean"] = "away_mean"
    source = "a test"
    complexity = "Ld"
    pack_aware = False
    def build(self, context):
        return AwayMean()
    def cost(self, context, length):
        return Cost()

class AwayMean(torch.nn.Module):
    def forward(self, x, padding=None):
        return x.cumsum(1)
'''


def test_weights_of_a_plugins_kind_name_the_plugin_that_is_missing(
    space: SpaceSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin = tmp_path / "my_mean.py"
    plugin.write_text(MEAN, encoding="utf-8")
    load_plugin(str(plugin))
    variant = space.resolve({}, {"model.block.mixer": "away_mean"})
    key = "0123456789abcdef"
    save_weights(tmp_path / f"{key}.safetensors", torch.nn.Linear(2, 2), 0, variant, 0, "data")
    assert load_weights(tmp_path, key).variant == variant
    monkeypatch.delitem(MIXERS._members, "away_mean")  # as in a process that did not load it
    with pytest.raises(PluginError) as caught:
        load_weights(tmp_path, key)
    told = str(caught.value)
    assert "the mixer kind `away_mean`, which no loaded plugin defines" in told
    assert told.endswith("Name its file: `--plugin my_mean.py`.")
    assert caught.value.where == f"trial {key[:12]}"


def test_weights_of_another_version_are_reported_with_that_version(space: SpaceSpec, tmp_path: Path) -> None:
    plain = space.resolve({}).model_dump(mode="json")
    plain["training"]["of_a_newer_ablate"] = 1
    metadata = {"variant": json.dumps(plain), "seed": "0", "fingerprint": "data", "ablate": "9.9.9"}
    save_file({"x": torch.zeros(1)}, tmp_path / "abcdef.safetensors", metadata)
    with pytest.raises(SpaceError, match=r"training.of_a_newer_ablate.*the version of ablate that trained.*9\.9\.9"):
        load_weights(tmp_path, "abcdef")


def test_a_trial_becomes_a_folder_with_a_card(
    keys: list[str], trained: Trained, folder: Path, cache: Path, tmp_path: Path
) -> None:
    store = ["--store", str(folder / "store.db"), "--cache", str(cache)]
    app(["export", keys[1], "--hf", str(tmp_path / "hf"), *store], standalone_mode=False)
    config = json.loads((tmp_path / "hf" / "config.json").read_text())
    assert (config["model_type"], config["vocab_size"]) == ("ablate", trained.task.shape.vocabulary)
    tensors = load_file(tmp_path / "hf" / "model.safetensors")
    kept = load_weights(folder / "weights", keys[1]).tensors
    assert tensors.keys() == {f"model.{name}" for name in kept}
    card = (tmp_path / "hf" / "README.md").read_text()
    assert "cycle, heads=one: " in card  # the verdict of the study
    assert "Its tokenizer has no form" in card  # the tokenizer of characters is our own
    assert (tmp_path / "hf" / "block.svg").read_text().startswith("<svg")
    for wrong in ([], ["--hf", str(tmp_path / "b"), "--optuna", "sqlite:///a.db"]):
        with pytest.raises(AblateError, match="one of --optuna and --hf"):
            app(["export", keys[1], *wrong, "--store", str(folder / "store.db")], standalone_mode=False)
