"""The answer on one screen: what it holds, how it is drawn, and that it fits."""

from __future__ import annotations

import dataclasses
import io
import itertools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from textwrap import wrap
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from designed_study import on_off, run
from fake_store import FakeStore, fake_store
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from ablate.analysis.answer import Answer, answer_of
from ablate.analysis.answer_rows import AnswerGroup, AnswerRow, answer_sentence
from ablate.analysis.columns import columns
from ablate.analysis.headline import MOST_ALONG, MOST_NAMED, _beats, headline
from ablate.analysis.numbers import bound_text
from ablate.analysis.study import read_study
from ablate.analysis.why import why
from ablate.errors import NotFoundError
from ablate.render.answer import answer_svg, print_answer, print_why
from ablate.render.as_json import study_json, why_json
from ablate.render.document import names_note
from ablate.render.formats.html import group_mark, page_table, rows_of
from ablate.render.interval import Axis, Span, axis_labels, interval_svg
from ablate.store.records import TrialState

MARGIN = 0.1
REMOVED = {"norm": 0.02, "skip": 0.9, "values": 0.05, "bias": 0.099}
REPLACED = {"mixer": -0.5, "mlp": 0.01, "optimizer": 0.4}
CONFIDENT = {"better", "can go", "as good", "must stay", "worse"}


def study(
    effects: Mapping[str, float],
    seeds: int = 4,
    direction: str = "minimize",
    noise: float = 0.003,
    margin: float = MARGIN,
) -> FakeStore:
    """One switch for each effect; those in REPLACED replace the old part by a new one."""
    base = dict.fromkeys(effects, "on")
    variants = {"baseline": (base, 1000)} | {f"{name}=off": (base | {name: "off"}, 900) for name in effects}
    made = fake_store(variants, seeds, direction=direction, margin=margin)
    switches = {
        name: {
            "on": {},
            "off": {"replaces": f"old {name} by new {name}"} if name in REPLACED else {"removes": f"the {name}"},
        }
        for name in effects
    }
    made.record = dataclasses.replace(made.record, space={"switches": switches})
    rng, sign = np.random.default_rng(3), 1 if direction == "minimize" else -1
    for seed in range(seeds):
        shift = rng.normal()
        for name in variants:
            effect = effects.get(name.removesuffix("=off"), 0.0)
            made.add(name, seed, {"val_loss": 3 + shift + sign * effect + rng.normal(0, noise)}, seconds=60)
    return made


def answered(made: FakeStore) -> Answer:
    return answer_of(read_study(made, "a_study"))


def printed(answer: Answer, width: int = 80, **options: object) -> str:
    console = Console(width=width, **options)  # type: ignore[arg-type]
    with console.capture() as capture:
        print_answer(answer, console)
    return capture.get()


@pytest.mark.parametrize("direction", ["minimize", "maximize"])
def test_a_sentence_on_a_verdict_begins_with_the_word_of_its_group(direction: str) -> None:
    effects = REMOVED | {"mixer": -0.5, "mlp": -0.05, "optimizer": 0.01}
    report = read_study(study(effects, direction=direction), "a_study")
    rows = {row.name: row for row in report.variants}
    groups = {row.variant: group.key for group in answer_of(report).groups for row in group.rows}
    assert {*groups.values()} == {"better", "ahead", "as good", "can go", "must stay", "undecided"}
    for name, key in groups.items():
        said = answer_sentence(rows[name])
        assert said.startswith(key), name
        assert said[-9:] == rows[name].verdict_cell[-9:]


@pytest.mark.parametrize("direction", ["minimize", "maximize"])
def test_rows_are_grouped_by_verdict_and_sorted_from_the_best(direction: str) -> None:
    answer = answered(study(REMOVED | REPLACED, direction=direction))
    groups = {group.key: [row.variant.removesuffix("=off") for row in group.rows] for group in answer.groups}
    undecided = groups.pop("undecided")
    assert undecided == ["bias"]
    found = {key: names for key, names in groups.items() if key != "better"}
    assert found["can go"] == ["norm", "values"]
    assert found["must stay"] == ["skip"]
    assert found["worse"] == ["optimizer"]
    assert [name for key in ("better", "as good") for name in groups.get(key, [])] == ["mixer", "mlp"]
    for row in answer.rows:
        effect = (REMOVED | REPLACED)[row.variant.removesuffix("=off")]
        assert row.difference == pytest.approx(answer.worse * effect, abs=0.01)
        assert row.removed == (row.variant.removesuffix("=off") in REMOVED)


def test_a_page_calls_a_verdict_as_its_tiles_and_the_terminal_do() -> None:
    answer = answered(study(REMOVED | REPLACED))
    shown = page_table(answer, rows_of(answer))
    words = [word.rstrip("*") for word in re.findall(r'class="verdict"><b[^>]*>. <span>(.*?)</span>', shown)]
    assert words == [group.key for group in answer.groups for _ in group.rows]
    headings = re.findall(r'<tr class="group"><td colspan="\d+"><b[^>]*>(.) <em>(.*?)</em>', shown)
    assert headings == [(group_mark(group.key), group.key) for group in answer.groups], "a narrow window has no words"


def test_letters_stand_for_parts_only_where_a_line_is_short() -> None:
    base = dict.fromkeys("abcdef", "on")
    variants = {"baseline": (base, 9)}
    for parts in itertools.combinations(base, 3):
        variants["=off,".join(parts) + "=off"] = base | dict.fromkeys(parts, "off"), 8
    made = fake_store(variants, 2, margin=MARGIN)
    told = {name: {"on": {}, "off": {"removes": f"the part of the block called {name}"}} for name in base}
    made.record = dataclasses.replace(made.record, space={"switches": told})
    for name, seed in itertools.product(variants, range(2)):
        made.add(name, seed, {"val_loss": 3.0 + seed})
    report = read_study(made, "a_study")
    lettered, whole = answer_of(report), answer_of(report, letters=False)
    assert lettered.parts
    assert any(row.label != row.words for row in lettered.rows)
    assert not whole.parts
    assert all(row.label == row.words for row in whole.rows)


def test_the_headline_names_what_can_go_and_what_must_stay() -> None:
    first = " ".join(answered(study(REMOVED | REPLACED)).headline)
    assert first.startswith(
        "One at a time, the norm or the values can go; the skip must stay. Better: old mixer → new mixer"
    )
    many = answered(study({"norm": 0.0, "values": 0.01, "bias": 0.02, "query": 0.03}))
    assert many.headline[0] == "One at a time, 4 parts can go."
    undecided = answered(study({"bias": 0.0999}))
    assert undecided.headline[0] == "No verdict yet: 4 seeds do not decide the comparison."


@pytest.mark.parametrize(
    ("effects", "said"),
    [
        ({"b": 0.0, "c and d": 0.02}, "One at a time, the b, or the c and d, can go."),
        ({"b" * 21: 0.0, "c" * 30: 0.02}, f"One at a time, the {'b' * 21} or the {'c' * 30} can go."),
        ({"b" * 22: 0.0, "c" * 30: 0.02}, "One at a time, 2 parts can go."),
        ({"b and c": 0.9}, "The b and c must stay."),
        ({"b": 0.0999, "c": 0.0999}, "No verdict yet: 4 seeds do not decide any of the 2 comparisons."),
    ],
)
def test_parts_are_named_as_one_reads_them(effects: dict[str, float], said: str) -> None:
    """Where their names are short enough, and apart from one another."""
    assert answered(study(effects)).headline[0] == said


def changed(groups: Sequence[AnswerGroup], change: Callable[[AnswerRow], AnswerRow]) -> list[AnswerGroup]:
    return [dataclasses.replace(group, rows=tuple(map(change, group.rows))) for group in groups]


def test_what_was_not_timed_is_told_apart_from_what_is_undecided() -> None:
    made = study({"b": 0.0999, "c": 0.0999})
    made.add("c=off", 3, state=TrialState.FAILED, reason="out of memory")
    report, groups = read_study(made, "a_study"), answered(made).groups
    for untimed, said in ("b", "4 seeds do not decide any of the 2 comparisons"), ("bc", "2 not timed"):
        shown = changed(
            groups,
            lambda row, of=untimed: dataclasses.replace(row, bound_text="not timed" if row.variant[0] in of else ""),  # type: ignore[misc]
        )
        assert headline(shown, (), None, report) == (f"No verdict yet: {said}.",)


@pytest.mark.parametrize("long", [("optimizer",), ("optimizer", "mixer")])
def test_a_headline_says_less_as_soon_as_two_lines_of_80_columns_do_not_hold_it(long: tuple[str, ...]) -> None:
    """First it leaves out bounds, then what is worse."""
    made = study({"norm": 0.0, "mixer": -0.5, "optimizer": 0.4})
    report = read_study(made, "a_study")
    groups = changed(answered(made).groups, lambda row: dataclasses.replace(row, parameter_change=None))
    first, seen = " ".join(headline(groups, (), None, report)), set()
    for letters in range(130):
        more, whole = " x" * (letters // 2) + "y" * (letters % 2), first
        for name in long:
            whole = whole.replace(f"new {name}", f"new {name}{more}")
        forms = [whole, re.sub(r" \(.*?\)", "", whole), whole.partition(" Worse")[0]]
        fitting = [form for form in forms if len(wrap(form, 80)) <= 2]
        shown = changed(
            groups,
            lambda row, more=more: dataclasses.replace(row, words=row.words + more * row.words.endswith(long)),  # type: ignore[misc]
        )
        said = " ".join(headline(shown, (), None, report))
        assert said == (fitting or forms[-1:])[0]
        seen.add((forms.index(said), bool(fitting)))
    assert seen == {(0, True), (1, True), (2, True), (2, "mixer" not in long)}


@pytest.mark.parametrize("direction", ["minimize", "maximize"])
@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([(-0.103, 1, 0.0), (-0.104, 1, 0.0)], "a, 10 % fewer parameters"),  # alike
        ([(-0.2, 1, 0.1), (-0.1, 1, 0.05)], "b, 10 % fewer parameters"),  # the margin is too much
        ([(None, 1, 0.0), (None, 2, 0.0)], "b"),
        ([(None, 1, None), (0.0, 1, -0.1)], "b"),
        ([(0.3, 1, 0.0), (0.0, 0, 0.0)], "a"),
        ([(-0.01, 1, 0.0), (-0.009, 2, 0.0)], "a, 1.0 % fewer parameters"),
        ([(-0.1, 1, None), (-0.1, 1, 0.2)], ""),
    ],
)
def test_the_smallest_of_what_results_selected_is_named_while_nothing_is_confirmed(
    rows: Sequence[tuple[float | None, int, float | None]], said: str, direction: str
) -> None:
    """Rows have a change of parameters, a number of removed parts, and how much worse they are."""
    made = study({"skip": 0.9, "a": 0.0, "b": 0.0}, direction=direction)
    report, answer = read_study(made, "a_study"), answered(made)
    (of,) = [group for group in answer.groups if group.key == "can go"]
    by_name = {row.variant: row for row in of.rows}
    unproven = [
        dataclasses.replace(
            by_name[f"{name}=off"],
            parameter_change=change,
            removed=removed,
            difference=None if worse is None else answer.worse * worse,
        )
        for name, (change, removed, worse) in zip("ab", rows, strict=True)
    ]
    groups = [group for group in answer.groups if group is not of]
    groups.append(AnswerGroup("unproven", "", tuple(unproven)))
    begin = "Smallest model selected, not confirmed on fresh seeds: without the "
    assert headline(groups, (), None, report) == ("The skip must stay.", *([f"{begin}{said}."] if said else []))
    confirmed = (report.variants[0], dataclasses.replace(report.variants[1], confirmed=(7, 8)), *report.variants[2:])
    of_fresh = dataclasses.replace(report, variants=confirmed)
    assert headline(groups, (), None, of_fresh) == ("The skip must stay.",)


def test_the_headline_names_what_is_worse_with_its_bound_if_two_lines_hold_it() -> None:
    short = answered(study({"norm": 0.0, "optimizer": 0.4})).headline
    assert any(sentence.startswith("Worse: old optimizer → new optimizer (at least 0.3") for sentence in short)
    longer = answered(study({"norm": 0.0, "mixer": 0.5, "optimizer": 0.4})).headline
    assert "Worse: old optimizer → new optimizer and old mixer → new mixer." in longer, "the rows have the bounds"
    assert len(" ".join(longer)) <= 150
    many = answered(study({"norm": 0.0, "mixer": 0.5, "optimizer": 0.4, "mlp": 0.6})).headline
    assert not any("Worse" in sentence for sentence in many), "a bare count says less than the rows"


@pytest.mark.parametrize(
    ("begins", "effect", "most", "beyond"),
    [
        ("Better: ", -0.5, MOST_NAMED, MOST_NAMED),
        ("Ahead: ", -0.05, MOST_ALONG, 1),
        ("As good within 0.1: ", 0.01, 1, 0),
        ("Worse: ", 0.5, MOST_NAMED, 0),
        ("One at a time, ", 0.0, MOST_NAMED, 0),
        ("", 0.9, MOST_NAMED, 0),
    ],
)
def test_a_headline_names_as_many_as_fit_and_counts_the_others(
    begins: str, effect: float, most: int, beyond: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = effect in (0.0, 0.9)
    monkeypatch.setattr(f"{__name__}.REPLACED", {} if kept else dict.fromkeys("abcde"))
    for number in range(1, 6):
        said = answered(study(dict.fromkeys("abcde"[:number], effect))).headline[0]
        assert said.startswith(begins if number > 1 or not kept else "The a "), said
        named = re.findall(r"(?:new|[Tt]he) [a-e]\b", said)
        (counted,) = re.findall(r"(\d+) (?:more|others|changes|parts)\b", said) or [0]
        assert len(named) == (number if number <= most else beyond)
        assert len(named) + int(counted) == number
        assert " 0 " not in said


@pytest.mark.parametrize(("direction", "noise"), [("minimize", 0.18), ("maximize", 0.3)])
def test_what_is_better_by_an_amount_that_is_not_shown_is_named_apart_from_what_is_as_good(
    direction: str, noise: float
) -> None:
    answer = answered(study({"mixer": -0.05, "mlp": 0.01, "optimizer": 0.02}, direction=direction))
    assert answer.headline[:2] == ("Ahead: old mixer → new mixer.", "As good within 0.1: 2 changes.")
    assert [group.key for group in answer.groups] == ["ahead", "as good"]
    labels = [line[:10].strip() for line in printed(answer).splitlines()]
    assert [label for label in labels if label.isupper()][:2] == ["AHEAD", "AS GOOD"]
    noisy = answered(study({"mixer": -0.5}, direction=direction, noise=noise))
    (row,) = noisy.rows
    assert row.difference is not None
    assert noisy.worse * row.difference < -MARGIN, "no heading may say that this is less than the margin"
    assert noisy.headline[0] == "Ahead: old mixer → new mixer."
    assert "not shown to be by the margin" in noisy.groups[0].title


def test_parts_of_a_set_that_can_go_are_not_counted_again_and_no_set_must_stay_if_some_of_it_can_go() -> None:
    made = study({"b": 0.0, "b and d": 0.02, "b, c and d": 0.5, "b, c, d and e": 0.6, "skip": 0.9, "skip and e": 1.0})
    parts = {"b=off": "b", "b and d=off": "bd", "b, c and d=off": "bcd", "b, c, d and e=off": "bcde"}
    parts |= {"skip=off": "s", "skip and e=off": "se"}
    variants = tuple(
        dataclasses.replace(
            one, spec=one.spec | {"model": {part: part not in parts.get(one.name, "") for part in "bcdes"}}
        )
        for one in made.record.variants
    )
    made.record = dataclasses.replace(made.record, variants=variants)
    answer = answered(made)
    assert " ".join(answer.headline).startswith(
        "The b and d can go; the skip must stay. Worse: without the b, c and d."
    )
    assert {group.key: [row.label for row in group.rows] for group in answer.groups} == {
        "can go": ["the b", "the b and d"],
        "must stay": ["the skip", "the skip and e"],
        "worse": ["without the b, c and d", "without the b, c, d and e"],
    }
    assert not any("removals" in step.purpose for step in answer.next), "one of the two removals includes the other"


@pytest.mark.parametrize("direction", ["minimize", "maximize"])
def test_claims_are_named_unless_they_are_supported(direction: str) -> None:
    made = study({"norm": 0.02, "skip": 0.9}, direction=direction)
    claims = [
        {"id": name, "expect": "not_worse", "left": left, "right": "baseline", "metric": "val_loss", "margin": 0.1}
        for name, left in {"the-first": "norm=off", "the-second": "skip=off"}.items()
    ]
    made.record = dataclasses.replace(made.record, space=made.record.space | {"claims": claims})
    assert "CLAIMS    1 supported; refuted: the-second\n" in printed(answered(made))


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"replaces": "the block by SAS"}, "Smallest that is as good: SAS, 10 % fewer"),
        (
            {"model.depth": 2, "training.steps": 400},
            "Smallest that is as good: depth 4 → 2 + steps 200 → 400, 10 % fewer",
        ),
    ],
)
def test_the_smallest_is_named_by_all_that_it_changes(settings: dict[str, Any], named: str) -> None:
    made = study({"size": 0.0})
    spec = {"model": {"depth": 4}, "training": {"steps": 200}}
    variants = tuple(dataclasses.replace(variant, spec=variant.spec | spec) for variant in made.record.variants)
    space = {"switches": {"size": {"on": {}, "off": settings}}}
    made.record = dataclasses.replace(made.record, space=space, variants=variants)
    assert named in " ".join(answered(made).headline)


@pytest.mark.parametrize(
    ("others", "said"),
    [
        ({"skip": 0}, "Smallest that is as good: SAS (without that skip), 10 % fewer"),
        ({"skip": 0, "scale": "none"}, "Smallest that is as good: SAS (without the scale and the skip), 10 % fewer"),
        ({"skip": 2}, "Smallest that is as good: SAS, 10 % fewer"),
        ({}, "Smallest that is as good: SAS, 10 % fewer"),
    ],
)
def test_a_headline_says_that_the_smallest_is_without_what_must_stay(others: dict[str, Any], said: str) -> None:
    changes = {"size": {"norm": "none", **others}, "skip": {"skip": 0}}
    if "scale" in others:
        changes["scale"] = {"scale": "none"}
    made = study({"size": 0.0} | dict.fromkeys([*changes][1:], 0.9))
    whole = {"skip": 1, "norm": "rms", "scale": "one"}
    specs = {f"{name}=off": whole | changed for name, changed in changes.items()}
    variants = tuple(
        dataclasses.replace(one, spec={"model": {"block": specs.get(one.name, whole)}}) for one in made.record.variants
    )
    switches = made.record.space["switches"] | {"size": {"on": {}, "off": {"replaces": "the block by SAS"}}}
    made.record = dataclasses.replace(made.record, space={"switches": switches}, variants=variants)
    assert said in " ".join(answered(made).headline)


@given(
    st.floats(-50, 50).filter(lambda value: abs(value) > 1e-6),
    st.booleans(),
    st.floats(0.01, 2).map(lambda x: round(x, 3)),
)
def test_a_bound_is_rounded_outward_and_never_onto_the_margin(bound: float, at_most: bool, margin: float) -> None:
    text = bound_text(bound, upper=at_most, margin=margin)
    shown = float(text[2:])
    assert text[0] == ("≤" if at_most else "≥")
    assert shown >= bound - 1e-9 if at_most else shown <= bound + 1e-9
    assert abs(shown - bound) <= 0.1 * abs(bound) + 1e-12
    if abs(abs(bound) - margin) > 1e-9:
        assert abs(shown) != margin


@pytest.mark.parametrize("ascii_only", [False, True])
def test_twelve_variants_fit_a_terminal_of_24_lines_and_80_columns(ascii_only: bool) -> None:
    names = ["norm", "values", "output projection", "query bias", "soft cap of logits", "U-net skips"]
    effects = {name: 0.01 * number for number, name in enumerate(names)} | REPLACED | {"skip": 0.9, "warm-up": 0.6}
    made = study(effects)
    made.record = dataclasses.replace(made.record, trivial={"bigram": {"val_loss": -9.0}})
    answer = answered(made)
    if ascii_only:
        console = Console(width=80, file=io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
        print_answer(answer, console)
        console.file.flush()
        text = console.file.buffer.getvalue().decode("ascii")  # type: ignore[attr-defined]
    else:
        text = printed(answer)
    lines = text.splitlines()
    assert len(answer.rows) == 11
    assert len(lines) <= 24
    assert all(len(line) <= 80 for line in lines if "ablate" not in line)
    for name in effects:
        assert name in text
    labels = [line[:10].strip() for line in lines]
    assert [label for label in labels if label] == list(dict.fromkeys(label for label in labels if label))


DESIGNS: dict[str, dict[str, Any]] = {
    "leave_one_out": {"kind": "leave_one_out", "seeds": 3},
    "fractional": {"kind": "fractional", "resolution": "III", "seeds": 3},
    "grid": {"kind": "grid", "seeds": 3},
    "simplify": {"kind": "simplify", "seeds": 3},
    "add_one_in": {"kind": "add_one_in", "seeds": 3},
    "sweep": {"kind": "sweep", "path": "model.heads", "values": [1, 2, 4], "seeds": 3},
    "search": {"kind": "search", "sampler": "random", "points": 9, "seeds": 2},
    "confirmed search": {"kind": "search", "sampler": "random", "points": 9, "seeds": 2, "confirm": 4},
}


@pytest.mark.parametrize("kind", DESIGNS)
def test_the_answer_of_every_design_fits_a_terminal_and_holds_every_variant(kind: str) -> None:
    def landscape(settings: Mapping[str, str], values: Mapping[str, Any]) -> float:
        off = {name for name, setting in settings.items() if setting == "off"}
        return 3.0 + 0.5 * ("a" in off) + 0.02 * ("b" in off) - values.get("model.heads", 0) / 10

    switches = on_off("a", "b", "c") if kind == "grid" else on_off("a", "b", "c", "d")
    named = {"plain": {"a": "off"}} if kind == "sweep" else {}
    answer = answered(run(DESIGNS[kind], switches, landscape, noise=0.01, variants=named))
    lines = printed(answer).splitlines()
    assert len(answer.rows) <= 12
    assert len(lines) <= 24
    assert all(len(line) <= 80 for line in lines)
    rows = (
        [name.removeprefix("the ") for name in answer.along.rows]
        if answer.along
        else [row.words for row in answer.rows]
    )
    assert all(any(words in line for line in lines) for words in rows)
    assert any("not confirmed" in said for said in answer.headline) == (kind in ("simplify", "search"))
    for group in answer.groups:  # of several parts that are needed together one may be dispensable
        assert group.key != "must stay" or not any("+" in row.words for row in group.rows)
    if kind == "add_one_in":
        assert answer.reference == "plainest"
        worth = {row.variant.removeprefix("plainest,"): row.difference for row in answer.rows}
        assert worth == pytest.approx(
            {"a=on": -0.5, "b=on": -0.02, "c=on": 0, "d=on": 0, "baseline": -0.52}, abs=0.05
        ), "what adding gains"
        assert "− plainest " in printed(answer)
        assert answer.headline[0].startswith("Better than plainest: ")


def drawn(answer: Answer, row: AnswerRow) -> str:
    words = row.words.removeprefix("the ")
    (line,) = [line for line in printed(answer, 100).splitlines() if line[10:].startswith(words)]
    return line


@pytest.mark.parametrize("direction", ["minimize", "maximize"])
def test_intervals_are_drawn_on_one_axis(direction: str) -> None:
    answer = answered(study({"norm": 0.05, "skip": 5.0, "mixer": -0.05, "mlp": 0.2}, direction=direction))
    lines = {row.variant.removesuffix("=off"): drawn(answer, row) for row in answer.rows}
    zero, margin = lines["skip"].index("│"), lines["skip"].index("┊")
    assert zero < margin
    assert zero < lines["norm"].index("●") < margin
    assert margin < lines["mlp"].index("●")
    marks = [lines["mixer"].index("●")]
    assert marks[0] < zero
    assert "▶" in lines["skip"], "it lies far beyond the axis"
    assert all(("▶" in line) == (name == "skip") for name, line in lines.items())


@pytest.mark.parametrize("direction", ["minimize", "maximize"])
@pytest.mark.parametrize("scale", [1, 4])
def test_a_picture_has_larger_values_at_the_right_and_shades_what_lies_beyond_the_margin(
    direction: str, scale: int
) -> None:
    effects = {"norm": 0.05, "mixer": -0.08, "mlp": 0.14, "values": -0.12}
    answer = answered(study({name: scale * effect for name, effect in effects.items()}, direction=direction))
    axis = Axis.of_picture(answer)
    for row in answer.rows:
        drawn = interval_svg(axis, row, colour="#000000", ink="#ffffff", mark="circle")
        zero, margin, *better = (float(at) for at in re.findall(r'<line x1="([-.\d]+)" x2="[-.\d]+" y1="0"', drawn))
        ((mean,),) = (re.findall(r"translate\(([-.\d]+) ", drawn),)
        assert row.difference is not None
        assert (float(mean) > zero) == (row.difference > 0), "a plus is right of zero in every figure"
        assert (margin > zero) == (direction == "minimize")
        assert [(at > zero) == (direction == "maximize") for at in better] == [True], "two variants are better"
        spans = re.findall(r'<rect x="([-.\d]+)" y="0" width="([-.\d]+)"', drawn)
        shaded = [float(begin) < float(mean) < float(begin) + float(width) for begin, width in spans]
        assert shaded == [side * answer.worse * row.difference > answer.margin for side in (1, -1)]


@pytest.mark.parametrize("worse", [1, -1])
@pytest.mark.parametrize(("low", "high"), [(-0.06, 0.07), (-0.3, 0.3), (-0.06, 1.0), (-1.0, 0.06)])
def test_both_margins_are_drawn_and_the_numbers_above_them_are_whole_and_apart(
    worse: int, low: float, high: float
) -> None:
    axis, ends = Axis(low, high, 0.05, worse, both=True), []
    for at, anchor, text in axis_labels(axis):
        left = 244 * at - {"start": 0.0, "middle": 0.5, "end": 1.0}[anchor] * 6 * len(text)
        ends.append((left, left + 6 * len(text)))
    edges = [edge for end in sorted(ends) for edge in end]
    assert edges == sorted(edges)
    assert 0 <= edges[0] < edges[-1] <= 244
    row = Span(0.0, -0.05, 0.05)
    drawn = interval_svg(axis, row, colour="#000000", ink="#ffffff", mark="circle")
    zero, *margins = (float(at) for at in re.findall(r'<line x1="([-.\d]+)" x2="[-.\d]+" y1="0"', drawn))
    line = re.search(r'<line x1="([-.\d]+)" x2="([-.\d]+)" y1="13', drawn)
    assert line is not None
    assert sorted(margins) == sorted(map(float, line.groups())), "the interval ends at both margins"
    assert min(margins) < zero < max(margins)


@pytest.mark.parametrize("seeds", [2, 3, 30])
@pytest.mark.parametrize("direction", ["minimize", "maximize"])
@pytest.mark.parametrize("lost", [False, True])
def test_a_drawn_interval_ends_at_the_bound_and_never_contradicts_the_verdict(
    seeds: int, direction: str, lost: bool
) -> None:
    effects = {str(number): 0.02 * (number - 8) for number in range(16)}
    made = study(effects, seeds, direction, noise=0.02)
    if lost:  # then nothing bounds how bad it may be
        for name in effects:
            made.add(f"{name}=off", 0, state=TrialState.FAILED, reason="out of memory")
    answer = answered(made)
    for row in answer.rows:
        if row.low is None or row.high is None or row.difference is None:
            assert row.bound is None
            continue
        best, worst = sorted(answer.worse * end for end in (row.low, row.high))
        assert best <= answer.worse * row.difference <= worst
        assert row.bound in (None, row.low, row.high)
        assert (worst == float("inf")) == lost
        if row.verdict in ("needed", "worse"):
            assert best > MARGIN
        elif row.verdict == "better":
            assert worst < -MARGIN
        elif row.verdict in ("not needed", "not worse"):
            assert worst < MARGIN
        else:
            assert best <= MARGIN <= worst
    assert lost or {row.verdict for row in answer.rows} > {"undecided"}


def test_each_warning_has_a_mark_of_its_own_and_the_commands_name_real_variants() -> None:
    answer = answered(study(REMOVED | {"mixer": -5.0}))
    assert {row.warning for row in answer.rows} == {"", "check the baseline"}
    for margins, said in ((-9.5, ""), (-10.5, "check the baseline")):
        assert [row.warning for row in answered(study({"mixer": margins * MARGIN})).rows] == [said]
    (first, *_), groups = answer.rows, answer.groups
    other = dataclasses.replace(first, variant="x", words="another", warning="still changing")
    groups = (dataclasses.replace(groups[0], rows=(first, other)), *groups[1:])
    text = " ".join(printed(dataclasses.replace(answer, groups=groups)).split())
    assert "[1] check the baseline; [2] still changing" in text
    assert text.count("[1]") == text.count("[2]") == 2
    assert "--why bias=off or --table, --checks" in printed(answered(study({"norm": 0.0, "bias": 0.0999})))


def test_verdicts_are_told_without_colour_and_without_control_codes() -> None:
    text = printed(answered(study(REMOVED | REPLACED)), no_color=True)
    assert "\x1b" not in text
    for label in ("CAN GO", "MUST STAY", "WORSE", "UNDECIDED", "TRUST", "MORE"):
        assert f"\n{label} " in text
    evil = dataclasses.replace(answered(study({"norm": 0.0})), question="[red]x[/red] \x1b[31mboo")
    assert "[red]x[/red] \N{REPLACEMENT CHARACTER}[31mboo" in printed(evil, 140)


def test_a_long_answer_shows_six_rows_of_a_group_and_counts_the_others() -> None:
    answer = answered(study({f"part {number}": 0.0 for number in range(45)}))
    rows = [line for line in printed(answer).splitlines() if line[10:].startswith("part ")]
    assert len(rows) == 6
    assert "and 39 more: --all" in printed(answer)
    console = Console(width=80)
    with console.capture() as capture:
        print_answer(answer, console, everything=True)
    assert all(f"part {number}" in capture.get() for number in range(45))


def test_models_below_a_bigram_leave_no_answer() -> None:
    made = study({"norm": 0.0, "skip": 0.9})
    trivial = {"unigram": {"val_loss": 0.5}, "bigram": {"val_loss": 0.1}, "trigram": {"val_loss": 0.05}}
    made.record = dataclasses.replace(made.record, trivial=trivial)
    answer = answered(made)
    assert answer.headline[0].startswith("No answer yet")
    assert "bigram" in answer.headline[0]
    assert not any("can go" in sentence for sentence in answer.headline)


def test_where_nothing_was_learnt_the_next_command_trains_longer() -> None:
    made = study({"norm": 0.0, "skip": 0.9})
    made.record = dataclasses.replace(
        made.record, trivial={"guess": {"val_loss": 0.1}}, space={**made.record.space, "training": {"steps": 100}}
    )
    (step,) = answered(made).next
    assert step.arguments == ("resume", "a_study", "--longer", "4")
    assert step.seconds == 4 * 3 * 4 * 60
    assert "ablate resume a_study --longer 4" in printed(answered(made))
    made.record = dataclasses.replace(made.record, space={**made.record.space, "training": {"steps": 0}})
    (step,) = answered(made).next
    assert not step.arguments, "a model that was not trained here cannot be trained longer"
    assert "train longer: no model has learnt enough" in step.purpose


def test_long_combinations_are_called_by_the_letters_of_their_parts() -> None:
    switches = on_off("normalisation", "values", "projection")
    made = run({"kind": "grid", "seeds": 3}, switches, lambda settings, _: 3.0, noise=0.01)
    texts = {name: {"on": {}, "off": {"removes": f"the {name} of every block"}} for name in switches}
    made.record = dataclasses.replace(made.record, space={**made.record.space, "switches": texts})
    settings = {variant.name: variant.settings for variant in made.record.variants}
    answer = answered(made)
    assert [*answer.parts] == ["A", "B", "C"]
    for row in answer.rows:
        off = {name for name, setting in settings[row.variant].items() if setting == "off"}
        letters = sorted(letter for letter, part in answer.parts.items() if part.split()[1] in off)
        assert row.label == (" + ".join(letters) if len(letters) > 1 else f"{letters[0]}: {row.words}")
    lines = printed(answer).splitlines()
    assert sum("A + B + C" in line for line in lines) == 1
    assert sum(line[10:].startswith("A: ") for line in lines) == 1
    short = run({"kind": "grid", "seeds": 3}, on_off("a", "b"), lambda settings, _: 3.0, noise=0.01)
    assert answered(short).parts == {}


def test_trust_calls_variants_by_what_they_change() -> None:
    made = study({"norm": 0.0, "skip": 0.9})
    made.record = dataclasses.replace(made.record, trivial={"guess": {"val_loss": 9.0}})
    for seed in range(4):
        made.add("skip=off", seed, {"val_loss": 9.5 + seed / 100})
    made.add("norm=off", 0, state=TrialState.FAILED, reason="out of memory")
    said = [line.text for line in answered(made).trust]
    assert "without the skip: no better than a guess (9)" in said
    assert "1 trial failed (without the norm)" in said


def test_the_trust_lines_begin_with_the_evidence_and_count_what_they_hide() -> None:
    made = study(REMOVED)
    del made.trial_records["norm=off/3"]
    made.add("skip=off", 2, state=TrialState.FAILED, reason="out of memory")
    answer = answered(made)
    assert answer.trust[0].text.startswith("18/20 trials, ")
    assert "1 still missing" in answer.trust[0].text
    assert answer.trust[0].level == "weak"
    assert any("1 trial failed (without the skip)" in line.text for line in answer.trust)


def test_a_screen_that_is_too_small_counts_the_further_steps_and_warnings() -> None:
    answer = answered(study(REMOVED | REPLACED))
    step, trust = answer.next[0], answer.trust[0]
    more = dataclasses.replace(answer, next=(step,) * 8, trust=(trust,) * 4)
    lines = printed(more).splitlines()
    assert len(lines) <= 24
    assert any("7 more: --full" in line for line in lines)
    assert any("more: --checks" in line for line in lines)
    assert "more: --full" not in printed(dataclasses.replace(answer, next=(step,)))
    console = Console(width=80)
    with console.capture() as capture:
        print_answer(more, console, everything=True)
    assert capture.get().count(" ".join(step.arguments)) == 8, "all of them where everything is asked for"


def test_the_next_command_continues_the_study_with_more_seeds_and_says_what_they_cost() -> None:
    made = study({"bias": 0.05}, noise=0.03)
    made.record = dataclasses.replace(
        made.record, space=dict(made.record.space) | {"design": {"kind": "leave_one_out", "seeds": 4}}
    )
    answer = answered(made)
    (row,) = answer.rows
    assert row.verdict == "undecided"
    assert len(answer.next) == 1
    assert answer.next[0].arguments[:2] == ("resume", "a_study")
    more = int(row.bound_text.strip("~").split()[0])
    assert answer.next[0].seconds == pytest.approx(more * 2 * 60)
    assert "ablate resume a_study --seeds 4:" in printed(answer)


def test_where_tuning_alone_leaves_a_comparison_open_more_seeds_of_tuning_are_the_next_step() -> None:
    made = study({"norm": 0.0, "skip": 0.9})
    report = read_study(made, "a_study")
    baseline, norm, skip = report.variants
    assert norm.verdict is not None
    open_ = dataclasses.replace(norm.verdict, word="undecided", withheld="by its tuning seeds it may be 0.2 better")
    rows = (baseline, dataclasses.replace(norm, verdict=open_), skip)
    for tune, twice in (({"seeds": 3}, 6), ({"seeds": 1}, 2)):
        record = dataclasses.replace(report.record, space={**report.record.space, "tune": tune})
        (step,) = answer_of(dataclasses.replace(report, record=record, variants=rows)).next
        assert step.purpose == f"`tune: {{seeds: {twice}}}` in the space may settle the norm"


def test_json_has_the_groups_that_people_see() -> None:
    made = study(REMOVED | REPLACED)
    answer, plain = answered(made), json.loads(json.dumps(study_json(read_study(made, "a_study")), allow_nan=False))
    shown = {group["key"]: [row["variant"] for row in group["rows"]] for group in plain["answer"]["groups"]}
    assert shown == {group.key: [row.variant for row in group.rows] for group in answer.groups}
    assert {line["level"] for line in plain["answer"]["trust"]} <= {"ok", "weak", "void"}
    assert plain["answer"]["headline"] == list(answer.headline)


def test_why_shows_the_seeds_of_one_verdict() -> None:
    made = study(REMOVED)
    report = read_study(made, "a_study")
    explained = why(report, "norm=off")
    differences = {
        seed: made.trial_records[f"norm=off/{seed}"].metrics["val_loss"]
        - made.trial_records[f"baseline/{seed}"].metrics["val_loss"]
        for seed in range(4)
    }
    assert explained.seeds == pytest.approx(differences)
    console = Console(width=80)
    with console.capture() as capture:
        print_why(explained, console)
    assert all(f"{seed}: {value:+.3g}" in capture.get() for seed, value in differences.items())
    assert "margin 0.1" in capture.get()
    json.dumps(why_json(explained), allow_nan=False)
    with pytest.raises(NotFoundError, match=r"no variant 'nonsense'.*one of norm=off"):
        why(report, "nonsense")


@pytest.mark.parametrize("direction", ["minimize", "maximize"])
def test_why_names_the_margin_from_which_on_the_verdict_changes(direction: str) -> None:
    """At a margin just on the other side of the one it names, the verdict is another: it is rounded away from ours."""
    effects = {"norm": 0.02, "skip": 0.9, "mixer": -0.5, "mlp": -0.05, "optimizer": 0.4}

    def verdicts(margin: float) -> dict[str, str]:
        return {row.variant: row.verdict for row in answered(study(effects, direction=direction, margin=margin)).rows}

    report, before = read_study(study(effects, direction=direction), "a_study"), verdicts(MARGIN)
    assert {*before.values()} == {"not needed", "needed", "better", "not worse", "worse"}
    for name, word in before.items():
        side, margin = why(report, name).facts["changes if"].removeprefix("the margin were ").split()
        beyond = 1 + 1e-9 if side == "above" else 1 - 1e-9
        assert (float(margin) > MARGIN) == (side == "above")
        assert verdicts(beyond * float(margin))[name] != word


def test_the_picture_shows_what_the_terminal_shows() -> None:
    answer = answered(study(REMOVED | REPLACED))
    picture = ElementTree.fromstring(answer_svg(answer))
    shown = "".join(picture.itertext()).replace("\xa0", " ")
    assert all(row.words.removeprefix("the ") in shown for row in answer.rows)
    assert "<script" not in answer_svg(answer)
    assert {group.key for group in answer.groups} - {"undecided"} <= CONFIDENT


def swept(effects: Mapping[str, Sequence[float]], places: Sequence[int]) -> FakeStore:
    """A sweep of the context: `effects` of each variant at each place."""
    axis = "task.context"
    names = [f"{name}@{axis}={at}" for name in ("baseline", *effects) for at in places]
    made = fake_store({name: ({axis: name.rpartition("=")[2]}, 10) for name in names}, 5, margin=MARGIN)
    made.record = dataclasses.replace(
        made.record, space={"design": {"kind": "sweep", "path": axis, "values": list(places)}}
    )
    rng = np.random.default_rng(5)
    for seed in range(5):
        for number, at in enumerate(places):
            shift = rng.normal()
            made.add(f"baseline@{axis}={at}", seed, {"val_loss": 3 + shift})
            for name, effect in effects.items():
                made.add(f"{name}@{axis}={at}", seed, {"val_loss": 3 + shift + effect[number] + rng.normal(0, 0.003)})
    return made


def test_a_sweep_shows_each_variant_at_each_place_and_says_where_its_verdict_turns() -> None:
    answer = answered(swept({"she": [-0.2, -0.3, -0.4], "he": [0.5, 0.0, 0.0]}, [16, 32, 64]))
    rows = {row.variant: row for row in answer.rows}
    assert set(rows) == {"she@task.context=64", "he@task.context=64"}
    assert {row.words for row in rows.values()} == {"she at context 64", "he at context 64"}
    assert answer.headline == (
        "she: better at every context, 16 to 64.",
        "he: worse at context 16, as good at 32 to 64.",
    )
    assert answer.along is not None
    assert [cell.difference for cell in answer.along.rows["he"]] == pytest.approx([0.5, 0.0, 0.0], abs=0.01)
    he = next(line for line in printed(answer).splitlines() if line.startswith("he "))
    assert [he.count(mark) for mark in "▼=▲"] == [1, 2, 0]
    assert answer.baseline is None, "each place has its own"


def test_a_verdict_that_is_undecided_everywhere_holds_nowhere() -> None:
    effects = {f"part {number}": [0.0997, 0.0998, 0.0997] for number in range(3)} | {"she": [-0.4] * 3}
    answer = answered(swept(effects, [16, 32, 64]))
    assert answer.along is not None
    same = [cells for cells in answer.along.rows.values() if len({cell.verdict for cell in cells}) == 1]
    decided = [cells for cells in same if cells[0].verdict != "undecided"]
    assert len(same) > len(decided) > 0
    hold = "holds" if len(decided) == 1 else "hold"
    assert answer.headline[0].startswith(f"{len(decided)} of 4 verdicts {hold} along context from 16 to 64")
    for number in (MOST_ALONG, MOST_ALONG + 1):
        said = answered(swept({f"part {one}": [-0.4] * 3 for one in range(number)}, [16, 32, 64])).headline
        if number == MOST_ALONG:
            assert sorted(said) == [f"Part {one}: better at every context, 16 to 64." for one in range(number)]
        else:
            assert said[0] == f"All {number} verdicts hold along context from 16 to 64."
    turned = answered(swept({"one part": [0.5, 0.0, 0.103]}, [16, 32, 64]))
    assert turned.headline == ("One part: worse at context 16, as good at 32, undecided at 64.",)


def test_parts_and_combinations_of_parts_are_counted_apart() -> None:
    made = study({"norm": 0.0, "values": 0.01, "bias": 0.02, "query": 0.0})
    together = {**made.record.variants[0].settings, "norm": "off", "bias": "off"}
    variants = tuple(
        dataclasses.replace(one, settings=together) if one.name == "bias=off" else one for one in made.record.variants
    )
    made.record = dataclasses.replace(made.record, variants=variants)
    assert answered(made).headline[0] == "One at a time, 3 parts and 1 combination of parts can go."


HALF_DONE: dict[str, dict[str, Any]] = {
    "leave_one_out": {"seeds": 3},
    "add_one_in": {"seeds": 3},
    "grid": {"seeds": 3},
    "fractional": {"seeds": 3},
    "simplify": {"seeds": 3, "confirm": 3},
    "search": {"seeds": 1, "points": 5, "sampler": "random", "confirm": 3},
}


def ended_and_planned(made: FakeStore, variant: str) -> tuple[int, int]:
    """The seeds of a comparison with its baseline: those at which both trials have ended, and all."""
    record = made.record
    fresh = {one.seed: one.key for one in record.confirm_trials if one.variant == variant}
    of = record.confirm_trials if fresh else record.planned
    mine = fresh or {one.seed: one.key for one in of if one.variant == variant}
    theirs = {one.seed: one.key for one in of if one.variant == record.baseline}
    shared = mine.keys() & theirs.keys()
    ended = [seed for seed in shared if {mine[seed], theirs[seed]} <= made.trial_records.keys()]
    return len(ended), len(shared)


@pytest.mark.parametrize("kind", HALF_DONE)
def test_a_study_that_is_half_done_has_no_verdict_on_what_still_runs(kind: str) -> None:
    design = {"kind": kind, **HALF_DONE[kind]}

    def stopped(most: int) -> FakeStore:
        return run(
            design,
            on_off("a", "b", "c", "d"),
            lambda settings, _: sum(setting == "off" for setting in settings.values()) * 0.01,
            noise=0.005,
            most=most,
        )

    whole = len(stopped(10**4).trial_records)
    for most in range(2, whole, 3):
        made = stopped(most)
        report = read_study(made, "a_study")
        answer = answer_of(report)
        (verdict,) = (column for column in columns(report) if column.key == "verdict")
        cells = {row.name: verdict.text(row).lines for row in report.variants}
        for group in answer.groups:
            for row in group.rows:
                ended, planned = ended_and_planned(made, row.variant)
                if ended == planned or group.key == "unproven":
                    assert group.key != "waiting"
                    continue
                assert group.key == "waiting"
                assert row.bound is None
                assert row.bound_text == f"{ended}/{planned} seeds"
                assert row.bound_text in cells[row.variant]
                assert not any(f"{row.variant}," in line and "from the baseline on" in line for line in answer.headline)


def test_a_search_names_its_best_point_first_and_whether_fresh_seeds_confirm_it() -> None:
    made = study({"norm": -0.3, "values": 0.2})
    traits = dataclasses.replace(made.record.traits, chooses=True, finds_best=True)
    made.record = dataclasses.replace(made.record, traits=traits)
    first = answered(made).headline[0]
    assert first.startswith("Best of 2 combinations besides the baseline: without the norm, val_loss 2.")
    assert first.endswith("not confirmed on fresh seeds.")
    report = read_study(made, "a_study")
    baseline, norm, values = (dataclasses.replace(row, confirmed=(7, 8), beside=2.5) for row in report.variants)
    fresh = dataclasses.replace(report, variants=(baseline, dataclasses.replace(norm, confirmed=()), values))
    assert re.match(r"The one chosen of 2, without the values, has val_loss 2\.(69|70)", answer_of(fresh).headline[1])
    for seed in range(4):
        made.add("baseline", seed, state=TrialState.DIVERGED)
    assert answered(made).headline[0].startswith("Best of 2 combinations: without the norm, val_loss 2.")


@pytest.mark.parametrize(
    ("effect", "noise", "said"),
    [
        (-5.0, 0.1, r"at least 0\.4\d* better"),
        (-0.5, 0.1, r"at least 0\.0\d* better, perhaps less than the margin 0\.1"),
        (0.0, 0.1, r"as good, at most 0\.0\d* worse"),
        (5.0, 0.1, r"at least 0\.4\d* worse"),
        (1.0, 0.5, "undecided"),
    ],
)
def test_a_search_says_whether_its_best_point_beats_the_baseline_on_fresh_seeds(
    effect: float, noise: float, said: str
) -> None:
    made = study({"norm": MARGIN * effect}, noise=MARGIN * noise)
    traits = dataclasses.replace(made.record.traits, finds_best=True)
    made.record = dataclasses.replace(made.record, traits=traits)
    report = read_study(made, "a_study")
    baseline, found = report.variants
    fresh = dataclasses.replace(found, confirmed=(3000, 3001, 3002, 3003), beside=2.5)
    assert found.difference is not None
    assert found.difference.difference is not None
    first, second = answer_of(dataclasses.replace(report, variants=(baseline, fresh))).headline
    own = f"{2.5 + found.difference.difference:.3f}"
    if effect < 0:
        assert first == "Best of 1 combination besides the baseline: without the norm."
        both = f"On 4 fresh seeds its val_loss is {own}, the baseline's 2.500"
    else:
        assert first == "No combination is shown to beat the baseline."
        both = f"The one chosen of 1, without the norm, has val_loss {own} on 4 fresh seeds, the baseline 2.500"
    assert re.fullmatch(rf"{both}: {said}\.", second), second
    (row,) = answered(made).rows
    level = dataclasses.replace(row, verdict="not worse", bound=0.0, bound_text="≤ 0")
    assert _beats(level, report) == "as good, at most 0 worse"


def test_a_comparison_whose_trials_are_missing_has_no_verdict_yet() -> None:
    made = study(REMOVED)
    for seed in (2, 3):
        del made.trial_records[f"norm=off/{seed}"]
    answer = answered(made)
    (running,) = [group for group in answer.groups if group.key == "waiting"]
    assert [(row.variant, row.bound_text) for row in running.rows] == [("norm=off", "2/4 seeds")]
    assert [step.arguments for step in answer.next] == [("resume", "a_study")]
    assert "norm" not in answer.headline[0]


def test_names_are_explained_in_the_order_of_a_text_where_they_are_whole_words() -> None:
    known = {"gate": "σ(Wx)", "SAS [0, 1]": "no skip", "SAS": "unused"}
    answer = dataclasses.replace(answered(study({"norm": 0.0})), meanings=known)
    assert names_note(answer, "gated, SAS [0, 1] → a gate") == "`SAS`: unused. `SAS [0, 1]`: no skip. `gate`: σ(Wx)."
    assert names_note(answer, "regate, gated, SASP") == ""


@pytest.mark.parametrize(
    ("low", "high", "ends"),
    [(0.2, 1.2, 1.32), (0.2, 1.6, 0.77), (-1.2, 0.2, 1.32)],
    ids=["whole", "more than twice the room", "whole on the other side"],
)
def test_intervals_of_effects_are_whole_where_they_take_at_most_twice_the_room_of_means(
    low: float, high: float, ends: float
) -> None:
    mean = 0.7 if high > 1 else -0.7
    axis = Axis.of_effects(0.05, 1, [Span(mean, low, high), Span(0.0, -0.05, 0.05)], both=True)
    reach = max(axis.high, -axis.low)
    assert reach == pytest.approx(min(ends, max(abs(low), abs(high))))
