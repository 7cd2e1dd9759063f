"""The printed table: readable at every usual width, plain in a pipe, never reading the user's text as markup."""

from __future__ import annotations

import re

import numpy as np
import pytest
from fake_store import NOON, FakeStore, fake_store
from rich.console import Console

from ablate.analysis import read_study
from ablate.render.table import print_study, study_table
from ablate.render.terminal.studies import studies_table
from ablate.store.records import StudySummary, TrialState

EFFECTS = {
    "baseline": 0.0,
    "attention_skip=removed": 0.4,
    "attention_skip=value_skipinit": 0.03,
    "values=identity": -0.01,
    "norm=none": 0.1,
    "sas_p_no_norm": 0.08,
}


def realistic(scale: float = 1.0) -> FakeStore:
    rng = np.random.default_rng(7)
    base = {"attention_skip": "kept", "values": "dense", "norm": "rms"}
    variants = {name: (base | dict([name.split("=")] if "=" in name else []), 868_512) for name in EFFECTS}
    variants["sas_p_no_norm"] = (base | {"values": "identity", "norm": "none"}, 756_168)
    store = fake_store(variants, margin=0.02 * scale)
    for seed in range(3):
        for name, effect in EFFECTS.items():
            loss = scale * (3.4 + 0.05 * seed + effect + rng.normal(0, 0.006))
            store.add(name, seed, {"val_loss": loss}, curve=[(0, 8.0 * scale), (300, loss)])
    store.add("norm=none", 2, state=TrialState.DIVERGED, stopped_at=42)
    return store


def printed(store: FakeStore, width: int = 100, **options: bool) -> str:
    console = Console(width=width, **options)  # type: ignore[arg-type]
    with console.capture() as capture:
        print_study(read_study(store, "a_study"), console)
    return capture.get()


@pytest.mark.parametrize("most", [1, 2, 4, 5])
def test_a_long_table_is_cut_and_says_so(most: int) -> None:
    report, console = read_study(realistic(), "a_study"), Console(width=140)
    order = [row.name for row in report.variants]
    with console.capture() as capture:
        print_study(report, console, most)
    table, _, rest = capture.get().partition("The first ")
    assert [name for name in order if name in table.split()] == order[:most]
    assert rest.startswith(f"{most} of 6 variants; `ablate show STUDY --all`")
    with console.capture() as capture:
        print_study(report, console, 6)
    assert capture.get() == printed(realistic(), 140), "nothing to cut"


@pytest.mark.parametrize("width", [80, 100, 140])
@pytest.mark.parametrize("scale", [1.0, 300.0])
def test_every_number_and_word_is_whole_at_every_width(width: int, scale: float) -> None:
    store = realistic(scale)
    report = read_study(store, "a_study")
    text = printed(store, width)
    assert "…" not in text
    assert all(len(line) <= width for line in text.splitlines())
    words = " ".join(text.split())
    digits = 3 if scale == 1.0 else 1
    for row in report.variants:
        for part in row.name.split("="):
            assert part in words
        assert row.diverged or f"{row.metrics['val_loss'].mean:.{digits}f}" in words
        if row.difference is not None and not row.diverged:
            assert f"{row.difference.difference:+.{digits}f}" in words
            assert row.difference.high is not None
            assert row.difference.low is not None
            assert f"± {(row.difference.high - row.difference.low) / 2:.{digits}f}" in words


@pytest.mark.parametrize("width", [64, 72, 80, 100])
def test_the_name_of_a_variant_takes_two_lines_at_most(width: int) -> None:
    console = Console(width=width)
    with console.capture() as capture:
        console.print(study_table(read_study(realistic(), "a_study"), console)[0])
    names = [line.split(" ")[0] for line in capture.get().splitlines()]
    for name in EFFECTS:
        switch, equals, setting = name.partition("=")
        assert name in names or f"{switch}{equals}\n{setting}" in "\n".join(names)


def test_question_progress_and_answer_surround_the_table() -> None:
    lines = printed(realistic(), 140).splitlines()
    assert lines[0].rstrip() == "Which parts can go?"
    assert lines[1].rstrip() == "17 of 18 trials finished, 1 diverged"
    rows = [line.split()[0] for line in lines if line.split() and line.split()[0] in EFFECTS]
    assert rows == list(EFFECTS)
    (diverged,) = [line for line in lines if line.startswith("norm=none")]
    assert "diverged: 1 of 3 seeds, first at step 42" in diverged
    assert re.search(r"\d ± \d", diverged) is None  # no mean of the seeds that survived
    text = " ".join(" ".join(lines).split())
    assert "Not worse than the baseline by 0.02 or more: values=identity (val_loss at " in text
    assert text.index("Caution: Training diverged: norm=none at 1 of 3 seeds") < text.index("Not worse than")


def test_a_pipe_gets_plain_text_and_a_terminal_colour() -> None:
    assert "\x1b" not in printed(realistic())
    assert "\x1b[32mnot needed" in printed(realistic(), 140, force_terminal=True, color_system="standard")  # type: ignore[arg-type]


def test_text_of_the_user_is_shown_as_it_is() -> None:
    evil = "[red]x[/red] \x1b[31mboo\nnext"
    store = fake_store({"baseline": ({}, 10), "[bold]=[/]": ({"[bold]": "[/]"}, 10)}, question=evil, metric="[x]")
    store.add("baseline", 0, {"[x]": 1.0})
    text = printed(store, 140, force_terminal=False)
    assert "[red]x[/red] \N{REPLACEMENT CHARACTER}[31mboo next" in text
    assert "[bold]=[/]" in text
    assert "[x]" in text.splitlines()[3]
    assert "\x1b" not in text


def test_an_unfinished_study_shows_how_far_each_variant_is() -> None:
    store = realistic()
    del store.trial_records["values=identity/2"]
    text = printed(store)
    assert "16 of 18 trials finished, 1 waiting, 1 diverged" in text
    (line,) = [line for line in text.splitlines() if line.startswith("values=identity")]
    assert "2/3" in line.split()
    assert "Caution: This answer is provisional: 1 trial is still missing." in text


def test_one_seed_has_no_interval() -> None:
    store = fake_store({"baseline": ({}, 10), "norm=none": ({"norm": "none"}, 10)}, seeds=1)
    store.add("baseline", 0, {"val_loss": 3.0})
    store.add("norm=none", 0, {"val_loss": 3.5})
    (line,) = [line for line in printed(store, 140).splitlines() if line.startswith("norm=none")]
    assert "+0.500" in line
    assert "±" not in line


def test_no_result_yet() -> None:
    text = printed(fake_store({"baseline": ({}, 10), "norm=none": ({"norm": "none"}, 10)}), 80)
    assert "0 of 6 trials finished, 6 waiting" in text
    assert "nan" not in text


def test_list_of_studies() -> None:
    console = Console(width=80)
    with console.capture() as capture:
        console.print(studies_table([StudySummary("one[red]", "Why [red]x?", 3, 10, 5, 1, 1, 2, 1, NOON)], console))
    words = capture.get().split()
    for word in ("one[red]", "[red]x?", "5/10", "running", "diverged", "pruned", "failed", "2024-05-17", "12:00"):
        assert word in words
