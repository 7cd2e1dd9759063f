"""The pages of a suite: one task at a time, never curves or losses of two tasks side by side."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from streamlit.testing.v1 import AppTest
from vega import marks, rows
from written_stores import Ended, line, variants_of, write_study

from ablate.analysis.answer import Answer
from ablate.render.figures.profile import matrix

TASKS = ("recall", "copy")
CLAIM = {"id": "linear", "says": "A linear mixer recalls less.", "source": "a paper", "expect": "worse"}
CLAIM |= {"left": "mixer=linear", "right": "baseline", "margin": 0.1, "task": "recall"}
LOSSES = {"baseline": (0.5, 0.3), "mixer=linear": (0.9, 0.3), "mixer=fnet": (0.52, 0.6)}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A suite of two tasks, three variants and three seeds."""
    file = tmp_path_factory.mktemp("suite") / "s.db"
    losses = {
        f"{variant}@task={task}": loss
        for variant, by_task in LOSSES.items()
        for task, loss in zip(TASKS, by_task, strict=True)
    }
    ended = [
        Ended(name, seed, loss + (seed + loss) ** 2 / 100, curve=line((0, 2.0), (9, loss)))
        for seed in range(3)
        for name, loss in losses.items()
    ]
    write_study(
        file, "suite", variants_of(dict.fromkeys(losses, 100)), ended,
        trivial={f"guessing@task={task}": {"val_loss": 2.0} for task in TASKS},
        space={
            "tasks": {task: {"task": {"kind": task}} for task in TASKS},
            "aggregate": {"margin": 0.05, "perfect": 0.0},
            "design": {"kind": "leave_one_out", "seeds": 3},
            "switches": {"mixer": {"attention": {}, "linear": {}, "fnet": {}}},
            "claims": [CLAIM],
        },
    )  # fmt: skip
    return file


def chosen(page: AppTest, label: str) -> list[str]:
    return next(list(one.value) for one in page.multiselect if one.label == label)


def said(page: AppTest) -> str:
    return "\n".join(one.value.replace("\\", "") for one in page.markdown)


def html(page: AppTest) -> list[str]:
    return [one.proto.body for one in page.get("html")]


@pytest.mark.parametrize("narrow", [False, True])
def test_a_phone_shows_what_is_claimed_and_each_task_in_rows(
    narrow: bool, store: Path, shown: Callable[..., AppTest]
) -> None:
    drawn = html(shown("answer", store, study="suite", narrow=narrow))
    (claims,) = (one for one in drawn if 'class="claims"' in one)
    before, _, folded = claims.partition("</summary>")
    assert ">supported</b> A linear mixer recalls less." in before
    assert "<details>" in before, "details take a click"
    assert "at least" in folded
    assert "a paper" in folded
    assert "why=mixer%3Dlinear%40task%3Drecall" in folded
    (tasks,) = (one for one in drawn if "a column for each task" in one)
    titles, rows = re.findall(r"<th(?: [^>]*)?>(.*?)</th>", tasks), re.findall("<tr>(.*?)</tr>", tasks)[1:]
    assert titles == ["variant", "score" if narrow else "mean score", *TASKS]
    cells = {row[0]: row[2:] for row in (re.findall("<td[^>]*>(.*?)</td>", row) for row in rows)}
    (linear,) = (found for name, found in cells.items() if "linear" in name)
    means = [loss + sum((seed + loss) ** 2 for seed in range(3)) / 300 for loss in LOSSES["mixer=linear"]]
    assert [cell.partition(" ")[0] for cell in linear] == [f"{mean:.2f}" for mean in means]
    assert linear[0].endswith("■</b>" if narrow else "■ must stay</b>"), "marks alone where words have no room"
    assert "<small>tested: on recall " in before, "what a claim compares"


def test_curves_and_comparisons_are_of_one_task(store: Path, shown: Callable[..., AppTest]) -> None:
    page = shown("curves", store, study="suite", task="copy")
    assert chosen(page, "Variants") == ["baseline", "mixer=fnet", "mixer=linear"], "as the answer sorts them"
    assert "why=mixer%3Dlinear%40task%3Dcopy" in said(page)
    page = shown("compare", store, study="suite", task="recall")
    assert chosen(page, "Sides") == ["baseline", "mixer=linear"]
    (rows, *_) = (one for one in html(page) if 'class="answer' in one)
    assert "why=mixer%3Dlinear%40task%3Drecall" in rows
    assert "<b>+0.4" in rows
    assert "worse" in rows
    sides = chosen(shown("across", store, study="suite"), "Variants")
    assert {side.partition("@task=")[2] for side in sides} == {"recall"}


def test_a_trial_has_the_verdict_and_the_links_of_its_task(store: Path, shown: Callable[..., AppTest]) -> None:
    page = shown("trial", store, study="suite", variant="mixer=fnet@task=copy")
    assert page.title[0].value.replace("\\", "") == "Trial: mixer=fnet on copy, seed 0"
    assert "**worse**, by at least" in said(page)
    other, own = LOSSES["baseline"][1], LOSSES["mixer=fnet"][1]
    expected = own - other + (own**2 - other**2) / 100
    assert any(f'<td>minus the baseline&#x27;s</td><td class="number">{expected:+.3f}<' in one for one in html(page))
    assert "why=mixer%3Dfnet%40task%3Dcopy" in said(page)
    (table,) = (one for one in html(shown("trials", store, study="suite")) if 'aria-label="Trials"' in one)
    (found,) = re.findall(r"<details>(?:(?!</details>).)*fnet on copy.*?</details>", table)
    assert f"{expected:+.3f}" in found, "from the baseline on the same task"


@pytest.mark.parametrize("asked", ["mixer=linear", "mixer=linear@task=recall"])
def test_the_evidence_is_of_the_mean_score_or_of_a_task(asked: str, store: Path, shown: Callable[..., AppTest]) -> None:
    page = shown("answer", store, study="suite", why=asked)
    told, of_task = said(page), "@task=" in asked
    assert ("[0.908](trial?study=suite&variant=mixer%3Dlinear%40task%3Drecall&seed=0)" in told) is of_task
    assert ("[copy](" in told) is not of_task, "the mean leads to the evidence on each task"


def test_an_interval_of_a_suite_ends_at_the_best_that_can_be(tmp_path: Path, shown: Callable[..., AppTest]) -> None:
    losses = {"recall": (0.05, 0.3, 0.6), "copy": (0.5, 0.5, 0.51)}
    ended = [Ended(f"baseline@task={task}", seed, loss) for task, of in losses.items() for seed, loss in enumerate(of)]
    ended += [replace_variant(one, "mixer=fnet") for one in ended]
    write_study(
        tmp_path / "s.db", "suite", variants_of(dict.fromkeys((one.variant for one in ended), 100)), ended,
        trivial={f"guessing@task={task}": {"val_loss": 2.0} for task in TASKS},
        space={"tasks": {task: {"task": {"kind": task}} for task in TASKS},
               "aggregate": {"margin": 0.05, "perfect": 0.0}, "design": {"kind": "leave_one_out", "seeds": 3},
               "switches": {"mixer": {"attention": {}, "fnet": {}}}, "claims": []},
    )  # fmt: skip
    page = shown("answer", tmp_path / "s.db", study="suite")
    (figure,) = (json.loads(one.proto.spec) for one in page.get("vega_lite_chart"))
    score, recall, _ = figure["concat"]
    assert max(row["high"] for row in rows(marks(score, "rule")[1])) <= 1.0
    assert {row["low"] for row in rows(marks(recall, "rule")[1])} == {0.0}, "no loss is below 0, no score above 1"
    assert rows(marks(recall, "rule")[0]) == [{}], "at the trivial baseline"


def replace_variant(one: Ended, name: str) -> Ended:
    return one._replace(variant=one.variant.replace("baseline", name))


@pytest.mark.parametrize(
    ("mean", "low", "high", "said"),
    [
        (0.7, 0.6, 0.8, "0.700 ± 0.100"),
        (0.7, 0.2, 1.2, "0.700 (0.200 to 1.000)"),
        (0.2, -0.3, 0.7, "0.200 (0.000 to 0.700)"),
    ],
)
def test_no_interval_of_an_accuracy_leaves_its_range(mean: float, low: float, high: float, said: str) -> None:
    cell = SimpleNamespace(
        mean=mean, low=low, high=high, alike=True, verdict="", jointly=True, learnt=True, finished=3, planned=3
    )
    row = SimpleNamespace(variant="a", words="a", score=0.5, low=0.2, high=1.1, cells={"copy": cell})
    suite = SimpleNamespace(rows=[row], tasks={"copy": SimpleNamespace(trivial=0.1, perfect=1.0)}, decimals=3,
                            metric="val_accuracy")  # fmt: skip
    found = matrix(cast("Answer", SimpleNamespace(suite=suite, groups=())))
    assert found.groups[0][0] == ("a", "0.50 (0.20 to 1.00)", f"{said} same")
