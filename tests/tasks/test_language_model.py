"""The language model task on the built-in corpus."""

from __future__ import annotations

import itertools
import math
import shutil
import signal
import subprocess
import sys
import sysconfig
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ablate.errors import DataError
from ablate.spec.task import TASKS
from ablate.tasks.cache import spread
from ablate.tasks.corpus import Corpus
from ablate.tasks.language_model import LanguageModel, LanguageModelSpec
from ablate.tasks.tokenizers import Tokenizer

PREPARE = """
import sys
from pathlib import Path
from ablate.tasks.language_model import LanguageModelSpec
spec = LanguageModelSpec.model_validate_json(sys.argv[2])
print(spec.prepare(Path(sys.argv[1]), lambda line: print(line, flush=True)))
assert "torch" not in sys.modules
"""


def small(folder: Path, context: int, texts: list[str], **more: Any) -> LanguageModelSpec:
    for number, text in enumerate(texts):
        (folder / f"{number}.txt").write_text(text, encoding="utf-8")
    plain = {"data": f"file:{folder}", "tokenizer": "bytes", "context": context, **more}
    return LanguageModelSpec.model_validate(plain)


def ready(spec: LanguageModelSpec, cache: Path) -> LanguageModel:
    return spec.open(cache, spec.prepare(cache, lambda line: None))


def packed(*batches: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: torch.stack([batch[name] for batch in batches]) for name in batches[0]}


# Preparing


def test_prepared_tokens_are_the_documents(folder: Path, corpus: Corpus, tokenizer: Tokenizer) -> None:
    for name in ("train", "validation"):
        documents = list(corpus.documents_in(name))
        tokens = np.load(folder / f"{name}.npy")
        assert tokens.dtype == np.uint16
        assert tokens[-1] == tokenizer.end_of_document
        ends = np.flatnonzero(tokens == tokenizer.end_of_document)
        assert len(ends) == len(documents)
        starts = [0, *(ends[:-1] + 1)]
        for start, end, document in zip(starts, ends, documents, strict=True):
            assert tokenizer.decode(tokens[start:end]) == document.text


@pytest.fixture(scope="module")
def part(spec: LanguageModelSpec, tmp_path_factory: pytest.TempPathFactory) -> LanguageModelSpec:
    """On a part of the standard library, which takes a second to turn into tokens."""
    folder = tmp_path_factory.mktemp("part")
    for package in ("asyncio", "email", "unittest"):
        for file in Path(sysconfig.get_path("stdlib"), package).rglob("*.py"):
            shutil.copy(file, folder / "_".join((package, *file.parts[-2:])))
    return spec.model_copy(update={"data": f"file:{folder}"})


@pytest.fixture(scope="module")
def part_fingerprint(part: LanguageModelSpec, tmp_path_factory: pytest.TempPathFactory) -> str:
    return part.prepare(tmp_path_factory.mktemp("cache"), lambda line: None)


def test_preparing_again_elsewhere_gives_the_same(
    part: LanguageModelSpec, part_fingerprint: str, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", PREPARE, str(tmp_path), part.model_dump_json()]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = [process.communicate(timeout=300)[0].splitlines() for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert [lines[-1] for lines in outputs] == [part_fingerprint, part_fingerprint]
    assert sum(any(line.startswith("Training the tokenizer") for line in lines) for lines in outputs) == 1


def test_kill_in_the_middle_then_prepare(part: LanguageModelSpec, part_fingerprint: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", PREPARE, str(tmp_path), part.model_dump_json()]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        while "Tokenizing the text" not in process.stdout.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGKILL)
    with pytest.raises(DataError, match="missing"):
        part.open(tmp_path, part_fingerprint)
    assert part.prepare(tmp_path, lambda line: None) == part_fingerprint
    part.open(tmp_path, part_fingerprint)


def test_damaged_tokens_are_refused_then_prepared_again(tmp_path: Path) -> None:
    texts = tmp_path / "texts"
    texts.mkdir()
    spec = small(texts, 4, ["the first text", "the second text", "the third"])
    fingerprint = spec.prepare(tmp_path, lambda line: None)
    path = tmp_path / fingerprint[:32] / "train.npy"
    data = bytearray(path.read_bytes())
    data[-2] ^= 1
    path.write_bytes(data)
    with pytest.raises(DataError, match=r"train\.npy: the checksum of the prepared data does not match"):
        spec.open(tmp_path, fingerprint)
    assert spec.prepare(tmp_path, lambda line: None) == fingerprint
    spec.open(tmp_path, fingerprint)


def test_what_decides_the_tokens_decides_the_fingerprint(tmp_path: Path) -> None:
    texts = ["def first(): pass\n" * 9, "def second(): pass\n" * 9, "third " * 20, "fourth " * 20]
    specs = [
        small(tmp_path, 4, texts),
        small(tmp_path, 4, texts, tokenizer={"kind": "bpe", "vocab_size": 260}),
        small(tmp_path, 4, texts, tokenizer={"kind": "bpe", "vocab_size": 261}),
        small(tmp_path, 4, texts, validation_share=0.5),
    ]
    cache = tmp_path / ".cache"
    assert len({spec.prepare(cache, lambda line: None) for spec in specs}) == 4
    assert small(tmp_path, 5, texts).prepare(cache, lambda line: None) == specs[0].prepare(cache, lambda line: None)
    (tmp_path / "0.txt").write_text("def other(): pass\n" * 9)
    specs[0].prepare(cache, lambda line: None)
    assert len([path for path in cache.iterdir() if path.is_dir()]) == 5, "another text is another preparation"


@pytest.mark.parametrize("lengths", [(3, 50), (50, 3)])
def test_text_shorter_than_a_window_is_refused(tmp_path: Path, lengths: tuple[int, int]) -> None:
    spec = small(tmp_path, 16, ["x" * lengths[0], "y" * lengths[1]])
    with pytest.raises(DataError, match=r"text is shorter than one window; expected at least 17 tokens.*; got 4\."):
        spec.prepare(tmp_path / ".cache", lambda line: None)


# Batches


def test_windows_are_slices_of_the_text_and_targets_are_shifted_by_one(task: LanguageModel, folder: Path) -> None:
    for name, batches in (
        ("train", [task.train_batch(3, step, 16) for step in range(4)]),
        ("validation", list(task.validation_batches(50))),
    ):
        corpus = np.load(folder / f"{name}.npy").tobytes()
        for batch in batches:
            assert torch.equal(batch["inputs"][:, 1:], batch["targets"][:, :-1])
            windows = torch.cat([batch["inputs"], batch["targets"][:, -1:]], dim=1).numpy().astype(np.uint16)
            for window in windows:
                position = corpus.find(window.tobytes())
                while position % 2:  # matches at odd bytes lie across tokens
                    position = corpus.find(window.tobytes(), position + 1)
                assert position >= 0


def test_every_window_of_the_text_can_be_drawn_equally_often(tmp_path: Path) -> None:
    spec = small(tmp_path, 5, ["abcdefghijkl", "0123456789AB"], validation_share=0.5)
    task = ready(spec, tmp_path / ".cache")
    drawn: dict[bytes, int] = {}
    draws = 9000
    for window in task.train_batch(0, 0, draws)["inputs"].numpy().astype(np.uint8):
        drawn[window.tobytes()] = drawn.get(window.tobytes(), 0) + 1
    text = max(("abcdefghijkl", "0123456789AB"), key=lambda text: text[:5].encode() in drawn)
    assert set(drawn) == {text[start : start + 5].encode() for start in range(8)}
    # Chi square with 7 degrees of freedom exceeds 29.9 once in ten thousand; the seed is fixed.
    assert sum((count - draws / 8) ** 2 / (draws / 8) for count in drawn.values()) < 29.9


@pytest.mark.parametrize(("length", "asked", "given"), [(6, 9, 1), (10, 9, 1), (11, 9, 2), (103, 4, 4), (103, 99, 20)])
def test_validation_windows_are_even_and_no_target_comes_twice(
    tmp_path: Path, length: int, asked: int, given: int
) -> None:
    # No character comes twice in a text, so a character tells its position, whichever text is held out.
    text = "".join(chr(1 + i) for i in range(length - 1))
    spec = small(tmp_path, 5, [text, text[::-1]], validation_share=0.5, validation_windows=asked)
    cache = tmp_path / ".cache"
    task = ready(spec, cache)
    tokens = np.load(cache / task.fingerprint[:32] / "validation.npy").tolist()
    assert len(tokens) == length
    batches = list(task.validation_batches(3))
    starts = [tokens.index(int(window[0])) for batch in batches for window in batch["inputs"]]
    assert len(starts) == given
    assert len({start - before for before, start in itertools.pairwise(starts)}) <= 1
    targets = [int(target) for batch in batches for target in batch["targets"].flatten()]
    assert len(set(targets)) == len(targets)
    if given > 1:
        assert starts[-1] + 5 + given > length - 1, "the windows reach to the end"


def test_validation_is_the_same_for_every_batch_size(task: LanguageModel) -> None:
    whole, parts = (list(task.validation_batches(size)) for size in (128, 7))
    assert len(whole) == 1
    assert [len(batch["inputs"]) for batch in parts] == [7] * 18 + [2]
    for name in ("inputs", "targets", "target_bytes"):
        assert torch.equal(whole[0][name], torch.cat([batch[name] for batch in parts]))


# Loss and metrics


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_loss_is_cross_entropy_of_each_member(tmp_path: Path, dtype: torch.dtype) -> None:
    task = ready(small(tmp_path, 7, ["some text of the first", "some text of the second"]), tmp_path / ".cache")
    batch = packed(*(task.train_batch(seed, 0, 5) for seed in range(3)))
    torch.manual_seed(0)
    outputs = torch.randn(3, 5, 7, 257, dtype=dtype, requires_grad=True)
    loss = task.loss(outputs, batch)
    assert loss.shape == (3,)
    (grad,) = torch.autograd.grad(loss.sum(), outputs)
    exact = torch.float64 if dtype is torch.float64 else torch.float32
    for member in range(3):
        alone = outputs[member].detach().to(exact).requires_grad_()
        expected = torch.nn.functional.cross_entropy(alone.transpose(1, 2), batch["targets"][member])
        (expected_grad,) = torch.autograd.grad(expected, alone)
        torch.testing.assert_close(loss[member], expected)
        torch.testing.assert_close(grad[member], expected_grad.to(dtype))


def test_metrics_agree_with_a_slow_recomputation(
    task: LanguageModel, tokenizer: Tokenizer, folder: Path, corpus: Corpus
) -> None:
    # Bytes: over the whole validation text the lengths of the tokens add up to its size on disk.
    lengths = np.load(folder / "token_bytes.npy")
    total = sum(len(document.text.encode()) for document in corpus.documents_in("validation"))
    assert lengths[np.load(folder / "validation.npy")].sum() == total

    generator = torch.Generator().manual_seed(1)
    tables = torch.randn(2, 2048, 2048, generator=generator)  # two members, each a bigram model
    sums: dict[str, list[float]] = {}
    for batch in task.validation_batches(50):
        both = packed(batch, batch)
        outputs = torch.stack([tables[member][batch["inputs"]] for member in range(2)])
        for name, value in task.measure(outputs, both).items():
            assert value.shape == (2,)
            sums[name] = [a + b for a, b in zip(sums.get(name, [0.0, 0.0]), value.tolist(), strict=True)]
    metrics = task.metrics(sums)
    assert metrics.keys() == {"val_loss", "val_perplexity", "val_bits_per_byte"}

    for member in range(2):
        logits = tables[member].numpy().astype(np.float64)
        log_probabilities = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        nats, tokens, size = 0.0, 0, 0
        for batch in task.validation_batches(1):
            for current, target in zip(batch["inputs"][0].tolist(), batch["targets"][0].tolist(), strict=True):
                nats -= log_probabilities[current, target]
                tokens += 1
                size += 0 if target == tokenizer.end_of_document else int(lengths[target])
        assert tokens == 128 * 128
        assert metrics["val_loss"][member] == pytest.approx(nats / tokens, rel=1e-6)
        assert metrics["val_perplexity"][member] == pytest.approx(math.exp(nats / tokens), rel=1e-5)
        assert metrics["val_bits_per_byte"][member] == pytest.approx(nats / math.log(2) / size, rel=1e-6)


def test_losses_beyond_all_bounds_are_not_an_error(task: LanguageModel) -> None:
    sums = {"nats": [1e6, math.inf, math.nan], "tokens": [10.0] * 3, "bytes": [30.0] * 3}
    perplexity = task.metrics(sums)["val_perplexity"]
    assert perplexity[:2] == [math.inf, math.inf]
    assert math.isnan(perplexity[2])


# Baselines and size


@pytest.mark.parametrize("dense", [1 << 22, 0], ids=["table", "search"])
def test_baselines_are_counts_of_the_training_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dense: int) -> None:
    monkeypatch.setattr("ablate.tasks.language_model._DENSE", dense)
    monkeypatch.setattr("ablate.tasks.language_model._PAIRS_IN_A_TABLE", dense or 300)
    texts = ["abcabdabc " * 9, "abdabcabc " * 7, "cab abc " * 8, "dab abc " * 5]
    task = ready(small(tmp_path, 6, texts, validation_share=0.3), tmp_path / ".cache")
    train, vocabulary = task.tokens["train"].tolist(), 257
    pairs = {*itertools.pairwise(train)}
    assert task.distinct_pairs() == len(pairs)
    tracemalloc.start()
    task.distinct_pairs()
    assert (tracemalloc.get_traced_memory()[1] > vocabulary**2) == (dense > 0), "a table only where it is small"
    tracemalloc.stop()
    assert task.least_tokens()[0] == 8 * len(pairs)

    def unigram(target: int) -> float:
        return (train.count(target) + 1) / (len(train) + vocabulary)

    def bigram(before: int, target: int) -> float:
        after = [second for first, second in itertools.pairwise(train) if first == before]
        return (after.count(target) + 50 * unigram(target)) / (len(after) + 50)

    def trigram(earlier: int, before: int, target: int) -> float:
        triples = zip(train, train[1:], train[2:], strict=False)
        after = [third for first, second, third in triples if (first, second) == (earlier, before)]
        return (after.count(target) + 50 * bigram(before, target)) / (len(after) + 50)

    shares: dict[str, list[float]] = {"unigram": [], "bigram": [], "trigram": []}
    for batch in task.validation_batches(3):
        for inputs, targets in zip(batch["inputs"].tolist(), batch["targets"].tolist(), strict=True):
            for place, (before, target) in enumerate(zip(inputs, targets, strict=True)):
                shares["unigram"].append(unigram(target))
                shares["bigram"].append(bigram(before, target))
                # The first target of a window has a single token before it.
                longest = trigram(inputs[place - 1], before, target) if place else bigram(before, target)
                shares["trigram"].append(longest)
    baselines = task.baselines()
    assert baselines.keys() == shares.keys()
    for name, share in shares.items():
        assert baselines[name]["val_loss"] == pytest.approx(-sum(map(math.log, share)) / len(share))
    assert baselines["trigram"]["val_loss"] < baselines["bigram"]["val_loss"] < baselines["unigram"]["val_loss"]


def test_a_long_text_is_counted_by_evenly_spaced_runs_and_described_by_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [chr(97 + number) * (5 + 3 * number) for number in range(9)]
    task = ready(small(tmp_path, 4, texts), tmp_path / ".cache")
    lengths, train = task.describe().lengths, task.tokens["train"].tolist()
    assert sorted(lengths) == sorted(
        sum(1 for _ in run) for end, run in itertools.groupby(train, (256).__eq__) if not end
    )
    assert [run.tolist() for run in task.counted_runs()] == [train]
    monkeypatch.setattr("ablate.tasks.text._RUN", 10)
    assert np.concatenate(task.counted_runs()).tolist() == train
    monkeypatch.setattr("ablate.tasks.text._COUNTED", 30)
    count = -(-len(train) // 10)
    starts = [10 * (number * count // 3) for number in range(3)]
    assert [run.tolist() for run in task.counted_runs()] == [train[start : start + 10] for start in starts]
    assert task.describe().lengths == lengths


@pytest.mark.parametrize(("count", "most"), [(0, 3), (1, 3), (3, 3), (7, 3), (100, 7), (5, 1)])
def test_a_spread_is_even_and_begins_at_the_first(count: int, most: int) -> None:
    chosen = spread(count, most).tolist()
    assert len(chosen) == min(count, most)
    assert chosen[:1] == [0][:count]
    gaps = {after - before for before, after in itertools.pairwise([*chosen, count])}
    assert not chosen or max(gaps) - min(gaps) <= 1


def test_rows_of_a_table_are_documents(tmp_path: Path) -> None:
    (tmp_path / "stories.jsonl").write_text('{"story": "once upon"}\n{"story": "a time"}\n{"story": "a time"}\n')
    plain = {"data": f"file:{tmp_path}/stories.jsonl", "tokenizer": "bytes", "context": 4, "text": "story"}
    task = ready(LanguageModelSpec.model_validate(plain), tmp_path / "cache")
    assert task.describe().rows == {"train": 1, "validation": 1}
    assert task.describe().notes == ("left out: 1 empty or duplicates",)


def growth(folder: Path, end: str) -> float:
    """MiB that preparing 25 MB takes at its peak beyond what 5 MB take, one after the other in one process."""
    program = (
        "import sys\nfrom pathlib import Path\n"
        "from ablate.tasks.language_model import LanguageModelSpec\n"
        "for plain in sys.argv[2:]:\n"
        "    LanguageModelSpec.model_validate_json(plain).prepare(Path(sys.argv[1]), lambda line: None)\n"
        # Not `ru_maxrss`: a new program inherits that of the process which starts it, here of pytest.
        "    print(Path('/proc/self/status').read_text().split('VmHWM:')[1].split()[0])\n"
    )
    specs = []
    for megabytes in (5, 25):
        with (folder / f"{megabytes}.txt").open("w") as file:
            for number in range(megabytes * 10):
                file.write(f"document {number}\n" + "some words of a story that goes on\n" * 2900 + end)
        plain = {"data": f"file:{folder}/{megabytes}.txt", "tokenizer": "bytes", "context": 64}
        specs.append(LanguageModelSpec.model_validate(plain).model_dump_json())
    command = [sys.executable, "-c", program, str(folder / "cache"), *specs]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    few, many = (int(line) / 1024 for line in done.stdout.split())
    return many - few


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("end", ["<|endoftext|>\n", ""], ids=["documents", "one text"])
def test_memory_does_not_grow_with_the_text(end: str, tmp_path: Path) -> None:
    assert growth(tmp_path, end) < 16, "MiB"


@pytest.mark.parametrize("kind", ["language_model", "masked_language_model"])
def test_a_single_file_is_one_text_with_parts_that_share_nothing(kind: str, tmp_path: Path) -> None:
    letters = "".join(chr(97 + number // 100) for number in range(1000)) + "\n"  # 100 times a, 100 times b ... j
    (tmp_path / "letters.txt").write_text(letters)
    plain = {"kind": kind, "data": f"file:{tmp_path}/letters.txt", "tokenizer": "bytes", "context": 16}
    spec = TASKS.members()[kind].parse(plain | {"validation_share": 0.2, "test_share": 0.1})
    task = spec.open(tmp_path / "cache", spec.prepare(tmp_path / "cache", lambda line: None))  # type: ignore[attr-defined]
    texts = {part: bytes(tokens[:-1].astype(np.uint8)).decode() for part, tokens in task.tokens.items()}
    assert texts == {
        "train": "a" * 100 + "b" * 100 + letters[200:701],
        "validation": letters[701:901],
        "test": letters[901:],
    }
    (note,) = task.describe().notes
    assert note.startswith("a single text of 1,001 characters, split at line ends")
    assert "about 200 for the validation and about 100 for the test" in note


def test_a_single_file_too_short_for_the_context_is_refused(tmp_path: Path) -> None:
    (tmp_path / "short.txt").write_text("only a few words\n")
    plain = {"data": f"file:{tmp_path}/short.txt", "tokenizer": "bytes", "context": 16}
    with pytest.raises(DataError, match=r"text is shorter than one window.*Lower `context`, or provide more text"):
        ready(LanguageModelSpec.model_validate(plain), tmp_path / "cache")
