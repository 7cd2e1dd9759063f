"""`tokens`: the beginning of the data is prepared; and an interrupted preparation continues."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from ruamel.yaml import YAML

from ablate.spec.task import TaskSpec
from ablate.tasks import text as text_module
from ablate.tasks.language_model import LanguageModel, LanguageModelSpec
from ablate.tasks.sources.files import Files
from ablate.tasks.tokenizers.kinds import ByteTokenizer

END = 256  # of the byte tokenizer


def silent(line: str) -> None:
    """A `Say` that prints nothing."""


@pytest.fixture
def documents(tmp_path: Path) -> list[str]:
    """400 documents in one file, some of them twice."""
    generator = random.Random(3)
    texts = ["".join(generator.choices("abcdefgh ", k=generator.randint(20, 60))).strip() + "." for _ in range(400)]
    texts[7], texts[300] = texts[3], texts[3]
    (tmp_path / "many.txt").write_text("\n<|endoftext|>\n".join(texts))
    return [f"{text}\n" for text in texts]


def spec(tmp_path: Path, **fields: Any) -> LanguageModelSpec:
    plain = {"data": f"file:{tmp_path}/many.txt", "tokenizer": "bytes", "context": 16, "validation_windows": 4}
    return LanguageModelSpec.model_validate(plain | fields)


def prepared(given: LanguageModelSpec, cache: Path) -> LanguageModel:
    return given.open(cache, given.prepare(cache, silent))


def split(texts: list[str], share: float) -> tuple[list[str], list[str]]:
    """Training and validation documents: copies go, and the smallest hashes are held out."""
    distinct = list(dict.fromkeys(texts))
    ranked = sorted(distinct, key=lambda text: hashlib.sha256(text.encode()).digest())
    held_out = set(ranked[: max(1, round(share * len(distinct)))])
    return [text for text in distinct if text not in held_out], [text for text in distinct if text in held_out]


def stream(texts: Iterable[str]) -> list[int]:
    return [identity for text in texts for identity in [*text.encode(), END]]


def test_only_the_beginning_is_prepared(tmp_path: Path, documents: list[str]) -> None:
    task = prepared(spec(tmp_path, tokens=500), tmp_path / "cache")
    size, count = 0, 0
    while size < 8 * 500:
        size, count = size + len(task_text := documents[count].encode()), count + 1
        assert task_text
    train, validation = split(documents[:count], 0.1)
    assert task.tokens["train"].tolist() == stream(train)[:500]
    held_out = stream(validation)
    most = max(4 * 17, -(-500 * 0.1 // 0.9))
    assert task.tokens["validation"].tolist() == held_out[: int(most)]
    assert not set(train) & set(validation)


def test_no_more_documents_are_read_than_are_needed(
    tmp_path: Path, documents: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    read = []
    whole: Callable[..., Iterator[Any]] = Files.documents

    def counted(self: Files, *arguments: Any) -> Iterator[Any]:
        for document in whole(self, *arguments):
            read.append(document.text)
            yield document

    monkeypatch.setattr(Files, "documents", counted)
    prepared(spec(tmp_path, tokens=200), tmp_path / "cache")
    assert len(set(read)) < 60  # 1600 bytes in documents of 40
    read.clear()
    prepared(spec(tmp_path), tmp_path / "cache")
    assert len(set(read)) == 398


def test_a_single_text_is_cut_too(tmp_path: Path) -> None:
    lines = [f"line {number} of a long text\n" for number in range(2000)]
    (tmp_path / "many.txt").write_text("".join(lines))
    task = prepared(spec(tmp_path, tokens=1000), tmp_path / "cache")
    beginning = "".join(lines)[:9000]
    assert bytes(task.tokens["train"].astype(np.uint8)).decode() == beginning[:1000]
    assert bytes(task.tokens["validation"][:50].astype(np.uint8)).decode() in beginning


def test_the_hub_is_streamed(tmp_path: Path, documents: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")
    (tmp_path / "hub").mkdir()
    (tmp_path / "hub" / "train.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in documents))
    monkeypatch.setattr(datasets.DatasetBuilder, "download_and_prepare", lambda *_, **__: pytest.fail("all is fetched"))
    task = prepared(spec(tmp_path, data=f"hub:{tmp_path / 'hub'}", tokens=500), tmp_path / "cache")
    from_file = prepared(spec(tmp_path, tokens=500), tmp_path / "cache")
    np.testing.assert_array_equal(task.tokens["train"], from_file.tokens["train"])


def test_more_tokens_than_there_are(tmp_path: Path, documents: list[str]) -> None:
    all_of, most = (prepared(spec(tmp_path, **fields), tmp_path / "cache") for fields in ({}, {"tokens": 10**9}))
    for name, tokens in all_of.tokens.items():
        np.testing.assert_array_equal(most.tokens[name], tokens)


def test_numbers_as_people_write_them(tmp_path: Path) -> None:
    given = YAML(typ="safe").load("{kind: language_model, data: file:x, tokenizer: bytes, context: 16, tokens: 2e9}")
    read = LanguageModelSpec.model_validate(given)
    assert read.tokens == 2_000_000_000
    assert "tokens" not in spec(tmp_path).canonical()


class Interrupting:
    """The byte tokenizer, interrupted before a text by its number; counts the texts."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left, self.texts = 10**9, 0
        whole = ByteTokenizer.encode_all

        def encode_all(tokenizer: ByteTokenizer, texts: Iterable[str]) -> Iterator[NDArray[np.int64]]:
            for ids in whole(tokenizer, texts):
                if self.texts >= self.left:
                    raise KeyboardInterrupt
                self.texts += 1
                yield ids

        monkeypatch.setattr(ByteTokenizer, "encode_all", encode_all)


@pytest.mark.parametrize("moment", [0, 1, 37, 200, 358, 359, 370, 397])
@pytest.mark.parametrize("fields", [{}, {"tokens": 1700}], ids=["all", "some"])
def test_an_interrupted_preparation_goes_on(
    tmp_path: Path, documents: list[str], moment: int, fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = spec(tmp_path, **fields)
    whole = given.prepare(tmp_path / "other", silent)
    monkeypatch.setattr(text_module, "_SAVED_TOKENS", 300)
    encoder, cache = Interrupting(monkeypatch), tmp_path / "cache"
    encoder.left = moment
    try:
        given.prepare(cache, silent)
    except KeyboardInterrupt:
        (building,) = cache.glob("*.building")
        written = max(building.glob("*.npy"), key=lambda file: file.stat().st_mtime_ns, default=None)
        if written is not None:
            with written.open("ab") as tail:
                tail.write(b"half a page that a crash has left")
    done, encoder.left = encoder.texts, 10**9
    said: list[str] = []
    assert given.prepare(cache, said.append) == whole
    again = encoder.texts - done
    if done == moment:  # it was interrupted
        assert "Continuing a preparation that was interrupted" in said
        assert done + again <= 398 + 16  # at most what was not saved is done twice: 300 tokens in texts of 20 at least
    else:
        assert again == 0
    assert not list(cache.glob("*.building"))
    assert not list(cache.glob("*/progress*"))


@pytest.mark.parametrize("kind", ["language_model", "masked_language_model", "language_mixture"])
@pytest.mark.parametrize("more", [{"validation_windows": 40}, {"context": 64}])
def test_data_prepared_for_fewer_windows_is_not_taken_for_more(
    tmp_path: Path, documents: list[str], kind: str, more: dict[str, int]
) -> None:
    data = {"data": f"file:{tmp_path}/many.txt"}
    where = {"sources": {"a": data | {"weight": 1}, "b": data | {"weight": 1}}} if kind == "language_mixture" else data
    plain = {"kind": kind, **where, "tokenizer": "bytes", "context": 16, "validation_windows": 2, "tokens": 1000}
    if kind != "language_mixture":  # windows that the test has room for and the validation has not
        plain |= {"validation_share": 0.02, "test_share": 0.4}
    few, many = TaskSpec.parse(plain), TaskSpec.parse(plain | more)
    alone, after = many.prepare(tmp_path / "alone", silent), few.prepare(tmp_path / "both", silent)
    assert many.prepare(tmp_path / "both", silent) == alone != after
    batches = [many.open(tmp_path / place, alone).validation_batches(64) for place in ("alone", "both")]
    assert len({sum(len(batch["inputs"]) for batch in one) for one in batches}) == 1


def test_windows_that_a_share_has_room_for_prepare_no_other_data(tmp_path: Path, documents: list[str]) -> None:
    given = [spec(tmp_path, tokens=2000, validation_windows=windows) for windows in (1, 4)]
    assert len({one.prepare(tmp_path / "cache", silent) for one in given}) == 1
