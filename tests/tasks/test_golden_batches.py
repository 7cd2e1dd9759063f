"""Every task prepares, draws and scores as it did when stored trials were trained, at settings off their defaults.

Their keys hold the fingerprints. After an intended change, raise the `CODE_VERSION` beside the task, or the
`code_revision` of its kind; `python tests/tasks/test_golden_batches.py` then writes the numbers again.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pytest
import torch
from ruamel.yaml import YAML
from torch.nn import functional

from ablate.spec.task import TASKS, Task, TaskSpec
from ablate.tasks.sources import BadRows, parse

if TYPE_CHECKING:
    from ablate.spec.task import Batch

GOLDEN = Path(__file__).with_suffix(".json")
OF_SACREBLEU = ("val_bleu", "val_chrf")
SOURCES_OF_ROWS = ("builtin:number_words", "builtin:listops")
_WRITTEN = """
rows: &rows {validation_rows: 7, test_rows: 5}
texts: &texts {data: rows.jsonl, text: left, tokenizer: {kind: words, vocab_size: 30, lowercase: true}, context: 5,
  bad_rows: skip, validation_share: 0.3, validation_windows: 6, test_share: 0.2,
  label_smoothing: 0.2}
labelled: &labelled {data: rows.jsonl, tokenizer: chars, context: 20, bad_rows: skip, validation_share: 0.3,
  validation_rows: 8, test_share: 0.2}
pairs: &pairs {kind: translation, data: rows.jsonl, source: left, target: right, tokenizer: chars, context: 24,
  bad_rows: skip, validation_pairs: 9, test_pairs: 6, label_smoothing: 0.3}
tasks:
  recall: {kind: recall, context: 34, pairs: 7, symbols: 26, recency: 0.4, <<: *rows}
  copy: {kind: copy, span: 13, symbols: 11, <<: *rows}
  palindrome: {kind: palindrome, span: 9, symbols: 6, <<: *rows}
  induction: {kind: induction, context: 12, symbols: 7, <<: *rows}
  parity: {kind: parity, context: 19, <<: *rows}
  modular_addition: {kind: modular_addition, context: 19, modulus: 7, <<: *rows}
  permutations: {kind: permutations, context: 12, group: S3, <<: *rows}
  permutations A5: {kind: permutations, context: 12, group: A5, <<: *rows}
  dyck: {kind: dyck, context: 30, types: 3, depth: 4, <<: *rows}
  stack: {kind: stack, operations: 17, stacks: 3, symbols: 5, <<: *rows}
  in_context_recall: {kind: in_context_recall, context: 40, symbols: 10, <<: *rows}
  in_context_recall with noise: {kind: in_context_recall, context: 40, symbols: 10, noise: 0.3, noise_symbols: 4,
    <<: *rows}
  fuzzy_recall: {kind: fuzzy_recall, context: 40, symbols: 8, motif: 3, <<: *rows}
  selective_copy: {kind: selective_copy, context: 40, copied: 6, symbols: 5, <<: *rows}
  memorization: {kind: memorization, context: 14, symbols: 20, <<: *rows}
  needle: {kind: needle, context: 31, needles: 3, symbols: 9, <<: *rows}
  mano: {kind: mano, operations: 5, modulus: 11, <<: *rows}
  depo: {kind: depo, nodes: 13, hops: 5, <<: *rows}
  brevo: {kind: brevo, nodes: 9, <<: *rows}
  lano: {kind: lano, levels: 2, symbols: 4, context: 22, grammar: 3, <<: *rows}
  capo: {kind: capo, people: 11, names: 3, attributes: [3, 5, 4], biographies: 3, <<: *rows}
  listops: {kind: listops, shortest: 3, longest: 30, train_rows: 200, <<: *rows}
  listops of a file: {kind: listops, data: sums.tsv, shortest: 4, longest: 9, expression: 2, label: 1, train_rows: 30,
    bad_rows: skip, <<: *rows}
  language_model: {kind: language_model, separate_documents: true, <<: *texts}
  language_model of some tokens: {kind: language_model, tokens: 60, <<: *texts}
  language_model of one text: {<<: *texts, kind: language_model, data: text.txt, tokenizer: bytes}
  masked_language_model: {kind: masked_language_model, hidden_share: 0.4, mask_share: 0.5, random_share: 0.3,
    <<: *texts}
  language_mixture: {kind: language_mixture, tokenizer: chars, context: 5, bad_rows: skip, validation_windows: 6,
    validation_share: 0.3, tokens: 200, label_smoothing: 0.2,
    sources: {one: {data: rows.jsonl, text: left, weight: 2.5}, another: {data: rows.jsonl, text: right, weight: 1}}}
  classification: {kind: classification, text: left, label: number, <<: *labelled}
  classification of windows: {<<: *labelled, kind: classification, text: right, label: number, long_texts: window,
    context: 4}
  matching: {kind: matching, first: left, second: right, label: number, <<: *labelled}
  matching of drawn pairs: {<<: *labelled, kind: matching, text: left, same: number, long_texts: window, context: 4}
  translation: *pairs
  translation by tokens: {batches_by: tokens, <<: *pairs}
"""
TASKS_BY_NAME: dict[str, dict[str, Any]] = YAML(typ="safe").load(_WRITTEN)["tasks"]


def write_data(folder: Path) -> None:
    """Texts of several lengths in two columns, with labels, copies and bad rows; expressions; one text."""
    words = ["ant", "bee", "cat", "dog", "elk", "fox", "gnu", "hen", "ibis", "jay"]
    lefts = [" ".join(words[k * k * number % 10] for k in range(1, 3 + number % 5)) for number in range(330)]
    rows: list[dict[str, Any]] = [
        {"left": f"{left} {number}".title(), "right": left[::-1] + str(number), "number": number % 11}
        for number, left in enumerate(lefts)
    ]
    rows[40:40] = [rows[3], {"left": "", "right": "", "number": 1}, rows[7]]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    sums = [([*map(int, str(number))], f"[SM {' '.join(str(number))} ]") for number in range(100, 4000, 39)]
    lines = [f"{sum(digits) % 10}\t{expression}" for digits, expression in sums]
    (folder / "sums.tsv").write_text("\n".join([*lines, lines[4], "3\t[SM 1 1 ]", "1\t1"]) + "\n")
    (folder / "text.txt").write_text("".join(f"{left}\n" for left in lefts))


def digest(values: Any) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]


def listed(batches: Any) -> list[Any]:
    return [{name: [str(values.dtype), values.tolist()] for name, values in batch.items()} for batch in batches]


def opened(plain: dict[str, Any], folder: Path) -> tuple[TaskSpec, Task, str]:
    """A task with data of this folder, and its fingerprint."""

    def placed(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: f"file:{folder}/{at}" if name == "data" else placed(at) for name, at in value.items()}
        return value

    spec = TaskSpec.parse(placed(plain))
    fingerprint = spec.prepare(folder / "cache", lambda line: None)
    return spec, spec.open(folder / "cache", fingerprint), fingerprint


def found(plain: dict[str, Any], folder: Path) -> dict[str, str]:
    """Digests of what a task prepares and draws."""
    spec, task, fingerprint = opened(plain, folder)
    told, sizes = task.describe(), [3, 10]
    train = [task.train_batch(seed, step, size) for seed, step in ((6, 7), (7, 6)) for size in sizes]
    numbers = {
        "shape": [task.shape.vocabulary, task.shape.context, task.shape.classes],
        "sizes": [[task.tokens_per_batch(size), task.mean_rows(size)] for size in sizes],
        "lengths": task.input_lengths(),
        "described": [told.rows, told.tokens, told.lengths, told.labels, told.samples],
        "noted": [re.findall(r"[\d.,]+", note) for note in told.notes],
        "metrics": [sorted(names) for names in (spec.metric_names, spec.final_metric_names, spec.model_families)],
        "traits": [task.tokenwise, task.uneven_batches, spec.uneven_batches, spec.separates_documents, spec.pooled],
        "least": (task.least_tokens() or [0])[0],
    }
    found = {
        "fingerprint": fingerprint[:16],
        "train": digest(listed(train)),
        "validation": digest(listed(task.validation_batches(4))),
        "test": digest(listed(task.test_batches(4))),
        "numbers": digest(numbers),
    }
    if spec.shortens:
        found["shorter"] = digest(listed([task.shorter_batch(6, 7, 3, 2)]))
    return found


def scored(plain: dict[str, Any], folder: Path) -> dict[str, list[float]]:
    """The loss of a training batch, the metrics of the validation, and those of trivial baselines without `sacrebleu`.

    The logits do not depend on the inputs. Those of the second member are raised at the right answers of every other
    row.
    """
    _, task, _ = opened(plain, folder)

    def outputs(batch: Batch) -> tuple[torch.Tensor, Batch]:
        told = batch["labels"] if "labels" in batch else batch["targets"]
        if "positions" in batch:
            told = batch["inputs"].scatter(1, batch["positions"], told)
        shape = (2, *told.shape, task.shape.classes or task.shape.vocabulary)
        logits = 2 * torch.cos(torch.arange(math.prod(shape), dtype=torch.float64)).view(shape).float()
        logits[1, ::2] += 9 * functional.one_hot(told.clamp(min=0), shape[-1])[::2]
        return logits, {name: values.expand(2, *values.shape) for name, values in batch.items()}

    sums: dict[str, torch.Tensor] = {}
    for batch in task.validation_batches(4):
        for name, values in task.measure(*outputs(batch)).items():
            sums[name] = sums.get(name, torch.zeros_like(values)) + values
    whole = {name: values.tolist() for name, values in sums.items()}
    trained = outputs(task.train_batch(6, 7, 5))
    read = task.scored(trained[1])
    numbers = {"loss": task.loss(*trained).tolist(), "terms": task.loss_terms(trained[1]).tolist()}
    numbers |= {"scored": [] if read is None else read.float().mean((1, 2)).tolist(), **task.metrics(whole)}
    for name, values in task.baselines().items():
        numbers[name] = [value for metric, value in sorted(values.items()) if metric not in OF_SACREBLEU]
    return {name: [float(f"{value:.6g}") for value in values] for name, values in numbers.items()}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    write_data(folder)
    return folder


@pytest.mark.parametrize("name", TASKS_BY_NAME)
def test_data_batches_and_scores_are_golden(name: str, data: Path) -> None:
    golden = json.loads(GOLDEN.read_text())[name]
    for part, numbers in scored(TASKS_BY_NAME[name], data).items():
        assert numbers == pytest.approx(golden["scores"].pop(part), rel=1e-4), part
    assert found(TASKS_BY_NAME[name], data) | {"scores": {}} == golden


def test_every_task_has_some() -> None:
    ours = {kind for kind, spec in TASKS.members().items() if spec.__module__.startswith("ablate.")}
    assert {plain["kind"] for plain in TASKS_BY_NAME.values()} == ours


def rows_of(address: str) -> dict[str, str]:
    """The digest of the first rows of a source that needs no file."""
    source = parse(address)
    rows = islice(source.rows(source.columns, BadRows(refuse=True), lambda line: None), 4000)
    return {"rows": digest([[*row] for row in rows])}


@pytest.mark.parametrize("address", SOURCES_OF_ROWS)
def test_rows_are_golden(address: str) -> None:
    assert rows_of(address) == json.loads(GOLDEN.read_text())[address]


def lines() -> Iterator[str]:
    with TemporaryDirectory() as folder:
        write_data(Path(folder))
        for name, plain in TASKS_BY_NAME.items():
            golden = {**found(plain, Path(folder)), "scores": scored(plain, Path(folder))}
            yield f"  {json.dumps(name)}: {json.dumps(golden)}"
    for address in SOURCES_OF_ROWS:
        yield f"  {json.dumps(address)}: {json.dumps(rows_of(address))}"


if __name__ == "__main__":
    GOLDEN.write_text("{\n" + ",\n".join(lines()) + "\n}\n")
