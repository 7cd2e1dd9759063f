"""Tokenizers lose nothing, are deterministic, and have exactly the vocabulary asked for."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from ablate.errors import DataError
from ablate.spec.task import TaskSpec
from ablate.tasks.tokenizers import Tokenizer, TokenizerSpec, subwords
from ablate.tasks.tokenizers.kinds import BpeSpec, ByteTokenizer
from ablate.tasks.tokenizers.subwords import SubwordTokenizer

CODE = Path(ast.__file__).read_text(encoding="utf-8")

ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]))


@settings(deadline=None, max_examples=300)
@given(ANY_TEXT)
@example("<|endoftext|>")
@example(" \t\n\r\n  x\u3000\u00a0é̈ 👩‍👩‍👧 \x00\x7f\U0010ffff")
@example("")
def test_text_survives(tokenizer: Tokenizer, text: str) -> None:
    for each in (tokenizer, ByteTokenizer()):
        ids = each.encode(text)
        assert each.decode(ids) == text
        assert each.end_of_document not in ids
        assert each.token_bytes[ids].sum() == len(text.encode())
        assert ids.dtype == np.int64


def test_byte_ids_are_the_bytes() -> None:
    tokenizer = ByteTokenizer()
    assert tokenizer.encode("aß").tolist() == [97, 0xC3, 0x9F]
    assert tokenizer.vocabulary == 257
    assert tokenizer.end_of_document == 256
    assert tokenizer.decode([0xC3]) == "\N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize("size", [257, 258, 311, 400])
def test_vocabulary_is_exact(size: int) -> None:
    tokenizer = BpeSpec(vocab_size=size).train([CODE])
    assert tokenizer.vocabulary == size
    assert tokenizer.end_of_document == size - 1
    assert tokenizer.token_bytes.tolist()[-1] == 0
    assert min(tokenizer.token_bytes[:-1]) == 1
    assert tokenizer.decode(tokenizer.encode(CODE + "☕")) == CODE + "☕"


def test_first_merge_is_the_most_frequent_pair() -> None:
    tokenizer = BpeSpec(vocab_size=258).train(["xyxyxy", "zz"])
    assert [len(tokenizer.encode(text)) for text in ("xy", "zz", "yx")] == [1, 2, 2]


def test_too_large_a_vocabulary_is_refused_with_the_largest_that_fits() -> None:
    # 256 bytes, `xy`, `xyxy` (once more makes `xyxyxy`, which occurs once) and the end of a document.
    with pytest.raises(DataError, match=r"too few for this vocabulary; expected at most 259; got 5,000"):
        BpeSpec(vocab_size=5000).train(["xyxyxy"])
    with pytest.raises(ValidationError, match="greater than or equal to 257"):
        BpeSpec(vocab_size=256)


def test_training_is_the_same_in_another_process_with_another_number_of_threads(tmp_path: Path) -> None:
    program = (
        "import sys, pathlib; from ablate.tasks.tokenizers.kinds import BpeSpec\n"
        "text = pathlib.Path(sys.argv[1]).read_text()\n"
        "BpeSpec(vocab_size=380).train([text, text[:99]]).save(pathlib.Path(sys.argv[2]))"
    )
    (tmp_path / "code.txt").write_text(CODE)
    saved = []
    for threads in ("1", "2"):
        folder = tmp_path / threads
        folder.mkdir()
        command = [sys.executable, "-c", program, str(tmp_path / "code.txt"), str(folder)]
        subprocess.run(command, check=True, env={"RAYON_NUM_THREADS": threads})
        saved.append((folder / "tokenizer.json").read_bytes())
    assert saved[0] == saved[1]


@pytest.mark.parametrize(
    ("kind", "columns"),
    [
        ("language_model", {"text": "a"}),
        ("masked_language_model", {"text": "a"}),
        ("classification", {"text": "a", "label": "label"}),
        ("matching", {"first": "a", "second": "b", "label": "label"}),
        ("translation", {"source": "a", "target": "b", "validation_pairs": 5}),
        ("language_mixture", {}),
    ],
)
def test_a_vocabulary_is_learnt_from_the_texts_to_train_on_alone(
    kind: str, columns: dict[str, Any], tmp_path: Path
) -> None:
    """Each text has a character of its own; those of held-out texts are unknown."""
    letters = {
        column: [chr(start + number) for number in range(40)] for column, start in (("a", 0x4E00), ("b", 0x5E00))
    }
    rows = [
        {**{column: f"{of[number]} {column} text" for column, of in letters.items()}, "label": "xy"[number % 2]}
        for number in range(40)
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    data: dict[str, Any] = {"data": f"file:{tmp_path}/rows.jsonl", **columns}
    if kind == "language_mixture":
        data = {"sources": {column: {"data": data["data"], "weight": 1, "text": column} for column in letters}}
    spec = TaskSpec.parse({"kind": kind, **data, "tokenizer": "chars", "context": 12})
    task: Any = spec.open(tmp_path / "cache", spec.prepare(tmp_path / "cache", lambda line: None))
    known = {*(task.codec() or task.tokenizer).units}
    trained = sum(count for split, count in task.describe().rows.items() if split.startswith("train"))
    sides = 1 if kind == "language_mixture" else len({"a", "b"} & {*columns.values()})
    assert len(known & {*letters["a"], *letters["b"]}) == trained * sides
    assert 40 > trained / (2 if kind == "language_mixture" else 1) >= 30


def test_characters_are_lossless_but_for_unknown_ones() -> None:
    tokenizer = TokenizerSpec.parse("chars").train(["Straße\n", "zu"])
    assert tokenizer.vocabulary == len(set("Straße\nzu")) + 2
    assert tokenizer.decode(tokenizer.encode("Straße zu")) == "Straße\N{REPLACEMENT CHARACTER}zu"
    assert tokenizer.token_bytes[tokenizer.encode("ß")].tolist() == [2]


def test_words_are_the_most_frequent_ones() -> None:
    tokenizer = TokenizerSpec.parse({"kind": "words", "vocab_size": 4}).train(["b a a", "c b"])
    assert tokenizer.vocabulary == 4
    assert tokenizer.decode(tokenizer.encode(" a\tb  c a ")) == "a b \N{REPLACEMENT CHARACTER} a"
    assert tokenizer.encode("").tolist() == []


def test_wordpiece_is_that_of_bert() -> None:
    tokenizer = TokenizerSpec.parse({"kind": "wordpiece", "vocab_size": 400}).train([CODE])
    assert tokenizer.vocabulary == 400
    assert tokenizer.decode(tokenizer.encode("Def  self")) == "def self"
    assert TokenizerSpec.parse({"kind": "wordpiece", "vocab_size": 11}).train(["ab ab cd"]).vocabulary == 11
    # Unknown, four characters at the beginning and within words, `ab` and the end of a document; `cd` occurs once.
    with pytest.raises(DataError, match="too few for this vocabulary; expected at most 11; got 12"):
        TokenizerSpec.parse({"kind": "wordpiece", "vocab_size": 12}).train(["ab ab cd"])
    cased = TokenizerSpec.parse({"kind": "wordpiece", "vocab_size": 400, "lowercase": False}).train([CODE])
    assert cased.decode(cased.encode("Def  self")) == "Def self"
    with pytest.raises(DataError, match="every character of the training documents needs a token"):
        TokenizerSpec.parse({"kind": "wordpiece", "vocab_size": 10}).train([CODE])


def test_a_saved_tokenizer_is_used_as_it_is(tmp_path: Path, tokenizer: Tokenizer) -> None:
    tokenizer.save(tmp_path)
    spec = TokenizerSpec.parse({"kind": "saved", "file": str(tmp_path / "tokenizer.json")})
    saved = spec.train(iter([]))
    assert np.array_equal(saved.encode(CODE), tokenizer.encode(CODE))
    assert np.array_equal(saved.token_bytes, tokenizer.token_bytes)
    known = spec.identity()
    (tmp_path / "moved").mkdir()
    (tmp_path / "tokenizer.json").rename(tmp_path / "moved" / "t.json")
    assert TokenizerSpec.parse({"kind": "saved", "file": str(tmp_path / "moved" / "t.json")}).identity() == known
    with pytest.raises(DataError, match=r"the tokenizer cannot be read.*tokenizer\.file"):
        spec.identity()
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(DataError, match="this is not a saved tokenizer"):
        spec.train([])


def test_bytes_of_a_saved_tokenizer_are_those_of_the_text() -> None:
    """However its vocabulary writes spaces, bytes, ends of words and tokens that were added."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

    pieces = ["<unk>", "<0x0A>", "<0xE2>", "<0x98>", "<0x95>", "▁", "#", "##", "é", "t", "h", "e", "th", "the", "▁the"]
    merges = [("t", "h"), ("th", "e"), ("▁", "the"), ("#", "#")]
    places = {piece: place for place, piece in enumerate(pieces)}
    llama = Tokenizer(models.BPE(places, merges, unk_token="<unk>", byte_fallback=True))
    llama.normalizer = normalizers.Replace(" ", "▁")
    llama.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    llama.add_tokens(["naïve"])
    gemma = Tokenizer.from_str(llama.to_str())
    gemma.decoder = decoders.Metaspace(prepend_scheme="never")
    for model in (llama, gemma):
        tokenizer = SubwordTokenizer(model)
        for text in ("the the thé the", "the\nthe ☕ the", "##the naïve e"):
            assert tokenizer.token_bytes[tokenizer.encode(text)].sum() == len(text.encode()), text
    unigram = Tokenizer(models.Unigram([("<unk>", 0.0), ("▁", -1.0), ("a", -1.0), ("▁a", -1.5)], unk_id=0))
    unigram.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    unigram.decoder = decoders.Metaspace(prepend_scheme="never")
    tokenizer = SubwordTokenizer(unigram)
    assert tokenizer.token_bytes[tokenizer.encode("a a a")].sum() == 5
    assert tokenizer.token_bytes[tokenizer.encode("☕")].sum() == 0  # as every unknown token
    words = Tokenizer(
        models.BPE({"a": 0, "b": 1, "b</w>": 2, "ab</w>": 3}, [("a", "b</w>")], end_of_word_suffix="</w>")
    )
    words.pre_tokenizer, words.decoder = pre_tokenizers.WhitespaceSplit(), decoders.BPEDecoder("</w>")
    tokenizer = SubwordTokenizer(words)
    assert tokenizer.token_bytes[tokenizer.encode("ab b ab ")].sum() == 8


def test_a_long_text_is_tokenized_in_pieces_as_a_whole(monkeypatch: pytest.MonkeyPatch, tokenizer: Tokenizer) -> None:
    whole = tokenizer.encode(CODE)
    monkeypatch.setattr(subwords, "_LONG_TEXT", 1000)
    assert np.array_equal(tokenizer.encode(CODE), whole)
    assert BpeSpec(vocab_size=400).train([CODE]).encode(CODE).tolist() == in_one(monkeypatch).tolist()


def in_one(monkeypatch: pytest.MonkeyPatch) -> np.ndarray:
    monkeypatch.setattr(subwords, "_LONG_TEXT", 1 << 30)
    return BpeSpec(vocab_size=400).train([CODE]).encode(CODE)


@pytest.mark.parametrize("special", [True, False])
def test_a_token_of_a_saved_tokenizer_ends_a_document(special: bool, tmp_path: Path) -> None:
    """No id is added; in a text the token is ordinary text, whether or not the file calls it special."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    characters = pre_tokenizers.ByteLevel.alphabet()
    model = Tokenizer(models.BPE(vocab={one: place for place, one in enumerate(sorted(characters))}, merges=[]))
    model.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    model.decoder = decoders.ByteLevel()
    (model.add_special_tokens if special else model.add_tokens)([AddedToken("<end>"), AddedToken("<mask>")])
    model.save(str(tmp_path / "tokenizer.json"))
    plain = {"kind": "saved", "file": str(tmp_path / "tokenizer.json")}
    own, added = (TokenizerSpec.parse({**plain, **more}) for more in ({"end": "<end>"}, {}))
    tokenizer = own.train(iter([]))
    assert (tokenizer.vocabulary, tokenizer.end_of_document) == (258, model.token_to_id("<end>"))
    assert (added.train(iter([])).vocabulary, added.train(iter([])).end_of_document) == (259, 258)
    ids = tokenizer.encode("a <end> b")
    assert tokenizer.end_of_document not in ids
    assert tokenizer.decode(ids) == "a <end> b"
    assert tokenizer.token_bytes[256] == 0
    assert own.identity() != added.identity()
    with pytest.raises(DataError, match=r"tokenizer.end: the tokenizer has no such token; got '\[SEP\]'"):
        TokenizerSpec.parse({**plain, "end": "[SEP]"}).train(iter([]))
    with pytest.raises(DataError, match=r"tokenizer.end: a text may hold this token.*Name a special token"):
        TokenizerSpec.parse({**plain, "end": "!"}).train(iter([]))
