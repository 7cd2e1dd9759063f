"""A process that draws blocks: it knows the kinds, and so has torch; the dashboard has not.

It reads a line of JSON for each picture, `[name, model, versus]`, and writes one with the SVG, empty if the kind of
mixer is not known here. Its arguments are files of plugins. It ends when its input does.
"""

from __future__ import annotations

import json
import sys
from typing import Any


def draw(name: str, model: dict[str, Any], versus: tuple[str, dict[str, Any]] | None) -> str:
    """The picture of a block as SVG; empty if its kind of mixer is not known here."""
    from pydantic import ValidationError

    from ablate.render.drawing.stored import stored_svg

    try:
        return stored_svg(name, model, versus)
    except ValidationError:
        return ""


def main() -> None:
    """Load the plugins, then draw what is asked for."""
    from ablate.plugins import load_plugin

    for plugin in sys.argv[1:]:
        load_plugin(plugin)
    for line in sys.stdin:
        print(json.dumps(draw(*json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
