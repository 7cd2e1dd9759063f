"""Long texts are tokenized in pieces, with the ids of the whole text."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ablate.tasks.corpus import LONG, read_corpus
from ablate.tasks.language_model import LanguageModelSpec
from ablate.tasks.text import division_of_long_texts
from ablate.tasks.tokenizers import TokenizerSpec, subwords
from ablate.tasks.tokenizers.subwords import UNKNOWN

NORMALIZERS: list[Any] = [
    None,
    *({"type": kind} for kind in ("NFC", "NFKC", "NFKD", "Lowercase", "StripAccents")),
    {"type": "Prepend", "prepend": "▁"},
    {"type": "Replace", "pattern": {"String": "\n"}, "content": " "},
    {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": "▁"},
    {"type": "Strip", "strip_left": True, "strip_right": True},
    {
        "type": "BertNormalizer",
        "clean_text": True,
        "handle_chinese_chars": True,
        "strip_accents": None,
        "lowercase": True,
    },
    {"type": "Sequence", "normalizers": [{"type": "NFD"}, {"type": "Lowercase"}, {"type": "StripAccents"}]},
]
CL100K = next(pattern for pattern in sorted(subwords._PATTERNS) if "1,3" in pattern)


def byte_level(*, prefix: bool, regex: bool) -> dict[str, Any]:
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": regex}


PRE_TOKENIZERS: list[Any] = [
    None,
    *({"type": kind} for kind in ("BertPreTokenizer", "Whitespace", "WhitespaceSplit")),
    {"type": "Punctuation", "behavior": "Isolated"},
    *(byte_level(prefix=prefix, regex=regex) for prefix in (False, True) for regex in (False, True)),
    *(
        {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": True}
        for scheme in ("always", "first", "never")
    ),
    {
        "type": "Sequence",
        "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": CL100K}, "behavior": "Isolated", "invert": False},
            byte_level(prefix=False, regex=False),
        ],
    },
    {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, byte_level(prefix=True, regex=False)]},
    {
        "type": "Sequence",
        "pretokenizers": [{"type": "Whitespace"}, {"type": "Digits", "individual_digits": True}],
    },
    {"type": "Split", "pattern": {"Regex": r"[^ ]+\n[^ ]+| "}, "behavior": "Isolated", "invert": False},
]
ADDED: list[list[dict[str, Any]]] = [
    [],
    *(
        [{"content": "<m>", "lstrip": left, "rstrip": right, "normalized": False, "single_word": False}]
        for left, right in ((False, False), (True, False), (False, True))
    ),
    [{"content": "b\nb", "lstrip": False, "rstrip": False, "normalized": False, "single_word": False}],
    [{"content": "ab", "lstrip": False, "rstrip": False, "normalized": True, "single_word": True}],
    [{"content": "a b", "lstrip": False, "rstrip": False, "normalized": True, "single_word": False}],
]
DIVIDED_TEXTS = st.lists(st.sampled_from([*"ab.1 \n\nÉé¨\u0301'▁漢Σ\r\t", "<m>", "a\nb"]), min_size=8, max_size=40).map(
    "".join
)


def saved_model(normalizer: Any, pre_tokenizer: Any, added: list[dict[str, Any]], *, fallback: bool) -> Any:
    """A tokenizer of some characters, bytes and merges across them, white space included."""
    from tokenizers import Tokenizer as Model
    from tokenizers import pre_tokenizers as library

    letters = [*"ab.1 \nÉé¨\u0301'▁漢Σσςe\r\t<m>", *(f"<0x{byte:02X}>" for byte in range(256))]
    vocabulary = dict.fromkeys([UNKNOWN, *letters, *library.ByteLevel.alphabet()])
    merges = [
        ("a", "b"),
        ("\n", "a"),
        ("Ċ", "a"),
        ("a", "\n"),
        ("▁", "a"),
        ("Ġ", "a"),
        ("b", "Ċ"),
        ("\n", "\n"),
        ("Ċ", "Ċ"),
    ]
    vocabulary |= dict.fromkeys("".join(pair) for pair in merges)
    plain = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": len(vocabulary) + number, "special": number > 0, **one} for number, one in enumerate(added)
        ],
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": None,
        "decoder": None,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": UNKNOWN,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": True,
            "byte_fallback": fallback,
            "ignore_merges": False,
            "vocab": {token: number for number, token in enumerate(vocabulary)},
            "merges": [list(pair) for pair in merges],
        },
    }
    return Model.from_str(json.dumps(plain))


@settings(deadline=None, max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    normalizer=st.sampled_from(NORMALIZERS),
    pre_tokenizer=st.sampled_from(PRE_TOKENIZERS),
    added=st.sampled_from(ADDED),
    fallback=st.booleans(),
    text=DIVIDED_TEXTS,
    length=st.integers(1, 12),
)
def test_a_long_text_has_the_ids_that_the_library_gives_it(
    normalizer: Any,
    pre_tokenizer: Any,
    added: list[dict[str, Any]],
    fallback: bool,
    text: str,
    length: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever the normaliser, the pre-tokenizer and the added tokens."""
    model = saved_model(normalizer, pre_tokenizer, added, fallback=fallback)
    monkeypatch.setattr(subwords, "_LONG_TEXT", length)
    expected = model.encode(text, add_special_tokens=False).ids
    assert subwords.SubwordTokenizer(model).encode(text).tolist() == expected


def test_common_tokenizers_are_divided() -> None:
    """A long text is not held in memory as a whole for a byte-level, a WordPiece or a Llama 3 tokenizer."""
    for normalizer, pre_tokenizer in (
        (None, byte_level(prefix=False, regex=True)),
        (NORMALIZERS[-2], {"type": "BertPreTokenizer"}),
        (None, PRE_TOKENIZERS[-4]),
    ):
        assert subwords.SubwordTokenizer(saved_model(normalizer, pre_tokenizer, [], fallback=False)).divides_at_lines
    for pre_tokenizer in (None, byte_level(prefix=True, regex=True), *PRE_TOKENIZERS[9:12]):
        assert not subwords.SubwordTokenizer(saved_model(None, pre_tokenizer, [], fallback=False)).divides_at_lines


@pytest.mark.parametrize("kind", ["saved with a prefix", "bpe", "bytes", "words"])
def test_a_corpus_of_one_long_text_has_the_ids_of_the_whole_text(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Single texts are read in pieces, with blank lines, spaces and several kinds of line ends at their ends."""
    monkeypatch.setattr("ablate.tasks.corpus.LONG", 40)
    monkeypatch.setattr(subwords, "_LONG_TEXT", 40)
    lines = ["ab a", "", "  b1", "a", "\x0bab", "", "", "b.", " a\u2028b"]
    text = "\n".join(lines[number * 7 % len(lines)] for number in range(300)) + "\nend"
    (tmp_path / "text.txt").write_text(text, encoding="utf-8")
    plain: dict[str, Any] = {"kind": kind, **({"vocab_size": 262} if kind in ("bpe", "words") else {})}
    if kind.startswith("saved"):
        saved_model(None, byte_level(prefix=True, regex=True), [], fallback=False).save(str(tmp_path / "t.json"))
        plain = {"kind": "saved", "file": str(tmp_path / "t.json")}
    spec = LanguageModelSpec(data=f"file:{tmp_path}/text.txt", tokenizer=TokenizerSpec.parse(plain), context=8)
    task = spec.open(tmp_path, spec.prepare(tmp_path, lambda line: None))
    corpus = read_corpus(spec.data, spec.validation_share, lambda line: None)
    for split in ("train", "validation"):
        whole = "".join(document.text for document in corpus.documents_in(split))
        monkeypatch.setattr(subwords, "_LONG_TEXT", 1 << 30)
        assert task.tokens[split].tolist() == [*task.tokenizer.encode(whole), task.tokenizer.end_of_document]


@pytest.mark.parametrize("longest", [LONG, LONG + 1])
@pytest.mark.parametrize(
    ("divides", "of_documents", "of_one"),
    [("after any line", {}, {}), ("between visible characters", {}, {"division": 2}),
     ("unknown", {"division": 2}, {"division": 2})],
)  # fmt: skip
def test_the_key_says_how_a_text_is_divided_only_where_it_is_divided_otherwise_than_once(
    longest: int, divides: str, of_documents: dict[str, int], of_one: dict[str, int]
) -> None:
    for note, expected in (("", of_documents), ("a single text", of_one)):
        corpus, tokenizer = SimpleNamespace(longest=longest, note=note), SimpleNamespace(divides=divides)
        found = division_of_long_texts(corpus, tokenizer)  # type: ignore[arg-type]
        assert found == (expected if longest > LONG else {})
