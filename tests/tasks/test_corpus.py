"""Division into training and validation by document."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ablate.errors import DataError
from ablate.tasks.corpus import Corpus, read_corpus


def write(folder: Path, texts: dict[str, str]) -> str:
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return f"file:{folder}"


def read(address: str, share: float = 0.25) -> Corpus:
    return read_corpus(address, share, lambda line: None)


def test_real_corpus_has_no_text_on_both_sides(corpus: Corpus) -> None:
    train, validation = (
        {document.text for document in part} for part in (corpus.part("train"), corpus.part("validation"))
    )
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
    assert {d.text for d in first.part("validation")} == {d.text for d in second.part("validation")}
    assert {d.text for d in first.part("train")} == {d.text for d in second.part("train")}
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
        with pytest.raises(DataError, match="one document cannot be divided"):
            read(address, share)
        return
    corpus = read(address, share)
    sides = sorted(document.text for document in (*corpus.part("train"), *corpus.part("validation")))
    assert sides == sorted(set(texts))
    assert corpus.sizes["train"]
    assert corpus.sizes["validation"]


@pytest.mark.parametrize("texts", [{}, {"a.txt": ""}, {"a.txt": "", "b.txt": "<|endoftext|>\n"}])
def test_empty_corpus_is_refused(tmp_path: Path, texts: dict[str, str]) -> None:
    with pytest.raises(DataError, match="no text in it"):
        read(write(tmp_path, texts))


def test_one_document_is_refused_with_both_ways_out(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"one document cannot be divided.*folder of several files.*<\|endoftext\|>"):
        read(write(tmp_path, {"a.txt": "alone\n"}) + "/a.txt")
