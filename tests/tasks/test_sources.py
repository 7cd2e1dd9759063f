"""Sources of text: what they yield, leave out and refuse; numbers in words; real sets where they are there."""

from __future__ import annotations

import ast
import errno
import gzip
import os
import sysconfig
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from ablate.errors import DataError
from ablate.spec.task import TaskSpec
from ablate.tasks.sources import BadRows, SourceDocument, parse
from ablate.tasks.sources.builtin import PythonStdlib, english, german
from ablate.tasks.sources.files import Files


def read(address: object) -> list[SourceDocument]:
    return list(parse(str(address)).documents("text", BadRows(refuse=True), lambda line: None))


def test_addresses_name_their_sources() -> None:
    assert isinstance(parse("builtin:python_stdlib"), PythonStdlib)
    source = parse("file:some/folder")
    assert isinstance(source, Files)
    assert source.argument == "some/folder"


@pytest.mark.parametrize("address", ["", "nonsense", "file:", "builtin:python_stdlibs", "builtin:", "hub:", "/tmp"])
def test_unknown_addresses_are_refused_with_the_known_ones(address: str) -> None:
    with pytest.raises(DataError, match=r"no such data source.*`builtin:python_stdlib`, `file:PATH`, `hub:NAME`"):
        parse(address)


def test_nearest_address_is_named() -> None:
    with pytest.raises(DataError, match=r"Did you mean `builtin:python_stdlib`\?"):
        parse("builtin:pyhton_stdlib")


def test_standard_library_is_all_there_and_without_tests() -> None:
    documents = read("builtin:python_stdlib")
    names = [document.name for document in documents]
    assert names == sorted(names)
    assert {"ast.py", "json/decoder.py", "asyncio/tasks.py"} <= set(names)
    assert not [name for name in names if {"test", "tests", "idle_test", "site-packages"} & set(name.split("/"))]
    assert sum(len(document.text) for document in documents) > 5_000_000
    shown = next(document for document in documents if document.name == "ast.py")
    assert shown.text == Path(ast.__file__).read_text(encoding="utf-8")


def test_standard_library_is_decoded_as_its_files_declare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "latin.py").write_bytes("# coding: latin-1\nname = 'Çelik'\n".encode("latin-1"))
    (tmp_path / "broken.py").write_bytes(b"name = '\xff'\n")
    (tmp_path / "unknown.py").write_bytes(b"# coding: no-such-codec\n")
    (tmp_path / "notes.txt").write_text("no source")
    for name in ("tests", "site-packages", "package"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "module.py").write_text(f"'{name}'\n")
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
    lines: list[str] = []
    documents = list(parse("builtin:python_stdlib").documents("text", BadRows(refuse=True), lines.append))
    expected = {"latin.py": "# coding: latin-1\nname = 'Çelik'\n", "package/module.py": "'package'\n"}
    assert dict(documents) == expected
    assert lines == ["Files of the standard library left out because they do not decode: 2"]


def test_folder_gives_every_visible_file_in_order(tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_text("zwei\n", encoding="utf-8")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "c.md").write_bytes("\ufeffdreißig\r\n".encode())
    (tmp_path / "d.txt.gz").write_bytes(gzip.compress("vier ☕".encode()))
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "index").write_bytes(b"\xff\0")
    assert read(f"file:{tmp_path}") == [("a/c.md#0", "dreißig\r\n"), ("b.txt#0", "zwei\n"), ("d.txt.gz#0", "vier ☕")]


def test_file_is_divided_at_end_of_document_lines(tmp_path: Path) -> None:
    path = tmp_path / "stories.txt"
    path.write_text("one\ntwo\n<|endoftext|>\nthree <|endoftext|> goes on\n<|endoftext|>\nfour")
    texts = [document.text for document in read(f"file:{path}")]
    assert texts == ["one\ntwo\n", "three <|endoftext|> goes on\n", "four"]


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("latin.txt", "Çelik".encode("latin-1"), r"latin\.txt: this is not UTF-8 text; got byte 0xc7 at offset 0"),
        ("nul.txt", b"a line\ntext\0", r"nul\.txt: text must not contain NUL bytes; got one at offset 11"),
        ("short.gz", gzip.compress(b"text" * 99, mtime=0)[:-9], r"short\.gz: this is not a complete gzip file"),
        ("plain.gz", b"text", r"plain\.gz: this is not a complete gzip file"),
        (
            "latin.gz",
            gzip.compress(b"a line\n\nab\xff", mtime=0),
            r"latin\.gz: this is not UTF-8 text; got byte 0xff at offset 10",
        ),
    ],
)
def test_what_is_no_text_is_refused_by_name(tmp_path: Path, name: str, data: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(data)
    for address in (tmp_path, tmp_path / name):
        with pytest.raises(DataError, match=message):
            read(f"file:{address}")


@pytest.mark.parametrize("ends", ["", "<|endoftext|>\n"])
def test_lines_and_documents_have_a_greatest_length(ends: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("ablate.tasks.tables", "ablate.tasks.sources.files"):
        monkeypatch.setattr(f"{module}.LONGEST", 30)
    path = tmp_path / "a.txt"
    for text, what in (("x" * 28 + "\n", ""), ("x" * 30 + "\n", "line"), ("x" * 9 + "\n", ""), ("abcde\n" * 5, "")):
        path.write_text("one\n<|endoftext|>\n" + text + ends)
        with pytest.raises(DataError, match=f"a {what} is too long") if what else nullcontext():
            assert [document.text for document in read(f"file:{path}")][1] == text
    path.write_text("abcde\n" * 5 + "f")
    with pytest.raises(DataError, match="a document is too long; expected at most 0 MiB"):
        read(f"file:{path}")


@pytest.mark.parametrize(
    ("text", "single"),
    [
        ("one\n", True),
        ("<|endoftext|>\none\n<|endoftext|>\n<|endoftext|>\n", True),
        ("one\n<|endoftext|>\ntwo", False),
        ("<|endoftext|>\none\n<|endoftext|>\n\n", False),
    ],
)
def test_a_file_is_one_text_if_one_document_in_it_has_lines(text: str, single: bool, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(text)
    for address in (tmp_path, tmp_path / "a.txt"):
        lines = parse(f"file:{address}").only_text(lambda line: None)
        assert (lines is not None) == single
        assert lines is None or [*lines()] == ["one\n"]
    (tmp_path / "b.txt").write_text(text)
    assert parse(f"file:{tmp_path}").only_text(lambda line: None) is None


def test_missing_path_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no such file or folder"):
        read(f"file:{tmp_path / 'nothing'}")


@pytest.mark.parametrize("address", ["", "/**/*.txt"])
def test_a_folder_below_that_may_not_be_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "b.txt").write_text("b")
    scan = os.scandir

    def refuse(path: str) -> object:  # the superuser may read every folder
        if str(path).endswith("private"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(DataError, match=r"private: this folder cannot be read \(Permission denied\)"):
        read(f"file:{tmp_path}{address}")


def test_a_hub_folder_round_the_working_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inside = tmp_path / "a" / "b"
    inside.mkdir(parents=True)
    monkeypatch.chdir(inside)
    for address in ("hub:../..", "hub:..", "hub:/"):
        with pytest.raises(DataError, match="this folder contains the working folder"):
            next(parse(address).rows(("text",), BadRows(refuse=True), lambda line: None))


@pytest.mark.parametrize(
    ("number", "in_english", "in_german"),
    [
        (1, "one", "eins"),
        (7, "seven", "sieben"),
        (11, "eleven", "elf"),
        (16, "sixteen", "sechzehn"),
        (17, "seventeen", "siebzehn"),
        (21, "twenty-one", "einundzwanzig"),
        (30, "thirty", "dreißig"),
        (67, "sixty-seven", "siebenundsechzig"),
        (76, "seventy-six", "sechsundsiebzig"),
        (100, "one hundred", "einhundert"),
        (101, "one hundred and one", "einhunderteins"),
        (1001, "one thousand and one", "eintausendeins"),
        (1100, "one thousand one hundred", "eintausendeinhundert"),
        (
            21_999,
            "twenty-one thousand nine hundred and ninety-nine",
            "einundzwanzigtausendneunhundertneunundneunzig",
        ),
        (101_040, "one hundred and one thousand and forty", "einhunderteintausendvierzig"),
    ],
)
def test_numbers_as_people_write_them(number: int, in_english: str, in_german: str) -> None:
    assert english(number) == in_english
    assert german(number) == in_german


def test_the_source_has_different_rows() -> None:
    rows = list(parse("builtin:number_words").rows(("german", "english"), BadRows(True), print))
    assert len({row.values[0] for row in rows}) == len({row.values[1] for row in rows}) == len(rows) == 20_000
    assert rows[1].values == ("achtunddreißig", "thirty-eight")


FOLDER = os.environ.get("ABLATE_SHARED_DATA")

with_shared_data = pytest.mark.skipif(FOLDER is None, reason="ABLATE_SHARED_DATA is not set")


@with_shared_data
@pytest.mark.parametrize(
    ("plain", "rows", "labels"),
    [
        ({"data": "banking77", "label": "category"}, {"train": 9003, "validation": 1000}, 77),
        ({"data": "clinc150/*.tsv.gz", "label": "intent"}, {"train": 21325, "validation": 2370}, 151),
        ({"data": "gutenberg_authors"}, {"train": 6608, "validation": 937}, 10),
    ],
)
def test_classification(plain: dict[str, Any], rows: dict[str, int], labels: int, cache: Path) -> None:
    address = f"file:{FOLDER}/{plain['data']}"
    spec = TaskSpec.parse({"kind": "classification", "tokenizer": "bytes", "context": 64, **plain, "data": address})
    task = spec.open(cache, spec.prepare(cache, lambda line: None))
    assert task.shape.classes == labels
    assert task.describe().rows == rows
    baselines = task.baselines()
    assert baselines["unigram"]["val_accuracy"] > baselines["majority class"]["val_accuracy"]


@with_shared_data
def test_books(cache: Path) -> None:
    plain = {"data": f"file:{FOLDER}/gutenberg_children/books", "tokenizer": "chars", "context": 128}
    spec = TaskSpec.parse({"kind": "language_model", **plain})
    task = spec.open(cache, spec.prepare(cache, lambda line: None))
    assert task.describe().rows == {"train": 61, "validation": 7}
    baselines = task.baselines()
    # Characters of English: about 4.2 bits each by frequency alone, about 3.5 after the one before.
    assert 4 < baselines["unigram"]["val_bits_per_byte"] < 4.7
    assert 3 < baselines["bigram"]["val_bits_per_byte"] < 3.8
