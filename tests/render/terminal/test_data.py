"""`ablate data`, data that is named on the command line, and the statements of `ablate bench`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from ablate.cli import main
from ablate.errors import SpaceError
from ablate.render.terminal.cost import histogram
from ablate.render.terminal.measures import print_bench
from ablate.spec.named import shipped_spaces
from ablate.spec.reading import load_space
from ablate.timing import Setting, Timing

Ablate = Callable[..., tuple[int, str, str]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "my data"
    folder.mkdir()
    rows = [f"my card no {i} is lost\tlost" if i % 2 else f"how much is {i} euro\trate" for i in range(200)]
    (folder / "train.tsv").write_text("text\tcategory\n" + "\n".join([*rows, rows[0]]) + "\n")
    return folder


@pytest.fixture
def ablate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ablate:
    """The command, run in this process below `tmp_path`: exit code, stdout, stderr."""
    monkeypatch.setattr("ablate.cli.app.handle_early_interrupts", lambda: None)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ABLATE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "100")
    (tmp_path / "mine.yaml").write_text(
        (shipped_spaces() / "intents.yaml").read_text().replace("{kind: wordpiece, vocab_size: 2000}", "bytes")
        + "\ndeparts: Their rows were others.\n"
    )

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["ablate", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        return (int(ended.value.code or 0), *capsys.readouterr())

    return run


def test_data_is_shown_and_as_json(folder: Path, ablate: Ablate) -> None:
    code, out, err = ablate("data", "mine.yaml", "--data", f"file:{folder}")
    assert code == 0, err
    for part in (
        "left out: 1 empty or duplicates",
        "2 labels: ",
        "sample 3",
        "majority class",
        "unigram",
        "fingerprint",
    ):
        assert part in out
    assert "Their rows were others." in out
    plain = json.loads(ablate("data", "mine.yaml", "--data", f"file:{folder}", "--json")[1])
    assert plain["rows"] == {"train": 180, "validation": 20}
    assert sum(plain["labels"].values()) == 180
    assert sum(bin_["count"] for bin_ in plain["lengths"]) == 180
    assert plain["baselines"]["unigram"]["val_accuracy"] == 1
    assert plain["departs"] == "Their rows were others."
    assert plain["fingerprint"] in out


def test_validate_says_that_data_is_missing(folder: Path, ablate: Ablate) -> None:
    code, out, _ = ablate("validate", "mine.yaml")
    assert code == 0
    assert "Its data is missing: data/intents: there is no such file or folder." in out
    assert "missing" not in ablate("validate", "mine.yaml", "--data", f"file:{folder}")[1]


def test_missing_data_is_one_paragraph(ablate: Ablate) -> None:
    code, _, err = ablate("data", "mine.yaml")
    assert code == 2
    assert err.startswith("Error: data/intents: there is no such file or folder.")
    assert "Traceback" not in err


def test_data_named_in_place_of_the_space_is_checked() -> None:
    assert load_space("packages", data="file:x").task.data == "file:x"  # type: ignore[attr-defined]
    with pytest.raises(SpaceError, match="no such data source"):
        load_space("packages", data="fille:x")


@given(st.lists(st.integers(0, 10**6), min_size=1))
def test_every_length_is_in_one_bin(lengths: list[int]) -> None:
    bins = histogram(tuple(lengths))
    assert sum(count for *_, count in bins) == len(lengths)
    assert len(bins) <= 10
    for low, high, count in bins:
        assert count == sum(low <= length <= high for length in lengths)


@pytest.mark.parametrize("name", ["packages", "same_file", "masked_code"])
def test_families_have_a_space_on_built_in_data(name: str) -> None:
    task = load_space(name).task
    assert task.data == "builtin:python_stdlib"  # type: ignore[attr-defined]
    assert task.missing() is None


@pytest.mark.parametrize("named", ["story.txt", "."], ids=["file", "folder"])
def test_one_plain_text_is_valid_shown_and_planned(named: str, tmp_path: Path, ablate: Ablate) -> None:
    home = tmp_path / "texts"
    home.mkdir()
    text = "".join(f"line {number} of a story\n" for number in range(400))
    (home / "story.txt").write_text(text)
    plain = (shipped_spaces() / "books.yaml").read_text()
    (tmp_path / "books.yaml").write_text(re.sub(r"tokenizer: .*", "tokenizer: bytes", plain))
    arguments = ["books.yaml", "--data", f"file:texts/{named}"]
    code, out, err = ablate("validate", *arguments)
    assert (code, "missing" in out) == (0, False), err
    code, out, err = ablate("data", *arguments)
    assert code == 0, err
    assert f"a single text of {len(text):,} characters, split at line ends" in out
    code, out, err = ablate("plan", *arguments)
    assert code == 0, err


def printed(*rows: Timing) -> str:
    console = Console(file=StringIO(), width=200)
    print_bench(rows, Setting(width=8, heads=1, batch=1, device="cpu", whole=False), console)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def row(block: str, length: int, seconds: float, spread: float) -> Timing:
    return Timing(block, length, True, seconds=seconds, spread=spread, tokens=1.0, flops=1.0, share=0.1, ratio=1.0)


@pytest.mark.parametrize(("spread", "told"), [(0.05, True), (0.6, False)])
def test_growth_is_reported_where_it_is_larger_than_the_noise(spread: float, told: bool) -> None:
    text = printed(row("we", 16, 1e-3, spread), row("we", 64, 2e-3, spread))
    assert ("Time grows as we L^0.50." in text) == told
    assert ("How the time of we grows is lost in noise" in text) == (not told)


def test_each_block_is_judged_by_its_own_noise() -> None:
    calm = row("he", 16, 1e-3, 0.01), row("he", 32, 2e-3, 0.01)
    wild = row("we", 16, 2e-3, 29.44), row("we", 32, 1e-3, 0.5)
    text = printed(*calm, *wild)
    assert "Time grows as he L^1.00." in text
    assert "we L^" not in text
    assert "> 100%" in text
    assert "2944" not in text
    assert "1 head," in text
