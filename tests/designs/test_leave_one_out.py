"""Leave one out: which points, in which order, with which names."""

from __future__ import annotations

from design_contexts import a_context

from ablate.designs.leave_one_out import LeaveOneOutSpec

SWITCHES = {"skip": ["kept", "removed", "shaped"], "norm": ["rms", "none"], "bias": ["no", "yes"]}
VARIANTS = {"bare": {"skip": "removed", "norm": "none"}, "same": {}}


def test_the_points_are_the_baseline_each_other_setting_and_the_named_variants() -> None:
    points = LeaveOneOutSpec(seeds=2).build(a_context(SWITCHES, variants=VARIANTS)).points()
    assert [(point.name, *point.settings.values()) for point in points] == [
        ("baseline", "kept", "rms", "no"),
        ("skip=removed", "removed", "rms", "no"),
        ("skip=shaped", "shaped", "rms", "no"),
        ("norm=none", "kept", "none", "no"),
        ("bias=yes", "kept", "rms", "yes"),
        ("bare", "removed", "none", "no"),
        ("same", "kept", "rms", "no"),
    ]
    assert all(list(point.settings) == list(SWITCHES) for point in points)


def test_trials_come_seed_by_seed_so_that_pairs_exist_early() -> None:
    design = LeaveOneOutSpec(seeds=3).build(a_context(SWITCHES, variants=VARIANTS))
    names = [point.name for point in design.points()]
    assert [(proposal.point.name, proposal.seed) for proposal in design.ask()] == [
        (name, seed) for seed in (0, 1, 2) for name in names
    ]
