"""Names that leave ablate: two names are two names in every target; names of metrics include their split."""

from __future__ import annotations

import itertools
import os
import re
import unicodedata
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ablate.analysis.optuna_export import PARAMETER
from ablate.metrics import Metric
from ablate.portable_names import FILE, NameRule, portable_name
from ablate.trackers import mlflow, tensorboard, wandb

RULES: dict[str, NameRule] = {
    "file": FILE,
    "file of a Mac": replace(FILE, one_case=True),
    "MLflow key": mlflow.KEY,
    "MLflow value": mlflow.VALUE,
    "MLflow run": mlflow.RUN,
    "Optuna parameter": PARAMETER,
    "TensorBoard tag": tensorboard.TAG,
    "W&B name": wandb.NAME,
    "W&B tag": wandb.TAG,
}
NEAR = [
    "块=去跳",
    "块=去归",
    "块_去跳",
    "a/b",
    "a//b",
    "a/./b",
    "a_b",
    "a.b",
    ".",
    "..",
    "",
    "/",
    "-",
    "a",
    "A",
    "é",
    "e\u0301",
]
NAMES = st.one_of(
    st.text(),
    st.sampled_from(NEAR),
    st.text(st.sampled_from("ab/._-块λ é\u0301\0\ud800\x1b"), max_size=6),
    st.integers(200, 600).flatmap(lambda size: st.text("x块", min_size=size, max_size=size)),
    st.from_regex(r"[ab]-h[0-9a-f]{10}", fullmatch=True),
)


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(names=st.lists(NAMES, min_size=2, max_size=6, unique=True), room=st.integers(0, 20))
@example(names=NEAR, room=0)
def test_different_names_stay_different(rule: NameRule, names: list[str], room: int) -> None:
    made = [portable_name(name, rule, room) for name in names]
    changed = [portable_name(name, rule, room) for name in made]  # what was made is a name too
    assert len({name.casefold() if rule.one_case else name for name in made}) == len(names)
    for one, two in itertools.product(range(len(names)), repeat=2):
        if changed[one] == made[two]:
            assert made[one] == names[two]
    for name in made:
        assert rule.size(name) <= rule.longest - room
        assert all(map(rule.takes, name))
        assert not rule.refuses(name)


@settings(max_examples=40, deadline=None)  # the first call imports MLflow
@given(NAMES)
def test_mlflow_takes_its_names(name: str) -> None:
    from mlflow.utils.validation import path_not_unique, validate_param_and_metric_name

    made = portable_name(f"result/{name}/difference", mlflow.KEY)
    assert validate_param_and_metric_name(made)
    assert not path_not_unique(made)
    assert len(made) <= 250


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=NAMES)
def test_a_file_system_takes_its_names(name: str, tmp_path: Path) -> None:
    made = portable_name(name, FILE)
    path = tmp_path / made
    path.touch()
    assert made in os.listdir(tmp_path)
    assert Path(made).name == made
    assert not made.startswith((".", "-"))
    assert unicodedata.normalize("NFC", made) == made
    path.unlink()


@pytest.mark.parametrize(
    "name",
    ["块=去跳", "größe=λ", "заголовок", "ক্ষমতা", "ההחלטה", "नियमितीकरण", "การทำให้เป็นปกติ", "values=identity,norm=none"],
)
def test_letters_of_every_script_are_kept(name: str) -> None:
    assert portable_name(name, FILE) == name
    assert portable_name(name, PARAMETER) == name
    for rule in RULES.values():
        kept = "".join(character if rule.takes(character) else "_" for character in name)
        assert portable_name(name, rule).startswith(kept)
        assert re.sub(r"[\W_]", "", kept, flags=re.ASCII) or not name.isascii()


def test_what_a_target_takes_is_not_changed() -> None:
    for name in ("val_loss", "result/val_loss", "training.optimizer.lr", "settings.norm", "exp-2026112512"):
        assert portable_name(name, mlflow.KEY) == name
    assert portable_name("exp-2026112512.v2", FILE) == "exp-2026112512.v2"


def test_a_long_name_keeps_its_beginning_and_its_end() -> None:
    made = portable_name(f"result/{'x' * 400}/difference", mlflow.KEY)
    assert 245 <= len(made) <= 250
    assert re.fullmatch(r"result/x+_x*/difference-h[0-9a-f]{10}", made)
    made = portable_name("块" * 400, FILE)
    assert 245 <= len(made.encode()) <= 255


@pytest.mark.parametrize(
    ("written", "metric", "tested"),
    [
        ("val_loss", Metric("loss", "val"), "test_loss"),
        ("val_interval_loss", Metric("interval_loss", "val"), "test_interval_loss"),
        ("test_macro_f1", Metric("macro_f1", "test"), "test_macro_f1"),
        ("seconds", Metric("seconds", None), "test_seconds"),
        ("interval_val_loss", Metric("interval_val_loss", None), "test_interval_val_loss"),
    ],
)
def test_a_name_is_a_split_and_what_is_measured(written: str, metric: Metric, tested: str) -> None:
    assert Metric.of(written) == metric
    assert str(metric) == written
    assert str(metric.on("test")) == tested
