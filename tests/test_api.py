"""The Python API for notebooks: names are completed, arguments are flexible, and wrong ones are reported."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from cli_runs import Workplace

import ablate
from ablate.errors import ArgumentError, EngineError, SpaceError, StoreError


def test_a_notebook_completes_every_name() -> None:
    assert set(ablate.__all__) <= set(dir(ablate))
    assert all(callable(getattr(ablate, name)) for name in ablate.__all__)


def test_a_space_may_be_named_by_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Workplace(tmp_path, tmp_path / "cache")
    file = place.space()
    monkeypatch.chdir(tmp_path)
    by_name, by_space = (ablate.plan(space, cache=place.cache) for space in (file, ablate.load_space(file)))
    assert [trial.key for trial in by_name.trials] == [trial.key for trial in by_space.trials]


@pytest.mark.parametrize("name", ["workers", "threads", "pack"])
def test_fewer_than_one_is_refused_before_a_store_is_made(name: str, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=f"{name}: .* expected at least 1; got 0"):
        ablate.run("simplify_block", store=tmp_path / "s.db", **{name: 0})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("shape", [(2, 8), (1, 2, 0), (1, 1, 2, 8)])
def test_a_model_says_which_shape_it_takes(shape: tuple[int, ...]) -> None:
    model = ablate.build(ablate.load_space("simplify_block").resolve({}).model)
    with pytest.raises(ValueError, match=r"token ids \[K, B, T\] of one token at least are expected; got"):
        model(torch.zeros(shape, dtype=torch.long))


SPACE = "simplify_block"


def weights(**how: object) -> torch.Tensor:
    spec = ablate.load_space("simplify_block").resolve({}).model
    return torch.cat([one.detach().flatten() for one in ablate.build(spec, **how).parameters()])  # type: ignore[arg-type]


def test_initial_values_follow_the_generator_of_torch_or_the_seeds() -> None:
    torch.manual_seed(5)
    first, second = weights(), weights()
    assert not torch.equal(first, second), "two builds are two samples"
    torch.manual_seed(5)
    assert torch.equal(weights(), first)
    torch.manual_seed(6)
    assert not torch.equal(weights(), first)
    assert torch.equal(weights(seeds=[3]), weights(seeds=[3]))
    assert not torch.equal(weights(seeds=[3]), weights(seeds=[4]))


def test_every_example_says_where_the_initial_values_come_from() -> None:
    root = Path(__file__).parents[1]
    pages = [root / "README.md", *(path for end in ("md", "ipynb") for path in (root / "docs").rglob(f"*.{end}"))]
    texts = {page.name: page.read_text("utf-8") for page in pages}
    calls = [
        (name, text[at.start() :][:150]) for name, text in texts.items() for at in re.finditer(r"ablate\.build\(", text)
    ]
    assert len(calls) >= 3
    assert [call for call in calls if "seeds=" not in call[1]] == []


@pytest.mark.parametrize(
    ("call", "where", "expected"),
    [
        (lambda: ablate.load_space(3), "load_space: location", "the path or the name of a space"),
        (lambda: ablate.load_space(SPACE, data=3), "load_space: data", "the address of data"),
        (lambda: ablate.plan({"name": "x"}), "space", "a SpaceSpec, or the path or name"),
        (lambda: ablate.plan(SPACE, cache=3), "cache", "a folder"),
        (lambda: ablate.run(None), "space", "a SpaceSpec, or the path or name"),
        (lambda: ablate.run(SPACE, store=3), "store", "an open store, a path or a URL"),
        (lambda: ablate.run(SPACE, device=0), "device", "auto, cpu or cuda"),
        (lambda: ablate.run(SPACE, engine=None), "engine", "local or ray"),
        (lambda: ablate.run(SPACE, plugins=[3]), "plugins", "a file or a list of files"),
        (lambda: ablate.run(SPACE, workers="2"), "workers", "a whole number of at least 1"),
        (lambda: ablate.run(SPACE, pack=True), "pack", "a whole number of at least 1"),
        (lambda: ablate.build("sas"), "spec", "a ModelSpec or a VariantSpec"),
        (lambda: ablate.build(ablate.load_space(SPACE)), "spec", "a ModelSpec or a VariantSpec"),
        (lambda: ablate.build(ablate.load_space(SPACE).model, vocabulary=0), "vocabulary", "at least 1"),
        (lambda: ablate.build(ablate.load_space(SPACE).model, context=1.5), "context", "a whole number of at least 1"),
        (lambda: ablate.build(ablate.load_space(SPACE).model, seeds=3), "seeds", "a list of whole numbers"),
        (lambda: ablate.build(ablate.load_space(SPACE).model, seeds=["a"]), "seeds", "a list of whole numbers"),
        (lambda: ablate.build(ablate.load_space(SPACE).model, seeds=()), "seeds", None),
        (lambda: ablate.open_store(None), "open_store: location", "a path or a URL"),
    ],
)
def test_a_wrong_argument_is_reported_by_name(
    call: Callable[[], object], where: str, expected: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ArgumentError) as caught:
        call()
    assert caught.value.where == where
    assert expected is None or expected in str(caught.value.expected)
    assert caught.value.got
    assert list(tmp_path.iterdir()) == [], "no store is left behind"


def test_a_context_that_a_mixer_cannot_work_in_is_a_mistake_in_the_spec() -> None:
    model = ablate.load_space(SPACE).model
    extractor = {"mixer": {"kind": "extractor", "context": 8}}
    short = model.model_validate({**model.model_dump(), "block": extractor, "positions": "learned"})
    with pytest.raises(SpaceError, match="Set `context` to at least 9, or leave it out"):
        ablate.build(short, context=9)


def test_a_classifier_is_built_with_the_classes_of_its_data(tmp_path: Path) -> None:
    rows = [f"{label},text {number} {label}" for number in range(20) for label in ("one", "two", "three")]
    (tmp_path / "rows.csv").write_text("\n".join(["category,text", *rows]), encoding="utf-8")
    space = ablate.load_space("intents", data=f"file:{tmp_path}/rows.csv")
    logits = ablate.build(space.resolve({}, {"task.tokenizer": "bytes"}), cache=tmp_path / "cache")(
        torch.zeros(1, 2, 4, dtype=torch.long)
    )
    assert logits.shape == (1, 2, 3)


@pytest.mark.parametrize(
    "call",
    [
        lambda store: store.trials("abc"),
        lambda store: store.trials(None),
        lambda store: store.trials([None]),
        lambda store: store.trials([["abc"]]),
        lambda store: store.curves("abc"),
        lambda store: store.curves([3]),
        lambda store: store.evaluations("abc"),
        lambda store: store.evaluations([3]),
        lambda store: store.trial(3),
        lambda store: store.study(None),
        lambda store: store.variant(["abc"]),
        lambda store: store.recordings(["abc"]),
        lambda store: store.lease(3),
    ],
)
def test_a_wrong_argument_of_a_store_is_no_fault_of_the_store(call: Callable[[Any], object], tmp_path: Path) -> None:
    with (
        ablate.open_store(tmp_path / "s.db") as store,
        pytest.raises(ArgumentError, match=r"^Store\.\w+: \w+: ") as told,
    ):
        call(store)
    assert not isinstance(told.value, StoreError)
    assert told.value.expected
    assert told.value.got
