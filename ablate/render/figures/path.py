"""The path of `simplify`, what each step costs, what else was tried and what it saves: a figure and a section."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial

from ablate.analysis.answer_rows import in_answer
from ablate.analysis.findings import Findings
from ablate.analysis.numbers import (
    MISSING,
    count,
    decimals_for,
    fixed,
    interval_words,
    listed,
    percent,
    plural,
    times_within,
)
from ablate.analysis.path import Removal, RemovalPath, VariantSummary
from ablate.render.blocks import Block, Grid, Paragraph, Picture, Section
from ablate.render.figures.style import (
    WIDTH,
    Look,
    Palette,
    Spec,
    by_look,
    margin_marks,
    mark,
    names,
    number,
    spread,
    wrapped,
)
from ablate.stats.verdict import removal_word

STEP = "step of the path"
LEAST_NAMED = 150
"""Width of a round in pixels from which the other removals in it have their names."""
WORDS = {"not needed": "could go too", "better": "better without too"}
"""Verdict on a removal that is not a step of the path, in other words."""


def pictures(findings: Findings) -> tuple[Picture, ...]:
    """The figure of a `simplify` study, once a round is complete."""
    path = findings.path
    if path is None or not path.rounds:
        return ()
    worse = "up" if path.direction == "minimize" else "down"
    caption = (
        f"The path of removals. Top: {path.metric} against the baseline at each step, paired by seed, with 90 % "
        "intervals, whose ends are the bounds that decide "
        f"({worse} is worse; dashed: the margin {path.margin:g}). The smaller marks beside each step are the "
        "other removals of that round, by verdict. Bottom: parameters, training FLOP and speed, in per cent of the "
        "baseline's."
    )
    return (Picture("path", caption),)


def removal_outcome(one: Removal) -> str:
    """What became of a removal, in a few words."""
    word = removal_word(one.verdict.word)
    return "removed" if one.on_path else WORDS.get(word, in_answer(word))


def draw_path(path: RemovalPath, palette: Palette, width: float = WIDTH) -> Spec:
    """The differences above, the costs below, a column for each round."""
    labels = ["baseline", *(wrapped(f"− {step.words.removeprefix('the ')}", 16) for step in path.steps)]
    more = "nothing cheaper" if path.rounds and any(one.kept for one in path.rounds[-1]) else "nothing more"
    labels += [more] * (len(path.rounds) - len(path.steps))
    wide = {"width": width - 70}
    upper = {**wide, "height": 210, "layer": _losses(path, labels, palette, named=width / len(labels) >= LEAST_NAMED)}
    if not path.steps:  # nothing is saved
        return {**upper, "autosize": {"type": "fit-x", "contains": "padding"}}
    lower = {**wide, "height": 110, "layer": _costs(path, labels, palette)}
    shared = {"scale": {"color": "independent", "shape": "independent"}}
    return {"vconcat": [upper, lower], "resolve": shared, "autosize": {"type": "fit-x", "contains": "padding"}}


def _losses(path: RemovalPath, labels: list[str], palette: Palette, *, named: bool) -> list[Spec]:
    margin = path.margin if path.direction == "minimize" else -path.margin
    looks = {STEP: Look(palette.look(0).colour, (1, 0), "square")}
    looks |= {
        WORDS.get(word, word): palette.verdict(word) for word in ("better", "not needed", "undecided", "diverged")
    }
    looks[in_answer("needed")] = replace(palette.verdict("needed"), mark="cross")
    steps = {step.standing.variant for step in path.steps}
    rows: list[Spec] = [
        {"name": "baseline", "at": labels[0], "shift": 0.5, "word": STEP, "difference": 0.0, "low": None, "high": None}
    ]
    for column, tried in enumerate(path.rounds, 1):
        others = [one for one in tried if one.standing.variant not in steps]
        for place, one in enumerate(others, 1):
            rows.append(_row(one, labels[column], 0.55 + 0.4 * place / (len(others) + 1), removal_outcome(one)))
    rows += [_row(step, labels[column], 0.5, STEP) for column, step in enumerate(path.steps, 1)]
    lost = [row for row in rows if row["word"] == "diverged"]
    rows = [row for row in rows if row["difference"] is not None and row not in lost]
    found = {word: look for word, look in looks.items() if any(row["word"] == word for row in (*rows, *lost))}
    size = {"condition": {"test": f"datum.word == '{STEP}'", "value": 90}, "value": 60}
    x, y = names("at", labels), number("difference", f"difference of {path.metric}")
    axis = None if path.steps else {**x["axis"], "labelAngle": 0}  # else that of the costs below
    shifted = {"x": {**x, "axis": axis, "scale": {"domain": labels, "type": "band"}},
               "xOffset": {"field": "shift", "type": "quantitative", "scale": {"domain": [0, 1]}}}  # fmt: skip
    tip = [{"field": key, "title": key} for key in ("name", "difference", "low", "high", "word")]
    known = [row for row in rows if (named or row["word"] == STEP) and row["low"] is not None]
    tone, marks = by_look("word", found, "color"), by_look("word", found, "color", "shape")
    return [
        *margin_marks(margin, "y"),
        mark("rule", known, {**shifted, "y": {**y, "field": "low"}, "y2": {"field": "high"}, **tone}, strokeWidth=1.6),
        mark("point", rows, {**shifted, "y": y, **marks, "size": size, "tooltip": tip}),
        *(_named(rows, shifted, y, palette) if named else ()),
        mark("point", lost, {**shifted, "y": {"value": 8}, **marks, "tooltip": tip}, size=45),
    ]


def _named(rows: list[Spec], shifted: Spec, y: Spec, palette: Palette) -> list[Spec]:
    """The names of removals that are no step, beside their marks, in front of the intervals of others."""
    others = [row for row in rows if row["word"] != STEP]
    reach = [end for row in rows for end in (row["low"], row["difference"], row["high"]) if end is not None]
    places = spread([row["difference"] for row in others], 14 * (max(reach) - min(reach)) / 210)
    put = [{**row, "place": place} for row, place in zip(others, places, strict=True)]
    told = {**shifted, "y": {**y, "field": "place"}, "text": {"field": "name"}}
    behind = {"stroke": palette.ground, "strokeWidth": 5, "strokeJoin": "round"}
    return [mark("text", put, told, align="right", dx=-9, **look) for look in (behind, {})]


def _row(one: Removal, label: str, shift: float, word: str) -> Spec:
    paired, ends = one.standing.difference, one.bounds
    bounded = ends is not None and math.isfinite(ends.high - ends.low)
    return {
        "name": one.words, "at": label, "shift": shift, "word": word,
        "difference": paired.difference if paired else None,
        "low": ends.low if ends and bounded else None, "high": ends.high if ends and bounded else None,
    }  # fmt: skip


def _costs(path: RemovalPath, labels: list[str], palette: Palette) -> list[Spec]:
    along = [path.baseline, *(step.standing for step in path.steps)]
    quantities: dict[str, Callable[[VariantSummary], float | None]] = {
        "parameters": lambda one: one.parameters,
        "FLOP": lambda one: one.flops,
        "tokens a second": lambda one: one.tokens_per_second.mean,
    }
    known = {name: of for name, of in quantities.items() if all(of(one) for one in along)}
    rows = [
        {"at": label, "quantity": name, "share": 100 * (of(one) or 0.0) / (of(along[0]) or 1.0)}
        for name, of in known.items()
        for label, one in zip(labels, along, strict=False)
    ]
    looks = {name: palette.look(number) for number, name in enumerate(known)}
    x = names("at", labels, axis={"labelAngle": 0 if len(labels) < 7 else -30, "title": None, "grid": False})
    place = {"x": x, "xOffset": {"field": "quantity", "type": "nominal", "scale": {"domain": [*known]}}}
    y = number("share", "% of the baseline") | {"scale": {"zero": True}}
    return [
        mark("bar", rows, {**place, "y": y, **by_look("quantity", looks, "color")}),
        mark("text", rows, {**place, "y": y, "text": {"field": "share", "format": ".0f"}}, dy=-6, fontSize=9),
        mark("rule", [{}], {"y": {"datum": 100}}, color=palette.grey, strokeWidth=0.8),
    ]


def _path(findings: Findings, palette: Palette) -> Spec:
    assert findings.path is not None
    return draw_path(findings.path, palette)


FIGURES = {"path": _path}


TITLES = ("round", "removal", "from", "parameters", "FLOP", "tokens/s", "difference", "what became of it")


def section(findings: Findings, pictures: Mapping[str, Picture]) -> Section | None:
    """What could go, one after the other."""
    if findings.path is None:
        return None
    return Section("Path", tuple(_blocks(findings.path, pictures)))


def _blocks(path: RemovalPath, pictures: Mapping[str, Picture]) -> Iterator[Block]:
    yield Paragraph(outcome(path))
    if "path" in pictures:
        yield pictures["path"]
    yield Paragraph(
        f"Each round takes one more component from {'the variant' if path.beam == 1 else 'every variant'} kept "
        f"before. A component can be removed if, with 95 % confidence, {path.metric} is at most {path.margin:g} worse "
        "than the baseline's (not than that of the step before: small losses would add up); of these removals, "
        f"{_kept(path)}. Below: an asterisk marks the path; the difference is that of {path.metric} from the baseline, "
        "paired by seed, with its 90 % interval, whose ends are the bounds that decide."
    )
    ends = [one.bounds for tried in path.rounds for one in tried if one.bounds is not None]
    decimals = decimals_for(
        path.margin, [(each.high - each.low) / 2 for each in ends if each.high - each.low < math.inf]
    )
    start = ("0", "baseline", MISSING, *_cost_cells(path.baseline), MISSING, "where it begins")
    groups = [tuple(_cells(n, one, path, decimals) for one in tried) for n, tried in enumerate(path.rounds, 1)]
    yield Grid(TITLES, ((start,), *groups), frozenset({1, 2, len(TITLES) - 1}))
    if path.trying:
        yield Paragraph(f"Round {len(path.rounds) + 1} is not over: results of {', '.join(path.trying)} are missing.")


def outcome(path: RemovalPath) -> str:
    """The parts that can be removed, and the cost that this saves, in sentences."""
    open_ = " so far" if path.trying else ""
    if not path.steps:
        tried = path.rounds[0] if path.rounds else ()
        if tried and all(one.verdict.is_worse for one in tried) and not open_:
            without = "any one of them" if len(tried) > 1 else "it"
            return (
                f"Must stay: {listed([one.words for one in tried])}. Without {without} {path.metric} is worse by more "
                f"than {path.margin:g}, with 95 % confidence{' each' * (len(tried) > 1)}."
            )
        return (
            f"Nothing can be removed{open_}: for no removal is {path.metric} at most {path.margin:g} worse with 95 % "
            f"confidence.{_rest(path)}"
        )
    removed = ", then ".join(step.words for step in path.steps)
    ends = path.confirmed or path.steps
    last, first = ends[-1].standing, path.baseline
    costs = {"parameters": (first.parameters, last.parameters), "FLOP": (first.flops, last.flops)}
    saved = [f"{percent(after / before - 1)} {cost}" for cost, (before, after) in costs.items() if before and after]
    if (speed := times_within(last.relative_speed)) != MISSING:
        saved.append(f"{speed} the tokens a second")
    which = "Together" if len(ends) == len(path.steps) else f"The first {len(ends)} together"
    together = f" {which}: {', '.join(saved)}." if saved else ""  # the costs of the user's own trainer are unknown
    return f"Removable{open_}, in this order: {removed}.{_rest(path)}{together} {confirmation(path)}"


def _rest(path: RemovalPath) -> str:
    """What the last round could not remove, as sentences."""
    tried = path.rounds[-1] if len(path.rounds) > len(path.steps) else ()
    stays = [one.words for one in tried if one.verdict.is_worse]
    unknown = [one.words for one in tried if one.verdict.word == "undecided"]
    said = {"Must stay": stays, "Undecided": unknown}
    return "".join(f" {label}: {listed(words)}." for label, words in said.items() if words)


def confirmation(path: RemovalPath) -> str:
    """Whether fresh seeds confirm the path, in a sentence. Estimates on the seeds that selected it are biased."""
    if not path.confirmations:
        return (
            "No fresh seeds have confirmed this yet. Estimates on the seeds that selected the path are biased, so it "
            "has no verdict."
        )
    seeds = plural(path.confirmations[0].difference.n, "fresh seed")
    if len(path.confirmed) == len(path.steps):
        last = path.confirmations[-1].verdict.reason
        return f"On {seeds} that took no part in the choice the whole path is confirmed: {last}."
    failed = path.confirmations[len(path.confirmed)] if len(path.confirmed) < len(path.confirmations) else None
    why = f" ({path.titles.get(failed.variant, failed.variant)}: {failed.verdict.sentence})" if failed else ""
    held = f"only the first {len(path.confirmed)} of {len(path.steps)}" if path.confirmed else "no"
    are = "steps are" if path.confirmed else "step is"
    return f"On {seeds} that took no part in the choice {held} {are} confirmed{why}."


def _kept(path: RemovalPath) -> str:
    if path.beam == 1:
        return f"the one with the fewest {_cost(path)} is kept"
    return f"up to {path.beam} with the fewest {_cost(path)} are kept"


def _cost(path: RemovalPath) -> str:
    return {"flops": "FLOP"}.get(path.cost, path.cost)


def _cells(number: int, one: Removal, path: RemovalPath, decimals: int) -> tuple[str, ...]:
    difference, paired = MISSING, one.standing.difference
    if paired and one.verdict.word != "diverged":
        write = partial(fixed, decimals=decimals, sign=True)
        difference = write(paired.difference) if paired.difference is not None else MISSING
        difference += f" ({interval_words(one.bounds.low, one.bounds.high, write)})" if one.bounds else ""
    removal = one.words + (" *" if one.on_path else "")
    parent = path.titles.get(one.parent, one.parent)
    return str(number), removal, parent, *_cost_cells(one.standing), difference, one.reason


def _cost_cells(standing: VariantSummary) -> tuple[str, str, str]:
    flops, speed = standing.flops, standing.tokens_per_second.mean
    return (
        MISSING if standing.parameters is None else f"{standing.parameters:,}",
        MISSING if flops is None else f"{flops:.3g}",
        MISSING if speed is None else count(round(speed)),
    )
