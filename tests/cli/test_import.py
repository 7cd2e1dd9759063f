"""`ablate import`: folders of models of `transformers`, whole, in shards, broken and of other sorts."""

from __future__ import annotations

import io
import json
import os
import shutil
from collections.abc import Callable
from contextlib import nullcontext, redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from cli_runs import wait_for
from forked_command import ForkedCommand
from small_models import CASES, LLAMA, Small

from ablate.cli.app import app
from ablate.errors import AblateError
from ablate.spec.model import ModelSpec
from ablate.spec.reading import load_space
from ablate.trained.hugging_face.architecture import architectures

transformers = pytest.importorskip("transformers")


def saved(case: Small, folder: Path, **options: Any) -> Path:
    """A random model of `transformers` in a folder."""
    torch.manual_seed(0)
    auto = getattr(transformers, architectures()[case.kind].auto_class)
    auto.from_config(transformers.CONFIG_MAPPING[case.kind](**case.settings)).save_pretrained(folder, **options)
    return folder


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    capsys.readouterr()
    code = app(args=["import", *arguments], standalone_mode=False)
    return code or 0, capsys.readouterr().out


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(CASES["gpt2"], tmp_path_factory.mktemp("gpt2"))


@pytest.mark.parametrize("name", ["gpt2", "bert", "longformer", "t5", "gemma3", "mamba2", "deepseek_v3", "xlstm"])
def test_logits_are_those_of_transformers(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Read from several files, written to a section that a space can extend; one of each form of model.

    `tests/trained/test_hugging_face.py` compares every architecture.
    """
    folder, section = saved(CASES[name], tmp_path / "model", max_shard_size="4KB"), tmp_path / "model.yaml"
    assert len(list(folder.glob("*.safetensors"))) > 1
    code, out = run(capsys, str(folder), "--out", str(section), "--json")
    told = json.loads(out)
    assert (code, told["compared"], told["same"]) == (0, True, True)
    assert told["max_difference"] <= 1e-12
    assert told["model_type"] == CASES[name].kind
    model = transformers.AutoModel.from_pretrained(folder)
    assert told["vocabulary"] == model.config.vocab_size
    assert section.read_text(encoding="utf-8").startswith("# Written by `ablate import`")


def test_a_space_extends_the_section(gpt2: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, str(gpt2), "--out", str(tmp_path / "model.yaml"))
    assert not {"&", "*"} & set((tmp_path / "model.yaml").read_text(encoding="utf-8").partition("model:")[2])
    (tmp_path / "space.yaml").write_text(
        "extends: model.yaml\nname: fine\ntask: {kind: language_model, data: builtin:python_stdlib, tokenizer: bytes, "
        "context: 11}\ntraining: {steps: 10, batch_size: 2, optimizer: {kind: adamw, lr: 0.001}}\n"
        "question: Which?\nobjective: {metric: val_loss, margin: 0.1}\nmodel: {dropout: 0.2}\n"
        "switches: {norm: {with: {}, without: {block.norm: none}}}\ndesign: {kind: leave_one_out, seeds: 2}\n",
        encoding="utf-8",
    )
    space = load_space(tmp_path / "space.yaml")
    model = space.model
    assert space.training.init_from is not None
    assert space.training.init_from.source == str(gpt2)
    code, out = run(capsys, str(gpt2), "--json", "--no-verify")
    assert (code, model.depth, model.width) == (0, json.loads(out)["depth"], json.loads(out)["width"])
    assert isinstance(model, ModelSpec)
    assert (model.block.mlp.kind_name(), model.dropout) == ("plain", 0.2)


def test_other_weights_are_reported(gpt2: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    """A conversion that does not transpose a matrix: logits differ, and the exit code is 1."""
    from ablate.trained.hugging_face.architecture import TURNED, Link
    from ablate.trained.hugging_face.architectures.gpt2 import GPT2

    links = GPT2.links

    def wrong(self: GPT2, config: Any) -> Any:
        for link in links(self, config):
            yield Link(link.theirs, link.ours, TURNED) if "attn.c_proj.weight" in link.theirs[0] else link

    monkeypatch.setattr(GPT2, "links", wrong)
    code, out = run(capsys, str(gpt2), "--json")
    assert (code, json.loads(out)["same"]) == (1, False)
    assert json.loads(out)["max_difference"] > 1e-4
    code, out = run(capsys, str(gpt2), "--no-verify", "--json")
    assert (code, json.loads(out)["compared"], json.loads(out)["same"]) == (0, False, None)


PLUGIN = """
from ablate.trained.hugging_face.architectures.llama_variants import Ministral

class {name}(Ministral):
    model_type = "cwm"
    biases = lambda self, config: ({biased}, False, False)
"""


def print_reads(folder: Path, plugin: Path) -> None:
    """Read a folder by the plugin as it is, and after it was corrected; print what came of both as a JSON object."""
    assert "cwm" not in architectures()
    told = []
    for name, biased in (("Wrong", True), ("Cwm", False)):
        plugin.write_text(PLUGIN.format(name=name, biased=biased), encoding="utf-8")
        try:
            with redirect_stdout(io.StringIO()) as out:
                app(args=["import", str(folder), "--plugin", str(plugin), "--json"], standalone_mode=False)
            told.append(json.loads(out.getvalue()))
        except AblateError as error:
            told.append(str(error))
    print(json.dumps({"told": told}))


def test_an_architecture_is_one_file_of_the_users(tmp_path: Path) -> None:
    """Code World Model, which `transformers` has and ablate does not, in a process that forgets it again."""
    settings = {
        **LLAMA,
        "bos_token_id": 0,
        "sliding_window": 4,
        "layer_types": ["full_attention", *["sliding_attention"] * 2],
    }
    folder = tmp_path / "model"
    torch.manual_seed(0)
    config = transformers.CONFIG_MAPPING["cwm"](**settings)
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    run = partial(print_reads, folder, tmp_path / "my_architecture.py")
    done = wait_for(ForkedCommand(["import"], tmp_path, dict(os.environ), nullcontext, run=run), timeout=120)
    assert done.code == 0, done.err
    wrong, right = done.last_object["told"]
    assert "bias" in wrong
    assert (right["model_type"], right["compared"], right["same"]) == ("cwm", True, True)


def _set(name: str, value: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        plain = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**plain, name: value}))

    return change


def _drop_tensor(folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / "model.safetensors")
    del tensors["transformer.h.1.ln_2.weight"]
    save_file(tensors, folder / "model.safetensors")


def _add_tensor(folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / "model.safetensors")
    save_file({**tensors, "transformer.h.2.ln_2.weight": torch.zeros(3)}, folder / "model.safetensors")


def _nan(folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / "model.safetensors")
    tensors["transformer.h.1.ln_2.weight"][0] = float("nan")
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def _pickle(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda folder: (folder / "config.json").unlink(), "there is no `config.json`"),
        (lambda folder: (folder / "config.json").write_text("{"), "cannot be read"),
        (lambda folder: (folder / "config.json").write_text("[]"), "this is not a mapping"),
        (lambda folder: (folder / "model.safetensors").unlink(), "no weights in safetensors files"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"weights"), "this safetensors file cannot be read"),
        (_pickle, "`pytorch_model.bin`, which is loaded by running what is in it"),
        (_set("model_type", "gpt3"), "got 'gpt3'. `ablate kinds` lists"),
        (_set("model_type", "GPT-2"), "got 'GPT-2'. Write `gpt2`"),
        (_set("model_type", "gpt_neo"), "got 'gpt_neo'. `ablate kinds` lists"),
        (_set("model_type", None), "models of this `model_type` cannot be read"),
        (_set("activation_function", "swoosh"), "`activation_function`: of the nonlinearities"),
        (_set("scale_attn_by_inverse_layer_idx", True), "only False can be read"),
        (_set("quantization_config", {"quant_method": "mxfp4"}), "its weights are quantised"),
        (_set("n_layer", 3), "the weights have no tensor `transformer.h.2"),
        (_set("n_layer", 1), "tensors have no place in the model, such as `transformer.h.1"),
        (_set("n_inner", 31), "do not fit the model"),
        (_set("n_embd", 24), "have other shapes"),
        (_set("n_embd", "wide"), "`n_embd`: this is not a valid model"),
        (_set("n_head", 3), "and `n_head`: this is not a valid model (`model.heads`: the heads must divide the width"),
        (_nan, "the tensor `transformer.h.1.ln_2.weight` holds values that are not finite numbers"),
        (_drop_tensor, "the weights have no tensor `transformer.h.1.ln_2.weight`"),
        (_add_tensor, "1 of the weights' tensors have no place in the model"),
    ],
)
def test_what_cannot_be_read_is_reported(
    gpt2: Path, tmp_path: Path, change: Callable[[Path], None], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(shutil.copytree(gpt2, tmp_path / "model"))
    change(folder)
    with pytest.raises(AblateError) as refused:
        run(capsys, str(folder))
    assert message in str(refused.value)
    assert refused.value.where
    assert refused.value.remedy


def test_a_default_that_does_not_fit_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain = {"model_type": "qwen3", "num_attention_heads": 4, "hidden_size": 64, "num_hidden_layers": 2,
             "intermediate_size": 128, "vocab_size": 100, "head_dim": 16}  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(plain))
    with pytest.raises(AblateError, match=r"`num_key_value_heads` \(32 where it is left out\)"):
        run(capsys, str(tmp_path), "--config-only")


def test_a_shard_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = saved(CASES["gpt2"], tmp_path / "model", max_shard_size="4KB")
    sorted(folder.glob("*.safetensors"))[0].unlink()
    with pytest.raises(AblateError, match="names a file that is not there"):
        run(capsys, str(folder))


def test_nothing_is_written_over(gpt2: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "there.yaml").write_text("mine")
    for out, message in ((tmp_path / "there.yaml", "already exists"), (tmp_path / "no" / "x.yaml", "folder does not")):
        with pytest.raises(AblateError, match=message):
            run(capsys, str(gpt2), "--out", str(out))
    assert (tmp_path / "there.yaml").read_text() == "mine"


def test_what_is_written_is_a_model_to_other_commands(
    gpt2: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`cost`, `validate` and `draw` take the file; as a space it is refused with what to do."""
    file = tmp_path / "model.yaml"
    _, out = run(capsys, str(gpt2), "--out", str(file), "--json")
    parameters = json.loads(out)["parameters"]
    for command in (["validate", str(file), "--json"], ["cost", str(file), "--json"]):
        capsys.readouterr()
        assert not app(args=command, standalone_mode=False)
        assert f'"parameters": {parameters}' in capsys.readouterr().out
    assert not app(args=["draw", str(file)], standalone_mode=False)
    with pytest.raises(AblateError, match="this is a model, not a space"):
        app(args=["study", str(file)], standalone_mode=False)


def test_settings_alone(gpt2: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder without weights gives the model, which starts from random ones."""
    (tmp_path / "config.json").write_bytes((gpt2 / "config.json").read_bytes())
    code, _ = run(capsys, str(tmp_path), "--config-only", "--out", str(tmp_path / "model.yaml"))
    assert code == 0
    assert "init_from" not in (tmp_path / "model.yaml").read_text(encoding="utf-8")
    with pytest.raises(AblateError, match="no weights in safetensors files"):
        run(capsys, str(tmp_path))


def test_memory_for_single_precision_alone(
    gpt2: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bound then follows from how much rounding moves the logits of `transformers`."""
    from ablate.trained.hugging_face import check

    monkeypatch.setattr(check, "available_memory", lambda: 0)
    code, out = run(capsys, str(gpt2), "--out", str(tmp_path / "model.yaml"))
    assert code == 0
    assert "in single precision" in " ".join(out.split())
