"""The colours of the dashboard: contrast by WCAG 2.2, and colour-blindness by the matrices of Machado et al. (2009).

Differences are distances in OKLab (Ottosson 2020), times 100. All of this is written here from the publications.
"""

from __future__ import annotations

import itertools
import re
import tomllib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from contrast import contrast, linear, over

from ablate.render.drawing import svg as drawing
from ablate.render.figures import style
from ablate.render.figures.style import Palette
from dashboard.shared import frame

MACHADO = {
    "usual": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
TO_CONES = np.array(
    [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
)
TO_LAB = np.array(
    [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
)
LEAST_CONTRAST, LEAST_DIFFERENCE = 4.5, 7.9
THEME = tomllib.loads((Path(frame.__file__).parents[1] / ".streamlit" / "config.toml").read_text())["theme"]
GROUND = {False: "#ffffff", True: THEME["dark"]["backgroundColor"]}


def lab(colour: str, eye: str) -> np.ndarray:
    seen = np.clip(MACHADO[eye] @ linear(colour), 0, 1)
    return 100 * TO_LAB @ np.cbrt(TO_CONES @ seen)


def baseline_colour(palette: Palette) -> str:
    record = SimpleNamespace(baseline="baseline", variants=())
    return palette.variants(record)["baseline"].colour  # type: ignore[arg-type]


@pytest.fixture(params=[False, True], ids=["light", "dark"])
def dark(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    monkeypatch.setattr(frame, "dark", lambda: request.param)
    return bool(request.param)


def test_every_colour_contrasts_with_the_page(dark: bool) -> None:
    palette = Palette(dark)
    shown = [palette.look(number).colour for number in range(6)]
    shown += [palette.verdict(word).colour for word in style._VERDICTS]
    shown += [palette.ink, palette.grey, baseline_colour(palette), *re.findall("#[0-9a-f]{6}", frame.style())]
    theme = THEME["dark" if dark else "light"]
    shown += [theme["linkColor"]]
    assert theme["linkColor"] == frame.LINK[dark]
    assert contrast(theme["borderColor"], GROUND[dark]) >= 3, "controls can be seen"
    for name, word in {"green": "not needed", "orange": "needed", "yellow": "undecided"}.items():
        assert theme[f"{name}Color"] == palette.verdict(word).colour
    assert {colour: contrast(colour, GROUND[dark]) for colour in shown if contrast(colour, GROUND[dark]) < 4.5} == {}
    assert contrast("#ffffff", theme["primaryColor"]) >= LEAST_CONTRAST


@pytest.mark.parametrize("eye", MACHADO)
def test_the_colours_of_variants_and_of_verdicts_can_be_distinguished(dark: bool, eye: str) -> None:
    palette = Palette(dark)
    variants = [*(palette.look(number).colour for number in range(6)), baseline_colour(palette)]
    for shown in (variants, [palette.verdict(word).colour for word in style._VERDICTS]):
        apart = {
            pair: float(np.linalg.norm(lab(pair[0], eye) - lab(pair[1], eye)))
            for pair in itertools.combinations(shown, 2)
        }
        assert min(apart.values()) >= LEAST_DIFFERENCE, min(apart, key=apart.__getitem__)


def test_looks_differ_where_colours_repeat() -> None:
    looks = [(drawn.colour, drawn.dash) for drawn in map(Palette().look, range(30))]
    assert len(set(looks)) == 30
    assert len({Palette().verdict(word).mark for word in style._VERDICTS}) == len(style._VERDICTS)


def styled(css: str, tag: str, *classes: str) -> dict[str, str]:
    """The properties of an element in a drawing of a block, by the cascade."""
    found = []
    for place, (selectors, body) in enumerate(re.findall(r"([^{}]+)\{([^{}]*)\}", css)):
        for selector in selectors.split(","):
            name, *of = selector.replace(" ", "").strip().split(".")
            if name in ("", tag) and {*of} <= {*classes}:
                found.append((len(of), bool(name), place, dict(re.findall(r"([\w-]+): ([^;]+);", body))))
    return {
        key: value for *_, properties in sorted(found, key=lambda one: one[:3]) for key, value in properties.items()
    }


def test_drawings_of_blocks_contrast_with_what_is_below(dark: bool) -> None:
    sheets = (sheet.split("@media (prefers-color-scheme: dark) {") for sheet in (drawing._STYLE, drawing._JUDGED))
    css = "".join(itertools.chain.from_iterable(parts[: 1 + dark] for parts in sheets))
    paper = styled(css, "rect", "paper")["fill"]
    states = ("kept", "removed", "added", *drawing.VERDICTS)
    least: dict[tuple[str, ...], float] = {}
    for ground, of in itertools.product((paper, GROUND[dark]), states):
        box = styled(css, "rect", "box", of)
        inside = over(box["fill"], ground)
        least["line", of] = contrast(styled(css, "path", "line", of)["stroke"], ground)
        least["head", of] = contrast(styled(css, "path", "head", of)["fill"], ground)
        least["note", of] = contrast(styled(css, "text", "note", of)["fill"], ground) / 1.5
        least["box", of] = contrast(box["stroke"], ground)
        least["label", of] = contrast(styled(css, "text", "label", of)["fill"], inside) / 1.5
        for at in states if of == "kept" else (of,):
            chip = styled(css, "rect", "chip", at)
            word = styled(css, "text", "note", at)["fill"]
            least["chip", at, of] = contrast(chip["stroke"], inside)
            least["word", at, of] = contrast(word, over(chip["fill"], inside)) / 1.5
    assert {part: round(found, 2) for part, found in least.items() if found < 3} == {}


def test_verdicts_have_the_same_colours_in_drawings_of_blocks() -> None:
    words = {"needed": "needed", "dispensable": "not needed", "open": "undecided"}
    for state, word in words.items():
        assert drawing.VERDICTS[state] == tuple(Palette(dark).verdict(word).colour for dark in (False, True))  # type: ignore[index]
