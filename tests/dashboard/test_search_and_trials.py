"""Pages over stores written by hand: a search with pruned trials, many variants, several studies, one trial, slides."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from fake_store import fake_store
from streamlit.testing.v1 import AppTest
from vega import marks, rows, series
from written_stores import Ended, line, simple_store, variants_of, write_study

from ablate.render.figures.curves import MOST_PANELS
from ablate.roles import TrialRole
from ablate.store import Recording, TrialState, VariantRecord
from ablate.store.records import DesignTraits
from dashboard.shared.evidence import baseline_of
from dashboard.shared.machine import Sample
from dashboard.shared.results import KEY, NAME, STATE, VARIANT, VERSUS, Filter, filtered, switches, trial_table
from dashboard.views.trials import how_to_read

Shown = Callable[..., AppTest]
LR = "training.optimizer.lr"


def words_of(page: AppTest) -> str:
    return " ".join(re.sub(r"[\\\u2068\u2069]", "", one.value) for one in page.markdown)


SPACE: dict[str, Any] = {
    "switches": {"norm": {"rms": {}, "<b>none": {}}},
    "design": {
        "kind": "search",
        "sampler": "tpe",
        "points": 12,
        "ranges": {LR: {"low": 1e-4, "high": 0.1, "log": True}},
    },
}


@pytest.fixture
def searched(tmp_path: Path) -> Path:
    """A store with a search of twelve points; the last four were pruned."""
    variants, ended = [], []
    for n in range(12):
        norm, rate = "rms" if n % 2 else "<b>none", f"{10 ** (-4 + n / 4):.4g}"
        name = f"norm={norm}@{LR}={rate}" if n else "baseline"
        spec = {"model": {}, "training": {"optimizer": {"lr": float(rate)}}}
        variants.append(VariantRecord(name, f"{n:064x}", {"norm": norm, LR: rate}, spec, 9))
        curve = line(*((step, 4.0 - n / 10 - step / 9) for step in range(1, 4)))
        state = TrialState.PRUNED if n >= 8 else TrialState.FINISHED
        ended.append(Ended(name, 0, 4.0 - n / 10 if n < 8 else None, state, curve))
    traits = DesignTraits(chooses=True, plans_points=False, finds_best=True)
    write_study(tmp_path / "s.db", "searched", variants, ended, space=SPACE, traits=traits)
    return tmp_path / "s.db"


def figures(page: AppTest) -> list[dict[str, Any]]:
    return [json.loads(one.proto.spec) for one in page.get("vega_lite_chart")]


@pytest.fixture
def confirmed(tmp_path: Path) -> Path:
    """A store with a search whose best point was trained with three fresh seeds beside the baseline."""
    names = ["baseline", "norm=rms", "norm=none"]
    ended = [Ended(name, 0, 3.0 - number / 10) for number, name in enumerate(names)]
    for seed, loss in zip((3000, 3001, 3002), (3.0, 3.2, 3.1), strict=True):
        for name, gain in (("baseline", 0.0), ("norm=none", 0.5 + (seed - 3001) / 100)):
            ended.append(Ended(name, seed, loss - gain, role=TrialRole.CONFIRMATION))
    variants = [
        VariantRecord(name, f"{n:064x}", {"norm": name}, {"model": {}}, 9, chosen=n > 0) for n, name in enumerate(names)
    ]
    space = {"switches": {"norm": {"baseline": {}, "norm=rms": {}, "norm=none": {}}},
             "design": {"kind": "search", "points": 3, "confirm": 3}}  # fmt: skip
    traits = DesignTraits(chooses=True, plans_points=False, finds_best=True)
    write_study(tmp_path / "s.db", "found", variants, ended, space=space, traits=traits)
    return tmp_path / "s.db"


def test_a_search_leads_with_its_best_point_on_fresh_seeds_pair_by_pair(confirmed: Path, shown: Shown) -> None:
    page = shown("search", confirmed, study="found")
    assert "the baseline's 3.100: at least 0.48 better" in page.markdown[0].value.replace("\\", "")
    assert page.markdown[1].value.startswith(":color[▲ **better**]"), "and what that means for its choice"
    pairs = figures(page)[0]
    values = {row["name"]: row["difference"] for of in marks(pairs, "point") for row in rows(of)}
    assert [values[f"seed {seed}"] for seed in (3000, 3001, 3002)] == pytest.approx([-0.49, -0.5, -0.51])
    texts = [of for of in marks(pairs, "text") if "stroke" not in of["mark"]]
    said = [row["said"] for of in texts for row in rows(of) if "said" in row]
    assert said == ["-0.490", "-0.500", "-0.510", "-0.500"]
    (span,) = rows(marks(pairs, "rule")[-1])
    assert span["low"] < -0.5 < span["high"] < -0.48
    (told,) = (one.value for one in page.caption if "which chose" in one.value)
    seeds = re.sub(r"[\\\\\u2068\u2069]", "", told)
    assert "(2.800, the baseline 3.000). The answer rests on 3 fresh seeds alone." in seeds
    drawer = shown("search", confirmed, study="found", why="norm=none")
    (seeds,) = (one.value.replace("\\", "") for one in drawer.markdown if one.value.startswith("| seed"))
    assert "| 3001 | [2.700](trial?" in seeds, "the fresh seeds are shown with their values and lead to their trials"
    trial = shown("trial", confirmed, study="found", variant="norm=none", seed="3001")
    assert "val_loss 2.700, 0.500 below the baseline's with the same seed" in words_of(trial)
    opened = shown("trial", confirmed, study="found")
    assert (opened.selectbox(key="variant").value, opened.selectbox(key="seed").value) == ("norm=none", "3000")
    assert "on 3 fresh seeds: **better" in words_of(opened)


def test_what_no_fresh_seed_has_tried_is_a_click_away_from_the_answer(confirmed: Path, shown: Shown) -> None:
    page = shown("answer", confirmed, study="found")
    (judged,) = (one.proto.body for one in page.get("html") if '<table class="answer' in one.proto.body)
    assert "why=norm%3Dnone" in judged
    assert "why=norm%3Drms" not in judged
    page = shown("answer", confirmed, study="found", unproven="true")
    _, opened = (one.proto.body for one in page.get("html") if '<table class="answer' in one.proto.body)
    assert "why=norm%3Drms" in opened


def test_trials_stand_below_their_variant_with_its_mean_and_its_verdict(confirmed: Path, shown: Shown) -> None:
    page = shown("trials", confirmed, study="found")
    (table,) = (one.proto.body for one in page.get("html") if 'aria-label="Trials"' in one.proto.body)
    heads = [re.sub("<[^>]*>", " ", line).split() for line in re.findall('class="of">(.*?)</(?:summary|div)>', table)]
    assert [" ".join(line) for line in heads if "fresh" in line][1].startswith("▲ better")
    fresh = next(line for line in heads if "better" in line)
    losses = [3.0 - 0.49, 3.2 - 0.5, 3.1 - 0.51]
    low, high = scipy.stats.t.interval(0.95, 2, np.mean(losses), scipy.stats.sem(losses))
    told = " ".join(fresh)
    assert f"{np.mean(losses):.3f} ± {(high - low) / 2:.3f} -0.500" in told
    assert told.endswith(" 3 9"), "seeds and parameters"
    assert re.search(r'class="below">[^<]*3 seeds<', table), "on a phone, too"
    selected = [line for line in heads if "fresh" not in line]
    assert len(selected) == 3
    assert sum("better" in line for line in heads) == 1, "the seeds that selected it carry no verdict"
    assert table.count("trial?") == 9, "each trial is one click away"


def test_the_search_is_drawn_with_its_best_and_its_pruned_trials(searched: Path, shown: Shown) -> None:
    page = shown("search", searched, study="searched")
    history, pair, curves = figures(page)
    assert "estimator (TPE) from: norm (rms, <b>none); learning rate (0.0001 to 0.1, logarithmic)." in re.sub(
        r"[\\\u2068\u2069]", "", " ".join(one.value for one in page.caption)
    )
    (best,) = marks(history, "line")
    values = [row["value"] for row in rows(best)]
    assert values == pytest.approx([4.0 - n / 10 for n in range(1, 8)]), "the baseline is not a candidate"
    assert [row["best"] for row in rows(best)] == list(itertools.accumulate(values, min))
    (beside,) = marks(history, "rule")
    assert [(row["name"], row["value"]) for row in rows(beside)] == [("baseline", 4.0)]
    assert {row["place"]: row["mark"] for one in marks(history, "text") for row in rows(one) if "mark" in row} == {
        7: "best point"
    }
    lines = series(marks(curves, "point")[-1], "trial")
    assert len(lines) == 12
    assert sum({row["name"] for row in points} == {"pruned"} for points in lines.values()) == 4
    wide = {row["name"] for row in rows(marks(curves, "line")[-1]) if row["wide"]}
    assert wide == {"baseline", "best point: learning rate 0.00562"}, "words, without the path of the setting"
    assert len(rows(marks(pair, "point")[0])) == len(values) + 1, "and the baseline"
    assert {row["mark"] for one in marks(pair, "text") for row in rows(one)} == {"baseline", "best point"}
    low, high = marks(pair, "point")[0]["encoding"]["x"]["scale"]["domain"]
    assert 0.8e-4 < low < 1e-4 * 10**0.25, "no half of the figure is empty"
    assert 10 ** (-4 + 7 / 4) < high < 1.3 * 10 ** (-4 + 7 / 4)


@pytest.mark.parametrize("narrow", [False, True])
def test_a_trial_leads_with_words_and_its_difference_and_keeps_its_key_behind_a_click(
    narrow: bool, searched: Path, shown: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    for view in ("shared.exports", "views.trial"):
        monkeypatch.setattr(f"dashboard.{view}.is_narrow", lambda: narrow)
    name = f"norm=rms@{LR}=0.0005623"
    page = shown("trial", searched, study="searched", variant=name, seed="0")
    assert page.title[0].value.replace("\\", "") == "Trial: learning rate 0.000562, seed 0"
    assert "val_loss 3.700, 0.300 below the baseline's with the same seed" in words_of(page)
    assert page.selectbox(key="variant").value == name, "the address and links hold the name, the box shows the words"
    key = f"{3:064x}"
    listed = [one.proto.body for one in page.get("html")]
    (config,) = (re.sub(r"<[^>]+>", " ", one).split() for one in listed if 'aria-label="Config"' in one)
    assert config[4:9] == ["≠", "optimizer", "›", "lr", "0.0005623"], "what differs comes first"
    (closed,) = (one for one in page.expander if "Key" in one.label)
    shown_keys = [one for one in closed.get("html") if key in one.proto.body]
    assert len(shown_keys) == sum(key in one for one in listed)
    assert not any(key in one.value for one in page.markdown)


def test_trial_opens_on_what_failed_or_else_on_the_strongest_finding(tmp_path: Path, shown: Shown) -> None:
    sizes = {"baseline": 10, "a": 9, "b": 8}
    losses = {"baseline": 1.0, "a": 1.01, "b": 3.0}
    ended = [Ended(name, seed, loss + seed / 1000) for seed in range(4) for name, loss in losses.items()]
    space = {"switches": {}, "variants": {"b": {"replaces": "the block by SAS (no attention skip)"}}}
    write_study(tmp_path / "s.db", "fine", variants_of(sizes), ended, space=space)
    opened = shown("trial", tmp_path / "s.db", study="fine")
    assert opened.selectbox(key="variant").value == "b"
    for page in (opened, *(shown(view, tmp_path / "s.db", study="fine") for view in ("trials", "tradeoffs"))):
        told = " ".join(one.value for one in (*page.caption, *page.markdown)).replace("\\", "")
        assert "`SAS`: no attention skip" in told, "a name is explained as the space does"
    ended[4] = Ended("a", 1, None, TrialState.FAILED)
    write_study(tmp_path / "s.db", "broken", variants_of(sizes, 10), ended)
    page = shown("trial", tmp_path / "s.db", study="broken")
    assert (page.selectbox(key="variant").value, page.selectbox(key="seed").value) == ("a", "1")


def test_the_marks_of_the_table_are_explained_if_it_has_them() -> None:
    alone: Any = SimpleNamespace(bound=0.1, jointly=False, verdict="worse", bound_text="≥ +0.1")
    unknown: Any = SimpleNamespace(bound=None, jointly=False, verdict="undecided", bound_text="+12 seeds")
    answer: Any = SimpleNamespace(metric="score", worse=-1, margin=0.05)
    first, second = how_to_read([("worse", alone)], answer), how_to_read([("unproven", unknown)], answer)
    assert "score: higher is better" in first
    assert ("*: true alone" in first, "Unproven:" in first, "seeds: about" in first) == (True, False, False)
    assert ("*: true alone" in second, "Unproven:" in second) == (False, True)
    assert "+12 seeds: about so many more would decide." in second


def test_the_table_is_filtered_from_the_address(searched: Path, shown: Shown) -> None:
    page = shown("trials", searched, study="searched", states=["finished"], setting=["norm=rms"], by="val_loss")
    table = page.dataframe[0].value
    assert list(table["val_loss"]) == pytest.approx([3.3, 3.5, 3.7, 3.9])
    assert set(table["norm="]) == {"rms"}
    page.multiselect(key="states").set_value(["pruned"]).run()
    assert len(page.dataframe[0].value) == 2


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    settings = {"baseline": {"norm": "rms"}, "a": {"norm": "none", LR: "0.003"}, "b": {LR: "0.01"}}
    store = fake_store({name: (chosen, 100) for name, chosen in settings.items()}, seeds=2)
    texts = {"rms": {}, "none": {"block.norm": "none", "removes": "the norm"}}
    record = store.record = replace(store.record, space=SPACE | {"switches": {"norm": texts}})
    store.add("baseline", 0, {"val_loss": 1.5}, curve=[(0, 3.0), (10, 1.5)])
    store.add("a", 0, {"val_loss": 1.25}, curve=[(10, 1.25)])
    store.add("b", 1, state=TrialState.PRUNED, curve=[(5, 2.5)])
    assert switches(record) == {"norm": ["rms", "none"], LR: ["0.003", "0.01"]}
    return trial_table(record, record.planned, store.trials([planned.key for planned in record.planned]))


@pytest.mark.parametrize(
    ("wish", "keys"),
    [
        (Filter(), ["baseline/0", "a/0", "b/0", "baseline/1", "a/1", "b/1"]),
        (Filter(states=("finished", "pruned")), ["baseline/0", "a/0", "b/1"]),
        (Filter(settings=("norm=rms",)), ["baseline/0", "baseline/1"]),
        (Filter(settings=("norm=rms", "norm=none")), ["baseline/0", "a/0", "baseline/1", "a/1"]),
        (Filter(settings=("norm=none", f"{LR}=0.01")), []),
        (Filter(metric="val_loss", low=1.25, high=1.4), ["a/0"]),
        (Filter(by="val_loss"), ["a/0", "baseline/0", "b/0", "baseline/1", "a/1", "b/1"]),
        (Filter(by="val_loss", descending=True), ["baseline/0", "a/0", "b/0", "baseline/1", "a/1", "b/1"]),
        (Filter(by="nobody", metric="nothing", low=3.0, settings=("nobody=x",)), None),
    ],
)
def test_rows_are_filtered_and_sorted(wish: Filter, keys: list[str] | None, table: pd.DataFrame) -> None:
    assert list(filtered(table, wish)[KEY]) == (list(table[KEY]) if keys is None else keys)
    assert set(table[STATE]) == {"finished", "pruned", "waiting"}


def test_the_table_calls_variants_by_words_and_compares_them_at_the_same_seed(table: pd.DataFrame) -> None:
    found = {row[KEY]: row for row in table.to_dict("records")}
    assert [found[key][VARIANT] for key in ("baseline/0", "a/0", "b/1")] == ["baseline", "no norm", "b"]
    assert [found[key][NAME] for key in ("baseline/0", "a/0", "b/1")] == ["baseline", "a", "b"]
    known = table.dropna(subset=[VERSUS])
    assert dict(zip(known[KEY], known[VERSUS], strict=True)) == {"a/0": -0.25}, "pruned, waiting or the baseline itself"


def test_a_variant_of_a_ladder_is_compared_with_the_baseline_of_its_rung() -> None:
    losses = {"baseline@rung=1": 4.0, "x@rung=1": 4.5, "baseline@rung=2": 3.0, "x@rung=2": 3.25}
    store = fake_store({name: ({}, 100) for name in losses}, seeds=1)
    space = {"design": {"kind": "ladder", "rungs": [2]}}
    record = store.record = replace(store.record, space=space, baseline="baseline@rung=1")
    for name, loss in losses.items():
        store.add(name, 0, {"val_loss": loss})
    found = trial_table(record, record.planned, store.trials([planned.key for planned in record.planned]))
    assert {row[NAME]: row[VERSUS] for row in found.to_dict("records") if row[VERSUS] == row[VERSUS]} == {
        "x@rung=1": 0.5, "x@rung=2": 0.25,
    }  # fmt: skip
    store.add("x@rung=2", 0, state=TrialState.RUNNING, seconds=0.0)
    found = trial_table(record, record.planned, store.trials([planned.key for planned in record.planned]))
    assert list(found.loc[found["seconds"].isna(), NAME]) == ["x@rung=2"], (
        "how long it runs is not known before it ends"
    )
    variants = {variant.name: variant for variant in record.variants}
    assert {name: baseline_of(record, one).name for name, one in variants.items()} == {
        name: name.replace("x", "baseline") for name in losses
    }


def test_many_variants_are_shown_page_by_page(tmp_path: Path, shown: Shown) -> None:
    """A baseline and 70 variants, each worse than the one before it."""
    names = [f"a=v{number:02}" for number in range(70)]
    ended = []
    for seed in range(3):
        for number, name in enumerate(["baseline", *names]):
            loss = 2.0 + (0.7 - number / 100) * (number > 0) + seed / 10 + number % 3 * seed / 1000
            curve = line(*((step, loss + (9 - step) / 9) for step in (3, 6, 8, 9)))
            ended.append(Ended(name, seed, loss, curve=curve))
    variants = variants_of(dict.fromkeys(["baseline", *names], 10))
    write_study(tmp_path / "s.db", "s", variants, ended, margin=0.05)
    page = shown("answer", tmp_path / "s.db", study="s", course="true")

    def listed() -> list[str]:
        (answer,) = (one.proto.body for one in page.get("html") if "answer" in one.proto.body)
        return re.findall(r"why=(a%3Dv\d+)", answer)

    first = listed()
    assert len(first) == 60
    assert any("of 70 variants" in one.value for one in page.caption)
    (course,) = (figure for figure in figures(page) if "facet" in figure)
    assert len(course["facet"]["sort"]) == MOST_PANELS, "each variant has a panel, as far as they can be told apart"
    page.number_input(key="part").set_value(2).run()
    assert not page.exception, page.exception
    assert sorted(first + listed()) == [name.replace("=", "%3D") for name in names]


def test_curves_of_several_studies(tmp_path: Path, shown: Shown) -> None:
    """`a` and `b` were trained on the same data, `c` on other data."""
    for number, (study, data) in enumerate({"a": "data", "b": "data", "c": "other data"}.items()):
        spec = {"model": {"width": 8 * (1 + number)}, "task": {"kind": "recall"}, "training": {}}
        curves = [line(*((step, 4 - number - seed - step / 9) for step in (0, 5, 9))) for seed in (0, 1)]
        names = [("baseline", number), *((f"more {more}", 10 * (number + 1) + more) for more in range(3))]
        variants = [VariantRecord(name, f"{place:064x}", {}, spec, 10) for name, place in names]
        ended = [Ended("baseline", seed, 1.0, curve=curve) for seed, curve in enumerate(curves)]
        write_study(tmp_path / "s.db", study, variants, ended, data=data)
    page = shown("across", tmp_path / "s.db", studies=["a", "b"], axis="tokens")
    assert not page.warning
    drawn = series(marks(figures(page)[0], "line")[0])
    assert set(drawn) == {"baseline (a)", "baseline (b)"}, "a variant of each study is drawn, not three of the first"
    assert [point["x"] for point in drawn["baseline (b)"]] == [0, 40, 72]
    means = [point["mean"] for point in drawn["baseline (b)"]]
    assert means == pytest.approx([2.5, 2.5 - 5 / 9, 1.5])  # 4 - 1 - mean of seeds - step / 9
    (differ,) = (one.proto.body for one in page.get("html") if "what differs" in one.proto.body)
    head, *cells = (re.findall(f"<{tag}(?: [^>]*)?>(.*?)</{tag}>", differ) for tag in ("th", "td"))
    assert [*head[:2], *head[3:]] == ["variant", "study", "distance to the lowest", "model.width"]
    assert dict(zip(cells[0][1::5], cells[0][4::5], strict=True)) == {"a": "8", "b": "16"}
    alone = shown("across", tmp_path / "s.db", studies=["a"])
    assert set(series(marks(figures(alone)[0], "line")[0])) == {"baseline"}, "its study goes without saying"
    page.multiselect(key="studies").set_value(["a", "c"]).run()
    page.multiselect(key="sides").set_value(["a / baseline", "c / baseline"]).run()
    assert not page.exception, page.exception
    assert "different data" in page.warning[0].value


def test_usage_of_a_trial_is_the_means_and_peaks_of_its_samples(tmp_path: Path, shown: Shown) -> None:
    samples = (
        Recording(3, {"usage": {"cores": 1.0, "memory": 2.0**30, "gpu_memory": 2.0**31}}),
        Recording(4, {"compilation": {"seconds": 1.0}}),
        Recording(9, {"usage": {"cores": 2.0, "memory": 2.0**29, "gpu_memory": 3 * 2.0**30, "gpu": 0.4}}),
    )
    ended = [Ended("baseline", 0, 1.0, recordings=samples), Ended("baseline", 1, 1.0)]
    write_study(tmp_path / "s.db", "s", variants_of({"baseline": 10}), ended)
    page = shown("trial", tmp_path / "s.db", study="s", variant="baseline", seed="0")
    expected = {
        "**Cores in use**, mean: 1.50",
        "**Memory**, highest: 1.00 GiB",
        "**GPU**, mean: 40 %",
        "**GPU memory**, highest: 3.00 GiB",
    }
    assert expected <= {one.value for one in page.markdown}
    assert any("2 samples" in one.value and "from step 3 to 9" in one.value for one in page.caption)
    bare = shown("trial", tmp_path / "s.db", study="s", variant="baseline", seed="1")
    assert expected.isdisjoint(one.value for one in bare.markdown), "a trial without samples has no such part"


def test_trials_that_ended_are_counted_from_the_start_of_the_first_one(
    tmp_path: Path, shown: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = [Ended("baseline", 0, 1.0, took=30.0), Ended("baseline", 1, 1.0, took=120.0)]
    write_study(tmp_path / "s.db", "s", variants_of({"baseline": 10}), ended)
    page = shown("runs", tmp_path / "s.db", study="s", past="true")
    (figure,) = figures(page)
    (line_of,) = marks(figure, "line")
    assert [(row["x"], row["mean"]) for row in rows(line_of)] == [(0, 0), (2, 1), (2, 2)], "minutes"
    words = " ".join(one.value for one in page.markdown).replace("\\", "")
    assert "2 trials ended on 1 device within 2 min 00 s, none failed or diverged" in words
    told = " ".join(one.value for one in page.caption).replace("\\", "")
    assert "From 2026-01-05 08:58 to 09:00 UTC" in told
    assert "times add up to 18 s." in told, "less than that: one after the other"
    page = shown("cluster", tmp_path / "s.db", study="s")
    (last,) = [one.proto.body for one in page.main if one.type == "html" and "What ran last" in one.proto.body]
    assert re.search(r"answer\?study=s.*<td>(?!-)[^<]+</td><td>2 of 2</td><td[^>]*>[^<]+ ago<", last), "with its answer"
    past = [Sample(60.0 * minute, minute, 2**30) for minute in range(8)]
    monkeypatch.setattr("dashboard.shared.machine._SAMPLES", past)
    load, _ = figures(shown("cluster", tmp_path / "s.db", study="s"))
    assert [(row["ago"], row["used"]) for row in rows(marks(load, "area")[0])] == [(7 - n, n) for n in range(8)]


def test_the_page_shows_the_slides(tmp_path: Path, shown: Shown) -> None:
    simple_store(str(tmp_path / "s.db"))
    page = shown("slides", tmp_path / "s.db", study="done").main
    (body,) = [one.proto.body for one in page if one.type == "html" and "<section>" in one.proto.body]
    assert body.count("<section") == 3
    assert "Why done?" in body
    assert "data:image/svg+xml" in body
    assert not re.search("<svg|var\\(", body), "neither would be drawn there"


def test_a_run_says_where_its_trials_ran_and_when(tmp_path: Path, shown: Shown) -> None:
    ended = [Ended("baseline", 0, 1.0, took=30.0), Ended("baseline", 1, 1.0, took=120.0)]
    write_study(tmp_path / "s.db", "s", variants_of({"baseline": 10}), ended)
    page = shown("runs", tmp_path / "s.db", study="s")
    assert page.markdown[0].value.replace("\\", "") == "**All 2 trials have ended, none failed.**"
    (table,) = (one.proto.body for one in page.get("html") if "Where the trials ran" in one.proto.body)
    cells = re.findall(r"<td[^>]*>(.*?)</td>", table)
    assert cells == ["cpu", "here", "-", "2", "2026-01-05 08:58", "2026-01-05 09:00"]
    assert page.caption[1].value.replace("\\", "") == "1 variant, 2 seeds each; 18 s of training within 2 min 00 s."
    (last,) = (one.proto.body for one in page.get("html") if "The trials that ended last" in one.proto.body)
    assert re.findall("baseline, seed .", last) == ["baseline, seed 0", "baseline, seed 1"], "they end at one time"
    assert not page.header or page.header[-1].value != "Log", "no heading without a log"


@pytest.mark.parametrize(("name", "axis"), [("small", "quantitative"), ("small" * 20, "nominal")])
def test_a_name_that_a_plot_of_a_front_would_cut_stands_before_a_row(
    name: str, axis: str, tmp_path: Path, shown: Shown
) -> None:
    ended = [Ended(of, seed, 1.0 + n / 10) for n, of in enumerate(("baseline", name, "least")) for seed in range(2)]
    write_study(tmp_path / "s.db", "s", variants_of({"baseline": 30, name: 20, "least": 10}), ended)
    (figure,) = figures(shown("tradeoffs", tmp_path / "s.db", study="s"))
    assert marks(figure, "point")[-1]["encoding"]["y"]["type"] == axis


def test_compared_sides_have_one_name_and_a_sentence_says_what_was_found(tmp_path: Path, shown: Shown) -> None:
    settings = {"baseline": {"norm": "rms"}, "norm=none": {"norm": "none"}, "norm=ln": {"norm": "ln"}}
    variants = [VariantRecord(name, f"{n:064x}", of, {"model": {}}, 9) for n, (name, of) in enumerate(settings.items())]
    losses = {"baseline": 1.0, "norm=none": 2.0, "norm=ln": 1.0}
    ended = [Ended(name, seed, loss + seed / 100 + (seed == 1) * (name != "baseline") / 100)
             for name, loss in losses.items() for seed in range(4)]  # fmt: skip
    space = {"switches": {"norm": {"rms": {}, "none": {"block.norm": "none", "removes": "the norm"}, "ln": {
        "block.norm": "layer", "replaces": "RMS norm by layer norm"}}}}  # fmt: skip
    write_study(tmp_path / "s.db", "s", variants, ended, space=space)
    page = shown("compare", tmp_path / "s.db", study="s", sides=["baseline", "norm=none", "norm=ln"])
    assert page.multiselect(key="sides").value == ["baseline", "norm=none", "norm=ln"], "links hold the names"
    titles = ["baseline", "no norm", "RMS norm → layer norm"]
    assert page.multiselect(key="sides").options[:3] == titles
    (said,) = (one.value for one in page.markdown if "must stay" in one.value)
    told = re.sub(r"[\\\u2068\u2069*]", "", said).split("  \n")
    assert len(told) == 2
    assert re.fullmatch(r"the norm: must stay, worse by at least [\d.]+", told[1])
    assert re.match(r"RMS norm → layer norm: as good, at most [\d.]+ worse", told[0])
    (forest, *_) = (one.proto.body for one in page.get("html") if '<table class="answer' in one.proto.body)
    words = re.sub(r"<[^>]+>", " ", forest)
    assert re.search(r"must stay.*the norm", words), "as the answer says it, of the part and not of the variant"
    assert "norm=" not in words
    (trials,) = (
        one.proto.body
        for one in shown("trials", tmp_path / "s.db", study="s").get("html")
        if 'aria-label="Trials"' in one.proto.body
    )
    assert re.search(r"worse\s+no norm", re.sub(r"<[^>]+>", " ", trials)), "not: no norm must stay"
    trial = shown("trial", tmp_path / "s.db", study="s", variant="norm=none")
    assert "The verdict on no norm, on 4 seeds: **worse**" in words_of(trial)
    front = shown("tradeoffs", tmp_path / "s.db", study="s").dataframe[0].value
    verdicts = {
        name.partition(". ")[2]: verdict for name, verdict in zip(front["variant"], front["verdict"], strict=True)
    }
    assert (verdicts["no norm"], verdicts["RMS norm → layer norm"]) == ("worse", "as good"), "a variant cannot stay"
