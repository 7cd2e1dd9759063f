"""Effects of switches, pairs of settings and importances: figures, and sections of a report."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from ablate.analysis.changes import setting_titles
from ablate.analysis.effects import NO_REPLACEMENT, EffectRow, StudyEffects, StudyImportances
from ablate.analysis.findings import Findings
from ablate.analysis.numbers import MISSING, decimals_for, fixed, interval_words, plural
from ablate.render.blocks import Block, Grid, Paragraph, Picture, Section
from ablate.render.figures.style import (
    FONT,
    LETTER,
    PANEL_NAME,
    PANEL_TITLE,
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
from ablate.stats import Importance, Interval

MOST_ROWS = 40
"""Main effects that are drawn at most, and interactions on a page, the largest first; the table has all."""
MOST_DRAWN = 12
"""Interactions in a report."""
NAME = 48
"""Characters of a name on one line."""
MOST_CELLS = 40
"""Settings on each side of the heat map on a page; of more none is drawn."""
MOST_PRINTED = 16
"""The same in a report."""
LEAST_CELL = 80
"""Pixels of a column below which what its cells say is smaller."""
LEAST_PRINTED, NAMES = 46, 140
"""Pixels of a cell of a page that hold a number, and pixels of the names beside the cells."""
TOGETHER = "interactions and noise"
"""What no switch explains by itself."""

Trial = tuple[Mapping[str, bool], float]
"""Whether the setting of each main effect is active in a trial, without those of a third setting; and its objective."""
SIDES: dict[str, Callable[[Palette], Look]] = {
    "worse": lambda palette: palette.verdict("worse"),
    "better": lambda palette: palette.verdict("better"),
    "worse than the sum": lambda palette: replace(palette.verdict("worse"), mark="triangle-right"),
    "better than the sum": lambda palette: replace(palette.verdict("better"), mark="triangle-left"),
    "as good": lambda palette: palette.verdict("not worse"),
    "within": lambda palette: palette.verdict("not worse"),
    NO_REPLACEMENT: lambda palette: palette.verdict("not worse"),
    "undecided": lambda palette: palette.verdict("undecided"),
}
"""What is known of an effect, to how it is drawn."""


def pictures(findings: Findings) -> Iterator[Picture]:
    """The figures of a study that crosses its switches."""
    fitted = findings.report.effects
    if fitted is not None:
        worse = "right" if fitted.direction == "minimize" else "left"
        left_out = len(fitted.interactions) - MOST_DRAWN
        rest = f" The {left_out} smallest interactions are left out." if left_out > 0 else ""
        yield Picture(
            "effects",
            f"Effects on {fitted.metric} with 95 % intervals: main effects, then interactions; further {worse} is "
            f"worse. Dashed: the margin {fitted.margin:g} on either side.{rest}",
        )
        if draws_pairs(fitted) and len(fitted.main) <= MOST_PRINTED:
            yield Picture("interactions", how_to_read_pairs(fitted))
    if findings.importances is not None:
        yield Picture(
            "importances",
            f"Share of the variance of {findings.report.metric} that each switch or axis explains by itself (fANOVA), "
            "with the interval of the share without noise; hollow: what they do together, and noise.",
        )


def with_aliases(row: EffectRow, effects: StudyEffects) -> str:
    """An effect with its aliases, in words."""
    return " + ".join(effects.titles[name] for name in (row.name, *row.aliases))


def draw_effects(effects: StudyEffects, palette: Palette, most: int = MOST_ROWS, name: int = NAME) -> Spec:
    """A row for each main effect, then for each of the largest interactions; dashed lines are the margin.

    Args:
        most: Interactions that are drawn.
        name: Characters of a name on one line.
    """
    split = min(len(effects.main), MOST_ROWS)
    rows = [
        {
            "name": "\n+ ".join(wrapped(effects.titles[one], name) for one in (row.name, *row.aliases)),
            "effect": with_aliases(row, effects),
            "estimate": row.estimate,
            "low": row.low,
            "high": row.high,
            "side": effects.finding(row),
        }
        for row in (*effects.ranked(effects.main)[:split], *effects.ranked(effects.interactions)[:most])
    ]
    found: dict[str, Look] = {
        side: look(palette) for side, look in SIDES.items() if any(row["side"] == side for row in rows)
    }
    y, x = names("name", [str(row["name"]) for row in rows]), number("estimate", _title(effects))
    known = [row for row in rows if row["low"] is not None]
    tip = [{"field": key, "title": key} for key in ("effect", "estimate", "low", "high")]
    step = max(22, 13 * max((str(row["name"]).count("\n") + 1 for row in rows), default=1) + 4)
    between = mark("rule", [{}], {"y": {"value": step * split}}, color=palette.faint, strokeWidth=2)
    return layers(
        [
            *margin_marks(effects.margin, "x"),
            mark("rule", [{}], {"x": {"datum": -effects.margin}}, strokeDash=[4, 3]),
            between if 0 < split < len(rows) else None,
            mark("rule", known, {"x": {**x, "field": "low"}, "x2": {"field": "high"}, "y": y,
                                 **by_look("side", found, "color")}, strokeWidth=2),
            mark("point", rows, {"x": x, "y": y, **by_look("side", found, "color", "shape"), "tooltip": tip}, size=75),
        ],
        step * len(rows),
    )  # fmt: skip


def _title(effects: StudyEffects) -> str:
    better = "lower" if effects.direction == "minimize" else "higher"
    return f"change of {effects.metric}\n({better} is better)"


def draws_pairs(effects: StudyEffects) -> bool:
    """Whether a heat map says anything: it has pairs, and no cell would be that of two effects."""
    return bool(effects.interactions) and not any(row.aliases for row in (*effects.main, *effects.interactions))


def draw_pairs(effects: StudyEffects, palette: Palette, width: float = WIDTH) -> Spec:
    """The heat map: main effects on the diagonal, interactions below it; blue better, orange worse, none undecided.

    Args:
        width: Where it is shown, which decides whether names below it are slanted.
    """
    labels = [wrapped(effects.titles[row.name], PANEL_NAME) for row in effects.main]
    found = {_cell_of(effects, row.name): row for row in (*effects.main, *effects.interactions)}
    most = max((abs(row.estimate) for row in found.values()), default=1.0) or 1.0
    decimals = decimals_for(effects.margin, [])
    printed = len(labels) <= MOST_PRINTED and (width == WIDTH or (width - NAMES) / len(labels) >= LEAST_PRINTED)
    cells = []
    for line in range(len(labels)):
        for column in range(line + 1):
            row = found.get((column, line))
            side = "" if row is None else effects.side(row)
            text = fixed(row.estimate, decimals, sign=True) + "?" * (side == "undecided") if row else MISSING
            cells.append(
                {
                    "line": labels[line],
                    "column": labels[column],
                    "change": None if row is None else row.estimate,
                    "low": None if row is None else row.low,
                    "high": None if row is None else row.high,
                    "side": side,
                    "text": text if printed else "",
                    "effect": "not estimable" if row is None else effects.titles[row.name],
                    "strong": row is not None and side != "undecided" and abs(row.estimate) > 0.55 * most,
                }
            )
    open_ = [cell for cell in cells if cell["side"] in ("", "undecided")]
    known = [cell for cell in cells if cell not in open_]
    light, (better, worse) = Palette(), (Palette().verdict(word).colour for word in ("better", "needed"))
    middle, ends = light.faint if not palette.dark else "#1a222c", [better, worse]
    if effects.direction == "maximize":
        ends.reverse()
    domain = {"domain": [-most, 0, most], "range": [ends[0], middle, ends[1]], "type": "linear"}
    longest = LETTER * max((len(line) for label in labels for line in label.split("\n")), default=0)
    angle = 0 if (width - longest - 20) / len(labels) > longest else -35
    whole = {"labelOverlap": False, "labelBound": False}  # no name is left out
    x = names("column", labels, axis={"orient": "bottom", "labelAngle": angle, "title": None, "grid": False, **whole})
    y = names("line", labels)
    legend = {"title": _title(effects).split("\n"), "orient": "bottom", "gradientLength": 200, "titleLimit": 400}
    colour = {"field": "change", "type": "quantitative", "scale": domain, "legend": legend}
    ink = {"condition": {"test": "datum.strong", "value": "white"}, "value": palette.ink}
    tip = [{"field": key, "title": key} for key in ("effect", "change", "low", "high", "side")]
    return layers(
        [
            mark("rect", open_, {"x": x, "y": y, "tooltip": tip}, color="transparent", stroke=palette.grey,
                 strokeDash=[3, 3]) if open_ else None,
            mark("rect", known, {"x": x, "y": y, "color": colour, "tooltip": tip}, stroke=palette.faint)
            if known else None,
            mark("text", cells, {"x": x, "y": y, "text": {"field": "text"}, "color": ink},
                 fontSize=11 if width / len(labels) > LEAST_CELL else 8.5),
        ],
        30 * len(labels),
    )  # fmt: skip


def _cell_of(effects: StudyEffects, name: str) -> tuple[int, int] | None:
    """The places of the settings of an effect on the heat map; None if it has more than two, or one without a place."""
    places = {row.name: place for place, row in enumerate(effects.main)}
    of = sorted(places.get(one, -1) for one in name.split(":"))
    return None if of[0] < 0 or len(of) > 2 else (of[0], of[-1])


MOST_MEANS = 6
"""Pairs whose four means are drawn."""
LEAST_MEANS = 300
"""Pixels of a panel of means."""
DODGE = 4
"""Pixels by which the two lines of a pair are moved aside, so that their intervals do not cover each other."""
SUM = "sum of both"
"""The fourth mean of a pair as it would be without an interaction."""


def draw_means(
    effects: StudyEffects,
    means: Mapping[str, Mapping[tuple[bool, ...], Interval]],
    palette: Palette,
    width: float = WIDTH,
) -> Spec:
    """A panel for each pair with the mean of each of its four combinations: two lines, parallel if nothing interacts.

    Args:
        means: Name of an interaction to its means, as `setting_means` gives them.
        width: Of the figure in pixels.
    """
    shown = [row for row in effects.interactions if row.name in means]
    panels, columns = [], max(1, min(int(width // LEAST_MEANS), len(shown)))
    ends = [end for of in means.values() for one in of.values() for end in (one.mean, one.low, one.high)]
    ends += [(means[row.name][True, True].mean or 0.0) - row.estimate for row in shown]
    known = [end for end in ends if end is not None]
    room = 0.04 * (max(known) - min(known)) or 1.0
    for row in effects.ranked(shown):
        first, second = (settings_in_words(name) for name in effects.titles[row.name].split(" × "))
        of = means[row.name]
        rows: list[Spec] = [
            {"x": first[active[0]], "line": second[active[1]], "mean": one.mean, "low": one.low, "high": one.high}
            for active, one in sorted(of.items())
        ]
        added: list[Spec] = [{"x": first[True], "line": SUM, "mean": (of[True, True].mean or 0.0) - row.estimate}]
        looks = {
            second[False]: palette.look(0),
            second[True]: palette.look(1),
            SUM: Look(palette.ink, (2, 3), "circle"),
        }
        x = names("x", first, axis={"labelAngle": 0, "title": None, "grid": False, "labelOverlap": False})
        y = number(
            "mean", f"mean {effects.metric}", domain=(min(known) - room, max(known) + room), axis={"tickCount": 5}
        )
        size = {"width": width / columns - 55, "height": 190 if columns > 1 else 150}
        legend: Spec = {
            "columns": 2 if 70 + 9.5 * max(map(len, second)) < size["width"] else 1,
            "orient": "top",
            "symbolType": "stroke",
            "symbolSize": 300,
            "symbolStrokeWidth": 2,
        }
        tone = by_look("line", looks, "color", "strokeDash", **legend)
        plain = {"color": tone["color"]}
        beside = [{**rows[1], "line": SUM}, *added]  # from where the second alone is active
        below = [f"{effects.finding(row)}: {_signed(row, effects)} beyond the sum"]
        for name in row.aliases:
            below += wrapped(f"together with {effects.parts(name)}", 60).split("\n")
        drawn = [mark("line", beside, {"x": x, "y": y, **tone}, strokeWidth=1.5, xOffset=DODGE)]
        for line, aside in zip(second, (-DODGE, DODGE), strict=True):
            own = [one for one in rows if one["line"] == line]
            drawn += [
                mark("rule", [one for one in own if one["low"] is not None],
                     {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}, **plain}, strokeWidth=2,
                     xOffset=aside),
                mark("line", own, {"x": x, "y": y, **tone}, strokeWidth=2, xOffset=aside),
                mark("point", own, {"x": x, "y": y, **plain}, size=55, xOffset=aside),
            ]  # fmt: skip
            if len(shown) == 1:
                texts = [one | {"text": fixed(one["mean"], decimals_for(effects.margin, []))} for one in own]
                drawn += [
                    mark("text", [text], {"x": x, "y": y, "text": {"field": "text"}, **plain}, align=align,
                         dx=2.5 * side * DODGE, xOffset=aside)
                    for text, align, side in zip(texts, ("right", "left"), (-1, 1), strict=True)
                ]  # fmt: skip
        drawn.append(mark("point", added, {"x": x, "y": y}, size=55, filled=False, color=palette.ink, xOffset=DODGE))
        look = {"subtitleFont": FONT, "subtitleFontSize": 11, "subtitleColor": palette.ink, "offset": 8}
        title = {"text": effects.parts(row.name), "subtitle": below, **look, **PANEL_TITLE}
        panels.append({"title": title, **size, "layer": drawn})
    resolved = dict.fromkeys(("color", "strokeDash"), "independent")
    return {"concat": panels, "columns": columns, "spacing": 28, "resolve": {"scale": resolved, "legend": resolved}}


MOST_SIDES = 6
"""Main effects whose trials are drawn."""
LEAST_SIDES = 160
"""Pixels of a panel of two sides."""


def draw_sides(effects: StudyEffects, trials: Sequence[Trial], palette: Palette, width: float = WIDTH) -> Spec:
    """A panel for each main effect with every trial on one of two sides, and a line from mean to mean: the effect.

    The trials are in the colours of the sides of the first effect if that is decided.

    Args:
        trials: The settings that are active in each, with its objective.
        width: Of the figure in pixels.
    """
    rows = effects.ranked(effects.main)[:MOST_SIDES]
    columns = max(1, min(len(rows), int(width // LEAST_SIDES)))
    columns = math.ceil(len(rows) / math.ceil(len(rows) / columns))
    first, decided = rows[0].name, effects.side(rows[0]) != "undecided"
    tones = settings_in_words(effects.titles[first])
    looks = {tones[active]: palette.look(active) for active in (False, True)} if decided else {"": palette.look(0)}
    ends = [value for _, value in trials]
    room = 0.04 * (max(ends) - min(ends)) or 1.0
    panels = []
    for place, row in enumerate(rows):
        words = ("with", "without") if effects.removes(row) else settings_in_words(effects.titles[row.name])
        sides = [wrapped(word, 16) for word in words]
        values: list[Spec] = [
            {"side": sides[active[row.name]], "value": value, "of": tones[active[first]] if decided else "",
             "aside": 5 * (2 * active[first] - 1) * decided}
            for active, value in trials if row.name in active and first in active
        ]  # fmt: skip
        x = names("side", sides, axis={"labelAngle": 0, "title": None, "grid": False, "labelOverlap": False})
        axis: Spec = {"tickCount": 5} if place % columns == 0 else {"labels": False, "ticks": False, "domain": False}
        title = effects.metric if place % columns == 0 else None
        y = number("value", title, domain=(min(ends) - room, max(ends) + room), axis={"tickCount": 5, **axis})
        tone = by_look("of", looks, "color", "shape", legend=decided, orient="top")
        named = f"{wrapped(effects.parts(row.name), PANEL_NAME, ' ')}\n{effects.finding(row)}: {_signed(row, effects)}"
        drawn, means = list[Spec](), _means(values)
        for aside in sorted({one["aside"] for one in values}):
            own = [one for one in values if one["aside"] == aside]
            drawn.append(mark("point", own, {"x": x, "y": y, **tone}, size=45, xOffset=aside))
            if decided and place:
                drawn.append(
                    mark(
                        "line",
                        _means(own),
                        {"x": x, "y": y, "color": tone["color"]},
                        strokeWidth=1.6,
                        strokeDash=[3, 3],
                        xOffset=aside,
                    )
                )
        drawn += [
            mark("line", means, {"x": x, "y": y}, color=palette.ink, strokeWidth=2),
            mark("tick", means, {"x": x, "y": y}, color=palette.ink, thickness=3, width=26),
        ]  # fmt: skip
        size = {"width": (width - 60) / columns - 12, "height": 150}
        panels.append({"title": {"text": named.split("\n"), **PANEL_TITLE}, **size, "layer": drawn})
    return {"concat": panels, "columns": columns}


def _means(trials: Sequence[Spec]) -> list[Spec]:
    """The mean on each side, with the group of the first trial."""
    by_side: dict[str, list[float]] = {}
    for one in trials:
        by_side.setdefault(one["side"], []).append(one["value"])
    return [{"side": side, "value": fmean(of), "of": trials[0]["of"]} for side, of in by_side.items()]


def how_to_read_sides(effects: StudyEffects) -> str:
    """What the panels of trials are, in a sentence."""
    left_out = len(effects.main) - MOST_SIDES
    rest = f" Left out: {plural(left_out, 'further change')}." if left_out > 0 else ""
    decided = effects.side(effects.ranked(effects.main)[0]) != "undecided"
    dotted = " Dotted: the same for each colour." * (decided and len(effects.main) > 1)
    return f"Each point is a trial; the line joins the means of both sides, whose difference is the Δ.{dotted}{rest}"


def changes_by_first(effects: StudyEffects, trials: Sequence[Trial]) -> str:
    """What the other changes do with each setting of the first effect, in a sentence; empty if that is undecided."""
    first, *others = effects.ranked(effects.main)[:MOST_SIDES]
    if not others or effects.side(first) == "undecided":
        return ""
    said = []
    for active, words in enumerate(settings_in_words(effects.titles[first.name])):
        changes = []
        for row in others:
            of = [
                [value for on, value in trials if on.get(first.name) == bool(active) and on.get(row.name) == changed]
                for changed in (False, True)
            ]
            if not all(of):
                return ""
            change = fixed(fmean(of[True]) - fmean(of[False]), decimals_for(effects.margin, []), sign=True)
            changes.append(f"{effects.titles[row.name]} {change}")
        said.append(f"{words}: {', '.join(changes)}")
    return f"Change of the mean {effects.metric} {'; '.join(said)}. These means are no verdicts."


def settings_in_words(title: str) -> tuple[str, str]:
    """The two settings between which an effect is the change, from its title: `with X` and `no X`, or the two kinds."""
    old, arrow, new = title.partition(" → ")
    if arrow:
        return old, new
    if title.startswith("no "):
        return f"with {title.removeprefix('no ')}", title
    return (f"no {title.removeprefix('with ')}" if title.startswith("with ") else "as in the baseline"), title


def _signed(row: EffectRow, effects: StudyEffects) -> str:
    return fixed(row.estimate, decimals_for(effects.margin, []), sign=True)


def how_to_read_means(effects: StudyEffects, means: Mapping[tuple[bool, ...], Interval]) -> str:
    """What the panels of means, such as these, are, in sentences."""
    seeds = max(one.n for one in means.values())
    mixed = any(row.aliases for row in effects.interactions)
    told = "A gap may come from either pair of a sum" if mixed else "Parallel lines: no interaction"
    return (
        f"{told}. Ring: where the pink point would be if the two changes only added up; Δ: pink "
        f"minus ring. Points: mean {effects.metric}"
        + " over the other switches" * (len(effects.main) > 2)
        + f", with 95 % intervals over {plural(seeds, 'seed')}."
    )


def how_to_read_pairs(effects: StudyEffects) -> str:
    """What the cells of the heat map are, in sentences."""
    said = (
        f"On the diagonal, how much each setting changes {effects.metric} on average; below it, how much two together "
        "change it beyond the sum. A question mark and no colour: undecided."
    )
    pairs = len(effects.main) * (len(effects.main) + 1) // 2
    known = len(effects.main) + len(effects.interactions)
    return said + (" A hyphen: not estimable from these trials." if known < pairs else "")


def draw_importances(importances: StudyImportances, metric: str, palette: Palette, width: float = WIDTH) -> Spec:
    """A bar for each switch and axis, the most important first, and a hollow one for the rest.

    The interval has a rim of the ground, by which it stands out in its bar; the share stands behind both.

    Args:
        width: Of the figure in pixels.
    """
    titles = setting_titles(factor.factor for factor in importances.factors)
    rows: list[Spec] = [
        {"name": wrapped(titles[factor.factor], round(NAME * width / WIDTH / 1.4)), "share": 100 * factor.share,
         "text": _percent(factor.share) + ("" if factor.low is None else f" ({_range(factor)})"),
         "low": None if factor.low is None else 100 * factor.low,
         "high": None if factor.high is None else 100 * factor.high,
         "end": 100 * max(factor.share, factor.high or 0.0)}
        for factor in importances.factors
    ]  # fmt: skip
    rest = {"name": TOGETHER, "share": 100 * importances.rest, "text": _percent(importances.rest),
            "end": 100 * importances.rest}  # fmt: skip
    furthest = max(row["end"] for row in (*rows, rest))
    step = next((step for step in (1, 2, 5, 10) if furthest <= 6 * step), 20)
    marks = {"values": [*range(0, min(100, math.ceil(furthest)) + 1, step)]}  # what is beyond has room for words
    beside, behind = (
        LETTER * max(len(line) for row in (*rows, rest) for line in str(row[key]).split("\n")) + 20
        for key in ("name", "text")
    )
    end = furthest * (width - beside) / max(width - beside - behind, 1.0)
    title = "share of the variance (%)"
    x = number("share", title, domain=(0, end or 1), axis=marks)
    y = names("name", [str(row["name"]) for row in (*rows, rest)])
    tip = [{"field": key, "title": key} for key in ("name", "share", "low", "high")]
    known = [row for row in rows if row["low"] is not None and row["high"] is not None]
    ends = {"x": {**x, "field": "low"}, "x2": {"field": "high"}, "y": y}
    colour = palette.look(0).colour
    return layers(
        [
            mark("bar", rows, {"x": x, "y": y, "tooltip": tip}, color=colour, height={"band": 0.6}),
            mark("bar", [rest], {"x": x, "y": y, "tooltip": tip}, color="transparent", stroke=palette.ink,
                 strokeDash=[3, 2], height={"band": 0.6}),
            *(
                one
                for ink, rim in ((palette.ground, 3), (palette.ink, 0))
                for one in (
                    mark("rule", known, ends, strokeWidth=2 + rim, color=ink),
                    *(mark("tick", known, {"x": {**x, "field": end}, "y": y}, size=10 + rim,
                           thickness=2 + rim, color=ink) for end in ("low", "high")),
                )
            ),
            mark("text", [*rows, rest], {"x": {**x, "field": "end"}, "y": y, "text": {"field": "text"}}, align="left",
                 dx=6),
        ],
        26 * (len(rows) + 1),
    )  # fmt: skip


def _effects(findings: Findings, palette: Palette, width: float) -> Spec:
    assert findings.report.effects is not None
    return draw_effects(findings.report.effects, palette, MOST_DRAWN, round(NAME * width / WIDTH))


def _pairs(findings: Findings, palette: Palette, width: float) -> Spec:
    assert findings.report.effects is not None
    return draw_pairs(findings.report.effects, palette, width)


def _importances(findings: Findings, palette: Palette, width: float) -> Spec:
    assert findings.importances is not None
    return draw_importances(findings.importances, findings.report.metric, palette, width)


FIGURES = {"effects": _effects, "interactions": _pairs, "importances": _importances}


MOST_LISTED = 20
"""Interactions that the table shows, the largest ones."""
MOST_UNSEEN = 8


def section(findings: Findings, pictures: Mapping[str, Picture]) -> Section | None:
    """What each switch does on average over the others."""
    if findings.report.effects is None:
        return None
    return Section("Effects", tuple(_blocks(findings.report.effects, pictures)))


def _blocks(effects: StudyEffects, pictures: Mapping[str, Picture]) -> Iterator[Block]:
    yield Paragraph(how_to_read(effects))
    yield from (pictures[name] for name in ("effects", "interactions") if name in pictures)
    rows = (*effects.main, *effects.interactions)
    decimals = decimals_for(
        effects.margin, [(row.high - row.low) / 2 for row in rows if row.low is not None and row.high]
    )
    main, largest = effects.ranked(effects.main), effects.ranked(effects.interactions)[:MOST_LISTED]
    aliased = any(row.aliases for row in rows)
    titles = ("effect", "change", "95 % interval", *(("aliased with",) if aliased else ()))
    groups = tuple(
        tuple(_cells(row, effects, decimals)[: len(titles)] for row in group) for group in (main, largest) if group
    )
    yield Grid(titles, groups, frozenset({0, 3}) & frozenset(range(len(titles))), fold="In numbers")
    if rest := what_is_left(effects, len(largest)):
        yield Paragraph(rest)


def how_to_read(effects: StudyEffects) -> str:
    """What the numbers are, in sentences."""
    worse = "above" if effects.direction == "minimize" else "below"
    said = f"No effect is clear yet: {effects.withheld}. " if effects.withheld else ""
    said += (
        f"A main effect is how much {effects.metric} changes from a switch's first setting to the one named, averaged "
        "over all settings of the other switches; an interaction (a × b) is how much the first of two effects changes "
        f"when the second setting is also active. Changes {worse} 0 are worse; the study's margin is "
        f"{effects.margin:g}. Estimates: least squares over {plural(effects.trials, 'trial')} with seeds as blocks. "
        "The 95 % intervals are t intervals over the effects that each seed shows alone, so that few seeds give wide "
        "and uneven ones; they are not adjusted for one another."
    )
    if any(row.aliases for row in (*effects.main, *effects.interactions)):
        said += (
            " Where a row names two pairs, these trials cannot tell them apart: the estimate is of their sum. A design "
            "of higher `resolution` separates them."
        )
    if effects.diverged:
        count = "counts" if effects.diverged == 1 else "count"
        said += (
            f" {plural(effects.diverged, 'trial')} that diverged {count} as {effects.counted_as:.4g}, the worst "
            f"{effects.metric} of any finished trial. To leave them out would favour the settings that diverge."
        )
    return said


def _cells(row: EffectRow, effects: StudyEffects, decimals: int) -> tuple[str, ...]:
    interval = interval_words(row.low, row.high, effects.margin, decimals)
    aliases = ", ".join(effects.titles[name] for name in row.aliases)
    return effects.titles[row.name], fixed(row.estimate, decimals, sign=True), interval, aliases or MISSING


def what_is_left(effects: StudyEffects, shown: int) -> str:
    """What the estimates leave out, in sentences; empty if nothing.

    Args:
        shown: How many interactions are shown beside it.
    """
    said = []
    if effects.chosen:
        said.append("The design chose its variants by results, so settings that did well occur in more of them.")
    if effects.pruned:
        said.append(
            f"Left out, as they have no final value: {plural(effects.pruned, 'trial')} stopped early, so effects are "
            "underestimated."
        )
    if effects.interactions_left_out:
        said.append(
            "There are too few variants to estimate interactions. Existing interactions widen the intervals and may "
            "bias the main effects."
        )
    if len(effects.interactions) > shown:
        said.append(f"Left out of the table: {plural(len(effects.interactions) - shown, 'smaller interaction')}.")
    if effects.unseen:
        more = f" and {len(effects.unseen) - MOST_UNSEEN} more" if len(effects.unseen) > MOST_UNSEEN else ""
        unseen = ", ".join(effects.titles[name] for name in effects.unseen[:MOST_UNSEEN])
        said.append(f"No trained combination identifies {unseen}{more}.")
    if effects.axes:
        said.append(f"The variants also differ in {', '.join(effects.axes)}; these effects are part of the noise here.")
    if effects.sd is None:
        said.append("There are as many effects as trials, so no degrees of freedom remain for intervals.")
    return " ".join(said)


def importances_section(findings: Findings, pictures: Mapping[str, Picture]) -> Section | None:
    """How much of the spread each switch and axis explains."""
    if findings.no_importances is not None:
        return Section("Importances", (Paragraph(findings.no_importances),))
    if findings.importances is None:
        return None
    return Section("Importances", tuple(_importance_blocks(findings.importances, findings.report.metric, pictures)))


def _importance_blocks(importances: StudyImportances, metric: str, pictures: Mapping[str, Picture]) -> Iterator[Block]:
    yield Paragraph(how_to_read_importances(importances, metric))
    if "importances" in pictures:
        yield pictures["importances"]
    yield importance_table(importances)


def importance_table(importances: StudyImportances) -> Grid:
    """The share of each switch and axis with its interval, the most important first, then the rest."""
    titles = setting_titles(factor.factor for factor in importances.factors)
    rows = tuple((titles[factor.factor], _percent(factor.share), _range(factor)) for factor in importances.factors)
    return Grid(("switch or axis", "share", "interval"), (rows, ((TOGETHER, _percent(importances.rest), MISSING),)),
                frozenset({0}), fold="In numbers")  # fmt: skip


def importance_finding(importances: StudyImportances, metric: str) -> str:
    """Which switch or axis explains most, and how sure that is, in a sentence."""
    first = importances.factors[0]
    (name,) = setting_titles([first.factor]).values()
    if first.low is None:
        seeds = "1 seed does" if importances.seeds == 1 else f"{importances.seeds} seeds do"
        unsure = f"{seeds} not show how much of this is noise"
        return f"{name} explains most of the variance of {metric}, {_percent(first.share)}; {unsure}."
    return (
        f"{name} explains {_percent(first.share)} ({_range(first)}) of the variance of {metric}, more than any other."
    )


def how_to_read_importances(importances: StudyImportances, metric: str) -> str:
    """What the shares are, in sentences."""
    count = "counts" if importances.diverged == 1 else "count"
    diverged = (
        f" {plural(importances.diverged, 'diverged trial')} {count} as the worst that finished."
        if importances.diverged
        else ""
    )
    pruned = f" Left out: {plural(importances.pruned, 'trial')} stopped early." if importances.pruned else ""
    if any(factor.low is not None for factor in importances.factors):
        interval = (
            "The interval is that of the share without noise, from simulated studies with the noise of these "
            f"{plural(importances.seeds, 'seed')}."
        )
    else:
        interval = "There are too few seeds to estimate the noise, so shares have no intervals and may be partly noise."
    return (
        f"How much of the variance of {metric} over the whole space each switch or axis explains by itself (fANOVA: a "
        f"random forest over {importances.variants} variants). The rest is interactions and noise. "
        f"{interval}{diverged}{pruned}"
    )


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _range(one: Importance) -> str:
    if one.low is None or one.high is None:
        return MISSING
    return f"{100 * one.low:.0f} to {100 * one.high:.0f} %"
