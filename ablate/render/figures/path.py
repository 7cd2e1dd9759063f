"""The path of `simplify`: what each step costs in loss, what else was tried, and what it saves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ablate.analysis.findings import Findings
from ablate.analysis.path import Removal, RemovalPath, VariantSummary
from ablate.render.blocks import Picture
from ablate.render.figures.style import WIDTH, Look, Palette, Spec, by_look, margin_marks, mark, names, number, wrapped
from ablate.stats.verdict import removal_word

STEP = "step of the path"
WORDS = {"not needed": "could go too", "better": "better without too"}
"""Verdict on a removal that is not a step of the path, in other words."""


def pictures(findings: Findings) -> tuple[Picture, ...]:
    """The figure of a `simplify` study, once a round is complete."""
    path = findings.path
    if path is None or not path.rounds:
        return ()
    worse = "up" if path.direction == "minimize" else "down"
    caption = (
        f"The path of removals. Top: {path.metric} against the baseline at each step, paired by seed with 95 % "
        f"intervals ({worse} is worse; dashed: the margin {path.margin:g}). The smaller marks beside each step are the "
        "other removals of that round, by verdict. Bottom: parameters, training FLOP and speed, in per cent of the "
        "baseline's."
    )
    return (Picture("path", caption),)


def draw_path(path: RemovalPath, palette: Palette) -> Spec:
    """The differences above, the costs below, a column for each round."""
    labels = ["baseline", *(wrapped(f"− {step.switch}={step.setting}", 16) for step in path.steps)]
    more = "nothing cheaper" if path.rounds and any(one.kept for one in path.rounds[-1]) else "nothing more"
    labels += [more] * (len(path.rounds) - len(path.steps))
    wide = {"width": WIDTH - 70}
    upper = {**wide, "height": 210, "layer": _losses(path, labels, palette)}
    lower = {**wide, "height": 110, "layer": _costs(path, labels, palette)}
    shared = {"scale": {"color": "independent", "shape": "independent"}}
    return {"vconcat": [upper, lower], "resolve": shared, "autosize": {"type": "fit-x", "contains": "padding"}}


def _losses(path: RemovalPath, labels: list[str], palette: Palette) -> list[Spec]:
    margin = path.margin if path.direction == "minimize" else -path.margin
    looks = {STEP: Look(palette.look(0).colour, (1, 0), "square")}
    looks |= {
        WORDS.get(word, word): palette.verdict(word) for word in ("better", "not needed", "undecided", "diverged")
    }
    looks["needed"] = replace(palette.verdict("needed"), mark="cross")
    steps = {step.standing.variant for step in path.steps}
    rows: list[Spec] = [
        {"name": "baseline", "at": labels[0], "shift": 0.5, "word": STEP, "difference": 0.0, "low": None, "high": None}
    ]
    for column, tried in enumerate(path.rounds, 1):
        others = [one for one in tried if one.standing.variant not in steps]
        for place, one in enumerate(others, 1):
            word = WORDS.get(removal_word(one.verdict.word), removal_word(one.verdict.word))
            rows.append(_row(one, labels[column], 0.55 + 0.4 * place / (len(others) + 1), word))
    rows += [_row(step, labels[column], 0.5, STEP) for column, step in enumerate(path.steps, 1)]
    lost = [row for row in rows if row["word"] == "diverged"]
    rows = [row for row in rows if row["difference"] is not None and row not in lost]
    found = {word: look for word, look in looks.items() if any(row["word"] == word for row in (*rows, *lost))}
    size = {"condition": {"test": f"datum.word == '{STEP}'", "value": 90}, "value": 38}
    x, y = names("at", labels), number("difference", f"difference of {path.metric}")
    shifted = {"x": {**x, "axis": None, "scale": {"domain": labels, "type": "band"}},
               "xOffset": {"field": "shift", "type": "quantitative", "scale": {"domain": [0, 1]}}}  # fmt: skip
    tip = [{"field": key, "title": key} for key in ("name", "difference", "low", "high", "word")]
    known = [row for row in rows if row["word"] == STEP and row["low"] is not None]
    tone, marks = by_look("word", found, "color"), by_look("word", found, "color", "shape")
    return [
        *margin_marks(margin, "y"),
        mark("rule", known, {**shifted, "y": {**y, "field": "low"}, "y2": {"field": "high"}, **tone}, strokeWidth=1.6),
        mark("point", rows, {**shifted, "y": y, **marks, "size": size, "tooltip": tip}),
        mark("point", lost, {**shifted, "y": {"value": 8}, **marks, "tooltip": tip}, size=45),
    ]


def _row(one: Removal, label: str, shift: float, word: str) -> Spec:
    paired = one.standing.difference
    return {
        "name": f"{one.switch}={one.setting}", "at": label, "shift": shift, "word": word,
        "difference": paired.difference if paired else None, "low": paired.low if paired else None,
        "high": paired.high if paired else None,
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
