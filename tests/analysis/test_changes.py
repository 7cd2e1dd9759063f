"""What variants change, in words; and the answers that are written with them."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Mapping
from typing import Any

import pytest
from fake_store import FakeStore, fake_store
from rich.console import Console

from ablate.analysis.answer import answer_of
from ablate.analysis.changes import (
    Change,
    _at,
    changes_of,
    effect_titles,
    in_words,
    meanings_of,
    part_value,
    part_words,
    setting_names,
    setting_titles,
    titles_of,
    variant_titles,
)
from ablate.analysis.findings import read_findings
from ablate.analysis.report import StudyReport
from ablate.analysis.runs import baselines_of
from ablate.analysis.study import read_study
from ablate.render.as_json import study_json
from ablate.render.formats import Place, find_format
from ablate.render.table import in_lines, print_study
from ablate.spec.design import split_axis
from ablate.store.records import TrialState, VariantRecord

ATTENTION = {"kind": "attention", "shaping": "none", "value": {"kind": "dense"}, "output": {"kind": "dense"}}
BLOCK = {
    "mixer": ATTENTION,
    "norm": {"kind": "rms", "place": "pre"},
    "arrangement": "sequential",
    "skips": {"mixer": 1, "mlp": 1},
    "gains": {"mlp_branch": {"init": 1.0}},
    "dropout": 0.1,
}
SPEC: dict[str, Any] = {
    "model": {
        "block": BLOCK,
        "width": 64,
        "tied_head": False,
        "positions": "learned",
        "heads_of_keys": 2,
        "window": 32,
    },
    "task": {},
    "training": {"optimizer": {"kind": "adamw", "lr": 0.001}, "clip": 1.0},
}
SWITCHES: dict[str, Any] = {
    "skip": {
        "kept": {},
        "removed": {"block.skips.mixer": 0},
        "shaped": {"block.skips.mixer": 0, "block.mixer.shaping": "shaped", "block.gains.mlp_branch": {"init": 0.4}},
    },
    "values": {"dense": {}, "identity": {"block.mixer.value": "identity"}},
    "projection": {"dense": {}, "identity": {"block.mixer.output": "identity"}},
    "norm": {"rms": {}, "none": {"block.norm": "none", "model.exceptions.first.norm": "rms"}},
    "arrangement": {"sequential": {}, "parallel": {"block.arrangement": "parallel", "block.skips.mlp": 0}},
    "mixer": {"attention": {}, "fnet": {"block.mixer": {"kind": "fnet"}}},
}


def study_of(
    variants: Mapping[str, Mapping[str, str]],
    losses: Mapping[str, float],
    switches: Mapping[str, Any] = SWITCHES,
    texts: Mapping[str, Any] | None = None,
    trivial: float = 9.0,
) -> FakeStore:
    """Three seeds of each variant: settings that differ from the baseline's, and how much worse it is."""
    base = {
        switch: next(setting for setting, paths in settings.items() if isinstance(paths, dict))
        for switch, settings in switches.items()
    }
    made = fake_store(
        {"baseline": (base, 10)} | {name: (base | dict(of), 10) for name, of in variants.items()}, margin=0.05
    )
    record = dataclasses.replace(
        made.record,
        space={**SPEC, "switches": switches, "variants": texts or {}},
        variants=tuple(dataclasses.replace(variant, spec=SPEC) for variant in made.record.variants),
        trivial={"trigram": {"val_loss": trivial}},
    )
    made.record = record
    for name in ("baseline", *variants):
        noise = random.Random(name)
        for seed in range(3):
            jitter = noise.uniform(0, 0.002)
            made.add(name, seed, {"val_loss": 2 + losses.get(name, 0.0) + seed / 10 + jitter})
    return made


def singles(*names: str) -> dict[str, dict[str, str]]:
    return {name: dict([name.split("=")]) for name in names}


def change(switch: str, setting: str, switches: Mapping[str, Any] = SWITCHES, name: str = "x") -> Change:
    made = study_of({name: {switch: setting}}, {}, switches)
    return changes_of(made.record)[name]


@pytest.mark.parametrize(
    ("switch", "setting", "removed", "otherwise"),
    [
        ("skip", "removed", ["the skip around attention"], []),
        ("skip", "shaped", ["the skip around attention (with shaped attention instead)"], []),
        ("values", "identity", ["the value projection"], []),
        ("projection", "identity", ["the output projection"], []),
        ("norm", "none", ["the normalisation"], []),
        ("arrangement", "parallel", [], ["replacing the sequential arrangement by parallel"]),
        ("mixer", "fnet", [], ["replacing the attention mixer by fnet"]),
    ],
)
def test_a_setting_without_a_text_is_reported_by_its_paths(
    switch: str, setting: str, removed: list[str], otherwise: list[str]
) -> None:
    assert change(switch, setting) == Change(tuple(removed), tuple(otherwise))
    assert change(switch, setting, name="x@2") == change(switch, setting), "no axis is called so"


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("norm=lin", ""),
        ("norm=lin@2", ""),
        ("norm=lin@2@rung=3", "rung=3"),
        ("a@model.width=8,lr=1", "model.width=8,lr=1"),
    ],
)
def test_a_setting_may_have_an_at_sign_in_its_name(name: str, place: str) -> None:
    assert split_axis(name) == (name.removesuffix(f"@{place}"), place)
    made = study_of({name: {}, "norm=lin": {"norm": "none"}} if name != "norm=lin" else {name: {}}, {})
    record = dataclasses.replace(made.record, baseline=name)  # as one that adds parts to the plainest model has
    assert set(baselines_of(record).values()) == {name}


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        ({"block.dropout": 0}, Change(removed=("the dropout in the blocks",))),
        ({"training.optimizer": {"kind": "sgd", "lr": 1}}, Change(otherwise=("replacing the adamw optimizer by sgd",))),
        ({"training.optimizer.lr": 0.01}, Change(otherwise=("changing the learning rate from 0.001 to 0.01",))),
        ({"training.clip": None}, Change(removed=("the clip",))),
        ({"model.tied_head": True}, Change(otherwise=("adding tied head",))),
        ({"model.block.skips.mlp": 0}, Change(removed=("the skip around the MLP",))),
        ({"block": {**BLOCK, "mixer": {"kind": "he"}}}, Change(otherwise=("replacing the attention mixer by he",))),
        ({"block.gains.mlp_branch": {"init": 3}}, Change(otherwise=("changing block.gains.mlp_branch",))),
        ({"block.norm": {"kind": "rms", "place": "pre"}}, Change()),
        ({"a.path.of.no.spec": 3}, Change(otherwise=("setting the spec to 3",))),
        ({"model.head_width": 4}, Change(otherwise=("setting the head width to 4",))),
        ({"training.label_smoothing": 0.1}, Change(otherwise=("setting the label smoothing to 0.1",))),
        ({"model.heads_of_keys": None}, Change(otherwise=("changing the heads of keys from 2 to its default",))),
        ({"model.window": None}, Change(removed=("the window",))),
        ({"model.window": 64}, Change(otherwise=("changing the window from 32 to 64",))),
        ({"block": {**BLOCK, "norm": "none"}}, Change(otherwise=("changing the block",))),
        ({"training.schedule": 24 * "x"}, Change(otherwise=(f"adding {24 * 'x'} schedule",))),
        ({"training.schedule": 25 * "x"}, Change(otherwise=("adding schedule",))),
        ({"block.mixer.shaping": "shaped"}, Change(otherwise=("adding shaped attention",))),
        (
            {"training.schedule": "wsd", "training.warm": 9},
            Change(otherwise=("adding wsd schedule", "setting the warm to 9"), combines=True),
        ),
        (
            {"block.norm": "none", "training.schedule": "wsd", "training.scale": "mup"},
            Change(removed=("the normalisation (with wsd schedule and mup scale instead)",)),
        ),
        ({"model.exceptions.first.norm": "rms"}, Change(otherwise=("adding rms norm",))),
        ({"block.dropout": True}, Change(otherwise=("changing block.dropout",))),
        ({"block.dropout": 25 * "x"}, Change(otherwise=("changing block.dropout",))),
    ],
)
def test_any_path_is_reported(paths: dict[str, Any], expected: Change) -> None:
    assert change("it", "other", {"it": {"same": {}, "other": paths}}) == expected


@pytest.mark.parametrize(
    ("change", "point"),
    [
        (Change(otherwise=("replacing the relu activation by gelu2",)), "gelu2"),
        (Change(("the norm",), ("changing the learning rate from 1 to 4e-4",)), "no norm + learning rate 4e-4"),
        (Change(otherwise=("changing the width from 8 to 4k", "adding wsd schedule")), "width 4k + with wsd schedule"),
        (Change(otherwise=("replacing 2 by 4",)), "4"),
    ],
)
def test_a_point_of_a_search_is_what_it_has(change: Change, point: str) -> None:
    assert change.point == point


@pytest.mark.parametrize(
    ("before", "after", "otherwise"),
    [
        ({"removes": "the norm"}, {}, "adding the norm"),
        ({"replaces": "relu by gelu"}, {}, "replacing gelu by relu"),
        ({"replaces": "relu by gelu"}, {"replaces": "relu by silu"}, "replacing gelu by silu"),
        ({"replaces": "all of it"}, {"replaces": "relu by silu"}, "changing the clip from 1.0 to 2"),
        ({"replaces": "relu by gelu"}, {"removes": "the norm"}, "changing the clip from 1.0 to 2"),
        ({"removes": "the norm"}, {"removes": "the MLP"}, "changing the clip from 1.0 to 2"),
        ({}, {"replaces": "relu by silu"}, "replacing relu by silu"),
    ],
)
def test_between_two_texts_a_change_is_what_they_say_together_or_else_that_of_the_paths(
    before: dict[str, str], after: dict[str, str], otherwise: str
) -> None:
    switches = {"it": {"first": before, "second": {**after, "training.clip": 2}}}
    assert change("it", "second", switches) == Change(otherwise=(otherwise,))


@pytest.mark.parametrize("place", ["", "@rung=2"])
def test_a_value_of_a_point_is_reported_unless_it_is_of_a_place(place: str) -> None:
    """A search draws it; at a place of a study it was tuned for the variant."""
    own = ("changing the learning rate from 0.001 to 0.01", "replacing the adamw kind by sgd") if not place else ()
    values = {"training.optimizer.lr": "0.0100", "training.optimizer.kind": "sgd"}
    made = study_of({"x": {"norm": "none", **values}}, {})
    variants = tuple(dataclasses.replace(variant, name=variant.name + place) for variant in made.record.variants)
    record = dataclasses.replace(made.record, variants=variants, baseline=f"baseline{place}")
    expected = Change(("the normalisation",), own, combines=bool(own))
    assert changes_of(record) == {f"baseline{place}": Change(), f"x{place}": expected}
    search = dataclasses.replace(record, traits=dataclasses.replace(record.traits, finds_best=True))
    said = "no normalisation + learning rate 0.01 + sgd" if not place else "no normalisation"
    assert variant_titles(search) == {f"baseline{place}": f"baseline{place}", f"x{place}": said}


def test_a_skip_goes_around_attention_where_all_models_have_it() -> None:
    other = {"model": {"block": {"mixer": {"kind": "fnet"}}}}
    for specs, mixer in (((SPEC, SPEC), "attention"), ((SPEC, other), "the mixer"), ((), "the mixer")):
        assert part_words("block.skips.mixer", *specs) == f"skip around {mixer}"
    words = {
        "block.mlp.ratio": "block.mlp.ratio",
        "block.mixer.query": "query projection",
        "block.mixer.key": "key projection",
        "model.dropout": "dropout on the embeddings",
        "model.final_norm": "final normalisation",
        "model.positions": "positions",
        "model.tied_head": "tied head",
    }
    assert {path: part_words(path) for path in words} == words


def test_what_the_baseline_sets_and_a_setting_does_not_is_reported() -> None:
    switches = {"mixer": {"attention": {"block.mixer": ATTENTION}, "own": {}}}
    made = study_of({"x": {"mixer": "own"}}, {}, switches)
    space = {**SPEC, "switches": switches, "model": {"block": {**BLOCK, "mixer": {"kind": "linear"}}}}
    made.record = dataclasses.replace(made.record, space=space)
    assert changes_of(made.record)["x"] == Change(otherwise=("replacing the attention mixer by linear",))
    parts = {f"training.{name}": name for name in "ghdefabc"}
    made = study_of({"x": {"it": "own"}}, {}, {"it": {"first": parts, "own": {}}})
    spec = {**SPEC, "training": {name: name for name in "abcdefgh"}}
    variants = tuple(dataclasses.replace(variant, spec=spec) for variant in made.record.variants)
    found = changes_of(dataclasses.replace(made.record, variants=variants, space={**made.record.space, "training": {}}))
    assert found["x"] == Change(tuple(f"the {name}" for name in "abcdefgh"), combines=True)


def test_a_text_stands_for_a_setting_else_that_of_its_switch_and_a_variant_has_its_own() -> None:
    switches = {
        "skip": {**SWITCHES["skip"], "removes": "the residual"},
        "norm": {"rms": {}, "none": {"block.norm": "none", "replaces": "a norm by nothing"}},
    }
    both = {"skip": "shaped", "norm": "none"}
    made = study_of(
        {"a": {"skip": "removed"}, "b": {"norm": "none"}, "c": both, "d": both, "e": {"norm": "none"}},
        {},
        switches,
        texts={"d": {**both, "removes": "almost all"}, "e": {"removes": "one"}},
    )
    found = changes_of(made.record)
    assert found["a"] == Change(removed=("the residual",))
    assert found["b"] == Change(otherwise=("replacing a norm by nothing",))
    assert found["c"] == Change(("the residual",), ("replacing a norm by nothing",), combines=True)
    assert found["d"] == Change(removed=("almost all",), combines=True)
    assert found["e"] == Change(removed=("one",))


def test_studies_of_which_nothing_is_known_are_reported_by_names() -> None:
    made = fake_store({"baseline": ({}, 10), "a=x": ({"a": "x"}, 10)})
    assert changes_of(made.record) == {"baseline": Change(), "a=x": Change()}
    assert isinstance(made.record.variants[1], VariantRecord)


# Answers


def answer(report: StudyReport) -> str:
    return " ".join(report.answer.sentences)


def test_parts_removed_one_by_one_are_not_said_to_be_removable_together() -> None:
    names = singles("norm=none", "projection=identity", "skip=removed", "values=identity")
    said = answer(read_study(study_of(names, {"skip=removed": 0.9, "projection=identity": -0.2}), "a_study"))
    assert "You can remove each of these alone: the normalisation (val_loss at most 0.0" in said
    assert "); the value projection (" in said
    assert "Better without: the output projection (val_loss at least 0.19 lower)." in said
    assert "You need: the skip around attention (val_loss at least 0." in said
    assert "higher without it)." in said
    assert "together" not in said
    pairs = {"both": {"norm": "none", "values": "identity"}, "mixed": {"norm": "none", "mixer": "fnet"}}
    undecided = answer(read_study(study_of(pairs, dict.fromkeys(pairs, 0.05)), "a_study"))
    assert "removing the value projection and the normalisation together (both)" in undecided
    assert "removing the normalisation and replacing the attention mixer by fnet (mixed)" in undecided
    alone = answer(read_study(study_of(singles("norm=none"), {}), "a_study"))
    assert "You can remove: the normalisation (val_loss at most" in alone


def test_titles_say_what_a_variant_is_and_no_two_are_alike() -> None:
    variants = {**singles("norm=none", "mixer=fnet"), "both": {"norm": "none", "values": "identity"}}
    record = study_of({**variants, "again": {"norm": "none"}}, {}).record
    titles = titles_of(changes_of(record))
    assert titles["mixer=fnet"] == "attention mixer → fnet"
    assert titles["both"] == "no value projection + no normalisation"
    assert (titles["norm=none"], titles["again"]) == ("norm=none", "again"), "a title that two share tells neither"
    assert len(set(titles.values())) == len(titles)
    assert Change(removed=("all gates", "the norm")).title == "no gates + no norm"
    assert in_words("mixer=fnet is worse than mixer=fnet2, norm=none", titles) == (
        "attention mixer → fnet is worse than mixer=fnet2, norm=none"
    )
    own = {"baseline": "as it is", "baseline@rung=2": "it", "a=x@rung=2": "no a", "b": "no b"}
    assert in_words("a=x@rung=2 beside baseline@rung=2, baseline and b", own, ("baseline",)) == (
        "no a beside baseline at rung 2, as it is and b"
    )
    assert in_words("a=x-2 and a=x", {"a=x": "no a", "a=x-2": "half of a"}) == "half of a and no a"
    expected = {
        "norm=none": "no normalisation",
        "norm=none:values=identity": "no normalisation × no value projection",
        "mixer=fnet:norm=none": "fnet × no normalisation",
        "mixer=fnet": "attention mixer → fnet",
    }
    plain = {**SPEC, "model": {"block": {**BLOCK, "norm": "none"}, "exceptions": {"first": {"norm": "rms"}}}}
    variants = [dataclasses.replace(one, spec=plain if "norm" in one.name else SPEC) for one in record.variants]
    plainest = dataclasses.replace(record, baseline="norm=none", variants=tuple(variants))
    for compared in (record, plainest):
        assert effect_titles(compared, expected) == expected
    assert titles_of(changes_of(plainest))["baseline"] == "baseline"
    unnamed = dataclasses.replace(plainest, variants=plainest.variants[1:])  # as of a sweep
    assert effect_titles(unnamed, ["values=identity"]) == {"values=identity": "no value projection"}


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("baseline@rung=2", "norm=none@rung=2", "norm=none@rung=10"), "no normalisation on the largest rung"),
        (("baseline@rung=2", "norm=none@rung=10", "norm=none@rung=2"), "no normalisation on rung 2"),
        (("baseline@task=copy", "norm=none@task=recall", "norm=none@task=copy"), "no normalisation on copy"),
        (("baseline", "norm=none", "norm=none@model.width=64"), "no normalisation at width 64"),
        (
            ("baseline", "norm=none", "norm=none (training.optimizer.lr=0.0048765)"),
            "no normalisation (learning rate 0.00488)",
        ),
        (("baseline", "norm=none", "stage of baseline"), "stage of baseline"),
        (("baseline@rung=1", "norm=none@rung=1"), "no normalisation on rung 1"),
        (("baseline@rung=1", "norm=none@rung=1", "norm=none@rung=2"), "no normalisation on the largest rung"),
    ],
)
def test_a_reader_sees_places_and_tuned_values_in_words(names: tuple[str, ...], said: str) -> None:
    """No title has the sign `=` or `@` of a name, and no two are alike."""
    record = study_of({name: {"norm": "none"} if "norm" in name else {} for name in names}, {}).record
    variants = [one for one in record.variants if one.name in names]
    scouts = tuple(one for one in variants if " " in one.name)
    compared = tuple(one for one in variants if one not in scouts)
    found = variant_titles(dataclasses.replace(record, baseline=names[0], variants=compared, scout_variants=scouts))
    assert found[names[-1]] == said
    assert len({*found.values()}) == len(names)
    assert not any(sign in title for title in found.values() for sign in "=@")


def test_settings_are_called_by_their_last_words_as_far_as_these_tell_them_apart() -> None:
    paths = ["training.optimizer.lr", "head.lr", "model.width", "query_key_norm", "a.b", "b"]
    assert setting_titles(paths) == dict(
        zip(
            paths, ["optimizer learning rate", "head learning rate", "width", "query key norm", "a b", "b"], strict=True
        )
    )
    full = {"a.m.lr": "a m learning rate", "b.m.lr": "b m learning rate", "model.width": "width"}
    assert setting_titles(full) == full
    assert setting_titles([]) == {}


def test_a_setting_is_called_by_the_activation_that_it_trains() -> None:
    switches: dict[str, Any] = {
        "activation": {"gelu": {}, "squared": {"block.mlp.activation": "relu_squared"}},
        "norm": {"pre_ln": {}, "my_own": {"block.norm": "rms"}},
    }
    switches["both"] = {"wide_squared": {"block.mlp.activation": "relu_squared", "block.mlp.ratio": 8}}
    space = {"model": {"block": {"mlp": {"activation": "relu"}}}, "switches": switches}
    called = setting_names(dataclasses.replace(fake_store({"baseline": ({}, 9)}).record, space=space))
    assert [called("activation", name) for name in ("gelu", "squared")] == ["ReLU", "ReLU²"], "not by its own name"
    assert [called("norm", name) for name in ("pre_ln", "my_own")] == ["pre ln", "my own"]
    assert called("both", "wide_squared") == "wide squared", "it does more"


def test_the_smallest_is_said_to_keep_a_part_once_although_it_was_removed_in_two_ways() -> None:
    names = singles("values=identity", "skip=removed", "skip=shaped")
    made = study_of(names, {"skip=removed": 0.9, "skip=shaped": 0.9})
    made.record = dataclasses.replace(made.record, traits=dataclasses.replace(made.record.traits, chooses=True))
    first = answer_of(read_study(made, "a_study")).headline[0]
    assert first.endswith(" It keeps the skip around attention."), first


@pytest.mark.parametrize("path", ["block.norm", "block.mlp", "block.skips.mixer", "block.skips.mlp"])
def test_a_value_that_only_adds_or_removes_a_part_is_yes_or_no(path: str) -> None:
    given = (None, False, 0, True, 1, 2, "gelu")
    assert [part_value(path, value) for value in given] == ["no", "no", "no", "yes", "yes", 2, "gelu"]
    assert part_value("block.mlp.ratio", 1) == 1


def test_the_parts_that_the_smallest_keeps_are_named_in_one_order() -> None:
    paths = {"norm": "block.norm", "mixer": "block.skips.mixer", "mlp": "block.skips.mlp"}
    switches = {name: {"kept": {}, "gone": {path: "none" if name == "norm" else 0}} for name, path in paths.items()}
    switches |= {name: {"kept": {}, "gone": {}} | {"gone": {f"block.{name}": None}} for name in "gfed"}
    names = {name: {name: "gone"} for name in switches}
    made = study_of(names, dict.fromkeys([name for name in names if name != "norm"], 0.9), switches)
    texts = {name: {"gone": {"removes": f"the part {name}"}} for name in "gfed"}
    space = made.record.space | {"switches": {name: {**of, **texts.get(name, {})} for name, of in switches.items()}}
    traits = dataclasses.replace(made.record.traits, chooses=True)
    made.record = dataclasses.replace(made.record, space=space, traits=traits)
    first = answer_of(read_study(made, "a_study")).headline[0]
    parts = [f"the part {name}" for name in "defg"]
    assert first.endswith(f" It keeps {', '.join(parts)}, the skip around attention and the skip around the MLP."), (
        first
    )


def test_what_was_removed_together_is_said_to_be_removable_together() -> None:
    sas = {"skip": "shaped", "values": "identity", "projection": "identity"}
    parts = "the skip around attention (with shaped attention instead), the value projection and the output projection"
    fine = answer(read_study(study_of({"sas": sas}, {}), "a_study"))
    assert f"You can remove together: {parts} (sas: val_loss at most 0.0" in fine
    worse = answer(read_study(study_of({"sas": sas}, {"sas": 0.5}), "a_study"))
    assert f"You cannot remove together: {parts} (sas: val_loss at least 0.4" in worse
    assert "You need" not in worse


def test_what_is_better_by_more_than_the_margin_is_said_to_be_better() -> None:
    names = singles("mixer=fnet", "arrangement=parallel", "norm=none", "values=identity")
    sas = {"skip": "shaped", "projection": "identity"}
    gaps = {"mixer=fnet": -0.3, "arrangement=parallel": -0.01, "norm=none": -0.3, "values=identity": 0.5, "sas": -0.4}
    store = study_of({**names, "sas": sas}, gaps)
    report = read_study(store, "a_study")
    words = [(row.verdict_word, (row.verdict_sentence or "").partition(" at ")[0]) for row in report.variants[1:]]
    assert words == [
        ("better", "better by"), ("not worse", "not worse: better by"), ("better", "better by"),
        ("needed", "needed: worse by"), ("better", "better by"),
    ]  # fmt: skip
    said = answer(report)
    assert "Better without: the normalisation (val_loss at least 0.2" in said
    assert "Better without these together: the skip around attention (with shaped attention instead) and the" in said
    assert (
        "Better than the baseline by more than 0.05: replacing the attention mixer by fnet (val_loss at least" in said
    )
    assert "Not worse than the baseline by 0.05 or more: replacing the sequential arrangement by parallel (" in said
    assert "can remove" not in said
    assert 'no "needed" among them is wrong, and with 95 % confidence no "not worse" is, and with 95 % ' in said
    plain = study_json(report)["variants"]
    assert [row["versus_baseline"]["verdict"] for row in plain[1:]] == [word for word, _ in words]
    for name in ("md", "html", "latex", "csv", "json", "terminal", "slides"):
        text = str(find_format(name).render(read_findings(store, "a_study"), Place()))
        assert "better" in text
        assert "not needed: better" not in text


def test_a_replacement_is_no_part_that_is_needed() -> None:
    names = singles("mixer=fnet", "arrangement=parallel")
    report = read_study(study_of(names, {"mixer=fnet": 0.3}), "a_study")
    said = answer(report)
    assert (
        "Worse than the baseline by more than 0.05: replacing the attention mixer by fnet (val_loss at least 0.2"
        in said
    )
    assert "Not worse than the baseline by 0.05 or more: replacing the sequential arrangement by parallel (" in said
    assert "need:" not in said
    assert "can remove" not in said
    _, fnet, parallel = report.variants
    assert (fnet.verdict_word, parallel.verdict_word) == ("worse", "not worse")
    assert (fnet.verdict_sentence or "").startswith("worse by at least 0.2")
    assert (parallel.verdict_sentence or "").startswith("not worse: at most 0.0")
    for name in ("md", "html", "latex", "csv", "json", "terminal"):
        text = str(find_format(name).render(read_findings(study_of(names, {"mixer=fnet": 0.3}), "a_study"), Place()))
        assert "needed: worse" not in text
    assert study_json(report)["variants"][1]["change"]["otherwise"] == ["replacing the attention mixer by fnet"]


def test_many_combinations_are_reported_by_their_names() -> None:
    both = {"norm": "none", "values": "identity"}
    several = {f"v{number}": both for number in range(5)}
    said = answer(read_study(study_of(several, {}), "a_study"))
    assert "You can remove together: what v0 leaves out (val_loss at most" in said
    assert "the normalisation" not in said


def test_variants_that_change_the_same_are_distinguished_by_name() -> None:
    switches = {"skip": {**SWITCHES["skip"], "removes": "the residual"}}
    made = study_of(singles("skip=removed", "skip=shaped"), {"skip=removed": 0.9}, switches)
    said = answer(read_study(made, "a_study"))
    assert "You can remove: the residual (skip=shaped: val_loss at most" in said
    assert "You need: the residual (skip=removed: val_loss at least" in said


# Caveats


def test_every_variant_is_compared_with_the_trivial_baseline_by_its_bound() -> None:
    names = singles("norm=none", "values=identity")
    sure = read_study(study_of(names, {"norm=none": 0.5}, trivial=3.0), "a_study")
    assert sure.answer.warning_sentences == ()
    # The variant's mean is 2.601 with an upper bound of 2.6 + 2.92 * 0.1 / sqrt(3) = 2.77, rounded so that it holds.
    assert (
        "All 3 models beat the best trivial baseline, trigram (val_loss 3), by at least 0.2"
        in sure.answer.sentences[-1]
    )
    unsure = read_study(study_of(names, {"norm=none": 0.5}, trivial=2.7), "a_study")
    assert unsure.answer.warning_sentences == unsure.answer.sentences[:1]
    assert unsure.answer.warning_sentences[0].startswith(
        "1 of 3 models does not beat the best trivial baseline, trigram (val_loss 2.7) with 95 % confidence: "
        "norm=none (2.60"
    )
    assert any(
        sentence.startswith("The other 2 models beat trigram by at least") for sentence in unsure.answer.sentences
    )


def test_one_seed_shows_no_bound_and_equal_seeds_are_their_own() -> None:
    made = study_of(singles("norm=none"), {})
    for name in ("baseline", "norm=none"):
        for seed in range(3):
            made.add(name, seed, {"val_loss": 1.0})
    assert "by at least 8 " in read_study(made, "a_study").answer.sentences[-1]
    for name in ("baseline", "norm=none"):
        for seed in (1, 2):
            del made.trial_records[f"{name}/{seed}"]
    made.add("baseline", 0, {"val_loss": 9.5})
    (_, caveat) = read_study(made, "a_study").answer.warning_sentences
    assert "baseline (9.5, one seed)" in caveat


@pytest.mark.parametrize("name", ["terminal", "md", "html", "latex", "json"])
def test_caveats_come_before_the_rest_of_the_answer(name: str) -> None:
    made = study_of(
        singles("norm=none", "skip=removed", "values=identity"), {"skip=removed": 0.9, "norm=none": -0.6}, trivial=2.0
    )
    made.add("values=identity", 1, state=TrialState.DIVERGED, stopped_at=7)
    made.add("skip=removed", 2, state=TrialState.FAILED, reason="out of memory")
    del made.trial_records["norm=none/2"]
    text = " ".join(str(find_format(name).render(read_findings(made, "a_study"), Place())).split())
    text = text.replace("\\allowbreak{}", "").replace("\\_", "_").replace("\\", "")
    caveats = [
        "This answer is provisional: 1 trial is still missing.",
        "1 trial failed (skip=removed)",
        "Training diverged: values=identity at 1 of 3 seeds",
        "2 of 3 models do not beat the best trivial baseline",
    ]
    text = text[text.index(caveats[0]) :]  # the checks, which follow the headline, the rows and the lines of trust
    places = [text.index(sentence) for sentence in caveats]
    assert places == sorted(places)
    assert places[-1] < text.index("You need: the skip around attention")


# The table at 80 columns


@pytest.mark.parametrize("incomplete", [False, True])
def test_a_variant_takes_two_lines_of_eighty_columns(incomplete: bool) -> None:
    long = {
        f"attention_skip={setting}": {"attention_skip": setting} for setting in ("removed", "value_skipinit", "shaped")
    }
    switches = {"attention_skip": {"kept": {}} | {setting: {} for setting in ("removed", "value_skipinit", "shaped")}}
    made = study_of(long, {"attention_skip=removed": 0.9, "attention_skip=shaped": 0.05}, switches)
    if incomplete:
        del made.trial_records["attention_skip=value_skipinit/2"]
        made.add("attention_skip=shaped", 1, state=TrialState.DIVERGED, stopped_at=7)
    console = Console(width=80)
    with console.capture() as capture:
        print_study(read_study(made, "a_study"), console)
    table = capture.get().partition("±: 95 % interval")[0].splitlines()
    lines = [line.rstrip() for line in table[table.index(next(line for line in table if "───" in line)) + 1 :]]
    assert all(len(line) <= 80 for line in lines)
    rows = "\n".join(lines).split("\nattention_skip")
    assert len(rows) == 4
    assert all(len(row.strip().splitlines()) <= 2 for row in rows[1:-1])
    assert "value_skipinit" in capture.get()
    assert "needed" in capture.get()


def test_names_are_folded_where_they_may_be() -> None:
    assert in_lines("attention_skip=value_skipinit", 16).splitlines() == ["attention_skip=", "value_skipinit"]


def test_a_name_that_may_be_a_word_is_replaced_where_a_sentence_is_known_to_name_it() -> None:
    said, titles = "sas is worse than baseline, as sas_p is", {"sas": "block → SAS", "sas_p": "block → SAS-P"}
    assert in_words(said, titles) == said
    assert in_words(said, titles, ("sas",)) == "block → SAS is worse than baseline, as sas_p is"


def test_brackets_at_the_end_of_a_text_explain_a_name_and_are_no_part_of_it() -> None:
    space = {
        "switches": {
            "skip": {"kept": {}, "removed": {"removes": "the skip (what is added)"}},
            "block": {"pre_ln": {}, "sas": {"replaces": "the block (each) by SAS (no skip by design)"}},
        },
        "variants": {"both": {"skip": "removed", "block": "sas", "replaces": "all by SAS-P [0, 1] (SAS in parallel)"}},
    }
    settings = {"baseline": ("kept", "pre_ln"), "skip=removed": ("removed", "pre_ln"), "block=sas": ("kept", "sas")}
    settings["both"] = ("removed", "sas")
    variants = {name: ({"skip": skip, "block": block}, 10) for name, (skip, block) in settings.items()}
    record = dataclasses.replace(fake_store(variants, 2, margin=0.1).record, space=space)
    found = changes_of(record)
    assert found["skip=removed"].words == "the skip"
    assert found["block=sas"].words == "the block (each) → SAS"
    assert found["both"].words == "all → SAS-P [0, 1]"
    meanings = {"the skip": "what is added", "SAS": "no skip by design", "SAS-P [0, 1]": "SAS in parallel"}
    assert meanings_of(record) == meanings
    search = dataclasses.replace(record, traits=dataclasses.replace(record.traits, finds_best=True))
    assert meanings_of(search)["baseline"] == "block (each), all", "what its points replace"


def test_the_value_of_a_path_is_that_of_the_model_or_the_default_of_a_trainers_parameter() -> None:
    trainer = {"trainer": {"parameters": {"rate": {"kind": "float", "default": 0.1}, "depth": 3}}}
    assert [_at(trainer, path) for path in ("rate", "depth", "width")] == [0.1, 3, None]
    assert _at({"model": {"block": {"norm": {"kind": "rms"}}}}, "block.norm.kind") == "rms"


@pytest.mark.parametrize(
    ("removed", "otherwise", "words"),
    [
        ((), (), ""),
        (("the norm",), (), "the norm"),
        (("the norm", "the skip"), (), "the norm + the skip"),
        ((), ("replacing softmax by he",), "softmax → he"),
        (("the norm",), ("replacing softmax by he",), "no norm + softmax → he"),
    ],
)
def test_a_part_that_goes_is_named_alone_only_where_nothing_else_changes(
    removed: tuple[str, ...], otherwise: tuple[str, ...], words: str
) -> None:
    assert Change(removed, otherwise).words == words
