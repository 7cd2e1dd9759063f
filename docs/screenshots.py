"""Makes the pictures of the dashboard in `docs/images`: `python -m docs.screenshots [FOLDER [STORE]]`.

They show real studies, which take some minutes and stay in FOLDER (else in a temporary folder), so that another run
has only the pictures to make. With FOLDER every page is also photographed there, light and dark, in four widths. With
STORE the pictures of the answer and of the curves show its study `simplify_block`, which README speaks of.
"""

from __future__ import annotations

import io
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ablate.api import run
from ablate.spec.space import SpaceSpec
from benchmarks.browser import IDLE, find_browser, launch

PICTURES = Path(__file__).parent / "images"
SHAPED: dict[str, Any] = {
    "block.skips.mixer": 0,
    "block.mixer.shaping": "shaped",
    "block.mixer.value": {"kind": "dense", "init": "orthogonal"},
    "block.mixer.output": {"kind": "dense", "init": "orthogonal"},
    "block.gains.mixer_branch": {"init": 1, "trainable": True},
    "block.gains.mlp_branch": {"init": 0.5, "trainable": True},
}
SWITCHES: dict[str, Any] = {
    "attention_skip": {"kept": {}, "removed": {"block.skips.mixer": 0}, "shaped": SHAPED},
    "values": {"dense": {}, "identity": {"block.mixer.value": "identity"}},
    "projection": {"dense": {}, "identity": {"block.mixer.output": "identity"}},
    "norm": {"rms": {}, "none": {"block.norm": "none", "model.exceptions.first.norm": "rms"}},
}
RATE = {"usual": {}, "huge": {"training.optimizer.lr": 1.0e30}}
COMMON: dict[str, Any] = {
    "task": {
        "kind": "language_model",
        "data": "builtin:python_stdlib",
        "tokenizer": "bytes",
        "context": 64,
        "validation_windows": 64,
    },
    "model": {"family": "decoder", "depth": 3, "width": 32, "heads": 4, "block": "pre_ln"},
    "training": {"steps": 600, "batch_size": 16, "optimizer": {"lr": 6.0e-3, "weight_decay": 0.1}},
    "objective": {"margin": 0.05},
}
CLAIMS = [
    {
        "id": "skip-is-needed",
        "says": "Without the attention skip, and with nothing in its place, the loss is at least 0.05 nats higher.",
        "source": "arXiv:2311.01906, Section 4.1",
        "expect": "worse",
        "left": "attention_skip=removed",
        "right": "baseline",
        "margin": 0.05,
    },
    {
        "id": "projection-can-go",
        "says": "The output projection can go without slowing training.",
        "source": "arXiv:2311.01906, Section 4.2",
        "expect": "not_worse",
        "left": "projection=identity",
        "right": "baseline",
        "margin": 0.05,
    },
]
SPACES: tuple[dict[str, Any], ...] = (
    {
        "name": "crossed",
        "question": "Which parts of a Pre-LN block matter on average over the others?",
        "switches": {name: dict(list(settings.items())[:2]) for name, settings in SWITCHES.items()},
        "design": {"kind": "fractional", "resolution": "IV", "seeds": 2},
    },
    {
        "name": "smallest",
        "question": "How much of a Pre-LN block can go, one part after the other?",
        "switches": SWITCHES,
        "design": {"kind": "simplify", "seeds": 3},
    },
    {
        "name": "skipless",
        "question": "Which parts of a Pre-LN block can go without slowing training?",
        "source": "arXiv:2311.01906",
        "training": {**COMMON["training"], "record_blocks": True, "save_weights": True},
        "switches": {**SWITCHES, "rate": RATE},
        "variants": {"sas": {"attention_skip": "shaped", "values": "identity", "projection": "identity"}},
        "design": {"kind": "leave_one_out", "seeds": 3},
        "claims": CLAIMS,
    },
)
PAGES = {
    "studies": "/?study=skipless",
    "answer": "/answer?study=skipless",
    "curves": "/curves?study=skipless",
    "effects": "/effects?study=crossed",
    "interactions": "/effects?study=crossed&show=Interactions",
    "importances": "/effects?study=crossed&show=Importances",
    "parallel": "/effects?study=crossed&show=Parallel",
    "path": "/path?study=smallest",
    "tradeoffs": "/tradeoffs?study=skipless",
    "compare": "/compare?study=skipless&sides=baseline&sides=sas",
    "trial": "/trial?study=skipless&variant=baseline",
    "diverged": "/trial?study=skipless&variant=rate%3Dhuge",
    "cluster": "/cluster?study=skipless",
    "search": "/search?study=smallest",
    "trials": "/trials?study=skipless",
    "across": "/across?studies=skipless&studies=crossed",
    "slides": "/slides?study=skipless",
    "design": "/design",
}
SIZES = {"screen": (1920, 1080), "wide": (1440, 1000), "laptop": (1280, 800), "phone": (390, 844)}
README = {"answer": 1440, "curves": 1000, "trial": 2860, "design": 1260}
"""Pages in the documentation, with the height in pixels of what is shown of them."""
OF_FIRST = ("answer", "curves")


def main() -> None:
    """Run the studies that are missing, then take the pictures."""
    from playwright.sync_api import sync_playwright

    browser = find_browser()
    if browser is None:
        sys.exit("A Chromium is needed to take pictures.")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(sys.argv[1] if len(sys.argv) > 1 else temporary)
        store = folder / "ablate.db"
        for space in SPACES:
            run(SpaceSpec.model_validate({**COMMON, **space}), store=store, device="cpu")
        first = Path(sys.argv[2]) if len(sys.argv) > 2 else None
        with _serving(store) as base, _serving(first or store) as other, sync_playwright() as playwright:
            chromium = launch(playwright, browser)
            for page, height in README.items():
                of_first = first is not None and page in OF_FIRST
                address = f"{other}/{page}?study=simplify_block" if of_first else base + PAGES[page]
                (PICTURES / f"dashboard_{page}.png").write_bytes(_small(_photograph(chromium, address, height)))
            if len(sys.argv) > 1:
                _all(chromium, base, folder)
            chromium.close()


def _all(chromium: Any, base: str, folder: Path) -> None:
    for page, address in PAGES.items():
        for light in ("light", "dark"):
            for size in SIZES:
                picture = _photograph(chromium, base + address, None, light, size)
                (folder / f"{page}_{light}_{size}.png").write_bytes(picture)


def _photograph(chromium: Any, address: str, height: int | None, light: str = "light", size: str = "wide") -> bytes:
    """A page from its top; all of it if no height is given."""
    width, window = SIZES[size]
    with chromium.new_context(viewport={"width": width, "height": window}, color_scheme=light) as context:
        tab = context.new_page()
        tab.set_default_timeout(120_000)
        tab.goto(address)
        tab.wait_for_function(IDLE)
        for _ in range(1 if height else 2):  # what is drawn once it is in view makes the page taller
            tall = tab.evaluate("document.querySelector('[data-testid=stMainBlockContainer]').scrollHeight") + 40
            tab.set_viewport_size({"width": width, "height": max(window, tall) if height is None else height})
            tab.wait_for_timeout(1500)  # figures take the new size one after the other
            tab.wait_for_function(IDLE)
        picture: bytes = tab.screenshot()
    return picture


def _small(picture: bytes) -> bytes:
    """The picture in 256 colours, which figures and words do not miss."""
    from PIL import Image

    written = io.BytesIO()
    Image.open(io.BytesIO(picture)).convert("RGB").quantize(256).save(written, "PNG", optimize=True)
    return written.getvalue()


@contextmanager
def _serving(store: Path) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "ablate", "dashboard", "--store", str(store), "--port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/_stcore/health", timeout=5).close()
                break
            except OSError:
                if process.poll() is not None:
                    sys.exit("The dashboard does not start.")
                time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


if __name__ == "__main__":
    main()
