"""Tables: every format gives the same rows; messages name file and line of a bad row, all columns if one is missing."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as arrow
import pyarrow.parquet as parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ablate.errors import DataError
from ablate.tasks.sources import BadRows, Row, parse

if sys.version_info >= (3, 14):
    from compression.zstd import compress as zstandard
else:
    from zstandard import compress as zstandard

ROWS = [("ein Text, mit Komma", "a"), ("zweiter ☕ Text", "b"), ('mit "Zeichen"', "1")]


def as_csv(rows: list[tuple[str, str]]) -> bytes:
    out = io.StringIO()
    csv.writer(out).writerows([("text", "label"), *rows])
    return out.getvalue().encode()


def as_tsv(rows: list[tuple[str, str]]) -> bytes:
    return "".join(f"{text}\t{label}\n" for text, label in [("text", "label"), *rows]).encode()


def as_jsonl(rows: list[tuple[str, str]]) -> bytes:
    return "".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in rows).encode()


def as_parquet(rows: list[tuple[str, str]]) -> bytes:
    out = io.BytesIO()
    parquet.write_table(arrow.table({"label": [row[1] for row in rows], "text": [row[0] for row in rows]}), out)
    return out.getvalue()


def read(
    path: Path, columns: tuple[str, ...] = ("text", "label"), *, refuse: bool = True
) -> tuple[list[Row], BadRows, list[str]]:
    bad_rows, lines = BadRows(refuse), list[str]()
    return list(parse(f"file:{path}").rows(columns, bad_rows, lines.append)), bad_rows, lines


@pytest.mark.parametrize(("name", "write"), [("a.csv", as_csv), ("a.tsv", as_tsv), ("a.jsonl", as_jsonl)])
@pytest.mark.parametrize(
    ("suffix", "compress"),
    [("", bytes), (".gz", gzip.compress), (".xz", lzma.compress), (".zst", zstandard)],
)
def test_every_format_gives_the_same_rows(
    tmp_path: Path, name: str, write: Callable[..., bytes], suffix: str, compress: Callable[[bytes], bytes]
) -> None:
    (tmp_path / f"{name}{suffix}").write_bytes(compress(write(ROWS)))
    rows, *_ = read(tmp_path / f"{name}{suffix}")
    assert [row.values for row in rows] == ROWS


def test_parquet_gives_the_same_rows(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(as_parquet(ROWS))
    assert [row.values for row in read(tmp_path / "a.parquet")[0]] == ROWS
    (tmp_path / "a.parquet").write_bytes(as_parquet(ROWS)[:-5])
    with pytest.raises(DataError, match="not a complete parquet file"):
        read(tmp_path / "a.parquet")


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.tuples(
            st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1).filter(str.strip),
            st.sampled_from("abc"),
        )
    )
)
def test_any_text_survives_csv(tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]]) -> None:
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    path.write_bytes(as_csv(rows))
    # A reader of csv may take the line ends within a field for one another; nothing else may change.
    read_rows, *_ = read(path)
    assert [row.values[0].replace("\r\n", "\n").replace("\r", "\n") for row in read_rows] == [
        text.replace("\r\n", "\n").replace("\r", "\n") for text, _ in rows
    ]


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.tsv", b"text\tlabel\nx\ta\ny\n", r"a\.tsv:3: this row has 1 fields, but there are 2 columns"),
        ("a.csv", b'text,label\nx,a\n"y\n\nz",b,c\n', r"a\.csv:3: this row has 3 fields"),
        ("a.csv", b"text,label\nx,a\ny,\n", r"a\.csv:3: the column `label` is empty"),
        ("a.csv", b"text,label\nx,a\n\xff,b\n", r"a\.csv:3: the column `text` is not UTF-8 text"),
        ("a.csv", b"text,label\nx,a\nn\0,b\n", r"a\.csv:3: (the column `text` contains a NUL|this row cannot be read)"),
        ("a.csv", b'text,label\nx,a\n"never closed,b\n', r"a\.csv:3: this row cannot be read"),
        ("a.jsonl", b'{"text": "x", "label": 1}\n{"text": "y"\n', r"a\.jsonl:2: this row is not JSON"),
        ("a.jsonl", b'{"text": "x", "label": 1}\n[1]\n', r"a\.jsonl:2: this row is not a JSON object"),
        ("a.jsonl", b'{"text": "x", "label": 1}\n{"text": "y"}\n', r"a\.jsonl:2: the column `label` is empty"),
        ("a.jsonl", b'{"text": "x", "label": 1}\n{"text": "\xff", "label": 2}\n', r"a\.jsonl:2: this row is not UTF-8"),
        ("a.jsonl", b'{"text": "x", "label": 1}\n' + b"[" * 100_000, r"a\.jsonl:2: this row is nested too deeply"),
        (
            "a.jsonl",
            b'{"text": "x", "label": 1}\n{"text": "y", "label": NaN}\n',
            r"a\.jsonl:2: this row is not JSON",
        ),
        ("a.jsonl", b'{"text": "x", "label": 1}\n{"text": "y", "label": 1e999}\n', r"a\.jsonl:2: the column `label`"),
    ],
)
def test_a_bad_row_is_refused_with_its_line_or_counted(tmp_path: Path, name: str, data: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(DataError, match=rf"{message}.*bad_rows: skip"):
        read(tmp_path / name)
    rows, bad_rows, _ = read(tmp_path / name, refuse=False)
    assert [row.values[0] for row in rows] == ["x"]
    assert bad_rows.count == 1
    assert f"{name}:" in bad_rows.first


@pytest.mark.parametrize(
    ("name", "write"), [("a.csv", as_csv), ("a.tsv", as_tsv), ("a.jsonl", as_jsonl), ("a.parquet", as_parquet)]
)
def test_a_missing_column_lists_those_there(tmp_path: Path, name: str, write: Callable[..., bytes]) -> None:
    (tmp_path / name).write_bytes(write(ROWS))
    with pytest.raises(
        DataError, match=r"there is no column `lable`; expected one of .*`label`.*Did you mean `label`\?"
    ):
        read(tmp_path / name, ("text", "lable"))


def test_a_column_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text,label,text,note,note\nx,a,y,1,2\n")
    with pytest.raises(DataError, match=r"a\.csv:1: 2 columns are named `text`"):
        read(tmp_path / "a.csv")


def test_columns_of_a_table_without_a_header_are_counted(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("7\teins\n8\tzwei\n")
    rows, *_ = read(tmp_path / "a.tsv", ("2", "1"))
    assert [row.values for row in rows] == [("eins", "7"), ("zwei", "8")]


def test_values_that_are_no_text_are_labels(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "x", "label": 3}\n{"text": "y", "label": true}\n')
    assert [row.values[1] for row in read(tmp_path / "a.jsonl")[0]] == ["3", "true"]


@pytest.mark.parametrize("held_out", ["validation.csv", "my-Valid_2.csv", "val.csv", "a.dev.csv"])
def test_files_named_train_and_val_are_the_parts_and_others_are_left_out(held_out: str, tmp_path: Path) -> None:
    for name in ("train.csv", held_out, "test.csv", "evaluation.csv"):
        (tmp_path / name).write_bytes(as_csv([(name, "a")]))
    (tmp_path / "README.md").write_text("no table")
    rows, _, lines = read(tmp_path)
    assert {(row.values[0], row.split) for row in rows} == {("train.csv", "train"), (held_out, "validation")}
    tested = parse(f"file:{tmp_path}", with_test=True).rows(("text",), BadRows(True), lambda line: None)
    assert {row.split for row in tested} == {"train", "validation", "test"}
    assert [line.partition(":")[0] for line in lines] == [
        "Left out of the folder because there are tables",
        "Left out because other files are named `train`",
    ]
    assert "README.md" in lines[0]
    assert "test.csv" in lines[1]


def test_what_lies_beside_tables_is_left_out_and_named(tmp_path: Path) -> None:
    (tmp_path / "rows.tsv.gz").write_bytes(gzip.compress(b"text\tlabel\na\tone\n"))
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "rows.jsonl").write_text('{"text": "b", "label": "two"}\n')
    for name in ("LICENSE", "README.md", "picture.png", "z1.txt", "z2.txt"):
        (tmp_path / name).write_bytes(b"\0 no table")
    rows, _, lines = read(tmp_path)
    assert [row.values for row in rows] == [("b", "two"), ("a", "one")]
    (line,) = lines
    assert "LICENSE, README.md, picture.png, z1.txt and 1 more" in line


def test_what_describes_a_folder_of_texts_is_no_text(tmp_path: Path) -> None:
    for name in ("Readme.md", "LICENSE.txt.gz", "story.txt", "readme_first.txt"):
        data = f"the text of {name}".encode()
        (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    rows, _, lines = read(tmp_path, ("file",))
    assert [row.values[0] for row in rows] == ["readme_first.txt", "story.txt"]
    assert "LICENSE.txt.gz, Readme.md (" in lines[0]
    assert len(read(tmp_path / "*.md", ("file",))[0]) == 1


def test_globs_and_folders_of_texts(tmp_path: Path) -> None:
    for folder in ("pos", "neg"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "1.txt").write_text(f"a {folder} text")
    (tmp_path / "pos" / "notes.md").write_text("not asked for")
    rows, *_ = read(tmp_path / "*" / "*.txt", ("text", "folder", "file"))
    assert [row.values for row in rows] == [("a neg text", "neg", "neg/1.txt"), ("a pos text", "pos", "pos/1.txt")]
    with pytest.raises(DataError, match="no file matches this"):
        read(tmp_path / "*.csv")
    assert "no file matches" in str(parse(f"file:{tmp_path}/*.csv").missing())
    assert parse(f"file:{tmp_path}").missing() is None


@pytest.mark.parametrize("cut", [1, 9, 40])
@pytest.mark.parametrize(
    ("suffix", "compress"),
    [(".gz", gzip.compress), (".xz", lzma.compress), (".zst", zstandard)],
)
def test_cut_files_are_refused(tmp_path: Path, suffix: str, compress: Callable[[bytes], bytes], cut: int) -> None:
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(compress(b"".join(b"%d text\n" % number for number in range(999)))[:-cut])
    with pytest.raises(DataError, match=r"this is not a complete \w+ file"):
        read(path, ("text",))
    path.write_bytes(bz2.compress(b"text"))
    with pytest.raises(DataError, match=r"this is not a complete \w+ file"):
        read(path, ("text",))


def test_zstandard_frames_may_follow_each_other(tmp_path: Path) -> None:
    (tmp_path / "a.txt.zst").write_bytes(zstandard(b"first, ") + zstandard(b"second" * 99999))
    assert read(tmp_path / "a.txt.zst", ("text",))[0][0].values == ("first, " + "second" * 99999,)


def test_a_table_in_another_encoding_is_reported(tmp_path: Path) -> None:
    for name, encoding in (("a.tsv", "utf-16"), ("b.csv", "latin-1")):
        (tmp_path / name).write_bytes("text\tlabel\nKäse\ta\n".replace("label", "Größe").encode(encoding))
        with pytest.raises(DataError, match=rf"{name}:1: the column names are not UTF-8 text"):
            read(tmp_path / name)
