"""The commands of the pages on taking a model apart and on evaluation, on small models."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from ablate.cli.app import app
from ablate.store import open_store
from ablate.store.records import TrialState
from docs.snippets import blocks

pytestmark = pytest.mark.usefixtures("quick")

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "take-apart.md"
LAYERS = HEADS = 12
"""Those of GPT-2, which the page names."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A GPT-2 of width 24 with random weights and a tokenizer of bytes, a text, and the space of the page."""
    transformers = pytest.importorskip("transformers")
    import torch
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={one: place for place, one in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<|endoftext|>")])
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=257,
        n_positions=160,
        n_embd=24,
        n_layer=LAYERS,
        n_head=HEADS,
        initializer_range=0.2,
        bos_token_id=256,
        eos_token_id=256,
    )
    transformers.GPT2LMHeadModel(config).save_pretrained(tmp_path / "models" / "gpt2")
    tokenizer.save(str(tmp_path / "models" / "gpt2" / "tokenizer.json"))
    words = "".join(f"{number} squared is {number * number}.\n" for number in range(200))
    (tmp_path / "notes.txt").write_text(words, encoding="utf-8")
    (space,) = (block for block in blocks(PAGE.read_text(encoding="utf-8")) if block.title == "gpt2_knockout.yaml")
    (tmp_path / space.title).write_text(space.text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_commands_take_a_model_apart(folder: Path, cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (commands,) = (
        block.commands()
        for block in blocks(PAGE.read_text(encoding="utf-8"))
        if block.language == "sh" and "ablate import" in block.text
    )
    for command in commands:
        capsys.readouterr()
        more = ["--cache", str(cache), "--json"] if "gpt2_knockout" in command else []
        more += ["--workers", "1"] if " study " in command else []
        assert not app(args=[*shlex.split(command)[1:], *more], standalone_mode=False), command
    with open_store(folder / "studies" / "ablate.db") as store:
        planned = store.study("gpt2_knockout").planned
        trials = store.trials([trial.key for trial in planned])
    assert [trial.state for trial in trials.values()] == [TrialState.FINISHED] * 6
    losses = {trial.metrics["val_loss"] for trial in trials.values()}
    assert len(losses) == 6, "each removal changes the loss of the same random model"


EVALUATE = Path(__file__).parents[2] / "docs" / "how-to" / "evaluate.md"


def test_the_task_of_the_page_is_measured(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("lm_eval")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    page = list(blocks(EVALUATE.read_text(encoding="utf-8")))
    for block in page:
        if block.title:
            Path(block.title).parent.mkdir(exist_ok=True)
            Path(block.title).write_text(block.text, encoding="utf-8")
    (tmp_path / "notes.txt").write_text("return self\nimport os\n" * 300, encoding="utf-8")
    reader = YAML(typ="safe")
    space = reader.load(Path("letters.yaml"))
    (part,) = (block.text for block in page if block.language == "yaml" and "downstream" in block.text)
    space |= reader.load(part)
    reader.dump(space, Path("letters.yaml"))
    common = ["--cache", str(cache), "--store", "a.db", "--json"]
    app(["study", "letters.yaml", "--data", "file:notes.txt", "--workers", "1", *common], standalone_mode=False)
    with open_store("a.db") as store:
        keys = [planned.key for planned in store.study("letters").planned]
        metrics = store.trial(keys[0]).metrics
    assert 0 <= metrics["val_keywords_acc"] <= 1
    commands = [command for block in page for command in block.commands() if command.startswith("ablate evaluate")]
    ours = [command.split()[3:] for command in commands if "hellaswag" not in command]  # whose data is on the hub
    assert len(ours) == len(commands) - 1 == 2
    for arguments in ours:
        capsys.readouterr()
        app(["evaluate", keys[0], *dict.fromkeys([*arguments, *common])], standalone_mode=False)
        told = json.loads(capsys.readouterr().out)
        assert told.keys() - {"trial"} in ({"file"}, {"tasks", "stored_as"})
    with open_store("a.db") as store:
        assert store.trial(keys[0]).metrics["test_keywords_acc"] == metrics["val_keywords_acc"]
