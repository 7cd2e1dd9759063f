"""leave_one_out, add_one_in, grid, sweep: their points, names and errors."""

from __future__ import annotations

import itertools

import pytest
from design_contexts import a_context, on_off
from pydantic import ValidationError

from ablate.designs.fixed import AddOneInSpec, GridSpec, LeaveOneOutSpec, SweepSpec
from ablate.errors import SpaceError

SWITCHES = {"a": ("on", "off"), "b": ("x", "y", "z")}


def test_add_one_in_turns_one_switch_back() -> None:
    points = AddOneInSpec(seeds=1).build(a_context(SWITCHES)).points()
    assert {point.name: tuple(point.settings.values()) for point in points} == {
        "baseline": ("on", "x"),
        "plainest": ("off", "z"),
        "plainest,a=on": ("on", "z"),
        "plainest,b=x": ("off", "x"),
        "plainest,b=y": ("off", "y"),
    }


def test_add_one_in_from_a_named_variant_trains_no_corner_twice() -> None:
    context = a_context({"a": ("on", "off"), "b": ("on", "off")}, variants={"bare": {"a": "off"}})
    points = AddOneInSpec(seeds=1, plainest="bare").build(context).points()
    # Turning `a` back on gives the baseline, which is there already.
    assert {point.name: tuple(point.settings.values()) for point in points} == {
        "baseline": ("on", "on"), "bare": ("off", "on"), "bare,b=off": ("off", "off"),
    }  # fmt: skip


def test_add_one_in_refuses() -> None:
    with pytest.raises(SpaceError, match="no such variant"):
        AddOneInSpec(plainest="bear").build(a_context(SWITCHES, variants={"bare": {"a": "off"}}))
    with pytest.raises(SpaceError, match="is the baseline"):
        AddOneInSpec(plainest="same").build(a_context(SWITCHES, variants={"same": {}}))
    impossible = a_context(SWITCHES, refusal=lambda point: "no" if point.settings["b"] == "z" else None)
    with pytest.raises(SpaceError, match="is invalid: no"):
        AddOneInSpec().build(impossible)


def test_grid_is_the_product_and_lists_what_makes_no_model() -> None:
    context = a_context(SWITCHES, refusal=lambda point: "no" if "z" in point.settings.values() else None)
    design = GridSpec(seeds=2).build(context)
    assert [tuple(point.settings.values()) for point in design.points()] == [*itertools.product(*SWITCHES.values())]
    proposed = [tuple(proposal.point.settings.values()) for proposal in design.ask()]
    possible = [("on", "x"), ("on", "y"), ("off", "x"), ("off", "y")]
    assert proposed == possible * 2


@pytest.mark.timeout(300)  # enumerating them would take days
def test_grid_refuses_a_large_one_without_enumerating_it() -> None:
    with pytest.raises(SpaceError, match="1,099,511,627,776 combinations"):
        GridSpec().build(a_context(on_off(*(f"s{index}" for index in range(40)))))


def test_sweep_takes_every_variant_to_every_value() -> None:
    context = a_context(SWITCHES, variants={"bare": {"a": "off"}})
    points = SweepSpec(path="model.heads", values=(1, 8), seeds=1).build(context).points()
    assert [(point.name, point.settings["a"], dict(point.values)) for point in points] == [
        ("baseline@model.heads=1", "on", {"model.heads": 1}),
        ("bare@model.heads=1", "off", {"model.heads": 1}),
        ("baseline@model.heads=8", "on", {"model.heads": 8}),
        ("bare@model.heads=8", "off", {"model.heads": 8}),
    ]


def test_sweep_refuses() -> None:
    context = a_context(SWITCHES, variants={"bare": {"a": "off"}})
    with pytest.raises(ValidationError, match="a sweep needs values"):
        SweepSpec(path="model.heads", values=())
    with pytest.raises(ValidationError, match="2 is listed twice"):
        SweepSpec(path="model.heads", values=(1, 2, 2))
    with pytest.raises(SpaceError, match=r"no such variant.*Did you mean `bare`\?"):
        SweepSpec(path="model.heads", values=(1,), variants=("bear",)).build(context)
    unknown = a_context(SWITCHES, refusal=lambda point: "there is no key `hedz` here")
    with pytest.raises(SpaceError, match=r"no variant makes a model at any value of `model.hedz`.*no key `hedz`"):
        SweepSpec(path="model.hedz", values=(1, 2)).build(unknown)


PARTS = {"skip": ["kept", "removed", "shaped"], "norm": ["rms", "none"], "bias": ["no", "yes"]}
VARIANTS = {"bare": {"skip": "removed", "norm": "none"}, "same": {}}


def test_the_points_are_the_baseline_each_other_setting_and_the_named_variants() -> None:
    points = LeaveOneOutSpec(seeds=2).build(a_context(PARTS, variants=VARIANTS)).points()
    assert [(point.name, *point.settings.values()) for point in points] == [
        ("baseline", "kept", "rms", "no"),
        ("skip=removed", "removed", "rms", "no"),
        ("skip=shaped", "shaped", "rms", "no"),
        ("norm=none", "kept", "none", "no"),
        ("bias=yes", "kept", "rms", "yes"),
        ("bare", "removed", "none", "no"),
        ("same", "kept", "rms", "no"),
    ]
    assert all(list(point.settings) == list(PARTS) for point in points)


def test_trials_come_seed_by_seed_so_that_pairs_exist_early() -> None:
    design = LeaveOneOutSpec(seeds=3).build(a_context(PARTS, variants=VARIANTS))
    names = [point.name for point in design.points()]
    assert [(proposal.point.name, proposal.seed) for proposal in design.ask()] == [
        (name, seed) for seed in (0, 1, 2) for name in names
    ]
