"""Division into training and validation by document."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ablate.errors import DataError
from ablate.tasks.corpus import Corpus, read_corpus
from ablate.tasks.language_model import LanguageModelSpec
from ablate.tasks.masked_language_model import MaskedLanguageModelSpec


def write(folder: Path, texts: dict[str, str]) -> str:
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return f"file:{folder}"


def read(address: str, share: float = 0.25) -> Corpus:
    return read_corpus(address, share, lambda line: None)


def test_real_corpus_has_no_text_on_both_sides(corpus: Corpus) -> None:
    train, validation = ({document.text for document in corpus.documents_in(name)} for name in ("train", "validation"))
    assert not train & validation
    assert len(train) == corpus.sizes["train"]
    assert len(validation) == corpus.sizes["validation"]
    assert len(validation) == pytest.approx(0.1 * (len(train) + len(validation)), abs=1)
    assert "" not in train | validation


def test_division_is_the_same_under_other_names(tmp_path: Path) -> None:
    texts = [f"text {number}\n" * 5 for number in range(40)]
    for folder in ("first", "second"):
        (tmp_path / folder).mkdir()
    first = read(write(tmp_path / "first", {f"{i:02}.txt": text for i, text in enumerate(texts)}))
    second = read(write(tmp_path / "second", {f"{99 - i}.md": text for i, text in enumerate(texts)}))
    assert first.sizes["validation"] == 10
    assert {d.text for d in first.documents_in("validation")} == {d.text for d in second.documents_in("validation")}
    assert {d.text for d in first.documents_in("train")} == {d.text for d in second.documents_in("train")}
    assert first.fingerprint != second.fingerprint, "the order decides the batches"


def test_fingerprint_is_of_the_texts_alone(tmp_path: Path) -> None:
    texts = {"a.txt": "eins", "b.txt": "zwei", "c.txt": "drei"}
    for folder in ("first", "second", "third"):
        (tmp_path / folder).mkdir()
    first = read(write(tmp_path / "first", texts))
    assert read(write(tmp_path / "second", {**texts, "d.txt": "eins"})).fingerprint == first.fingerprint
    assert read(write(tmp_path / "third", {**texts, "c.txt": "vier"})).fingerprint != first.fingerprint


@settings(deadline=None, max_examples=50)
@given(st.lists(st.sampled_from("abcdefgh"), min_size=1), st.floats(0.001, 0.999))
def test_copies_never_cross_and_no_side_is_empty(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], share: float
) -> None:
    address = write(tmp_path_factory.mktemp("texts"), {f"{i}.txt": text for i, text in enumerate(texts)})
    if len(set(texts)) == 1:
        with pytest.raises(DataError, match="a single text of 1 characters cannot be split"):
            read(address, share)
        return
    corpus = read(address, share)
    sides = sorted(document.text for document in (*corpus.documents_in("train"), *corpus.documents_in("validation")))
    assert sides == sorted(set(texts))
    assert corpus.sizes["train"]
    assert corpus.sizes["validation"]


@pytest.mark.parametrize("texts", [{}, {"a.txt": ""}, {"a.txt": "", "b.txt": "<|endoftext|>\n"}])
def test_empty_corpus_is_refused(tmp_path: Path, texts: dict[str, str]) -> None:
    with pytest.raises(DataError, match="contains no text"):
        read(write(tmp_path, texts))


def parts_of(corpus: Corpus) -> dict[str, str]:
    parts: dict[str, str] = {}
    for document, part in corpus.documents():
        parts[part] = parts.get(part, "") + document.text
    return parts


STORY = "".join(f"line {number} of a story\n" for number in range(1000))


@pytest.mark.parametrize("ends", ["", "<|endoftext|>\n"])
@pytest.mark.parametrize("name", ["", "/story.txt"])
def test_a_single_text_is_divided_into_parts_that_follow_one_another(name: str, ends: str, tmp_path: Path) -> None:
    address = write(tmp_path, {"story.txt": STORY + ends, "README.md": "About it."}) + name
    corpus = read_corpus(address, 0.2, lambda line: None, test_share=0.1)
    parts = parts_of(corpus)
    assert list(parts) == ["train", "validation", "test"]
    assert "".join(parts.values()) == STORY, "nothing is lost, and nothing is in two parts"
    assert [len(text) / len(STORY) for text in parts.values()] == pytest.approx([0.7, 0.2, 0.1], abs=0.002)
    assert all(text.endswith("\n") for text in parts.values())
    assert corpus.sizes == {"train": 1, "validation": 1, "test": 1}
    assert "a single text of" in corpus.note


@settings(deadline=None, max_examples=100)
@given(st.text(alphabet="ab\n ", min_size=10, max_size=300), st.floats(0.05, 0.5), st.sampled_from([0.0, 0.3]))
def test_every_character_of_a_single_text_is_in_one_part(
    tmp_path_factory: pytest.TempPathFactory, text: str, share: float, test_share: float
) -> None:
    address = write(tmp_path_factory.mktemp("text"), {"a.txt": text})
    parts = parts_of(read_corpus(address, share, lambda line: None, test_share=test_share))
    assert "".join(parts.values()) == text
    assert len(parts) == (3 if test_share else 2)
    assert all(parts.values())


def test_the_fingerprint_of_a_single_text_is_of_its_characters(tmp_path: Path) -> None:
    texts = {"first": STORY, "again": STORY, "other": f"{STORY}."}
    for name, text in texts.items():
        (tmp_path / name).mkdir()
        write(tmp_path / name, {f"{name}.txt": text})
    fingerprints = {name: read(f"file:{tmp_path / name}/{name}.txt").fingerprint for name in texts}
    assert fingerprints["first"] == fingerprints["again"] != fingerprints["other"]
    assert read(f"file:{tmp_path / 'first'}").fingerprint == fingerprints["first"], "the folder of one file is the file"


def test_one_row_of_a_table_is_a_single_text(tmp_path: Path) -> None:
    write(tmp_path, {"a.jsonl": json.dumps({"text": STORY}) + "\n" + json.dumps({"text": STORY}) + "\n"})
    corpus = read(f"file:{tmp_path}/a.jsonl")
    assert "".join(parts_of(corpus).values()) == STORY
    assert corpus.dropped == 1


def test_a_single_text_may_be_longer_than_a_document_and_is_read_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ablate.tasks.corpus.LONG", 500)
    monkeypatch.setattr("ablate.tasks.sources.files.LONGEST", 1000)
    corpus = read(write(tmp_path, {"a.txt": STORY}))
    pieces = [document for document, part in corpus.documents() if part == "train"]
    assert len(pieces) > 20
    assert max(len(piece.text) for piece in pieces) < 600
    assert [piece.ends for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    assert "".join(parts_of(corpus).values()) == STORY


def test_a_single_text_that_changes_while_it_is_read_is_reported(tmp_path: Path) -> None:
    corpus = read(write(tmp_path, {"a.txt": STORY}))
    write(tmp_path, {"a.txt": STORY.replace("line 7 ", "line 8 ")})
    with pytest.raises(DataError, match=f"^file:{re.escape(str(tmp_path))}: the text changed while it was read"):
        list(corpus.documents())


def test_a_text_too_short_to_divide_is_refused(tmp_path: Path) -> None:
    address = write(tmp_path, {"a.txt": "ab"})
    with pytest.raises(DataError, match="a single text of 2 characters cannot be split into training and"):
        read_corpus(address, 0.2, lambda line: None, test_share=0.1)


@pytest.mark.parametrize("count", [3, 4, 5])
@pytest.mark.parametrize("shares", [(0.01, 0.01), (0.5, 0.3), (0.3, 0.5), (0.9, 0.05), (0.05, 0.9), (0.5, 0.0)])
def test_every_split_of_few_documents_has_its_share_or_one(
    count: int, shares: tuple[float, float], tmp_path: Path
) -> None:
    """Validation is filled before the test, and both leave one document to each split after them and to training."""
    address = write(tmp_path, {f"{number}.txt": f"text {number}" for number in range(count)})
    corpus = read_corpus(address, shares[0], lambda line: None, test_share=shares[1])
    validation = max(1, min(round(shares[0] * count), count - 1 - (shares[1] > 0)))
    test = max(1, min(round(shares[1] * count), count - 1 - validation)) if shares[1] else 0
    expected = {"train": count - validation - test, "validation": validation, "test": test}
    assert corpus.sizes == {split: size for split, size in expected.items() if size}
    assert {split: len(list(corpus.documents_in(split))) for split in corpus.sizes} == corpus.sizes


def test_a_bad_row_is_refused_unless_bad_rows_are_skipped(tmp_path: Path, cache: Path) -> None:
    rows = [*(json.dumps({"text": f"text number {number}"}) for number in range(30)), json.dumps({"other": 1})]
    (tmp_path / "rows.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")
    plain: dict[str, Any] = {"data": f"file:{tmp_path}/rows.jsonl", "tokenizer": "bytes", "context": 8}
    for task in (LanguageModelSpec, MaskedLanguageModelSpec):
        with pytest.raises(DataError, match=r"rows\.jsonl.*31"):
            task.model_validate(plain).prepare(cache, lambda line: None)
        skipping = task.model_validate({**plain, "bad_rows": "skip"})
        opened = skipping.open(cache, skipping.prepare(cache, lambda line: None))
        assert sum(opened.describe().rows.values()) == 30
        assert any("1 bad rows" in note for note in opened.describe().notes)
