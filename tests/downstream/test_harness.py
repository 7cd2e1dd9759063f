"""`lm-eval` on our models and on the same ones in `transformers`; its metrics as objectives and in a store."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from ablate.api import run
from ablate.cli.app import app
from ablate.downstream.harness import Request, Scored, measure
from ablate.errors import ArgumentError, DataError, NotFoundError, SpaceError
from ablate.nn.model import build_model
from ablate.spec.space import SpaceSpec
from ablate.store import open_store
from ablate.trained.hugging_face.checkpoint import load_tensors, read_config, read_tensors

pytest.importorskip("lm_eval")
transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")

pytestmark = pytest.mark.usefixtures("quick")

LETTERS = "abcdefgh."
CONTEXT = 16
TASK = """task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {{test: {folder}/rows.jsonl}}, cache_dir: {folder}/datasets}}
test_split: test
doc_to_text: "{{{{start}}}}"
{more}
"""
TASKS = {
    "next_letters": """output_type: multiple_choice
doc_to_choice: choices
doc_to_target: right
target_delimiter: ""
metric_list: [{metric: acc}, {metric: acc_norm}]""",
    "write_letters": """output_type: generate_until
doc_to_target: "{{choices[0]}}"
generation_kwargs: {until: ["."], max_gen_toks: 3, do_sample: false}
metric_list: [{metric: exact_match}]""",
    "whole_text": """output_type: loglikelihood_rolling
doc_to_target: "{{start * 5}}"
metric_list: [{metric: bits_per_byte}, {metric: byte_perplexity}]""",
}
"""Three kinds of requests: likelihoods of answers, greedy texts, and likelihoods of texts longer than the context."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tasks over a local file, of which the context of the last row is longer than the model's."""
    folder = tmp_path_factory.mktemp("downstream")
    rows = [
        {"start": (LETTERS * 2)[first : first + 4], "choices": [(LETTERS * 3)[first + 4 : first + 6], "ha", "b"]}
        for first in range(9)
    ]
    rows.append({"start": LETTERS * 3, "choices": ["ab", "ba", "c"]})
    (folder / "rows.jsonl").write_text(
        "".join(json.dumps({**row, "right": 0}) + "\n" for row in rows), encoding="utf-8"
    )
    (folder / "tasks").mkdir()
    for name, more in TASKS.items():
        text = TASK.format(name=name, folder=folder, more=more)
        (folder / "tasks" / f"{name}.yaml").write_text(text, encoding="utf-8")
    return folder


class Letters:
    """A tokenizer of `tokenizers`, as ours are asked."""

    def __init__(self) -> None:
        vocabulary = {letter: place for place, letter in enumerate([*LETTERS, "<end>"])}
        self.tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="."))
        self.tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Split("", "isolated")
        self.tokenizer.decoder = tokenizers.decoders.Fuse()
        self.end_of_document = vocabulary["<end>"]

    def encode(self, text: str) -> NDArray[Any]:
        return np.array(self.tokenizer.encode(text).ids, dtype=np.int64)

    def decode(self, ids: Sequence[int]) -> str:
        return "".join([*LETTERS, "<end>"][token] for token in ids)


def test_scores_are_those_of_the_same_model_in_transformers(folder: Path, tmp_path: Path) -> None:
    from lm_eval.evaluator import simple_evaluate
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    letters = Letters()
    torch.manual_seed(1)
    settings = {"n_embd": 20, "n_layer": 2, "n_head": 4, "initializer_range": 0.4}
    none = {"bos_token_id": None, "eos_token_id": None}
    config = transformers.GPT2Config(vocab_size=len(LETTERS) + 1, n_positions=CONTEXT, **settings, **none)
    model = transformers.GPT2LMHeadModel(config)
    model.save_pretrained(tmp_path)
    imported = read_config(tmp_path)
    ours = build_model(imported.spec, vocabulary=imported.vocabulary, context=imported.context, seeds=[0]).eval()
    load_tensors(ours, read_tensors(tmp_path, imported))
    scored = Scored(ours, 1, CONTEXT, torch.device("cpu"))
    request = Request(tuple(TASKS), folder / "tasks")
    before = torch.get_rng_state()
    (found,) = measure(scored, letters, request, "here")
    assert torch.equal(torch.get_rng_state(), before), "the harness seeds generators of others"

    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=letters.tokenizer, eos_token="<end>", pad_token="<end>", clean_up_tokenization_spaces=False
    )
    theirs = simple_evaluate(
        model=HFLM(pretrained=model, tokenizer=fast, device="cpu", batch_size=1, max_length=CONTEXT),
        tasks=list(TASKS),
        task_manager=TaskManager(include_path=str(folder / "tasks"), include_defaults=False),
        bootstrap_iters=100,
        log_samples=False,
    )["results"]
    assert {(score.task, score.metric) for score in found} == {
        (task, key.removesuffix(",none"))
        for task, values in theirs.items()
        for key in values
        if key.endswith(",none") and "_stderr" not in key
    }
    for score in found:
        expected = theirs[score.task][f"{score.metric},none"]
        assert score.value == pytest.approx(expected, rel=1e-4), (score, "float32 logits of two programs")


def space_of(folder: Path, **downstream: Any) -> SpaceSpec:
    text = "\n<|endoftext|>\n".join(LETTERS * count for count in range(20, 40))
    (folder / "letters.txt").write_text(text, encoding="utf-8")
    task: dict[str, Any] = {"kind": "language_model", "data": f"file:{folder}/letters.txt", "tokenizer": "chars"}
    plain = {
        "name": "letters",
        "question": "Which one knows the next letters?",
        "task": {**task, "context": 24, "downstream": {"folder": f"{folder}/tasks", **downstream}},
        "model": {"family": "decoder", "depth": 1, "width": 16, "heads": 2, "block": "pre_ln", "init_std": 0.1},
        "training": {
            "steps": 60,
            "batch_size": 8,
            "optimizer": {"lr": 1e-2},
            "evaluations": 2,
            "save_weights": True,
        },
        "switches": {"mixer": {"attention": {}, "averages": {"block.mixer": {"kind": "extractor", "type": "me"}}}},
        "design": {"kind": "leave_one_out", "seeds": 2},
        "objective": {"metric": "val_next_letters_acc", "direction": "maximize", "margin": 0.1},
        "claims": [
            {
                "id": "by-length",
                "expect": "not_worse",
                "left": "baseline",
                "right": "mixer=averages",
                "metric": "val_next_letters_acc_norm",
                "direction": "maximize",
                "margin": 0.1,
            }
        ],
    }
    return SpaceSpec.model_validate(plain)


@pytest.fixture(scope="module")
def keys(folder: Path, cache: Path) -> list[str]:
    """The trials of a study whose objective is the accuracy on a task of `lm-eval`; both seeds are one pack."""
    space = space_of(folder, tasks={"next_letters": ["acc", "acc_norm"]})
    run(space, store=folder / "store.db", device="cpu", workers=1, pack=2, cache=cache)
    with open_store(folder / "store.db") as store:
        return [trial.key for trial in store.study("letters").planned]


def test_accuracy_on_a_task_is_an_objective(keys: list[str], folder: Path) -> None:
    """Attention learns the cycle of letters, of which each start has one continuation."""
    with open_store(folder / "store.db") as store:
        trials = store.trials(keys)
    attention = [trials[key].metrics["val_next_letters_acc"] for key in keys[:2]]
    assert min(attention) > 0.6, "by chance 1 in 3"
    assert all("val_next_letters_acc_norm" in trial.metrics for trial in trials.values())
    assert not any("write_letters" in name for trial in trials.values() for name in trial.metrics)


def evaluate(capsys: pytest.CaptureFixture[str], folder: Path, cache: Path, *arguments: str) -> str:
    capsys.readouterr()
    common = ["--store", f"{folder}/store.db", "--cache", str(cache), "--device", "cpu"]
    app(["evaluate", *arguments, *common], standalone_mode=False)
    return capsys.readouterr().out


def test_a_trial_is_evaluated_later(
    keys: list[str], folder: Path, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same examples give the same metric as at the end of training; it is stored as one of the test."""
    tasks = ["--tasks", "next_letters,whole_text", "--include", f"{folder}/tasks"]
    told = json.loads(evaluate(capsys, folder, cache, keys[0][:12], *tasks, "--json"))
    assert told["trial"] == keys[0]
    with open_store(folder / "store.db") as store:
        metrics = store.trial(keys[0]).metrics
    assert metrics["test_next_letters_acc"] == metrics["val_next_letters_acc"]
    assert {"test_whole_text_bits_per_byte", "val_loss"} <= set(metrics)
    assert told["stored_as"] == sorted(told["stored_as"], key=told["stored_as"].index)
    assert {f"test_{one['task']}_{one['metric']}" for one in told["tasks"]} == set(told["stored_as"])
    shown = evaluate(capsys, folder, cache, keys[1][:12], "--tasks", "next_letters", *tasks[2:], "--limit", "2")
    assert "Not stored" in shown
    with open_store(folder / "store.db") as store:
        assert not any(name.startswith("test_") for name in store.trial(keys[1]).metrics)


def test_perplexity_of_a_file_is_that_of_the_harness(
    keys: list[str], folder: Path, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`whole_text` measures the same text when it is the only row."""
    text = LETTERS * 15
    (folder / "text.txt").write_text(text, encoding="utf-8")
    (folder / "one").mkdir(exist_ok=True)
    (folder / "one" / "rows.jsonl").write_text(json.dumps({"start": LETTERS * 3}) + "\n", encoding="utf-8")
    task = TASK.format(name="one_text", folder=folder / "one", more=TASKS["whole_text"])
    (folder / "one" / "one.yaml").write_text(task, encoding="utf-8")
    arguments = [keys[0][:12], "--file", f"{folder}/text.txt", "--tasks", "one_text", "--include", f"{folder}/one"]
    told = json.loads(evaluate(capsys, folder, cache, *arguments, "--limit", "1", "--json"))
    theirs = {one["metric"]: one["value"] for one in told["tasks"]}
    assert told["file"]["bits_per_byte"] == pytest.approx(theirs["bits_per_byte"], rel=1e-6)
    assert told["file"]["perplexity"] == pytest.approx(theirs["byte_perplexity"], rel=1e-6), "a letter is a byte"
    assert told["file"]["tokens"] == len(text)


def test_what_cannot_be_measured_is_refused(
    keys: list[str], folder: Path, cache: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with pytest.raises(DataError, match="no such folder of tasks"):
        evaluate(capsys, folder, cache, keys[0][:12], "--tasks", "x", "--include", f"{tmp_path}/none")
    (tmp_path / "broken.yaml").write_text(
        TASK.format(name="broken", folder=tmp_path, more=TASKS["next_letters"]), encoding="utf-8"
    )
    with pytest.raises(DataError, match="cannot measure this"):
        evaluate(capsys, folder, cache, keys[0][:12], "--tasks", "broken", "--include", str(tmp_path))
    (tmp_path / "empty.txt").touch()
    with pytest.raises(DataError, match="no text in this file"):
        evaluate(capsys, folder, cache, keys[0][:12], "--file", f"{tmp_path}/empty.txt")
    with open_store(folder / "store.db") as store:
        with pytest.raises(ArgumentError, match="not test metrics"):
            store.add_test_metrics(keys[0], {"val_loss": 0.0})
        with pytest.raises(NotFoundError, match="has finished"):
            store.add_test_metrics("0" * 64, {"test_loss": 0.0})


def test_an_objective_names_a_metric_that_is_measured(folder: Path, cache: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has no metric of this name"):
        space_of(folder, tasks={"write_letters": ["exact_match"]})
    space = space_of(folder, tasks={"next_letters": ["acc", "acc_norm", "f2"]})
    with pytest.raises((DataError, SpaceError), match="no metric `f2`"):
        space.task.open(cache, space.task.prepare(cache, lambda line: None)).final_metrics(
            build_model(space.model, vocabulary=10, context=24, seeds=[0]), torch.device("cpu")
        )
