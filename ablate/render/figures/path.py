"""The path of `simplify`, what each step costs, what else was tried and what it saves: a figure and a section."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from ablate.analysis.answer_rows import in_answer
from ablate.analysis.findings import Findings
from ablate.analysis.judging import deciding_bounds
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
from ablate.analysis.rows import SELECTED
from ablate.render.blocks import Block, Grid, Paragraph, Picture, Section
from ablate.render.figures.style import (
    WIDTH,
    Look,
    Palette,
    Spec,
    by_look,
    layers,
    margin_marks,
    mark,
    names,
    number,
    wrapped,
)
from ablate.stats import Bounds
from ablate.stats.verdict import removal_word

CHOICE, FRESH = "seeds that chose the path", "fresh seeds"
WORDS = {"not needed": "could go too", "better": "better without too"}
"""Verdict on a removal that is not a step of the path, in other words."""
LETTER = 6.5
"""Width of a letter in pixels."""


def pictures(findings: Findings) -> tuple[Picture, ...]:
    """The figure of a `simplify` study, once something could go."""
    path = findings.path
    if path is None or not path.steps:
        return ()
    worse = "up" if path.direction == "minimize" else "down"
    caption = (
        f"The path of removals: {path.metric} against the baseline at each step, paired by seed, with the 95 % bounds "
        f"that decide ({worse} is worse; dashed: the margin {path.margin:g})."
    )
    return (Picture("path", caption),)


def removal_outcome(one: Removal, path: RemovalPath) -> tuple[str, str]:
    """What became of a removal, in a word or two, and the verdict as which it is drawn."""
    word = removal_word(one.verdict.word)
    if one in path.confirmed:
        return "confirmed", word
    return ("chosen", SELECTED) if one.on_path else (WORDS.get(word, in_answer(word)), word)


def draw_path(path: RemovalPath, palette: Palette, width: float = WIDTH) -> Spec:
    """The differences of the steps, on the seeds that chose them and on fresh ones."""
    room = (width - 70) / (len(path.steps) + 1)
    labels = ["baseline"]
    labels += [f"− {wrapped(step.words.removeprefix('the '), int(room / LETTER) - 2)}" for step in path.steps]
    return layers([*_losses(path, labels, palette)], 200)


def _losses(path: RemovalPath, labels: list[str], palette: Palette) -> list[Spec]:
    margin = path.margin if path.direction == "minimize" else -path.margin
    rows: list[Spec] = [{"name": "baseline", "at": labels[0], "seeds": CHOICE, "shift": 0.5, "difference": 0.0}]
    for step, label in zip(path.steps, labels[1:], strict=True):
        paired = step.standing.difference
        told = {"name": step.words, "at": label, "seeds": CHOICE, "shift": 0.4 if path.confirmations else 0.5}
        rows.append({**told, "difference": paired.difference if paired else None, **_ends(step.bounds)})
    for one, step, label in zip(path.confirmations, path.steps, labels[1:], strict=False):
        told = {"name": step.words, "at": label, "seeds": FRESH, "shift": 0.6}
        ends = deciding_bounds(one.verdict, path.direction)
        rows.append({**told, "difference": one.difference.difference, **_ends(ends)})
    rows = [row for row in rows if row["difference"] is not None]
    looks = {CHOICE: Look(palette.grey, (1, 0), "square"), FRESH: Look(palette.look(0).colour, (1, 0), "circle")}
    found = {seeds: look for seeds, look in looks.items() if any(row["seeds"] == seeds for row in rows)}
    x, y = names("at", labels), number("difference", f"difference of {path.metric}", axis={"tickCount": 5})
    beside = {"labelAngle": 0, "labelOverlap": False, "title": None, "grid": False}
    shifted = {"x": {**x, "axis": beside, "scale": {"domain": labels, "type": "band"}},
               "xOffset": {"field": "shift", "type": "quantitative", "scale": {"domain": [0, 1]}}}  # fmt: skip
    tip = [{"field": key, "title": key} for key in ("name", "seeds", "difference", "low", "high")]
    known = [row for row in rows if row.get("low") is not None]
    tone = by_look("seeds", found, "color")
    return [
        *margin_marks(margin, "y"),
        mark("rule", known, {**shifted, "y": {**y, "field": "low"}, "y2": {"field": "high"}, **tone}, strokeWidth=2),
        mark("point", rows, {**shifted, "y": y, **by_look("seeds", found, "color", "shape"), "tooltip": tip}, size=90),
    ]


def _ends(bounds: Bounds | None) -> Spec:
    known = bounds is not None and math.isfinite(bounds.high - bounds.low)
    return {"low": bounds.low if bounds and known else None, "high": bounds.high if bounds and known else None}


def _path(findings: Findings, palette: Palette, width: float) -> Spec:
    assert findings.path is not None
    return draw_path(findings.path, palette, width)


FIGURES = {"path": _path}


TITLES = ("round", "removal", "from", "parameters", "FLOP", "tokens/s", "difference", "what became of it")


def section(findings: Findings, pictures: Mapping[str, Picture]) -> Section | None:
    """What could go, one after the other."""
    if findings.path is None:
        return None
    return Section("Path", tuple(_blocks(findings.path, pictures)))


def _blocks(path: RemovalPath, pictures: Mapping[str, Picture]) -> Iterator[Block]:
    yield Paragraph(" ".join(outcome(path)))
    if "path" in pictures:
        yield pictures["path"]
    yield Paragraph(
        f"Each round takes one more component from {'the variant' if path.beam == 1 else 'every variant'} kept "
        f"before. A component can be removed if, with 95 % confidence, {path.metric} is at most {path.margin:g} worse "
        "than the baseline's (not than that of the step before: small losses would add up); of these removals, "
        f"{_kept(path)}. Below: an asterisk marks the path; the difference is that of {path.metric} from the baseline, "
        "paired by seed, with the 95 % bounds that decide."
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


def outcome(path: RemovalPath) -> tuple[str, ...]:
    """The parts that can be removed, and the cost that this saves, in sentences; the first one is the most certain."""
    open_ = " so far" if path.trying else ""
    if not path.steps:
        tried = path.rounds[0] if path.rounds else ()
        if tried and all(one.verdict.is_worse for one in tried) and not open_:
            without = "any one of them" if len(tried) > 1 else "it"
            return (
                f"Must stay: {listed([one.words for one in tried])}.",
                f"Without {without} {path.metric} is worse by more than {path.margin:g}, with 95 % "
                f"confidence{' each' * (len(tried) > 1)}.",
            )
        return (
            f"Nothing can be removed{open_}: for no removal is {path.metric} at most {path.margin:g} worse with 95 % "
            "confidence.",
            *_rest(path),
        )
    known, open_steps = path.confirmed, path.steps[len(path.confirmed) :]
    seeds = plural(path.confirmations[0].difference.n, "fresh seed") if path.confirmations else "fresh seeds"
    said = []
    if known:
        sentence = path.confirmations[len(known) - 1].verdict.sentence
        words = f"{_in_order(known)} can go{open_} ({sentence.partition(': ')[2] or sentence})"
        said += [f"Confirmed on {seeds}: {words}.", *_saved(path, known[-1].standing)]
    if open_steps:
        begin = "Next, not confirmed" if known else f"Chosen{open_}, not confirmed on {seeds}"
        said.append(f"{begin}: {_in_order(open_steps)}{_why(path)}.")
    if not known:
        said += _saved(path, path.steps[-1].standing)
    if not path.confirmations:
        said.append("The seeds that chose these flatter them, so they have no verdict.")
    return (*said, *_rest(path))


def _in_order(steps: Sequence[Removal]) -> str:
    return ", then ".join(step.words for step in steps) + "," * (len(steps) > 1)


def _why(path: RemovalPath) -> str:
    """Why fresh seeds do not confirm the first step that they do not, in brackets; empty if none have ended."""
    failed = path.confirmations[len(path.confirmed) :]
    return f" ({failed[0].verdict.sentence})" if failed else ""


def _saved(path: RemovalPath, last: VariantSummary) -> Iterator[str]:
    """What the path up to a variant saves, as a sentence; none where costs are unknown (of the user's own trainer)."""
    first = path.baseline
    costs = {"parameters": (first.parameters, last.parameters), "FLOP": (first.flops, last.flops)}
    saved = [
        f"{percent(after / before - 1).replace('%', ' %')} {cost}"
        for cost, (before, after) in costs.items()
        if before and after
    ]
    if (speed := times_within(last.relative_speed)) != MISSING:
        saved.append(f"{speed} the tokens a second")
    if saved:
        yield f"Cost beside the baseline: {', '.join(saved)}."


def _rest(path: RemovalPath) -> Iterator[str]:
    """What the last round could not remove, as sentences."""
    tried = path.rounds[-1] if len(path.rounds) > len(path.steps) else ()
    stays = [one.words for one in tried if one.verdict.is_worse]
    unknown = [one.words for one in tried if one.verdict.word == "undecided"]
    after = "After that, " if path.steps else ""
    for label, words in {"must stay": stays, "undecided": unknown}.items():
        if words:
            yield f"{after}{label if after else label.capitalize()}: {listed(words)}."
            after = after and "Still "


def _kept(path: RemovalPath) -> str:
    if path.beam == 1:
        return f"the one with the fewest {_cost(path)} is kept"
    return f"up to {path.beam} with the fewest {_cost(path)} are kept"


def _cost(path: RemovalPath) -> str:
    return {"flops": "FLOP"}.get(path.cost, path.cost)


def _cells(number: int, one: Removal, path: RemovalPath, decimals: int) -> tuple[str, ...]:
    difference, paired = MISSING, one.standing.difference
    if paired and one.verdict.word != "diverged":
        difference, ends = fixed(paired.difference, decimals, sign=True), one.bounds
        difference += f" ({interval_words(ends.low, ends.high, path.margin, decimals)})" if ends else ""
    removal = one.words + (" *" if one.on_path else "")
    parent = path.titles.get(one.parent, one.parent)
    return str(number), removal, parent, *_cost_cells(one.standing), difference, one.reason


def _cost_cells(standing: VariantSummary) -> tuple[str, str, str]:
    flops, speed = standing.flops, standing.tokens_per_second.mean
    return (
        MISSING if standing.parameters is None else f"{standing.parameters:,}",
        MISSING if flops is None else count(round(flops)),
        MISSING if speed is None else count(round(speed)),
    )
